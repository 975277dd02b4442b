/* segments.c - linear stages: which columns are computed together. A sink is what a stage leaves behind: columns of a
   value that another stage reads, or a write to a cache; sinks that need the same products share a segment. */
#include "compiler/schedule/plan_priv.h"

#include <string.h>

#define MAX_OPS 512 /* of a group: bounds the recursion */
#define MAX_SINKS 256
#define MAX_STEPS 64

typedef struct sink {
  ir_value owner, append; /* append: the op, or none */
  uint32_t start, columns;
} sink;

typedef struct builder {
  planner *k;
  int64_t key;
  plan_stage *out;
  sink sinks[MAX_SINKS];
  size_t sink_count;
} builder;

static uint32_t lcm(uint32_t a, uint32_t b) {
  uint32_t x = a, y = b;
  while (y) {
    uint32_t t = x % y;
    x = y, y = t;
  }
  uint64_t n = (uint64_t)a / x * b;
  return n > UINT32_MAX ? UINT32_MAX : (uint32_t)n;
}

/* ---- columns of a value in a segment ---- */
static bool find_root(builder *b, plan_segment *s, ir_value linear, uint32_t row0, plan_operand *out) {
  uint32_t i = 0;
  while (i < s->root_count && !(ir_same(s->roots[i].linear, linear) && s->roots[i].row0 == row0)) i++;
  if (i == MAX_STEPS) return false;
  if (i == s->root_count) {
    s->roots[s->root_count++] =
        (plan_root){.linear = linear, .row0 = row0, .weight = PLAN_NONE, .bias = PLAN_NONE, .buffer = PLAN_NONE};
    s->roots[i].cols = execution_last(b->k->m, ir_operand(b->k->m, linear, 0));
  }
  *out = (plan_operand){.place = PLAN_DOT, .index = i};
  return true;
}

static bool columns_of(builder *b, plan_segment *s, ir_value owner, uint32_t shift, plan_operand *out);

static bool set_operand(builder *b, plan_segment *s, plan_step *step, size_t i) {
  planner *k = b->k;
  ir_value x = ir_operand(k->m, step->op, i);
  plan_operand *o = &step->operands[i];
  if (!plan_in_stage(k, x, b->key)) {
    *o = (plan_operand){.place = PLAN_OUTSIDE, .view = {.owner = x}}; /* resolved at the end */
    return true;
  }
  plan_view w = plan_view_of(k, x);
  if (!k->follows[w.owner.id]) {
    *o = (plan_operand){.place = PLAN_PROLOGUE, .view = w, .index = k->step[w.owner.id]};
    return true;
  }
  if (w.width != step->width || !columns_of(b, s, w.owner, step->shift + w.start, o)) return false;
  o->view = w;
  return true;
}

static bool add_step(builder *b, plan_segment *s, ir_value op, uint32_t shift, plan_operand *out) {
  planner *k = b->k;
  plan_step step;
  execution_class c = execution_class_of(k->m, op);
  plan_init_step(k, &step, op);
  step.shift = shift;
  if (c == EXEC_HEAD) {
    uint32_t last = execution_last(k->m, op);
    if (shift % last || s->columns % last) return false;
    s->unit = lcm(s->unit, last);
  }
  if (s->unit > k->target->unit_limit) return false;
  for (size_t i = 0; i < step.operand_count; i++)
    if (!set_operand(b, s, &step, i)) return false;
  if (s->step_count == MAX_STEPS) return false;
  *out = (plan_operand){.place = PLAN_STEP, .index = (uint32_t)s->step_count};
  s->steps[s->step_count++] = step;
  return true;
}

static bool columns_of(builder *b, plan_segment *s, ir_value owner, uint32_t shift, plan_operand *out) {
  const ir_module *m = b->k->m;
  if (execution_class_of(m, owner) == EXEC_LINEAR) return find_root(b, s, owner, shift, out);
  for (uint32_t i = 0; i < s->step_count; i++)
    if (ir_same(s->steps[i].op, owner) && s->steps[i].shift == shift) {
      *out = (plan_operand){.place = PLAN_STEP, .index = i};
      return true;
    }
  return add_step(b, s, owner, shift, out);
}

static bool add_sink(builder *b, plan_segment *s, const sink *k) {
  plan_operand o;
  if (k->append.id) return add_step(b, s, k->append, 0, &o);
  if (!columns_of(b, s, k->owner, k->start, &o)) return false;
  if (o.place == PLAN_DOT)
    s->roots[o.index].buffer = 0; /* marks; the buffer is made at the end */
  else
    s->steps[o.index].buffer = 0;
  return true;
}

