/* train_loss.c - losses and results of the programs of training (tapernorm.md 4, train_abi.h). */
#include "compiler/passes/train_priv.h"

const char *train_name(train_program *p, const char *prefix, const char *suffix) {
  return arena_printf(&p->c->scratch, "%s.%s", prefix, suffix);
}

ir_value train_unary(train_program *p, ir_opcode op, ir_value x, const double *eps) {
  ir_attr attr = {IR_ATTR_EPS, {.f = eps ? *eps : 0}};
  return ir_build(&p->b, op, &x, 1, &attr, eps ? 1 : 0);
}

ir_value train_scale_of(train_program *p, ir_value x, bool centred, double eps) {
  return train_unary(p, centred ? IR_ROW_STD : IR_ROW_RMS, x, &eps);
}

static void hand_out(train_program *p, const char *name, ir_value x) {
  ir_attr attr = {IR_ATTR_NAME, {.s = name}};
  const char *label = p->b.name;
  p->b.name = NULL;
  ir_build(&p->b, IR_RESULT, &x, 1, &attr, 1);
  p->b.name = label;
}

void train_rows(train_program *p, const char *name, ir_value rows) { hand_out(p, name, rows); }

ir_value train_mean(train_program *p, const char *name, ir_value rows) {
  if (ir_type_of(p->c->m, rows).rank == 4) /* a norm of heads */
    rows = IR_BUILD(&p->b, IR_ROW_MEAN, IR_BUILD(&p->b, IR_MERGE_HEADS, rows));
  ir_value mean = IR_BUILD(&p->b, IR_TOKEN_MEAN, rows, p->targets);
  hand_out(p, name, mean);
  return mean;
}

static ir_value number(train_program *p, double value) {
  return pass_splat(p->c, ir_first(p->c->m, p->forward), ir_type_make(IR_F32, 1, (int64_t[]){1}), value);
}

/* lambda times the mean of (s - s_tgt)^2. */
static void anchor(train_program *p, ir_value s) {
  ir_value off =
      IR_BUILD(&p->b, IR_SUB, s, train_set_param(p, "anchor.target", "zeros", ir_type_make(IR_F32, 1, (int64_t[]){1})));
  ir_value mean = IR_BUILD(&p->b, IR_TOKEN_MEAN, IR_BUILD(&p->b, IR_MUL, off, off), p->targets);
  hand_out(p, "aux", IR_BUILD(&p->b, IR_MUL, mean, number(p, p->o->anchor)));
}

static void at(train_program *p, ir_value v, const char *name) {
  p->b.loc = v.id ? ir_loc_of(p->c->m, v) : (diag_loc){0};
  p->b.name = name;
}

static ir_value cross_entropy(train_program *p, const char *name, ir_value logits) {
  ir_value rows = IR_BUILD(&p->b, IR_CROSS_ENTROPY, logits, p->targets);
  train_mean(p, name, rows);
  return rows;
}

void train_losses(train_program *p, ir_value logits) {
  ir_value stream = train_here(p, p->final.stream);
  at(p, ir_operand(p->c->m, ir_last(p->c->m, p->forward), 0), "loss");
  ir_value rows = cross_entropy(p, "ce", logits);
  if (p->flags & TRAIN_ROWS) train_rows(p, "ce_rows", rows);
  if (p->flags & (TRAIN_LEARNS | TRAIN_OBSERVES)) train_mean(p, "logit_norm", train_unary(p, IR_ROW_L2, logits, NULL));
  if (p->flags & TRAIN_OBSERVES) train_mean(p, "logit_margin", train_unary(p, IR_TOP_GAP, logits, NULL));
  if (!stream.id) return;
  at(p, p->final.stream, "scale");
  ir_value s = train_scale_of(p, stream, p->final.centred, p->final.eps);
  train_mean(p, "scale", s);
  if (p->flags & (TRAIN_ROWS | TRAIN_LEARNS))
    train_rows(p, "scale_rows", s); /* training: what taper.scale is made of */
  if (p->flags & TRAIN_ANCHORS && p->o->anchor > 0) anchor(p, s);
}

void train_scan_losses(train_program *p, ir_value base, ir_value logits) {
  at(p, ir_operand(p->c->m, ir_last(p->c->m, p->forward), 0), "loss");
  cross_entropy(p, "ce_base", base);
  cross_entropy(p, "ce", logits);
  train_mean(p, "kl", IR_BUILD(&p->b, IR_KL, base, logits));
}
