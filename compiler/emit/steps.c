/* steps.c - steps of a plan as C statements. Neighbouring VECTOR steps over the same columns become one loop (a run):
   values that only the run needs stay in registers, all others lie in memory. */
#include "compiler/analysis/execution.h"
#include "compiler/emit/emit_priv.h"

#include <string.h>

static ir_value without_kernel(const plan *p, const plan_step *steps, size_t n) {
  for (size_t i = 0; i < n; i++)
    if (emit_form_of(ir_opcode_of(p->m, steps[i].op)) == FORM_NONE) return steps[i].op;
  return IR_NONE;
}

ir_value emit_without_kernel(const plan *p, const plan_stage *s) {
  ir_value v = without_kernel(p, s->steps, s->step_count);
  for (size_t i = 0; i < s->segment_count && !v.id; i++)
    v = without_kernel(p, s->segments[i].steps, s->segments[i].step_count);
  return v;
}

typedef struct pointer {
  const char *name, *expression;
} pointer;

typedef struct writer {
  const emit_list *l;
  const emit_dialect *d;
  const ir_module *m;
  arena *mem;
  text *out;     /* statements */
  text declared; /* pointers, in front of them */
  pointer *pointers;
  size_t pointer_count;
  uint32_t *run;   /* [step]: its run; 0 for other forms */
  bool *in_memory; /* [step] */
} writer;

static const plan_step *step_at(const writer *w, size_t i) { return &w->l->steps[i]; }
static bool by_columns(const writer *w) { return w->l->segment != NULL; }
static const char *token_row(const writer *w) { return w->l->stage->out_rows ? "t" : "r"; }
static emit_form form_of(const writer *w, const plan_step *s) { return emit_form_of(ir_opcode_of(w->m, s->op)); }
static ir_value typed(const writer *w, const plan_step *s) {
  return ir_is(w->m, s->op, IR_RETURN) ? ir_operand(w->m, s->op, 0) : s->op;
}

/* ---- pointers to rows ---- */
static const char *declare(writer *w, const char *stem, bool written, const char *expression) {
  for (size_t i = 0; i < w->pointer_count; i++)
    if (strcmp(w->pointers[i].expression, expression) == 0 && (w->pointers[i].name[0] == *stem))
      return w->pointers[i].name;
  const char *name = arena_printf(w->mem, "%s%zu", stem, w->pointer_count);
  w->pointers[w->pointer_count++] = (pointer){name, arena_strdup(w->mem, expression)};
  const char *type = *stem == 'h' ? "auto" : written ? "float" : "const float";
  text_printf(&w->declared, "%s *%s = %s;\n", type, name, expression);
  return name;
}

static const char *plus_start(writer *w, uint32_t start) {
  const char *column = by_columns(w) ? " + column" : "";
  return start ? arena_printf(w->mem, "%s + %u", column, start) : column;
}

static const char *buffer_at(writer *w, uint32_t buffer, uint32_t start, bool written) {
  const plan_buffer *b = &w->l->p->buffers[buffer];
  const char *field = emit_field(w->mem, w->l->fields, FIELD_BUFFER, buffer), *row = b->out_rows ? "r" : token_row(w);
  const char *at = b->width == 1 ? "" : plus_start(w, start);
  return declare(w, written ? "y" : "x", written,
                 arena_printf(w->mem, "buffer_row(c, %s, %u, %s)%s", field, b->width, row, at));
}

static const char *kept_at(writer *w, const plan_step *s, const char *at) {
  return declare(w, "k", true, arena_printf(w->mem, "%s%s", w->d->kept(w->l, s), at));
}

/* What a field of an argument struct stands for: a weight, a state, a rotary table. */
static const char *global_at(writer *w, const char *const around[2], emit_field_kind kind, uint32_t index) {
  return arena_printf(w->mem, "%s%s%s", around[0], emit_field(w->mem, w->l->fields, kind, index), around[1]);
}
static const char *weight_at(writer *w, uint32_t index) {
  bool half = w->l->p->weights[index].dtype != IR_F32;
  return global_at(w, half ? w->d->half : w->d->weight, FIELD_WEIGHT, index);
}

