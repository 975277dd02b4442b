/* grad_graphs.h - graphs for tests of training: one gradient rule each, and any ops in any order. */
#ifndef TESTS_UNIT_GRAD_GRAPHS_H
#define TESTS_UNIT_GRAD_GRAPHS_H

#include "tests/unit/pass_graphs.h"

/* ---- one rule at a time: a body between the looked-up rows and the logits ---- */
#define GLOBALS                                                                                                        \
  "%wte = param {name = \"wte\"} : f32[11,6]\n%w = param {name = \"w\"} : f32[6]\n%v = param {name = \"v\"} : "        \
  "f32[6]\n%b = param {name = \"b\"} : f32[6]\n%m = param {name = \"m\"} : f32[6,6]\n%up = param {name = \"up\"} : "   \
  "f32[9,6]\n%ub = param {name = \"ub\"} : f32[9]\n%down = param {name = \"down\"} : f32[6,9]\n%a = param {name = "    \
  "\"a\"} : f32[1]\n%n3 = param {name = \"n3\"} : f32[3]\n%wpe = param {name = \"wpe\"} : f32[7,6]\n%k4 = param "      \
  "{name = "                                                                                                           \
  "\"k4\"} : f32[4,6]\n%c = param {name = \"norm.taper_c\"} : f32[1]\n%g = gate {name = \"g\", value = [1]} : "        \
  "f32[1]\n"                                                                                                           \
  "%two = const {value = [2]} : f32[1]\n%row = const {value = [0.75]} : f32[6]\n"

typedef struct rule_case {
  const char *name, *body; /* %x -> %y, f32[B,T,6] */
  size_t moved;            /* parameters that must have a gradient, the table included */
} rule_case;

