/* test_pass_clamp.c - clamp-rows: a model whose table was clamped by hand before any pass computes the same, through every
   pipeline, tied and not; and what is refused. */
#include "tests/unit/pass_rules.h"

#define EXACT 1e-10
#define ROUNDED 2e-5

static const unsigned char used[GRAPH_VOCAB] = {1, 1, 0, 1, 1, 1, 0, 1, 0, 1, 0};

static pass_options clamping(uint64_t seed) {
  static const double factors[] = {0.5, 1, 1.1, 2};
  return (pass_options){.level = 2,
                        .norms = seed % 5 == 2 ? NORMS_KERNEL : NORMS_DEFERRED,
                        .fold = seed % 3 == 0   ? FOLD_NONE
                                : seed % 3 == 1 ? FOLD_FULL
                                                : FOLD_EXPLICIT,
                        .untie = seed % 7 == 1,
                        .split_scale = seed % 7 == 2,
                        .clamp_rows = factors[seed % 4],
                        .used_rows = used,
                        .used_count = GRAPH_VOCAB};
}

static int by_value(const void *a, const void *b) {
  return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b);
}

/* The definition, once more: tapernorm.md 9. */
static void factors_by_hand(const double *table, double k, double *out) {
  double norm[GRAPH_VOCAB], of_used[GRAPH_VOCAB];
  size_t n = 0;
  for (size_t r = 0; r < GRAPH_VOCAB; r++) {
    norm[r] = 0;
    for (size_t i = 0; i < GRAPH_D; i++) norm[r] += pow(table[r * GRAPH_D + i], 2);
    norm[r] = sqrt(norm[r]);
    if (used[r]) of_used[n++] = norm[r];
  }
  qsort(of_used, n, sizeof *of_used, by_value);
  for (size_t r = 0; r < GRAPH_VOCAB; r++) out[r] = fmin(1, k * of_used[(n - 1) / 2] / norm[r]);
}

/* The look-up reads a table of its own. */
static void replace_table(ir_module *m, double k) {
  double table[GRAPH_VOCAB * GRAPH_D], factor[GRAPH_VOCAB];
  ir_value embed = ir_first(m, ir_entry_at(m, 0));
  while (!ir_is(m, embed, IR_EMBED) || !ir_is(m, ir_operand(m, embed, 0), IR_ARG)) embed = ir_next(m, embed);
  assert_true(ir_read_const(m, ir_operand(m, embed, 1), table));
  factors_by_hand(table, k, factor);
  ir_builder b = {m, IR_GLOBALS, IR_NONE, {0}, NULL};
  ir_attr axis = {IR_ATTR_AXIS, {.i = 0}};
  ir_value by = ir_build_const(&b, ir_type_make(IR_F32, 1, (const int64_t[]){GRAPH_VOCAB}), factor, GRAPH_VOCAB);
  ir_set_operand(m, embed, 1, ir_build(&b, IR_SCALE, (ir_value[]){ir_operand(m, embed, 1), by}, 2, &axis, 1));
}

typedef struct counts {
  size_t tied, untied, refused, changed;
} counts;

static void check_graph(graph_options o, counts *n) {
  pass_options p = clamping(o.seed);
  ir_module *m = graph_make(o), *by_hand = graph_make(o);
  replace_table(by_hand, p.clamp_rows);
  outcome wanted = graph_run(by_hand), plain = graph_run(m);
  const pass_info *list[32];
  size_t count = pass_pipeline(&p, PASS_INFER, list, 32);
  diag_sink *sink = diag_sink_new();
  double tolerance = INFINITY; /* before clamp-rows it is the unclamped model */
  bool fine = true;
  for (size_t i = 0; fine && i < count; i++) {
    if (list[i]->fn == pass_cache_attention) break;
    fine = graph_pass(m, sink, list[i]->name, &p);
    if (!fine) break;
    if (list[i]->fn == pass_clamp_rows) {
      assert_true(graph_pass(m, sink, "clamp-rows", &p)); /* a second time: nothing */
      tolerance = EXACT;
    }
    if (list[i]->fn == pass_fold_const) tolerance = ROUNDED;
    outcome now = graph_run(m);
    double d = graph_difference(&now, &wanted);
    if (!(d <= tolerance)) fail_msg("seed %llu: %s: %g", (unsigned long long)o.seed, list[i]->name, d);
    graph_free(&now);
  }
  n->refused += !fine;
  if (fine) {
    assert_true(said(sink, "are looked up shortened to"));
    n->tied += o.tied, n->untied += !o.tied;
    n->changed += graph_difference(&plain, &wanted) > 1e-3;
  } else {
    assert_true(said(sink, "is a live norm and reads the embedding first"));
  }
  graph_free(&wanted), graph_free(&plain);
  diag_sink_free(sink);
  ir_module_free(m), ir_module_free(by_hand);
}

