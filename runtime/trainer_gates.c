/* Gates of a trainer: their values by step, calibration while they are 1, and what happens when one begins to taper
   (tapernorm.md 2 to 4). */
#include "runtime/abi/abi.h"
#include "runtime/trainer.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

static const taper_gate_schedule *moving(const taper_trainer *t, uint32_t gate) {
  return recipe_gate_moves(t->schedule[gate]) ? t->schedule[gate] : NULL;
}

static uint64_t start_of(const taper_trainer *t, uint32_t gate) {
  return recipe_gate_start(t->schedule[gate], t->t->gates[gate].index);
}

static taper_status bind_gate(taper_trainer *t, uint32_t i, taper_error *error) {
  const taper_train_gate *g = &t->t->gates[i];
  t->schedule[i] = recipe_gate(&t->recipe, g->name);
  if (!moving(t, i)) return TAPER_OK;
  if (!g->scheduled)
    return TAPER_FAIL(error, TAPER_INVALID,
                      "gate '%.80s': the recipe tapers it, the package has it compiled as the constant %g; compile "
                      "the model again",
                      g->name, (double)g->value);
  const uint64_t start = start_of(t, i),
                 end = t->schedule[i]->kind == TAPER_GATE_RAMP ? t->schedule[i]->end : start + 1;
  if (start > t->recipe.steps)
    return TAPER_FAIL(error, TAPER_INVALID, "gate '%.80s': element %u steps after %llu, training has %llu steps",
                      g->name, g->index, (unsigned long long)start, (unsigned long long)t->recipe.steps);
  if (t->earliest == TAPER_ABI_NONE || start < start_of(t, t->earliest)) t->earliest = i;
  if (end > t->end_of_tapers) t->end_of_tapers = end > start ? end : start + 1;
  return TAPER_OK;
}

static double norm_result(const taper_trainer *t, uint32_t program, const taper_train_norm *n, const char *what,
                          double absent) {
  char name[640];
  snprintf(name, sizeof(name), "%s.%s", n->name, what);
  return trainer_result(t, program, name, absent);
}

/* Norms that will taper must be measured while they are whole. */
static taper_status bind_norm(const taper_trainer *t, uint32_t i, taper_error *error) {
  const taper_train_norm *n = &t->t->norms[i];
  if (!moving(t, n->gate)) return TAPER_OK;
  const char *needed[] = {t->schedule[n->gate]->inv_sigma ? "sigma" : "numerator",
                          t->schedule[n->gate]->inv_sigma ? "sigma" : "denominator"};
  const bool first = start_of(t, n->gate) == start_of(t, t->earliest);
  const uint32_t program = first && t->t->programs[TAPER_TRAIN_WARM].stage_count ? TAPER_TRAIN_WARM : TAPER_TRAIN_TAPER;
  for (int k = 0; k < 2; k++)
    if (isnan(norm_result(t, program, n, needed[k], NAN)))
      return TAPER_FAIL(error, TAPER_INVALID,
                        "norm '%.80s': the package does not measure its %s; compile the model again", n->name,
                        needed[k]);
  return TAPER_OK;
}

taper_status trainer_bind_gates(taper_trainer *t, taper_error *error) {
  t->earliest = TAPER_ABI_NONE;
  for (uint32_t i = 0; i < t->t->gate_count; i++) TAPER_TRY(bind_gate(t, i, error));
  for (size_t k = 0; k < t->recipe.gate_count; k++) {
    const taper_gate_schedule *g = &t->recipe.gates[k];
    uint32_t i = 0;
    while (i < t->t->gate_count && strcmp(t->t->gates[i].name, g->gate) != 0) i++;
    if (i == t->t->gate_count && recipe_gate_moves(g))
      return TAPER_FAIL(error, TAPER_INVALID, "gate '%.80s': the model has no gate of that name", g->gate);
  }
  for (uint32_t i = 0; i < t->t->norm_count; i++) TAPER_TRY(bind_norm(t, i, error));
  return TAPER_OK;
}

