/* .tir text: what is refused and where, what round-trips. */
#include "compiler/ir/ir_priv.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define GLOBALS                                                                                                        \
  "tir 1\nmodule \"m\" {\n"                                                                                            \
  "%t = const {tensor = \"t\"} : f32[7,6]\n"                                                                           \
  "%w = const {value = [0x1p+0]} : f32[6]\n"                                                                           \
  "%g = gate {name = \"g\", value = [0x0p+0]} : f32[1]\n"
#define ENTRY GLOBALS "entry @e {\n%k = arg {name = \"tokens\"} : i32[B,T]\n%x = embed %k, %t : f32[B,T,6]\n"
#define END "\nreturn %x\n}\n}\n"
/* Line 6 of G(...) and line 9 of E(...) are what the case says. */
#define G(line) GLOBALS line "\nentry @e {\n%k = arg {name = \"tokens\"} : i32[B,T]\n%x = embed %k, %t : f32[B,T,6]" END
#define E(line) ENTRY line END

static const struct {
  const char *source, *message;
  uint32_t line, col;
} wrong[] = {
    {"", "expected 'tir 1', the first words of a .tir file, found the end of the file", 1, 1},
    {"model x {}", "expected 'tir 1', the first words of a .tir file, found 'model'", 1, 1},
    {"tir 2\nmodule \"m\" {\n}\n", "version 2 of .tir text; this compiler reads version 1", 1, 5},
    {"tir 1.5\nmodule \"m\" {\n}\n", "'1.5' is no integer of 64 bits", 1, 5},
    {"tir 1\n{", "expected 'module', found '{'", 2, 1},
    {"tir 1\nmodule m {", "expected a string, found 'm'", 2, 8},
    {"tir 1\nmodule \"\" {\n}\n", "the module's name is empty", 2, 8},
    {"tir 1\nmodule \"m {\n}\n", "expected a string: the string has no closing quote on its line", 2, 8},
    {"tir 1\nmodule \"m\" {\n", "expected '}', found the end of the file", 3, 1},
    {"tir 1\nmodule \"m\" {\n}\n}", "expected the end of the file, found '}'", 4, 1},
    {G("param = 3"), "expected the parameter's name, found '='", 6, 7},
    {G("param a 3"), "expected '=', found '3'", 6, 9},
    {G("param a = b"), "expected a number, found 'b'", 6, 11},
    {G("param a = 1e999"), "'1e999' is no number", 6, 11},
    {G("param a = 1 param a = 2"), "parameter 'a' is given twice", 6, 19},
    {G("gelu %w"), "expected 'param', 'entry' or an op, found 'gelu'", 6, 1},
    {G("%a = gelu %x : f32[6]"), "undefined value '%x'", 6, 11},
    {G("%a = arg {name = \"a\"} : i32[B]"), "arg cannot stand in the global region", 6, 6},
    {G("%a = gate {name = \"a\", value = [1]} : f32[2]"), "gate: a gate is f32[1]", 6, 6},
    {G("%a = gate {value = [1]} : f32[1]"), "gate: attribute 'name' is missing", 6, 6},
    {G("%a = const {value = [1, 2]} : f32[3]"), "const: attribute 'value': expected 1 or 3 numbers, found 2", 6, 6},
    {G("%a = const {value = [1.5]} : i32[3]"), "const: attribute 'value': element 0 is no i32", 6, 6},
    {G("%a = const {value = []} : f32[3]"), "expected a number, found ']'", 6, 22},
    {G("%a = const {tensor = \"a\", value = [1]} : f32[3]"), "'value' and 'tensor' exclude each other", 6, 6},
    {G("%a = const {file = \"a\"} : f32[3]"), "attributes 'file' and 'hash' need 'tensor'", 6, 6},
    {G("%a = const : f32[3]"), "const needs attribute 'value' or 'tensor'", 6, 6},
    {G("%a = const {tensor = \"a\"} : f32[B]"), "const: a global has no symbolic dimension", 6, 6},
    {G("%a = const {tensor = \"a\"} : state f32[2,3,4,5]"), "const: a global is no state", 6, 6},
    {G("%a = const {tensor = \"\\q\"} : f32[3]"), "an escape that is none of", 6, 22},
    {G("%a = const {tensor = \"\\x00\"} : f32[3]"), "an escape that is none of", 6, 22},
    {G("%a = const {tensor = \"a\"} : f32[0]"), "a dimension is 1 to 2147483647", 6, 33},
    {G("%a = const {tensor = \"a\"} : f32[99999999999999999999]"), "'99999999999999999999' is no integer of 64 bits", 6,
     33},
    {G("%a = const {tensor = \"a\"} : f32[2000000000,2000000000]"), "at most 2^40 elements", 6, 6},
    {G("%a = const {tensor = \"a\"} : f32[1,2,3,4,5]"), "more than 4 dimensions", 6, 41},
    {G("%a = const {tensor = \"a\"} : f64[3]"), "expected a type, like f32[B,T,64], found 'f64'", 6, 29},
    {G("%a = const {tensor = \"a\"} : f32[]"), "expected a dimension: a number, B or T, found ']'", 6, 33},
    {G("%a = const {tensor = \"a\"} : f32[N]"), "expected a dimension: a number, B or T, found 'N'", 6, 33},
    {G("%w = const {tensor = \"a\"} : f32[3]"), "'%w' is defined twice", 6, 1},
    {E("%y = geluu %x : f32[B,T,6]"), "unknown op 'geluu'; did you mean 'gelu'?", 9, 6},
    {E("%y = frobnicate %x : f32[B,T,6]"), "unknown op 'frobnicate'", 9, 6},
    {E("%y = gelu %x : f32[B,T,7]"), "declared f32[B,T,7], but gelu yields f32[B,T,6]", 9, 16},
    {E("%y = gelu %x"), "expected ':', found 'return'", 10, 1},
    {E("%y = gelu %x, : f32[B,T,6]"), "expected a value '%name', found ':'", 9, 15},
    {E("%y = gelu %x %x : f32[B,T,6]"), "expected ':', found '%x'", 9, 14},
    {E("%y = gelu %nobody : f32[B,T,6]"), "undefined value '%nobody'", 9, 11},
    {E("%y = gelu %y : f32[B,T,6]"), "undefined value '%y'", 9, 11},
    {E("%y = rms_norm %x, %w {epsilon = 1} : f32[B,T,6]"), "rms_norm has no attribute 'epsilon'", 9, 23},
    {E("%y = rms_norm %x, %w {ep = 1} : f32[B,T,6]"), "rms_norm has no attribute 'ep'; did you mean 'eps'?", 9, 23},
    {E("%y = rms_norm %x, %w {eps = 1, eps = 2} : f32[B,T,6]"), "attribute 'eps' is given twice", 9, 32},
    {E("%y = rms_norm %x, %w {eps = \"1\"} : f32[B,T,6]"), "expected a number, found '\"1\"'", 9, 29},
    {E("%y = rms_norm %x, %w {eps = nan} : f32[B,T,6]"), "attribute 'eps': expected a finite number", 9, 6},
    {E("%y = rms_norm %x, %w {eps 1} : f32[B,T,6]"), "expected '=', found '1'", 9, 27},
    {E("%y = rms_norm %x : f32[B,T,6]"), "rms_norm: expected 2 operands, found 1", 9, 6},
    {E("%y = split_heads %x {heads = 2.5} : f32[B,T,2,3]"), "'2.5' is no integer of 64 bits", 9, 30},
    {E("%y = split_heads %x {heads = 99999999999999999999} : f32[B,T,2,3]"), "is no integer of 64 bits", 9, 30},
    {E("%y = taper_rms_norm %x, %w, %w, %g, %w : f32[B,T,6]"), "operand 4 'gate': expected f32[1], found f32[6]", 9, 6},
    {E("%y = taper_rms_norm %x, %w, %w, %g, %h : f32[B,T,6]"), "undefined value '%h'", 9, 37},
    {E("%y = const {value = [1]} : f32[6]"), "const cannot stand in an entry", 9, 6},
    {E("%y = gelu %x : f32[B,T,6] \"\""), "the name of an op is empty", 9, 27},
    {E("%y = gelu %x : f32[B,T,6] loc(\"a\":1)"), "expected ':', found ')'", 9, 36},
    {E("%y = gelu %x : f32[B,T,6] loc(\"a\":-1:2)"), "a place is a number of 32 bits", 9, 35},
    {E("%y = gelu %x : f32[B,T,6] loc(\"a\":4294967296:2)"), "a place is a number of 32 bits", 9, 35},
    {E("%y = gelu %x : f32[B,T,6] ;"), "expected the end of the op: a character that .tir text does not use", 9, 27},
    {E("%y = return %x : f32[B,T,6]"), "return yields no value", 9, 6},
    {E("% = gelu %x : f32[B,T,6]"), "'%' without the name of a value", 9, 1},
    {E("return %x"), "return is not the last op of entry 'e'", 9, 1},
    {E("%z = arg {name = \"z\"} : i32[B]"), "an arg stands below another op of entry 'e'", 9, 6},
    {ENTRY "}\n}\n", "entry 'e' does not end with return", 0, 0},
    {E("}\nentry @e {\n%k = arg {name = \"tokens\"} : i32[B,T]"), "entry 'e' is given twice", 10, 8},
    {GLOBALS "entry e {\n}\n}\n", "expected '@', found 'e'", 6, 7},
    {GLOBALS "entry @ {\n}\n}\n", "expected the entry's name, found '{'", 6, 9},
    {GLOBALS "\x01", "a character that .tir text does not use", 6, 1},
};

