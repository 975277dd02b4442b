/* train.h - what training wants to know of a forward graph: the norm before the head, taper norms, what a parameter is. */
#ifndef TAPERC_ANALYSIS_TRAIN_H
#define TAPERC_ANALYSIS_TRAIN_H

#include "compiler/ir/ir.h"

/* The logits of an entry: what `return` hands out first, or what the result "ce" is the cross-entropy of; IR_NONE: neither. */
ir_value analysis_logits(const ir_module *m, ir_region entry);

/* The norm before the head: what the scale anchor and the result `scale` look at (tapernorm.md 4). */
typedef struct analysis_final {
  ir_value norm;   /* taper or live norm, or dyt; IR_NONE: the head reads the stream itself */
  ir_value stream; /* what enters it, behind probes; without a norm: what enters the head */
  ir_value head;   /* the last linear before the logits; IR_NONE: there is none */
  ir_value gate;   /* of a taper norm; else IR_NONE: every other gate is an internal one */
  bool centred;    /* its scale is sigma, the LayerNorm form; else r */
  double eps;
} analysis_final;
analysis_final analysis_final_norm(const ir_module *m, ir_region entry);

/* A norm that a gate of the module (no constant) controls. Parameters are IR_NONE where they are constants. */
typedef struct analysis_train_norm {
  const char *name; /* "layers.0.attn_norm": results are named after it */
  ir_value norm, gate, weight, taper_weight, taper_c;
  bool layer_norm; /* the LayerNorm form */
  bool final;      /* the norm before the head */
} analysis_train_norm;
/* Of one entry (`train_taper`, `eval`, `scan`, `forward`), in execution order. Owned by scratch. */
size_t analysis_train_norms(const ir_module *m, ir_region entry, arena *scratch, analysis_train_norm **out);

/* The kind of every parameter that an entry without gradients (`forward`, `eval`) reads, by its role in the graph:
   [ir_value_limit]; "qkv" (leads to attention), "o" (comes from attention), "mlp_in" (leads to a nonlinear op), "mlp_out"
   (comes from one), "embedding" (looked up, tied heads too), "head", "norm", "bias", "other"; NULL: no parameter, or not
   read. Owned by scratch. */
const char **analysis_param_kinds(const ir_module *m, ir_region entry, arena *scratch);

/* A norm that reads the residual stream: a sum that branches write, or the looked-up tokens themselves. Not one of queries,
   keys or of a branch's own output. */
bool analysis_norms_stream(const ir_module *m, ir_value norm);

#endif
