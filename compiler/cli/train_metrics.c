/* Lines of metrics.jsonl. Keys: docs/training.md */
#include "compiler/cli/json.h"
#include "compiler/cli/train.h"
#include "compiler/driver/words.h"
#include <math.h>
#include <string.h>

static taper_status put_line(train_run *t, json_out *j, taper_error *error) {
  json_close(j, '}');
  text_puts(&j->t, "\n");
  taper_status status = run_folder_metrics(&t->run, &j->t, error);
  text_free(&j->t);
  return status;
}

static void put_gate(json_out *j, const char *key, float value) {
  text word = {0};
  words_put_float(&word, value);
  json_raw(j, key, word.data ? word.data : "null");
  text_free(&word);
}

/* {gate: value or [values]}, as the step was computed with. */
static void put_gates(train_run *t, json_out *j, const float *values) {
  json_open(j, "g", '{');
  for (uint32_t i = 0; i < t->info.gates; i++) {
    const char *name;
    uint32_t index, count;
    taper_trainer_gate(t->trainer, i, &name, &index, &count, NULL);
    if (count == 1) {
      put_gate(j, name, values[i]);
      continue;
    }
    if (index == 0) json_open(j, name, '[');
    put_gate(j, NULL, values[i]);
    if (index + 1 == count) json_close(j, ']');
  }
  json_close(j, '}');
}

taper_status train_put_step(train_run *t, const train_line *line, taper_error *error) {
  const taper_step *s = line->step;
  json_out j = {0};
  json_open(&j, NULL, '{');
  json_whole(&j, "step", s->step);
  json_number(&j, "loss", s->loss);
  json_number(&j, "ce", s->ce);
  json_number(&j, "aux", s->aux);
  json_number(&j, "lr", s->lr);
  put_gates(t, &j, s->gates);
  json_number(&j, "grad_norm", s->grad_norm);
  json_number(&j, "logit_norm", s->logit_norm);
  json_number(&j, "residual_scale", s->residual_scale);
  json_whole(&j, "tokens", t->info.tokens);
  json_number(&j, "tokens_per_s", line->tokens_per_s);
  if (line->val) {
    json_number(&j, "val_ce", line->val->ce);
    json_number(&j, "val_ce_g0", line->val->ce_g0);
  }
  if (line->full) {
    json_open(&j, "full", '{');
    text_puts(&j.t, line->full);
    json_close(&j, '}');
  }
  return put_line(t, &j, error);
}

static void open_event(json_out *j, uint64_t step, const char *event) {
  json_open(j, NULL, '{');
  json_whole(j, "step", step);
  json_string(j, "event", event);
}

taper_status train_put_event(train_run *t, uint64_t step, const char *event, taper_error *error) {
  json_out j = {0};
  open_event(&j, step, event);
  return put_line(t, &j, error);
}

/* Does gate element `i` begin to taper after the update of `step`? */
static bool starts_at(const train_run *t, uint32_t i, uint64_t step) {
  const char *name;
  uint32_t index, count;
  taper_trainer_gate(t->trainer, i, &name, &index, &count, NULL);
  for (size_t g = 0; g < t->recipe.gate_count; g++) {
    const taper_gate_schedule *s = &t->recipe.gates[g];
    if (strcmp(s->gate, name) != 0) continue;
    if (s->kind == TAPER_GATE_RAMP) return s->start == step;
    if (s->kind == TAPER_GATE_STEP) return s->start + index * s->every == step;
  }
  return false;
}

taper_status train_put_taper_start(train_run *t, uint64_t step, taper_error *error) {
  json_out j = {0};
  double target = taper_trainer_scale_target(t->trainer);
  open_event(&j, step, "taper_start");
  json_open(&j, "c", '{');
  for (uint32_t i = 0; i < t->info.norms; i++) {
    const char *name;
    uint32_t gate;
    double c;
    taper_trainer_norm(t->trainer, i, &name, &gate, &c);
    if (starts_at(t, gate, step)) json_number(&j, name, c);
  }
  json_close(&j, '}');
  if (target > 0)
    json_number(&j, "s_tgt", target);
  else
    json_null(&j, "s_tgt");
  return put_line(t, &j, error);
}

static void on_value(void *user, const char *name, double value) { json_number(user, name, value); }

taper_status train_observe(train_run *t, text *out, taper_error *error) {
  json_out j = {0};
  taper_status status = taper_trainer_observe(t->trainer, t->tokens, t->targets, on_value, &j, error);
  *out = j.t;
  return status;
}
