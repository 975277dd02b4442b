/* kernels.h - the kernels of templates/cpu/train, as one build for one instruction set exports them to the test. */
#ifndef TESTS_UNIT_TRAIN_KERNELS_H
#define TESTS_UNIT_TRAIN_KERNELS_H

#include "runtime/abi/train_abi.h"

#include <stdbool.h>
#include <stdint.h>

/* As templates/cpu/train/attention.h has it. */
typedef struct train_attention {
  uint32_t group, kv_heads, key_dim, value_dim, window;
  float scale, cap;
} train_attention;

typedef struct train_kernels {
  const char *name;
  uint32_t vl;
  uint64_t gemm_scratch;
  uint64_t (*packed_floats)(uint32_t n, uint32_t k);
  uint32_t (*panels)(uint32_t n);
  void (*pack)(float *dst, const float *weight, uint32_t n, uint32_t k, int back, uint32_t first, uint32_t last);
  void (*rows)(const taper_train_ctx *c, float *y, uint32_t ldy, const float *x, uint32_t ldx, uint32_t rows,
               uint32_t n, uint32_t k, const float *packed, const float *weight, int back, int accumulate,
               const float *bias);
  void (*weight)(const taper_train_ctx *c, float *dw, const float *dy, uint32_t lddy, const float *x, uint32_t ldx,
                 uint32_t rows, uint32_t out, uint32_t in, int accumulate, float *scratch, uint32_t worker,
                 uint32_t workers);
  void (*generic)(uint32_t form, uint32_t m, uint32_t n, uint32_t k, const float *a, uint32_t lda, const float *b,
                  uint32_t ldb, float *c, uint32_t ldc, int accumulate, float *scratch);
  /* rows.h; elementwise: y[i] = f(x[i], dy[i]) */
  void (*elementwise)(uint32_t which, float *dx, const float *x, const float *dy, uint32_t n, float cap);
  float (*row_rms)(const float *x, uint32_t n, float eps);
  float (*row_std)(const float *x, uint32_t n, float eps);
  float (*row_l2)(const float *x, uint32_t n);
  float (*row_dot)(const float *x, const float *y, uint32_t n);
  void (*row_rms_back)(float *dx, const float *x, float ds, uint32_t n, float eps);
  void (*row_std_back)(float *dx, const float *x, float ds, uint32_t n, float eps);
  void (*add_row)(float *partial, const float *x, uint32_t n);
  void (*rms_norm_back)(float *dx, const float *x, const float *w, const float *dy, uint32_t n, float eps);
  void (*layer_norm_back)(float *dx, const float *x, const float *w, const float *dy, uint32_t n, float eps);
  void (*taper_rms_norm_back)(float *dx, const float *x, const float *w, const float *tw, const float *tc, float g,
                              const float *dy, uint32_t n, float eps);
  void (*taper_layer_norm_back)(float *dx, const float *x, const float *w, const float *tw, const float *tc, float g,
                                const float *dy, uint32_t n, float eps);
  void (*rope)(float *y, const float *x, uint32_t n, uint32_t dims, int interleaved, const float *cs);
  void (*rope_back)(float *dx, const float *dy, uint32_t n, uint32_t dims, int interleaved, const float *cs);
  double (*log_positive)(double x);
  float (*cross_entropy)(const float *logits, uint32_t n, int32_t target);
  float (*cross_entropy_both)(float *dlogits, const float *logits, uint32_t n, int32_t target, float drow);
  float (*kl)(const float *base, const float *other, uint32_t n);
  float (*top_gap)(const float *x, uint32_t n);
  uint64_t (*attention_floats)(const train_attention *a, uint32_t time, bool back);
  void (*attention)(const taper_train_ctx *c, const train_attention *a, float *y, uint32_t ldy, const float *q,
                    uint32_t ldq, const float *k, uint32_t ldk, const float *v, uint32_t ldv, const float *dy,
                    uint32_t lddy, float *d, uint32_t ldd);
  void (*adamw)(float *p, const float *g, float *m, float *v, uint64_t first, uint64_t last,
                const taper_train_adamw *a);
  double (*sum_squares)(const float *x, uint64_t first, uint64_t last);
  float (*multiply_adds)(uint64_t turns); /* 10 * vl * turns of them, in registers */
} train_kernels;

/* Of `elementwise`. */
enum { BACK_GELU, BACK_GELU_TANH, BACK_SILU, BACK_RELU, BACK_SIGMOID, BACK_TANH, BACK_SQRT, BACK_SOFTCAP, BACK_COUNT };

extern const train_kernels train_kernels_v2, train_kernels_v3, train_kernels_v4;

#endif
