/* The loop of a training run: batches, steps, metrics, validation, checkpoints. */
#include "compiler/cli/train.h"
#include "runtime/base/leftover.h"
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { CALIBRATION_BATCHES = 8 };

/* ---- signals: the step at hand is finished and a checkpoint written; a second one ends the process at once ---- */

static volatile sig_atomic_t caught;

/* The next one of either kind ends the process. */
static void on_signal(int number) {
  caught = number;
  leftover_at_signals();
}

void train_watch_signals(void) {
  struct sigaction act = {.sa_handler = on_signal};
  sigemptyset(&act.sa_mask);
  sigaction(SIGINT, &act, NULL);
  sigaction(SIGTERM, &act, NULL);
}

const char *train_interrupted(void) { return caught == SIGINT ? "SIGINT" : caught ? "SIGTERM" : NULL; }

/* ---- what is seen ---- */

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Values of the gates that the recipe moves, the first of each array. */
static void put_moving(const train_run *t, const taper_step *s, char *out, size_t cap) {
  size_t used = 0;
  *out = 0;
  for (uint32_t i = 0; i < t->info.gates && used < cap; i++) {
    const char *name;
    uint32_t index, count;
    taper_trainer_gate(t->trainer, i, &name, &index, &count, NULL);
    for (size_t g = 0; g < t->recipe.gate_count && index == 0; g++)
      if (strcmp(t->recipe.gates[g].gate, name) == 0 && used < cap)
        used += (size_t)text_format(out + used, cap - used, "  %s %.3f", name, (double)s->gates[i]);
  }
}

static void show(const train_run *t, const taper_step *s, bool last) {
  static double shown;
  enum { WIDTH = 24 };
  if (!isatty(STDERR_FILENO)) return;
  double at = now(), speed = t->speed_sum > 0 ? (double)t->speed_tokens / t->speed_sum : 0;
  if (!last && at - shown < 0.1) return;
  shown = at;
  if (last) {
    fputs("\r\033[K", stderr);
    return;
  }
  char bar[WIDTH + 1], gates[120];
  int full = (int)(WIDTH * s->step / t->recipe.steps);
  for (int i = 0; i < WIDTH; i++) bar[i] = i < full ? '#' : '.';
  bar[WIDTH] = 0;
  put_moving(t, s, gates, sizeof gates);
  double a_step = (double)t->recipe.batch * t->recipe.sequence * t->recipe.accumulate;
  uint64_t left = speed > 0 ? (uint64_t)((double)(t->recipe.steps - s->step) * a_step / speed) : 0;
  char line[400], val[40] = "";
  if (!isnan(t->val.ce)) text_format(val, sizeof val, "  val %.4f", t->val.ce);
  text_format(line, sizeof line, "\r\033[K[%s] %llu/%llu  loss %.4f%s%s  %.0f tok/s  %llu:%02llu left", bar,
              (unsigned long long)s->step, (unsigned long long)t->recipe.steps, s->ce, val, gates, speed,
              (unsigned long long)(left / 60), (unsigned long long)(left % 60));
  fputs(line, stderr);
  fflush(stderr);
}

/* ---- data ---- */

static void fill(train_run *t, uint64_t step, uint32_t first_micro) {
  const taper_recipe *r = &t->recipe;
  size_t micro = (size_t)r->batch * r->sequence;
  for (uint32_t i = 0; i < r->accumulate; i++)
    corpus_batch(t->data, r->seed, step, first_micro + i, r->batch, r->sequence, t->tokens + i * micro,
                 t->targets + i * micro);
}

/* Gates that taper from step 0 are calibrated on batches of their own: step 0 of the data. */
static taper_status calibrate(train_run *t, taper_error *error) {
  for (uint32_t i = 0; i < CALIBRATION_BATCHES && taper_trainer_wants_calibration(t->trainer); i++) {
    fill(t, 0, i * t->recipe.accumulate);
    TAPER_TRY(taper_trainer_calibrate(t->trainer, t->tokens, t->targets, error));
  }
  return TAPER_OK;
}

/* ---- validation ---- */

static taper_status measure(train_run *t, taper_gates_at gates, double *out, taper_error *error) {
  const taper_recipe *r = &t->recipe;
  double sum = 0;
  uint64_t count = 0;
  for (uint64_t at = 0; at < t->val_windows; at += r->batch) {
    uint32_t n = t->val_windows - at < r->batch ? (uint32_t)(t->val_windows - at) : r->batch;
    for (uint32_t i = 0; i < n; i++)
      corpus_val_window(t->data, r->sequence, at + i, t->val_windows, t->tokens + (size_t)i * r->sequence,
                        t->targets + (size_t)i * r->sequence);
    double part;
    uint64_t counted;
    TAPER_TRY(taper_trainer_evaluate(t->trainer, t->tokens, t->targets, n, r->sequence, gates, &part, &counted, error));
    sum += part, count += counted;
  }
  *out = count ? sum / (double)count : (double)NAN;
  return TAPER_OK;
}

/* Do the current gates and all of them at 0 give the same model? */
static bool gates_are_zero(const train_run *t) {
  for (uint32_t i = 0; i < t->info.gates; i++) {
    const char *name;
    uint32_t index, count;
    double value;
    taper_trainer_gate(t->trainer, i, &name, &index, &count, &value);
    for (size_t g = 0; g < t->recipe.gate_count; g++)
      if (strcmp(t->recipe.gates[g].gate, name) == 0 && value != 0) return false;
  }
  return true;
}