void trainer_gate_values(const taper_trainer *t, uint64_t k, float *out) {
  for (uint32_t i = 0; i < t->t->gate_count; i++) {
    const taper_gate_schedule *g = moving(t, i);
    out[i] = g ? (float)recipe_gate_value(g, t->t->gates[i].index, k) : t->t->gates[i].value;
  }
}

static bool has_program(const taper_trainer *t, taper_train_program_id p) { return t->t->programs[p].stage_count > 0; }

/* A gate that the image schedules and the recipe leaves alone stays at its value, which the programs of all 1 and of all 0
   may not assume. */
static bool rest_is(const taper_trainer *t, float value) {
  for (uint32_t i = 0; i < t->t->gate_count; i++)
    if (t->t->gates[i].scheduled && !moving(t, i) && t->t->gates[i].value != value) return false;
  return true;
}

taper_train_program_id trainer_program(const taper_trainer *t, uint64_t k) {
  const bool begun = t->earliest != TAPER_ABI_NONE && k > start_of(t, t->earliest);
  if (!begun && has_program(t, TAPER_TRAIN_WARM) && rest_is(t, 1)) return TAPER_TRAIN_WARM;
  if (begun && k >= t->end_of_tapers && has_program(t, TAPER_TRAIN_ZERO) && rest_is(t, 0)) return TAPER_TRAIN_ZERO;
  return TAPER_TRAIN_TAPER;
}

/* ---- averages ---- */

static void ema_add(trainer_ema *e, double momentum, double x) {
  e->value = (1 - momentum) * e->value + momentum * x;
  e->bias = (1 - momentum) * e->bias + momentum;
}

static double ema_mean(const trainer_ema *e) { return e->value / e->bias; }

/* Step 0 stands for the batches before the first: they are for the gates that start there. */
static bool counts(const taper_trainer *t, uint32_t gate, uint64_t k) {
  return moving(t, gate) && (k == 0 ? start_of(t, gate) == 0 : k <= start_of(t, gate));
}

void trainer_note_statistics(taper_trainer *t, uint64_t k, uint32_t program) {
  for (uint32_t i = 0; i < t->t->norm_count; i++) {
    const taper_train_norm *n = &t->t->norms[i];
    trainer_norm *s = &t->state.norms[i];
    if (!counts(t, n->gate, k)) continue;
    const double momentum = t->schedule[n->gate]->ema, none = NAN;
    const double sigma = norm_result(t, program, n, "sigma", none);
    const double numerator = norm_result(t, program, n, "numerator", none);
    const double denominator = norm_result(t, program, n, "denominator", none);
    if (isnan(sigma) && isnan(numerator)) continue;
    ema_add(&s->numerator, momentum, numerator);
    ema_add(&s->denominator, momentum, denominator);
    ema_add(&s->sigma, momentum, sigma);
    s->count++;
  }
  const double scale = trainer_result(t, program, "scale", NAN);
  if (t->earliest != TAPER_ABI_NONE && counts(t, t->earliest, k) && !isnan(scale))
    ema_add(&t->state.scale, t->schedule[t->earliest]->ema, scale);
}

/* c by the averages (tapernorm.md 2); the norm's count is not 0. */
static double calibrated(const taper_trainer *t, uint32_t norm) {
  const trainer_norm *s = &t->state.norms[norm];
  if (t->schedule[t->t->norms[norm].gate]->inv_sigma) return 1 / ema_mean(&s->sigma);
  return ema_mean(&s->numerator) / (ema_mean(&s->denominator) + 1e-12);
}

static bool gate_has_begun(const taper_trainer *t, uint32_t gate) {
  if (!moving(t, gate)) return true;
  const uint64_t start = start_of(t, gate);
  return start == 0 ? t->state.calibrations >= TRAINER_CALIBRATIONS : t->state.step >= start;
}

bool trainer_has_begun(const taper_trainer *t, uint32_t norm) { return gate_has_begun(t, t->t->norms[norm].gate); }

double trainer_c(const taper_trainer *t, uint32_t norm, bool *out_known) {
  const bool begun = trainer_has_begun(t, norm);
  *out_known = begun || t->state.norms[norm].count > 0;
  return begun || !*out_known ? (double)t->param[t->t->norms[norm].taper_c][0] : calibrated(t, norm);
}

