/* Building, changing, types, shape rules, invariants. */
#include "compiler/ir/ir_priv.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>
#include <time.h>

static ir_type f32(uint32_t rank, int64_t a, int64_t b, int64_t c, int64_t d) {
  return ir_type_make(IR_F32, rank, (int64_t[]){a, b, c, d});
}

static ir_value constant(ir_module *m, const char *name, ir_type type) {
  ir_builder b = {.m = m, .region = IR_GLOBALS};
  return ir_build_typed(&b, IR_CONST, type, &(ir_attr){IR_ATTR_TENSOR, {.s = name}}, 1);
}

static ir_value argument(ir_builder *b, const char *name, ir_type type) {
  return ir_build_typed(b, IR_ARG, type, &(ir_attr){IR_ATTR_NAME, {.s = name}}, 1);
}

/* tokens -> embed -> n times gelu -> return; out[0] is the embedding, out[n] the last gelu. */
static ir_module *chain(size_t n, ir_value *out) {
  ir_module *m = ir_module_new("chain");
  ir_value table = constant(m, "wte", f32(2, 7, 6, 0, 0));
  ir_builder b = {.m = m, .region = ir_entry_add(m, "forward")};
  ir_value tokens = argument(&b, "tokens", ir_type_make(IR_I32, 2, (int64_t[]){IR_DIM_B, IR_DIM_T}));
  out[0] = IR_BUILD(&b, IR_EMBED, tokens, table);
  for (size_t i = 1; i <= n; i++) out[i] = IR_BUILD(&b, IR_GELU, out[i - 1]);
  IR_BUILD(&b, IR_RETURN, out[n]);
  return m;
}

static bool verifies(const ir_module *m) {
  diag_sink *sink = diag_sink_new();
  bool ok = ir_verify(m, sink);
  assert_true(ok == (diag_error_count(sink) == 0));
  diag_sink_free(sink);
  return ok;
}

static void assert_broken(const ir_module *m, const char *message) {
  diag_sink *sink = diag_sink_new();
  assert_false(ir_verify(m, sink));
  bool found = false;
  for (size_t i = 0; i < diag_count(sink); i++) found |= strstr(diag_at(sink, i)->message, message) != NULL;
  if (!found) print_error("wanted '%s', got '%s'\n", message, diag_count(sink) ? diag_at(sink, 0)->message : "nothing");
  assert_true(found);
  diag_sink_free(sink);
}

static void test_table(void **state) {
  (void)state;
  const ir_operand_spec *specs;
  assert_int_equal(ir_op_operands(IR_TAPER_LAYER_NORM, &specs), 6);
  assert_string_equal(specs[2].name, "bias");
  assert_string_equal(specs[2].init, "zeros");
  assert_string_equal(specs[4].shape, "1");
  assert_true(specs[1].is_param && specs[5].is_gate && !specs[5].is_param && !specs[0].is_param);
  assert_int_equal(ir_op_operands(IR_LINEAR, &specs), 3);
  assert_true(specs[2].optional && specs[2].is_param && !specs[1].optional);
  assert_string_equal(specs[1].shape, "od");
  assert_string_equal(specs[2].init, "zeros");
  assert_int_equal(ir_op_operands(IR_ROPE, &specs), 2);
  assert_true(specs[1].is_positions);
  assert_int_equal(ir_op_operands(IR_CONCAT, &specs), 1);
  assert_true(specs[0].variadic);
  bool required;
  assert_true(ir_op_accepts(IR_SLICE, IR_ATTR_START, &required) && required);
  assert_true(ir_op_accepts(IR_RMS_NORM, IR_ATTR_EPS, &required) && !required);
  assert_true(ir_op_accepts(IR_GELU, IR_ATTR_GROUP, &required) && !required);
  assert_false(ir_op_accepts(IR_GELU, IR_ATTR_EPS, NULL));
  assert_true(ir_op_has(IR_SCALE, OPF_PURE | OPF_LINEAR) && !ir_op_has(IR_SHIFT, OPF_LINEAR));
  for (unsigned op = IR_OP_NONE + 1; op < IR_OP_COUNT; op++)
    assert_int_equal(ir_op_find(ir_op_name((ir_opcode)op)), op);
  assert_int_equal(ir_op_find("quick_gelu"), IR_OP_NONE);
}

