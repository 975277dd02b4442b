/* fold_const.c - constant expressions that the entries use are evaluated wholly in fp64 and rounded once to their type;
   symbolic ones stay. Also what has become trivial in the entries: scales by ones, shifts by zeros, slices of
   everything. */
#include "compiler/ir/eval.h"
#include "compiler/passes/passes_priv.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct folding {
  analysis_constants known;
  uint8_t *symbolic; /* by id: holds, or is, a const without values */
  uint8_t *needed;   /* by id: a target, or an operand of one */
  ir_value *targets; /* expressions that entries read, then their consts */
  ir_value *results;
  const char **names; /* of what was cast alone: the result is called like it; else NULL */
  size_t count;
} folding;

static bool is_expression(const ir_module *m, ir_value v) { return !ir_op_has(ir_opcode_of(m, v), OPF_GLOBAL); }

static ir_value entry_user(pass_context *c, ir_value v) {
  ir_value *users;
  size_t n = ir_users(c->m, v, &c->scratch, &users);
  for (size_t i = 0; i < n; i++)
    if (ir_region_of(c->m, users[i]).id != IR_GLOBALS.id) return users[i];
  return IR_NONE;
}

/* What can be evaluated: forwards what is symbolic, backwards what the targets need. */
static void find_targets(pass_context *c, folding *f) {
  ir_module *m = c->m;
  uint32_t limit = ir_value_limit(m);
  f->known = analysis_constants_of(m, &c->scratch);
  f->symbolic = ARENA_ARRAY(&c->scratch, uint8_t, limit);
  f->needed = ARENA_ARRAY(&c->scratch, uint8_t, limit);
  f->targets = ARENA_ARRAY(&c->scratch, ir_value, limit);
  f->results = ARENA_ARRAY(&c->scratch, ir_value, limit);
  f->names = ARENA_ARRAY(&c->scratch, const char *, limit);
  for (ir_value v = ir_first(m, IR_GLOBALS); v.id; v = ir_next(m, v)) {
    f->symbolic[v.id] = ir_is_symbolic(m, v);
    for (size_t i = 0; i < ir_operand_count(m, v); i++) f->symbolic[v.id] |= f->symbolic[ir_operand(m, v, i).id];
    bool foldable = is_expression(m, v) && !f->symbolic[v.id] && analysis_is_constant(&f->known, v) &&
                    (ir_type_of(m, v).dtype == IR_F32 || ir_is(m, v, IR_CAST));
    if (!foldable || !entry_user(c, v).id) continue;
    if (ir_is(m, v, IR_CAST) && ir_use_count(m, ir_operand(m, v, 0)) == 1)
      f->names[f->count] = ir_name_of(m, ir_operand(m, v, 0));
    f->targets[f->count++] = v;
  }
  for (size_t i = 0; i < f->count; i++) f->needed[f->targets[i].id] = 1;
  for (ir_value v = ir_last(m, IR_GLOBALS); v.id; v = ir_prev(m, v))
    for (size_t i = 0; f->needed[v.id] && i < ir_operand_count(m, v); i++) f->needed[ir_operand(m, v, i).id] = 1;
}

/* ---- what must not be folded ---- */
static bool check_leaf(pass_context *c, ir_value leaf) {
  int64_t n = ir_elements(ir_type_of(c->m, leaf));
  double *values = n > 0 ? malloc((size_t)n * sizeof *values) : NULL;
  long long bad = 0;
  bool read = values && ir_read_const(c->m, leaf, values);
  for (int64_t i = 0; read && i < n; i++) bad += !isfinite(values[i]);
  free(values);
  if (!read)
    diag_report(c->sink, DC_PASS_EVAL, ir_loc_of(c->m, leaf), "'%s': its %lld elements do not fit into memory",
                pass_label(c, leaf), (long long)n);
  if (bad)
    diag_report(
        c->sink, DC_PASS_NONFINITE, ir_loc_of(c->m, leaf),
        "tensor '%s': %lld of %lld values are NaN or Inf, so it cannot be folded; --fold=none runs the model as it is",
        pass_label(c, leaf), bad, (long long)n);
  return read && !bad;
}

