/* train_priv.h - what the files of train-programs share: one program being built from @forward. */
#ifndef TAPERC_TRAIN_PRIV_H
#define TAPERC_TRAIN_PRIV_H

#include "compiler/analysis/train.h"
#include "compiler/passes/passes_priv.h"

/* How scheduled taper norms stand in a program. */
typedef enum train_norms { NORMS_LIVE, NORMS_BLENDED, NORMS_REMOVED } train_norms;

enum {
  TRAIN_LEARNS = 1 << 0,     /* losses and gradients, logit norms */
  TRAIN_CALIBRATES = 1 << 1, /* statistics of the scheduled norms */
  TRAIN_ANCHORS = 1 << 2,    /* the scale anchor acts: gates may have left 1 */
  TRAIN_ROWS = 1 << 3,       /* numbers of every row */
  TRAIN_OBSERVES = 1 << 4,   /* what --metrics full asks for */
  TRAIN_SCANS = 1 << 5       /* one gate a norm, beside the graph as it is */
};

/* A norm of the forward graph and its parts in this program. */
typedef struct train_norm {
  ir_value op;  /* in the forward graph */
  ir_value x;   /* what enters it here */
  ir_value c;   /* its taper_c: a param, or what the scan adds */
  bool dynamic; /* its gate changes in training (the scan: it gets a gate of its own) */
} train_norm;

typedef struct train_program {
  pass_context *c;
  const pass_train_options *o;
  const char *name;
  unsigned flags;
  train_norms norms;
  ir_builder b;
  ir_region forward;
  analysis_final final; /* of the forward graph */
  ir_value *to;         /* [value limit of the start] forward value -> value here */
  uint32_t limit;
  ir_value tokens, targets;
  train_norm *seen; /* [seen_count] norms in execution order, of the last copy */
  size_t seen_count;
} train_program;

static inline ir_value train_here(const train_program *p, ir_value v) {
  return v.id && v.id < p->limit && p->to[v.id].id ? p->to[v.id] : v;
}

/* ---- train_norms.c ---- */
/* Is the gate operand of a taper norm a gate that training changes? */
bool train_is_scheduled(const train_program *p, ir_value gate);
/* The norm v of the forward graph in this program: live, blended or removed. */
ir_value train_copy_norm(train_program *p, ir_value v);
/* Calibration of the scheduled norms, and what --metrics full and the scan want of them (tapernorm.md 2). */
void train_norm_results(train_program *p);

/* The param of that name that training sets, made where it is missing. */
ir_value train_set_param(train_program *p, const char *name, const char *init, ir_type type);

/* ---- train_loss.c ---- */
/* Losses and results of a program whose graph was copied; `logits`: its own. */
void train_losses(train_program *p, ir_value logits);
/* The scan: cross-entropy of both, and their divergence. */
void train_scan_losses(train_program *p, ir_value base, ir_value logits);
/* A result of f32[1], the mean of a number of every row (f32[B,T,1], or f32[B,T,heads,1]: the mean over heads). Returns the
   mean. */
ir_value train_mean(train_program *p, const char *name, ir_value rows);
/* A result of every row. */
void train_rows(train_program *p, const char *name, ir_value rows);
/* r or sigma of every row of x. */
ir_value train_scale_of(train_program *p, ir_value x, bool centred, double eps);
const char *train_name(train_program *p, const char *prefix, const char *suffix); /* "prefix.suffix" */
ir_value train_unary(train_program *p, ir_opcode op, ir_value x, const double *eps);

#endif
