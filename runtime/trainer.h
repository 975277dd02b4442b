/* trainer.h - inside of taper_trainer.
 *
 * A trainer is an image, memory for it, and a state that moves by whole steps: nothing of the state changes before all
 * of a step is known to be finite. Sums run over cuts that depend on shapes alone, so a step is the same for every
 * number of threads.
 */
#ifndef TAPER_TRAINER_H
#define TAPER_TRAINER_H

#include "runtime/pool.h"
#include "runtime/recipe.h"
#include "runtime/train_image.h"

enum {
  TRAINER_BLOCK = 128,           /* the largest block; row counts are rounded up to it */
  TRAINER_CUT = 1 << 16,         /* elements of a parameter that are summed or updated as one unit */
  TRAINER_RING = 1 << 16,        /* recent s(h) that are kept */
  TRAINER_CALIBRATIONS = 8,      /* batches before the first step, for gates that start at 0 */
  TRAINER_SAMPLE = 512,          /* rows of the batch that the GEMMs are measured with */
  TRAINER_KINDS = 16,            /* kinds of parameters with gradient norms of their own */
  TRAINER_CHUNK_BYTES = 64 << 20 /* of the values that are as wide as the vocabulary */
};

/* An exponential moving average with its bias: value / bias is the mean. */
typedef struct trainer_ema {
  double value, bias;
} trainer_ema;

typedef struct trainer_norm {
  trainer_ema numerator, denominator, sigma;
  uint64_t count; /* steps that went into them */
} trainer_norm;

/* What a checkpoint holds beside parameters and moments. */
typedef struct trainer_state {
  uint64_t step, tokens;
  uint64_t calibrations; /* batches before the first step */
  trainer_norm *norms;   /* [norm_count] */
  trainer_ema scale;     /* of s(h), for the anchor's target */
  uint64_t *updates;     /* [param_count] AdamW steps that a parameter has had */
  uint64_t *seen;        /* [vocab] ids read as inputs */
  float *ring;           /* [TRAINER_RING] recent s(h) */
  uint64_t ring_count;   /* ever written; the next goes to ring[ring_count % TRAINER_RING] */
} trainer_state;

typedef struct trainer_file {
  char *name;
  void *data;
  size_t size;
} trainer_file;

/* One entry of the list of stages that a call runs. */
typedef struct trainer_entry {
  const taper_train_stage *stage;
  uint32_t chunk_row0, chunk_count;
} trainer_entry;

struct taper_trainer {
  taper_allocator allocator;
  taper_log_fn log;
  void *log_user;
  pool *workers;
  train_image code;
  const taper_train_image *t; /* code.table */
  char name[256], image[64], gemm[64], model[33];
  taper_gemm_choice gemm_asked;
  taper_recipe recipe;
  void *recipe_block;
  trainer_file *files; /* what checkpoints carry along */
  size_t file_count;
  uint64_t memory_bytes;

  float *parameters, *gradients, *moments;  /* blocks behind the pointers below */
  float **param, **grad, **first, **second; /* [param_count]; grad, first, second: NULL where not trained */
  float **shown;                            /* [param_count] param, but for what an evaluation puts in its place */
  uint64_t *elements, *cuts;                /* [param_count] and one more; cuts: the first cut of each */
  float *packed_block, *rotary_block;
  float **packed, **rotary;
  float *arena, *chunk, *partial, *fixed, *scratch;
  taper_train_ctx *ctx; /* [threads] */
  trainer_entry *entries;
  uint32_t most_rows, threads;
  double *result;    /* [result_count] */
  double *sums;      /* [cuts] */
  double *squares;   /* [param_count] of the last step's gradients */
  uint8_t *updated;  /* [param_count] in the step that runs */
  float *gates;      /* [gate_count] of the call that runs */
  float *calibrated; /* [norm_count] c so far, for evaluations at 0 */
  uint32_t clamp;    /* parameter of the factors of looked-up rows, for evaluations; TAPER_ABI_NONE: none */
  double clamp_rows; /* 0: all factors are 1 */
  bool has_squares;
  bool dirty;               /* packed weights are older than the parameters */
  taper_train_adamw *adamw; /* [param_count] of the step that runs */

  const taper_gate_schedule **schedule; /* [gate_count] NULL: as compiled */
  uint32_t earliest;                    /* the gate element that starts first; TAPER_ABI_NONE: none does */
  uint64_t end_of_tapers;               /* all gates are 0 from this step on */
  trainer_state state;
};

