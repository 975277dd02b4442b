/* train_stages.c - ops in stages: a stage takes all that is ready. Row by row work is joined as far as it goes; sums wait
   until nothing else is left that does not need them. */
#include "compiler/schedule/train_priv.h"

#include <string.h>

typedef struct stager {
  train_planner *k;
  train_program *g;
  ir_value *todo; /* ops of the entry that are work, in order */
  size_t count, left;
  bool *summed; /* [value]: a sum that is whole */
} stager;

static bool is_placed(const stager *s, ir_value v) { return s->k->stage[v.id] != TRAIN_NOT; }

static bool is_value_ready(const stager *s, ir_value x, uint32_t stage, bool joins) {
  train_class c = s->k->class[x.id];
  if (c == TRAIN_OP_SUM) return s->summed[x.id];
  if (!is_placed(s, x)) return false;
  if (s->k->stage[x.id] != stage) return true;
  return joins && (c == TRAIN_OP_ROW || c == TRAIN_OP_PRODUCT || c == TRAIN_OP_SMALL);
}

/* May v run in stage `stage`, the one that is being made? */
static bool is_ready(const stager *s, ir_value v, uint32_t stage, bool joins) {
  for (size_t i = 0; i < ir_operand_count(s->k->m, v); i++) {
    ir_value x = train_source_of(s->k, v, i);
    if (x.id && !is_value_ready(s, x, stage, joins)) return false;
  }
  return true;
}

typedef struct stage_kind {
  train_kind kind;
  unsigned classes; /* bits */
  bool joins;       /* ops may read what the stage itself makes */
} stage_kind;
#define BIT(c) (1u << (c))
static const stage_kind rows_kind = {TRAIN_ROWS, BIT(TRAIN_OP_ROW) | BIT(TRAIN_OP_PRODUCT) | BIT(TRAIN_OP_SUM), true};
static const stage_kind weights_kind = {TRAIN_WEIGHTS, BIT(TRAIN_OP_WEIGHT), false};
static const stage_kind attention_kind = {TRAIN_ATTENTION, BIT(TRAIN_OP_ATTENTION), false};
static const stage_kind attention_back_kind = {TRAIN_ATTENTION_BACK, BIT(TRAIN_OP_ATTENTION_BACK), false};
static const stage_kind embed_kind = {TRAIN_EMBED, BIT(TRAIN_OP_EMBED), false};
static const stage_kind small_kind = {TRAIN_SMALL, BIT(TRAIN_OP_SMALL), true};

static const char *name_of_stage(const stager *s, const train_stage *st) {
  const char *name = NULL;
  for (size_t i = 0; i < st->op_count && !name; i++)
    if (s->k->class[st->ops[i].id] != TRAIN_OP_ROW) name = ir_name_of(s->k->m, st->ops[i]);
  for (size_t i = 0; i < st->op_count && !name; i++) name = ir_name_of(s->k->m, st->ops[i]);
  return name ? name : ir_op_name(ir_opcode_of(s->k->m, st->ops[0]));
}

static void add_stage(stager *s, train_stage st) {
  st.name = name_of_stage(s, &st);
  s->g->stages[s->g->stage_count++] = st;
}

/* A stage of all ops of the kind that are ready; false: there are none. */
static bool take(stager *s, const stage_kind *kind, bool chunked) {
  train_planner *k = s->k;
  uint32_t index = (uint32_t)s->g->stage_count;
  train_stage st = {.kind = kind->kind, .chunked = chunked};
  st.ops = ARENA_ARRAY(&k->p->mem, ir_value, s->count + 1);
  for (size_t i = 0; i < s->count; i++) { /* the entry's order is one of dependence: one pass finds them all */
    ir_value v = s->todo[i];
    if (is_placed(s, v) || !(kind->classes & BIT(k->class[v.id])) || k->chunk[v.id] != chunked) continue;
    if (!is_ready(s, v, index, kind->joins)) continue;
    k->stage[v.id] = index;
    st.ops[st.op_count++] = v;
  }
  s->left -= st.op_count;
  if (st.op_count) add_stage(s, st);
  return st.op_count > 0;
}

