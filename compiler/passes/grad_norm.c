/* grad_norm.c - gradient rules of norms, of what is left of them, and of row statistics. */
#include "compiler/passes/grad.h"

static ir_value sum_rows(grad_ctx *g, ir_value rows) { return IR_BUILD(&g->b, IR_SUM_ROWS, rows); }

static ir_value sum_of_products(grad_ctx *g, ir_value a, ir_value b) {
  return sum_rows(g, IR_BUILD(&g->b, IR_MUL, a, b));
}

/* x/r, or (x - mu)/sigma; eps is the op's. */
static ir_value normalised(grad_ctx *g, ir_value h, bool centred) {
  ir_value x = grad_in(g, 0);
  ir_attr eps = {IR_ATTR_EPS, {.f = ir_eps(g->m, g->op)}};
  return IR_BUILD(&g->b, IR_ROW_SCALE, h, ir_build(&g->b, centred ? IR_INV_STD : IR_INV_RMS, &x, 1, &eps, 1));
}

static ir_value centred_input(grad_ctx *g, bool centred) {
  ir_value x = grad_in(g, 0);
  return centred ? IR_BUILD(&g->b, IR_CENTER, x) : x;
}

static bool live(grad_ctx *g, bool centred) {
  ir_opcode back = centred ? IR_LAYER_NORM_BACK : IR_RMS_NORM_BACK;
  if (grad_wants(g, 0)) grad_give(g, 0, GRAD_BUILD(g, back, grad_in(g, 0), grad_in(g, 1), g->dy));
  if (grad_wants(g, 1)) grad_give(g, 1, sum_of_products(g, g->dy, normalised(g, centred_input(g, centred), centred)));
  if (centred && grad_wants(g, 2)) grad_give(g, 2, sum_rows(g, g->dy));
  return true;
}

bool grad_rms_norm(grad_ctx *g) { return live(g, false); }
bool grad_layer_norm(grad_ctx *g) { return live(g, true); }

/* y = beta + g z gamma + (1 - g) c h gammat, z = h/s: the sums over rows come first, the factors after them. */
static bool taper(grad_ctx *g, bool centred) {
  pass_taper t = pass_taper_of(g->m, g->op);
  size_t taper_weight = centred ? 3 : 2;
  ir_value gate = grad_in(g, taper_weight + 2);
  ir_opcode back = centred ? IR_TAPER_LAYER_NORM_BACK : IR_TAPER_RMS_NORM_BACK;
  if (grad_wants(g, 0)) grad_give(g, 0, GRAD_BUILD(g, back, t.x, t.weight, t.taper_weight, t.taper_c, gate, g->dy));
  if (centred && grad_wants(g, 2)) grad_give(g, 2, sum_rows(g, g->dy));
  if (!grad_wants(g, 1) && !grad_wants(g, taper_weight)) return !grad_wants(g, taper_weight + 1);
  ir_value h = centred_input(g, centred);
  if (grad_wants(g, 1)) {
    ir_value sum = sum_of_products(g, g->dy, normalised(g, h, centred));
    grad_give(g, 1, IR_BUILD(&g->b, IR_MUL, sum, gate));
  }
  if (grad_wants(g, taper_weight)) {
    ir_value factor = IR_BUILD(&g->b, IR_TAPER_FACTOR, t.taper_c, gate);
    grad_give(g, taper_weight, IR_BUILD(&g->b, IR_MUL, sum_of_products(g, g->dy, h), factor));
  }
  return !grad_wants(g, taper_weight + 1);
}

bool grad_taper_rms_norm(grad_ctx *g) { return taper(g, false); }
bool grad_taper_layer_norm(grad_ctx *g) { return taper(g, true); }

