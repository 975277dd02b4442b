/* scan.h - what the removal of each norm would cost, without training: every live norm of the residual stream with its
   calibrated linear branch in its place, alone and with all norms before it (tapernorm.md 1, 2). docs/scan.md */
#ifndef TAPERC_DRIVER_SCAN_H
#define TAPERC_DRIVER_SCAN_H

#include "compiler/driver/build.h"
#include "compiler/driver/runner.h"

typedef struct scan_norm {
  const char *name;
  double r_p5, r_p50, r_p95; /* of r, or of sigma, over the positions */
  double c;                  /* least squares between the branches, gammat = gamma */
  double kl_one, dloss_one;  /* mean KL(as it is | linear), and the loss that is added, nats a position */
  double kl_upto, dloss_upto;
} scan_norm;

typedef struct scan_result {
  scan_norm *norms; /* [count] in the order of execution */
  size_t count;
  double ce;                     /* as it is, of the positions compared */
  uint64_t calibrated, compared; /* positions */
  uint32_t window;               /* ids of one */
  arena memory;
} scan_result;

typedef struct scan_options {
  const model_place *place; /* no package, no IR text */
  const model_options *model;
  const build_options *build;
  uint32_t threads;
  const corpus *data;
  corpus_part part;
  runner_progress progress; /* may be NULL */
  void *user;
} scan_options;

/* Compiles programs that measure and runs them: about 32,000 positions to calibrate, then two for each norm, fewer the
   more norms there are. A model without a live norm: count 0. Zero *out first; scan_free is legal after a failure. */
taper_status scan_run(const scan_options *options, diag_sink *sink, scan_result *out, taper_error *error);
void scan_free(scan_result *r);

#endif