static const rule_case rules[] = {
    {"linear", "%h = linear %x, %up, %ub : f32[B,T,9]\n%y = linear %h, %down, %b : f32[B,T,6]\n", 5},
    {"a matrix with two readers", "%h = linear %x, %m : f32[B,T,6]\n%y = linear %h, %m : f32[B,T,6]\n", 2},
    {"rms_norm", "%y = rms_norm %x, %w {eps = 0.25} : f32[B,T,6]\n", 2},
    {"layer_norm", "%y = layer_norm %x, %w, %b {eps = 0.25} : f32[B,T,6]\n", 3},
    {"norms with default eps", "%z = rms_norm %x, %w : f32[B,T,6]\n%y = layer_norm %z, %v, %b : f32[B,T,6]\n", 4},
    {"a norm without a gain", "%y = rms_norm %x, %row : f32[B,T,6]\n", 1},
    {"a norm of heads",
     "%q = split_heads %x {heads = 2} : f32[B,T,2,3]\n%r = rms_norm %q, %n3 : f32[B,T,2,3]\n"
     "%y = merge_heads %r : f32[B,T,6]\n",
     2},
    {"a taper norm of heads",
     "%q = split_heads %x {heads = 2} : f32[B,T,2,3]\n%r = taper_rms_norm %q, %n3, %n3, %c, %g : f32[B,T,2,3]\n"
     "%y = merge_heads %r : f32[B,T,6]\n",
     2},
    {"linear of heads",
     "%q = split_heads %x {heads = 1} : f32[B,T,1,6]\n%r = linear %q, %up, %ub : f32[B,T,1,9]\n%h = merge_heads %r : "
     "f32[B,T,9]\n%y = linear %h, %down : f32[B,T,6]\n",
     4},
    {"dyt", "%y = dyt %x, %a, %w, %b : f32[B,T,6]\n", 4},
    {"scale", "%y = scale %x, %w : f32[B,T,6]\n", 2},
    {"center, shift", "%h = center %x : f32[B,T,6]\n%y = shift %h, %b : f32[B,T,6]\n", 2},
    {"row statistics",
     "%s = inv_rms %x {eps = 0.5} : f32[B,T,1]\n%h = row_scale %x, %s : f32[B,T,6]\n%t = inv_std %h : f32[B,T,1]\n"
     "%z = row_scale %x, %t : f32[B,T,6]\n%y = row_shift %z, %s : f32[B,T,6]\n",
     1},
    {"row scales",
     "%s = row_rms %x : f32[B,T,1]\n%h = row_shift %x, %s : f32[B,T,6]\n%t = row_std %h : f32[B,T,1]\n"
     "%d = row_dot %h, %x : f32[B,T,1]\n%e = mul %d, %t : f32[B,T,1]\n%y = row_shift %x, %e : f32[B,T,6]\n",
     1},
    {"concat, slice",
     "%l = slice %x {size = 2, start = 0} : f32[B,T,2]\n%r = slice %x {size = 4, start = 2} : f32[B,T,4]\n"
     "%y = concat %r, %l : f32[B,T,6]\n",
     1},
    {"slices that overlap or leave out",
     "%l = slice %x {size = 3, start = 0} : f32[B,T,3]\n%r = slice %x {size = 3, start = 1} : f32[B,T,3]\n"
     "%y = concat %r, %l : f32[B,T,6]\n",
     1},
    {"slices beside a reader of the whole",
     "%l = slice %x {size = 3, start = 3} : f32[B,T,3]\n%r = slice %x {size = 3, start = 0} : f32[B,T,3]\n"
     "%z = concat %l, %r : f32[B,T,6]\n%y = mul %z, %x : f32[B,T,6]\n",
     1},
    {"concat of one value twice", "%l = slice %x {size = 3, start = 3} : f32[B,T,3]\n%y = concat %l, %l : f32[B,T,6]\n",
     1},
    {"concat of heads",
     "%q = split_heads %x {heads = 2} : f32[B,T,2,3]\n%p = slice %x {size = 3, start = 1} : f32[B,T,3]\n"
     "%o = split_heads %p {heads = 1} : f32[B,T,1,3]\n%z = concat %o, %q {axis = 2} : f32[B,T,3,3]\n"
     "%h = merge_heads %z : f32[B,T,9]\n%y = linear %h, %down : f32[B,T,6]\n",
     2},
    {"concat within heads",
     "%q = split_heads %x {heads = 2} : f32[B,T,2,3]\n%p = slice %q {size = 1, start = 2} : f32[B,T,2,1]\n"
     "%r = slice %q {size = 2, start = 0} : f32[B,T,2,2]\n%z = concat %p, %r : f32[B,T,2,3]\n"
     "%y = merge_heads %z : f32[B,T,6]\n",
     1},
    {"elementwise",
     "%1 = gelu %x : f32[B,T,6]\n%2 = gelu_tanh %1 : f32[B,T,6]\n%3 = silu %x : f32[B,T,6]\n%4 = sigmoid %3 : "
     "f32[B,T,6]\n%5 = tanh %2 : f32[B,T,6]\n%6 = neg %5 : f32[B,T,6]\n%7 = exp %6 : f32[B,T,6]\n%8 = sqrt %7 : "
     "f32[B,T,6]\n%9 = softcap %8 {cap = 1.5} : f32[B,T,6]\n%10 = relu %x : f32[B,T,6]\n%11 = add %9, %10 : "
     "f32[B,T,6]\n%y = sub %11, %4 : f32[B,T,6]\n",
     1},
    {"two tensors",
     "%h = linear %x, %m : f32[B,T,6]\n%e = exp %x : f32[B,T,6]\n%s = mul %h, %x : f32[B,T,6]\n%d = div %s, %e : "
     "f32[B,T,6]\n%f = sub %d, %h : f32[B,T,6]\n%i = mul %f, %f : f32[B,T,6]\n%j = sub %i, %i : f32[B,T,6]\n%k = div "
     "%e, %e : f32[B,T,6]\n%l = add %j, %k : f32[B,T,6]\n%y = add %i, %l : f32[B,T,6]\n",
     2},
    {"a number that is trained",
     "%1 = mul %x, %a : f32[B,T,6]\n%2 = add %a, %1 : f32[B,T,6]\n%3 = div %2, %a : f32[B,T,6]\n%e = exp %x : "
     "f32[B,T,6]\n%4 = div %a, %e : f32[B,T,6]\n%5 = sub %3, %a : f32[B,T,6]\n%6 = sub %a, %5 : f32[B,T,6]\n%7 = mul "
     "%a, %6 : f32[B,T,6]\n%y = add %7, %4 : f32[B,T,6]\n",
     2},
    {"numbers of a computed number",
     "%1 = exp %a : f32[1]\n%2 = mul %1, %two : f32[1]\n%3 = sigmoid %2 : f32[1]\n%4 = add %3, %a : f32[1]\n%5 = mul "
     "%4, %4 : f32[1]\n%y = mul %x, %5 : f32[B,T,6]\n",
     2},
    {"constants",
     "%1 = mul %x, %two : f32[B,T,6]\n%2 = add %two, %1 : f32[B,T,6]\n%3 = div %two, %2 : f32[B,T,6]\n%y = "
     "scale %3, %row : f32[B,T,6]\n",
     1},
    {"learned positions",
     "%i = positions %tokens, %pos : i32[B,T]\n%e = embed %i, %wpe : f32[B,T,6]\n%y = add %x, %e : f32[B,T,6]\n", 2},
    {"a table computed from the table",
     "%t = mul %wte, %a : f32[11,6]\n%e = embed %tokens, %t : f32[B,T,6]\n%y = add "
     "%x, %e : f32[B,T,6]\n",
     2},
    {"rope",
     "%i = positions %tokens, %pos : i32[B,T]\n%q = split_heads %x {heads = 1} : f32[B,T,1,6]\n%r = rope %q, %i {dims "
     "= 4, "
     "theta = 10} : f32[B,T,1,6]\n%s = rope %r, %i {interleaved = 1, scaling = \"linear\", scaling_factor = 4} : "
     "f32[B,T,1,6]\n%y = merge_heads %s : f32[B,T,6]\n",
     1},
    {"attention",
     "%q = split_heads %x {heads = 2} : f32[B,T,2,3]\n%h = linear %x, %m : f32[B,T,6]\n%k = split_heads %h "
     "{heads = 2} : f32[B,T,2,3]\n%o = attention %q, %k, %q : f32[B,T,2,3]\n%y = merge_heads %o : f32[B,T,6]\n",
     2},
    {"attention with shared keys, a window and a cap",
     "%q = split_heads %x {heads = 2} : f32[B,T,2,3]\n%h = slice %x {size = 3, start = 1} : f32[B,T,3]\n%k = "
     "split_heads "
     "%h {heads = 1} : f32[B,T,1,3]\n%l = linear %x, %k4 : f32[B,T,4]\n%v4 = split_heads %l {heads = 1} : "
     "f32[B,T,1,4]\n%o = attention %q, %k, %v4 {cap = 1.25, scale = 0.875, window = 3} : f32[B,T,2,4]\n%p = "
     "merge_heads "
     "%o : f32[B,T,8]\n%r = slice %p {size = 6, start = 1} : f32[B,T,6]\n%y = add %x, %r : f32[B,T,6]\n",
     2},
    {"a probe", "%y = probe %x {name = \"layers.0\"} : f32[B,T,6]\n", 1},
    {"taper norms",
     "%z = taper_rms_norm %x, %w, %v, %c, %g {eps = 0.25} : f32[B,T,6] \"one\"\n%y = taper_layer_norm %z, %v, %b, %w, "
     "%c, %g "
     ": f32[B,T,6] \"two\"\n",
     4},
};