/* ---- sinks into segments ---- */
static bool ranges_meet(uint32_t a, uint32_t n, uint32_t b, uint32_t m) { return a < b + m && b < a + n; }

/* 0: nothing in common; 1: the same columns of the same products; -1: others, which cannot be computed together. */
static int relation(const plan_segment *a, const plan_segment *b) {
  int r = 0;
  for (size_t i = 0; i < a->root_count; i++)
    for (size_t j = 0; j < b->root_count; j++) {
      const plan_root *x = &a->roots[i], *y = &b->roots[j];
      if (!ir_same(x->linear, y->linear) || !ranges_meet(x->row0, a->columns, y->row0, b->columns)) continue;
      if (a->columns != b->columns || x->row0 != y->row0) return -1;
      r = 1;
    }
  return r;
}

static plan_segment new_segment(builder *b, uint32_t columns) {
  plan_segment s = {.columns = columns, .unit = b->k->target->unit};
  s.roots = ARENA_ARRAY(&b->k->scratch, plan_root, MAX_STEPS);
  s.steps = ARENA_ARRAY(&b->k->scratch, plan_step, MAX_STEPS);
  return s;
}

static bool place_sink(builder *b, const sink *k) {
  plan_segment s = new_segment(b, k->columns), *with = NULL;
  if (!add_sink(b, &s, k) || !s.root_count) return false;
  for (size_t i = 0; i < b->out->segment_count; i++) {
    int r = relation(&s, &b->out->segments[i]);
    if (r < 0 || (r && with)) return false;
    if (r) with = &b->out->segments[i];
  }
  if (with) return add_sink(b, with, k);
  plan_segment *segments = b->out->segments;
  if (!segments) return false; /* never; the analyzer does not know */
  segments[b->out->segment_count++] = s;
  return true;
}

static bool note_sink(builder *b, sink s) {
  for (size_t i = 0; i < b->sink_count; i++) {
    const sink *o = &b->sinks[i];
    if (s.append.id || o->append.id || !ir_same(o->owner, s.owner)) continue;
    if (o->start == s.start && o->columns == s.columns) return true;
    if (ranges_meet(o->start, o->columns, s.start, s.columns)) return false;
  }
  if (b->sink_count == MAX_SINKS) return false;
  b->sinks[b->sink_count++] = s;
  return true;
}

static bool collect_sinks(builder *b, const ir_value *ops, size_t n) {
  planner *k = b->k;
  for (size_t i = 0; i < n; i++) {
    ir_value v = ops[i];
    if (!k->follows[v.id]) continue;
    if (execution_class_of(k->m, v) == EXEC_APPEND) {
      if (!note_sink(b, (sink){.append = v, .columns = execution_width(k->m, ir_operand(k->m, v, 1))})) return false;
      continue;
    }
    size_t before = b->sink_count;
    bool whole = false;
    for (const plan_use *u = k->uses[v.id]; u && !whole; u = u->next)
      if (plan_is_outside(k, u->user, v))
        whole = !note_sink(b, (sink){.owner = v, .start = u->view.start, .columns = u->view.width});
    if (!whole) continue;
    b->sink_count = before; /* ranges that overlap: all columns */
    if (!note_sink(b, (sink){.owner = v, .columns = plan_width_of(k, v)})) return false;
  }
  return true;
}

/* ---- the prologue: ops that need no product of the stage ---- */
static bool split_ops(builder *b, const ir_value *ops, size_t n) {
  planner *k = b->k;
  for (size_t i = 0; i < n; i++) {
    ir_value v = ops[i];
    execution_class c = execution_class_of(k->m, v);
    bool follows = false;
    for (size_t j = 0; j < ir_operand_count(k->m, v); j++) {
      ir_value x = ir_operand(k->m, v, j);
      follows |= plan_in_stage(k, x, b->key) && k->follows[plan_view_of(k, x).owner.id];
    }
    if (c == EXEC_LINEAR && follows) return false;
    k->follows[v.id] = follows || c == EXEC_LINEAR;
    if (c == EXEC_SLICE || (c == EXEC_ALIAS && !k->copied[v.id]) || c == EXEC_NONE) continue;
    if (c == EXEC_LINEAR) continue;
    if (k->follows[v.id] ? c != EXEC_COLUMN && c != EXEC_HEAD && c != EXEC_APPEND && c != EXEC_ALIAS
                         : c == EXEC_APPEND || plan_is_external(k, v))
      return false;
  }
  return true;
}

