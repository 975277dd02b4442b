/* half.h - numbers of 16 bits, and rounding to fewer bits, without needing them in the compiler. */
#ifndef TAPER_SIM_HALF_H
#define TAPER_SIM_HALF_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

typedef enum rounding {
  ROUND_NEAREST,
  ROUND_ZERO,
  ROUND_DOWN,
  ROUND_UP,
  ROUND_AWAY
} rounding; /* AWAY: to nearest, halves away from 0 */

#define FLOAT_NAN_BITS 0x7fffffffu /* the NaN that arithmetic on 32 bits makes */
#define HALF_NAN_BITS 0x7fffu

static inline uint32_t bits_of(float v) {
  uint32_t u;
  memcpy(&u, &v, 4);
  return u;
}
static inline float float_of(uint32_t u) {
  float v;
  memcpy(&v, &u, 4);
  return v;
}
static inline uint64_t bits_of_double(double v) {
  uint64_t u;
  memcpy(&u, &v, 8);
  return u;
}
static inline double double_of(uint64_t u) {
  double v;
  memcpy(&v, &u, 8);
  return v;
}
static inline float canonical(float v) { return v != v ? float_of(FLOAT_NAN_BITS) : v; }
/* .ftz: a subnormal becomes a zero of its sign. */
static inline float flushed(float v) {
  const uint32_t u = bits_of(v);
  return float_of(u & 0x7f800000u ? u : u & 0x80000000u);
}

static inline float float_of_half(uint16_t h) {
  const uint32_t sign = (uint32_t)(h & 0x8000u) << 16, rest = h & 0x7fffu;
  const uint32_t normal = (rest << 13) + (112u << 23), special = rest > 0x7c00u ? FLOAT_NAN_BITS : 0x7f800000u;
  const uint32_t small = bits_of((float)(int32_t)rest * 0x1p-24f);
  const uint32_t u = rest >= 0x7c00u ? special : rest >= 0x400u ? normal : small;
  return float_of(u | (rest > 0x7c00u ? 0 : sign));
}
/* To nearest, ties to even. */
static inline uint16_t half_of_float(float v) {
  const uint32_t u = bits_of(v), sign = u >> 16 & 0x8000u, rest = u & 0x7fffffffu;
  const uint32_t small = bits_of(float_of(rest < 0x38800000u ? rest : 0) + 0.5f) - 0x3f000000u;
  const uint32_t normal = (rest + 0xfffu + (rest >> 13 & 1u) - (112u << 23)) >> 13;
  const uint32_t h = rest >= 0x47800000u ? 0x7c00u : rest < 0x38800000u ? small : normal;
  return (uint16_t)(rest > 0x7f800000u ? HALF_NAN_BITS : sign | h);
}
static inline float float_of_brain(uint16_t b) { return float_of((uint32_t)b << 16); }
static inline uint16_t brain_of_float(float v) {
  const uint32_t u = bits_of(v);
  return (uint16_t)((u & 0x7fffffffu) > 0x7f800000u ? HALF_NAN_BITS : (u + 0x7fffu + (u >> 16 & 1u)) >> 16);
}

static inline double integral(double v, rounding r) {
  switch (r) {
  case ROUND_NEAREST: return rint(v);
  case ROUND_ZERO: return trunc(v);
  case ROUND_DOWN: return floor(v);
  case ROUND_UP: return ceil(v);
  case ROUND_AWAY: return round(v);
  }
  return v;
}
/* The number with `digits` binary digits and no exponent below `least` nearest to v by `r`; what is beyond `most` (the greatest
   number of the format) becomes infinite or `most`, as the rounding says. */
static inline double rounded(double v, int digits, int least, double most, rounding r) {
  if (v == 0 || isinf(v) || isnan(v)) return v;
  int e;
  (void)frexp(v, &e);
  e = (e - 1 < least ? least : e - 1) - (digits - 1);
  const double q = ldexp(integral(ldexp(v, -e), r), e);
  if (fabs(q) <= most) return q == 0 ? copysign(0, v) : q;
  const bool to_most = r == ROUND_ZERO || (r == ROUND_DOWN && v > 0) || (r == ROUND_UP && v < 0);
  return copysign(to_most ? most : INFINITY, v);
}
static inline uint16_t half_of(double v, rounding r) { return half_of_float((float)rounded(v, 11, -14, 65504.0, r)); }
static inline uint16_t brain_of(double v, rounding r) {
  return brain_of_float((float)rounded(v, 8, -126, 0x1.fep127, r));
}
/* a * b + c, exact but for a last digit that is made odd where digits were lost: rounds well to any half as many digits. The product
   must be exact in a double. */
static inline double fused_odd(double a, double b, double c) {
  const double p = a * b, s = p + c, t = s - p, lost = (p - (s - t)) + (c - t);
  uint64_t u = bits_of_double(s);
  if (lost == 0 || lost != lost || isinf(s) || (u & 1u)) return s;
  u = (lost > 0) == (s > 0) ? u + 1 : u - 1;
  return double_of(u);
}

#endif
