/* cse.c - equal pure ops become the first of them: same op, operands, attributes and type. Never state, params, gates
   or probes; consts that hold the same bits or name the same tensor are equal whatever they are called. */
#include "compiler/passes/passes_priv.h"

#include <string.h>

typedef struct cse_slot {
  ir_value value; /* IR_NONE: empty */
  uint64_t hash;
} cse_slot;

static uint64_t mix(uint64_t h, uint64_t x) {
  h = (h ^ x) * 0x9e3779b97f4a7c15u;
  return h ^ (h >> 29);
}

static uint64_t mix_bytes(uint64_t h, const void *data, size_t n) {
  const unsigned char *p = data;
  for (size_t i = 0; i < n; i++) h = mix(h, p[i]);
  return h;
}

/* The name of a const says nothing about its value. */
static bool counts(const ir_module *m, ir_value v, ir_attr_key key) {
  return !(ir_is(m, v, IR_CONST) && key == IR_ATTR_NAME);
}

static uint64_t hash_attr(uint64_t h, ir_attr a) {
  h = mix(h, (uint64_t)a.key);
  switch (ir_attr_kind_of(a.key)) {
  case IR_KIND_INT: return mix(h, (uint64_t)a.u.i);
  case IR_KIND_FLOAT: return mix_bytes(h, &a.u.f, sizeof a.u.f);
  case IR_KIND_STRING: return mix_bytes(h, a.u.s, strlen(a.u.s));
  case IR_KIND_FLOATS: return mix_bytes(h, a.u.floats.data, a.u.floats.n * sizeof(double));
  }
  return h;
}

/* Operand i in the order that equality sees: the two of a commutative op by id. */
static ir_value operand_at(const ir_module *m, ir_value v, size_t i) {
  ir_value a = ir_operand(m, v, 0), b = ir_operand(m, v, 1);
  if (!ir_op_has(ir_opcode_of(m, v), OPF_COMMUTATIVE) || i > 1) return ir_operand(m, v, i);
  return (a.id < b.id) == (i == 0) ? a : b;
}

static uint64_t hash_op(const ir_module *m, ir_value v) {
  uint64_t h = mix(1, (uint64_t)ir_opcode_of(m, v));
  for (size_t i = 0; i < ir_operand_count(m, v); i++) h = mix(h, operand_at(m, v, i).id);
  for (size_t i = 0; i < ir_attr_count(m, v); i++) {
    ir_attr a = ir_attr_at(m, v, i);
    if (counts(m, v, a.key)) h = hash_attr(h, a);
  }
  return mix(h, (uint64_t)(uintptr_t)ir_payload(m, v));
}

/* Attributes from index *i on that count, or false at the end. */
static bool next_attr(const ir_module *m, ir_value v, size_t *i, ir_attr *out) {
  for (; *i < ir_attr_count(m, v); ++*i) {
    *out = ir_attr_at(m, v, *i);
    if (counts(m, v, out->key)) {
      ++*i;
      return true;
    }
  }
  return false;
}

static bool equal_ops(const ir_module *m, ir_value a, ir_value b) {
  if (ir_opcode_of(m, a) != ir_opcode_of(m, b) || ir_operand_count(m, a) != ir_operand_count(m, b)) return false;
  if (!ir_type_equal(ir_type_of(m, a), ir_type_of(m, b)) || ir_payload(m, a) != ir_payload(m, b)) return false;
  for (size_t i = 0; i < ir_operand_count(m, a); i++)
    if (!ir_same(operand_at(m, a, i), operand_at(m, b, i))) return false;
  size_t i = 0, k = 0;
  ir_attr x, y;
  for (;;) {
    bool more = next_attr(m, a, &i, &x);
    if (more != next_attr(m, b, &k, &y)) return false;
    if (!more) return true;
    if (!pass_attr_equal(x, y)) return false;
  }
}

static bool may_merge(const ir_module *m, ir_value v) {
  ir_opcode op = ir_opcode_of(m, v);
  if (op == IR_CONST) return !ir_is_symbolic(m, v) || ir_has_attr(m, v, IR_ATTR_TENSOR);
  return ir_op_has(op, OPF_PURE) && !ir_op_has(op, OPF_STATE) && !ir_op_has(op, OPF_IDENTITY);
}

static size_t op_count(const ir_module *m, ir_region r) {
  size_t n = 0;
  for (ir_value v = ir_first(m, r); v.id; v = ir_next(m, v)) n++;
  return n;
}

static void merge_region(pass_context *c, ir_region r) {
  size_t cap = 16, n = op_count(c->m, r);
  while (cap < 2 * n) cap *= 2;
  cse_slot *slots = ARENA_ARRAY(&c->scratch, cse_slot, cap);
  for (ir_value v = ir_first(c->m, r), next; v.id; v = next) {
    next = ir_next(c->m, v);
    if (!may_merge(c->m, v)) continue;
    uint64_t hash = hash_op(c->m, v);
    size_t i = hash & (cap - 1);
    while (slots[i].value.id && (slots[i].hash != hash || !equal_ops(c->m, slots[i].value, v))) i = (i + 1) & (cap - 1);
    if (!slots[i].value.id) {
      slots[i] = (cse_slot){v, hash};
      continue;
    }
    ir_replace_uses(c->m, v, slots[i].value);
    ir_erase(c->m, v);
    c->changed = true;
  }
}

bool pass_cse(pass_context *c) {
  merge_region(c, IR_GLOBALS);
  for (size_t e = 0; e < ir_entry_count(c->m); e++) merge_region(c, ir_entry_at(c->m, e));
  return true;
}
