/* toy_train.h - training packages of the hand-written model of toy_train_image.c, and its training in plain double. For the
 * tests of the trainer. */
#ifndef TAPER_TESTS_DEVICE_TOY_TRAIN_H
#define TAPER_TESTS_DEVICE_TOY_TRAIN_H

#include "runtime/recipe.h"
#include "tests/device/toy.h"

enum { TT_V = 37, TT_D = 13, TT_CONTEXT = 40, TT_BATCH = 3, TT_TIME = 11, TT_PARAMS = 9 };
enum { TT_WTE, TT_GAMMA0, TT_TAPER0, TT_C0, TT_GAMMA1, TT_TAPER1, TT_C1, TT_HEAD, TT_TARGET };
static const char *const tt_names[TT_PARAMS] = {"wte",        "n0.weight", "n0.taper_weight",
                                                "n0.taper_c", "n1.weight", "n1.taper_weight",
                                                "n1.taper_c", "head",      "anchor.target"};
static const size_t tt_sizes[TT_PARAMS] = {TT_V * TT_D, TT_D, TT_D, 1, TT_D, TT_D, 1, TT_V *TT_D, 1};

typedef struct toy_train {
  toy base; /* image, tensors, metadata */
  float data[TT_PARAMS][TT_V * TT_D];
  char recipe[4096];
} toy_train;

/* The recipe: element i of the gate array steps after 4 + 3 i. */
static const taper_gate_schedule tt_steps = {
    .gate = "list", .kind = TAPER_GATE_STEP, .start = 4, .every = 3, .ema = 0.25};
static inline taper_recipe tt_recipe(const taper_gate_schedule *gate) {
  taper_recipe r;
  taper_recipe_init(&r);
  r.steps = 14, r.batch = TT_BATCH, r.sequence = TT_TIME, r.accumulate = 2, r.lr = 0.05, r.weight_decay = 0.1;
  r.clip = 0.5, r.warmup = 3, r.floor = 0.1, r.gates = gate, r.gate_count = gate ? 1 : 0;
  return r;
}

static inline void tt_set_recipe(toy_train *t, const taper_recipe *r) {
  text s = {0};
  recipe_print(r, &s);
  if (s.size >= sizeof(t->recipe)) abort();
  memcpy(t->recipe, s.data, s.size + 1);
  for (size_t i = 0; i < t->base.tensor_count; i++)
    if (strcmp(t->base.tensors[i].name, "taper.recipe") == 0) t->base.tensors[i].shape[0] = s.size;
  text_free(&s);
  toy_hash(&t->base);
}

static inline toy_train *tt_new(int wrong, const taper_recipe *recipe) {
  static const char source[] = "model toy {}\n", tokens[] = "not one";
  toy_train *t = calloc(1, sizeof(*t));
  toy *b = &t->base;
  uint32_t r[4];
  for (uint32_t p = 0; p < TT_PARAMS; p++) {
    for (uint32_t i = 0; i < tt_sizes[p]; i++) {
      philox4x32(7, PHILOX_CHECK, p, 0, i, r);
      const double u = philox_uniform(r[0]) * 2 - 1;
      t->data[p][i] = (float)(p == TT_WTE || p == TT_HEAD ? 0.4 * u : 1 + 0.2 * u);
      if (p == TT_C0 || p == TT_C1) t->data[p][i] = 1;
    }
    if (p == TT_WTE || p == TT_HEAD)
      toy_tensor(b, tt_names[p], ST_F32, TT_V, TT_D, t->data[p]);
    else if (p != TT_TARGET)
      toy_tensor(b, tt_names[p], ST_F32, 0, tt_sizes[p], t->data[p]);
  }
  toy_compile("tests/device/toy_train_image.c", true, wrong, &b->image, &b->image_bytes);
  toy_tensor(b, "taper.train_image.plain", ST_U8, 0, b->image_bytes, b->image);
  toy_tensor(b, "taper.recipe", ST_U8, 0, 1, t->recipe);
  toy_tensor(b, "taper.file.model.tmodel", ST_U8, 0, sizeof(source) - 1, source);
  toy_tensor(b, "taper.file.tokenizer.model", ST_U8, 0, sizeof(tokens) - 1, tokens);
  static const st_pair meta[] = {{"taper.package", "1"},
                                 {"taper.features", ""},
                                 {"taper.name", "toy"},
                                 {"taper.model", "0123456789abcdef0123456789abcdef"},
                                 {"taper.target", "cpu"},
                                 {"taper.for", "train"},
                                 {"taper.train", "plain"},
                                 {"taper.cpu.train.plain", ""},
                                 {"taper.machine", "x86_64-le"},
                                 {"taper.gates", "{\"list\": [1, 1]}"},
                                 {"taper.params", "{\"vocab\": 37, \"context\": 40, \"d\": 13}"},
                                 {"taper.tokenizer", "none"},
                                 {"taper.options", "-O2"},
                                 {"taper.versions", "taperc 0.1.0"}};
  for (size_t i = 0; i < sizeof(meta) / sizeof(meta[0]); i++) toy_set(b, meta[i].key, meta[i].value);
  tt_set_recipe(t, recipe);
  return t;
}

