/* Attention over the cache. A unit is a row and a key head with the query heads that read it; two passes of softmax. */
#ifndef P_NAME /* alone: one shape, for the compiler and the tests */
#include "templates/cpu/axis.h"
#include "templates/cpu/math.h"
#define P_NAME attention_stage
#define P_ARGS attention_stage_args
#define P_GROUP 2
#define P_KV_HEADS 2
#define P_KEY_DIM 12
#define P_VALUE_DIM 12
#define P_VALUE_PITCH 16
#define P_SCALE 0.25f
#define P_WINDOW 0
#define P_CAPPED 0
#define P_CAP 0.0f
#define P_MIX_ROWS 2
#define P_MIX_TILES 1
#define P_Q_WIDTH 48
#define P_Q_START 0
#define P_COMMENT /* y = softmax(scale q K) V */
struct P_ARGS {
  uint64_t b0, b1;
  uint32_t s0, s1;
};
#endif
P_COMMENT
STAGE void P_NAME(const taper_ctx *c, const void *args) {
  const struct P_ARGS *a = args;
  const uint32_t context = c->context;
  float *sums = c->scratch, *mix = sums + P_GROUP * TILE, *scores = mix + P_GROUP * P_VALUE_PITCH;
  for (uint32_t u = c->worker; u < c->rows * P_KV_HEADS; u += c->workers) {
    const uint32_t r = u / P_KV_HEADS, h = u % P_KV_HEADS, last = (uint32_t)c->pos[r];
#if P_WINDOW
    const uint32_t first = last + 1 > P_WINDOW ? last + 1 - P_WINDOW : 0;
#else
    const uint32_t first = 0;
#endif
    const uint32_t tile = first / TILE, tiles = last / TILE + 1 - tile, base = tile * TILE;
    const float *keys = c->state[a->s0] + ((size_t)(uint32_t)c->slot[r] * P_KV_HEADS + h) * context * P_KEY_DIM;
    const float *values = c->state[a->s1] + ((size_t)(uint32_t)c->slot[r] * P_KV_HEADS + h) * context * P_VALUE_PITCH;
    const float *q = buffer_row(c, a->b0, P_Q_WIDTH, r) + P_Q_START + h * P_GROUP * P_KEY_DIM;
    float *y = buffer_row(c, a->b1, P_KV_HEADS * P_GROUP * P_VALUE_DIM, r) + h * P_GROUP * P_VALUE_DIM;
    for (uint32_t g = 0, some; g < P_GROUP; g += some) {
      const float *x[DOT_ROWS];
      some = dot_rows(P_GROUP - g);
      for (uint32_t i = 0; i < some; i++) x[i] = q + (g + i) * P_KEY_DIM;
      dot(scores + (size_t)g * context, context, x, some, keys + (size_t)base * P_KEY_DIM, P_KEY_DIM, tiles, TILE,
          P_KEY_DIM * TILE);
    }
    for (uint32_t g = 0; g < P_GROUP; g++) {
      float *s = scores + (size_t)g * context;
      for (uint32_t i = base; i < first; i++) s[i - base] = -__builtin_inff();
      for (uint32_t i = last + 1; i < base + tiles * TILE; i++) s[i - base] = -__builtin_inff();
      vf most = v_splat(-__builtin_inff()), sum = v_splat(0);
      for (uint32_t i = 0; i < tiles * TILE; i += VL) {
        vf v = v_load(s + i) * v_splat(P_SCALE);
#if P_CAPPED
        v = v_select(v == v_splat(-__builtin_inff()), v, v_softcap(v, P_CAP)); /* masked stays masked */
#endif
        most = v_max(v, most);
        v_store(s + i, v);
      }
      const vf top = v_splat(max_lanes(most));
      for (uint32_t i = 0; i < tiles * TILE; i += VL) {
        const vf e = v_exp_falling(v_load(s + i) - top);
        sum += e;
        v_store(s + i, e);
      }
      sums[g] = 1.0f / sum_lanes(sum);
    }
    for (uint32_t g = 0; g < P_GROUP; g += P_MIX_ROWS) {
      const float *x[P_MIX_ROWS];
      for (uint32_t i = 0; i < P_MIX_ROWS; i++) x[i] = scores + (size_t)(g + i) * context + (first - base);
      const uint32_t few = VL == 16 ? P_MIX_TILES : 1;
      for (uint32_t t = 0; t < P_VALUE_PITCH; t += few * TILE)
        dot_chains(P_MIX_ROWS, few, mix + g * P_VALUE_PITCH + t, P_VALUE_PITCH, x,
                   values + (size_t)first * P_VALUE_PITCH + t, last + 1 - first, P_VALUE_PITCH);
    }
    for (uint32_t g = 0; g < P_GROUP; g++)
      for (uint32_t j = 0; j < P_VALUE_DIM; j += VL)
        v_store_part(y + g * P_VALUE_DIM + j, v_load(mix + g * P_VALUE_PITCH + j) * v_splat(sums[g]), P_VALUE_DIM - j);
  }
}
