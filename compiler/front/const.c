/* const.c - arithmetic of constants: checked integers, finite floats. */
#include "compiler/front/front_priv.h"
#include "runtime/base/checked.h"

#include <math.h>
#include <string.h>

const char *front_kind_text(front_kind kind) {
  static const char *const texts[] = {"nothing", "a whole number", "a number", "true or false",
                                      "a text",  "a gate",         "a tensor"};
  return texts[kind];
}

double front_number(front_value v) { return v.kind == FV_INT ? (double)v.u.i : v.u.f; }

static const char *fail(diag_code *out_code, diag_code code, const char *why) {
  *out_code = code;
  return why;
}

static front_value of_bool(bool b) { return (front_value){FV_BOOL, {.b = b}}; }

static const char *finite_float(double f, front_value *out, diag_code *out_code) {
  *out = (front_value){FV_FLOAT, {.f = f}};
  return isfinite(f) ? NULL : fail(out_code, DC_FRONT_OVERFLOW, "the result leaves the range of a float");
}

static const char *int_operation(const front_ctx *c, ast_operator op, int64_t a, int64_t b, front_value *out,
                                 diag_code *out_code) {
  bool fits = true;
  out->kind = FV_INT;
  int64_t *r = &out->u.i;
  if (op == AST_OP_ADD) fits = checked_add_i64(a, b, r);
  if (op == AST_OP_SUB) fits = checked_sub_i64(a, b, r);
  if (op == AST_OP_MUL) fits = checked_mul_i64(a, b, r);
  if (op == AST_OP_DIV || op == AST_OP_MOD) {
    if (b == 0) return fail(out_code, DC_FRONT_DIVISION, "division by zero");
    fits = b != -1 || a != INT64_MIN;
    if (fits && op == AST_OP_DIV && a % b)
      return fail(out_code, DC_FRONT_DIVISION,
                  arena_printf(c->memory,
                               "%lld / %lld is not a whole number; use floor_div(a, b), or make one of them a float",
                               (long long)a, (long long)b));
    if (fits) *r = op == AST_OP_DIV ? a / b : a % b;
  }
  return fits ? NULL : fail(out_code, DC_FRONT_OVERFLOW, "the result does not fit in 64 bits");
}

static const char *float_operation(ast_operator op, double a, double b, front_value *out, diag_code *out_code) {
  if ((op == AST_OP_DIV || op == AST_OP_MOD) && b == 0) return fail(out_code, DC_FRONT_DIVISION, "division by zero");
  double r = op == AST_OP_ADD   ? a + b
             : op == AST_OP_SUB ? a - b
             : op == AST_OP_MUL ? a * b
             : op == AST_OP_DIV ? a / b
                                : fmod(a, b);
  return finite_float(r, out, out_code);
}

static bool compare(ast_operator op, int order) {
  switch (op) {
  case AST_OP_EQ: return order == 0;
  case AST_OP_NE: return order != 0;
  case AST_OP_LT: return order < 0;
  case AST_OP_LE: return order <= 0;
  case AST_OP_GT: return order > 0;
  case AST_OP_GE: return order >= 0;
  case AST_OP_OR:
  case AST_OP_AND:
  case AST_OP_ADD:
  case AST_OP_SUB:
  case AST_OP_MUL:
  case AST_OP_DIV:
  case AST_OP_MOD:
  case AST_OP_NEG:
  case AST_OP_NOT: break;
  }
  return false;
}

static bool is_comparison(ast_operator op) { return ast_operator_precedence(op) == ast_operator_precedence(AST_OP_EQ); }

static const char *wrong_kinds(const front_ctx *c, ast_operator op, front_value a, front_value b, diag_code *out_code) {
  return fail(out_code, DC_FRONT_KIND,
              arena_printf(c->memory, "'%s' cannot join %s and %s", ast_operator_text(op), front_kind_text(a.kind),
                           front_kind_text(b.kind)));
}

static const char *join_strings(const front_ctx *c, const char *a, const char *b, front_value *out,
                                diag_code *out_code) {
  if (strlen(a) + strlen(b) > AST_MAX_NAME) return fail(out_code, DC_FRONT_RANGE, "the text is longer than 255 bytes");
  *out = (front_value){FV_STRING, {.s = arena_printf(c->memory, "%s%s", a, b)}};
  return NULL;
}

