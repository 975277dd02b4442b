/* runner.h - pieces of data through an open model: the loss of what follows, and how large the residual stream gets. */
#ifndef TAPERC_DRIVER_RUNNER_H
#define TAPERC_DRIVER_RUNNER_H

#include "compiler/driver/corpus.h"
#include "runtime/taper.h"
#include <stdbool.h>

typedef struct runner {
  taper_session *session;
  bool layer_form; /* s(h): a standard deviation, else a root mean square */
  uint32_t vocab, context, width, last_layer, rows;
  float *logits;  /* [rows][vocab] */
  double *scales; /* [rows] s(h) before the head, of the positions of the last piece */
  uint32_t first; /* position of the last piece */
} runner;

/* Pieces have at most `rows` tokens. TAPER_UNSUPPORTED where the package keeps no layer outputs. runner_close is legal
   after a failure. */
taper_status runner_open(taper_model *model, bool layer_form, uint32_t rows, runner *out, taper_error *error);
void runner_close(runner *r);
/* Forgets everything from position `at` on and appends tokens[0..n). *out_ce (may be NULL): sum of the cross-entropy of
   targets[0..n), in nats. Logits that are no finite numbers are no failure: the loss and the scales are infinite. */
taper_status runner_piece(runner *r, uint32_t at, const int32_t *tokens, size_t n, const int32_t *targets,
                          double *out_ce, taper_error *error);
double runner_largest(const runner *r, size_t n); /* of scales[0..n) */

/* log(sum(exp(logits))) in fp64. */
double runner_log_sum_exp(const float *logits, uint32_t vocab);

/* Evenly spread windows of the data, each alone: all of a short text, about 32,000 positions of a long one. */
typedef struct runner_sample {
  double ce;           /* mean, nats a position */
  double median, high; /* s(h): median and 99.9 % */
  uint64_t positions;
} runner_sample;
typedef void (*runner_progress)(void *user, const char *what, uint64_t done, uint64_t all); /* done == all: over */
taper_status runner_take_sample(taper_model *model, bool layer_form, const corpus *data, corpus_part part,
                                runner_progress progress, void *user, runner_sample *out, taper_error *error);

#endif
