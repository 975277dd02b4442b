/* lower_op.c - calls of ops: arguments to operands and attributes, weights made on the way, shapes checked by ir_infer.
 */
#include "compiler/front/lower_priv.h"

#include <stdlib.h>
#include <string.h>

typedef struct op_call {
  lowering *l;
  front_env *e;
  const ast_expr *x;
  ir_opcode op;
  const char *what;
  const ir_operand_spec *specs;
  size_t spec_count;
  front_value *values;      /* by operand; a variadic one takes the rest */
  const ast_expr **sources; /* what stands in the source for each */
  size_t count;             /* operands in use */
  ir_attr attrs[IR_ATTR_COUNT];
  size_t attr_count;
  const ast_expr *attr_sources[IR_ATTR_COUNT];
  int64_t out; /* 0: not said */
  const ast_expr *out_source;
  const char *name, *init;
  ast_span name_span;
  bool bad;
} op_call;

static void wrong_kind(op_call *k, const ast_arg *a, const char *formal, const char *needed, front_value found) {
  k->bad = true;
  if (found.kind == FV_NONE) return;
  lower_error(k->l, DC_FRONT_KIND, a->value->span, "'%s': argument '%s' must be %s, not %s", k->what, formal, needed,
              front_kind_text(found.kind));
}

static void add_attr(op_call *k, ir_attr attr, const ast_expr *source) {
  k->attrs[k->attr_count++] = attr;
  k->attr_sources[attr.key] = source;
}

/* ---- arguments ---- */

static void take_operand(op_call *k, const ast_arg *a) {
  const ir_operand_spec *spec = &k->specs[a->index];
  size_t at = spec->variadic ? k->count : a->index;
  front_value v = front_eval(k->e, a->value);
  bool pairs = ir_op_has(k->op, OPF_ELEMENTWISE) && k->spec_count == 2;
  bool number = spec->is_param || pairs || front_function_find(k->what, &(uint32_t){0});
  if (spec->is_gate && v.kind != FV_GATE)
    wrong_kind(k, a, spec->name, "a gate", v);
  else if (spec->is_param && v.kind != FV_TENSOR && v.kind != FV_BOOL && !front_is_number(v))
    wrong_kind(k, a, spec->name, "a param, true, false or a number", v);
  else if (!spec->is_gate && !spec->is_param && v.kind != FV_TENSOR && !(number && front_is_number(v)))
    wrong_kind(k, a, spec->name, "a tensor", v);
  if (at >= k->count) k->count = at + 1;
  k->values[at] = v;
  k->sources[at] = a->value;
}

static void take_attr(op_call *k, const ast_arg *a) {
  ir_attr attr = {.key = (ir_attr_key)a->index};
  const char *name = a->name.text ? a->name.text : ir_attr_name(attr.key);
  front_value v = front_eval(k->e, a->value);
  switch (ir_attr_kind_of(attr.key)) {
  case IR_KIND_INT:
    attr.u.i = v.u.i;
    if (v.kind != FV_INT) wrong_kind(k, a, name, "a whole number", v);
    break;
  case IR_KIND_FLOAT:
    if (!front_is_number(v))
      wrong_kind(k, a, name, "a number", v);
    else
      attr.u.f = front_number(v);
    break;
  case IR_KIND_STRING:
    attr.u.s = v.u.s;
    if (v.kind != FV_STRING) wrong_kind(k, a, name, "a text", v);
    break;
  case IR_KIND_FLOATS: wrong_kind(k, a, name, "left out", v); break;
  }
  if (v.kind != FV_NONE) add_attr(k, attr, a->value);
}

static void take_name(op_call *k, const ast_arg *a) {
  front_value v = front_eval(k->e, a->value);
  if (v.kind != FV_STRING)
    wrong_kind(k, a, "name", "a text", v);
  else if (!lower_check_name(k->l, v.u.s, "a name", a->value->span))
    k->bad = true;
  else
    k->name = v.u.s, k->name_span = a->value->span;
}

