/* toy_train_image.c - a tiny model written by hand against runtime/abi/train_abi.h, with its gradients: the trainer's tests
   need no compiler of ours. h0 = wte[token]; h1 = h0 + T0(h0); logits = head T1(h1), T as tapernorm.md 1 (RMS form).
   Every sum is taken by blocks. TOY_WRONG selects one mistake in the table. */
#include "runtime/abi/abi.h"
#include "runtime/abi/train_abi.h"
#include <math.h>
#include <string.h>

#ifndef TOY_WRONG
#define TOY_WRONG 0
#endif
#ifndef TOY_MODEL
#define TOY_MODEL "0123456789abcdef0123456789abcdef"
#endif
#define WRONG(n, good, bad) (TOY_WRONG == (n) ? (bad) : (good))
enum { V = 37, D = 13, CONTEXT = 40, RESULTS = 24, CHUNK = 1 << 17 };
enum { WTE, GAMMA0, TAPER0, C0, GAMMA1, TAPER1, C1, HEAD, TARGET, PARAMS };
/* where a block's sums lie */
enum {
  P_WTE = 0,
  P_G0 = V * D,
  P_T0 = P_G0 + D,
  P_G1 = P_T0 + D,
  P_T1 = P_G1 + D,
  P_HEAD = P_T1 + D,
  P_RESULT = P_HEAD + V * D,
  P_ALL = P_RESULT + RESULTS
};
/* sums of a block that become results */
enum { R_CE, R_AUX, R_LOGIT, R_SCALE, R_NUM0, R_DEN0, R_SIG0, R_NUM1, R_DEN1, R_SIG1, R_ERR0, R_POW0, R_ERR1, R_POW1 };

#define EPS 1e-6
#define LAMBDA 0.25

typedef struct mode {
  uint32_t program;
} mode;

static float *partial(const taper_train_ctx *c, uint32_t block) { return c->partial + (uint64_t)block * P_ALL; }

static double rms(const double *h) {
  double s = 0;
  for (int i = 0; i < D; i++) s += h[i] * h[i];
  return sqrt(s / D + EPS);
}

static void taper(const taper_train_ctx *c, int n, double g, const double *h, double r, double *y) {
  const float *w = c->param[n ? GAMMA1 : GAMMA0], *t = c->param[n ? TAPER1 : TAPER0];
  const double k = c->param[n ? C1 : C0][0];
  for (int i = 0; i < D; i++) y[i] = g * h[i] / r * w[i] + (1 - g) * k * h[i] * t[i];
}

/* dh += of T, and the sums of its parameters. */
static void taper_back(const taper_train_ctx *c, int n, double g, const double *h, double r, const double *dy,
                       double *dh, float *p) {
  const float *w = c->param[n ? GAMMA1 : GAMMA0], *t = c->param[n ? TAPER1 : TAPER0];
  const double k = c->param[n ? C1 : C0][0];
  double dot = 0;
  for (int i = 0; i < D; i++) {
    p[(n ? P_G1 : P_G0) + i] += (float)(dy[i] * h[i] * g / r);
    p[(n ? P_T1 : P_T0) + i] += (float)(dy[i] * h[i] * (1 - g) * k);
    dot += h[i] * w[i] * dy[i];
  }
  for (int i = 0; i < D; i++)
    dh[i] += g * (w[i] * dy[i] / r - h[i] * dot / (D * r * r * r)) + (1 - g) * k * t[i] * dy[i];
}

static void statistics(const taper_train_ctx *c, int n, const double *h, double r, float *p) {
  const float *w = c->param[n ? GAMMA1 : GAMMA0], *t = c->param[n ? TAPER1 : TAPER0];
  const double k = c->param[n ? C1 : C0][0];
  double s = 0, e = 0, q = 0;
  for (int i = 0; i < D; i++) {
    s += h[i] * w[i] * h[i] * w[i];
    double one = h[i] / r * w[i], zero = k * h[i] * t[i];
    e += (one - zero) * (one - zero), q += one * one;
  }
  p[P_RESULT + (n ? R_NUM1 : R_NUM0)] += (float)(s / r);
  p[P_RESULT + (n ? R_DEN1 : R_DEN0)] += (float)s;
  p[P_RESULT + (n ? R_SIG1 : R_SIG0)] += (float)r;
  p[P_RESULT + (n ? R_ERR1 : R_ERR0)] += (float)e;
  p[P_RESULT + (n ? R_POW1 : R_POW0)] += (float)q;
}