/* A call of a program: `windows` windows of `time` ids. */
typedef struct trainer_call {
  taper_train_program_id program;
  const int32_t *tokens, *targets;
  uint32_t windows, time;
  bool accumulate;
  float inv_count;
  const float *gates;
  float *const *param;
} trainer_call;

/* trainer_memory.c: all memory, parameters at their initial values, contexts of the workers. */
taper_status trainer_make_room(taper_trainer *t, const package *p, taper_error *error);
void trainer_free_room(taper_trainer *t);
/* Rows of a block of a call with `rows` rows; chunk rows of a program then. Functions of shapes alone. */
uint32_t trainer_block(uint32_t rows);
uint32_t trainer_chunk_rows(const taper_train_program *g, uint32_t rows);

/* trainer_run.c */
/* Runs a program; results lie in t->result. Packs the parameters first where they changed. */
void trainer_run(taper_trainer *t, const trainer_call *call);
/* Rows of result `i` of the call that ran last. */
const float *trainer_rows(const taper_trainer *t, uint32_t i);
/* The result of that name in a program, `absent` where it has none. */
double trainer_result(const taper_trainer *t, uint32_t program, const char *name, double absent);
/* Ids in range, targets -1 or in range; *out_count: targets that are not -1. */
taper_status trainer_check_ids(const taper_trainer *t, const int32_t *tokens, const int32_t *targets, uint64_t n,
                               uint64_t *out_count, taper_error *error);
/* Sums the squares of the gradients of the parameters in t->updated to t->squares; their total. */
double trainer_sum_squares(taper_trainer *t);
/* Updates the parameters in t->updated as t->adamw says. */
void trainer_update(taper_trainer *t);
/* The first parameter whose value (0), gradient (1), or moments (2) hold a number that is not finite; TAPER_ABI_NONE. */
uint32_t trainer_first_bad(const taper_trainer *t, int what);

/* trainer_clamp.c */
/* Finds the factors of looked-up rows; clamp_rows > 0 and none: TAPER_UNSUPPORTED. */
taper_status trainer_bind_clamp(taper_trainer *t, double clamp_rows, taper_error *error);
/* Sets them for an evaluation: `on` false: to 1. */
void trainer_set_clamp(taper_trainer *t, bool on);

/* trainer_gates.c */
taper_status trainer_bind_gates(taper_trainer *t, taper_error *error);
/* Values of all gates for step k. */
void trainer_gate_values(const taper_trainer *t, uint64_t k, float *out);
taper_train_program_id trainer_program(const taper_trainer *t, uint64_t k);
/* Adds the results of a program that ran at step k (0: a calibration batch) to the averages of the gates that are 1. */
void trainer_note_statistics(taper_trainer *t, uint64_t k, uint32_t program);
/* The gates whose last step at 1 was k taper from now on: c and the anchor's target are set, gammat := gamma. False:
   none does. */
bool trainer_start_tapers(taper_trainer *t, uint64_t k);
/* c of a norm: frozen, or calibrated so far (*out_known false: nothing is). */
double trainer_c(const taper_trainer *t, uint32_t norm, bool *out_known);
/* Whether step k leaves the parameter alone: the program says no gradient, or all norms that read it are at the other
   end of their gates. */
void trainer_mark_updated(taper_trainer *t, uint64_t k, uint32_t program);
/* Fills t->shown with the parameters, the calibrated c and gamma in place of c and gammat of norms that have not begun.
   False: such a norm has no statistics yet. */
bool trainer_show_tapered(taper_trainer *t);
/* Whether the norm's gate has begun to taper (or never will). */
bool trainer_has_begun(const taper_trainer *t, uint32_t norm);

/* trainer_step.c: runs the micro-batches of a step or a calibration; t->result holds the step's means then.
   TAPER_NUMERIC where one of them is not finite. */
taper_status trainer_run_batch(taper_trainer *t, taper_train_program_id program, const int32_t *tokens,
                               const int32_t *targets, uint64_t counted, taper_error *error);
/* The GEMM by `choice`; t->gemm says which. */
taper_status trainer_choose_gemm(taper_trainer *t, taper_gemm_choice choice, taper_error *error);

void trainer_log(const taper_trainer *t, taper_log_level level, const char *format, ...) TAPER_PRINTF(3, 4);

#endif
