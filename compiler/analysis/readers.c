#include "compiler/analysis/readers.h"
#include <stdlib.h>
#include <string.h>

ir_value analysis_behind(const ir_module *m, ir_value v) {
  while (v.id && ir_op_has(ir_opcode_of(m, v), OPF_IDENTITY)) v = ir_operand(m, v, 0);
  return v;
}

typedef struct found {
  analysis_reader *at;
  size_t count, cap;
} found;

static void found_add(found *f, arena *scratch, analysis_reader r) {
  if (f->count == f->cap) {
    analysis_reader *grown = ARENA_ARRAY(scratch, analysis_reader, f->cap ? 2 * f->cap : 8);
    if (f->count) memcpy(grown, f->at, f->count * sizeof *grown);
    f->at = grown;
    f->cap = f->cap ? 2 * f->cap : 8;
  }
  f->at[f->count++] = r;
}

size_t analysis_readers(const ir_module *m, ir_value v, arena *scratch, analysis_reader **out, size_t *out_probes) {
  found readers = {0}, probes = {0};
  found_add(&probes, scratch, (analysis_reader){v, 0, false}); /* a work list: v, then the probes of it */
  for (size_t p = 0; p < probes.count; p++) {
    ir_value value = probes.at[p].op, *users;
    size_t n = ir_users(m, value, scratch, &users);
    for (size_t i = 0; i < n; i++) {
      bool first = true, identity = ir_op_has(ir_opcode_of(m, users[i]), OPF_IDENTITY);
      for (uint32_t k = 0; k < ir_operand_count(m, users[i]); k++) {
        if (!ir_same(ir_operand(m, users[i], k), value)) continue;
        if (!first)
          readers.at[readers.count - 1].again = true;
        else if (identity && k == 0) {
          found_add(&probes, scratch, (analysis_reader){users[i], k, false});
          break;
        } else
          found_add(&readers, scratch, (analysis_reader){users[i], k, false});
        first = false;
      }
    }
  }
  *out = readers.at;
  if (out_probes) *out_probes = probes.count - 1;
  return readers.count;
}

bool analysis_read_by(const ir_module *m, ir_value v, ir_opcode op, arena *scratch) {
  ir_value *users;
  size_t n = ir_users(m, v, scratch, &users);
  for (size_t i = 0; i < n; i++)
    if (ir_is(m, users[i], op)) return true;
  return false;
}

enum { IS_CONSTANT = 1, NOT_CONSTANT = 2 };

analysis_constants analysis_constants_of(const ir_module *m, arena *scratch) {
  analysis_constants t = {m, scratch, NULL, ir_value_limit(m)};
  t.known = ARENA_ARRAY(scratch, uint8_t, t.limit ? t.limit : 1);
  for (ir_value v = ir_first(m, IR_GLOBALS); v.id; v = ir_next(m, v)) analysis_is_constant(&t, v);
  return t;
}

bool analysis_is_constant(analysis_constants *t, ir_value v) {
  if (!v.id || ir_region_of(t->m, v).id != IR_GLOBALS.id) return false;
  if (v.id >= t->limit) {
    uint32_t limit = ir_value_limit(t->m) * 2;
    uint8_t *grown = ARENA_ARRAY(t->scratch, uint8_t, limit);
    memcpy(grown, t->known, t->limit);
    t->known = grown;
    t->limit = limit;
  }
  if (t->known[v.id]) return t->known[v.id] == IS_CONSTANT;
  /* operands come first in the region, so the walk over it finds them known; new values have only few unknown below
   * them */
  ir_opcode op = ir_opcode_of(t->m, v);
  bool yes = op == IR_CONST || (ir_op_has(op, OPF_PURE) && ir_operand_count(t->m, v) > 0);
  for (size_t i = 0; yes && i < ir_operand_count(t->m, v); i++) {
    ir_value o = ir_operand(t->m, v, i);
    yes = !o.id || analysis_is_constant(t, o);
  }
  t->known[v.id] = yes ? IS_CONSTANT : NOT_CONSTANT;
  return yes;
}

bool analysis_is_splat(const ir_module *m, ir_value v, double value) {
  if (!ir_is(m, v, IR_CONST) || ir_is_symbolic(m, v)) return false;
  size_t inline_count;
  const double *at = ir_attr_floats(m, v, IR_ATTR_VALUE, &inline_count);
  if (at) {
    for (size_t i = 0; i < inline_count; i++)
      if (!(at[i] == value)) return false;
    return inline_count > 0;
  }
  int64_t n = ir_elements(ir_type_of(m, v));
  double *all = n > 0 && (uint64_t)n <= SIZE_MAX / sizeof *all ? malloc((size_t)n * sizeof *all) : NULL;
  bool yes = all && ir_read_const(m, v, all);
  for (int64_t i = 0; yes && i < n; i++) yes = all[i] == value;
  free(all);
  return yes;
}

ir_value analysis_leaf(const ir_module *m, ir_value v) {
  while (ir_operand_count(m, v) > 0) v = ir_operand(m, v, 0);
  return v;
}
