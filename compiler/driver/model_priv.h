/* model_priv.h - what the parts of model.h share. */
#ifndef TAPERC_DRIVER_MODEL_PRIV_H
#define TAPERC_DRIVER_MODEL_PRIV_H

#include "compiler/driver/model.h"
#include "compiler/formats/weights.h"
#include "compiler/front/front.h"

typedef struct extern_file {
  const char *name; /* as the IR text says */
  weight_set set;
  bool present;
  struct extern_file *next;
} extern_file;

struct model_private {
  arena memory;
  weight_set weights;
  bool has_weights;
  extern_file *externs;
  front_model *front;
  diag_sink *sink;
};

/* bind.c: gives every const with attribute `tensor` its data; reports all that does not fit. Sets m->bound. */
taper_status bind_weights(model_loaded *m, const model_options *options, taper_error *error);
/* tokenizer.c: opens the tokenizer that the source names; no file of SentencePiece is no failure. */
taper_status tokenizer_find_file(model_loaded *m, taper_error *error);
/* gates.c: the gates of the weights, then those of the options. Owned by the model. */
const front_gate *gates_collect(model_loaded *m, const model_options *options, size_t *out_count);
/* Sets GATE ops of IR text; false after an unknown name (reported). */
bool gates_apply(model_loaded *m, const model_options *options);
/* Fills m->gates and m->params; a note for each gate that --gate sets, a warning for each that the weights leave open.
 */
void gates_describe(model_loaded *m, const model_options *options);

#endif
