/* test_pass_norm_rules.c - the same for live norms (deferral, centring, eps), merging, constants, and a pass that
 * breaks the module. */
#include "tests/unit/pass_rules.h"

#include <unistd.h>

/* ---- deferred live norms ---- */
#define RMS "%n = rms_norm %x, %gain : f32[B,T,3] \"norm\"\n"
#define LAYER "%n = layer_norm %x, %gain, %beta : f32[B,T,3] \"norm\"\n"

/* The bias of a reader is not divided by r; that of a LayerNorm's reader gains beta W, not divided either. */
static void test_deferred_bias(void **unused) {
  (void)unused;
  rule r = check(RMS "%y = linear %n, %w, %b : f32[B,T,4] \"y\"\nreturn %y\n", "%f = scale %w, %gain : f32[4,3]\n",
                 "%r = inv_rms %x : f32[B,T,1]\n%p = linear %x, %f, %b : f32[B,T,4]\n%y = row_scale %p, %r : "
                 "f32[B,T,4]\nreturn %y\n",
                 "defer-norm");
  assert_int_equal(graph_count(r.after, IR_RMS_NORM), 0);
  assert_int_equal(graph_count(r.after, IR_SHIFT), 1);
  rule_free(&r);
  const char *globals = "%s = scale %w, %gain : f32[4,3]\n%f = center %s : f32[4,3]\n%bw = linear %beta, %w : "
                        "f32[4]\n%nb = add %b, %bw : f32[4]\n";
  r = check(LAYER "%y = linear %n, %w, %b : f32[B,T,4] \"y\"\nreturn %y\n", globals,
            "%r = inv_std %x : f32[B,T,1]\n%p = linear %x, %f, %nb : f32[B,T,4]\n%y = row_scale %p, %r : "
            "f32[B,T,4]\nreturn %y\n",
            "defer-norm");
  assert_int_equal(graph_count(r.after, IR_LAYER_NORM), 0);
  rule_free(&r);
  /* the statistic of an RMS norm is not that of a LayerNorm */
  r = check(LAYER "%y = linear %n, %w : f32[B,T,4] \"y\"\nreturn %y\n", globals,
            "%r = inv_rms %x : f32[B,T,1]\n%p = linear %x, %f : f32[B,T,4]\n%s2 = row_scale %p, %r : f32[B,T,4]\n%y = "
            "shift %s2, %bw : f32[B,T,4]\nreturn %y\n",
            "defer-norm");
  rule_free(&r);
}

/* Only where every reader is linear: q/k norms (rope follows) and norms that something else reads stay. */
static void test_deferred_readers(void **unused) {
  (void)unused;
  rule r = check(RMS "%a = tanh %n : f32[B,T,3] \"act\"\n%p = linear %a, %w : f32[B,T,4]\n%q = linear %n, %w2 : "
                     "f32[B,T,4]\n%y = add %p, %q : f32[B,T,4]\nreturn %y\n",
                 "%f = scale %w, %gain : f32[4,3]\n%f2 = scale %w2, %gain : f32[4,3]\n",
                 "%r = inv_rms %x : f32[B,T,1]\n%a = tanh %x : f32[B,T,3]\n%p = linear %a, %f : f32[B,T,4]\n%q = "
                 "linear %x, %f2 : f32[B,T,4]\n"
                 "%s = add %p, %q : f32[B,T,4]\n%y = row_scale %s, %r : f32[B,T,4]\nreturn %y\n",
                 "defer-norm");
  assert_int_equal(graph_count(r.after, IR_RMS_NORM), 1);
  assert_true(said(r.sink, "'norm' stays before its readers: 'act' (tanh) at "));
  rule_free(&r);
  r = check("%q = linear %x, %w : f32[B,T,4] \"q\"\n%s = split_heads %q {heads = 1} : f32[B,T,1,4]\n%p = positions "
            "%tokens, %pos : i32[B,T]\n"
            "%k = rms_norm %s, %b : f32[B,T,1,4] \"q_norm\"\n%ro = rope %k, %p : f32[B,T,1,4] \"rope\"\n%y = "
            "merge_heads %ro : f32[B,T,4]\nreturn %y\n",
            "%f = scale %w, %b {axis = 0} : f32[4,3]\n", /* the gain moved over the rope */
            "%q = linear %x, %w : f32[B,T,4]\n%s = split_heads %q {heads = 1} : f32[B,T,1,4]\n%p = positions %tokens, "
            "%pos : i32[B,T]\n"
            "%r = inv_rms %s : f32[B,T,1,1]\n%ro = rope %s, %p : f32[B,T,1,4]\n%k = scale %ro, %b : f32[B,T,1,4]\n%z = "
            "row_scale %k, %r : f32[B,T,1,4]\n"
            "%y = merge_heads %z : f32[B,T,4]\nreturn %y\n",
            "defer-norm");
  assert_int_equal(graph_count(r.after, IR_RMS_NORM), 1);
  assert_true(said(r.sink, "'q_norm' stays before its readers: 'rope' (rope) at "));
  rule_free(&r);
}

