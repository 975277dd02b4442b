/* test_autodiff.c - every gradient rule, whole models and random graphs against differences of the loss in fp64; what the
   programs of training compute beside gradients. */
#include "compiler/analysis/train.h"
#include "compiler/front/front.h"
#include "runtime/base/file.h"
#include "tests/unit/grad_check.h"
#include "tests/unit/grad_graphs.h"

/* ---- one rule at a time ---- */
static void test_rules(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
    ir_module *m = module_of(rules[i].body);
    grad_check_programs(m, i + 1, rules[i].name, 1);
    size_t moved = grad_check(m, "train_warm", 2, 5, i, rules[i].name);
    if (moved != rules[i].moved)
      fail_msg("%s: %zu parameters have a gradient, expected %zu", rules[i].name, moved, rules[i].moved);
    ir_module_free(m);
  }
}

static void test_soups(void **state) {
  (void)state;
  const uint64_t seeds = getenv("TAPERC_QUICK") ? 10 : 60;
  for (uint64_t seed = 1; seed <= seeds; seed++) {
    ir_module *m = soup_make(seed);
    grad_check_programs(m, seed, "a soup", 0);
    ir_module_free(m);
  }
}

/* Each op that a .tmodel can call has a rule: no diagnostic, whatever the model. */
static void test_every_callable_op_has_a_rule(void **state) {
  (void)state;
  static const char *const rule_of[] = {
#define OP(id, text, operands, attrs, flags, infer, eval, grad) [IR_##id] = #grad,
#include "compiler/ir/op.def"
#undef OP
  };
  for (unsigned op = 1; op < IR_OP_COUNT; op++) {
    if (ir_op_has((ir_opcode)op, OPF_INTERNAL) || op == IR_POSITIONS) continue;
    if (strncmp(rule_of[op], "grad_", 5) != 0) fail_msg("'%s' has no gradient rule", ir_op_name((ir_opcode)op));
  }
}

static void test_no_rule_is_said(void **state) {
  (void)state;
  ir_module *m = module_of("%s = row_mean %x : f32[B,T,1] \"middle\"\n%y = row_shift %x, %s : f32[B,T,6]\n");
  diag_sink *sink = diag_sink_new();
  pass_options options = {.level = 2};
  assert_true(graph_pass(m, sink, "train-programs", &options));
  assert_false(graph_pass(m, sink, "autodiff", &options));
  assert_non_null(strstr(diag_at(sink, diag_count(sink) - 1)->message, "row_mean 'middle' has no gradient rule"));
  diag_sink_free(sink);
  ir_module_free(m);
}

/* ---- whole models ---- */
static ir_module *model_of(const char *path, const front_define *defines, size_t n) {
  char *source;
  size_t size;
  taper_error error = {0};
  assert_int_equal(file_read(path, 1 << 20, &source, &size, &error), TAPER_OK);
  char *train = strstr(source, "\ntrain {"); /* its vocabulary is not the test's */
  if (train) size = (size_t)(train - source) + 1;
  diag_sink *sink = diag_sink_new();
  front_options options = {.defines = defines, .define_count = n, .train = true};
  front_model *f = front_parse(source, size, path, &options, sink);
  ir_module *m = f ? front_lower(f, &options, sink) : NULL;
  diag_render(sink, stderr, &(diag_render_options){0});
  assert_non_null(m);
  front_free(f);
  diag_sink_free(sink);
  free(source);
  return m;
}

static void test_models(void **state) {
  (void)state;
  static const struct {
    const char *path;
    front_define defines[8];
    size_t n;
  } models[] = {
      {"examples/tinystories.tmodel",
       {{"vocab", 11}, {"d", 6}, {"layers", 2}, {"heads", 1}, {"ff", 5}, {"context", 7}},
       6},
      {"examples/gpt2.tmodel", {{"vocab", 11}, {"d", 6}, {"layers", 1}, {"heads", 3}, {"ff", 7}, {"context", 7}}, 6},
      {"examples/neox.tmodel", {{"vocab", 11}, {"d", 16}, {"layers", 2}, {"heads", 2}, {"ff", 5}, {"context", 7}}, 6},
      {"examples/qwen3.tmodel",
       {{"vocab", 11},
        {"d", 6},
        {"layers", 1},
        {"heads", 4},
        {"kv_heads", 2},
        {"head_dim", 4},
        {"ff", 5},
        {"context", 7}},
       8},
      {"examples/mlp.tmodel", {{"vocab", 11}, {"d", 6}, {"layers", 2}, {"ff", 5}, {"context", 7}}, 5},
  };
  for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
    ir_module *m = model_of(models[i].path, models[i].defines, models[i].n);
    grad_check_programs(m, i + 1, models[i].path, 6);
    ir_module_free(m);
  }
}

