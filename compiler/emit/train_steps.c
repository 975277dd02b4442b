/* train_steps.c - ops of training as C statements, on one row or on values of parameters' shape. VECTOR ops over the same
   columns are brought together in one loop (a run): values that only the run needs stay in registers. */
#include "compiler/emit/train_priv.h"

#include <string.h>

typedef struct pointer {
  const char *name, *expression;
} pointer;

/* The loop that an op needs: over `width` columns, or head by head over `last`. */
typedef struct shape {
  emit_form form;
  uint32_t width, last;
  bool heads;
} shape;

typedef struct writer {
  const train_list *l;
  const ir_module *m;
  arena *mem;
  text *out, declared;
  pointer *pointers;
  size_t pointer_count;
  ir_value *order; /* ops as they are written */
  size_t count;
  uint32_t *run, *at;
  bool *in_memory;
} writer;

static ir_value column_of(const writer *w, ir_value v) { /* whose columns the loop runs over */
  return ir_is(w->m, v, IR_SUM_ROWS) || ir_is(w->m, v, IR_GRADIENT) ? ir_operand(w->m, v, 0) : v;
}

static shape shape_of(const writer *w, ir_value v) {
  ir_value x = column_of(w, v);
  shape s = {emit_form_of(ir_opcode_of(w->m, v)), train_width(w->m, x), train_last(w->m, x), false};
  s.heads = s.last != s.width;
  if (w->l->small && ir_is(w->m, v, IR_SUM_ROWS)) s.form = FORM_CODE; /* the rows of a matrix of parameters */
  return s;
}

/* ---- pointers ---- */
static const char *declare(writer *w, const char *expression) {
  for (size_t i = 0; i < w->pointer_count; i++)
    if (strcmp(w->pointers[i].expression, expression) == 0) return w->pointers[i].name;
  const char *name = arena_printf(w->mem, "x%zu", w->pointer_count);
  w->pointers[w->pointer_count++] = (pointer){name, expression};
  text_printf(&w->declared, "float *const %s = %s;\n", name, expression);
  return name;
}

static const char *result_at(writer *w, ir_value v) { return declare(w, train_place(w->l, v, "r", "i")); }

static const char *operand_at(writer *w, ir_value x) {
  ir_type t = ir_type_of(w->m, x);
  if (!x.id) return "0";
  if (t.dtype != IR_I32) return declare(w, train_operand_place(w->l, x, "r", "i"));
  if (ir_is(w->m, x, IR_POSITIONS)) return "(int32_t)(r % c->time)";
  return strcmp(ir_attr_string(w->m, x, IR_ATTR_NAME, ""), "targets") == 0 ? "c->target[r]" : "c->token[r]";
}

/* ---- order and runs ---- */
static bool is_written(const writer *w, ir_value v) {
  for (size_t i = 0; i < ir_operand_count(w->m, v); i++) {
    ir_value x = ir_operand(w->m, v, i);
    if (!x.id) continue;
    x = train_view_of(w->m, x).owner;
    if (!w->at[x.id] && w->l->e->listed[x.id]) return false;
  }
  return true;
}

static bool same_loop(shape a, shape b) {
  return a.form == FORM_VECTOR && b.form == FORM_VECTOR && a.width == b.width && a.heads == b.heads &&
         (!a.heads || a.last == b.last);
}

/* May v stand in run `run`? What it reads of the run it must read column by column. */
static bool fits_run(const writer *w, ir_value v, uint32_t run, shape of_run) {
  shape s = shape_of(w, v);
  if (!same_loop(of_run, s)) return false;
  for (size_t i = 0; i < ir_operand_count(w->m, v); i++) {
    ir_value x = ir_operand(w->m, v, i);
    if (!x.id) continue;
    train_view view = train_view_of(w->m, x);
    if (w->run[view.owner.id] != run) continue;
    if (view.start || view.width != s.width || train_width(w->m, view.owner) != s.width ||
        ir_is(w->m, view.owner, IR_SUM_ROWS))
      return false;
  }
  return true;
}

