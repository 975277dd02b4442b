/* checkpoints.h - the checkpoint-<step> folders of a run folder. */
#ifndef TAPERC_DRIVER_CHECKPOINTS_H
#define TAPERC_DRIVER_CHECKPOINTS_H

#include "compiler/diag/diag.h"
#include "runtime/base/arena.h"
#include "runtime/base/status.h"

/* "checkpoint-<step>", no zero padding; false: another name. */
bool checkpoint_name_step(const char *name, uint64_t *out);
/* RUN/checkpoint-<step>, in `a`. */
const char *checkpoint_folder(const char *run, uint64_t step, arena *a);

typedef struct checkpoint_steps {
  uint64_t *steps; /* newest first */
  size_t count;
} checkpoint_steps;
/* By their names alone. TAPER_IO where the folder cannot be read. */
taper_status checkpoints_list(const char *run, arena *a, checkpoint_steps *out, taper_error *error);
/* Complete: manifest.json and every file that it names are there, with the hashes that it says. */
taper_status checkpoint_check(const char *folder, arena *a, taper_error *error);

typedef struct checkpoint_found {
  size_t count;       /* checkpoints of any state */
  const char *folder; /* the newest complete one; NULL: none is */
  uint64_t step;
} checkpoint_found;
/* Each newer one that is passed over is warned of. */
taper_status checkpoints_newest(const char *run, arena *a, diag_sink *sink, checkpoint_found *out, taper_error *error);

#endif
