/* test_passes.c - properties: every pass, alone, in the pipeline and in any order, keeps what a model computes, and
 * does nothing a second time. */
#include "tests/unit/pass_graphs.h"

#include <stdio.h>

#define EXACT 1e-10  /* fp64 before constants are rounded */
#define ROUNDED 2e-5 /* after: weights in f32 */

static char *printed(const ir_module *m) {
  text t = {0};
  ir_print(m, &t);
  return t.data;
}

static void expect_same(const ir_module *m, const outcome *before, double tolerance, const graph_options *o,
                        const char *what) {
  outcome after = graph_run(m);
  double d = graph_difference(&after, before);
  if (!(d <= tolerance)) {
    char *now = printed(m);
    fprintf(stderr, "%s\n", now);
    free(now);
    fail_msg("%s, seed %llu (%s%s): outputs differ by %g", what, (unsigned long long)o->seed,
             o->layer_form ? "layer" : "rms", o->tied ? ", tied" : "", d);
  }
  graph_free(&after);
}

/* How often each pass said that it did something: a property over passes that never act says nothing. */
static size_t acted[32];

static void count_acts(const diag_sink *sink) {
  for (size_t i = 0; i < diag_count(sink); i++) {
    const diag *d = diag_at(sink, i);
    if (d->severity != DIAG_REMARK || d->missed) continue;
    for (size_t p = 0; p < pass_count(); p++) acted[p] += strcmp(pass_at(p)->name, d->pass) == 0;
  }
}

static void test_all_acted(void **unused) {
  (void)unused;
  static const char *const talkers[] = {"detect-taper",     "split-scale", "center-writers", "fold-scale",
                                        "fuse-final-scale", "defer-norm",  "merge-linear"};
  for (size_t i = 0; i < sizeof talkers / sizeof *talkers; i++)
    if (acted[pass_find(talkers[i]) - pass_at(0)] < 20)
      fail_msg("%s acted only %zu times", talkers[i], acted[pass_find(talkers[i]) - pass_at(0)]);
}

/* Runs a pass twice: the second time changes nothing. */
static void run_twice(ir_module *m, const char *name, const pass_options *options, const graph_options *o) {
  diag_sink *sink = diag_sink_new();
  if (!graph_pass(m, sink, name, options)) {
    diag_render(sink, stderr, &(diag_render_options){0});
    fail_msg("%s failed, seed %llu", name, (unsigned long long)o->seed);
  }
  count_acts(sink);
  char *once = printed(m);
  assert_true(graph_pass(m, sink, name, options));
  char *twice = printed(m);
  if (strcmp(once, twice) != 0)
    fail_msg("%s is not idempotent, seed %llu:\n%s\n---- then\n%s", name, (unsigned long long)o->seed, once, twice);
  free(once);
  free(twice);
  diag_sink_free(sink);
}

static const pass_options everything = {.level = 2, .norms = NORMS_DEFERRED, .fold = FOLD_FULL};

/* cache-attention and fuse-epilogue change what an entry is: they have tests of their own. */
static bool is_ours(const pass_info *p) {
  return (p->use & PASS_INFER) && p->fn != pass_cache_attention && p->fn != pass_fuse_epilogue;
}

static void check_pipeline(graph_options o, pass_options options) {
  ir_module *m = graph_make(o);
  outcome before = graph_run(m);
  const pass_info *list[32];
  size_t n = pass_pipeline(&options, PASS_INFER, list, 32);
  double tolerance = EXACT;
  for (size_t i = 0; i < n; i++) {
    if (!is_ours(list[i])) continue;
    run_twice(m, list[i]->name, &options, &o);
    if (list[i]->fn == pass_fold_const) tolerance = ROUNDED;
    expect_same(m, &before, tolerance, &o, list[i]->name);
  }
  graph_free(&before);
  ir_module_free(m);
}

