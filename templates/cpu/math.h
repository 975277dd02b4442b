/* math.h - the functions of elementwise ops, on vectors: relative error about 1e-7, infinities and NaN as IEEE would
 * have them. */
#if !defined(TAPER_PRELUDE_H)
#include "templates/cpu/prelude.h"
#endif
#if !defined(TAPER_MATH_H)
#define TAPER_MATH_H

INLINE vf v_abs(vf x) { return (vf)((vi)x & 0x7fffffff); }
INLINE vf v_copysign(vf x, vf sign) { return (vf)(((vi)x & 0x7fffffff) | ((vi)sign & (vi)v_splat(-0.0f))); }
INLINE vf v_max(vf a, vf b) { return v_select(a > b, a, b); }

/* exp(x) = 2^n exp(r), |r| <= ln 2 / 2; 2^n in two factors, so that results reach down through the denormals and up to
 * infinity. */
INLINE vf v_exp(vf x) {
  const vf magic = v_splat(12582912.0f); /* 1.5 * 2^23: adding it rounds to an integer */
  x = v_select(x > v_splat(89.0f), v_splat(89.0f), x);
  x = v_select(x < v_splat(-105.0f), v_splat(-105.0f), x);
  const vf n = (x * v_splat(0x1.715476p+0f) + magic) - magic;
  vf r = x - n * v_splat(0x1.62e4p-1f);
  r = r - n * v_splat(0x1.7f7d1cp-20f);
  vf p = v_splat(1.9875691500e-4f);
  p = p * r + v_splat(1.3981999507e-3f);
  p = p * r + v_splat(8.3334519073e-3f);
  p = p * r + v_splat(4.1665795894e-2f);
  p = p * r + v_splat(1.6666665459e-1f);
  p = p * r + v_splat(5.0000001201e-1f);
  p = p * r * r + r + v_splat(1.0f);
  const vi k = __builtin_convertvector(v_select(n == n, n, (vf){0}), vi), half = k >> 1;
  return p * (vf)((half + 127) << 23) * (vf)((k - half + 127) << 23);
}

/* exp(x) for x <= 0; 0 below -87: no denormal ever meets a multiply-add. */
INLINE vf v_exp_falling(vf x) {
  const vf magic = v_splat(12582912.0f);
  const vf n = (x * v_splat(0x1.715476p+0f) + magic) - magic;
  vf r = x - n * v_splat(0x1.62e4p-1f);
  r = r - n * v_splat(0x1.7f7d1cp-20f);
  vf p = v_splat(1.9875691500e-4f);
  p = p * r + v_splat(1.3981999507e-3f);
  p = p * r + v_splat(8.3334519073e-3f);
  p = p * r + v_splat(4.1665795894e-2f);
  p = p * r + v_splat(1.6666665459e-1f);
  p = p * r + v_splat(5.0000001201e-1f);
  p = p * r * r + r + v_splat(1.0f);
  const vf in = v_select(x < v_splat(-87.0f), (vf){0}, n); /* what lies outside must still convert */
  const vf y = p * (vf)((__builtin_convertvector(v_select(in == in, in, (vf){0}), vi) + 127) << 23);
  return v_select(x < v_splat(-87.0f), (vf){0}, y);
}

INLINE vf v_tanh(vf x) {
  const vf a = v_abs(x), z = x * x;
  vf p = v_splat(-5.70498872745e-3f);
  p = p * z + v_splat(2.06390887954e-2f);
  p = p * z + v_splat(-5.37397155531e-2f);
  p = p * z + v_splat(1.33314422036e-1f);
  p = p * z + v_splat(-3.33332819422e-1f);
  const vf small = p * z * x + x;
  const vf large = v_splat(1.0f) - v_splat(2.0f) / (v_exp(a + a) + v_splat(1.0f));
  return v_select(a < v_splat(0.625f), small, v_copysign(large, x));
}

INLINE vf v_sigmoid(vf x) { return v_splat(1.0f) / (v_splat(1.0f) + v_exp(-x)); }
INLINE vf v_silu(vf x) { return x / (v_splat(1.0f) + v_exp(-x)); }
INLINE vf v_relu(vf x) { return v_select(x < v_splat(0.0f), v_splat(0.0f), x); }
INLINE vf v_softcap(vf x, float cap) { return v_splat(cap) * v_tanh(x / v_splat(cap)); }

/* erfc(z), z >= 0: the Chebyshev fit of Numerical Recipes, 6.2: relative error below 1.2e-7. */
INLINE vf v_erfc_positive(vf z) {
  const vf t = v_splat(1.0f) / (v_splat(1.0f) + v_splat(0.5f) * z);
  vf p = v_splat(0.17087277f);
  p = p * t + v_splat(-0.82215223f);
  p = p * t + v_splat(1.48851587f);
  p = p * t + v_splat(-1.13520398f);
  p = p * t + v_splat(0.27886807f);
  p = p * t + v_splat(-0.18628806f);
  p = p * t + v_splat(0.09678418f);
  p = p * t + v_splat(0.37409196f);
  p = p * t + v_splat(1.00002368f);
  p = p * t + v_splat(-1.26551223f);
  return t * v_exp(p - z * z);
}
/* x * Phi(x); the small side of Phi is computed directly, so that nothing cancels. */
INLINE vf v_gelu(vf x) {
  const vf tail = v_splat(0.5f) * v_erfc_positive(v_abs(x) * v_splat(0.70710678118654752f));
  return v_select(x < v_splat(0.0f), x * tail, x * (v_splat(1.0f) - tail));
}
/* 0.5 x (1 + tanh u) = x sigmoid(2 u), u = sqrt(2 / pi) (x + 0.044715 x^3) */
INLINE vf v_gelu_tanh(vf x) {
  const vf u = v_splat(0.79788456080286536f) * (x + v_splat(0.044715f) * x * x * x);
  return x * v_sigmoid(u + u);
}
INLINE vf v_sqrt(vf x) {
  for (uint32_t i = 0; i < VL; i++) x[i] = __builtin_sqrtf(x[i]);
  return x;
}

#endif
