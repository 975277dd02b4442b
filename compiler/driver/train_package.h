/* train_package.h - a training job -> plan -> source -> images -> package. docs/package-format.md */
#ifndef TAPERC_DRIVER_TRAIN_PACKAGE_H
#define TAPERC_DRIVER_TRAIN_PACKAGE_H

#include "compiler/driver/private_file.h"
#include "compiler/driver/train.h"
#include "compiler/schedule/train_plan.h"

/* Runs the training pipeline over the job's module: its entries become programs. */
taper_status train_passes(train_job *job, diag_sink *sink, taper_error *error);
/* The same, and plans them. */
taper_status train_lower(train_job *job, diag_sink *sink, train_plan **out, taper_error *error);
/* The source text of the image. It carries a hash: the one that stands in out_hash, or, where that is empty, one of the
   module, which is put there. */
taper_status train_source(const train_job *job, const train_plan *p, text *out, char out_hash[33], diag_sink *sink,
                          taper_error *error);

/* The package at `path`. `decode` NULL: it trains only; else that model's decode images and weights are in it too (for:
   both). */
taper_status train_package(train_job *job, model_loaded *decode, const build_options *options, const char *path,
                           diag_sink *sink, build_result *out, taper_error *error);

/* A package that is gone when the process ends. Zeroed: none. */
typedef struct train_private {
  private_file file;
  build_result built;
  arena memory;
} train_private;
taper_status train_package_private(train_job *job, const build_options *options, diag_sink *sink, train_private *out,
                                   taper_error *error);
void train_private_free(train_private *p);

#endif
