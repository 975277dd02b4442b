/* report.h - one self-contained HTML page: curves of training runs, or what a model is made of. */
#ifndef TAPERC_DRIVER_REPORT_H
#define TAPERC_DRIVER_REPORT_H

#include "compiler/driver/metrics_read.h"
#include "compiler/driver/model.h"
#include "runtime/base/text.h"

/* Curves of runs, overlaid, with a table of what they ended with. TAPER_DEVICE: gnuplot (see gnuplot.h). */
taper_status report_runs(const metrics_run *runs, size_t count, text *out, taper_error *error);
/* Gates, norms and their gains, rows of the token table, tensors of a model as loaded, with its weights. */
taper_status report_model(const model_loaded *m, text *out, taper_error *error);

#endif
