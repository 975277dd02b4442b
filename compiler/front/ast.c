/* ast.c - what the grammar's actions build. */
#include "compiler/front/ast.h"
#include "runtime/base/checked.h"

#include <stdarg.h>
#include <string.h>

void ast_error(ast_parser *p, diag_code code, ast_span span, const char *format, ...) {
  if (p->stopped) return;
  va_list args;
  va_start(args, format);
  diag_report(p->sink, code, source_loc(p->source, span), "%s", arena_vprintf(p->memory, format, args));
  va_end(args);
}

/* A limit was passed: one message, and the scanner yields the end of the file from here on. */
static void stop(ast_parser *p, diag_code code, ast_span span, const char *message) {
  ast_error(p, code, span, "%s", message);
  p->stopped = true;
}

/* ---- scanner ---- */

bool ast_token(ast_parser *p, size_t length, bool blank, ast_span *out) {
  *out = (ast_span){p->offset, p->offset + (uint32_t)length};
  p->offset = out->end;
  if (p->stopped || blank) return !p->stopped;
  p->last_token = p->token;
  p->token = *out;
  if (++p->tokens <= AST_MAX_TOKENS) return true;
  stop(p, DC_FRONT_TOKENS, *out, "more than 1000000 tokens; split the model into blocks and repeats");
  return false;
}

bool ast_percentage(ast_parser *p, ast_span *token) {
  const front_source *s = p->source;
  uint32_t at = token->end;
  while (at < s->size && strchr(" \t\r\n", s->text[at])) at++; /* source_init refused NUL bytes */
  if (at < s->size && strchr(",;)", s->text[at])) return true;
  p->offset = p->token.end = --token->end;
  return false;
}

void ast_end(ast_parser *p, ast_span *out) {
  *out = (ast_span){p->source->size, p->source->size};
  p->last_token = p->token;
}

bool ast_bracket(ast_parser *p, char bracket, ast_span span) {
  if (strchr(")]}", bracket)) {
    if (p->open_count) p->open_count--;
    return true;
  }
  if (p->open_count < AST_MAX_NESTING) {
    p->open[p->open_count++] = span.begin;
    return true;
  }
  stop(p, DC_FRONT_NESTING, span, "brackets are nested deeper than 256");
  return false;
}

ast_id ast_identifier(ast_parser *p, const char *s, size_t size, ast_span span) {
  if (size > AST_MAX_NAME) {
    ast_error(p, DC_FRONT_LONG_NAME, span, "a name of %zu bytes; at most %d", size, AST_MAX_NAME);
    size = AST_MAX_NAME;
  }
  return (ast_id){arena_strndup(p->memory, s, size), span};
}

static ast_expr *new_expr(ast_parser *p, ast_kind kind, ast_span span, uint32_t depth) {
  ast_expr *e = ARENA_NEW(p->memory, ast_expr);
  *e = (ast_expr){.kind = kind, .span = span, .depth = depth + 1};
  if (depth >= AST_MAX_NESTING) {
    stop(p, DC_FRONT_NESTING, span, "an expression is nested deeper than 256; name a part of it with 'let'");
    e->kind = AST_BAD;
    e->depth = 1;
  }
  return e;
}

/* Integers stay integers under k and M where they are whole: 1.5k is 1500. */
static bool read_number(ast_expr *e, const char *s, size_t size) {
  char suffix = s[size - 1];
  int64_t factor = suffix == 'k' ? 1000 : suffix == 'M' ? 1000000 : 1;
  if (factor != 1 || suffix == '%') size--;
  e->kind = suffix == '%' ? AST_PERCENT : AST_INT;
  if (e->kind == AST_INT && number_parse_i64(s, size, &e->u.number.i))
    return checked_mul_i64(e->u.number.i, factor, &e->u.number.i);
  if (e->kind == AST_INT && strspn(s, "0123456789") >= size) return false;
  double value;
  if (!number_parse_double(s, size, &value)) return false;
  e->u.number.f = e->kind == AST_PERCENT ? value / 100 : value * (double)factor;
  if (e->kind == AST_PERCENT) return true;
  e->kind = AST_FLOAT;
  if (factor != 1 && e->u.number.f < 0x1p53 && e->u.number.f == (double)(int64_t)e->u.number.f) {
    e->kind = AST_INT;
    e->u.number.i = (int64_t)e->u.number.f;
  }
  return e->u.number.f - e->u.number.f == 0;
}

ast_expr *ast_number(ast_parser *p, const char *s, size_t size, ast_span span) {
  ast_expr *e = new_expr(p, AST_INT, span, 0);
  e->u.number.text = arena_strndup(p->memory, s, size);
  if (read_number(e, e->u.number.text, size)) return e;
  ast_error(p, DC_FRONT_NUMBER, span, "'%.40s%s' does not fit: integers go to 9223372036854775807, floats to 1.7e308",
            e->u.number.text, size > 40 ? "..." : "");
  e->kind = AST_BAD;
  return e;
}

