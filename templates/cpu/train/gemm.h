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
#define GEMM_OUT 384u /* rows and columns of a weight gradient that are computed at once */
#define GEMM_IN 384u
#define GEMM_LONG (96u << 10) /* floats of rows that stay in the second cache beside what passes by */
#define GEMM_LIB_OUT 96u /* rows of a library's call for a weight gradient: by shape, whatever the workers */
/* Floats of scratch that a worker needs for gemm_weight and gemm_generic. */
#define GEMM_WEIGHT_SCRATCH ((uint64_t)GEMM_KC * (GEMM_OUT + GEMM_MR + GEMM_NR))

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
  const char *ahead;  /* what is read next: a tile fetches ahead_step bytes of it into the second cache for each k */
  size_t ahead_step;
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
    UNROLL for (uint32_t v = 0; v < nv; v++) {
      s[i][v] = (vf){0};
      if (VL == 16 || v == 0) __builtin_prefetch(y + i * o->ld + v * VL, 1);
    }
  }
  const char *ahead = o->ahead;
  const size_t ahead_step = o->ahead_step;
  for (size_t kk = 0; kk < k; kk++, b += nv * VL, ahead += ahead_step) {
    vf w[GEMM_NV];
    __builtin_prefetch(ahead, 0, 2);
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

/* All rows against one block of one panel; next: the block that comes after it, or NULL. */
INLINE void gemm_rows_by_panel(float *y, gemm_out *o, const float *x, uint32_t ldx, uint32_t rows, const float *b,
                               uint32_t vectors, uint32_t k, const float *next) {
  static const gemm_fn by_rows[GEMM_NV][4] = {GEMM_ROWS_TABLE};
  static const uint8_t count[4] = {GEMM_MR, 4, 2, 1};
  const gemm_fn *f = by_rows[vectors - 1];
  const uint32_t tiles = (rows + GEMM_MR - 1) / GEMM_MR;
  o->ahead = (const char *)(next ? next : b);
  o->ahead_step = next ? (size_t)vectors * VL * sizeof(float) / (tiles ? tiles : 1) : 0;
  for (uint32_t r = 0, i = 0; r < rows; r += count[i]) {
    while (rows - r < count[i]) i++;
    f[i](y + r * o->ld, o, x + (size_t)r * ldx, ldx, b, k);
    o->ahead += o->ahead_step * k;
  }
}
/* Rows of two matrices that are packed next, and how far their fetching has come: tile after tile takes its part of them. */
typedef struct gemm_next {
  const float *a, *b;
  size_t lda, ldb;
  uint32_t m, n, rows; /* columns of a and b; rows of each */
  uint32_t tile, tiles;
} gemm_next;
/* What the next tile fetches: one row while k runs, before it those that would be too many. */
INLINE void gemm_fetch(gemm_next *t, gemm_out *o, uint32_t k) {
  const uint32_t all = 2 * t->rows, from = (uint32_t)((uint64_t)all * t->tile / t->tiles),
                 to = (uint32_t)((uint64_t)all * (t->tile + 1) / t->tiles);
  t->tile++;
  o->ahead_step = 0;
  for (uint32_t i = from; i < to; i++) {
    const float *row = i < t->rows ? t->a + i * t->lda : t->b + (i - t->rows) * t->ldb;
    const uint32_t width = i < t->rows ? t->m : t->n;
    if (i + 1 == to)
      o->ahead = (const char *)row, o->ahead_step = width * sizeof(float) / k;
    else
      for (uint32_t j = 0; j < width; j += 16) __builtin_prefetch(row + j, 0, 2);
  }
}
/* The same for a packed a: blocks of GEMM_MR rows, [k][GEMM_MR], the last one filled up. */
INLINE void gemm_turned_by_panel(float *y, gemm_out *o, const float *a, size_t block, size_t step, uint32_t rows,
                                 const float *b, uint32_t vectors, uint32_t k, gemm_next *next) {
  static const gemm_fn by_width[GEMM_NV] = {GEMM_TURNED_TABLE};
  for (uint32_t r = 0; r < rows; r += GEMM_MR, a += block) {
    o->rows = gemm_least(GEMM_MR, rows - r);
    gemm_fetch(next, o, k);
    by_width[vectors - 1](y + r * o->ld, o, a, step, b, k);
  }
}

/* y[rows x n] (+)= x[rows x k] B + bias, B packed. Either a panel takes all of k before the next one, or, where x is long, a block of k meets all
 * panels, so that it stays in the second cache. The bits are the same. */
LOCAL void gemm_packed(float *y, uint32_t ldy, const float *x, uint32_t ldx, uint32_t rows, uint32_t n, uint32_t k,
                       const float *packed, int accumulate, const float *bias) {
  const uint32_t part = gemm_block_k(k), panels = gemm_panels(n), span_k = (uint64_t)rows * k > GEMM_LONG ? part : k;
  for (uint32_t first = 0; first == 0 || first < k; first += span_k)
    for (uint32_t p = 0; p < panels; p++) {
      const uint32_t at = gemm_panel_start(n, p), vectors = gemm_panel_start(n, p + 1) - at, column = at * VL;
      const uint32_t last = gemm_least(k, first + span_k);
      const float *b = packed + (size_t)column * k;
      gemm_out o = {ldy, bias && !first ? bias + column : 0, accumulate || first, rows,
                    gemm_least(vectors * VL, n - column), 0, 0};
      for (uint32_t k0 = first; k0 == first || k0 < last; k0 += part) {
        const float *next = k0 + part < last ? b + (size_t)(k0 + part) * vectors * VL
                            : p + 1 < panels ? packed + (size_t)gemm_panel_start(n, p + 1) * VL * k + (size_t)first * vectors * VL
                                             : 0;
        gemm_rows_by_panel(y + column, &o, x + k0, ldx, rows, b + (size_t)k0 * vectors * VL, vectors,
                           gemm_least(part, k - k0), next);
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
    gemm_packed(y, ldy, x, ldx, rows, n, k, packed, accumulate, bias);
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

/* Blocks of GEMM_MR columns of a[k x m], [k][GEMM_MR], the last one filled with 0; two at once, for whole lines. */
LOCAL void gemm_pack_turned(float *dst, const float *a, uint32_t lda, uint32_t m, uint32_t k) {
  for (uint32_t r = 0; r < m; r += 2 * GEMM_MR)
    for (uint32_t i = 0; i < k; i++) {
      const float *from = a + (size_t)i * lda + r;
      float *to = dst + (size_t)r * k + i * GEMM_MR, *second = to + (size_t)GEMM_MR * k;
      if (m - r >= 2 * GEMM_MR) {
        __builtin_memcpy(to, from, GEMM_MR * sizeof(float));
        __builtin_memcpy(second, from + GEMM_MR, GEMM_MR * sizeof(float));
      } else {
        for (uint32_t j = 0; j < GEMM_MR; j++) to[j] = r + j < m ? from[j] : 0;
        if (m - r > GEMM_MR)
          for (uint32_t j = 0; j < GEMM_MR; j++) second[j] = r + GEMM_MR + j < m ? from[GEMM_MR + j] : 0;
      }
    }
}
/* y[m x n] (+)= a[k x m]^T b[k x n], one tile of at most GEMM_OUT x GEMM_IN, over all of k. scratch as gemm_turned's. */
LOCAL void gemm_turned_tile(float *y, uint32_t ldy, const float *a, uint32_t lda, const float *b, uint32_t ldb,
                            uint32_t m, uint32_t n, uint32_t k, int accumulate, float *scratch) {
  float *pa = scratch, *panel = scratch + (size_t)GEMM_KC * (GEMM_OUT + GEMM_MR);
  const uint32_t part = gemm_block_k(k), panels = gemm_panels(n);
  for (uint32_t k0 = 0; k0 == 0 || k0 < k; k0 += part, a += (size_t)part * lda, b += (size_t)part * ldb) {
    const uint32_t kk = gemm_least(part, k - k0);
    gemm_next next = {a + (size_t)kk * lda, b + (size_t)kk * ldb, lda, ldb, m, n, gemm_least(part, k - k0 - kk), 0,
                      panels * ((m + GEMM_MR - 1) / GEMM_MR)};
    gemm_pack_turned(pa, a, lda, m, kk);
    for (uint32_t p = 0; p < panels; p++) {
      const uint32_t at = gemm_panel_start(n, p), vectors = gemm_panel_start(n, p + 1) - at, column = at * VL;
      gemm_out o = {ldy, 0, accumulate || k0 > 0, GEMM_MR, gemm_least(vectors * VL, n - column), (const char *)panel, 0};
      gemm_pack_panel(panel, b + column, 1, ldb, vectors * VL, o.cols, kk);
      gemm_turned_by_panel(y + column, &o, pa, (size_t)GEMM_MR * kk, GEMM_MR, m, panel, vectors, kk, &next);
    }
  }
}
/* Any m and n. scratch: GEMM_WEIGHT_SCRATCH floats. */
LOCAL void gemm_turned(float *y, uint32_t ldy, const float *a, uint32_t lda, const float *b, uint32_t ldb, uint32_t m,
                       uint32_t n, uint32_t k, int accumulate, float *scratch) {
  for (uint32_t m0 = 0; m0 < m; m0 += GEMM_OUT)
    for (uint32_t n0 = 0; n0 < n; n0 += GEMM_IN)
      gemm_turned_tile(y + (size_t)m0 * ldy + n0, ldy, a + m0, lda, b + n0, ldb, gemm_least(GEMM_OUT, m - m0),
                       gemm_least(GEMM_IN, n - n0), k, accumulate, scratch);
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
    gemm_out o = {ldc, 0, accumulate, m, gemm_least(vectors * VL, n - column), 0, 0};
    for (uint32_t k0 = 0; k0 == 0 || k0 < k; k0 += part) {
      const uint32_t kk = gemm_least(part, k - k0);
      const float *from = form == TAPER_GEMM_NN ? b + (size_t)k0 * ldb + column : b + (size_t)column * ldb + k0;
      gemm_pack_panel(scratch, from, form == TAPER_GEMM_NN ? 1 : ldb, form == TAPER_GEMM_NN ? ldb : 1, vectors * VL,
                      o.cols, kk);
      gemm_rows_by_panel(c + column, &o, a + k0, lda, m, scratch, vectors, kk, 0);
      o.add = 1;
    }
  }
}

#endif
