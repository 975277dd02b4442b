/*
 * gemm.h - matrix products of training: many rows with packed weights, gradients of weights, any product on the fly.
 *
 * A tile of GEMM_MR rows and GEMM_NV vectors of columns stays in registers while k runs. Columns are packed in panels of GEMM_NV vectors
 * (narrower at the end), k-major, so that a panel's block of k lies in the first cache while the rows pass by. Every output is the sum of
 * its blocks of k in order (gemm_block_k: of at most GEMM_KC, by k alone), each one chain of multiply-adds: its bits depend neither on the
 * number of rows and columns nor on the workers.
 */
#if !defined(TAPER_PRELUDE_H)
#include "templates/cpu/prelude.h"
#endif
#if !defined(TAPER_TRAIN_ABI_H)
#include "runtime/abi/train_abi.h"
#endif
#if !defined(TAPER_GEMM_H)
#define TAPER_GEMM_H

#if VL == 16
#define GEMM_MR 8u
#define GEMM_NV 3u
#elif VL == 8
#define GEMM_MR 6u
#define GEMM_NV 2u
#else
#define GEMM_MR 4u
#define GEMM_NV 2u
#endif
#define GEMM_NR (GEMM_NV * VL)
#define GEMM_KC 192u /* k of one chain */
#define GEMM_OUT 384u /* rows and columns of a weight gradient that are packed at once */
#define GEMM_IN 384u
#define GEMM_LIB_OUT 96u /* rows of a library's call for a weight gradient: by shape, whatever the workers */
/* Floats of scratch that a worker needs for gemm_weight and gemm_generic. */
#define GEMM_WEIGHT_SCRATCH ((uint64_t)GEMM_KC * (GEMM_OUT + GEMM_IN + GEMM_MR + GEMM_NR))

INLINE uint32_t gemm_least(uint32_t a, uint32_t b) { return a < b ? a : b; }
/* k of a block: equal parts, none above GEMM_KC. */
INLINE uint32_t gemm_block_k(uint32_t k) {
  const uint32_t parts = k == 0 ? 1 : (k + GEMM_KC - 1) / GEMM_KC;
  return (k + parts - 1) / parts;
}

/* ---- panels of columns: of n columns, first vector and vectors of each ---- */
INLINE uint32_t gemm_vectors(uint32_t n) { return (n + VL - 1) / VL; }
INLINE uint32_t gemm_panels(uint32_t n) { return (gemm_vectors(n) + GEMM_NV - 1) / GEMM_NV; }
/* First vector of panel p <= gemm_panels(n). A last panel of one vector takes another one from its neighbour. */
INLINE uint32_t gemm_panel_start(uint32_t n, uint32_t p) {
  const uint32_t v = gemm_vectors(n), at = p * GEMM_NV;
  if (at >= v) return v;
  return GEMM_NV > 2 && at + 1 == v && p > 0 ? at - 1 : at;
}
/* Floats of the packed form of a weight with n outputs, k inputs (in its direction): n to a multiple of VL, times k. */
INLINE uint64_t gemm_packed_floats(uint32_t n, uint32_t k) { return (uint64_t)gemm_vectors(n) * VL * k; }

#if VL == 16
#define GEMM_ZIP_LOW(a, b) __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
#define GEMM_ZIP_HIGH(a, b) __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)
#elif VL == 8
#define GEMM_ZIP_LOW(a, b) __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11)
#define GEMM_ZIP_HIGH(a, b) __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15)
#else
#define GEMM_ZIP_LOW(a, b) __builtin_shufflevector(a, b, 0, 4, 1, 5)
#define GEMM_ZIP_HIGH(a, b) __builtin_shufflevector(a, b, 2, 6, 3, 7)
#endif
/* dst[k * width + j] = from[j * step + k], a square of VL: log2(VL) rounds that interleave the vectors of both halves. */
LOCAL void gemm_turn_square(float *dst, size_t width, const float *from, size_t step) {
  vf a[VL], b[VL];
  UNROLL for (uint32_t j = 0; j < VL; j++) a[j] = v_load(from + j * step);
  UNROLL for (uint32_t round = 1; round < VL; round *= 2) {
    UNROLL for (uint32_t j = 0; j < VL / 2; j++) {
      b[2 * j] = GEMM_ZIP_LOW(a[j], a[j + VL / 2]);
      b[2 * j + 1] = GEMM_ZIP_HIGH(a[j], a[j + VL / 2]);
    }
    UNROLL for (uint32_t j = 0; j < VL; j++) a[j] = b[j];
  }
  UNROLL for (uint32_t j = 0; j < VL; j++) v_store(dst + j * width, a[j]);
}
/* dst[k * width + j] = column j of a panel; element (k, column) is at from[column * column_step + k * k_step]; one of the steps is 1.
 * Columns from `cols` on are 0. width: a multiple of VL. */