/* The statistic of one value differs between the two norms, also at one eps; a probe of a norm keeps it. */
static void test_deferred_statistics(void **unused) {
  (void)unused;
  rule r = check("%n = rms_norm %x, %gain {eps = 0.25} : f32[B,T,3] \"n\"\n"
                 "%n2 = layer_norm %x, %gain, %beta {eps = 0.25} : f32[B,T,3] \"n2\"\n"
                 "%p = linear %n, %w : f32[B,T,4] \"p\"\n%q = linear %n2, %w2 : f32[B,T,4] \"q\"\n"
                 "%y = mul %p, %q : f32[B,T,4]\nreturn %y\n",
                 "", NULL, "defer-norm merge-linear");
  assert_int_equal(graph_count(r.after, IR_INV_RMS), 1);
  assert_int_equal(graph_count(r.after, IR_INV_STD), 1);
  rule_free(&r);
  r = check(RMS "%l = probe %n {name = \"normed\"} : f32[B,T,3]\n%y = linear %l, %w : f32[B,T,4] \"y\"\nreturn %y\n",
            "", NULL, "defer-norm");
  assert_int_equal(graph_count(r.after, IR_RMS_NORM), 1);
  assert_true(said(r.sink, "is looked at by a probe"));
  rule_free(&r);
}

/* A tied head keeps its norm: the gain cannot go into the table. --untie pays for a head of its own. */
static void test_deferred_tied(void **unused) {
  (void)unused;
  rule r = check(RMS HEAD, "%f = scale %rows, %gain : f32[11,3]\n",
                 "%e = embed %tokens, %f : f32[B,T,3]\n%r = inv_rms %e : f32[B,T,1]\n%p = linear %e, %f : "
                 "f32[B,T,11]\n%h = row_scale %p, %r : f32[B,T,11]\nreturn %h\n",
                 "fuse-final-scale defer-norm");
  assert_int_equal(graph_count(r.after, IR_RMS_NORM), 1);
  rule_free(&r);
  pass_options untie = full;
  untie.untie = true;
  r = check_with("", RMS HEAD, "", NULL, "fuse-final-scale defer-norm", &untie);
  assert_int_equal(graph_count(r.after, IR_RMS_NORM), 0);
  assert_true(said(r.sink, "'rows' is copied (132 bytes)"));
  for (size_t i = 0; i < diag_count(r.sink); i++) assert_int_not_equal(diag_at(r.sink, i)->severity, DIAG_WARNING);
  rule_free(&r);
}

static size_t argmax(const double *x, size_t n) {
  size_t best = 0;
  for (size_t i = 1; i < n; i++) best = x[i] > x[best] ? i : best;
  return best;
}

/* Where the best of 11 logits differs between two modules. */
static size_t other_choices(const ir_module *a, const ir_module *b) {
  outcome x = graph_run(a), y = graph_run(b);
  size_t n = 0;
  for (size_t i = 0; i < GRAPH_BATCH * GRAPH_TIME; i++)
    n += argmax(x.logits.data + i * 11, 11) != argmax(y.logits.data + i * 11, 11);
  graph_free(&x);
  graph_free(&y);
  return n;
}

/* Greedy decoding may skip 1/r before a bias-free head only: with a head bias the choice changes. The passes never skip
 * it. */