/* y = weight tanh(alpha x) + bias; with t = tanh(alpha x) and u = dy weight (1 - t^2): dx = alpha u, dalpha = sum u x. */
bool grad_dyt(grad_ctx *g) {
  ir_value x = grad_in(g, 0), alpha = grad_in(g, 1), weight = grad_in(g, 2);
  if (grad_wants(g, 0)) grad_give(g, 0, IR_BUILD(&g->b, IR_DYT_BACK, x, alpha, weight, g->dy));
  if (grad_wants(g, 3)) grad_give(g, 3, sum_rows(g, g->dy));
  if (!grad_wants(g, 1) && !grad_wants(g, 2)) return true;
  ir_value t = IR_BUILD(&g->b, IR_TANH, grad_times(g, x, alpha));
  if (grad_wants(g, 2)) grad_give(g, 2, sum_of_products(g, g->dy, t));
  if (!grad_wants(g, 1)) return true;
  ir_value u = IR_BUILD(&g->b, IR_TANH_BACK, t, IR_BUILD(&g->b, IR_SCALE, g->dy, weight));
  grad_give(g, 1, sum_rows(g, IR_BUILD(&g->b, IR_ROW_DOT, u, x)));
  return true;
}

/* ---- what is left of norms ---- */
bool grad_scale(grad_ctx *g) {
  ir_value x = grad_in(g, 0), w = grad_in(g, 1);
  bool rows = ir_attr_int(g->m, g->op, IR_ATTR_AXIS, -1) == 0 && ir_type_of(g->m, x).rank > 1;
  if (grad_wants(g, 0)) grad_give(g, 0, GRAD_BUILD(g, IR_SCALE, g->dy, w));
  if (!grad_wants(g, 1)) return true;
  if (rows) return false; /* the sum is over the other axis */
  grad_give(g, 1, sum_of_products(g, g->dy, x));
  return true;
}

/* The subtraction of the mean is its own transpose. */
bool grad_center(grad_ctx *g) {
  grad_give(g, 0, GRAD_BUILD(g, IR_CENTER, g->dy));
  return true;
}

bool grad_shift(grad_ctx *g) {
  grad_give(g, 0, g->dy);
  if (grad_wants(g, 1)) grad_give(g, 1, sum_rows(g, g->dy));
  return true;
}

bool grad_row_scale(grad_ctx *g) {
  if (grad_wants(g, 0)) grad_give(g, 0, IR_BUILD(&g->b, IR_ROW_SCALE, g->dy, grad_in(g, 1)));
  if (grad_wants(g, 1)) grad_give(g, 1, IR_BUILD(&g->b, IR_ROW_DOT, g->dy, grad_in(g, 0)));
  return true;
}

bool grad_row_shift(grad_ctx *g) {
  ir_type t = ir_type_of(g->m, g->dy);
  grad_give(g, 0, g->dy);
  if (!grad_wants(g, 1)) return true;
  ir_value mean = IR_BUILD(&g->b, IR_ROW_MEAN, g->dy);
  grad_give(g, 1, grad_times(g, mean, grad_number(g, (double)t.dim[t.rank - 1])));
  return true;
}

/* ---- row statistics ---- */
bool grad_row_rms(grad_ctx *g) {
  grad_give(g, 0, GRAD_BUILD(g, IR_ROW_RMS_BACK, grad_in(g, 0), g->dy));
  return true;
}

bool grad_row_std(grad_ctx *g) {
  grad_give(g, 0, GRAD_BUILD(g, IR_ROW_STD_BACK, grad_in(g, 0), g->dy));
  return true;
}

/* y = 1/s: ds = -dy y^2. eps is written out: the statistic and its inverse have the same default. */
static bool inverse(grad_ctx *g, ir_opcode back) {
  ir_value ds = IR_BUILD(&g->b, IR_NEG, IR_BUILD(&g->b, IR_MUL, IR_BUILD(&g->b, IR_MUL, g->dy, g->op), g->op));
  grad_give(g, 0, GRAD_BUILD(g, back, grad_in(g, 0), ds));
  return true;
}

bool grad_inv_rms(grad_ctx *g) { return inverse(g, IR_ROW_RMS_BACK); }
bool grad_inv_std(grad_ctx *g) { return inverse(g, IR_ROW_STD_BACK); }

bool grad_row_dot(grad_ctx *g) {
  for (size_t i = 0; i < 2; i++)
    if (grad_wants(g, i)) grad_give(g, i, IR_BUILD(&g->b, IR_ROW_SCALE, grad_in(g, 1 - i), g->dy));
  return true;
}