static void build_prologue(builder *b, const ir_value *ops, size_t n) {
  planner *k = b->k;
  b->out->steps = ARENA_ARRAY(&k->p->mem, plan_step, n);
  for (size_t i = 0; i < n; i++) {
    execution_class c = execution_class_of(k->m, ops[i]);
    if (!k->follows[ops[i].id] && c != EXEC_SLICE && c != EXEC_ALIAS && c != EXEC_NONE)
      plan_add_row_step(k, b->out, ops[i]);
  }
}

/* ---- what could not be resolved before it was sure that the stage can be built ---- */
static void keep(builder *b, plan_operand *o) {
  if (o->place != PLAN_PROLOGUE) return;
  o->index = b->k->step[o->view.owner.id];
  b->out->steps[o->index].kept = true;
}

static void resolve_root(builder *b, const plan_segment *s, plan_root *r) {
  planner *k = b->k;
  ir_value x = ir_operand(k->m, r->linear, 0), bias = ir_operand(k->m, r->linear, 2);
  r->weight = plan_weight_for(k, ir_operand(k->m, r->linear, 1), true, r->row0, s->columns);
  if (bias.id) r->bias = plan_weight_for(k, bias, false, 0, 1);
  if (plan_in_stage(k, x, b->key))
    r->x = (plan_operand){.place = PLAN_PROLOGUE, .view = plan_view_of(k, x)};
  else
    r->x = plan_outer_operand(k, x);
  keep(b, &r->x);
  if (r->buffer != PLAN_NONE) r->buffer = plan_buffer_for(k, r->linear);
}

static void resolve_step(builder *b, plan_step *s) {
  planner *k = b->k;
  for (size_t i = 0; i < s->operand_count; i++) {
    if (s->operands[i].place == PLAN_OUTSIDE) s->operands[i] = plan_outer_operand(k, s->operands[i].view.owner);
    keep(b, &s->operands[i]);
  }
  if (ir_is(k->m, s->op, IR_ROPE)) s->rotary = plan_rotary_for(k, s->op);
  if (s->buffer != PLAN_NONE) s->buffer = plan_buffer_for(k, s->op);
}

static void trim(planner *k, plan_segment *s) {
  s->roots = arena_copy(&k->p->mem, s->roots, s->root_count * sizeof *s->roots);
  s->steps = arena_copy(&k->p->mem, s->steps, s->step_count * sizeof *s->steps);
}

/* Columns that are computed at once: few enough that the stage has the blocks that the target wants, but no fewer than its widest unit has, which
   decides how long it takes. */
static void settle_blocks(const planner *k, plan_stage *out) {
  uint64_t columns = 0;
  uint32_t most = k->target->block, wanted = k->target->blocks;
  for (size_t i = 0; i < out->segment_count; i++) columns += out->segments[i].columns;
  if (wanted && columns / wanted < most) most = (uint32_t)(columns / wanted);
  for (size_t i = 0; wanted && i < out->segment_count; i++)
    if (out->segments[i].unit > most) most = out->segments[i].unit;
  for (size_t i = 0; i < out->segment_count; i++) {
    plan_segment *s = &out->segments[i];
    s->block = s->unit >= most ? s->unit : most / s->unit * s->unit;
  }
}

/* Does the prologue keep no more than the target has room for? */
static bool fits(const planner *k, const plan_stage *out) {
  uint64_t kept = 0;
  for (size_t i = 0; i < out->step_count; i++) kept += out->steps[i].width;
  return !k->target->kept || kept <= k->target->kept;
}

bool plan_build_linear(planner *k, const ir_value *ops, size_t n, plan_stage *out) {
  builder *b = ARENA_NEW(&k->scratch, builder);
  *b = (builder){.k = k, .key = k->key[ops[0].id], .out = out};
  out->kind = PLAN_LINEAR;
  if (n > MAX_OPS) return false;
  if (!split_ops(b, ops, n) || !collect_sinks(b, ops, n)) return false;
  out->segments = ARENA_ARRAY(&k->p->mem, plan_segment, b->sink_count + 1);
  for (size_t i = 0; i < b->sink_count; i++)
    if (!place_sink(b, &b->sinks[i])) return false;
  build_prologue(b, ops, n);
  if (!fits(k, out)) return false;
  settle_blocks(k, out);
  for (size_t i = 0; i < out->segment_count; i++) {
    plan_segment *s = &out->segments[i];
    trim(k, s);
    for (size_t j = 0; j < s->root_count; j++) resolve_root(b, s, &s->roots[j]);
    for (size_t j = 0; j < s->step_count; j++) resolve_step(b, &s->steps[j]);
  }
  return true;
}