LOCAL void gemm_pack_panel(float *dst, const float *from, size_t column_step, size_t k_step, uint32_t width,
                           uint32_t cols, uint32_t k) {
  if (column_step == 1) {
    for (uint32_t kk = 0; kk < k; kk++, dst += width, from += k_step)
      for (uint32_t j = 0; j < width; j += VL)
        v_store(dst + j, j < cols ? v_load_part(from + j, cols - j, 0) : (vf){0});
    return;
  }
  for (uint32_t j = 0; j < width; j += VL) {
    uint32_t kk = 0;
    for (; cols >= j + VL && kk + VL <= k; kk += VL)
      gemm_turn_square(dst + (size_t)kk * width + j, width, from + j * column_step + kk, column_step);
    for (; kk < k; kk++)
      for (uint32_t i = j; i < j + VL; i++) dst[(size_t)kk * width + i] = i < cols ? from[i * column_step + kk] : 0;
  }
}
/* Panels [first_panel, last_panel) of gemm_panels(n) of an n x k form; the steps as above. */
INLINE void gemm_pack_panels(float *dst, const float *from, size_t column_step, size_t k_step, uint32_t n, uint32_t k,
                             uint32_t first_panel, uint32_t last_panel) {
  for (uint32_t p = first_panel; p < last_panel; p++) {
    const uint32_t at = gemm_panel_start(n, p), width = (gemm_panel_start(n, p + 1) - at) * VL, column = at * VL;
    gemm_pack_panel(dst + (size_t)column * k, from + column * column_step, column_step, k_step, width,
                    gemm_least(width, n - column), k);
  }
}
/* Of W^T (back = 0: weight is [n, k]) or of W (back = 1: weight is [k, n]) into the packed form dst. */
LOCAL void gemm_pack(float *dst, const float *weight, uint32_t n, uint32_t k, int back, uint32_t first_panel,
                     uint32_t last_panel) {
  gemm_pack_panels(dst, weight, back ? 1 : k, back ? n : 1, n, k, first_panel, last_panel);
}

/* ---- the tile ---- */
typedef struct gemm_out {
  size_t ld;         /* of y */
  const float *bias; /* of the first column, or NULL */
  int add;           /* y += */
  uint32_t rows;     /* to store */
  uint32_t cols;
} gemm_out;

/* Stores a tile, t[row * width + column], where it is narrower or takes more than a sum. */
LOCAL void gemm_store_edge(float *y, const gemm_out *o, const float *t, uint32_t rows, uint32_t width) {
  for (uint32_t i = 0; i < gemm_least(rows, o->rows); i++)
    for (uint32_t j = 0; j < o->cols; j += VL) {
      const uint32_t cols = o->cols - j;
      vf s = v_load(t + i * width + j);
      if (o->add) s += v_load_part(y + i * o->ld + j, cols, 0);
      if (o->bias) s += v_load_part(o->bias + j, cols, 0);
      v_store_part(y + i * o->ld + j, s, cols);
    }
}

/* y[i][j] (+)= sum over k of a(i, k) b(k, j), rows x nv vectors (constants); a(i, k) = a[i * row_step + k * k_step]; b: a panel's block. */
INLINE void gemm_tile(const uint32_t rows, const uint32_t nv, float *y, const gemm_out *o, const float *a,
                      const size_t row_step, const size_t k_step, const float *b, uint32_t k) {
  vf s[GEMM_MR][GEMM_NV];
  const float *p[GEMM_MR];
  UNROLL for (uint32_t i = 0; i < rows; i++) {
    p[i] = a + i * row_step;
    __builtin_prefetch(y + i * o->ld, 1);
    UNROLL for (uint32_t v = 0; v < nv; v++) s[i][v] = (vf){0};
  }
  for (size_t kk = 0; kk < k; kk++, b += nv * VL) {
    vf w[GEMM_NV];
    UNROLL for (uint32_t v = 0; v < nv; v++) w[v] = v_load(b + v * VL);
    UNROLL for (uint32_t i = 0; i < rows; i++) {
      const vf x = v_splat(p[i][kk * k_step]);
      UNROLL for (uint32_t v = 0; v < nv; v++) s[i][v] += x * w[v];
    }
  }
  float edge[GEMM_MR * GEMM_NR];
  const int whole = o->cols == nv * VL && !o->bias && o->rows >= rows;
  float *to = whole ? y : edge;
  const size_t ld = whole ? o->ld : nv * VL;
  if (whole && o->add) {
    UNROLL for (uint32_t i = 0; i < rows; i++)
      UNROLL for (uint32_t v = 0; v < nv; v++) s[i][v] += v_load(y + i * ld + v * VL);
  }
  UNROLL for (uint32_t i = 0; i < rows; i++)
    UNROLL for (uint32_t v = 0; v < nv; v++) v_store(to + i * ld + v * VL, s[i][v]);
  if (!whole) gemm_store_edge(y, o, edge, rows, nv * VL);
}

