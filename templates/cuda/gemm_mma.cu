/* y[rows][columns] = x W^T of 16-bit numbers with sums in fp32, by tensor cores: a block makes a tile of 64 x 64, each of its 4 warps 32 x 32 of
   it; tiles of 32 of the depth are copied while the one before is multiplied. Any sizes; x and its rows lie on 16 bytes. sm_80 or newer. */
#ifndef P_NAME /* alone: for the compiler and the tests */
#include "templates/cuda/gemm.cuh"
#define P_NAME gemm
#define P_ARGS gemm_args
#define P_TYPE bf16
#define P_COMMENT /* y = x W^T */
#endif
P_COMMENT
struct P_ARGS {
  const P_TYPE *w, *x;
  float *y;
  uint64_t rows, columns, depth, w_pitch, x_pitch, y_pitch;
};
KERNEL_OF(128) P_NAME(const __grid_constant__ taper_cuda_call c, const __grid_constant__ P_ARGS a) {
  constexpr uint32_t TILE = 64, DEPTH = 32, PITCH = DEPTH + 8, PACKS = TILE * DEPTH / 8;
  __shared__ __align__(16) P_TYPE ws[2][TILE][PITCH], xs[2][TILE][PITCH];
  const uint64_t column0 = (uint64_t)blockIdx.x * TILE, row0 = (uint64_t)blockIdx.y * TILE;
  const uint32_t m0 = WARP / 2 * 32, n0 = WARP % 2 * 32;
  float sum[2][4][4];
  UNROLL for (uint32_t i = 0; i < 2; i++)
    UNROLL for (uint32_t j = 0; j < 4; j++)
      UNROLL for (uint32_t e = 0; e < 4; e++) sum[i][j][e] = 0.0f;
  auto stage = [&](uint32_t at, uint64_t k) {
    UNROLL for (uint32_t p = threadIdx.x; p < PACKS; p += 128) {
      const uint32_t line = p / (DEPTH / 8), part = p % (DEPTH / 8) * 8;
      stage_weight(&ws[at][line][part], a.w + (column0 + line) * a.w_pitch, k + part, a.depth, column0 + line < a.columns);
      stage_pack(&xs[at][line][part], a.x + (row0 + line) * a.x_pitch, k + part, a.depth, row0 + line < a.rows, true);
    }
  };
  grid_release();
  grid_wait();
  stage(0, 0);
  copies_commit();
  uint32_t at = 0;
  for (uint64_t k = 0; k < a.depth; k += DEPTH, at ^= 1) {
    if (k + DEPTH < a.depth) stage(at ^ 1, k + DEPTH);
    copies_commit();
    copies_wait();
    __syncthreads();
    UNROLL for (uint32_t d = 0; d < DEPTH; d += 16) {
      uint32_t u[2][4], v[2][4];
      UNROLL for (uint32_t i = 0; i < 2; i++) {
        load_tiles(u[i], &xs[at][m0 + i * 16 + LANE % 16][d + LANE / 16 * 8]);
        load_tiles(v[i], &ws[at][n0 + i * 16 + LANE / 16 * 8 + LANE % 8][d + LANE / 8 % 2 * 8]);
      }
      UNROLL for (uint32_t i = 0; i < 2; i++)
        UNROLL for (uint32_t j = 0; j < 4; j++) multiply_tiles(sum[i][j], u[i], &v[j / 2][j % 2 * 2], P_TYPE{});
    }
    __syncthreads();
  }
  UNROLL for (uint32_t i = 0; i < 2; i++)
    UNROLL for (uint32_t j = 0; j < 4; j++)
      UNROLL for (uint32_t e = 0; e < 4; e++) {
        const uint64_t r = row0 + m0 + i * 16 + LANE / 4 + e / 2 * 8, column = column0 + n0 + j * 8 + LANE % 4 * 2 + e % 2;
        if (r < a.rows && column < a.columns) a.y[r * a.y_pitch + column] = sum[i][j][e];
      }
}
