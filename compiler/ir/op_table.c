/* op_table.c - op.def, attr.def and dtype.def as tables; operand and attribute texts are parsed once. */
#include "compiler/ir/ir_priv.h"

#include <pthread.h>
#include <string.h>

typedef struct op_row {
  const char *name, *operand_text, *attr_text;
  ir_operand_spec *operands;
  size_t operand_count;
  unsigned flags;
  bool accepts[IR_ATTR_COUNT], required[IR_ATTR_COUNT];
} op_row;

static op_row op_rows[IR_OP_COUNT] = {
    [IR_OP_NONE] = {.name = "(erased)", .operand_text = "", .attr_text = ""},
#define OP(id, text, operands, attrs, flags, infer, eval, grad)                                                        \
  [IR_##id] = {text, operands, attrs, NULL, 0, (unsigned)(flags), {false}, {false}},
#include "compiler/ir/op.def"
#undef OP
};

static const struct {
  const char *name;
  ir_attr_kind kind;
} attr_rows[IR_ATTR_COUNT] = {
#define ATTR(id, text, kind) [IR_ATTR_##id] = {text, IR_KIND_##kind},
#include "compiler/ir/attr.def"
#undef ATTR
};

static const struct {
  const char *name;
  size_t bytes;
} dtype_rows[IR_DTYPE_COUNT] = {
#define DTYPE(id, text, bytes) [IR_##id] = {text, bytes},
#include "compiler/ir/dtype.def"
#undef DTYPE
};

static arena table_mem;
static pthread_once_t table_once = PTHREAD_ONCE_INIT;

/* The next word of a space-separated list; its length is 0 at the end. */
static const char *next_word(const char *s, size_t *out_n) {
  while (*s == ' ') s++;
  *out_n = strcspn(s, " ");
  return s;
}

static void parse_operand(ir_operand_spec *spec, const char *word, size_t n) {
  if (word[n - 1] == '?') {
    spec->optional = true;
    n--;
  }
  if (word[n - 1] == '*') {
    spec->variadic = true;
    n--;
  }
  const char *colon = memchr(word, ':', n);
  spec->name = arena_strndup(&table_mem, word, colon ? (size_t)(colon - word) : n);
  if (!colon) return;
  const char *kind = arena_strndup(&table_mem, colon + 1, n - (size_t)(colon + 1 - word));
  spec->is_gate = strcmp(kind, "gate") == 0;
  spec->is_positions = strcmp(kind, "positions") == 0;
  if (spec->is_gate || spec->is_positions) return;
  const char *equals = strchr(kind, '=');
  if (!equals) ir_bug("op.def: operand '%s' has no initial value", word);
  spec->is_param = true;
  spec->shape = arena_strndup(&table_mem, kind, (size_t)(equals - kind));
  spec->init = equals + 1;
}

static void parse_row(op_row *row) {
  size_t n, count = 0;
  for (const char *s = next_word(row->operand_text, &n); n; s = next_word(s + n, &n)) count++;
  row->operands = ARENA_ARRAY(&table_mem, ir_operand_spec, count ? count : 1);
  for (const char *s = next_word(row->operand_text, &n); n; s = next_word(s + n, &n))
    parse_operand(&row->operands[row->operand_count++], s, n);
  for (const char *s = next_word(row->attr_text, &n); n; s = next_word(s + n, &n)) {
    bool required = s[n - 1] == '!';
    ir_attr_key key;
    if (!ir_attr_find(arena_strndup(&table_mem, s, required ? n - 1 : n), &key)) ir_bug("op.def: no attribute '%s'", s);
    row->accepts[key] = true;
    row->required[key] = required;
  }
  row->accepts[IR_ATTR_GROUP] = true; /* fuse-epilogue puts it on every op */
}

static void parse_table(void) {
  for (size_t op = 0; op < IR_OP_COUNT; op++) parse_row(&op_rows[op]);
}

static const op_row *row_of(ir_opcode op) {
  pthread_once(&table_once, parse_table);
  return &op_rows[op];
}

const char *ir_op_name(ir_opcode op) { return op_rows[op].name; }
bool ir_op_has(ir_opcode op, unsigned flags) { return (op_rows[op].flags & flags) == flags; }

ir_opcode ir_op_find(const char *name) {
  for (unsigned op = IR_OP_NONE + 1; op < IR_OP_COUNT; op++)
    if (strcmp(op_rows[op].name, name) == 0) return (ir_opcode)op;
  return IR_OP_NONE;
}

size_t ir_op_operands(ir_opcode op, const ir_operand_spec **out) {
  const op_row *row = row_of(op);
  if (out) *out = row->operands;
  return row->operand_count;
}

bool ir_op_accepts(ir_opcode op, ir_attr_key key, bool *out_required) {
  const op_row *row = row_of(op);
  if (out_required) *out_required = row->required[key];
  return row->accepts[key];
}

ir_attr_kind ir_attr_kind_of(ir_attr_key key) { return attr_rows[key].kind; }
const char *ir_attr_name(ir_attr_key key) { return attr_rows[key].name; }

bool ir_attr_find(const char *name, ir_attr_key *out) {
  for (unsigned key = 0; key < IR_ATTR_COUNT; key++) {
    if (strcmp(attr_rows[key].name, name) != 0) continue;
    *out = (ir_attr_key)key;
    return true;
  }
  return false;
}

size_t ir_dtype_size(ir_dtype t) { return dtype_rows[t].bytes; }
const char *ir_dtype_name(ir_dtype t) { return dtype_rows[t].name; }
