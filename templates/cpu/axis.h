/* axis.h - kernels of one vector x[0..n): norms, statistics, rotation, lookups, copies into states. y may be x where
 * nothing else is said. */
#if !defined(TAPER_DOT_H)
#include "templates/cpu/dot.h"
#endif
#if !defined(TAPER_AXIS_H)
#define TAPER_AXIS_H

/* Sum of (x - shift)^2: four chains of vectors, then a fixed tree. */
LOCAL float sum_squares(const float *x, uint32_t n, float shift) {
  vf s[4] = {{0}};
  uint32_t i = 0, k;
  for (; i + 4 * VL <= n; i += 4 * VL)
    for (k = 0; k < 4; k++) {
      const vf v = v_load(x + i + k * VL) - v_splat(shift);
      s[k] += v * v;
    }
  for (k = 0; i < n; i += VL, k++) {
    const vf v = v_load_part(x + i, n - i, shift) - v_splat(shift);
    s[k] += v * v;
  }
  return sum_lanes((s[0] + s[1]) + (s[2] + s[3]));
}
LOCAL float mean(const float *x, uint32_t n) {
  vf s[4] = {{0}};
  uint32_t i = 0, k;
  for (; i + 4 * VL <= n; i += 4 * VL)
    for (k = 0; k < 4; k++) s[k] += v_load(x + i + k * VL);
  for (k = 0; i < n; i += VL, k++) s[k] += v_load_part(x + i, n - i, 0);
  return sum_lanes((s[0] + s[1]) + (s[2] + s[3])) / (float)n;
}

INLINE float inv_rms(const float *x, uint32_t n, float eps) {
  return 1.0f / __builtin_sqrtf(sum_squares(x, n, 0) / (float)n + eps);
}
/* Two passes: never E[x^2] - mean^2. */
INLINE float inv_std_about(const float *x, uint32_t n, float mu, float eps) {
  return 1.0f / __builtin_sqrtf(sum_squares(x, n, mu) / (float)n + eps);
}
INLINE float inv_std(const float *x, uint32_t n, float eps) { return inv_std_about(x, n, mean(x, n), eps); }

LOCAL void rms_norm(float *y, const float *x, const float *w, uint32_t n, float eps) {
  const vf s = v_splat(inv_rms(x, n, eps));
  for (uint32_t i = 0; i < n; i += VL)
    v_store_part(y + i, v_load_part(x + i, n - i, 0) * s * v_load_part(w + i, n - i, 0), n - i);
}
LOCAL void layer_norm(float *y, const float *x, const float *w, const float *b, uint32_t n, float eps) {
  const float mu = mean(x, n);
  const vf m = v_splat(mu), s = v_splat(inv_std_about(x, n, mu, eps));
  for (uint32_t i = 0; i < n; i += VL)
    v_store_part(y + i,
                 (v_load_part(x + i, n - i, 0) - m) * s * v_load_part(w + i, n - i, 0) + v_load_part(b + i, n - i, 0),
                 n - i);
}
/* g x / r gamma + (1 - g) c x gammat: both branches, any g. */
LOCAL void taper_rms_norm(float *y, const float *x, const float *w, const float *tw, const float *tc, float g,
                          uint32_t n, float eps) {
  const vf s = v_splat(g * inv_rms(x, n, eps)), t = v_splat((1.0f - g) * tc[0]);
  for (uint32_t i = 0; i < n; i += VL) {
    const vf k = s * v_load_part(w + i, n - i, 0) + t * v_load_part(tw + i, n - i, 0);
    v_store_part(y + i, v_load_part(x + i, n - i, 0) * k, n - i);
  }
}
LOCAL void taper_layer_norm(float *y, const float *x, const float *w, const float *b, const float *tw, const float *tc,
                            float g, uint32_t n, float eps) {
  const float mu = mean(x, n);
  const vf m = v_splat(mu), s = v_splat(g * inv_std_about(x, n, mu, eps)), t = v_splat((1.0f - g) * tc[0]);
  for (uint32_t i = 0; i < n; i += VL) {
    const vf k = s * v_load_part(w + i, n - i, 0) + t * v_load_part(tw + i, n - i, 0);
    v_store_part(y + i, (v_load_part(x + i, n - i, 0) - m) * k + v_load_part(b + i, n - i, 0), n - i);
  }
}
LOCAL void center(float *y, const float *x, uint32_t n) {
  const vf m = v_splat(mean(x, n));
  for (uint32_t i = 0; i < n; i += VL) v_store_part(y + i, v_load_part(x + i, n - i, 0) - m, n - i);
}
LOCAL void copy(float *y, const float *x, uint32_t n) {
  for (uint32_t i = 0; i < n; i += VL) v_store_part(y + i, v_load_part(x + i, n - i, 0), n - i);
}