static ir_module *parse(const char *source, size_t size, diag_sink *sink) {
  return ir_parse(source, size, "x.tir", sink);
}

static void test_wrong_sources(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    diag_sink *sink = diag_sink_new();
    ir_module *m = parse(wrong[i].source, strlen(wrong[i].source), sink);
    const diag *d = diag_count(sink) ? diag_at(sink, 0) : NULL;
    bool good =
        !m && d && strstr(d->message, wrong[i].message) && d->loc.line == wrong[i].line && d->loc.col == wrong[i].col;
    if (!good)
      print_error("case %zu: wanted '%s' at %u:%u, got '%s' at %u:%u\n", i, wrong[i].message, wrong[i].line,
                  wrong[i].col,
                  d   ? d->message
                  : m ? "a module"
                      : "nothing",
                  d ? d->loc.line : 0, d ? d->loc.col : 0);
    assert_true(good);
    if (d->loc.line) assert_string_equal(d->loc.file, "x.tir");
    diag_sink_free(sink);
  }
}

static void test_several_errors_a_run(void **state) {
  (void)state;
  static const char source[] =
      E("%a = geluu %x : f32[B,T,6]\n%b = tanh %a : f32[B,T,6]\n%c = tanh %x : f32[B,6]\n%d = rms_norm %x, %w {\n"
        "%e = tanh %c : f32[B,T,6]\n%f = scale %x, %t : f32[B,T,6]");
  diag_sink *sink = diag_sink_new();
  assert_null(parse(source, sizeof source - 1, sink));
  /* %b and %e read values whose definition was reported already */
  assert_int_equal(diag_error_count(sink), 4);
  static const uint32_t lines[] = {9, 11, 13, 14};
  for (size_t i = 0; i < 4; i++) assert_int_equal(diag_at(sink, i)->loc.line, lines[i]);
  diag_sink_free(sink);
}