static void test_argmax_with_bias(void **unused) {
  (void)unused;
  const char *bias = "%hb = const {value = [5, -4, 3, -2, 1, 0, -1, 2, -3, 4, -5]} : f32[11]\n%hw = mul %rows, %c : "
                     "f32[11,3]\n%f = scale %hw, %gain : f32[11,3]\n";
  ir_module *plain = module_of(bias, RMS "%h = linear %n, %hw : f32[B,T,11]\nreturn %h\n");
  ir_module *skipped = module_of(bias, "%h = linear %x, %f : f32[B,T,11]\nreturn %h\n");
  assert_int_equal(other_choices(plain, skipped), 0);
  ir_module *with_bias = module_of(bias, RMS "%h = linear %n, %hw, %hb : f32[B,T,11]\nreturn %h\n");
  ir_module *bias_skipped = module_of(bias, "%h = linear %x, %f, %hb : f32[B,T,11]\nreturn %h\n");
  assert_true(other_choices(with_bias, bias_skipped) > 0);
  diag_sink *sink = diag_sink_new();
  graph_pass(with_bias, sink, "defer-norm", &full);
  graph_pass(plain, sink, "defer-norm", &full);
  assert_int_equal(graph_count(with_bias, IR_ROW_SCALE), 1);
  assert_int_equal(graph_count(plain, IR_ROW_SCALE), 1);
  diag_sink_free(sink);
  ir_module_free(plain);
  ir_module_free(skipped);
  ir_module_free(with_bias);
  ir_module_free(bias_skipped);
}

/* ---- centring the writers ---- */
#define PROJECTION                                                                                                     \
  "%n0 = layer_norm %x, %gain, %beta : f32[B,T,3] \"norm0\"\n%u = linear %n0, %w : f32[B,T,4] \"up\"\n%t = tanh %u : " \
  "f32[B,T,4]\n%d = linear %t, %o, %ob : f32[B,T,3] \"down\"\n"

/* Legal where every reader ignores the mean: projections lose it over the outputs (with their biases), a table that
 * only the stream looks up per row. */
static void test_centring(void **unused) {
  (void)unused;
  const char *embed =
      "%e = embed %tokens, %rows2 : f32[B,T,3] \"e\"\n%d2 = linear %n0, %o, %ob : f32[B,T,3] \"down\"\n%s = add %e, "
      "%d2 : f32[B,T,3]\n"
      "%n = layer_norm %s, %gain, %beta : f32[B,T,3] \"norm\"\n%y = linear %n, %w : f32[B,T,4]\nreturn %y\n";
  char *body = joined("%n0 = linear %x, %w2 : f32[B,T,4] \"n0\"\n", embed, "");
  /* wrong: the bias of the projection is not centred; the mean is taken over the inputs */
  static const char *const wrong_globals[] = {
      "%rows2 = mul %rows, %c : f32[11,3]\n%rc = center %rows2 : f32[11,3]\n%oc = center %o {axis = 0} : "
      "f32[3,4]\n%obc = mul %ob, %c : f32[3]\n",
      "%rows2 = mul %rows, %c : f32[11,3]\n%rc = center %rows2 : f32[11,3]\n%oc = center %o : f32[3,4]\n%obc = center "
      "%ob : f32[3]\n"};
  for (size_t i = 0; i < 2; i++) {
    rule r = check_with("%rows2 = mul %rows, %c : f32[11,3]\n", body, wrong_globals[i],
                        "%n0 = linear %x, %w2 : f32[B,T,4]\n%e = embed %tokens, %rc : f32[B,T,3]\n%d2 = linear %n0, "
                        "%oc, %obc : f32[B,T,3]\n%s = add %e, %d2 : f32[B,T,3]\n"
                        "%z = rms_norm %s, %gain {eps = 0x1.4f8b588e368f1p-17} : f32[B,T,3]\n%n = shift %z, %beta : "
                        "f32[B,T,3]\n%y = linear %n, %w : f32[B,T,4]\nreturn %y\n",
                        "center-writers", &full);
    assert_int_equal(graph_count(r.after, IR_LAYER_NORM), 0);
    assert_int_equal(graph_count(r.after, IR_CENTER), 0);
    assert_int_equal(graph_count(r.after, IR_RMS_NORM), 1);
    rule_free(&r);
  }
  free(body);
}

