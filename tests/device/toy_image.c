/* toy_image.c - a tiny model written by hand against runtime/abi/abi.h: the runtime's tests need no compiler of ours.
   Freestanding. x = emb[token]; every position then adds sum over p <= pos of k[p] / (1 + pos - p), turned by the
   rotary table; x / (1 + |x|); logits = head x. TOY_WRONG selects one mistake in the table, for the tests of its
   checks. */
#include "runtime/abi/abi.h"

#ifndef TOY_WRONG
#define TOY_WRONG 0
#endif
#ifndef TOY_MODEL
#define TOY_MODEL "0123456789abcdef0123456789abcdef"
#endif
#define WRONG(n, good, bad) (TOY_WRONG == (n) ? (bad) : (good))
enum { D = 22, V = 300, CONTEXT = 50, STRIDE = 32, SPLIT = 160 };

static float *buffer(const taper_ctx *c, uint64_t offset) { return c->arena + offset * c->row_cap; }

static void range(uint32_t n, const taper_ctx *c, uint32_t *first, uint32_t *end) {
  *first = (uint32_t)((uint64_t)n * c->worker / c->workers);
  *end = (uint32_t)((uint64_t)n * (c->worker + 1) / c->workers);
}

static void embed(const taper_ctx *c, const void *args) {
  (void)args;
  uint32_t first, end;
  range(D, c, &first, &end);
  for (uint32_t r = 0; r < c->rows; r++) {
    for (uint32_t i = first; i < end; i++) buffer(c, 0)[r * D + i] = c->weight[0][(uint64_t)c->token[r] * STRIDE + i];
  }
}

/* Two heads; a head's positions lie together, in tiles. */
static float *cell(const taper_ctx *c, uint32_t state, int32_t slot, int32_t pos, uint32_t i) {
  float *s = c->state[state] + ((uint64_t)slot * 2 + i / (D / 2)) * (D / 2) * c->context;
  return s + ((uint64_t)(pos / 16) * (D / 2) + i % (D / 2)) * 16 + (uint32_t)pos % 16;
}

static void cache(const taper_ctx *c, const void *args) {
  (void)args;
  uint32_t first, end;
  range(D, c, &first, &end);
  for (uint32_t r = 0; r < c->rows; r++) {
    for (uint32_t i = first; i < end; i++) *cell(c, 0, c->slot[r], c->pos[r], i) = buffer(c, 0)[r * D + i];
  }
}

static void mix(const taper_ctx *c, const void *args) {
  const float *factor = args;
  uint32_t first, end;
  range(D, c, &first, &end);
  for (uint32_t r = 0; r < c->rows; r++) {
    for (int32_t p = 0; p <= c->pos[r]; p++) c->scratch[p] = *factor / (float)(1 + c->pos[r] - p);
    const float *turn = c->rotary[0] + (uint64_t)c->pos[r] * 2 * (D / 2);
    for (uint32_t i = first; i < end; i++) {
      float sum = 0;
      for (int32_t p = 0; p <= c->pos[r]; p++) sum += c->scratch[p] * *cell(c, 0, c->slot[r], p, i);
      buffer(c, 0)[r * D + i] += sum * turn[i];
    }
  }
}

static void squash(const taper_ctx *c, const void *args) {
  (void)args;
  uint32_t first, end;
  range(D, c, &first, &end);
  for (uint32_t r = 0; r < c->rows; r++) {
    for (uint32_t i = first; i < end; i++) {
      float x = buffer(c, 0)[r * D + i];
      buffer(c, 0)[r * D + i] = x / (1 + (x < 0 ? -x : x));
    }
  }
}

static void head(const taper_ctx *c, const void *args) {
  (void)args;
  uint32_t first, end;
  range((V + 15) / 16, c, &first, &end);
  for (uint32_t j = 0; j < c->out_rows; j++) {
    const float *x = buffer(c, 0) + (uint64_t)(uint32_t)c->out_row[j] * D;
    for (uint32_t o = first * 16; o < end * 16 && o < V; o++) {
      const float *w =
          o < SPLIT ? c->weight[1] + (uint64_t)o / 16 * D * 16 : c->weight[2] + (uint64_t)(o - SPLIT) / 16 * D * 16;
      float sum = 0;
      for (uint32_t i = 0; i < D; i++) sum += x[i] * w[i * 16 + o % 16];
      buffer(c, STRIDE)[(uint64_t)j * V + o] = sum;
    }
  }
}

static const float half = 0.5f;
static const taper_stage stages[] = {{embed, 0, "embed", 0},
                                     {cache, 0, "cache", WRONG(26, 0, 2)},
                                     {mix, &half, "mix", 0},
                                     {squash, 0, "squash", WRONG(27, 0, TAPER_STAGE_PROBES)},
                                     {head, 0, "head", 0}};
static const taper_weight_desc weights[] = {
    {"emb", WRONG(1, TAPER_PACK_ROWS, 7), 0, V, D, 1},
    {WRONG(2, "head", "hat"), TAPER_PACK_TILES, 0, SPLIT, D, SPLIT},
    {"head", TAPER_PACK_TILES, WRONG(3, SPLIT, 0xfffffff0u), V - SPLIT, WRONG(4, D, D + 1), WRONG(5, V - SPLIT, V)},
    {"scale", TAPER_PACK_ROWS, 0, 1, D, 0},
};
static const taper_state_desc states[] = {{"k", WRONG(6, D, 0)}};
static const double inv_freq[] = {1,
                                  0.5,
                                  0.25,
                                  0.125,
                                  0.0625,
                                  0.03125,
                                  0.015625,
                                  0.0078125,
                                  0.00390625,
                                  0.001953125,
                                  WRONG(7, 0.0009765625, 1e308 * 10)};
static const taper_rotary_desc rotary[] = {{WRONG(8, D / 2, 1 << 19), inv_freq, 1}};
static const taper_probe_desc probes[] = {
    {"layers.0", WRONG(9, 0, 77), 0, D, TAPER_ABI_NONE},
    {"layers.1", WRONG(24, 3, TAPER_ABI_NONE), WRONG(10, 0, 1ull << 40), WRONG(11, D, 19), WRONG(12, 3, 4)},
};

#if TOY_WRONG == 25
#define SYMBOL "another_symbol"
#else
#define SYMBOL "taper_image"
#endif
#pragma GCC visibility push(default)
extern const taper_image toy_image __asm__(SYMBOL); /* the type has the symbol's name */
const taper_image toy_image = {
    .magic = WRONG(13, TAPER_ABI_MAGIC, 0),
    .abi_version = WRONG(14, TAPER_ABI_VERSION, 99),
    .size = WRONG(15, sizeof(taper_image), 8),
    .vocab = WRONG(16, V, V + 1),
    .context = WRONG(17, CONTEXT, 51),
    .width = WRONG(18, D, 0),
    .max_batch = WRONG(19, 8, 0),
    .stage_count = WRONG(20, 5, 1 << 19),
    .weight_count = 4,
    .state_count = 1,
    .rotary_count = 1,
    .probe_count = 2,
    .stages = WRONG(21, stages, (const taper_stage *)64),
    .weights = weights,
    .states = states,
    .rotary = rotary,
    .probes = probes,
    .row_floats = WRONG(22, STRIDE + V, STRIDE),
    .scratch_floats = 16,
    .scratch_per_pos = 1,
    .scratch_per_row = 0,
    .logits_offset = STRIDE,
    .model = WRONG(23, TOY_MODEL, "fedcba98765432100123456789abcdef"),
};
#pragma GCC visibility pop