/* ---- round trips ---- */
static char *printed(const ir_module *m) {
  text t = {0};
  ir_print(m, &t);
  assert_false(t.failed);
  return t.data;
}

static void assert_round_trip(const ir_module *m) {
  char *first = printed(m);
  diag_sink *sink = diag_sink_new();
  ir_module *again = parse(first, strlen(first), sink);
  if (!again) diag_render(sink, stderr, &(diag_render_options){0});
  assert_non_null(again);
  char *second = printed(again);
  assert_string_equal(first, second);
  ir_module *copy = ir_clone(again);
  char *third = printed(copy);
  assert_string_equal(first, third);
  ir_module_free(copy);
  ir_module_free(again);
  diag_sink_free(sink);
  free(first);
  free(second);
  free(third);
}

static void test_accepts(void **state) {
  (void)state;
  static const char source[] =
      "\xEF\xBB\xBF// RUN: something\r\ntir 1 module \"m\"\r\n{ param a = -0x1p-3 param \"b c\" = inf param d = 1e3\r\n"
      "%w = const { value = [ 1 , -2.5 , 1e-3 ] , name = \"w\" } : f32[3] // tail\n"
      "%s = scale %w, %w : f32[3]\n%z=neg %s:f32[3]\nentry @\"a b\" { return %z loc(\"\\xff\\\"\":1:2+3) } }";
  diag_sink *sink = diag_sink_new();
  ir_module *m = parse(source, sizeof source - 1, sink);
  diag_render(sink, stderr, &(diag_render_options){0});
  assert_non_null(m);
  double v;
  assert_true(ir_module_param(m, "a", &v) && v == -0.125 && ir_module_param(m, "b c", &v) && isinf(v));
  ir_value w = ir_first(m, IR_GLOBALS);
  assert_int_equal(ir_loc_of(m, w).line, 4); /* no loc: the place in the text itself, for messages only */
  char *out = printed(m);
  assert_string_equal(out, "tir 1\nmodule \"m\" {\n  param a = -0.125\n  param \"b c\" = inf\n  param d = 1000\n"
                           "  %0 = const {name = \"w\", value = [0x1p+0, -0x1.4p+1, 0x1.0624dep-10]} : f32[3]\n"
                           "  %1 = scale %0, %0 : f32[3]\n  %2 = neg %1 : f32[3]\n  entry @\"a b\" {\n"
                           "    return %2 loc(\"\\xff\\\"\":1:2+3)\n  }\n}\n");
  free(out);
  assert_round_trip(m);
  ir_module_free(m);
  diag_sink_free(sink);
}

