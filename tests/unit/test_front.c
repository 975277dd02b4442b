/* The language: what is refused with which code and where, options, weights, training data, limits. */
#include "compiler/front/front_priv.h"
#include "runtime/base/safetensors.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#define HEAD "model m(vocab = 16, d = 8, context = 32) {\nparam w: [vocab, d];\ngate g;\ngate gs[3];\n"
#define FORWARD                                                                                                        \
  "forward(t) {\nlet x = embed(t, w); x = taper_rms_norm(x, name = \"n\", gate = g); x = taper_rms_norm(x, name = "    \
  "\"m\", gate = gs[1]);\n"
#define END "\nreturn linear(x, weight = w);\n}\n}\n"
#define BODY(text) HEAD FORWARD text END      /* line 7 */
#define DECL(text) HEAD text "\n" FORWARD END /* line 5 */

static const struct {
  const char *source;
  diag_code code;
  uint32_t line, col;
} wrong[] = {
    {"", DC_FRONT_SYNTAX, 1, 1},
    {"\n\n", DC_FRONT_SYNTAX, 3, 1},
    {"model", DC_FRONT_SYNTAX, 1, 6},
    {"modell m() {}", DC_FRONT_SYNTAX, 1, 1},
    {"train { }", DC_FRONT_SYNTAX, 1, 1},
    {"model m() { } model n() { }", DC_FRONT_SYNTAX, 1, 15},
    {"model m(a) { }", DC_FRONT_SYNTAX, 1, 10},
    {"model m(a = 1 b = 2) { }", DC_FRONT_SYNTAX, 1, 15},
    {"/* a", DC_FRONT_COMMENT, 1, 1},
    {"// a\r\n\x01", DC_FRONT_NUL, 2, 1},
    {"model \xc0\x80", DC_FRONT_UTF8, 1, 7},
    {"model \xed\xa0\x80", DC_FRONT_UTF8, 1, 7},
    {"model \xf5\x80\x80\x80", DC_FRONT_UTF8, 1, 7},
    {"model \xe2\x82", DC_FRONT_UTF8, 1, 7},
    {"model m\xef\xbb\xbf() { }", DC_FRONT_STRAY, 1, 8},
    {BODY("x = x # x;"), DC_FRONT_STRAY, 7, 7},
    {BODY("x = linear(x, d, name = 'a');"), DC_FRONT_STRAY, 7, 25},
    {BODY("x = 1.5.2 * x;"), DC_FRONT_NUMBER, 7, 5},
    {BODY("x = 1. * x;"), DC_FRONT_NUMBER, 7, 5},
    {BODY("x = 9223372036854775808 * x;"), DC_FRONT_NUMBER, 7, 5},
    {BODY("x = 9223372036854775807M * x;"), DC_FRONT_NUMBER, 7, 5},
    {BODY("x = x < 1 < 2;"), DC_FRONT_SYNTAX, 7, 10},
    {BODY("x += x;"), DC_FRONT_SYNTAX, 7, 3},
    {BODY("repeat 3 { }"), DC_FRONT_SYNTAX, 7, 10},
    {BODY("repeat 3 as layers { }"), DC_FRONT_SYNTAX, 7, 13},
    {BODY("x = (x, x);"), DC_FRONT_KIND, 7, 5},
    {BODY("x = g;"), DC_FRONT_KIND, 7, 5},
    {BODY("x = x + g;"), DC_FRONT_KIND, 7, 9},
    {BODY("x = x[0];"), DC_FRONT_KIND, 7, 5},
    {BODY("x = d[0];"), DC_FRONT_KIND, 7, 5},
    {BODY("x = gs[1.0];"), DC_FRONT_KIND, 7, 8},
    {BODY("x = min(1, x);"), DC_FRONT_KIND, 7, 5},
    {BODY("x = floor_div(7);"), DC_FRONT_MISSING_ARGUMENT, 7, 5},
    {BODY("x = floor_div(a = 7, 2);"), DC_FRONT_UNKNOWN_ARGUMENT, 7, 15},
    {BODY("let _a = floor_div(-7, 0);"), DC_FRONT_DIVISION, 7, 10},
    {BODY("let _a = 5 % 0;"), DC_FRONT_DIVISION, 7, 10},
    {BODY("let _a = -9223372036854775807 - 2;"), DC_FRONT_OVERFLOW, 7, 10},
    {BODY("let _a = true + 1;"), DC_FRONT_KIND, 7, 10},
    {BODY("let _a = !3;"), DC_FRONT_KIND, 7, 10},
    {BODY("if \"a\" == 1 { }"), DC_FRONT_KIND, 7, 4},
    {BODY("repeat 2.0 as \"l\" { }"), DC_FRONT_KIND, 7, 8},
    {BODY("repeat 1025 as \"l\" { }"), DC_FRONT_RANGE, 7, 8},
    {BODY("repeat 1 as \"\" { }"), DC_FRONT_WEIGHT_NAME, 7, 13},
    {BODY("x = linear(x, 2147483648, name = \"a\");"), DC_FRONT_RANGE, 7, 15},
    {BODY("x = linear(x, d, weight = w);"), DC_FRONT_SHAPE, 7, 15},
    {BODY("x = linear(x, d, weight = false, name = \"a\");"), DC_FRONT_KIND, 7, 27},
    {BODY("x = linear(x, d, weight = 3, name = \"a\");"), DC_COUNT, 0, 0},
    {BODY("x = concat();"), DC_FRONT_MISSING_ARGUMENT, 7, 5},
    {BODY("x = rms_norm(t, name = \"r\");"), DC_FRONT_SHAPE, 7, 14},
    {BODY("x = embed(x, w);"), DC_FRONT_SHAPE, 7, 11},
    {BODY("x = rms_norm(x, name = \"r\", eps = -1);"), DC_FRONT_SHAPE, 7, 35},
    {BODY("x = rms_norm(x, name = \"r\", eps = true);"), DC_FRONT_KIND, 7, 35},
    {BODY("x = return;"), DC_FRONT_SYNTAX, 7, 5},
    {HEAD "param v: [];\n" FORWARD "x = scale(x, weight = v);" END, DC_FRONT_RANGE, 5, 7},
    {HEAD "param v: [d, 0];\n" FORWARD "x = scale(x, weight = v);" END, DC_FRONT_RANGE, 5, 14},
    {DECL("gate _n[0];"), DC_FRONT_RANGE, 5, 9},
    {DECL("gate n[x];"), DC_FRONT_UNKNOWN_NAME, 5, 8},
    {DECL("gate _n[g];"), DC_FRONT_KIND, 5, 9},
    {DECL("param v: [f(3)];\nblock f(x) { return x; }"), DC_FRONT_KIND, 5, 11},
    {"model m(vocab = 16, context = vocab / 3) { param w: [vocab, 8]; forward(t) { return embed(t, w); } }",
     DC_FRONT_DIVISION, 1, 31},
    {"model m(vocab = d, d = 16, context = 1) { param w: [vocab, 8]; forward(t) { return embed(t, w); } }",
     DC_FRONT_UNKNOWN_NAME, 1, 17},
    {"model m(vocab = \"a\", context = 1) { param w: [8, 8]; forward(t) { return embed(t, w); } }", DC_FRONT_KIND, 1,
     17},
    {"model m(vocab = 8, context = 1) { param w: [8, 8]; forward(t, u) { return embed(t, w); } }", DC_FRONT_FORWARD, 1,
     52},
    {"model m(vocab = 8, context = 1) { param w: [8, 8]; param w: [3]; forward(t) { return embed(t, w); } }",
     DC_FRONT_DUPLICATE, 1, 58},
};

