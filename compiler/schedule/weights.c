/* weights.c - the global values that stages read: tensors of the package, how their parts are packed, rotary tables. */
#include "compiler/schedule/plan_priv.h"

#include <string.h>

static bool name_taken(const plan *p, const char *name) {
  for (size_t i = 0; i < p->tensor_count; i++)
    if (strcmp(p->tensors[i].name, name) == 0) return true;
  return false;
}

uint32_t plan_tensor_for(planner *k, ir_value global) {
  plan *p = k->p;
  for (uint32_t i = 0; i < p->tensor_count; i++)
    if (ir_same(p->tensors[i].value, global)) return i;
  const char *name = ir_name_of(k->m, global);
  if (!name) name = ir_attr_string(k->m, global, IR_ATTR_TENSOR, NULL);
  if (!name) name = arena_printf(&p->mem, "const.%zu", p->tensor_count);
  const char *stem = name;
  for (size_t n = 1; name_taken(p, name); n++) name = arena_printf(&p->mem, "%s.%zu", stem, n);
  p->tensors[p->tensor_count] = (plan_tensor){.name = arena_strdup(&p->mem, name), .value = global};
  return (uint32_t)p->tensor_count++;
}

uint32_t plan_weight_for(planner *k, ir_value global, bool tiles, uint32_t row0, uint32_t rows) {
  plan *p = k->p;
  tiles &= k->target->tile > 1;
  plan_weight w = {.tensor = plan_tensor_for(k, global), .tiles = tiles, .row0 = row0, .rows = rows, .read_rows = rows};
  w.cols = execution_last(k->m, global);
  w.dtype = ir_type_of(k->m, global).dtype;
  for (uint32_t i = 0; i < p->weight_count; i++) {
    const plan_weight *o = &p->weights[i];
    if (o->tensor == w.tensor && o->tiles == w.tiles && o->row0 == w.row0 && o->rows == w.rows) return i;
  }
  if (p->weight_count % 64 == 0) {
    plan_weight *more = ARENA_ARRAY(&p->mem, plan_weight, p->weight_count + 64);
    if (p->weight_count) memcpy(more, p->weights, p->weight_count * sizeof *more);
    p->weights = more;
  }
  p->weights[p->weight_count] = w;
  return (uint32_t)p->weight_count++;
}

ir_dtype plan_dtype(const plan *p) {
  for (size_t i = 0; i < p->weight_count; i++)
    if (p->weights[i].dtype != IR_F32) return p->weights[i].dtype;
  return IR_F32;
}

static const ir_attr_key rotary_attrs[] = {IR_ATTR_THETA, IR_ATTR_SCALING_FACTOR, IR_ATTR_SCALING_HIGH,
                                           IR_ATTR_SCALING_LOW};

bool plan_same_rotation(const ir_module *m, ir_value a, ir_value b) {
  for (size_t i = 0; i < sizeof rotary_attrs / sizeof *rotary_attrs; i++) {
    double x = ir_attr_float(m, a, rotary_attrs[i], -1), y = ir_attr_float(m, b, rotary_attrs[i], -1);
    if (x < y || x > y) return false;
  }
  return ir_attr_int(m, a, IR_ATTR_SCALING_ORIGINAL, 0) == ir_attr_int(m, b, IR_ATTR_SCALING_ORIGINAL, 0) &&
         strcmp(ir_attr_string(m, a, IR_ATTR_SCALING, ""), ir_attr_string(m, b, IR_ATTR_SCALING, "")) == 0;
}

uint32_t plan_rotary_for(planner *k, ir_value rope) {
  plan *p = k->p;
  uint32_t pairs = (uint32_t)ir_attr_int(k->m, rope, IR_ATTR_DIMS, execution_last(k->m, rope)) / 2;
  for (uint32_t i = 0; i < p->rotary_count; i++)
    if (p->rotary[i].pairs == pairs && plan_same_rotation(k->m, p->rotary[i].op, rope)) return i;
  p->rotary[p->rotary_count] = (plan_rotary){.op = rope, .pairs = pairs};
  return (uint32_t)p->rotary_count++;
}

static uint32_t table_weight(planner *k, ir_value table) {
  plan *p = k->p;
  uint32_t rows = (uint32_t)ir_type_of(k->m, table).dim[0], tensor = plan_tensor_for(k, table);
  for (uint32_t i = 0; i < p->weight_count; i++)
    if (p->weights[i].tensor == tensor && p->weights[i].tiles == (k->target->tile > 1) && p->weights[i].row0 == 0 &&
        p->weights[i].rows == rows)
      return i;
  bool numbers = ir_type_of(k->m, table).dim[1] == 1; /* would be padded to 16 each */
  uint32_t i = plan_weight_for(k, table, numbers, 0, rows);
  p->weights[i].read_rows = 1;
  return i;
}

void plan_settle_tables(planner *k) {
  for (size_t s = 0; s < k->p->stage_count; s++) {
    plan_stage *stage = &k->p->stages[s];
    for (size_t i = 0; i < stage->step_count; i++)
      if (ir_is(k->m, stage->steps[i].op, IR_EMBED))
        stage->steps[i].operands[1].index = table_weight(k, ir_operand(k->m, stage->steps[i].op, 1));
  }
}

static void note_steps(bool *read, const plan_step *steps, size_t n) {
  for (size_t i = 0; i < n; i++)
    for (size_t j = 0; j < steps[i].operand_count; j++)
      if (steps[i].operands[j].place == PLAN_GLOBAL && steps[i].operands[j].index != PLAN_NONE)
        read[steps[i].operands[j].index] = true;
}

static void note_segment(bool *read, const plan_segment *g) {
  note_steps(read, g->steps, g->step_count);
  for (size_t i = 0; i < g->root_count; i++) {
    read[g->roots[i].weight] = true;
    if (g->roots[i].bias != PLAN_NONE) read[g->roots[i].bias] = true;
  }
}

void plan_settle_reads(planner *k) {
  plan *p = k->p;
  bool *read = ARENA_ARRAY(&k->scratch, bool, p->weight_count + 1);
  for (size_t s = 0; s < p->stage_count; s++) {
    const plan_stage *stage = &p->stages[s];
    if (stage->probes) continue;
    note_steps(read, stage->steps, stage->step_count);
    for (size_t i = 0; i < stage->segment_count; i++) note_segment(read, &stage->segments[i]);
  }
  for (size_t i = 0; i < p->weight_count; i++)
    if (!read[i]) p->weights[i].read_rows = 0;
}