static inline void tt_free(toy_train *t) {
  free(t->base.image);
  free(t);
}

/* The micro-batches of step k: ids and targets by Philox, one position in seven padding. */
static inline void tt_batch(const taper_recipe *r, uint64_t k, int32_t *tokens, int32_t *targets) {
  const uint32_t n = r->batch * r->sequence * r->accumulate;
  uint32_t x[4];
  for (uint32_t i = 0; i < n; i++) {
    philox4x32(r->seed, PHILOX_CHECK, (uint32_t)k, 1, i, x);
    tokens[i] = (int32_t)(x[0] % TT_V);
    targets[i] = x[2] % 7 == 0 ? -1 : (int32_t)((uint32_t)tokens[i] * 5 + x[1] % 3) % TT_V;
  }
}

/* ---- the same training in double ---- */

typedef struct tt_norm {
  double numerator, denominator, sigma; /* EMAs */
  unsigned count;
} tt_norm;

typedef struct tt_twin {
  taper_recipe r;
  double p[TT_PARAMS][TT_V * TT_D], g[TT_PARAMS][TT_V * TT_D], m[TT_PARAMS][TT_V * TT_D], v[TT_PARAMS][TT_V * TT_D];
  unsigned updates[TT_PARAMS];
  tt_norm norms[2];
  double scale;
  unsigned scale_count;
  double ce, aux, grad_norm, logit_norm, mean_scale; /* of the last step */
} tt_twin;

static inline double tt_rms(const double *h) {
  double s = 0;
  for (int i = 0; i < TT_D; i++) s += h[i] * h[i];
  return sqrt(s / TT_D + 1e-6);
}

static inline double tt_gate(const tt_twin *t, int i, uint64_t k) {
  return recipe_gate_value(&t->r.gates[0], (uint32_t)i, k);
}

/* What one batch sums. */
typedef struct tt_sums {
  double numerator[2], denominator[2], sigma[2];
} tt_sums;

static inline void tt_taper(const tt_twin *t, int n, double g, const double *h, double *y) {
  const double r = tt_rms(h), *w = t->p[n ? TT_GAMMA1 : TT_GAMMA0], *u = t->p[n ? TT_TAPER1 : TT_TAPER0];
  const double c = t->p[n ? TT_C1 : TT_C0][0];
  for (int i = 0; i < TT_D; i++) y[i] = g * h[i] / r * w[i] + (1 - g) * c * h[i] * u[i];
}

/* The gradient of sum(dy T(h)) by h, w and u, where J is written out: dT_i/dh_j. */
static inline void tt_taper_back(tt_twin *t, int n, double g, const double *h, const double *dy, double *dh) {
  const double r = tt_rms(h), *w = t->p[n ? TT_GAMMA1 : TT_GAMMA0], *u = t->p[n ? TT_TAPER1 : TT_TAPER0];
  const double c = t->p[n ? TT_C1 : TT_C0][0];
  for (int i = 0; i < TT_D; i++) {
    t->g[n ? TT_GAMMA1 : TT_GAMMA0][i] += dy[i] * g * h[i] / r;
    t->g[n ? TT_TAPER1 : TT_TAPER0][i] += dy[i] * (1 - g) * c * h[i];
    for (int j = 0; j < TT_D; j++)
      dh[j] += dy[i] * ((i == j ? g * w[i] / r + (1 - g) * c * u[i] : 0) - g * w[i] * h[i] * h[j] / (TT_D * r * r * r));
  }
}