ast_expr *ast_string(ast_parser *p, const char *s, size_t size, ast_span span) {
  ast_expr *e = new_expr(p, AST_STRING, span, 0);
  char *out = arena_alloc(p->memory, size), *to = out;
  e->u.string = out;
  for (size_t i = 1; i + 1 < size; i++) {
    char c = s[i];
    if (c == '\\') {
      static const char from[] = "\"\\nt", into[] = "\"\\\n\t";
      const char *at = strchr(from, s[++i]);
      if (!at)
        ast_error(p, DC_FRONT_STRING, (ast_span){span.begin + (uint32_t)i - 1, span.begin + (uint32_t)i + 1},
                  "an unknown escape; \\\" \\\\ \\n \\t are known");
      else
        c = into[at - from];
    }
    *to++ = c;
  }
  if (to - out > AST_MAX_NAME)
    ast_error(p, DC_FRONT_STRING, span, "a text of %zu bytes; at most %d", (size_t)(to - out), AST_MAX_NAME);
  return e;
}

/* ---- expressions ---- */

ast_expr *ast_bool(ast_parser *p, bool value, ast_span span) {
  ast_expr *e = new_expr(p, AST_BOOL, span, 0);
  e->u.number.b = value;
  return e;
}

ast_expr *ast_name(ast_parser *p, ast_id id) {
  ast_expr *e = new_expr(p, AST_NAME, id.span, 0);
  e->u.name.id = id;
  return e;
}

ast_expr *ast_index(ast_parser *p, ast_id id, ast_expr *index, ast_span span) {
  ast_expr *e = new_expr(p, AST_INDEX, span, index->depth);
  e->u.name.id = id;
  e->u.name.index = index;
  return e;
}

static uint32_t args_depth(const ast_args *args) {
  uint32_t depth = 0;
  for (const ast_arg *a = args ? args->first : NULL; a; a = a->next)
    if (a->value->depth > depth) depth = a->value->depth;
  return depth;
}

static ast_args *no_args(ast_parser *p, ast_args *args) { return args ? args : ARENA_NEW(p->memory, ast_args); }

ast_expr *ast_call(ast_parser *p, ast_id id, ast_args *args, ast_span span) {
  ast_expr *e = new_expr(p, AST_CALL, span, args_depth(args));
  e->u.call.id = id;
  e->u.call.args = no_args(p, args);
  return e;
}

ast_expr *ast_tuple(ast_parser *p, ast_args *items, ast_span span) {
  ast_expr *e = new_expr(p, AST_TUPLE, span, args_depth(items));
  e->u.tuple = items;
  return e;
}

ast_expr *ast_paren(ast_parser *p, ast_expr *inner, ast_span span) {
  (void)p;
  inner->span = span;
  return inner;
}

ast_expr *ast_operation(ast_parser *p, ast_operator op, ast_expr *a, ast_expr *b, ast_span span) {
  ast_expr *e = new_expr(p, b ? AST_BINARY : AST_UNARY, span, b && b->depth > a->depth ? b->depth : a->depth);
  e->u.operation.op = op;
  e->u.operation.a = a;
  e->u.operation.b = b;
  return e;
}

ast_args *ast_args_add(ast_parser *p, ast_args *list, ast_id name, ast_expr *value) {
  list = no_args(p, list);
  ast_arg *a = ARENA_NEW(p->memory, ast_arg);
  *a = (ast_arg){.name = name, .value = value};
  if (list->last)
    list->last->next = a;
  else
    list->first = a;
  list->last = a;
  list->count++;
  return list;
}

/* ---- statements ---- */

ast_body *ast_body_add(ast_parser *p, ast_body *body, ast_stmt *stmt) {
  if (!body) body = ARENA_NEW(p->memory, ast_body);
  if (!stmt) return body;
  uint32_t depth = stmt->body ? stmt->body->depth : 0;
  if (stmt->otherwise && stmt->otherwise->depth > depth) depth = stmt->otherwise->depth;
  if (depth >= body->depth) body->depth = depth + 1;
  if (body->depth > AST_MAX_NESTING) stop(p, DC_FRONT_NESTING, stmt->span, "statements are nested deeper than 256");
  if (body->last)
    body->last->next = stmt;
  else
    body->first = stmt;
  body->last = stmt;
  return body;
}

ast_body *ast_body_close(ast_body *body, ast_span span) {
  body->span = span;
  return body;
}

