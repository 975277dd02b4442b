/* clone.c - a module once more; payloads are shared. */
#include "compiler/ir/ir_priv.h"

/* Ids change: erased ops are left behind. */
static ir_value clone_op(ir_module *to, const ir_module *from, ir_value v, ir_region region, const ir_value *map,
                         arena *scratch) {
  const ir_node *node = ir_node_at(from, v);
  ir_value *operands = ARENA_ARRAY(scratch, ir_value, node->operand_count + 1u);
  for (uint32_t i = 0; i < node->operand_count; i++) operands[i] = map[node->operands[i].value.id];
  ir_value copy = ir_node_add(to, region, IR_NONE, node->op, node->type, operands, node->operand_count, node->attrs,
                              node->attr_count);
  ir_set_loc(to, copy, node->loc);
  ir_node *made = ir_node_at(to, copy);
  made->loc_hidden = node->loc_hidden;
  made->payload = node->payload;
  if (node->name) made->name = arena_strdup(&to->mem, node->name);
  return copy;
}

ir_module *ir_clone(const ir_module *m) {
  ir_module *to = ir_module_new(m->name);
  arena scratch = {0};
  ir_value *map = ARENA_ARRAY(&scratch, ir_value, m->node_count);
  for (size_t i = 0; i < m->param_count; i++) ir_module_set_param(to, m->params[i].name, m->params[i].value);
  for (uint32_t r = IR_GLOBALS.id; r < m->region_count; r++) {
    ir_region region = r == IR_GLOBALS.id ? IR_GLOBALS : ir_entry_add(to, m->regions[r].name);
    for (ir_value v = ir_first(m, (ir_region){r}); v.id; v = ir_next(m, v))
      map[v.id] = clone_op(to, m, v, region, map, &scratch);
  }
  arena_free(&scratch);
  return to;
}
