/* infer.c - checks of operands and attributes that hold for every op, and the door to the shape rules. */
#include "compiler/ir/infer_priv.h"
#include "runtime/base/checked.h"

#include <math.h>
#include <string.h>

static const infer_fn infer_rules[IR_OP_COUNT] = {
#define OP(id, text, operands, attrs, flags, infer, eval, grad) [IR_##id] = infer,
#include "compiler/ir/op.def"
#undef OP
};

bool infer_fail(infer_ctx *c, const char *format, ...) {
  if (!c->message) return false;
  va_list args;
  va_start(args, format);
  text_vprintf(c->message, format, args);
  va_end(args);
  return false;
}

static const char *operand_name(ir_opcode op, size_t i) {
  const ir_operand_spec *specs;
  size_t n = ir_op_operands(op, &specs);
  return i < n ? specs[i].name : n ? specs[n - 1].name : "x";
}

bool infer_fail_operand(infer_ctx *c, size_t i, const char *expected) {
  infer_fail(c, "operand %zu '%s': expected %s, found ", i, operand_name(c->op, i), expected);
  if (c->message) ir_print_type(c->message, infer_type(c, i));
  return false;
}

ir_type infer_type(const infer_ctx *c, size_t i) { return ir_type_of(c->m, c->operands[i]); }

int64_t infer_int(const infer_ctx *c, ir_attr_key key, int64_t otherwise) {
  const ir_attr *a = ir_attr_in(c->attrs, c->attr_count, key);
  return a ? a->u.i : otherwise;
}

const char *infer_string(const infer_ctx *c, ir_attr_key key, const char *otherwise) {
  const ir_attr *a = ir_attr_in(c->attrs, c->attr_count, key);
  return a ? a->u.s : otherwise;
}

bool infer_expect(infer_ctx *c, size_t i, ir_dtype dtype, uint32_t rank, const int64_t *dims) {
  ir_type want = ir_type_make(dtype, rank, dims);
  if (ir_type_equal(want, infer_type(c, i))) return true;
  text t = {0};
  ir_print_type(&t, want);
  infer_fail_operand(c, i, t.data ? t.data : "another type");
  text_free(&t);
  return false;
}

bool infer_float(infer_ctx *c, size_t i) {
  ir_type t = infer_type(c, i);
  return (t.dtype == IR_F32 && t.rank && !t.state) || infer_fail_operand(c, i, "an f32 tensor");
}

/* Letters of a parameter's shape: d, the last dimension of operand 0, and 1; `o` is for the op's own rule. */
static bool infer_param(infer_ctx *c, size_t i, const ir_operand_spec *spec) {
  if (!infer_float(c, i)) return false;
  if (strchr(spec->shape, 'o')) return true;
  int64_t dim = spec->shape[0] == 'd' ? infer_last(infer_type(c, 0)) : 1;
  return infer_expect(c, i, IR_F32, 1, &dim);
}

static bool infer_positions_operand(infer_ctx *c, size_t i) {
  ir_type x = infer_type(c, 0);
  if (x.rank < 2) return infer_fail_operand(c, 0, "a tensor of rank 2 or more");
  return infer_expect(c, i, IR_I32, 2, x.dim);
}

bool infer_operands(infer_ctx *c) {
  const ir_operand_spec *specs;
  size_t n = ir_op_operands(c->op, &specs);
  static const int64_t one = 1;
  if (!infer_float(c, 0)) return false;
  if (infer_last(infer_type(c, 0)) < 1) return infer_fail_operand(c, 0, "a tensor whose last dimension is a number");
  for (size_t i = 0; i < n; i++) {
    if (!infer_has(c, i)) continue;
    if (specs[i].is_param && !infer_param(c, i, &specs[i])) return false;
    if (specs[i].is_gate && !infer_expect(c, i, IR_F32, 1, &one)) return false;
    if (specs[i].is_positions && !infer_positions_operand(c, i)) return false;
  }
  return true;
}