/* Adds one position; inv: 1 / counted positions. Only the forward where `back` is false. */
static inline void tt_position(tt_twin *t, const double g[2], bool aux, bool back, int id, int target, double inv,
                               tt_sums *s) {
  double x[TT_D], h1[TT_D], y[TT_D], logits[TT_V], dy[TT_D] = {0}, d1[TT_D] = {0}, d0[TT_D] = {0}, sum = 0, square = 0;
  const double *h0 = t->p[TT_WTE] + id * TT_D;
  tt_taper(t, 0, g[0], h0, x);
  for (int i = 0; i < TT_D; i++) h1[i] = h0[i] + x[i];
  tt_taper(t, 1, g[1], h1, y);
  for (int o = 0; o < TT_V; o++) {
    logits[o] = 0;
    for (int i = 0; i < TT_D; i++) logits[o] += y[i] * t->p[TT_HEAD][o * TT_D + i];
    sum += exp(logits[o]), square += logits[o] * logits[o];
  }
  const double r1 = tt_rms(h1), off = r1 - t->p[TT_TARGET][0];
  t->ce += (log(sum) - logits[target]) * inv;
  t->logit_norm += sqrt(square) * inv;
  t->mean_scale += r1 * inv;
  if (aux) t->aux += 0.25 * off * off * inv;
  for (int n = 0; n < 2; n++) {
    const double *h = n ? h1 : h0, *w = t->p[n ? TT_GAMMA1 : TT_GAMMA0];
    double q = 0;
    for (int i = 0; i < TT_D; i++) q += h[i] * w[i] * h[i] * w[i];
    s->numerator[n] += q / tt_rms(h) * inv, s->denominator[n] += q * inv, s->sigma[n] += tt_rms(h) * inv;
  }
  for (int o = 0; back && o < TT_V; o++) {
    const double d = (exp(logits[o]) / sum - (o == target)) * inv;
    for (int i = 0; i < TT_D; i++) t->g[TT_HEAD][o * TT_D + i] += d * y[i], dy[i] += d * t->p[TT_HEAD][o * TT_D + i];
  }
  if (!back) return;
  tt_taper_back(t, 1, g[1], h1, dy, d1);
  for (int i = 0; aux && i < TT_D; i++) d1[i] += 0.25 * 2 * off * inv * h1[i] / (TT_D * r1);
  for (int i = 0; i < TT_D; i++) d0[i] = d1[i];
  tt_taper_back(t, 0, g[0], h0, d1, d0);
  for (int i = 0; i < TT_D; i++) t->g[TT_WTE][id * TT_D + i] += d0[i];
}

static inline void tt_batch_sums(tt_twin *t, const double g[2], bool aux, bool back, const int32_t *tokens,
                                 const int32_t *targets, tt_sums *s) {
  const uint32_t n = t->r.batch * t->r.sequence * t->r.accumulate;
  double counted = 0;
  for (uint32_t i = 0; i < n; i++) counted += targets[i] >= 0;
  t->ce = t->aux = t->logit_norm = t->mean_scale = 0;
  memset(t->g, 0, sizeof(t->g));
  memset(s, 0, sizeof(*s));
  for (uint32_t i = 0; i < n; i++)
    if (targets[i] >= 0) tt_position(t, g, aux, back, tokens[i], targets[i], 1 / counted, s);
}

static inline void tt_note(tt_twin *t, int n, const tt_sums *s) {
  const double m = t->r.gates[0].ema;
  tt_norm *x = &t->norms[n];
  x->numerator = (1 - m) * x->numerator + m * s->numerator[n];
  x->denominator = (1 - m) * x->denominator + m * s->denominator[n];
  x->sigma = (1 - m) * x->sigma + m * s->sigma[n];
  x->count++;
}

