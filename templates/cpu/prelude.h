/* prelude.h - vectors of the machine's own width, row shares, unit shares. Freestanding; heads every image after abi.h.
 */
#if !defined(TAPER_ABI_H)
#include "runtime/abi/abi.h"
#endif
#if !defined(TAPER_PRELUDE_H)
#define TAPER_PRELUDE_H

#if defined(__AVX512F__)
#define VL 16u
#elif defined(__AVX__)
#define VL 8u
#else
#define VL 4u
#endif
#define TILE TAPER_TILE
#define INLINE static inline __attribute__((always_inline, unused))
#define LOCAL static __attribute__((noinline, unused))
#if !defined(STAGE)
#define STAGE LOCAL
#endif

/* Before a loop of a constant number of turns (at most 32) over values that stay in registers. */
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 32")
#endif

typedef float vf __attribute__((vector_size(VL * 4)));
typedef int32_t vi __attribute__((vector_size(VL * 4)));
typedef float vf_any __attribute__((vector_size(VL * 4), aligned(4), may_alias));

INLINE vf v_splat(float x) { return x - (vf){0}; }
INLINE vf v_load(const float *p) { return *(const vf_any *)p; }
INLINE void v_store(float *p, vf x) { *(vf_any *)p = x; }
INLINE vf v_select(vi mask, vf yes, vf no) { return (vf)((mask & (vi)yes) | (~mask & (vi)no)); }

/* The first n lanes only; the rest reads as `other`. */
INLINE vf v_load_part(const float *p, uint32_t n, float other) {
  if (n >= VL) return v_load(p);
  float t[VL];
  for (uint32_t i = 0; i < VL; i++) t[i] = i < n ? p[i] : other;
  return v_load(t);
}
INLINE void v_store_part(float *p, vf x, uint32_t n) {
  if (n >= VL) {
    v_store(p, x);
    return;
  }
  float t[VL];
  v_store(t, x);
  for (uint32_t i = 0; i < VL; i++)
    if (i < n) p[i] = t[i];
}

/* Sums in a fixed tree. */
INLINE float sum_lanes(vf x) {
  float t[VL];
  v_store(t, x);
  for (uint32_t step = VL / 2; step > 0; step /= 2)
    for (uint32_t i = 0; i < step; i++) t[i] += t[i + step];
  return t[0];
}
INLINE float max_lanes(vf x) {
  float m = x[0];
  for (uint32_t i = 1; i < VL; i++) m = x[i] > m ? x[i] : m;
  return m;
}

typedef struct span {
  uint32_t first, last;
} span;

/* The contiguous rows of this worker. */
INLINE span row_share(const taper_ctx *c, uint32_t rows) {
  return (span){(uint32_t)((uint64_t)rows * c->worker / c->workers),
                (uint32_t)((uint64_t)rows * (c->worker + 1) / c->workers)};
}
/* Of `units` units that cost `cost` each and begin at `before` of `total`: those that begin in this worker's part of
 * the total. */
INLINE span unit_share(const taper_ctx *c, uint32_t total, uint32_t before, uint32_t units, uint32_t cost) {
  const span all = row_share(c, total);
  const uint32_t lo = all.first > before ? (all.first - before + cost - 1) / cost : 0;
  const uint32_t hi = all.last > before ? (all.last - before + cost - 1) / cost : 0;
  return (span){lo < units ? lo : units, hi < units ? hi : units};
}
/* Row r of a buffer; of a per-row part of the worker's scratch. */
INLINE float *buffer_row(const taper_ctx *c, uint64_t offset, uint32_t width, uint32_t r) {
  return c->arena + offset * c->row_cap + (uint64_t)r * width;
}
INLINE float *scratch_row(const taper_ctx *c, uint64_t fixed, uint64_t offset, uint32_t width, uint32_t r) {
  return c->scratch + fixed + offset * c->row_cap + (uint64_t)r * width;
}

#endif
