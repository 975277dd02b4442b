/* autodiff.c - reverse-mode differentiation of the programs that train: from their losses (results "ce" and "aux") to every
   parameter that is trained. A parameter that no loss depends on gets no gradient. */
#include "compiler/passes/grad.h"

#include <string.h>

typedef struct part { /* one contribution to a gradient */
  ir_value value;
  struct part *next;
} part;

struct grad_state {
  uint32_t limit;  /* values from here on are gradients */
  bool *active;    /* [limit] depends on a trained parameter */
  part **parts;    /* [limit] the latest first */
  ir_value *first; /* [limit] of a parameter: the first op of the entry that reads it */
};

static const grad_fn rules[IR_OP_COUNT] = {
#define OP(id, text, operands, attrs, flags, infer, eval, grad) [IR_##id] = grad,
#include "compiler/ir/op.def"
#undef OP
};

bool grad_wants(const grad_ctx *g, size_t i) {
  ir_value x = grad_in(g, i);
  return x.id && x.id < g->s->limit && g->s->active[x.id];
}

static void add_part(grad_ctx *g, ir_value to, ir_value dx) {
  part *p = ARENA_NEW(&g->c->scratch, part);
  *p = (part){dx, g->s->parts[to.id]};
  g->s->parts[to.id] = p;
}

void grad_give(grad_ctx *g, size_t i, ir_value dx) {
  if (grad_wants(g, i)) add_part(g, grad_in(g, i), dx);
}

ir_value grad_times(grad_ctx *g, ir_value a, ir_value b) {
  if (analysis_is_splat(g->m, a, 1)) return b;
  if (analysis_is_splat(g->m, b, 1)) return a;
  return IR_BUILD(&g->b, IR_MUL, a, b);
}

ir_value grad_number(grad_ctx *g, double value) {
  return pass_splat(g->c, g->op, ir_type_make(IR_F32, 1, (int64_t[]){1}), value);
}

ir_value grad_build(grad_ctx *g, ir_opcode op, const ir_value *operands, size_t n) {
  ir_attr attrs[IR_ATTR_COUNT];
  size_t count = 0;
  for (size_t i = 0; i < ir_attr_count(g->m, g->op); i++) {
    ir_attr a = ir_attr_at(g->m, g->op, i);
    if (ir_op_accepts(op, a.key, NULL)) attrs[count++] = a;
  }
  return ir_build(&g->b, op, operands, n, attrs, count);
}

/* ---- sums of contributions ---- */
typedef struct span {
  ir_value pad, x;
  int64_t start, size;
} span;

/* Do the spans fill a row of `size` without a gap or an overlap? They get sorted. */
static bool tile(span *spans, size_t n, int64_t size) {
  for (size_t i = 1; i < n; i++)
    for (size_t k = i; k > 0 && spans[k].start < spans[k - 1].start; k--) {
      span swap = spans[k];
      spans[k] = spans[k - 1], spans[k - 1] = swap;
    }
  int64_t at = 0;
  for (size_t i = 0; i < n; i++) {
    if (spans[i].start != at) return false;
    at += spans[i].size;
  }
  return at == size;
}

/* What slices leave behind lies side by side: one concat in place of a sum of rows that are mostly zeros. */
static ir_value join_pads(grad_ctx *g, part **list) {
  size_t n = 0;
  for (part *p = *list; p; p = p->next) n += ir_is(g->m, p->value, IR_PAD);
  if (n < 2) return IR_NONE;
  span *spans = ARENA_ARRAY(&g->c->scratch, span, n);
  ir_value *values = ARENA_ARRAY(&g->c->scratch, ir_value, n);
  int64_t size = 0;
  n = 0;
  for (part *p = *list; p; p = p->next) {
    if (!ir_is(g->m, p->value, IR_PAD)) continue;
    ir_value x = ir_operand(g->m, p->value, 0);
    ir_type t = ir_type_of(g->m, x);
    size = ir_attr_int(g->m, p->value, IR_ATTR_SIZE, 0);
    spans[n++] = (span){p->value, x, ir_attr_int(g->m, p->value, IR_ATTR_START, 0), t.dim[t.rank - 1]};
  }
  if (!tile(spans, n, size)) return IR_NONE;
  for (size_t i = 0; i < n; i++) values[i] = spans[i].x;
  for (part **p = list; *p;)
    if (ir_is(g->m, (*p)->value, IR_PAD))
      *p = (*p)->next;
    else
      p = &(*p)->next;
  ir_value whole = ir_build(&g->b, IR_CONCAT, values, n, NULL, 0);
  for (size_t i = 0; i < n; i++)
    if (ir_use_count(g->m, spans[i].pad) == 0) ir_erase(g->m, spans[i].pad);
  return whole;
}

