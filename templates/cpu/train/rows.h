/* rows.h - kernels of one row that only training needs: gradients along an axis, statistics, losses. A result may lie where an operand of its
 * length does. Gradients add up over nothing: they are one row's. */
#if !defined(TAPER_AXIS_H)
#include "templates/cpu/axis.h"
#endif
#if !defined(TAPER_MATH_H)
#include "templates/cpu/math.h"
#endif
#if !defined(TAPER_TRAIN_ROWS_H)
#define TAPER_TRAIN_ROWS_H

/* ---- gradients of elementwise functions: x the operand or y the result as named, dy the gradient of the result ---- */
INLINE vf v_min(vf a, vf b) { return v_select(a < b, a, b); }
INLINE vf v_gelu_back(vf x, vf dy) {
  const vf tail = v_splat(0.5f) * v_erfc_positive(v_abs(x) * v_splat(0.70710678118654752f));
  const vf phi = v_splat(0.39894228040143268f) * v_exp(v_splat(-0.5f) * x * x);
  return dy * (v_select(x < v_splat(0.0f), tail, v_splat(1.0f) - tail) + v_max(v_splat(-99.0f), v_min(x, v_splat(99.0f))) * phi);
}
/* s(z) (1 + x s(-z) slope): of x s(z), z with dz/dx = slope; neither side of the sigmoid by a difference. */
INLINE vf v_gated_back(vf x, vf z, vf slope) {
  const vf e = v_exp(-v_abs(z)), large = v_splat(1.0f) / (v_splat(1.0f) + e), small = e * large;
  const vi up = z >= v_splat(0.0f);
  return v_select(up, large, small) * (v_splat(1.0f) + x * v_select(up, small, large) * slope);
}
INLINE vf v_gelu_tanh_back(vf x, vf dy) {
  x = v_select(x > v_splat(20.0f), v_splat(20.0f), x); /* from there on 0 or 1, and no infinity times 0 */
  x = v_select(x < v_splat(-20.0f), v_splat(-20.0f), x);
  const vf k = v_splat(1.5957691216057307f), a = v_splat(0.044715f) * x * x; /* 2 sqrt(2 / pi) */
  return dy * v_gated_back(x, k * x * (v_splat(1.0f) + a), k * (v_splat(1.0f) + v_splat(3.0f) * a));
}
INLINE vf v_silu_back(vf x, vf dy) { return dy * v_gated_back(x, x, v_splat(1.0f)); }
INLINE vf v_relu_back(vf x, vf dy) { return v_select(x > v_splat(0.0f), dy, v_splat(0.0f)); }
INLINE vf v_sigmoid_back(vf y, vf dy) { return dy * y * (v_splat(1.0f) - y); }
INLINE vf v_tanh_back(vf y, vf dy) { return dy * (v_splat(1.0f) - y * y); }
INLINE vf v_sqrt_back(vf y, vf dy) { return v_splat(0.5f) * dy / y; }
INLINE vf v_softcap_back(vf x, vf dy, float cap) { return v_tanh_back(v_tanh(x / v_splat(cap)), dy); }
/* Of weight * tanh(alpha x) + bias by x. */
INLINE vf v_dyt_back(vf x, vf alpha, vf weight, vf dy) { return v_tanh_back(v_tanh(alpha * x), dy * alpha * weight); }

