/* infer_shapes.c - shape rules of norms, elementwise ops and linear algebra. */
#include "compiler/ir/infer_priv.h"

#include <string.h>

bool infer_same(infer_ctx *c) { return infer_operands(c) && infer_finish(c, infer_type(c, 0)); }

bool infer_probe(infer_ctx *c) {
  if (!infer_operands(c)) return false;
  int64_t d = infer_last(infer_type(c, 0));
  return (!infer_has(c, 1) || infer_expect(c, 1, IR_F32, 1, &d)) && infer_finish(c, infer_type(c, 0));
}

/* axis: -1, or 0 of a tensor whose shape is known. */
static bool axis_of(infer_ctx *c, int64_t *out) {
  *out = infer_int(c, IR_ATTR_AXIS, -1);
  if (*out > 0) return infer_fail(c, "attribute 'axis': expected -1 or 0, found %lld", (long long)*out);
  if (*out == 0 && ir_elements(infer_type(c, 0)) < 0)
    return infer_fail_operand(c, 0, "a tensor of known shape (axis = 0)");
  return true;
}

bool infer_center(infer_ctx *c) {
  int64_t axis;
  return infer_operands(c) && axis_of(c, &axis) && infer_finish(c, infer_type(c, 0));
}

bool infer_scale(infer_ctx *c) {
  int64_t axis;
  if (!infer_float(c, 0) || !infer_float(c, 1) || !axis_of(c, &axis)) return false;
  ir_type x = infer_type(c, 0);
  int64_t d = axis == 0 ? x.dim[0] : infer_last(x);
  if (d < 1) return infer_fail_operand(c, 0, "a tensor whose last dimension is a number");
  return infer_expect(c, 1, IR_F32, 1, &d) && infer_finish(c, x);
}

bool infer_row_statistic(infer_ctx *c) {
  if (!infer_operands(c)) return false;
  ir_type t = infer_type(c, 0);
  t.dim[t.rank - 1] = 1;
  return infer_finish(c, t);
}

/* Of a vector, row or matrix; over the columns (axis 0) the result is one row. */
bool infer_row_mean(infer_ctx *c) {
  int64_t axis;
  if (!infer_operands(c) || !axis_of(c, &axis)) return false;
  ir_type t = infer_type(c, 0);
  t.dim[axis == 0 ? 0 : t.rank - 1] = 1;
  return infer_finish(c, t);
}

bool infer_row_scale(infer_ctx *c) {
  if (!infer_operands(c)) return false;
  ir_type s = infer_type(c, 0);
  s.dim[s.rank - 1] = 1;
  return infer_expect(c, 1, IR_F32, s.rank, s.dim) && infer_finish(c, infer_type(c, 0));
}

static bool is_one(ir_type t) { return t.rank == 1 && t.dim[0] == 1; }

bool infer_binary(infer_ctx *c) {
  if (!infer_float(c, 0) || !infer_float(c, 1)) return false;
  ir_type a = infer_type(c, 0), b = infer_type(c, 1);
  if (is_one(b)) return infer_finish(c, a);
  if (is_one(a)) return infer_finish(c, b);
  return infer_expect(c, 1, IR_F32, a.rank, a.dim) && infer_finish(c, a);
}

static bool is_float(ir_dtype t) { return t == IR_F32 || t == IR_BF16 || t == IR_F16; }

/* Rounded to nearest even, or widened. */
bool infer_cast(infer_ctx *c) {
  ir_type x = infer_type(c, 0);
  const char *to = infer_string(c, IR_ATTR_TO, "");
  if (!is_float(x.dtype) || !x.rank || x.state) return infer_fail_operand(c, 0, "a tensor f32, bf16 or f16");
  for (unsigned t = 0; t < IR_DTYPE_COUNT; t++) {
    if (!is_float((ir_dtype)t) || strcmp(to, ir_dtype_name((ir_dtype)t)) != 0) continue;
    x.dtype = (ir_dtype)t;
    return infer_finish(c, x);
  }
  return infer_fail(c, "attribute 'to': expected f32, bf16 or f16, found '%s'", to);
}

bool infer_positions(infer_ctx *c) {
  ir_type t = infer_type(c, 0);
  if (t.dtype != IR_I32 || t.rank != 2 || t.state) return infer_fail_operand(c, 0, "i32[B,T]");
  return infer_expect(c, 1, IR_I32, 1, t.dim) && infer_finish(c, t);
}

