/* print.c - a module as text. Values are numbered in order of print, attributes sorted by key, floats in hex. */
#include "compiler/ir/ir_priv.h"

#include <math.h>
#include <string.h>

uint32_t *ir_print_numbers(const ir_module *m, arena *scratch) {
  uint32_t *numbers = ARENA_ARRAY(scratch, uint32_t, m->node_count), next = 1;
  for (uint32_t r = IR_GLOBALS.id; r < m->region_count; r++)
    for (uint32_t id = m->regions[r].first; id; id = m->nodes[id]->next)
      if (m->nodes[id]->op != IR_RETURN) numbers[id] = next++;
  return numbers;
}

static bool is_word(const char *s) {
  static const char first[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_";
  if (!*s || !strchr(first, *s) || strcmp(s, "inf") == 0 || strcmp(s, "nan") == 0) return false;
  return s[strspn(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_0123456789.")] == 0;
}

static void put_string(text *out, const char *s) { text_put_quoted(out, s, strlen(s), false); }

static void put_word(text *out, const char *s) {
  if (is_word(s))
    text_puts(out, s);
  else
    put_string(out, s);
}

static void put_value(text *out, const uint32_t *numbers, ir_value v) {
  if (numbers[v.id])
    text_printf(out, "%%%u", numbers[v.id] - 1);
  else
    text_puts(out, "%none");
}

static void put_attr(text *out, const ir_attr *a) {
  text_printf(out, "%s = ", ir_attr_name(a->key));
  switch (ir_attr_kind_of(a->key)) {
  case IR_KIND_INT: text_printf(out, "%lld", (long long)a->u.i); break;
  case IR_KIND_FLOAT: text_put_hex(out, a->u.f); break;
  case IR_KIND_STRING: put_string(out, a->u.s); break;
  case IR_KIND_FLOATS:
    text_puts(out, "[");
    for (size_t i = 0; i < a->u.floats.n; i++) {
      if (i) text_puts(out, ", ");
      text_put_hex(out, a->u.floats.data[i]);
    }
    text_puts(out, "]");
    break;
  }
}

/* A constant with data but no home yet shows as a tensor of file "", named after the op or its number. */
static size_t homeless_attrs(const ir_node *node, uint32_t number, ir_attr out[2], char *buffer, size_t size) {
  if (!node->payload || ir_attr_in(node->attrs, node->attr_count, IR_ATTR_TENSOR) ||
      !ir_op_accepts(node->op, IR_ATTR_TENSOR, NULL))
    return 0;
  const ir_attr *name = ir_attr_in(node->attrs, node->attr_count, IR_ATTR_NAME);
  snprintf(buffer, size, "const.%u", number - 1);
  out[0] = (ir_attr){IR_ATTR_FILE, {.s = ""}};
  out[1] = (ir_attr){IR_ATTR_TENSOR, {.s = name ? name->u.s : node->name ? node->name : buffer}};
  return 2;
}

static void put_attrs(text *out, const ir_node *node, uint32_t number) {
  char buffer[32];
  ir_attr extra[2];
  size_t extra_count = homeless_attrs(node, number, extra, buffer, sizeof buffer), e = 0, i = 0;
  if (!node->attr_count && !extra_count) return;
  for (bool first = true; i < node->attr_count || e < extra_count; first = false) {
    bool use_extra = e < extra_count && (i == node->attr_count ||
                                         strcmp(ir_attr_name(extra[e].key), ir_attr_name(node->attrs[i].key)) < 0);
    text_puts(out, first ? " {" : ", ");
    put_attr(out, use_extra ? &extra[e++] : &node->attrs[i++]);
  }
  text_puts(out, "}");
}

static void put_loc(text *out, diag_loc loc) {
  text_puts(out, " loc(");
  put_string(out, loc.file);
  text_printf(out, ":%u:%u", loc.line, loc.col);
  if (loc.length) text_printf(out, "+%u", loc.length);
  text_puts(out, ")");
}

static void put_op(text *out, const ir_node *node, const uint32_t *numbers, ir_value v, bool places) {
  if (node->op != IR_RETURN) {
    put_value(out, numbers, v);
    text_puts(out, " = ");
  }
  text_puts(out, ir_op_name(node->op));
  for (uint32_t i = 0; i < node->operand_count; i++) {
    text_puts(out, i ? ", " : " ");
    put_value(out, numbers, node->operands[i].value);
  }
  put_attrs(out, node, numbers[v.id]);
  if (node->op != IR_RETURN) {
    text_puts(out, " : ");
    ir_print_type(out, node->type);
  }
  if (node->name) {
    text_puts(out, " ");
    put_string(out, node->name);
  }
  if (places && node->loc.file && !node->loc_hidden) put_loc(out, node->loc);
}

static void put_region(text *out, const ir_module *m, ir_region r, const uint32_t *numbers, const char *indent,
                       bool places) {
  for (ir_value v = ir_first(m, r); v.id; v = ir_next(m, v)) {
    text_puts(out, indent);
    put_op(out, ir_node_at(m, v), numbers, v, places);
    text_puts(out, "\n");
  }
}

/* 10000, not 1e+04 */
static void put_number(text *out, double v) {
  if (v == floor(v) && fabs(v) < 1e15 && (v != 0 || !signbit(v)))
    text_printf(out, "%lld", (long long)v);
  else
    text_put_double(out, v);
}

static void print(const ir_module *m, bool places, text *out) {
  arena scratch = {0};
  const uint32_t *numbers = ir_print_numbers(m, &scratch);
  text_puts(out, "tir 1\nmodule ");
  put_string(out, m->name);
  text_puts(out, " {\n");
  for (size_t i = 0; i < m->param_count; i++) {
    text_puts(out, "  param ");
    put_word(out, m->params[i].name);
    text_puts(out, " = ");
    put_number(out, m->params[i].value);
    text_puts(out, "\n");
  }
  put_region(out, m, IR_GLOBALS, numbers, "  ", places);
  for (size_t i = 0; i < ir_entry_count(m); i++) {
    text_puts(out, "  entry @");
    put_word(out, ir_region_name(m, ir_entry_at(m, i)));
    text_puts(out, " {\n");
    put_region(out, m, ir_entry_at(m, i), numbers, "    ", places);
    text_puts(out, "  }\n");
  }
  text_puts(out, "}\n");
  arena_free(&scratch);
}

void ir_print(const ir_module *m, text *out) { print(m, true, out); }
void ir_print_unplaced(const ir_module *m, text *out) { print(m, false, out); }

void ir_print_op(const ir_module *m, ir_value v, text *out) {
  arena scratch = {0};
  const uint32_t *numbers = ir_print_numbers(m, &scratch);
  if (!v.id || ir_is(m, v, IR_OP_NONE))
    text_puts(out, "(no op)");
  else
    put_op(out, ir_node_at(m, v), numbers, v, true);
  arena_free(&scratch);
}