/* Where step i's result lies. */
static const char *result_at(writer *w, size_t i) {
  const plan_step *s = step_at(w, i);
  if (s->buffer != PLAN_NONE) return buffer_at(w, s->buffer, s->shift, true);
  if (s->kept) return kept_at(w, s, "");
  return declare(w, "m", true, w->d->scratch(w->l, i));
}

static const char *dot_at(writer *w, uint32_t root) { return arena_printf(w->mem, "d%u", root); }

/* A pointer to the operand's first column of this list. */
static const char *operand_at(writer *w, const plan_step *s, size_t i) {
  const plan_operand *o = &s->operands[i];
  switch (o->place) {
  case PLAN_OUTSIDE: return buffer_at(w, o->index, o->view.start + s->shift, false);
  case PLAN_STEP: {
    const char *at = result_at(w, o->index);
    return !by_columns(w) && o->view.start ? arena_printf(w->mem, "(%s + %u)", at, o->view.start) : at;
  }
  case PLAN_PROLOGUE: {
    const plan_step *from = &w->l->stage->steps[o->index];
    return kept_at(w, from, from->width == 1 ? "" : plus_start(w, o->view.start + s->shift));
  }
  case PLAN_DOT: return dot_at(w, o->index);
  case PLAN_GLOBAL:
    if (o->index == PLAN_NONE) return "0";
    return declare(w, w->l->p->weights[o->index].dtype == IR_F32 ? "w" : "h", false, weight_at(w, o->index));
  case PLAN_INPUT: return arena_printf(w->mem, "c->%s[%s]", o->index ? "pos" : "token", token_row(w));
  }
  return "";
}

/* ---- runs ---- */
static uint32_t last_of(const writer *w, const plan_step *s) { return execution_last(w->m, typed(w, s)); }

/* Head by head: an operand is a vector along the last axis, or a number of the head. */
static bool is_by_heads(const writer *w, const plan_step *s) {
  if (ir_type_of(w->m, typed(w, s)).rank != 4 || last_of(w, s) == s->width) return false;
  for (size_t i = 0; i < s->operand_count; i++) {
    const plan_operand *o = &s->operands[i];
    ir_value x = ir_operand(w->m, s->op, i);
    if (o->place == PLAN_GLOBAL ? ir_elements(ir_type_of(w->m, x)) > 1
                                : o->place != PLAN_INPUT && o->view.width != s->width && o->view.width > 1)
      return true;
  }
  return false;
}

/* May step b, behind a, stand in a's loop? */
static bool same_loop(const writer *w, const plan_step *a, const plan_step *b) {
  if (form_of(w, a) != FORM_VECTOR || form_of(w, b) != FORM_VECTOR || is_by_heads(w, a) != is_by_heads(w, b))
    return false;
  return (by_columns(w) || a->width == b->width) && (!is_by_heads(w, a) || last_of(w, a) == last_of(w, b));
}

static bool reads_whole(const writer *w, const plan_step *s, const plan_operand *o) {
  return o->place == PLAN_STEP && (by_columns(w) || (o->view.start == 0 && o->view.width == s->width &&
                                                     step_at(w, o->index)->width == s->width));
}

static void find_runs(writer *w) {
  uint32_t run = 0;
  for (size_t i = 0; i < w->l->count; i++) {
    const plan_step *s = step_at(w, i);
    w->in_memory[i] = s->buffer != PLAN_NONE || s->kept;
    if (form_of(w, s) != FORM_VECTOR) continue;
    bool joins = i > 0 && same_loop(w, step_at(w, i - 1), s);
    for (size_t j = 0; j < s->operand_count && joins; j++)
      if (s->operands[j].place == PLAN_STEP && w->run[s->operands[j].index] == run)
        joins = reads_whole(w, s, &s->operands[j]);
    if (!joins) run++;
    w->run[i] = run;
  }
  for (size_t i = 0; i < w->l->count; i++)
    for (size_t j = 0; j < step_at(w, i)->operand_count; j++) {
      const plan_operand *o = &step_at(w, i)->operands[j];
      if (o->place == PLAN_STEP && (!w->run[i] || w->run[i] != w->run[o->index])) w->in_memory[o->index] = true;
    }
}

/* ---- code with operands and attributes in it ---- */
typedef const char *(*operand_text)(writer *w, const plan_step *s, size_t i);

