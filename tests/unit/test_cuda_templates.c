/* Each CUDA template is a source that compiles alone, as it stands with the parameters that serve it alone, without a warning. */
#include "tests/unit/cuda_run.h"

static const char *const headers[] = {
    "runtime/abi/cuda_abi.h",  "templates/cuda/prelude.cuh", "templates/cuda/math.cuh", "templates/cuda/dot.cuh",
    "templates/cuda/axis.cuh", "templates/cuda/team.cuh",    "templates/cuda/gemm.cuh", "templates/cuda/sample.cuh"};

static void compile(const char *name, const char *source, const char *arch) {
  nvrtc_request request = {.source = source, .name = name, .arch = arch};
  nvrtc_result image = {0};
  taper_error error = {0};
  if (nvrtc_compile(&request, &image, &error) != TAPER_OK) fail_msg("%s for %s: %s", name, arch, error.message);
  if (strstr(image.log, "warning")) fail_msg("%s for %s: %s", name, arch, image.log);
  nvrtc_free(&image);
}

static void templates_compile_alone(void **state) {
  (void)state;
  if (!run_has_compiler()) return;
  size_t found = 0, known = 0;
  for (const struct embedded_file *f = embedded_files; f->name; f++) {
    const char *end = strrchr(f->name, '.');
    known += end && strcmp(end, ".cuh") == 0;
    if (!end || strcmp(end, ".cu") != 0) continue;
    text source = {0};
    for (size_t i = 0; i < sizeof headers / sizeof *headers; i++) run_put_header(headers[i], &source);
    run_put_template(f->text, &source);
    compile(f->name, source.data, "sm_80");
    compile(f->name, source.data, "compute_90");
    text_free(&source);
    found++;
  }
  assert_in_range(found, 9, 99);
  assert_int_equal(known + 1, sizeof headers / sizeof *headers); /* and no header is forgotten here */
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(templates_compile_alone)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
