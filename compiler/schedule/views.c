/* views.c - what an operand is: columns of the value that some op computes, in a buffer, in this stage, or global. */
#include "compiler/schedule/plan_priv.h"

#include <string.h>

static const plan_target targets[] = {
#define TARGET(name, tile, unit, block, blocks, kept, limit, halves)                                                   \
  {name, tile, unit, block, blocks, kept, limit, halves},
#include "compiler/schedule/targets.def"
#undef TARGET
};

const plan_target *plan_target_find(const char *name) {
  for (size_t i = 0; i < sizeof targets / sizeof *targets; i++)
    if (strcmp(targets[i].name, name) == 0) return &targets[i];
  return NULL;
}

static bool is_global(const planner *k, ir_value v) { return ir_region_of(k->m, v).id == IR_GLOBALS.id; }

uint32_t plan_width_of(const planner *k, ir_value owner) {
  return ir_is(k->m, owner, IR_RETURN) ? execution_width(k->m, ir_operand(k->m, owner, 0))
                                       : execution_width(k->m, owner);
}

plan_view plan_view_of(const planner *k, ir_value v) {
  plan_view w = {.owner = v, .start = 0, .width = plan_width_of(k, v)};
  for (;;) {
    execution_class c = execution_class_of(k->m, w.owner);
    if ((c != EXEC_ALIAS && c != EXEC_SLICE) || k->copied[w.owner.id]) return w;
    if (c == EXEC_SLICE) w.start += (uint32_t)ir_attr_int(k->m, w.owner, IR_ATTR_START, 0);
    w.owner = ir_operand(k->m, w.owner, 0);
  }
}

static void add_use(planner *k, ir_value user, ir_value x) {
  plan_use *u = ARENA_NEW(&k->scratch, plan_use);
  u->user = user, u->view = plan_view_of(k, x);
  u->next = k->uses[u->view.owner.id];
  k->uses[u->view.owner.id] = u;
}

void plan_collect_uses(planner *k, ir_region entry) {
  for (ir_value v = ir_first(k->m, entry); v.id; v = ir_next(k->m, v)) {
    execution_class c = execution_class_of(k->m, v);
    bool probe =
        c == EXEC_ALIAS && ir_has_attr(k->m, v, IR_ATTR_NAME) && ir_op_has(ir_opcode_of(k->m, v), OPF_IDENTITY);
    if (probe) {
      plan_view w = plan_view_of(k, ir_operand(k->m, v, 0));
      k->copied[v.id] = w.start || w.width != plan_width_of(k, w.owner);
      add_use(k, v, v);
    }
    if ((c == EXEC_ALIAS && !k->copied[v.id]) || c == EXEC_SLICE) continue;
    for (size_t i = 0; i < ir_operand_count(k->m, v); i++) {
      ir_value x = ir_operand(k->m, v, i);
      if (x.id && !is_global(k, x) && execution_is_row(k->m, x) && !(ir_is(k->m, v, IR_RETURN) && i)) add_use(k, v, x);
    }
  }
}

/* Probes stand outside of every stage: the runtime reads them. */
bool plan_is_outside(const planner *k, ir_value user, ir_value owner) {
  bool read_in_place = execution_class_of(k->m, user) == EXEC_ALIAS && !k->copied[user.id];
  return read_in_place || ir_same(user, owner) || k->key[user.id] != k->key[owner.id];
}

bool plan_is_external(const planner *k, ir_value owner) {
  for (const plan_use *u = k->uses[owner.id]; u; u = u->next)
    if (plan_is_outside(k, u->user, owner)) return true;
  return false;
}

uint32_t plan_buffer_for(planner *k, ir_value owner) {
  if (k->buffer[owner.id] != PLAN_NONE) return k->buffer[owner.id];
  plan *p = k->p;
  uint32_t i = (uint32_t)p->buffer_count++;
  p->buffers[i] = (plan_buffer){.value = owner, .width = plan_width_of(k, owner), .first = PLAN_NONE};
  return k->buffer[owner.id] = i;
}

uint32_t plan_state_of(const planner *k, ir_value state) {
  while (ir_op_has(ir_opcode_of(k->m, state), OPF_STATE)) state = ir_operand(k->m, state, 0);
  for (uint32_t i = 0; i < k->p->state_count; i++)
    if (ir_same(k->p->states[i].arg, state)) return i;
  return PLAN_NONE;
}

plan_operand plan_outer_operand(planner *k, ir_value x) {
  if (!x.id) return (plan_operand){.place = PLAN_GLOBAL, .index = PLAN_NONE};
  plan_operand o = {.view = {.owner = x}};
  ir_type t = ir_type_of(k->m, x);
  if (is_global(k, x)) {
    bool table = t.rank == 2; /* its weight is chosen by who reads it */
    o.place = PLAN_GLOBAL, o.index = ir_is(k->m, x, IR_GATE) || table ? PLAN_NONE : plan_weight_for(k, x, false, 0, 1);
  } else if (t.state) {
    o.place = PLAN_INPUT, o.index = 2 + plan_state_of(k, x);
  } else if (t.dtype == IR_I32) {
    o.place = PLAN_INPUT, o.index = ir_is(k->m, x, IR_POSITIONS);
  } else {
    o.place = PLAN_OUTSIDE, o.view = plan_view_of(k, x), o.index = plan_buffer_for(k, o.view.owner);
  }
  return o;
}
