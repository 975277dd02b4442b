/* signature.c - the arguments of calls: which operand or attribute each one is, by the op table. */
#include "compiler/front/front_priv.h"

#include <string.h>

typedef struct surface_row {
  ir_opcode op;
  const char *name;
  ast_role role;
  ir_attr_key key;
} surface_row;

static const surface_row surface[] = {
#define SURFACE(op, name, role, key) {IR_##op, name, ROLE_##role, IR_ATTR_##key},
#include "compiler/front/surface.def"
#undef SURFACE
};
enum { SURFACE_COUNT = sizeof surface / sizeof surface[0] };

static const struct {
  const char *name;
  uint32_t least, most;
} functions[] = {{"min", 1, UINT32_MAX}, {"max", 1, UINT32_MAX}, {"sqrt", 1, 1}, {"floor_div", 2, 2}};

uint32_t front_function_count(void) { return sizeof functions / sizeof functions[0]; }

bool front_function_find(const char *name, uint32_t *out) {
  for (uint32_t f = 0; f < front_function_count(); f++) {
    if (strcmp(functions[f].name, name) != 0) continue;
    *out = f;
    return true;
  }
  return false;
}

const char *front_function_name(uint32_t f, uint32_t *out_least, uint32_t *out_most) {
  if (out_least) *out_least = functions[f].least;
  if (out_most) *out_most = functions[f].most;
  return functions[f].name;
}

/* LayerNorm forms take 1e-5, RMS forms 1e-6, as their authors do. */
bool front_attr_default(ir_opcode op, ir_attr_key key, double *out) {
  if (key == IR_ATTR_EPS && ir_op_has(op, OPF_NORM)) return *out = ir_op_has(op, OPF_MEAN_BLIND) ? 1e-5 : 1e-6, true;
  if (key == IR_ATTR_THETA) return *out = 10000, true;
  return false;
}

/* ---- one parameter of a callee ---- */

typedef struct formal {
  const char *name;
  ast_role role;
  uint32_t index;
  bool required, positional, variadic;
} formal;

enum { MAX_FORMALS = 40 };

typedef struct signature {
  formal formals[MAX_FORMALS];
  uint32_t count;
} signature;

static formal *add_formal(signature *s, const char *name, ast_role role, uint32_t index) {
  formal *f = &s->formals[s->count < MAX_FORMALS ? s->count++ : MAX_FORMALS - 1];
  *f = (formal){.name = name, .role = role, .index = index};
  return f;
}

static bool has_shape(ir_opcode op, char letter) {
  const ir_operand_spec *specs;
  size_t n = ir_op_operands(op, &specs);
  for (size_t i = 0; i < n; i++)
    if (specs[i].is_param && strchr(specs[i].shape, letter)) return true;
  return false;
}

static void add_attrs(signature *s, ir_opcode op) {
  size_t required_count = 0;
  formal *last = NULL;
  for (unsigned key = 0; key < IR_ATTR_COUNT; key++) {
    bool required, hidden = key == IR_ATTR_NAME || key == IR_ATTR_GROUP;
    if (!ir_op_accepts(op, (ir_attr_key)key, &required)) continue;
    for (size_t i = 0; i < SURFACE_COUNT; i++) hidden |= surface[i].op == op && surface[i].key == key;
    if (hidden) continue;
    formal *f = add_formal(s, ir_attr_name((ir_attr_key)key), ROLE_ATTR, key);
    f->required = required;
    if (required && ++required_count == 1) last = f;
  }
  if (required_count == 1) last->positional = true; /* split_heads(x, heads) */
  for (size_t i = 0; i < SURFACE_COUNT; i++)
    if (surface[i].op == op && surface[i].name) add_formal(s, surface[i].name, surface[i].role, surface[i].key);
}

