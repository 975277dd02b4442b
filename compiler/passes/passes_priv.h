/* passes_priv.h - what the passes share: constant expressions, folds into linears, words of remarks. */
#ifndef TAPERC_PASSES_PRIV_H
#define TAPERC_PASSES_PRIV_H

#include "compiler/analysis/readers.h"
#include "compiler/passes/pass.h"

/* ---- expr.c: constant expressions, new global values; an equal one is reused, so that entries share them. `at`: the
 * op whose place they get. ---- */
ir_value pass_expr(pass_context *c, ir_value at, ir_opcode op, const ir_value *operands, size_t n, const ir_attr *attrs,
                   size_t attr_count);
ir_value pass_expr_scale(pass_context *c, ir_value at, ir_value w, ir_value by,
                         int64_t axis); /* w itself where `by` is all ones */
ir_value pass_expr_center(pass_context *c, ir_value at, ir_value w, int64_t axis);
ir_value pass_expr_binary(pass_context *c, ir_value at, ir_opcode op, ir_value a, ir_value b);
/* b + W beta as a bias of `reader`; b may be none, the result is where beta is all zeros. */
ir_value pass_expr_bias(pass_context *c, ir_value at, ir_value b, ir_value weight, ir_value beta);
ir_value pass_splat(pass_context *c, ir_value at, ir_type type, double value); /* one const of all equal elements */
bool pass_attr_equal(ir_attr a, ir_attr b);                                    /* the same key and bits */
/* A builder that inserts before v and gives v's place and name. */
ir_builder pass_builder(pass_context *c, ir_value v);
/* Erases v where nothing uses it, then the pure ops of its region that only it used, along first operands. */
void pass_erase_chain(pass_context *c, ir_value v);

/* ---- fold.c: folds into linear readers ---- */
/* NULL where the reader is a linear whose weight and bias may be replaced by constant expressions; else the reason, to
 * follow its place in a remark. */
const char *pass_why_not_foldable(pass_context *c, analysis_constants *known, analysis_reader r, bool untie);
bool pass_is_tied(pass_context *c, ir_value weight); /* an embed reads it too */
/* scale, center or shift over the last axis by constants: one link of a chain. */
bool pass_is_link(pass_context *c, analysis_constants *known, ir_value v);

typedef struct pass_fold_reader {
  ir_value op, old_weight, new_weight;
} pass_fold_reader;

/* What was folded, for the remark that is written when all folds are done (only then is it known which weights had to
 * be cloned). */
typedef struct pass_fold_record {
  const char *name; /* of the norm */
  diag_loc loc;
  pass_fold_reader *readers;
  size_t count;
  struct pass_fold_record *next;
} pass_fold_record;

typedef struct pass_folds {
  const char *pass, *suffix; /* of every remark */
  pass_fold_record *first, **last;
} pass_folds;

void pass_fold_begin(pass_folds *f, const char *pass, const char *suffix);
pass_fold_record *pass_fold_new(pass_context *c, pass_folds *f, ir_value norm, size_t readers);
void pass_fold_report(pass_context *c, pass_folds *f);
/* Folds the chain that ends in `link` into the given readers, which must be foldable. */
void pass_fold_chain(pass_context *c, analysis_constants *known, pass_folds *f, ir_value link,
                     const analysis_reader *readers, size_t n);

/* ---- detect_taper.c: parts of a taper norm ---- */
typedef struct pass_taper {
  ir_value x, weight, bias, taper_weight, taper_c; /* bias: the LayerNorm form alone */
} pass_taper;
pass_taper pass_taper_of(const ir_module *m, ir_value norm);
/* The live norm of the parts, built by b with eps. */
ir_value pass_live_norm(ir_builder *b, pass_taper parts, double eps);

/* ---- words ---- */
/* 'layers.0.attn_norm', or the op's name where it has none: without quotes. */
const char *pass_label(pass_context *c, ir_value v);
/* label at FILE:L:C */
const char *pass_place(pass_context *c, ir_value v);
/* `reader`'s label without the prefix that it shares with `norm`: layers.0.attn.q beside layers.0.attn_norm is attn.q.
 */
const char *pass_short_label(pass_context *c, ir_value reader, const char *norm);

#endif
