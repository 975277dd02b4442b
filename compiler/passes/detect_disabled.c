/* detect_disabled.c - rms_norm and layer_norm whose eps drowns the variance are constant gains, weight / sqrt(eps)
   (FakeLN checkpoints, tapernorm.md 6). Centring and beta stay. Found by eps, never by names. */
#include "compiler/passes/passes_priv.h"

#define DISABLED_FROM 1e10
#define SUSPECT_FROM 1e4

static const char name[] = "detect-disabled";

/* eps as a sum of two f32 constants: 1e12 is none. */
static ir_value eps_expr(pass_context *c, ir_value v, double eps) {
  ir_type type = ir_type_of(c->m, ir_operand(c->m, v, 1));
  double high = (double)(float)eps, low = (double)(float)(eps - high);
  ir_value sum = pass_splat(c, v, type, high);
  return low != 0 ? pass_expr_binary(c, v, IR_ADD, sum, pass_splat(c, v, type, low)) : sum;
}

static ir_value build_gain(pass_context *c, ir_value v, double eps) {
  ir_value weight = ir_operand(c->m, v, 1), root = eps_expr(c, v, eps);
  root = pass_expr(c, v, IR_SQRT, &root, 1, NULL, 0);
  ir_value gain = pass_expr_binary(c, v, IR_DIV, weight, root);
  ir_builder b = pass_builder(c, v);
  if (ir_is(c->m, v, IR_RMS_NORM)) return IR_BUILD(&b, IR_SCALE, ir_operand(c->m, v, 0), gain);
  ir_value centered = IR_BUILD(&b, IR_CENTER, ir_operand(c->m, v, 0));
  ir_value scaled = IR_BUILD(&b, IR_SCALE, centered, gain);
  return IR_BUILD(&b, IR_SHIFT, scaled, ir_operand(c->m, v, 2));
}

static void visit(pass_context *c, ir_value v) {
  double eps = ir_attr_float(c->m, v, IR_ATTR_EPS, 0);
  if (!(eps >= SUSPECT_FROM)) return;
  text value = {0};
  text_put_double(&value, eps);
  const char *label = pass_label(c, v), *shown = value.data ? value.data : "?";
  if (eps < DISABLED_FROM) {
    diag_remark(c->sink, name, true, ir_loc_of(c->m, v),
                "'%s' has eps %s: large, but not large enough (1e10) to be read as a constant gain", label, shown);
  } else {
    ir_value fresh = build_gain(c, v, eps);
    diag_remark(c->sink, name, false, ir_loc_of(c->m, v), "'%s' is a constant gain, weight / sqrt(eps): its eps is %s",
                label, shown);
    ir_replace_uses(c->m, v, fresh);
    ir_erase(c->m, v);
    c->changed = true;
  }
  text_free(&value);
}

bool pass_detect_disabled(pass_context *c) {
  for (size_t e = 0; e < ir_entry_count(c->m); e++)
    for (ir_value v = ir_first(c->m, ir_entry_at(c->m, e)), next; v.id; v = next) {
      next = ir_next(c->m, v);
      if (ir_is(c->m, v, IR_RMS_NORM) || ir_is(c->m, v, IR_LAYER_NORM)) visit(c, v);
    }
  return true;
}
