/*
 * dot.h - products of a few rows with tiles of 16 outputs. Every output is the sum of its blocks of 64 k in order, each one
 * chain of multiply-adds, whatever the number of rows, tiles and workers: its bits depend on nothing else. One chain over a long
 * k would round as many times as it has steps.
 */
#if !defined(TAPER_PRELUDE_H)
#include "templates/cpu/prelude.h"
#endif
#if !defined(TAPER_DOT_H)
#define TAPER_DOT_H

#define TV (TILE / VL) /* vectors of a tile */
#define DOT_ROWS 6u    /* rows of one block */
#define DOT_TILES 8u   /* tiles that a caller should offer at once */
#define DOT_CHAIN 64u  /* k of one chain */

/* acc[i][t] = sum over k of x[i][k] * w(k, t); element (k, t) of w is a tile of 16 at w + k * step + t * pitch. */
INLINE void dot_block(const uint32_t rows, const uint32_t tiles, float *acc, uint32_t lda, const float *const *x,
                      const float *w, uint32_t k, const size_t step, const size_t pitch) {
  for (uint32_t first = 0; first == 0 || first < k; first += DOT_CHAIN) {
    const uint32_t last = k - first < DOT_CHAIN ? k : first + DOT_CHAIN;
    vf s[DOT_ROWS][DOT_TILES * TV];
    const float *p[DOT_ROWS];
#pragma GCC unroll 8
    for (uint32_t i = 0; i < rows; i++) {
      p[i] = x[i];
#pragma GCC unroll 32
      for (uint32_t t = 0; t < tiles * TV; t++) s[i][t] = (vf){0};
    }
    for (size_t j = first; j < last; j++, w += step) {
      vf b[DOT_TILES * TV];
#pragma GCC unroll 32
      for (uint32_t t = 0; t < tiles * TV; t++) b[t] = v_load(w + (t / TV) * pitch + (t % TV) * VL);
#pragma GCC unroll 8
      for (uint32_t i = 0; i < rows; i++) {
        const vf a = v_splat(p[i][j]);
#pragma GCC unroll 32
        for (uint32_t t = 0; t < tiles * TV; t++) s[i][t] += a * b[t];
      }
    }
#pragma GCC unroll 8
    for (uint32_t i = 0; i < rows; i++)
#pragma GCC unroll 32
      for (uint32_t t = 0; t < tiles * TV; t++) {
        float *to = acc + (size_t)i * lda + t * VL;
        v_store(to, first ? v_load(to) + s[i][t] : s[i][t]);
      }
  }
}

/* The same for few accumulators and a long k: up to 8 chains, k mod chains, which are added in a fixed tree. rows,
 * tiles are constants. */
INLINE void dot_chains(const uint32_t rows, const uint32_t tiles, float *acc, uint32_t lda, const float *const *x,
                       const float *w, uint32_t k, const size_t step) {
  const uint32_t n = tiles * TV, one = rows * n, chains = one <= 2 ? 8 : one <= 4 ? 4 : one <= 8 ? 2 : 1;
  vf s[32];
  size_t j = 0;
#pragma GCC unroll 32
  for (uint32_t t = 0; t < chains * one; t++) s[t] = (vf){0};
  for (; j + chains <= k; j += chains) {
#pragma GCC unroll 8
    for (uint32_t c = 0; c < chains; c++)
#pragma GCC unroll 8
      for (uint32_t i = 0; i < rows; i++)
#pragma GCC unroll 32
        for (uint32_t t = 0; t < n; t++)
          s[c * one + i * n + t] += v_splat(x[i][j + c]) * v_load(w + (j + c) * step + t * VL);
  }
#pragma GCC unroll 8
  for (uint32_t c = 0; c < chains; c++)
    if (j + c < k) {
#pragma GCC unroll 8
      for (uint32_t i = 0; i < rows; i++)
#pragma GCC unroll 32
        for (uint32_t t = 0; t < n; t++)
          s[c * one + i * n + t] += v_splat(x[i][j + c]) * v_load(w + (j + c) * step + t * VL);
    }
#pragma GCC unroll 4
  for (uint32_t half = chains / 2; half > 0; half /= 2)
#pragma GCC unroll 32
    for (uint32_t t = 0; t < half * one; t++) s[t] += s[half * one + t];
#pragma GCC unroll 8
  for (uint32_t i = 0; i < rows; i++)
#pragma GCC unroll 32
    for (uint32_t t = 0; t < n; t++) v_store(acc + (size_t)i * lda + t * VL, s[i * n + t]);
}