static void test_constants_without_a_home(void **state) {
  (void)state;
  ir_module *m = ir_module_new("m");
  ir_builder b = {.m = m, .region = IR_GLOBALS};
  ir_type type = ir_type_make(IR_F32, 1, (int64_t[]){2});
  static const float data[2] = {1, 2};
  double one = 1;
  ir_attr name = {IR_ATTR_NAME, {.s = "folded"}}, tensor = {IR_ATTR_TENSOR, {.s = "w"}};
  ir_value a = ir_build_typed(&b, IR_CONST, type, &tensor, 1), c = ir_build_typed(&b, IR_CONST, type, &name, 1),
           d = ir_build_typed(&b, IR_CONST, type, NULL, 0);
  ir_build_const(&b, type, &one, 1);
  ir_bind(m, a, data), ir_bind(m, c, data), ir_bind(m, d, data);
  char *out = printed(m);
  assert_string_equal(
      out, "tir 1\nmodule \"m\" {\n  %0 = const {tensor = \"w\"} : f32[2]\n"
           "  %1 = const {file = \"\", name = \"folded\", tensor = \"folded\"} : f32[2]\n"
           "  %2 = const {file = \"\", tensor = \"const.2\"} : f32[2]\n  %3 = const {value = [0x1p+0]} : f32[2]\n}\n");
  free(out);
  assert_round_trip(m);
  ir_module_free(m);
}

/* ---- random graphs: every op, operands and attributes drawn at random; what ir_infer accepts is built ---- */
static uint64_t rng = 1;
static uint32_t draw(uint32_t n) {
  rng = rng * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(rng >> 33) % n;
}

static const char *random_string(char *out) {
  size_t n = 1 + draw(6);
  for (size_t i = 0; i < n; i++) out[i] = (char)(1 + draw(255));
  out[n] = 0;
  return out;
}

static double random_double(void) {
  static const double odd[] = {0, -0.0, 1, 0.1, 1e-300, 5e-324, 1e300, 3, 10000, -2.5};
  return odd[draw(sizeof odd / sizeof *odd)];
}

static ir_type random_type(void) {
  ir_type t = {.dtype = draw(3) ? IR_F32 : (ir_dtype)draw(IR_DTYPE_COUNT), .rank = 1 + draw(4)};
  for (uint32_t i = 0; i < t.rank; i++) t.dim[i] = (int64_t[]){1, 2, 3, 4, 6}[draw(5)];
  if (draw(2) && t.rank > 1) t.dim[0] = 2, t.dim[1] = 3;
  return t;
}