/* Positional: the values, then `out`, then the one required attribute. */
static void op_signature(signature *s, ir_opcode op) {
  const ir_operand_spec *specs;
  size_t n = ir_op_operands(op, &specs);
  bool normal = false;
  *s = (signature){.count = 0};
  for (size_t i = 0; i < n; i++) {
    if (specs[i].is_positions || specs[i].is_param || specs[i].is_gate) continue;
    formal *f = add_formal(s, specs[i].name, ROLE_OPERAND, (uint32_t)i);
    f->positional = true;
    f->required = !specs[i].optional;
    f->variadic = specs[i].variadic;
  }
  if (has_shape(op, 'o')) add_formal(s, "out", ROLE_OUT, 0)->positional = true;
  for (size_t i = 0; i < n; i++) {
    if (!specs[i].is_param && !specs[i].is_gate) continue;
    add_formal(s, specs[i].name, ROLE_OPERAND, (uint32_t)i)->required = specs[i].is_gate;
    normal |= specs[i].is_param && strcmp(specs[i].init, "normal") == 0;
  }
  add_attrs(s, op);
  if (normal) add_formal(s, "init", ROLE_INIT, 0);
  add_formal(s, "name", ROLE_NAME, 0);
}

/* The arguments of the block, then `name`, unless one of them has that name. */
static formal *block_signature(const ast_symbol *block, arena *memory, uint32_t *out_count) {
  uint32_t n = block->block->arg_count;
  formal *all = ARENA_ARRAY(memory, formal, n + 1);
  bool has_name = false;
  for (const ast_symbol *a = block->block->args; a; a = a->next) {
    all[a->slot] =
        (formal){.name = a->id.text, .role = ROLE_BLOCK_ARG, .index = a->slot, .required = true, .positional = true};
    has_name |= strcmp(a->id.text, "name") == 0;
  }
  if (!has_name) all[n] = (formal){.name = "name", .role = ROLE_NAME};
  *out_count = n + !has_name;
  return all;
}

/* ---- matching ---- */

static void put_names(text *t, const formal *formals, uint32_t n) {
  for (uint32_t i = 0; i < n && i < 24; i++) text_printf(t, "%s%s", i ? ", " : "", formals[i].name);
  if (n > 24) text_puts(t, ", ...");
}

static void unknown_argument(const front_ctx *c, const ast_expr *call, const ast_arg *a, const formal *formals,
                             uint32_t n) {
  suggestion s = suggest(a->name.text);
  for (uint32_t i = 0; i < n && front_suggests(c); i++) suggest_try(&s, formals[i].name);
  text takes = {0};
  if (!s.best) put_names(&takes, formals, n);
  front_error(c, DC_FRONT_UNKNOWN_ARGUMENT, a->name.span, "'%s' has no argument '%s'%s%s", call->u.call.id.text,
              a->name.text, s.best ? suggest_text(&s, c->memory) : "; it takes ", takes.data ? takes.data : "");
  text_free(&takes);
}

static const formal *find_formal(const formal *formals, uint32_t n, const char *name) {
  for (uint32_t i = 0; i < n; i++)
    if (strcmp(formals[i].name, name) == 0) return &formals[i];
  return NULL;
}

typedef struct matching {
  const front_ctx *c;
  ast_expr *call;
  const formal *formals;
  uint32_t count, next; /* next: the formal of the next positional argument */
  const ast_arg **given;
  bool bad;
} matching;

static const formal *match_positional(matching *m, const ast_arg *a) {
  while (m->next < m->count && !m->formals[m->next].positional) m->next++;
  if (m->next < m->count) return &m->formals[m->formals[m->next].variadic ? m->next : m->next++];
  uint32_t most = 0;
  for (uint32_t i = 0; i < m->count; i++) most += m->formals[i].positional;
  front_error(m->c, DC_FRONT_TOO_MANY_ARGUMENTS, a->value->span,
              "too many arguments: '%s' takes %u by position; name the others", m->call->u.call.id.text, most);
  return NULL;
}

static void match_argument(matching *m, ast_arg *a, bool after_named) {
  const formal *f;
  if (a->name.text) {
    f = find_formal(m->formals, m->count, a->name.text);
    if (!f) unknown_argument(m->c, m->call, a, m->formals, m->count);
  } else if (after_named) {
    front_error(m->c, DC_FRONT_POSITION, a->value->span,
                "an argument without a name after one with a name; put it first, or name it");
    f = NULL;
  } else {
    f = match_positional(m, a);
  }
  m->bad |= !f;
  if (!f) return;
  const ast_arg **given = &m->given[f - m->formals];
  if (*given && !f->variadic) {
    front_error(m->c, DC_FRONT_DUPLICATE_ARGUMENT, a->name.text ? a->name.span : a->value->span,
                "argument '%s' of '%s' is given twice", f->name, m->call->u.call.id.text);
    front_note(m->c, (*given)->name.text ? (*given)->name.span : (*given)->value->span, "the first one is here");
    m->bad = true;
    return;
  }
  *given = a;
  a->role = f->role;
  a->index = f->index;
}

