/* test_autodiff.c - every gradient rule, whole models and random graphs against differences of the loss in fp64; what the
   programs of training compute beside gradients. */
#include "compiler/analysis/train.h"
#include "compiler/front/front.h"
#include "runtime/base/file.h"
#include "tests/unit/grad_check.h"

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

static ir_module *module_of(const char *body) {
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

/* ---- any ops in any order ---- */
typedef struct soup {
  graph g;
  text t;
  int rows[64], heads[64], numbers[64]; /* names of values: f32[B,T,6], f32[B,T,2,3], f32[1] */
  size_t row_count, head_count, number_count;
  int last;
} soup;

static int soup_pick(soup *s, const int *from, size_t n) { /* mostly late ones */
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

static const char *soup_smooth(soup *s) {
  static const char *const ops[] = {"gelu", "gelu_tanh", "silu", "sigmoid", "tanh", "neg", "center"};
  return ops[graph_random(&s->g) % (sizeof ops / sizeof *ops)];
}

static const char *soup_pair(soup *s) {
  static const char *const ops[] = {"add", "sub", "mul"};
  return ops[graph_random(&s->g) % 3];
}

static void soup_row(soup *s) {
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

static void soup_heads(soup *s) {
  switch (graph_random(&s->g) % 6) {
  case 0: ADD_HEADS("split_heads %%r%d {heads = 2}", ROW); break;
  case 1: ADD_HEADS("rms_norm %%r%d, %%n3 {eps = 0.125}", HEADS); break;
  case 2: ADD_HEADS("rope %%r%d, %%i {dims = 2, theta = 10}", HEADS); break;
  case 3: ADD_HEADS("attention %%r%d, %%r%d, %%r%d {cap = 4, window = 3}", HEADS, HEADS, HEADS); break;
  case 4: ADD_HEADS("scale %%r%d, %%n3", HEADS); break;
  default: ADD_HEADS("%s %%r%d", soup_smooth(s), HEADS); break;
  }
}

static void test_soups(void **state) {
  (void)state;
  const uint64_t seeds = getenv("TAPERC_QUICK") ? 10 : 60;
  for (uint64_t seed = 1; seed <= seeds; seed++) {
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