static ir_module *compile(const char *source, const front_options *options, diag_sink *sink) {
  front_model *f = front_parse(source, strlen(source), "case", options, sink);
  ir_module *m = f ? front_lower(f, options, sink) : NULL;
  if (m) assert_true(ir_verify(m, sink));
  front_free(f);
  return m;
}

static void wrong_sources(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
    diag_sink *sink = diag_sink_new();
    ir_module *m = compile(wrong[i].source, NULL, sink);
    if (wrong[i].code == DC_COUNT) {
      assert_non_null(m);
    } else {
      const diag *d = diag_count(sink) ? diag_at(sink, 0) : NULL;
      if (!d || d->code != wrong[i].code || d->loc.line != wrong[i].line || d->loc.col != wrong[i].col)
        fail_msg("case %zu: found code %d at %u:%u: %s", i, d ? (int)d->code : -1, d ? d->loc.line : 0,
                 d ? d->loc.col : 0, d ? d->message : "nothing");
      assert_true(d->severity != DIAG_ERROR || !m);
    }
    ir_module_free(m);
    diag_sink_free(sink);
  }
}

static ir_module *good(const char *source, const front_options *options, diag_sink *sink) {
  ir_module *m = compile(source, options, sink);
  if (!m) fail_msg("%s", diag_at(sink, 0)->message);
  return m;
}

