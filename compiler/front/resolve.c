/* resolve.c - what every name means; what is declared twice, hidden, unused, unreachable or recursive. */
#include "compiler/front/front_priv.h"

#include <string.h>

typedef struct resolver {
  const front_ctx *c;
  name_table names;
  ast_block *block; /* whose body is being resolved; NULL: none */
  bool in_forward;
  uint32_t repeats;   /* around this statement */
  ast_symbol **fresh; /* where the variable goes that the open top-level repeat carries */
  uint32_t outer_slots;
  uint32_t warnings; /* the first MAX_WARNINGS are told */
} resolver;

enum { MAX_WARNINGS = 50 };

enum {
  KINDS_VALUE = 1 << SYM_MODEL_PARAM | 1 << SYM_GATE | 1 << SYM_TENSOR | 1 << SYM_ARG | 1 << SYM_LOCAL | 1 << SYM_INDEX
};

static const char *const kind_names[] = {"parameter", "gate",     "param",    "block",
                                         "forward",   "argument", "variable", "index"};

static bool add_symbol(resolver *r, ast_symbol *s) {
  bool here;
  ast_symbol *old = names_find(&r->names, s->id.text, &here);
  if (old && here) {
    front_error(r->c, DC_FRONT_DUPLICATE, s->id.span, "'%s' is declared twice", s->id.text);
    front_note(r->c, old->id.span, "the first '%s' is this %s", s->id.text, kind_names[old->kind]);
    old->used = true;
    return false;
  }
  if (old && s->kind != SYM_ARG && r->warnings < MAX_WARNINGS &&
      (old->kind == SYM_LOCAL || old->kind == SYM_ARG || old->kind == SYM_INDEX)) {
    r->warnings++;
    front_error(r->c, DC_FRONT_SHADOWS, s->id.span, "'%s' hides the %s of an outer scope%s", s->id.text,
                kind_names[old->kind], s->kind == SYM_LOCAL ? "; to change that one leave 'let' out" : "");
    front_note(r->c, old->id.span, "the hidden '%s' is here", s->id.text);
  }
  names_add(&r->names, s);
  return true;
}

static void warn_unused(resolver *r, const ast_symbol *s) {
  if (s->used || s->id.text[0] == '_') return;
  if (s->kind == SYM_TENSOR)
    front_error(r->c, DC_FRONT_UNUSED_PARAM, s->id.span, "param '%s' is never used; remove it, or pass it to an op",
                s->id.text);
  else if (r->warnings++ < MAX_WARNINGS)
    front_error(r->c, DC_FRONT_UNUSED, s->id.span, "%s '%s' is never used", kind_names[s->kind], s->id.text);
}

static void pop_scope(resolver *r) {
  for (uint32_t i = r->names.count; i-- > 0 && r->names.entries[i].scope == r->names.scope;)
    warn_unused(r, r->names.entries[i].symbol);
  names_pop(&r->names);
}

static void resolve_expr(resolver *r, ast_expr *x);

/* The note below a "did you mean"; what was meant is not called unused as well. */
static void declared_here(resolver *r, const char *best) {
  ast_symbol *near = best ? names_find(&r->names, best, NULL) : NULL;
  if (!near) return;
  near->used = true;
  front_note(r->c, near->id.span, "'%s' is declared here", near->id.text);
}

static void unknown_name(resolver *r, ast_id id) {
  suggestion s = suggest(id.text);
  if (front_suggests(r->c)) suggest_names(&s, &r->names, KINDS_VALUE);
  front_error(r->c, DC_FRONT_UNKNOWN_NAME, id.span, "unknown name '%s'%s", id.text, suggest_text(&s, r->c->memory));
  declared_here(r, s.best);
}

static void resolve_name(resolver *r, ast_expr *x) {
  ast_symbol *s = names_find(&r->names, x->u.name.id.text, NULL);
  if (x->kind == AST_INDEX) resolve_expr(r, x->u.name.index);
  if (s && s->kind != SYM_BLOCK) {
    s->used = true;
    x->u.name.symbol = s;
    return;
  }
  if (s)
    front_error(r->c, DC_FRONT_KIND, x->span, "'%s' is a block; call it: %s(...)", s->id.text, s->id.text),
        s->used = true;
  else
    unknown_name(r, x->u.name.id);
  x->kind = AST_BAD;
}

