/* y[rows][columns] = x W^T in fp32: a block makes a tile of 64 x 64, a thread 16 numbers of it; tiles of 16 of the depth are copied while the one
   before is multiplied. A number is one chain over the depth in order. Any sizes; rows of x may lie anywhere. */
#ifndef P_NAME /* alone: for the compiler and the tests */
#include "templates/cuda/gemm.cuh"
#define P_NAME gemm
#define P_ARGS gemm_args
#define P_COMMENT /* y = x W^T */
#endif
P_COMMENT
struct P_ARGS {
  const float *w, *x;
  float *y;
  uint64_t rows, columns, depth, w_pitch, x_pitch, y_pitch;
};
KERNEL_OF(256) P_NAME(const __grid_constant__ taper_cuda_call c, const __grid_constant__ P_ARGS a) {
  constexpr uint32_t TILE = 64, DEPTH = 16, PITCH = DEPTH + 4, EACH = 4;
  __shared__ __align__(16) float ws[2][TILE][PITCH], xs[2][TILE][PITCH];
  const uint64_t column0 = (uint64_t)blockIdx.x * TILE, row0 = (uint64_t)blockIdx.y * TILE;
  const uint32_t tx = threadIdx.x % 16, ty = threadIdx.x / 16, part = threadIdx.x % EACH * 4, line = threadIdx.x / EACH;
  const bool w_there = column0 + line < a.columns, x_there = row0 + line < a.rows;
  const bool on_packs = ((uint64_t)a.x & 15) == 0 && a.x_pitch % 4 == 0;
  const float *w = a.w + (column0 + line) * a.w_pitch, *x = a.x + (row0 + line) * a.x_pitch;
  float sum[EACH][EACH];
  UNROLL for (uint32_t i = 0; i < EACH; i++)
    UNROLL for (uint32_t j = 0; j < EACH; j++) sum[i][j] = 0.0f;
  grid_release();
  grid_wait();
  stage_weight(&ws[0][line][part], w, part, a.depth, w_there);
  stage_pack(&xs[0][line][part], x, part, a.depth, x_there, on_packs);
  copies_commit();
  uint32_t at = 0;
  for (uint64_t k = 0; k < a.depth; k += DEPTH, at ^= 1) {
    if (k + DEPTH < a.depth) {
      stage_weight(&ws[at ^ 1][line][part], w, k + DEPTH + part, a.depth, w_there);
      stage_pack(&xs[at ^ 1][line][part], x, k + DEPTH + part, a.depth, x_there, on_packs);
    }
    copies_commit();
    copies_wait();
    __syncthreads();
    UNROLL for (uint32_t d = 0; d < DEPTH; d += 4) {
      float4 u[EACH], v[EACH];
      UNROLL for (uint32_t i = 0; i < EACH; i++) u[i] = *(const float4 *)&xs[at][ty + 16 * i][d], v[i] = *(const float4 *)&ws[at][tx + 16 * i][d];
      UNROLL for (uint32_t i = 0; i < EACH; i++)
        UNROLL for (uint32_t j = 0; j < EACH; j++) {
          sum[i][j] = fmaf(u[i].x, v[j].x, sum[i][j]);
          sum[i][j] = fmaf(u[i].y, v[j].y, sum[i][j]);
          sum[i][j] = fmaf(u[i].z, v[j].z, sum[i][j]);
          sum[i][j] = fmaf(u[i].w, v[j].w, sum[i][j]);
        }
    }
    __syncthreads();
  }
  UNROLL for (uint32_t i = 0; i < EACH; i++)
    UNROLL for (uint32_t j = 0; j < EACH; j++) {
      const uint64_t r = row0 + ty + 16 * i, column = column0 + tx + 16 * j;
      if (r < a.rows && column < a.columns) a.y[r * a.y_pitch + column] = sum[i][j];
    }
}
