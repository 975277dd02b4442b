/* One optimizer step, and a calibration batch: all or nothing. */
#include "runtime/abi/abi.h"
#include "runtime/model.h"
#include "runtime/trainer.h"
#include <math.h>
#include <string.h>

static const char *const program_names[TAPER_TRAIN_PROGRAMS] = {
    [TAPER_TRAIN_PACK] = "pack", [TAPER_TRAIN_WARM] = "warm", [TAPER_TRAIN_TAPER] = "taper",
    [TAPER_TRAIN_ZERO] = "zero", [TAPER_TRAIN_EVAL] = "eval", [TAPER_TRAIN_OBSERVE] = "observe",
    [TAPER_TRAIN_SCAN] = "scan"};

/* The tensor that explains a loss or gradient that is no number: a parameter, else the first gradient. */
static taper_status not_finite(const taper_trainer *t, const char *what, taper_error *error) {
  const unsigned long long step = t->state.step + 1;
  const char *kind = "parameter";
  uint32_t bad = trainer_first_bad(t, 0);
  if (bad == TAPER_ABI_NONE) kind = "gradient of", bad = trainer_first_bad(t, 1);
  if (bad == TAPER_ABI_NONE)
    return TAPER_FAIL(error, TAPER_NUMERIC,
                      "step %llu: %s is not a finite number; lower the learning rate, or go on from a checkpoint", step,
                      what);
  return TAPER_FAIL(
      error, TAPER_NUMERIC,
      "step %llu: %s is not a finite number; the first tensor that holds one is the %s '%.200s'; lower the "
      "learning rate, or go on from a checkpoint",
      step, what, kind, t->t->params[bad].tensor);
}

taper_status trainer_run_batch(taper_trainer *t, taper_train_program_id program, const int32_t *tokens,
                               const int32_t *targets, uint64_t counted, taper_error *error) {
  const uint64_t rows = (uint64_t)t->recipe.batch * t->recipe.sequence;
  for (uint32_t k = 0; k < t->recipe.accumulate; k++) {
    trainer_call call = {.program = program,
                         .tokens = tokens + k * rows,
                         .targets = targets + k * rows,
                         .windows = t->recipe.batch,
                         .time = t->recipe.sequence,
                         .accumulate = k > 0,
                         .inv_count = (float)(1 / (double)counted),
                         .gates = t->gates,
                         .param = t->param};
    trainer_run(t, &call);
  }
  for (uint32_t i = 0; i < t->t->result_count; i++) {
    const taper_train_result *r = &t->t->results[i];
    if (r->program != (uint32_t)program || r->rows || isfinite(t->result[i])) continue;
    char what[600];
    text_format(what, sizeof(what), "'%s'", strcmp(r->name, "ce") == 0 ? "the loss" : r->name);
    return not_finite(t, strcmp(r->name, "ce") == 0 ? "the loss" : what, error);
  }
  return TAPER_OK;
}

static taper_status check_call(const taper_trainer *t, const char *call, const int32_t *tokens, const int32_t *targets,
                               uint64_t *out_counted, taper_error *error) {
  if (!t || !tokens || !targets)
    return TAPER_FAIL(error, TAPER_INVALID, "%s: an argument is NULL; give the trainer, tokens and targets", call);
  const uint64_t n = (uint64_t)t->recipe.batch * t->recipe.sequence * t->recipe.accumulate;
  TAPER_TRY(trainer_check_ids(t, tokens, targets, n, out_counted, error));
  if (*out_counted > 0) return TAPER_OK;
  return TAPER_FAIL(error, TAPER_INVALID, "%s: every target is padding; give at least one that counts", call);
}

/* ---- after the gradients ---- */

/* Ids of each window up to its last counted position. */
static void count_seen(taper_trainer *t, const int32_t *tokens, const int32_t *targets) {
  const uint64_t windows = (uint64_t)t->recipe.batch * t->recipe.accumulate;
  for (uint64_t w = 0; w < windows; w++, tokens += t->recipe.sequence, targets += t->recipe.sequence) {
    uint32_t n = t->recipe.sequence;
    while (n > 0 && targets[n - 1] < 0) n--;
    for (uint32_t i = 0; i < n; i++) t->state.seen[tokens[i]]++;
  }
}

/* s(h) of the counted positions of the last micro-batch. */
static void note_scales(taper_trainer *t, uint32_t program, const int32_t *targets) {
  const uint32_t i = train_image_result(t->t, program, "scale_rows");
  if (i == TAPER_ABI_NONE || !t->t->results[i].rows) return;
  const uint64_t rows = (uint64_t)t->recipe.batch * t->recipe.sequence;
  const float *scale = trainer_rows(t, i);
  targets += rows * (t->recipe.accumulate - 1);
  for (uint64_t r = 0; r < rows; r++)
    if (targets[r] >= 0) t->state.ring[t->state.ring_count++ % TRAINER_RING] = scale[r];
}

/* PyTorch's clip_grad_norm_: the norm is never scaled up. */
static double clip_scale(const taper_recipe *r, double norm) {
  const double scale = r->clip > 0 ? r->clip / (norm + 1e-6) : 1;
  return scale < 1 ? scale : 1;
}