static void test_types(void **state) {
  (void)state;
  text t = {0};
  ir_type s = f32(4, IR_DIM_B, 4, 128, 16);
  s.state = true;
  ir_print_type(&t, s);
  assert_string_equal(t.data, "state f32[B,4,128,16]");
  text_free(&t);
  assert_int_equal(ir_elements(f32(3, 2, 3, 4, 0)), 24);
  assert_int_equal(ir_elements(f32(2, IR_DIM_B, 3, 0, 0)), -1);
  assert_int_equal(ir_elements(f32(4, INT64_MAX, INT64_MAX, 3, 3)), -1);
  assert_false(ir_type_equal(s, f32(4, IR_DIM_B, 4, 128, 16)));
  assert_true(ir_round_to(IR_BF16, 1.0 + 0x1p-8) == 1.0 && ir_round_to(IR_BF16, 1.0 + 0x1.8p-8) == 1.0 + 0x1p-7);
  assert_true(isinf(ir_round_to(IR_F16, 65520.0)) && ir_round_to(IR_F16, 65519.0) == 65504.0);
  assert_true(ir_round_to(IR_F16, 0x1p-25) == 0 && ir_round_to(IR_F16, 0x1.8p-25) == 0x1p-24);
}

static void test_build_and_erase(void **state) {
  (void)state;
  ir_value v[4];
  ir_module *m = chain(3, v);
  assert_true(verifies(m));
  ir_region r = ir_entry_find(m, "forward");
  assert_true(ir_entry_at(m, 0).id == r.id && !ir_entry_find(m, "backward").id);
  ir_builder b = {.m = m, .region = r, .name = "late"};
  ir_value late = IR_BUILD(&b, IR_TANH, v[3]); /* at the end: before return */
  assert_true(ir_is(m, ir_next(m, late), IR_RETURN));
  assert_string_equal(ir_name_of(m, late), "late");
  ir_replace_uses_except(m, v[3], late, late);
  assert_true(ir_same(ir_operand(m, ir_last(m, r), 0), late) && ir_same(ir_operand(m, late, 0), v[3]));
  assert_true(verifies(m));
  /* erase in a loop: what follows an erased op stays in reach, also when it goes too */
  ir_replace_uses(m, late, v[0]);
  size_t seen = 0;
  for (ir_value x = v[1], next; x.id; x = next, seen++) {
    next = ir_next(m, x);
    if (ir_is(m, x, IR_GELU)) ir_replace_uses(m, x, v[0]);
  }
  assert_int_equal(seen, 5);
  for (ir_value x = v[1]; x.id; x = ir_next(m, x))
    if (!ir_is(m, x, IR_RETURN)) ir_erase(m, x);
  assert_int_equal(ir_opcode_of(m, v[2]), IR_OP_NONE);
  assert_true(ir_is(m, ir_next(m, v[0]), IR_RETURN));
  assert_true(verifies(m));
  ir_module_free(m);
}

static void test_users_in_order(void **state) {
  (void)state;
  ir_value v[3], *users;
  ir_module *m = chain(2, v);
  arena scratch = {0};
  ir_builder b = {.m = m, .region = ir_entry_find(m, "forward"), .before = v[1]};
  ir_value twice = IR_BUILD(&b, IR_ADD, v[0], v[0]); /* before v[1], made after it */
  assert_int_equal(ir_use_count(m, v[0]), 3);
  assert_int_equal(ir_users(m, v[0], &scratch, &users), 2);
  assert_true(ir_same(users[0], twice) && ir_same(users[1], v[1]));
  ir_set_operand(m, twice, 1, ir_operand(m, v[1], 0));
  assert_int_equal(ir_use_count(m, v[0]), 3);
  assert_true(verifies(m));
  arena_free(&scratch);
  ir_module_free(m);
}