/* A tied table is not centred in place: the looked-up row is. */
static void test_centring_tied(void **unused) {
  (void)unused;
  rule r = check(LAYER HEAD, "%rc = center %rows : f32[11,3]\n",
                 "%e = embed %tokens, %rc : f32[B,T,3]\n%z = rms_norm %e, %gain {eps = 0x1.4f8b588e368f1p-17} : "
                 "f32[B,T,3]\n%n = shift %z, %beta : f32[B,T,3]\n"
                 "%h = linear %n, %rc : f32[B,T,11]\nreturn %h\n",
                 "center-writers");
  assert_int_equal(graph_count(r.after, IR_CENTER), 1);
  assert_int_equal(graph_count(r.after, IR_RMS_NORM), 1);
  rule_free(&r);
}

/* One reader that sees the mean (an RMS norm, a linear, the return) forbids it. */
static void test_centring_refused(void **unused) {
  (void)unused;
  static const char *const readers[] = {
      "%m = rms_norm %s, %gain : f32[B,T,3] \"m\"\n%z = linear %m, %w2 : f32[B,T,4]\n",
      "%z = linear %s, %w2 : f32[B,T,4] \"m\"\n",
      "%m = scale %s, %gain : f32[B,T,3] \"m\"\n%z = linear %m, %w2 : f32[B,T,4]\n"};
  for (size_t i = 0; i < 3; i++) {
    const char *norm = "%n = layer_norm %s, %gain, %beta : f32[B,T,3] \"norm\"\n%y1 = linear %n, %w : f32[B,T,4]\n",
               *sum = "%y = add %y1, %z : f32[B,T,4]\nreturn %y\n";
    char *rest = joined(norm, readers[i], sum), *body = joined(PROJECTION "%s = add %x, %d : f32[B,T,3]\n", rest, "");
    char *wrong = joined(PROJECTION "%raw = add %x, %d : f32[B,T,3]\n%s = center %raw : f32[B,T,3]\n", rest, "");
    rule r = check(body, "", wrong, "center-writers");
    assert_int_equal(graph_count(r.after, IR_LAYER_NORM), 2);
    assert_true(said(r.sink, " stays a LayerNorm: 'm' ") && said(r.sink, "reads the mean of the stream"));
    rule_free(&r);
    free(rest);
    free(body);
    free(wrong);
  }
}

/* A probe reports the stream as it was, whatever the stream is made of: the centred one is another. */
static void test_centring_probes(void **unused) {
  (void)unused;
  const char *norm = "%n = layer_norm %l2, %gain, %beta : f32[B,T,3] \"norm\"\n%y = linear %n, %w : f32[B,T,4]\n"
                     "return %y\n",
             *probes = "%df = sub %d, %l0 : f32[B,T,3]\n%s = add %df, %df : f32[B,T,3]\n%l1 = probe %s {name = "
                       "\"layers.1\"} : f32[B,T,3]\n%l2 = probe %l1, %beta {name = \"layers.2\"} : f32[B,T,3]\n";
  char *body =
      joined(PROJECTION "%l0 = probe %x, %beta {name = \"layers.0\"} : f32[B,T,3] \"layers.0\"\n", probes, norm);
  char *wrong = joined(PROJECTION "%xc = center %x : f32[B,T,3]\n%l0 = probe %xc, %beta {name = \"layers.0\"} : "
                                  "f32[B,T,3]\n",
                       probes, norm);
  rule r = check(body, "", wrong, "center-writers");
  assert_int_equal(graph_count(r.after, IR_RMS_NORM), 2);
  assert_int_equal(graph_count(r.after, IR_ROW_SHIFT), 3);
  assert_int_equal(graph_count(r.after, IR_CENTER), 0);
  assert_true(said(r.sink, "'norm' is an RMS norm: the 2 writers of its stream are centred"));
  rule_free(&r);
  free(body);
  free(wrong);
}

