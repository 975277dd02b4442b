/* change.c - the lists of ops and of uses, and everything that changes them. */
#include "compiler/ir/ir_priv.h"

#include <stdlib.h>
#include <string.h>

static void use_link(ir_module *m, ir_use *use, ir_value value, uint32_t user) {
  *use = (ir_use){.value = value, .user = user};
  if (!value.id) return;
  ir_node *def = ir_node_at(m, value);
  use->next = def->uses;
  if (def->uses) def->uses->prev = use;
  def->uses = use;
  def->use_count++;
}

static void use_unlink(ir_module *m, ir_use *use) {
  if (!use->value.id) return;
  ir_node *def = ir_node_at(m, use->value);
  if (use->prev)
    use->prev->next = use->next;
  else
    def->uses = use->next;
  if (use->next) use->next->prev = use->prev;
  def->use_count--;
  use->value = IR_NONE;
}

static void renumber(ir_module *m, ir_region_data *r) {
  uint64_t order = 0;
  for (uint32_t id = r->first; id; id = m->nodes[id]->next) m->nodes[id]->order = order += IR_ORDER_STEP;
}

/* Puts the node before `before`, or at the end. */
static void op_link(ir_module *m, uint32_t region, uint32_t id, uint32_t before) {
  ir_region_data *r = &m->regions[region];
  ir_node *node = m->nodes[id];
  uint32_t after = before ? m->nodes[before]->prev : r->last;
  node->region = region;
  node->prev = after;
  node->next = before;
  if (after)
    m->nodes[after]->next = id;
  else
    r->first = id;
  if (before)
    m->nodes[before]->prev = id;
  else
    r->last = id;
  uint64_t low = after ? m->nodes[after]->order : 0;
  uint64_t high = before ? m->nodes[before]->order : low + 2 * IR_ORDER_STEP;
  uint64_t half = (high - low) / 2;
  node->order = low + (before && half > IR_ORDER_INCH ? IR_ORDER_INCH : half);
  if (node->order == low) renumber(m, r);
}

static void op_unlink(ir_module *m, uint32_t id) {
  ir_node *node = m->nodes[id];
  ir_region_data *r = &m->regions[node->region];
  if (node->prev)
    m->nodes[node->prev]->next = node->next;
  else
    r->first = node->next;
  if (node->next)
    m->nodes[node->next]->prev = node->prev;
  else
    r->last = node->prev;
}

ir_value ir_node_add(ir_module *m, ir_region region, ir_value before, ir_opcode op, ir_type type,
                     const ir_value *operands, size_t n, const ir_attr *attrs, size_t attr_count) {
  if (m->node_count == m->node_cap) {
    ir_node **larger = ARENA_ARRAY(&m->mem, ir_node *, (size_t)m->node_cap * 2);
    memcpy(larger, m->nodes, m->node_count * sizeof(ir_node *));
    m->nodes = larger;
    m->node_cap *= 2;
  }
  uint32_t id = m->node_count++;
  ir_node *node = m->nodes[id] = ARENA_NEW(&m->mem, ir_node);
  node->op = op;
  node->type = type;
  while (n && !operands[n - 1].id) n--;
  node->operand_count = node->operand_cap = (uint32_t)n;
  if (n) node->operands = ARENA_ARRAY(&m->mem, ir_use, n);
  for (size_t i = 0; i < n; i++) use_link(m, &node->operands[i], operands[i], id);
  op_link(m, region.id, id, before.id);
  for (size_t i = 0; i < attr_count; i++) ir_set_attr(m, (ir_value){id}, attrs[i]);
  return (ir_value){id};
}

void ir_set_operand(ir_module *m, ir_value v, size_t i, ir_value to) {
  ir_node *node = ir_node_at(m, v);
  if (i > node->operand_count || (i == node->operand_count && !to.id))
    ir_bug("%s: operand %zu of %u cannot be set", ir_op_name(node->op), i, node->operand_count);
  if (i == node->operand_cap) {
    ir_use *larger = ARENA_ARRAY(&m->mem, ir_use, node->operand_cap * 2 + 1);
    for (uint32_t k = 0; k < node->operand_count; k++) {
      ir_value old = node->operands[k].value;
      use_unlink(m, &node->operands[k]);
      use_link(m, &larger[k], old, v.id);
    }
    node->operands = larger;
    node->operand_cap = node->operand_cap * 2 + 1;
  }
  if (i == node->operand_count)
    node->operand_count++;
  else
    use_unlink(m, &node->operands[i]);
  use_link(m, &node->operands[i], to, v.id);
  while (node->operand_count && !node->operands[node->operand_count - 1].value.id) node->operand_count--;
}

void ir_replace_uses_except(ir_module *m, ir_value from, ir_value to, ir_value except_user) {
  if (ir_same(from, to)) return;
  for (ir_use *use = ir_node_at(m, from)->uses, *next; use; use = next) {
    next = use->next;
    uint32_t user = use->user;
    if (user == except_user.id) continue;
    use_unlink(m, use);
    use_link(m, use, to, user);
  }
}

void ir_replace_uses(ir_module *m, ir_value from, ir_value to) { ir_replace_uses_except(m, from, to, IR_NONE); }

void ir_erase(ir_module *m, ir_value v) {
  ir_node *node = ir_node_at(m, v);
  if (node->op == IR_OP_NONE) return;
  if (node->use_count) ir_bug("erasing a %s that has %u uses", ir_op_name(node->op), node->use_count);
  for (uint32_t i = 0; i < node->operand_count; i++) use_unlink(m, &node->operands[i]);
  op_unlink(m, v.id);
  node->op = IR_OP_NONE;
  node->operand_count = node->attr_count = 0;
  node->payload = NULL;
}

void ir_move_before(ir_module *m, ir_value v, ir_value before) {
  ir_node *node = ir_node_at(m, v);
  if (ir_same(v, before)) return;
  if (node->region != ir_node_at(m, before)->region) ir_bug("moving a %s to another region", ir_op_name(node->op));
  op_unlink(m, v.id);
  op_link(m, node->region, v.id, before.id);
}

size_t ir_use_count(const ir_module *m, ir_value v) { return ir_node_at(m, v)->use_count; }

typedef struct user_key {
  uint32_t region, id;
  uint64_t order;
} user_key;

static int compare_users(const void *pa, const void *pb) {
  const user_key *a = pa, *b = pb;
  if (a->region != b->region) return a->region < b->region ? -1 : 1;
  return a->order < b->order ? -1 : a->order > b->order;
}

size_t ir_users(const ir_module *m, ir_value v, arena *scratch, ir_value **out) {
  const ir_node *node = ir_node_at(m, v);
  size_t n = 0, count = 0;
  user_key *keys = ARENA_ARRAY(scratch, user_key, node->use_count + 1);
  *out = ARENA_ARRAY(scratch, ir_value, node->use_count + 1);
  for (const ir_use *use = node->uses; use; use = use->next)
    keys[n++] = (user_key){m->nodes[use->user]->region, use->user, m->nodes[use->user]->order};
  qsort(keys, n, sizeof *keys, compare_users);
  for (size_t i = 0; i < n; i++)
    if (i == 0 || keys[i].id != keys[i - 1].id) (*out)[count++] = (ir_value){keys[i].id};
  return count;
}