static void put_in_order(writer *w) {
  uint32_t run = 0;
  shape of_run = {.form = FORM_NONE};
  while (w->count < w->l->count) {
    ir_value next = IR_NONE;
    bool joins = false;
    for (size_t i = 0; i < w->l->count && !joins; i++) {
      ir_value v = w->l->ops[i];
      if (w->at[v.id] || !is_written(w, v)) continue;
      joins = of_run.form == FORM_VECTOR && fits_run(w, v, run, of_run);
      if (joins || !next.id) next = v;
    }
    if (!next.id) return;
    if (!joins) of_run = shape_of(w, next), run++;
    if (of_run.form == FORM_VECTOR) w->run[next.id] = run;
    w->order[w->count++] = next;
    w->at[next.id] = (uint32_t)w->count;
  }
}

static void find_memory(writer *w) {
  for (size_t i = 0; i < w->count; i++) {
    ir_value v = w->order[i];
    train_home home = w->l->e->p->slots[v.id].home;
    if ((home != TRAIN_ROW && home != TRAIN_NOWHERE) || !w->run[v.id]) w->in_memory[v.id] = true;
    for (size_t j = 0; j < ir_operand_count(w->m, v); j++) {
      ir_value x = ir_operand(w->m, v, j);
      if (!x.id) continue;
      x = train_view_of(w->m, x).owner;
      if (w->l->e->listed[x.id] && (!w->run[v.id] || w->run[v.id] != w->run[x.id])) w->in_memory[x.id] = true;
    }
  }
}

/* ---- code ---- */
typedef struct code_of {
  writer *w;
  ir_value v;
  const char *y;
} code_of;

static uint32_t axis_in(const writer *w, ir_value v) {
  ir_value x = ir_operand(w->m, v, 0);
  return ir_type_of(w->m, x).dtype == IR_F32 ? train_last(w->m, x) : train_last(w->m, v);
}

static const char *rotary_at(const writer *w, ir_value v) {
  uint32_t t = train_rotary_of(w->l->e->p, v);
  return arena_printf(w->mem, "c->rotary[%s] + (size_t)(r %% c->time) * %u",
                      emit_field(w->mem, w->l->fields, FIELD_ROTARY, t), 2 * w->l->e->p->rotary[t].pairs);
}

static const char *letter(void *user, char which) {
  const code_of *c = user;
  if (which == 'y') return c->y;
  if (which == 'n') return arena_printf(c->w->mem, "%u", axis_in(c->w, c->v));
  if (which == 'm') return arena_printf(c->w->mem, "%u", train_last(c->w->m, c->v));
  if (which == 't') return rotary_at(c->w, c->v);
  return "plain"; /* l: tables lie as they are */
}

static void put_kernel(writer *w, ir_value v, const char *y, const char *(*operand)(void *, size_t), text *out) {
  code_of c = {w, v, y};
  emit_code code = {.m = w->m, .op = v, .mem = w->mem, .user = &c, .operand = operand, .letter = letter};
  emit_kernel(&code, out);
}

/* ---- VECTOR ---- */
static const char *left_of(const writer *w, shape s) {
  return arena_printf(w->mem, "%u - j", s.heads ? s.last : s.width);
}
static bool is_full(shape s) { return (s.heads ? s.last : s.width) % 16 == 0; }

static const char *load(const writer *w, shape s, const char *at, const char *index) {
  if (is_full(s)) return arena_printf(w->mem, "v_load(%s + %s)", at, index);
  return arena_printf(w->mem, "v_load_part(%s + %s, %s, 0)", at, index, left_of(w, s));
}

/* An operand of another shape than the loop's: one number, one of the head, or a vector along the last axis. */
static const char *broadcast(const writer *w, shape s, ir_value x, const char *at) {
  uint32_t width = train_width(w->m, x), last = train_last(w->m, x);
  if (width == 1) return arena_printf(w->mem, "v_splat(%s[0])", at);
  if (s.heads && last == 1) return arena_printf(w->mem, "v_splat(%s[h / %u])", at, s.last);
  return load(w, s, at, "j");
}

