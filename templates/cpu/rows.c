/* A row stage: steps on whole rows. */
#ifndef P_NAME /* alone: y = 2 x, for the compiler and the tests */
#include "templates/cpu/axis.h"
#include "templates/cpu/math.h"
#define P_NAME rows_stage
#define P_ARGS rows_stage_args
#define P_OUT_ROWS 0
#define P_BODY                                                                    \
  const float *x = buffer_row(c, a->b0, 20, r);                                   \
  float *y = buffer_row(c, a->b1, 20, r);                                         \
  for (uint32_t j = 0; j < 20; j += VL) v_store_part(y + j, v_load_part(x + j, 20 - j, 0) * v_splat(2), 20 - j);
#define P_COMMENT /* y = 2 x */
struct P_ARGS { uint64_t b0, b1; };
#endif
P_COMMENT
STAGE void P_NAME(const taper_ctx *c, const void *args) {
  const struct P_ARGS *a = args;
#if P_OUT_ROWS
  const span rows = row_share(c, c->out_rows);
#else
  const span rows = row_share(c, c->rows);
#endif
  for (uint32_t r = rows.first; r < rows.last; r++) {
#if P_OUT_ROWS
    const uint32_t t = (uint32_t)c->out_row[r];
#endif
    P_BODY
  }
}