/* Rotates pairs of the first `dims` of a head; cs: cos[dims / 2], then sin[dims / 2]. */
INLINE void rope(float *y, const float *x, uint32_t n, uint32_t dims, int interleaved, const float *cs) {
  const uint32_t half = dims / 2;
  if (interleaved) {
    for (uint32_t i = 0; i < half; i++) {
      const float a = x[2 * i], b = x[2 * i + 1];
      y[2 * i] = a * cs[i] - b * cs[half + i];
      y[2 * i + 1] = a * cs[half + i] + b * cs[i];
    }
  } else {
    for (uint32_t i = 0; i < half; i += VL) {
      const uint32_t m = half - i;
      const vf a = v_load_part(x + i, m, 0), b = v_load_part(x + half + i, m, 0);
      const vf co = v_load_part(cs + i, m, 0), si = v_load_part(cs + half + i, m, 0);
      v_store_part(y + i, a * co - b * si, m);
      v_store_part(y + half + i, a * si + b * co, m);
    }
  }
  for (uint32_t i = dims; i < n; i++) y[i] = x[i];
}

/* Row `id` of a table: as stored (rows padded to 16 floats), or in tiles of 16 rows. */
INLINE void embed_rows(float *y, const float *table, int32_t id, uint32_t n) {
  copy(y, table + (size_t)id * ((n + TILE - 1) / TILE * TILE), n);
}
INLINE void embed_tiles(float *y, const float *table, int32_t id, uint32_t n) {
  const float *p = table + (size_t)((uint32_t)id / TILE) * n * TILE + (uint32_t)id % TILE;
  for (uint32_t i = 0; i < n; i++) y[i] = p[(size_t)i * TILE];
}

/* y[0..m) = W x (+ b); y is not x. W in tiles; or one row of it as stored, m = 1. */
LOCAL void linear_tiles(float *y, const float *x, const float *w, const float *b, uint32_t n, uint32_t m) {
  float t[TILE];
  for (uint32_t o = 0; o < m; o += TILE) {
    dot(t, TILE, &x, 1, w + (size_t)o * n, n, 1, TILE, 0);
    for (uint32_t i = 0; i < TILE && o + i < m; i++) y[o + i] = b ? t[i] + b[o + i] : t[i];
  }
}
LOCAL void linear_rows(float *y, const float *x, const float *w, const float *b, uint32_t n, uint32_t m) {
  vf s = {0};
  (void)m;
  for (uint32_t i = 0; i < n; i += VL) s += v_load_part(x + i, n - i, 0) * v_load_part(w + i, n - i, 0);
  y[0] = sum_lanes(s) + (b ? b[0] : 0);
}

/* Columns [column, column + n) of a row into the state of its sequence at position pos; heads of `dim` floats.
   Keys: [heads][context / 16][dim][16]. Values: [heads][context][dim to a multiple of 16]. */
LOCAL void append_keys(float *state, uint32_t context, uint32_t pos, const float *x, uint32_t column, uint32_t n,
                       uint32_t dim) {
  for (uint32_t i = 0; i < n;) {
    const uint32_t h = (column + i) / dim, j0 = (column + i) % dim, m = dim - j0 < n - i ? dim - j0 : n - i;
    float *p = state + ((size_t)h * context + pos / TILE * TILE) * dim + (size_t)j0 * TILE + pos % TILE;
    for (uint32_t j = 0; j < m; j++) p[j * TILE] = x[i + j];
    i += m;
  }
}
LOCAL void append_values(float *state, uint32_t context, uint32_t pos, const float *x, uint32_t column, uint32_t n,
                         uint32_t dim) {
  const uint32_t pitch = (dim + TILE - 1) / TILE * TILE;
  for (uint32_t i = 0; i < n;) {
    const uint32_t h = (column + i) / dim, j0 = (column + i) % dim, m = dim - j0 < n - i ? dim - j0 : n - i;
    copy(state + ((size_t)h * context + pos) * pitch + j0, x + i, m);
    i += m;
  }
}

#endif
