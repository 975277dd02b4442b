/* parse_op.c - .tir text: ops, operands, attributes, types, places. */
#include "compiler/ir/parse_priv.h"

#include <string.h>

typedef struct op_text {
  tir_token result, op_at;
  ir_opcode op;
  size_t operand_count, attr_count;
  ir_attr attrs[IR_ATTR_COUNT];
  tir_token attr_at[IR_ATTR_COUNT];
  bool poisoned; /* reads a value whose definition was wrong */
  ir_type type;
  tir_token type_at;
  const char *name;
  diag_loc loc;
} op_text;

static bool parse_opcode(tir_parser *p, op_text *o) {
  if (p->token.kind != TIR_WORD) return tir_expected(p, "the name of an op");
  const char *name = arena_strndup(&p->mem, p->token.text, p->token.size);
  o->op_at = p->token;
  o->op = ir_op_find(name);
  if (o->op == IR_OP_NONE) {
    const char *words[IR_OP_COUNT];
    for (unsigned i = 1; i < IR_OP_COUNT; i++) words[i - 1] = ir_op_name((ir_opcode)i);
    const char *near = tir_nearest(name, words, IR_OP_COUNT - 1);
    return tir_error(p, DC_IR_UNKNOWN, &p->token, "unknown op '%s'%s%s%s", name, near ? "; did you mean '" : "",
                     near ? near : "", near ? "'?" : "");
  }
  tir_next(p);
  return true;
}

static bool parse_operands(tir_parser *p, op_text *o) {
  bool good = true;
  if (p->token.kind != TIR_VALUE) return true;
  for (;;) {
    if (p->token.kind != TIR_VALUE) return tir_expected(p, "a value '%name'");
    if (o->operand_count == TIR_MAX_OPERANDS)
      return tir_error(p, DC_IR_LIMIT, &p->token, "more than %d operands", TIR_MAX_OPERANDS);
    const tir_name *name = tir_find_name(p, &p->token);
    if (!name) {
      int shown = (int)(p->token.size < 60 ? p->token.size : 60);
      good = tir_error(p, DC_IR_UNKNOWN, &p->token,
                       "undefined value '%.*s'; a value is defined above its use, in the same entry or globally", shown,
                       p->token.text);
    }
    o->poisoned |= name && !name->value.id;
    p->operands[o->operand_count++] = name ? name->value : IR_NONE;
    tir_next(p);
    if (!tir_accept(p, ',')) return good;
  }
}

static bool parse_floats(tir_parser *p, ir_attr *a) {
  double data[IR_MAX_INLINE];
  if (!tir_expect(p, '[')) return false;
  do {
    if (a->u.floats.n == IR_MAX_INLINE)
      return tir_error(p, DC_IR_LIMIT, &p->token, "more than %d numbers; larger constants are tensors of a file",
                       IR_MAX_INLINE);
    if (!tir_double(p, &data[a->u.floats.n])) return false;
    a->u.floats.n++;
  } while (tir_accept(p, ','));
  a->u.floats.data = arena_copy(&p->mem, data, a->u.floats.n * sizeof *data);
  return tir_expect(p, ']');
}

