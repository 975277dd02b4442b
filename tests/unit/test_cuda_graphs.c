/* test_cuda_graphs.c - random graphs (pass_graphs.h) as packages for CUDA, executed by the simulator, against the reference evaluation: all levels and types, gates at 0,
   1 and between. TAPERC_LONG: many. */
#include "tests/unit/cuda_plan_run.h"
#include "tests/unit/pass_graphs.h"

static const struct {
  pass_options options;
  const char *what;
} forms[] = {
    {{.level = 2}, "-O2"},
    {{.level = 2, .dtype = IR_BF16}, "--dtype=bf16"},
    {{.level = 2, .dtype = IR_F16}, "--dtype=f16"},
    {{.level = 0}, "-O0"},
    {{.level = 2, .norms = NORMS_KERNEL}, "--norms=kernel"},
    {{.level = 2, .fold = FOLD_EXPLICIT}, "--fold=explicit"},
    {{.level = 1}, "-O1"},
    {{.level = 2, .norms = NORMS_KERNEL, .dtype = IR_BF16}, "--norms=kernel --dtype=bf16"},
    {{.level = 2, .fold = FOLD_NONE, .dtype = IR_F16}, "--fold=none --dtype=f16"},
};
enum { FORMS = sizeof forms / sizeof *forms };

/* All gates of the graph are as it draws them; what passes do to a bound on rows (norm rules) is not asked here. */
static void run_graph(uint64_t seed) {
  const bool layer_form = seed % 2, tied = seed / 2 % 2, probes = seed / 4 % 2, live = seed / 8 % 2;
  const size_t form = seed % FORMS;
  char label[96];
  snprintf(label, sizeof label, "graph %llu", (unsigned long long)seed);
  const model_case k = {.label = label, .tokens = GRAPH_CONTEXT};
  check c = {.k = &k, .sink = diag_sink_new()};
  c.m = graph_make((graph_options){
      .seed = seed, .layer_form = layer_form, .tied = tied, .probes = probes, .positive = true, .live_inside = live});
  ir_module_set_param(c.m, "vocab", GRAPH_VOCAB);
  ir_module_set_param(c.m, "context", GRAPH_CONTEXT);
  for (uint32_t i = 0; i < k.tokens; i++) c.tokens[i] = (int32_t)((i * 7 + seed) % GRAPH_VOCAB);
  evaluate(&c, false, &c.reference);
  evaluate(&c, true, &c.rounded);
  reference_of(&c, &forms[form].options);
  run_case(&c, &forms[form].options, forms[form].what);
  close_case(&c);
}

static void random_graphs(void **state) {
  (void)state;
  if (!has_nvrtc()) skip();
  const uint64_t count = getenv("TAPERC_LONG") ? 72 : getenv("TAPERC_QUICK") ? 1 : 3;
  const char *one = getenv("TAPERC_SEED");
  for (uint64_t seed = 0; seed < count && !one; seed++) run_graph(seed);
  if (one) run_graph(strtoull(one, NULL, 10));
}

int main(int argc, char **argv) {
  (void)argc;
  name_simulator(argv[0]);
  const struct CMUnitTest tests[] = {cmocka_unit_test(random_graphs)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