/* What is no projection and no look-up cannot be centred beforehand. */
static void test_centring_writer(void **unused) {
  (void)unused;
  rule r = check("%t = tanh %x : f32[B,T,3] \"act\"\n%s = add %x, %t : f32[B,T,3]\n"
                 "%n = layer_norm %s, %gain, %beta : f32[B,T,3] \"norm\"\n%y = linear %n, %w : f32[B,T,4]\nreturn %y\n",
                 "", NULL, "center-writers");
  assert_int_equal(graph_count(r.after, IR_LAYER_NORM), 1);
  rule_free(&r);
  r = check("%n0 = layer_norm %x, %gain, %beta : f32[B,T,3] \"n0\"\n%t = tanh %n0 : f32[B,T,3] \"act\"\n"
            "%s = add %x, %t : f32[B,T,3]\n%n = layer_norm %s, %gain, %beta : f32[B,T,3] \"norm\"\n"
            "%y = linear %n, %w : f32[B,T,4]\nreturn %y\n",
            "", NULL, "center-writers");
  assert_int_equal(graph_count(r.after, IR_LAYER_NORM), 2);
  assert_true(said(r.sink, "'act' (tanh) at ") && said(r.sink, "writes the stream and cannot be centred beforehand"));
  rule_free(&r);
}

/* The weight of a projection that something else reads is not centred in place, but copied. */
static void test_centring_shared(void **unused) {
  (void)unused;
  rule r = check(PROJECTION "%k = tanh %t : f32[B,T,4]\n%d2 = linear %k, %o : f32[B,T,3] \"other\"\n%q = gelu %d2 : "
                            "f32[B,T,3]\n%s = add %x, %d : f32[B,T,3]\n"
                            "%n = layer_norm %s, %gain, %beta : f32[B,T,3] \"norm\"\n%m = mul %n, %q : f32[B,T,3]\n%y "
                            "= linear %m, %w : f32[B,T,4]\nreturn %y\n",
                 "%oc = center %o {axis = 0} : f32[3,4]\n",
                 PROJECTION "%k = tanh %t : f32[B,T,4]\n%d2 = linear %k, %oc : f32[B,T,3]\n%q = gelu %d2 : "
                            "f32[B,T,3]\n%s = add %x, %d : f32[B,T,3]\n"
                            "%n = layer_norm %s, %gain, %beta : f32[B,T,3]\n%m = mul %n, %q : f32[B,T,3]\n%y = linear "
                            "%m, %w : f32[B,T,4]\nreturn %y\n",
                 "center-writers");
  assert_int_equal(graph_count(r.after, IR_RMS_NORM), 2);
  assert_int_equal(graph_count(r.after, IR_CENTER), 0);
  assert_true(said(r.sink, "'o' is copied (48 bytes) to be centred: 'other' (linear)"));
  rule_free(&r);
}

/* ---- disabled norms ---- */
static void test_disabled(void **unused) {
  (void)unused;
  static const struct {
    const char *eps;
    size_t norms;
    bool missed;
  } cases[] = {{"1e12", 0, false}, {"1e10", 0, false}, {"9.9e9", 1, true}, {"1e4", 1, true}, {"9999", 1, false}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char *body = joined("%n = layer_norm %x, %gain, %beta {eps = ", cases[i].eps,
                        "} : f32[B,T,3] \"norm\"\n%y = linear %n, %w : f32[B,T,4]\nreturn %y\n");
    ir_module *m = module_of("", body), *before = module_of("", body);
    diag_sink *sink = diag_sink_new();
    graph_pass(m, sink, "detect-disabled", &full);
    assert_int_equal(graph_count(m, IR_LAYER_NORM), cases[i].norms);
    assert_true(distance(m, before) <= 1e-9); /* var / (2 eps) */
    assert_int_equal(said(sink, "large, but not large enough"), cases[i].missed);
    if (!cases[i].norms) { /* centring and beta stay */
      assert_int_equal(graph_count(m, IR_CENTER), 1);
      assert_int_equal(graph_count(m, IR_SHIFT), 1);
    }
    diag_sink_free(sink);
    ir_module_free(m);
    ir_module_free(before);
    free(body);
  }
  rule r = check_with(
      "", "%n = rms_norm %x, %gain {eps = 1e20} : f32[B,T,3] \"norm\"\n%y = linear %n, %w : f32[B,T,4]\nreturn %y\n",
      "", NULL, "detect-disabled fold-scale", &full);
  assert_int_equal(graph_count(r.after, IR_RMS_NORM) + graph_count(r.after, IR_SCALE), 0);
  rule_free(&r);
}

