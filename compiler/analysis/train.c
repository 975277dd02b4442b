#include "compiler/analysis/train.h"
#include "compiler/analysis/readers.h"
#include "compiler/analysis/stream.h"

#include <string.h>

ir_value analysis_logits(const ir_module *m, ir_region entry) {
  ir_value last = ir_last(m, entry);
  if (ir_is(m, last, IR_RETURN) && ir_operand(m, last, 0).id) return ir_operand(m, last, 0);
  for (ir_value v = ir_first(m, entry); v.id; v = ir_next(m, v)) {
    if (!ir_is(m, v, IR_RESULT) || strcmp(ir_name_of(m, v), "ce") != 0) continue;
    ir_value rows = ir_operand(m, ir_operand(m, v, 0), 0);
    if (ir_is(m, rows, IR_CROSS_ENTROPY)) return ir_operand(m, rows, 0);
  }
  return IR_NONE;
}

static bool is_local(const ir_module *m, ir_value v) { return v.id && ir_region_of(m, v).id != IR_GLOBALS.id; }

/* The one operand of the entry that a row-wise op reads; IR_NONE where there are several, or none. */
static ir_value only_input(const ir_module *m, ir_value v) {
  ir_value only = IR_NONE;
  if (!ir_op_has(ir_opcode_of(m, v), OPF_ROWWISE)) return IR_NONE;
  for (size_t i = 0; i < ir_operand_count(m, v); i++) {
    ir_value x = ir_operand(m, v, i);
    if (!is_local(m, x) || ir_type_of(m, x).dtype != IR_F32) continue;
    if (only.id) return IR_NONE;
    only = x;
  }
  return only;
}

static bool is_norm(const ir_module *m, ir_value v) {
  return ir_op_has(ir_opcode_of(m, v), OPF_NORM) || ir_is(m, v, IR_DYT);
}

/* Operand `name` of v, or IR_NONE. */
static ir_value operand_named(const ir_module *m, ir_value v, const char *name) {
  const ir_operand_spec *specs;
  size_t n = ir_op_operands(ir_opcode_of(m, v), &specs);
  for (size_t i = 0; i < n; i++)
    if (strcmp(specs[i].name, name) == 0) return ir_operand(m, v, i);
  return IR_NONE;
}

analysis_final analysis_final_norm(const ir_module *m, ir_region entry) {
  analysis_final f = {.eps = 1e-6};
  ir_value v = analysis_logits(m, entry);
  while (v.id && !(is_norm(m, v) && ir_type_of(m, v).rank == 3)) { /* a norm of heads is no norm of the stream */
    if (ir_is(m, v, IR_LINEAR) && !f.head.id) f.head = v;
    v = only_input(m, v);
  }
  if (v.id) {
    f.norm = v;
    f.stream = ir_operand(m, v, 0);
    f.gate = operand_named(m, v, "gate");
    f.centred = ir_op_has(ir_opcode_of(m, v), OPF_MEAN_BLIND);
    f.eps = ir_eps(m, v);
  } else if (f.head.id)
    f.stream = ir_operand(m, f.head, 0);
  f.stream = analysis_behind(m, f.stream);
  return f;
}

/* ---- taper norms ---- */
static ir_value param_or_none(const ir_module *m, ir_value v) { return ir_is(m, v, IR_PARAM) ? v : IR_NONE; }

size_t analysis_train_norms(const ir_module *m, ir_region entry, arena *scratch, analysis_train_norm **out) {
  size_t count = 0, n = 0;
  ir_value last = analysis_final_norm(m, entry).norm;
  for (int fill = 0; fill < 2; fill++) {
    if (fill) *out = ARENA_ARRAY(scratch, analysis_train_norm, count ? count : 1);
    for (ir_value v = ir_first(m, entry); v.id; v = ir_next(m, v)) {
      if (!ir_is(m, v, IR_TAPER_RMS_NORM) && !ir_is(m, v, IR_TAPER_LAYER_NORM)) continue;
      ir_value gate = operand_named(m, v, "gate");
      if (!ir_is(m, gate, IR_GATE)) continue;
      if (!fill) {
        count++;
        continue;
      }
      (*out)[n++] = (analysis_train_norm){.name = ir_name_of(m, v),
                                          .norm = v,
                                          .gate = gate,
                                          .weight = param_or_none(m, operand_named(m, v, "weight")),
                                          .taper_weight = param_or_none(m, operand_named(m, v, "taper_weight")),
                                          .taper_c = param_or_none(m, operand_named(m, v, "taper_c")),
                                          .layer_norm = ir_is(m, v, IR_TAPER_LAYER_NORM),
                                          .final = ir_same(v, last)};
    }
  }
  return count;
}

