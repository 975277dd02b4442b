/* A segment of a linear stage: products of a block's columns with its rows, then the epilogue, a warp a row. */
#ifndef P_NAME /* alone: y = W x, for the compiler and the tests */
#include "templates/cuda/axis.cuh"
#include "templates/cuda/math.cuh"
#define P_NAME linear_segment
#define P_ARGS linear_segment_args
#define P_OUT_ROWS 0
#define P_COLUMNS 20
#define P_BLOCK 8
#define P_WARPS 4
#define P_DOTS                                                                                            \
  float *dots0 = block;                                                                                   \
  const float *const w[1] = {(const float *)a->w0 + (size_t)column * pitch_of<float>(12)};                \
  float *const d[1] = {dots0};                                                                            \
  products<float, 12, 1, 4, 2, false, P_BLOCK, P_WARPS> p;                                                            \
  p.begin(w, n);                                                                                          \
  p.run<ROWS, true>(d, [&](uint32_t i) { return buffer_row(c, a->b0, 12, r0 + i); }, some);
#define P_EPILOGUE copy(buffer_row(c, a->b1, 20, r) + column, block + i * P_BLOCK, n);
#define P_COMMENT /* y = W x */
struct P_ARGS { uint64_t b0, b1; const void *w0; };
#endif
P_COMMENT
template <uint32_t ROWS>
INLINE void P_NAME(const taper_cuda_call *c, const P_ARGS *a, float *kept, float *block, uint32_t unit, uint32_t r0, uint32_t some) {
  const uint32_t column = unit * P_BLOCK, n = P_COLUMNS - column < P_BLOCK ? P_COLUMNS - column : P_BLOCK;
  P_DOTS
  __syncthreads();
  for (uint32_t i = WARP; i < some; i += P_WARPS) {
    const uint32_t r = r0 + i;
#if P_OUT_ROWS
    [[maybe_unused]] const uint32_t t = (uint32_t)c->out_row[r];
#endif
    P_EPILOGUE
  }
}