static void unknown_call(resolver *r, ast_expr *x) {
  suggestion s = suggest(x->u.call.id.text);
  if (front_suggests(r->c)) {
    suggest_names(&s, &r->names, 1 << SYM_BLOCK);
    for (unsigned op = 1; op < IR_OP_COUNT; op++)
      if (!ir_op_has((ir_opcode)op, OPF_INTERNAL) && !ir_op_has((ir_opcode)op, OPF_TRAIN))
        suggest_try(&s, ir_op_name((ir_opcode)op));
    for (uint32_t f = 0; f < front_function_count(); f++) suggest_try(&s, front_function_name(f, NULL, NULL));
  }
  front_error(r->c, DC_FRONT_UNKNOWN_CALL, x->u.call.id.span, "'%s' is no op, block or function%s", x->u.call.id.text,
              suggest_text(&s, r->c->memory));
  declared_here(r, s.best);
  x->kind = AST_BAD;
}

/* An initial value: a word or a call that only front_eval_init knows, or a constant. */
static void resolve_init(resolver *r, ast_expr *x) {
  uint32_t f;
  bool word = x->kind == AST_NAME && !names_find(&r->names, x->u.name.id.text, NULL);
  bool form = x->kind == AST_CALL && !front_function_find(x->u.call.id.text, &f);
  if (!word && !form) resolve_expr(r, x);
  for (ast_arg *a = form ? x->u.call.args->first : NULL; a; a = a->next) resolve_expr(r, a->value);
}

static void resolve_argument(resolver *r, const ast_arg *a) {
  if (a->role == ROLE_INIT || (a->role == ROLE_SCALING && a->value->kind == AST_CALL))
    resolve_init(r, a->value);
  else
    resolve_expr(r, a->value);
}

static void resolve_block_call(resolver *r, ast_expr *x, ast_symbol *s) {
  x->u.call.target = TARGET_BLOCK;
  x->u.call.block = s;
  s->used = true;
  front_signature_block(r->c, x);
  if (!r->block) {
    front_error(r->c, DC_FRONT_KIND, x->span, "a constant is needed here; blocks are called in forward and in blocks");
    x->kind = AST_BAD;
    return;
  }
  ast_edge *e = ARENA_NEW(r->c->memory, ast_edge);
  *e = (ast_edge){s, x->span, r->block->calls};
  r->block->calls = e;
}

/* A block of the model wins over a function, a function of constants that is no op over an op. */
static void resolve_call(resolver *r, ast_expr *x) {
  const char *name = x->u.call.id.text;
  ast_symbol *s = names_find(&r->names, name, NULL);
  ir_opcode op = ir_op_find(name);
  bool callable = op != IR_OP_NONE && !ir_op_has(op, OPF_INTERNAL);
  if (s && s->kind == SYM_BLOCK) {
    resolve_block_call(r, x, s);
  } else if (callable && ir_op_has(op, OPF_TRAIN)) {
    front_error(r->c, DC_FRONT_UNKNOWN_CALL, x->u.call.id.span,
                "'%s' is a loss; the training program adds it, a model ends in logits", name);
    x->kind = AST_BAD;
  } else if (front_function_find(name, &x->u.call.function) && (!callable || !r->block)) {
    x->u.call.target = TARGET_FUNCTION;
    front_signature_function(r->c, x);
  } else if (callable) {
    x->u.call.target = TARGET_OP;
    x->u.call.op = op;
    front_signature_op(r->c, x);
  } else {
    unknown_call(r, x);
  }
  for (ast_arg *a = x->u.call.args->first; a; a = a->next) resolve_argument(r, a);
}

/* Depth is bounded by AST_MAX_NESTING. */
static void resolve_expr(resolver *r, ast_expr *x) {
  switch (x->kind) {
  case AST_NAME:
  case AST_INDEX: resolve_name(r, x); break;
  case AST_CALL: resolve_call(r, x); break;
  case AST_UNARY:
  case AST_BINARY:
    resolve_expr(r, x->u.operation.a);
    if (x->u.operation.b) resolve_expr(r, x->u.operation.b);
    break;
  case AST_TUPLE:
    front_error(r->c, DC_FRONT_KIND, x->span, "a tuple stands only in the train section");
    x->kind = AST_BAD;
    break;
  case AST_PERCENT:
    front_error(r->c, DC_FRONT_KIND, x->span, "a percentage stands only in the train section");
    x->kind = AST_BAD;
    break;
  case AST_BAD:
  case AST_INT:
  case AST_FLOAT:
  case AST_BOOL:
  case AST_STRING: break;
  }
}

/* ---- statements ---- */

static ast_symbol *new_variable(resolver *r, ast_symbol_kind kind, ast_id id, ast_expr *value) {
  ast_symbol *s = ARENA_NEW(r->c->memory, ast_symbol);
  *s = (ast_symbol){.kind = kind, .id = id, .slot = r->block->slot_count, .value = value};
  if (r->block->slot_count < FRONT_MAX_SLOTS)
    r->block->slot_count++;
  else if (kind != SYM_ARG)
    front_error(r->c, DC_FRONT_TOO_LARGE, id.span, "more than %d variables in one block", FRONT_MAX_SLOTS);
  add_symbol(r, s);
  return s;
}

