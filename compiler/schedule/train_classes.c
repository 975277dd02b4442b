/* train_classes.c - what kind of work each op of a training entry is, where gradients end, and what runs chunk by chunk. */
#include "compiler/schedule/train_priv.h"

#include <string.h>

bool train_is_row(const ir_module *m, ir_value v) { return execution_is_row(m, v); }

uint32_t train_width(const ir_module *m, ir_value v) {
  if (execution_is_row(m, v)) return execution_width(m, v);
  int64_t n = ir_elements(ir_type_of(m, v));
  return n > 0 && n < UINT32_MAX ? (uint32_t)n : 0;
}

/* The same floats under another type, or a range of columns. */
static bool is_view(const ir_module *m, ir_value v) {
  if (!execution_is_row(m, v)) return false;
  ir_opcode op = ir_opcode_of(m, v);
  if (ir_op_has(op, OPF_IDENTITY) || op == IR_SPLIT_HEADS || op == IR_MERGE_HEADS) return true;
  return op == IR_SLICE && ir_type_of(m, v).rank == 3;
}

train_view train_view_of(const ir_module *m, ir_value v) {
  train_view w = {.owner = v, .start = 0, .width = train_width(m, v)};
  while (is_view(m, w.owner)) {
    if (ir_is(m, w.owner, IR_SLICE)) w.start += (uint32_t)ir_attr_int(m, w.owner, IR_ATTR_START, 0);
    w.owner = ir_operand(m, w.owner, 0);
  }
  return w;
}

ir_value train_source_of(const train_planner *k, ir_value v, size_t i) {
  ir_value x = ir_operand(k->m, v, i);
  if (!x.id || ir_region_of(k->m, x).id == IR_GLOBALS.id) return IR_NONE;
  x = train_view_of(k->m, x).owner;
  ir_opcode op = ir_opcode_of(k->m, x);
  return op == IR_ARG || op == IR_POSITIONS || ir_region_of(k->m, x).id == IR_GLOBALS.id ? IR_NONE : x;
}

static train_class class_of(const ir_module *m, ir_value v) {
  ir_opcode op = ir_opcode_of(m, v);
  if (op == IR_ARG || op == IR_POSITIONS || op == IR_RETURN || op == IR_OP_NONE || is_view(m, v)) return TRAIN_OP_NONE;
  if (op == IR_ATTENTION) return TRAIN_OP_ATTENTION;
  if (op == IR_ATTENTION_BACK) return TRAIN_OP_ATTENTION_BACK;
  if (op == IR_LINEAR_WEIGHT_BACK) return TRAIN_OP_WEIGHT;
  if (op == IR_EMBED_BACK) return TRAIN_OP_EMBED;
  if (op == IR_TOKEN_MEAN || (op == IR_SUM_ROWS && execution_is_row(m, ir_operand(m, v, 0)))) return TRAIN_OP_SUM;
  if (!execution_is_row(m, v)) return TRAIN_OP_SMALL;
  return op == IR_LINEAR || op == IR_LINEAR_BACK ? TRAIN_OP_PRODUCT : TRAIN_OP_ROW;
}

/* ---- gradients: sums of values that nothing else reads go straight where they belong ---- */
static bool sole_use(const train_planner *k, ir_value v) { return ir_use_count(k->m, v) == 1; }

static bool is_contribution(const train_planner *k, ir_value v, ir_type t) {
  return ir_region_of(k->m, v).id != IR_GLOBALS.id && sole_use(k, v) && ir_type_equal(ir_type_of(k->m, v), t);
}

static bool splits(const train_planner *k, ir_value v, ir_type t) {
  return ir_is(k->m, v, IR_ADD) && is_contribution(k, ir_operand(k->m, v, 0), t) &&
         is_contribution(k, ir_operand(k->m, v, 1), t);
}

static void send_to_gradient(train_planner *k, ir_value v, ir_type t, uint32_t param) {
  if (splits(k, v, t)) {
    k->class[v.id] = TRAIN_OP_NONE;
    send_to_gradient(k, ir_operand(k->m, v, 0), t, param);
    send_to_gradient(k, ir_operand(k->m, v, 1), t, param);
    return;
  }
  k->p->slots[v.id].home = TRAIN_GRADIENT, k->p->slots[v.id].param = param;
}

static bool place_gradient(train_planner *k, ir_value v) {
  ir_value x = ir_operand(k->m, v, 0), target = ir_operand(k->m, v, 1);
  uint32_t param = train_param_of(k->p, target);
  if (param == TRAIN_NOT) return train_refuse(k, v, "a gradient must be that of a parameter");
  k->p->param_programs[param] |= 1u << k->program;
  ir_type t = ir_type_of(k->m, target);
  if (is_contribution(k, x, t)) {
    send_to_gradient(k, x, t, param);
    k->class[v.id] = TRAIN_OP_NONE;
  }
  return true;
}

