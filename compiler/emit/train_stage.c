/* train_stage.c - the body of a training stage's function, and where the values that it names lie. */
#include "compiler/emit/train_priv.h"

#include <string.h>

uint32_t train_last(const ir_module *m, ir_value v) {
  ir_type t = ir_type_of(m, v);
  return t.rank && t.dim[t.rank - 1] > 0 ? (uint32_t)t.dim[t.rank - 1] : 1;
}

/* ---- places ---- */
static const char *field(const train_list *l, emit_field_kind kind, uint32_t index) {
  return emit_field(&l->e->mem, l->fields, kind, index);
}

static const char *at_home(const train_list *l, ir_value v, const char *r, const char *i) {
  const train_slot *s = &l->e->p->slots[v.id];
  arena *mem = &l->e->mem;
  unsigned long long offset = s->offset;
  switch (s->home) {
  case TRAIN_ARENA: return arena_printf(mem, "arena_at(c, %s, %u, %s)", field(l, FIELD_BUFFER, v.id), s->width, r);
  case TRAIN_CHUNK: return arena_printf(mem, "chunk_at(c, %s, %u, %s)", field(l, FIELD_CHUNK, v.id), s->width, r);
  case TRAIN_BLOCK:
    return arena_printf(mem, "block_at(c, %llu, %llu, %u, %s)", (unsigned long long)l->stage->row_scratch, offset,
                        s->width, i);
  case TRAIN_ROW: return arena_printf(mem, "c->scratch + %llu", offset);
  case TRAIN_FIXED: return arena_printf(mem, "c->fixed + %s", field(l, FIELD_FIXED, v.id));
  case TRAIN_GRADIENT: return arena_printf(mem, "c->grad[%s]", field(l, FIELD_PARAM, s->param));
  case TRAIN_MEAN:
  case TRAIN_NOWHERE: break;
  }
  return "0";
}

static bool is_sum(const train_list *l, ir_value v) {
  return ir_is(l->e->p->m, v, IR_SUM_ROWS) || ir_is(l->e->p->m, v, IR_TOKEN_MEAN);
}

static const char *partial_of(const train_list *l, ir_value v, const char *block) {
  return arena_printf(&l->e->mem, "partial_at(c, %s, %u, %s)", field(l, FIELD_PARTIAL, v.id),
                      l->e->p->slots[v.id].width, block);
}

const char *train_place(const train_list *l, ir_value owner, const char *r, const char *i) {
  return is_sum(l, owner) && l->stage->kind == TRAIN_ROWS ? partial_of(l, owner, "b") : at_home(l, owner, r, i);
}

static uint32_t const_index(train_emitter *e, ir_value v) {
  ir_type t = ir_type_of(e->p->m, v);
  size_t n, k;
  const double *data = ir_attr_floats(e->p->m, v, IR_ATTR_VALUE, &n);
  for (uint32_t i = 0; i < e->const_count; i++) {
    const double *other = ir_attr_floats(e->p->m, e->consts[i], IR_ATTR_VALUE, &k);
    if (k == n && ir_elements(ir_type_of(e->p->m, e->consts[i])) == ir_elements(t) && data && other &&
        memcmp(data, other, n * sizeof *data) == 0)
      return i;
  }
  e->consts[e->const_count] = v;
  return (uint32_t)e->const_count++;
}

const char *train_operand_place(const train_list *l, ir_value x, const char *r, const char *i) {
  const train_plan *p = l->e->p;
  arena *mem = &l->e->mem;
  if (!x.id) return "0";
  if (ir_is(p->m, x, IR_PARAM)) return arena_printf(mem, "c->param[%s]", field(l, FIELD_PARAM, train_param_of(p, x)));
  if (ir_is(p->m, x, IR_GATE))
    return arena_printf(mem, "(float *)c->gate + %s", field(l, FIELD_DYNAMIC_GATE, train_gate_of(p, x)));
  if (ir_is(p->m, x, IR_CONST))
    return arena_printf(mem, "(float *)consts[%s]", field(l, FIELD_CONST, const_index(l->e, x)));
  train_view v = train_view_of(p->m, x);
  const char *at = at_home(l, v.owner, r, i);
  return v.start ? arena_printf(mem, "%s + %u", at, v.start) : at;
}

