/* float.c - arithmetic on 32 and 64 bits: float.def, fused multiply-add, and the forms with directed rounding, .ftz and .sat.
   What a GPU approximates (ex2, lg2, sin, cos, rsqrt, div.full, ...) is computed to the last digit; tanh.approx has 11 digits. */
#include "cuda/sim/half.h"
#include "cuda/sim/lane.h"
#include "cuda/sim/parse.h"
#include <fenv.h>

/* -0 is less than +0; of a number and a NaN the number is taken. */
static inline float lesser(float a, float b) {
  const float even = float_of(bits_of(a) | bits_of(b)), least = a < b ? a : b < a ? b : even;
  return canonical(a != a ? b : b != b ? a : least);
}
static inline float greater(float a, float b) {
  const float even = float_of(bits_of(a) & bits_of(b)), most = a > b ? a : b > a ? b : even;
  return canonical(a != a ? b : b != b ? a : most);
}
static inline double lesser_double(double a, double b) {
  const double even = double_of(bits_of_double(a) | bits_of_double(b)), least = a < b ? a : b < a ? b : even;
  return a != a ? b : b != b ? a : least;
}
static inline double greater_double(double a, double b) {
  const double even = double_of(bits_of_double(a) & bits_of_double(b)), most = a > b ? a : b > a ? b : even;
  return a != a ? b : b != b ? a : most;
}

#define LANE1 LANE_FUNCTION1
#define LANE2 LANE_FUNCTION2
#include "cuda/sim/float.def"

LANE_FUNCTION3(fma_f32, , float, float, float, float, canonical(__builtin_fmaf(a, b, c)))
LANE_FUNCTION3(fma_f64, , double, double, double, double, __builtin_fma(a, b, c))
/* ---- directed rounding: one lane at a time, with the rounding of the processor ---- */

typedef float (*float_step)(float a, float b, float c);
typedef double (*double_step)(double a, double b, double c);
#define STEP(name, expression)                                                                                         \
  static float name##_f32(float a_, float b_, float c_) {                                                              \
    volatile float a = a_, b = b_, c = c_, r = 0;                                                                      \
    (void)b, (void)c;                                                                                                  \
    r = expression;                                                                                                    \
    return r;                                                                                                          \
  }                                                                                                                    \
  static double name##_f64(double a_, double b_, double c_) {                                                          \
    volatile double a = a_, b = b_, c = c_, r = 0;                                                                     \
    (void)b, (void)c;                                                                                                  \
    r = expression;                                                                                                    \
    return r;                                                                                                          \
  }
STEP(step_add, a + b)
STEP(step_sub, a - b)
STEP(step_mul, a *b)
STEP(step_div, a / b)
STEP(step_rcp, 1 / a)
static float step_fma_f32(float a, float b, float c) {
  volatile float r = fmaf(a, b, c);
  return r;
}
static double step_fma_f64(double a, double b, double c) {
  volatile double r = fma(a, b, c);
  return r;
}
static float step_sqrt_f32(float a, float b, float c) {
  (void)b, (void)c;
  volatile float v = a, r = sqrtf(v);
  return r;
}
static double step_sqrt_f64(double a, double b, double c) {
  (void)b, (void)c;
  volatile double v = a, r = sqrt(v);
  return r;
}

/* choice: 1 rn, 2 rz, 3 rm, 4 rp; 0: rn */
static void round_by(uint8_t choice) {
  static const int modes[] = {FE_TONEAREST, FE_TONEAREST, FE_TOWARDZERO, FE_DOWNWARD, FE_UPWARD};
  fesetround(modes[choice]);
}

static inline float saturated(float v) { return v > 0 ? v < 1 ? v : 1 : 0; } /* a NaN becomes +0 */

