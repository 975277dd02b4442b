/* test_pass_rules.c - one counterexample for every "legal only if" of folding the remains of removed norms: the rule
   applied where it is not legal changes the outputs, and the pass does the right thing there. */
#include "tests/unit/pass_rules.h"

#define TAPER_RMS "%n = taper_rms_norm %x, %gain, %taper, %c, %zero : f32[B,T,3] \"norm\"\n"
#define TAPER_LAYER "%n = taper_layer_norm %x, %gain, %beta, %taper, %c, %zero : f32[B,T,3] \"norm\"\n"

/* A gate is at 0 when it is exactly 0.0 (or -0.0): the smallest double above keeps the norm. */
static void test_exact_zero(void **unused) {
  (void)unused;
  static const struct {
    double value;
    size_t left;
    bool fine;
  } cases[] = {
      {0.0, 0, true},           {-0.0, 0, true},          {1.0, 0, true},     {0x1p-149, 1, true},  {1e-30, 1, true},
      {0x1.fffffep-1, 1, true}, {0x1.000002p0, 1, false}, {-1e-30, 1, false}, {INFINITY, 1, false}, {NAN, 1, false},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    ir_module *m = module_of("", TAPER_RMS "%y = linear %n, %w : f32[B,T,4] \"y\"\nreturn %y\n");
    for (ir_value v = ir_first(m, IR_GLOBALS); v.id; v = ir_next(m, v))
      if (ir_is(m, v, IR_GATE)) ir_set_attr(m, v, (ir_attr){IR_ATTR_VALUE, {.floats = {&cases[i].value, 1}}});
    diag_sink *sink = diag_sink_new();
    assert_int_equal(graph_pass(m, sink, "detect-taper", &full), cases[i].fine);
    assert_int_equal(graph_count(m, IR_TAPER_RMS_NORM), cases[i].left);
    if (cases[i].left && cases[i].fine)
      assert_true(said(sink, "gate 'removed' is ") && said(sink, "'norm' stays live"));
    if (!cases[i].fine) assert_true(said(sink, "not a number from 0 to 1") && diag_error_count(sink) == 1);
    diag_sink_free(sink);
    ir_module_free(m);
  }
}

/* The input axis of a non-square weight, not the output axis; every reader, not one. */
static void test_rms_fold(void **unused) {
  (void)unused;
  rule r = check(TAPER_RMS "%p = linear %n, %w, %b : f32[B,T,4] \"p\"\n%q = linear %n, %w2 : f32[B,T,4] \"q\"\n%y = "
                           "mul %p, %q : f32[B,T,4]\nreturn %y\n",
                 "%f = scale %w, %b {axis = 0} : f32[4,3]\n", "%y = linear %x, %f, %b : f32[B,T,4]\nreturn %y\n",
                 "detect-taper fold-scale");
  assert_int_equal(graph_count(r.after, IR_SCALE), 0);
  rule_free(&r);
  /* one reader folded alone */
  r = check(
      TAPER_RMS "%p = linear %n, %w : f32[B,T,4] \"p\"\n%q = linear %n, %w2 : f32[B,T,4] \"q\"\n%y = add %p, %q : "
                "f32[B,T,4]\nreturn %y\n",
      "%g = mul %taper, %c : f32[3]\n%f = scale %w, %g : f32[4,3]\n",
      "%p = linear %x, %f : f32[B,T,4]\n%q = linear %x, %w2 : f32[B,T,4]\n%y = add %p, %q : f32[B,T,4]\nreturn %y\n",
      "detect-taper fold-scale");
  rule_free(&r);
}

/* Weights that the entry computes are no constants: the norms are recognised, nothing folds. */
static void test_computed_weights(void **unused) {
  (void)unused;
  rule r = check("%t = mul %taper, %c : f32[3]\n%n1 = taper_rms_norm %x, %gain, %t, %c, %zero : f32[B,T,3] \"n1\"\n"
                 "%n2 = layer_norm %n1, %t, %t {eps = 1e30} : f32[B,T,3] \"n2\"\n"
                 "%n3 = rms_norm %n2, %t : f32[B,T,3] \"n3\"\n%y = linear %n3, %w : f32[B,T,4]\nreturn %y\n",
                 "", NULL,
                 "detect-taper detect-disabled center-writers fold-scale defer-norm merge-linear fold-const cse dce");
  assert_int_equal(graph_count(r.after, IR_SCALE), 2);
  assert_int_equal(graph_count(r.after, IR_RMS_NORM), 1);
  rule_free(&r);
}

