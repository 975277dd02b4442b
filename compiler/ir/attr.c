/* attr.c - attributes of ops: few each, kept sorted by the text of their key. */
#include "compiler/ir/ir_priv.h"

#include <string.h>

const ir_attr *ir_attr_in(const ir_attr *attrs, size_t n, ir_attr_key key) {
  for (size_t i = 0; i < n; i++)
    if (attrs[i].key == key) return &attrs[i];
  return NULL;
}

static const ir_attr *find(const ir_module *m, ir_value v, ir_attr_key key) {
  const ir_node *node = ir_node_at(m, v);
  return ir_attr_in(node->attrs, node->attr_count, key);
}

bool ir_has_attr(const ir_module *m, ir_value v, ir_attr_key key) { return find(m, v, key) != NULL; }

int64_t ir_attr_int(const ir_module *m, ir_value v, ir_attr_key key, int64_t otherwise) {
  const ir_attr *a = find(m, v, key);
  return a ? a->u.i : otherwise;
}

double ir_attr_float(const ir_module *m, ir_value v, ir_attr_key key, double otherwise) {
  const ir_attr *a = find(m, v, key);
  return a ? a->u.f : otherwise;
}

const char *ir_attr_string(const ir_module *m, ir_value v, ir_attr_key key, const char *otherwise) {
  const ir_attr *a = find(m, v, key);
  return a ? a->u.s : otherwise;
}

const double *ir_attr_floats(const ir_module *m, ir_value v, ir_attr_key key, size_t *out_n) {
  const ir_attr *a = find(m, v, key);
  if (out_n) *out_n = a ? a->u.floats.n : 0;
  return a ? a->u.floats.data : NULL;
}

/* The module's own copy; values of constants are stored as their type holds them. A gate's stay as they are: whether it
 * is exactly 0 or 1 is asked of the stored value. */
static ir_attr owned(ir_module *m, const ir_node *node, ir_attr a) {
  switch (ir_attr_kind_of(a.key)) {
  case IR_KIND_STRING: a.u.s = arena_strdup(&m->mem, a.u.s); break;
  case IR_KIND_FLOATS: {
    double *copy = arena_copy(&m->mem, a.u.floats.data, a.u.floats.n * sizeof(double));
    for (size_t i = 0; i < a.u.floats.n && node->op != IR_GATE; i++) copy[i] = ir_round_to(node->type.dtype, copy[i]);
    a.u.floats.data = copy;
    break;
  }
  case IR_KIND_INT:
  case IR_KIND_FLOAT: break;
  }
  return a;
}

void ir_set_attr(ir_module *m, ir_value v, ir_attr attr) {
  ir_node *node = ir_node_at(m, v);
  if (!ir_op_accepts(node->op, attr.key, NULL))
    ir_bug("op %s has no attribute '%s'", ir_op_name(node->op), ir_attr_name(attr.key));
  attr = owned(m, node, attr);
  uint32_t at = 0;
  while (at < node->attr_count && strcmp(ir_attr_name(node->attrs[at].key), ir_attr_name(attr.key)) < 0) at++;
  if (at < node->attr_count && node->attrs[at].key == attr.key) {
    node->attrs[at] = attr;
    return;
  }
  ir_attr *larger = ARENA_ARRAY(&m->mem, ir_attr, node->attr_count + 1);
  if (at) memcpy(larger, node->attrs, at * sizeof *larger);
  larger[at] = attr;
  if (at < node->attr_count) memcpy(larger + at + 1, node->attrs + at, (node->attr_count - at) * sizeof *larger);
  node->attrs = larger;
  node->attr_count++;
}

void ir_remove_attr(ir_module *m, ir_value v, ir_attr_key key) {
  ir_node *node = ir_node_at(m, v);
  for (uint32_t i = 0; i < node->attr_count; i++) {
    if (node->attrs[i].key != key) continue;
    memmove(node->attrs + i, node->attrs + i + 1, (node->attr_count - i - 1) * sizeof *node->attrs);
    node->attr_count--;
    return;
  }
}

size_t ir_attr_count(const ir_module *m, ir_value v) { return ir_node_at(m, v)->attr_count; }
ir_attr ir_attr_at(const ir_module *m, ir_value v, size_t i) { return ir_node_at(m, v)->attrs[i]; }
