/* verify.c - every invariant of a module. Iterative: the depth of a graph does not matter. */
#include "compiler/ir/ir_priv.h"

#include <string.h>

enum { MOST_FAILURES = 20, MOST_ARGS = 4096 };

typedef struct verifier {
  const ir_module *m;
  diag_sink *sink;
  bool ok;
  unsigned failures;
  arena scratch;
  uint32_t *seen_uses; /* [value]: operand slots that name it */
} verifier;

static void fail(verifier *c, ir_value v, const char *format, ...) __attribute__((format(printf, 3, 4)));
static void fail(verifier *c, ir_value v, const char *format, ...) {
  c->ok = false;
  if (++c->failures > MOST_FAILURES) return;
  va_list args;
  va_start(args, format);
  char *message = arena_vprintf(&c->scratch, format, args);
  va_end(args);
  text op = {0};
  if (v.id) ir_print_op(c->m, v, &op);
  diag_loc loc = v.id ? ir_loc_of(c->m, v) : (diag_loc){0};
  loc.file = diag_intern(c->sink, loc.file); /* the module may go before the message does */
  if (v.id)
    diag_report(c->sink, DC_IR_VERIFY, loc, "%s; in: %s", message, op.data ? op.data : "?");
  else
    diag_report(c->sink, DC_IR_VERIFY, loc, "%s", message);
  text_free(&op);
}

/* The list of a region is whole, and its order numbers ascend. */
static bool check_list(verifier *c, uint32_t r) {
  const ir_module *m = c->m;
  uint32_t previous = 0, count = 0;
  uint64_t order = 0;
  for (uint32_t id = m->regions[r].first; id; previous = id, id = m->nodes[id]->next) {
    const ir_node *node = m->nodes[id];
    if (++count > m->node_count || node->prev != previous || node->region != r || node->op == IR_OP_NONE ||
        (previous && node->order <= order)) {
      fail(c, IR_NONE, "the list of ops of region '%s' is damaged", m->regions[r].name);
      return false;
    }
    order = node->order;
  }
  if (m->regions[r].last == previous) return true;
  fail(c, IR_NONE, "the list of ops of region '%s' has a wrong end", m->regions[r].name);
  return false;
}

static void check_region_rule(verifier *c, ir_value v) {
  ir_opcode op = ir_opcode_of(c->m, v);
  bool global = ir_region_of(c->m, v).id == IR_GLOBALS.id;
  if (global && !ir_op_has(op, OPF_GLOBAL) && !ir_op_has(op, OPF_PURE))
    fail(c, v, "%s cannot stand in the global region", ir_op_name(op));
  if (!global && ir_op_has(op, OPF_GLOBAL)) fail(c, v, "%s cannot stand in an entry", ir_op_name(op));
}

/* Operands exist, are defined above, and are visible. */
static bool check_operands(verifier *c, ir_value v) {
  const ir_module *m = c->m;
  const ir_node *node = ir_node_at(m, v);
  for (uint32_t i = 0; i < node->operand_count; i++) {
    ir_value x = node->operands[i].value;
    const ir_node *def = x.id < m->node_count ? ir_node_at(m, x) : NULL;
    if (!x.id || !def || def->op == IR_OP_NONE || def->op == IR_RETURN) {
      fail(c, v, "operand %u is no value", i);
      return false;
    }
    c->seen_uses[x.id]++;
    if (def->region != node->region && def->region != IR_GLOBALS.id) {
      fail(c, v, "operand %u belongs to entry '%s'", i, m->regions[def->region].name);
      return false;
    }
    if (def->region == node->region && def->order >= node->order) {
      fail(c, v, "operand %u is used before it is defined", i);
      return false;
    }
  }
  return true;
}

static void check_type(verifier *c, ir_value v) {
  const ir_node *node = ir_node_at(c->m, v);
  ir_value few[8], *operands = few;
  if (node->operand_count > 8) operands = ARENA_ARRAY(&c->scratch, ir_value, node->operand_count);
  for (uint32_t i = 0; i < node->operand_count; i++) operands[i] = node->operands[i].value;
  text message = {0};
  ir_type type = node->type;
  if (!ir_infer(c->m, node->op, operands, node->operand_count, node->attrs, node->attr_count, &type, &message)) {
    fail(c, v, "%s: %s", ir_op_name(node->op), message.data ? message.data : "");
  } else if (!ir_type_equal(type, node->type)) {
    ir_print_type(&message, type);
    fail(c, v, "the shape rule gives %s", message.data ? message.data : "another type");
  }
  if (node->region == IR_GLOBALS.id && node->op != IR_RETURN && ir_elements(node->type) < 0)
    fail(c, v, "a global value has no symbolic dimension");
  text_free(&message);
}

