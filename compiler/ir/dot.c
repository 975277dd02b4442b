/* dot.c - a module as a Graphviz graph: one cluster a region, one box an op, edges from definition to use. */
#include "compiler/ir/ir_priv.h"

#include <string.h>

/* Text inside a quoted label. */
static void put_label(text *out, const char *s) {
  for (; *s; s++) {
    if (*s == '"' || *s == '\\') text_puts(out, "\\");
    if ((unsigned char)*s < 32)
      text_printf(out, "\\\\x%02x", (unsigned)(unsigned char)*s);
    else
      text_put(out, s, 1);
  }
}

static void put_node(text *out, const ir_module *m, ir_value v, const uint32_t *numbers) {
  const ir_node *node = ir_node_at(m, v);
  const char *name = ir_name_of(m, v);
  bool is_return = node->op == IR_RETURN;
  const char *shape = ir_op_has(node->op, OPF_GLOBAL) ? "ellipse" : ir_op_has(node->op, OPF_NORM) ? "hexagon" : "box";
  text_printf(out, "    n%u [shape=%s, label=\"", v.id, shape);
  if (!is_return) text_printf(out, "%%%u = ", numbers[v.id] - 1);
  text_puts(out, ir_op_name(node->op));
  if (name) {
    text_puts(out, "\\n");
    put_label(out, name);
  }
  if (!is_return) {
    text_puts(out, "\\n");
    ir_print_type(out, node->type);
  }
  text_puts(out, "\"];\n");
}

static void put_edges(text *out, const ir_module *m, ir_value v) {
  const ir_node *node = ir_node_at(m, v);
  const ir_operand_spec *specs;
  size_t n = ir_op_operands(node->op, &specs);
  for (uint32_t i = 0; i < node->operand_count; i++) {
    ir_value x = node->operands[i].value;
    if (!x.id) continue;
    text_printf(out, "  n%u -> n%u", x.id, v.id);
    if (i > 0 && i < n && !specs[i].variadic) text_printf(out, " [label=\"%s\"]", specs[i].name);
    text_puts(out, ";\n");
  }
}

void ir_print_dot(const ir_module *m, text *out) {
  arena scratch = {0};
  const uint32_t *numbers = ir_print_numbers(m, &scratch);
  text_puts(out, "digraph \"");
  put_label(out, m->name);
  text_puts(out, "\" {\n  node [fontname=\"monospace\", fontsize=10];\n");
  for (uint32_t r = IR_GLOBALS.id; r < m->region_count; r++) {
    text_printf(out, "  subgraph cluster_%u {\n    label=\"", r);
    put_label(out, m->regions[r].name);
    text_puts(out, "\";\n");
    for (ir_value v = ir_first(m, (ir_region){r}); v.id; v = ir_next(m, v)) put_node(out, m, v, numbers);
    text_puts(out, "  }\n");
  }
  for (uint32_t r = IR_GLOBALS.id; r < m->region_count; r++)
    for (ir_value v = ir_first(m, (ir_region){r}); v.id; v = ir_next(m, v)) put_edges(out, m, v);
  text_puts(out, "}\n");
  arena_free(&scratch);
}
