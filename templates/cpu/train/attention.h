/*
 * attention.h - causal attention over whole windows, forward and backward, by matrix products.
 *
 * A unit is a window and a key head with the query heads that read it: it alone writes their results, so that nothing is shared. It takes
 * ATTENTION_ROWS queries at once; their scores, whole rows, lie in the worker's scratch. Tiles beyond the diagonal or before the window are
 * left out. The gradient computes scores and softmax again (ADR 0006).
 */
#if !defined(TAPER_MATH_H)
#include "templates/cpu/math.h"
#endif
#if !defined(TAPER_GEMM_H)
#include "templates/cpu/train/gemm.h"
#endif
#if !defined(TAPER_TRAIN_ATTENTION_H)
#define TAPER_TRAIN_ATTENTION_H

#define ATTENTION_ROWS 64u
#define ATTENTION_STEP (2 * GEMM_MR) /* rows of one k range */
#define ATTENTION_CAPPED(cap) ((cap) != 0 ? 1u : 0u)
/* Floats of scratch: a fixed part, and a part for each position of the window; forward, backward. */
#define ATTENTION_FIXED(kd, vd) (32u * ATTENTION_ROWS + 16u * ((kd) + (vd) + 32u))
#define ATTENTION_PER_TIME(kd, vd) (ATTENTION_ROWS + (kd) + (vd) + 16u)
#define ATTENTION_BACK_FIXED(kd, vd, cap)                                                                              \
  ((2u + ATTENTION_CAPPED(cap)) * 32u * ATTENTION_ROWS + (16u + ATTENTION_ROWS) * ((kd) + (vd) + 32u))
#define ATTENTION_BACK_PER_TIME(kd, vd, cap)                                                                           \
  ((2u + ATTENTION_CAPPED(cap)) * ATTENTION_ROWS + 2u * (kd) + (vd) + 32u)

typedef struct attention_shape {
  uint32_t group, kv_heads, key_dim, value_dim; /* group: query heads of a key head */
  uint32_t window;                              /* how many last positions are seen; 0: all */
  float scale, cap;                             /* cap 0: none */
} attention_shape;

/* One block of queries: its first position and rows; positions seen (at least 1, never more than there are). */
typedef struct attention_block {
  uint32_t time, window, first, rows;
  size_t pitch; /* of its scores */
} attention_block;

INLINE uint32_t attention_first(const attention_block *b, uint32_t position) {
  return position + 1 > b->window ? position + 1 - b->window : 0;
}
INLINE uint32_t attention_round(uint32_t n) { return (n + 15) / 16 * 16; }

/* s[i][j] = sum over d of a[i][d] b[j][d] where query i sees key j, in whole tiles; packed: b of all keys. */
LOCAL void attention_scores(const attention_block *q, float *s, const float *a, uint32_t lda, const float *packed,
                            uint32_t depth) {
  const uint32_t low = attention_first(q, q->first), high = q->first + q->rows;
  for (uint32_t p = 0; p < gemm_panels(q->time); p++) {
    const uint32_t at = gemm_panel_start(q->time, p), vectors = gemm_panel_start(q->time, p + 1) - at;
    const uint32_t c0 = at * VL, c1 = gemm_least(c0 + vectors * VL, q->time);
    if (c1 <= low) continue;
    if (c0 >= high) break;
    const uint32_t r0 = c0 > q->first ? (c0 - q->first) / GEMM_MR * GEMM_MR : 0;
    const uint32_t r1 = gemm_least(q->rows, c1 - 1 + q->window - q->first);
    gemm_out o = {q->pitch, 0, 0, GEMM_MR, c1 - c0, 0, 0};
    gemm_rows_by_panel(s + r0 * q->pitch + c0, &o, a + (size_t)r0 * lda, lda, r1 - r0, packed + (size_t)c0 * depth,
                       vectors, depth, 0);
  }
}

