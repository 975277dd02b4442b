/* Arithmetic with a fraction bit by bit: against numbers of 113 bits, rounded by looking at the neighbours. */
#include "tests/unit/ptx_op.h"
#include <float.h>
#include <math.h>

#if defined(__x86_64__) || defined(__i386__)
typedef __float128 wide;
#else
typedef long double wide;
#endif
enum { RN, RZ, RM, RP };

static float f32(uint64_t u) {
  const uint32_t v = (uint32_t)u;
  float f;
  memcpy(&f, &v, 4);
  return f;
}
static uint64_t b32(float f) {
  uint32_t u;
  memcpy(&u, &f, 4);
  return isnan(f) ? 0x7fffffffu : u;
}
static double f64(uint64_t u) {
  double d;
  memcpy(&d, &u, 8);
  return d;
}
static uint64_t b64(double d) {
  uint64_t u;
  memcpy(&u, &d, 8);
  return u;
}
static float ftz(float f) { return fabsf(f) < FLT_MIN ? copysignf(0, f) : f; }
static uint64_t sat(uint64_t u) {
  const float f = f32(u);
  return isnan(f) || f <= 0 ? 0 : f >= 1 ? b32(1) : u;
}

/* The number of 24 digits that the mode takes for v. */
static float to_float(wide v, int mode) {
  float f = (float)v;
  if (isnan(f)) return f;
  if (mode == RN) return f;
  const bool down = mode == RM || (mode == RZ && v > 0), up = mode == RP || (mode == RZ && v < 0);
  if (down && (wide)f > v) f = nextafterf(f, -INFINITY);
  if (up && (wide)f < v) f = nextafterf(f, INFINITY);
  return f;
}
static uint64_t done(wide v, int mode) { return b32(to_float(v, mode)); }
/* The sign of an exact zero from a sum. */
static uint64_t sum(wide a, wide b, int mode) {
  if (a + b != 0 || (a == 0 && b == 0 && signbit((double)a) == signbit((double)b))) return done(a + b, mode);
  return b32(mode == RM ? -0.0f : 0.0f);
}
static uint64_t root(float a, int mode) {
  if (!(a > 0) || isinf(a)) return b32(sqrtf(a));
  float r = (float)sqrt((double)a);
  if (mode == RM || mode == RZ)
    while ((wide)r * (wide)r > (wide)a) r = nextafterf(r, 0);
  if (mode == RP)
    while ((wide)r * (wide)r < (wide)a) r = nextafterf(r, INFINITY);
  return b32(r);
}
static float least(float a, float b) { return isnan(a) ? b : isnan(b) ? a : a < b || (a == b && signbit(a)) ? a : b; }
static float most(float a, float b) { return isnan(a) ? b : isnan(b) ? a : a > b || (a == b && !signbit(a)) ? a : b; }

/* Halves: by search among all of them. */
static double half_value(uint32_t h) {
  const uint32_t e = h >> 10 & 31, m = h & 1023;
  const double v = e == 31 ? (m ? (double)NAN : (double)INFINITY) : e ? ldexp(1024 + m, (int)e - 25) : ldexp(m, -24);
  return h & 0x8000 ? -v : v;
}
static double brain_value(uint32_t b) { return (double)f32((uint64_t)b << 16); }
static uint64_t nearest_of(wide v, double (*value)(uint32_t), uint32_t infinite, int mode) {
  const uint32_t sign = signbit((double)v) ? 0x8000 : 0;
  if (v != v) return 0x7fff;
  const wide size = v < 0 ? -v : v;
  uint32_t low = 0, high = infinite;
  if (size >= (wide)value(infinite)) return sign | infinite;
  while (high - low > 1) {
    const uint32_t middle = (low + high) / 2;
    if ((wide)value(middle) <= size)
      low = middle;
    else
      high = middle;
  }
  const wide below = size - (wide)value(low);
  if (below == 0) return sign | low;
  if (mode == RZ || (mode == RM && !sign) || (mode == RP && sign)) return sign | low;
  if (mode != RN) return sign | high;
  /* beyond the greatest number the next one would be */
  const wide step = high == infinite ? (wide)value(low) - (wide)value(low - 1) : (wide)value(high) - (wide)value(low);
  return sign | (2 * below > step || (2 * below == step && (low & 1)) ? high : low);
}
static uint64_t half(wide v, int mode) { return nearest_of(v, half_value, 0x7c00, mode); }
static uint64_t brain(wide v, int mode) { return nearest_of(v, brain_value, 0x7f80, mode); }
#define HALF(x) half_value((uint32_t)(x)&0xffff)
#define BRAIN(x) brain_value((uint32_t)(x)&0xffff)