const char *front_const_binary(const front_ctx *c, ast_operator op, front_value a, front_value b, front_value *out,
                               diag_code *out_code) {
  if (a.kind == FV_BOOL && b.kind == FV_BOOL) {
    if (op == AST_OP_AND || op == AST_OP_OR)
      return *out = of_bool(op == AST_OP_AND ? a.u.b && b.u.b : a.u.b || b.u.b), NULL;
    if (op == AST_OP_EQ || op == AST_OP_NE) return *out = of_bool(compare(op, a.u.b - b.u.b)), NULL;
  }
  if (a.kind == FV_STRING && b.kind == FV_STRING) {
    if (op == AST_OP_ADD) return join_strings(c, a.u.s, b.u.s, out, out_code);
    if (op == AST_OP_EQ || op == AST_OP_NE) return *out = of_bool(compare(op, strcmp(a.u.s, b.u.s))), NULL;
  }
  if (!front_is_number(a) || !front_is_number(b) || op == AST_OP_AND || op == AST_OP_OR)
    return wrong_kinds(c, op, a, b, out_code);
  if (is_comparison(op)) {
    bool ints = a.kind == FV_INT && b.kind == FV_INT;
    double x = front_number(a), y = front_number(b);
    *out = of_bool(compare(op, ints ? (a.u.i > b.u.i) - (a.u.i < b.u.i) : (x > y) - (x < y)));
    return NULL;
  }
  if (a.kind == FV_INT && b.kind == FV_INT) return int_operation(c, op, a.u.i, b.u.i, out, out_code);
  return float_operation(op, front_number(a), front_number(b), out, out_code);
}

const char *front_const_unary(ast_operator op, front_value a, front_value *out, diag_code *out_code) {
  if (op == AST_OP_NOT)
    return a.kind == FV_BOOL ? (*out = of_bool(!a.u.b), NULL)
                             : fail(out_code, DC_FRONT_KIND, "'!' needs true or false");
  if (a.kind == FV_FLOAT) return *out = (front_value){FV_FLOAT, {.f = -a.u.f}}, NULL;
  if (a.kind != FV_INT) return fail(out_code, DC_FRONT_KIND, "'-' needs a number or a tensor");
  *out = (front_value){FV_INT, {.i = 0}};
  return checked_sub_i64(0, a.u.i, &out->u.i) ? NULL
                                              : fail(out_code, DC_FRONT_OVERFLOW, "the result does not fit in 64 bits");
}

static const char *call_min_max(bool max, const front_value *args, uint32_t n, front_value *out) {
  *out = args[0];
  for (uint32_t i = 1; i < n; i++)
    if (max ? front_number(args[i]) > front_number(*out) : front_number(args[i]) < front_number(*out)) *out = args[i];
  return NULL;
}

static const char *call_floor_div(int64_t a, int64_t b, front_value *out, diag_code *out_code) {
  if (b == 0) return fail(out_code, DC_FRONT_DIVISION, "division by zero");
  if (b == -1 && a == INT64_MIN) return fail(out_code, DC_FRONT_OVERFLOW, "the result does not fit in 64 bits");
  *out = (front_value){FV_INT, {.i = a / b - (a % b != 0 && (a < 0) != (b < 0))}};
  return NULL;
}

const char *front_const_function(uint32_t f, const front_value *args, uint32_t n, front_value *out,
                                 diag_code *out_code) {
  const char *name = front_function_name(f, NULL, NULL);
  for (uint32_t i = 0; i < n; i++)
    if (!front_is_number(args[i])) return fail(out_code, DC_FRONT_KIND, "a number is needed here");
  if (strcmp(name, "floor_div") == 0) {
    if (args[0].kind != FV_INT || args[1].kind != FV_INT)
      return fail(out_code, DC_FRONT_KIND, "floor_div takes whole numbers");
    return call_floor_div(args[0].u.i, args[1].u.i, out, out_code);
  }
  if (strcmp(name, "sqrt") == 0) {
    if (front_number(args[0]) < 0) return fail(out_code, DC_FRONT_RANGE, "the square root of a negative number");
    return finite_float(sqrt(front_number(args[0])), out, out_code);
  }
  return call_min_max(strcmp(name, "max") == 0, args, n, out);
}
