/* expr.c - constant expressions in the global region. */
#include "compiler/passes/passes_priv.h"

#include <string.h>

ir_builder pass_builder(pass_context *c, ir_value v) {
  return (ir_builder){c->m, ir_region_of(c->m, v), v, ir_loc_of(c->m, v), ir_name_of(c->m, v)};
}

static uint64_t bits_of(double v) {
  uint64_t bits;
  memcpy(&bits, &v, sizeof bits);
  return bits;
}

bool pass_attr_equal(ir_attr a, ir_attr b) {
  if (a.key != b.key) return false;
  switch (ir_attr_kind_of(a.key)) {
  case IR_KIND_INT: return a.u.i == b.u.i;
  case IR_KIND_FLOAT: return bits_of(a.u.f) == bits_of(b.u.f);
  case IR_KIND_STRING: return strcmp(a.u.s, b.u.s) == 0;
  case IR_KIND_FLOATS: break;
  }
  bool same = a.u.floats.n == b.u.floats.n;
  for (size_t i = 0; same && i < a.u.floats.n; i++) same = bits_of(a.u.floats.data[i]) == bits_of(b.u.floats.data[i]);
  return same;
}

static bool is_same_op(const ir_module *m, ir_value v, ir_opcode op, const ir_value *operands, size_t n,
                       const ir_attr *attrs, size_t attr_count) {
  if (!ir_is(m, v, op) || ir_region_of(m, v).id != IR_GLOBALS.id || ir_operand_count(m, v) != n ||
      ir_attr_count(m, v) != attr_count)
    return false;
  for (size_t i = 0; i < n; i++)
    if (!ir_same(ir_operand(m, v, i), operands[i])) return false;
  for (size_t i = 0; i < attr_count; i++)
    if (!pass_attr_equal(ir_attr_at(m, v, i), attrs[i])) return false;
  return true;
}

ir_value pass_expr(pass_context *c, ir_value at, ir_opcode op, const ir_value *operands, size_t n, const ir_attr *attrs,
                   size_t attr_count) {
  ir_value *users;
  ir_builder b = {c->m, IR_GLOBALS, IR_NONE, ir_loc_of(c->m, at), NULL};
  for (size_t i = 0; i < n; i++) /* weights that an entry computes: hand-written IR */
    if (ir_region_of(c->m, operands[i]).id != IR_GLOBALS.id) b = pass_builder(c, at);
  size_t count = ir_users(c->m, operands[0], &c->scratch, &users);
  for (size_t i = 0; i < count; i++)
    if (is_same_op(c->m, users[i], op, operands, n, attrs, attr_count)) return users[i];
  c->changed = true;
  return ir_build(&b, op, operands, n, attrs, attr_count);
}

static ir_value expr_axis(pass_context *c, ir_value at, ir_opcode op, const ir_value *operands, size_t n,
                          int64_t axis) {
  ir_attr attr = {IR_ATTR_AXIS, {.i = axis}};
  return pass_expr(c, at, op, operands, n, &attr, axis == -1 ? 0 : 1); /* -1 is the default and is not written */
}

ir_value pass_expr_scale(pass_context *c, ir_value at, ir_value w, ir_value by, int64_t axis) {
  if (analysis_is_splat(c->m, by, 1)) return w;
  return expr_axis(c, at, IR_SCALE, (ir_value[]){w, by}, 2, axis);
}

ir_value pass_expr_center(pass_context *c, ir_value at, ir_value w, int64_t axis) {
  return expr_axis(c, at, IR_CENTER, &w, 1, axis);
}

ir_value pass_expr_binary(pass_context *c, ir_value at, ir_opcode op, ir_value a, ir_value b) {
  return pass_expr(c, at, op, (ir_value[]){a, b}, 2, NULL, 0);
}

ir_value pass_expr_bias(pass_context *c, ir_value at, ir_value b, ir_value weight, ir_value beta) {
  if (analysis_is_splat(c->m, beta, 0)) return b;
  ir_value product = pass_expr_binary(c, at, IR_LINEAR, beta, weight);
  return b.id ? pass_expr_binary(c, at, IR_ADD, b, product) : product;
}

ir_value pass_splat(pass_context *c, ir_value at, ir_type type, double value) {
  for (ir_value v = ir_first(c->m, IR_GLOBALS); v.id; v = ir_next(c->m, v)) {
    size_t n;
    const double *at_value = ir_is(c->m, v, IR_CONST) ? ir_attr_floats(c->m, v, IR_ATTR_VALUE, &n) : NULL;
    if (at_value && n == 1 && !ir_name_of(c->m, v) && at_value[0] == value && ir_type_equal(ir_type_of(c->m, v), type))
      return v;
  }
  ir_builder b = {c->m, IR_GLOBALS, IR_NONE, ir_loc_of(c->m, at), NULL};
  return ir_build_const(&b, type, &value, 1);
}

void pass_erase_chain(pass_context *c, ir_value v) {
  while (v.id && ir_region_of(c->m, v).id != IR_GLOBALS.id && ir_use_count(c->m, v) == 0) {
    ir_opcode op = ir_opcode_of(c->m, v);
    if (!ir_op_has(op, OPF_PURE) || ir_op_has(op, OPF_IDENTITY)) return;
    ir_value next = ir_operand(c->m, v, 0);
    ir_erase(c->m, v);
    c->changed = true;
    v = next;
  }
}
