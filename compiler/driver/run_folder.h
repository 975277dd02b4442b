/* run_folder.h - RUN/ of a training run: metrics.jsonl, log.txt, checkpoint-<step>/. */
#ifndef TAPERC_DRIVER_RUN_FOLDER_H
#define TAPERC_DRIVER_RUN_FOLDER_H

#include "compiler/driver/checkpoints.h"
#include "runtime/base/text.h"

/* Zeroed: closed. */
typedef struct run_folder {
  const char *path, *metrics_path;
  int metrics, log;       /* file descriptors, appending; the log is locked against a second process */
  bool open, fresh;       /* fresh: begun by this call */
  checkpoint_found found; /* with resume: the checkpoint to go on from; folder NULL: none */
  arena memory;
} run_folder;

/* A new run: makes the folder, and its parents not; an existing one is refused. With `resume` an existing one is taken
   up: the newest complete checkpoint is found, each newer one that is passed over is warned of and moved aside
   ("damaged-checkpoint-<step>"), and lines of metrics.jsonl that lie beyond it are cut off. TAPER_IO: the environment
   (cannot create, another process trains there); TAPER_INVALID: the folder exists. */
taper_status run_folder_open(const char *path, bool resume, diag_sink *sink, run_folder *out, taper_error *error);
void run_folder_close(run_folder *run);

/* Appends one line, whole or not at all. */
taper_status run_folder_metrics(run_folder *run, const text *line, taper_error *error);
/* A line of log.txt, with the time before it. Failing to write it is no failure of the run. */
void run_folder_log(run_folder *run, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* What metrics.jsonl has so far is on the disk: before a checkpoint is written. */
taper_status run_folder_sync(run_folder *run, taper_error *error);
/* Deletes checkpoints of earlier steps but for the newest `keep`, `newest` among them. What cannot be deleted stays. */
void run_folder_prune(run_folder *run, uint64_t newest, uint64_t keep);

#endif