typedef void (*gemm_fn)(float *y, const gemm_out *o, const float *a, size_t step, const float *b, uint32_t k);
/* Rows as they lie (step: between rows); packed columns of a (step: between k). */
#define GEMM_ROWS_KERNEL(rows, nv)                                                                                     \
  LOCAL void gemm_rows_##rows##x##nv(float *y, const gemm_out *o, const float *a, size_t step, const float *b,         \
                                     uint32_t k) {                                                                     \
    gemm_tile(rows, nv, y, o, a, step, 1, b, k);                                                                       \
  }
#define GEMM_TURNED_KERNEL(rows, nv)                                                                                   \
  LOCAL void gemm_turned_##rows##x##nv(float *y, const gemm_out *o, const float *a, size_t step, const float *b,       \
                                       uint32_t k) {                                                                   \
    gemm_tile(rows, nv, y, o, a, 1, step, b, k);                                                                       \
  }
/* clang-format off */
#if VL == 16
GEMM_ROWS_KERNEL(8, 3) GEMM_ROWS_KERNEL(4, 3) GEMM_ROWS_KERNEL(2, 3) GEMM_ROWS_KERNEL(1, 3)
GEMM_ROWS_KERNEL(8, 2) GEMM_ROWS_KERNEL(4, 2) GEMM_ROWS_KERNEL(2, 2) GEMM_ROWS_KERNEL(1, 2)
GEMM_ROWS_KERNEL(8, 1) GEMM_ROWS_KERNEL(4, 1) GEMM_ROWS_KERNEL(2, 1) GEMM_ROWS_KERNEL(1, 1)
GEMM_TURNED_KERNEL(8, 3) GEMM_TURNED_KERNEL(8, 2) GEMM_TURNED_KERNEL(8, 1)
#define GEMM_ROWS_TABLE {gemm_rows_8x1, gemm_rows_4x1, gemm_rows_2x1, gemm_rows_1x1}, \
  {gemm_rows_8x2, gemm_rows_4x2, gemm_rows_2x2, gemm_rows_1x2}, {gemm_rows_8x3, gemm_rows_4x3, gemm_rows_2x3, gemm_rows_1x3}
#define GEMM_TURNED_TABLE gemm_turned_8x1, gemm_turned_8x2, gemm_turned_8x3
#elif VL == 8
GEMM_ROWS_KERNEL(6, 2) GEMM_ROWS_KERNEL(4, 2) GEMM_ROWS_KERNEL(2, 2) GEMM_ROWS_KERNEL(1, 2)
GEMM_ROWS_KERNEL(6, 1) GEMM_ROWS_KERNEL(4, 1) GEMM_ROWS_KERNEL(2, 1) GEMM_ROWS_KERNEL(1, 1)
GEMM_TURNED_KERNEL(6, 2) GEMM_TURNED_KERNEL(6, 1)
#define GEMM_ROWS_TABLE {gemm_rows_6x1, gemm_rows_4x1, gemm_rows_2x1, gemm_rows_1x1}, {gemm_rows_6x2, gemm_rows_4x2, gemm_rows_2x2, gemm_rows_1x2}
#define GEMM_TURNED_TABLE gemm_turned_6x1, gemm_turned_6x2
#else
GEMM_ROWS_KERNEL(4, 2) GEMM_ROWS_KERNEL(2, 2) GEMM_ROWS_KERNEL(1, 2)
GEMM_ROWS_KERNEL(4, 1) GEMM_ROWS_KERNEL(2, 1) GEMM_ROWS_KERNEL(1, 1)
GEMM_TURNED_KERNEL(4, 2) GEMM_TURNED_KERNEL(4, 1)
#define GEMM_ROWS_TABLE {gemm_rows_4x1, gemm_rows_4x1, gemm_rows_2x1, gemm_rows_1x1}, {gemm_rows_4x2, gemm_rows_4x2, gemm_rows_2x2, gemm_rows_1x2}
#define GEMM_TURNED_TABLE gemm_turned_4x1, gemm_turned_4x2
#endif
/* clang-format on */

