/* model.h - any MODEL of the command line -> module with bound weights. Messages go to the sink; nothing is printed
 * here. */
#ifndef TAPERC_DRIVER_MODEL_H
#define TAPERC_DRIVER_MODEL_H

#include "compiler/ir/ir.h"
#include "runtime/base/safetensors.h"
#include "runtime/text/tokenizer.h"

typedef enum model_kind {
  MODEL_FOLDER,     /* model.tmodel and weights */
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
  const char *weights; /* what weights_open takes, or NULL */
  const char *folder;  /* of kind folder and checkpoint: the one that is used */
} model_place;

/* Finds out what `path` is. A run folder: the newest complete, undamaged checkpoint; each one passed over is warned of.
 */
taper_status model_locate(const char *path, arena *a, diag_sink *sink, model_place *out, taper_error *error);

typedef struct model_define {
  const char *name;
  double value;
} model_define;

typedef struct model_options {
  const char *weights;         /* --weights; NULL: what the folder holds */
  const model_define *defines; /* -D */
  size_t define_count;
  const model_define *gates; /* --gate */
  size_t gate_count;
  bool need_weights;    /* the command computes: missing weights, NaN and infinity in them are errors */
  bool ignore_weights;  /* the source alone is looked at */
  bool allow_nonfinite; /* with need_weights: NaN and infinity pass */
  bool train;           /* weights become params; those that the weights leave out keep their initial values */
  const char *text;     /* in place of what the source file says (messages still name the file); NULL: none */
  size_t text_size;
} model_options;

/* Zeroed: empty. Strings and the module live until model_free. */
typedef struct model_loaded {
  model_place place;
  const char *name;      /* of the model */
  const char *tokenizer; /* as the source says: "bytes", "sentencepiece" or "none" */
  tokenizer tokens;      /* opened; of kind none also where SentencePiece's file is not there */
  mapped_file tokenizer_file;
  ir_module *module;
  bool bound;                 /* every weight has its data */
  const char *unbound;        /* else: the first that has none, cause and remedy */
  const char *gates, *params; /* JSON objects: gate name -> number or array; parameter -> number */
  size_t disabled_norms;      /* norms whose eps makes them a constant gain */
  const st_tensor *seen; /* `<table>.seen`: how often an id was read in training; NULL where the weights do not say */
  double scale_median,
      scale_high;                /* `taper.scale`: s(h) before the head, median and 99.9 %; 0: the weights do not say */
  bool norm_removed, layer_form; /* is a taper norm at g = 0? Is s(h) a standard deviation, not a root mean square? */
  struct model_private *priv;
} model_loaded;

/* Which rows of the token table were read in training: count above 0 in `seen`. Owned by the model; NULL where the weights
   do not say. *out_n: rows. */
const unsigned char *model_used_rows(const model_loaded *m, size_t *out_n);

/* Loads everything but a package. Zero *out first; model_free is legal after a failure. On failure either the sink has
   errors and error->message is empty, or error says what failed. */
taper_status model_load(const model_place *place, const model_options *options, diag_sink *sink, model_loaded *out,
                        taper_error *error);
void model_free(model_loaded *m);
/* What the source says, for who looks at it again; NULL: IR text. Lives as long as the model. */
const struct front_model *model_front(const model_loaded *m);
/* Gives a model whose source says `sentencepiece` the tokenizer of a .model file. Its ids must be as many as the model's
   vocab. model_load does so with the file that the source names, relative to its folder, or TOKENIZER_FILE beside the
   source (in a checkpoint: first). */
taper_status model_set_tokenizer(model_loaded *m, const char *path, taper_error *error);
/* The canonical form of the source (--emit=ast). false: the model has no .tmodel source. */
bool model_print_ast(const model_loaded *m, text *out);

/* Of norms whose eps makes them a constant gain: the relative error of that reading, max var / (2 eps) over all of them
   and all positions of tokens[0..n). The module must be as loaded (no pass has run). */
taper_status model_disabled_error(const model_loaded *m, const int32_t *tokens, size_t n, double *out,
                                  taper_error *error);
#define MODEL_DISABLED_EPS 1e10

#endif