static inline ir_module *module_of(const char *body) {
  text t = {0};
  text_puts(&t, "tir 1\nmodule \"rule\" {\nparam vocab = 11\nparam context = 7\n" GLOBALS
                "entry @forward {\n%tokens = arg {name = \"tokens\"} : i32[B,T]\n%pos = arg {name = \"pos\"} : i32[B]\n"
                "%len = arg {name = \"len\"} : i32[B]\n%x = embed %tokens, %wte : f32[B,T,6] \"wte\"\n");
  text_puts(&t, body);
  text_puts(&t, "%logits = linear %y, %wte : f32[B,T,11] \"head\"\nreturn %logits\n}\n}\n");
  diag_sink *sink = diag_sink_new();
  ir_module *m = ir_parse(t.data, t.size, "rule.tir", sink);
  diag_render(sink, stderr, &(diag_render_options){0});
  if (!m || !ir_verify(m, sink)) fail_msg("the test's text does not parse:\n%s", t.data);
  diag_sink_free(sink);
  text_free(&t);
  return m;
}

/* ---- any ops in any order ---- */
typedef struct soup {
  graph g;
  text t;
  int rows[64], heads[64], numbers[64]; /* names of values: f32[B,T,6], f32[B,T,2,3], f32[1] */
  size_t row_count, head_count, number_count;
  int last;
} soup;

static inline int soup_pick(soup *s, const int *from, size_t n) { /* mostly late ones */
  size_t a = (size_t)(graph_random(&s->g) % n), b = (size_t)(graph_random(&s->g) % n);
  return from[a > b ? a : b];
}

#define ROW soup_pick(s, s->rows, s->row_count)
#define HEADS soup_pick(s, s->heads, s->head_count)
#define NUMBER soup_pick(s, s->numbers, s->number_count)
#define ADD_ROW(...)                                                                                                   \
  (text_printf(&s->t, "%%r%d = ", ++s->last), text_printf(&s->t, __VA_ARGS__), text_puts(&s->t, " : f32[B,T,6]\n"),    \
   s->rows[s->row_count++] = s->last)
#define ADD_HEADS(...)                                                                                                 \
  (text_printf(&s->t, "%%r%d = ", ++s->last), text_printf(&s->t, __VA_ARGS__), text_puts(&s->t, " : f32[B,T,2,3]\n"),  \
   s->heads[s->head_count++] = s->last)
