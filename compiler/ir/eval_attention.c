/* eval_attention.c - reference evaluation of rope, attention and the cache. */
#include "compiler/ir/eval_priv.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Turns by the angle, or back by it. */
static taper_status turn(eval_ctx *c, double direction) {
  const ir_tensor *x = c->in[0];
  int64_t heads = x->dim[2], d = x->dim[3], rows = x->dim[0] * x->dim[1];
  size_t pairs = ir_rope_pairs(c->m, c->v);
  bool interleaved = ir_attr_int(c->m, c->v, IR_ATTR_INTERLEAVED, 0) != 0;
  double *inv_freq = malloc((pairs ? pairs : 1) * sizeof(double));
  if (!inv_freq) return TAPER_FAIL(c->error, TAPER_NOMEM, "no memory for %zu bytes", pairs * sizeof(double));
  ir_rope_inv_freq(c->m, c->v, inv_freq, pairs);
  memcpy(c->out->data, x->data, (size_t)eval_elements(x) * sizeof(double));
  for (int64_t r = 0; r < rows * heads; r++) {
    const double *from = x->data + r * d;
    double *to = c->out->data + r * d, position = c->in[1]->data[r / heads];
    for (size_t i = 0; i < pairs; i++) {
      size_t a = interleaved ? 2 * i : i, b = interleaved ? 2 * i + 1 : i + pairs;
      double cosine = cos(position * inv_freq[i]), sine = direction * sin(position * inv_freq[i]);
      to[a] = from[a] * cosine - from[b] * sine;
      to[b] = from[b] * cosine + from[a] * sine;
    }
  }
  free(inv_freq);
  return TAPER_OK;
}

taper_status eval_rope(eval_ctx *c) { return turn(c, 1); }
taper_status eval_rope_back(eval_ctx *c) { return turn(c, -1); }

/* One query over keys first .. last, whose rows lie `key_step` and `value_step` apart. */
typedef struct attend {
  const double *q, *k, *v;
  int64_t first, last, key_step, value_step, d, dv;
  double scale, cap; /* cap 0: none */
  double *scores;    /* room for last + 1 */
} attend;

static void attend_one(const attend *a, double *out) {
  double largest = -INFINITY, sum = 0;
  for (int64_t j = a->first; j <= a->last; j++) {
    double s = eval_dot(a->q, a->k + j * a->key_step, a->d) * a->scale;
    a->scores[j] = a->cap > 0 ? a->cap * tanh(s / a->cap) : s;
    if (a->scores[j] > largest) largest = a->scores[j];
  }
  for (int64_t j = a->first; j <= a->last; j++) sum += a->scores[j] = exp(a->scores[j] - largest);
  for (int64_t i = 0; i < a->dv; i++) out[i] = 0;
  for (int64_t j = a->first; j <= a->last; j++)
    for (int64_t i = 0; i < a->dv; i++) out[i] += a->scores[j] / sum * a->v[j * a->value_step + i];
}

static int64_t first_key(const eval_ctx *c, int64_t last) {
  int64_t window = ir_attr_int(c->m, c->v, IR_ATTR_WINDOW, 0);
  return window > 0 && last >= window ? last - window + 1 : 0;
}

taper_status eval_attention(eval_ctx *c) {
  const ir_tensor *q = c->in[0], *k = c->in[1], *v = c->in[2];
  int64_t batch = q->dim[0], time = q->dim[1], heads = q->dim[2], kv_heads = k->dim[2], d = q->dim[3], dv = v->dim[3];
  attend a = {.key_step = kv_heads * d,
              .value_step = kv_heads * dv,
              .d = d,
              .dv = dv,
              .scale = ir_attention_scale(c->m, c->v),
              .cap = ir_attr_float(c->m, c->v, IR_ATTR_CAP, 0)};
  a.scores = malloc((size_t)time * sizeof(double));
  if (!a.scores) return TAPER_FAIL(c->error, TAPER_NOMEM, "no memory for %lld scores", (long long)time);
  for (int64_t i = 0; i < batch * time * heads; i++) {
    int64_t b = i / (time * heads), h = i % heads * kv_heads / heads;
    a.last = i / heads % time;
    a.first = first_key(c, a.last);
    a.q = q->data + i * d;
    a.k = k->data + (b * time * kv_heads + h) * d;
    a.v = v->data + (b * time * kv_heads + h) * dv;
    attend_one(&a, c->out->data + i * dv);
  }
  free(a.scores);
  return TAPER_OK;
}

/* One query's share of the gradients. With p the softmax of the scores and o its output: dv_j += p_j dy,
   ds_j = p_j (dy . v_j - dy . o) (1 - (s_j/cap)^2), dq += scale ds_j k_j, dk_j += scale ds_j q. */
static void attend_back(const attend *a, const double *dy, double *dq, double *dk, double *dv, int64_t grad_step) {
  double largest = -INFINITY, sum = 0, mean = 0;
  for (int64_t j = a->first; j <= a->last; j++) {
    double s = eval_dot(a->q, a->k + j * a->key_step, a->d) * a->scale;
    a->scores[j] = a->cap > 0 ? a->cap * tanh(s / a->cap) : s;
    if (a->scores[j] > largest) largest = a->scores[j];
  }
  for (int64_t j = a->first; j <= a->last; j++) {
    sum += exp(a->scores[j] - largest);
    mean += exp(a->scores[j] - largest) * eval_dot(dy, a->v + j * a->value_step, a->dv);
  }
  for (int64_t j = a->first; j <= a->last; j++) {
    double p = exp(a->scores[j] - largest) / sum, slope = a->cap > 0 ? a->scores[j] / a->cap : 0;
    double ds = p * (eval_dot(dy, a->v + j * a->value_step, a->dv) - mean / sum) * (1 - slope * slope) * a->scale;
    for (int64_t i = 0; i < a->dv; i++) dv[j * grad_step + i] += p * dy[i];
    for (int64_t i = 0; i < a->d; i++) dq[i] += ds * a->k[j * a->key_step + i];
    for (int64_t i = 0; i < a->d; i++) dk[j * grad_step + i] += ds * a->q[i];
  }
}