static void test_random_graphs(void **state) {
  (void)state;
  const uint64_t seeds = getenv("TAPERC_QUICK") ? 6 : 24;
  for (uint64_t seed = 1; seed <= seeds; seed++) {
    graph_options o = {.seed = seed, .layer_form = seed & 1, .tied = seed & 2, .probes = seed & 4, .train = true};
    ir_module *m = graph_make(o);
    grad_check_programs(m, seed, "a random graph", 6);
    ir_module_free(m);
  }
}

/* A gate that is not scheduled keeps its value in every program: 0 a scale, 1 a live norm, between both branches. */
static void test_fixed_gates(void **state) {
  (void)state;
  static const char *const none[] = {""}, *const live[] = {"live"};
  for (uint64_t seed = 1; seed <= 8; seed++) {
    const pass_train_options choices[] = {{.gates = none, .gate_count = 0, .anchor = 0.5},
                                          {.gates = live, .gate_count = 1, .anchor = 0}};
    graph_options o = {.seed = seed, .layer_form = seed & 1, .tied = seed & 2, .train = true};
    ir_module *m = graph_make(o);
    outcome before = graph_run(m);
    grad_programs(m, &choices[seed & 1]);
    grad_fill(m, seed);
    for (const char *const *e = (const char *const[]){"train_warm", "train_taper", "train_zero", NULL}; *e; e++)
      assert_true(grad_check(m, *e, 2, 5, seed, "fixed gates") >= 6);
    outcome after = graph_run(m); /* @forward stays as it was */
    assert_true(graph_difference(&after, &before) == 0);
    graph_free(&before);
    graph_free(&after);
    ir_module_free(m);
  }
}

/* ---- what the programs say beside gradients ---- */
#define NEAR(a, b) assert_true(fabs((a) - (b)) <= 1e-12 * (1 + fabs(b)))

/* At gates of 1 taper says what warm says, at 0 what zero says; eval and observe agree with them. */
static void test_programs_agree(void **state) {
  (void)state;
  for (uint64_t seed = 1; seed <= 12; seed++) {
    graph_options o = {.seed = seed, .layer_form = seed & 1, .tied = seed & 2, .probes = true, .train = true};
    ir_module *m = graph_make(o);
    grad_programs(m, NULL);
    grad_fill(m, seed);
    for (int zero = 0; zero < 2; zero++) {
      static grad_run fixed, taper, eval, observe;
      grad_set_gates(m, zero ? 0 : 1);
      grad_evaluate(m, zero ? "train_zero" : "train_warm", 2, 5, &fixed);
      grad_evaluate(m, "train_taper", 2, 5, &taper);
      grad_evaluate(m, "eval", 2, 5, &eval);
      grad_evaluate(m, "observe", 2, 5, &observe);
      for (size_t i = 0; i < fixed.result_count; i++)
        NEAR(grad_result(&taper, fixed.results[i].name), fixed.results[i].value);
      for (const char *const *name = (const char *const[]){"ce", "scale", NULL}; *name; name++) {
        NEAR(grad_result(&eval, *name), grad_result(&fixed, *name));
        NEAR(grad_result(&observe, *name), grad_result(&fixed, *name));
      }
      assert_true((grad_result(&fixed, "aux") >= 0) == (zero == 1) && grad_result(&eval, "aux") == -1);
      assert_true((grad_result(&fixed, "norm.numerator") > 0) == !zero);
      grad_free(&fixed), grad_free(&taper), grad_free(&eval), grad_free(&observe);
    }
    ir_module_free(m);
  }
}

/* A scan: base is the model with live norms, and a gate of its own for every norm moves only that one. */
static void test_scan(void **state) {
  (void)state;
  for (uint64_t seed = 1; seed <= 8; seed++) {
    static const char *const none[] = {""};
    pass_train_options scan = {.gates = none, .scan = true};
    static grad_run base, all;
    graph_options o = {.seed = seed, .layer_form = seed & 1, .live_inside = true, .no_open = true, .train = true};
    ir_module *m = graph_make(o);
    grad_programs(m, &scan);
    grad_fill(m, seed);
    size_t gates = 0;
    for (ir_value v = ir_first(m, IR_GLOBALS); v.id; v = ir_next(m, v))
      gates += ir_is(m, v, IR_GATE) && strncmp(ir_name_of(m, v), "scan.", 5) == 0;
    assert_true(gates >= 2 && !ir_entry_find(m, "train_warm").id);
    grad_set_gates(m, 1);
    grad_evaluate(m, "scan", 2, 5, &base);
    NEAR(grad_result(&base, "kl"), 0.0);
    NEAR(grad_result(&base, "ce"), grad_result(&base, "ce_base"));
    grad_set_gates(m, 0);
    grad_evaluate(m, "scan", 2, 5, &all);
    NEAR(grad_result(&all, "ce_base"), grad_result(&base, "ce_base"));
    assert_true(grad_result(&all, "kl") > 1e-6);
    grad_free(&base), grad_free(&all);
    ir_module_free(m);
  }
}

