/* The oracle as a machine: order, memory, refusals. Its numbers are compared with NumPy by tests/numerics/ops.py. */
#include "compiler/ir/eval.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static ir_module *parse(const char *source) {
  diag_sink *sink = diag_sink_new();
  ir_module *m = ir_parse(source, strlen(source), "x.tir", sink);
  if (!m) diag_render(sink, stderr, &(diag_render_options){0});
  assert_non_null(m);
  diag_sink_free(sink);
  return m;
}

static void assert_fails(const ir_module *m, const ir_eval_args *args, taper_status status, const char *message) {
  taper_error error = {0};
  ir_tensor out = {0};
  taper_status got = ir_eval_entry(m, ir_entry_at(m, 0), args, &out, 1, &error);
  if (got != status || !strstr(error.message, message))
    print_error("wanted %d '%s', got %d '%s'\n", status, message, got, error.message);
  assert_true(got == status && strstr(error.message, message) && !out.data);
}

static ir_tensor evaluate(const ir_module *m, const ir_eval_args *args) {
  taper_error error = {0};
  ir_tensor out = {0};
  if (ir_eval_entry(m, ir_entry_at(m, 0), args, &out, 1, &error) != TAPER_OK) print_error("%s\n", error.message);
  assert_non_null(out.data);
  return out;
}

/* A thousand tensors of 48 KB pass through a limit of three of them. */
static void test_intermediates_are_freed(void **state) {
  (void)state;
  text t = {0};
  text_puts(&t, "tir 1\nmodule \"m\" {\n%t = const {value = [2]} : f32[3,1000]\nentry @e {\n%k = arg {name = "
                "\"tokens\"} : i32[B,T]\n"
                "%0 = embed %k, %t : f32[B,T,1000]\n");
  for (int i = 1; i <= 1001; i++) text_printf(&t, "%%%d = neg %%%d : f32[B,T,1000]\n", i, i - 1);
  text_puts(&t, "return %1001\n}\n}\n");
  ir_module *m = parse(t.data);
  static const int32_t tokens[6] = {0, 1, 2, 0, 1, 2};
  ir_eval_args args = {.batch = 2, .time = 3, .tokens = tokens, .memory_limit = 150000};
  ir_tensor out = evaluate(m, &args);
  assert_true(out.rank == 3 && out.dim[0] == 2 && out.dim[1] == 3 && out.dim[2] == 1000 && out.data[5999] == -2);
  ir_tensor_free(&out);
  args.memory_limit = 90000;
  assert_fails(m, &args, TAPER_NOMEM, "48000 more bytes beside 48");
  ir_module_free(m);
  text_free(&t);
}

static void test_refusals(void **state) {
  (void)state;
  ir_module *m = parse("tir 1\nmodule \"m\" {\n%t = const {tensor = \"wte\"} : f32[3,2]\nentry @e {\n%k = arg {name = "
                       "\"tokens\"} : i32[B,T]\n"
                       "%x = embed %k, %t : f32[B,T,2] \"look\"\nreturn %x\n}\n}\n");
  static const int32_t tokens[2] = {0, 3}, minus[1] = {-1}, three[1] = {3};
  ir_eval_args args = {.batch = 1, .time = 2};
  assert_fails(m, &args, TAPER_INVALID, "no value is given for argument 'tokens'");
  args.tokens = tokens;
  assert_fails(m, &args, TAPER_INVALID, "const 'wte': tensor 'wte' has no data");
  static const float data[6] = {0, 1, 2, 3, 4, 5};
  ir_bind(m, ir_first(m, IR_GLOBALS), data);
  assert_fails(m, &args, TAPER_INVALID, "embed 'look': id 3 at [0, 1] is outside the 3 rows of the table");
  args.pos = minus;
  assert_fails(m, &args, TAPER_INVALID, "pos[0] is -1, below 0");
  args.pos = NULL, args.len = three;
  assert_fails(m, &args, TAPER_INVALID, "len[0] is 3; it must be 0 to time, 2");
  args.len = NULL, args.time = 0;
  assert_fails(m, &args, TAPER_INVALID, "batch is 1 and time 0");
  args.time = 1;
  ir_tensor out = evaluate(m, &args), two[2];
  ir_tensor_free(&out);
  taper_error error = {0};
  assert_int_equal(ir_eval_entry(m, ir_entry_at(m, 0), &args, two, 2, &error), TAPER_INVALID);
  assert_non_null(strstr(error.message, "2 results asked for, entry 'e' returns 1"));
  args.state_count = 1;
  args.states = two;
  assert_fails(m, &args, TAPER_INVALID, "1 states given, the entry has 0");
  ir_module_free(m);
}