static inline double tt_c(const tt_twin *t, int n) {
  const tt_norm *x = &t->norms[n];
  const double bias = 1 - pow(1 - t->r.gates[0].ema, x->count);
  return t->r.gates[0].inv_sigma ? 1 / (x->sigma / bias) : x->numerator / bias / (x->denominator / bias + 1e-12);
}

static inline void tt_start(tt_twin *t, uint64_t k) {
  for (int n = 0; n < 2; n++) {
    const int w = n ? TT_TAPER1 : TT_TAPER0;
    if (recipe_gate_start(&t->r.gates[0], (uint32_t)n) != k) continue;
    t->p[n ? TT_C1 : TT_C0][0] = tt_c(t, n);
    memcpy(t->p[w], t->p[n ? TT_GAMMA1 : TT_GAMMA0], sizeof(t->p[w]));
    memset(t->m[w], 0, sizeof(t->m[w])), memset(t->v[w], 0, sizeof(t->v[w]));
    t->updates[w] = 0;
    if (n == 0) t->p[TT_TARGET][0] = t->scale / (1 - pow(1 - t->r.gates[0].ema, t->scale_count));
  }
}

static inline bool tt_is_updated(const double g[2], int p) {
  if (p == TT_GAMMA0 || p == TT_GAMMA1) return g[p == TT_GAMMA1] != 0;
  if (p == TT_TAPER0 || p == TT_TAPER1) return g[p == TT_TAPER1] != 1;
  return p == TT_WTE || p == TT_HEAD;
}

static inline void tt_update(tt_twin *t, const double g[2], double lr) {
  double squares = 0;
  for (int p = 0; p < TT_PARAMS; p++)
    for (size_t i = 0; tt_is_updated(g, p) && i < tt_sizes[p]; i++) squares += t->g[p][i] * t->g[p][i];
  t->grad_norm = sqrt(squares);
  double clip = t->r.clip / (t->grad_norm + 1e-6);
  if (clip > 1 || t->r.clip == 0) clip = 1;
  for (int p = 0; p < TT_PARAMS; p++) {
    if (!tt_is_updated(g, p)) continue;
    const double n = ++t->updates[p], decay = p == TT_WTE || p == TT_HEAD ? t->r.weight_decay : 0;
    for (size_t i = 0; i < tt_sizes[p]; i++) {
      const double x = clip * t->g[p][i];
      t->m[p][i] = t->r.beta1 * t->m[p][i] + (1 - t->r.beta1) * x;
      t->v[p][i] = t->r.beta2 * t->v[p][i] + (1 - t->r.beta2) * x * x;
      const double mean = t->m[p][i] / (1 - pow(t->r.beta1, n)), square = t->v[p][i] / (1 - pow(t->r.beta2, n));
      t->p[p][i] -= lr * (mean / (sqrt(square) + t->r.eps) + decay * t->p[p][i]);
    }
  }
}

/* Step k, as taper_trainer_step. */
static inline void tt_step(tt_twin *t, uint64_t k, const int32_t *tokens, const int32_t *targets) {
  const double g[2] = {tt_gate(t, 0, k), tt_gate(t, 1, k)};
  tt_sums s;
  tt_batch_sums(t, g, g[0] != 1 || g[1] != 1, true, tokens, targets, &s);
  tt_update(t, g, recipe_lr(&t->r, k));
  for (int n = 0; n < 2; n++)
    if (k <= recipe_gate_start(&t->r.gates[0], (uint32_t)n)) tt_note(t, n, &s);
  if (k <= t->r.gates[0].start) {
    t->scale = (1 - t->r.gates[0].ema) * t->scale + t->r.gates[0].ema * t->mean_scale;
    t->scale_count++;
  }
  tt_start(t, k);
}

static inline tt_twin *tt_twin_new(const toy_train *from, const taper_recipe *r) {
  tt_twin *t = calloc(1, sizeof(*t));
  t->r = *r;
  for (int p = 0; p < TT_PARAMS; p++)
    for (size_t i = 0; i < tt_sizes[p]; i++) t->p[p][i] = p == TT_TARGET ? 0 : (double)from->data[p][i];
  return t;
}

#endif