/* y[i] = sum over the keys j of s[i][j] b[j], columns `width`; packed: b, keys as its k. */
LOCAL void attention_mix(const attention_block *q, float *y, uint32_t ldy, const float *s, const float *packed,
                         uint32_t width) {
  const uint32_t low = attention_first(q, q->first), high = q->first + q->rows;
  for (uint32_t p = 0; p < gemm_panels(width); p++) {
    const uint32_t at = gemm_panel_start(width, p), vectors = gemm_panel_start(width, p + 1) - at, column = at * VL;
    const float *b = packed + (size_t)column * q->time;
    gemm_out o = {ldy, 0, 0, GEMM_MR, gemm_least(vectors * VL, width - column), (const char *)b, 0};
    for (uint32_t k0 = low / GEMM_KC * GEMM_KC; k0 < high; k0 += GEMM_KC)
      for (uint32_t r = 0; r < q->rows; r += ATTENTION_STEP) {
        const uint32_t some = gemm_least(ATTENTION_STEP, q->rows - r), f = attention_first(q, q->first + r);
        const uint32_t from = k0 > f ? k0 : f, to = gemm_least(k0 + GEMM_KC, q->first + r + some);
        if (from >= to) continue;
        o.add = from > f;
        gemm_rows_by_panel(y + (size_t)r * ldy + column, &o, s + r * q->pitch + from, (uint32_t)q->pitch, some,
                           b + (size_t)from * vectors * VL, vectors, to - from, 0);
      }
  }
}

/* d[j] += sum over the queries i of s[i][j] b[i], columns `width`, for every key j; packed: b, queries as its k. */
LOCAL void attention_turned(const attention_block *q, float *d, uint32_t ldd, const float *s, const float *packed,
                            uint32_t width) {
  static const gemm_fn by_width[GEMM_NV] = {GEMM_TURNED_TABLE};
  const uint32_t low = attention_first(q, q->first), high = q->first + q->rows;
  for (uint32_t p = 0; p < gemm_panels(width); p++) {
    const uint32_t at = gemm_panel_start(width, p), vectors = gemm_panel_start(width, p + 1) - at, column = at * VL;
    const float *b = packed + (size_t)column * q->rows;
    gemm_out o = {ldd, 0, 1, GEMM_MR, gemm_least(vectors * VL, width - column), (const char *)b, 0};
    for (uint32_t c = low; c < high; c += GEMM_MR) {
      o.rows = gemm_least(GEMM_MR, high - c);
      const uint32_t r0 = c > q->first ? c - q->first : 0, r1 = gemm_least(q->rows, c + o.rows - 1 + q->window - q->first);
      by_width[vectors - 1](d + (size_t)c * ldd + column, &o, s + r0 * q->pitch + c, q->pitch,
                            b + (size_t)r0 * vectors * VL, r1 - r0);
    }
  }
}

/* The scores of position i become exp(scale' s - largest), 0 where i sees nothing within the block's reach; returns their sum. slope:
 * where the derivative of the cap by s / scale goes, or NULL. */
INLINE float attention_softmax(const attention_block *q, float *s, float *slope, uint32_t i, float scale, float cap) {
  const float least = -__builtin_inff();
  const uint32_t first = attention_first(q, i), v0 = first / VL * VL, v1 = (i + VL) / VL * VL;
  vf top = v_splat(least), sum[2] = {{0}};
  for (uint32_t j = v0; j < first; j++) s[j] = least;
  for (uint32_t j = i + 1; j < v1; j++) s[j] = least;
  for (uint32_t j = v0; j < v1; j += VL) {
    vf x = v_load(s + j) * v_splat(scale);
    if (cap != 0) {
      const vf t = v_tanh(x / v_splat(cap));
      if (slope) v_store(slope + j, v_splat(1.0f) - t * t);
      x = v_select(x == v_splat(least), x, v_splat(cap) * t); /* masked stays masked */
    }
    top = v_max(x, top);
    if (cap != 0) v_store(s + j, x);
  }
  const vf most = v_splat(max_lanes(top)), k = v_splat(cap != 0 ? 1.0f : scale);
  for (uint32_t j = v0, t = 0; j < v1; j += VL, t ^= 1) {
    const vf e = v_exp_falling(v_load(s + j) * k - most);
    sum[t] += e;
    v_store(s + j, e);
  }
  return sum_lanes(sum[0] + sum[1]);
}
/* Columns that a tile of the block may read and row i does not see: 0. */
INLINE void attention_clear(const attention_block *q, float *s, uint32_t i) {
  const uint32_t low = attention_first(q, q->first), v0 = attention_first(q, i) / VL * VL, v1 = (i + VL) / VL * VL;
  for (uint32_t j = low; j < v0; j++) s[j] = 0;
  for (uint32_t j = v1; j < q->first + q->rows; j += VL) v_store(s + j, (vf){0});
}