static void take_style(op_call *k, const ast_arg *a) {
  front_value v = front_eval(k->e, a->value);
  if (v.kind != FV_STRING) {
    wrong_kind(k, a, "style", "a text", v);
    return;
  }
  bool interleaved = strcmp(v.u.s, "interleaved") == 0;
  if (!interleaved && strcmp(v.u.s, "half") != 0) {
    lower_error(k->l, DC_FRONT_RANGE, a->value->span,
                "unknown style '%s'; \"half\" pairs dimensions i and i + dims/2, \"interleaved\" 2i and 2i + 1", v.u.s);
    k->bad = true;
  }
  if (interleaved) add_attr(k, (ir_attr){IR_ATTR_INTERLEAVED, {.i = 1}}, a->value);
}

static void take_causal(op_call *k, const ast_arg *a) {
  front_value v = front_eval(k->e, a->value);
  if (v.kind != FV_BOOL)
    wrong_kind(k, a, "causal", "true", v);
  else if (!v.u.b)
    lower_error(k->l, DC_FRONT_NOT_BUILT, a->value->span,
                "attention that sees later tokens (causal = false) is not built yet");
}

static const struct {
  const char *form, *name;
  ir_attr_key key;
} scaling_rows[] = {{"linear", "factor", IR_ATTR_SCALING_FACTOR},
                    {"llama3", "factor", IR_ATTR_SCALING_FACTOR},
                    {"llama3", "low", IR_ATTR_SCALING_LOW},
                    {"llama3", "high", IR_ATTR_SCALING_HIGH},
                    {"llama3", "original", IR_ATTR_SCALING_ORIGINAL}};
enum { SCALING_COUNT = sizeof scaling_rows / sizeof scaling_rows[0] };

static void take_scaling_arg(op_call *k, const char *form, const ast_arg *a) {
  for (size_t i = 0; i < SCALING_COUNT; i++) {
    if (strcmp(scaling_rows[i].form, form) != 0 || !a->name.text || strcmp(scaling_rows[i].name, a->name.text) != 0)
      continue;
    if (k->attr_sources[scaling_rows[i].key]) {
      lower_error(k->l, DC_FRONT_DUPLICATE_ARGUMENT, a->name.span, "argument '%s' of '%s' is given twice", a->name.text,
                  form);
      k->bad = true;
      return;
    }
    ast_arg attr = *a;
    attr.index = scaling_rows[i].key;
    take_attr(k, &attr);
    return;
  }
  lower_error(k->l, DC_FRONT_UNKNOWN_ARGUMENT, a->name.text ? a->name.span : a->value->span,
              "scaling is linear(factor = F) or llama3(factor = F, low = L, high = H, original = N)");
  k->bad = true;
}

static void take_scaling(op_call *k, const ast_arg *a) {
  const ast_expr *x = a->value;
  const char *form = x->kind == AST_CALL ? x->u.call.id.text : "";
  bool known = false;
  for (size_t i = 0; i < SCALING_COUNT; i++) known |= strcmp(scaling_rows[i].form, form) == 0;
  if (!known) {
    lower_error(k->l, DC_FRONT_UNKNOWN_ARGUMENT, x->span,
                "scaling is linear(factor = F) or llama3(factor = F, low = L, high = H, original = N)");
    k->bad = true;
    return;
  }
  for (const ast_arg *i = x->u.call.args->first; i; i = i->next) take_scaling_arg(k, form, i);
  for (size_t i = 0; i < SCALING_COUNT && !k->bad; i++) {
    if (strcmp(scaling_rows[i].form, form) != 0 || k->attr_sources[scaling_rows[i].key]) continue;
    lower_error(k->l, DC_FRONT_MISSING_ARGUMENT, x->span, "'%s' needs argument '%s'", form, scaling_rows[i].name);
    k->bad = true;
  }
  add_attr(k, (ir_attr){IR_ATTR_SCALING, {.s = form}}, x);
}

static void take_argument(op_call *k, const ast_arg *a) {
  switch (a->role) {
  case ROLE_OPERAND: take_operand(k, a); break;
  case ROLE_ATTR: take_attr(k, a); break;
  case ROLE_OUT:
    k->bad |= !front_eval_int(k->e, a->value, "'out'", 1, FRONT_MAX_DIM, &k->out);
    k->out_source = a->value;
    break;
  case ROLE_NAME: take_name(k, a); break;
  case ROLE_INIT: k->bad |= !(k->init = front_eval_init(k->e, a->value)); break;
  case ROLE_STYLE: take_style(k, a); break;
  case ROLE_SCALING: take_scaling(k, a); break;
  case ROLE_CAUSAL: take_causal(k, a); break;
  case ROLE_BLOCK_ARG:
  case ROLE_VALUE:
  case ROLE_NONE: break;
  }
}

