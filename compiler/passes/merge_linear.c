/* merge_linear.c - linears that read one value become one linear over their rows, cut by slices; also in the deferred
   form, linear, row_scale, shift. A weight that anything else in the entries reads (a tied table) is never merged, nor
   what only probes need with what every call needs. */
#include "compiler/analysis/execution.h"
#include "compiler/passes/passes_priv.h"

#include <stdlib.h>
#include <string.h>

static const char name[] = "merge-linear";

enum { LINEAR_OP, SCALE_OP, SHIFT_OP, MEMBER_OPS };

typedef struct member {
  ir_value op[MEMBER_OPS]; /* the linear; row_scale and shift of the deferred form, or none */
  ir_value statistic;
  uint32_t order, anchor_order; /* of the linear, and of where the merged op may stand at the latest */
} member;

typedef struct merging {
  analysis_constants known;
  uint32_t *order, limit; /* places of the ops that were there before the pass, by id */
  bool *probe_only;       /* of the entry */
} merging;

/* The only user of v if it is an `op` that reads v as its input. */
static ir_value only_user(pass_context *c, ir_value v, ir_opcode op) {
  ir_value *users;
  size_t n = ir_users(c->m, v, &c->scratch, &users);
  bool good =
      n == 1 && ir_use_count(c->m, v) == 1 && ir_is(c->m, users[0], op) && ir_same(ir_operand(c->m, users[0], 0), v);
  return good ? users[0] : IR_NONE;
}

/* What constant expressions read is gone at run time; in the entries only one op may read the weight. */
static bool has_one_reader(pass_context *c, ir_value weight) {
  ir_value *users;
  size_t n = ir_users(c->m, weight, &c->scratch, &users), readers = 0;
  for (size_t i = 0; i < n; i++) readers += ir_region_of(c->m, users[i]).id != IR_GLOBALS.id;
  return readers == 1;
}

static bool as_member(pass_context *c, merging *t, ir_value v, member *out) {
  ir_module *m = c->m;
  if (!ir_is(m, v, IR_LINEAR) || v.id >= t->limit || t->probe_only[v.id]) return false;
  ir_value weight = ir_operand(m, v, 1), bias = ir_operand(m, v, 2);
  if (!analysis_is_constant(&t->known, weight) || !has_one_reader(c, weight) ||
      (bias.id && !analysis_is_constant(&t->known, bias)))
    return false;
  ir_value scale = only_user(c, v, IR_ROW_SCALE), shift = scale.id ? only_user(c, scale, IR_SHIFT) : IR_NONE;
  if (shift.id && !analysis_is_constant(&t->known, ir_operand(m, shift, 1))) shift = IR_NONE;
  *out =
      (member){.op = {v, scale, shift}, .order = t->order[v.id], .anchor_order = t->order[scale.id ? scale.id : v.id]};
  if (scale.id) out->statistic = ir_operand(m, scale, 1);
  return true;
}

static bool fits(const member *a, const member *b) { return ir_same(a->statistic, b->statistic); }

static int compare_members(const void *pa, const void *pb) {
  const member *a = pa, *b = pb;
  return a->order < b->order ? -1 : a->order > b->order;
}

/* The rows of all members' operand `operand` of their op `which`; zeros where one has none, nothing where all have
 * none. */
static ir_value concat_of(pass_context *c, const member *g, size_t n, int which, size_t operand) {
  ir_value *parts = ARENA_ARRAY(&c->scratch, ir_value, n);
  bool any = false;
  for (size_t k = 0; k < n; k++) {
    ir_value op = g[k].op[which];
    parts[k] = op.id ? ir_operand(c->m, op, operand) : IR_NONE;
    any = any || parts[k].id;
  }
  if (!any) return IR_NONE;
  for (size_t k = 0; k < n; k++) {
    int64_t rows = ir_type_of(c->m, ir_operand(c->m, g[k].op[LINEAR_OP], 1)).dim[0];
    if (!parts[k].id) parts[k] = pass_splat(c, g[k].op[LINEAR_OP], ir_type_make(IR_F32, 1, &rows), 0);
  }
  ir_attr axis = {IR_ATTR_AXIS, {.i = 0}};
  return pass_expr(c, g[0].op[LINEAR_OP], IR_CONCAT, parts, n, &axis, 1);
}

/* The length of the longest prefix of whole words, with its dot, that two names share. */
static size_t shared_prefix(const char *a, const char *b) {
  size_t prefix = 0;
  for (size_t i = 0; a[i] && a[i] == b[i]; i++)
    if (a[i] == '.' && b[i + 1]) prefix = i + 1;
  return prefix;
}

/* layers.0.attn.q, layers.0.attn.k, layers.0.attn.v: layers.0.attn.q+k+v */
static const char *merged_name(pass_context *c, const member *g, size_t n) {
  const char *first = pass_label(c, g[0].op[LINEAR_OP]), *result = first;
  for (size_t k = 1; k < n; k++) {
    const char *label = pass_label(c, g[k].op[LINEAR_OP]);
    result = arena_printf(&c->scratch, "%s+%s", result, label + shared_prefix(first, label));
  }
  return result;
}

