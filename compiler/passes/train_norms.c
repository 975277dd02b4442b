/* train_norms.c - norms in the programs of training, and the numbers they are calibrated and judged by (tapernorm.md 1, 2). */
#include "compiler/passes/train_priv.h"

#include <string.h>

static bool is_taper(const ir_module *m, ir_value v) {
  return ir_is(m, v, IR_TAPER_RMS_NORM) || ir_is(m, v, IR_TAPER_LAYER_NORM);
}

static ir_value gate_of(const ir_module *m, ir_value v) {
  return is_taper(m, v) ? ir_operand(m, v, ir_operand_count(m, v) - 1) : IR_NONE;
}

bool train_is_scheduled(const train_program *p, ir_value gate) {
  if (!ir_is(p->c->m, gate, IR_GATE)) return false;
  const char *name = ir_name_of(p->c->m, gate);
  for (size_t i = 0; p->o->gates && i < p->o->gate_count; i++)
    if (strcmp(p->o->gates[i], name) == 0) return true;
  return !p->o->gates;
}

/* Parts of a norm of the forward graph, its input as it is here. */
static pass_taper parts_here(train_program *p, ir_value v) {
  const ir_module *m = p->c->m;
  pass_taper t = {ir_operand(m, v, 0), ir_operand(m, v, 1), IR_NONE, ir_operand(m, v, 1), IR_NONE};
  if (is_taper(m, v))
    t = pass_taper_of(m, v);
  else if (ir_is(m, v, IR_LAYER_NORM))
    t.bias = ir_operand(m, v, 2);
  t.x = train_here(p, t.x);
  return t;
}

static bool is_one(const ir_module *m, ir_value v) { return analysis_is_splat(m, v, 1); }

/* x c gammat, or (x - mean) c gammat + beta, row by row: no value shaped as a parameter. */
static ir_value removed(train_program *p, pass_taper t) {
  ir_value y = t.bias.id ? IR_BUILD(&p->b, IR_CENTER, t.x) : t.x;
  y = IR_BUILD(&p->b, IR_SCALE, y, t.taper_weight);
  if (!is_one(p->c->m, t.taper_c)) y = IR_BUILD(&p->b, IR_MUL, y, t.taper_c);
  return t.bias.id ? IR_BUILD(&p->b, IR_SHIFT, y, t.bias) : y;
}

static ir_value blended(train_program *p, pass_taper t, ir_value gate, double eps) {
  ir_attr attr = {IR_ATTR_EPS, {.f = eps}};
  if (!t.bias.id)
    return ir_build(&p->b, IR_TAPER_RMS_NORM, (ir_value[]){t.x, t.weight, t.taper_weight, t.taper_c, gate}, 5, &attr,
                    1);
  return ir_build(&p->b, IR_TAPER_LAYER_NORM, (ir_value[]){t.x, t.weight, t.bias, t.taper_weight, t.taper_c, gate}, 6,
                  &attr, 1);
}

/* The const that stands for a gate whose value does not change. */
static ir_value fixed_gate(train_program *p, ir_value at, double value) {
  return pass_splat(p->c, at, ir_type_make(IR_F32, 1, (int64_t[]){1}), value);
}

/* ---- the scan: a gate of its own for every live norm of the stream ---- */
static ir_value scan_gate(train_program *p, ir_value norm) {
  ir_module *m = p->c->m;
  const char *name = train_name(p, "scan", ir_name_of(m, norm));
  for (ir_value v = ir_first(m, IR_GLOBALS); v.id; v = ir_next(m, v))
    if (ir_is(m, v, IR_GATE) && strcmp(ir_name_of(m, v), name) == 0) return v;
  static const double open = 1;
  ir_builder b = {m, IR_GLOBALS, IR_NONE, ir_loc_of(m, norm), NULL};
  ir_attr attrs[] = {{IR_ATTR_NAME, {.s = name}}, {IR_ATTR_VALUE, {.floats = {&open, 1}}}};
  return ir_build_typed(&b, IR_GATE, ir_type_make(IR_F32, 1, (int64_t[]){1}), attrs, 2);
}

ir_value train_set_param(train_program *p, const char *name, const char *init, ir_type type) {
  ir_module *m = p->c->m;
  for (ir_value v = ir_first(m, IR_GLOBALS); v.id; v = ir_next(m, v))
    if (ir_is(m, v, IR_PARAM) && strcmp(ir_name_of(m, v), name) == 0) return v;
  ir_builder b = {m, IR_GLOBALS, IR_NONE, p->b.loc, NULL};
  ir_attr attrs[] = {{IR_ATTR_NAME, {.s = name}}, {IR_ATTR_INIT, {.s = init}}, {IR_ATTR_TRAINED, {.i = 0}}};
  return ir_build_typed(&b, IR_PARAM, type, attrs, 3);
}