static const char *vector_operand(void *user, size_t i) {
  code_of *c = user;
  writer *w = c->w;
  ir_value x = ir_operand(w->m, c->v, i);
  if (!x.id) return "v_splat(0)";
  shape s = shape_of(w, c->v);
  train_view view = train_view_of(w->m, x);
  if (w->run[view.owner.id] && w->run[view.owner.id] == w->run[c->v.id])
    return arena_printf(w->mem, "v%u", w->at[view.owner.id]);
  const char *at = operand_at(w, x);
  if (view.width != s.width || (s.width > 1 && train_last(w->m, x) == 1 && !s.heads)) return broadcast(w, s, x, at);
  return load(w, s, at, s.heads ? "h + j" : "j");
}

static void put_store(writer *w, ir_value v, const char *indent) {
  shape s = shape_of(w, v);
  uint32_t n = w->at[v.id];
  bool sum = ir_is(w->m, v, IR_SUM_ROWS);
  const char *index = s.heads && !sum ? "h + j" : "j", *y = result_at(w, v), *adds = sum ? "1" : train_adds(w->l, v);
  const char *value = arena_printf(w->mem, "v%u", n);
  if (strcmp(adds, "1") == 0)
    value = arena_printf(w->mem, "%s + %s", load(w, s, y, index), value);
  else if (strcmp(adds, "0") != 0)
    value = arena_printf(w->mem, "(%s) ? %s + %s : %s", adds, load(w, s, y, index), value, value);
  if (is_full(s))
    text_printf(w->out, "%sv_store(%s + %s, %s);\n", indent, y, index, value);
  else
    text_printf(w->out, "%sv_store_part(%s + %s, %s, %s);\n", indent, y, index, value, left_of(w, s));
}

static size_t put_run(writer *w, size_t i) {
  shape s = shape_of(w, w->order[i]);
  const char *indent = s.heads ? "    " : "  ";
  if (s.heads) text_printf(w->out, "for (uint32_t h = 0; h < %u; h += %u) {\n  ", s.width, s.last);
  text_printf(w->out, "for (uint32_t j = 0; j < %u; j += VL) {\n", s.heads ? s.last : s.width);
  size_t end = i;
  for (; end < w->count && w->run[w->order[end].id] == w->run[w->order[i].id]; end++) {
    ir_value v = w->order[end];
    text_printf(w->out, "%sconst vf v%u = ", indent, w->at[v.id]);
    put_kernel(w, v, "", vector_operand, w->out);
    text_puts(w->out, ";\n");
    if (w->in_memory[v.id]) put_store(w, v, indent);
  }
  text_puts(w->out, s.heads ? "  }\n}\n" : "}\n");
  return end;
}

/* ---- AXIS ---- */
static const char *axis_operand(void *user, size_t i) {
  code_of *c = user;
  const writer *w = c->w;
  ir_value x = ir_operand(w->m, c->v, i);
  const ir_operand_spec *specs;
  size_t n = ir_op_operands(ir_opcode_of(w->m, c->v), &specs);
  if (x.id && i < n && specs[i].is_gate)
    return ir_is(w->m, x, IR_GATE)
               ? arena_printf(w->mem, "c->gate[%s]",
                              emit_field(w->mem, w->l->fields, FIELD_DYNAMIC_GATE, train_gate_of(w->l->e->p, x)))
               : arena_printf(w->mem, "%s[0]", operand_at(c->w, x));
  const char *at = operand_at(c->w, x);
  uint32_t rank = x.id ? ir_type_of(w->m, x).rank : 0;
  bool moves = rank && (train_is_row(w->m, x) ? rank == 4 : w->l->small && rank == 2);
  return moves ? arena_printf(w->mem, "%s + h * %u", at, train_last(w->m, x)) : at;
}