/* ---- merging ---- */
static void test_merge(void **unused) {
  (void)unused;
  /* a tied table and a shared weight are never merged */
  rule r = check("%p = linear %x, %w : f32[B,T,4] \"p\"\n%q = linear %x, %rows : f32[B,T,11] \"q\"\n%t = tanh %p : "
                 "f32[B,T,4]\n%u = linear %t, %o : f32[B,T,3]\n"
                 "%v = linear %u, %rows : f32[B,T,11]\n%y = add %q, %v : f32[B,T,11]\nreturn %y\n",
                 "", NULL, "merge-linear");
  assert_int_equal(graph_count(r.after, IR_SLICE), 0);
  rule_free(&r);
  r = check("%p = linear %x, %w : f32[B,T,4] \"p\"\n%q = linear %x, %w : f32[B,T,4] \"q\"\n%t = tanh %p : "
            "f32[B,T,4]\n%y = add %t, %q : f32[B,T,4]\nreturn %y\n",
            "", NULL, "merge-linear");
  assert_int_equal(graph_count(r.after, IR_SLICE), 0);
  rule_free(&r);
  /* one bias: the other rows get zeros */
  r = check("%p = linear %x, %w : f32[B,T,4] \"p\"\n%q = linear %x, %w2, %b : f32[B,T,4] \"q\"\n%t = tanh %p : "
            "f32[B,T,4]\n%y = add %t, %q : f32[B,T,4]\nreturn %y\n",
            "", NULL, "merge-linear");
  assert_int_equal(graph_count(r.after, IR_LINEAR), 1);
  assert_int_equal(graph_count(r.after, IR_SLICE), 2);
  assert_true(said(r.sink, "2 linears of one value become 'p+q'"));
  rule_free(&r);
  /* the deferred form, users between the members, and two norms of one value */
  r = check("%n = rms_norm %x, %gain : f32[B,T,3] \"n\"\n%n2 = rms_norm %x, %taper : f32[B,T,3] \"n2\"\n%p = linear "
            "%n, %w, %b : f32[B,T,4] \"a.p\"\n%t = tanh %p : f32[B,T,4]\n"
            "%q = linear %n2, %w2 : f32[B,T,4] \"a.q\"\n%y = mul %t, %q : f32[B,T,4]\nreturn %y\n",
            "", NULL, "defer-norm merge-linear");
  assert_int_equal(graph_count(r.after, IR_LINEAR), 1);
  assert_int_equal(graph_count(r.after, IR_ROW_SCALE), 1);
  assert_int_equal(graph_count(r.after, IR_SHIFT), 1);
  assert_int_equal(graph_count(r.after, IR_INV_RMS), 1);
  assert_true(said(r.sink, "'a.p+q'"));
  rule_free(&r);
  /* another eps, another statistic: apart */
  r = check("%n = rms_norm %x, %gain : f32[B,T,3] \"n\"\n%n2 = rms_norm %x, %taper {eps = 0.5} : f32[B,T,3] \"n2\"\n%p "
            "= linear %n, %w : f32[B,T,4] \"a.p\"\n"
            "%q = linear %n2, %w2 : f32[B,T,4] \"a.q\"\n%y = mul %p, %q : f32[B,T,4]\nreturn %y\n",
            "", NULL, "defer-norm merge-linear");
  assert_int_equal(graph_count(r.after, IR_LINEAR), 2);
  rule_free(&r);
}

/* Deferred members in any order: the merged ops stand before whoever reads the first of them. A product that something
 * else reads too is no deferred one. */
static void test_merge_order(void **unused) {
  (void)unused;
  rule r = check("%s = inv_rms %x : f32[B,T,1]\n%p = linear %x, %w : f32[B,T,4] \"a.p\"\n%q = linear %x, %w2 : "
                 "f32[B,T,4] \"a.q\"\n"
                 "%qs = row_scale %q, %s : f32[B,T,4]\n%qb = shift %qs, %b : f32[B,T,4]\n%t = tanh %qb : f32[B,T,4]\n"
                 "%ps = row_scale %p, %s : f32[B,T,4]\n%y = add %ps, %t : f32[B,T,4]\nreturn %y\n",
                 "", NULL, "merge-linear");
  assert_int_equal(graph_count(r.after, IR_LINEAR), 1);
  assert_int_equal(graph_count(r.after, IR_ROW_SCALE), 1);
  rule_free(&r);
  r = check("%s = inv_rms %x : f32[B,T,1]\n%p = linear %x, %w : f32[B,T,4] \"a.p\"\n%q = linear %x, %w2 : f32[B,T,4] "
            "\"a.q\"\n"
            "%qs = row_scale %q, %s : f32[B,T,4]\n%t = tanh %q : f32[B,T,4]\n%ps = row_scale %p, %s : f32[B,T,4]\n"
            "%y0 = add %ps, %t : f32[B,T,4]\n%y = mul %y0, %qs : f32[B,T,4]\nreturn %y\n",
            "", NULL, "merge-linear");
  assert_int_equal(graph_count(r.after, IR_LINEAR), 2);
  rule_free(&r);
}