static double integral(double v, int mode) {
  return mode == RN ? nearbyint(v) : mode == RZ ? trunc(v) : mode == RM ? floor(v) : ceil(v);
}
static uint64_t to_integer(double v, int mode, double low, double high) {
  if (isnan(v)) return 0;
  v = integral(v, mode);
  return v <= low ? (uint64_t)(int64_t)low : v >= high ? (uint64_t)high : v < 0 ? (uint64_t)(int64_t)v : (uint64_t)v;
}

#define A f32(a)
#define B f32(b)
#define C f32(c)
#define WA ((wide)A)
#define WB ((wide)B)
#define WC ((wide)C)
#define MODES(M, name, op, widths, call)                                                                               \
  M(name##_rn, op, ".rn", RN, widths, call)                                                                            \
  M(name##_rz, op, ".rz", RZ, widths, call)                                                                            \
  M(name##_rm, op, ".rm", RM, widths, call) M(name##_rp, op, ".rp", RP, widths, call)
/* R(name, text, widths, expression) */
#define M2(name, op, r, mode_, widths, call) R(name, op r ".f32 %d, %a, %b;", widths, (mode = mode_, call))
#define M1(name, op, r, mode_, widths, call) R(name, op r ".f32 %d, %a;", widths, (mode = mode_, call))
#define M3(name, op, r, mode_, widths, call) R(name, op r ".f32 %d, %a, %b, %c;", widths, (mode = mode_, call))
#define MI(name, op, r, mode_, widths, call) R(name, op r "i.s32.f32 %d, %a;", widths, (mode = mode_, call))
#define MF(name, op, r, mode_, widths, call) R(name, op r ".f32.s32 %d, %a;", widths, (mode = mode_, call))
#define MU(name, op, r, mode_, widths, call) R(name, op r ".f32.u64 %d, %a;", widths, (mode = mode_, call))
#define MD(name, op, r, mode_, widths, call) R(name, op r ".f32.f64 %d, %a;", widths, (mode = mode_, call))
#define MN(name, op, r, mode_, widths, call) R(name, op r "i.f32.f32 %d, %a;", widths, (mode = mode_, call))
#define SINGLE                                                                                                         \
  MODES(M2, add, "add", "444", sum(WA, WB, mode))                                                                      \
  MODES(M2, sub, "sub", "444", sum(WA, -WB, mode))                                                                     \
  MODES(M2, mul, "mul", "444", done(WA *WB, mode))                                                                     \
  MODES(M3, fma, "fma", "4444", sum(WA *WB, WC, mode))                                                                 \
  MODES(M2, div, "div", "444", done(WA / WB, mode))                                                                    \
  MODES(M1, rcp, "rcp", "44", done(1 / WA, mode))                                                                      \
  MODES(M1, sqrt, "sqrt", "44", root(A, mode))                                                                         \
  MODES(MI, cvt_s32, "cvt", "44", to_integer((double)A, mode, -2147483648.0, 2147483647.0))                            \
  MODES(MF, cvt_from, "cvt", "44", done((wide)(int32_t)a, mode))                                                       \
  MODES(MU, cvt_from64, "cvt", "48", done((wide)a, mode))                                                              \
  MODES(MD, cvt_f64, "cvt", "48", done((wide)f64(a), mode))                                                            \
  MODES(MN, cvt_whole, "cvt", "44", b32(copysignf((float)integral((double)A, mode), A)))                               \
  R(add_plain, "add.f32 %d, %a, %b;", "444", b32(A + B))                                                               \
  R(fma_ftz, "fma.rn.ftz.f32 %d, %a, %b, %c;", "4444",                                                                 \
    b32(ftz(f32(sum((wide)ftz(A) * (wide)ftz(B), (wide)ftz(C), RN)))))                                                 \
  R(mul_ftz, "mul.ftz.f32 %d, %a, %b;", "444", b32(ftz(f32(done((wide)ftz(A) * (wide)ftz(B), RN)))))                   \
  R(mul_sat, "mul.rz.sat.f32 %d, %a, %b;", "444", sat(done(WA *WB, RZ)))                                               \
  R(fma_sat, "fma.rn.sat.f32 %d, %a, %b, %c;", "4444", sat(sum(WA *WB, WC, RN)))                                       \
  R(cvt_sat, "cvt.sat.f32.f32 %d, %a;", "44", sat(a))                                                                  \
  R(min, "min.f32 %d, %a, %b;", "444", b32(least(A, B)))                                                               \
  R(max, "max.f32 %d, %a, %b;", "444", b32(most(A, B)))                                                                \
  R(max_ftz, "max.ftz.f32 %d, %a, %b;", "444", b32(most(ftz(A), ftz(B))))                                              \
  R(min_nan, "min.NaN.f32 %d, %a, %b;", "444", isnan(A) || isnan(B) ? 0x7fffffff : b32(least(A, B)))                   \
  R(neg, "neg.f32 %d, %a;", "44", a ^ 0x80000000u)                                                                     \
  R(abs_ftz, "abs.ftz.f32 %d, %a;", "44", isnan(A) ? a & 0x7fffffffu : b32(fabsf(ftz(A))))                             \
  R(copysign, "copysign.f32 %d, %a, %b;", "444", (a & 0x80000000u) | (b & 0x7fffffffu))                                \
  R(lt, "setp.lt.f32 %d, %a, %b;", "p44", A < B)                                                                       \
  R(ne, "setp.ne.f32 %d, %a, %b;", "p44", A<B || A> B)                                                                 \
  R(neu, "setp.neu.f32 %d, %a, %b;", "p44", !(A == B))                                                                 \
  R(geu, "setp.geu.or.f32 %d, %a, %b, %c;", "p44p", isnan(A) || isnan(B) || A >= B || (uint32_t)c)                     \
  R(nan, "setp.nan.f32 %d, %a, %b;", "p44", isnan(A) || isnan(B))                                                      \
  R(num, "setp.num.f32 %d, %a, %b;", "p44", !isnan(A) && !isnan(B))                                                    \
  R(gt_ftz, "setp.gt.ftz.f32 %d, %a, %b;", "p44", ftz(A) > ftz(B))                                                     \
  R(testp, "testp.subnormal.f32 %d, %a;", "p4", fpclassify(A) == FP_SUBNORMAL)                                         \
  R(finite, "testp.finite.f32 %d, %a;", "p4", isfinite(A))                                                             \
  R(cvt_u8, "cvt.rzi.u8.f32 %d, %a;", "44", to_integer((double)A, RZ, 0, 255))                                         \
  R(cvt_u32, "cvt.rni.u32.f32 %d, %a;", "44", to_integer((double)A, RN, 0, 4294967295.0))                              \
  R(cvt_half, "cvt.rn.f16.f32 %d, %a;", "24", half(WA, RN))                                                            \
  R(cvt_half_rz, "cvt.rz.f16.f32 %d, %a;", "24",                                                                       \
    isfinite(A) && fabsf(A) > 65504 ? (b32(A) >> 16 & 0x8000) | 0x7bff : half(WA, RZ))                                 \
  R(cvt_brain, "cvt.rn.bf16.f32 %d, %a;", "24", brain(WA, RN))                                                         \
  R(cvt_pair, "cvt.rn.f16x2.f32 %d, %a, %b;", "444", half(WA, RN) << 16 | half(WB, RN))                                \
  R(cvt_brains, "cvt.rn.bf16x2.f32 %d, %a, %b;", "444", brain(WA, RN) << 16 | brain(WB, RN))                           \
  R(cvt_from_half, "cvt.f32.f16 %d, %a;", "42", b32((float)HALF(a)))                                                   \
  R(cvt_from_brain, "cvt.f32.bf16 %d, %a;", "42", (a & 0xffff) << 16)                                                  \
  R(add_half, "add.f16 %d, %a, %b;", "222", half((wide)HALF(a) + (wide)HALF(b), RN))                                   \
  R(mul_half, "mul.rn.f16 %d, %a, %b;", "222", half((wide)HALF(a) * (wide)HALF(b), RN))                                \
  R(fma_half, "fma.rn.f16 %d, %a, %b, %c;", "2222", half((wide)HALF(a) * (wide)HALF(b) + (wide)HALF(c), RN))           \
  R(fma_brain, "fma.rn.bf16 %d, %a, %b, %c;", "2222", brain((wide)BRAIN(a) * (wide)BRAIN(b) + (wide)BRAIN(c), RN))     \
  R(fma_halves, "fma.rn.f16x2 %d, %a, %b, %c;", "4444",                                                                \
    half((wide)HALF(a) * (wide)HALF(b) + (wide)HALF(c), RN) |                                                          \
        half((wide)HALF(a >> 16) * (wide)HALF(b >> 16) + (wide)HALF(c >> 16), RN) << 16)                               \
  R(sub_brains, "sub.rn.bf16x2 %d, %a, %b;", "444",                                                                    \
    brain((wide)BRAIN(a) - (wide)BRAIN(b), RN) | brain((wide)BRAIN(a >> 16) - (wide)BRAIN(b >> 16), RN) << 16)         \
  R(lt_half, "setp.lt.f16 %d, %a, %b;", "p22", HALF(a) < HALF(b))                                                      \
  R(tf32, "cvt.rna.tf32.f32 %d, %a;", "44",                                                                            \
    isnan(A)   ? 0x7fffffff                                                                                            \
    : isinf(A) ? a                                                                                                     \
               : ((a & 0x1fff) >= 0x1000 ? (a & ~0x1fffull) + 0x2000 : a & ~0x1fffull))                                \
  R(mul64, "mul.f64 %d, %a, %b;", "888", b64(f64(a) * f64(b)))                                                         \
  R(fma64, "fma.rn.f64 %d, %a, %b, %c;", "8888", b64(fma(f64(a), f64(b), f64(c))))                                     \
  R(div64, "div.rn.f64 %d, %a, %b;", "888", b64(f64(a) / f64(b)))                                                      \
  R(cvt_64, "cvt.f64.f32 %d, %a;", "84", b64((double)A))                                                               \
  R(cvt_s64, "cvt.rzi.s64.f64 %d, %a;", "88",                                                                          \
    isnan(f64(a))         ? (uint64_t)1 << 63                                                                          \
    : fabs(f64(a)) < 9e18 ? (uint64_t)(int64_t)f64(a)                                                                  \
    : f64(a) > 0          ? INT64_MAX                                                                                  \
                          : (uint64_t)1 << 63)

#define R(name, text, widths, expression)                                                                              \
  static uint64_t ref_##name(uint64_t a, uint64_t b, uint64_t c, uint64_t e) {                                         \
    int mode = RN;                                                                                                     \
    (void)a, (void)b, (void)c, (void)e, (void)mode;                                                                    \
    return (uint64_t)(expression);                                                                                     \
  }
SINGLE
#undef R

/* Exponents not far apart, so that 113 digits hold any sum; odd values where that does no harm. */
static uint64_t operand(char width, bool odd) {
  static const float odds[] = {0,        -0.0f,        1,     -1,     INFINITY,  -INFINITY,    NAN,   FLT_MAX, -FLT_MAX,
                               0.5f,     1.5f,         2.5f,  -2.5f,  65504,     65519.996f,   65520, 1e-7f,   2.98e-8f,
                               16777216, 2147483648.f, -1.5f, 255.5f, 3.389e38f, 5.9604645e-8f};
  const uint64_t r = op_random();
  if (width == '2') return r & 0xffff;
  if (width == '8')
    return odd && r % 4 == 0 ? b64((double)odds[op_random() % 24])
                             : b64(ldexp((double)(int64_t)op_random(), (int)(r % 60) - 90));
  if (width == 'p') return r & 1;
  if (odd && r % 4 == 0) return b32(odds[op_random() % 24]);
  if (odd && r % 16 == 1) return op_random() & 0x807fffff; /* subnormal */
  return (op_random() & 0x807fffff) | (uint64_t)(107 + r / 16 % 40) << 23;
}

static void bit_by_bit(void **state) {
  (void)state;
  static const op_case cases[] = {
#define R(name, text, widths, expression) {text, widths, ref_##name},
      SINGLE
#undef R
  };
  enum { COUNT = 1213 };
  static op_element elements[COUNT];
  for (size_t k = 0; k < sizeof(cases) / sizeof(cases[0]); k++) {
    const char *t = cases[k].text;
    const bool sums = strncmp(t, "add", 3) == 0 || strncmp(t, "sub", 3) == 0 || strncmp(t, "fma", 3) == 0;
    const bool odd = !sums || strstr(t, "plain") || strncmp(t, "add.f32", 7) == 0;
    for (int i = 0; i < COUNT; i++)
      for (size_t j = 0; j < 4; j++)
        elements[i].in[j] = operand(j + 1 < strlen(cases[k].widths) ? cases[k].widths[j + 1] : '4', odd);
    op_check(&cases[k], elements, COUNT);
  }
}

/* Approximations: within a relative error of the true value. */
typedef struct approximation {
  const char *text;
  double (*function)(double);
  double low, high, error, absolute;
} approximation;
static double reciprocal(double v) { return 1 / v; }
static double reciprocal_root(double v) { return 1 / sqrt(v); }

static void approximations(void **state) {
  (void)state;
  static const approximation list[] = {{"ex2.approx.ftz.f32 %d, %a;", exp2, -100, 100, 2e-7, 0},
                                       {"ex2.approx.f32 %d, %a;", exp2, -140, 100, 2e-7, 1e-44},
                                       {"lg2.approx.f32 %d, %a;", log2, 1e-30, 1e30, 2e-7, 1e-7},
                                       {"sin.approx.f32 %d, %a;", sin, -3.14, 3.14, 2e-7, 5e-7},
                                       {"cos.approx.f32 %d, %a;", cos, -3.14, 3.14, 2e-7, 5e-7},
                                       {"tanh.approx.f32 %d, %a;", tanh, -9, 9, 5e-4, 0},
                                       {"rcp.approx.ftz.f32 %d, %a;", reciprocal, 1e-30, 1e30, 1.2e-7, 0},
                                       {"rsqrt.approx.f32 %d, %a;", reciprocal_root, 1e-30, 1e30, 2e-7, 0},
                                       {"sqrt.approx.f32 %d, %a;", sqrt, 1e-30, 1e30, 1.2e-7, 0}};
  enum { COUNT = 999 };
  static op_element elements[COUNT];
  for (size_t k = 0; k < sizeof(list) / sizeof(list[0]); k++) {
    const approximation *p = &list[k];
    const op_case c = {p->text, "44", NULL};
    for (int i = 0; i < COUNT; i++) {
      const double t = (double)(op_random() >> 11) * 0x1p-53;
      elements[i].in[0] =
          b32((float)(p->low > 0 ? p->low * pow(p->high / p->low, t) : p->low + (p->high - p->low) * t));
    }
    op_run(&c, elements, COUNT);
    for (int i = 0; i < COUNT; i++) {
      const double x = (double)f32(elements[i].in[0]), want = p->function(x), got = (double)f32(elements[i].out);
      if (!(fabs(got - want) <= p->error * fabs(want) + p->absolute))
        fail_msg("%s of %a: %a, not %a", p->text, x, got, want);
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(bit_by_bit), cmocka_unit_test(approximations)};
  return cmocka_run_group_tests(tests, ptx_setup, ptx_teardown);
}
