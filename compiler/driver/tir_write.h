/* tir_write.h - a module as Y.tir, with what is new of its constants in Y.tir.safetensors beside it. */
#ifndef TAPERC_DRIVER_TIR_WRITE_H
#define TAPERC_DRIVER_TIR_WRITE_H

#include "compiler/driver/model.h"

/* Constants that lie in a weights file stay there: their ops get `file` (relative to `path`), `tensor` and `hash`. The
 * others go to the new file. */
taper_status tir_write(model_loaded *m, const char *path, taper_error *error);

#endif
