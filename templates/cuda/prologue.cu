/* What every block of a linear stage computes for itself of its rows: a warp takes a row. */
#ifndef P_NAME /* alone: a row statistic, for the compiler and the tests */
#include "templates/cuda/axis.cuh"
#include "templates/cuda/math.cuh"
#define P_NAME linear_prologue
#define P_ARGS linear_prologue_args
#define P_OUT_ROWS 0
#define P_WARPS 4
#define P_PROLOGUE by_one(kept + i)[0] = inv_rms(buffer_row(c, a->b0, 12, r), 12, 1e-6f);
struct P_ARGS { uint64_t b0; };
#endif
template <uint32_t ROWS>
INLINE void P_NAME(const taper_cuda_call *c, const P_ARGS *a, float *kept, uint32_t r0, uint32_t some) {
  for (uint32_t i = WARP; i < some; i += P_WARPS) {
    const uint32_t r = r0 + i;
#if P_OUT_ROWS
    [[maybe_unused]] const uint32_t t = (uint32_t)c->out_row[r];
#endif
    P_PROLOGUE
  }
}
