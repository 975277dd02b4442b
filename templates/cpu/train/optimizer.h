/* optimizer.h - updates of parameters and sums over gradients. */
#if !defined(TAPER_MATH_H)
#include "templates/cpu/math.h"
#endif
#if !defined(TAPER_TRAIN_ABI_H)
#include "runtime/abi/train_abi.h"
#endif
#if !defined(TAPER_TRAIN_OPTIMIZER_H)
#define TAPER_TRAIN_OPTIMIZER_H

/* taper_train_adamw's update of elements [first, last): every element for itself, so that any division of the work gives the same bits. */
LOCAL void adamw(float *restrict p, const float *restrict g, float *restrict m, float *restrict v, uint64_t first,
                 uint64_t last, const taper_train_adamw *a) {
  const vf clip = v_splat(a->clip_scale), c1 = v_splat(1.0f - a->beta1),
           c2 = v_splat(1.0f - a->beta2), eps = v_splat(a->eps), keep = v_splat(a->lr * a->decay),
           rate = v_splat(a->lr / a->correction1), root = v_splat(1.0f / a->correction2);
  for (uint64_t i = first; i < last; i += VL) {
    const uint32_t n = last - i < VL ? (uint32_t)(last - i) : VL;
    const vf d = v_load_part(g + i, n, 0) * clip, x = v_load_part(p + i, n, 0);
    const vf mean_before = v_load_part(m + i, n, 0), square_before = v_load_part(v + i, n, 0);
    /* one product in every sum: there is but one way to contract it */
    const vf mean = mean_before + c1 * (d - mean_before), square = square_before + c2 * (d * d - square_before);
    v_store_part(m + i, mean, n);
    v_store_part(v + i, square, n);
    v_store_part(p + i, x - (rate * mean / (v_sqrt(square * root) + eps) + keep * x), n);
  }
}

typedef float vf_half __attribute__((vector_size(VL * 2)));
typedef float vf_half_any __attribute__((vector_size(VL * 2), aligned(4), may_alias));
typedef double vd __attribute__((vector_size(VL * 4)));
#define SUM_CHAINS 8u

/* Sum of squares of elements [first, last), in double: SUM_CHAINS chains of vectors, then a fixed tree. */
LOCAL double train_sum_squares(const float *x, uint64_t first, uint64_t last) {
  const uint32_t half = VL / 2;
  vd s[SUM_CHAINS] = {{0}};
  uint64_t i = first;
  for (; last - i >= SUM_CHAINS * half; i += SUM_CHAINS * half)
    UNROLL for (uint32_t k = 0; k < SUM_CHAINS; k++) {
      const vd t = __builtin_convertvector((vf_half) * (const vf_half_any *)(x + i + k * half), vd);
      s[k] += t * t;
    }
  UNROLL for (uint32_t step = SUM_CHAINS / 2; step > 0; step /= 2)
    UNROLL for (uint32_t k = 0; k < step; k++) s[k] += s[k + step];
  double sum = 0;
  for (uint32_t k = 0; k < half; k++) sum += s[0][k];
  for (; i < last; i++) sum += (double)x[i] * (double)x[i];
  return sum;
}

#endif