static void gates(const taper_train_ctx *c, uint32_t program, double g[2]) {
  for (int n = 0; n < 2; n++)
    g[n] = program == TAPER_TRAIN_WARM ? 1 : program == TAPER_TRAIN_ZERO ? 0 : (double)c->gate[n];
}

/* Packed weights are only a copy here, so that a forgotten packing shows. */
static void pack(const taper_train_ctx *c, const void *args) {
  (void)args;
  if (c->worker == 0) memcpy(c->packed[0], c->param[HEAD], V * D * sizeof(float));
}

static void row_work(const taper_train_ctx *c, uint32_t program, uint32_t row, float *p) {
  const int target = c->target[row], id = c->token[row];
  const int has_aux = program == TAPER_TRAIN_TAPER || program == TAPER_TRAIN_ZERO;
  double g[2], h0[D], h1[D], x[D], y[D], dy[D], d1[D], d0[D];
  float *logits = c->chunk + (uint64_t)(row - c->chunk_row0) * V;
  gates(c, program, g);
  for (int i = 0; i < D; i++) h0[i] = c->param[WTE][id * D + i], d0[i] = d1[i] = dy[i] = 0;
  const double r0 = rms(h0);
  taper(c, 0, g[0], h0, r0, x);
  for (int i = 0; i < D; i++) h1[i] = h0[i] + x[i];
  const double r1 = rms(h1);
  taper(c, 1, g[1], h1, r1, y);
  c->arena[row] = (float)r1;
  (c->arena + c->row_cap)[row] = (float)r0;
  double most = -1e30, sum = 0, square = 0;
  for (int o = 0; o < V; o++) {
    double s = 0;
    for (int i = 0; i < D; i++) s += y[i] * c->packed[0][o * D + i];
    logits[o] = (float)s;
    square += s * s;
    if (s > most) most = s;
  }
  if (target < 0) return;
  for (int o = 0; o < V; o++) sum += exp(logits[o] - most);
  p[P_RESULT + R_CE] += (float)(log(sum) + most - logits[target]);
  p[P_RESULT + R_LOGIT] += (float)sqrt(square);
  p[P_RESULT + R_SCALE] += (float)r1;
  const double off = r1 - (double)c->param[TARGET][0];
  if (has_aux) p[P_RESULT + R_AUX] += (float)(LAMBDA * off * off);
  statistics(c, 0, h0, r0, p);
  statistics(c, 1, h1, r1, p);
  if (program >= TAPER_TRAIN_EVAL) return;
  const double inv = (double)c->inv_count;
  for (int o = 0; o < V; o++) {
    const double d = (exp(logits[o] - most) / sum - (o == target)) * inv;
    for (int i = 0; i < D; i++) p[P_HEAD + o * D + i] += (float)(d * y[i]), dy[i] += d * c->packed[0][o * D + i];
  }
  taper_back(c, 1, g[1], h1, r1, dy, d1, p);
  if (has_aux)
    for (int i = 0; i < D; i++) d1[i] += LAMBDA * 2 * off * inv * h1[i] / (D * r1);
  taper_back(c, 0, g[0], h0, r0, d1, d0, p);
  for (int i = 0; i < D; i++) p[P_WTE + id * D + i] += (float)(d1[i] + d0[i]);
}

static void rows(const taper_train_ctx *c, const void *args) {
  const mode *m = args;
  const uint32_t end = c->chunk_row0 + c->chunk_count;
  for (uint32_t b = c->chunk_row0 / c->block; b * c->block < end; b++) {
    if (b % c->workers != c->worker) continue;
    float *p = partial(c, b);
    memset(p, 0, P_ALL * sizeof(float));
    for (uint32_t r = b * c->block; r < (b + 1) * c->block && r < end; r++) row_work(c, m->program, r, p);
  }
}

