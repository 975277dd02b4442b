/* detect_taper.c - taper norms whose gate is exactly 0 become what is left of them, scale | center + scale + shift; at
   exactly 1 they become live norms (tapernorm.md 1). A gate between keeps its norms as they are, with a warning. */
#include "compiler/analysis/taper_gates.h"
#include "compiler/passes/passes_priv.h"

static const char name[] = "detect-taper";

/* taper_layer_norm has a bias in between. */
pass_taper pass_taper_of(const ir_module *m, ir_value v) {
  bool is_layer = ir_is(m, v, IR_TAPER_LAYER_NORM);
  return (pass_taper){ir_operand(m, v, 0), ir_operand(m, v, 1), is_layer ? ir_operand(m, v, 2) : IR_NONE,
                      ir_operand(m, v, 2 + is_layer), ir_operand(m, v, 3 + is_layer)};
}

/* x c gammat, or (x - mean) c gammat + beta. */
static ir_value build_zero(pass_context *c, ir_value v, pass_taper o) {
  ir_builder b = pass_builder(c, v);
  ir_value gain = analysis_is_splat(c->m, o.taper_c, 1) ? o.taper_weight
                                                        : pass_expr_binary(c, v, IR_MUL, o.taper_weight, o.taper_c);
  if (!o.bias.id) return IR_BUILD(&b, IR_SCALE, o.x, gain);
  ir_value centered = IR_BUILD(&b, IR_CENTER, o.x);
  ir_value scaled = IR_BUILD(&b, IR_SCALE, centered, gain);
  return IR_BUILD(&b, IR_SHIFT, scaled, o.bias);
}

ir_value pass_live_norm(ir_builder *b, pass_taper o, double eps) {
  ir_attr attr = {IR_ATTR_EPS, {.f = eps}};
  if (!o.bias.id) return ir_build(b, IR_RMS_NORM, (ir_value[]){o.x, o.weight}, 2, &attr, 1);
  return ir_build(b, IR_LAYER_NORM, (ir_value[]){o.x, o.weight, o.bias}, 3, &attr, 1);
}

static ir_value build_one(pass_context *c, ir_value v, pass_taper o) {
  ir_builder b = pass_builder(c, v);
  return pass_live_norm(&b, o, ir_eps(c->m, v));
}

static void rewrite(pass_context *c, const taper_norm *t) {
  pass_taper o = pass_taper_of(c->m, t->norm);
  const char *gate = analysis_gate_name(c->m, t->gate, &c->scratch), *label = pass_label(c, t->norm);
  bool zero = t->state == TAPER_AT_ZERO;
  ir_value fresh = zero ? build_zero(c, t->norm, o) : build_one(c, t->norm, o);
  diag_remark(c->sink, name, false, ir_loc_of(c->m, t->norm), "'%s' is %s: gate '%s' is %s", label,
              !zero       ? "a live norm"
              : o.bias.id ? "a center, a scale and a shift"
                          : "a scale",
              gate, zero ? "0" : "1");
  ir_replace_uses(c->m, t->norm, fresh);
  ir_erase(c->m, t->norm);
  c->changed = true;
}

/* One warning a gate; its other norms are notes. */
static void warn_open(pass_context *c, const taper_norm *norms, size_t n, size_t first) {
  for (size_t i = 0; i < first; i++)
    if (norms[i].state == TAPER_OPEN && ir_same(norms[i].gate, norms[first].gate)) return;
  text value = {0};
  text_put_double(&value, norms[first].value);
  diag_report(c->sink, DC_PASS_GATE_OPEN, ir_loc_of(c->m, norms[first].norm),
              "gate '%s' is %s, so '%s' stays live with both branches; only a gate of exactly 0 removes a norm",
              analysis_gate_name(c->m, norms[first].gate, &c->scratch), value.data ? value.data : "?",
              pass_label(c, norms[first].norm));
  for (size_t i = first + 1; i < n; i++)
    if (norms[i].state == TAPER_OPEN && ir_same(norms[i].gate, norms[first].gate))
      diag_note(c->sink, ir_loc_of(c->m, norms[i].norm), "'%s' stays live too", pass_label(c, norms[i].norm));
  text_free(&value);
}

static void refuse(pass_context *c, const taper_norm *t) {
  const char *gate = analysis_gate_name(c->m, t->gate, &c->scratch), *label = pass_label(c, t->norm);
  if (t->state == TAPER_UNKNOWN) {
    diag_report(c->sink, DC_PASS_GATE_RANGE, ir_loc_of(c->m, t->norm), "gate '%s' of '%s' has no value", gate, label);
    return;
  }
  text value = {0};
  text_put_double(&value, t->value);
  diag_report(c->sink, DC_PASS_GATE_RANGE, ir_loc_of(c->m, t->norm),
              "gate '%s' of '%s' is %s, not a number from 0 to 1; give a value with --gate %s=...", gate, label,
              value.data ? value.data : "?", gate);
  text_free(&value);
}

bool pass_detect_taper(pass_context *c) {
  taper_norm *norms;
  size_t n = analysis_taper_norms(c->m, &c->scratch, &norms);
  bool fine = true;
  for (size_t i = 0; i < n; i++) switch (norms[i].state) {
    case TAPER_AT_ZERO:
    case TAPER_AT_ONE: rewrite(c, &norms[i]); break;
    case TAPER_OPEN: warn_open(c, norms, n, i); break;
    case TAPER_UNKNOWN:
    case TAPER_WRONG:
      refuse(c, &norms[i]);
      fine = false;
      break;
    }
  return fine;
}
