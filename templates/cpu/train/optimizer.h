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
  const vf clip = v_splat(a->clip_scale), b1 = v_splat(a->beta1), b2 = v_splat(a->beta2), c1 = v_splat(1.0f - a->beta1),
           c2 = v_splat(1.0f - a->beta2), eps = v_splat(a->eps), keep = v_splat(a->lr * a->decay),
           rate = v_splat(a->lr / a->correction1), root = v_splat(1.0f / a->correction2);
  for (uint64_t i = first; i < last; i += VL) {
    const uint32_t n = last - i < VL ? (uint32_t)(last - i) : VL;
    const vf d = v_load_part(g + i, n, 0) * clip, x = v_load_part(p + i, n, 0);
    const vf mean = b1 * v_load_part(m + i, n, 0) + c1 * d, square = b2 * v_load_part(v + i, n, 0) + c2 * d * d;
    v_store_part(m + i, mean, n);
    v_store_part(v + i, square, n);
    v_store_part(p + i, x - (rate * mean / (v_sqrt(square * root) + eps) + keep * x), n);
  }
}

/* Sum of squares of elements [first, last), in double: four chains of vectors over blocks of 1024 elements, the blocks in order. */
LOCAL double train_sum_squares(const float *x, uint64_t first, uint64_t last) {
  double sum = 0;
  for (uint64_t i = first; i < last;) {
    const uint64_t end = last - i < 1024 ? last : i + 1024;
    typedef double vd __attribute__((vector_size(VL * 8)));
    vd s[4] = {{0}};
    uint32_t k = 0;
    for (; i < end; i += VL, k = (k + 1) % 4) {
      const vd t = __builtin_convertvector(v_load_part(x + i, end - i < VL ? (uint32_t)(end - i) : VL, 0), vd);
      s[k] += t * t;
    }
    if (i > end) i = end;
    const vd all = (s[0] + s[1]) + (s[2] + s[3]);
    double block = 0;
    for (uint32_t j = 0; j < VL; j++) block += all[j];
    sum += block;
  }
  return sum;
}

#endif
