/* harness.h - what the tests of training kernels share: builds that run here, numbers. Include it behind cmocka.h. */
#ifndef TESTS_UNIT_TRAIN_HARNESS_H
#define TESTS_UNIT_TRAIN_HARNESS_H

#include "tests/unit/train/kernels.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))

static const train_kernels *const builds[] = {&train_kernels_v2, &train_kernels_v3, &train_kernels_v4};

static inline bool runs_here(const train_kernels *k) {
#if defined(__x86_64__)
  if (k->vl == 8) return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (k->vl == 16) return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl");
#endif
  return k->vl == 4;
}

/* ---- numbers ---- */
static uint32_t random_state = 1;
static inline float some(void) { /* in [-1, 1) */
  random_state = random_state * 1664525u + 1013904223u;
  return (float)(random_state >> 8) / 8388608.0f - 1;
}
/* n floats exactly: the sanitizer sees a step outside. */
static inline float *some_floats(size_t n) {
  float *p = malloc((n ? n : 1) * sizeof *p);
  for (size_t i = 0; i < n; i++) p[i] = some();
  return p;
}
static inline float *copy_of(const float *x, size_t n) {
  float *p = malloc((n ? n : 1) * sizeof *p);
  return memcpy(p, x, n * sizeof *p);
}
static inline float *scratch_of(uint64_t floats) { return aligned_alloc(64, (floats * 4 + 63) / 64 * 64); }

static inline void each_build(void (*test)(const train_kernels *)) {
  for (size_t i = 0; i < COUNT(builds); i++)
    if (runs_here(builds[i]))
      test(builds[i]);
    else
      print_message("%s does not run here\n", builds[i]->name);
}

#define ON_EACH_BUILD(test)                                                                                            \
  static void test_##test(void **state) {                                                                              \
    (void)state;                                                                                                       \
    each_build(test);                                                                                                  \
  }
#endif
