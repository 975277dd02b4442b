/* report_priv.h - what the two kinds of pages share. */
#ifndef TAPERC_DRIVER_REPORT_PRIV_H
#define TAPERC_DRIVER_REPORT_PRIV_H

#include "compiler/driver/gnuplot.h"
#include "compiler/driver/report.h"

/* Text of a page: &, <, > and quotes escaped, control characters and what is no UTF-8 replaced. */
void report_put(text *out, const char *s);
void report_number(text *out, double v); /* five digits; a dash for no number */
void report_begin(text *out, const char *title);
void report_end(text *out);

#define REPORT_COLOURS 8
extern const char *const report_colours[REPORT_COLOURS]; /* "#rrggbb", readable on white and on black */

/* Settings of the next chart, to g->script: axes named, no key, its file. */
void report_chart_begin(gnuplot *g, const char *x_axis, const char *y_axis, bool log_y);

#endif
