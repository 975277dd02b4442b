/*
 * fuse_epilogue.c - attribute `group` on every op of entry `decode`: the stage that executes it. Groups ascend along
 * every edge. Below -O2 an op is a stage of its own. At -O2
 *   - linears share the first linear stage that all they read comes before;
 *   - what follows a linear column by column or head by head (bias, residual, activation, rope, cache write) joins its
 * stage;
 *   - row-wise ops that only linears read (a norm's statistic, an explicit scale) wait for the stage of these linears,
 * whose input load computes them;
 *   - other row-wise ops share a stage that works on whole rows;
 *   - what only probes need runs in stages of its own, right behind the stage that its operands come from: a call
 * without probes leaves these out. What the other ops compute in passing is computed again there.
 */
#include "compiler/analysis/execution.h"
#include "compiler/passes/pass.h"

#include <string.h>

#define NO_STAGE (-1)
#define WAITS (-2)   /* until the linear that reads it has a stage */
#define MAX_CHAIN 32 /* ops that wait for one linear */
#define MAX_UNIT 512 /* columns: a wider unit would leave workers idle */

typedef enum stage_kind { STAGE_ROWS, STAGE_LINEAR, STAGE_ATTENTION } stage_kind;

typedef struct fuser {
  const ir_module *m;
  arena *scratch;
  uint32_t limit;   /* values from here on were made later */
  bool *out;        /* needed for wanted rows only */
  bool *probe_only; /* leads to probes only */
  bool *behind;     /* of these: computed behind its stage, not in it */
  bool *alone;      /* may not wait: two stages would need it */
  bool *prologue;   /* waited, and has the stage of its readers */
  int32_t *stage;   /* [value] */
  int32_t *source;  /* [value]: last stage that its operands come from */
  int8_t *waits;    /* [value]: 1 may wait, -1 may not, 0 not known */
  stage_kind *kind; /* [stage] */
  bool *stage_out;
  int32_t count;
} fuser;

/* A cast costs nothing where it is read: it waits for the products that read it, like a scale. */
static execution_class class_of(const fuser *f, ir_value v) {
  return ir_is(f->m, v, IR_CAST) ? EXEC_COLUMN : execution_class_of(f->m, v);
}

static int32_t add_stage(fuser *f, stage_kind kind, bool out) {
  f->kind[f->count] = kind, f->stage_out[f->count] = out;
  return f->count++;
}

/* The first stage of a kind from `from` on. */
static int32_t find_stage(fuser *f, int32_t from, stage_kind kind, bool out) {
  for (int32_t s = from; s < f->count; s++)
    if (f->kind[s] == kind && f->stage_out[s] == out) return s;
  return add_stage(f, kind, out);
}

static bool is_local(const fuser *f, ir_value x) { return x.id && ir_region_of(f->m, x).id != IR_GLOBALS.id; }

static bool is_seen_through(const fuser *f, ir_value x) { return f->stage[x.id] == WAITS || f->prologue[x.id]; }

/* The last stage that v's operands come from, seen through ops that wait or waited. */
static int32_t last_source(const fuser *f, ir_value v) {
  int32_t last = NO_STAGE;
  for (size_t i = 0; i < ir_operand_count(f->m, v); i++) {
    ir_value x = ir_operand(f->m, v, i);
    if (!is_local(f, x)) continue;
    int32_t s = is_seen_through(f, x) ? f->source[x.id] : f->stage[x.id];
    if (s > last) last = s;
  }
  return last;
}

/* ---- ops that wait for their readers ---- */
static bool may_wait(fuser *f, ir_value v, int depth);

static bool reader_takes(fuser *f, ir_value reader, ir_value v, int depth) {
  if (f->out[reader.id] != f->out[v.id]) return false;
  if (class_of(f, reader) == EXEC_LINEAR) return true;
  if (ir_is(f->m, reader, IR_ROW_SCALE) && ir_same(ir_operand(f->m, reader, 1), v) && execution_width(f->m, v) == 1)
    return true;
  return may_wait(f, reader, depth + 1);
}

static bool may_wait(fuser *f, ir_value v, int depth) {
  execution_class k = class_of(f, v);
  if (f->waits[v.id]) return f->waits[v.id] > 0;
  bool yes = depth < MAX_CHAIN && !f->alone[v.id] && (k == EXEC_ROW || k == EXEC_COLUMN) && !ir_is(f->m, v, IR_EMBED) &&
             ir_type_of(f->m, v).rank == 3 && ir_use_count(f->m, v) > 0;
  ir_value *users;
  size_t n = yes ? ir_users(f->m, v, f->scratch, &users) : 0;
  for (size_t i = 0; i < n && yes; i++) yes = f->probe_only[users[i].id] || reader_takes(f, users[i], v, depth);
  f->waits[v.id] = yes ? 1 : -1;
  return yes;
}