static void put_axis(writer *w, ir_value v) {
  uint32_t rank = ir_type_of(w->m, v).rank;
  bool heads = train_is_row(w->m, v) ? rank == 4 : w->l->small && rank == 2;
  const char *y = result_at(w, v);
  if (heads) {
    uint32_t last = train_last(w->m, v);
    text_printf(w->out, "for (uint32_t h = 0; h < %u; h++) ", train_width(w->m, v) / last);
    y = arena_printf(w->mem, emit_writes_result(ir_opcode_of(w->m, v)) ? "(%s + h * %u)" : "%s + h * %u", y, last);
  }
  put_kernel(w, v, y, axis_operand, w->out);
  text_puts(w->out, "\n");
}

/* ---- CODE ---- */
static void put_concat(writer *w, ir_value v) {
  uint32_t total = train_last(w->m, v), outer = train_width(w->m, v) / total, at = 0;
  int64_t axis = ir_attr_int(w->m, v, IR_ATTR_AXIS, -1);
  if (axis == 2 && ir_type_of(w->m, v).rank == 4) total = train_width(w->m, v), outer = 1; /* heads one after another */
  const char *y = result_at(w, v);
  for (size_t i = 0; i < ir_operand_count(w->m, v); i++) {
    ir_value x = ir_operand(w->m, v, i);
    uint32_t n = train_width(w->m, x) / outer;
    text_printf(w->out, "for (uint32_t h = 0; h < %u; h++) copy(%s + h * %u + %u, %s + h * %u, %u);\n", outer, y, total,
                at, operand_at(w, x), n, n);
    at += n;
  }
}

static void put_result(writer *w, ir_value v) {
  text_printf(w->out, "add_result(c, %s, (double)%s[0]);\n",
              emit_field(w->mem, w->l->fields, FIELD_RESULT, train_result_of(w->l->e->p, v)),
              operand_at(w, ir_operand(w->m, v, 0)));
}

static void put_matrix_sum(writer *w, ir_value v) {
  ir_value x = ir_operand(w->m, v, 0);
  uint32_t n = train_last(w->m, x);
  text_printf(w->out, "sum_matrix(%s, %s, %u, %u, %s);\n", result_at(w, v), operand_at(w, x), train_width(w->m, x) / n,
              n, train_adds(w->l, v));
}

static void put_op(writer *w, ir_value v) {
  emit_form form = shape_of(w, v).form;
  if (ir_is(w->m, v, IR_CONCAT))
    put_concat(w, v);
  else if (ir_is(w->m, v, IR_RESULT))
    put_result(w, v);
  else if (ir_is(w->m, v, IR_SUM_ROWS))
    put_matrix_sum(w, v);
  else if (form == FORM_AXIS)
    put_axis(w, v);
  else
    w->l->e->without_kernel = v;
}

static void open_list(writer *w) {
  train_emitter *e = w->l->e;
  size_t operands = 8;
  for (size_t i = 0; i < w->l->count; i++) {
    operands += ir_operand_count(w->m, w->l->ops[i]) + 2;
    e->listed[w->l->ops[i].id] = true;
  }
  w->run = e->run, w->at = e->at, w->in_memory = e->in_memory;
  w->pointers = ARENA_ARRAY(w->mem, pointer, operands);
  w->order = ARENA_ARRAY(w->mem, ir_value, w->l->count + 1);
}

static void close_list(writer *w) {
  for (size_t i = 0; i < w->l->count; i++) {
    uint32_t id = w->l->ops[i].id;
    w->run[id] = w->at[id] = 0;
    w->l->e->listed[id] = w->in_memory[id] = false;
  }
}

void train_steps(const train_list *l, text *out) {
  text body = {0};
  writer w = {.l = l, .m = l->e->p->m, .mem = &l->e->mem, .out = &body};
  open_list(&w);
  put_in_order(&w);
  find_memory(&w);
  for (size_t i = 0; i < w.count;) {
    if (w.run[w.order[i].id])
      i = put_run(&w, i);
    else
      put_op(&w, w.order[i++]);
  }
  close_list(&w);
  if (w.declared.data) text_puts(out, w.declared.data);
  if (body.data) text_puts(out, body.data);
  out->failed |= body.failed || w.declared.failed;
  text_free(&body);
  text_free(&w.declared);
}