/* ---- weights ---- */

/* The shape of a parameter by its letters: d, the width of the first operand; o, `out`; 1. */
static bool param_dims(op_call *k, const ir_operand_spec *spec, int64_t *dims, uint32_t *out_rank) {
  ir_type x = ir_type_of(k->l->m, k->values[0].u.tensor);
  int64_t width = x.rank ? x.dim[x.rank - 1] : 0, out = k->out;
  size_t weight = 0; /* a weight that was passed says how wide the result is */
  while (weight < k->spec_count && !(k->specs[weight].is_param && strlen(k->specs[weight].shape) == 2)) weight++;
  if (!out && weight < k->count && k->values[weight].kind == FV_TENSOR)
    out = ir_type_of(k->l->m, k->values[weight].u.tensor).dim[0];
  *out_rank = 0;
  for (const char *letter = spec->shape; *letter; letter++)
    dims[(*out_rank)++] = *letter == 'd' ? width : *letter == 'o' ? out : 1;
  for (uint32_t i = 0; i < *out_rank; i++) {
    if (dims[i] > 0) continue;
    bool no_width = x.dtype != IR_F32 || width < 1;
    text t = {0};
    ir_print_type(&t, x);
    if (no_width)
      lower_error(k->l, DC_FRONT_SHAPE, k->sources[0]->span, "'%s': argument '%s' must end in a known width, but is %s",
                  k->what, k->specs[0].name, t.data ? t.data : "");
    else
      lower_error(k->l, DC_FRONT_MISSING_ARGUMENT, k->x->span, "'%s' needs argument 'out', the width of its result",
                  k->what);
    text_free(&t);
    return false;
  }
  return true;
}

static const char *init_of(op_call *k, const ir_operand_spec *spec, front_value v) {
  if (strcmp(spec->init, "normal") == 0) return k->init ? k->init : "normal(0.02)";
  if (!front_is_number(v)) return spec->init;
  text t = {0};
  text_put_double(&t, front_number(v));
  const char *s = arena_strdup(k->l->c->memory, t.data ? t.data : "");
  text_free(&t);
  return s;
}

/* `weight = false`: fixed at what it starts from, no weight of the model. */
static ir_value fixed_param(op_call *k, const ir_operand_spec *spec, size_t i, const int64_t *dims, uint32_t rank) {
  double value = strcmp(spec->init, "ones") == 0;
  if (rank == 1 &&
      (strcmp(spec->init, "zeros") == 0 || value == 1 || number_parse_double(spec->init, strlen(spec->init), &value)))
    return lower_splat(k->l, dims[0], value);
  lower_error(k->l, DC_FRONT_KIND, k->sources[i]->span, "'%s' cannot do without '%s'", k->what, spec->name);
  return IR_NONE;
}

static ir_value passed_param(op_call *k, const ir_operand_spec *spec, size_t i) {
  ir_value v = k->values[i].u.tensor;
  if (ir_is(k->l->m, v, IR_CONST) || ir_is(k->l->m, v, IR_PARAM)) return v;
  lower_error(k->l, DC_FRONT_NOT_A_WEIGHT, k->sources[i]->span,
              "'%s': argument '%s' must be a declared param, not a computed tensor", k->what, spec->name);
  return IR_NONE;
}

static ir_value param_operand(op_call *k, size_t i) {
  const ir_operand_spec *spec = &k->specs[i];
  front_value v = k->values[i];
  if (v.kind == FV_TENSOR) return passed_param(k, spec, i);
  if (spec->optional && (v.kind == FV_NONE || (v.kind == FV_BOOL && !v.u.b))) return IR_NONE;
  int64_t dims[IR_MAX_RANK];
  uint32_t rank;
  if (!param_dims(k, spec, dims, &rank)) return IR_NONE;
  if (v.kind == FV_BOOL && !v.u.b) return fixed_param(k, spec, i, dims, rank);
  if (!k->name) {
    lower_error(k->l, DC_FRONT_UNNAMED, k->x->span, "'%s' makes the weight '%s' and needs a name; add name = \"...\"",
                k->what, spec->name);
    return IR_NONE;
  }
  return lower_weight(k->l, arena_printf(k->l->c->memory, "%s.%s", lower_name(k->l, k->name), spec->name), rank, dims,
                      init_of(k, spec, v), k->name_span);
}