/* LayerNorm also centres and shifts: without P, and without beta W, it is something else. A reader without bias gains
 * one; a bias is kept. */
static void test_layer_fold(void **unused) {
  (void)unused;
  static const char *const wrong_globals[] = {
      "%g = mul %taper, %c : f32[3]\n%f = scale %w, %g : f32[4,3]\n%bw = linear %beta, %w : f32[4]\n%nb = add %b, %bw "
      ": f32[4]\n", /* no P */
      "%g = mul %taper, %c : f32[3]\n%s = scale %w, %g : f32[4,3]\n%f = center %s : f32[4,3]\n%nb = add %b, %b : "
      "f32[4]\n", /* no beta W */
      "%g = mul %taper, %c : f32[3]\n%s = center %w : f32[4,3]\n%f = scale %s, %g : f32[4,3]\n%bw = linear %beta, %w : "
      "f32[4]\n%nb = add %b, %bw : f32[4]\n",
      "%g = mul %taper, %c : f32[3]\n%s = scale %w, %g : f32[4,3]\n%f = center %s {axis = 0} : f32[4,3]\n%bw = linear "
      "%beta, %w : f32[4]\n%nb = add %b, %bw : f32[4]\n",
      "%g = mul %taper, %c : f32[3]\n%s = scale %w, %g : f32[4,3]\n%f = center %s : f32[4,3]\n%bw = linear %beta, %f : "
      "f32[4]\n%nb = add %b, %bw : f32[4]\n"};
  for (size_t i = 0; i < sizeof wrong_globals / sizeof *wrong_globals; i++) {
    rule r = check(TAPER_LAYER "%y = linear %n, %w, %b : f32[B,T,4] \"y\"\nreturn %y\n", wrong_globals[i],
                   "%y = linear %x, %f, %nb : f32[B,T,4]\nreturn %y\n", "detect-taper fold-scale");
    assert_int_equal(graph_count(r.after, IR_SHIFT) + graph_count(r.after, IR_CENTER) + graph_count(r.after, IR_SCALE),
                     0);
    rule_free(&r);
  }
  rule r = check(TAPER_LAYER "%y = linear %n, %w : f32[B,T,4] \"y\"\nreturn %y\n", "",
                 "%y = linear %x, %w : f32[B,T,4]\nreturn %y\n", "detect-taper fold-scale");
  ir_value linear = ir_prev(r.after, ir_last(r.after, ir_entry_at(r.after, 0)));
  assert_int_equal(ir_operand_count(r.after, linear), 3);
  rule_free(&r);
}

/* A reader that is not linear blocks the fold for all readers of the norm. */
static void test_blocked_fold(void **unused) {
  (void)unused;
  rule r = check(TAPER_RMS "%g = gelu %n : f32[B,T,3] \"act\"\n%p = linear %g, %w : f32[B,T,4] \"p\"\n%q = linear %n, "
                           "%w2 : f32[B,T,4] \"q\"\n"
                           "%y = add %p, %q : f32[B,T,4]\nreturn %y\n",
                 "%g = mul %taper, %c : f32[3]\n%f = scale %w, %g : f32[4,3]\n%f2 = scale %w2, %g : f32[4,3]\n",
                 "%a = gelu %x : f32[B,T,3]\n%p = linear %a, %f : f32[B,T,4]\n%q = linear %x, %f2 : f32[B,T,4]\n%y = "
                 "add %p, %q : f32[B,T,4]\nreturn %y\n",
                 "detect-taper fold-scale");
  assert_int_equal(graph_count(r.after, IR_SCALE), 1);
  assert_true(said(r.sink, "'norm' stays an op of its own: its reader 'act' (gelu) at rules.tir:"));
  rule_free(&r);
}

