/* grad_elementwise.c - gradient rules of elementwise ops, and of the losses. */
#include "compiler/passes/grad.h"

/* The derivative at x (operand 0). */
static bool at_input(grad_ctx *g, ir_opcode back) {
  grad_give(g, 0, GRAD_BUILD(g, back, grad_in(g, 0), g->dy));
  return true;
}

/* The derivative from the result. */
static bool at_output(grad_ctx *g, ir_opcode back) {
  grad_give(g, 0, GRAD_BUILD(g, back, g->op, g->dy));
  return true;
}

bool grad_gelu(grad_ctx *g) { return at_input(g, IR_GELU_BACK); }
bool grad_gelu_tanh(grad_ctx *g) { return at_input(g, IR_GELU_TANH_BACK); }
bool grad_silu(grad_ctx *g) { return at_input(g, IR_SILU_BACK); }
bool grad_relu(grad_ctx *g) { return at_input(g, IR_RELU_BACK); }
bool grad_softcap(grad_ctx *g) { return at_input(g, IR_SOFTCAP_BACK); }
bool grad_sigmoid(grad_ctx *g) { return at_output(g, IR_SIGMOID_BACK); }
bool grad_tanh(grad_ctx *g) { return at_output(g, IR_TANH_BACK); }
bool grad_sqrt(grad_ctx *g) { return at_output(g, IR_SQRT_BACK); }

bool grad_exp(grad_ctx *g) {
  grad_give(g, 0, IR_BUILD(&g->b, IR_MUL, g->dy, g->op));
  return true;
}

bool grad_neg(grad_ctx *g) {
  grad_give(g, 0, IR_BUILD(&g->b, IR_NEG, g->dy));
  return true;
}

bool grad_probe(grad_ctx *g) {
  grad_give(g, 0, g->dy);
  return true;
}

/* ---- two operands; one of them may be a single number f32[1] that meets every element of the other ---- */
static bool is_number(const grad_ctx *g, size_t i) {
  ir_type t = ir_type_of(g->m, grad_in(g, i)), out = ir_type_of(g->m, g->op);
  return t.rank == 1 && t.dim[0] == 1 && !ir_type_equal(t, out);
}

/* sum of a b over all elements. */
static ir_value total_of_product(grad_ctx *g, ir_value a, ir_value b) {
  return IR_BUILD(&g->b, IR_SUM_ROWS, IR_BUILD(&g->b, IR_ROW_DOT, a, b));
}

/* sum of a over all elements. */
static ir_value total(grad_ctx *g, ir_value a) {
  ir_type t = ir_type_of(g->m, a);
  ir_value sum = IR_BUILD(&g->b, IR_ROW_MEAN, a);
  sum = grad_times(g, sum, grad_number(g, (double)t.dim[t.rank - 1]));
  return IR_BUILD(&g->b, IR_SUM_ROWS, sum);
}

/* The gradient of operand i where that of every element is `each`. */
static void add_each(grad_ctx *g, size_t i, ir_value each) {
  if (grad_wants(g, i)) grad_give(g, i, is_number(g, i) ? total(g, each) : each);
}

/* ... where it is dy times `factor`. */
static void add_product(grad_ctx *g, size_t i, ir_value factor) {
  if (!grad_wants(g, i)) return;
  if (!is_number(g, i))
    grad_give(g, i, grad_times(g, g->dy, factor));
  else
    grad_give(g, i, total_of_product(g, g->dy, factor));
}

bool grad_add(grad_ctx *g) {
  add_each(g, 0, g->dy);
  add_each(g, 1, g->dy);
  return true;
}

bool grad_sub(grad_ctx *g) {
  add_each(g, 0, g->dy);
  if (grad_wants(g, 1)) add_each(g, 1, IR_BUILD(&g->b, IR_NEG, g->dy));
  return true;
}

bool grad_mul(grad_ctx *g) {
  ir_value x = grad_in(g, 0), y = grad_in(g, 1);
  if (ir_same(x, y)) { /* a square */
    if (grad_wants(g, 0)) grad_give(g, 0, IR_BUILD(&g->b, IR_MUL, grad_times(g, g->dy, x), grad_number(g, 2)));
    return true;
  }
  add_product(g, 0, y);
  add_product(g, 1, x);
  return true;
}

/* z = x/y: dx = dy/y, dy = -dz z/y. */
bool grad_div(grad_ctx *g) {
  ir_value y = grad_in(g, 1);
  if (grad_wants(g, 0)) add_each(g, 0, IR_BUILD(&g->b, IR_DIV, g->dy, y));
  if (grad_wants(g, 1)) add_product(g, 1, IR_BUILD(&g->b, IR_NEG, IR_BUILD(&g->b, IR_DIV, g->op, y)));
  return true;
}

/* ---- losses ---- */
bool grad_cross_entropy(grad_ctx *g) {
  if (grad_wants(g, 0)) grad_give(g, 0, IR_BUILD(&g->b, IR_CROSS_ENTROPY_BACK, grad_in(g, 0), grad_in(g, 1), g->dy));
  return true;
}

bool grad_token_mean(grad_ctx *g) {
  ir_value share = IR_BUILD(&g->b, IR_TOKEN_MEAN_BACK, grad_in(g, 1));
  grad_give(g, 0, grad_times(g, share, g->dy));
  return true;
}