/* Forward of one unit: pointers at its window's first row and its heads' first columns. */
LOCAL void attention_forward(const attention_shape *h, float *y, uint32_t ldy, const float *q, uint32_t ldq,
                             const float *k, uint32_t ldk, const float *v, uint32_t ldv, uint32_t time,
                             float *scratch) {
  const uint32_t kd = h->key_dim, vd = h->value_dim;
  attention_block b = {time, h->window && h->window < time ? h->window : time, 0, 0, attention_round(time) + 16};
  float *scores = scratch, *keys = scores + ATTENTION_ROWS * b.pitch,
        *values = keys + (size_t)attention_round(time) * kd;
  gemm_pack_panels(keys, k, ldk, 1, time, kd, 0, gemm_panels(time));
  gemm_pack_panels(values, v, 1, ldv, vd, time, 0, gemm_panels(vd));
  for (; b.first < time; b.first += ATTENTION_ROWS) {
    b.rows = gemm_least(ATTENTION_ROWS, time - b.first);
    for (uint32_t g = 0; g < h->group; g++) {
      float *to = y + (size_t)b.first * ldy + g * vd, inverse[ATTENTION_ROWS];
      attention_scores(&b, scores, q + (size_t)b.first * ldq + g * kd, ldq, keys, kd);
      for (uint32_t r = 0; r < b.rows; r++) {
        float *s = scores + r * b.pitch;
        inverse[r] = 1.0f / attention_softmax(&b, s, 0, b.first + r, h->scale, h->cap);
        attention_clear(&b, s, b.first + r);
      }
      attention_mix(&b, to, ldy, scores, values, vd);
      for (uint32_t r = 0; r < b.rows; r++, to += ldy)
        for (uint32_t j = 0; j < vd; j += VL)
          v_store_part(to + j, v_load_part(to + j, vd - j, 0) * v_splat(inverse[r]), vd - j);
    }
  }
}

/* With p the unnormalised weights of a row and e the gradient by the weights: p becomes the weights, e the gradient by q k: scale slope p (e -
 * sum of p e). */
INLINE void attention_softmax_back(float *p, float *e, const float *slope, uint32_t v0, uint32_t v1, float inverse,
                                   float scale) {
  const vf inv = v_splat(inverse), zero = {0};
  vf sum[2] = {{0}};
  for (uint32_t j = v0, t = 0; j < v1; j += VL, t ^= 1) {
    const vf w = v_load(p + j) * inv;
    sum[t] += v_select(w == zero, zero, w * v_load(e + j));
    v_store(p + j, w);
  }
  const vf mean = v_splat(sum_lanes(sum[0] + sum[1])), k = v_splat(scale);
  for (uint32_t j = v0; j < v1; j += VL) {
    const vf w = v_load(p + j);
    vf d = w * (v_load(e + j) - mean) * k;
    if (slope) d *= v_load(slope + j);
    v_store(e + j, v_select(w == zero, zero, d));
  }
}

