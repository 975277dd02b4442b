#include "compiler/analysis/token_rows.h"
#include "compiler/analysis/readers.h"
#include <string.h>

bool analysis_looks_tokens_up(const ir_module *m, ir_value v) {
  if (!ir_is(m, v, IR_EMBED)) return false;
  ir_value ids = ir_operand(m, v, 0);
  return ir_is(m, ids, IR_ARG) && strcmp(ir_attr_string(m, ids, IR_ATTR_NAME, ""), "tokens") == 0;
}

bool analysis_is_live_norm(const ir_module *m, ir_value v) {
  ir_opcode op = ir_opcode_of(m, v);
  double gate = 1;
  if (op == IR_INV_RMS || op == IR_INV_STD) return true;
  if (!ir_op_has(op, OPF_NORM)) return false;
  if (op == IR_TAPER_RMS_NORM || op == IR_TAPER_LAYER_NORM)
    return !ir_read_const(m, ir_operand(m, v, ir_operand_count(m, v) - 1), &gate) || gate != 0;
  return ir_attr_float(m, v, IR_ATTR_EPS, 0) < 1e10;
}

/* Ops that hand a row on, up to numbers that are the same for every row. */
static bool hands_on(ir_opcode op) {
  return op == IR_ADD || op == IR_SUB || op == IR_MUL || op == IR_SCALE || op == IR_SHIFT || op == IR_CENTER ||
         op == IR_ROW_SCALE || op == IR_ROW_SHIFT;
}

ir_value analysis_first_live_norm(const ir_module *m, ir_value v, arena *scratch) {
  for (ir_value next; v.id; v = next) {
    analysis_reader *readers;
    size_t n = analysis_readers(m, v, scratch, &readers, NULL);
    next = IR_NONE;
    for (size_t i = 0; i < n; i++)
      if (analysis_is_live_norm(m, readers[i].op)) return readers[i].op;
    for (size_t i = 0; i < n; i++) {
      if (ir_is(m, readers[i].op, IR_LINEAR) || ir_op_has(ir_opcode_of(m, readers[i].op), OPF_NORM)) return IR_NONE;
      if (!next.id && hands_on(ir_opcode_of(m, readers[i].op))) next = readers[i].op;
    }
  }
  return IR_NONE;
}
