/* dce.c - erases pure ops and globals that nothing uses. Probes, params, arguments and state stay. */
#include "compiler/passes/pass.h"

static bool may_go(const ir_module *m, ir_value v) {
  if (ir_use_count(m, v) > 0) return false;
  ir_opcode op = ir_opcode_of(m, v);
  if (op == IR_CONST || op == IR_GATE) return true;
  return ir_op_has(op, OPF_PURE) && !ir_op_has(op, OPF_STATE) && !ir_op_has(op, OPF_IDENTITY);
}

static void sweep(pass_context *c, ir_region r) {
  for (ir_value v = ir_last(c->m, r), prev; v.id; v = prev) {
    prev = ir_prev(c->m, v);
    if (!may_go(c->m, v)) continue;
    ir_erase(c->m, v);
    c->changed = true;
  }
}

bool pass_dce(pass_context *c) {
  for (size_t e = 0; e < ir_entry_count(c->m); e++) sweep(c, ir_entry_at(c->m, e));
  sweep(c, IR_GLOBALS);
  return true;
}