/* The part of a type that is known must be countable; a symbolic dimension stands for 1 here. */
static bool type_is_sane(ir_type t) {
  int64_t n = 1;
  if (t.rank > IR_MAX_RANK || (unsigned)t.dtype >= IR_DTYPE_COUNT) return false;
  for (uint32_t i = 0; i < t.rank; i++) {
    if (t.dim[i] == IR_DIM_B || t.dim[i] == IR_DIM_T) continue;
    if (t.dim[i] < 1 || t.dim[i] > IR_MAX_DIM || !checked_mul_i64(n, t.dim[i], &n) || n > IR_MAX_ELEMENTS) return false;
  }
  return true;
}

bool infer_finish(infer_ctx *c, ir_type type) {
  if (!type_is_sane(type))
    return infer_fail(c, "the result would be too large: a dimension is at most %lld, a tensor at most 2^40 elements",
                      (long long)IR_MAX_DIM);
  *c->out = type;
  return true;
}

/* What a number may be, whatever the op. */
static const struct {
  double least;
  const char *text;
  ir_attr_key key;
  bool above;
} attr_ranges[] = {
    {0, "above 0", IR_ATTR_CAP, true},
    {1, "at least 1", IR_ATTR_LENGTH, false},
    {2, "at least 2", IR_ATTR_DIMS, false},
    {0, "0 or more", IR_ATTR_EPS, false},
    {0, "0 or more", IR_ATTR_GROUP, false},
    {1, "at least 1", IR_ATTR_HEADS, false},
    {0, "0 or more", IR_ATTR_INDEX, false},
    {1, "at least 1", IR_ATTR_SIZE, false},
    {0, "0 or more", IR_ATTR_START, false},
    {0, "above 0", IR_ATTR_THETA, true},
    {0, "0 or more", IR_ATTR_WINDOW, false},
    {0, "above 0", IR_ATTR_SCALING_FACTOR, true},
    {0, "above 0", IR_ATTR_SCALING_HIGH, true},
    {0, "above 0", IR_ATTR_SCALING_LOW, true},
    {1, "at least 1", IR_ATTR_SCALING_ORIGINAL, false},
    {-1, "-1 or more", IR_ATTR_AXIS, false},
};

static bool check_number(infer_ctx *c, const ir_attr *a) {
  bool is_int = ir_attr_kind_of(a->key) == IR_KIND_INT;
  double v = is_int ? (double)a->u.i : a->u.f;
  const char *name = ir_attr_name(a->key);
  if (!isfinite(v)) return infer_fail(c, "attribute '%s': expected a finite number", name);
  if (is_int && (a->u.i > IR_MAX_DIM || a->u.i < -IR_MAX_DIM))
    return infer_fail(c, "attribute '%s': %lld is out of range", name, (long long)a->u.i);
  if ((a->key == IR_ATTR_INTERLEAVED || a->key == IR_ATTR_TRAINED) && a->u.i != 0 && a->u.i != 1)
    return infer_fail(c, "attribute '%s': expected 0 or 1, found %lld", name, (long long)a->u.i);
  for (size_t i = 0; i < sizeof attr_ranges / sizeof *attr_ranges; i++) {
    if (attr_ranges[i].key != a->key || (attr_ranges[i].above ? v > attr_ranges[i].least : v >= attr_ranges[i].least))
      continue;
    infer_fail(c, "attribute '%s': expected a number %s, found ", name, attr_ranges[i].text);
    if (c->message) text_put_double(c->message, v);
    return false;
  }
  return true;
}