/* ---- sums along a row: four chains of vectors, then a fixed tree ---- */
INLINE float sum_chains(const vf s[4]) { return sum_lanes((s[0] + s[1]) + (s[2] + s[3])); }
/* Sum of a b (x - shift). */
LOCAL float sum_product(const float *a, const float *b, const float *x, uint32_t n, float shift) {
  vf s[4] = {{0}};
  for (uint32_t i = 0, k = 0; i < n; i += VL, k = (k + 1) % 4)
    s[k] += v_load_part(a + i, n - i, 0) * v_load_part(b + i, n - i, 0) * (v_load_part(x + i, n - i, shift) - v_splat(shift));
  return sum_chains(s);
}
LOCAL float row_dot(const float *x, const float *y, uint32_t n) {
  vf s[4] = {{0}};
  for (uint32_t i = 0, k = 0; i < n; i += VL, k = (k + 1) % 4)
    s[k] += v_load_part(x + i, n - i, 0) * v_load_part(y + i, n - i, 0);
  return sum_chains(s);
}
/* sqrt(mean(x^2) + eps), sqrt(mean((x - mean)^2) + eps); Euclidean length. */
INLINE float row_rms(const float *x, uint32_t n, float eps) {
  return __builtin_sqrtf(sum_squares(x, n, 0) / (float)n + eps);
}
INLINE float row_std(const float *x, uint32_t n, float eps) {
  return __builtin_sqrtf(sum_squares(x, n, mean(x, n)) / (float)n + eps);
}
INLINE float row_l2(const float *x, uint32_t n) { return __builtin_sqrtf(sum_squares(x, n, 0)); }
/* dx = ds x / (n r); ds (x - mu) / (n sigma). */
LOCAL void row_rms_back(float *dx, const float *x, float ds, uint32_t n, float eps) {
  const vf k = v_splat(ds / ((float)n * row_rms(x, n, eps)));
  for (uint32_t i = 0; i < n; i += VL) v_store_part(dx + i, v_load_part(x + i, n - i, 0) * k, n - i);
}
LOCAL void row_std_back(float *dx, const float *x, float ds, uint32_t n, float eps) {
  const float mu = mean(x, n);
  const vf m = v_splat(mu), k = v_splat(ds / ((float)n * __builtin_sqrtf(sum_squares(x, n, mu) / (float)n + eps)));
  for (uint32_t i = 0; i < n; i += VL) v_store_part(dx + i, (v_load_part(x + i, n - i, 0) - m) * k, n - i);
}
/* partial[0..n) += x: column sums over rows, one row at a time. */
INLINE void add_row(float *partial, const float *x, uint32_t n) {
  for (uint32_t i = 0; i < n; i += VL)
    v_store_part(partial + i, v_load_part(partial + i, n - i, 0) + v_load_part(x + i, n - i, 0), n - i);
}

/* ---- gradients of the norms by x ----
 * With s = 1/r and u = gamma dy: dx = s u - s^3 x mean(u x); LayerNorm: with s = 1/sigma, xc = x - mu: dx = s (u - mean(u)) - s^3 xc mean(u xc). Tapered:
 * g of that, and (1 - g) c gammat dy (LayerNorm: less its mean) beside it. */
