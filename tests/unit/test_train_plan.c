/* test_train_plan.c - programs of training, compiled, against their evaluation in double precision. */
#include "train_run.h"

#include "tests/unit/grad_graphs.h"

/* Every call shape: windows and time that fill no block, chunks below the rows, padding, several workers, accumulation. */
static void check_shapes(const ir_module *m, const char *arch, const char *cc, uint32_t vocab, uint32_t context,
                         diag_sink *sink) {
  static const struct {
    uint32_t batch, time, block, chunk;
    bool accumulate;
  } shapes[] = {{1, 1, 16, 16, false}, {3, 9, 16, 16, false}, {5, 8, 16, 32, true}, {2, 9, 32, 32, false}};
  train_image_run r = train_load(m, arch, cc, sink);
  for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
    uint32_t time = shapes[s].time < context ? shapes[s].time : context, rows = shapes[s].batch * time;
    int32_t token[64], target[64];
    for (uint32_t i = 0; i < rows; i++) {
      uint32_t x[4];
      philox4x32(7 + s, PHILOX_CHECK, 1, i, 0, x);
      token[i] = (int32_t)(x[0] % vocab), target[i] = x[1] % 5 ? (int32_t)(x[2] % vocab) : -1;
    }
    uint64_t bits[4] = {0};
    for (uint32_t workers = 1; workers <= 3; workers++) {
      train_case t = {shapes[s].batch, time,  shapes[s].block, shapes[s].chunk,
                      workers,         token, target,          shapes[s].accumulate};
      bits[workers] = workers == 2 ? train_run_all(&r, &t) : train_check(&r, m, &t);
      assert_int_equal(bits[workers], bits[1]); /* no result depends on the number of workers */
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
    check_shapes(m, "native", NULL, 31, 9, sink);
    ir_module_free(m);
    diag_sink_free(sink);
  }
}

/* ---- graphs of every gradient rule, any ops in any order, whole random models ---- */
static void check_graph(ir_module *m, uint64_t seed) {
  static const double gates[] = {1, 0.3, 0};
  diag_sink *sink = diag_sink_new();
  train_passes(m, 0.25, sink);
  train_bind(m, gates[seed % 3], seed);
  check_shapes(m, "native", "tests/unit/train/cc-quick.sh", 11, 7, sink);
  ir_module_free(m);
  diag_sink_free(sink);
}

static bool is_global_name(const char *name, size_t n) {
  static const char *const names[] = {"wte", "w",   "v",  "b", "m", "up",  "ub",  "down",   "a",
                                      "n3",  "wpe", "k4", "c", "g", "two", "row", "tokens", "pos"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (strlen(names[i]) == n && strncmp(names[i], name, n) == 0) return true;
  return false;
}

/* The body with names of its own, from %in to %out. */
static void put_body(const char *body, size_t number, text *out) {
  while (*body) {
    size_t n = *body == '%' ? 1 + strspn(body + 1, "abcdefghijklmnopqrstuvwxyz0123456789") : 0;
    if (n < 2 || is_global_name(body + 1, n - 1)) {
      text_put(out, body, n ? n : 1);
      body += n ? n : 1;
      continue;
    }
    text_printf(out, "%%k%zu_%.*s", number, (int)n - 1, body + 1);
    body += n;
  }
}

/* Several rules one behind another, each on what the one before made, tamed. */
static void test_rules(void **state) {
  (void)state;
  const size_t count = sizeof rules / sizeof *rules, some = 9;
  for (size_t first = 0; first < (getenv("TAPERC_QUICK") ? some : count); first += some) {
    text t = {0};
    const char *before = "x";
    char name[32];
    for (size_t i = first; i < first + some && i < count; i++) {
      text_printf(&t, "%%k%zu_x = tanh %%%s : f32[B,T,6]\n", i, before);
      put_body(rules[i].body, i, &t);
      snprintf(name, sizeof name, "k%zu_y", i);
      before = name;
    }
    text_printf(&t, "%%y = tanh %%%s : f32[B,T,6]\n", before);
    ir_module *m = module_of(t.data);
    text_free(&t);
    check_graph(m, first / some);
  }
}

static void test_soups(void **state) {
  (void)state;
  const uint64_t seeds = getenv("TAPERC_QUICK") ? 1 : getenv("TAPERC_LONG") ? 12 : 4;
  for (uint64_t seed = 1; seed <= seeds; seed++) check_graph(soup_make(seed), seed);
}

static void test_random_graphs(void **state) {
  (void)state;
  const uint64_t seeds = getenv("TAPERC_QUICK") ? 1 : getenv("TAPERC_LONG") ? 6 : 3;
  for (uint64_t seed = 1; seed <= seeds; seed++) {
    graph_options o = {.seed = seed, .layer_form = seed & 1, .tied = seed & 2, .probes = seed & 4, .train = true};
    ir_module *m = graph_make(o);
    ir_module_set_param(m, "context", 7);
    check_graph(m, seed);
  }
}

static void check_model(const model_case *c, double gate, const char *arch, const char *cc) {
  char *source = NULL;
  size_t size = 0;
  if (file_read(c->file, 1 << 24, &source, &size, NULL) != TAPER_OK) fail_msg("%s cannot be read", c->file);
  diag_sink *sink = diag_sink_new();
  ir_module *m = train_model(source, c->defines, c->count, 0.1, gate, 5, sink);
  check_shapes(m, arch, cc, c->vocab, c->context, sink);
  ir_module_free(m);
  diag_sink_free(sink);
  free(source);
}

static void test_models(void **state) {
  (void)state;
  const size_t count = getenv("TAPERC_QUICK") ? 1 : sizeof models / sizeof *models;
  for (size_t i = 0; i < count; i++) check_model(&models[i], 0.3, "native", NULL);
}

/* Every level and compiler. */
static void test_machines(void **state) {
  (void)state;
  static const char *const archs[] = {"x86-64", "x86-64-v3", "x86-64-v4"}, *const compilers[] = {"gcc", "clang"};
  for (size_t i = 0; i < 3 && !getenv("TAPERC_QUICK"); i++)
    for (size_t j = 0; j < 2; j++)
      if (i < 2 || __builtin_cpu_supports("avx512f")) check_model(&models[i], 0.3, archs[i], compilers[j]);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_rules), cmocka_unit_test(test_soups),  cmocka_unit_test(test_random_graphs),
      cmocka_unit_test(test_odd),   cmocka_unit_test(test_models), cmocka_unit_test(test_machines),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
