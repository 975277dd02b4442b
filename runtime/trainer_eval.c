/* Looking at a model in training without changing it. */
#include "runtime/abi/abi.h"
#include "runtime/trainer.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

static taper_status check_windows(const taper_trainer *t, const char *call, const int32_t *tokens,
                                  const int32_t *targets, uint32_t windows, uint32_t length, uint64_t *out_counted,
                                  taper_error *error) {
  if (!t || !tokens || !targets)
    return TAPER_FAIL(error, TAPER_INVALID, "%s: an argument is NULL; give the trainer, tokens and targets", call);
  if (windows == 0 || length == 0 || length > t->t->context)
    return TAPER_FAIL(error, TAPER_INVALID, "%s: %u windows of %u ids; at least 1, of at most %u ids", call, windows,
                      length, t->t->context);
  return trainer_check_ids(t, tokens, targets, (uint64_t)windows * length, out_counted, error);
}

static taper_status need_program(const taper_trainer *t, uint32_t program, const char *what, taper_error *error) {
  if (t->t->programs[program].stage_count) return TAPER_OK;
  return TAPER_FAIL(error, TAPER_UNSUPPORTED, "the package has no program to %s; compile the model again", what);
}

static void gates_at(taper_trainer *t, taper_gates_at at, float *out) {
  trainer_gate_values(t, t->state.step + 1, out);
  for (uint32_t i = 0; at == TAPER_GATES_ZERO && i < t->t->gate_count; i++)
    if (recipe_gate_moves(t->schedule[i])) out[i] = 0;
}

/* Are all gates that move at 0? */
static bool no_norms(const taper_trainer *t, const float *gates) {
  for (uint32_t i = 0; i < t->t->gate_count; i++)
    if (recipe_gate_moves(t->schedule[i]) && gates[i] != 0) return false;
  return true;
}

taper_status taper_trainer_evaluate(taper_trainer *t, const int32_t *tokens, const int32_t *targets, uint32_t windows,
                                    uint32_t length, taper_gates_at gates, double *out_sum, uint64_t *out_count,
                                    taper_error *error) {
  uint64_t counted;
  if (!out_sum || !out_count)
    return TAPER_FAIL(error, TAPER_INVALID, "taper_trainer_evaluate: no place for the sum and the count");
  TAPER_TRY(check_windows(t, "taper_trainer_evaluate", tokens, targets, windows, length, &counted, error));
  TAPER_TRY(need_program(t, TAPER_TRAIN_EVAL, "evaluate", error));
  const bool known = trainer_show_tapered(t);
  if (gates == TAPER_GATES_ZERO && !known)
    return TAPER_FAIL(error, TAPER_INVALID,
                      "a norm has no calibration yet, so its gate cannot be taken as 0; train a step first");
  float *values = t->gates + t->t->gate_count;
  gates_at(t, gates, values);
  trainer_set_clamp(t, no_norms(t, values));
  const uint32_t together = t->most_rows / length;
  double sum = 0;
  for (uint32_t w = 0, n; w < windows; w += n) {
    n = windows - w < together ? windows - w : together;
    trainer_run(t, &(trainer_call){.program = TAPER_TRAIN_EVAL,
                                   .tokens = tokens + (uint64_t)w * length,
                                   .targets = targets + (uint64_t)w * length,
                                   .windows = n,
                                   .time = length,
                                   .inv_count = 1,
                                   .gates = values,
                                   .param = gates == TAPER_GATES_ZERO ? t->shown : t->param});
    sum += trainer_result(t, TAPER_TRAIN_EVAL, "ce", NAN);
  }
  *out_sum = sum, *out_count = counted;
  return TAPER_OK;
}

typedef void (*value_fn)(void *user, const char *name, double value);

static bool ends_with(const char *s, const char *end) {
  const size_t n = strlen(s), m = strlen(end);
  return n > m && strcmp(s + n - m, end) == 0;
}