/* A weight with a second reader is never changed in place; the copy's bytes are said. */
static void test_shared_weight(void **unused) {
  (void)unused;
  rule r = check(
      TAPER_RMS "%p = linear %n, %w : f32[B,T,4] \"p\"\n%q = linear %x, %w : f32[B,T,4] \"q\"\n%y = add %p, %q : "
                "f32[B,T,4]\nreturn %y\n",
      "%g = mul %taper, %c : f32[3]\n%f = scale %w, %g : f32[4,3]\n",
      "%p = linear %x, %f : f32[B,T,4]\n%q = linear %x, %f : f32[B,T,4]\n%y = add %p, %q : f32[B,T,4]\nreturn %y\n",
      "detect-taper fold-scale");
  assert_true(said(r.sink, "'norm' into p; 'w' is copied (48 bytes): 'q' (linear) at "));
  assert_int_equal(graph_count(r.after, IR_SCALE), 0);
  rule_free(&r);
}

/* Folds touch const, never param. */
static void test_param(void **unused) {
  (void)unused;
  ir_module *m = module_of("%pw = param {name = \"pw\"} : f32[4,3]\n",
                           TAPER_RMS "%p = linear %n, %pw : f32[B,T,4] \"p\"\nreturn %p\n");
  diag_sink *sink = diag_sink_new();
  graph_pass(m, sink, "detect-taper", &full);
  graph_pass(m, sink, "fold-scale", &full);
  assert_int_equal(graph_count(m, IR_SCALE), 1);
  assert_true(said(sink, "has weights that are no constants"));
  diag_sink_free(sink);
  ir_module_free(m);
}

/* A tied table is never scaled in place: by default the scale stays at the head's input; --untie writes a head of its
 * own. */
static void test_tied_head(void **unused) {
  (void)unused;
  const char *wrong = "%e = embed %tokens, %f : f32[B,T,3]\n%h = linear %e, %f : f32[B,T,11]\nreturn %h\n";
  const char *scaled = "%g = mul %taper, %c : f32[3]\n%f = scale %rows, %g : f32[11,3]\n";
  rule r = check(TAPER_RMS HEAD, scaled, wrong, "detect-taper fold-scale fuse-final-scale");
  assert_int_equal(graph_count(r.after, IR_SCALE), 1);
  assert_true(said(r.sink, "'norm' is computed as 'head' loads its input: 'rows' is the embedding's table too"));
  rule_free(&r);
  pass_options untie = full;
  untie.untie = true;
  r = check_with("", TAPER_RMS HEAD, scaled, wrong, "detect-taper fold-scale fuse-final-scale", &untie);
  assert_int_equal(graph_count(r.after, IR_SCALE), 0);
  assert_true(said(r.sink, "'norm' into head; 'rows' is copied (132 bytes): 'rows' (embed) at "));
  rule_free(&r);
  r = check_with("", TAPER_LAYER HEAD, "", "%h = linear %x, %rows : f32[B,T,11]\nreturn %h\n",
                 "detect-taper fold-scale fuse-final-scale", &untie);
  assert_int_equal(graph_count(r.after, IR_SHIFT) + graph_count(r.after, IR_CENTER), 0);
  rule_free(&r);
}

static void test_untie_is_not_ignored(void **unused) {
  (void)unused;
  pass_options untie = full;
  untie.untie = true;
  rule r = check_with("", "%y = linear %x, %w : f32[B,T,4] \"y\"\nreturn %y\n", "", NULL, "fuse-final-scale", &untie);
  assert_true(said(r.sink, "--untie: no head shares its weight with the embedding"));
  rule_free(&r);
  r = check_with("", "%h = linear %x, %rows : f32[B,T,11] \"head\"\nreturn %h\n", "", NULL, "fuse-final-scale", &untie);
  assert_true(said(r.sink, "--untie: 'head' stays tied to 'rows'"));
  rule_free(&r);
}

