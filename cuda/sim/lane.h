/* lane.h - how a line of a .def becomes a function over the lanes of a warp, and a row of the table of instructions. */
#ifndef TAPER_SIM_LANE_H
#define TAPER_SIM_LANE_H

#include "cuda/sim/exec.h"

#define LANE_DEST(T) (OPERAND_DEST | sizeof(T))
#define LANE_BODY1(D, A, expression)                                                                                   \
  const A *pa = lanes_of(w, i->r[1]);                                                                                  \
  D *pd = lanes_of(w, i->r[0]);                                                                                        \
  FOR_LANES(w, const A a = pa[l]; pd[l] = (D)(expression););
#define LANE_BODY2(D, A, B, expression)                                                                                \
  const A *pa = lanes_of(w, i->r[1]);                                                                                  \
  const B *pb = lanes_of(w, i->r[2]);                                                                                  \
  D *pd = lanes_of(w, i->r[0]);                                                                                        \
  FOR_LANES(w, const A a = pa[l]; const B b = pb[l]; pd[l] = (D)(expression););
#define LANE_BODY3(D, A, B, C, expression)                                                                             \
  const A *pa = lanes_of(w, i->r[1]);                                                                                  \
  const B *pb = lanes_of(w, i->r[2]);                                                                                  \
  const C *pc = lanes_of(w, i->r[3]);                                                                                  \
  D *pd = lanes_of(w, i->r[0]);                                                                                        \
  FOR_LANES(w, const A a = pa[l]; const B b = pb[l]; const C c = pc[l]; pd[l] = (D)(expression););
#define LANE_BODY4(D, A, B, C, E, expression)                                                                          \
  const A *pa = lanes_of(w, i->r[1]);                                                                                  \
  const B *pb = lanes_of(w, i->r[2]);                                                                                  \
  const C *pc = lanes_of(w, i->r[3]);                                                                                  \
  const E *pe = lanes_of(w, i->r[4]);                                                                                  \
  D *pd = lanes_of(w, i->r[0]);                                                                                        \
  FOR_LANES(w, const A a = pa[l]; const B b = pb[l]; const C c = pc[l]; const E e = pe[l]; pd[l] = (D)(expression););

#define LANE_FUNCTION1(f, pattern, D, A, e)                                                                            \
  static void f(warp *w, const inst *i){LANE_BODY1(D, A, e)} SIM_FAST static void f##_fast(warp *w, const inst *i) {   \
    LANE_BODY1(D, A, e)                                                                                                \
  }
#define LANE_FUNCTION2(f, pattern, D, A, B, e)                                                                         \
  static void f(warp *w, const inst *i){LANE_BODY2(D, A, B, e)} SIM_FAST static void f##_fast(warp *w,                 \
                                                                                              const inst *i) {         \
    LANE_BODY2(D, A, B, e)                                                                                             \
  }
#define LANE_FUNCTION3(f, pattern, D, A, B, C, e)                                                                      \
  static void f(warp *w, const inst *i){LANE_BODY3(D, A, B, C, e)} SIM_FAST static void f##_fast(warp *w,              \
                                                                                                 const inst *i) {      \
    LANE_BODY3(D, A, B, C, e)                                                                                          \
  }
#define LANE_FUNCTION4(f, pattern, D, A, B, C, E, e)                                                                   \
  static void f(warp *w, const inst *i){LANE_BODY4(D, A, B, C, E, e)} SIM_FAST static void f##_fast(warp *w,           \
                                                                                                    const inst *i) {   \
    LANE_BODY4(D, A, B, C, E, e)                                                                                       \
  }
#define LANE_ROW1(f, pattern_, D, A, e)                                                                                \
  {.pattern = pattern_, .run = f, .fast = f##_fast, .operands = {LANE_DEST(D), sizeof(A)}},
#define LANE_ROW2(f, pattern_, D, A, B, e)                                                                             \
  {.pattern = pattern_, .run = f, .fast = f##_fast, .operands = {LANE_DEST(D), sizeof(A), sizeof(B)}},
#define LANE_ROW3(f, pattern_, D, A, B, C, e)                                                                          \
  {.pattern = pattern_, .run = f, .fast = f##_fast, .operands = {LANE_DEST(D), sizeof(A), sizeof(B), sizeof(C)}},
#define LANE_ROW4(f, pattern_, D, A, B, C, E, e)                                                                       \
  {.pattern = pattern_,                                                                                                \
   .run = f,                                                                                                           \
   .fast = f##_fast,                                                                                                   \
   .operands = {LANE_DEST(D), sizeof(A), sizeof(B), sizeof(C), sizeof(E)}},

#define OP_TABLE(name, rows_) const op_table name = {.rows = rows_, .count = sizeof(rows_) / sizeof((rows_)[0])}
/* Of instructions that compute their destinations of their sources, and do nothing else. */
#define OP_TABLE_COMPUTED(name, rows_)                                                                                 \
  const op_table name = {.rows = rows_, .count = sizeof(rows_) / sizeof((rows_)[0]), .written_as = WRITTEN_COMPUTED}

#endif