static void test_many_insertions_keep_order(void **state) {
  (void)state;
  ir_value v[3], *users;
  ir_module *m = chain(2, v);
  arena scratch = {0};
  ir_builder b = {.m = m, .region = ir_entry_find(m, "forward"), .before = v[1]};
  ir_value made[200];
  for (size_t i = 0; i < 200; i++) b.before = made[i] = IR_BUILD(&b, IR_NEG, v[0]); /* each before the last one */
  assert_int_equal(ir_users(m, v[0], &scratch, &users), 201);
  for (size_t i = 0; i < 200; i++) assert_true(ir_same(users[i], made[199 - i]));
  ir_move_before(m, made[0], made[199]);
  ir_users(m, v[0], &scratch, &users);
  assert_true(ir_same(users[0], made[0]) && verifies(m));
  arena_free(&scratch);
  ir_module_free(m);
}

static void test_bias_can_be_added(void **state) {
  (void)state;
  ir_value v[1];
  ir_module *m = chain(0, v);
  ir_value w = constant(m, "w", f32(2, 5, 6, 0, 0)), bias = constant(m, "b", f32(1, 5, 0, 0, 0));
  ir_builder b = {.m = m, .region = ir_entry_find(m, "forward")};
  ir_value y = IR_BUILD(&b, IR_LINEAR, v[0], w);
  ir_set_operand(m, y, 2, bias);
  assert_int_equal(ir_operand_count(m, y), 3);
  assert_int_equal(ir_use_count(m, w), 1);
  assert_true(verifies(m));
  ir_set_operand(m, y, 2, IR_NONE);
  assert_int_equal(ir_operand_count(m, y), 2);
  assert_int_equal(ir_use_count(m, bias), 0);
  assert_true(ir_same(ir_operand(m, y, 7), IR_NONE) && verifies(m));
  ir_module_free(m);
}

static void test_attributes(void **state) {
  (void)state;
  ir_value v[1];
  ir_module *m = chain(0, v);
  ir_builder b = {.m = m, .region = ir_entry_find(m, "forward")};
  ir_value w = constant(m, "w", f32(1, 6, 0, 0, 0));
  ir_value n = ir_build(&b, IR_RMS_NORM, (ir_value[]){v[0], w}, 2, &(ir_attr){IR_ATTR_EPS, {.f = 1e-6}}, 1);
  ir_set_attr(m, n, (ir_attr){IR_ATTR_GROUP, {.i = 3}});
  ir_set_attr(m, n, (ir_attr){IR_ATTR_EPS, {.f = 1e-5}});
  assert_int_equal(ir_attr_count(m, n), 2);
  assert_int_equal(ir_attr_at(m, n, 0).key, IR_ATTR_EPS);
  assert_true(ir_attr_float(m, n, IR_ATTR_EPS, 0) == 1e-5 && ir_attr_int(m, n, IR_ATTR_GROUP, -1) == 3);
  ir_remove_attr(m, n, IR_ATTR_EPS);
  assert_true(ir_attr_float(m, n, IR_ATTR_EPS, 7) == 7 && ir_eps(m, n) == 1e-6);
  double value = 0.1;
  ir_builder g = {.m = m, .region = IR_GLOBALS};
  ir_value c = ir_build_const(&g, f32(2, 3, 4, 0, 0), &value, 1);
  double read[12];
  assert_true(ir_read_const(m, c, read) && read[11] == (double)0.1f && !ir_is_symbolic(m, c));
  assert_true(ir_is_symbolic(m, w) && !ir_read_const(m, w, read));
  float *data = ir_payload_new(m, 6 * sizeof *data);
  for (int i = 0; i < 6; i++) data[i] = (float)i / 3;
  ir_bind(m, w, data);
  assert_true(!ir_is_symbolic(m, w) && ir_read_const(m, w, read) && read[5] == (double)(5.0f / 3));
  ir_module_free(m);
}