static void sum_blocks(const taper_train_ctx *c, uint32_t at, uint32_t n, float *to) {
  const uint32_t blocks = (c->rows + c->block - 1) / c->block;
  for (uint32_t i = c->worker; to && i < n; i += c->workers) {
    double s = c->accumulate ? (double)to[i] : 0;
    for (uint32_t b = 0; b < blocks; b++) s += (double)partial(c, b)[at + i];
    to[i] = (float)s;
  }
}

typedef struct source {
  const char *name;
  uint32_t program, at;
} source;
static const source sources[];
static const uint32_t source_count;

static void reduce(const taper_train_ctx *c, const void *args) {
  const mode *m = args;
  const uint32_t blocks = (c->rows + c->block - 1) / c->block, p = m->program;
  if (p == TAPER_TRAIN_WARM || p == TAPER_TRAIN_TAPER || p == TAPER_TRAIN_ZERO) {
    sum_blocks(c, P_WTE, V * D, c->grad[WTE]);
    sum_blocks(c, P_HEAD, V * D, c->grad[HEAD]);
    if (p != TAPER_TRAIN_ZERO) sum_blocks(c, P_G0, D, c->grad[GAMMA0]), sum_blocks(c, P_G1, D, c->grad[GAMMA1]);
    if (p != TAPER_TRAIN_WARM) sum_blocks(c, P_T0, D, c->grad[TAPER0]), sum_blocks(c, P_T1, D, c->grad[TAPER1]);
  }
  for (uint32_t i = 0; c->worker == 0 && i < source_count; i++) {
    if (sources[i].program != p || sources[i].at >= RESULTS) continue;
    double s = c->accumulate ? c->result[i] : 0, mine = 0;
    for (uint32_t b = 0; b < blocks; b++) mine += (double)partial(c, b)[P_RESULT + sources[i].at];
    c->result[i] = s + mine * (double)c->inv_count;
  }
}

static void adamw(float *p, const float *g, float *m, float *v, uint64_t first, uint64_t last,
                  const taper_train_adamw *a) {
  for (uint64_t i = first; i < last; i++) {
    const float x = a->clip_scale * g[i];
    m[i] = a->beta1 * m[i] + (1 - a->beta1) * x;
    v[i] = a->beta2 * v[i] + (1 - a->beta2) * x * x;
    p[i] -= a->lr * (m[i] / a->correction1 / (sqrtf(v[i] / a->correction2) + a->eps) + a->decay * p[i]);
  }
}

static double sum_squares(const float *x, uint64_t first, uint64_t last) {
  double s = 0;
  for (uint64_t i = first; i < last; i++) s += (double)x[i] * (double)x[i];
  return s;
}

static void gemm(uint32_t form, uint32_t m, uint32_t n, uint32_t k, const float *a, uint32_t lda, const float *b,
                 uint32_t ldb, float *c, uint32_t ldc, int accumulate, float *scratch) {
  scratch[0] = 0;
  for (uint32_t i = 0; i < m; i++) {
    for (uint32_t j = 0; j < n; j++) {
      float s = accumulate ? c[(uint64_t)i * ldc + j] : 0;
      for (uint32_t l = 0; l < k; l++)
        s += (form == TAPER_GEMM_TN ? a[(uint64_t)l * lda + i] : a[(uint64_t)i * lda + l]) *
             (form == TAPER_GEMM_NT ? b[(uint64_t)j * ldb + l] : b[(uint64_t)l * ldb + j]);
      c[(uint64_t)i * ldc + j] = s;
    }
  }
}

/* ---- the table ---- */