const char *train_adds(const train_list *l, ir_value v) {
  const train_slot *s = &l->e->p->slots[v.id];
  if (s->home != TRAIN_GRADIENT)
    return l->stage->chunked && l->stage->kind == TRAIN_WEIGHTS ? "c->chunk_row0 > 0" : "0";
  if (s->adds) return "1";
  return l->stage->chunked && l->stage->kind == TRAIN_WEIGHTS ? "c->accumulate || c->chunk_row0 > 0" : "c->accumulate";
}

/* ---- rows ---- */
uint32_t train_pitch(const train_list *l, ir_value x) {
  return l->e->p->slots[train_view_of(l->e->p->m, x).owner.id].width;
}

static void put_product(const train_list *l, ir_value v, text *out) {
  const ir_module *m = l->e->p->m;
  arena *mem = &l->e->mem;
  ir_value x = ir_operand(m, v, 0), weight = ir_operand(m, v, 1), bias = ir_operand(m, v, 2);
  bool back = ir_is(m, v, IR_LINEAR_BACK);
  uint32_t n = train_last(m, v), k = train_last(m, x), heads = train_width(m, v) / n, ldx = train_pitch(l, x);
  bool apart = heads > 1 && ldx != train_width(m, x); /* heads of rows that do not lie one after another */
  const char *count = "n", *r = "r0", *i = "0";
  if (apart) {
    text_puts(out, "for (uint32_t i = 0; i < n; i++)\n  ");
    r = "r0 + i", i = "i", count = arena_printf(mem, "%u", heads);
  } else if (heads > 1) {
    count = arena_printf(mem, "n * %u", heads);
  }
  text_printf(out, "gemm_rows(c, %s, %u, %s, %u, %s, %u, %u, c->packed[%s], %s, %d, 0, %s);\n", train_place(l, v, r, i),
              heads > 1 ? n : l->e->p->slots[v.id].width, train_operand_place(l, x, r, i), heads > 1 ? k : ldx, count,
              n, k, field(l, FIELD_PACK, train_pack_of(l->e->p, weight, back)), train_operand_place(l, weight, r, i),
              back, back ? "0" : train_operand_place(l, bias, r, i));
}

static void put_lines(text *out, const char *indent, text *lines) {
  for (const char *s = lines->data, *end; s && *s; s = end + 1) {
    end = strchr(s, '\n');
    text_puts(out, indent);
    text_put(out, s, (size_t)(end - s) + 1);
  }
  out->failed |= lines->failed;
  text_free(lines);
}

static void put_group(train_list *l, const train_group *g, text *out) {
  text steps = {0};
  l->ops = g->ops, l->count = g->count;
  if (g->product) {
    put_product(l, g->ops[0], &steps);
    put_lines(out, "  ", &steps);
    return;
  }
  train_steps(l, &steps);
  text_puts(out, "  for (uint32_t i = 0; i < n; i++) {\n    const uint32_t r = r0 + i;\n");
  put_lines(out, "    ", &steps);
  text_puts(out, "  }\n");
}

static void put_rows(train_list *l, text *out) {
  text_puts(out, "const span blocks = block_share(c);\nfor (uint32_t b = blocks.first; b < blocks.last; b++) {\n");
  text_puts(out, "  const uint32_t r0 = b * c->block, n = block_rows(c, b);\n");
  for (size_t i = 0; i < l->stage->op_count; i++)
    if (is_sum(l, l->stage->ops[i]))
      text_printf(out, "  zero(%s, %u);\n", partial_of(l, l->stage->ops[i], "b"),
                  l->e->p->slots[l->stage->ops[i].id].width);
  for (size_t i = 0; i < l->stage->group_count; i++) put_group(l, &l->stage->groups[i], out);
  text_puts(out, "}\n");
}