static void random_op(ir_builder *b, ir_value *values, size_t *count, size_t *built) {
  char strings[4][8];
  double floats[4] = {random_double(), draw(4) ? random_double() : -INFINITY, draw(4) ? 1 : (double)NAN, 2};
  ir_opcode op = (ir_opcode)(1 + draw(IR_OP_COUNT - 1));
  if (op == IR_RETURN || ir_op_has(op, OPF_STATE) || (op == IR_ARG && *count > 4)) return;
  const ir_operand_spec *specs;
  ir_value operands[6];
  ir_attr attrs[4];
  size_t n = ir_op_operands(op, &specs), attr_count = 0;
  if (n && specs[n - 1].variadic)
    n += draw(3);
  else if (n && specs[n - 1].optional)
    n -= draw(2);
  for (size_t i = 0; i < n; i++) operands[i] = *count ? values[draw((uint32_t)*count)] : IR_NONE;
  for (unsigned key = 0; key < IR_ATTR_COUNT && attr_count < 4; key++) {
    bool required = false;
    if (!ir_op_accepts(op, (ir_attr_key)key, &required) || (!required && draw(3))) continue;
    ir_attr *a = &attrs[attr_count];
    a->key = (ir_attr_key)key;
    switch (ir_attr_kind_of(a->key)) {
    case IR_KIND_INT: a->u.i = (int64_t)draw(5) - 1; break;
    case IR_KIND_FLOAT: a->u.f = random_double(); break;
    case IR_KIND_STRING: a->u.s = random_string(strings[attr_count]); break;
    case IR_KIND_FLOATS: a->u.floats.data = floats, a->u.floats.n = 1 + draw(3); break;
    }
    attr_count++;
  }
  if (op == IR_CONST && !ir_attr_in(attrs, attr_count, IR_ATTR_VALUE) && !ir_attr_in(attrs, attr_count, IR_ATTR_TENSOR))
    return;
  bool global = ir_op_has(op, OPF_GLOBAL);
  if (b->region.id == IR_GLOBALS.id ? !global && !ir_op_has(op, OPF_PURE) : global) return;
  ir_type type = random_type();
  text message = {0};
  if (!ir_infer(b->m, op, operands, n, attrs, attr_count, &type, &message)) {
    assert_true(message.size > 0);
    text_free(&message);
    return;
  }
  for (size_t i = 0; i < n && i < ir_op_operands(op, NULL); i++)
    if (specs[i].is_gate && !ir_is(b->m, operands[i], IR_GATE) && !ir_is(b->m, operands[i], IR_CONST)) return;
  if (b->region.id == IR_GLOBALS.id && ir_elements(type) < 0) return;
  char name[8], file[8];
  b->name = draw(3) ? NULL : random_string(name);
  b->loc = draw(2) ? (diag_loc){0} : (diag_loc){random_string(file), draw(1000), draw(100), draw(3)};
  if (op == IR_ARG || global)
    values[(*count)++] = ir_build_typed(b, op, type, attrs, attr_count);
  else
    values[(*count)++] = ir_build(b, op, operands, n, attrs, attr_count), (*built)++;
}

static void random_module(size_t *built) {
  char name[8];
  ir_value values[200];
  size_t count = 0;
  ir_module *m = ir_module_new(random_string(name));
  for (uint32_t i = draw(4); i > 0; i--) ir_module_set_param(m, random_string(name), random_double());
  ir_builder b = {.m = m, .region = IR_GLOBALS};
  for (int i = 0; i < 20000 && count < 80; i++) random_op(&b, values, &count, built);
  for (size_t globals = count, e = draw(3); e > 0; e--, count = globals) {
    random_string(name);
    if (ir_entry_find(m, name).id) continue;
    b = (ir_builder){.m = m, .region = ir_entry_add(m, name)};
    size_t dummy = 0;
    for (int i = 0; i < 4000 && count < globals + 60; i++) random_op(&b, values, &count, &dummy);
    b.name = NULL;
    b.loc = (diag_loc){0};
    ir_build(&b, IR_RETURN, &values[count - 1], 1, NULL, 0);
    /* args were drawn among other ops: to the front with them */
    for (ir_value v = ir_first(m, b.region), next; v.id; v = next) {
      next = ir_next(m, v);
      if (ir_is(m, v, IR_ARG) && !ir_same(v, ir_first(m, b.region))) ir_move_before(m, v, ir_first(m, b.region));
    }
  }
  diag_sink *sink = diag_sink_new();
  bool names_clash = false;
  if (!ir_verify(m, sink))
    for (size_t i = 0; i < diag_count(sink); i++) {
      names_clash |= strstr(diag_at(sink, i)->message, "two args") != NULL;
      if (!names_clash) print_error("%s\n", diag_at(sink, i)->message);
    }
  assert_true(names_clash || diag_error_count(sink) == 0);
  diag_sink_free(sink);
  if (!names_clash) assert_round_trip(m);
  ir_module_free(m);
}

