/* eval.c - values of expressions: constants here, tensors through lower.c. */
#include "compiler/front/front_priv.h"

#include <math.h>
#include <string.h>

static const front_value nothing = {FV_NONE, {0}};

/* Within blocks and repeats the message also says how the place was reached. */
static front_value fail(front_env *e, diag_code code, ast_span span, const char *message) {
  if (e->lower)
    lower_error(e->lower, code, span, "%s", message);
  else
    front_error(e->ctx, code, span, "%s", message);
  return nothing;
}

static front_value eval_symbol(front_env *e, const ast_expr *x) {
  ast_symbol *s = x->u.name.symbol;
  if (!s)
    return fail(e, DC_FRONT_UNKNOWN_NAME, x->span,
                arena_printf(e->ctx->memory, "unknown name '%s'", x->u.name.id.text));
  switch (s->kind) {
  case SYM_MODEL_PARAM: return e->params[s->slot];
  case SYM_ARG:
  case SYM_LOCAL:
  case SYM_INDEX:
    if (e->frame) return e->frame[s->slot];
    break;
  case SYM_GATE:
    if (e->lower) return (front_value){FV_GATE, {.gate = {s, -1}}};
    break;
  case SYM_TENSOR:
    if (e->lower) return lower_tensor(e->lower, s, x->span);
    break;
  case SYM_BLOCK:
  case SYM_FORWARD: break;
  }
  return fail(e, DC_FRONT_KIND, x->span,
              arena_printf(e->ctx->memory, "a constant is needed here; '%s' is none", s->id.text));
}

static front_value eval_index(front_env *e, const ast_expr *x) {
  front_value base = eval_symbol(e, x), index = front_eval(e, x->u.name.index);
  if (base.kind == FV_NONE || index.kind == FV_NONE) return nothing;
  if (base.kind != FV_GATE || base.u.gate.index >= 0)
    return fail(e, DC_FRONT_KIND, x->span,
                arena_printf(e->ctx->memory, "only arrays of gates have an index; '%s' is %s", x->u.name.id.text,
                             front_kind_text(base.kind)));
  if (index.kind != FV_INT || index.u.i < 0)
    return fail(e, DC_FRONT_KIND, x->u.name.index->span, "an index is a whole number from 0 on");
  base.u.gate.index = index.u.i;
  return base;
}

static front_value eval_operation(front_env *e, const ast_expr *x) {
  front_value a = front_eval(e, x->u.operation.a), b = x->u.operation.b ? front_eval(e, x->u.operation.b) : nothing,
              out = nothing;
  if (a.kind == FV_NONE || (x->u.operation.b && b.kind == FV_NONE)) return nothing;
  if (a.kind == FV_TENSOR || b.kind == FV_TENSOR) return lower_operation(e->lower, x, a, b);
  diag_code code = DC_FRONT_KIND;
  const char *why = x->u.operation.b ? front_const_binary(e->ctx, x->u.operation.op, a, b, &out, &code)
                                     : front_const_unary(x->u.operation.op, a, &out, &code);
  return why ? fail(e, code, x->span, why) : out;
}

static front_value eval_function(front_env *e, const ast_expr *x) {
  const ast_args *args = x->u.call.args;
  front_value *values = ARENA_ARRAY(e->ctx->memory, front_value, args->count), out = nothing;
  uint32_t n = 0;
  bool bad = false;
  for (const ast_arg *a = args->first; a; a = a->next) bad |= (values[n++] = front_eval(e, a->value)).kind == FV_NONE;
  if (bad) return nothing;
  diag_code code = DC_FRONT_KIND;
  const char *why = front_const_function(x->u.call.function, values, n, &out, &code);
  return why ? fail(e, code, x->span, why) : out;
}

static front_value eval_call(front_env *e, const ast_expr *x) {
  if (x->u.call.target == TARGET_FUNCTION) return eval_function(e, x);
  if (e->lower) return lower_call(e->lower, e, x);
  return fail(e, DC_FRONT_KIND, x->span, "a constant is needed here");
}

