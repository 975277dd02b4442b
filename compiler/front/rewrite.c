/* rewrite.c - a source with other defaults and with taper norms in place of live ones: its own text, comments and all,
 * changed only where it must be. */
#include "compiler/front/front_priv.h"

#include <stdlib.h>
#include <string.h>

typedef struct edit { /* bytes [begin, end) of the source become `text` */
  uint32_t begin, end;
  const char *text;
  size_t order; /* of edits at one place */
} edit;

typedef struct rewriter {
  const front_model *f;
  arena memory;
  edit *edits;
  size_t count, cap;
  const front_taper_norm *norms;
  size_t norm_count;
} rewriter;

static void add_edit(rewriter *r, uint32_t begin, uint32_t end, const char *new_text) {
  if (r->count == r->cap) {
    edit *grown = ARENA_ARRAY(&r->memory, edit, r->cap * 2 + 16);
    if (r->count) memcpy(grown, r->edits, r->count * sizeof *grown);
    r->edits = grown, r->cap = r->cap * 2 + 16;
  }
  r->edits[r->count] = (edit){begin, end, new_text, r->count};
  r->count++;
}

/* ---- defaults ---- */

/* A float stays one: 10000 in place of 1e4 would change what `/` means. */
static const char *number_text(double value, bool whole, arena *a) {
  text t = {0};
  if (whole)
    text_printf(&t, "%lld", (long long)value);
  else
    text_put_double(&t, value);
  if (!whole && t.data && !strpbrk(t.data, ".e")) text_puts(&t, ".0");
  const char *s = arena_strdup(a, t.data ? t.data : "0");
  text_free(&t);
  return s;
}

static void edit_defaults(rewriter *r, const front_define *defines, size_t n) {
  const front_model *f = r->f;
  for (const ast_symbol *s = f->model.symbols; s; s = s->next) {
    if (s->kind != SYM_MODEL_PARAM) continue;
    for (size_t i = n; i-- > 0;) { /* the last one wins */
      if (strcmp(defines[i].name, s->id.text) != 0) continue;
      bool whole = f->param_kinds[s->slot] == FV_INT;
      add_edit(r, s->value->span.begin, s->value->span.end, number_text(defines[i].value, whole, &r->memory));
      break;
    }
  }
}

static void edit_setting(rewriter *r, const char *name, int64_t value) {
  for (const ast_setting *s = r->f->model.settings; s && value; s = s->next)
    if (strcmp(s->id.text, name) == 0)
      add_edit(r, s->value->span.begin, s->value->span.end, number_text((double)value, true, &r->memory));
}

/* ---- norms ---- */

static const ast_symbol *find_symbol(const front_model *f, const char *name) {
  const ast_symbol *s = f->model.symbols;
  while (s && strcmp(s->id.text, name) != 0) s = s->next;
  return s;
}

const char *front_gate_name(const front_model *f, const char *wanted, arena *a) {
  const char *name = wanted;
  for (unsigned i = 1;; i++) {
    const ast_symbol *s = find_symbol(f, name);
    if (!s || (s->kind == SYM_GATE && !s->value)) return name;
    name = i == 1 ? arena_printf(a, "%s_gate", wanted) : arena_printf(a, "%s_gate%u", wanted, i);
  }
}

static void edit_call(rewriter *r, const ast_expr *x) {
  bool layer = x->u.call.op == IR_LAYER_NORM;
  if (x->u.call.target != TARGET_OP || (!layer && x->u.call.op != IR_RMS_NORM)) return;
  diag_loc loc = source_loc(&r->f->source, x->span);
  for (size_t i = 0; i < r->norm_count; i++) {
    const front_taper_norm *n = &r->norms[i];
    if (n->loc.line != loc.line || n->loc.col != loc.col) continue;
    uint32_t behind = x->u.call.args->last->value->span.end;
    add_edit(r, x->u.call.id.span.begin, x->u.call.id.span.end, layer ? "taper_layer_norm" : "taper_rms_norm");
    add_edit(r, behind, behind, arena_printf(&r->memory, ", gate = %s", n->gate));
    return;
  }
}

/* Depth is bounded by AST_MAX_NESTING. */
static void walk_expr(rewriter *r, const ast_expr *x) {
  if (!x) return;
  const ast_args *args = x->kind == AST_CALL ? x->u.call.args : x->kind == AST_TUPLE ? x->u.tuple : NULL;
  if (x->kind == AST_CALL) edit_call(r, x);
  for (const ast_arg *a = args ? args->first : NULL; a; a = a->next) walk_expr(r, a->value);
  if (x->kind == AST_UNARY || x->kind == AST_BINARY) {
    walk_expr(r, x->u.operation.a);
    walk_expr(r, x->u.operation.b);
  }
}

static void walk_body(rewriter *r, const ast_body *body) {
  for (const ast_stmt *s = body ? body->first : NULL; s; s = s->next) {
    walk_expr(r, s->value);
    walk_body(r, s->body);
    walk_body(r, s->otherwise);
  }
}

/* The '{' that opens the model's body: the first behind the parameters that is in no comment. */
static uint32_t body_begin(const front_model *f) {
  const char *s = f->source.text;
  uint32_t at = f->model.id.span.end, size = f->source.size;
  for (const ast_symbol *p = f->model.symbols; p && p->kind == SYM_MODEL_PARAM; p = p->next) at = p->value->span.end;
  while (at < size && s[at] != '{') {
    const char *stop = NULL;
    if (s[at] == '/' && at + 1 < size && s[at + 1] == '/') stop = memchr(s + at, '\n', size - at);
    if (s[at] == '/' && at + 1 < size && s[at + 1] == '*') stop = memmem(s + at + 2, size - at - 2, "*/", 2);
    at = stop ? (uint32_t)(stop - s) + 1 : at + 1;
  }
  return at < size ? at + 1 : size;
}

static void declare_gates(rewriter *r) {
  uint32_t at = body_begin(r->f);
  for (size_t i = 0; i < r->norm_count; i++) {
    const char *gate = r->norms[i].gate;
    bool known = find_symbol(r->f, gate) != NULL;
    for (size_t k = 0; k < i; k++) known |= strcmp(r->norms[k].gate, gate) == 0;
    if (!known) add_edit(r, at, at, arena_printf(&r->memory, "\n  gate %s;", gate));
  }
}

/* ---- all of it ---- */

static int by_place(const void *a, const void *b) {
  const edit *x = a, *y = b;
  return x->begin != y->begin ? (x->begin > y->begin) - (x->begin < y->begin)
                              : (x->order > y->order) - (x->order < y->order);
}

void front_rewrite(const front_model *f, const front_define *defines, size_t define_count,
                   const front_taper_norm *norms, size_t norm_count, text *out) {
  rewriter r = {.f = f, .norms = norms, .norm_count = norm_count};
  edit_defaults(&r, defines, define_count);
  edit_setting(&r, "steps", f->train.new_steps);
  edit_setting(&r, "sequence", f->train.new_sequence);
  if (norm_count) declare_gates(&r);
  for (const ast_symbol *s = f->model.symbols; s && norm_count; s = s->next)
    if (s->block) walk_body(&r, s->block->body);
  if (r.count) qsort(r.edits, r.count, sizeof *r.edits, by_place);
  uint32_t at = 0;
  for (size_t i = 0; i < r.count; i++) {
    text_put(out, f->source.text + at, r.edits[i].begin - at);
    text_puts(out, r.edits[i].text);
    at = r.edits[i].end;
  }
  text_put(out, f->source.text + at, f->source.size - at);
  arena_free(&r.memory);
}