static uint32_t axis_in(const writer *w, const plan_step *s) {
  ir_value x = ir_operand(w->m, s->op, 0);
  return execution_is_row(w->m, x) ? execution_last(w->m, x) : last_of(w, s);
}

static const char *rotary_at(writer *w, const plan_step *s) {
  return arena_printf(w->mem, "%s + (size_t)c->pos[%s] * %u", global_at(w, w->d->rotary, FIELD_ROTARY, s->rotary),
                      token_row(w), 2 * w->l->p->rotary[s->rotary].pairs);
}

static const char *letter_text(writer *w, const plan_step *s, char letter, const char *y) {
  if (letter == 'y') return y;
  if (letter == 'n') return arena_printf(w->mem, "%u", axis_in(w, s));
  if (letter == 'm') return arena_printf(w->mem, "%u", last_of(w, s));
  if (letter == 't') return s->rotary == PLAN_NONE ? "0" : rotary_at(w, s);
  return s->operands[1].index != PLAN_NONE && w->l->p->weights[s->operands[1].index].tiles ? "tiles" : "rows"; /* l */
}

typedef struct code_of {
  writer *w;
  const plan_step *s;
  const char *y;
  operand_text operand;
} code_of;

static const char *operand_of_code(void *user, size_t i) {
  const code_of *c = user;
  return i < c->s->operand_count ? c->operand(c->w, c->s, i) : "0";
}
static const char *letter_of_code(void *user, char letter) {
  const code_of *c = user;
  return letter_text(c->w, c->s, letter, c->y);
}

static void put_code(writer *w, const plan_step *s, const char *y, operand_text operand, text *out) {
  code_of c = {w, s, y, operand};
  emit_code code = {
      .m = w->m, .op = s->op, .mem = w->mem, .user = &c, .operand = operand_of_code, .letter = letter_of_code};
  emit_kernel(&code, out);
}

/* ---- VECTOR ---- */
static bool is_full(const writer *w, const plan_step *s) {
  return w->d->exact || (is_by_heads(w, s) ? last_of(w, s)
                         : by_columns(w)   ? w->l->segment->columns
                                           : s->width) %
                                16 ==
                            0;
}

static const char *columns_left(writer *w, const plan_step *s) {
  if (is_by_heads(w, s)) return arena_printf(w->mem, "%u - j", last_of(w, s));
  return by_columns(w) ? "n - j" : arena_printf(w->mem, "%u - j", s->width);
}

static const char *load_text(writer *w, const plan_step *s, const char *at, const char *index) {
  if (is_full(w, s)) return arena_printf(w->mem, "v_load(%s + %s)", at, index);
  return arena_printf(w->mem, "v_load_part(%s + %s, %s, 0)", at, index, columns_left(w, s));
}

static const char *gate_or_number(writer *w, ir_value x, const char *at) {
  if (ir_is(w->m, x, IR_GATE)) return emit_field(w->mem, w->l->fields, FIELD_GATE, x.id);
  return arena_printf(w->mem, "%s[0]", at);
}

static const char *vector_operand(writer *w, const plan_step *s, size_t i) {
  const plan_operand *o = &s->operands[i];
  ir_value x = ir_operand(w->m, s->op, i);
  bool heads = is_by_heads(w, s);
  size_t self = (size_t)(s - w->l->steps);
  if (o->place == PLAN_STEP && w->run[o->index] == w->run[self]) return arena_printf(w->mem, "v%u", o->index);
  const char *at = operand_at(w, s, i);
  if (o->place == PLAN_GLOBAL) {
    if (ir_elements(ir_type_of(w->m, x)) == 1) return arena_printf(w->mem, "v_splat(%s)", gate_or_number(w, x, at));
    const char *column = heads ? "" : plus_start(w, s->shift);
    return load_text(w, s, at, *column ? arena_printf(w->mem, "%s + j", column + 3) : "j");
  }
  if (o->place != PLAN_DOT && o->place != PLAN_STEP ? o->view.width == 1 && s->width > 1
                                                    : !by_columns(w) && o->view.width == 1 && s->width > 1)
    return arena_printf(w->mem, "v_splat(%s[0])", at);
  if (heads && o->place != PLAN_DOT && o->view.width != s->width)
    return arena_printf(w->mem, "v_splat(%s[h / %u])", at, last_of(w, s));
  return load_text(w, s, at, heads ? "h + j" : "j");
}

