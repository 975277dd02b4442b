/* eval_back.c - reference evaluation of gradients: elementwise ops, norms, products and rearrangements. */
#include "compiler/ir/eval_priv.h"

#include <math.h>
#include <string.h>

/* ---- elementwise: the derivative at x, or from the result y ---- */
static taper_status elementwise(eval_ctx *c, double (*derivative)(double)) {
  for (int64_t i = 0; i < eval_elements(c->out); i++)
    c->out->data[i] = derivative(c->in[0]->data[i]) * c->in[1]->data[i];
  return TAPER_OK;
}

/* Phi(x) + x phi(x), with phi the normal density. */
static double gelu(double x) {
  return 0.5 * erfc(-x * 0.70710678118654752440) + x * exp(-0.5 * x * x) * 0.39894228040143267794;
}

static double gelu_tanh(double x) {
  double t = tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * 0.79788456080286535588 * (1 + 3 * 0.044715 * x * x);
}

static double silu(double x) {
  double s = x >= 0 ? 1 / (1 + exp(-x)) : exp(x) / (1 + exp(x));
  return s * (1 + x * (1 - s));
}

static double relu(double x) { return x > 0 || isnan(x) ? 1 : 0; }
static double sigmoid_of(double y) { return y * (1 - y); }
static double tanh_of(double y) { return 1 - y * y; }
static double sqrt_of(double y) { return 0.5 / y; }

taper_status eval_gelu_back(eval_ctx *c) { return elementwise(c, gelu); }
taper_status eval_gelu_tanh_back(eval_ctx *c) { return elementwise(c, gelu_tanh); }
taper_status eval_silu_back(eval_ctx *c) { return elementwise(c, silu); }
taper_status eval_relu_back(eval_ctx *c) { return elementwise(c, relu); }
taper_status eval_sigmoid_back(eval_ctx *c) { return elementwise(c, sigmoid_of); }
taper_status eval_tanh_back(eval_ctx *c) { return elementwise(c, tanh_of); }
taper_status eval_sqrt_back(eval_ctx *c) { return elementwise(c, sqrt_of); }

taper_status eval_softcap_back(eval_ctx *c) {
  double cap = ir_attr_float(c->m, c->v, IR_ATTR_CAP, 1);
  for (int64_t i = 0; i < eval_elements(c->out); i++)
    c->out->data[i] = tanh_of(tanh(c->in[0]->data[i] / cap)) * c->in[1]->data[i];
  return TAPER_OK;
}

/* ---- norms ---- */
typedef struct row {
  const double *x, *dy;
  double *dx;
  int64_t d;
  double mu, s; /* s = sqrt(mean((x - mu)^2) + eps) */
} row;

static row row_of(const eval_ctx *c, const ir_tensor *dy, int64_t r, bool centred) {
  int64_t d = eval_last(c->in[0]);
  row a = {c->in[0]->data + r * d, dy->data + (eval_last(dy) == d ? r * d : r), c->out->data + r * d, d, 0, 0};
  for (int64_t i = 0; centred && i < d; i++) a.mu += a.x[i] / (double)d;
  for (int64_t i = 0; i < d; i++) a.s += (a.x[i] - a.mu) * (a.x[i] - a.mu);
  a.s = sqrt(a.s / (double)d + ir_eps(c->m, c->v));
  return a;
}

static void center(double *x, int64_t d) {
  double mu = 0;
  for (int64_t i = 0; i < d; i++) mu += x[i];
  for (int64_t i = 0; i < d; i++) x[i] -= mu / (double)d;
}

/* y = bias + g (x - mu)/s weight + factor (x - mu) taper_weight, factor = (1 - g) c. With u = dy weight and v = dy taper_weight
   dx = P (g (u - (x - mu) (u . (x - mu)) / (d s^2)) / s + factor v), P the subtraction of the mean where the form is centred. */
static taper_status norm_back(eval_ctx *c, bool centred, double g, double factor, const ir_tensor *weight,
                              const ir_tensor *taper_weight) {
  const ir_tensor *dy = c->in[c->n - 1];
  for (int64_t r = 0; r < eval_rows(c->out); r++) {
    row a = row_of(c, dy, r, centred);
    double along = 0;
    for (int64_t i = 0; g != 0 && i < a.d; i++) along += a.dy[i] * weight->data[i] * (a.x[i] - a.mu);
    along /= (double)a.d * a.s * a.s;
    for (int64_t i = 0; g != 0 && i < a.d; i++)
      a.dx[i] += g * (a.dy[i] * weight->data[i] - (a.x[i] - a.mu) * along) / a.s;
    for (int64_t i = 0; g != 1 && i < a.d; i++) a.dx[i] += factor * a.dy[i] * taper_weight->data[i];
    if (centred) center(a.dx, a.d);
  }
  return TAPER_OK;
}

taper_status eval_rms_norm_back(eval_ctx *c) { return norm_back(c, false, 1, 0, c->in[1], NULL); }
taper_status eval_layer_norm_back(eval_ctx *c) { return norm_back(c, true, 1, 0, c->in[1], NULL); }