bool infer_embed(infer_ctx *c) {
  ir_type ids = infer_type(c, 0);
  if (ids.dtype != IR_I32 || ids.rank != 2 || ids.state) return infer_fail_operand(c, 0, "i32[B,T]");
  ir_type table = infer_type(c, 1);
  if (!is_float(table.dtype) || table.rank != 2 || ir_elements(table) < 0)
    return infer_fail_operand(c, 1, "a matrix f32[rows,d]");
  return infer_finish(c, ir_type_make(IR_F32, 3, (int64_t[]){ids.dim[0], ids.dim[1], table.dim[1]}));
}

/* Operands of one type, summed in f32. */
bool infer_linear(infer_ctx *c) {
  ir_type x = infer_type(c, 0), w = infer_type(c, 1);
  int64_t d = infer_last(x);
  if ((x.dtype == IR_F32 || !is_float(x.dtype)) && !infer_operands(c)) return false;
  if (d < 1 || x.state) return infer_fail_operand(c, 0, "a tensor whose last dimension is a number");
  if (w.dtype != x.dtype || w.rank != 2 || w.dim[0] < 1 || w.dim[1] != d) {
    text t = {0};
    text_printf(&t, "a matrix %s[out,%lld]", ir_dtype_name(x.dtype), (long long)d);
    infer_fail_operand(c, 1, t.data ? t.data : "another matrix");
    text_free(&t);
    return false;
  }
  if (infer_has(c, 2) && !infer_expect(c, 2, IR_F32, 1, w.dim)) return false;
  x.dim[x.rank - 1] = w.dim[0], x.dtype = IR_F32;
  return infer_finish(c, x);
}

bool infer_concat(infer_ctx *c) {
  if (!infer_float(c, 0)) return false;
  ir_type out = infer_type(c, 0);
  int64_t axis = infer_int(c, IR_ATTR_AXIS, -1);
  if (axis >= (int64_t)out.rank)
    return infer_fail(c, "attribute 'axis': %lld is beyond rank %u", (long long)axis, out.rank);
  uint32_t a = axis < 0 ? out.rank - 1 : (uint32_t)axis;
  if (out.dim[a] < 1) return infer_fail_operand(c, 0, "a tensor whose concatenated dimension is a number");
  for (size_t i = 1; i < c->n; i++) {
    ir_type t = infer_type(c, i), want = infer_type(c, 0);
    if (t.rank == want.rank && t.dim[a] > 0) want.dim[a] = t.dim[a];
    if (!infer_expect(c, i, IR_F32, want.rank, want.dim)) return false;
    out.dim[a] += t.dim[a];
    if (out.dim[a] > IR_MAX_DIM) break;
  }
  return infer_finish(c, out);
}

bool infer_slice(infer_ctx *c) {
  if (!infer_operands(c)) return false;
  ir_type x = infer_type(c, 0);
  int64_t start = infer_int(c, IR_ATTR_START, 0), size = infer_int(c, IR_ATTR_SIZE, 1), d = infer_last(x);
  if (start >= d || size > d - start)
    return infer_fail(c, "elements %lld to %lld are beyond the last dimension, %lld", (long long)start,
                      (long long)(start + size - 1), (long long)d);
  x.dim[x.rank - 1] = size;
  return infer_finish(c, x);
}

bool infer_split_heads(infer_ctx *c) {
  if (!infer_operands(c)) return false;
  ir_type x = infer_type(c, 0);
  int64_t heads = infer_int(c, IR_ATTR_HEADS, 1);
  if (x.rank != 3) return infer_fail_operand(c, 0, "f32[B,T,d]");
  if (x.dim[2] % heads)
    return infer_fail(c, "attribute 'heads': %lld does not divide the last dimension, %lld", (long long)heads,
                      (long long)x.dim[2]);
  return infer_finish(c, ir_type_make(IR_F32, 4, (int64_t[]){x.dim[0], x.dim[1], heads, x.dim[2] / heads}));
}

bool infer_merge_heads(infer_ctx *c) {
  if (!infer_operands(c)) return false;
  ir_type x = infer_type(c, 0);
  if (x.rank != 4 || x.dim[2] < 1) return infer_fail_operand(c, 0, "f32[B,T,heads,head_dim]");
  return infer_finish(c, ir_type_make(IR_F32, 3, (int64_t[]){x.dim[0], x.dim[1], x.dim[2] * x.dim[3]}));
}