static ir_value find(const ir_module *m, ir_opcode op, const char *name) {
  for (ir_value v = ir_first(m, IR_GLOBALS); v.id; v = ir_next(m, v))
    if (ir_is(m, v, op) && ir_name_of(m, v) && strcmp(ir_name_of(m, v), name) == 0) return v;
  return IR_NONE;
}

static double gate_value(const ir_module *m, const char *name, int64_t index) {
  for (ir_value v = ir_first(m, IR_GLOBALS); v.id; v = ir_next(m, v)) {
    double value;
    if (!ir_is(m, v, IR_GATE) || strcmp(ir_attr_string(m, v, IR_ATTR_NAME, ""), name) != 0) continue;
    if (ir_attr_int(m, v, IR_ATTR_INDEX, -1) == index && ir_read_const(m, v, &value)) return value;
  }
  return -1;
}

static void gates(void **state) {
  (void)state;
  static const double half = 0.5, zero = 0, three[] = {0, 0.25, 1}, wide = 1.5, nan = __builtin_nan("");
  diag_sink *sink = diag_sink_new();
  front_gate list[] = {{"g", &half, 1, "w"}, {"gs", three, 3, "w"}, {"g", &zero, 1, NULL}};
  front_options options = {.gates = list, .gate_count = 3};
  ir_module *m = good(BODY(""), &options, sink);
  assert_true(gate_value(m, "g", -1) == 0); /* the later one wins */
  assert_true(gate_value(m, "gs", 1) == 0.25);
  ir_module_free(m);
  const front_gate bad[] = {
      {"h", &half, 1, NULL}, {"gs", three, 2, "w"}, {"g", three, 3, "w"}, {"g", &wide, 1, NULL}, {"g", &nan, 1, "w"}};
  static const diag_code codes[] = {DC_FRONT_UNKNOWN_GATE, DC_FRONT_GATE_VALUE, DC_FRONT_GATE_VALUE,
                                    DC_FRONT_GATE_VALUE, DC_FRONT_GATE_VALUE};
  for (size_t i = 0; i < 5; i++) {
    options = (front_options){.gates = &bad[i], .gate_count = 1};
    size_t before = diag_count(sink);
    assert_null(compile(BODY(""), &options, sink));
    assert_int_equal(diag_count(sink), before + 1);
    assert_int_equal(diag_at(sink, before)->code, codes[i]);
    if (bad[i].file)
      assert_string_equal(diag_at(sink, before)->loc.file, bad[i].file);
    else
      assert_null(diag_at(sink, before)->loc.file);
    assert_non_null(strstr(diag_at(sink, before)->message, bad[i].file ? "taper.gates" : "--gate"));
  }
  diag_sink_free(sink);
}

static void defines(void **state) {
  (void)state;
  diag_sink *sink = diag_sink_new();
  front_define list[] = {{"d", 4}, {"d", 12}};
  front_options options = {.defines = list, .define_count = 2};
  ir_module *m = good(
      "model m(vocab = 4, context = 2, d = 8, f = 2 * d, r = 0.5) { param w: [vocab, d]; param u: [f]; forward(t) { "
      "return linear(scale(concat(embed(t, w), embed(t, w)), weight = u) * r, vocab, name = \"o\"); } }",
      &options, sink);
  double f;
  assert_true(ir_module_param(m, "f", &f) && f == 24); /* follows -D d */
  assert_string_equal(ir_module_param_at(m, 0, NULL), "vocab");
  ir_module_free(m);
  const front_define bad[] = {{"q", 1},       {"d", 0.5},    {"d", 1e300}, {"d", __builtin_nan("")},
                              {"context", 0}, {"vocab", 3e9}};
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
    options = (front_options){.defines = &bad[i], .define_count = 1};
    assert_null(compile(BODY(""), &options, sink));
  }
  diag_sink_free(sink);
}