/* ---- stages of one kind of op ---- */
/* One call for all heads where they lie one after another, else one for each. */
static void put_weight(train_list *l, ir_value v, text *out) {
  const ir_module *m = l->e->p->m;
  ir_value dy = ir_operand(m, v, 0), x = ir_operand(m, v, 1);
  uint32_t n = train_last(m, dy), k = train_last(m, x), heads = train_width(m, dy) / n, calls = 1;
  uint32_t lddy = train_pitch(l, dy), ldx = train_pitch(l, x);
  const char *rows = "c->chunk_count", *adds = train_adds(l, v);
  if (heads > 1 && lddy == train_width(m, dy) && ldx == train_width(m, x))
    rows = arena_printf(&l->e->mem, "c->chunk_count * %u", heads), lddy = n, ldx = k;
  else
    calls = heads;
  for (uint32_t h = 0; h < calls; h++)
    text_printf(out,
                "gemm_weight(c, %s, %s + %u, %u, %s + %u, %u, %s, %u, %u, %s, c->scratch, c->worker, c->workers);\n",
                train_place(l, v, "0", "0"), train_operand_place(l, dy, "c->chunk_row0", "0"), h * n, lddy,
                train_operand_place(l, x, "c->chunk_row0", "0"), h * k, ldx, rows, n, k, h ? "1" : adds);
}

static void put_embed(train_list *l, ir_value v, text *out) {
  const ir_module *m = l->e->p->m;
  ir_type t = ir_type_of(m, v);
  ir_value dy = ir_operand(m, v, 1);
  text_printf(out, "table_back(c, %s, %lld, %lld, %s, %s, %u, %s);\n", train_place(l, v, "0", "0"), (long long)t.dim[0],
              (long long)t.dim[1], ir_is(m, ir_operand(m, v, 0), IR_POSITIONS) ? "0" : "c->token",
              train_operand_place(l, dy, "0", "0"), train_pitch(l, dy), train_adds(l, v));
}

static void put_sum(train_list *l, ir_value v, text *out) {
  const ir_module *m = l->e->p->m;
  const train_slot *s = &l->e->p->slots[v.id];
  const char *partial = partial_of(l, v, "0");
  if (ir_is(m, v, IR_SUM_ROWS)) {
    text_printf(out, "sum_blocks(c, %s, %s, %u, %s);\n", train_place(l, v, "0", "0"), partial, s->width,
                train_adds(l, v));
    return;
  }
  ir_value *users;
  size_t n = ir_users(m, v, &l->e->mem, &users);
  text_printf(out, "if (c->worker == %u %% c->workers) {\n  const double value = mean_of_blocks(c, %s);\n",
              l->fields->count[FIELD_PARTIAL], partial);
  if (s->home == TRAIN_FIXED)
    text_printf(out, "  %s[0] = (float)value;\n", arena_printf(&l->e->mem, "(%s)", at_home(l, v, "0", "0")));
  if (s->home == TRAIN_GRADIENT)
    text_printf(out, "  %s[0] = (float)((%s) ? (double)%s[0] + value : value);\n", at_home(l, v, "0", "0"),
                train_adds(l, v), at_home(l, v, "0", "0"));
  for (size_t i = 0; i < n; i++)
    if (ir_is(m, users[i], IR_RESULT))
      text_printf(out, "  add_result(c, %s, value);\n", field(l, FIELD_RESULT, train_result_of(l->e->p, users[i])));
  text_puts(out, "}\n");
}

static void put_small(train_list *l, text *out) {
  text steps = {0};
  l->ops = l->stage->ops, l->count = l->stage->op_count, l->small = true;
  train_steps(l, &steps);
  text_puts(out, "if (c->worker == 0) {\n");
  put_lines(out, "  ", &steps);
  text_puts(out, "}\n");
}

void train_stage_body(train_list *l, text *out) {
  static void (*const each[])(train_list *, ir_value, text *) = {
      [TRAIN_WEIGHTS] = put_weight,
      [TRAIN_EMBED] = put_embed,
      [TRAIN_SUMS] = put_sum,
      [TRAIN_ATTENTION] = train_put_attention,
      [TRAIN_ATTENTION_BACK] = train_put_attention_back,
  };
  if (l->stage->kind == TRAIN_ROWS) {
    put_rows(l, out);
  } else if (l->stage->kind == TRAIN_SMALL) {
    put_small(l, out);
  } else {
    for (size_t i = 0; i < l->stage->op_count; i++) each[l->stage->kind](l, l->stage->ops[i], out);
  }
}
