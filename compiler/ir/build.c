/* build.c - the builder: infers, checks, inserts. */
#include "compiler/ir/ir_priv.h"

static ir_value insertion_point(const ir_builder *b) {
  ir_value last = ir_last(b->m, b->region);
  return b->before.id ? b->before : ir_is(b->m, last, IR_RETURN) ? last : IR_NONE;
}

static ir_value insert(ir_builder *b, ir_opcode op, ir_type type, const ir_value *operands, size_t n,
                       const ir_attr *attrs, size_t attr_count) {
  ir_value v = ir_node_add(b->m, b->region, op == IR_RETURN ? IR_NONE : insertion_point(b), op, type, operands, n,
                           attrs, attr_count);
  ir_set_loc(b->m, v, b->loc);
  if (b->name) ir_node_at(b->m, v)->name = arena_strdup(&b->m->mem, b->name);
  return v;
}

static ir_value build(ir_builder *b, ir_opcode op, ir_type type, const ir_value *operands, size_t n,
                      const ir_attr *attrs, size_t attr_count) {
  text message = {0};
  if (!b->region.id) ir_bug("building a %s: no region", ir_op_name(op));
  if (!ir_infer(b->m, op, operands, n, attrs, attr_count, &type, &message))
    ir_bug("building %s%s%s: %s", ir_op_name(op), b->name ? " " : "", b->name ? b->name : "",
           message.data ? message.data : "");
  text_free(&message);
  return insert(b, op, type, operands, n, attrs, attr_count);
}

static bool is_declared(ir_opcode op) { return op == IR_ARG || op == IR_CONST || op == IR_PARAM || op == IR_GATE; }

ir_value ir_build(ir_builder *b, ir_opcode op, const ir_value *operands, size_t n, const ir_attr *attrs,
                  size_t attr_count) {
  if (is_declared(op)) ir_bug("building a %s without a type", ir_op_name(op));
  return build(b, op, (ir_type){0}, operands, n, attrs, attr_count);
}

ir_value ir_build_typed(ir_builder *b, ir_opcode op, ir_type type, const ir_attr *attrs, size_t attr_count) {
  if (!is_declared(op)) ir_bug("building a %s with a declared type", ir_op_name(op));
  return build(b, op, type, NULL, 0, attrs, attr_count);
}

ir_value ir_build_const(ir_builder *b, ir_type type, const double *values, size_t n) {
  ir_attr value = {IR_ATTR_VALUE, {.floats = {values, n}}};
  return ir_build_typed(b, IR_CONST, type, &value, 1);
}
