/* eval_norm.c - reference evaluation of norms and of what is left of them. */
#include "compiler/ir/eval_priv.h"

#include <math.h>
#include <string.h>

static double mean(const double *x, int64_t d) {
  double sum = 0;
  for (int64_t i = 0; i < d; i++) sum += x[i];
  return sum / (double)d;
}

/* sqrt(mean((x - mu)^2) + eps), mu known: two passes, so that a large mean costs no digits. */
static double deviation(const double *x, int64_t d, double mu, double eps) {
  double sum = 0;
  for (int64_t i = 0; i < d; i++) sum += (x[i] - mu) * (x[i] - mu);
  return sqrt(sum / (double)d + eps);
}

/* The common form: bias + g (x - mu)/s weight + (1 - g) c (x - mu) taper_weight. Parts that are NULL are left out. */
typedef struct norm_form {
  bool centred;
  double g, c, eps;
  const double *weight, *taper_weight, *bias;
} norm_form;

static taper_status normalise(eval_ctx *c, const norm_form *f) {
  int64_t rows = eval_rows(c->out), d = eval_last(c->out);
  for (int64_t r = 0; r < rows; r++) {
    const double *x = c->in[0]->data + r * d;
    double *y = c->out->data + r * d;
    double mu = f->centred ? mean(x, d) : 0, s = f->g != 0 ? deviation(x, d, mu, f->eps) : 0;
    for (int64_t i = 0; i < d; i++) {
      double live = f->g != 0 && f->weight ? (x[i] - mu) / s * f->weight[i] : 0;
      double tapered = f->g != 1 && f->taper_weight ? f->c * (x[i] - mu) * f->taper_weight[i] : 0;
      double v = f->g == 1 ? live : f->g == 0 ? tapered : f->g * live + (1 - f->g) * tapered;
      y[i] = f->bias ? v + f->bias[i] : v;
    }
  }
  return TAPER_OK;
}

static const double *data_of(const ir_tensor *t) { return t ? t->data : NULL; }

taper_status eval_rms_norm(eval_ctx *c) {
  return normalise(c, &(norm_form){.g = 1, .eps = ir_eps(c->m, c->v), .weight = c->in[1]->data});
}

taper_status eval_layer_norm(eval_ctx *c) {
  return normalise(
      c, &(norm_form){
             .centred = true, .g = 1, .eps = ir_eps(c->m, c->v), .weight = c->in[1]->data, .bias = c->in[2]->data});
}

taper_status eval_taper_rms_norm(eval_ctx *c) {
  return normalise(c, &(norm_form){.g = c->in[4]->data[0],
                                   .c = c->in[3] ? c->in[3]->data[0] : 0,
                                   .eps = ir_eps(c->m, c->v),
                                   .weight = data_of(c->in[1]),
                                   .taper_weight = data_of(c->in[2])});
}

taper_status eval_taper_layer_norm(eval_ctx *c) {
  return normalise(c, &(norm_form){.centred = true,
                                   .g = c->in[5]->data[0],
                                   .c = c->in[4] ? c->in[4]->data[0] : 0,
                                   .eps = ir_eps(c->m, c->v),
                                   .weight = data_of(c->in[1]),
                                   .bias = c->in[2]->data,
                                   .taper_weight = data_of(c->in[3])});
}

static taper_status inverse(eval_ctx *c, bool centred) {
  int64_t d = eval_last(c->in[0]), rows = eval_rows(c->in[0]);
  double eps = ir_eps(c->m, c->v);
  for (int64_t r = 0; r < rows; r++) {
    const double *x = c->in[0]->data + r * d;
    c->out->data[r] = 1 / deviation(x, d, centred ? mean(x, d) : 0, eps);
  }
  return TAPER_OK;
}

taper_status eval_inv_rms(eval_ctx *c) { return inverse(c, false); }
taper_status eval_inv_std(eval_ctx *c) { return inverse(c, true); }

taper_status eval_row_scale(eval_ctx *c) {
  int64_t n = eval_elements(c->out), d = eval_last(c->out);
  for (int64_t i = 0; i < n; i++) c->out->data[i] = c->in[0]->data[i] * c->in[1]->data[i / d];
  return TAPER_OK;
}

taper_status eval_row_shift(eval_ctx *c) {
  int64_t n = eval_elements(c->out), d = eval_last(c->out);
  for (int64_t i = 0; i < n; i++) c->out->data[i] = c->in[0]->data[i] + c->in[1]->data[i / d];
  return TAPER_OK;
}

/* Which element of a vector meets element i: by the last axis, or by the first. */
static int64_t vector_index(const eval_ctx *c, int64_t i) {
  const ir_tensor *t = c->out;
  return ir_attr_int(c->m, c->v, IR_ATTR_AXIS, -1) == 0 ? i / (eval_elements(t) / t->dim[0]) : i % eval_last(t);
}

taper_status eval_scale(eval_ctx *c) {
  int64_t n = eval_elements(c->out);
  for (int64_t i = 0; i < n; i++) c->out->data[i] = c->in[0]->data[i] * c->in[1]->data[vector_index(c, i)];
  return TAPER_OK;
}

taper_status eval_shift(eval_ctx *c) {
  int64_t n = eval_elements(c->out);
  for (int64_t i = 0; i < n; i++) c->out->data[i] = c->in[0]->data[i] + c->in[1]->data[vector_index(c, i)];
  return TAPER_OK;
}

/* The lines along an axis (-1: rows, 0: columns) of x: where line l begins, and how far its elements are apart. */
typedef struct lines {
  int64_t lines, count, first, step;
} lines;

static lines lines_of(const eval_ctx *c) {
  const ir_tensor *x = c->in[0];
  bool columns = ir_attr_int(c->m, c->v, IR_ATTR_AXIS, -1) == 0;
  int64_t count = columns ? x->dim[0] : eval_last(x), n = eval_elements(x) / count;
  return (lines){n, count, columns ? 1 : count, columns ? n : 1};
}

static double line_mean(const double *x, const lines *a) {
  double sum = 0;
  for (int64_t i = 0; i < a->count; i++) sum += x[i * a->step];
  return sum / (double)a->count;
}

taper_status eval_center(eval_ctx *c) {
  const lines a = lines_of(c);
  for (int64_t l = 0; l < a.lines; l++) {
    const double *x = c->in[0]->data + l * a.first;
    const double mu = line_mean(x, &a);
    double *y = c->out->data + l * a.first;
    for (int64_t i = 0; i < a.count; i++) y[i * a.step] = x[i * a.step] - mu;
  }
  return TAPER_OK;
}

taper_status eval_row_mean(eval_ctx *c) {
  const lines a = lines_of(c);
  for (int64_t l = 0; l < a.lines; l++) c->out->data[l] = line_mean(c->in[0]->data + l * a.first, &a);
  return TAPER_OK;
}

taper_status eval_dyt(eval_ctx *c) {
  int64_t n = eval_elements(c->out), d = eval_last(c->out);
  double alpha = c->in[1]->data[0];
  for (int64_t i = 0; i < n; i++)
    c->out->data[i] = c->in[2]->data[i % d] * tanh(alpha * c->in[0]->data[i]) + c->in[3]->data[i % d];
  return TAPER_OK;
}