static void test_equals_a_clamped_table(void **unused) {
  (void)unused;
  counts n = {0};
  for (uint64_t seed = 1; seed <= 160; seed++)
    check_graph(
        (graph_options){
            .seed = seed, .layer_form = seed & 1, .tied = seed & 2, .probes = seed & 4, .positive = seed & 8},
        &n);
  assert_true(n.tied >= 15 && n.untied >= 15 && n.refused >= 15 && n.changed >= 15);
}

/* ---- what is refused ---- */
#define HEAD_OF_X "%h = linear %x, %rows : f32[B,T,11] \"head\"\nreturn %h\n"

static void refuses(const char *globals, const char *body, pass_options p, const char *words) {
  ir_module *m = module_of(globals, body);
  diag_sink *sink = diag_sink_new();
  bool fine = graph_pass(m, sink, "clamp-rows", &p);
  if (fine != !words || (words && !said(sink, words))) {
    diag_render(sink, stderr, &(diag_render_options){0});
    fail_msg("expected %s", words ? words : "no refusal");
  }
  diag_sink_free(sink);
  ir_module_free(m);
}

static void test_refusals(void **unused) {
  (void)unused;
  static const unsigned char none[GRAPH_VOCAB] = {0};
  pass_options p = clamping(1), q = p;
  refuses("", HEAD_OF_X, p, NULL);
  q.used_rows = NULL;
  refuses("", HEAD_OF_X, q, "taperc scan");
  q = p, q.used_rows = none;
  refuses("", HEAD_OF_X, q, "no row that was used");
  q = p, q.used_count = 10;
  refuses("", HEAD_OF_X, q, "has 11 rows, and 10 are counted");
  q = p, q.clamp_rows = 0;
  refuses("", "%n = rms_norm %x, %gain : f32[B,T,3] \"norm\"\n" HEAD, q, NULL); /* not asked for */
  refuses("", "%n = rms_norm %x, %gain : f32[B,T,3] \"norm\"\n" HEAD, p, "'norm' (rms_norm) at");
  refuses("", "%n = taper_rms_norm %x, %gain, %taper, %c, %one : f32[B,T,3] \"norm\"\n" HEAD, p, "is a live norm");
  refuses("", "%n = taper_rms_norm %x, %gain, %taper, %c, %zero : f32[B,T,3] \"norm\"\n" HEAD, p, NULL);
  /* a live norm at the end only: what stands before it saw the rows first */
  refuses("",
          "%u = linear %x, %w : f32[B,T,4] \"up\"\n%t = tanh %u : f32[B,T,4]\n%d = linear %t, %o : f32[B,T,3] "
          "\"down\"\n%s = add %x, %d : f32[B,T,3]\n%n = rms_norm %s, %gain : f32[B,T,3] \"norm\"\n" HEAD,
          p, NULL);
  refuses("",
          "%n = taper_rms_norm %x, %gain, %taper, %c, %zero : f32[B,T,3] \"first\"\n%u = linear %n, %w : f32[B,T,4] "
          "\"up\"\n%d = linear %u, %o : f32[B,T,3] \"down\"\n%s = add %x, %d : f32[B,T,3]\n%m = rms_norm %s, %gain : "
          "f32[B,T,3] \"norm\"\n%h = linear %m, %rows : f32[B,T,11] \"head\"\nreturn %h\n",
          p, NULL);
  /* the statistic of a deferred norm */
  refuses("",
          "%i = inv_rms %x : f32[B,T,1]\n%u = linear %x, %w : f32[B,T,4] \"up\"\n%n = row_scale %u, %i : "
          "f32[B,T,4]\nreturn %n\n",
          p, "is a live norm");
  refuses("%t = const {tensor = \"t\"} : f32[11,3]\n",
          "%e = embed %tokens, %t : f32[B,T,3]\n%n = linear %e, %w : f32[B,T,4]\nreturn %n\n", p, "give the weights");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_equals_a_clamped_table), cmocka_unit_test(test_refusals)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
