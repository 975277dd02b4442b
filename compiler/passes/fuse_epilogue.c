/*
 * fuse_epilogue.c - attribute `group` on every op of entry `decode`: the stage that executes it. Groups ascend along
 * every edge. Below -O2 an op is a stage of its own. At -O2
 *   - linears share the first linear stage that all they read comes before;
 *   - what follows a linear column by column or head by head (bias, residual, activation, rope, cache write) joins its
 * stage;
 *   - row-wise ops that only linears read (a norm's statistic, an explicit scale) wait for the stage of these linears,
 * whose input load computes them;
 *   - other row-wise ops share a stage that works on whole rows.
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
  bool *out;        /* needed for wanted rows only */
  bool *alone;      /* may not wait: two stages would need it */
  bool *prologue;   /* waited, and has the stage of its readers */
  int32_t *stage;   /* [value] */
  int32_t *source;  /* [value]: last stage that its operands come from */
  int8_t *waits;    /* [value]: 1 may wait, -1 may not, 0 not known */
  stage_kind *kind; /* [stage] */
  bool *stage_out;
  int32_t count;
} fuser;

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
  if (execution_class_of(f->m, reader) == EXEC_LINEAR) return true;
  if (ir_is(f->m, reader, IR_ROW_SCALE) && ir_same(ir_operand(f->m, reader, 1), v) && execution_width(f->m, v) == 1)
    return true;
  return may_wait(f, reader, depth + 1);
}

static bool may_wait(fuser *f, ir_value v, int depth) {
  execution_class k = execution_class_of(f->m, v);
  if (f->waits[v.id]) return f->waits[v.id] > 0;
  bool yes = depth < MAX_CHAIN && !f->alone[v.id] && (k == EXEC_ROW || k == EXEC_COLUMN) && !ir_is(f->m, v, IR_EMBED) &&
             ir_type_of(f->m, v).rank == 3 && ir_use_count(f->m, v) > 0;
  ir_value *users;
  size_t n = yes ? ir_users(f->m, v, f->scratch, &users) : 0;
  for (size_t i = 0; i < n && yes; i++) yes = reader_takes(f, users[i], v, depth);
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

/* false: an op may not wait after all; once more from the start. */
static bool assign(fuser *f, ir_region entry) {
  memset(f->prologue, 0, ir_value_limit(f->m) * sizeof *f->prologue);
  memset(f->waits, 0, ir_value_limit(f->m) * sizeof *f->waits);
  f->count = 0;
  for (ir_value v = ir_first(f->m, entry); v.id; v = ir_next(f->m, v)) {
    execution_class k = execution_class_of(f->m, v);
    f->stage[v.id] = f->source[v.id] = NO_STAGE;
    if (k == EXEC_NONE) continue;
    f->source[v.id] = last_source(f, v);
    f->stage[v.id] = k == EXEC_ALIAS || k == EXEC_SLICE ? f->source[v.id] : place(f, v, k);
    if (f->stage[v.id] != WAITS && k != EXEC_ALIAS && k != EXEC_SLICE && !settle(f, v, f->stage[v.id])) return false;
  }
  return true;
}

static void assign_singly(fuser *f, ir_region entry) {
  for (ir_value v = ir_first(f->m, entry); v.id; v = ir_next(f->m, v)) {
    execution_class k = execution_class_of(f->m, v);
    f->stage[v.id] = k == EXEC_NONE ? NO_STAGE : k == EXEC_ALIAS || k == EXEC_SLICE ? last_source(f, v) : f->count++;
  }
}

bool pass_fuse_epilogue(pass_context *c) {
  ir_region entry = ir_entry_find(c->m, "decode");
  if (!entry.id) return true;
  uint32_t n = ir_value_limit(c->m);
  fuser f = {.m = c->m, .scratch = &c->scratch, .out = execution_out_rows(c->m, entry, &c->scratch)};
  f.alone = ARENA_ARRAY(&c->scratch, bool, n), f.source = ARENA_ARRAY(&c->scratch, int32_t, n),
  f.stage = ARENA_ARRAY(&c->scratch, int32_t, n);
  f.prologue = ARENA_ARRAY(&c->scratch, bool, n), f.waits = ARENA_ARRAY(&c->scratch, int8_t, n);
  f.kind = ARENA_ARRAY(&c->scratch, stage_kind, n), f.stage_out = ARENA_ARRAY(&c->scratch, bool, n);
  if (c->options->level >= 2) {
    while (!assign(&f, entry)) continue;
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