static front_value eval_here(front_env *e, const ast_expr *x) {
  switch (x->kind) {
  case AST_INT: return (front_value){FV_INT, {.i = x->u.number.i}};
  case AST_FLOAT: return (front_value){FV_FLOAT, {.f = x->u.number.f}};
  case AST_BOOL: return (front_value){FV_BOOL, {.b = x->u.number.b}};
  case AST_STRING: return (front_value){FV_STRING, {.s = x->u.string}};
  case AST_NAME: return eval_symbol(e, x);
  case AST_INDEX: return eval_index(e, x);
  case AST_CALL: return eval_call(e, x);
  case AST_UNARY:
  case AST_BINARY: return eval_operation(e, x);
  case AST_PERCENT: return fail(e, DC_FRONT_KIND, x->span, "a percentage cannot stand here");
  case AST_TUPLE: return fail(e, DC_FRONT_KIND, x->span, "a tuple cannot stand here");
  case AST_BAD: break;
  }
  return nothing;
}

front_value front_eval(front_env *e, const ast_expr *x) {
  if (e->depth >= FRONT_MAX_DEPTH)
    return fail(e, DC_FRONT_NESTING, x->span, "calls and expressions are nested too deeply here");
  e->depth++;
  front_value v = eval_here(e, x);
  e->depth--;
  return v;
}

bool front_eval_int(front_env *e, const ast_expr *x, const char *what, int64_t least, int64_t most, int64_t *out) {
  front_value v = front_eval(e, x);
  if (v.kind == FV_NONE) return false;
  if (v.kind != FV_INT) {
    fail(e, DC_FRONT_KIND, x->span,
         arena_printf(e->ctx->memory, "%s must be a whole number, not %s", what, front_kind_text(v.kind)));
    return false;
  }
  *out = v.u.i;
  if (v.u.i >= least && v.u.i <= most) return true;
  fail(e, DC_FRONT_RANGE, x->span,
       arena_printf(e->ctx->memory, "%s is %lld; it must be %lld to %lld", what, (long long)v.u.i, (long long)least,
                    (long long)most));
  return false;
}

bool front_eval_number(front_env *e, const ast_expr *x, const char *what, double *out) {
  front_value v = front_eval(e, x);
  if (v.kind == FV_NONE) return false;
  if (!front_is_number(v)) {
    fail(e, DC_FRONT_KIND, x->span,
         arena_printf(e->ctx->memory, "%s must be a number, not %s", what, front_kind_text(v.kind)));
    return false;
  }
  *out = front_number(v);
  return true;
}

/* ---- model parameters ---- */

static const front_define *find_define(const front_options *o, const char *name) {
  for (size_t i = o ? o->define_count : 0; i-- > 0;)
    if (strcmp(o->defines[i].name, name) == 0) return &o->defines[i];
  return NULL;
}

static bool apply_define(const front_ctx *c, const ast_symbol *s, const front_define *d, front_value *v) {
  static const diag_loc nowhere = {0};
  if (!isfinite(d->value) || (v->kind == FV_INT && (d->value != floor(d->value) || fabs(d->value) > 0x1p53))) {
    diag_report(c->sink, DC_FRONT_DEFINE, nowhere, "-D %s: parameter '%s' of model '%s' takes a %s", d->name, d->name,
                c->model->id.text, v->kind == FV_INT ? "whole number" : "finite number");
    diag_note(c->sink, source_loc(c->source, s->id.span), "'%s' is declared here", s->id.text);
    return false;
  }
  if (v->kind == FV_INT)
    v->u.i = (int64_t)d->value;
  else
    v->u.f = d->value;
  return true;
}

static bool unknown_define(const front_ctx *c, const front_define *d) {
  suggestion near = suggest(d->name);
  for (const ast_symbol *s = c->model->symbols; s; s = s->next) {
    if (s->kind != SYM_MODEL_PARAM) continue;
    if (strcmp(s->id.text, d->name) == 0) return false;
    if (front_suggests(c)) suggest_try(&near, s->id.text);
  }
  diag_report(c->sink, DC_FRONT_DEFINE, (diag_loc){0}, "-D %s: model '%s' has no such parameter%s", d->name,
              c->model->id.text, suggest_text(&near, c->memory));
  diag_note(c->sink, source_loc(c->source, c->model->id.span), "the model is declared here");
  return true;
}

