/* train_memory.c - where each value of a program lies, how long it lives, and its place. */
#include "compiler/schedule/train_priv.h"

#include <string.h>

static uint64_t round_up(uint64_t n) { return (n + 15) / 16 * 16; }

typedef struct reach {
  uint32_t first, last;    /* stages of its readers */
  bool same_group, inside; /* all readers in the group that makes it; in the loop over chunks that makes it */
} reach;

static bool is_view(const train_planner *k, ir_value v) {
  return k->class[v.id] == TRAIN_OP_NONE && !ir_same(train_view_of(k->m, v).owner, v);
}

static void see_reader(const train_planner *k, const train_program *g, ir_value v, ir_value user, reach *r) {
  uint32_t s = k->stage[user.id], own = k->stage[v.id];
  if (s == TRAIN_NOT) { /* an effect: a row of results stays to the end */
    if (ir_is(k->m, user, IR_RESULT)) r->last = (uint32_t)g->stage_count, r->same_group = r->inside = false;
    return;
  }
  if (s > r->last) r->last = s;
  if (s < r->first) r->first = s;
  if (s != own || k->group[user.id] != k->group[v.id]) r->same_group = false;
  if (!g->stages[own].chunked || train_loop_last(g, s) != train_loop_last(g, own)) r->inside = false;
}

/* Readers, also through views. */
static void follow(train_planner *k, const train_program *g, ir_value v, ir_value x, reach *r) {
  ir_value *users;
  size_t n = ir_users(k->m, x, &k->scratch, &users);
  for (size_t i = 0; i < n; i++) {
    bool view = is_view(k, users[i]);
    if (view)
      follow(k, g, v, users[i], r);
    else
      see_reader(k, g, v, users[i], r);
  }
}

static void place_row(train_planner *k, const train_program *g, ir_value v) {
  uint32_t own = k->stage[v.id];
  train_slot *slot = &k->p->slots[v.id];
  const train_stage *st = &g->stages[own];
  reach r = {own, own, true, true};
  follow(k, g, v, v, &r);
  slot->first = own, slot->last = r.last;
  if (r.last == own && st->kind == TRAIN_ROWS) {
    slot->home = r.same_group && k->class[v.id] != TRAIN_OP_PRODUCT ? TRAIN_ROW : TRAIN_BLOCK;
  } else if (r.inside) {
    slot->home = TRAIN_CHUNK;
  } else {
    slot->home = TRAIN_ARENA;
    if (r.last < g->stage_count && slot->last < train_loop_last(g, r.last)) slot->last = train_loop_last(g, r.last);
    slot->first = train_loop_first(g, own);
  }
}

static bool only_results(train_planner *k, ir_value v) {
  ir_value *users;
  size_t n = ir_users(k->m, v, &k->scratch, &users);
  for (size_t i = 0; i < n; i++)
    if (!ir_is(k->m, users[i], IR_RESULT)) return false;
  return true;
}

static void place_value(train_planner *k, train_program *g, ir_value v) {
  train_slot *slot = &k->p->slots[v.id];
  train_class c = k->class[v.id];
  if (c == TRAIN_OP_SUM) slot->partial = g->partial_floats, g->partial_floats += round_up(slot->width);
  if (execution_is_row(k->m, v)) {
    place_row(k, g, v);
    return;
  }
  if (slot->home == TRAIN_GRADIENT) return;
  if (ir_is(k->m, v, IR_TOKEN_MEAN) && only_results(k, v)) {
    slot->home = TRAIN_MEAN;
  } else if (!ir_op_has(ir_opcode_of(k->m, v), OPF_EFFECT)) {
    slot->home = TRAIN_FIXED;
    slot->offset = g->fixed_floats, g->fixed_floats += round_up(slot->width);
  }
}

/* ---- first fit, in order of birth ---- */
typedef struct span_of {
  uint64_t offset;
  uint32_t width, first, last;
} span_of;

static bool overlaps(const span_of *a, const span_of *b) {
  return a->first <= b->last && b->first <= a->last && a->offset < b->offset + b->width &&
         b->offset < a->offset + a->width;
}

static uint64_t fit(span_of *placed, size_t n, span_of s) {
  s.offset = 0;
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t i = 0; i < n; i++)
      if (overlaps(&s, &placed[i])) s.offset = round_up(placed[i].offset + placed[i].width), moved = true;
  }
  placed[n] = s;
  return s.offset;
}