static bool take_sums(stager *s) {
  train_stage st = {.kind = TRAIN_SUMS, .ops = ARENA_ARRAY(&s->k->p->mem, ir_value, s->count + 1)};
  for (size_t i = 0; i < s->count; i++) {
    ir_value v = s->todo[i];
    if (s->k->class[v.id] != TRAIN_OP_SUM || !is_placed(s, v) || s->summed[v.id]) continue;
    s->summed[v.id] = true;
    st.ops[st.op_count++] = v;
  }
  if (st.op_count) add_stage(s, st);
  return st.op_count > 0;
}

static bool take_chunks(stager *s) {
  bool any = false, more = true;
  while (more) {
    more = take(s, &rows_kind, true);
    more |= take(s, &weights_kind, true);
    any |= more;
  }
  return any;
}

static bool take_next(stager *s) {
  return take(s, &rows_kind, false) || take(s, &weights_kind, false) || take(s, &attention_kind, false) ||
         take(s, &attention_back_kind, false) || take_chunks(s) || take(s, &embed_kind, false);
}

/* ---- what only a later stage reads is computed there, if what it needs is kept until then anyway ---- */
typedef struct uses {
  uint32_t first, last; /* stages */
  bool result;
} uses;

static void note_uses(train_planner *k, ir_value x, uses *u) {
  ir_value *users;
  size_t n = ir_users(k->m, x, &k->scratch, &users);
  for (size_t i = 0; i < n; i++) {
    uint32_t s = k->stage[users[i].id];
    if (ir_is(k->m, users[i], IR_RESULT)) u->result = true;
    if (s == TRAIN_NOT)
      note_uses(k, users[i], u);
    else
      u->first = s < u->first ? s : u->first, u->last = s > u->last ? s : u->last;
  }
}

static bool is_kept(train_planner *k, ir_value x, uint32_t stage) {
  uses u = {TRAIN_NOT, 0, false};
  note_uses(k, x, &u);
  return u.last >= stage || u.result;
}

static void sink(stager *s, ir_value v) {
  train_planner *k = s->k;
  uses u = {TRAIN_NOT, 0, false};
  note_uses(k, v, &u);
  if (u.result || u.first == TRAIN_NOT || u.first <= k->stage[v.id]) return;
  if (s->g->stages[u.first].kind != TRAIN_ROWS || s->g->stages[u.first].chunked) return;
  for (size_t i = 0; i < ir_operand_count(k->m, v); i++) {
    ir_value x = train_source_of(k, v, i);
    bool small = x.id && train_is_row(k->m, x) && train_width(k->m, x) * 16 <= train_width(k->m, v);
    if (x.id && train_is_row(k->m, x) && !small && !is_kept(k, x, u.first)) return;
  }
  k->stage[v.id] = u.first;
}

static void sink_all(stager *s) {
  train_planner *k = s->k;
  for (size_t i = s->count; i-- > 0;)
    if (k->class[s->todo[i].id] == TRAIN_OP_ROW && !k->chunk[s->todo[i].id]) sink(s, s->todo[i]);
  for (size_t i = 0; i < s->g->stage_count; i++)
    if (s->g->stages[i].kind == TRAIN_ROWS) s->g->stages[i].op_count = 0;
  for (size_t i = 0; i < s->count; i++) {
    train_stage *st = &s->g->stages[k->stage[s->todo[i].id]];
    if (st->kind == TRAIN_ROWS) st->ops[st->op_count++] = s->todo[i];
  }
}

/* ---- groups of a ROWS stage: products of the block, and loops over its rows between them ---- */
static bool is_grouped(const train_planner *k, ir_value v) { return k->group[v.id] != TRAIN_NOT; }

