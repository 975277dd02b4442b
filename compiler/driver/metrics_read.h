/* metrics_read.h - metrics.jsonl of a training run as series, thinned while it is read. docs/training.md has the keys. */
#ifndef TAPERC_DRIVER_METRICS_READ_H
#define TAPERC_DRIVER_METRICS_READ_H

#include "runtime/base/arena.h"
#include "runtime/base/status.h"
#include <stdbool.h>

#define METRIC_POINTS 1200u /* a series keeps at most twice as many */

/* `count` neighbouring values; 0: the value was null there, a gap. */
typedef struct metric_point {
  double first, last; /* steps */
  double low, high, sum;
  uint64_t count;
} metric_point;

/* Nested objects and arrays are flattened: "g.internal", "g.layers[3]", "full.layers.0.scale". */
typedef struct metric_series {
  const char *key;
  metric_point *at;
  size_t n;
  uint64_t stride; /* values of a point */
  double latest;   /* the last value; NaN: null */
} metric_series;

typedef enum metric_event_kind {
  METRIC_TAPER_START,
  METRIC_CHECKPOINT,
  METRIC_RESUME,
  METRIC_END,
  METRIC_OTHER
} metric_event_kind;

typedef struct metric_c {
  const char *norm;
  double c;
} metric_c;

typedef struct metric_event {
  metric_event_kind kind;
  double step;
  metric_c *c; /* of a taper start */
  size_t c_count;
  double s_tgt; /* NaN: none */
} metric_event;

/* Zeroed: empty. Everything lives in `memory`. */
typedef struct metrics_run {
  const char *path, *name; /* as given; its last part */
  metric_series *series;
  size_t series_count;
  metric_event *events; /* the first 4096 */
  size_t event_count;
  uint64_t steps; /* lines with a step and no event */
  double last_step;
  uint64_t bad_lines; /* that are no JSON object with a step */
  uint64_t first_bad; /* line number, from 1 */
  bool cut;           /* the last line is cut off */
  bool backwards;     /* steps do not rise */
  arena memory;
} metrics_run;

/* Reads RUN/metrics.jsonl. A line that cannot be read is counted and left out; a file without a single step, or none, is
   refused. metrics_free is legal after a failure. */
taper_status metrics_read(const char *run, metrics_run *out, taper_error *error);
void metrics_free(metrics_run *run);
const metric_series *metrics_find(const metrics_run *run, const char *key); /* NULL: none */
/* Mean of a point; NaN for a gap. */
double metric_mean(const metric_point *p);

#endif