static void test_globals(void **state) {
  (void)state;
  text t = {0};
  text_puts(&t,
            "tir 1\nmodule \"deep\" {\n%0 = const {value = [0.1]} : f32[3]\n%s = const {tensor = \"s\"} : f32[3]\n");
  enum { DEPTH = 50000 };
  for (int i = 1; i <= DEPTH; i++) text_printf(&t, "%%%d = add %%%d, %%0 : f32[3]\n", i, i - 1);
  text_printf(&t, "%%bad = add %%%d, %%s : f32[3]\nentry @e {\nreturn %%bad\n}\n}\n", DEPTH);
  ir_module *m = parse(t.data);
  ir_value bad = ir_last(m, IR_GLOBALS), deep = ir_prev(m, bad);
  ir_tensor out;
  taper_error error = {0};
  assert_int_equal(ir_eval_global(m, deep, &out, &error), TAPER_OK);
  assert_true(fabs(out.data[2] / ((DEPTH + 1) * (double)0.1f) - 1) < 1e-9); /* in f32 it would be off by 1e-4 */
  ir_tensor_free(&out);
  assert_int_equal(ir_eval_global(m, bad, &out, &error), TAPER_INVALID);
  assert_non_null(strstr(error.message, "'s' has no data"));
  assert_null(out.data);
  ir_module_free(m);
  text_free(&t);
}

static size_t probes;
static void on_probe(void *user, const char *name, const ir_tensor *value) {
  (void)user;
  assert_string_equal(name, "layers.0");
  assert_true(value->data[0] == 6);
  probes++;
}

/* A probe runs though nobody reads it; what is dead beside it does not, even where it could not. */
static void test_only_what_is_needed(void **state) {
  (void)state;
  ir_module *m = parse("tir 1\nmodule \"m\" {\n%t = const {value = [2]} : f32[3,1]\n%s = const {value = [3]} : "
                       "f32[1]\n%no = const {tensor = \"no\"} : f32[1]\n"
                       "entry @e {\n%k = arg {name = \"tokens\"} : i32[B,T]\n%z = arg {name = \"unheard\"} : "
                       "i32[B]\n%x = embed %k, %t : f32[B,T,1]\n"
                       "%p = probe %x, %s {name = \"layers.0\"} : f32[B,T,1]\n%d = scale %x, %no : f32[B,T,1]\n"
                       "%d2 = add %d, %d : f32[B,T,1]\n%y = add %x, %x : f32[B,T,1]\nreturn %y\n}\n}\n");
  static const int32_t tokens[1] = {2};
  ir_eval_args args = {.batch = 1, .time = 1, .tokens = tokens, .on_probe = on_probe};
  ir_tensor out = evaluate(m, &args);
  assert_true(out.data[0] == 4 && probes == 1);
  ir_tensor_free(&out);
  ir_module_free(m);
}

static const char cached[] =
    "tir 1\nmodule \"m\" {\n%t = const {value = [0, 1, 1, 0, 2, 2]} : f32[3,2]\nentry @e {\n%k = arg {name = "
    "\"tokens\"} : i32[B,T]\n"
    "%pos = arg {name = \"pos\"} : i32[B]\n%len = arg {name = \"len\"} : i32[B]\n%s0 = arg {name = \"s\"} : state "
    "f32[B,1,4,2]\n"
    "%r0 = arg {name = \"r\"} : state f32[B,1,4,2]\n%x = embed %k, %t : f32[B,T,2]\n%h = split_heads %x {heads = 1} : "
    "f32[B,T,1,2]\n"
    "%s1 = cache_append %s0, %h, %pos, %len : state f32[B,1,4,2]\n%r1 = cache_append %r0, %h, %pos, %len : state "
    "f32[B,1,4,2]\n"
    "%a = cache_attention %h, %s1, %r1, %pos, %len : f32[B,T,1,2]\nreturn %a, %s1, %r1\n}\n}\n";

/* Three tokens at once and one by one; the caller's states start without data and stay his. */
static void test_states(void **state) {
  (void)state;
  ir_module *m = parse(cached);
  static const int32_t tokens[3] = {0, 1, 2};
  ir_tensor whole[2] = {{0}}, steps[2] = {{0}};
  ir_eval_args args = {.batch = 1, .time = 3, .tokens = tokens, .states = whole, .state_count = 2};
  ir_tensor all = evaluate(m, &args);
  for (int32_t i = 0; i < 3; i++) {
    args = (ir_eval_args){.batch = 1, .time = 1, .tokens = tokens + i, .pos = &i, .states = steps, .state_count = 2};
    ir_tensor one = evaluate(m, &args);
    for (int k = 0; k < 2; k++) assert_true(fabs(one.data[k] - all.data[i * 2 + k]) < 1e-15);
    ir_tensor_free(&one);
  }
  assert_memory_equal(whole[0].data, steps[0].data, 8 * sizeof(double));
  assert_true(whole[0].dim[2] == 4 && whole[0].data[4] == 2 && whole[0].data[6] == 0);
  static const int32_t two = 2;
  args = (ir_eval_args){.batch = 1, .time = 3, .tokens = tokens, .pos = &two, .states = whole, .state_count = 2};
  assert_fails(m, &args, TAPER_INVALID,
               "cache_append: sequence 0: 2 cached and 3 new tokens do not fit the context of 4");
  assert_memory_equal(whole[0].data, steps[0].data, 8 * sizeof(double)); /* untouched */
  args = (ir_eval_args){.batch = 2, .time = 1, .tokens = tokens, .states = whole, .state_count = 2};
  assert_fails(m, &args, TAPER_INVALID, "state 0 has another shape than the entry's");
  args.states = NULL, args.state_count = 0; /* states of this call alone */
  ir_tensor fresh = evaluate(m, &args);
  assert_true(fresh.dim[0] == 2 && fresh.data[1] == 1 && fresh.data[2] == 1);
  ir_tensor_free(&fresh);
  ir_tensor_free(&all);
  for (int i = 0; i < 2; i++) ir_tensor_free(&whole[i]), ir_tensor_free(&steps[i]);
  ir_module_free(m);
}

