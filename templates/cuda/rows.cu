/* A row stage: steps on whole rows; a block is one warp, which has one row. */
#ifndef P_NAME /* alone: y = 2 x, for the compiler and the tests */
#include "templates/cuda/axis.cuh"
#include "templates/cuda/math.cuh"
#define P_NAME rows_stage
#define P_ARGS rows_stage_args
#define P_OUT_ROWS 0
#define P_BODY                                                                                    \
  const float *x = buffer_row(c, a->b0, 20, r);                                                   \
  float *y = buffer_row(c, a->b1, 20, r);                                                         \
  for (uint32_t j = LANE; j < 20; j += VL) v_store(y + j, v_load(x + j) * v_splat(2));
#define P_COMMENT /* y = 2 x */
struct P_ARGS { uint64_t b0, b1; };
#endif
P_COMMENT
KERNEL_OF(32) P_NAME(const __grid_constant__ taper_cuda_call call, const __grid_constant__ P_ARGS args) {
  const taper_cuda_call *c = &call;
  const P_ARGS *a = &args;
  grid_release();
  grid_wait();
  const uint32_t r = blockIdx.x;
#if P_OUT_ROWS
  [[maybe_unused]] const uint32_t t = (uint32_t)c->out_row[r];
#endif
  P_BODY
}
