/* infer_train.c - shape rules of losses, gradients and sums over rows. */
#include "compiler/ir/infer_priv.h"

static const int64_t one = 1;

/* Operand i is f32 of operand 0's shape but for the last dimension. */
static bool infer_like_rows(infer_ctx *c, size_t i, int64_t last) {
  ir_type t = infer_type(c, 0);
  t.dim[t.rank - 1] = last;
  return infer_expect(c, i, IR_F32, t.rank, t.dim);
}

static bool infer_targets(infer_ctx *c, size_t i, const int64_t *rows) { return infer_expect(c, i, IR_I32, 2, rows); }

bool infer_cross_entropy(infer_ctx *c) {
  if (!infer_operands(c)) return false;
  ir_type x = infer_type(c, 0);
  if (x.rank != 3) return infer_fail_operand(c, 0, "f32[B,T,vocab]");
  if (!infer_targets(c, 1, x.dim)) return false;
  x.dim[2] = 1;
  return infer_finish(c, x);
}

bool infer_cross_entropy_back(infer_ctx *c) {
  if (!infer_operands(c)) return false;
  ir_type x = infer_type(c, 0);
  if (x.rank != 3) return infer_fail_operand(c, 0, "f32[B,T,vocab]");
  return infer_targets(c, 1, x.dim) && infer_like_rows(c, 2, 1) && infer_finish(c, x);
}

bool infer_row_pair(infer_ctx *c) {
  if (!infer_operands(c)) return false;
  ir_type x = infer_type(c, 0);
  if (!infer_expect(c, 1, IR_F32, x.rank, x.dim)) return false;
  x.dim[x.rank - 1] = 1;
  return infer_finish(c, x);
}

bool infer_token_mean(infer_ctx *c) {
  if (!infer_operands(c)) return false;
  ir_type x = infer_type(c, 0);
  if (x.rank != 3 || x.dim[2] != 1) return infer_fail_operand(c, 0, "f32[B,T,1]");
  return infer_targets(c, 1, x.dim) && infer_finish(c, ir_type_make(IR_F32, 1, &one));
}

bool infer_token_mean_back(infer_ctx *c) {
  ir_type t = infer_type(c, 0);
  if (t.dtype != IR_I32 || t.rank != 2 || t.state) return infer_fail_operand(c, 0, "i32[B,T]");
  return infer_finish(c, ir_type_make(IR_F32, 3, (int64_t[]){t.dim[0], t.dim[1], 1}));
}

bool infer_taper_factor(infer_ctx *c) {
  return infer_expect(c, 0, IR_F32, 1, &one) && infer_expect(c, 1, IR_F32, 1, &one) &&
         infer_finish(c, infer_type(c, 0));
}

/* One number of a call, or one of every row. */
bool infer_result(infer_ctx *c) {
  if (!infer_float(c, 0)) return false;
  ir_type x = infer_type(c, 0);
  bool single = x.rank == 1 && x.dim[0] == 1, rows = x.rank == 3 && x.dim[2] == 1;
  return single || rows ? infer_finish(c, x) : infer_fail_operand(c, 0, "f32[1] or f32[B,T,1]");
}

bool infer_gradient(infer_ctx *c) {
  if (!infer_float(c, 0)) return false;
  ir_type x = infer_type(c, 0);
  if (!ir_is(c->m, c->operands[1], IR_PARAM)) return infer_fail(c, "operand 1 'param' is no param");
  return infer_expect(c, 1, IR_F32, x.rank, x.dim) && infer_finish(c, x);
}

/* The last operand is dy, shaped as operand 0 and as the result. */
bool infer_back(infer_ctx *c) {
  if (!infer_operands(c)) return false;
  ir_type x = infer_type(c, 0);
  return infer_expect(c, c->n - 1, IR_F32, x.rank, x.dim) && infer_finish(c, x);
}

bool infer_linear_back(infer_ctx *c) {
  if (!infer_operands(c) || !infer_float(c, 1)) return false;
  ir_type dy = infer_type(c, 0), w = infer_type(c, 1);
  if (w.rank != 2 || w.dim[0] != infer_last(dy) || w.dim[1] < 1)
    return infer_fail_operand(c, 1, "a matrix with as many rows as dy has columns");
  dy.dim[dy.rank - 1] = w.dim[1];
  return infer_finish(c, dy);
}

bool infer_attention_back(infer_ctx *c) {
  ir_type out;
  infer_ctx forward = *c;
  forward.n = 3;
  forward.out = &out;
  if (!infer_attention(&forward) || !infer_expect(c, 3, IR_F32, out.rank, out.dim)) return false;
  ir_type q = infer_type(c, 0), k = infer_type(c, 1), v = infer_type(c, 2);
  int64_t width = q.dim[2] * q.dim[3] + k.dim[2] * (k.dim[3] + v.dim[3]);
  return infer_finish(c, ir_type_make(IR_F32, 3, (int64_t[]){q.dim[0], q.dim[1], width}));
}

bool infer_pad(infer_ctx *c) {
  if (!infer_operands(c)) return false;
  ir_type x = infer_type(c, 0);
  int64_t start = infer_int(c, IR_ATTR_START, 0), size = infer_int(c, IR_ATTR_SIZE, 1), d = infer_last(x);
  if (start > size || d > size - start)
    return infer_fail(c, "elements %lld to %lld are beyond attribute 'size', %lld", (long long)start,
                      (long long)(start + d - 1), (long long)size);
  x.dim[x.rank - 1] = size;
  return infer_finish(c, x);
}

bool infer_sum_rows(infer_ctx *c) {
  if (!infer_operands(c)) return false;
  int64_t d = infer_last(infer_type(c, 0));
  return infer_finish(c, ir_type_make(IR_F32, 1, &d));
}

bool infer_linear_weight_back(infer_ctx *c) {
  if (!infer_operands(c) || !infer_float(c, 1)) return false;
  int64_t out = infer_last(infer_type(c, 0)), in = infer_last(infer_type(c, 1));
  if (in < 1) return infer_fail_operand(c, 1, "a tensor whose last dimension is a number");
  return infer_like_rows(c, 1, in) && infer_finish(c, ir_type_make(IR_F32, 2, (int64_t[]){out, in}));
}

bool infer_embed_back(infer_ctx *c) {
  ir_type ids = infer_type(c, 0), table = infer_type(c, 2);
  if (ids.dtype != IR_I32 || ids.rank != 2 || ids.state) return infer_fail_operand(c, 0, "i32[B,T]");
  if (table.dtype != IR_F32 || table.rank != 2 || ir_elements(table) < 0)
    return infer_fail_operand(c, 2, "a matrix f32[rows,d]");
  return infer_expect(c, 1, IR_F32, 3, (int64_t[]){ids.dim[0], ids.dim[1], table.dim[1]}) && infer_finish(c, table);
}
