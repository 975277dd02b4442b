/* fuse_final_scale.c - the last norm's scale before a head whose weight is the embedding's table. The shared table is
   never scaled in place: the chain stays at the head's input, where the head's input load computes it; --untie writes a
   head of its own and says what it costs. */
#include "compiler/passes/passes_priv.h"

static const char name[] = "fuse-final-scale";

static bool is_tied_head(pass_context *c, ir_value v) {
  return ir_is(c->m, v, IR_LINEAR) && pass_is_tied(c, ir_operand(c->m, v, 1));
}

/* Every reader of the chain's end is a linear that may be folded when its weight is untied. */
static bool all_foldable(pass_context *c, analysis_constants *known, ir_value link, analysis_reader **out,
                         size_t *out_n) {
  *out_n = analysis_readers(c->m, link, &c->scratch, out, NULL);
  for (size_t i = 0; i < *out_n; i++)
    if (pass_why_not_foldable(c, known, (*out)[i], true)) return false;
  return true;
}

/* Does defer-norm, later, write the head that --untie asks for? */
static bool is_left_to_defer_norm(pass_context *c, ir_value x) {
  return c->options->level >= 2 && c->options->norms == NORMS_DEFERRED && ir_op_has(ir_opcode_of(c->m, x), OPF_NORM);
}

static void visit_head(pass_context *c, analysis_constants *known, pass_folds *f, ir_value head) {
  ir_value x = analysis_behind(c->m, ir_operand(c->m, head, 0));
  const char *table = pass_label(c, ir_operand(c->m, head, 1));
  analysis_reader *readers;
  size_t n;
  if (!pass_is_link(c, known, x)) {
    if (c->options->untie && !is_left_to_defer_norm(c, x))
      diag_report(c->sink, DC_PASS_OPTION_UNUSED, ir_loc_of(c->m, head),
                  "--untie: '%s' stays tied to '%s', since no scale stands before it", pass_label(c, head), table);
    return;
  }
  if (c->options->untie && all_foldable(c, known, x, &readers, &n)) {
    pass_fold_chain(c, known, f, x, readers, n);
    pass_erase_chain(c, x);
    return;
  }
  diag_remark(c->sink, name, c->options->untie, ir_loc_of(c->m, x),
              "'%s' is computed as '%s' loads its input: '%s' is the embedding's table too%s", pass_label(c, x),
              pass_label(c, head), table, c->options->untie ? ", and another reader blocks --untie" : "");
}

bool pass_fuse_final_scale(pass_context *c) {
  analysis_constants known = analysis_constants_of(c->m, &c->scratch);
  pass_folds folds;
  size_t heads = 0;
  pass_fold_begin(&folds, name, "");
  for (size_t e = 0; e < ir_entry_count(c->m); e++)
    for (ir_value v = ir_first(c->m, ir_entry_at(c->m, e)); v.id; v = ir_next(c->m, v)) {
      if (!is_tied_head(c, v)) continue;
      visit_head(c, &known, &folds, v);
      heads++;
    }
  if (c->options->untie && heads == 0)
    diag_report(c->sink, DC_PASS_OPTION_UNUSED, (diag_loc){0}, "--untie: no head shares its weight with the embedding");
  pass_fold_report(c, &folds);
  return true;
}
