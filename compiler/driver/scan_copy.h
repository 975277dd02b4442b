/* scan_copy.h - a copy of a model's folder whose weights also say what was measured. */
#ifndef TAPERC_DRIVER_SCAN_COPY_H
#define TAPERC_DRIVER_SCAN_COPY_H

#include "compiler/driver/corpus.h"
#include "compiler/driver/model.h"
#include "compiler/driver/runner.h"

typedef struct scan_copy_result {
  size_t tensors, files; /* written: tensors of the weights, files beside them */
  bool seen_kept;        /* the weights had counts already, of their training: they stay */
} scan_copy_result;

/* Writes folder `to`, which must hold no model yet: model.tmodel, weights.safetensors (every tensor and the metadata of
   the model's, `<table>.seen` I64 [V], how often the data reads each id, and `taper.scale` F32 [2], median and 99.9 % of
   s(h)), and the other files of a model's folder. The model must be as loaded. */
taper_status scan_copy(const model_loaded *m, const corpus *data, const runner_sample *sample, const char *to,
                       scan_copy_result *out, taper_error *error);

#endif
