/* print.c - the canonical form of a source: two spaces a level, one statement a line, no comments, only the brackets
 * that are needed. */
#include "compiler/front/front_priv.h"

#include <string.h>

static void put_expr(text *t, const ast_expr *x);

static void put_args(text *t, const ast_args *args) {
  for (const ast_arg *a = args->first; a; a = a->next) {
    if (a != args->first) text_puts(t, ", ");
    if (a->name.text) text_printf(t, "%s = ", a->name.text);
    put_expr(t, a->value);
  }
}

static void put_string(text *t, const char *s) {
  text_puts(t, "\"");
  for (; *s; s++) {
    static const char from[] = "\"\\\n\t", into[] = "\"\\nt";
    const char *at = strchr(from, *s);
    if (at)
      text_printf(t, "\\%c", into[at - from]);
    else
      text_put(t, s, 1);
  }
  text_puts(t, "\"");
}

static int precedence(const ast_expr *x) {
  return x->kind == AST_UNARY || x->kind == AST_BINARY ? ast_operator_precedence(x->u.operation.op) : 99;
}

static void put_operand(text *t, const ast_expr *x, bool brackets) {
  if (brackets) text_puts(t, "(");
  put_expr(t, x);
  if (brackets) text_puts(t, ")");
}

/* Operators group to the left, comparisons not at all. */
static void put_operation(text *t, const ast_expr *x) {
  const ast_expr *a = x->u.operation.a, *b = x->u.operation.b;
  int mine = precedence(x);
  if (!b) {
    text_puts(t, ast_operator_text(x->u.operation.op));
    put_operand(t, a, precedence(a) < mine);
    return;
  }
  bool comparison = mine == ast_operator_precedence(AST_OP_EQ);
  put_operand(t, a, comparison ? precedence(a) <= mine : precedence(a) < mine);
  text_printf(t, " %s ", ast_operator_text(x->u.operation.op));
  put_operand(t, b, precedence(b) <= mine);
}

/* Depth is bounded by AST_MAX_NESTING. */
static void put_expr(text *t, const ast_expr *x) {
  switch (x->kind) {
  case AST_INT:
  case AST_FLOAT:
  case AST_PERCENT: text_puts(t, x->u.number.text); break;
  case AST_BOOL: text_puts(t, x->u.number.b ? "true" : "false"); break;
  case AST_STRING: put_string(t, x->u.string); break;
  case AST_NAME: text_puts(t, x->u.name.id.text); break;
  case AST_INDEX:
    text_printf(t, "%s[", x->u.name.id.text);
    put_expr(t, x->u.name.index);
    text_puts(t, "]");
    break;
  case AST_CALL:
    text_printf(t, "%s(", x->u.call.id.text);
    put_args(t, x->u.call.args);
    text_puts(t, ")");
    break;
  case AST_TUPLE:
    text_puts(t, "(");
    put_args(t, x->u.tuple);
    text_puts(t, ")");
    break;
  case AST_UNARY:
  case AST_BINARY: put_operation(t, x); break;
  case AST_BAD: break;
  }
}

static void put_indent(text *t, int level) {
  for (int i = 0; i < level; i++) text_puts(t, "  ");
}

static void put_body(text *t, const ast_body *body, int level);

static void put_if(text *t, const ast_stmt *s, int level) {
  const ast_body *otherwise = s->otherwise;
  text_puts(t, "if ");
  put_expr(t, s->value);
  put_body(t, s->body, level);
  if (!otherwise) return;
  text_puts(t, " else");
  bool chained = otherwise->first && !otherwise->first->next && otherwise->first->kind == STMT_IF;
  if (!chained)
    put_body(t, otherwise, level);
  else
    text_puts(t, " "), put_if(t, otherwise->first, level);
}

static void put_stmt(text *t, const ast_stmt *s, int level) {
  put_indent(t, level);
  switch (s->kind) {
  case STMT_LET:
  case STMT_ASSIGN:
    text_printf(t, "%s%s = ", s->kind == STMT_LET ? "let " : "", s->id.text);
    put_expr(t, s->value);
    text_puts(t, ";");
    break;
  case STMT_REPEAT:
    text_puts(t, "repeat ");
    put_expr(t, s->value);
    text_puts(t, " as ");
    put_string(t, s->label->u.string);
    if (s->id.text) text_printf(t, " with %s", s->id.text);
    put_body(t, s->body, level);
    break;
  case STMT_IF: put_if(t, s, level); break;
  case STMT_RETURN:
    text_puts(t, "return ");
    put_expr(t, s->value);
    text_puts(t, ";");
    break;
  case STMT_BAD: break;
  }
  text_puts(t, "\n");
}

static void put_body(text *t, const ast_body *body, int level) {
  text_puts(t, " {\n");
  for (const ast_stmt *s = body->first; s; s = s->next) put_stmt(t, s, level + 1);
  put_indent(t, level);
  text_puts(t, "}");
}

static void put_block(text *t, const ast_symbol *s) {
  if (s->kind == SYM_BLOCK)
    text_printf(t, "\n  block %s(", s->id.text);
  else
    text_puts(t, "\n  forward(");
  for (const ast_symbol *a = s->block->args; a; a = a->next)
    text_printf(t, "%s%s", a == s->block->args ? "" : ", ", a->id.text);
  text_puts(t, ")");
  put_body(t, s->block->body, 1);
  text_puts(t, "\n");
}

static void put_declaration(text *t, const ast_symbol *s) {
  if (s->block) {
    put_block(t, s);
    return;
  }
  text_printf(t, "  %s %s", s->kind == SYM_GATE ? "gate" : "param", s->id.text);
  if (s->kind == SYM_TENSOR) {
    text_puts(t, ": [");
    put_args(t, s->dims);
    text_puts(t, "]");
  }
  if (s->value) {
    text_puts(t, s->kind == SYM_GATE ? "[" : " init ");
    put_expr(t, s->value);
    if (s->kind == SYM_GATE) text_puts(t, "]");
  }
  text_puts(t, ";\n");
}

void front_print_ast(const front_model *f, text *out) {
  text_printf(out, "model %s(", f->model.id.text);
  const ast_symbol *s = f->model.symbols;
  for (; s && s->kind == SYM_MODEL_PARAM; s = s->next) {
    text_printf(out, "%s%s = ", s == f->model.symbols ? "" : ", ", s->id.text);
    put_expr(out, s->value);
  }
  text_puts(out, ") {\n");
  for (; s; s = s->next) put_declaration(out, s);
  text_puts(out, "}\n");
  if (!f->model.has_train) return;
  text_puts(out, "\ntrain {\n");
  for (const ast_setting *i = f->model.settings; i; i = i->next) {
    text_printf(out, "  %s ", i->id.text);
    put_expr(out, i->value);
    text_puts(out, ";\n");
  }
  text_puts(out, "}\n");
}