/* "<norm>.error" and "<norm>.power" are told as "<norm>.calibration_error", once c is known. */
static void tell_errors(taper_trainer *t, uint32_t program, value_fn on_value, void *user) {
  for (uint32_t i = 0; i < t->t->norm_count; i++) {
    char name[640];
    bool known;
    (void)trainer_c(t, i, &known);
    snprintf(name, sizeof(name), "%s.error", t->t->norms[i].name);
    const double error = trainer_result(t, program, name, NAN);
    snprintf(name, sizeof(name), "%s.power", t->t->norms[i].name);
    const double power = trainer_result(t, program, name, NAN);
    snprintf(name, sizeof(name), "%s.calibration_error", t->t->norms[i].name);
    if (known && power > 0) on_value(user, name, sqrt(error / power));
  }
}

static void tell_results(taper_trainer *t, uint32_t program, value_fn on_value, void *user) {
  for (uint32_t i = 0; i < t->t->result_count; i++) {
    const taper_train_result *r = &t->t->results[i];
    if (r->program != program || r->rows || ends_with(r->name, ".error") || ends_with(r->name, ".power")) continue;
    on_value(user, r->name, t->result[i]);
  }
  tell_errors(t, program, on_value, user);
}

/* Of the last step's gradients, kinds in the order in which parameters first have them. */
static void tell_gradients(const taper_trainer *t, value_fn on_value, void *user) {
  for (uint32_t i = 0; t->has_squares && i < t->t->param_count; i++) {
    const char *kind = t->t->params[i].kind;
    double sum = 0;
    bool told = !t->grad[i];
    for (uint32_t k = 0; k < i && !told; k++) told = t->grad[k] && strcmp(t->t->params[k].kind, kind) == 0;
    for (uint32_t k = i; k < t->t->param_count && !told; k++)
      if (t->grad[k] && strcmp(t->t->params[k].kind, kind) == 0) sum += t->squares[k];
    char name[64];
    snprintf(name, sizeof(name), "grad_norm.%s", kind);
    if (!told) on_value(user, name, sqrt(sum));
  }
}

taper_status taper_trainer_measure(taper_trainer *t, int compare, const int32_t *tokens, const int32_t *targets,
                                   uint32_t windows, uint32_t length, const float *gates, value_fn on_value,
                                   void (*on_rows)(void *user, const char *name, const float *rows, size_t n),
                                   void *user, taper_error *error) {
  uint64_t counted;
  const taper_train_program_id program = compare ? TAPER_TRAIN_SCAN : TAPER_TRAIN_OBSERVE;
  TAPER_TRY(check_windows(t, "taper_trainer_measure", tokens, targets, windows, length, &counted, error));
  TAPER_TRY(need_program(t, program, compare ? "compare" : "observe", error));
  if (!on_value || counted == 0 || (uint64_t)windows * length > t->most_rows)
    return TAPER_FAIL(error, TAPER_INVALID,
                      "taper_trainer_measure: give a callback, a target that counts and at most %u ids", t->most_rows);
  (void)trainer_show_tapered(t);
  float *values = t->gates + t->t->gate_count;
  gates_at(t, TAPER_GATES_CURRENT, values);
  trainer_run(t, &(trainer_call){.program = program,
                                 .tokens = tokens,
                                 .targets = targets,
                                 .windows = windows,
                                 .time = length,
                                 .inv_count = (float)(1 / (double)counted),
                                 .gates = gates ? gates : values,
                                 .param = t->shown});
  tell_results(t, program, on_value, user);
  for (uint32_t i = 0; on_rows && i < t->t->result_count; i++)
    if (t->t->results[i].program == (uint32_t)program && t->t->results[i].rows)
      on_rows(user, t->t->results[i].name, trainer_rows(t, i), (size_t)windows * length);
  return TAPER_OK;
}

taper_status taper_trainer_observe(taper_trainer *t, const int32_t *tokens, const int32_t *targets, value_fn on_value,
                                   void *user, taper_error *error) {
  if (!t || !on_value)
    return TAPER_FAIL(error, TAPER_INVALID,
                      "taper_trainer_observe: an argument is NULL; give the trainer and a callback");
  TAPER_TRY(taper_trainer_measure(t, 0, tokens, targets, t->recipe.batch, t->recipe.sequence, NULL, on_value, NULL,
                                  user, error));
  tell_gradients(t, on_value, user);
  return TAPER_OK;
}