static taper_status validate(train_run *t, taper_error *error) {
  TAPER_TRY(measure(t, TAPER_GATES_CURRENT, &t->val.ce, error));
  t->val.ce_g0 = t->val.ce;
  return gates_are_zero(t) ? TAPER_OK : measure(t, TAPER_GATES_ZERO, &t->val.ce_g0, error);
}

/* ---- checkpoints ---- */

static taper_status save(train_run *t, taper_error *error) {
  uint64_t step = t->info.step;
  if (t->has_saved && t->last_saved == step) return TAPER_OK;
  const char *extra = arena_printf(&t->c->memory, "\"data\": {\"key\": \"%s\", \"position\": %llu}",
                                   corpus_key(t->data), (unsigned long long)step);
  TAPER_TRY(run_folder_sync(&t->run, error));
  TAPER_TRY(taper_trainer_save(t->trainer, t->run.path, extra, error));
  t->has_saved = true, t->last_saved = step;
  TAPER_TRY(train_put_event(t, step, "checkpoint", error));
  run_folder_log(&t->run, "checkpoint-%llu", (unsigned long long)step);
  if (t->o->has_keep) run_folder_prune(&t->run, step, t->o->keep);
  return TAPER_OK;
}

/* ---- steps ---- */

static void log_step(train_run *t, const taper_step *s, const train_losses *val) {
  char line[300];
  size_t n = (size_t)text_format(line, sizeof line, "step %llu (%s): ce %.5f, aux %.3g, lr %.4g",
                                 (unsigned long long)s->step, s->program, s->ce, s->aux, s->lr);
  if (val && n < sizeof line)
    text_format(line + n, sizeof line - n, ", validation %.5f, at gates 0 %.5f", val->ce, val->ce_g0);
  run_folder_log(&t->run, "%s", line);
}

static taper_status one_step(train_run *t, taper_error *error) {
  taper_step s = {.size = sizeof s};
  text full = {0};
  uint64_t k = t->info.step + 1, before = t->info.tokens;
  double began = now();
  fill(t, k, 0);
  TAPER_TRY(taper_trainer_step(t->trainer, t->tokens, t->targets, &s, error));
  double seconds = now() - began;
  if (t->info.gates) memcpy(t->gates, s.gates, t->info.gates * sizeof *t->gates); /* `s` lasts until the next call */
  s.gates = t->gates;
  taper_trainer_get_info(t->trainer, &t->info);
  uint64_t tokens = t->info.tokens - before;
  t->speed_sum += seconds, t->speed_tokens += tokens;
  taper_status status = TAPER_OK;
  if (t->o->metrics_full) status = train_observe(t, &full, error);
  bool end = k == t->recipe.steps, eval = t->val_windows && (end || (t->o->eval_every && k % t->o->eval_every == 0));
  if (status == TAPER_OK && eval) status = validate(t, error);
  const train_line line = {&s, seconds > 0 ? (double)tokens / seconds : (double)NAN, eval ? &t->val : NULL, full.data};
  if (status == TAPER_OK) status = train_put_step(t, &line, error);
  if (status == TAPER_OK && s.taper_start) status = train_put_taper_start(t, k, error);
  if (status == TAPER_OK && (eval || s.taper_start || k == 1)) log_step(t, &s, eval ? &t->val : NULL);
  show(t, &s, false);
  t->last = s;
  text_free(&full);
  return status;
}

static bool wants_checkpoint(const train_run *t) {
  uint64_t every = t->o->checkpoint_every, step = t->info.step;
  return step == t->recipe.steps || train_interrupted() || (every && step % every == 0);
}

static taper_status run_steps(train_run *t, taper_error *error) {
  if (taper_trainer_wants_calibration(t->trainer)) {
    TAPER_TRY(calibrate(t, error));
    TAPER_TRY(train_put_taper_start(t, 0, error));
  }
  while (t->info.step < t->recipe.steps && !train_interrupted()) {
    TAPER_TRY(one_step(t, error));
    if (wants_checkpoint(t)) TAPER_TRY(save(t, error));
  }
  if (t->info.step < t->recipe.steps) return save(t, error);             /* a signal came before the first step */
  if (t->val_windows && isnan(t->val.ce)) TAPER_TRY(validate(t, error)); /* it had been complete before */
  return train_put_event(t, t->info.step, "end", error);
}

static int stopped(train_run *t) {
  run_folder_log(&t->run, "stopped by %s after step %llu", train_interrupted(), (unsigned long long)t->info.step);
  return cli_fail(t->c, CLI_ENVIRONMENT, "stopped by %s after step %llu of %llu, checkpoint written; --resume goes on",
                  train_interrupted(), (unsigned long long)t->info.step, (unsigned long long)t->recipe.steps);
}

int train_loop(train_run *t) {
  taper_error error = {0};
  taper_status status = run_steps(t, &error);
  show(t, &t->last, true);
  if (status != TAPER_OK) {
    run_folder_log(&t->run, "failed: %s", error.message);
    if (t->has_saved || t->run.found.folder)
      cli_note(t->c, "the last checkpoint is %s",
               checkpoint_folder(t->run.path, t->has_saved ? t->last_saved : t->run.found.step, &t->c->memory));
    return cli_fail_status(t->c, status, &error, true);
  }
  return t->info.step < t->recipe.steps ? stopped(t) : CLI_OK;
}