/* ---- the start of a taper ---- */

static void start_norm(taper_trainer *t, uint32_t i) {
  const taper_train_norm *n = &t->t->norms[i];
  const uint32_t w = n->taper_weight;
  const uint64_t bytes = t->elements[w] * sizeof(float);
  t->param[n->taper_c][0] = (float)calibrated(t, i);
  memcpy(t->param[w], t->param[n->weight], bytes);
  if (t->first[w]) memset(t->first[w], 0, bytes);
  if (t->second[w]) memset(t->second[w], 0, bytes);
  t->state.updates[w] = 0;
}

bool trainer_start_tapers(taper_trainer *t, uint64_t k) {
  bool any = false;
  for (uint32_t i = 0; i < t->t->gate_count; i++) any = any || (moving(t, i) && start_of(t, i) == k);
  if (!any) return false;
  for (uint32_t i = 0; i < t->t->norm_count; i++) {
    const uint32_t gate = t->t->norms[i].gate;
    if (moving(t, gate) && start_of(t, gate) == k && t->state.norms[i].count > 0) start_norm(t, i);
  }
  if (t->t->anchor_target != TAPER_ABI_NONE && start_of(t, t->earliest) == k && t->state.scale.bias > 0)
    t->param[t->t->anchor_target][0] = (float)ema_mean(&t->state.scale);
  t->dirty = true;
  return true;
}

double taper_trainer_scale_target(const taper_trainer *t) {
  if (!t || t->t->anchor_target == TAPER_ABI_NONE) return 0;
  if (t->earliest == TAPER_ABI_NONE || gate_has_begun(t, t->earliest) || t->state.scale.bias == 0)
    return (double)t->param[t->t->anchor_target][0];
  return ema_mean(&t->state.scale);
}

/* ---- which parameters a step updates ---- */

/* gamma is out of the forward at 0, gammat at 1; unless the program of all 0 (all 1) has a gradient of it nevertheless. */
static bool stands_still(const taper_trainer *t, uint32_t param, uint64_t k) {
  bool read = false;
  for (uint32_t i = 0; i < t->t->norm_count; i++) {
    const taper_train_norm *n = &t->t->norms[i];
    if (n->weight != param && n->taper_weight != param) continue;
    const taper_gate_schedule *g = moving(t, n->gate);
    const double value = g ? recipe_gate_value(g, t->t->gates[n->gate].index, k) : (double)t->t->gates[n->gate].value;
    const bool tapered = n->taper_weight == param;
    if (value != (tapered ? 1.0 : 0.0)) return false;
    const taper_train_program_id other = tapered ? TAPER_TRAIN_WARM : TAPER_TRAIN_ZERO;
    if (t->t->programs[other].stage_count && t->t->params[param].programs & 1u << other) return false;
    read = true;
  }
  return read;
}

void trainer_mark_updated(taper_trainer *t, uint64_t k, uint32_t program) {
  for (uint32_t i = 0; i < t->t->param_count; i++)
    t->updated[i] = t->grad[i] && t->t->params[i].programs & 1u << program;
  for (uint32_t i = 0; i < t->t->norm_count; i++) {
    const taper_train_norm *n = &t->t->norms[i];
    if (t->updated[n->weight] && stands_still(t, n->weight, k)) t->updated[n->weight] = 0;
    if (t->updated[n->taper_weight] && stands_still(t, n->taper_weight, k)) t->updated[n->taper_weight] = 0;
  }
}

bool trainer_show_tapered(taper_trainer *t) {
  bool known = true;
  memcpy(t->shown, t->param, t->t->param_count * sizeof(float *));
  for (uint32_t i = 0; i < t->t->norm_count; i++) {
    const taper_train_norm *n = &t->t->norms[i];
    bool has_c;
    t->calibrated[i] = (float)trainer_c(t, i, &has_c);
    known = known && has_c;
    if (trainer_has_begun(t, i)) continue;
    t->shown[n->taper_c] = &t->calibrated[i];
    t->shown[n->taper_weight] = t->param[n->weight];
  }
  return known;
}