static bool check_leaves(pass_context *c, const folding *f) {
  bool fine = true;
  for (ir_value v = ir_first(c->m, IR_GLOBALS); v.id && !c->options->allow_nonfinite; v = ir_next(c->m, v))
    if (f->needed[v.id] && ir_is(c->m, v, IR_CONST)) fine = check_leaf(c, v) && fine;
  return fine;
}

/* ---- evaluation ---- */
static ir_value build_result(pass_context *c, ir_value v, const ir_tensor *t) {
  ir_type type = ir_type_of(c->m, v);
  size_t n = (size_t)ir_elements(type);
  ir_builder b = {c->m, IR_GLOBALS, v, ir_loc_of(c->m, v), NULL};
  if (n <= IR_MAX_INLINE) return ir_build_const(&b, type, t->data, n);
  void *data = ir_payload_new(c->m, n * ir_dtype_size(type.dtype));
  if (!data) return IR_NONE;
  for (size_t i = 0; i < n; i++) ir_store(type.dtype, data, i, t->data[i]);
  ir_value result = ir_build_typed(&b, IR_CONST, type, NULL, 0);
  ir_bind(c->m, result, data);
  return result;
}

/* Rounds in place; how many finite values left the range of the type. */
static long long round_all(ir_tensor *t, size_t n, ir_dtype type) {
  long long overflow = 0;
  for (size_t i = 0; i < n; i++) {
    double rounded = ir_round_to(type, t->data[i]);
    overflow += isfinite(t->data[i]) && !isfinite(rounded);
    t->data[i] = rounded;
  }
  return overflow;
}

static ir_value evaluate(pass_context *c, ir_value v) {
  ir_tensor t = {0};
  taper_error error = {0};
  const char *label = pass_label(c, analysis_leaf(c->m, v));
  const ir_value exact = ir_is(c->m, v, IR_CAST) ? ir_operand(c->m, v, 0) : v; /* rounding is ours */
  if (ir_eval_global(c->m, exact, &t, &error) != TAPER_OK) {
    diag_report(c->sink, DC_PASS_EVAL, ir_loc_of(c->m, v), "folding '%s': %s", label, error.message);
    return IR_NONE;
  }
  ir_value result = IR_NONE;
  long long overflow = round_all(&t, (size_t)ir_elements(ir_type_of(c->m, v)), ir_type_of(c->m, v).dtype);
  if (overflow && !c->options->allow_nonfinite)
    diag_report(c->sink, DC_PASS_OVERFLOW, ir_loc_of(c->m, v), "folding '%s': %lld values leave the range of %s; %s",
                label, overflow, ir_dtype_name(ir_type_of(c->m, v).dtype),
                ir_type_of(c->m, v).dtype == IR_F16 ? "--dtype=bf16 has that of f32"
                                                    : "--fold=explicit keeps the scale apart");
  else if (!(result = build_result(c, v, &t)).id)
    diag_report(c->sink, DC_PASS_EVAL, ir_loc_of(c->m, v), "folding '%s': no memory for the result", label);
  ir_tensor_free(&t);
  return result;
}

/* Only the entries see the rounded result; other expressions go on from exact operands. */
static void replace_in_entries(pass_context *c, ir_value v, ir_value result) {
  ir_value *users;
  size_t n = ir_users(c->m, v, &c->scratch, &users);
  for (size_t i = 0; i < n; i++)
    for (size_t k = 0; ir_region_of(c->m, users[i]).id != IR_GLOBALS.id && k < ir_operand_count(c->m, users[i]); k++)
      if (ir_same(ir_operand(c->m, users[i], k), v)) ir_set_operand(c->m, users[i], k, result);
}

static void erase_dead_operands(pass_context *c, const folding *f) {
  for (ir_value v = ir_last(c->m, IR_GLOBALS), prev; v.id; v = prev) {
    prev = ir_prev(c->m, v);
    bool old = f->needed[v.id] && ir_use_count(c->m, v) == 0;
    if (old) ir_erase(c->m, v);
  }
}

