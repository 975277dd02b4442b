/* grad.h - gradient rules. A rule is named in the `grad` column of op.def and stands in a grad_*.c; it adds, for every operand
   that the loss depends on through the op, the IR of d(loss)/d(operand). */
#ifndef TAPERC_GRAD_H
#define TAPERC_GRAD_H

#include "compiler/passes/passes_priv.h"

typedef struct grad_state grad_state;

typedef struct grad_ctx {
  pass_context *c;
  ir_module *m;
  ir_builder b; /* at the end of the entry, with the op's place and name */
  ir_value op;  /* the op, which is its own value */
  ir_value dy;  /* d(loss)/d(op) */
  grad_state *s;
} grad_ctx;

/* false: the op has no gradient in this form; the engine reports it. */
typedef bool (*grad_fn)(grad_ctx *g);

/* Does operand i lead to a parameter that is trained? Rules build nothing for the others. */
bool grad_wants(const grad_ctx *g, size_t i);
/* Adds to d(loss)/d(operand i); contributions are summed. */
void grad_give(grad_ctx *g, size_t i, ir_value dx);
static inline ir_value grad_in(const grad_ctx *g, size_t i) { return ir_operand(g->m, g->op, i); }
/* a b; a or b alone where the other is the number 1. */
ir_value grad_times(grad_ctx *g, ir_value a, ir_value b);
/* An op with the attributes of the op whose gradient this is (those that `op` takes). */
ir_value grad_build(grad_ctx *g, ir_opcode op, const ir_value *operands, size_t n);
#define GRAD_BUILD(g, op, ...)                                                                                         \
  grad_build((g), (op), (const ir_value[]){__VA_ARGS__}, sizeof((const ir_value[]){__VA_ARGS__}) / sizeof(ir_value))
ir_value grad_number(grad_ctx *g, double value); /* a const f32[1] */

/* The rules of op.def. */
bool grad_embed(grad_ctx *g);
bool grad_taper_rms_norm(grad_ctx *g);
bool grad_taper_layer_norm(grad_ctx *g);
bool grad_rms_norm(grad_ctx *g);
bool grad_layer_norm(grad_ctx *g);
bool grad_scale(grad_ctx *g);
bool grad_center(grad_ctx *g);
bool grad_shift(grad_ctx *g);
bool grad_inv_rms(grad_ctx *g);
bool grad_inv_std(grad_ctx *g);
bool grad_row_scale(grad_ctx *g);
bool grad_row_shift(grad_ctx *g);
bool grad_row_rms(grad_ctx *g);
bool grad_row_std(grad_ctx *g);
bool grad_row_dot(grad_ctx *g);
bool grad_dyt(grad_ctx *g);
bool grad_linear(grad_ctx *g);
bool grad_concat(grad_ctx *g);
bool grad_slice(grad_ctx *g);
bool grad_split_heads(grad_ctx *g);
bool grad_merge_heads(grad_ctx *g);
bool grad_rope(grad_ctx *g);
bool grad_attention(grad_ctx *g);
bool grad_gelu(grad_ctx *g);
bool grad_gelu_tanh(grad_ctx *g);
bool grad_silu(grad_ctx *g);
bool grad_sigmoid(grad_ctx *g);
bool grad_relu(grad_ctx *g);
bool grad_tanh(grad_ctx *g);
bool grad_exp(grad_ctx *g);
bool grad_sqrt(grad_ctx *g);
bool grad_neg(grad_ctx *g);
bool grad_softcap(grad_ctx *g);
bool grad_add(grad_ctx *g);
bool grad_sub(grad_ctx *g);
bool grad_mul(grad_ctx *g);
bool grad_div(grad_ctx *g);
bool grad_cross_entropy(grad_ctx *g);
bool grad_token_mean(grad_ctx *g);
bool grad_probe(grad_ctx *g);

#endif
