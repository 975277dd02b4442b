/* model.h - any MODEL of the command line -> module with bound weights. Messages go to the sink; nothing is printed here. */
#ifndef TAPERC_DRIVER_MODEL_H
#define TAPERC_DRIVER_MODEL_H

#include "compiler/ir/ir.h"
#include "runtime/base/safetensors.h"

typedef enum model_kind {
  MODEL_FOLDER,     /* model.tmodel and weights.safetensors */
  MODEL_CHECKPOINT, /* such a folder with a manifest.json: given, or the newest of a run folder */
  MODEL_PACKAGE,    /* .tpack */
  MODEL_SOURCE,     /* a .tmodel, with or without --weights */
  MODEL_TIR         /* IR text */
} model_kind;

/* Where a MODEL's parts lie. Strings live in the arena. */
typedef struct model_place {
  model_kind kind;
  const char *path;    /* as given */
  const char *source;  /* the .tmodel, .tir or .tpack file */
  const char *weights; /* safetensors file, or NULL */
  const char *folder;  /* of kind folder and checkpoint: the one that is used */
} model_place;

typedef struct model_define { const char *name; double value; } model_define;

typedef struct model_options {
  const char *weights;          /* --weights; NULL: what the folder holds */
  const model_define *defines;  /* -D */
  size_t define_count;
  const model_define *gates;    /* --gate */
  size_t gate_count;
  bool need_weights;            /* a bare .tmodel is refused */
  bool ignore_weights;          /* the source alone is looked at */
  bool allow_nonfinite;
} model_options;

/* Zeroed: empty. */
typedef struct model {
  model_place place;
  const char *name;       /* of the model */
  const char *tokenizer;  /* "bytes" or "none" */
  ir_module *module;      /* NULL for a package */
  bool bound;             /* weights were bound */
  bool nonfinite;         /* and hold NaN or infinity, which --allow-nonfinite let pass */
  struct model_private *priv;
} model;

/* Finds out what `path` is. A run folder: the newest complete, undamaged checkpoint; each one passed over is warned of. */
taper_status model_locate(const char *path, arena *a, diag_sink *sink, model_place *out, taper_error *error);

/* Locates and loads. Zero *out first; model_free is legal after a failure. On failure either the sink has errors and error->message is empty, or
   error says what failed. A package gets no module: its code is all there is, and -D, --gate and --weights are refused with it. */
taper_status model_load(const char *path, const model_options *options, diag_sink *sink, model *out, taper_error *error);
void model_free(model *m);

/* The canonical form of the source (--emit=ast). false: the model has no .tmodel source. */
bool model_print_ast(const model *m, text *out);
/* Gate values in force as a JSON object: name -> number, or array for an array of gates. */
void model_print_gates(const ir_module *m, text *out);
/* `<table>.seen` of the weights: how often id was read in training; NULL where the weights do not say. */
const st_tensor *model_seen(const model *m);

#endif
