/* stress.h - which ids drive a norm-free residual stream out of range, and which clamp of their rows mends it
   (tapernorm.md 9). docs/scan.md says what each number is. */
#ifndef TAPERC_DRIVER_STRESS_H
#define TAPERC_DRIVER_STRESS_H

#include "compiler/driver/build.h"
#include "compiler/driver/runner.h"

typedef struct stress_token {
  int32_t id;
  uint64_t seen;         /* how often training read it; by the data where the weights do not say */
  double row_norm_ratio; /* its row's norm to the median of the rows that were read */
  double scale_ratio;    /* the largest s(h) at the id and behind it, to the median */
  double dloss;          /* nats a token that the next tokens lose by it, mean over the contexts */
} stress_token;

typedef struct stress_try {
  double k; /* 0: as it is */
  double worst_ratio, worst_dloss, ce;
  size_t over; /* ids above the limit */
} stress_try;

typedef struct stress_result {
  bool norm_removed, live_first;   /* live_first: a live norm sees the rows first, so no clamp can be given */
  bool seen_given, scale_given;    /* by the weights; else measured on the data */
  double median, high;             /* s(h): the calibrated values */
  runner_sample calm;              /* of the data with the clamp that mends, else as it is */
  double usual, limit;             /* median of dloss over the ids that were read; what is above the limit is harm */
  uint32_t contexts, prefix, next; /* contexts of `prefix` tokens, the id, then `next` tokens are predicted */
  stress_token *tokens;            /* [count] every id, the most harmful first */
  size_t count;
  stress_try tries[5]; /* as it is, then falling K, up to the one that mends */
  size_t try_count;
  double clamp_rows; /* the largest K that mends; 0: none is needed, or none does (`mended` tells) */
  bool mended;
  arena memory;
} stress_result;

typedef struct stress_options {
  const model_place *place; /* no package */
  const model_options *model;
  const build_options *build;
  const taper_model_options *runtime;
  const corpus *data;
  corpus_part part;
  runner_progress progress; /* may be NULL */
  void *user;
} stress_options;

/* Compiles the model, measures every id of its vocabulary, and, where one does harm, again with clamps. Takes about
   260,000 tokens of prefill and as many compilations as clamps are tried. Zero *out first; stress_free is legal after a
   failure. */
taper_status stress_run(const stress_options *options, diag_sink *sink, stress_result *out, taper_error *error);
void stress_free(stress_result *r);

#endif
