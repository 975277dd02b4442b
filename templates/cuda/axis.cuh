/* axis.cuh - kernels of one vector x[0..n), by a warp: norms, statistics, rotation, lookups, copies into states. y may be x where nothing else is
 * said. Lanes read what others wrote before: a SYNC() stands between the steps. */
#if !defined(TAPER_CUDA_DOT)
#include "templates/cuda/dot.cuh"
#endif
#if !defined(TAPER_CUDA_AXIS)
#define TAPER_CUDA_AXIS

/* Sum of (x - shift)^2: every lane two chains, then a fixed tree. */
INLINE float sum_squares(const float *x, uint32_t n, float shift) {
  float s[2] = {0.0f, 0.0f};
  for (uint32_t i = LANE, k = 0; i < n; i += VL, k ^= 1) {
    const float v = x[i] - shift;
    if (k)
      s[1] = fmaf(v, v, s[1]);
    else
      s[0] = fmaf(v, v, s[0]);
  }
  return warp_sum(s[0] + s[1]);
}
INLINE float mean(const float *x, uint32_t n) {
  float s[2] = {0.0f, 0.0f};
  for (uint32_t i = LANE, k = 0; i < n; i += VL, k ^= 1) {
    if (k)
      s[1] += x[i];
    else
      s[0] += x[i];
  }
  return warp_sum(s[0] + s[1]) / (float)n;
}

INLINE float inv_rms(const float *x, uint32_t n, float eps) { return 1.0f / sqrtf(sum_squares(x, n, 0) / (float)n + eps); }
/* Two passes: never E[x^2] - mean^2. */
INLINE float inv_std_about(const float *x, uint32_t n, float mu, float eps) {
  return 1.0f / sqrtf(sum_squares(x, n, mu) / (float)n + eps);
}
INLINE float inv_std(const float *x, uint32_t n, float eps) { return inv_std_about(x, n, mean(x, n), eps); }

INLINE void rms_norm(float *y, const float *x, const float *w, uint32_t n, float eps) {
  const float s = inv_rms(x, n, eps);
  for (uint32_t i = LANE; i < n; i += VL) y[i] = x[i] * s * w[i];
}
INLINE void layer_norm(float *y, const float *x, const float *w, const float *b, uint32_t n, float eps) {
  const float mu = mean(x, n), s = inv_std_about(x, n, mu, eps);
  for (uint32_t i = LANE; i < n; i += VL) y[i] = (x[i] - mu) * s * w[i] + b[i];
}
/* g x / r gamma + (1 - g) c x gammat: both branches, any g. */
INLINE void taper_rms_norm(float *y, const float *x, const float *w, const float *tw, const float *tc, float g, uint32_t n, float eps) {
  const float s = g * inv_rms(x, n, eps), t = (1.0f - g) * tc[0];
  for (uint32_t i = LANE; i < n; i += VL) y[i] = x[i] * (s * w[i] + t * tw[i]);
}
INLINE void taper_layer_norm(float *y, const float *x, const float *w, const float *b, const float *tw, const float *tc, float g, uint32_t n,
                             float eps) {
  const float mu = mean(x, n), s = g * inv_std_about(x, n, mu, eps), t = (1.0f - g) * tc[0];
  for (uint32_t i = LANE; i < n; i += VL) y[i] = (x[i] - mu) * (s * w[i] + t * tw[i]) + b[i];
}
INLINE void center(float *y, const float *x, uint32_t n) {
  const float mu = mean(x, n);
  for (uint32_t i = LANE; i < n; i += VL) y[i] = x[i] - mu;
}
INLINE void copy(float *y, const float *x, uint32_t n) {
  for (uint32_t i = LANE; i < n; i += VL) y[i] = x[i];
}

/* Rotates pairs of the first `dims` of a head; cs: cos[dims / 2], then sin[dims / 2]. */
INLINE void rope(float *y, const float *x, uint32_t n, uint32_t dims, int interleaved, const float *cs) {
  const uint32_t half = dims / 2;
  for (uint32_t i = LANE; i < half; i += VL) {
    const uint32_t one = interleaved ? 2 * i : i, other = interleaved ? 2 * i + 1 : half + i;
    const float a = x[one], b = x[other];
    y[one] = a * cs[i] - b * cs[half + i];
    y[other] = a * cs[half + i] + b * cs[i];
  }
  for (uint32_t i = dims + LANE; i < n; i += VL) y[i] = x[i];
}

/* Row `id` of a table as it is stored. */
template <class T> INLINE void embed_rows(float *y, const T *table, int32_t id, uint32_t n) {
  const T *row = table + (size_t)id * pitch_of<T>(n);
  for (uint32_t i = LANE; i < n; i += VL) y[i] = to_float(row[i]);
}

/* y[0..m) = W x (+ b); y is not x. */
template <class T> INLINE void linear_rows(float *y, const float *x, const T *w, const float *b, uint32_t n, uint32_t m) {
  for (uint32_t o = 0; o < m; o++) {
    float s = 0.0f;
    for (uint32_t i = LANE; i < n; i += VL) s = fmaf(to_float(rounded<T>(x[i])), to_float(w[(size_t)o * pitch_of<T>(n) + i]), s);
    s = warp_sum(s);
    if (LANE == 0) y[o] = b ? s + b[o] : s;
  }
}

/* Columns [column, column + n) of a row into the state of its sequence at position pos: [heads][context][dim]. */
INLINE void append_values(float *state, uint32_t context, uint32_t pos, const float *x, uint32_t column, uint32_t n, uint32_t dim) {
  for (uint32_t i = LANE; i < n; i += VL) {
    const uint32_t h = (column + i) / dim, j = (column + i) % dim;
    state[((size_t)h * context + pos) * dim + j] = x[i];
  }
}
INLINE void append_keys(float *state, uint32_t context, uint32_t pos, const float *x, uint32_t column, uint32_t n, uint32_t dim) {
  append_values(state, context, pos, x, column, n, dim);
}

/* x[0..n) in the type of a matrix, for the products of many rows. */
template <class T> INLINE void put_operand(T *y, const float *x, uint32_t n) {
  for (uint32_t i = LANE; i < n; i += VL) y[i] = rounded<T>(x[i]);
}

#endif