static void training_weights(void **state) {
  (void)state;
  diag_sink *sink = diag_sink_new();
  front_options options = {.train = true};
  ir_module *m =
      good("model m(vocab = 4, context = 2, d = 4) { param w: [vocab, d] init uniform(0.5); param v: [d] init 2 * 3; "
           "forward(t) { let x = scale(embed(t, w), weight = v); x = dyt(x, name = \"y\", alpha = 0.25, bias = false); "
           "x = linear(x, d, name = \"a\", bias = true, init = normal(1 / sqrt(4.0))); "
           "return linear(x, vocab, name = \"o\"); } }",
           &options, sink);
  static const char *const expected[][2] = {
      {"w", "uniform(0.5)"},       {"v", "6"},          {"y.alpha", "0.25"},         {"y.weight", "ones"},
      {"a.weight", "normal(0.5)"}, {"a.bias", "zeros"}, {"o.weight", "normal(0.02)"}};
  for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
    ir_value v = find(m, IR_PARAM, expected[i][0]);
    assert_true(v.id);
    assert_string_equal(ir_attr_string(m, v, IR_ATTR_INIT, ""), expected[i][1]);
  }
  assert_false(find(m, IR_PARAM, "y.bias").id);
  assert_false(find(m, IR_CONST, "w").id);
  ir_module_free(m);
  diag_sink_free(sink);
}

static void train_section(void **state) {
  (void)state;
  static const char source[] =
      DECL("") "train { tokenizer none; optimizer adamw(lr = 1e-3, betas = (0.8, 0.9), eps = 1e-7, weight_decay = 0.1, "
               "clip = 0); "
               "schedule linear(warmup = 10%, floor = 25%); taper g(start = 20, end = 80%, ema = 0.1); "
               "taper gs(step = 50%, every = 5, calibration = inv_sigma); anchor fixed_target(weight = 0.01); steps 2 "
               "* 100; batch 3; sequence context; seed 9; accumulate 4; }";
  diag_sink *sink = diag_sink_new();
  front_model *f = front_parse(source, sizeof source - 1, "train", NULL, sink);
  assert_non_null(f);
  const front_train *t = &f->train;
  assert_true(t->given && t->lr == 1e-3 && t->beta1 == 0.8 && t->beta2 == 0.9 && t->eps == 1e-7 &&
              t->weight_decay == 0.1 && t->clip == 0);
  assert_true(t->schedule == SCHEDULE_LINEAR && t->warmup.given && t->warmup.percent && t->warmup.value == 0.1 &&
              t->floor == 0.25);
  assert_int_equal(t->taper_count, 2);
  assert_true(t->tapers[0].kind == TAPER_RAMP && !t->tapers[0].start.percent && t->tapers[0].start.value == 20 &&
              t->tapers[0].end.value == 0.8);
  assert_true(t->tapers[0].ema == 0.1 && !t->tapers[0].inv_sigma);
  assert_true(t->tapers[1].kind == TAPER_STEP && t->tapers[1].step.value == 0.5 && t->tapers[1].every.value == 5 &&
              t->tapers[1].inv_sigma);
  assert_true(t->anchor && t->anchor_weight == 0.01 && t->steps == 200 && t->batch == 3 && t->sequence == 32 &&
              t->seed == 9 && t->accumulate == 4);
  assert_string_equal(front_tokenizer(f), "none");
  front_free(f);
  diag_sink_free(sink);
}

static void sentencepiece(void **state) {
  (void)state;
  static const char source[] = DECL("") "train { tokenizer sentencepiece(model = \"spm/a b.model\", vocab = 16); }";
  diag_sink *sink = diag_sink_new();
  front_model *f = front_parse(source, sizeof source - 1, "train", NULL, sink);
  assert_non_null(f);
  assert_string_equal(f->train.tokenizer, "sentencepiece");
  assert_string_equal(f->train.tokenizer_file, "spm/a b.model");
  assert_int_equal(f->train.tokenizer_vocab, 16);
  assert_int_equal(f->train.accumulate, 1);
  front_free(f);
  diag_sink_free(sink);
}