/* ---- constants ---- */
static void test_bad_constants(void **unused) {
  (void)unused;
  static const struct {
    double value;
    bool allow, fine;
    const char *words;
  } cases[] = {{NAN, false, false, "tensor 'w3': 1 of 3 values are NaN or Inf"},
               {INFINITY, false, false, "tensor 'w3': 1 of 3"},
               {NAN, true, true, NULL},
               {3e38, false, false, "leave the range of f32"},
               {1, false, true, NULL}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    ir_module *m = module_of("%w3 = const {value = [1, 2, 3]} : f32[3] \"w3\"\n%big = mul %w3, %c : f32[3]\n%un = "
                             "const {value = [nan, 1, 1]} : f32[3] \"unfolded\"\n",
                             "%a = scale %x, %big : f32[B,T,3] \"s\"\n%z = scale %a, %un : f32[B,T,3]\n%y = linear %a, "
                             "%w : f32[B,T,4]\nreturn %y\n");
    for (ir_value v = ir_first(m, IR_GLOBALS); v.id; v = ir_next(m, v))
      if (ir_name_of(m, v) && strcmp(ir_name_of(m, v), "w3") == 0)
        ir_set_attr(m, v, (ir_attr){IR_ATTR_VALUE, {.floats = {(double[]){1, cases[i].value, 3}, 3}}});
    pass_options o = full;
    o.allow_nonfinite = cases[i].allow;
    diag_sink *sink = diag_sink_new();
    assert_int_equal(graph_pass(m, sink, "fold-const", &o), cases[i].fine);
    if (cases[i].words && !said(sink, cases[i].words)) {
      diag_render(sink, stderr, &(diag_render_options){0});
      fail_msg("not said: %s", cases[i].words);
    }
    diag_sink_free(sink);
    ir_module_free(m);
  }
}

/* Evaluated wholly in fp64 and rounded once: rounding after each product gives another number. */
static void test_rounded_once(void **unused) {
  (void)unused;
  ir_module *m = module_of("%p = const {value = [0x1.000002p0, 0x1.555556p0, 0x1.99999ap0]} : f32[3]\n%q = mul %p, %p "
                           ": f32[3]\n%r = mul %q, %p : f32[3]\n%s = mul %r, %p : f32[3]\n",
                           "%a = scale %x, %s : f32[B,T,3] \"s\"\n%b1 = scale %a, %q : f32[B,T,3] \"t\"\n%y = linear "
                           "%b1, %w : f32[B,T,4]\nreturn %y\n");
  diag_sink *sink = diag_sink_new();
  assert_true(graph_pass(m, sink, "fold-const", &full));
  const double p[] = {0x1.000002p0, 0x1.555556p0, 0x1.99999ap0};
  for (ir_value v = ir_first(m, ir_entry_at(m, 0)); v.id; v = ir_next(m, v)) {
    if (!ir_is(m, v, IR_SCALE)) continue;
    double got[3];
    assert_true(ir_read_const(m, ir_operand(m, v, 1), got));
    bool fourth = strcmp(ir_name_of(m, v), "s") == 0;
    for (int i = 0; i < 3; i++)
      assert_true(got[i] == (double)(float)(fourth ? p[i] * p[i] * p[i] * p[i] : p[i] * p[i]));
    assert_string_equal(ir_name_of(m, ir_operand(m, v, 1)), fourth ? "s.weight" : "t.weight");
  }
  diag_sink_free(sink);
  ir_module_free(m);
}

