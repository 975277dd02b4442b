/* cast_operands.c - with --dtype=bf16 or f16: matrices in that type, and the rows that products with them read rounded to it. Only these: sums, the
   residual stream, norms, caches and logits stay f32. It runs before fold-const, which rounds a folded matrix once. */
#include "compiler/passes/passes_priv.h"

typedef struct caster {
  pass_context *c;
  ir_dtype type;
  ir_value *made; /* [value]: its cast */
  uint32_t limit;
} caster;

/* Columns of numbers for each row are no matrix: they stand beside gates and vectors. */
static bool is_matrix(const ir_module *m, ir_value v) {
  ir_type t = ir_type_of(m, v);
  return ir_region_of(m, v).id == IR_GLOBALS.id && t.dtype == IR_F32 && t.rank == 2 && t.dim[0] > 1 && t.dim[1] > 1;
}

static ir_value cast_of(caster *k, ir_value x) {
  if (x.id < k->limit && k->made[x.id].id) return k->made[x.id];
  ir_module *m = k->c->m;
  ir_builder b = {m, ir_region_of(m, x), ir_next(m, x), ir_loc_of(m, x), NULL};
  const ir_attr to = {.key = IR_ATTR_TO, .u.s = ir_dtype_name(k->type)};
  ir_value v = ir_build(&b, IR_CAST, &x, 1, &to, 1);
  if (x.id < k->limit) k->made[x.id] = v;
  k->c->changed = true;
  return v;
}

static void cast_operands_of(caster *k, ir_value v) {
  ir_module *m = k->c->m;
  bool product = ir_is(m, v, IR_LINEAR);
  if ((!product && !ir_is(m, v, IR_EMBED)) || !is_matrix(m, ir_operand(m, v, 1))) return;
  ir_set_operand(m, v, 1, cast_of(k, ir_operand(m, v, 1)));
  if (product) ir_set_operand(m, v, 0, cast_of(k, ir_operand(m, v, 0)));
}

bool pass_cast_operands(pass_context *c) {
  caster k = {.c = c, .type = c->options->dtype, .limit = ir_value_limit(c->m)};
  if (k.type != IR_BF16 && k.type != IR_F16) return true;
  k.made = ARENA_ARRAY(&c->scratch, ir_value, k.limit);
  for (size_t e = 0; e < ir_entry_count(c->m); e++)
    for (ir_value v = ir_first(c->m, ir_entry_at(c->m, e)); v.id; v = ir_next(c->m, v)) cast_operands_of(&k, v);
  return true;
}