static char *repeated(const char *before, const char *unit, size_t times, const char *after) {
  text t = {0};
  text_puts(&t, before);
  for (size_t i = 0; i < times; i++) text_puts(&t, unit);
  text_puts(&t, after);
  return t.data;
}

static void limits(void **state) {
  (void)state;
  const struct {
    char *source;
    diag_code code;
  } cases[] = {
      {repeated(HEAD FORWARD "x = ", "(", 100000, "x;" END), DC_FRONT_NESTING},
      {repeated(HEAD FORWARD "x = ", "-", 100000, "x;" END), DC_FRONT_NESTING},
      {repeated(HEAD FORWARD "x = x", " + x", 100000, ";" END), DC_FRONT_NESTING},
      {repeated(HEAD FORWARD "", "if d == 1 { ", 100000, END), DC_FRONT_NESTING},
      {repeated(HEAD FORWARD "if d == 1 { }", " else if d == 1 { }", 100000, END), DC_FRONT_NESTING},
      {repeated(HEAD FORWARD "x = linear(x, d, name = ", "f(", 100000, END), DC_FRONT_NESTING},
      {repeated(HEAD FORWARD "", "x = x; ", 300000, END), DC_FRONT_TOKENS},
      {repeated("", "// a comment\n", 400000, HEAD FORWARD END), DC_FRONT_SIZE},
      {repeated(HEAD FORWARD "let ", "a", 256, " = x;" END), DC_FRONT_LONG_NAME},
      {repeated(HEAD FORWARD "x = linear(x, d, name = \"", "a", 256, "\");" END), DC_FRONT_STRING},
      {repeated(HEAD FORWARD "x = linear(x, d, name = \"", "a", 250, "\");" END), DC_FRONT_WEIGHT_NAME},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    diag_sink *sink = diag_sink_new();
    assert_null(compile(cases[i].source, NULL, sink));
    assert_int_equal(diag_error_count(sink), 1);
    if (diag_at(sink, 0)->code != cases[i].code) fail_msg("case %zu: %s", i, diag_at(sink, 0)->message);
    diag_sink_free(sink);
    free(cases[i].source);
  }
}

static void several_errors(void **state) {
  (void)state;
  diag_sink *sink = diag_sink_new();
  assert_null(compile(BODY("x = silu(y);\nx = sillu(x);\nlet x = 3;\nreturn x + z;"), NULL, sink));
  assert_int_equal(diag_error_count(sink), 5); /* the last: what follows the return */
  diag_sink_free(sink);
  sink = diag_sink_new();
  char *many = repeated(HEAD FORWARD "", "x = y;\n", 1000, END);
  assert_null(compile(many, NULL, sink));
  assert_int_equal(diag_error_count(sink), 1000);
  assert_true(diag_count(sink) <= 21);
  diag_sink_free(sink);
  free(many);
}

static void places(void **state) {
  (void)state;
  static const char source[] = "\xEF\xBB\xBF"
                               "ab\r\ncd\n\nlast";
  arena memory = {0};
  diag_sink *sink = diag_sink_new();
  front_source s;
  assert_true(source_init(&s, source, sizeof source - 1, "f", &memory, sink));
  static const struct {
    ast_span span;
    uint32_t line, col, length;
  } cases[] = {{{3, 5}, 1, 1, 2},   {{4, 9}, 1, 2, 1},   {{7, 9}, 2, 1, 2},
               {{10, 10}, 3, 1, 1}, {{11, 15}, 4, 1, 4}, {{15, 15}, 4, 5, 1}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    diag_loc loc = source_loc(&s, cases[i].span);
    assert_int_equal(loc.line, cases[i].line);
    assert_int_equal(loc.col, cases[i].col);
    assert_int_equal(loc.length, cases[i].length);
  }
  diag_sink_free(sink);
  arena_free(&memory);
}

static void suggestions(void **state) {
  (void)state;
  static const struct {
    const char *wanted, *candidate;
    bool near;
  } cases[] = {{"internl", "internal", true},
               {"itnernal", "internal", true},
               {"sillu", "silu", true},
               {"ad", "add", true},
               {"x", "y", false},
               {"zzz", "internal", false},
               {"gelu", "silu", true},
               {"", "a", false}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    suggestion s = suggest(cases[i].wanted);
    suggest_try(&s, cases[i].candidate);
    assert_int_equal(s.best != NULL, cases[i].near);
  }
}