static void steps_f32(warp *w, const inst *i, float_step step, bool has_sat) {
  const uint32_t sources = i->operands - 1u;
  const float *pa = lanes_of(w, i->r[1]), *pb = lanes_of(w, i->r[sources > 1 ? 2 : 1]),
              *pc = lanes_of(w, i->r[sources]);
  float *pd = lanes_of(w, i->r[0]);
  const bool ftz = i->choice[1] != 0, sat = has_sat && i->choice[2] != 0;
  round_by(i->choice[0]);
  for (uint32_t l = 0; l < SIM_LANES; l++) {
    if (!(w->mask >> l & 1u)) continue;
    float v = ftz ? flushed(step(flushed(pa[l]), flushed(pb[l]), flushed(pc[l]))) : step(pa[l], pb[l], pc[l]);
    pd[l] = sat ? saturated(v) : canonical(v);
  }
  fesetround(FE_TONEAREST);
}
static void steps_f64(warp *w, const inst *i, double_step step) {
  const uint32_t sources = i->operands - 1u;
  const double *pa = lanes_of(w, i->r[1]), *pb = lanes_of(w, i->r[sources > 1 ? 2 : 1]),
               *pc = lanes_of(w, i->r[sources]);
  double *pd = lanes_of(w, i->r[0]);
  round_by(i->choice[0]);
  for (uint32_t l = 0; l < SIM_LANES; l++)
    if (w->mask >> l & 1u) pd[l] = step(pa[l], pb[l], pc[l]);
  fesetround(FE_TONEAREST);
}
#define STEPS(name, sat)                                                                                               \
  static void any_##name##_f32(warp *w, const inst *i) { steps_f32(w, i, step_##name##_f32, sat); }                    \
  static void any_##name##_f64(warp *w, const inst *i) { steps_f64(w, i, step_##name##_f64); }
STEPS(add, true)
STEPS(sub, true)
STEPS(mul, true)
STEPS(fma, true)
STEPS(div, false)
STEPS(rcp, false)
STEPS(sqrt, false)

#define F32 (OPERAND_DEST | 4)
#define F64 (OPERAND_DEST | 8)
static const op_row rows[] = {
#define LANE1 LANE_ROW1
#define LANE2 LANE_ROW2
#include "cuda/sim/float.def"
    {.pattern = "fma.rn.f32", .run = fma_f32, .fast = fma_f32_fast, .operands = {F32, 4, 4, 4}},
    {.pattern = "fma.?rn.f64", .run = fma_f64, .fast = fma_f64_fast, .operands = {F64, 8, 8, 8}},
    {.pattern = "add.?rn|rz|rm|rp.?ftz.?sat.f32", .run = any_add_f32, .operands = {F32, 4, 4}},
    {.pattern = "sub.?rn|rz|rm|rp.?ftz.?sat.f32", .run = any_sub_f32, .operands = {F32, 4, 4}},
    {.pattern = "mul.?rn|rz|rm|rp.?ftz.?sat.f32", .run = any_mul_f32, .operands = {F32, 4, 4}},
    {.pattern = "fma.rn|rz|rm|rp.?ftz.?sat.f32", .run = any_fma_f32, .operands = {F32, 4, 4, 4}},
    {.pattern = "div.rn|rz|rm|rp.?ftz.f32", .run = any_div_f32, .operands = {F32, 4, 4}},
    {.pattern = "rcp.rn|rz|rm|rp.?ftz.f32", .run = any_rcp_f32, .operands = {F32, 4}},
    {.pattern = "sqrt.rn|rz|rm|rp.?ftz.f32", .run = any_sqrt_f32, .operands = {F32, 4}},
    {.pattern = "add.rn|rz|rm|rp.f64", .run = any_add_f64, .operands = {F64, 8, 8}},
    {.pattern = "sub.rn|rz|rm|rp.f64", .run = any_sub_f64, .operands = {F64, 8, 8}},
    {.pattern = "mul.rn|rz|rm|rp.f64", .run = any_mul_f64, .operands = {F64, 8, 8}},
    {.pattern = "fma.rn|rz|rm|rp.f64", .run = any_fma_f64, .operands = {F64, 8, 8, 8}},
    {.pattern = "div.rn|rz|rm|rp.f64", .run = any_div_f64, .operands = {F64, 8, 8}},
    {.pattern = "rcp.rn|rz|rm|rp.f64", .run = any_rcp_f64, .operands = {F64, 8}},
    {.pattern = "sqrt.rn|rz|rm|rp.f64", .run = any_sqrt_f64, .operands = {F64, 8}},
};
OP_TABLE_COMPUTED(sim_float_ops, rows);