static void each_option(void (*check)(graph_options, pass_options)) {
  for (uint64_t seed = 1; seed <= 10; seed++)
    for (int bits = 0; bits < 16; bits++) {
      graph_options o = {.seed = seed * 16 + (uint64_t)bits,
                         .layer_form = bits & 1,
                         .tied = bits & 2,
                         .probes = bits & 4,
                         .live_inside = bits & 8};
      pass_options p = everything;
      p.untie = seed % 4 == 1;
      p.norms = seed % 5 == 2 ? NORMS_KERNEL : NORMS_DEFERRED;
      check(o, p);
    }
}

static void test_pipeline(void **unused) {
  (void)unused;
  each_option(check_pipeline);
}

/* Every prefix alone: each pass right after detection, and in random order. */
static void check_any_order(graph_options o, pass_options options) {
  ir_module *m = graph_make(o);
  outcome before = graph_run(m);
  graph r = {.state = o.seed * 77};
  double tolerance = EXACT;
  for (int step = 0; step < 12; step++) {
    const pass_info *p = pass_at((size_t)(graph_random(&r) % pass_count()));
    if (!is_ours(p)) continue;
    run_twice(m, p->name, &options, &o);
    if (p->fn == pass_fold_const) tolerance = ROUNDED;
    expect_same(m, &before, tolerance, &o, p->name);
  }
  graph_free(&before);
  ir_module_free(m);
}

static void test_any_order(void **unused) {
  (void)unused;
  each_option(check_any_order);
}

/* Norm-free streams with gains above 0: split-scale acts, and the table is the only one of its size that is left. */
static void test_split(void **unused) {
  (void)unused;
  size_t done = 0;
  for (uint64_t seed = 1; seed <= 120; seed++) {
    graph_options o = {
        .seed = seed, .tied = true, .positive = true, .probes = seed & 1, .no_open = true, .no_blockers = true};
    pass_options p = everything;
    p.split_scale = true;
    check_pipeline(o, p);
    ir_module *m = graph_make(o);
    diag_sink *sink = diag_sink_new();
    size_t norms = graph_count(m, IR_TAPER_RMS_NORM);
    graph_pass(m, sink, "detect-taper", &p);
    size_t scales = graph_count(m, IR_SCALE);
    graph_pass(m, sink, "split-scale", &p);
    if (scales == norms) { /* all removed: the pass must act */
      graph_pass(m, sink, "fold-scale", &p);
      graph_pass(m, sink, "fuse-final-scale", &p);
      assert_int_equal(graph_count(m, IR_SCALE), 0);
      done++;
    } else
      assert_true(graph_count(m, IR_SCALE) >= 1);
    diag_sink_free(sink);
    ir_module_free(m);
  }
  assert_true(done >= 5);
}

/* All gates at 0, no blockers, an untied head: no norm, no scale, no center, no shift is left. */
static void test_nothing_left(void **unused) {
  (void)unused;
  for (uint64_t seed = 1; seed <= 200; seed++) {
    graph_options o = {.seed = seed, .layer_form = seed & 1, .no_open = true, .no_blockers = true};
    ir_module *m = graph_make(o);
    for (size_t e = 0; e < 3; e++)
      for (ir_value v = ir_first(m, IR_GLOBALS); v.id; v = ir_next(m, v))
        if (ir_is(m, v, IR_GATE)) ir_set_attr(m, v, (ir_attr){IR_ATTR_VALUE, {.floats = {(double[]){0}, 1}}});
    outcome before = graph_run(m);
    diag_sink *sink = diag_sink_new();
    graph_pass(m, sink, "detect-taper", &everything);
    graph_pass(m, sink, "fold-scale", &everything);
    expect_same(m, &before, EXACT, &o, "nothing left");
    assert_int_equal(graph_count(m, IR_SCALE) + graph_count(m, IR_CENTER) + graph_count(m, IR_SHIFT), 0);
    assert_int_equal(graph_count(m, IR_TAPER_RMS_NORM) + graph_count(m, IR_TAPER_LAYER_NORM), 0);
    graph_pass(m, sink, "fold-const", &everything);
    for (ir_value v = ir_first(m, IR_GLOBALS); v.id;
         v = ir_next(m, v)) /* every expression that an entry reads is a const now */
      if (!ir_op_has(ir_opcode_of(m, v), OPF_GLOBAL)) {
        arena scratch = {0};
        ir_value *users;
        size_t n = ir_users(m, v, &scratch, &users);
        for (size_t i = 0; i < n; i++) assert_int_equal(ir_region_of(m, users[i]).id, IR_GLOBALS.id);
        arena_free(&scratch);
      }
    expect_same(m, &before, ROUNDED, &o, "constants");
    graph_free(&before);
    diag_sink_free(sink);
    ir_module_free(m);
  }
}