static void prepare_updates(taper_trainer *t, double lr, double norm) {
  const taper_recipe *r = &t->recipe;
  for (uint32_t i = 0; i < t->t->param_count; i++) {
    if (!t->updated[i]) continue;
    const double n = (double)++t->state.updates[i];
    t->adamw[i] = (taper_train_adamw){.lr = (float)lr,
                                      .beta1 = (float)r->beta1,
                                      .beta2 = (float)r->beta2,
                                      .eps = (float)r->eps,
                                      .decay = t->t->params[i].matrix ? (float)r->weight_decay : 0,
                                      .clip_scale = (float)clip_scale(r, norm),
                                      .correction1 = (float)(1 - pow(r->beta1, n)),
                                      .correction2 = (float)(1 - pow(r->beta2, n))};
  }
}

static void report(const taper_trainer *t, uint32_t program, double lr, double norm, bool started, taper_step *out) {
  const double ce = trainer_result(t, program, "ce", NAN), aux = trainer_result(t, program, "aux", 0);
  *out = (taper_step){.size = sizeof(*out),
                      .step = t->state.step,
                      .loss = ce + aux,
                      .ce = ce,
                      .aux = aux,
                      .lr = lr,
                      .grad_norm = norm,
                      .logit_norm = trainer_result(t, program, "logit_norm", NAN),
                      .residual_scale = trainer_result(t, program, "scale", NAN),
                      .program = program_names[program],
                      .gates = t->gates,
                      .taper_start = started};
}

static taper_status check_step(const taper_trainer *t, const taper_step *out, taper_train_program_id program,
                               taper_error *error) {
  if (out) TAPER_TRY(model_check_size(out->size, sizeof(*out), "taper_step", error));
  if (t->state.step >= t->recipe.steps)
    return TAPER_FAIL(error, TAPER_INVALID, "all %llu steps of the recipe are done; give a recipe with more",
                      (unsigned long long)t->recipe.steps);
  if (taper_trainer_wants_calibration(t))
    return TAPER_FAIL(
        error, TAPER_INVALID,
        "a gate tapers from the start and has no calibration: call taper_trainer_calibrate %d times first",
        TAPER_CALIBRATION_BATCHES);
  if (t->t->programs[program].stage_count == 0)
    return TAPER_FAIL(error, TAPER_INVALID, "step %llu: the package has no %s program; compile the model again",
                      (unsigned long long)t->state.step + 1, program_names[program]);
  return TAPER_OK;
}

taper_status taper_trainer_step(taper_trainer *t, const int32_t *tokens, const int32_t *targets, taper_step *out,
                                taper_error *error) {
  uint64_t counted;
  TAPER_TRY(check_call(t, "taper_trainer_step", tokens, targets, &counted, error));
  const uint64_t k = t->state.step + 1;
  const taper_train_program_id program = trainer_program(t, k);
  TAPER_TRY(check_step(t, out, program, error));
  trainer_gate_values(t, k, t->gates);
  trainer_mark_updated(t, k, program);
  TAPER_TRY(trainer_run_batch(t, program, tokens, targets, counted, error));
  t->has_squares = true;
  const double norm = sqrt(trainer_sum_squares(t)), lr = recipe_lr(&t->recipe, k);
  if (!isfinite(norm)) return t->has_squares = false, not_finite(t, "the gradient", error);
  prepare_updates(t, lr, norm);
  trainer_update(t);
  trainer_note_statistics(t, k, program);
  count_seen(t, tokens, targets);
  note_scales(t, program, targets);
  t->state.step = k;
  t->state.tokens += counted;
  const bool started = trainer_start_tapers(t, k);
  if (out) report(t, program, lr, norm, started, out);
  return TAPER_OK;
}

/* ---- gates that start at step 0 ---- */

int taper_trainer_wants_calibration(const taper_trainer *t) {
  if (!t || t->state.step > 0 || t->state.calibrations >= TAPER_CALIBRATION_BATCHES || t->earliest == TAPER_ABI_NONE)
    return 0;
  return recipe_gate_start(t->schedule[t->earliest], t->t->gates[t->earliest].index) == 0;
}

taper_status taper_trainer_calibrate(taper_trainer *t, const int32_t *tokens, const int32_t *targets,
                                     taper_error *error) {
  uint64_t counted;
  TAPER_TRY(check_call(t, "taper_trainer_calibrate", tokens, targets, &counted, error));
  if (!taper_trainer_wants_calibration(t))
    return TAPER_FAIL(error, TAPER_INVALID,
                      "no gate starts to taper at step 0, or all is calibrated; go on with taper_trainer_step");
  const taper_train_program_id program =
      t->t->programs[TAPER_TRAIN_WARM].stage_count ? TAPER_TRAIN_WARM : TAPER_TRAIN_TAPER;
  trainer_gate_values(t, 0, t->gates);
  memset(t->updated, 0, t->t->param_count);
  TAPER_TRY(trainer_run_batch(t, program, tokens, targets, counted, error));
  trainer_note_statistics(t, 0, program);
  if (++t->state.calibrations == TAPER_CALIBRATION_BATCHES) (void)trainer_start_tapers(t, 0);
  return TAPER_OK;
}