static bool match(matching *m) {
  m->given = ARENA_ARRAY(m->c->memory, const ast_arg *, m->count + 1);
  bool named = false;
  for (ast_arg *a = m->call->u.call.args->first; a; a = a->next) {
    match_argument(m, a, named);
    named |= a->name.text != NULL;
  }
  for (uint32_t i = 0; i < m->count; i++) {
    if (!m->formals[i].required || m->given[i] || m->bad) continue;
    front_error(m->c, DC_FRONT_MISSING_ARGUMENT, m->call->span, "'%s' needs argument '%s'", m->call->u.call.id.text,
                m->formals[i].name);
    m->bad = true;
  }
  return !m->bad;
}

static const ast_arg *given(const matching *m, ast_role role, uint32_t index) {
  for (uint32_t i = 0; i < m->count; i++)
    if (m->formals[i].role == role && m->formals[i].index == index && m->given[i]) return m->given[i];
  return NULL;
}

/* A weight that the call makes needs a name; one of unknown width needs `out`. */
static bool check_weights(const matching *m, ir_opcode op) {
  const ir_operand_spec *specs;
  size_t n = ir_op_operands(op, &specs);
  for (size_t i = 0; i < n; i++) {
    if (!specs[i].is_param) continue;
    const ast_arg *a = given(m, ROLE_OPERAND, (uint32_t)i);
    bool makes = a ? a->value->kind == AST_BOOL && a->value->u.number.b : !specs[i].optional;
    if (makes && !given(m, ROLE_NAME, 0)) {
      front_error(m->c, DC_FRONT_UNNAMED, m->call->span,
                  "'%s' makes the weight '%s' and needs a name; add name = \"...\"", m->call->u.call.id.text,
                  specs[i].name);
      return false;
    }
    if (makes && strchr(specs[i].shape, 'd') && strchr(specs[i].shape, 'o') && !given(m, ROLE_OUT, 0)) {
      front_error(m->c, DC_FRONT_MISSING_ARGUMENT, m->call->span, "'%s' needs argument 'out', the width of its result",
                  m->call->u.call.id.text);
      return false;
    }
  }
  return true;
}

void front_signature_op(const front_ctx *c, ast_expr *call) {
  signature s;
  op_signature(&s, call->u.call.op);
  matching m = {.c = c, .call = call, .formals = s.formals, .count = s.count};
  if (!match(&m) || !check_weights(&m, call->u.call.op)) call->kind = AST_BAD;
}

void front_signature_block(const front_ctx *c, ast_expr *call) {
  uint32_t n;
  const formal *formals = block_signature(call->u.call.block, c->memory, &n);
  matching m = {.c = c, .call = call, .formals = formals, .count = n};
  if (match(&m)) return;
  front_note(c, call->u.call.block->id.span, "block '%s' is declared here", call->u.call.block->id.text);
  call->kind = AST_BAD;
}

void front_signature_function(const front_ctx *c, ast_expr *call) {
  uint32_t least, most, n = call->u.call.args->count;
  const char *name = front_function_name(call->u.call.function, &least, &most);
  bool bad = n < least || n > most;
  if (bad)
    front_error(c, n < least ? DC_FRONT_MISSING_ARGUMENT : DC_FRONT_TOO_MANY_ARGUMENTS, call->span,
                "'%s' takes %u argument%s%s, not %u", name, least, least == 1 ? "" : "s",
                most > least ? " or more" : "", n);
  for (ast_arg *a = call->u.call.args->first; a; a = a->next) {
    a->role = ROLE_VALUE;
    if (!a->name.text) continue;
    front_error(c, DC_FRONT_UNKNOWN_ARGUMENT, a->name.span, "'%s' takes its arguments by position", name);
    bad = true;
  }
  if (bad) call->kind = AST_BAD;
}