/* A passed weight and `out` must agree. */
static void check_out(op_call *k, const ir_value *operands) {
  for (size_t i = 0; i < k->spec_count && i < k->count && k->out; i++) {
    if (!k->specs[i].is_param || strlen(k->specs[i].shape) != 2 || k->values[i].kind != FV_TENSOR || !operands[i].id)
      continue;
    ir_type t = ir_type_of(k->l->m, operands[i]);
    if (t.rank < 1 || t.dim[0] == k->out) continue;
    lower_error(k->l, DC_FRONT_SHAPE, k->out_source->span, "'out' is %lld, but the weight has %lld rows",
                (long long)k->out, (long long)t.dim[0]);
    k->bad = true;
  }
}

/* ---- operands and the op ---- */

static ir_value operand(op_call *k, size_t i) {
  size_t at = i < k->spec_count ? i : k->spec_count - 1;
  const ir_operand_spec *spec = &k->specs[at];
  if (spec->is_positions) return k->op == IR_POSITIONS ? k->l->pos : lower_positions(k->l);
  if (spec->is_gate) return lower_gate_element(k->l, k->values[i], k->sources[i]->span);
  if (spec->is_param) return param_operand(k, i);
  return front_is_number(k->values[i]) ? lower_splat(k->l, 1, front_number(k->values[i])) : k->values[i].u.tensor;
}

static void add_defaults(op_call *k) {
  for (unsigned key = 0; key < IR_ATTR_COUNT; key++) {
    double v;
    if (!ir_op_accepts(k->op, (ir_attr_key)key, NULL) || k->attr_sources[key] ||
        !front_attr_default(k->op, (ir_attr_key)key, &v))
      continue;
    k->attrs[k->attr_count++] = (ir_attr){(ir_attr_key)key, {.f = v}};
  }
}

/* The op's name for people: its own, else that of the weight it was given, else what it is. */
static const char *display_name(op_call *k) {
  if (k->name) return lower_name(k->l, k->name);
  for (size_t i = 0; i < k->count && i < k->spec_count; i++)
    if (k->specs[i].is_param && k->values[i].kind == FV_TENSOR && ir_name_of(k->l->m, k->values[i].u.tensor))
      return ir_name_of(k->l->m, k->values[i].u.tensor);
  return lower_name(k->l, k->what);
}

static front_value finish(op_call *k) {
  size_t n = k->count > k->spec_count ? k->count : k->spec_count;
  ir_value *operands = ARENA_ARRAY(k->l->c->memory, ir_value, n + 1), result;
  size_t errors = diag_error_count(k->l->c->sink);
  k->l->body.loc = source_loc(k->l->c->source, k->x->span);
  for (size_t i = 0; i < n; i++) operands[i] = operand(k, i);
  check_out(k, operands);
  add_defaults(k);
  while (n && !operands[n - 1].id) n--;
  if (k->bad || k->l->aborted || diag_error_count(k->l->c->sink) != errors) return (front_value){0};
  text message = {0};
  ir_type type;
  if (!ir_infer(k->l->m, k->op, operands, n, k->attrs, k->attr_count, &type, &message)) {
    lower_infer_error(k->l, message.data ? message.data : "", k->what, k->sources, k->count, k->attr_sources,
                      k->x->span);
    text_free(&message);
    return (front_value){0};
  }
  if (!lower_tick(k->l, true, k->x->span)) return (front_value){0};
  result = k->op == IR_POSITIONS && ir_same(operands[0], k->l->tokens)
               ? lower_positions(k->l)
               : lower_build(k->l, k->op, display_name(k), operands, n, k->attrs, k->attr_count, k->x->span);
  return (front_value){FV_TENSOR, {.tensor = result}};
}

/* Ops that are functions of constants too: sqrt(64). */
static bool constant_call(op_call *k, front_value *out) {
  uint32_t f;
  if (!front_function_find(k->what, &f) || k->count != 1 || !front_is_number(k->values[0])) return false;
  diag_code code = DC_FRONT_KIND;
  const char *why = front_const_function(f, k->values, 1, out, &code);
  if (why) lower_error(k->l, code, k->x->span, "%s", why);
  return true;
}