/* Gives the waiting ops that v reads to stage s. false: another stage has one of them, which must then stand alone. */
static bool settle(fuser *f, ir_value v, int32_t s) {
  for (size_t i = 0; i < ir_operand_count(f->m, v); i++) {
    ir_value x = ir_operand(f->m, v, i);
    if (!is_local(f, x)) continue;
    if (f->prologue[x.id] && f->stage[x.id] != s) {
      f->alone[x.id] = true;
      return false;
    }
    if (f->stage[x.id] != WAITS) continue;
    f->prologue[x.id] = true, f->stage[x.id] = s;
    if (!settle(f, x, s)) return false;
  }
  return true;
}

/* The stage that has an op which v reads and which waited; NO_STAGE: none has. */
static int32_t settled_stage(const fuser *f, ir_value v, int depth) {
  for (size_t i = 0; depth < 8 && i < ir_operand_count(f->m, v); i++) {
    ir_value x = ir_operand(f->m, v, i);
    if (is_local(f, x) && f->prologue[x.id]) return f->stage[x.id];
    int32_t s = is_local(f, x) && f->stage[x.id] == WAITS ? settled_stage(f, x, depth + 1) : NO_STAGE;
    if (s >= 0) return s;
  }
  return NO_STAGE;
}

/* ---- where an op goes ---- */
/* Does an operand of v come from the products of stage s (not from its prologue)? */
static bool follows(const fuser *f, ir_value v, int32_t s) {
  for (size_t i = 0; i < ir_operand_count(f->m, v); i++) {
    ir_value x = ir_operand(f->m, v, i);
    if (is_local(f, x) && f->stage[x.id] == s && !f->prologue[x.id]) return true;
  }
  return false;
}

static bool joins(fuser *f, ir_value v, execution_class k, int32_t s) {
  if (s < 0 || f->stage_out[s] != f->out[v.id]) return false;
  if (f->kind[s] == STAGE_ROWS) return k != EXEC_LINEAR && k != EXEC_ATTENTION;
  if (f->kind[s] != STAGE_LINEAR || !follows(f, v, s)) return false;
  uint64_t a = execution_last(f->m, v), b = 16;
  if (k == EXEC_HEAD) {
    while (b) {
      uint64_t t = a % b;
      a = b, b = t;
    }
    return execution_last(f->m, v) / a * 16 <= MAX_UNIT;
  }
  return k == EXEC_COLUMN || k == EXEC_APPEND;
}

static int32_t place(fuser *f, ir_value v, execution_class k) {
  int32_t last = f->source[v.id], settled = settled_stage(f, v, 0);
  if (k == EXEC_LINEAR)
    return settled > last && f->kind[settled] == STAGE_LINEAR ? settled
                                                              : find_stage(f, last + 1, STAGE_LINEAR, f->out[v.id]);
  if (k == EXEC_ATTENTION) return add_stage(f, STAGE_ATTENTION, false);
  bool can_join = joins(f, v, k, last);
  if (can_join && f->kind[last] == STAGE_LINEAR) return last;
  if (may_wait(f, v, 0)) return WAITS; /* also where it could join a row stage: then every layer looks alike */
  if (can_join) return last;
  return find_stage(f, last + 1, STAGE_ROWS, f->out[v.id]);
}

static bool is_view(execution_class k) { return k == EXEC_ALIAS || k == EXEC_SLICE; }

/* What only probes need: a look at a value is where the value is, all else comes behind the last operand's stage. */
static void place_behind(fuser *f, ir_value v, execution_class k) {
  bool behind = !is_view(k);
  f->stage[v.id] = 0;
  for (size_t i = 0; i < ir_operand_count(f->m, v); i++) {
    ir_value x = ir_operand(f->m, v, i);
    if (!is_local(f, x)) continue;
    behind |= f->behind[x.id];
    if (f->stage[x.id] > f->stage[v.id]) f->stage[v.id] = f->stage[x.id];
  }
  f->behind[v.id] = behind;
}

/* false: an op may not wait after all; once more from the start. */
static bool assign(fuser *f, ir_region entry) {
  memset(f->prologue, 0, ir_value_limit(f->m) * sizeof *f->prologue);
  memset(f->waits, 0, ir_value_limit(f->m) * sizeof *f->waits);
  f->count = 0;
  for (ir_value v = ir_first(f->m, entry); v.id; v = ir_next(f->m, v)) {
    execution_class k = class_of(f, v);
    f->stage[v.id] = f->source[v.id] = NO_STAGE;
    if (k == EXEC_NONE) continue;
    if (f->probe_only[v.id]) {
      place_behind(f, v, k);
      continue;
    }
    f->source[v.id] = last_source(f, v);
    f->stage[v.id] = is_view(k) ? f->source[v.id] : place(f, v, k);
    if (f->stage[v.id] != WAITS && !is_view(k) && !settle(f, v, f->stage[v.id])) return false;
  }
  return true;
}

