/* pass.h - passes over a module: one file each, listed in passes.def. */
#ifndef TAPERC_PASS_H
#define TAPERC_PASS_H

#include "compiler/ir/ir.h"

typedef enum pass_for { PASS_INFER = 1, PASS_TRAIN = 2, PASS_BOTH = 3 } pass_for;
typedef enum pass_norms { NORMS_DEFERRED, NORMS_KERNEL } pass_norms;
typedef enum pass_fold { FOLD_FULL, FOLD_EXPLICIT, FOLD_NONE } pass_fold;

/* What train-programs makes (docs/training.md has the words). */
typedef struct pass_train_options {
  const char *const *gates; /* names of the scheduled gates (an array of gates goes as a whole); NULL: every gate */
  size_t gate_count;
  double anchor; /* lambda of the scale anchor; 0 or below: none */
  bool
      clamp; /* @eval looks rows of token tables up times a factor, a param TABLE.clamp f32[rows,1] that the trainer sets */
  bool scan; /* @eval and @scan, for packages that measure, instead of the programs that train */
} pass_train_options;

typedef struct pass_options {
  int level; /* 0, 1, 2 */
  pass_norms norms;
  pass_fold fold;
  bool untie, split_scale;
  double clamp_rows;              /* K; 0: off */
  const unsigned char *used_rows; /* [used_count] of the token table: was the row read in training? NULL: not known */
  size_t used_count;
  pass_for use;                    /* what the default pipeline is for; 0: PASS_INFER */
  const pass_train_options *train; /* NULL: every gate is scheduled, anchor 0.1, no scan */
  bool allow_nonfinite;            /* fold weights that hold NaN or Inf */
  ir_dtype dtype;                  /* of matrices and of the rows that products with them read: f32, bf16, f16 */
} pass_options;

typedef struct pass_context {
  ir_module *m;
  diag_sink *sink; /* remarks, warnings, refusals */
  const pass_options *options;
  arena scratch; /* emptied after every pass */
  bool changed;
} pass_context;

/* false: the module cannot be compiled (reported in the sink). */
typedef bool (*pass_fn)(pass_context *c);

/* Every pass of passes.def: PASS(fold_scale, ...) is the function pass_fold_scale, in fold_scale.c. */
#define PASS(function, name, use, level, title) bool pass_##function(pass_context *c);
#include "compiler/passes/passes.def"
#undef PASS

typedef struct pass_info {
  const char *name;
  pass_fn fn;
  pass_for use;
  int level; /* runs in the default pipeline from this -O level on; -1: only when asked for by an option or by name */
  const char *title;
} pass_info;

const pass_info *pass_find(const char *name);
size_t pass_count(void);
const pass_info *pass_at(size_t i);
/* The default pipeline for options: names in order (into `out`, at most `cap`); returns the count. --norms, --fold,
   --untie, --split-scale decide here or in the pass, in one place each. */
size_t pass_pipeline(const pass_options *options, pass_for use, const pass_info **out, size_t cap);

typedef struct pass_run_options {
  bool verify_each;                       /* verify, and check print(parse(print)) == print, after every pass */
  bool time_passes;                       /* a table on `report` */
  const char *print_before, *print_after; /* pass name or "all" */
  text *report;                           /* where printed IR and times go */
  bool
      *out_bug; /* may be NULL; set to true when a pass broke the module: the tool's fault (exit 70), not the input's */
} pass_run_options;
/* Runs the passes in order. A verifier failure is a compiler bug: the IR before the pass is written to a file, both are
 * named; returns false. */
bool pass_run(ir_module *m, diag_sink *sink, const pass_options *options, const pass_info *const *passes, size_t n,
              const pass_run_options *run);

#endif
