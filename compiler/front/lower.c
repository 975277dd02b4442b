/* lower.c - runs the model's statements at compile time: repeats are unrolled, blocks inlined, ifs decided; what is
 * left are ops. */
#include "compiler/front/lower_priv.h"

#include <string.h>

typedef enum flow { FLOW_NEXT, FLOW_RETURN, FLOW_ABORT } flow;

void lower_error(lowering *l, diag_code code, ast_span span, const char *format, ...) {
  if (l->aborted) return;
  va_list args;
  va_start(args, format);
  front_error(l->c, code, span, "%s", arena_vprintf(l->c->memory, format, args));
  va_end(args);
  const lower_site *s = l->site;
  for (int i = 0; s && i < 3; i++, s = s->outer) front_note(l->c, s->span, "%s", s->text);
}

bool lower_tick(lowering *l, bool op, ast_span span) {
  if (l->aborted) return false;
  l->steps++;
  l->ops += op;
  if (l->steps <= FRONT_MAX_STEPS && l->ops <= FRONT_MAX_OPS) return true;
  if (l->ops > FRONT_MAX_OPS)
    lower_error(l, DC_FRONT_TOO_LARGE, span, "the model lowers to more than %d ops", FRONT_MAX_OPS);
  else
    lower_error(l, DC_FRONT_TOO_LARGE, span, "the model takes more than %d statements and calls to lower",
                FRONT_MAX_STEPS);
  l->aborted = true;
  return false;
}

/* ---- names of weights ---- */