/* The gradient of v; IR_NONE where nothing contributes. Sums go from the last use to the first. */
static ir_value sum_of(grad_ctx *g, ir_value v) {
  part *list = NULL;
  for (part *p = g->s->parts[v.id], *next; p; p = next) {
    next = p->next;
    p->next = list;
    list = p;
  }
  ir_value sum = join_pads(g, &list);
  for (part *p = list; p; p = p->next) sum = sum.id ? IR_BUILD(&g->b, IR_ADD, sum, p->value) : p->value;
  g->s->parts[v.id] = NULL;
  return sum;
}

/* ---- the walk ---- */
static bool is_trained(const ir_module *m, ir_value v) {
  return ir_is(m, v, IR_PARAM) && ir_attr_int(m, v, IR_ATTR_TRAINED, 1) != 0;
}

static void mark_active(pass_context *c, ir_region entry, grad_state *s) {
  const ir_module *m = c->m;
  for (ir_value v = ir_first(m, IR_GLOBALS); v.id; v = ir_next(m, v)) s->active[v.id] = is_trained(m, v);
  for (ir_value v = ir_first(m, entry); v.id; v = ir_next(m, v))
    for (size_t i = 0; i < ir_operand_count(m, v); i++) {
      ir_value x = ir_operand(m, v, i);
      if (!x.id || !s->active[x.id]) continue;
      s->active[v.id] = true;
      if (ir_is(m, x, IR_PARAM) && !s->first[x.id].id) s->first[x.id] = v;
    }
}

static void at(grad_ctx *g, ir_value v) {
  g->op = v;
  g->b.loc = ir_loc_of(g->m, v);
  g->b.name = ir_name_of(g->m, v);
}

/* d(loss)/d(loss) = 1. */
static void seed(grad_ctx *g, ir_region entry) {
  for (ir_value v = ir_first(g->m, entry); v.id; v = ir_next(g->m, v)) {
    if (!ir_is(g->m, v, IR_RESULT)) continue;
    const char *name = ir_name_of(g->m, v);
    ir_value x = ir_operand(g->m, v, 0);
    if ((strcmp(name, "ce") != 0 && strcmp(name, "aux") != 0) || !g->s->active[x.id]) continue;
    at(g, v);
    add_part(g, x, grad_number(g, 1));
  }
}

static bool refuse(grad_ctx *g) {
  diag_report(g->c->sink, DC_PASS_GRADIENT, ir_loc_of(g->m, g->op),
              "%s '%s' has no gradient rule for these operands, and a parameter that is trained lies behind it",
              ir_op_name(ir_opcode_of(g->m, g->op)), pass_label(g->c, g->op));
  return false;
}

static void hand_out(grad_ctx *g, ir_value param) {
  ir_value dx = sum_of(g, param);
  if (!dx.id) return;
  g->b.name = NULL;
  IR_BUILD(&g->b, IR_GRADIENT, dx, param);
}

/* A parameter's gradient is whole once the first op that reads it is done. */
static void hand_out_of(grad_ctx *g, ir_value v) {
  for (size_t i = 0; i < ir_operand_count(g->m, v); i++) {
    ir_value x = ir_operand(g->m, v, i);
    if (ir_is(g->m, x, IR_PARAM) && ir_same(g->s->first[x.id], v) && g->s->parts[x.id]) hand_out(g, x);
  }
}

static bool differentiate(pass_context *c, ir_region entry) {
  uint32_t limit = ir_value_limit(c->m);
  arena *mem = &c->scratch;
  grad_state s = {limit, ARENA_ARRAY(mem, bool, limit), ARENA_ARRAY(mem, part *, limit),
                  ARENA_ARRAY(mem, ir_value, limit)};
  grad_ctx g = {.c = c, .m = c->m, .b = {.m = c->m, .region = entry}, .s = &s};
  mark_active(c, entry, &s);
  ir_value last = ir_prev(c->m, ir_last(c->m, entry));
  seed(&g, entry);
  for (ir_value v = last, before; v.id; v = before) {
    before = ir_prev(c->m, v);
    at(&g, v);
    if (s.parts[v.id]) {
      g.dy = sum_of(&g, v);
      grad_fn rule = rules[ir_opcode_of(c->m, v)];
      if (!rule || !rule(&g)) return refuse(&g);
    }
    hand_out_of(&g, v);
  }
  c->changed = true;
  return true;
}

bool pass_autodiff(pass_context *c) {
  size_t done = 0;
  for (size_t e = 0; e < ir_entry_count(c->m); e++) {
    ir_region entry = ir_entry_at(c->m, e);
    bool has = false;
    if (strncmp(ir_region_name(c->m, entry), "train_", 6) != 0) continue;
    for (ir_value v = ir_first(c->m, entry); v.id; v = ir_next(c->m, v)) has |= ir_is(c->m, v, IR_GRADIENT);
    if (!has && !differentiate(c, entry)) return false;
    done++;
  }
  if (!done && !ir_entry_find(c->m, "scan").id)
    diag_report(c->sink, DC_PASS_OPTION_UNUSED, (diag_loc){0},
                "autodiff: the module has no entry train_...; run train-programs before it");
  return true;
}