/* All rows against one block of one panel. */
INLINE void gemm_rows_by_panel(float *y, gemm_out *o, const float *x, uint32_t ldx, uint32_t rows, const float *b,
                               uint32_t vectors, uint32_t k) {
  static const gemm_fn by_rows[GEMM_NV][4] = {GEMM_ROWS_TABLE};
  static const uint8_t count[4] = {GEMM_MR, 4, 2, 1};
  const gemm_fn *f = by_rows[vectors - 1];
  for (uint32_t r = 0, i = 0; r < rows; r += count[i]) {
    while (rows - r < count[i]) i++;
    f[i](y + r * o->ld, o, x + (size_t)r * ldx, ldx, b, k);
  }
}
/* The same for a packed a: blocks of GEMM_MR rows, [k][GEMM_MR], the last one filled up. */
INLINE void gemm_turned_by_panel(float *y, gemm_out *o, const float *a, size_t block, size_t step, uint32_t rows,
                                 const float *b, uint32_t vectors, uint32_t k) {
  static const gemm_fn by_width[GEMM_NV] = {GEMM_TURNED_TABLE};
  for (uint32_t r = 0; r < rows; r += GEMM_MR, a += block) {
    o->rows = gemm_least(GEMM_MR, rows - r);
    by_width[vectors - 1](y + r * o->ld, o, a, step, b, k);
  }
}

/* Panels [first_panel, last_panel) of y[rows x n] (+)= x[rows x k] B, k from k_first on: B is k_pitch long as packed. */
INLINE void gemm_packed_part(float *y, uint32_t ldy, const float *x, uint32_t ldx, uint32_t rows, uint32_t n,
                             uint32_t k, const float *packed, uint32_t k_pitch, uint32_t k_first, uint32_t first_panel,
                             uint32_t last_panel, int accumulate, const float *bias) {
  const uint32_t part = gemm_block_k(k);
  for (uint32_t p = first_panel; p < last_panel; p++) {
    const uint32_t at = gemm_panel_start(n, p), vectors = gemm_panel_start(n, p + 1) - at, column = at * VL;
    const float *b = packed + (size_t)column * k_pitch + (size_t)k_first * vectors * VL;
    gemm_out o = {ldy, bias ? bias + column : 0, accumulate, rows, gemm_least(vectors * VL, n - column)};
    for (uint32_t k0 = 0; k0 == 0 || k0 < k; k0 += part) {
      gemm_rows_by_panel(y + column, &o, x + k0, ldx, rows, b + (size_t)k0 * vectors * VL, vectors,
                         gemm_least(part, k - k0));
      o.add = 1, o.bias = 0;
    }
  }
}

/* y[rows x n] (+)= x[rows x k] W^T + bias (back = 0: weight is [n, k]) or x W + bias (back = 1: weight is [k, n]). packed: gemm_pack's form
 * of that weight and direction. bias: [n] or NULL. With c->gemm the library computes it from `weight`. y is not x. */
LOCAL void gemm_rows(const taper_train_ctx *c, float *y, uint32_t ldy, const float *x, uint32_t ldx, uint32_t rows,
                     uint32_t n, uint32_t k, const float *packed, const float *weight, int back, int accumulate,
                     const float *bias) {
  if (!c->gemm) {
    gemm_packed_part(y, ldy, x, ldx, rows, n, k, packed, k, 0, 0, gemm_panels(n), accumulate, bias);
    return;
  }
  for (uint32_t r = 0; bias && r < rows; r++)
    for (uint32_t j = 0; j < n; j += VL) {
      const vf b = v_load_part(bias + j, n - j, 0);
      float *to = y + (size_t)r * ldy + j;
      v_store_part(to, accumulate ? v_load_part(to, n - j, 0) + b : b, n - j);
    }
  c->gemm(back ? TAPER_GEMM_NN : TAPER_GEMM_NT, rows, n, k, x, ldx, weight, back ? n : k, y, ldy, accumulate || bias);
}

/* ---- a^T b: both packed on the way ---- */

