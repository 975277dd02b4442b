/* grad_linear.c - gradient rules of products, look-ups, rearrangements and attention. */
#include "compiler/passes/grad.h"

bool grad_embed(grad_ctx *g) {
  grad_give(g, 1, IR_BUILD(&g->b, IR_EMBED_BACK, grad_in(g, 0), g->dy, grad_in(g, 1)));
  return true;
}

bool grad_linear(grad_ctx *g) {
  if (grad_wants(g, 0)) grad_give(g, 0, IR_BUILD(&g->b, IR_LINEAR_BACK, g->dy, grad_in(g, 1)));
  if (grad_wants(g, 1)) grad_give(g, 1, IR_BUILD(&g->b, IR_LINEAR_WEIGHT_BACK, g->dy, grad_in(g, 0)));
  if (grad_wants(g, 2)) grad_give(g, 2, IR_BUILD(&g->b, IR_SUM_ROWS, g->dy));
  return true;
}

/* ---- rearrangements ---- */
static int64_t last_of(const grad_ctx *g, ir_value v) {
  ir_type t = ir_type_of(g->m, v);
  return t.dim[t.rank - 1];
}

static ir_value slice(grad_ctx *g, ir_value x, int64_t start, int64_t size) {
  if (start == 0 && size == last_of(g, x)) return x;
  ir_attr attrs[] = {{IR_ATTR_START, {.i = start}}, {IR_ATTR_SIZE, {.i = size}}};
  return ir_build(&g->b, IR_SLICE, &x, 1, attrs, 2);
}

static ir_value split_heads(grad_ctx *g, ir_value x, int64_t heads) {
  ir_attr attr = {IR_ATTR_HEADS, {.i = heads}};
  return ir_build(&g->b, IR_SPLIT_HEADS, &x, 1, &attr, 1);
}

bool grad_slice(grad_ctx *g) {
  ir_attr attrs[] = {{IR_ATTR_START, {.i = ir_attr_int(g->m, g->op, IR_ATTR_START, 0)}},
                     {IR_ATTR_SIZE, {.i = last_of(g, grad_in(g, 0))}}};
  grad_give(g, 0, ir_build(&g->b, IR_PAD, &g->dy, 1, attrs, 2));
  return true;
}

/* Operands side by side on the last axis, or heads one after another. */
bool grad_concat(grad_ctx *g) {
  ir_type t = ir_type_of(g->m, g->op);
  int64_t axis = ir_attr_int(g->m, g->op, IR_ATTR_AXIS, -1), at = 0;
  bool last = axis < 0 || axis == (int64_t)t.rank - 1, heads = t.rank == 4 && axis == 2;
  if (!last && !heads) return false;
  ir_value flat = heads ? IR_BUILD(&g->b, IR_MERGE_HEADS, g->dy) : g->dy;
  for (size_t i = 0; i < ir_operand_count(g->m, g->op); i++) {
    ir_type x = ir_type_of(g->m, grad_in(g, i));
    int64_t size = heads ? x.dim[2] * x.dim[3] : x.dim[x.rank - 1];
    if (grad_wants(g, i)) {
      ir_value dx = slice(g, flat, at, size);
      grad_give(g, i, heads ? split_heads(g, dx, x.dim[2]) : dx);
    }
    at += size;
  }
  return true;
}

bool grad_split_heads(grad_ctx *g) {
  grad_give(g, 0, IR_BUILD(&g->b, IR_MERGE_HEADS, g->dy));
  return true;
}

bool grad_merge_heads(grad_ctx *g) {
  grad_give(g, 0, split_heads(g, g->dy, ir_type_of(g->m, grad_in(g, 0)).dim[2]));
  return true;
}

/* ---- attention ---- */
bool grad_rope(grad_ctx *g) {
  grad_give(g, 0, GRAD_BUILD(g, IR_ROPE_BACK, g->dy, grad_in(g, 1)));
  return true;
}

/* dq, dk, dv come side by side. */
bool grad_attention(grad_ctx *g) {
  ir_value all = GRAD_BUILD(g, IR_ATTENTION_BACK, grad_in(g, 0), grad_in(g, 1), grad_in(g, 2), g->dy);
  int64_t at = 0;
  for (size_t i = 0; i < 3; i++) {
    ir_type t = ir_type_of(g->m, grad_in(g, i));
    int64_t size = t.dim[2] * t.dim[3];
    if (grad_wants(g, i)) grad_give(g, i, split_heads(g, slice(g, all, at, size), t.dim[2]));
    at += size;
  }
  return true;
}