static bool parse_attr_key(tir_parser *p, op_text *o, ir_attr *a) {
  if (p->token.kind != TIR_WORD) return tir_expected(p, "the name of an attribute");
  const char *name = arena_strndup(&p->mem, p->token.text, p->token.size);
  if (!ir_attr_find(name, &a->key) || !ir_op_accepts(o->op, a->key, NULL)) {
    const char *words[IR_ATTR_COUNT];
    size_t n = 0;
    for (unsigned key = 0; key < IR_ATTR_COUNT; key++)
      if (ir_op_accepts(o->op, (ir_attr_key)key, NULL)) words[n++] = ir_attr_name((ir_attr_key)key);
    const char *near = tir_nearest(name, words, n);
    return tir_error(p, DC_IR_UNKNOWN, &p->token, "%s has no attribute '%s'%s%s%s", ir_op_name(o->op), name,
                     near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
  }
  if (ir_attr_in(o->attrs, o->attr_count, a->key))
    return tir_error(p, DC_IR_SYNTAX, &p->token, "attribute '%s' is given twice", name);
  tir_next(p);
  return tir_expect(p, '=');
}

static bool parse_attr_value(tir_parser *p, ir_attr *a) {
  switch (ir_attr_kind_of(a->key)) {
  case IR_KIND_INT: return tir_integer(p, &a->u.i);
  case IR_KIND_FLOAT: return tir_double(p, &a->u.f);
  case IR_KIND_STRING: return tir_string(p, &a->u.s);
  case IR_KIND_FLOATS: return parse_floats(p, a);
  }
  return false;
}

static bool parse_attrs(tir_parser *p, op_text *o) {
  if (!tir_accept(p, '{')) return true;
  do {
    ir_attr a = {0};
    o->attr_at[o->attr_count] = p->token;
    if (!parse_attr_key(p, o, &a) || !parse_attr_value(p, &a)) return false;
    o->attrs[o->attr_count++] = a;
  } while (tir_accept(p, ','));
  return tir_expect(p, '}');
}

static bool parse_dim(tir_parser *p, int64_t *out) {
  if (tir_is_word(p, "B") || tir_is_word(p, "T")) {
    *out = tir_is_word(p, "B") ? IR_DIM_B : IR_DIM_T;
    tir_next(p);
    return true;
  }
  tir_token at = p->token;
  if (p->token.kind != TIR_NUMBER) return tir_expected(p, "a dimension: a number, B or T");
  if (!tir_integer(p, out)) return false;
  if (*out < 1 || *out > IR_MAX_DIM)
    return tir_error(p, DC_IR_TYPE, &at, "a dimension is 1 to %lld", (long long)IR_MAX_DIM);
  return true;
}

static bool parse_type(tir_parser *p, ir_type *out) {
  *out = (ir_type){0};
  if (tir_is_word(p, "state")) {
    out->state = true;
    tir_next(p);
  }
  unsigned dtype = 0;
  while (dtype < IR_DTYPE_COUNT && !tir_is_word(p, ir_dtype_name((ir_dtype)dtype))) dtype++;
  if (dtype == IR_DTYPE_COUNT) return tir_expected(p, "a type, like f32[B,T,64]");
  out->dtype = (ir_dtype)dtype;
  tir_next(p);
  if (!tir_expect(p, '[')) return false;
  do {
    if (out->rank == IR_MAX_RANK) return tir_error(p, DC_IR_TYPE, &p->token, "more than %d dimensions", IR_MAX_RANK);
    if (!parse_dim(p, &out->dim[out->rank])) return false;
    out->rank++;
  } while (tir_accept(p, ','));
  return tir_expect(p, ']');
}

static bool parse_u32(tir_parser *p, uint32_t *out) {
  tir_token at = p->token;
  int64_t v = 0;
  if (!tir_integer(p, &v)) return false;
  if (v < 0 || v > UINT32_MAX) return tir_error(p, DC_IR_SYNTAX, &at, "a place is a number of 32 bits");
  *out = (uint32_t)v;
  return true;
}

static bool parse_loc(tir_parser *p, diag_loc *out) {
  if (!tir_is_word(p, "loc")) return true;
  tir_next(p);
  if (!tir_expect(p, '(') || !tir_string(p, &out->file) || !tir_expect(p, ':') || !parse_u32(p, &out->line) ||
      !tir_expect(p, ':') || !parse_u32(p, &out->col))
    return false;
  if (tir_accept(p, '+') && !parse_u32(p, &out->length)) return false;
  return tir_expect(p, ')');
}

static bool check_region(tir_parser *p, const op_text *o) {
  const char *name = ir_op_name(o->op);
  bool global = p->region.id == IR_GLOBALS.id;
  if (global && !ir_op_has(o->op, OPF_GLOBAL) && !ir_op_has(o->op, OPF_PURE))
    return tir_error(p, DC_IR_TYPE, &o->op_at, "%s cannot stand in the global region; move it into an entry", name);
  if (!global && ir_op_has(o->op, OPF_GLOBAL))
    return tir_error(p, DC_IR_TYPE, &o->op_at, "%s cannot stand in an entry; move it above the entries", name);
  return true;
}

/* Checks against the shape rule and puts the op at the end of the region. */
static bool add_op(tir_parser *p, op_text *o) {
  text message = {0};
  bool is_return = o->op == IR_RETURN;
  ir_type type = o->type;
  const tir_token *at = is_return ? &o->op_at : &o->type_at;
  bool good = ir_infer(p->m, o->op, p->operands, o->operand_count, o->attrs, o->attr_count, &type, &message);
  if (!good) tir_error(p, DC_IR_TYPE, &o->op_at, "%s: %s", ir_op_name(o->op), message.data ? message.data : "");
  if (good && !is_return && !ir_type_equal(type, o->type)) {
    text_puts(&message, "declared ");
    ir_print_type(&message, o->type);
    text_printf(&message, ", but %s yields ", ir_op_name(o->op));
    ir_print_type(&message, type);
    good = tir_error(p, DC_IR_TYPE, at, "%s", message.data ? message.data : "wrong type");
  }
  text_free(&message);
  p->operand_total += o->operand_count;
  if (p->operand_total > TIR_MAX_ALL_OPERANDS)
    return tir_error(p, DC_IR_LIMIT, &o->op_at, "more than %d operands in all", TIR_MAX_ALL_OPERANDS);
  if (ir_value_limit(p->m) > TIR_MAX_OPS) return tir_error(p, DC_IR_LIMIT, &o->op_at, "more than %d ops", TIR_MAX_OPS);
  if (!good) return false;
  ir_value v =
      ir_node_add(p->m, p->region, IR_NONE, o->op, type, p->operands, o->operand_count, o->attrs, o->attr_count);
  if (o->name) ir_node_at(p->m, v)->name = arena_strdup(&p->m->mem, o->name);
  if (o->loc.file)
    ir_set_loc(p->m, v, o->loc);
  else
    ir_set_hidden_loc(p->m, v, tir_loc(p, &o->op_at));
  if (!is_return) tir_define(p, &o->result, v);
  return true;
}

static bool parse_result(tir_parser *p, op_text *o) {
  o->result = p->token;
  const tir_name *before = tir_find_name(p, &p->token);
  if (before) {
    tir_error(p, DC_IR_SYNTAX, &p->token, "'%.*s' is defined twice; a value has one definition",
              (int)(p->token.size < 60 ? p->token.size : 60), p->token.text);
    diag_note(p->sink, (diag_loc){p->file, before->line, before->col, (uint32_t)before->size}, "the first is here");
    return false;
  }
  tir_next(p);
  return tir_expect(p, '=');
}

static bool parse_declared_type(tir_parser *p, op_text *o) {
  if (!tir_expect(p, ':')) return false;
  tir_token *at = &o->type_at;
  *at = p->token;
  if (!parse_type(p, &o->type)) return false;
  if (p->token.line == at->line) at->size = (size_t)(p->token.text - at->text);
  while (at->size > 1 && at->text[at->size - 1] == ' ') at->size--;
  return true;
}

static bool parse_name(tir_parser *p, op_text *o) {
  tir_token at = p->token;
  if (p->token.kind != TIR_STRING) return true;
  return tir_string(p, &o->name) && (*o->name || tir_error(p, DC_IR_SYNTAX, &at, "the name of an op is empty"));
}

/* What stands behind `%x =`, to the end of its line. */
static bool parse_body(tir_parser *p, op_text *o, bool is_return) {
  if (!parse_opcode(p, o)) return false;
  if (!is_return && o->op == IR_RETURN) return tir_error(p, DC_IR_SYNTAX, &o->op_at, "return yields no value");
  if (!check_region(p, o) || !parse_operands(p, o) || !parse_attrs(p, o)) return false;
  if (!is_return && !parse_declared_type(p, o)) return false;
  if (!parse_name(p, o) || !parse_loc(p, &o->loc)) return false;
  if (p->token.kind == TIR_END || p->token.first_on_line || tir_is_mark(p, '}')) return true;
  return tir_expected(p, "the end of the op");
}

/* A result whose definition is wrong is defined nonetheless, as none: its users are no errors of their own. */
bool tir_parse_op(tir_parser *p) {
  op_text o = {0};
  bool is_return = tir_is_word(p, "return");
  if (!is_return && p->token.kind != TIR_VALUE) return tir_expected(p, "an op: '%name = ...' or 'return ...'");
  if (!is_return && !parse_result(p, &o)) return false;
  bool whole = parse_body(p, &o, is_return);
  if (whole && !o.poisoned && add_op(p, &o)) return true;
  if (!is_return) tir_define(p, &o.result, IR_NONE);
  return whole; /* what is whole but wrong was reported, and reading goes on behind it */
}
