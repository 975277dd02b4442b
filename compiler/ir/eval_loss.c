/* eval_loss.c - reference evaluation of losses. */
#include "compiler/ir/eval_priv.h"

#include <math.h>

/* log sum exp(logits) - logits[target], the largest logit taken out first. */
taper_status eval_cross_entropy(eval_ctx *c) {
  int64_t rows = eval_elements(c->out), vocab = eval_last(c->in[0]);
  for (int64_t r = 0; r < rows; r++) {
    const double *x = c->in[0]->data + r * vocab;
    double target = c->in[1]->data[r], largest = x[0], sum = 0;
    if (target < 0 || target >= (double)vocab)
      return TAPER_FAIL(c->error, TAPER_INVALID, "target %lld at row %lld is outside the vocabulary of %lld",
                        (long long)target, (long long)r, (long long)vocab);
    for (int64_t i = 1; i < vocab; i++) largest = x[i] > largest ? x[i] : largest;
    for (int64_t i = 0; i < vocab; i++) sum += exp(x[i] - largest);
    c->out->data[r] = log(sum) + largest - x[(int64_t)target];
  }
  return TAPER_OK;
}

/* weight * mean over rows of (r(x) - target)^2. */
taper_status eval_scale_loss(eval_ctx *c) {
  int64_t d = eval_last(c->in[0]), rows = eval_rows(c->in[0]);
  double eps = ir_eps(c->m, c->v), sum = 0, target = c->in[1]->data[0];
  for (int64_t r = 0; r < rows; r++) {
    const double *x = c->in[0]->data + r * d;
    double s = sqrt(eval_dot(x, x, d) / (double)d + eps);
    sum += (s - target) * (s - target);
  }
  c->out->data[0] = ir_attr_float(c->m, c->v, IR_ATTR_WEIGHT, 0.1) * sum / (double)rows;
  return TAPER_OK;
}

taper_status eval_mean(eval_ctx *c) {
  int64_t n = eval_elements(c->in[0]);
  double sum = 0;
  for (int64_t i = 0; i < n; i++) sum += c->in[0]->data[i];
  c->out->data[0] = sum / (double)n;
  return TAPER_OK;
}
