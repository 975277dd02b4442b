/* team.cuh - teams of lanes of a warp, vectors of floats, and partial softmaxes: what attention is made of. */
#if !defined(TAPER_CUDA_PRELUDE)
#include "templates/cuda/prelude.cuh"
#endif
#if !defined(TAPER_CUDA_TEAM)
#define TAPER_CUDA_TEAM

/* Floats that a load takes where rows of both widths lie one behind the other. */
__device__ constexpr uint32_t common_vector(uint32_t a, uint32_t b) {
  return a % 4 == 0 && b % 4 == 0 ? 4 : a % 2 == 0 && b % 2 == 0 ? 2 : 1;
}
/* Lanes that share a row of n vectors: a power of two, about two vectors each. */
__device__ constexpr uint32_t team_lanes(uint32_t n) {
  uint32_t lanes = 1;
  while (lanes < 32 && lanes * 2 < n) lanes *= 2;
  return lanes;
}
__device__ constexpr uint32_t largest_divisor(uint32_t n, uint32_t at_most) {
  uint32_t d = at_most < 1 ? 1 : at_most < n ? at_most : n;
  while (n % d) d--;
  return d;
}

/* N floats from an address that is a multiple of N floats; zeros where there are none. */
template <uint32_t N> INLINE void load_vector(float *y, const float *x, bool some) {
  UNROLL for (uint32_t i = 0; i < N; i++) y[i] = 0;
  if (!some) return;
  if (N == 4) {
    const float4 v = *(const float4 *)x;
    y[0] = v.x, y[1] = v.y, y[2] = v.z, y[3] = v.w;
  } else if (N == 2) {
    const float2 v = *(const float2 *)x;
    y[0] = v.x, y[1] = v.y;
  } else {
    y[0] = *x;
  }
}

/* Every lane gets the sum over its team: a fixed tree. */
template <uint32_t LANES> INLINE float sum_of_team(float x) {
  if constexpr (LANES > 1) {
    x += lane_xor<LANES / 2>(x);
    return sum_of_team<LANES / 2>(x);
  } else {
    return x;
  }
}
/* Sum and maximum over the lanes of a warp that have the same place in their teams. */
template <uint32_t LANES> INLINE float sum_of_teams(float x) {
  if constexpr (LANES < 32) {
    x += lane_xor<LANES>(x);
    return sum_of_teams<2 * LANES>(x);
  } else {
    return x;
  }
}
template <uint32_t LANES> INLINE float max_of_teams(float x) {
  if constexpr (LANES < 32) {
    x = fmaxf(x, lane_xor<LANES>(x));
    return max_of_teams<2 * LANES>(x);
  } else {
    return x;
  }
}

/* Part of a softmax: sum of e^(s - most) v_j, the largest s, sum of e^(s - most). In memory: the sums, then the other two. */
typedef struct merged {
  float sum, most, total;
} merged;
INLINE merged merge_parts(const float *parts, uint32_t n, uint32_t stride, uint32_t j, uint32_t dim) {
  merged m = {0, -INFINITE, 0};
  for (uint32_t i = 0; i < n; i++) m.most = fmaxf(m.most, parts[i * stride + dim]);
  const float shift = m.most == -INFINITE ? 0 : m.most;
  for (uint32_t i = 0; i < n; i++) {
    const float e = expf(parts[i * stride + dim] - shift);
    m.sum += parts[i * stride + j] * e;
    m.total += parts[i * stride + dim + 1] * e;
  }
  return m;
}

#endif
