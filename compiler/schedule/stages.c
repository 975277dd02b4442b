/* stages.c - stages that work on whole rows, and attention. */
#include "compiler/schedule/plan_priv.h"

bool plan_in_stage(const planner *k, ir_value x, int64_t key) {
  return x.id && ir_region_of(k->m, x).id != IR_GLOBALS.id && execution_is_row(k->m, x) &&
         k->key[plan_view_of(k, x).owner.id] == key;
}

void plan_init_step(planner *k, plan_step *s, ir_value op) {
  bool ret = ir_is(k->m, op, IR_RETURN), append = ir_is(k->m, op, IR_CACHE_APPEND);
  *s = (plan_step){.op = op, .buffer = PLAN_NONE, .rotary = PLAN_NONE, .state = PLAN_NONE};
  s->width = append ? execution_width(k->m, ir_operand(k->m, op, 1)) : plan_width_of(k, op);
  s->operand_count = ret ? 1 : ir_operand_count(k->m, op);
  s->operands = ARENA_ARRAY(&k->p->mem, plan_operand, s->operand_count + 1);
  if (append) s->state = plan_state_of(k, op);
}

void plan_add_row_step(planner *k, plan_stage *out, ir_value op) {
  plan_step *s = &out->steps[out->step_count];
  plan_init_step(k, s, op);
  for (size_t i = 0; i < s->operand_count; i++) {
    ir_value x = ir_operand(k->m, op, i);
    if (!plan_in_stage(k, x, k->key[op.id])) {
      s->operands[i] = plan_outer_operand(k, x);
    } else {
      plan_view w = plan_view_of(k, x);
      s->operands[i] = (plan_operand){.place = PLAN_STEP, .view = w, .index = k->step[w.owner.id]};
    }
  }
  if (ir_is(k->m, op, IR_LINEAR)) {
    uint32_t rows = (uint32_t)ir_type_of(k->m, ir_operand(k->m, op, 1)).dim[0];
    s->operands[1].index = plan_weight_for(k, ir_operand(k->m, op, 1), rows > 1, 0, rows);
  }
  if (ir_is(k->m, op, IR_ROPE)) s->rotary = plan_rotary_for(k, op);
  k->step[op.id] = (uint32_t)out->step_count++;
}

static bool is_code(const planner *k, ir_value v) {
  execution_class c = execution_class_of(k->m, v);
  return c != EXEC_NONE && c != EXEC_SLICE && (c != EXEC_ALIAS || k->copied[v.id]);
}

static const char *name_of(const planner *k, const ir_value *ops, size_t n) {
  const char *name = NULL;
  for (size_t i = 0; i < n; i++) {
    execution_class c = execution_class_of(k->m, ops[i]);
    const char *own = ir_name_of(k->m, ops[i]);
    if (own && (c == EXEC_LINEAR || c == EXEC_ATTENTION)) return own;
    if (!name) name = own;
  }
  for (size_t i = 0; i < n && !name; i++)
    if (is_code(k, ops[i])) name = ir_op_name(ir_opcode_of(k->m, ops[i]));
  return name ? name : "stage";
}

static bool build_attention(planner *k, const ir_value *ops, size_t n, plan_stage *out) {
  size_t found = 0;
  for (size_t i = 0; i < n; i++) {
    if (!is_code(k, ops[i])) continue;
    if (execution_class_of(k->m, ops[i]) != EXEC_ATTENTION || found++) return false;
    if (plan_in_stage(k, ir_operand(k->m, ops[i], 0), k->key[ops[i].id])) return false;
  }
  out->kind = PLAN_ATTENTION;
  out->steps = ARENA_ARRAY(&k->p->mem, plan_step, 1);
  for (size_t i = 0; i < n; i++)
    if (is_code(k, ops[i])) plan_add_row_step(k, out, ops[i]);
  return true;
}

static bool build_rows(planner *k, const ir_value *ops, size_t n, plan_stage *out) {
  out->kind = PLAN_ROWS;
  out->steps = ARENA_ARRAY(&k->p->mem, plan_step, n);
  for (size_t i = 0; i < n; i++)
    if (is_code(k, ops[i])) plan_add_row_step(k, out, ops[i]);
  return true;
}

bool plan_build_stage(planner *k, const ir_value *ops, size_t n, plan_stage *out) {
  bool linear = false, attention = false;
  *out = (plan_stage){.name = name_of(k, ops, n)};
  size_t codes = 0, outs = 0, probes = 0;
  for (size_t i = 0; i < n; i++) {
    execution_class c = execution_class_of(k->m, ops[i]);
    linear |= c == EXEC_LINEAR, attention |= c == EXEC_ATTENTION;
    if (is_code(k, ops[i])) codes++, outs += k->out[ops[i].id], probes += k->probe_only[ops[i].id];
  }
  if (n > PLAN_MAX_GROUP || (outs && outs < codes)) return false;
  out->out_rows = codes && outs == codes;
  out->probes = codes && probes == codes;
  linear &= !out->probes; /* one output each, as a rule: products of whole rows will do */
  bool built = attention ? build_attention(k, ops, n, out)
               : linear  ? plan_build_linear(k, ops, n, out)
                         : build_rows(k, ops, n, out);
  if (!built || linear) return built;
  for (size_t i = 0; i < out->step_count; i++)
    if (plan_is_external(k, out->steps[i].op)) out->steps[i].buffer = plan_buffer_for(k, out->steps[i].op);
  return true;
}