LOCAL void rms_norm_back(float *dx, const float *x, const float *w, const float *dy, uint32_t n, float eps) {
  const float s = inv_rms(x, n, eps);
  const vf a = v_splat(s), b = v_splat(s * s * s * (sum_product(w, dy, x, n, 0) / (float)n));
  for (uint32_t i = 0; i < n; i += VL)
    v_store_part(dx + i,
                 v_load_part(w + i, n - i, 0) * v_load_part(dy + i, n - i, 0) * a - v_load_part(x + i, n - i, 0) * b, n - i);
}
LOCAL void taper_rms_norm_back(float *dx, const float *x, const float *w, const float *tw, const float *tc, float g,
                               const float *dy, uint32_t n, float eps) {
  const float s = inv_rms(x, n, eps);
  const vf a = v_splat(g * s), t = v_splat((1.0f - g) * tc[0]),
           b = v_splat(g * s * s * s * (sum_product(w, dy, x, n, 0) / (float)n));
  for (uint32_t i = 0; i < n; i += VL) {
    const vf k = a * v_load_part(w + i, n - i, 0) + t * v_load_part(tw + i, n - i, 0);
    v_store_part(dx + i, v_load_part(dy + i, n - i, 0) * k - v_load_part(x + i, n - i, 0) * b, n - i);
  }
}
/* dx = k dy - mean(k dy) - b (x - mu), k = a w + t tw; tw NULL: t = 0. */
INLINE void centred_back(float *dx, const float *x, const float *w, const float *tw, const float *dy, uint32_t n,
                         float mu, float a, float t, float b) {
  vf s[4] = {{0}};
  for (uint32_t i = 0, j = 0; i < n; i += VL, j = (j + 1) % 4) {
    vf k = v_splat(a) * v_load_part(w + i, n - i, 0);
    if (tw) k += v_splat(t) * v_load_part(tw + i, n - i, 0);
    s[j] += v_load_part(dy + i, n - i, 0) * k;
  }
  const vf m = v_splat(mu), bb = v_splat(b), dm = v_splat(sum_chains(s) / (float)n);
  for (uint32_t i = 0; i < n; i += VL) {
    vf k = v_splat(a) * v_load_part(w + i, n - i, 0);
    if (tw) k += v_splat(t) * v_load_part(tw + i, n - i, 0);
    v_store_part(dx + i, v_load_part(dy + i, n - i, 0) * k - dm - (v_load_part(x + i, n - i, 0) - m) * bb, n - i);
  }
}
LOCAL void layer_norm_back(float *dx, const float *x, const float *w, const float *dy, uint32_t n, float eps) {
  const float mu = mean(x, n), s = inv_std_about(x, n, mu, eps);
  const float b = s * s * s * (sum_product(w, dy, x, n, mu) / (float)n);
  centred_back(dx, x, w, 0, dy, n, mu, s, 0, b);
}
LOCAL void taper_layer_norm_back(float *dx, const float *x, const float *w, const float *tw, const float *tc, float g,
                                 const float *dy, uint32_t n, float eps) {
  const float mu = mean(x, n), s = inv_std_about(x, n, mu, eps);
  const float b = g * s * s * s * (sum_product(w, dy, x, n, mu) / (float)n);
  centred_back(dx, x, w, tw, dy, n, mu, g * s, (1.0f - g) * tc[0], b);
}

/* The transpose of rope: the rotation by the negative angles. */
INLINE void rope_back(float *dx, const float *dy, uint32_t n, uint32_t dims, int interleaved, const float *cs) {
  const uint32_t half = dims / 2;
  if (interleaved) {
    for (uint32_t i = 0; i < half; i++) {
      const float a = dy[2 * i], b = dy[2 * i + 1];
      dx[2 * i] = a * cs[i] + b * cs[half + i];
      dx[2 * i + 1] = b * cs[i] - a * cs[half + i];
    }
  } else {
    for (uint32_t i = 0; i < half; i += VL) {
      const uint32_t m = half - i;
      const vf a = v_load_part(dy + i, m, 0), b = v_load_part(dy + half + i, m, 0);
      const vf co = v_load_part(cs + i, m, 0), si = v_load_part(cs + half + i, m, 0);
      v_store_part(dx + i, a * co + b * si, m);
      v_store_part(dx + half + i, b * co - a * si, m);
    }
  }
  for (uint32_t i = dims; i < n; i++) dx[i] = dy[i];
}

/* ---- losses of a row of logits ---- */

