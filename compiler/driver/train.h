/* train.h - what a training run is made of: a model with parameters, a recipe, and the package that a trainer opens.
   Messages go to the sink; nothing is printed here. docs/training.md */
#ifndef TAPERC_DRIVER_TRAIN_H
#define TAPERC_DRIVER_TRAIN_H

#include "compiler/driver/build.h"
#include "compiler/front/train.h"

/* Which norms taper, by the words of --variant; AS_WRITTEN: what the train section says. */
typedef enum train_variant {
  TRAIN_AS_WRITTEN,
#define VARIANT(id, word, internal, final, anchor) TRAIN_##id,
#include "compiler/driver/variants.def"
#undef VARIANT
  TRAIN_VARIANT_COUNT
} train_variant;

/* Options of the command line; they win over the train section. 0, NAN, NULL and given == false: not given. */
typedef struct train_settings {
  train_variant variant;
  const char *init; /* --init: a MODEL, or a safetensors file, whose weights the run starts from */
  uint64_t steps, batch, sequence, accumulate, seed;
  bool has_seed;
  double lr, beta1, beta2, eps, weight_decay, clip, floor;
  double clamp_rows;    /* --clamp-rows: of evaluations at gates 0; 0: off */
  const char *schedule; /* "cosine", "linear", "constant" */
  front_amount warmup;
} train_settings;
void train_settings_init(train_settings *s);

/* Zeroed: empty. Strings live until train_free. */
typedef struct train_job {
  model_loaded model; /* its weights are params, each with its initial data */
  taper_recipe recipe;
  const char *source; /* what model.tmodel of the checkpoints says: compiles alone */
  size_t source_size;
  bool anchor, clamp;
  bool scan; /* set it before the passes to get the programs that measure, not those that train */
  double anchor_weight;
  const char **gates; /* [gate_count] names of those that the recipe closes, as recipe.gates */
  size_t gate_count;
  const char *started_from; /* for people: "random initial values, seed 1", "the weights of DIR/weights.safetensors" */
  size_t new_norms;         /* live norms that became taper norms */
  arena memory;
} train_job;

/* MODEL -> job. A folder or checkpoint with weights, and a .tmodel with --weights, start from them; --init's weights
   win; without any, parameters are drawn by their `init`. With a variant that tapers, live norms that read the residual
   stream become taper norms with gate 1. A package and IR text are refused. */
taper_status train_prepare(const model_place *place, const model_options *model, const train_settings *settings,
                           diag_sink *sink, train_job *out, taper_error *error);
void train_free(train_job *job);

/* ---- train_norms.c: which norms there are ---- */
enum { TRAIN_ROLE_INTERNAL = 1, TRAIN_ROLE_FINAL = 2 };
typedef struct norm_use {
  ir_value op;
  unsigned role;    /* one of TRAIN_ROLE_* */
  const char *gate; /* NULL: live, no taper norm */
} norm_use;
/* The norms that read the residual stream, and every taper norm, of entry `forward`. Owned by `a`. */
size_t norm_uses(const ir_module *m, arena *a, norm_use **out);

/* ---- train_recipe.c ---- */
/* Which roles a variant tapers. */
unsigned train_variant_roles(train_variant v);
/* Fills job->recipe, anchor, gates from the train section of job->model and the settings. */
taper_status train_make_recipe(train_job *job, const train_settings *settings, diag_sink *sink, taper_error *error);
/* A number of steps: a share is rounded down. */
uint64_t train_amount(front_amount a, uint64_t all);

#endif