#define BLOCK                                                                                                          \
  "%n1 = scale %x, %gain : f32[B,T,3] \"inner\"\n%a = linear %n1, %w, %b : f32[B,T,4] \"up\"\n%t = tanh %a : "         \
  "f32[B,T,4]\n"                                                                                                       \
  "%d = linear %t, %o, %ob : f32[B,T,3] \"down\"\n%s = add %x, %d : f32[B,T,3]\n%l = probe %s {name = \"layers.1\"} "  \
  ": f32[B,T,3]\n"
#define FINAL(norm) BLOCK norm "%h = linear %n, %rows : f32[B,T,11] \"head\"\nreturn %h\n"

static void check_split_refused(const char *body, const char *wrong_globals, const char *wrong, const char *words) {
  pass_options split = full;
  split.split_scale = true;
  rule r = check_with("", body, wrong_globals, wrong, "split-scale", &split);
  if (!said(r.sink, words)) {
    diag_render(r.sink, stderr, &(diag_render_options){0});
    fail_msg("not said: %s", words);
  }
  assert_true(distance(r.after, r.before) == 0);
  rule_free(&r);
}

/* split-scale, done: writers (and their biases) times s, readers times 1/s, probes report the stream as it was. */
static void test_split_scale(void **unused) {
  (void)unused;
  pass_options split = full;
  split.split_scale = true;
  const char *globals = "%t = scale %rows, %root : f32[11,3]\n%g = div %gain, %root : f32[3]\n%do = scale %o, %root "
                        "{axis = 0} : f32[3,4]\n";
  /* the bias of a writer forgotten */
  const char *wrong = "%e = embed %tokens, %t : f32[B,T,3]\n%n1 = scale %e, %g : f32[B,T,3]\n%a = linear %n1, %w, %b : "
                      "f32[B,T,4]\n%th = tanh %a : f32[B,T,4]\n"
                      "%d = linear %th, %do, %ob : f32[B,T,3]\n%s = add %e, %d : f32[B,T,3]\n%l = probe %s, %unroot "
                      "{name = \"layers.1\"} : f32[B,T,3]\n"
                      "%h = linear %s, %t : f32[B,T,11]\nreturn %h\n";
  rule r = check_with("", FINAL("%n = scale %s, %taper : f32[B,T,3] \"norm\"\n"), globals, wrong,
                      "split-scale fold-scale", &split);
  assert_int_equal(graph_count(r.after, IR_SCALE), 0);
  assert_true(said(r.sink, "'norm' into 'rows'"));
  rule_free(&r);
}

/* ... and refused: LN form, a live norm, DyT or another nonlinear reader, a gain that is not above 0, a table that
 * something else reads. */
