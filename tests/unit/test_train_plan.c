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

typedef struct model_case {
  const char *file;
  front_define defines[8];
  size_t count;
  uint32_t vocab, context;
} model_case;

/* Widths that fill no vector, one head, one layer. */
static const model_case models[] = {
    {"examples/tinystories.tmodel",
     {{"d", 20}, {"layers", 2}, {"heads", 2}, {"ff", 44}, {"vocab", 257}, {"context", 9}},
     6,
     257,
     9},
    {"examples/gpt2.tmodel", {{"d", 12}, {"layers", 1}, {"heads", 1}, {"vocab", 21}, {"context", 9}}, 5, 21, 9},
    {"examples/neox.tmodel", {{"d", 48}, {"layers", 2}, {"heads", 3}, {"vocab", 33}, {"context", 9}}, 5, 33, 9},
    {"examples/qwen3.tmodel",
     {{"d", 24},
      {"layers", 1},
      {"heads", 4},
      {"kv_heads", 2},
      {"head_dim", 10},
      {"ff", 40},
      {"vocab", 50},
      {"context", 9}},
     8,
     50,
     9},
    {"examples/mlp.tmodel", {{"d", 18}, {"layers", 2}, {"vocab", 29}, {"context", 9}}, 4, 29, 9},
};

/* What the examples lack: products head by head, of parts of rows; slices, windows, caps; arithmetic on parameters. */
static const char odd[] =
    "model odd(vocab = 31, d = 20, heads = 2, context = 9) {\n"
    "  gate internal;\n"
    "  param wte: [vocab, d];\n"
    "  param s: [d] init ones;\n"
    "  param a: [1] init ones;\n"
    "  param w: [d, d];\n"
    "  forward(tokens) {\n"
    "    let x = embed(tokens, wte) * a;\n"
    "    let h = taper_rms_norm(x, name = \"n1\", gate = internal);\n"
    "    let q = split_heads(linear(h, d, name = \"q\"), heads);\n"
    "    let qn = linear(q, 6, name = \"hq\");\n"
    "    let kn = linear(rms_norm(q, name = \"qn\"), 6, name = \"hk\");\n"
    "    let v = slice(q, start = 2, size = 5);\n"
    "    let y = merge_heads(attention(qn, kn, v, causal = true, softcap = 3, window = 4));\n"
    "    let z = concat(y, slice(h, start = 3, size = 10));\n"
    "    let u = x + scale(z, name = \"sc\") + scale(sigmoid(x), weight = s) * exp(a * 0.1) - x * sqrt(a * a) / 3;\n"
    "    let t = linear(center(u), weight = w);\n"
    "    return softcap(linear(t / sqrt(x * x + 1), weight = wte), cap = 30);\n"
    "  }\n"
    "}\n";

static void test_odd(void **state) {
  (void)state;
  static const double gates[] = {1, 0, 0.3};
  for (size_t i = 0; i < 3; i++) {
    char source[sizeof odd];
    memcpy(source, odd, sizeof odd);
    diag_sink *sink = diag_sink_new();
    ir_module *m = train_model(source, NULL, 0, 0.1, gates[i], 5, sink);
    check_shapes(m, "native", 31, 9, sink);
    ir_module_free(m);
    diag_sink_free(sink);
  }
}

static void check_model(const model_case *c, double gate, const char *arch) {
  char *source = NULL;
  size_t size = 0;
  if (file_read(c->file, 1 << 24, &source, &size, NULL) != TAPER_OK) fail_msg("%s cannot be read", c->file);
  diag_sink *sink = diag_sink_new();
  ir_module *m = train_model(source, c->defines, c->count, 0.1, gate, 5, sink);
  check_shapes(m, arch, c->vocab, c->context, sink);
  ir_module_free(m);
  diag_sink_free(sink);
  free(source);
}

static void test_models(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof models / sizeof *models; i++) check_model(&models[i], 0.3, "native");
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
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_odd), cmocka_unit_test(test_models),
                                     cmocka_unit_test(test_file)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
