/* pass_rules.h - a rule of the passes against the wrong form of it, on a small module in text. */
#ifndef TESTS_UNIT_PASS_RULES_H
#define TESTS_UNIT_PASS_RULES_H

#include "tests/unit/pass_graphs.h"

#include <stdio.h>

#define SAME 1e-12
#define OTHER 1e-3

static const pass_options full = {.level = 2, .norms = NORMS_DEFERRED, .fold = FOLD_FULL};

/* " %name = const {value = [...]} : f32[shape] "name"": numbers in [low, high], either sign where both. */
static inline void put_const(text *t, graph *g, const char *name, const char *shape, size_t n, double low, double high,
                             bool both) {
  text_printf(t, "%%%s = const {value = [", name);
  for (size_t i = 0; i < n; i++) {
    double v = low + (high - low) * graph_uniform(g);
    if (i) text_puts(t, ", ");
    text_put_hex(t, (double)(float)(both && graph_chance(g, 0.5) ? -v : v));
  }
  text_printf(t, "]} : f32[%s] \"%s\"\n", shape, name);
}

/* globals and body in .tir text, beside rows [11,3] (x is their look-up), w and w2 [4,3], o [3,4], b [4], ob [3], gain,
   taper, root (its square root), beta [3], c [1], and the gates zero, one. */
static inline ir_module *module_of(const char *globals, const char *body) {
  text t = {0};
  graph g = {.state = 11};
  text_puts(&t, "tir 1\nmodule \"rules\" {\n");
  put_const(&t, &g, "rows", "11,3", 33, 0.2, 2, true);
  put_const(&t, &g, "w", "4,3", 12, 0.2, 2, true);
  put_const(&t, &g, "w2", "4,3", 12, 0.2, 2, true);
  put_const(&t, &g, "o", "3,4", 12, 0.2, 2, true);
  put_const(&t, &g, "b", "4", 4, 0.5, 3, true);
  put_const(&t, &g, "ob", "3", 3, 0.5, 3, true);
  put_const(&t, &g, "gain", "3", 3, 0.3, 3, true);
  put_const(&t, &g, "taper", "3", 3, 0.3, 3, false);
  put_const(&t, &g, "beta", "3", 3, 0.3, 2, true);
  put_const(&t, &g, "c", "1", 1, 3, 4, false);
  text_puts(&t, "%wide = const {value = [0.5]} : f32[11,3]\n%ones = const {value = [1]} : f32[3]\n%root = sqrt %taper "
                ": f32[3]\n%unroot = div %ones, %root : f32[3]\n");
  text_puts(
      &t,
      "%zero = gate {name = \"removed\", value = [0]} : f32[1]\n%one = gate {name = \"live\", value = [1]} : f32[1]\n");
  text_puts(&t, globals);
  text_puts(&t, "entry @forward {\n%tokens = arg {name = \"tokens\"} : i32[B,T]\n%pos = arg {name = \"pos\"} : "
                "i32[B]\n%len = arg {name = \"len\"} : i32[B]\n"
                "%x = embed %tokens, %rows : f32[B,T,3] \"rows\"\n");
  text_puts(&t, body);
  text_puts(&t, "}\n}\n");
  diag_sink *sink = diag_sink_new();
  ir_module *m = ir_parse(t.data, t.size, "rules.tir", sink);
  if (!m || !ir_verify(m, sink)) {
    diag_render(sink, stderr, &(diag_render_options){0});
    fail_msg("the test's text does not parse:\n%s", t.data);
  }
  diag_sink_free(sink);
  text_free(&t);
  return m;
}

/* One body of several parts, from malloc. */
static inline char *joined(const char *a, const char *b, const char *c) {
  text t = {0};
  text_puts(&t, a);
  text_puts(&t, b);
  text_puts(&t, c);
  assert_false(t.failed);
  return t.data;
}

static inline double distance(const ir_module *a, const ir_module *b) {
  outcome x = graph_run(a), y = graph_run(b);
  double d = graph_difference(&x, &y);
  graph_free(&x);
  graph_free(&y);
  return d;
}

typedef struct rule {
  ir_module *before, *after;
  diag_sink *sink;
} rule;

/* Runs the passes ("a b c") on body: same outputs; the wrong form: other outputs. */
static inline rule check_with(const char *globals, const char *body, const char *wrong_globals, const char *wrong,
                              const char *names, const pass_options *options) {
  rule r = {module_of(globals, body), module_of(globals, body), diag_sink_new()};
  char *list = strdup(names), *rest = list;
  for (char *name = strtok_r(list, " ", &rest); name; name = strtok_r(NULL, " ", &rest))
    assert_true(graph_pass(r.after, r.sink, name, options));
  free(list);
  double d = distance(r.after, r.before);
  if (!(d <= SAME)) fail_msg("%s changed the outputs by %g", names, d);
  if (!wrong) return r;
  ir_module *w = module_of(wrong_globals, wrong);
  assert_true(distance(w, r.before) > OTHER);
  ir_module_free(w);
  return r;
}

static inline rule check(const char *body, const char *wrong_globals, const char *wrong, const char *names) {
  return check_with("", body, wrong_globals, wrong, names, &full);
}

static inline void rule_free(rule *r) {
  ir_module_free(r->before);
  ir_module_free(r->after);
  diag_sink_free(r->sink);
}

static inline bool said(const diag_sink *sink, const char *words) {
  for (size_t i = 0; i < diag_count(sink); i++)
    if (strstr(diag_at(sink, i)->message, words)) return true;
  return false;
}

#define HEAD "%h = linear %n, %rows : f32[B,T,11] \"head\"\nreturn %h\n"

#endif