#define ALL3 (1u << TAPER_TRAIN_WARM | 1u << TAPER_TRAIN_TAPER | 1u << TAPER_TRAIN_ZERO)
#define G_BITS (1u << TAPER_TRAIN_WARM | 1u << TAPER_TRAIN_TAPER)
#define T_BITS (1u << TAPER_TRAIN_TAPER | 1u << TAPER_TRAIN_ZERO)
static const taper_train_param params[PARAMS] = {
    [WTE] = {"wte", 2, {V, D}, 1, 1, ALL3, "embedding"},
    [GAMMA0] = {"n0.weight", 1, {WRONG(1, D, 0)}, 1, 0, G_BITS, "norm"},
    [TAPER0] = {"n0.taper_weight", 1, {D}, 1, 0, T_BITS, "norm"},
    [C0] = {"n0.taper_c", 1, {1}, 0, 0, 0, "other"},
    [GAMMA1] = {"n1.weight", 1, {D}, 1, 0, G_BITS, "norm"},
    [TAPER1] = {"n1.taper_weight", 1, {D}, 1, 0, T_BITS, "norm"},
    [C1] = {"n1.taper_c", 1, {1}, 0, 0, 0, "other"},
    [HEAD] = {WRONG(2, "head", "hat"), 2, {V, WRONG(3, D, D + 1)}, 1, 1, ALL3, "head"},
    [TARGET] = {"anchor.target", 1, {1}, 0, 0, 0, "other"},
};
static const taper_train_pack packs[] = {{WRONG(4, HEAD, 99), V *D}};
static const taper_train_gate gate_table[] = {{"list", 0, 2, 1, 1}, {"list", WRONG(5, 1, 0), 2, WRONG(6, 1, 2), 1}};
static const taper_train_norm norms[] = {{"n0", 0, GAMMA0, TAPER0, WRONG(7, C0, WTE), 0},
                                         {"n1", WRONG(8, 1, 2), GAMMA1, WRONG(9, TAPER1, GAMMA1), C1, 0}};

#define STATS(p)                                                                                                       \
  {"n0.numerator", p, R_NUM0}, {"n0.denominator", p, R_DEN0}, {"n0.sigma", p, R_SIG0}, {"n1.numerator", p, R_NUM1},    \
      {"n1.denominator", p, R_DEN1}, {                                                                                 \
    "n1.sigma", p, R_SIG1                                                                                              \
  }
#define LOSSES(p)                                                                                                      \
  {"ce", p, R_CE}, {"logit_norm", p, R_LOGIT}, {"scale", p, R_SCALE}, { "scale_rows", p, RESULTS }
static const source sources[] = {LOSSES(TAPER_TRAIN_WARM),
                                 STATS(TAPER_TRAIN_WARM),
                                 LOSSES(TAPER_TRAIN_TAPER),
                                 {"aux", TAPER_TRAIN_TAPER, R_AUX},
                                 STATS(TAPER_TRAIN_TAPER),
                                 LOSSES(TAPER_TRAIN_ZERO),
                                 {"aux", TAPER_TRAIN_ZERO, R_AUX},
                                 {"ce", TAPER_TRAIN_EVAL, R_CE},
                                 {"ce", TAPER_TRAIN_OBSERVE, R_CE},
                                 {"n0.error", TAPER_TRAIN_OBSERVE, R_ERR0},
                                 {"n0.power", TAPER_TRAIN_OBSERVE, R_POW0},
                                 {"n1.error", TAPER_TRAIN_OBSERVE, R_ERR1},
                                 {"n1.power", TAPER_TRAIN_OBSERVE, R_POW1},
                                 {"n0.scale_rows", TAPER_TRAIN_OBSERVE, RESULTS + 1}};
#define RSTATS(p)                                                                                                      \
  {"n0.numerator", p, 0, 0}, {"n0.denominator", p, 0, 0}, {"n0.sigma", p, 0, 0}, {"n1.numerator", p, 0, 0},            \
      {"n1.denominator", p, 0, 0}, {                                                                                   \
    "n1.sigma", p, 0, 0                                                                                                \
  }
#define RLOSSES(p)                                                                                                     \
  {"ce", p, 0, 0}, {"logit_norm", p, 0, 0}, {"scale", p, 0, 0}, { "scale_rows", p, 1, 0 }
