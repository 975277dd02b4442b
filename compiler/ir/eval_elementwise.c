/* eval_elementwise.c - reference evaluation of elementwise ops. */
#include "compiler/ir/eval_priv.h"

#include <math.h>
#include <string.h>

static taper_status unary(eval_ctx *c, double (*f)(double)) {
  int64_t n = eval_elements(c->out);
  for (int64_t i = 0; i < n; i++) c->out->data[i] = f(c->in[0]->data[i]);
  return TAPER_OK;
}

/* erfc keeps its digits for large negative x, where 1 + erf loses them. */
static double gelu(double x) { return 0.5 * x * erfc(-x * 0.70710678118654752440); }
static double gelu_tanh(double x) { return 0.5 * x * (1 + tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x))); }
static double sigmoid(double x) { return x >= 0 ? 1 / (1 + exp(-x)) : exp(x) / (1 + exp(x)); }
static double silu(double x) { return x * sigmoid(x); }
static double relu(double x) { return x > 0 || isnan(x) ? x : 0; }
static double negate(double x) { return -x; }

taper_status eval_gelu(eval_ctx *c) { return unary(c, gelu); }
taper_status eval_gelu_tanh(eval_ctx *c) { return unary(c, gelu_tanh); }
taper_status eval_silu(eval_ctx *c) { return unary(c, silu); }
taper_status eval_sigmoid(eval_ctx *c) { return unary(c, sigmoid); }
taper_status eval_relu(eval_ctx *c) { return unary(c, relu); }
taper_status eval_tanh(eval_ctx *c) { return unary(c, tanh); }
taper_status eval_exp(eval_ctx *c) { return unary(c, exp); }
taper_status eval_sqrt(eval_ctx *c) { return unary(c, sqrt); }
taper_status eval_neg(eval_ctx *c) { return unary(c, negate); }

taper_status eval_cast(eval_ctx *c) {
  const ir_dtype to = ir_type_of(c->m, c->v).dtype;
  int64_t n = eval_elements(c->out);
  for (int64_t i = 0; i < n; i++) c->out->data[i] = ir_round_to(to, c->in[0]->data[i]);
  return TAPER_OK;
}

taper_status eval_softcap(eval_ctx *c) {
  int64_t n = eval_elements(c->out);
  double cap = ir_attr_float(c->m, c->v, IR_ATTR_CAP, 1);
  for (int64_t i = 0; i < n; i++) c->out->data[i] = cap * tanh(c->in[0]->data[i] / cap);
  return TAPER_OK;
}

/* A one-element operand meets every element of the other. */
static taper_status binary(eval_ctx *c, double (*f)(double, double)) {
  int64_t n = eval_elements(c->out), na = eval_elements(c->in[0]), nb = eval_elements(c->in[1]);
  const double *a = c->in[0]->data, *b = c->in[1]->data;
  for (int64_t i = 0; i < n; i++) c->out->data[i] = f(a[na == 1 ? 0 : i], b[nb == 1 ? 0 : i]);
  return TAPER_OK;
}

static double add(double a, double b) { return a + b; }
static double sub(double a, double b) { return a - b; }
static double mul(double a, double b) { return a * b; }
static double divide(double a, double b) { return a / b; }

taper_status eval_add(eval_ctx *c) { return binary(c, add); }
taper_status eval_sub(eval_ctx *c) { return binary(c, sub); }
taper_status eval_mul(eval_ctx *c) { return binary(c, mul); }
taper_status eval_div(eval_ctx *c) { return binary(c, divide); }