static void test_random_round_trips(void **state) {
  (void)state;
  size_t built = 0;
  for (int i = 0; i < 60; i++) random_module(&built);
  assert_true(built > 500);
}

/* ---- hostile sizes ---- */
static void assert_refused(text *t, const char *message) {
  diag_sink *sink = diag_sink_new();
  ir_module *m = parse(t->data, t->size, sink);
  assert_null(m);
  assert_true(diag_count(sink) > 0);
  bool found = false;
  for (size_t i = 0; i < diag_count(sink); i++) found |= strstr(diag_at(sink, i)->message, message) != NULL;
  if (!found) print_error("wanted '%s', got '%s'\n", message, diag_at(sink, 0)->message);
  assert_true(found);
  diag_sink_free(sink);
  text_free(t);
}

static void repeat(text *t, const char *what, size_t n) {
  for (size_t i = 0; i < n; i++) text_puts(t, what);
}

static void test_hostile(void **state) {
  (void)state;
  text t = {0};
  text_puts(&t, GLOBALS "%a = const {value = ");
  repeat(&t, "[", 100000);
  assert_refused(&t, "expected a number, found '['");
  text_puts(&t, GLOBALS);
  repeat(&t, "{", 100000);
  assert_refused(&t, "expected 'param', 'entry' or an op, found '{'");
  text_puts(&t, GLOBALS "%a = const {value = [1");
  repeat(&t, ",1", 100000);
  assert_refused(&t, "more than 64 numbers");
  text_puts(&t, ENTRY "return %x");
  repeat(&t, ", %x", 100000);
  assert_refused(&t, "more than 4096 operands");
  text_puts(&t, GLOBALS "%a = const {tensor = \"");
  repeat(&t, "a", 100000);
  text_puts(&t, "\"} : f32[1]\n}\n");
  assert_refused(&t, "the string is longer than 4096 bytes");
  text_puts(&t, GLOBALS "%a = const {value = [0.");
  repeat(&t, "1", 100000);
  text_puts(&t, "]} : f32[1]\n}\n");
  assert_refused(&t, "is no number");
  text_puts(&t, GLOBALS);
  repeat(&t, "%q = \n", 100000); /* one message a line would be too many */
  assert_refused(&t, "expected the name of an op");
  text_puts(&t, GLOBALS);
  for (int i = 0; i < 70; i++) text_printf(&t, "entry @e%d {\nreturn %%w\n}\n", i);
  assert_refused(&t, "more than 64 entries");
  text_puts(&t, "tir 1\nmodule \"m\" {\n");
  t.data[3] = 0;
  assert_refused(&t, "a character that .tir text does not use");
}

static void test_every_cut_is_refused(void **state) {
  (void)state;
  static const char whole[] = E("%y = split_heads %x {heads = 2} : f32[B,T,2,3] \"n\" loc(\"a\":1:2)");
  for (size_t n = 0; n < sizeof whole - 3; n++) { /* without the last brace */
    diag_sink *sink = diag_sink_new();
    assert_null(parse(whole, n, sink));
    assert_true(diag_error_count(sink) > 0);
    diag_sink_free(sink);
  }
}

static void test_deep_graph(void **state) {
  (void)state;
  text t = {0};
  text_puts(&t, "tir 1\nmodule \"deep\" {\n%0 = const {value = [1]} : f32[3]\n");
  enum { DEPTH = 100000 };
  for (int i = 1; i <= DEPTH; i++) text_printf(&t, "%%%d = neg %%%d : f32[3]\n", i, i - 1);
  text_printf(&t, "entry @e {\nreturn %%%d\n}\n}\n", DEPTH);
  diag_sink *sink = diag_sink_new();
  ir_module *m = parse(t.data, t.size, sink);
  assert_non_null(m);
  assert_round_trip(m);
  ir_module_free(m);
  diag_sink_free(sink);
  text_free(&t);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_wrong_sources),
                                     cmocka_unit_test(test_several_errors_a_run),
                                     cmocka_unit_test(test_accepts),
                                     cmocka_unit_test(test_constants_without_a_home),
                                     cmocka_unit_test(test_random_round_trips),
                                     cmocka_unit_test(test_hostile),
                                     cmocka_unit_test(test_every_cut_is_refused),
                                     cmocka_unit_test(test_deep_graph)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
