/* train.h - what the train section of a .tmodel says, checked. */
#ifndef TAPERC_FRONT_TRAIN_H
#define TAPERC_FRONT_TRAIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct front_amount { /* a number of steps, or a share of all steps */
  bool given, percent;
  double value; /* steps, or 0..1 */
} front_amount;

typedef enum front_taper_kind { TAPER_NEVER, TAPER_RAMP, TAPER_STEP } front_taper_kind;

typedef struct front_taper {
  const char *gate;
  front_taper_kind kind;
  front_amount start, end;  /* ramp */
  front_amount step, every; /* step: element i of the gate closes at step + i * every */
  double ema;               /* momentum of the calibration */
  bool inv_sigma;           /* calibration: c = 1 / mean(sigma) instead of least squares */
} front_taper;

typedef enum front_schedule { SCHEDULE_COSINE, SCHEDULE_LINEAR, SCHEDULE_CONSTANT } front_schedule;

typedef struct front_train {
  bool given;
  const char *tokenizer;                            /* "bytes", "sentencepiece", "none" */
  int64_t tokenizer_vocab;                          /* 0: not said */
  const char *tokenizer_file;                       /* a .model, relative to the source's folder; NULL: not said */
  double lr, beta1, beta2, eps, weight_decay, clip; /* adamw; clip 0: off */
  front_schedule schedule;
  front_amount warmup;
  double floor; /* share of lr at the end */
  front_taper *tapers;
  size_t taper_count;
  bool anchor;
  double anchor_weight;
  int64_t steps, batch, sequence, seed; /* 0: not said (seed: 0 too) */
  int64_t new_steps, new_sequence;      /* the options' values, where the section's own do not fit; else 0 */
  int64_t accumulate;                   /* micro-batches of one optimizer step; 1: not said */
} front_train;

#endif
