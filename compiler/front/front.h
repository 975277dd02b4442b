/* front.h - .tmodel text -> AST -> IR. */
#ifndef TAPERC_FRONT_H
#define TAPERC_FRONT_H

#include "compiler/front/train.h"
#include "compiler/ir/ir.h"

typedef struct front_define { /* -D NAME=VALUE */
  const char *name;
  double value;
} front_define;

typedef struct front_gate { /* a gate's value(s), from the weights' metadata or --gate */
  const char *name;
  const double *values;
  size_t count;     /* 1: for every element */
  const char *file; /* the weights that store it; NULL: --gate gave it */
} front_gate;

typedef struct front_options {
  const front_define *defines;
  size_t define_count;
  const front_gate *gates; /* a later entry of the same name wins; a name the model lacks is an error */
  size_t gate_count;
  bool train;              /* weights become `param`, else symbolic `const` with attribute tensor = their name */
  int64_t steps, sequence; /* in place of the train section's; 0: as it says */
} front_options;

typedef struct front_model front_model;

/* Parses and checks `source`. NULL after errors (all of them in the sink). `file` is interned by the sink. */
front_model *front_parse(const char *source, size_t size, const char *file, const front_options *options,
                         diag_sink *sink);
void front_free(front_model *f);
void front_print_ast(const front_model *f,
                     text *out); /* --emit=ast: the canonical form of the source, which parses again */
/* AST -> module with one entry `forward`: tokens i32[B,T], pos i32[B], len i32[B] -> logits f32[B,T,vocab]. Every
   residual stream at the boundaries of the top-level repeats gets probes "layers.0" .. "layers.L". NULL after errors.
 */
ir_module *front_lower(const front_model *f, const front_options *options, diag_sink *sink);
/* What the train section says: "bytes", "sentencepiece", ...; "none" where it says nothing. */
const char *front_tokenizer(const front_model *f);
/* The whole of it, with its defaults. Lives as long as the model. */
const front_train *front_train_section(const front_model *f);

/* A live norm that becomes a taper norm: the place of its call (ir_loc_of the op), and its gate. */
typedef struct front_taper_norm {
  diag_loc loc;
  const char *gate;
} front_taper_norm;
/* The source text with `defines` as the defaults of its parameters, the calls of norms[0..norm_count) made taper norms,
   their gates declared where the source lacks them, and the steps and the sequence of the options it was parsed with
   where its own do not fit. Everything else, comments too, stays as it was written. */
void front_rewrite(const front_model *f, const front_define *defines, size_t define_count,
                   const front_taper_norm *norms, size_t norm_count, text *out);
/* The name for a gate that front_rewrite declares or finds: `wanted`, or one near it where that is the name of
   something else than a single gate. In `a`, or `wanted` itself. */
const char *front_gate_name(const front_model *f, const char *wanted, arena *a);

#endif