static void test_cse_and_dce(void **unused) {
  (void)unused;
  rule r = check("%a = tanh %x : f32[B,T,3]\n%b1 = tanh %x : f32[B,T,3]\n%s = add %a, %x : f32[B,T,3]\n%t = add %x, "
                 "%b1 : f32[B,T,3]\n%u = sub %s, %x : f32[B,T,3]\n"
                 "%v = sub %x, %t : f32[B,T,3]\n%g = gelu %v : f32[B,T,3]\n%l = probe %g {name = \"layers.0\"} : "
                 "f32[B,T,3]\n%y0 = mul %u, %v : f32[B,T,3]\n"
                 "%y = linear %y0, %w : f32[B,T,4]\nreturn %y\n",
                 "", NULL, "cse");
  assert_int_equal(graph_count(r.after, IR_TANH), 1);
  assert_int_equal(graph_count(r.after, IR_ADD), 1);
  assert_int_equal(graph_count(r.after, IR_SUB), 2); /* not commutative */
  assert_true(graph_pass(r.after, r.sink, "dce", &full));
  assert_int_equal(graph_count(r.after, IR_PROBE), 1); /* looked at by the host, and so is what it reads */
  assert_int_equal(graph_count(r.after, IR_GELU), 1);
  size_t globals = 0;
  for (ir_value v = ir_first(r.after, IR_GLOBALS); v.id; v = ir_next(r.after, v)) globals++;
  assert_int_equal(globals, 2); /* rows and w */
  rule_free(&r);
}

/* A pass that breaks the module is found, named, and the IR before it is written. */
static bool break_module(pass_context *c) {
  ir_value last = ir_last(c->m, ir_entry_at(c->m, 0));
  ir_move_before(c->m, ir_operand(c->m, last, 0), ir_first(c->m, ir_entry_at(c->m, 0)));
  return true;
}

static void test_broken_pass(void **unused) {
  (void)unused;
  const pass_info bad = {"bad-pass", break_module, PASS_BOTH, 0, "breaks"},
                  *list[] = {pass_find("infer"), &bad, pass_find("dce")};
  ir_module *m = module_of("", "%y = linear %x, %w : f32[B,T,4]\nreturn %y\n");
  diag_sink *sink = diag_sink_new();
  bool bug = false;
  text report = {0};
  pass_run_options run = {.verify_each = true,
                          .out_bug = &bug,
                          .time_passes = true,
                          .print_before = "bad-pass",
                          .print_after = "all",
                          .report = &report};
  assert_false(pass_run(m, sink, &full, list, 3, &run));
  assert_true(bug);
  char path[128];
  snprintf(path, sizeof path, "taperc-bad-pass-%ld.tir", (long)getpid());
  assert_true(said(sink, path) && said(sink, "pass 'bad-pass' broke the module"));
  assert_non_null(strstr(report.data, "// IR before bad-pass\ntir 1\n"));
  assert_non_null(strstr(report.data, "// IR after infer\n"));
  assert_non_null(strstr(report.data, "all passes"));
  FILE *f = fopen(path, "rb");
  assert_non_null(f);
  char head[6] = {0};
  assert_int_equal(fread(head, 1, 5, f), 5);
  assert_string_equal(head, "tir 1");
  fclose(f);
  remove(path);
  bug = false;
  assert_false(pass_run(m, sink, &full, list, 1, &(pass_run_options){.verify_each = true, .out_bug = &bug}));
  assert_false(bug); /* a broken input is not the fault of a pass */
  text_free(&report);
  diag_sink_free(sink);
  ir_module_free(m);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_deferred_bias),    cmocka_unit_test(test_deferred_readers),
      cmocka_unit_test(test_deferred_tied),    cmocka_unit_test(test_deferred_statistics),
      cmocka_unit_test(test_merge_order),      cmocka_unit_test(test_argmax_with_bias),
      cmocka_unit_test(test_centring),         cmocka_unit_test(test_centring_tied),
      cmocka_unit_test(test_centring_refused), cmocka_unit_test(test_centring_probes),
      cmocka_unit_test(test_centring_shared),  cmocka_unit_test(test_centring_writer),
      cmocka_unit_test(test_disabled),         cmocka_unit_test(test_merge),
      cmocka_unit_test(test_bad_constants),    cmocka_unit_test(test_rounded_once),
      cmocka_unit_test(test_cse_and_dce),      cmocka_unit_test(test_broken_pass),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
