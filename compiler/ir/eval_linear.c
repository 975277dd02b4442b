/* eval_linear.c - reference evaluation of lookups, products and rearrangements. */
#include "compiler/ir/eval_priv.h"

#include <string.h>

double eval_dot(const double *a, const double *b, int64_t n) {
  double s[4] = {0};
  int64_t i = 0;
  for (; i + 4 <= n; i += 4)
    for (int k = 0; k < 4; k++) s[k] += a[i + k] * b[i + k];
  for (; i < n; i++) s[0] += a[i] * b[i];
  return (s[0] + s[1]) + (s[2] + s[3]);
}

taper_status eval_positions(eval_ctx *c) {
  int64_t time = c->out->dim[1], n = eval_elements(c->out);
  for (int64_t i = 0; i < n; i++) c->out->data[i] = c->in[1]->data[i / time] + (double)(i % time);
  return TAPER_OK;
}

/* Rows that hold no token give zeros, whatever their id. */
taper_status eval_embed(eval_ctx *c) {
  int64_t batch = c->in[0]->dim[0], time = c->in[0]->dim[1], rows = c->in[1]->dim[0], d = c->in[1]->dim[1];
  for (int64_t b = 0; b < batch; b++) {
    for (int64_t t = 0; t < time; t++) {
      double id = c->in[0]->data[b * time + t];
      if (!eval_row_is_valid(c, b, t)) continue;
      if (id < 0 || id >= (double)rows)
        return TAPER_FAIL(c->error, TAPER_INVALID, "id %lld at [%lld, %lld] is outside the %lld rows of the table",
                          (long long)id, (long long)b, (long long)t, (long long)rows);
      memcpy(c->out->data + (b * time + t) * d, c->in[1]->data + (int64_t)id * d, (size_t)d * sizeof(double));
    }
  }
  return TAPER_OK;
}

taper_status eval_linear(eval_ctx *c) {
  int64_t in = eval_last(c->in[0]), out = c->in[1]->dim[0], rows = eval_rows(c->in[0]);
  const double *bias = c->n > 2 && c->in[2] ? c->in[2]->data : NULL;
  for (int64_t r = 0; r < rows; r++)
    for (int64_t o = 0; o < out; o++)
      c->out->data[r * out + o] = eval_dot(c->in[0]->data + r * in, c->in[1]->data + o * in, in) + (bias ? bias[o] : 0);
  return TAPER_OK;
}

taper_status eval_concat(eval_ctx *c) {
  int64_t axis = ir_attr_int(c->m, c->v, IR_ATTR_AXIS, -1), outer = 1, inner = 1, at = 0;
  uint32_t a = axis < 0 ? c->out->rank - 1 : (uint32_t)axis;
  for (uint32_t i = 0; i < a; i++) outer *= c->out->dim[i];
  for (uint32_t i = a + 1; i < c->out->rank; i++) inner *= c->out->dim[i];
  int64_t line = c->out->dim[a] * inner;
  for (size_t k = 0; k < c->n; k++) {
    int64_t part = c->in[k]->dim[a] * inner;
    for (int64_t o = 0; o < outer; o++)
      memcpy(c->out->data + o * line + at, c->in[k]->data + o * part, (size_t)part * sizeof(double));
    at += part;
  }
  return TAPER_OK;
}

taper_status eval_slice(eval_ctx *c) {
  int64_t start = ir_attr_int(c->m, c->v, IR_ATTR_START, 0), size = eval_last(c->out), d = eval_last(c->in[0]),
          rows = eval_rows(c->out);
  for (int64_t r = 0; r < rows; r++)
    memcpy(c->out->data + r * size, c->in[0]->data + r * d + start, (size_t)size * sizeof(double));
  return TAPER_OK;
}

taper_status eval_copy(eval_ctx *c) {
  memcpy(c->out->data, c->in[0]->data, (size_t)eval_elements(c->out) * sizeof(double));
  return TAPER_OK;
}
