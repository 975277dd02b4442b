/* test_cuda_plan.c - packages for CUDA, executed by the simulator, against the reference evaluation: every kind of model, at several levels and types.
   Up to 8 rows the bits of a row do not depend on what is computed beside it. */
#include "tests/unit/cuda_plan_run.h"

static void run_all(const pass_options *o, const char *what, size_t first, size_t step) {
  if (!has_nvrtc()) skip();
  if (getenv("TAPERC_QUICK")) step *= 3; /* each case waits for NVRTC */
  for (size_t i = first; i < sizeof cases / sizeof *cases; i += step) {
    check c;
    if (strcmp(cases[i].label, "odd probe") == 0) continue; /* the runtime has probes as wide as the stream only */
    open_case(&c, &cases[i], 11 + i);
    reference_of(&c, o);
    run_case(&c, o, what);
    close_case(&c);
  }
}

static void test_o2(void **state) {
  (void)state;
  run_all(&(pass_options){.level = 2}, "-O2", 0, 2);
}
static void test_kernel_norms(void **state) {
  (void)state;
  run_all(&(pass_options){.level = 2, .norms = NORMS_KERNEL}, "-O2 --norms=kernel", 0, 9);
}
static void test_o0(void **state) {
  (void)state;
  run_all(&(pass_options){.level = 0}, "-O0", 9, 5);
}
static void test_explicit(void **state) {
  (void)state;
  run_all(&(pass_options){.level = 2, .fold = FOLD_EXPLICIT}, "--fold=explicit", 1, 16);
}
static void test_bf16(void **state) {
  (void)state;
  run_all(&(pass_options){.level = 2, .dtype = IR_BF16}, "--dtype=bf16", 1, 8);
}
static void test_f16(void **state) {
  (void)state;
  run_all(&(pass_options){.level = 2, .dtype = IR_F16}, "--dtype=f16", 3, 7);
}

int main(int argc, char **argv) {
  (void)argc;
  name_simulator(argv[0]);
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_o2),   cmocka_unit_test(test_kernel_norms),
                                     cmocka_unit_test(test_o0),   cmocka_unit_test(test_explicit),
                                     cmocka_unit_test(test_bf16), cmocka_unit_test(test_f16)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
