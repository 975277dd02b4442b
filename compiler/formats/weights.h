/* weights.h - a model's weights, from one safetensors file or the shards of an index, by name. */
#ifndef TAPERC_FORMATS_WEIGHTS_H
#define TAPERC_FORMATS_WEIGHTS_H

#include "runtime/base/safetensors.h"

typedef struct weight {
  const st_tensor *tensor; /* name, type, shape, data as stored */
  const char *file;        /* which file holds it */
  bool consumed;
  float *converted; /* weights_f32's copy, if one was needed */
} weight;

/* From the metadata key `taper.gates`: a JSON object, name -> number or array of numbers, each in [0, 1]. */
typedef struct weight_gate {
  const char *name;
  const double *values;
  size_t count; /* 1 for a number too */
} weight_gate;

typedef struct weight_set {
  const char *path; /* as given */
  weight *weights;  /* [count] sorted by name; the writer's `__pad.N` are left out */
  size_t count;
  const weight_gate *gates; /* [gate_count] in the order of the text */
  size_t gate_count;
  bool has_gates; /* the key is there, if only as {} */
  st_file *files;
  size_t file_count;
  struct weight_private *priv;
} weight_set;

/* `path`: a .safetensors file, a *.index.json, or a folder with weights.safetensors, model.safetensors or
   model.safetensors.index.json (the first that is there). All shards of an index must be there (the missing ones are
   listed), be plain names, and hold exactly the tensors it says. A package is refused: its weights are folded. Zero
   *out first; on failure everything is released. */
taper_status weights_open(const char *path, weight_set *out, taper_error *error);
void weights_close(weight_set *set); /* legal on a zeroed one; frees all data handed out */

weight *weights_find(const weight_set *set, const char *name);        /* NULL: none. Does not consume. */
const char *weights_metadata(const weight_set *set, const char *key); /* of the first file that has it; NULL: none */
/* Elements as f32, row-major as stored, owned by the set until weights_close: the mapping itself for aligned F32, else
   a converted copy (BF16 and F16 exactly, F64 rounded once), made once. Marks w consumed. TAPER_UNSUPPORTED for a type
   that is no float, TAPER_INVALID where a finite F64 would become infinite, TAPER_NOMEM; NaN and Inf pass
   (weights_scan). */
taper_status weights_f32(weight_set *set, weight *w, const float **out, taper_error *error);
void weights_consume(weight *w); /* it was read in another way, or is known and not needed */
/* The first unconsumed weight at index *cursor or later; *cursor moves behind it. NULL: no more. Begin with *cursor =
 * 0. */
const weight *weights_unconsumed(const weight_set *set, size_t *cursor);

/* What of a float tensor is not finite; `first` is the index of the first such element. All 0 for other types. */
typedef struct weight_scan {
  uint64_t nan, inf, first;
} weight_scan;
weight_scan weights_scan(const weight *w);

#endif
