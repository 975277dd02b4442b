/* stage.h - where rows lie, and the shares of workers, in a call of training. */
#if !defined(TAPER_PRELUDE_H)
#include "templates/cpu/prelude.h"
#endif
#if !defined(TAPER_TRAIN_ABI_H)
#include "runtime/abi/train_abi.h"
#endif
#if !defined(TAPER_TRAIN_STAGE_H)
#define TAPER_TRAIN_STAGE_H

/* Row r of a buffer; of a buffer of chunks; row i of the block in the worker's scratch, behind `rows` floats; block b's part of
   a sum. */
INLINE float *arena_at(const taper_train_ctx *c, uint64_t offset, uint32_t width, uint32_t r) {
  return c->arena + offset * c->row_cap + (uint64_t)r * width;
}
INLINE float *chunk_at(const taper_train_ctx *c, uint64_t offset, uint32_t width, uint32_t r) {
  return c->chunk + offset * c->chunk_rows + (uint64_t)(r - c->chunk_row0) * width;
}
INLINE float *block_at(const taper_train_ctx *c, uint64_t rows, uint64_t offset, uint32_t width, uint32_t i) {
  return c->scratch + rows + offset * c->block + (uint64_t)i * width;
}
INLINE float *partial_at(const taper_train_ctx *c, uint64_t offset, uint32_t width, uint32_t b) {
  return c->partial + offset * (c->row_cap / c->block) + (uint64_t)b * width;
}

/* Of n units those of this worker, contiguous. */
INLINE span train_share(const taper_train_ctx *c, uint32_t n) {
  return (span){(uint32_t)((uint64_t)n * c->worker / c->workers), (uint32_t)((uint64_t)n * (c->worker + 1) / c->workers)};
}
/* The blocks of this call or chunk that are this worker's, by their numbers in the call; the rows of one. */
INLINE span block_share(const taper_train_ctx *c) {
  const span s = train_share(c, (c->chunk_count + c->block - 1) / c->block);
  const uint32_t first = c->chunk_row0 / c->block;
  return (span){first + s.first, first + s.last};
}
INLINE uint32_t block_rows(const taper_train_ctx *c, uint32_t b) {
  const uint32_t left = c->chunk_row0 + c->chunk_count - b * c->block;
  return left < c->block ? left : c->block;
}

LOCAL void zero(float *y, uint32_t n) {
  for (uint32_t i = 0; i < n; i++) y[i] = 0;
}
LOCAL void embed_plain(float *y, const float *table, int32_t id, uint32_t n) {
  const float *x = table + (size_t)(uint32_t)id * n;
  for (uint32_t i = 0; i < n; i += VL) v_store_part(y + i, v_load_part(x + i, n - i, 0), n - i);
}
/* x at column `start` of a row of m zeros. */
LOCAL void pad(float *y, const float *x, uint32_t n, uint32_t start, uint32_t m) {
  for (uint32_t i = 0; i < start; i++) y[i] = 0;
  for (uint32_t i = 0; i < n; i += VL) v_store_part(y + start + i, v_load_part(x + i, n - i, 0), n - i);
  for (uint32_t i = start + n; i < m; i++) y[i] = 0;
}

/* dst[n] (+)= the sum of the rows of x[rows x n]. */
LOCAL void sum_matrix(float *dst, const float *x, uint32_t rows, uint32_t n, int adds) {
  for (uint32_t j = 0; j < n; j++) {
    double sum = 0;
    for (size_t i = 0; i < rows; i++) sum += (double)x[i * n + j];
    dst[j] = (float)(adds ? (double)dst[j] + sum : sum);
  }
}

/* dst (+)= the sum over the blocks of this call, in their order; a worker owns columns, 16 by 16. */
LOCAL void sum_blocks(const taper_train_ctx *c, float *dst, const float *partial, uint32_t width, int adds) {
  const uint32_t blocks = (c->rows + c->block - 1) / c->block;
  const span s = train_share(c, (width + 15) / 16);
  const uint32_t end = s.last * 16 < width ? s.last * 16 : width;
  for (uint32_t j = s.first * 16; j < end; j++) {
    double sum = 0;
    for (uint32_t b = 0; b < blocks; b++) sum += (double)partial[(size_t)b * width + j];
    dst[j] = (float)(adds ? (double)dst[j] + sum : sum);
  }
}
/* The mean over counted positions, this call's part of it. */
INLINE double mean_of_blocks(const taper_train_ctx *c, const float *partial) {
  const uint32_t blocks = (c->rows + c->block - 1) / c->block;
  double sum = 0;
  for (uint32_t b = 0; b < blocks; b++) sum += (double)partial[b];
  return sum * (double)c->inv_count;
}
INLINE void add_result(const taper_train_ctx *c, uint32_t i, double value) {
  c->result[i] = c->accumulate ? c->result[i] + value : value;
}

/* Gradient of a table [rows x n]: dy of every row goes to the row that its id names, in the order of the rows; a worker owns
   columns, 16 by 16. ids NULL: positions. Row r of dy is at dy + r * ld. */
LOCAL void table_back(const taper_train_ctx *c, float *table, uint32_t rows, uint32_t n, const int32_t *ids,
                      const float *dy, uint32_t ld, int adds) {
  const span s = train_share(c, (n + 15) / 16);
  const uint32_t first = s.first * 16, end = s.last * 16 < n ? s.last * 16 : n;
  if (first >= end) return;
  for (size_t i = 0; i < rows && !adds; i++) zero(table + i * n + first, end - first);
  for (uint32_t r = 0; r < c->rows; r++) {
    float *y = table + (size_t)(ids ? (uint32_t)ids[r] : r % c->time) * n;
    const float *x = dy + (size_t)r * ld;
    for (uint32_t j = first; j < end; j += VL)
      v_store_part(y + j, v_load_part(y + j, end - j, 0) + v_load_part(x + j, end - j, 0), end - j);
  }
}

#endif
