/* fold_scale.c - chains of scale, center and shift go into every linear that reads them (tapernorm.md 5):
   W' = W D_scale, W P for a center, b' = b + W beta; all readers or none. */
#include "compiler/passes/passes_priv.h"

static const char name[] = "fold-scale";

/* Readers that are no links themselves; *out_blocker is the first that is no foldable linear. */
static size_t own_readers(pass_context *c, analysis_constants *known, ir_value link, analysis_reader **out,
                          analysis_reader *out_blocker, const char **out_reason) {
  analysis_reader *all;
  size_t n = analysis_readers(c->m, link, &c->scratch, &all, NULL), count = 0;
  *out = ARENA_ARRAY(&c->scratch, analysis_reader, n + 1);
  *out_reason = NULL;
  for (size_t i = 0; i < n; i++) {
    if (pass_is_link(c, known, all[i].op)) continue;
    (*out)[count++] = all[i];
    const char *reason = *out_reason ? NULL : pass_why_not_foldable(c, known, all[i], false);
    if (!reason) continue;
    *out_reason = reason;
    *out_blocker = all[i];
  }
  return count;
}

static void fold_link(pass_context *c, analysis_constants *known, pass_folds *f, ir_value link) {
  analysis_reader *readers, blocker;
  const char *reason;
  size_t n = own_readers(c, known, link, &readers, &blocker, &reason);
  if (n == 0) return;
  if (reason) {
    diag_remark(c->sink, name, true, ir_loc_of(c->m, link), "'%s' stays an op of its own: its reader %s %s",
                pass_label(c, link), pass_place(c, blocker.op), reason);
    return;
  }
  pass_fold_chain(c, known, f, link, readers, n);
}

bool pass_fold_scale(pass_context *c) {
  analysis_constants known = analysis_constants_of(c->m, &c->scratch);
  pass_folds folds;
  pass_fold_begin(&folds, name, "");
  for (size_t e = 0; e < ir_entry_count(c->m); e++) {
    ir_region entry = ir_entry_at(c->m, e);
    for (ir_value v = ir_first(c->m, entry); v.id; v = ir_next(c->m, v))
      if (pass_is_link(c, &known, v)) fold_link(c, &known, &folds, v);
    for (ir_value v = ir_last(c->m, entry), prev; v.id; v = prev) {
      prev = ir_prev(c->m, v);
      if (pass_is_link(c, &known, v) && ir_use_count(c->m, v) == 0) ir_erase(c->m, v);
    }
  }
  pass_fold_report(c, &folds);
  return true;
}
