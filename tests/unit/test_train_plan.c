/* test_train_plan.c - programs of training, compiled, against their evaluation in double precision. */
#include "train_run.h"

/* Every call shape: windows and time that fill no block, chunks below the rows, padding, several workers, accumulation. */
static void check_shapes(const ir_module *m, const char *arch, uint32_t vocab, uint32_t context, diag_sink *sink) {
  static const struct {
    uint32_t batch, time, block, chunk;
    bool accumulate;
  } shapes[] = {{1, 1, 16, 16, false}, {3, 9, 16, 16, false}, {5, 8, 16, 32, true}, {2, 9, 32, 32, false}};
  train_image_run r = train_load(m, arch, NULL, sink);
  for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
    uint32_t time = shapes[s].time < context ? shapes[s].time : context, rows = shapes[s].batch * time;
    int32_t token[64], target[64];
    for (uint32_t i = 0; i < rows; i++) {
      uint32_t x[4];
      philox4x32(7 + s, PHILOX_CHECK, 1, i, 0, x);
      token[i] = (int32_t)(x[0] % vocab), target[i] = x[1] % 5 ? (int32_t)(x[2] % vocab) : -1;
    }
    for (uint32_t workers = 1; workers <= 3; workers += 2) {
      train_case t = {shapes[s].batch, time,  shapes[s].block, shapes[s].chunk,
                      workers,         token, target,          shapes[s].accumulate};
      train_check(&r, m, &t);
    }
  }
  train_unload(&r);
}

static void test_file(void **state) {
  (void)state;
  const char *path = getenv("TRAIN_TIR");
  if (!path) skip();
  char *source = NULL;
  size_t size = 0;
  taper_error error = {0};
  if (file_read(path, 1 << 24, &source, &size, &error) != TAPER_OK) fail_msg("%s", error.message);
  diag_sink *sink = diag_sink_new();
  ir_module *m = run_model(source, NULL, 0, NULL, 0, 5, sink);
  double vocab = 0, context = 0;
  ir_module_param(m, "vocab", &vocab), ir_module_param(m, "context", &context);
  check_shapes(m, "native", (uint32_t)vocab, (uint32_t)context, sink);
  ir_module_free(m);
  diag_sink_free(sink);
  free(source);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_file)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