/* ---- analyses ---- */
static const char *kind_of(const ir_module *m, const char **kinds, const char *name) {
  for (ir_value v = ir_first(m, IR_GLOBALS); v.id; v = ir_next(m, v))
    if (ir_is(m, v, IR_PARAM) && strcmp(ir_name_of(m, v), name) == 0) return kinds[v.id] ? kinds[v.id] : "none";
  return "no such parameter";
}

static void test_kinds_and_final_norm(void **state) {
  (void)state;
  static const struct {
    const char *path, *final, *gate, *pairs[24];
  } models[] = {
      {"examples/tinystories.tmodel",
       "norm",
       "final",
       {"wte", "embedding", "layers.0.attn.q.weight", "qkv", "layers.0.attn.v.weight", "qkv", "layers.0.attn.o.weight",
        "o", "layers.1.mlp.gate.weight", "mlp_in", "layers.1.mlp.up.weight", "mlp_in", "layers.1.mlp.down.weight",
        "mlp_out", "norm.weight", "norm", "norm.taper_c", "norm", NULL}},
      {"examples/gpt2.tmodel",
       "ln_f",
       "final",
       {"wte", "embedding", "wpe", "embedding", "h.0.attn.k.weight", "qkv", "h.0.attn.k.bias", "bias",
        "h.0.attn.o.weight", "o", "h.0.mlp.fc.weight", "mlp_in", "h.0.mlp.proj.weight", "mlp_out", "ln_f.bias", "bias",
        NULL}},
      {"examples/neox.tmodel",
       "final_layer_norm",
       "final",
       {"embed_in", "embedding", "embed_out", "head", "layers.0.attention.q.weight", "qkv",
        "layers.0.attention.dense.weight", "o", "layers.0.mlp.up.weight", "mlp_in", "layers.0.mlp.down.weight",
        "mlp_out", NULL}},
      {"examples/qwen3.tmodel",
       "norm",
       "final",
       {"embed_tokens", "embedding", "layers.0.self_attn.q_proj.weight", "qkv", "layers.0.self_attn.q_norm.weight",
        "norm", "layers.0.self_attn.o_proj.weight", "o", "layers.0.mlp.down_proj.weight", "mlp_out", NULL}},
      {"examples/mlp.tmodel",
       NULL,
       NULL,
       {"wte", "embedding", "layers.0.up.weight", "mlp_in", "layers.0.down.weight", "mlp_out", "head.weight", "head",
        "layers.0.norm.alpha", "norm", "layers.0.up.bias", "bias", NULL}},
  };
  for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
    arena scratch = {0};
    ir_module *m = model_of(models[i].path, (const front_define[]){{"layers", 2}}, 1);
    ir_region forward = ir_entry_find(m, "forward");
    const char **kinds = analysis_param_kinds(m, forward, &scratch);
    analysis_final final = analysis_final_norm(m, forward);
    for (const char *const *p = models[i].pairs; *p; p += 2)
      if (strcmp(kind_of(m, kinds, p[0]), p[1]) != 0)
        fail_msg("%s: '%s' is %s, expected %s", models[i].path, p[0], kind_of(m, kinds, p[0]), p[1]);
    assert_true(final.stream.id && ir_is(m, final.stream, IR_ADD));
    assert_true(!final.norm.id == !models[i].final && !final.gate.id == !models[i].gate);
    if (final.norm.id) assert_string_equal(ir_name_of(m, final.norm), models[i].final);
    if (final.gate.id) assert_string_equal(ir_name_of(m, final.gate), models[i].gate);
    for (ir_value v = ir_first(m, forward); v.id; v = ir_next(m, v))
      if (ir_op_has(ir_opcode_of(m, v), OPF_NORM))
        assert_int_equal(analysis_norms_stream(m, v), strstr(ir_name_of(m, v), "self_attn") == NULL);
    arena_free(&scratch);
    ir_module_free(m);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_rules),
      cmocka_unit_test(test_soups),
      cmocka_unit_test(test_every_callable_op_has_a_rule),
      cmocka_unit_test(test_no_rule_is_said),
      cmocka_unit_test(test_models),
      cmocka_unit_test(test_random_graphs),
      cmocka_unit_test(test_fixed_gates),
      cmocka_unit_test(test_programs_agree),
      cmocka_unit_test(test_scan),
      cmocka_unit_test(test_kinds_and_final_norm),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