static void resolve_assign(resolver *r, ast_stmt *s) {
  resolve_expr(r, s->value);
  ast_symbol *to = names_find(&r->names, s->id.text, NULL);
  if (!to) {
    suggestion near = suggest(s->id.text);
    if (front_suggests(r->c)) suggest_names(&near, &r->names, 1 << SYM_LOCAL | 1 << SYM_ARG);
    front_error(r->c, DC_FRONT_UNKNOWN_NAME, s->id.span, "unknown variable '%s'%s", s->id.text,
                near.best ? suggest_text(&near, r->c->memory) : "; declare it with 'let'");
    declared_here(r, near.best);
  } else if (to->kind != SYM_LOCAL && to->kind != SYM_ARG) {
    front_error(r->c, DC_FRONT_ASSIGN, s->id.span, "'%s' is a %s and cannot be assigned to", to->id.text,
                kind_names[to->kind]);
    front_note(r->c, to->id.span, "'%s' is declared here", to->id.text);
    to->used = true;
  } else {
    s->symbol = to;
    if (r->fresh && !*r->fresh && to->slot < r->outer_slots) *r->fresh = to;
  }
}

static void resolve_body(resolver *r, ast_body *body);

static void resolve_repeat(resolver *r, ast_stmt *s) {
  resolve_expr(r, s->value);
  ast_symbol **fresh = r->fresh;
  if (r->in_forward && r->repeats == 0) {
    r->fresh = &s->carried;
    r->outer_slots = r->block->slot_count;
  }
  r->repeats++;
  names_push(&r->names);
  if (s->id.text) s->symbol = new_variable(r, SYM_INDEX, s->id, NULL);
  resolve_body(r, s->body);
  pop_scope(r);
  r->repeats--;
  r->fresh = fresh;
}

static void resolve_scoped(resolver *r, ast_body *body) {
  if (!body) return;
  names_push(&r->names);
  resolve_body(r, body);
  pop_scope(r);
}

static void resolve_stmt(resolver *r, ast_stmt *s) {
  switch (s->kind) {
  case STMT_LET:
    resolve_expr(r, s->value);
    s->symbol = new_variable(r, SYM_LOCAL, s->id, s->value);
    break;
  case STMT_ASSIGN: resolve_assign(r, s); break;
  case STMT_REPEAT: resolve_repeat(r, s); break;
  case STMT_IF:
    resolve_expr(r, s->value);
    resolve_scoped(r, s->body);
    resolve_scoped(r, s->otherwise);
    break;
  case STMT_RETURN:
    resolve_expr(r, s->value);
    if (r->repeats)
      front_error(r->c, DC_FRONT_RETURN, s->span,
                  "return cannot stand in a repeat; assign to a variable and return that");
    break;
  case STMT_BAD: break;
  }
}

static void resolve_body(resolver *r, ast_body *body) {
  for (ast_stmt *s = body->first; s; s = s->next) {
    resolve_stmt(r, s);
    if (s->kind != STMT_RETURN || !s->next) continue;
    front_error(r->c, DC_FRONT_UNREACHABLE, s->next->span, "this statement is never reached");
    front_note(r->c, s->span, "the block ends here");
    break;
  }
}

static void resolve_block(resolver *r, ast_symbol *symbol) {
  r->block = symbol->block;
  r->in_forward = symbol->kind == SYM_FORWARD;
  names_push(&r->names);
  for (ast_symbol *a = r->block->args; a; a = a->next) add_symbol(r, a);
  resolve_body(r, r->block->body);
  pop_scope(r);
  r->block = NULL;
}

/* ---- the model ---- */

/* Blocks below `s`, itself included. A ring is reported where it closes. */
static uint32_t call_depth(const front_ctx *c, ast_symbol *s, uint32_t level, bool *too_deep) {
  ast_block *b = s->block;
  if (b->call_depth) return b->call_depth;
  b->visiting = true;
  b->call_depth = 1;
  for (ast_edge *e = b->calls; e; e = e->next) {
    if (level >= AST_MAX_NESTING) {
      if (!*too_deep)
        front_error(c, DC_FRONT_NESTING, e->span, "blocks call each other deeper than %d", AST_MAX_NESTING);
      *too_deep = true;
      break;
    }
    if (e->callee->block->visiting) {
      front_error(c, DC_FRONT_RECURSION, e->span, "block '%s' calls itself%s", e->callee->id.text,
                  e->callee == s ? "" : " through others");
      front_note(c, e->callee->id.span, "'%s' is declared here; use repeat for a fixed number of times",
                 e->callee->id.text);
      continue;
    }
    uint32_t below = call_depth(c, e->callee, level + 1, too_deep);
    if (below + 1 > b->call_depth) b->call_depth = below + 1;
  }
  b->visiting = false;
  return b->call_depth;
}