/* y[m x n] (+)= a[k x m]^T b[k x n]: tiles of GEMM_OUT x GEMM_IN, each finished over k. scratch: GEMM_WEIGHT_SCRATCH floats. */
LOCAL void gemm_turned(float *y, uint32_t ldy, const float *a, uint32_t lda, const float *b, uint32_t ldb, uint32_t m,
                       uint32_t n, uint32_t k, int accumulate, float *scratch) {
  float *pa = scratch, *pb = scratch + (size_t)GEMM_KC * (GEMM_OUT + GEMM_MR);
  const uint32_t part = gemm_block_k(k);
  for (uint32_t m0 = 0; m0 < m; m0 += GEMM_OUT)
    for (uint32_t n0 = 0; n0 < n; n0 += GEMM_IN)
      for (uint32_t k0 = 0; k0 == 0 || k0 < k; k0 += part) {
        const uint32_t mm = gemm_least(GEMM_OUT, m - m0), nn = gemm_least(GEMM_IN, n - n0),
                       kk = gemm_least(part, k - k0), panels = gemm_panels(nn);
        for (uint32_t i = 0; i < kk; i++) {
          const float *from = a + (size_t)(k0 + i) * lda + m0;
          for (uint32_t r = 0; r < mm; r += GEMM_MR) {
            float *to = pa + (size_t)r * kk + i * GEMM_MR;
            if (mm - r >= GEMM_MR)
              for (uint32_t j = 0; j < GEMM_MR; j++) to[j] = from[r + j];
            else
              for (uint32_t j = 0; j < GEMM_MR; j++) to[j] = r + j < mm ? from[r + j] : 0;
          }
        }
        for (uint32_t p = 0; p < panels; p++) {
          const uint32_t at = gemm_panel_start(nn, p), vectors = gemm_panel_start(nn, p + 1) - at, column = at * VL;
          float *panel = pb + (size_t)column * kk;
          gemm_out o = {ldy, 0, accumulate || k0 > 0, GEMM_MR, gemm_least(vectors * VL, nn - column)};
          gemm_pack_panel(panel, b + (size_t)k0 * ldb + n0 + column, 1, ldb, vectors * VL, o.cols, kk);
          gemm_turned_by_panel(y + (size_t)m0 * ldy + n0 + column, &o, pa, (size_t)GEMM_MR * kk, GEMM_MR, mm, panel,
                               vectors, kk);
        }
      }
}

/* dw[out x in] (+)= dy[rows x out]^T x[rows x in], the part of this worker: rows of dw; in whole blocks of GEMM_MR. scratch:
 * GEMM_WEIGHT_SCRATCH floats. */
LOCAL void gemm_weight(const taper_train_ctx *c, float *dw, const float *dy, uint32_t lddy, const float *x,
                       uint32_t ldx, uint32_t rows, uint32_t out, uint32_t in, int accumulate, float *scratch,
                       uint32_t worker, uint32_t workers) {
  const uint32_t unit = c->gemm ? GEMM_LIB_OUT : GEMM_MR, units = (out + unit - 1) / unit;
  const uint32_t first = (uint32_t)((uint64_t)units * worker / workers) * unit;
  const uint32_t last = gemm_least(out, (uint32_t)((uint64_t)units * (worker + 1) / workers) * unit);
  if (first >= last) return;
  if (!c->gemm) {
    gemm_turned(dw + (size_t)first * in, in, dy + first, lddy, x, ldx, last - first, in, rows, accumulate, scratch);
    return;
  }
  for (uint32_t o = first; o < last; o += unit)
    c->gemm(TAPER_GEMM_TN, gemm_least(unit, last - o), in, rows, dy + o, lddy, x, ldx, dw + (size_t)o * in, in,
            accumulate);
}

/* Any of taper_gemm_fn's products, packing as it goes. scratch: GEMM_WEIGHT_SCRATCH floats. */
LOCAL void gemm_generic(uint32_t form, uint32_t m, uint32_t n, uint32_t k, const float *a, uint32_t lda, const float *b,
                        uint32_t ldb, float *c, uint32_t ldc, int accumulate, float *scratch) {
  if (form == TAPER_GEMM_TN) {
    gemm_turned(c, ldc, a, lda, b, ldb, m, n, k, accumulate, scratch);
    return;
  }
  const uint32_t part = gemm_block_k(k);
  for (uint32_t p = 0; p < gemm_panels(n); p++) {
    const uint32_t at = gemm_panel_start(n, p), vectors = gemm_panel_start(n, p + 1) - at, column = at * VL;
    gemm_out o = {ldc, 0, accumulate, m, gemm_least(vectors * VL, n - column)};
    for (uint32_t k0 = 0; k0 == 0 || k0 < k; k0 += part) {
      const uint32_t kk = gemm_least(part, k - k0);
      const float *from = form == TAPER_GEMM_NN ? b + (size_t)k0 * ldb + column : b + (size_t)column * ldb + k0;
      gemm_pack_panel(scratch, from, form == TAPER_GEMM_NN ? 1 : ldb, form == TAPER_GEMM_NN ? ldb : 1, vectors * VL,
                      o.cols, kk);
      gemm_rows_by_panel(c + column, &o, a + k0, lda, m, scratch, vectors, kk);
      o.add = 1;
    }
  }
}

#endif