static taper_status taper_back(eval_ctx *c, bool centred) {
  double g = c->in[4]->data[0], factor = g != 1 ? (1 - g) * c->in[3]->data[0] : 0;
  return norm_back(c, centred, g, factor, c->in[1], c->in[2]);
}

taper_status eval_taper_rms_norm_back(eval_ctx *c) { return taper_back(c, false); }
taper_status eval_taper_layer_norm_back(eval_ctx *c) { return taper_back(c, true); }

static taper_status row_statistic(eval_ctx *c, bool centred) {
  int64_t d = eval_last(c->in[0]);
  for (int64_t r = 0; r < eval_elements(c->out); r++) {
    const double *x = c->in[0]->data + r * d;
    double mu = 0, sum = 0;
    for (int64_t i = 0; centred && i < d; i++) mu += x[i] / (double)d;
    for (int64_t i = 0; i < d; i++) sum += (x[i] - mu) * (x[i] - mu);
    c->out->data[r] = sqrt(sum / (double)d + ir_eps(c->m, c->v));
  }
  return TAPER_OK;
}

taper_status eval_row_rms(eval_ctx *c) { return row_statistic(c, false); }
taper_status eval_row_std(eval_ctx *c) { return row_statistic(c, true); }

/* dx = ds (x - mu) / (d s) */
static taper_status row_statistic_back(eval_ctx *c, bool centred) {
  for (int64_t r = 0; r < eval_rows(c->out); r++) {
    row a = row_of(c, c->in[1], r, centred);
    double ds = c->in[1]->data[r];
    for (int64_t i = 0; i < a.d; i++) a.dx[i] = ds * (a.x[i] - a.mu) / ((double)a.d * a.s);
  }
  return TAPER_OK;
}

taper_status eval_row_rms_back(eval_ctx *c) { return row_statistic_back(c, false); }
taper_status eval_row_std_back(eval_ctx *c) { return row_statistic_back(c, true); }

taper_status eval_dyt_back(eval_ctx *c) {
  int64_t d = eval_last(c->out);
  double alpha = c->in[1]->data[0];
  for (int64_t i = 0; i < eval_elements(c->out); i++)
    c->out->data[i] = tanh_of(tanh(alpha * c->in[0]->data[i])) * alpha * c->in[2]->data[i % d] * c->in[3]->data[i];
  return TAPER_OK;
}

/* ---- products, rearrangements, sums over rows ---- */
taper_status eval_linear_back(eval_ctx *c) {
  int64_t out = eval_last(c->in[0]), in = eval_last(c->out);
  for (int64_t r = 0; r < eval_rows(c->out); r++)
    for (int64_t o = 0; o < out; o++)
      for (int64_t i = 0; i < in; i++)
        c->out->data[r * in + i] += c->in[0]->data[r * out + o] * c->in[1]->data[o * in + i];
  return TAPER_OK;
}

taper_status eval_linear_weight_back(eval_ctx *c) {
  int64_t out = eval_last(c->in[0]), in = eval_last(c->in[1]);
  for (int64_t r = 0; r < eval_rows(c->in[0]); r++)
    for (int64_t o = 0; o < out; o++)
      for (int64_t i = 0; i < in; i++)
        c->out->data[o * in + i] += c->in[0]->data[r * out + o] * c->in[1]->data[r * in + i];
  return TAPER_OK;
}

taper_status eval_embed_back(eval_ctx *c) {
  int64_t time = c->in[0]->dim[1], rows = eval_elements(c->in[0]), d = eval_last(c->out);
  for (int64_t r = 0; r < rows; r++) {
    double id = c->in[0]->data[r];
    if (!eval_row_is_valid(c, r / time, r % time)) continue;
    if (id < 0 || id >= (double)c->out->dim[0])
      return TAPER_FAIL(c->error, TAPER_INVALID, "id %lld at row %lld is outside the %lld rows of the table",
                        (long long)id, (long long)r, (long long)c->out->dim[0]);
    for (int64_t i = 0; i < d; i++) c->out->data[(int64_t)id * d + i] += c->in[1]->data[r * d + i];
  }
  return TAPER_OK;
}

taper_status eval_sum_rows(eval_ctx *c) {
  int64_t d = eval_last(c->out);
  for (int64_t i = 0; i < eval_elements(c->in[0]); i++) c->out->data[i % d] += c->in[0]->data[i];
  return TAPER_OK;
}

taper_status eval_pad(eval_ctx *c) {
  int64_t start = ir_attr_int(c->m, c->v, IR_ATTR_START, 0), d = eval_last(c->in[0]), size = eval_last(c->out);
  for (int64_t r = 0; r < eval_rows(c->out); r++)
    memcpy(c->out->data + r * size + start, c->in[0]->data + r * d, (size_t)d * sizeof(double));
  return TAPER_OK;
}
