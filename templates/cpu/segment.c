/* A segment of a linear stage: products of its units' columns with all rows, block by block, and the epilogue. */
#ifndef P_NAME /* alone: y = W x, for the compiler and the tests */
#include "templates/cpu/axis.h"
#include "templates/cpu/math.h"
#define P_NAME linear_segment
#define P_ARGS linear_segment_args
#define P_OUT_ROWS 0
#define P_COLUMNS 20
#define P_UNIT 16
#define P_BLOCK 128
#define P_UNITS_ONE 8
#define P_UNITS_MANY 4
#define P_DOTS                                                                         \
  float *d0 = c->scratch;                                                              \
  for (uint32_t i = 0; i < some; i++) x[i] = buffer_row(c, a->b0, 12, r0 + i);         \
  dot(d0, P_BLOCK, x, some, c->weight[a->w0] + (size_t)column * 12, 12, tiles, TILE, 12 * TILE);
#define P_EPILOGUE copy(buffer_row(c, a->b1, 20, r) + column, d0 + i * P_BLOCK, n);
#define P_COMMENT /* y = W x */
struct P_ARGS { uint64_t b0, b1; uint32_t w0; };
#endif
P_COMMENT
STAGE void P_NAME(const taper_ctx *c, const struct P_ARGS *a, span units) {
#if P_OUT_ROWS
  const uint32_t rows = c->out_rows;
#else
  const uint32_t rows = c->rows;
#endif
  const uint32_t at_once = rows == 1 ? P_UNITS_ONE : P_UNITS_MANY;
  for (uint32_t u = units.first, few; u < units.last; u += few) {
    few = units.last - u < at_once ? units.last - u : at_once;
    const uint32_t column = u * P_UNIT, left = P_COLUMNS - column, n = left < few * P_UNIT ? left : few * P_UNIT;
    const uint32_t tiles = (n + TILE - 1) / TILE;
    for (uint32_t r0 = 0, some; r0 < rows; r0 += some) {
      const float *x[DOT_ROWS];
      some = dot_rows(rows - r0);
      P_DOTS
      for (uint32_t i = 0; i < some; i++) {
        const uint32_t r = r0 + i;
#if P_OUT_ROWS
        const uint32_t t = (uint32_t)c->out_row[r];
#endif
        P_EPILOGUE
      }
    }
  }
}