/* Does the scan turn this norm? Those already removed or half removed are the model's own affair. */
static bool is_scanned(const train_program *p, ir_value v, double value) {
  return (p->flags & TRAIN_SCANS) && (!is_taper(p->c->m, v) || value == 1) && analysis_norms_stream(p->c->m, v);
}

static void scan_parts(train_program *p, ir_value v, pass_taper *t) {
  t->taper_weight = t->weight;
  if (!ir_is(p->c->m, t->taper_c, IR_PARAM))
    t->taper_c = train_set_param(p, train_name(p, ir_name_of(p->c->m, v), "taper_c"), "ones",
                                 ir_type_make(IR_F32, 1, (int64_t[]){1}));
}

ir_value train_copy_norm(train_program *p, ir_value v) {
  ir_module *m = p->c->m;
  pass_taper t = parts_here(p, v);
  double value = 1, eps = ir_eps(m, v);
  ir_value gate = gate_of(m, v);
  p->b.loc = ir_loc_of(m, v);
  p->b.name = ir_name_of(m, v);
  train_norms how = NORMS_LIVE;
  bool known = !gate.id || ir_read_const(m, gate, &value), dynamic = train_is_scheduled(p, gate);
  if (is_scanned(p, v, value)) {
    scan_parts(p, v, &t);
    gate = scan_gate(p, v);
    dynamic = true, how = p->norms;
  } else if (p->flags & TRAIN_SCANS || !dynamic) {
    how = known && value == 1 ? NORMS_LIVE : known && value == 0 ? NORMS_REMOVED : NORMS_BLENDED;
    if (how == NORMS_BLENDED) gate = fixed_gate(p, v, value);
    dynamic = false;
  } else
    how = p->norms;
  p->seen[p->seen_count++] = (train_norm){v, t.x, t.taper_c, dynamic};
  if (how == NORMS_LIVE) return pass_live_norm(&p->b, t, eps);
  return how == NORMS_REMOVED ? removed(p, t) : blended(p, t, gate, eps);
}

/* ---- results ---- */
/* With h the input (less its mean): E |h gamma|^2 / s, E |h gamma|^2 and E s, s = r or sigma. */
static void calibrate(train_program *p, const train_norm *n) {
  const ir_module *m = p->c->m;
  const char *name = ir_name_of(m, n->op);
  pass_taper t = parts_here(p, n->op);
  double eps = ir_eps(m, n->op);
  ir_value h = t.bias.id ? IR_BUILD(&p->b, IR_CENTER, n->x) : n->x;
  ir_value wide = IR_BUILD(&p->b, IR_SCALE, h, t.weight), square = IR_BUILD(&p->b, IR_ROW_DOT, wide, wide);
  ir_value inverse = train_unary(p, t.bias.id ? IR_INV_STD : IR_INV_RMS, n->x, &eps);
  train_mean(p, train_name(p, name, "numerator"), IR_BUILD(&p->b, IR_MUL, square, inverse));
  train_mean(p, train_name(p, name, "denominator"), square);
  train_mean(p, train_name(p, name, "sigma"), train_scale_of(p, n->x, t.bias.id != 0, eps));
}

/* E |T(h; 0) - T(h; 1)|^2 and E |T(h; 1)|^2. */
static void judge(train_program *p, const train_norm *n) {
  const ir_module *m = p->c->m;
  const char *name = ir_name_of(m, n->op);
  pass_taper t = parts_here(p, n->op);
  t.x = n->x;
  ir_value live = pass_live_norm(&p->b, t, ir_eps(m, n->op)), gap = IR_BUILD(&p->b, IR_SUB, removed(p, t), live);
  train_mean(p, train_name(p, name, "error"), IR_BUILD(&p->b, IR_ROW_DOT, gap, gap));
  train_mean(p, train_name(p, name, "power"), IR_BUILD(&p->b, IR_ROW_DOT, live, live));
}

void train_norm_results(train_program *p) {
  const ir_module *m = p->c->m;
  for (size_t i = 0; i < p->seen_count; i++) {
    const train_norm *n = &p->seen[i];
    bool centred = ir_op_has(ir_opcode_of(m, n->op), OPF_MEAN_BLIND), rows = ir_type_of(m, n->x).rank == 3;
    if (!n->dynamic) continue;
    p->b.loc = ir_loc_of(m, n->op);
    p->b.name = ir_name_of(m, n->op);
    if (p->flags & (TRAIN_CALIBRATES | TRAIN_SCANS)) calibrate(p, n);
    if (p->flags & TRAIN_OBSERVES) judge(p, n);
    if (p->flags & (TRAIN_OBSERVES | TRAIN_SCANS) && rows)
      train_rows(p, train_name(p, ir_name_of(m, n->op), "scale_rows"),
                 train_scale_of(p, n->x, centred, ir_eps(m, n->op)));
  }
}