#define ADD_NUMBER(...)                                                                                                \
  (text_printf(&s->t, "%%r%d = ", ++s->last), text_printf(&s->t, __VA_ARGS__), text_puts(&s->t, " : f32[1]\n"),        \
   s->numbers[s->number_count++] = s->last)

static inline const char *soup_smooth(soup *s) {
  static const char *const ops[] = {"gelu", "gelu_tanh", "silu", "sigmoid", "tanh", "neg", "center"};
  return ops[graph_random(&s->g) % (sizeof ops / sizeof *ops)];
}

static inline const char *soup_pair(soup *s) {
  static const char *const ops[] = {"add", "sub", "mul"};
  return ops[graph_random(&s->g) % 3];
}

static inline void soup_row(soup *s) {
  switch (graph_random(&s->g) % 12) {
  case 0: ADD_ROW("rms_norm %%r%d, %%w {eps = 0.125}", ROW); break;
  case 1: ADD_ROW("layer_norm %%r%d, %%v, %%b {eps = 0.125}", ROW); break;
  case 2: ADD_ROW("taper_rms_norm %%r%d, %%w, %%v, %%c, %%g {eps = 0.125}", ROW); break;
  case 3: ADD_ROW("taper_layer_norm %%r%d, %%v, %%b, %%w, %%c, %%g {eps = 0.125}", ROW); break;
  case 4: ADD_ROW("dyt %%r%d, %%a, %%w, %%b", ROW); break;
  case 5: ADD_ROW("linear %%r%d, %%m, %%b", ROW); break;
  case 6: ADD_ROW("%s %%r%d", soup_smooth(s), ROW); break;
  case 7: ADD_ROW("%s %%r%d, %%r%d", soup_pair(s), ROW, ROW); break;
  case 8: ADD_ROW("%s %%r%d, %%r%d", soup_pair(s), graph_chance(&s->g, 0.5) ? ROW : NUMBER, ROW); break;
  case 9:
    ADD_ROW("sigmoid %%r%d", ROW);
    ADD_ROW("div %%r%d, %%r%d", graph_chance(&s->g, 0.5) ? ROW : NUMBER, s->last - 1);
    break;
  case 10: ADD_ROW("merge_heads %%r%d", HEADS); break;
  default:
    text_printf(&s->t, "%%p%d = slice %%r%d {size = 2, start = %d} : f32[B,T,2]\n", s->last, ROW,
                (int)(graph_random(&s->g) % 5));
    text_printf(&s->t, "%%s%d = slice %%r%d {size = 4, start = %d} : f32[B,T,4]\n", s->last, ROW,
                (int)(graph_random(&s->g) % 3));
    ADD_ROW("concat %%p%d, %%s%d", s->last - 1, s->last - 1);
    break;
  }
}

static inline void soup_heads(soup *s) {
  switch (graph_random(&s->g) % 6) {
  case 0: ADD_HEADS("split_heads %%r%d {heads = 2}", ROW); break;
  case 1: ADD_HEADS("rms_norm %%r%d, %%n3 {eps = 0.125}", HEADS); break;
  case 2: ADD_HEADS("rope %%r%d, %%i {dims = 2, theta = 10}", HEADS); break;
  case 3: ADD_HEADS("attention %%r%d, %%r%d, %%r%d {cap = 4, window = 3}", HEADS, HEADS, HEADS); break;
  case 4: ADD_HEADS("scale %%r%d, %%n3", HEADS); break;
  default: ADD_HEADS("%s %%r%d", soup_smooth(s), HEADS); break;
  }
}

static inline ir_module *soup_make(uint64_t seed) {
  soup own = {.g = {.state = seed * 1013}}, *s = &own;
  text_puts(&s->t, "%i = positions %tokens, %pos : i32[B,T]\n");
  ADD_ROW("tanh %%x");
  ADD_HEADS("split_heads %%x {heads = 2}");
  ADD_NUMBER("sigmoid %%a");
  for (int i = 0; i < 14; i++) {
    uint64_t kind = graph_random(&s->g) % 10;
    if (kind < 6)
      soup_row(s);
    else if (kind < 9)
      soup_heads(s);
    else
      ADD_NUMBER("%s %%r%d, %%r%d", soup_pair(s), NUMBER, NUMBER);
  }
  ADD_ROW("merge_heads %%r%d", s->heads[s->head_count - 1]);
  ADD_ROW("add %%r%d, %%r%d", s->rows[s->row_count - 2], s->last - 1);
  text_printf(&s->t, "%%y = softcap %%r%d {cap = 8} : f32[B,T,6]\n", s->last);
  ir_module *m = module_of(s->t.data);
  text_free(&s->t);
  return m;
}

#endif