/* Without weights every pass runs and keeps the types; no value is made up. */
static void test_symbolic(void **unused) {
  (void)unused;
  for (uint64_t seed = 1; seed <= 60; seed++) {
    graph_options o = {.seed = seed, .layer_form = seed & 1, .tied = seed & 2, .probes = seed & 4};
    ir_module *m = graph_make(o);
    for (ir_value v = ir_first(m, IR_GLOBALS); v.id; v = ir_next(m, v))
      if (ir_is(m, v, IR_CONST)) ir_bind(m, v, NULL);
    pass_options p = everything;
    p.split_scale = seed & 8;
    p.untie = seed & 16;
    const pass_info *list[32];
    size_t n = pass_pipeline(&p, PASS_INFER, list, 32);
    for (size_t i = 0; i < n; i++)
      if (is_ours(list[i])) run_twice(m, list[i]->name, &p, &o);
    for (ir_value v = ir_first(m, IR_GLOBALS); v.id; v = ir_next(m, v)) assert_null(ir_payload(m, v));
    ir_module_free(m);
  }
}

static void test_pipeline_choice(void **unused) {
  (void)unused;
  const pass_info *list[32];
  struct {
    pass_options o;
    const char *names;
  } cases[] = {
      {{.level = 0}, "infer verify cache-attention fuse-epilogue"},
      {{.level = 1},
       "infer verify detect-taper detect-disabled fold-scale fuse-final-scale fold-const dce cache-attention "
       "fuse-epilogue"},
      {{.level = 2},
       "infer verify detect-taper detect-disabled center-writers fold-scale fuse-final-scale defer-norm merge-linear "
       "fold-const cse dce "
       "cache-attention fuse-epilogue"},
      {{.level = 2, .norms = NORMS_KERNEL},
       "infer verify detect-taper detect-disabled fold-scale fuse-final-scale merge-linear fold-const cse dce "
       "cache-attention fuse-epilogue"},
      {{.level = 2, .fold = FOLD_NONE},
       "infer verify center-writers defer-norm merge-linear fold-const cse dce cache-attention fuse-epilogue"},
      {{.level = 1, .fold = FOLD_EXPLICIT, .split_scale = true},
       "infer verify detect-taper detect-disabled fold-const dce cache-attention fuse-epilogue"},
      {{.level = 1, .split_scale = true},
       "infer verify detect-taper detect-disabled split-scale fold-scale fuse-final-scale fold-const dce "
       "cache-attention fuse-epilogue"},
      {{.level = 0, .clamp_rows = 2}, "infer verify clamp-rows cache-attention fuse-epilogue"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    text t = {0};
    size_t n = pass_pipeline(&cases[i].o, PASS_INFER, list, 32);
    for (size_t k = 0; k < n; k++) text_printf(&t, "%s%s", k ? " " : "", list[k]->name);
    assert_string_equal(t.data, cases[i].names);
    text_free(&t);
  }
  assert_int_equal(pass_pipeline(&everything, PASS_TRAIN, list, 32), 6);
  assert_null(pass_find("no-such-pass"));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_pipeline_choice), cmocka_unit_test(test_nothing_left), cmocka_unit_test(test_pipeline),
      cmocka_unit_test(test_any_order),       cmocka_unit_test(test_split),        cmocka_unit_test(test_symbolic),
      cmocka_unit_test(test_all_acted),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