/* Backward of one unit, pointers as above; dq, dk, dv are written, not added to. */
LOCAL void attention_backward(const attention_shape *h, float *dq, uint32_t lddq, float *dk, uint32_t lddk, float *dv,
                              uint32_t lddv, const float *q, uint32_t ldq, const float *k, uint32_t ldk, const float *v,
                              uint32_t ldv, const float *dy, uint32_t lddy, uint32_t time, float *scratch) {
  const uint32_t kd = h->key_dim, vd = h->value_dim, long_time = attention_round(time);
  attention_block b = {time, h->window && h->window < time ? h->window : time, 0, 0, long_time + 16};
  const size_t block = ATTENTION_ROWS * b.pitch;
  float *scores = scratch, *back = scores + block, *slope = h->cap != 0 ? back + block : 0,
        *keys = back + block * (slope ? 2 : 1), *values = keys + (size_t)long_time * kd,
        *plain_keys = values + (size_t)long_time * vd, *queries = plain_keys + (size_t)time * attention_round(kd),
        *outs = queries + ATTENTION_ROWS * attention_round(kd);
  gemm_pack_panels(keys, k, ldk, 1, time, kd, 0, gemm_panels(time));
  gemm_pack_panels(values, v, ldv, 1, time, vd, 0, gemm_panels(time));
  gemm_pack_panels(plain_keys, k, 1, ldk, kd, time, 0, gemm_panels(kd));
  for (uint32_t i = 0; i < time; i++) {
    for (uint32_t j = 0; j < kd; j++) dk[(size_t)i * lddk + j] = 0;
    for (uint32_t j = 0; j < vd; j++) dv[(size_t)i * lddv + j] = 0;
  }
  for (; b.first < time; b.first += ATTENTION_ROWS) {
    b.rows = gemm_least(ATTENTION_ROWS, time - b.first);
    for (uint32_t g = 0; g < h->group; g++) {
      const float *queries_at = q + (size_t)b.first * ldq + g * kd, *outs_at = dy + (size_t)b.first * lddy + g * vd;
      attention_scores(&b, scores, queries_at, ldq, keys, kd);
      attention_scores(&b, back, outs_at, lddy, values, vd);
      for (uint32_t r = 0; r < b.rows; r++) {
        const uint32_t i = b.first + r, v0 = attention_first(&b, i) / VL * VL, v1 = (i + VL) / VL * VL;
        float *s = scores + r * b.pitch, *e = back + r * b.pitch, *c = slope ? slope + r * b.pitch : 0;
        const float inverse = 1.0f / attention_softmax(&b, s, c, i, h->scale, h->cap);
        attention_softmax_back(s, e, c, v0, v1, inverse, h->scale);
        attention_clear(&b, s, i);
        attention_clear(&b, e, i);
      }
      gemm_pack_panels(outs, outs_at, 1, lddy, vd, b.rows, 0, gemm_panels(vd));
      gemm_pack_panels(queries, queries_at, 1, ldq, kd, b.rows, 0, gemm_panels(kd));
      attention_turned(&b, dv, lddv, scores, outs, vd);
      attention_turned(&b, dk, lddk, back, queries, kd);
      attention_mix(&b, dq + (size_t)b.first * lddq + g * kd, lddq, back, plain_keys, kd);
    }
  }
}

/* All windows of a call, this worker's units. Forward into y, or, with d, the gradient of dy: dq, dk, dv side by side. c->scratch: as the
 * macros above. */
LOCAL void attention_any(const taper_train_ctx *c, const attention_shape *h, float *y, uint32_t ldy, const float *q,
                         uint32_t ldq, const float *k, uint32_t ldk, const float *v, uint32_t ldv, const float *dy,
                         uint32_t lddy, float *d, uint32_t ldd) {
  const uint32_t kd = h->key_dim, vd = h->value_dim, dk = h->group * h->kv_heads * kd, dv = dk + h->kv_heads * kd;
  for (uint32_t u = c->worker; u < c->batch * h->kv_heads; u += c->workers) {
    const uint32_t head = u % h->kv_heads, qc = head * h->group * kd, yc = head * h->group * vd;
    const size_t r = (size_t)(u / h->kv_heads) * c->time;
    const float *uq = q + r * ldq + qc, *uk = k + r * ldk + head * kd, *uv = v + r * ldv + head * vd;
    if (d)
      attention_backward(h, d + r * ldd + qc, ldd, d + r * ldd + dk + head * kd, ldd, d + r * ldd + dv + head * vd, ldd,
                         uq, ldq, uk, ldk, uv, ldv, dy + r * lddy + yc, lddy, c->time, c->scratch);
    else
      attention_forward(h, y + r * ldy + yc, ldy, uq, ldq, uk, ldk, uv, ldv, c->time, c->scratch);
  }
}

#endif
