/* train.h - one training run of the command line; shared by train*.c. docs/training.md */
#ifndef TAPERC_CLI_TRAIN_H
#define TAPERC_CLI_TRAIN_H

#include "compiler/cli/cli.h"
#include "compiler/driver/corpus.h"
#include "compiler/driver/run_folder.h"
#include "compiler/driver/train.h"
#include "compiler/driver/train_package.h"

typedef struct train_own {
  train_settings settings;
  const char **data;
  size_t data_count;
  const char *val;
  double val_fraction; /* NAN: not given */
  uint64_t eval_every, eval_windows, checkpoint_every, keep;
  bool has_eval_windows, has_keep, resume, metrics_full, no_stress;
  size_t gemm;
} train_own;

/* Of the validation windows: nats a token; NAN: none was measured. */
typedef struct train_losses {
  double ce, ce_g0;
} train_losses;

typedef struct train_run {
  cli *c;
  train_own *o;
  train_job job;
  train_private package;
  corpus *data;
  run_folder run;
  taper_trainer *trainer;
  taper_trainer_info info; /* refreshed after every step */
  taper_recipe recipe;
  int32_t *tokens, *targets; /* [accumulate][batch][sequence] */
  uint64_t val_windows, last_saved;
  bool has_saved, reported_start; /* reported_start: of gates that taper from step 0 */
  train_losses val;               /* the last ones */
  double speed_sum;               /* seconds of the steps of this process */
  uint64_t speed_tokens;
  taper_step last;
  float *gates; /* of `last` */
  bool stress_known;
  double clamp_rows, worst_ratio; /* what the stress test found; clamp_rows 0: none */
} train_run;

/* ---- train_loop.c ---- */
/* Steps until the recipe's last, a signal or a failure; the exit code. */
int train_loop(train_run *t);
/* After a signal: its name; NULL: none came. */
const char *train_interrupted(void);
void train_watch_signals(void);

/* ---- train_stress.c ---- */
/* `scan --stress` of the last checkpoint, where the run removed a norm; says what it found. */
void train_stress(train_run *t);

/* ---- train_metrics.c: lines of metrics.jsonl ---- */
typedef struct train_line {
  const taper_step *step;
  double tokens_per_s;
  const train_losses *val; /* NULL: not measured at this step */
  const char *full;        /* JSON members of "full", or NULL */
} train_line;
taper_status train_put_step(train_run *t, const train_line *line, taper_error *error);
taper_status train_put_event(train_run *t, uint64_t step, const char *event, taper_error *error);
/* The event taper_start of `step`: c of the norms whose gates begin to taper after it, and s_tgt. */
taper_status train_put_taper_start(train_run *t, uint64_t step, taper_error *error);
/* What observe says, as JSON members. */
taper_status train_observe(train_run *t, text *out, taper_error *error);

#endif
