/* half.c - arithmetic on numbers of 16 bits and pairs of them: exact in a double, or made odd, then rounded once. */
#include "cuda/sim/half.h"
#include "cuda/sim/lane.h"
#include "cuda/sim/parse.h"

static inline uint16_t half_result(double v) { return half_of(v, ROUND_NEAREST); }
static inline uint16_t brain_result(double v) { return brain_of(v, ROUND_NEAREST); }
static inline double lesser(double a, double b) {
  return a != a ? b : b != b ? a : a < b || (a == b && signbit(a)) ? a : b;
}
static inline double greater(double a, double b) {
  return a != a ? b : b != b ? a : a > b || (a == b && !signbit(a)) ? a : b;
}
static inline double nan_or(double a, double b, double v) { return a != a || b != b ? (double)NAN : v; }

typedef double (*half_step)(double a, double b, double c);
/* One element of each source through a step; `brain`: bf16. */
static inline uint16_t element(half_step step, bool brain, uint32_t a, uint32_t b, uint32_t c) {
  if (brain) {
    const double x = (double)float_of_brain((uint16_t)a), y = (double)float_of_brain((uint16_t)b);
    return brain_result(step(x, y, (double)float_of_brain((uint16_t)c)));
  }
  const double x = (double)float_of_half((uint16_t)a), y = (double)float_of_half((uint16_t)b);
  return half_result(step(x, y, (double)float_of_half((uint16_t)c)));
}

static void single(warp *w, const inst *i, half_step step, bool brain) {
  const uint32_t sources = i->operands - 1u;
  const uint16_t *pa = lanes_of(w, i->r[1]), *pb = lanes_of(w, i->r[sources > 1 ? 2 : 1]),
                 *pc = lanes_of(w, i->r[sources]);
  uint16_t *pd = lanes_of(w, i->r[0]);
  FOR_LANES(w, pd[l] = element(step, brain, pa[l], pb[l], pc[l]););
}
static void both(warp *w, const inst *i, half_step step, bool brain) {
  const uint32_t sources = i->operands - 1u;
  const uint32_t *pa = lanes_of(w, i->r[1]), *pb = lanes_of(w, i->r[sources > 1 ? 2 : 1]),
                 *pc = lanes_of(w, i->r[sources]);
  uint32_t *pd = lanes_of(w, i->r[0]);
  FOR_LANES(w, const uint32_t low = element(step, brain, pa[l], pb[l], pc[l]);
            const uint32_t high = element(step, brain, pa[l] >> 16, pb[l] >> 16, pc[l] >> 16);
            pd[l] = low | high << 16;);
}

/* HALF(name, "what stands before the type", sources, expression of a, b, c) */
#define HALVES(HALF)                                                                                                   \
  HALF(add, "add.?rn", 2, a + b)                                                                                       \
  HALF(sub, "sub.?rn", 2, a - b)                                                                                       \
  HALF(mul, "mul.?rn", 2, a *b)                                                                                        \
  HALF(fma, "fma.rn", 3, fused_odd(a, b, c))                                                                           \
  HALF(min, "min", 2, lesser(a, b))                                                                                    \
  HALF(max, "max", 2, greater(a, b))                                                                                   \
  HALF(min_nan, "min.NaN", 2, nan_or(a, b, lesser(a, b)))                                                              \
  HALF(max_nan, "max.NaN", 2, nan_or(a, b, greater(a, b)))                                                             \
  HALF(tanh, "tanh.approx", 1, tanh(a))

#define STEP(name, before, sources, expression)                                                                        \
  static double step_##name(double a, double b, double c) {                                                            \
    (void)b, (void)c;                                                                                                  \
    return expression;                                                                                                 \
  }                                                                                                                    \
  static void half_##name(warp *w, const inst *i) { single(w, i, step_##name, false); }                                \
  static void halves_##name(warp *w, const inst *i) { both(w, i, step_##name, false); }                                \
  static void brain_##name(warp *w, const inst *i) { single(w, i, step_##name, true); }                                \
  static void brains_##name(warp *w, const inst *i) { both(w, i, step_##name, true); }
HALVES(STEP)

static double step_ex2(double a, double b, double c) {
  (void)b, (void)c;
  return exp2(a);
}
static void half_ex2(warp *w, const inst *i) { single(w, i, step_ex2, false); }
static void halves_ex2(warp *w, const inst *i) { both(w, i, step_ex2, false); }

LANE_FUNCTION1(neg_16, , uint16_t, uint16_t, a ^ 0x8000u)
LANE_FUNCTION1(abs_16, , uint16_t, uint16_t, a & 0x7fffu)
LANE_FUNCTION1(neg_pair, , uint32_t, uint32_t, a ^ 0x80008000u)
LANE_FUNCTION1(abs_pair, , uint32_t, uint32_t, a & 0x7fff7fffu)

#define SOURCES(width, sources) OPERAND_DEST | width, width, sources > 1 ? width : 0, sources > 2 ? width : 0
#define ROW(name, before, sources, expression)                                                                         \
  {.pattern = before ".f16", .run = half_##name, .operands = {SOURCES(2, sources)}},                                   \
      {.pattern = before ".f16x2", .run = halves_##name, .operands = {SOURCES(4, sources)}},                           \
      {.pattern = before ".bf16", .run = brain_##name, .operands = {SOURCES(2, sources)}},                             \
      {.pattern = before ".bf16x2", .run = brains_##name, .operands = {SOURCES(4, sources)}},
static const op_row rows[] = {
    HALVES(ROW)                                                   /**/
    LANE_ROW1(neg_16, "neg.f16|bf16", uint16_t, uint16_t, )       /**/
    LANE_ROW1(abs_16, "abs.f16|bf16", uint16_t, uint16_t, )       /**/
    LANE_ROW1(neg_pair, "neg.f16x2|bf16x2", uint32_t, uint32_t, ) /**/
    LANE_ROW1(abs_pair, "abs.f16x2|bf16x2", uint32_t, uint32_t, ) /**/
    {.pattern = "ex2.approx.f16", .run = half_ex2, .operands = {OPERAND_DEST | 2, 2}},
    {.pattern = "ex2.approx.f16x2", .run = halves_ex2, .operands = {OPERAND_DEST | 4, 4}},
};
OP_TABLE_COMPUTED(sim_half_ops, rows);
