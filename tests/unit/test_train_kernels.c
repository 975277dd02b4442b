/* test_train_kernels.c - the kernels of training, for every instruction set that runs here, against loops in fp64 on nasty shapes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "tests/unit/train/kernels.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))

static const train_kernels *const builds[] = {&train_kernels_v2, &train_kernels_v3, &train_kernels_v4};

static bool runs_here(const train_kernels *k) {
#if defined(__x86_64__)
  if (k->vl == 8) return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (k->vl == 16) return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl");
#endif
  return k->vl == 4;
}

/* ---- numbers ---- */
static uint32_t random_state = 1;
static float some(void) { /* in [-1, 1) */
  random_state = random_state * 1664525u + 1013904223u;
  return (float)(random_state >> 8) / 8388608.0f - 1;
}
/* n floats exactly: the sanitizer sees a step outside. */
static float *some_floats(size_t n) {
  float *p = malloc((n ? n : 1) * sizeof *p);
  for (size_t i = 0; i < n; i++) p[i] = some();
  return p;
}
static float *copy_of(const float *x, size_t n) {
  float *p = malloc((n ? n : 1) * sizeof *p);
  return memcpy(p, x, n * sizeof *p);
}
static float *scratch_of(uint64_t floats) { return aligned_alloc(64, (floats * 4 + 63) / 64 * 64); }

/* ---- products ---- */
typedef struct product {
  uint32_t m, n, k, lda, ldb, ldc, form;
  int accumulate;
  const float *bias;
} product;

static double element_a(const product *p, const float *a, uint32_t i, uint32_t k) {
  return (double)(p->form == TAPER_GEMM_TN ? a[k * p->lda + i] : a[i * p->lda + k]);
}
static double element_b(const product *p, const float *b, uint32_t k, uint32_t j) {
  return (double)(p->form == TAPER_GEMM_NT ? b[j * p->ldb + k] : b[k * p->ldb + j]);
}
/* c is what the kernel made of `before`; columns beyond n are as they were. */
static void check_product(const product *p, const float *a, const float *b, const float *before, const float *c) {
  for (uint32_t i = 0; i < p->m; i++) {
    for (uint32_t j = 0; j < p->n; j++) {
      double sum = p->accumulate ? (double)before[i * p->ldc + j] : 0, size = fabs(sum);
      if (p->bias) sum += (double)p->bias[j], size += fabs((double)p->bias[j]);
      for (uint32_t k = 0; k < p->k; k++) {
        double t = element_a(p, a, i, k) * element_b(p, b, k, j);
        sum += t, size += fabs(t);
      }
      double got = (double)c[i * p->ldc + j];
      if (!(fabs(got - sum) <= 1e-6 * size + 1e-30))
        fail_msg("form %u, %u x %u x %u at %u %u: %.9g, want %.9g", p->form, p->m, p->n, p->k, i, j, got, sum);
    }
    if (i + 1 < p->m)
      for (uint32_t j = p->n; j < p->ldc; j++) assert_true(c[i * p->ldc + j] == before[i * p->ldc + j]);
  }
}

static const train_kernels *library;
static float *library_scratch;
static uint32_t library_calls;
static void library_gemm(uint32_t form, uint32_t m, uint32_t n, uint32_t k, const float *a, uint32_t lda,
                         const float *b, uint32_t ldb, float *c, uint32_t ldc, int accumulate) {
  library_calls++;
  library->generic(form, m, n, k, a, lda, b, ldb, c, ldc, accumulate, library_scratch);
}

static void one_rows(const train_kernels *t, uint32_t m, uint32_t n, uint32_t k, int variant) {
  int back = variant & 1;
  product p = {m,
               n,
               k,
               k + (variant & 2 ? 5 : 0),
               back ? n : k,
               n + (variant & 2 ? 3 : 0),
               back ? TAPER_GEMM_NN : TAPER_GEMM_NT,
               variant >> 2 & 1,
               NULL};
  float *x = some_floats((size_t)(m - 1) * p.lda + k), *w = some_floats((size_t)n * k), *bias = some_floats(n),
        *before = some_floats((size_t)(m - 1) * p.ldc + n), *y = copy_of(before, (size_t)(m - 1) * p.ldc + n),
        *packed = scratch_of(t->packed_floats(n, k));
  if (variant & 8) p.bias = bias;
  uint32_t panels = t->panels(n), half = panels / 2;
  t->pack(packed, w, n, k, back, half, panels); /* in parts: every panel for itself */
  t->pack(packed, w, n, k, back, 0, half);
  taper_train_ctx c = {0};
  t->rows(&c, y, p.ldc, x, p.lda, m, n, k, packed, w, back, p.accumulate, p.bias);
  check_product(&p, x, w, before, y);
  if (m > 1) { /* a row alone: the same bits */
    float *alone = copy_of(before + (size_t)(m - 1) * p.ldc, n);
    t->rows(&c, alone, n, x + (size_t)(m - 1) * p.lda, k, 1, n, k, packed, w, back, p.accumulate, p.bias);
    assert_memory_equal(alone, y + (size_t)(m - 1) * p.ldc, n * sizeof(float));
    free(alone);
  }
  c.gemm = library_gemm, library_calls = 0;
  memcpy(y, before, ((size_t)(m - 1) * p.ldc + n) * sizeof *y);
  t->rows(&c, y, p.ldc, x, p.lda, m, n, k, NULL, w, back, p.accumulate, p.bias);
  assert_true(library_calls == 1);
  check_product(&p, x, w, before, y);
  free(x), free(w), free(bias), free(before), free(y), free(packed);
}