static const taper_train_result results[] = {{WRONG(10, "ce", "loss"), TAPER_TRAIN_WARM, 0, 0},
                                             {"logit_norm", TAPER_TRAIN_WARM, 0, 0},
                                             {"scale", TAPER_TRAIN_WARM, 0, 0},
                                             {"scale_rows", WRONG(11, TAPER_TRAIN_WARM, 77), 1, WRONG(12, 0, 2)},
                                             RSTATS(TAPER_TRAIN_WARM),
                                             RLOSSES(TAPER_TRAIN_TAPER),
                                             {"aux", TAPER_TRAIN_TAPER, 0, 0},
                                             RSTATS(TAPER_TRAIN_TAPER),
                                             RLOSSES(TAPER_TRAIN_ZERO),
                                             {"aux", TAPER_TRAIN_ZERO, 0, 0},
                                             {"ce", TAPER_TRAIN_EVAL, 0, 0},
                                             {"ce", TAPER_TRAIN_OBSERVE, 0, 0},
                                             {"n0.error", TAPER_TRAIN_OBSERVE, 0, 0},
                                             {"n0.power", TAPER_TRAIN_OBSERVE, 0, 0},
                                             {"n1.error", TAPER_TRAIN_OBSERVE, 0, 0},
                                             {"n1.power", TAPER_TRAIN_OBSERVE, 0, 0},
                                             {"n0.scale_rows", TAPER_TRAIN_OBSERVE, 1, 1}};
static const uint32_t source_count = sizeof sources / sizeof *sources;
_Static_assert(sizeof sources / sizeof *sources == sizeof results / sizeof *results, "one source a result");

static const mode modes[] = {{0}, {1}, {2}, {3}, {4}, {5}};
#define STAGES(n)                                                                                                      \
  {                                                                                                                    \
    {rows, &modes[n], "rows", TAPER_TRAIN_CHUNKED}, { reduce, &modes[n], "sums", 0 }                                   \
  }
static const taper_train_stage pack_stages[] = {{pack, 0, "pack", 0}};
static const taper_train_stage warm[] = STAGES(1), mixed[] = STAGES(2), zero[] = STAGES(3), eval[] = STAGES(4);
static const taper_train_stage observe[] = {{rows, &modes[5], "rows", WRONG(13, TAPER_TRAIN_CHUNKED, 8)},
                                            {reduce, &modes[5], "sums", 0}};
#define PROGRAM(s)                                                                                                     \
  { s, 2, 2, CHUNK, P_ALL, 0, 0, 0, 0 }

#pragma GCC visibility push(default)
extern const taper_train_image toy_image __asm__("taper_train_image");
const taper_train_image toy_image = {
    .magic = WRONG(14, TAPER_TRAIN_ABI_MAGIC, 0),
    .abi_version = WRONG(15, TAPER_TRAIN_ABI_VERSION, 99),
    .size = WRONG(16, sizeof(taper_train_image), 8),
    .vocab = WRONG(17, V, V + 1),
    .context = WRONG(18, CONTEXT, 41),
    .width = D,
    .param_count = WRONG(19, PARAMS, 1 << 19),
    .pack_count = 1,
    .gate_count = 2,
    .norm_count = 2,
    .result_count = sizeof results / sizeof *results,
    .programs = {[TAPER_TRAIN_PACK] = {pack_stages, WRONG(20, 1, 0)},
                 [TAPER_TRAIN_WARM] = PROGRAM(warm),
                 [TAPER_TRAIN_TAPER] = PROGRAM(mixed),
                 [TAPER_TRAIN_ZERO] = PROGRAM(zero),
                 [TAPER_TRAIN_EVAL] = PROGRAM(eval),
                 [TAPER_TRAIN_OBSERVE] = PROGRAM(observe)},
    .params = params,
    .packs = packs,
    .gates = gate_table,
    .norms = norms,
    .results = results,
    .final_norm = 1,
    .anchor_target = WRONG(21, TARGET, WTE),
    .table = WRONG(22, WTE, GAMMA0),
    .adamw = WRONG(23, adamw, 0),
    .sum_squares = sum_squares,
    .gemm = gemm,
    .gemm_scratch = 1,
    .model = WRONG(24, TOY_MODEL, "fedcba98765432100123456789abcdef"),
};
#pragma GCC visibility pop