static void assign_singly(fuser *f, ir_region entry) {
  for (ir_value v = ir_first(f->m, entry); v.id; v = ir_next(f->m, v)) {
    execution_class k = class_of(f, v);
    f->stage[v.id] = k == EXEC_NONE ? NO_STAGE : is_view(k) ? last_source(f, v) : f->count++;
  }
}

/* Numbers stages and what stands behind them in order. */
static void renumber(fuser *f, ir_region entry) {
  int32_t *number = ARENA_ARRAY(f->scratch, int32_t, f->count + 2);
  for (ir_value v = ir_first(f->m, entry); v.id; v = ir_next(f->m, v))
    if (f->behind[v.id]) number[f->stage[v.id] + 1] = 1;
  for (int32_t s = 0, before = 0; s <= f->count; s++) {
    before += number[s];
    number[s] = s + before;
  }
  for (ir_value v = ir_first(f->m, entry); v.id; v = ir_next(f->m, v))
    if (f->stage[v.id] >= 0) f->stage[v.id] = number[f->stage[v.id]] + f->behind[v.id];
}

static fuser fuser_of(pass_context *c, ir_region entry) {
  uint32_t n = ir_value_limit(c->m);
  fuser f = {.m = c->m, .scratch = &c->scratch, .limit = n, .out = execution_out_rows(c->m, entry, &c->scratch)};
  f.probe_only = execution_probe_only(c->m, entry, &c->scratch);
  f.alone = ARENA_ARRAY(&c->scratch, bool, n), f.behind = ARENA_ARRAY(&c->scratch, bool, n);
  f.source = ARENA_ARRAY(&c->scratch, int32_t, n), f.stage = ARENA_ARRAY(&c->scratch, int32_t, n);
  f.prologue = ARENA_ARRAY(&c->scratch, bool, n), f.waits = ARENA_ARRAY(&c->scratch, int8_t, n);
  f.kind = ARENA_ARRAY(&c->scratch, stage_kind, n + 1), f.stage_out = ARENA_ARRAY(&c->scratch, bool, n + 1);
  return f;
}

/* The copy for probes of an x that waited, so is nowhere stored; with copies of what it reads and waited too. */
static ir_value copy_of(pass_context *c, const fuser *f, ir_value *copies, ir_value x) {
  if (!is_local(f, x) || !f->prologue[x.id]) return x;
  if (copies[x.id].id) return copies[x.id];
  size_t n = ir_operand_count(c->m, x), attr_count = ir_attr_count(c->m, x);
  ir_value *operands = ARENA_ARRAY(&c->scratch, ir_value, n + 1);
  ir_attr *attrs = ARENA_ARRAY(&c->scratch, ir_attr, attr_count + 1);
  for (size_t i = 0; i < n; i++) operands[i] = copy_of(c, f, copies, ir_operand(c->m, x, i));
  for (size_t i = 0; i < attr_count; i++) attrs[i] = ir_attr_at(c->m, x, i);
  ir_builder b = {c->m, ir_region_of(c->m, x), ir_next(c->m, x), ir_loc_of(c->m, x), ir_name_of(c->m, x)};
  c->changed = true;
  return copies[x.id] = ir_build(&b, ir_opcode_of(c->m, x), operands, n, attrs, attr_count);
}

/* false: there is nothing to copy. */
static bool copy_for_probes(pass_context *c, const fuser *f, ir_region entry) {
  uint32_t limit = ir_value_limit(c->m);
  ir_value *copies = ARENA_ARRAY(&c->scratch, ir_value, limit);
  bool any = false;
  for (ir_value v = ir_first(c->m, entry); v.id; v = ir_next(c->m, v)) {
    if (v.id >= limit || !f->probe_only[v.id]) continue;
    for (size_t i = 0; i < ir_operand_count(c->m, v); i++) {
      ir_value x = ir_operand(c->m, v, i), copy = copy_of(c, f, copies, x);
      if (ir_same(copy, x)) continue;
      ir_set_operand(c->m, v, i, copy);
      any = true;
    }
  }
  return any;
}

bool pass_fuse_epilogue(pass_context *c) {
  ir_region entry = ir_entry_find(c->m, "decode");
  if (!entry.id) return true;
  fuser f = fuser_of(c, entry);
  if (c->options->level >= 2) {
    while (!assign(&f, entry) || copy_for_probes(c, &f, entry))
      if (f.limit != ir_value_limit(c->m)) f = fuser_of(c, entry);
    renumber(&f, entry);
  } else {
    assign_singly(&f, entry);
  }
  for (ir_value v = ir_first(c->m, entry); v.id; v = ir_next(c->m, v)) {
    if (f.stage[v.id] < 0) continue;
    ir_set_attr(c->m, v, (ir_attr){.key = IR_ATTR_GROUP, .u.i = f.stage[v.id]});
    c->changed = true;
  }
  return true;
}