/* Is x made of the looked-up tokens by sums and row-wise ops of one input, with no linear and no norm on the way? */
static bool carries_tokens(const ir_module *m, ir_value x, arena *scratch) {
  ir_value *stack = ARENA_ARRAY(scratch, ir_value, 2 * (size_t)ir_value_limit(m) + 2);
  bool *seen = ARENA_ARRAY(scratch, bool, ir_value_limit(m));
  size_t n = 0;
  for (stack[n++] = x; n > 0;) {
    x = stack[--n];
    if (!is_local(m, x) || seen[x.id]) continue;
    seen[x.id] = true;
    if (ir_is(m, x, IR_EMBED)) return true;
    if (analysis_joins(m, x))
      for (size_t i = 0; i < ir_operand_count(m, x); i++) stack[n++] = ir_operand(m, x, i);
    else if (!ir_is(m, x, IR_LINEAR) && !is_norm(m, x) && (x = only_input(m, x)).id)
      stack[n++] = x;
  }
  return false;
}

bool analysis_norms_stream(const ir_module *m, ir_value norm) {
  arena scratch = {0};
  bool yes = ir_type_of(m, norm).rank == 3 && carries_tokens(m, ir_operand(m, norm, 0), &scratch);
  arena_free(&scratch);
  return yes;
}

/* ---- what a parameter is ---- */
typedef enum reach { REACH_ATTENTION = 1, REACH_NONLINEAR = 2 } reach;

typedef struct kinds {
  const ir_module *m;
  arena *scratch;
  uint8_t *down, *up; /* [value]: what a value leads to and comes from, up to the next linear or stream */
  const char **kind;
} kinds;

static bool is_nonlinear(const ir_module *m, ir_value v) {
  ir_opcode op = ir_opcode_of(m, v);
  if (op == IR_MUL || op == IR_DIV) return is_local(m, ir_operand(m, v, 0)) && is_local(m, ir_operand(m, v, 1));
  return ir_op_has(op, OPF_ELEMENTWISE) && !ir_op_has(op, OPF_LINEAR) && op != IR_ADD && op != IR_SUB;
}

/* Does the walk along a branch go on through v? Sums of the stream and linears end it. */
static bool goes_through(const ir_module *m, ir_value v) {
  return !ir_is(m, v, IR_LINEAR) && (!analysis_joins(m, v) || ir_op_has(ir_opcode_of(m, v), OPF_IDENTITY));
}

static uint8_t role(const ir_module *m, ir_value v) {
  if (ir_is(m, v, IR_ATTENTION)) return REACH_ATTENTION;
  return is_nonlinear(m, v) ? REACH_NONLINEAR : 0;
}

static void walk(kinds *k, ir_region entry) {
  const ir_module *m = k->m;
  for (ir_value v = ir_last(m, entry); v.id; v = ir_prev(m, v)) {
    ir_value *users;
    size_t n = ir_users(m, v, k->scratch, &users);
    for (size_t i = 0; i < n; i++) {
      if (ir_region_of(m, users[i]).id != entry.id) continue;
      uint8_t own = role(m, users[i]);
      k->down[v.id] |= own ? own : goes_through(m, users[i]) ? k->down[users[i].id] : 0;
    }
  }
  for (ir_value v = ir_first(m, entry); v.id; v = ir_next(m, v)) {
    k->up[v.id] = role(m, v);
    for (size_t i = 0; !k->up[v.id] && goes_through(m, v) && i < ir_operand_count(m, v); i++) {
      ir_value x = ir_operand(m, v, i);
      if (is_local(m, x)) k->up[v.id] |= k->up[x.id];
    }
  }
}

static const char *kind_of_linear(const kinds *k, ir_value v, ir_value head) {
  uint8_t to = k->down[v.id], from = k->up[ir_operand(k->m, v, 0).id];
  if (ir_same(v, head)) return "head";
  if (to & REACH_ATTENTION) return "qkv";
  if (to & REACH_NONLINEAR) return "mlp_in";
  if (from & REACH_ATTENTION) return "o";
  return from & REACH_NONLINEAR ? "mlp_out" : "other";
}

static const char *kind_of_use(const kinds *k, ir_value user, size_t i, ir_value head) {
  const ir_operand_spec *specs;
  ir_opcode op = ir_opcode_of(k->m, user);
  size_t n = ir_op_operands(op, &specs);
  const char *operand = i < n ? specs[i].name : "x";
  if (op == IR_EMBED) return "embedding";
  if (strcmp(operand, "bias") == 0) return "bias";
  if (op == IR_LINEAR && i == 1) return kind_of_linear(k, user, head);
  return i < n && specs[i].is_param ? "norm" : "other";
}

const char **analysis_param_kinds(const ir_module *m, ir_region entry, arena *scratch) {
  uint32_t limit = ir_value_limit(m);
  kinds k = {m, scratch, ARENA_ARRAY(scratch, uint8_t, limit), ARENA_ARRAY(scratch, uint8_t, limit),
             ARENA_ARRAY(scratch, const char *, limit)};
  ir_value head = analysis_final_norm(m, entry).head;
  walk(&k, entry);
  for (ir_value v = ir_first(m, entry); v.id; v = ir_next(m, v))
    for (size_t i = 0; i < ir_operand_count(m, v); i++) {
      ir_value x = ir_operand(m, v, i);
      if (!ir_is(m, x, IR_PARAM)) continue;
      const char *kind = kind_of_use(&k, v, i, head), **at = &k.kind[x.id];
      if (!*at || strcmp(kind, "embedding") == 0) *at = kind;
    }
  return k.kind;
}