/* A result that is a mean comes with the sums; a row of results stays where it was made. */
static void place_result(train_planner *k, ir_value v) {
  ir_value x = ir_operand(k->m, v, 0);
  if (execution_is_row(k->m, x) || ir_is(k->m, x, IR_TOKEN_MEAN)) k->class[v.id] = TRAIN_OP_NONE;
}

/* ---- chunks: values as wide as the logits never exist whole ---- */
static bool reads_logits(ir_opcode op) {
  return op == IR_CROSS_ENTROPY || op == IR_CROSS_ENTROPY_BACK || op == IR_TOP_GAP || op == IR_KL;
}

static bool keeps_width(const train_planner *k, ir_value v) {
  return k->class[v.id] == TRAIN_OP_ROW && !ir_is(k->m, v, IR_EMBED);
}

/* From the logits through ops of one width, up and down. */
static void find_wide(const train_planner *k, ir_region entry, bool *wide) {
  for (ir_value v = ir_first(k->m, entry); v.id; v = ir_next(k->m, v))
    for (size_t i = 0; reads_logits(ir_opcode_of(k->m, v)) && i < ir_operand_count(k->m, v); i++) {
      ir_value x = train_source_of(k, v, i);
      if (x.id && train_width(k->m, x) == train_width(k->m, ir_operand(k->m, v, 0))) wide[x.id] = true;
    }
  for (bool changed = true; changed;) {
    changed = false;
    for (ir_value v = ir_first(k->m, entry); v.id; v = ir_next(k->m, v))
      for (size_t i = 0; keeps_width(k, v) && i < ir_operand_count(k->m, v); i++) {
        ir_value x = train_source_of(k, v, i);
        if (!x.id || train_width(k->m, x) != train_width(k->m, v) || wide[x.id] == wide[v.id]) continue;
        wide[x.id] = wide[v.id] = changed = true;
      }
  }
}

static void find_chunked(train_planner *k, ir_region entry) {
  bool *wide = ARENA_ARRAY(&k->scratch, bool, ir_value_limit(k->m));
  find_wide(k, entry, wide);
  for (ir_value v = ir_first(k->m, entry); v.id; v = ir_next(k->m, v)) {
    train_class c = k->class[v.id];
    bool fits = c == TRAIN_OP_ROW || c == TRAIN_OP_PRODUCT || c == TRAIN_OP_SUM || c == TRAIN_OP_WEIGHT;
    bool in = wide[v.id];
    for (size_t i = 0; i < ir_operand_count(k->m, v) && !in; i++) {
      ir_value x = train_source_of(k, v, i);
      in = x.id && (wide[x.id] || (c == TRAIN_OP_SUM && k->chunk[x.id]));
    }
    k->chunk[v.id] = fits && in;
  }
}

/* ---- what can be executed ---- */
static bool check_op(train_planner *k, ir_value v) {
  train_class c = k->class[v.id];
  if (c == TRAIN_OP_NONE) return true;
  ir_opcode op = ir_opcode_of(k->m, v);
  if (!train_width(k->m, v) && op != IR_RESULT && op != IR_GRADIENT)
    return train_refuse(k, v, "a row of it is too large");
  if (c == TRAIN_OP_PRODUCT && train_param_of(k->p, ir_operand(k->m, v, 1)) == TRAIN_NOT)
    return train_refuse(k, v, "its weight must be a parameter");
  if ((op == IR_ROPE || op == IR_ROPE_BACK) && !ir_is(k->m, ir_operand(k->m, v, 1), IR_POSITIONS))
    return train_refuse(k, v, "its positions must come from `positions`");
  for (size_t i = 0; i < ir_operand_count(k->m, v); i++) {
    ir_value x = ir_operand(k->m, v, i);
    if (!x.id || ir_region_of(k->m, x).id != IR_GLOBALS.id) continue;
    ir_opcode o = ir_opcode_of(k->m, x);
    if (o != IR_PARAM && o != IR_CONST && o != IR_GATE)
      return train_refuse(k, v, "an expression over parameters must stand in the entry");
  }
  return true;
}

bool train_classify(train_planner *k, ir_region entry) {
  bool ok = true;
  for (ir_value v = ir_first(k->m, entry); v.id; v = ir_next(k->m, v)) {
    k->class[v.id] = class_of(k->m, v);
    k->p->slots[v.id].width = train_width(k->m, v);
  }
  for (ir_value v = ir_first(k->m, entry); v.id; v = ir_next(k->m, v)) {
    if (ir_is(k->m, v, IR_GRADIENT)) ok &= place_gradient(k, v);
    if (ir_is(k->m, v, IR_RESULT)) place_result(k, v);
  }
  for (ir_value v = ir_first(k->m, entry); v.id; v = ir_next(k->m, v)) ok &= check_op(k, v);
  if (ok) find_chunked(k, entry);
  return ok;
}