static ast_stmt *new_stmt(ast_parser *p, ast_stmt_kind kind, ast_id id, ast_expr *value, ast_span span) {
  ast_stmt *s = ARENA_NEW(p->memory, ast_stmt);
  *s = (ast_stmt){.kind = kind, .span = span, .id = id, .value = value};
  return s;
}

ast_stmt *ast_let(ast_parser *p, ast_id id, ast_expr *value, ast_span span) {
  return new_stmt(p, STMT_LET, id, value, span);
}
ast_stmt *ast_assign(ast_parser *p, ast_id id, ast_expr *value, ast_span span) {
  return new_stmt(p, STMT_ASSIGN, id, value, span);
}

ast_stmt *ast_return(ast_parser *p, ast_expr *value, ast_span span) {
  return new_stmt(p, STMT_RETURN, (ast_id){NULL, span}, value, span);
}

ast_stmt *ast_repeat(ast_parser *p, ast_expr *count, ast_expr *label, ast_id index, ast_body *body, ast_span span) {
  ast_stmt *s = new_stmt(p, STMT_REPEAT, index, count, span);
  s->label = label;
  s->body = body;
  return s;
}

ast_stmt *ast_if(ast_parser *p, ast_expr *condition, ast_body *then, ast_body *otherwise, ast_span span) {
  ast_stmt *s = new_stmt(p, STMT_IF, (ast_id){NULL, span}, condition, span);
  s->body = then;
  s->otherwise = otherwise;
  return s;
}

/* ---- declarations ---- */

static ast_symbol *new_symbol(ast_parser *p, ast_symbol_kind kind, ast_id id, uint32_t slot) {
  ast_symbol *s = ARENA_NEW(p->memory, ast_symbol);
  *s = (ast_symbol){.kind = kind, .id = id, .slot = slot};
  return s;
}

static ast_symbol *declare(ast_parser *p, ast_symbol_kind kind, ast_id id, uint32_t slot) {
  ast_symbol *s = new_symbol(p, kind, id, slot);
  if (p->model->last)
    p->model->last->next = s;
  else
    p->model->symbols = s;
  return p->model->last = s;
}

void ast_model_begin(ast_parser *p, ast_id id) { p->model->id = id; }

void ast_model_param(ast_parser *p, ast_id id, ast_expr *value) {
  declare(p, SYM_MODEL_PARAM, id, p->model->param_count++)->value = value;
}

void ast_gate(ast_parser *p, ast_id id, ast_expr *count) {
  declare(p, SYM_GATE, id, p->model->gate_count++)->value = count;
}

void ast_tensor(ast_parser *p, ast_id id, ast_args *dims, ast_expr *init) {
  ast_symbol *s = declare(p, SYM_TENSOR, id, p->model->tensor_count++);
  s->dims = no_args(p, dims);
  s->value = init;
}

ast_symbol *ast_block_arg(ast_parser *p, ast_symbol *list, ast_id id) {
  /* The list is kept by its last node, whose `next` is the first. */
  ast_symbol *s = new_symbol(p, SYM_ARG, id, list ? list->slot + 1 : 0);
  s->next = list ? list->next : s;
  if (list) list->next = s;
  return s;
}

static void add_block(ast_parser *p, ast_symbol_kind kind, ast_id id, ast_symbol *args, ast_body *body) {
  ast_block *b = ARENA_NEW(p->memory, ast_block);
  *b = (ast_block){.args = args ? args->next : NULL, .arg_count = args ? args->slot + 1 : 0, .body = body};
  if (args) args->next = NULL;
  b->slot_count = b->arg_count;
  declare(p, kind, id, 0)->block = b;
}

void ast_block_add(ast_parser *p, ast_id id, ast_symbol *args, ast_body *body) {
  add_block(p, SYM_BLOCK, id, args, body);
}
void ast_forward(ast_parser *p, ast_id keyword, ast_symbol *args, ast_body *body) {
  add_block(p, SYM_FORWARD, keyword, args, body);
}

void ast_train(ast_parser *p, ast_span span) {
  p->model->has_train = true;
  p->model->train_span = span;
}

void ast_setting_add(ast_parser *p, ast_id id, ast_expr *value) {
  ast_setting *s = ARENA_NEW(p->memory, ast_setting);
  *s = (ast_setting){.id = id, .value = value};
  if (p->model->last_setting)
    p->model->last_setting->next = s;
  else
    p->model->settings = s;
  p->model->last_setting = s;
}

const char *ast_operator_text(ast_operator op) {
  static const char *const texts[] = {
#define OPERATOR(id, text, precedence) text,
#include "compiler/front/operators.def"
#undef OPERATOR
  };
  return texts[op];
}

int ast_operator_precedence(ast_operator op) {
  static const int levels[] = {
#define OPERATOR(id, text, precedence) precedence,
#include "compiler/front/operators.def"
#undef OPERATOR
  };
  return levels[op];
}
