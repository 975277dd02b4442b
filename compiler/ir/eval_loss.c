/* eval_loss.c - reference evaluation of losses, row statistics, means over counted positions, and effects. */
#include "compiler/ir/eval_priv.h"

#include <math.h>
#include <string.h>

/* log sum exp(x) over n numbers, the largest taken out first. */
static double log_sum_exp(const double *x, int64_t n) {
  double largest = x[0];
  for (int64_t i = 1; i < n; i++) largest = x[i] > largest ? x[i] : largest;
  double sum = exp(x[0] - largest);
  for (int64_t i = 1; i < n; i++) sum += exp(x[i] - largest);
  return log(sum) + largest;
}

/* A target below 0 is padding; one beyond the vocabulary is an error. */
static taper_status check_target(eval_ctx *c, int64_t r, double target, int64_t vocab) {
  if (target < (double)vocab) return TAPER_OK;
  return TAPER_FAIL(c->error, TAPER_INVALID, "target %lld at row %lld is outside the vocabulary of %lld",
                    (long long)target, (long long)r, (long long)vocab);
}

taper_status eval_cross_entropy(eval_ctx *c) {
  int64_t rows = eval_elements(c->out), vocab = eval_last(c->in[0]);
  for (int64_t r = 0; r < rows; r++) {
    const double *x = c->in[0]->data + r * vocab, target = c->in[1]->data[r];
    TAPER_TRY(check_target(c, r, target, vocab));
    c->out->data[r] = target < 0 ? 0 : log_sum_exp(x, vocab) - x[(int64_t)target];
  }
  return TAPER_OK;
}

/* drow (softmax(logits) - one at the target); 0 in rows of padding. */
taper_status eval_cross_entropy_back(eval_ctx *c) {
  int64_t rows = eval_rows(c->out), vocab = eval_last(c->out);
  for (int64_t r = 0; r < rows; r++) {
    const double *x = c->in[0]->data + r * vocab, target = c->in[1]->data[r], drow = c->in[2]->data[r];
    double *dx = c->out->data + r * vocab;
    TAPER_TRY(check_target(c, r, target, vocab));
    if (target < 0) continue;
    double all = log_sum_exp(x, vocab);
    for (int64_t i = 0; i < vocab; i++) dx[i] = drow * (exp(x[i] - all) - (i == (int64_t)target ? 1 : 0));
  }
  return TAPER_OK;
}

/* sum p (log p - log q), p = softmax(base), q = softmax(logits). */
taper_status eval_kl(eval_ctx *c) {
  int64_t rows = eval_elements(c->out), vocab = eval_last(c->in[0]);
  for (int64_t r = 0; r < rows; r++) {
    const double *a = c->in[0]->data + r * vocab, *b = c->in[1]->data + r * vocab;
    double all_a = log_sum_exp(a, vocab), all_b = log_sum_exp(b, vocab), sum = 0;
    for (int64_t i = 0; i < vocab; i++) sum += exp(a[i] - all_a) * ((a[i] - all_a) - (b[i] - all_b));
    c->out->data[r] = sum;
  }
  return TAPER_OK;
}

/* The largest minus the second largest; 0 where there is one element. */
taper_status eval_top_gap(eval_ctx *c) {
  int64_t rows = eval_elements(c->out), n = eval_last(c->in[0]);
  for (int64_t r = 0; r < rows && n > 1; r++) {
    const double *x = c->in[0]->data + r * n;
    double first = x[0] > x[1] ? x[0] : x[1], second = x[0] > x[1] ? x[1] : x[0];
    for (int64_t i = 2; i < n; i++) {
      if (x[i] > second) second = x[i] > first ? first : x[i];
      if (x[i] > first) first = x[i];
    }
    c->out->data[r] = first - second;
  }
  return TAPER_OK;
}

taper_status eval_row_dot(eval_ctx *c) {
  int64_t rows = eval_elements(c->out), d = eval_last(c->in[0]);
  for (int64_t r = 0; r < rows; r++) c->out->data[r] = eval_dot(c->in[0]->data + r * d, c->in[1]->data + r * d, d);
  return TAPER_OK;
}

taper_status eval_row_l2(eval_ctx *c) {
  int64_t rows = eval_elements(c->out), d = eval_last(c->in[0]);
  for (int64_t r = 0; r < rows; r++) {
    const double *x = c->in[0]->data + r * d;
    c->out->data[r] = sqrt(eval_dot(x, x, d));
  }
  return TAPER_OK;
}

static double counted(const ir_tensor *targets) {
  double count = 0;
  for (int64_t i = 0; i < eval_elements(targets); i++) count += targets->data[i] >= 0;
  return count;
}

taper_status eval_token_mean(eval_ctx *c) {
  const ir_tensor *targets = c->in[1];
  double sum = 0, count = counted(targets);
  for (int64_t i = 0; i < eval_elements(targets); i++)
    if (targets->data[i] >= 0) sum += c->in[0]->data[i];
  c->out->data[0] = count > 0 ? sum / count : 0;
  return TAPER_OK;
}

taper_status eval_token_mean_back(eval_ctx *c) {
  const ir_tensor *targets = c->in[0];
  double count = counted(targets);
  for (int64_t i = 0; i < eval_elements(targets); i++) c->out->data[i] = targets->data[i] >= 0 ? 1 / count : 0;
  return TAPER_OK;
}

/* (1 - g) c; at g = 1 whatever c is. */
taper_status eval_taper_factor(eval_ctx *c) {
  c->out->data[0] = c->in[0] ? (1 - c->in[1]->data[0]) * c->in[0]->data[0] : 0;
  return TAPER_OK;
}

taper_status eval_result(eval_ctx *c) {
  memcpy(c->out->data, c->in[0]->data, (size_t)eval_elements(c->out) * sizeof(double));
  if (c->args->on_result) c->args->on_result(c->args->user, ir_name_of(c->m, c->v), c->out);
  return TAPER_OK;
}

taper_status eval_gradient(eval_ctx *c) {
  memcpy(c->out->data, c->in[0]->data, (size_t)eval_elements(c->out) * sizeof(double));
  if (c->args->on_gradient) c->args->on_gradient(c->args->user, ir_operand(c->m, c->v, 1), c->out);
  return TAPER_OK;
}
