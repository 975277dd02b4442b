/* front.h - .tmodel text -> AST -> IR. */
#ifndef TAPERC_FRONT_H
#define TAPERC_FRONT_H

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
  bool train; /* weights become `param`, else symbolic `const` with attribute tensor = their name */
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

#endif