bool lower_check_name(lowering *l, const char *name, const char *what, ast_span span) {
  static const char good[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-.";
  size_t n = strlen(name);
  if (n && name[strspn(name, good)] == 0 && name[0] != '.' && name[n - 1] != '.' && !strstr(name, "..")) return true;
  lower_error(l, DC_FRONT_WEIGHT_NAME, span,
              "'%s' cannot be %s; use letters, digits, '_', '-' and single dots between them", name, what);
  return false;
}

void lower_pop(lowering *l, size_t length) {
  l->path.size = length;
  if (l->path.data) l->path.data[length] = 0;
}

bool lower_push(lowering *l, const char *name, int64_t index, ast_span span, size_t *out_before) {
  *out_before = l->path.size;
  if (index < 0)
    text_printf(&l->path, "%s.", name);
  else
    text_printf(&l->path, "%s.%lld.", name, (long long)index);
  if (l->path.size < AST_MAX_NAME) return true;
  lower_error(l, DC_FRONT_WEIGHT_NAME, span, "the names of weights get longer than %d bytes here", AST_MAX_NAME);
  lower_pop(l, *out_before);
  return false;
}

const char *lower_name(lowering *l, const char *name) {
  return arena_printf(l->c->memory, "%s%s", l->path.size ? l->path.data : "", name);
}

/* ---- statements ---- */

static flow run_body(lowering *l, front_env *e, const ast_body *body, front_value *out);

static void run_assign(lowering *l, front_env *e, const ast_stmt *s) {
  front_value *to = &e->frame[s->symbol->slot], v = front_eval(e, s->value);
  if (to->kind != FV_NONE && to->kind != FV_TENSOR) {
    lower_error(l, DC_FRONT_ASSIGN, s->id.span, "'%s' is %s; only tensors can be assigned to", s->id.text,
                front_kind_text(to->kind));
    front_note(l->c, s->symbol->id.span, "'%s' is declared here", s->id.text);
    return;
  }
  if (v.kind != FV_NONE && v.kind != FV_TENSOR) {
    lower_error(l, DC_FRONT_KIND, s->value->span, "'%s' is a tensor; it cannot become %s", s->id.text,
                front_kind_text(v.kind));
    v.kind = FV_NONE;
  }
  *to = v;
}

static void probe(lowering *l, front_value *v, ast_span span) {
  if (v->kind != FV_TENSOR || !lower_tick(l, true, span)) return;
  const char *name = arena_printf(l->c->memory, "layers.%u", l->probes++);
  ir_attr attr = {IR_ATTR_NAME, {.s = name}};
  v->u.tensor = lower_build(l, IR_PROBE, name, &v->u.tensor, 1, &attr, 1, span);
}

static flow run_repeat(lowering *l, front_env *e, const ast_stmt *s, front_value *out) {
  int64_t count;
  const char *label = s->label->u.string;
  ast_span head = {s->span.begin, s->label->span.end};
  if (!front_eval_int(e, s->value, "the count of a repeat", 0, FRONT_MAX_REPEAT, &count)) return FLOW_NEXT;
  if (!lower_check_name(l, label, "a label", s->label->span)) return FLOW_NEXT;
  front_value *carried = s->carried ? &e->frame[s->carried->slot] : NULL;
  size_t errors = diag_error_count(l->c->sink);
  flow f = FLOW_NEXT;
  if (carried && l->probes == 0) probe(l, carried, head);
  for (int64_t i = 0; i < count && f == FLOW_NEXT && diag_error_count(l->c->sink) == errors; i++) {
    if (!lower_tick(l, false, s->span)) return FLOW_ABORT;
    lower_site site = {i ? arena_printf(l->c->memory, "in '%s.%lld'", label, (long long)i)
                         : "in the first round of this repeat",
                       head, l->site};
    size_t length;
    if (!lower_push(l, label, i, s->label->span, &length)) break;
    l->site = &site;
    if (s->symbol && e->frame) e->frame[s->symbol->slot] = (front_value){FV_INT, {.i = i}};
    f = run_body(l, e, s->body, out);
    l->site = site.outer;
    lower_pop(l, length);
    if (carried && f == FLOW_NEXT) probe(l, carried, head);
  }
  return f;
}

static flow run_if(lowering *l, front_env *e, const ast_stmt *s, front_value *out) {
  front_value v = front_eval(e, s->value);
  if (v.kind == FV_NONE) return FLOW_NEXT;
  if (v.kind != FV_BOOL) {
    lower_error(l, DC_FRONT_KIND, s->value->span, "a condition is true or false, not %s; compare it with something",
                front_kind_text(v.kind));
    return FLOW_NEXT;
  }
  const ast_body *taken = v.u.b ? s->body : s->otherwise;
  return taken ? run_body(l, e, taken, out) : FLOW_NEXT;
}

static flow run_stmt(lowering *l, front_env *e, const ast_stmt *s, front_value *out) {
  switch (s->kind) {
  case STMT_LET: e->frame[s->symbol->slot] = front_eval(e, s->value); break;
  case STMT_ASSIGN: run_assign(l, e, s); break;
  case STMT_REPEAT: return run_repeat(l, e, s, out);
  case STMT_IF: return run_if(l, e, s, out);
  case STMT_RETURN:
    *out = front_eval(e, s->value);
    l->return_span = s->value->span;
    return FLOW_RETURN;
  case STMT_BAD: break;
  }
  return FLOW_NEXT;
}

static flow run_body(lowering *l, front_env *e, const ast_body *body, front_value *out) {
  flow f = FLOW_NEXT;
  e->depth++; /* front_eval looks at it */
  for (const ast_stmt *s = body->first; s && f == FLOW_NEXT; s = s->next)
    f = lower_tick(l, false, s->span) ? run_stmt(l, e, s, out) : FLOW_ABORT;
  e->depth--;
  return f;
}

/* Runs the body of a block or of forward; FV_NONE: reported. */
static front_value run_block(lowering *l, front_env *e, const ast_symbol *symbol) {
  front_value result = {0};
  size_t errors = diag_error_count(l->c->sink);
  const ast_body *body = symbol->block->body;
  flow f = run_body(l, e, body, &result);
  if (f == FLOW_NEXT && diag_error_count(l->c->sink) == errors)
    lower_error(l, DC_FRONT_RETURN, (ast_span){body->span.end - 1, body->span.end}, "'%s' ends without a return",
                symbol->id.text);
  if (result.kind != FV_NONE && result.kind != FV_TENSOR) {
    lower_error(l, DC_FRONT_KIND, l->return_span, "'%s' must return a tensor, not %s", symbol->id.text,
                front_kind_text(result.kind));
    result.kind = FV_NONE;
  }
  return result;
}

/* ---- calls ---- */

static front_value call_block(lowering *l, front_env *e, const ast_expr *x) {
  const ast_symbol *symbol = x->u.call.block;
  ast_block *block = symbol->block;
  front_env inner = {.ctx = e->ctx, .params = e->params, .lower = l, .depth = e->depth};
  const char *prefix = NULL;
  bool bad = block->failed;
  arena frame_memory = {0};
  inner.frame = ARENA_ARRAY(&frame_memory, front_value, block->slot_count + 1);
  for (const ast_arg *a = x->u.call.args->first; a; a = a->next) {
    front_value v = front_eval(e, a->value);
    bad |= v.kind == FV_NONE;
    if (a->role == ROLE_BLOCK_ARG) inner.frame[a->index] = v;
    if (a->role != ROLE_NAME || v.kind == FV_NONE) continue;
    if (v.kind == FV_STRING)
      prefix = v.u.s;
    else
      lower_error(l, DC_FRONT_KIND, a->value->span, "a name is a text, not %s", front_kind_text(v.kind));
    bad |= v.kind != FV_STRING || !lower_check_name(l, v.u.s, "a name", a->value->span);
  }
  front_value result = {0};
  size_t length = l->path.size;
  if (!bad && lower_tick(l, false, x->span) && (!prefix || lower_push(l, prefix, -1, x->span, &length))) {
    size_t errors = diag_error_count(l->c->sink);
    lower_site site = {arena_printf(l->c->memory, "in the call of '%s' here", symbol->id.text), x->span, l->site};
    l->site = &site;
    result = run_block(l, &inner, symbol);
    l->site = site.outer;
    lower_pop(l, length);
    block->failed = diag_error_count(l->c->sink) != errors;
  }
  arena_free(&frame_memory);
  return result;
}

front_value lower_call(lowering *l, front_env *e, const ast_expr *x) {
  return x->u.call.target == TARGET_BLOCK ? call_block(l, e, x) : lower_op(l, e, x);
}

/* ---- the module ---- */

static ir_value add_argument(lowering *l, const char *name, uint32_t rank) {
  ir_attr attr = {IR_ATTR_NAME, {.s = name}};
  l->body.loc = source_loc(l->c->source, l->c->model->forward->id.span);
  l->body.name = NULL;
  return ir_build_typed(&l->body, IR_ARG, ir_type_make(IR_I32, rank, (int64_t[]){IR_DIM_B, IR_DIM_T}), &attr, 1);
}

static void check_result(lowering *l, front_value v) {
  double vocab = 0;
  ir_module_param(l->m, "vocab", &vocab);
  ir_type want = ir_type_make(IR_F32, 3, (int64_t[]){IR_DIM_B, IR_DIM_T, (int64_t)vocab}),
          found = ir_type_of(l->m, v.u.tensor);
  if (ir_type_equal(want, found)) return;
  text t = {0};
  text_puts(&t, "forward returns ");
  ir_print_type(&t, found);
  text_puts(&t, "; logits are ");
  ir_print_type(&t, want);
  lower_error(l, DC_FRONT_RESULT, l->return_span, "%s", t.data ? t.data : "");
  text_free(&t);
}

static void run_forward(lowering *l) {
  const ast_symbol *forward = l->c->model->forward;
  ir_region entry = ir_entry_add(l->m, "forward");
  l->body = (ir_builder){.m = l->m, .region = entry};
  l->globals = (ir_builder){.m = l->m, .region = IR_GLOBALS};
  l->tokens = add_argument(l, "tokens", 2);
  l->pos = add_argument(l, "pos", 1);
  l->len = add_argument(l, "len", 1);
  l->env.frame = ARENA_ARRAY(l->c->memory, front_value, forward->block->slot_count + 1);
  l->env.frame[0] = (front_value){FV_TENSOR, {.tensor = l->tokens}};
  front_value logits = run_block(l, &l->env, forward);
  if (logits.kind != FV_TENSOR) return;
  check_result(l, logits);
  lower_build(l, IR_RETURN, NULL, &logits.u.tensor, 1, NULL, 0, l->return_span);
}

static void lower_model(lowering *l) {
  const ast_model *model = l->c->model;
  l->params = ARENA_ARRAY(l->c->memory, front_value, model->param_count + 1);
  l->tensors = ARENA_ARRAY(l->c->memory, ir_value, model->tensor_count + 1);
  l->tensor_failed = ARENA_ARRAY(l->c->memory, bool, model->tensor_count + 1);
  l->env = (front_env){.ctx = l->c, .params = l->params, .lower = l};
  if (!front_params(l->c, l->options, false, l->params)) return;
  for (const ast_symbol *s = model->symbols; s; s = s->next) {
    if (s->block) s->block->failed = false;
    if (s->kind == SYM_MODEL_PARAM) ir_module_set_param(l->m, s->id.text, front_number(l->params[s->slot]));
  }
  if (lower_gates(l)) run_forward(l);
}

ir_module *front_lower(const front_model *f, const front_options *options, diag_sink *sink) {
  static const front_options none = {0};
  arena scratch = {0};
  ast_model model = f->model;
  front_ctx c = {&scratch, &f->source, &model, sink};
  lowering l = {.c = &c, .options = options ? options : &none, .m = ir_module_new(f->model.id.text)};
  size_t errors = diag_error_count(sink);
  lower_model(&l);
  ir_module *m = l.m;
  if (diag_error_count(sink) != errors) {
    ir_module_free(m);
    m = NULL;
  }
  names_free(&l.weights);
  text_free(&l.path);
  arena_free(&scratch);
  return m;
}