static void lay_out_home(train_planner *k, const train_program *g, train_home home, uint64_t *total) {
  span_of *placed = ARENA_ARRAY(&k->scratch, span_of, ir_value_limit(k->m));
  size_t n = 0;
  for (uint32_t s = 0; s < g->stage_count; s++)
    for (size_t i = 0; i < g->stages[s].op_count && g->stages[s].kind != TRAIN_SUMS; i++) {
      train_slot *slot = &k->p->slots[g->stages[s].ops[i].id];
      if (slot->home != home || !execution_is_row(k->m, g->stages[s].ops[i])) continue;
      slot->offset = fit(placed, n++, (span_of){.width = slot->width, .first = slot->first, .last = slot->last});
      uint64_t end = round_up(slot->offset + slot->width);
      if (end > *total) *total = end;
    }
}

/* Within a stage a value of the block lives from its group to the last that reads it. */
static uint32_t last_group(train_planner *k, ir_value v, ir_value x) {
  ir_value *users;
  size_t n = ir_users(k->m, x, &k->scratch, &users);
  uint32_t last = k->group[v.id];
  for (size_t i = 0; i < n; i++) {
    bool view = is_view(k, users[i]);
    uint32_t at = view ? last_group(k, v, users[i]) : k->group[users[i].id];
    if (at != TRAIN_NOT && at > last) last = at;
  }
  return last;
}

static void lay_out_stage(train_planner *k, train_stage *st) {
  span_of *placed = ARENA_ARRAY(&k->scratch, span_of, st->op_count);
  size_t n = 0;
  for (size_t i = 0; i < st->group_count; i++)
    for (size_t j = 0; j < st->groups[i].count; j++) {
      ir_value v = st->groups[i].ops[j];
      train_slot *slot = &k->p->slots[v.id];
      if (k->class[v.id] == TRAIN_OP_SUM) continue;
      if (slot->home == TRAIN_ROW) slot->offset = st->row_scratch, st->row_scratch += round_up(slot->width);
      if (slot->home != TRAIN_BLOCK) continue;
      span_of s = {.width = slot->width, .first = (uint32_t)i, .last = last_group(k, v, v)};
      slot->offset = fit(placed, n++, s);
      uint64_t end = round_up(slot->offset + slot->width);
      if (end > st->block_scratch) st->block_scratch = end;
    }
}

/* Gradients that several values go to: in the order of the stages, the first may replace what was there. */
static void order_gradients(train_planner *k, const train_program *g) {
  bool *seen = ARENA_ARRAY(&k->scratch, bool, k->p->param_count + 1);
  for (size_t s = 0; s < g->stage_count; s++)
    for (size_t i = 0; i < g->stages[s].op_count; i++) {
      ir_value v = g->stages[s].ops[i];
      train_slot *slot = &k->p->slots[v.id];
      if (k->class[v.id] == TRAIN_OP_SUM && g->stages[s].kind != TRAIN_SUMS) continue;
      if (ir_is(k->m, v, IR_GRADIENT))
        slot->home = TRAIN_GRADIENT, slot->param = train_param_of(k->p, ir_operand(k->m, v, 1));
      if (slot->home != TRAIN_GRADIENT) continue;
      slot->adds = seen[slot->param];
      seen[slot->param] = true;
    }
}

bool train_lay_out(train_planner *k, train_program *g) {
  for (uint32_t s = 0; s < g->stage_count; s++) {
    const train_stage *st = &g->stages[s];
    for (size_t i = 0; i < st->op_count && st->kind != TRAIN_SUMS; i++) place_value(k, g, st->ops[i]);
  }
  lay_out_home(k, g, TRAIN_ARENA, &g->row_floats);
  lay_out_home(k, g, TRAIN_CHUNK, &g->chunk_floats);
  for (size_t s = 0; s < g->stage_count; s++)
    if (g->stages[s].kind == TRAIN_ROWS) lay_out_stage(k, &g->stages[s]);
  order_gradients(k, g);
  if (g->row_floats > UINT32_MAX || g->chunk_floats > UINT32_MAX || g->partial_floats > UINT32_MAX)
    return train_refuse(k, ir_last(k->m, g->entry), "a row of all its values exceeds 2^32 floats");
  return true;
}
