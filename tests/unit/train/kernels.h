/* kernels.h - the kernels of templates/cpu/train, as one build for one instruction set exports them to the test. */
#ifndef TESTS_UNIT_TRAIN_KERNELS_H
#define TESTS_UNIT_TRAIN_KERNELS_H

#include "runtime/abi/train_abi.h"

#include <stdint.h>

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
} train_kernels;

extern const train_kernels train_kernels_v2, train_kernels_v3, train_kernels_v4;

#endif