static void test_rope_frequencies(void **state) {
  (void)state;
  ir_module *m =
      parse("tir 1\nmodule \"m\" {\n%x = const {value = [1]} : f32[1,1,1,128]\n%p = const {value = [1]} : i32[1,1]\n"
            "%r = rope %x, %p {scaling = \"llama3\", scaling_factor = 8, scaling_high = 4, scaling_low = 1, "
            "scaling_original = 8192, theta = 500000}"
            " : f32[1,1,1,128]\n%q = rope %x, %p {dims = 8} : f32[1,1,1,128]\nentry @e {\nreturn %r\n}\n}\n");
  ir_value q = ir_last(m, IR_GLOBALS), r = ir_prev(m, q);
  double f[64];
  assert_int_equal(ir_rope_pairs(m, r), 64);
  assert_int_equal(ir_rope_pairs(m, q), 4);
  ir_rope_inv_freq(m, q, f, 4);
  assert_true(f[0] == 1 && fabs(f[2] - 0.01) < 1e-15);
  ir_rope_inv_freq(m, r, f, 64);
  /* Llama 3.1 8B: the first waves stay, the last are 8 times slower, 29 to 35 lie between */
  assert_true(f[0] == 1 && fabs(f[28] / pow(500000, -56.0 / 128) - 1) < 1e-12 &&
              fabs(f[63] * 8 / pow(500000, -126.0 / 128) - 1) < 1e-12);
  for (int i = 29; i < 35; i++)
    assert_true(f[i] < pow(500000, -2.0 * i / 128) * (1 - 1e-9) && f[i] > pow(500000, -2.0 * i / 128) / 8 * (1 + 1e-9));
  ir_module_free(m);
}

/* Every number of a 16-bit type is its own; halfway between neighbours the even one is; a hair beyond, the nearer one. */
static void check_type(ir_dtype type, unsigned mantissa) {
  double before = 0;
  uint16_t bits = 0;
  const unsigned infinite = ((1u << (15 - mantissa)) - 1) << mantissa;
  for (unsigned i = 0; i <= infinite; i++) {
    const int exponent = (int)(i >> mantissa), bias = (1 << (14 - mantissa)) - 1;
    const double fraction = (double)(i & ((1u << mantissa) - 1)) / (1u << mantissa);
    const double v = exponent ? ldexp(1 + fraction, exponent - bias) : ldexp(fraction, 1 - bias);
    if (i < infinite) {
      assert_true(ir_round_to(type, v) == v && ir_round_to(type, -v) == -v);
      ir_store(type, &bits, 0, v);
      assert_int_equal(bits, i);
      ir_store(type, &bits, 0, -v);
      assert_int_equal(bits, i | 0x8000);
    }
    const double middle = (before + v) / 2, even = i % 2 ? before : i == infinite ? INFINITY : v;
    if (i) {
      assert_true(ir_round_to(type, middle) == even);
      assert_true(ir_round_to(type, nextafter(middle, 0)) == before);
      assert_true(ir_round_to(type, nextafter(middle, INFINITY)) == (i == infinite ? INFINITY : v));
    }
    before = v;
  }
  ir_store(type, &bits, 0, INFINITY);
  assert_int_equal(bits, infinite);
  ir_store(type, &bits, 0, (double)NAN);
  assert_true((bits & 0x7fff) > infinite);
}

static void test_rounding(void **state) {
  (void)state;
  check_type(IR_BF16, 7);
  check_type(IR_F16, 10);
  float f = 0;
  ir_store(IR_F32, &f, 0, 0.1);
  assert_true(f == 0.1f);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_intermediates_are_freed),
                                     cmocka_unit_test(test_refusals),
                                     cmocka_unit_test(test_globals),
                                     cmocka_unit_test(test_only_what_is_needed),
                                     cmocka_unit_test(test_states),
                                     cmocka_unit_test(test_rope_frequencies),
                                     cmocka_unit_test(test_rounding)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