static void check_gates(verifier *c, ir_value v) {
  const ir_operand_spec *specs;
  size_t n = ir_op_operands(ir_opcode_of(c->m, v), &specs);
  for (size_t i = 0; i < n; i++) {
    ir_value g = ir_operand(c->m, v, i);
    if (specs[i].is_gate && g.id && !ir_is(c->m, g, IR_GATE) && !ir_is(c->m, g, IR_CONST))
      fail(c, v, "operand %zu '%s' is neither a gate nor a const", i, specs[i].name);
  }
}

/* A state is consumed once: by an op that yields its successor, or by return. Readers stand above. */
static void check_state(verifier *c, ir_value v) {
  const ir_node *node = ir_node_at(c->m, v);
  size_t consumed = 0;
  uint64_t end = UINT64_MAX;
  for (const ir_use *use = node->uses; use; use = use->next) {
    const ir_node *user = c->m->nodes[use->user];
    if (user->op != IR_RETURN && !ir_op_has(user->op, OPF_STATE)) continue;
    consumed++;
    end = user->order;
  }
  if (consumed != 1) {
    fail(c, v, "a state is consumed exactly once, by an op that changes it or by return; this one %zu times", consumed);
    return;
  }
  for (const ir_use *use = node->uses; use; use = use->next)
    if (c->m->nodes[use->user]->order > end)
      fail(c, (ir_value){use->user}, "reads a state that an op above has changed");
}

static void check_uses(verifier *c, ir_value v) {
  const ir_node *node = ir_node_at(c->m, v);
  uint32_t count = 0;
  for (const ir_use *use = node->uses; use && count <= node->use_count; use = use->next) count++;
  if (count != node->use_count || count != c->seen_uses[v.id]) fail(c, v, "the list of its users is damaged");
}

static void check_op(verifier *c, ir_value v) {
  const ir_node *node = ir_node_at(c->m, v);
  check_region_rule(c, v);
  if (node->name && !node->name[0]) fail(c, v, "the name of an op is empty");
  if (node->op == IR_CONST && ir_is_symbolic(c->m, v) && !ir_has_attr(c->m, v, IR_ATTR_TENSOR))
    fail(c, v, "const needs attribute 'value' or 'tensor'");
  if (!check_operands(c, v)) return;
  check_type(c, v);
  check_gates(c, v);
  if (node->type.state && node->op != IR_RETURN) check_state(c, v);
}

static void check_arg_name(verifier *c, ir_value v) {
  const char *name = ir_attr_string(c->m, v, IR_ATTR_NAME, NULL);
  for (ir_value other = ir_prev(c->m, v); name && other.id; other = ir_prev(c->m, other)) {
    const char *taken = ir_attr_string(c->m, other, IR_ATTR_NAME, NULL);
    if (taken && strcmp(name, taken) == 0) fail(c, v, "two args of one entry are named '%s'", name);
  }
}

static void check_entry(verifier *c, uint32_t r) {
  const ir_module *m = c->m;
  bool args = true;
  size_t arg_count = 0;
  const char *name = m->regions[r].name;
  for (uint32_t id = m->regions[r].first; id; id = m->nodes[id]->next) {
    const ir_node *node = m->nodes[id];
    ir_value v = {id};
    if (node->op == IR_ARG && !args) fail(c, v, "an arg stands below another op of entry '%s'", name);
    args &= node->op == IR_ARG;
    if (node->op == IR_RETURN && node->next) fail(c, v, "return is not the last op of entry '%s'", name);
    if (node->op != IR_ARG) continue;
    if (++arg_count <= MOST_ARGS)
      check_arg_name(c, v);
    else if (arg_count == MOST_ARGS + 1)
      fail(c, v, "more than %d args", MOST_ARGS);
  }
  if (!ir_is(m, (ir_value){m->regions[r].last}, IR_RETURN))
    fail(c, IR_NONE, "entry '%s' does not end with return", name);
  if (!name[0]) fail(c, IR_NONE, "the name of an entry is empty");
  if (ir_entry_find(m, name).id != r) fail(c, IR_NONE, "two entries are named '%s'", name);
}

bool ir_verify(const ir_module *m, diag_sink *sink) {
  verifier c = {.m = m, .sink = sink, .ok = true};
  c.seen_uses = ARENA_ARRAY(&c.scratch, uint32_t, m->node_count);
  if (!m->name[0]) fail(&c, IR_NONE, "the module's name is empty");
  for (uint32_t r = IR_GLOBALS.id; r < m->region_count; r++) {
    if (!check_list(&c, r)) continue;
    for (uint32_t id = m->regions[r].first; id && c.failures <= MOST_FAILURES; id = m->nodes[id]->next)
      check_op(&c, (ir_value){id});
    if (r != IR_GLOBALS.id) check_entry(&c, r);
  }
  for (uint32_t id = 1; c.ok && id < m->node_count; id++)
    if (m->nodes[id]->op != IR_OP_NONE) check_uses(&c, (ir_value){id});
  arena_free(&c.scratch);
  return c.ok;
}