static void one_weight(const train_kernels *t, uint32_t rows, uint32_t out, uint32_t in, int variant) {
  product p = {
      out, in, rows, out + (variant & 1 ? 3 : 0), in + (variant & 1 ? 7 : 0), in, TAPER_GEMM_TN, variant >> 1 & 1,
      NULL};
  float *dy = some_floats((size_t)(rows - 1) * p.lda + out), *x = some_floats((size_t)(rows - 1) * p.ldb + in),
        *before = some_floats((size_t)out * in), *dw = copy_of(before, (size_t)out * in), *first = NULL,
        *scratch = scratch_of(t->gemm_scratch);
  for (uint32_t lib = 0; lib < 2; lib++)
    for (uint32_t workers = 1; workers <= 3; workers++) {
      taper_train_ctx c = {.gemm = lib ? library_gemm : NULL};
      memcpy(dw, before, (size_t)out * in * sizeof *dw);
      for (uint32_t w = 0; w < workers; w++)
        t->weight(&c, dw, dy, p.lda, x, p.ldb, rows, out, in, p.accumulate, scratch, w, workers);
      check_product(&p, dy, x, before, dw);
      if (!first) first = copy_of(dw, (size_t)out * in);
      assert_memory_equal(first, dw, (size_t)out * in * sizeof *dw); /* whoever shares the work */
    }
  free(dy), free(x), free(before), free(dw), free(first), free(scratch);
}

static void one_generic(const train_kernels *t, uint32_t m, uint32_t n, uint32_t k, uint32_t form, int accumulate) {
  product p = {m,    n,          k,   (form == TAPER_GEMM_TN ? m : k) + 1, (form == TAPER_GEMM_NT ? k : n) + 2, n + 3,
               form, accumulate, NULL};
  float *a = some_floats((size_t)(form == TAPER_GEMM_TN ? k : m) * p.lda),
        *b = some_floats((size_t)(form == TAPER_GEMM_NT ? n : k) * p.ldb), *before = some_floats((size_t)m * p.ldc),
        *c = copy_of(before, (size_t)m * p.ldc), *scratch = scratch_of(t->gemm_scratch);
  t->generic(form, m, n, k, a, p.lda, b, p.ldb, c, p.ldc, accumulate, scratch);
  check_product(&p, a, b, before, c);
  free(a), free(b), free(before), free(c), free(scratch);
}

static void each_build(void (*test)(const train_kernels *)) {
  for (size_t i = 0; i < COUNT(builds); i++)
    if (runs_here(builds[i]))
      test(builds[i]);
    else
      print_message("%s does not run here\n", builds[i]->name);
}

static void products(const train_kernels *t) {
  static const uint32_t ms[] = {1, 2, 7, 16, 23}, ns[] = {1, 4, 15, 16, 17, 33, 49, 64, 100, 257},
                        ks[] = {1, 3, 20, 176, 193, 400};
  library = t, library_scratch = scratch_of(t->gemm_scratch);
  int variant = 0;
  for (size_t m = 0; m < COUNT(ms); m++)
    for (size_t n = 0; n < COUNT(ns); n++)
      for (size_t k = 0; k < COUNT(ks); k++, variant++) {
        one_rows(t, ms[m], ns[n], ks[k], variant & 15);
        one_rows(t, ms[m], ns[n], ks[k], (variant * 7 + 3) & 15);
        one_weight(t, ks[k], ns[n], ms[m] * 3, variant & 3);
        one_weight(t, ms[m], ns[n], ks[k], (variant * 5 + 1) & 3);
        for (uint32_t form = 0; form < 3; form++) one_generic(t, ms[m], ns[n], ks[k], form, variant & 1);
      }
  one_generic(t, 401, 390, 5, TAPER_GEMM_TN, 1); /* more than one tile of packed rows and columns */
  free(library_scratch);
}
static void test_products(void **state) {
  (void)state;
  each_build(products);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_products),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