static void test_split_scale_refused(void **unused) {
  (void)unused;
  const char *table = "%t = scale %rows, %root : f32[11,3]\n";
  check_split_refused("%ce = center %x : f32[B,T,3] \"norm\"\n%sc = scale %ce, %taper : f32[B,T,3] \"norm\"\n%n = "
                      "shift %sc, %beta : f32[B,T,3] \"norm\"\n" HEAD,
                      table,
                      "%e = embed %tokens, %t : f32[B,T,3]\n%ce = center %e : f32[B,T,3]\n%n = shift %ce, %beta : "
                      "f32[B,T,3]\n%h = linear %n, %t : f32[B,T,11]\nreturn %h\n",
                      "only a norm of the RMS form can be split");
  check_split_refused(
      "%ce = center %x : f32[B,T,3] \"norm\"\n%n = scale %ce, %taper : f32[B,T,3] \"norm\"\n" HEAD, table,
      "%e = embed %tokens, %t : f32[B,T,3]\n%n = center %e : f32[B,T,3]\n%h = linear %n, %t : f32[B,T,11]\nreturn %h\n",
      "only a norm of the RMS form can be split");
  const char *inner[] = {"rms_norm %x, %gain", "dyt %x, %c, %gain, %beta", "tanh %x"};
  const char *wrong_inner[] = {"rms_norm %e, %g", "dyt %e, %c, %g, %beta", "tanh %e"};
  for (size_t i = 0; i < 3; i++) {
    const char *rest =
        " : f32[B,T,3] \"inner\"\n%a = add %x, %n1 : f32[B,T,3]\n%n = scale %a, %taper : f32[B,T,3] \"norm\"\n" HEAD;
    const char *wrong_rest =
        " : f32[B,T,3]\n%a = add %e, %n1 : f32[B,T,3]\n%h = linear %a, %t : f32[B,T,11]\nreturn %h\n";
    char *body = joined("%n1 = ", inner[i], rest),
         *wrong = joined("%e = embed %tokens, %t : f32[B,T,3]\n%n1 = ", wrong_inner[i], wrong_rest);
    check_split_refused(body, "%t = scale %rows, %root : f32[11,3]\n%g = mul %gain, %unroot : f32[3]\n", wrong,
                        "reads the residual stream and is not linear");
    free(body);
    free(wrong);
  }
  check_split_refused("%n = scale %x, %gain : f32[B,T,3] \"norm\"\n" HEAD, "", NULL, "that is not above 0 everywhere");
  check_split_refused("%n = scale %x, %taper : f32[B,T,3] \"norm\"\n%q = linear %x, %rows : f32[B,T,11] \"second\"\n%h "
                      "= linear %n, %rows : f32[B,T,11] \"head\"\n"
                      "%y = add %h, %q : f32[B,T,11]\nreturn %y\n",
                      table,
                      "%e = embed %tokens, %t : f32[B,T,3]\n%h = linear %e, %t : f32[B,T,11]\n%y = add %h, %h : "
                      "f32[B,T,11]\nreturn %y\n",
                      "is the tied head and reads the stream without the final scale");
  check_split_refused(
      "%n = scale %x, %taper : f32[B,T,3] \"norm\"\n%z = tanh %n : f32[B,T,3] \"z\"\n%q = linear %z, %w : "
      "f32[B,T,4]\n%g = gelu %q : f32[B,T,4]\n%c0 = linear %g, %o : f32[B,T,3]\n%k = linear %c0, %wide : f32[B,T,11]\n"
      "%h = linear %n, %rows : f32[B,T,11] \"head\"\n%y = add %h, %k : f32[B,T,11]\nreturn %y\n",
      NULL, NULL, "reads the final scale too and is no tied head");
  check_split_refused("%n = scale %x, %taper : f32[B,T,3] \"norm\"\n%z = tanh %x : f32[B,T,3]\n%n2 = rms_norm %n, "
                      "%gain : f32[B,T,3] \"n2\"\n"
                      "%h = linear %n2, %rows : f32[B,T,11] \"head\"\nreturn %h\n",
                      NULL, NULL, "is what the tied head reads, and no scale that is left of a norm");
  check_split_refused(
      "%n = scale %x, %taper : f32[B,T,3] \"norm\"\n%l = probe %n {name = \"normed\"} : f32[B,T,3]\n" HEAD, NULL, NULL,
      "is looked at by a probe");
  check_split_refused(
      "%u = linear %x, %w : f32[B,T,4]\n%t = tanh %u : f32[B,T,4]\n%d = linear %t, %o : f32[B,T,3] \"down\"\n"
      "%s = add %x, %d : f32[B,T,3]\n%g = gelu %u : f32[B,T,4]\n%d2 = linear %g, %o : f32[B,T,3] \"side\"\n"
      "%h2 = linear %d2, %wide : f32[B,T,11]\n%n = scale %s, %taper : f32[B,T,3] \"norm\"\n"
      "%h = linear %n, %rows : f32[B,T,11] \"head\"\n%y = add %h, %h2 : f32[B,T,11]\nreturn %y\n",
      NULL, NULL, "'side' (linear) at rules.tir:");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_exact_zero),
      cmocka_unit_test(test_rms_fold),
      cmocka_unit_test(test_computed_weights),
      cmocka_unit_test(test_layer_fold),
      cmocka_unit_test(test_blocked_fold),
      cmocka_unit_test(test_shared_weight),
      cmocka_unit_test(test_param),
      cmocka_unit_test(test_tied_head),
      cmocka_unit_test(test_untie_is_not_ignored),
      cmocka_unit_test(test_split_scale),
      cmocka_unit_test(test_split_scale_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