/* ---- names: what reads the const, and as what ---- */
static const char *base_name(pass_context *c, ir_value v) {
  ir_value user = entry_user(c, v);
  const ir_operand_spec *specs;
  size_t n = ir_op_operands(ir_opcode_of(c->m, user), &specs), i = 0;
  while (i < ir_operand_count(c->m, user) && !ir_same(ir_operand(c->m, user, i), v)) i++;
  const char *reader = pass_label(c, user), *role = i < n ? specs[i].name : specs[n - 1].name;
  return arena_printf(&c->scratch, "%s.%s", reader, role);
}

/* Tensor names that are taken: open addressing. */
typedef struct name_set {
  const char **slots;
  size_t cap;
} name_set;

static const char **name_slot(const name_set *s, const char *wanted) {
  uint64_t h = 1469598103934665603u;
  for (const char *p = wanted; *p; p++) h = (h ^ (unsigned char)*p) * 1099511628211u;
  size_t i = (size_t)(h ^ (h >> 32)) & (s->cap - 1);
  while (s->slots[i] && strcmp(s->slots[i], wanted) != 0) i = (i + 1) & (s->cap - 1);
  return &s->slots[i];
}

/* Results are written to files by name, so each is named apart from everything else. */
static void name_results(pass_context *c, const folding *f) {
  name_set set = {.cap = 64};
  while (set.cap < 4 * (size_t)ir_value_limit(c->m)) set.cap *= 2;
  set.slots = ARENA_ARRAY(&c->scratch, const char *, set.cap);
  for (ir_value v = ir_first(c->m, IR_GLOBALS); v.id; v = ir_next(c->m, v)) {
    const char *taken = ir_name_of(c->m, v);
    if (taken) *name_slot(&set, taken) = taken;
  }
  for (size_t i = 0; i < f->count; i++) {
    const char *base = f->names[i] ? f->names[i] : base_name(c, f->results[i]), *unique = base;
    for (unsigned k = 2; *name_slot(&set, unique); k++) unique = arena_printf(&c->scratch, "%s.%u", base, k);
    *name_slot(&set, unique) = unique;
    ir_set_name(c->m, f->results[i], unique);
  }
}

/* ---- what is trivial in the entries ---- */
static ir_value same_as(const ir_module *m, ir_value v) {
  ir_value x = ir_operand(m, v, 0);
  bool whole = false;
  if (ir_is(m, v, IR_SCALE))
    whole = analysis_is_splat(m, ir_operand(m, v, 1), 1);
  else if (ir_is(m, v, IR_SHIFT))
    whole = analysis_is_splat(m, ir_operand(m, v, 1), 0);
  else if (ir_is(m, v, IR_SLICE))
    whole = ir_type_equal(ir_type_of(m, v), ir_type_of(m, x));
  else if (ir_is(m, v, IR_NEG) && ir_is(m, x, IR_NEG))
    return ir_operand(m, x, 0);
  return whole ? x : IR_NONE;
}

static void simplify(pass_context *c, ir_region entry) {
  for (ir_value v = ir_first(c->m, entry), next; v.id; v = next) {
    next = ir_next(c->m, v);
    ir_value same = same_as(c->m, v);
    if (!same.id) continue;
    ir_replace_uses(c->m, v, same);
    pass_erase_chain(c, v);
    c->changed = true;
  }
}

bool pass_fold_const(pass_context *c) {
  folding f = {0};
  find_targets(c, &f);
  if (!check_leaves(c, &f)) return false;
  bool fine = true;
  for (size_t i = 0; i < f.count; i++) {
    f.results[i] = evaluate(c, f.targets[i]);
    fine = fine && f.results[i].id;
  }
  if (!fine) return false;
  for (size_t i = 0; i < f.count; i++) replace_in_entries(c, f.targets[i], f.results[i]);
  erase_dead_operands(c, &f);
  name_results(c, &f);
  c->changed = c->changed || f.count > 0;
  for (size_t e = 0; e < ir_entry_count(c->m); e++) simplify(c, ir_entry_at(c->m, e));
  return true;
}