static void put_vector(writer *w, size_t i, const char *indent) {
  const plan_step *s = step_at(w, i);
  const char *index = is_by_heads(w, s) ? "h + j" : "j";
  text_printf(w->out, "%sconst vf v%zu = ", indent, i);
  put_code(w, s, "", vector_operand, w->out);
  text_puts(w->out, ";\n");
  if (!w->in_memory[i]) return;
  if (is_full(w, s))
    text_printf(w->out, "%sv_store(%s + %s, v%zu);\n", indent, result_at(w, i), index, i);
  else
    text_printf(w->out, "%sv_store_part(%s + %s, v%zu, %s);\n", indent, result_at(w, i), index, i, columns_left(w, s));
}

static size_t put_run(writer *w, size_t i) {
  const plan_step *s = step_at(w, i);
  bool heads = is_by_heads(w, s);
  const char *width = by_columns(w) ? "n" : arena_printf(w->mem, "%u", s->width), *indent = "  ";
  if (heads) {
    text_printf(w->out, "for (uint32_t h = 0; h < %s; h += %u) {\n", width, last_of(w, s));
    text_printf(w->out, "  for (uint32_t j = %s; j < %u; j += VL) {\n", w->d->first, last_of(w, s));
    indent = "    ";
  } else {
    text_printf(w->out, "for (uint32_t j = %s; j < %s; j += VL) {\n", w->d->first, width);
  }
  size_t end = i;
  while (end < w->l->count && w->run[end] == w->run[i]) put_vector(w, end++, indent);
  text_puts(w->out, heads ? "  }\n}\n" : "}\n");
  return end;
}

/* ---- AXIS ---- */
static const char *axis_operand(writer *w, const plan_step *s, size_t i) {
  const plan_operand *o = &s->operands[i];
  ir_value x = ir_operand(w->m, s->op, i);
  const ir_operand_spec *specs;
  size_t n = ir_op_operands(ir_opcode_of(w->m, s->op), &specs);
  const char *at = operand_at(w, s, i);
  if (i < n && specs[i].is_gate) return gate_or_number(w, x, at);
  bool row = o->place != PLAN_GLOBAL && o->place != PLAN_INPUT;
  bool moves = row && ir_type_of(w->m, x).rank == 4;
  return moves ? arena_printf(w->mem, "%s + h * %u", at, execution_last(w->m, x)) : at;
}

static void put_axis(writer *w, size_t i) {
  const plan_step *s = step_at(w, i);
  bool heads = ir_type_of(w->m, s->op).rank == 4,
       number = ir_operand_count(w->m, s->op) && emit_writes_result(ir_opcode_of(w->m, s->op));
  const char *y = result_at(w, i);
  if (heads) {
    const char *count = by_columns(w) ? arena_printf(w->mem, "n / %u", last_of(w, s))
                                      : arena_printf(w->mem, "%u", s->width / last_of(w, s));
    text_printf(w->out, "for (uint32_t h = 0; h < %s; h++) ", count);
    y = arena_printf(w->mem, number && !*w->d->number ? "(%s + h * %u)" : "%s + h * %u", y, last_of(w, s));
  }
  if (number && *w->d->number) y = arena_printf(w->mem, "%s(%s)", w->d->number, y);
  put_code(w, s, y, axis_operand, w->out);
  text_puts(w->out, "\n");
}

/* ---- CODE ---- */
static void put_concat(writer *w, size_t i) {
  const plan_step *s = step_at(w, i);
  ir_type t = ir_type_of(w->m, s->op);
  int64_t axis = ir_attr_int(w->m, s->op, IR_ATTR_AXIS, -1);
  bool heads = t.rank == 4 && (axis < 0 || axis == 3);
  uint32_t total = heads ? last_of(w, s) : s->width, outer = s->width / total, at = 0;
  const char *y = result_at(w, i);
  for (size_t j = 0; j < s->operand_count; j++) {
    uint32_t n = s->operands[j].view.width / outer;
    if (outer > 1)
      text_printf(w->out, "for (uint32_t h = 0; h < %u; h++) copy(%s + h * %u + %u, %s + h * %u, %u);\n", outer, y,
                  total, at, operand_at(w, s, j), n, n);
    else
      text_printf(w->out, "copy(%s + %u, %s, %u);\n", y, at, operand_at(w, s, j), n);
    at += n;
  }
}