front_value lower_op(lowering *l, front_env *e, const ast_expr *x) {
  op_call *k = ARENA_NEW(l->c->memory, op_call);
  front_value result = {0};
  k->l = l, k->e = e, k->x = x, k->op = x->u.call.op;
  k->what = x->u.call.id.text;
  k->spec_count = ir_op_operands(k->op, &k->specs);
  k->values = ARENA_ARRAY(l->c->memory, front_value, k->spec_count + x->u.call.args->count);
  k->sources = ARENA_ARRAY(l->c->memory, const ast_expr *, k->spec_count + x->u.call.args->count);
  for (const ast_arg *a = x->u.call.args->first; a; a = a->next) take_argument(k, a);
  if (k->bad || constant_call(k, &result)) return result;
  return finish(k);
}

void lower_infer_error(lowering *l, const char *message, const char *what, const ast_expr *const *operands, size_t n,
                       const ast_expr *const *attrs, ast_span whole) {
  static const char operand_word[] = "operand ", attr_word[] = "attribute '";
  const ast_expr *at = NULL;
  const char *rest = message, *quote = strchr(message, '\'');
  if (strncmp(message, operand_word, sizeof operand_word - 1) == 0) {
    size_t i = strtoul(message + sizeof operand_word - 1, NULL, 10);
    at = i < n ? operands[i] : NULL;
    rest = quote ? arena_printf(l->c->memory, "argument %s", quote) : message;
  } else if (attrs && strncmp(message, attr_word, sizeof attr_word - 1) == 0) {
    for (unsigned key = 0; key < IR_ATTR_COUNT; key++) {
      const char *name = ir_attr_name((ir_attr_key)key);
      size_t size = strlen(name);
      if (strncmp(quote + 1, name, size) == 0 && quote[1 + size] == '\'') at = attrs[key];
    }
    rest = arena_printf(l->c->memory, "argument %s", quote);
  }
  lower_error(l, DC_FRONT_SHAPE, at ? at->span : whole, "'%s': %s", what, rest);
  const ast_symbol *s = at && at->kind == AST_NAME ? at->u.name.symbol : NULL;
  if (s && (s->kind == SYM_TENSOR || s->kind == SYM_LOCAL || s->kind == SYM_MODEL_PARAM))
    front_note(l->c, s->id.span, "'%s' is declared here", s->id.text);
}

/* ---- operators ---- */

front_value lower_operation(lowering *l, const ast_expr *x, front_value a, front_value b) {
  static const struct {
    ast_operator from;
    ir_opcode to;
  } rows[] = {
      {AST_OP_ADD, IR_ADD}, {AST_OP_SUB, IR_SUB}, {AST_OP_MUL, IR_MUL}, {AST_OP_DIV, IR_DIV}, {AST_OP_NEG, IR_NEG}};
  ir_opcode op = IR_OP_NONE;
  const char *sign = ast_operator_text(x->u.operation.op);
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
    if (rows[i].from == x->u.operation.op) op = rows[i].to;
  const ast_expr *sources[] = {x->u.operation.a, x->u.operation.b};
  front_value values[] = {a, b}, nothing = {0};
  size_t n = x->u.operation.b ? 2 : 1;
  ir_value operands[2] = {{0}, {0}};
  l->body.loc = source_loc(l->c->source, x->span);
  for (size_t i = 0; i < n; i++) {
    bool fits = op != IR_OP_NONE && (values[i].kind == FV_TENSOR || front_is_number(values[i]));
    if (!fits && op == IR_OP_NONE)
      lower_error(l, DC_FRONT_KIND, x->span, "'%s' works on constants, not on tensors", sign);
    else if (!fits)
      lower_error(l, DC_FRONT_KIND, sources[i]->span, "'%s' cannot join a tensor and %s", sign,
                  front_kind_text(values[i].kind));
    if (!fits) return nothing;
    operands[i] = values[i].kind == FV_TENSOR ? values[i].u.tensor : lower_splat(l, 1, front_number(values[i]));
  }
  text message = {0};
  ir_type type;
  bool good = ir_infer(l->m, op, operands, n, NULL, 0, &type, &message);
  if (!good) lower_infer_error(l, message.data ? message.data : "", sign, sources, n, NULL, x->span);
  text_free(&message);
  if (!good || !lower_tick(l, true, x->span)) return nothing;
  return (front_value){FV_TENSOR,
                       {.tensor = lower_build(l, op, lower_name(l, ir_op_name(op)), operands, n, NULL, 0, x->span)}};
}
