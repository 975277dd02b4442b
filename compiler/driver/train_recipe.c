/* The train section and the options -> what a trainer goes by. */
#include "compiler/driver/model_priv.h"
#include "compiler/driver/train.h"
#include <math.h>
#include <string.h>

enum { DEFAULT_STEPS = 1000, DEFAULT_BATCH = 16 };

static const unsigned roles[] = {
    [TRAIN_AS_WRITTEN] = 0,
#define VARIANT(id, word, internal, final, anchor)                                                                     \
  [TRAIN_##id] = ((internal) ? TRAIN_ROLE_INTERNAL : 0u) | ((final) ? TRAIN_ROLE_FINAL : 0u),
#include "compiler/driver/variants.def"
#undef VARIANT
};
static const bool anchors[] = {
    [TRAIN_AS_WRITTEN] = false,
#define VARIANT(id, word, internal, final, anchor) [TRAIN_##id] = (anchor),
#include "compiler/driver/variants.def"
#undef VARIANT
};

unsigned train_variant_roles(train_variant v) { return roles[v]; }

void train_settings_init(train_settings *s) {
  *s = (train_settings){
      .lr = NAN, .beta1 = NAN, .beta2 = NAN, .eps = NAN, .weight_decay = NAN, .clip = NAN, .floor = NAN};
}

/* 29 % of 100 is 29, though 0.29 * 100 is less. */
uint64_t train_amount(front_amount a, uint64_t all) {
  if (!a.given) return 0;
  if (!a.percent) return (uint64_t)a.value;
  double exact = a.value * (double)all, near = nearbyint(exact);
  return (uint64_t)(fabs(exact - near) <= 1e-9 * fmax(near, 1) ? near : floor(exact));
}

/* ---- gates ---- */

typedef struct gate_use { /* a gate, or an array of them, as the norms use it */
  const char *name;
  unsigned role;
  double least; /* of the values of its elements */
} gate_use;

typedef struct recipe_maker {
  train_job *job;
  const front_train *section;
  const train_settings *settings;
  diag_sink *sink;
  taper_error *error;
  gate_use *gates;
  size_t gate_count;
  taper_gate_schedule *schedules;
} recipe_maker;

static gate_use *find_gate(recipe_maker *k, const char *name) {
  for (size_t i = 0; i < k->gate_count; i++)
    if (strcmp(k->gates[i].name, name) == 0) return &k->gates[i];
  return NULL;
}

static void list_gates(recipe_maker *k) {
  const ir_module *m = k->job->model.module;
  arena *a = &k->job->memory;
  norm_use *norms;
  size_t n = norm_uses(m, a, &norms);
  k->gates = ARENA_ARRAY(a, gate_use, n + 1);
  k->schedules = ARENA_ARRAY(a, taper_gate_schedule, n + 1);
  for (size_t i = 0; i < n; i++) {
    if (!norms[i].gate) continue;
    gate_use *g = find_gate(k, norms[i].gate);
    if (!g) *(g = &k->gates[k->gate_count++]) = (gate_use){norms[i].gate, 0, 1};
    g->role |= norms[i].role;
  }
  for (ir_value v = ir_first(m, IR_GLOBALS); v.id; v = ir_next(m, v)) {
    double value;
    gate_use *g = ir_is(m, v, IR_GATE) ? find_gate(k, ir_attr_string(m, v, IR_ATTR_NAME, "")) : NULL;
    if (g && ir_read_const(m, v, &value) && value < g->least) g->least = value;
  }
}

static const char *path_of(const recipe_maker *k) { return k->job->model.place.source; }

/* ---- tapers ---- */

static const front_taper *written_taper(const recipe_maker *k, const char *gate) {
  for (size_t i = 0; i < k->section->taper_count; i++)
    if (strcmp(k->section->tapers[i].gate, gate) == 0 && k->section->tapers[i].kind != TAPER_NEVER)
      return &k->section->tapers[i];
  return NULL;
}

/* The line whose start, end and ema a variant keeps: the gate's own, else the first ramp, else the defaults. */
static front_taper kept_taper(const recipe_maker *k, const char *gate) {
  const front_taper *own = written_taper(k, gate);
  if (own) return *own;
  for (size_t i = 0; i < k->section->taper_count; i++)
    if (k->section->tapers[i].kind == TAPER_RAMP) return k->section->tapers[i];
  return (front_taper){.gate = gate, .kind = TAPER_RAMP, .ema = 0.01};
}

static taper_status check_times(const recipe_maker *k, const taper_gate_schedule *s, uint64_t steps) {
  if (s->start > steps || s->end > steps)
    return TAPER_FAIL(
        k->error, TAPER_INVALID,
        "%s: the taper of gate '%s' %s at step %llu, after the last of %llu; give more --steps, or other times",
        path_of(k), s->gate, s->start > steps ? "starts" : "ends",
        (unsigned long long)(s->start > steps ? s->start : s->end), (unsigned long long)steps);
  if (s->kind == TAPER_GATE_RAMP && s->start > s->end)
    return TAPER_FAIL(k->error, TAPER_INVALID,
                      "%s: the taper of gate '%s' starts at step %llu, after its end at step %llu", path_of(k), s->gate,
                      (unsigned long long)s->start, (unsigned long long)s->end);
  return TAPER_OK;
}

static taper_status add_schedule(recipe_maker *k, const gate_use *gate, const front_taper *t) {
  taper_recipe *r = &k->job->recipe;
  if (gate->least != 1)
    return TAPER_FAIL(
        k->error, TAPER_INVALID,
        "%s: gate '%s' is %s in the weights, and a schedule begins at 1; give --gate %s=1, or, to leave the gates "
        "as they are, --variant baseline (an option of train)",
        path_of(k), gate->name, gate->least == 0 ? "0" : "below 1", gate->name);
  taper_gate_schedule s = {.gate = gate->name, .ema = t->ema, .inv_sigma = t->inv_sigma};
  if (t->kind == TAPER_STEP) {
    s.kind = TAPER_GATE_STEP;
    s.start = train_amount(t->step, r->steps), s.every = train_amount(t->every, r->steps);
  } else {
    s.kind = TAPER_GATE_RAMP;
    s.start = t->start.given ? train_amount(t->start, r->steps) : r->warmup;
    s.end = t->end.given ? train_amount(t->end, r->steps) : r->steps;
  }
  TAPER_TRY(check_times(k, &s, r->steps));
  k->schedules[r->gate_count++] = s;
  return TAPER_OK;
}

static taper_status tapers_of_variant(recipe_maker *k, unsigned wanted) {
  for (size_t i = 0; i < k->gate_count; i++) {
    const gate_use *g = &k->gates[i];
    if (!(g->role & wanted)) continue;
    if (g->role & ~wanted)
      return TAPER_FAIL(
          k->error, TAPER_INVALID,
          "%s: gate '%s' is of the norm before the head and of norms inside the blocks, and the variant tapers "
          "one kind only; give each a gate of its own",
          path_of(k), g->name);
    front_taper t = kept_taper(k, g->name);
    TAPER_TRY(add_schedule(k, g, &t));
  }
  unsigned found = 0;
  for (size_t i = 0; i < k->gate_count; i++) found |= k->gates[i].role;
  if (wanted & ~found)
    return TAPER_FAIL(k->error, TAPER_INVALID,
                      "%s: the model has no norm %s that could be tapered; give another --variant", path_of(k),
                      wanted & ~found & TRAIN_ROLE_FINAL ? "before the head" : "inside its blocks");
  return TAPER_OK;
}

static taper_status tapers_as_written(recipe_maker *k) {
  for (size_t i = 0; i < k->gate_count; i++) {
    const front_taper *t = written_taper(k, k->gates[i].name);
    if (t) TAPER_TRY(add_schedule(k, &k->gates[i], t));
  }
  return TAPER_OK;
}

static taper_status make_tapers(recipe_maker *k) {
  train_job *job = k->job;
  train_variant variant = k->settings->variant;
  list_gates(k);
  if (variant == TRAIN_AS_WRITTEN)
    TAPER_TRY(tapers_as_written(k));
  else
    TAPER_TRY(tapers_of_variant(k, roles[variant]));
  job->recipe.gates = k->schedules;
  job->gate_count = job->recipe.gate_count;
  job->gates = ARENA_ARRAY(&job->memory, const char *, job->gate_count + 1);
  for (size_t i = 0; i < job->gate_count; i++) job->gates[i] = k->schedules[i].gate;
  job->anchor = variant == TRAIN_AS_WRITTEN ? k->section->anchor : anchors[variant];
  job->anchor_weight = k->section->anchor_weight;
  if (job->anchor && !job->gate_count) {
    job->anchor = false;
    diag_report(k->sink, DC_NO_EFFECT, (diag_loc){.file = diag_intern(k->sink, path_of(k))},
                "the scale anchor acts on nothing: no gate is tapered");
  }
  return TAPER_OK;
}

/* ---- the numbers ---- */

static double either(double option, double otherwise) { return isnan(option) ? otherwise : option; }
static uint64_t whole(uint64_t option, int64_t section, uint64_t otherwise) {
  return option ? option : section ? (uint64_t)section : otherwise;
}

static taper_lr_schedule lr_schedule(const recipe_maker *k) {
  static const taper_lr_schedule kinds[] = {[SCHEDULE_COSINE] = TAPER_LR_COSINE,
                                            [SCHEDULE_LINEAR] = TAPER_LR_LINEAR,
                                            [SCHEDULE_CONSTANT] = TAPER_LR_CONSTANT};
  const char *word = k->settings->schedule;
  if (!word) return kinds[k->section->schedule];
  return strcmp(word, "cosine") == 0   ? TAPER_LR_COSINE
         : strcmp(word, "linear") == 0 ? TAPER_LR_LINEAR
                                       : TAPER_LR_CONSTANT;
}

static taper_status make_numbers(recipe_maker *k) {
  const front_train *f = k->section;
  const train_settings *s = k->settings;
  taper_recipe *r = &k->job->recipe;
  double context = 0;
  ir_module_param(k->job->model.module, "context", &context);
  r->steps = whole(s->steps, f->steps, DEFAULT_STEPS);
  r->batch = (uint32_t)whole(s->batch, f->batch, DEFAULT_BATCH);
  r->sequence = (uint32_t)whole(s->sequence, f->sequence, (uint64_t)context);
  r->accumulate = (uint32_t)whole(s->accumulate, f->accumulate, 1);
  r->seed = s->has_seed ? s->seed : (uint64_t)f->seed;
  r->lr = either(s->lr, f->lr), r->beta1 = either(s->beta1, f->beta1), r->beta2 = either(s->beta2, f->beta2);
  r->eps = either(s->eps, f->eps), r->weight_decay = either(s->weight_decay, f->weight_decay);
  r->clip = either(s->clip, f->clip), r->floor = either(s->floor, f->floor);
  r->schedule = lr_schedule(k);
  if (r->schedule == TAPER_LR_CONSTANT && !isnan(s->floor))
    return TAPER_FAIL(
        k->error, TAPER_INVALID,
        "%s: the schedule of its train section is constant: --floor acts on nothing; leave it out, or give "
        "another --schedule",
        path_of(k));
  r->warmup = train_amount(s->warmup.given ? s->warmup : f->warmup, r->steps);
  if (r->sequence > context)
    return TAPER_FAIL(
        k->error, TAPER_INVALID,
        "%s: a sequence of %u is longer than the model's context of %.0f; give a smaller --seq, or -D context=%u",
        path_of(k), r->sequence, context, r->sequence);
  if (r->warmup > r->steps)
    return TAPER_FAIL(k->error, TAPER_INVALID,
                      "%s: the warm-up ends at step %llu, after the last of %llu; give --warmup", path_of(k),
                      (unsigned long long)r->warmup, (unsigned long long)r->steps);
  return TAPER_OK;
}

taper_status train_make_recipe(train_job *job, const train_settings *settings, diag_sink *sink, taper_error *error) {
  recipe_maker k = {.job = job,
                    .section = front_train_section(job->model.priv->front),
                    .settings = settings,
                    .sink = sink,
                    .error = error};
  job->recipe = (taper_recipe){.size = sizeof job->recipe};
  TAPER_TRY(make_numbers(&k));
  return make_tapers(&k);
}
