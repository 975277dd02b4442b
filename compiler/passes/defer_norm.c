/*
 * defer_norm.c - live norms that only linears read (tapernorm.md 5): the gain goes into the readers, the division after their products.
 *   rms_norm:   y = (x D_gamma W) / r + b                        the bias is not divided
 *   layer_norm: y = ((x P) D_gamma W) / sigma + (b + beta W)     P = I - 11'/d acts on the row, not on W: a mean far above sigma would
 *                                                                come back through the rounding of W P
 * The statistic is an op of its own (inv_rms, inv_std), so that it can be computed while the products are.
 */
#include "compiler/passes/passes_priv.h"

static const char name[] = "defer-norm";

typedef struct deferral {
  analysis_constants known;
  pass_folds folds;
  uint32_t limit; /* values from here on are this pass's own */
} deferral;

/* Norms of one value share the ops made here: those stand before the first of them, so before all. */
static ir_value shared(pass_context *c, const deferral *d, ir_value norm, ir_opcode op) {
  ir_module *m = c->m;
  ir_value x = ir_operand(m, norm, 0), *users;
  bool has_eps = op != IR_CENTER;
  size_t n = ir_users(m, x, &c->scratch, &users);
  for (size_t i = 0; i < n; i++)
    if (users[i].id >= d->limit && ir_is(m, users[i], op) && (!has_eps || ir_eps(m, users[i]) == ir_eps(m, norm)) &&
        ir_region_of(m, users[i]).id == ir_region_of(m, norm).id)
      return users[i];
  ir_builder b = pass_builder(c, norm);
  ir_attr eps = {IR_ATTR_EPS, {.f = ir_eps(m, norm)}};
  return ir_build(&b, op, &x, 1, &eps, has_eps);
}

static void defer_reader(pass_context *c, ir_value norm, ir_value x, ir_value statistic, ir_value linear,
                         pass_fold_reader *out) {
  ir_module *m = c->m;
  bool is_layer = ir_is(m, norm, IR_LAYER_NORM);
  ir_value w = ir_operand(m, linear, 1), b = ir_operand(m, linear, 2);
  *out = (pass_fold_reader){.old_weight = w};
  if (is_layer) b = pass_expr_bias(c, linear, b, w, ir_operand(m, norm, 2));
  w = pass_expr_scale(c, linear, w, ir_operand(m, norm, 1), -1);
  ir_builder at = pass_builder(c, linear);
  ir_value product = IR_BUILD(&at, IR_LINEAR, x, w);
  ir_value scaled = IR_BUILD(&at, IR_ROW_SCALE, product, statistic);
  ir_replace_uses(m, linear, b.id ? IR_BUILD(&at, IR_SHIFT, scaled, b) : scaled);
  ir_erase(m, linear);
  out->op = product;
  out->new_weight = w;
}

static void visit(pass_context *c, deferral *d, ir_value norm) {
  analysis_reader *readers;
  size_t probes, n = analysis_readers(c->m, norm, &c->scratch, &readers, &probes);
  const char *reason = NULL;
  ir_value blocker = norm;
  size_t operands = ir_is(c->m, norm, IR_LAYER_NORM) ? 3 : 2;
  for (size_t i = 1; i < operands && !reason; i++)
    if (!analysis_is_constant(&d->known, ir_operand(c->m, norm, i))) reason = "has a gain that is no constant";
  if (probes && !reason) reason = "is looked at by a probe";
  for (size_t i = 0; i < n && !reason; i++) {
    reason = pass_why_not_foldable(c, &d->known, readers[i], c->options->untie);
    blocker = readers[i].op;
  }
  if (n == 0) return;
  if (reason) {
    diag_remark(c->sink, name, true, ir_loc_of(c->m, norm), "'%s' stays before its readers: %s %s", pass_label(c, norm),
                pass_place(c, blocker), reason);
    return;
  }
  bool is_layer = ir_is(c->m, norm, IR_LAYER_NORM);
  ir_value s = shared(c, d, norm, is_layer ? IR_INV_STD : IR_INV_RMS);
  ir_value x = is_layer ? shared(c, d, norm, IR_CENTER) : ir_operand(c->m, norm, 0);
  pass_fold_record *record = pass_fold_new(c, &d->folds, norm, n);
  for (size_t i = 0; i < n; i++) defer_reader(c, norm, x, s, readers[i].op, &record->readers[record->count++]);
  ir_erase(c->m, norm);
  c->changed = true;
}

bool pass_defer_norm(pass_context *c) {
  deferral d = {.known = analysis_constants_of(c->m, &c->scratch), .limit = ir_value_limit(c->m)};
  pass_fold_begin(&d.folds, name, ", the division after the products");
  for (size_t e = 0; e < ir_entry_count(c->m); e++)
    for (ir_value v = ir_first(c->m, ir_entry_at(c->m, e)); v.id; v = ir_next(c->m, v))
      if (ir_is(c->m, v, IR_RMS_NORM) || ir_is(c->m, v, IR_LAYER_NORM)) visit(c, &d, v);
  pass_fold_report(c, &d.folds);
  return true;
}