static void check_required(const front_ctx *c, const char *name, const char *what) {
  for (const ast_symbol *s = c->model->symbols; s; s = s->next)
    if (s->kind == SYM_MODEL_PARAM && strcmp(s->id.text, name) == 0) return;
  front_error(c, DC_FRONT_MISSING_PARAMETER, c->model->id.span, "model '%s' has no parameter '%s', %s; add '%s = ...'",
              c->model->id.text, name, what, name);
}

static void find_forward(const front_ctx *c) {
  for (ast_symbol *s = c->model->symbols; s; s = s->next) {
    if (s->kind != SYM_FORWARD) continue;
    if (c->model->forward) {
      front_error(c, DC_FRONT_FORWARD, s->id.span, "a second forward; a model has one");
      front_note(c, c->model->forward->id.span, "the first is here");
      continue;
    }
    c->model->forward = s;
    if (s->block->arg_count != 1)
      front_error(c, DC_FRONT_FORWARD, s->id.span,
                  "forward has %u arguments; it takes one, the token ids: forward(tokens)", s->block->arg_count);
  }
  if (!c->model->forward)
    front_error(c, DC_FRONT_FORWARD, c->model->id.span, "model '%s' has no forward(tokens) { ... }", c->model->id.text);
}

static bool is_reserved(const char *name) { return strcmp(name, "vocab") == 0 || strcmp(name, "context") == 0; }

/* In the train section a name may be a parameter; what else it may be is known to train.c. */
static void resolve_setting(resolver *r, ast_expr *x) {
  ast_args *args = x->kind == AST_CALL ? x->u.call.args : x->kind == AST_TUPLE ? x->u.tuple : NULL;
  for (ast_arg *a = args ? args->first : NULL; a; a = a->next) resolve_setting(r, a->value);
  if (x->kind == AST_UNARY || x->kind == AST_BINARY) {
    resolve_setting(r, x->u.operation.a);
    if (x->u.operation.b) resolve_setting(r, x->u.operation.b);
  }
  if (x->kind == AST_CALL && front_function_find(x->u.call.id.text, &x->u.call.function)) {
    x->u.call.target = TARGET_FUNCTION;
    front_signature_function(r->c, x);
  }
  ast_symbol *s = x->kind == AST_NAME ? names_find(&r->names, x->u.name.id.text, NULL) : NULL;
  if (!s || s->kind != SYM_MODEL_PARAM) return;
  s->used = true;
  x->u.name.symbol = s;
}

void front_resolve(const front_ctx *c) {
  resolver r = {.c = c};
  names_push(&r.names);
  for (ast_symbol *s = c->model->symbols; s; s = s->next) {
    if (s->kind == SYM_MODEL_PARAM) resolve_expr(&r, s->value); /* sees the parameters before it */
    if (s->kind != SYM_FORWARD) add_symbol(&r, s);
    s->used = s->used || (s->kind == SYM_MODEL_PARAM && is_reserved(s->id.text));
  }
  check_required(c, "vocab", "the number of token ids");
  check_required(c, "context", "the longest sequence");
  find_forward(c);
  for (ast_symbol *s = c->model->symbols; s; s = s->next) {
    if (s->kind == SYM_GATE && s->value) resolve_expr(&r, s->value);
    for (ast_arg *a = s->dims ? s->dims->first : NULL; a; a = a->next) resolve_expr(&r, a->value);
    if (s->kind == SYM_TENSOR && s->value) resolve_init(&r, s->value);
  }
  for (ast_symbol *s = c->model->symbols; s; s = s->next)
    if (s->block) resolve_block(&r, s);
  for (ast_setting *s = c->model->settings; s; s = s->next) resolve_setting(&r, s->value);
  bool too_deep = false;
  for (ast_symbol *s = c->model->symbols; s; s = s->next)
    if (s->block && call_depth(c, s, 1, &too_deep) > AST_MAX_NESTING && !too_deep) {
      front_error(c, DC_FRONT_NESTING, s->id.span, "blocks call each other deeper than %d from '%s' on",
                  AST_MAX_NESTING, s->id.text);
      too_deep = true;
    }
  pop_scope(&r);
  names_free(&r.names);
}