static bool is_in_order(const train_planner *k, ir_value v, bool same_group, uint32_t group) {
  for (size_t i = 0; i < ir_operand_count(k->m, v); i++) {
    ir_value x = train_source_of(k, v, i);
    if (!x.id || k->stage[x.id] != k->stage[v.id] || k->class[x.id] == TRAIN_OP_SUM) continue;
    if (!is_grouped(k, x) || (k->group[x.id] == group && !same_group)) return false;
  }
  return true;
}

static size_t group_rows(train_planner *k, train_stage *st) {
  uint32_t index = (uint32_t)st->group_count;
  train_group g = {.ops = ARENA_ARRAY(&k->p->mem, ir_value, st->op_count)};
  for (size_t i = 0; i < st->op_count; i++) {
    ir_value v = st->ops[i];
    if (is_grouped(k, v) || k->class[v.id] == TRAIN_OP_PRODUCT || !is_in_order(k, v, true, index)) continue;
    k->group[v.id] = index;
    g.ops[g.count++] = v;
  }
  if (g.count) st->groups[st->group_count++] = g;
  return g.count;
}

static size_t group_products(train_planner *k, train_stage *st) {
  uint32_t first = (uint32_t)st->group_count;
  for (size_t i = 0; i < st->op_count; i++) {
    ir_value v = st->ops[i];
    if (is_grouped(k, v) || k->class[v.id] != TRAIN_OP_PRODUCT || !is_in_order(k, v, true, first)) continue;
    k->group[v.id] = (uint32_t)st->group_count;
    ir_value *ops = ARENA_ARRAY(&k->p->mem, ir_value, 1);
    ops[0] = v;
    st->groups[st->group_count++] = (train_group){.product = true, .ops = ops, .count = 1};
  }
  return st->group_count - first;
}

static void make_groups(train_planner *k, train_stage *st) {
  st->groups = ARENA_ARRAY(&k->p->mem, train_group, st->op_count);
  for (size_t left = st->op_count, n; left > 0; left -= n) {
    n = group_rows(k, st);
    n += group_products(k, st);
    if (!n) return; /* cannot be: the ops stand in an order of dependence */
  }
}

static void collect(stager *s, ir_region entry) {
  train_planner *k = s->k;
  s->todo = ARENA_ARRAY(&k->scratch, ir_value, ir_value_limit(k->m));
  for (ir_value v = ir_first(k->m, entry); v.id; v = ir_next(k->m, v))
    if (k->class[v.id] != TRAIN_OP_NONE) s->todo[s->count++] = v;
  s->left = s->count;
}

bool train_make_stages(train_planner *k, train_program *g) {
  stager s = {.k = k, .g = g, .summed = ARENA_ARRAY(&k->scratch, bool, ir_value_limit(k->m))};
  collect(&s, g->entry);
  g->stages = ARENA_ARRAY(&k->p->mem, train_stage, 2 * s.count + 1);
  take(&s, &small_kind, false);
  while (take_next(&s) || take_sums(&s) || take(&s, &small_kind, false)) {}
  for (size_t i = 0; i < s.count && s.left; i++)
    if (!is_placed(&s, s.todo[i])) return train_refuse(k, s.todo[i], "what it needs is never ready");
  sink_all(&s);
  for (size_t i = 0; i < g->stage_count; i++)
    if (g->stages[i].kind == TRAIN_ROWS) make_groups(k, &g->stages[i]);
  return true;
}

uint32_t train_loop_first(const train_program *g, uint32_t s) {
  while (g->stages[s].chunked && s > 0 && g->stages[s - 1].chunked) s--;
  return s;
}

uint32_t train_loop_last(const train_program *g, uint32_t s) {
  while (g->stages[s].chunked && s + 1 < g->stage_count && g->stages[s + 1].chunked) s++;
  return s;
}