static bool check_attrs(infer_ctx *c) {
  for (size_t i = 0; i < c->attr_count; i++) {
    const ir_attr *a = &c->attrs[i];
    if ((unsigned)a->key >= IR_ATTR_COUNT || !ir_op_accepts(c->op, a->key, NULL))
      return infer_fail(c, "unknown attribute '%s'", (unsigned)a->key < IR_ATTR_COUNT ? ir_attr_name(a->key) : "?");
    if (ir_attr_in(c->attrs, i, a->key)) return infer_fail(c, "attribute '%s' is given twice", ir_attr_name(a->key));
    switch (ir_attr_kind_of(a->key)) {
    case IR_KIND_INT:
    case IR_KIND_FLOAT:
      if (!check_number(c, a)) return false;
      break;
    case IR_KIND_STRING:
      if (!a->u.s || (a->key == IR_ATTR_NAME && !a->u.s[0]))
        return infer_fail(c, "attribute '%s' is empty", ir_attr_name(a->key));
      break;
    case IR_KIND_FLOATS:
      if (!a->u.floats.n || a->u.floats.n > IR_MAX_INLINE)
        return infer_fail(c, "attribute '%s': expected 1 to %d numbers, found %zu", ir_attr_name(a->key), IR_MAX_INLINE,
                          a->u.floats.n);
      break;
    }
  }
  for (unsigned key = 0; key < IR_ATTR_COUNT; key++) {
    bool required;
    if (ir_op_accepts(c->op, (ir_attr_key)key, &required) && required &&
        !ir_attr_in(c->attrs, c->attr_count, (ir_attr_key)key))
      return infer_fail(c, "attribute '%s' is missing", ir_attr_name((ir_attr_key)key));
  }
  return true;
}

static bool check_operand_count(infer_ctx *c) {
  const ir_operand_spec *specs;
  size_t count = ir_op_operands(c->op, &specs), least = 0;
  bool variadic = count && specs[count - 1].variadic;
  while (least < count && !specs[least].optional) least++;
  if (c->op == IR_RETURN) least = 0; /* a training program hands out nothing but results and gradients */
  while (c->n && !c->operands[c->n - 1].id) c->n--;
  if (c->n < least || (!variadic && c->n > count)) {
    const char *plural = least == 1 && count == 1 ? "" : "s";
    if (variadic) return infer_fail(c, "expected at least %zu operand%s, found %zu", least, plural, c->n);
    if (least == count) return infer_fail(c, "expected %zu operand%s, found %zu", count, plural, c->n);
    return infer_fail(c, "expected %zu to %zu operands, found %zu", least, count, c->n);
  }
  for (size_t i = 0; i < c->n; i++) {
    ir_value v = c->operands[i];
    if (!v.id || v.id >= ir_value_limit(c->m) || ir_is(c->m, v, IR_OP_NONE) || ir_is(c->m, v, IR_RETURN))
      return infer_fail(c, "operand %zu '%s' is no value", i, operand_name(c->op, i));
  }
  return true;
}

bool ir_infer(const ir_module *m, ir_opcode op, const ir_value *operands, size_t n, const ir_attr *attrs,
              size_t attr_count, ir_type *out, text *message) {
  infer_ctx c = {m, op, operands, n, attrs, attr_count, out, message};
  if (op <= IR_OP_NONE || op >= IR_OP_COUNT) return infer_fail(&c, "no such op");
  return check_operand_count(&c) && check_attrs(&c) && infer_rules[op](&c);
}

bool ir_retype(ir_module *m, ir_value v, text *message) {
  const ir_node *node = ir_node_at(m, v);
  ir_value few[8], *operands = few;
  arena scratch = {0};
  if (node->operand_count > 8) operands = ARENA_ARRAY(&scratch, ir_value, node->operand_count);
  for (uint32_t i = 0; i < node->operand_count; i++) operands[i] = node->operands[i].value;
  ir_type type = node->type;
  bool ok = ir_infer(m, node->op, operands, node->operand_count, node->attrs, node->attr_count, &type, message);
  if (ok) ir_set_type(m, v, type);
  arena_free(&scratch);
  return ok;
}

