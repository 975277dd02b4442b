/* infer.c - recomputes every type from the shape rules; ops whose type is declared keep it. */
#include "compiler/passes/passes_priv.h"

static bool infer_op(pass_context *c, ir_value v) {
  ir_module *m = c->m;
  size_t n = ir_operand_count(m, v), attrs = ir_attr_count(m, v);
  if (n == 0 || ir_is(m, v, IR_RETURN)) return true;
  ir_value *operands = ARENA_ARRAY(&c->scratch, ir_value, n);
  ir_attr *list = ARENA_ARRAY(&c->scratch, ir_attr, attrs + 1);
  for (size_t i = 0; i < n; i++) operands[i] = ir_operand(m, v, i);
  for (size_t i = 0; i < attrs; i++) list[i] = ir_attr_at(m, v, i);
  ir_type type;
  text message = {0};
  if (!ir_infer(m, ir_opcode_of(m, v), operands, n, list, attrs, &type, &message)) {
    diag_report(c->sink, DC_PASS_TYPES, ir_loc_of(m, v), "%s: %s", pass_label(c, v), message.data ? message.data : "?");
    text_free(&message);
    return false;
  }
  text_free(&message);
  if (ir_type_equal(type, ir_type_of(m, v))) return true;
  ir_builder b = {m, ir_region_of(m, v), v, ir_loc_of(m, v), ir_name_of(m, v)};
  ir_value fresh = ir_build(&b, ir_opcode_of(m, v), operands, n, list, attrs);
  ir_replace_uses(m, v, fresh);
  ir_erase(m, v);
  c->changed = true;
  return true;
}

static bool infer_region(pass_context *c, ir_region r) {
  bool fine = true;
  for (ir_value v = ir_first(c->m, r), next; v.id; v = next) {
    next = ir_next(c->m, v);
    fine = infer_op(c, v) && fine;
  }
  return fine;
}

bool pass_infer(pass_context *c) {
  bool fine = infer_region(c, IR_GLOBALS);
  for (size_t e = 0; e < ir_entry_count(c->m); e++) fine = infer_region(c, ir_entry_at(c->m, e)) && fine;
  return fine;
}