/* What does not fit is refused, with the operand, what was expected and what was found. */
static void test_shape_rules_refuse(void **state) {
  (void)state;
  ir_value v[1];
  ir_module *m = chain(0, v);
  ir_value x = v[0], w6 = constant(m, "a", f32(1, 6, 0, 0, 0)), w5 = constant(m, "b", f32(1, 5, 0, 0, 0)),
           m56 = constant(m, "c", f32(2, 5, 6, 0, 0)), one = constant(m, "d", f32(1, 1, 0, 0, 0)),
           ids = constant(m, "e", ir_type_make(IR_I32, 2, (int64_t[]){2, 3})), q = constant(m, "f", f32(4, 2, 3, 4, 6)),
           k = constant(m, "g", f32(4, 2, 3, 3, 6)), r3 = constant(m, "h", f32(3, 2, 3, 6, 0)),
           big = constant(m, "i", f32(2, 1 << 21, 1 << 18, 0, 0)), tall = constant(m, "j", f32(2, 1 << 30, 6, 0, 0));
  ir_attr heads4 = {IR_ATTR_HEADS, {.i = 4}}, start = {IR_ATTR_START, {.i = 4}}, size3 = {IR_ATTR_SIZE, {.i = 3}},
          axis0 = {IR_ATTR_AXIS, {.i = 0}}, axis3 = {IR_ATTR_AXIS, {.i = 3}}, dims3 = {IR_ATTR_DIMS, {.i = 3}},
          dims8 = {IR_ATTR_DIMS, {.i = 8}}, eps = {IR_ATTR_EPS, {.f = NAN}}, yarn = {IR_ATTR_SCALING, {.s = "yarn"}},
          linear = {IR_ATTR_SCALING, {.s = "linear"}}, cap = {IR_ATTR_CAP, {.f = 0}},
          name = {IR_ATTR_NAME, {.s = "ce"}};
  const struct {
    ir_opcode op;
    ir_value in[6];
    size_t n;
    ir_attr attrs[2];
    size_t attr_count;
    const char *message;
  } cases[] = {
      {IR_RMS_NORM, {x, w5}, 2, {{0}}, 0, "operand 1 'weight': expected f32[6], found f32[5]"},
      {IR_RMS_NORM, {x}, 1, {{0}}, 0, "expected 2 operands, found 1"},
      {IR_RMS_NORM, {x, w6, w6}, 3, {{0}}, 0, "expected 2 operands, found 3"},
      {IR_RMS_NORM, {ids, w6}, 2, {{0}}, 0, "operand 0 'x': expected an f32 tensor, found i32[2,3]"},
      {IR_RMS_NORM, {x, w6}, 2, {eps}, 1, "attribute 'eps': expected a finite number"},
      {IR_RMS_NORM, {x, w6}, 2, {axis0}, 1, "unknown attribute 'axis'"},
      {IR_TAPER_RMS_NORM, {x, w6, w6, w6, one}, 5, {{0}}, 0, "operand 3 'taper_c': expected f32[1], found f32[6]"},
      {IR_TAPER_RMS_NORM, {x, w6, w6, one, w6}, 5, {{0}}, 0, "operand 4 'gate': expected f32[1], found f32[6]"},
      {IR_LINEAR, {x, w6}, 2, {{0}}, 0, "operand 1 'weight': expected a matrix f32[out,6], found f32[6]"},
      {IR_LINEAR, {q, m56, w6}, 3, {{0}}, 0, "operand 2 'bias': expected f32[5], found f32[6]"},
      {IR_LINEAR, {m56, m56, {0}, w6}, 4, {{0}}, 0, "expected 2 to 3 operands, found 4"},
      {IR_LINEAR, {big, big}, 2, {{0}}, 0, "the result would be too large"},
      {IR_SCALE,
       {x, w6},
       2,
       {axis0},
       1,
       "operand 0 'x': expected a tensor of known shape (axis = 0), found f32[B,T,6]"},
      {IR_SCALE, {m56, w6}, 2, {axis0}, 1, "operand 1 'weight': expected f32[5], found f32[6]"},
      {IR_SCALE, {m56, w6}, 2, {axis3}, 1, "attribute 'axis': expected -1 or 0, found 3"},
      {IR_SHIFT, {m56, w5}, 2, {{0}}, 0, "operand 1 'bias': expected f32[6], found f32[5]"},
      {IR_ROW_SCALE, {x, x}, 2, {{0}}, 0, "operand 1 's': expected f32[B,T,1], found f32[B,T,6]"},
      {IR_ADD, {x, w6}, 2, {{0}}, 0, "operand 1 'y': expected f32[B,T,6], found f32[6]"},
      {IR_ADD, {x, ids}, 2, {{0}}, 0, "operand 1 'y': expected an f32 tensor, found i32[2,3]"},
      {IR_EMBED, {x, m56}, 2, {{0}}, 0, "operand 0 'ids': expected i32[B,T], found f32[B,T,6]"},
      {IR_EMBED, {ids, w6}, 2, {{0}}, 0, "operand 1 'table': expected a matrix f32[rows,d], found f32[6]"},
      {IR_CONCAT, {x, m56}, 2, {{0}}, 0, "operand 1 'x': expected f32[B,T,6], found f32[5,6]"},
      {IR_CONCAT, {m56}, 1, {axis3}, 1, "attribute 'axis': 3 is beyond rank 2"},
      {IR_CONCAT, {x}, 1, {axis0}, 1, "operand 0 'x': expected a tensor whose concatenated dimension is a number"},
      {IR_CONCAT, {tall, tall, tall}, 3, {axis0}, 1, "the result would be too large"},
      {IR_CONCAT, {x}, 0, {{0}}, 0, "expected at least 1 operand, found 0"},
      {IR_SLICE, {x}, 1, {start, size3}, 2, "elements 4 to 6 are beyond the last dimension, 6"},
      {IR_SLICE, {x}, 1, {start}, 1, "attribute 'size' is missing"},
      {IR_SLICE, {x}, 1, {start, start}, 2, "attribute 'start' is given twice"},
      {IR_SPLIT_HEADS, {x}, 1, {heads4}, 1, "attribute 'heads': 4 does not divide the last dimension, 6"},
      {IR_SPLIT_HEADS, {q}, 1, {heads4}, 1, "operand 0 'x': expected f32[B,T,d], found f32[2,3,4,6]"},
      {IR_MERGE_HEADS, {x}, 1, {{0}}, 0, "operand 0 'x': expected f32[B,T,heads,head_dim], found f32[B,T,6]"},
      {IR_ROPE, {q, ids}, 2, {dims3}, 1, "attribute 'dims': expected an even number of at most head_dim = 6, found 3"},
      {IR_ROPE, {q, ids}, 2, {dims8}, 1, "attribute 'dims': expected an even number of at most head_dim = 6, found 8"},
      {IR_ROPE, {q, ids}, 2, {yarn}, 1, "attribute 'scaling': 'yarn' is neither"},
      {IR_ROPE, {q, ids}, 2, {linear}, 1, "scaling \"linear\" needs attribute 'scaling_factor'"},
      {IR_ROPE, {x, ids}, 2, {{0}}, 0, "operand 1 'p': expected i32[B,T], found i32[2,3]"},
      {IR_ATTENTION, {q, k, k}, 3, {{0}}, 0, "the 4 heads of q are no multiple of the 3 heads of k and v"},
      {IR_ATTENTION, {q, q, k}, 3, {{0}}, 0, "operand 2 'v': expected f32[2,3,4,6], found f32[2,3,3,6]"},
      {IR_ATTENTION, {q, q, r3}, 3, {{0}}, 0, "operand 2 'v': expected f32[B,T,heads,head_dim], found f32[2,3,6]"},
      {IR_ATTENTION, {q, q, q}, 3, {cap}, 1, "attribute 'cap': expected a number above 0, found 0"},
      {IR_CROSS_ENTROPY, {x, ids}, 2, {{0}}, 0, "operand 1 'targets': expected i32[B,T], found i32[2,3]"},
      {IR_RESULT, {x}, 1, {name}, 1, "operand 0 'x': expected f32[1] or f32[B,T,1], found f32[B,T,6]"},
      {IR_GRADIENT, {w6, w6}, 2, {{0}}, 0, "operand 1 'param' is no param"},
      {IR_LINEAR_BACK,
       {x, w6},
       2,
       {{0}},
       0,
       "operand 1 'weight': expected a matrix with as many rows as dy has columns"},
      {IR_SUM_ROWS, {ids}, 1, {{0}}, 0, "operand 0 'x': expected an f32 tensor"},
      {IR_ATTENTION_BACK, {q, q, q, x}, 4, {{0}}, 0, "operand 3 'dy': expected f32[2,3,4,6], found f32[B,T,6]"},
      {IR_CACHE_APPEND,
       {q, q, ids, ids},
       4,
       {{0}},
       0,
       "operand 0 'state': expected state f32[batch,4,context,6], found f32[2,3,4,6]"},
      {IR_GELU, {{99999}}, 1, {{0}}, 0, "operand 0 'x' is no value"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    text message = {0};
    ir_type type = {0};
    bool fits = ir_infer(m, cases[i].op, cases[i].in, cases[i].n, cases[i].attrs, cases[i].attr_count, &type, &message);
    if (fits || !message.data || !strstr(message.data, cases[i].message))
      print_error("case %zu: wanted '%s', got '%s'\n", i, cases[i].message, message.data ? message.data : "(it fits)");
    assert_true(!fits && message.data && strstr(message.data, cases[i].message));
    text_free(&message);
  }
  ir_module_free(m);
}

static void test_types_follow_a_change(void **state) {
  (void)state;
  ir_value v[2];
  ir_module *m = chain(1, v);
  ir_value wide = constant(m, "wide", f32(2, 7, 9, 0, 0));
  ir_set_operand(m, v[0], 1, wide);
  assert_broken(m, "the shape rule gives f32[B,T,9]");
  assert_true(ir_retype(m, v[0], NULL) && ir_retype(m, v[1], NULL) && verifies(m));
  assert_int_equal(ir_type_of(m, v[1]).dim[2], 9);
  ir_module_free(m);
}

static void test_verifier_sees(void **state) {
  (void)state;
  ir_value v[3];
  ir_module *m = chain(2, v);
  ir_region r = ir_entry_find(m, "forward");
  ir_move_before(m, v[2], v[1]);
  assert_broken(m, "operand 0 is used before it is defined");
  ir_module_free(m);

  m = chain(2, v);
  ir_erase(m, ir_last(m, r));
  assert_broken(m, "entry 'forward' does not end with return");
  ir_module_free(m);

  m = chain(2, v);
  ir_node_add(m, r, v[2], IR_RETURN, (ir_type){0}, &v[0], 1, NULL, 0);
  assert_broken(m, "return is not the last op");
  ir_module_free(m);

  m = chain(2, v);
  ir_builder b = {.m = m, .region = r};
  argument(&b, "pos", ir_type_make(IR_I32, 1, (int64_t[]){IR_DIM_B}));
  assert_broken(m, "an arg stands below another op");
  ir_module_free(m);

  m = chain(2, v);
  b = (ir_builder){.m = m, .region = r, .before = v[0]};
  argument(&b, "tokens", ir_type_make(IR_I32, 1, (int64_t[]){IR_DIM_B}));
  assert_broken(m, "two args of one entry are named 'tokens'");
  ir_module_free(m);

  m = chain(2, v);
  b = (ir_builder){.m = m, .region = ir_entry_add(m, "other")};
  ir_node_add(m, b.region, IR_NONE, IR_RETURN, (ir_type){0}, &v[1], 1, NULL, 0);
  assert_broken(m, "operand 0 belongs to entry 'forward'");
  ir_module_free(m);

  m = chain(2, v);
  b = (ir_builder){.m = m, .region = ir_entry_add(m, "forward")};
  IR_BUILD(&b, IR_RETURN, ir_first(m, IR_GLOBALS));
  assert_broken(m, "two entries are named 'forward'");
  ir_module_free(m);

  m = chain(2, v);
  double one = 1;
  b = (ir_builder){.m = m, .region = r};
  ir_build_const(&b, f32(1, 6, 0, 0, 0), &one, 1);
  assert_broken(m, "const cannot stand in an entry");
  ir_module_free(m);

  m = chain(2, v);
  ir_node_add(m, IR_GLOBALS, IR_NONE, IR_GELU, f32(3, IR_DIM_B, IR_DIM_T, 6, 0), &v[1], 1, NULL, 0);
  assert_broken(m, "operand 0 belongs to entry 'forward'");
  ir_module_free(m);

  m = chain(2, v);
  ir_set_name(m, v[1], "");
  assert_broken(m, "the name of an op is empty");
  ir_module_free(m);

  m = chain(2, v);
  ir_value w = constant(m, "w", f32(1, 6, 0, 0, 0)), c = constant(m, "c", f32(1, 1, 0, 0, 0));
  ir_builder g = {.m = m, .region = IR_GLOBALS};
  ir_value soft = IR_BUILD(&g, IR_SIGMOID, c);
  b = (ir_builder){.m = m, .region = r};
  IR_BUILD(&b, IR_TAPER_RMS_NORM, v[0], w, w, c, soft);
  assert_broken(m, "operand 4 'gate' is neither a gate nor a const");
  ir_module_free(m);

  m = chain(2, v);
  ir_node_at(m, v[0])->use_count++;
  assert_broken(m, "the list of its users is damaged");
  ir_module_free(m);
}

/* k is appended to and read; what is broken decides `how`. */
static ir_module *cached(int how) {
  ir_module *m = ir_module_new("cached");
  ir_builder b = {.m = m, .region = ir_entry_add(m, "decode")};
  ir_value table = constant(m, "t", f32(2, 7, 8, 0, 0));
  ir_type state = f32(4, IR_DIM_B, 2, 16, 4), row = ir_type_make(IR_I32, 1, (int64_t[]){IR_DIM_B});
  state.state = true;
  ir_value tokens = argument(&b, "tokens", ir_type_make(IR_I32, 2, (int64_t[]){IR_DIM_B, IR_DIM_T}));
  ir_value pos = argument(&b, "pos", row), len = argument(&b, "len", row), k0 = argument(&b, "k", state),
           v0 = argument(&b, "v", state);
  ir_value x = IR_BUILD(&b, IR_EMBED, tokens, table);
  ir_value h = ir_build(&b, IR_SPLIT_HEADS, &x, 1, &(ir_attr){IR_ATTR_HEADS, {.i = 2}}, 1);
  ir_value k1 = IR_BUILD(&b, IR_CACHE_APPEND, k0, h, pos, len), v1 = IR_BUILD(&b, IR_CACHE_APPEND, v0, h, pos, len);
  if (how == 1) IR_BUILD(&b, IR_CACHE_APPEND, k0, h, pos, len);
  ir_value y = IR_BUILD(&b, IR_CACHE_ATTENTION, h, how == 2 ? k0 : k1, v1, pos, len);
  if (how == 3)
    IR_BUILD(&b, IR_RETURN, y, k1);
  else
    IR_BUILD(&b, IR_RETURN, y, k1, v1);
  return m;
}

static void test_states_are_linear(void **state) {
  (void)state;
  static const char *const messages[] = {NULL, "this one 2 times", "reads a state that an op above has changed",
                                         "this one 0 times"};
  for (int how = 0; how < 4; how++) {
    ir_module *m = cached(how);
    if (messages[how])
      assert_broken(m, messages[how]);
    else
      assert_true(verifies(m));
    ir_module_free(m);
  }
}

static void test_clone(void **state) {
  (void)state;
  ir_module *m = cached(0);
  ir_module_set_param(m, "d", 8);
  ir_value w = ir_first(m, IR_GLOBALS);
  static const float data[56] = {1};
  ir_bind(m, w, data);
  ir_set_loc(m, w, (diag_loc){"a.tmodel", 3, 4, 5});
  ir_module *copy = ir_clone(m);
  text a = {0}, b = {0};
  ir_print(m, &a);
  ir_print(copy, &b);
  assert_string_equal(a.data, b.data);
  assert_ptr_equal(ir_payload(copy, ir_first(copy, IR_GLOBALS)), data);
  ir_set_name(copy, ir_last(copy, ir_entry_at(copy, 0)), "end");
  ir_module_free(copy);
  text_free(&b);
  ir_print(m, &b);
  assert_string_equal(a.data, b.data);
  text_free(&a);
  text_free(&b);
  ir_module_free(m);
}

/* 100,000 readers of one value are moved to another in no time, twice. */
static void test_replacing_is_not_quadratic(void **state) {
  (void)state;
  ir_value v[1];
  ir_module *m = chain(0, v);
  ir_builder b = {.m = m, .region = ir_entry_find(m, "forward")};
  ir_value other = IR_BUILD(&b, IR_NEG, v[0]);
  for (int i = 0; i < 100000; i++) IR_BUILD(&b, IR_GELU, v[0]);
  clock_t start = clock();
  for (int i = 0; i < 20; i++) {
    ir_replace_uses_except(m, v[0], other, other);
    ir_replace_uses(m, other, v[0]);
  }
  assert_true(clock() - start < 5 * CLOCKS_PER_SEC);
  assert_int_equal(ir_use_count(m, v[0]), 100002);
  assert_true(verifies(m));
  ir_module_free(m);
}

static void test_dot(void **state) {
  (void)state;
  ir_module *m = cached(0);
  text t = {0};
  ir_set_name(m, ir_first(m, ir_entry_at(m, 0)), "quo\"te\n");
  ir_print_dot(m, &t);
  assert_non_null(strstr(t.data, "subgraph cluster_2"));
  assert_non_null(strstr(t.data, "quo\\\"te\\\\x0a"));
  assert_non_null(strstr(t.data, "[label=\"kstate\"]"));
  text_free(&t);
  ir_module_free(m);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_table),
                                     cmocka_unit_test(test_types),
                                     cmocka_unit_test(test_build_and_erase),
                                     cmocka_unit_test(test_users_in_order),
                                     cmocka_unit_test(test_many_insertions_keep_order),
                                     cmocka_unit_test(test_bias_can_be_added),
                                     cmocka_unit_test(test_attributes),
                                     cmocka_unit_test(test_shape_rules_refuse),
                                     cmocka_unit_test(test_types_follow_a_change),
                                     cmocka_unit_test(test_verifier_sees),
                                     cmocka_unit_test(test_states_are_linear),
                                     cmocka_unit_test(test_clone),
                                     cmocka_unit_test(test_replacing_is_not_quadratic),
                                     cmocka_unit_test(test_dot)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