#define DOT_KERNEL(rows, tiles)                                                                                        \
  LOCAL void dot_##rows##x##tiles(float *acc, uint32_t lda, const float *const *x, const float *w, uint32_t k,         \
                                  size_t step, size_t pitch) {                                                         \
    dot_block(rows, tiles, acc, lda, x, w, k, step, pitch);                                                            \
  }
/* As many accumulators as the registers hold, and at least the latency of a multiply-add. */
/* clang-format off */
#if VL == 16
DOT_KERNEL(1, 8) DOT_KERNEL(1, 4) DOT_KERNEL(1, 2) DOT_KERNEL(1, 1)
DOT_KERNEL(2, 4) DOT_KERNEL(3, 4) DOT_KERNEL(4, 4) DOT_KERNEL(5, 4) DOT_KERNEL(6, 4)
DOT_KERNEL(2, 2) DOT_KERNEL(3, 2) DOT_KERNEL(4, 2) DOT_KERNEL(5, 2) DOT_KERNEL(6, 2)
DOT_KERNEL(2, 1) DOT_KERNEL(3, 1) DOT_KERNEL(4, 1) DOT_KERNEL(5, 1) DOT_KERNEL(6, 1)
#else
DOT_KERNEL(1, 4) DOT_KERNEL(1, 2) DOT_KERNEL(1, 1) DOT_KERNEL(2, 2) DOT_KERNEL(3, 2)
DOT_KERNEL(2, 1) DOT_KERNEL(3, 1) DOT_KERNEL(4, 1) DOT_KERNEL(5, 1) DOT_KERNEL(6, 1)
#endif
    /* clang-format on */

    typedef void (*dot_fn)(float *, uint32_t, const float *const *, const float *, uint32_t, size_t, size_t);

/* Rows of the next block when `left` rows are left: no block of one row beside large ones. */
INLINE uint32_t dot_rows(uint32_t left) {
  return left <= DOT_ROWS ? left : left < 2 * DOT_ROWS ? (left + 1) / 2 : DOT_ROWS;
}

/* acc[i * lda + 16 t + o] for rows i < n <= DOT_ROWS and any number of tiles. */
INLINE void dot(float *acc, uint32_t lda, const float *const *x, uint32_t n, const float *w, uint32_t k, uint32_t tiles,
                size_t step, size_t pitch) {
#if VL == 16
  static const dot_fn by4[] = {dot_1x4, dot_2x4, dot_3x4, dot_4x4, dot_5x4, dot_6x4};
  static const dot_fn by2[] = {dot_1x2, dot_2x2, dot_3x2, dot_4x2, dot_5x2, dot_6x2};
  const uint32_t widest = 4;
#else
  static const dot_fn by4[] = {dot_1x4};
  static const dot_fn by2[] = {dot_1x2, dot_2x2, dot_3x2};
  const uint32_t widest = n == 1 ? 4 : n <= 3 ? 2 : 1;
#endif
  static const dot_fn by1[] = {dot_1x1, dot_2x1, dot_3x1, dot_4x1, dot_5x1, dot_6x1};
  uint32_t t = 0;
#if VL == 16
  if (n == 1)
    for (; t + 8 <= tiles; t += 8) dot_1x8(acc + t * TILE, lda, x, w + t * pitch, k, step, pitch);
#endif
  if (widest >= 4)
    for (; t + 4 <= tiles; t += 4) by4[n - 1](acc + t * TILE, lda, x, w + t * pitch, k, step, pitch);
  if (widest >= 2)
    for (; t + 2 <= tiles; t += 2) by2[n - 1](acc + t * TILE, lda, x, w + t * pitch, k, step, pitch);
  for (; t < tiles; t++) by1[n - 1](acc + t * TILE, lda, x, w + t * pitch, k, step, pitch);
}

#endif
