/* execution.c - classes of ops from their flags and types; an op is named only where the table has no fact that says
 * it. */
#include "compiler/analysis/execution.h"

uint32_t execution_last(const ir_module *m, ir_value v) {
  ir_type t = ir_type_of(m, v);
  return t.rank && t.dim[t.rank - 1] > 0 ? (uint32_t)t.dim[t.rank - 1] : 0;
}

uint32_t execution_width(const ir_module *m, ir_value v) {
  ir_type t = ir_type_of(m, v);
  uint64_t n = 1;
  for (uint32_t i = 2; i < t.rank; i++) n *= t.dim[i] > 0 ? (uint64_t)t.dim[i] : 1;
  return n > UINT32_MAX ? 0 : (uint32_t)n;
}

bool execution_is_row(const ir_module *m, ir_value v) {
  ir_type t = ir_type_of(m, v);
  bool number = t.dtype == IR_F32 || t.dtype == IR_BF16 || t.dtype == IR_F16;
  return number && !t.state && t.rank >= 3 && t.dim[0] == IR_DIM_B && t.dim[1] == IR_DIM_T && t.dim[2] > 0 &&
         (t.rank < 4 || t.dim[3] > 0);
}

/* Every operand is a row like the result, a vector along the last axis, or one number (of the row or global). */
static bool is_columnwise(const ir_module *m, ir_value v) {
  for (size_t i = 0; i < ir_operand_count(m, v); i++) {
    ir_value x = ir_operand(m, v, i);
    if (!x.id || ir_region_of(m, x).id == IR_GLOBALS.id || ir_type_of(m, x).dtype == IR_I32) continue;
    if (!execution_is_row(m, x)) return false;
    if (execution_width(m, x) != execution_width(m, v) && execution_width(m, x) != 1) return false;
  }
  return true;
}

static bool has_vector(const ir_module *m, ir_value v) {
  for (size_t i = 0; i < ir_operand_count(m, v); i++) {
    ir_value x = ir_operand(m, v, i);
    if (x.id && ir_region_of(m, x).id == IR_GLOBALS.id && ir_elements(ir_type_of(m, x)) != 1) return true;
  }
  return false;
}

/* Row-wise ops whose flags do not say that column j needs columns j alone. */
static bool is_column_op(ir_opcode op) {
  return op == IR_SCALE || op == IR_SHIFT || op == IR_ROW_SCALE || op == IR_ROW_SHIFT || op == IR_DYT ||
         ir_op_has(op, OPF_ELEMENTWISE);
}

static execution_class class_of_row_op(const ir_module *m, ir_value v, ir_opcode op, bool heads) {
  if (op == IR_LINEAR) return heads ? EXEC_ROW : EXEC_LINEAR;
  if (op == IR_SLICE) return heads ? EXEC_ROW : EXEC_SLICE;
  if (op == IR_CONCAT || op == IR_EMBED) return EXEC_ROW;
  if (is_column_op(op) && is_columnwise(m, v)) return heads && has_vector(m, v) ? EXEC_HEAD : EXEC_COLUMN;
  return heads && execution_width(m, v) == execution_width(m, ir_operand(m, v, 0)) && is_columnwise(m, v) ? EXEC_HEAD
                                                                                                          : EXEC_ROW;
}

execution_class execution_class_of(const ir_module *m, ir_value v) {
  ir_opcode op = ir_opcode_of(m, v);
  if (op == IR_ARG || op == IR_RETURN || op == IR_POSITIONS || op == IR_OP_NONE) return EXEC_NONE;
  if (op == IR_CACHE_APPEND) return EXEC_APPEND;
  if (op == IR_CACHE_ATTENTION) return EXEC_ATTENTION;
  if (!ir_op_has(op, OPF_ROWWISE) || ir_op_has(op, OPF_TRAIN) || !execution_is_row(m, v)) return EXEC_REFUSED;
  if (ir_op_has(op, OPF_IDENTITY) || op == IR_SPLIT_HEADS || op == IR_MERGE_HEADS || op == IR_CAST) return EXEC_ALIAS;
  return class_of_row_op(m, v, op, ir_type_of(m, v).rank == 4);
}

bool *execution_out_rows(const ir_module *m, ir_region entry, arena *scratch) {
  bool *out = ARENA_ARRAY(scratch, bool, ir_value_limit(m));
  ir_value ret = ir_last(m, entry);
  for (ir_value v = ir_prev(m, ret); v.id; v = ir_prev(m, v)) {
    ir_opcode op = ir_opcode_of(m, v);
    if (ir_op_has(op, OPF_STATE) || ir_op_has(op, OPF_IDENTITY) || op == IR_CACHE_ATTENTION || op == IR_ARG ||
        op == IR_POSITIONS)
      continue;
    ir_value *users;
    size_t n = ir_users(m, v, scratch, &users);
    bool only = n > 0;
    for (size_t i = 0; i < n && only; i++)
      only = ir_same(users[i], ret) ? ir_same(ir_operand(m, ret, 0), v) : out[users[i].id];
    out[v.id] = only;
  }
  return out;
}

bool *execution_probe_only(const ir_module *m, ir_region entry, arena *scratch) {
  bool *only = ARENA_ARRAY(scratch, bool, ir_value_limit(m));
  for (ir_value v = ir_last(m, entry); v.id; v = ir_prev(m, v)) {
    bool probe = ir_op_has(ir_opcode_of(m, v), OPF_IDENTITY);
    if (!ir_op_has(ir_opcode_of(m, v), OPF_PURE)) continue;
    ir_value *users;
    size_t n = ir_users(m, v, scratch, &users);
    only[v.id] = probe || n > 0;
    for (size_t i = 0; i < n && only[v.id]; i++) only[v.id] = only[users[i].id];
  }
  return only;
}
