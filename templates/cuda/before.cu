/* What the products of many rows read: what the prologue keeps, or columns of a buffer, in the type of the matrix. A block is one warp, which has
   one row. */
#ifndef P_NAME /* alone: a copy in the 16-bit type, for the compiler and the tests */
#include "templates/cuda/axis.cuh"
#include "templates/cuda/math.cuh"
#define P_NAME linear_before
#define P_ARGS linear_before_args
#define P_OUT_ROWS 0
#define P_KEPT 16
#define P_PROLOGUE rms_norm(kept, buffer_row(c, a->b0, 12, r), (const float *)a->w0, 12, 1e-6f);
#define P_BODY put_operand((bf16 *)buffer_row(c, 24, 8, r), kept, 12);
#define P_COMMENT /* rms_norm, rounded */
struct P_ARGS { uint64_t b0; const void *w0; };
#endif
P_COMMENT
KERNEL_OF(32) P_NAME(const __grid_constant__ taper_cuda_call call, const __grid_constant__ P_ARGS args) {
  [[maybe_unused]] const taper_cuda_call *c = &call;
  [[maybe_unused]] const P_ARGS *a = &args;
  [[maybe_unused]] constexpr uint32_t ROWS = 1, i = 0;
  [[maybe_unused]] __shared__ __align__(16) float kept[P_KEPT + 4];
  grid_release();
  grid_wait();
  const uint32_t r = blockIdx.x;
#if P_OUT_ROWS
  [[maybe_unused]] const uint32_t t = (uint32_t)c->out_row[r];
#endif
  P_PROLOGUE
  SYNC();
  P_BODY
}