/* ln x, x > 0 and normal: 2 atanh((m - 1) / (m + 1)) of the mantissa, error below 1e-13; NaN and infinity stay. */
INLINE double log_positive(double x) {
  union {
    double d;
    uint64_t u;
  } bits = {x};
  if (!(x <= 1.7976931348623157e308)) return x;
  int64_t e = (int64_t)(bits.u >> 52) - 1023;
  bits.u = (bits.u & 0xfffffffffffffu) | 0x3ff0000000000000u;
  if (bits.d > 1.4142135623730951) bits.d *= 0.5, e++;
  const double s = (bits.d - 1) / (bits.d + 1), z = s * s;
  double p = 1.0 / 15;
  for (int i = 13; i > 0; i -= 2) p = p * z + 1.0 / i;
  return 2 * s * p + (double)e * 0.69314718055994531;
}
LOCAL float row_max(const float *x, uint32_t n) {
  const float least = -__builtin_inff();
  vf m[4] = {v_splat(least), v_splat(least), v_splat(least), v_splat(least)};
  uint32_t i = 0;
  for (; i + 4 * VL <= n; i += 4 * VL)
    UNROLL for (uint32_t k = 0; k < 4; k++) m[k] = v_max(v_load(x + i + k * VL), m[k]);
  for (; i < n; i += VL) m[0] = v_max(v_load_part(x + i, n - i, least), m[0]);
  return max_lanes(v_max(v_max(m[0], m[1]), v_max(m[2], m[3])));
}
/* Sum of exp(x - top); with y, the terms are kept there. */
INLINE float sum_exp(float *y, const float *x, uint32_t n, float top) {
  const vf t = v_splat(top);
  vf s[4] = {{0}};
  uint32_t i = 0;
  for (; i + 4 * VL <= n; i += 4 * VL)
    UNROLL for (uint32_t k = 0; k < 4; k++) {
      const vf e = v_exp_falling(v_load(x + i + k * VL) - t);
      if (y) v_store(y + i + k * VL, e);
      s[k] += e;
    }
  for (; i < n; i += VL) {
    const vf e = v_exp_falling(v_load_part(x + i, n - i, -__builtin_inff()) - t);
    if (y) v_store_part(y + i, e, n - i);
    s[0] += e;
  }
  return sum_chains(s);
}
/* -log softmax(logits)[target]; 0 where target < 0. */
LOCAL float cross_entropy(const float *logits, uint32_t n, int32_t target) {
  if (target < 0) return 0;
  const float top = row_max(logits, n);
  return (float)(log_positive((double)sum_exp(0, logits, n, top)) + ((double)top - (double)logits[target]));
}
/* dlogits = drow (softmax(logits) - one at target), 0 where target < 0; returns cross_entropy. dlogits may be logits. */
LOCAL float cross_entropy_both(float *dlogits, const float *logits, uint32_t n, int32_t target, float drow) {
  if (target < 0) {
    for (uint32_t i = 0; i < n; i += VL) v_store_part(dlogits + i, (vf){0}, n - i);
    return 0;
  }
  const float top = row_max(logits, n), at = logits[target], sum = sum_exp(dlogits, logits, n, top);
  const vf k = v_splat(drow / sum);
  for (uint32_t i = 0; i < n; i += VL) v_store_part(dlogits + i, v_load_part(dlogits + i, n - i, 0) * k, n - i);
  dlogits[target] -= drow;
  return (float)(log_positive((double)sum) + ((double)top - (double)at));
}
INLINE void cross_entropy_back(float *dlogits, const float *logits, uint32_t n, int32_t target, float drow) {
  cross_entropy_both(dlogits, logits, n, target, drow);
}
/* KL(softmax(base) || softmax(other)) = sum of p (base - other) - log-sum-exp(base) + log-sum-exp(other). */
LOCAL float kl(const float *base, const float *other, uint32_t n) {
  const float top = row_max(base, n), other_top = row_max(other, n);
  const vf t = v_splat(top), u = v_splat(other_top);
  vf s[4] = {{0}}, d[4] = {{0}};
  for (uint32_t i = 0, k = 0; i < n; i += VL, k = (k + 1) % 4) {
    const vf b = v_load_part(base + i, n - i, -1e30f) - t, o = v_load_part(other + i, n - i, -1e30f) - u,
             e = v_exp_falling(b);
    s[k] += e;
    d[k] += e * (b - o);
  }
  const double sum = (double)sum_chains(s);
  return (float)((double)sum_chains(d) / sum - log_positive(sum) + log_positive((double)sum_exp(0, other, n, other_top)));
}
/* The largest less the second largest; 0 where there is but one. */
LOCAL float top_gap(const float *x, uint32_t n) {
  const float least = -__builtin_inff();
  vf first = v_splat(least), second = first;
  for (uint32_t i = 0; i < n; i += VL) {
    const vf v = v_load_part(x + i, n - i, least);
    second = v_max(v_min(first, v), second);
    first = v_max(v, first);
  }
  float a = least, b = least;
  for (uint32_t i = 0; i < VL; i++) {
    b = first[i] > a ? (a > second[i] ? a : second[i]) : (first[i] > b ? first[i] : b);
    a = first[i] > a ? first[i] : a;
  }
  return n > 1 ? a - b : 0;
}

#endif
