/* kernels.c - compiled once for each instruction set (KERNELS: the name of the table), as the compiler compiles an image. */
#include "tests/unit/train/kernels.h"

#include "templates/cpu/train/attention.h"
#include "templates/cpu/train/gemm.h"
#include "templates/cpu/train/optimizer.h"
#include "templates/cpu/train/rows.h"

static uint64_t packed_floats(uint32_t n, uint32_t k) { return gemm_packed_floats(n, k); }
static uint32_t panels(uint32_t n) { return gemm_panels(n); }
static void elementwise(uint32_t which, float *dx, const float *x, const float *dy, uint32_t n, float cap) {
  for (uint32_t i = 0; i < n; i += VL) {
    const vf a = v_load_part(x + i, n - i, 1), b = v_load_part(dy + i, n - i, 0);
    const vf all[BACK_COUNT] = {v_gelu_back(a, b), v_gelu_tanh_back(a, b),   v_silu_back(a, b),
                                v_relu_back(a, b), v_sigmoid_back(a, b),     v_tanh_back(a, b),
                                v_sqrt_back(a, b), v_softcap_back(a, b, cap)};
    v_store_part(dx + i, all[which], n - i);
  }
}
static uint64_t attention_floats(const train_attention *a, uint32_t time, bool back) {
  return back ? ATTENTION_BACK_FIXED(a->key_dim, a->value_dim, a->cap) +
                    (uint64_t)ATTENTION_BACK_PER_TIME(a->key_dim, a->value_dim, a->cap) * time
              : ATTENTION_FIXED(a->key_dim, a->value_dim) +
                    (uint64_t)ATTENTION_PER_TIME(a->key_dim, a->value_dim) * time;
}
static void attention(const taper_train_ctx *c, const train_attention *a, float *y, uint32_t ldy, const float *q,
                      uint32_t ldq, const float *k, uint32_t ldk, const float *v, uint32_t ldv, const float *dy,
                      uint32_t lddy, float *d, uint32_t ldd) {
  const attention_shape h = {a->group, a->kv_heads, a->key_dim, a->value_dim, a->window, a->scale, a->cap};
  attention_any(c, &h, y, ldy, q, ldq, k, ldk, v, ldv, dy, lddy, d, ldd);
}
static float multiply_adds(uint64_t turns) {
  const vf a = v_splat(0.5f), b = v_splat(1e-9f);
  vf s[10]; /* what the registers of any set hold, and more than the latency */
  UNROLL for (uint32_t i = 0; i < 10; i++) s[i] = v_splat((float)i);
  for (uint64_t t = 0; t < turns; t++) UNROLL for (uint32_t i = 0; i < 10; i++) s[i] = s[i] * a + b;
  vf sum = {0};
  UNROLL for (uint32_t i = 0; i < 10; i++) sum += s[i];
  return sum_lanes(sum);
}

const train_kernels KERNELS = {
    .name = KERNELS_NAME,
    .vl = VL,
    .gemm_scratch = GEMM_WEIGHT_SCRATCH,
    .packed_floats = packed_floats,
    .panels = panels,
    .pack = gemm_pack,
    .rows = gemm_rows,
    .weight = gemm_weight,
    .generic = gemm_generic,
    .elementwise = elementwise,
    .row_rms = row_rms,
    .row_std = row_std,
    .row_l2 = row_l2,
    .row_dot = row_dot,
    .row_rms_back = row_rms_back,
    .row_std_back = row_std_back,
    .add_row = add_row,
    .rms_norm_back = rms_norm_back,
    .layer_norm_back = layer_norm_back,
    .taper_rms_norm_back = taper_rms_norm_back,
    .taper_layer_norm_back = taper_layer_norm_back,
    .rope = rope,
    .rope_back = rope_back,
    .log_positive = log_positive,
    .cross_entropy = cross_entropy,
    .cross_entropy_both = cross_entropy_both,
    .kl = kl,
    .top_gap = top_gap,
    .attention_floats = attention_floats,
    .attention = attention,
    .adamw = adamw,
    .sum_squares = train_sum_squares,
    .multiply_adds = multiply_adds,
};