/* vocab and context bound what the runtime allocates. */
static bool check_reserved(const front_ctx *c, const ast_symbol *s, front_value v) {
  if (strcmp(s->id.text, "vocab") != 0 && strcmp(s->id.text, "context") != 0) return true;
  if (v.kind == FV_INT && v.u.i >= 1 && v.u.i <= FRONT_MAX_DIM) return true;
  front_error(c, DC_FRONT_RANGE, s->value->span, "parameter '%s' must be a whole number from 1 to %lld", s->id.text,
              (long long)FRONT_MAX_DIM);
  return false;
}

bool front_params(const front_ctx *c, const front_options *options, bool report_options, front_value *out) {
  front_env e = {.ctx = c, .params = out};
  bool good = true;
  for (const ast_symbol *s = c->model->symbols; s; s = s->next) {
    if (s->kind != SYM_MODEL_PARAM) continue;
    front_value v = front_eval(&e, s->value);
    const front_define *d = find_define(options, s->id.text);
    if (v.kind != FV_NONE && !front_is_number(v)) {
      front_error(c, DC_FRONT_KIND, s->value->span, "parameter '%s' must be a number, not %s", s->id.text,
                  front_kind_text(v.kind));
      v = nothing;
    }
    good &= v.kind != FV_NONE;
    if (v.kind != FV_NONE && d) good &= apply_define(c, s, d, &v);
    if (v.kind != FV_NONE) good &= check_reserved(c, s, v);
    out[s->slot] = v;
  }
  for (size_t i = 0; report_options && options && i < options->define_count; i++)
    good &= !unknown_define(c, &options->defines[i]);
  return good;
}

/* ---- initial values ---- */

static const char *init_number(front_env *e, const ast_expr *x) {
  double v;
  if (!front_eval_number(e, x, "an initial value", &v)) return NULL;
  text t = {0};
  text_put_double(&t, v);
  const char *s = arena_strdup(e->ctx->memory, t.data ? t.data : "0");
  text_free(&t);
  return s;
}

static const char *init_call(front_env *e, const ast_expr *x) {
  const char *name = x->u.call.id.text;
  const ast_args *args = x->u.call.args;
  double v;
  if (args->count != 1 || args->first->name.text)
    return fail(e, DC_FRONT_KIND, x->span, arena_printf(e->ctx->memory, "write %s(NUMBER)", name)), NULL;
  if (!front_eval_number(e, args->first->value, strcmp(name, "normal") == 0 ? "a standard deviation" : "a bound", &v))
    return NULL;
  if (v < 0) return fail(e, DC_FRONT_RANGE, args->first->value->span, "this must not be negative"), NULL;
  const char *number = init_number(e, args->first->value);
  return number ? arena_printf(e->ctx->memory, "%s(%s)", name, number) : NULL;
}

const char *front_eval_init(front_env *e, const ast_expr *x) {
  static const char *const words[] = {"zeros", "ones"}, *const calls[] = {"normal", "uniform"};
  const char *name = x->kind == AST_NAME ? x->u.name.id.text : x->kind == AST_CALL ? x->u.call.id.text : NULL;
  for (size_t i = 0; name && i < 2; i++) {
    if (x->kind == AST_NAME && !x->u.name.symbol && strcmp(name, words[i]) == 0) return words[i];
    if (x->kind == AST_CALL && strcmp(name, calls[i]) == 0) return init_call(e, x);
  }
  if (x->kind == AST_CALL && x->u.call.target == TARGET_FUNCTION) return init_number(e, x);
  if (x->kind != AST_CALL && (x->kind != AST_NAME || x->u.name.symbol)) return init_number(e, x);
  suggestion s = suggest(name);
  for (size_t i = 0; i < 2; i++) suggest_try(&s, words[i]), suggest_try(&s, calls[i]);
  return fail(e, DC_FRONT_UNKNOWN_NAME, x->span,
              arena_printf(e->ctx->memory, "unknown initial value '%s'%s", name,
                           s.best ? suggest_text(&s, e->ctx->memory)
                                  : "; known are normal(S), uniform(A), zeros, ones and a number")),
         NULL;
}