static void put_append(writer *w, size_t i) {
  const plan_step *s = step_at(w, i);
  const plan_state *state = &w->l->p->states[s->state];
  const char *at = global_at(w, w->d->state, FIELD_STATE, s->state), *t = token_row(w);
  const char *columns = by_columns(w) ? "column, n" : arena_printf(w->mem, "0, %u", s->width);
  text_printf(w->out,
              "append_%s(%s + (size_t)c->slot[%s] * c->context * %u, c->context, (uint32_t)c->pos[%s], %s, "
              "%s, %u);\n",
              state->keys ? "keys" : "values", at, t, state->floats_per_pos, t, operand_at(w, s, 1), columns,
              state->head_dim);
}

/* ---- products with a bias, and those that are stored as they are ---- */
static void put_roots(writer *w) {
  const plan_segment *g = w->l->segment;
  for (uint32_t i = 0; g && i < g->root_count; i++) {
    const plan_root *r = &g->roots[i];
    bool full = w->d->exact || g->columns % 16 == 0;
    if (r->bias == PLAN_NONE && r->buffer == PLAN_NONE) continue;
    text_printf(w->out, "for (uint32_t j = %s; j < n; j += VL) {\n", w->d->first);
    text_printf(w->out, "  const vf v = v_load(d%u + j)", i); /* the block is whole tiles */
    if (r->bias != PLAN_NONE) {
      const char *b = declare(w, "w", false, weight_at(w, r->bias));
      text_printf(w->out, full ? " + v_load(%s%s + j)" : " + v_load_part(%s%s + j, n - j, 0)", b,
                  plus_start(w, r->row0));
    }
    text_puts(w->out, ";\n");
    if (r->bias != PLAN_NONE) text_printf(w->out, "  v_store(d%u + j, v);\n", i);
    if (r->buffer != PLAN_NONE)
      text_printf(w->out, full ? "  v_store(%s + j, v);\n" : "  v_store_part(%s + j, v, n - j);\n",
                  buffer_at(w, r->buffer, r->row0, true));
    text_puts(w->out, "}\n");
    text_puts(w->out, w->d->sync);
  }
}

void emit_steps(const emit_list *l, text *out) {
  text body = {0};
  writer w = {.l = l, .d = l->dialect, .m = l->p->m, .mem = l->mem, .out = &body};
  size_t operands = 8;
  for (size_t i = 0; i < l->count; i++) operands += l->steps[i].operand_count + 2;
  w.pointers = ARENA_ARRAY(l->mem, pointer, operands + (l->segment ? 2 * l->segment->root_count : 0));
  w.run = ARENA_ARRAY(l->mem, uint32_t, l->count + 1), w.in_memory = ARENA_ARRAY(l->mem, bool, l->count + 1);
  find_runs(&w);
  put_roots(&w);
  for (size_t i = 0; i < l->count;) {
    ir_opcode op = ir_opcode_of(w.m, step_at(&w, i)->op);
    if (i) text_puts(&body, w.d->sync);
    if (form_of(&w, step_at(&w, i)) == FORM_VECTOR) {
      i = put_run(&w, i);
      continue;
    }
    if (op == IR_CONCAT)
      put_concat(&w, i);
    else if (op == IR_CACHE_APPEND)
      put_append(&w, i);
    else
      put_axis(&w, i);
    i++;
  }
  for (uint32_t i = 0; l->segment && i < l->segment->root_count; i++)
    text_printf(out, "float *d%u = dots%u + i * %u;\n", i, i,
                l->dots_pitch ? l->dots_pitch : plan_block_columns(l->segment));
  if (w.declared.data) text_puts(out, w.declared.data);
  if (body.data) text_puts(out, body.data);
  out->failed |= body.failed || w.declared.failed;
  text_free(&body);
  text_free(&w.declared);
}