/* ---- the shipped sources ---- */

static front_model *open_source(const char *path, diag_sink *sink) {
  char *data;
  size_t size;
  taper_error error = {0};
  assert_int_equal(file_read(path, FRONT_MAX_SOURCE, &data, &size, &error), TAPER_OK);
  front_model *f = front_parse(data, size, path, NULL, sink);
  free(data);
  if (!f || diag_count(sink)) fail_msg("%s: %s", path, diag_at(sink, 0)->message);
  return f;
}

static void examples_print_and_parse(void **state) {
  (void)state;
  static const char *const paths[] = {"examples/tinystories.tmodel",
                                      "examples/gpt2.tmodel",
                                      "examples/neox.tmodel",
                                      "examples/qwen3.tmodel",
                                      "examples/mlp.tmodel",
                                      "examples/models/kjv-all/model.tmodel",
                                      "examples/models/kjv-internal/model.tmodel",
                                      "examples/models/kjv-ln/model.tmodel"};
  for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
    diag_sink *sink = diag_sink_new();
    front_model *f = open_source(paths[i], sink);
    text once = {0}, twice = {0};
    front_print_ast(f, &once);
    front_model *again = front_parse(once.data, once.size, "printed", NULL, sink);
    assert_non_null(again);
    front_print_ast(again, &twice);
    assert_string_equal(once.data, twice.data);
    ir_module *a = front_lower(f, NULL, sink), *b = front_lower(again, NULL, sink);
    assert_int_equal(ir_value_limit(a), ir_value_limit(b));
    assert_true(ir_verify(a, sink));
    ir_module_free(a);
    ir_module_free(b);
    text_free(&once);
    text_free(&twice);
    front_free(f);
    front_free(again);
    diag_sink_free(sink);
  }
}

/* Each weight of the source is in the file with its shape and the other way round; without a tapered branch only
 * taper_* may be absent. */
static void compare_weights(const char *folder, bool final_taper) {
  char path[200];
  taper_error error = {0};
  st_file file = {0};
  diag_sink *sink = diag_sink_new();
  snprintf(path, sizeof path, "examples/models/%s/model.tmodel", folder);
  front_model *f = open_source(path, sink);
  ir_module *m = front_lower(f, NULL, sink);
  snprintf(path, sizeof path, "examples/models/%s/weights.safetensors", folder);
  assert_int_equal(st_open(path, &file, &error), TAPER_OK);
  size_t found = 0;
  for (ir_value v = ir_first(m, IR_GLOBALS); v.id; v = ir_next(m, v)) {
    const char *name = ir_attr_string(m, v, IR_ATTR_TENSOR, NULL);
    if (!name) continue;
    const st_tensor *t = st_find(&file, name);
    if (!t && !final_taper && strncmp(name, "norm.taper_", 11) == 0) continue;
    assert_non_null(t);
    ir_type type = ir_type_of(m, v);
    assert_int_equal(t->rank, type.rank);
    for (uint32_t i = 0; i < t->rank; i++) assert_int_equal(t->shape[i], type.dim[i]);
    found++;
  }
  assert_int_equal(found, file.count);
  assert_string_equal(front_tokenizer(f), "bytes");
  st_close(&file);
  ir_module_free(m);
  front_free(f);
  diag_sink_free(sink);
}

static void models_match_their_weights(void **state) {
  (void)state;
  compare_weights("kjv-all", true);
  compare_weights("kjv-internal", false);
  compare_weights("kjv-ln", true);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(wrong_sources),
      cmocka_unit_test(gates),
      cmocka_unit_test(defines),
      cmocka_unit_test(training_weights),
      cmocka_unit_test(train_section),
      cmocka_unit_test(sentencepiece),
      cmocka_unit_test(limits),
      cmocka_unit_test(several_errors),
      cmocka_unit_test(places),
      cmocka_unit_test(suggestions),
      cmocka_unit_test(examples_print_and_parse),
      cmocka_unit_test(models_match_their_weights),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