/* ---- declared types ---- */
static bool check_values(infer_ctx *c, ir_type t) {
  const ir_attr *value = ir_attr_in(c->attrs, c->attr_count, IR_ATTR_VALUE);
  if (!value) return true;
  int64_t n = ir_elements(t);
  size_t given = value->u.floats.n;
  if (given != 1 && (int64_t)given != n)
    return infer_fail(c, "attribute 'value': expected 1 or %lld numbers, found %zu", (long long)n, given);
  for (size_t i = 0; i < given; i++) {
    double v = value->u.floats.data[i], bound = t.dtype == IR_I8 ? 128 : 2147483648.0;
    if ((t.dtype == IR_I32 || t.dtype == IR_I8) && !(v == floor(v) && v >= -bound && v < bound))
      return infer_fail(c, "attribute 'value': element %zu is no %s", i, ir_dtype_name(t.dtype));
  }
  return true;
}

static bool is_dims(ir_type t, uint32_t rank, int64_t d0, int64_t d1) {
  return t.rank == rank && t.dim[0] == d0 && (rank < 2 || t.dim[1] == d1);
}

static bool check_arg(infer_ctx *c, ir_type t) {
  if (t.state) {
    bool good =
        t.dtype == IR_F32 && t.rank == 4 && t.dim[0] == IR_DIM_B && t.dim[1] > 0 && t.dim[2] > 0 && t.dim[3] > 0;
    return good || infer_fail(c, "a state is f32[B,heads,context,head_dim]");
  }
  if (t.dtype == IR_I32 && (is_dims(t, 1, IR_DIM_B, 0) || is_dims(t, 2, IR_DIM_B, IR_DIM_T))) return true;
  if (t.dtype == IR_F32 && t.rank) return true;
  return infer_fail(c, "an argument is i32[B,T], i32[B], f32 or a state");
}

static bool check_gate(infer_ctx *c, ir_type t) {
  enum { MOST = 65536 }; /* docs/language.md, limits */
  if (t.dtype != IR_F32 || t.rank != 1 || t.dim[0] != 1) return infer_fail(c, "a gate is f32[1]");
  const ir_attr *index = ir_attr_in(c->attrs, c->attr_count, IR_ATTR_INDEX);
  const ir_attr *length = ir_attr_in(c->attrs, c->attr_count, IR_ATTR_LENGTH);
  if (length && !index) return infer_fail(c, "attribute 'length' needs 'index'");
  int64_t n = length ? length->u.i : MOST;
  if (n > MOST) return infer_fail(c, "an array of gates has at most %d elements", (int)MOST);
  if (!index || index->u.i < n) return true;
  return infer_fail(c, "attribute 'index': %lld, the array has %lld elements", (long long)index->u.i, (long long)n);
}

bool infer_declared(infer_ctx *c) {
  ir_type t = *c->out;
  if (!t.rank || !type_is_sane(t))
    return infer_fail(c, "expected a declared type of rank 1 to %d and at most 2^40 elements", IR_MAX_RANK);
  if (c->op == IR_ARG) return check_arg(c, t);
  if (t.state) return infer_fail(c, "a global is no state");
  if (ir_elements(t) < 0) return infer_fail(c, "a global has no symbolic dimension");
  if (c->op == IR_GATE && !check_gate(c, t)) return false;
  bool value = ir_attr_in(c->attrs, c->attr_count, IR_ATTR_VALUE) != NULL;
  bool tensor = infer_string(c, IR_ATTR_TENSOR, NULL) != NULL;
  if (value && tensor) return infer_fail(c, "attributes 'value' and 'tensor' exclude each other");
  if (!tensor && (infer_string(c, IR_ATTR_FILE, NULL) || infer_string(c, IR_ATTR_HASH, NULL)))
    return infer_fail(c, "attributes 'file' and 'hash' need 'tensor'");
  return check_values(c, t);
}

bool infer_none(infer_ctx *c) {
  *c->out = (ir_type){0};
  return true;
}
