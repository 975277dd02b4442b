/* gnuplot.h - charts as SVG by gnuplot, a child process with a time limit and no shell. */
#ifndef TAPERC_DRIVER_GNUPLOT_H
#define TAPERC_DRIVER_GNUPLOT_H

#include "runtime/base/arena.h"
#include "runtime/base/status.h"
#include "runtime/base/text.h"

/* A private folder for scripts and data. Zeroed: none. */
typedef struct gnuplot {
  const char *folder;
  unsigned leftover;
  size_t charts;
  text script;
  arena memory;
} gnuplot;

taper_status gnuplot_begin(gnuplot *g, arena *a, taper_error *error);
/* Data of the next plot command, written to a file; its name, to be quoted in the script. NULL: error. */
const char *gnuplot_data(gnuplot *g, const text *rows, taper_error *error);
/* Everything in g->script, run once; the script writes chart-<i>.svg, i < charts. TAPER_DEVICE: gnuplot is absent (the
   message names the package), fails, or takes longer than `seconds`. */
taper_status gnuplot_run(gnuplot *g, unsigned seconds, taper_error *error);
/* The <svg> element of chart i, to stand in a page: colours rgb(1, 2, 3) became currentColor, ids are the chart's own. */
taper_status gnuplot_svg(gnuplot *g, size_t i, text *out, taper_error *error);
void gnuplot_end(gnuplot *g); /* removes the folder */

#endif
