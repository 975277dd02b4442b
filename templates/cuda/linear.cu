/* A linear stage: blocks in grid.x own columns, those in grid.y rows, 8 at most. The prologue, then the products and the epilogue of the block's segment. */
#ifndef P_NAME /* alone: no segment, for the compiler and the tests */
#include "templates/cuda/axis.cuh"
#include "templates/cuda/math.cuh"
#define P_NAME linear_stage
#define P_ARGS linear_stage_args
#define P_OUT_ROWS 0
#define P_ROWS 8
#define P_WARPS 4
#define P_KEPT 0
#define P_SHARED 64
#define P_STAGED 0
#define P_PROLOGUE
#define P_AHEAD
#define P_SEGMENTS copy(buffer_row(c, a->b0, 8, r0), block, some);
#define P_COMMENT /* nothing */
struct P_ARGS { uint64_t b0; };
#endif
P_COMMENT
KERNEL_OF(P_WARPS * 32) P_NAME(const __grid_constant__ taper_cuda_call call, const __grid_constant__ P_ARGS args) {
  const taper_cuda_call *c = &call;
  const P_ARGS *a = &args;
  constexpr uint32_t ROWS = P_ROWS; /* that shared memory has room for at once */
  __shared__ __align__(16) float shared[P_KEPT + P_SHARED];
  [[maybe_unused]] float *kept = shared, *block = shared + P_KEPT;
  grid_release();
  P_AHEAD
  grid_wait();
#if P_OUT_ROWS
  const uint32_t rows = c->out_rows;
#else
  const uint32_t rows = c->rows;
#endif
  const uint32_t first = blockIdx.y * TAPER_CUDA_ROWS, last = rows - first < TAPER_CUDA_ROWS ? rows : first + TAPER_CUDA_ROWS;
  uint32_t r0 = first;
  do {
    const uint32_t some = last - r0 < ROWS ? last - r0 : ROWS;
#if P_STAGED
    P_PROLOGUE
    __syncthreads();
#endif
    P_SEGMENTS
    r0 += ROWS;
    if (ROWS < TAPER_CUDA_ROWS) __syncthreads();
  } while (ROWS < TAPER_CUDA_ROWS && r0 < last);
}
