/* A linear stage: the prologue, then this worker's units of every segment. */
#ifndef P_NAME /* alone: no segment, for the compiler and the tests */
#include "templates/cpu/axis.h"
#include "templates/cpu/math.h"
#define P_NAME linear_stage
#define P_ARGS linear_stage_args
#define P_OUT_ROWS 0
#define P_PROLOGUE scratch_row(c, 0, 0, 1, r)[0] = inv_rms(buffer_row(c, a->b0, 12, r), 12, 1e-6f);
#define P_HAS_PROLOGUE 1
#define P_SEGMENTS
#define P_COMMENT /* a row statistic */
struct P_ARGS { uint64_t b0; };
#endif
P_COMMENT
STAGE void P_NAME(const taper_ctx *c, const void *args) {
  const struct P_ARGS *a = args;
#if P_HAS_PROLOGUE
#if P_OUT_ROWS
  for (uint32_t r = 0; r < c->out_rows; r++) {
    const uint32_t t = (uint32_t)c->out_row[r];
    P_PROLOGUE
  }
#else
  for (uint32_t r = 0; r < c->rows; r++) {
    P_PROLOGUE
  }
#endif
#endif
  P_SEGMENTS
}