/* A row of the result holds dq, dk, dv of that row, heads one after another. */
taper_status eval_attention_back(eval_ctx *c) {
  const ir_tensor *q = c->in[0], *k = c->in[1], *v = c->in[2];
  int64_t batch = q->dim[0], time = q->dim[1], heads = q->dim[2], kv_heads = k->dim[2], d = q->dim[3], dv = v->dim[3];
  int64_t width = eval_last(c->out);
  attend a = {.key_step = kv_heads * d,
              .value_step = kv_heads * dv,
              .d = d,
              .dv = dv,
              .scale = ir_attention_scale(c->m, c->v),
              .cap = ir_attr_float(c->m, c->v, IR_ATTR_CAP, 0)};
  a.scores = malloc((size_t)time * sizeof(double));
  if (!a.scores) return TAPER_FAIL(c->error, TAPER_NOMEM, "no memory for %lld scores", (long long)time);
  for (int64_t i = 0; i < batch * time * heads; i++) {
    int64_t b = i / (time * heads), h = i % heads * kv_heads / heads;
    double *window = c->out->data + b * time * width;
    a.last = i / heads % time;
    a.first = first_key(c, a.last);
    a.q = q->data + i * d;
    a.k = k->data + (b * time * kv_heads + h) * d;
    a.v = v->data + (b * time * kv_heads + h) * dv;
    attend_back(&a, c->in[3]->data + i * dv, window + a.last * width + i % heads * d, window + heads * d + h * d,
                window + (heads + kv_heads) * d + h * dv, width);
  }
  free(a.scores);
  return TAPER_OK;
}

/* pos and len of sequence b, against the context of the state. */
static taper_status check_context(eval_ctx *c, int64_t b, double pos, double len, int64_t time, int64_t context) {
  if (pos < 0 || len < 0 || len > (double)time)
    return TAPER_FAIL(c->error, TAPER_INVALID, "sequence %lld: pos %lld, len %lld of %lld tokens", (long long)b,
                      (long long)pos, (long long)len, (long long)time);
  if (pos + len > (double)context)
    return TAPER_FAIL(c->error, TAPER_INVALID,
                      "sequence %lld: %lld cached and %lld new tokens do not fit the context of %lld", (long long)b,
                      (long long)pos, (long long)len, (long long)context);
  return TAPER_OK;
}

/* In place: the verifier has seen that nobody reads the old state any more. */
taper_status eval_cache_append(eval_ctx *c) {
  const ir_tensor *state = c->in[0], *x = c->in[1];
  int64_t time = x->dim[1], heads = x->dim[2], d = x->dim[3], context = state->dim[2];
  for (int64_t b = 0; b < x->dim[0]; b++)
    TAPER_TRY(check_context(c, b, c->in[2]->data[b], c->in[3]->data[b], time, context));
  c->out->data = state->data;
  for (int64_t b = 0; b < x->dim[0]; b++) {
    double pos = c->in[2]->data[b], len = c->in[3]->data[b];
    for (int64_t i = 0; i < (int64_t)len * heads; i++) {
      int64_t t = i / heads, h = i % heads;
      double *to = c->out->data + ((b * heads + h) * context + (int64_t)pos + t) * d;
      const double *from = x->data + ((b * time + t) * heads + h) * d;
      for (int64_t k = 0; k < d; k++) to[k] = c->args->round_f32 ? (double)(float)from[k] : from[k];
    }
  }
  return TAPER_OK;
}

/* Rows beyond a sequence's len have no keys of their own: they stay zero. */
taper_status eval_cache_attention(eval_ctx *c) {
  const ir_tensor *q = c->in[0], *k = c->in[1], *v = c->in[2];
  int64_t time = q->dim[1], heads = q->dim[2], kv_heads = k->dim[1], context = k->dim[2], d = q->dim[3], dv = v->dim[3];
  attend a = {.key_step = d,
              .value_step = dv,
              .d = d,
              .dv = dv,
              .scale = ir_attention_scale(c->m, c->v),
              .cap = ir_attr_float(c->m, c->v, IR_ATTR_CAP, 0)};
  for (int64_t b = 0; b < q->dim[0]; b++)
    TAPER_TRY(check_context(c, b, c->in[3]->data[b], c->in[4]->data[b], time, context));
  a.scores = malloc((size_t)context * sizeof(double));
  if (!a.scores) return TAPER_FAIL(c->error, TAPER_NOMEM, "no memory for %lld scores", (long long)context);
  for (int64_t i = 0; i < q->dim[0] * time * heads; i++) {
    int64_t b = i / (time * heads), t = i / heads % time, h = i % heads * kv_heads / heads;
    if ((double)t >= c->in[4]->data[b]) continue;
    a.last = (int64_t)c->in[3]->data[b] + t;
    a.first = first_key(c, a.last);
    a.q = q->data + i * d;
    a.k = k->data + (b * kv_heads + h) * context * d;
    a.v = v->data + (b * kv_heads + h) * context * dv;
    attend_one(&a, c->out->data + i * dv);
  }
  free(a.scores);
  return TAPER_OK;
}
