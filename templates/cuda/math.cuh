/* math.cuh - functions of a column, by the accurate ones of the toolkit. */
#if !defined(TAPER_CUDA_PRELUDE)
#include "templates/cuda/prelude.cuh"
#endif
#if !defined(TAPER_CUDA_MATH)
#define TAPER_CUDA_MATH

INLINE vf v_exp(vf x) { return expf(x); }
INLINE vf v_tanh(vf x) { return tanhf(x); }
INLINE vf v_sqrt(vf x) { return sqrtf(x); }
INLINE vf v_sigmoid(vf x) { return 1.0f / (1.0f + expf(-x)); }
INLINE vf v_silu(vf x) { return x / (1.0f + expf(-x)); }
INLINE vf v_relu(vf x) { return x < 0.0f ? 0.0f : x; }
INLINE vf v_softcap(vf x, float cap) { return cap * tanhf(x / cap); }
/* x Phi(x); the small side of Phi is computed directly, so that nothing cancels. */
INLINE vf v_gelu(vf x) { return x * (0.5f * erfcf(x * -0.70710678118654752f)); }
/* 0.5 x (1 + tanh u) = x sigmoid(2 u), u = sqrt(2 / pi) (x + 0.044715 x^3) */
INLINE vf v_gelu_tanh(vf x) {
  const float u = 0.79788456080286536f * (x + 0.044715f * x * x * x);
  return x * v_sigmoid(u + u);
}

#endif