static ir_value last_op(const member *g) {
  int i = MEMBER_OPS - 1;
  while (!g->op[i].id) i--;
  return g->op[i];
}

/* The merged ops stand where the earliest member has its row_scale (or linear): x and the statistic are there, and
 * whoever reads a member is behind it. */
static const member *anchor_of(const member *g, size_t n) {
  const member *best = g;
  for (size_t k = 1; k < n; k++)
    if (g[k].anchor_order < best->anchor_order) best = &g[k];
  return best;
}

static void merge(pass_context *c, const member *g, size_t n) {
  ir_module *m = c->m;
  const member *at = anchor_of(g, n);
  ir_value first = g[0].op[LINEAR_OP];
  const char *label = merged_name(c, g, n);
  diag_remark(c->sink, name, false, ir_loc_of(m, first), "%zu linears of one value become '%s'", n, label);
  ir_value weights = concat_of(c, g, n, LINEAR_OP, 1), biases = concat_of(c, g, n, LINEAR_OP, 2),
           shifts = concat_of(c, g, n, SHIFT_OP, 1);
  ir_builder b = {m, ir_region_of(m, first), at->statistic.id ? at->op[SCALE_OP] : at->op[LINEAR_OP],
                  ir_loc_of(m, first), label};
  ir_value y = ir_build(&b, IR_LINEAR, (ir_value[]){ir_operand(m, at->op[LINEAR_OP], 0), weights, biases}, 3, NULL, 0);
  if (at->statistic.id) y = IR_BUILD(&b, IR_ROW_SCALE, y, at->statistic);
  if (shifts.id) y = IR_BUILD(&b, IR_SHIFT, y, shifts);
  int64_t start = 0;
  for (size_t k = 0; k < n; k++) {
    int64_t rows = ir_type_of(m, ir_operand(m, g[k].op[LINEAR_OP], 1)).dim[0];
    ir_attr cut[] = {{IR_ATTR_START, {.i = start}}, {IR_ATTR_SIZE, {.i = rows}}};
    b.name = ir_name_of(m, last_op(&g[k]));
    b.loc = ir_loc_of(m, last_op(&g[k]));
    ir_replace_uses(m, last_op(&g[k]), ir_build(&b, IR_SLICE, &y, 1, cut, 2));
    start += rows;
  }
  for (size_t k = 0; k < n; k++) pass_erase_chain(c, last_op(&g[k]));
  c->changed = true;
}

/* Merges the readers of x, in groups of those that share a statistic or have none. */
static void merge_readers(pass_context *c, merging *t, ir_value x) {
  if (ir_use_count(c->m, x) < 2) {
    ir_value *users;
    if (ir_users(c->m, x, &c->scratch, &users) == 0 || !ir_op_has(ir_opcode_of(c->m, users[0]), OPF_IDENTITY)) return;
  }
  analysis_reader *readers;
  size_t n = analysis_readers(c->m, x, &c->scratch, &readers, NULL), members = 0;
  member *all = ARENA_ARRAY(&c->scratch, member, n + 1), *group = ARENA_ARRAY(&c->scratch, member, n + 1);
  for (size_t i = 0; i < n; i++)
    if (readers[i].operand == 0 && !readers[i].again && as_member(c, t, readers[i].op, &all[members])) members++;
  qsort(all, members, sizeof *all, compare_members);
  while (members > 0) {
    size_t count = 0, rest = 0;
    for (size_t k = 0; k < members; k++)
      if (fits(&all[0], &all[k])) group[count++] = all[k];
    for (size_t k = 0; k < members; k++)
      if (!fits(&group[0], &all[k])) all[rest++] = all[k];
    members = rest;
    if (count >= 2) merge(c, group, count);
  }
}

bool pass_merge_linear(pass_context *c) {
  merging t = {.known = analysis_constants_of(c->m, &c->scratch), .limit = ir_value_limit(c->m)};
  t.order = ARENA_ARRAY(&c->scratch, uint32_t, t.limit);
  for (size_t e = 0; e < ir_entry_count(c->m); e++) {
    uint32_t place = 0;
    t.probe_only = execution_probe_only(c->m, ir_entry_at(c->m, e), &c->scratch);
    for (ir_value v = ir_first(c->m, ir_entry_at(c->m, e)); v.id; v = ir_next(c->m, v)) t.order[v.id] = ++place;
    for (ir_value v = ir_first(c->m, ir_entry_at(c->m, e)); v.id; v = ir_next(c->m, v))
      if (!ir_op_has(ir_opcode_of(c->m, v), OPF_IDENTITY)) merge_readers(c, &t, v);
  }
  return true;
}
