#include "compiler/driver/scan.h"
#include "compiler/driver/train_package.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
  SCAN_WINDOW = 256,        /* ids */
  SCAN_ROWS = 2048,         /* ids side by side */
  SCAN_CALIBRATE = 1 << 15, /* positions */
  SCAN_COMPARE = 1 << 17,   /* positions of all comparisons together */
  SCAN_LEAST = 1 << 11      /* of one */
};
#define SCAN_GATE "scan." /* before a norm's name: its gate */
#define SCAN_DELTA 1e-12

typedef struct norm_sums {
  double numerator, denominator;
  float *r;
  size_t r_count;
} norm_sums;

typedef struct difference {
  double ce, base, kl;
} difference;

typedef struct scan {
  const scan_options *o;
  scan_result *r;
  taper_trainer *trainer;
  uint32_t gates;
  float *values;     /* [gates] */
  uint32_t *gate_of; /* [count] */
  norm_sums *sums;   /* [count] */
  uint32_t batch;    /* windows side by side */
  int32_t *tokens, *targets;
  double ce, ce_base, kl, weight; /* of the batch that runs; weight: its share */
  difference all;                 /* of the comparison that runs */
  size_t room;                    /* of norm_sums.r */
} scan;

/* ---- the norms ---- */

static taper_status find_norms(scan *s, taper_error *error) {
  taper_trainer_info info = {.size = sizeof info};
  scan_result *r = s->r;
  taper_trainer_get_info(s->trainer, &info);
  s->gates = info.gates;
  s->values = ARENA_ARRAY(&r->memory, float, s->gates + 1);
  s->gate_of = ARENA_ARRAY(&r->memory, uint32_t, s->gates + 1);
  r->norms = ARENA_ARRAY(&r->memory, scan_norm, s->gates + 1);
  s->sums = ARENA_ARRAY(&r->memory, norm_sums, s->gates + 1);
  for (uint32_t i = 0; i < s->gates; i++) {
    const char *name;
    double value = 0;
    taper_trainer_gate(s->trainer, i, &name, NULL, NULL, &value);
    s->values[i] = (float)value;
    if (strncmp(name, SCAN_GATE, sizeof SCAN_GATE - 1) != 0) continue;
    s->gate_of[r->count] = i;
    r->norms[r->count++].name = arena_strdup(&r->memory, name + sizeof SCAN_GATE - 1);
  }
  for (size_t i = 0; i < r->count; i++) {
    s->sums[i].r = malloc(s->room * sizeof(float));
    if (!s->sums[i].r)
      return TAPER_FAIL(error, TAPER_NOMEM, "no memory for the spread of %zu norms; free some", r->count);
  }
  return TAPER_OK;
}

/* "<norm>.<what>" -> the norm. */
static size_t norm_of(const scan *s, const char *result, const char *what) {
  size_t n = strlen(result), m = strlen(what);
  for (size_t i = 0; i < s->r->count; i++) {
    size_t k = strlen(s->r->norms[i].name);
    if (n == k + 1 + m && memcmp(result, s->r->norms[i].name, k) == 0 && result[k] == '.' &&
        strcmp(result + k + 1, what) == 0)
      return i;
  }
  return SIZE_MAX;
}

/* ---- one batch ---- */

static void on_value(void *user, const char *name, double value) {
  scan *s = user;
  if (strcmp(name, "ce") == 0)
    s->ce = value;
  else if (strcmp(name, "ce_base") == 0)
    s->ce_base = value;
  else if (strcmp(name, "kl") == 0)
    s->kl = value;
}

static void on_statistics(void *user, const char *name, double value) {
  scan *s = user;
  size_t up = norm_of(s, name, "numerator"), down = norm_of(s, name, "denominator");
  if (up != SIZE_MAX) s->sums[up].numerator += value * s->weight;
  if (down != SIZE_MAX) s->sums[down].denominator += value * s->weight;
  on_value(user, name, value);
}

static void on_rows(void *user, const char *name, const float *rows, size_t n) {
  scan *s = user;
  size_t i = norm_of(s, name, "scale_rows");
  if (i == SIZE_MAX) return;
  norm_sums *k = &s->sums[i];
  for (size_t p = 0; p < n && k->r_count < s->room; p++)
    if (s->targets[p] >= 0) k->r[k->r_count++] = rows[p];
}

/* `windows` evenly spread ones of the data, in batches: each(s) after every batch, s->weight its share of all positions. */
static taper_status over_data(scan *s, uint64_t windows, const char *what, bool statistics, void (*each)(scan *s),
                              taper_error *error) {
  uint32_t span = s->r->window;
  uint64_t count = corpus_count(s->o->data, s->o->part), last = count - 1 - span;
  int32_t *ids = malloc((span + 1) * sizeof *ids);
  taper_status status = ids ? TAPER_OK : TAPER_FAIL(error, TAPER_NOMEM, "no memory for a window; free some");
  for (uint64_t w = 0, n; status == TAPER_OK && w < windows; w += n) {
    n = windows - w < s->batch ? windows - w : s->batch;
    for (uint64_t k = 0; k < n; k++) {
      corpus_read(s->o->data, s->o->part, windows > 1 ? (w + k) * last / (windows - 1) : 0, span + 1, ids);
      memcpy(s->tokens + k * span, ids, span * sizeof *ids);
      memcpy(s->targets + k * span, ids + 1, span * sizeof *ids);
    }
    s->weight = (double)n / (double)windows;
    status = taper_trainer_measure(s->trainer, 1, s->tokens, s->targets, (uint32_t)n, span, s->values,
                                   statistics ? on_statistics : on_value, statistics ? on_rows : NULL, s, error);
    if (status == TAPER_OK && each) each(s);
    if (s->o->progress && what) s->o->progress(s->o->user, what, w + n, windows);
  }
  free(ids);
  return status;
}

/* ---- calibration ---- */

static int rising(const void *a, const void *b) {
  float x = *(const float *)a, y = *(const float *)b;
  return (x > y) - (x < y);
}

/* The least value that a share of all does not exceed. */
static double quantile(const float *sorted, size_t n, double share) {
  size_t at = (size_t)ceil(share * (double)n);
  return n ? (double)sorted[at ? at - 1 : 0] : (double)NAN;
}

static taper_status calibrate(scan *s, uint64_t windows, taper_error *error) {
  scan_result *r = s->r;
  TAPER_TRY(over_data(s, windows, "calibrate", true, NULL, error));
  for (size_t i = 0; i < r->count; i++) {
    scan_norm *n = &r->norms[i];
    norm_sums *k = &s->sums[i];
    qsort(k->r, k->r_count, sizeof *k->r, rising);
    n->r_p5 = quantile(k->r, k->r_count, 0.05);
    n->r_p50 = quantile(k->r, k->r_count, 0.5);
    n->r_p95 = quantile(k->r, k->r_count, 0.95);
    n->c = k->numerator / (k->denominator + SCAN_DELTA);
    const float c = (float)n->c;
    char name[700];
    text_format(name, sizeof name, "%s.taper_c", n->name);
    TAPER_TRY(taper_trainer_set_parameter(s->trainer, name, &c, 1, error));
  }
  r->calibrated = windows * r->window;
  return TAPER_OK;
}

/* ---- comparison ---- */

static void add_difference(scan *s) {
  s->all.ce += s->ce * s->weight, s->all.base += s->ce_base * s->weight, s->all.kl += s->kl * s->weight;
}

static taper_status compare(scan *s, uint64_t windows, double *out_kl, double *out_dloss, taper_error *error) {
  s->all = (difference){0};
  TAPER_TRY(over_data(s, windows, NULL, false, add_difference, error));
  *out_kl = s->all.kl, *out_dloss = s->all.ce - s->all.base;
  s->r->ce = s->all.base;
  return TAPER_OK;
}

static taper_status compare_all(scan *s, uint64_t windows, taper_error *error) {
  scan_result *r = s->r;
  size_t all = 2 * r->count;
  for (size_t i = 0; i < r->count; i++) {
    s->values[s->gate_of[i]] = 0;
    TAPER_TRY(compare(s, windows, &r->norms[i].kl_one, &r->norms[i].dloss_one, error));
    s->values[s->gate_of[i]] = 1;
    if (s->o->progress) s->o->progress(s->o->user, "compare", i + 1, all);
  }
  for (size_t i = 0; i < r->count; i++) {
    s->values[s->gate_of[i]] = 0;
    TAPER_TRY(compare(s, windows, &r->norms[i].kl_upto, &r->norms[i].dloss_upto, error));
    if (s->o->progress) s->o->progress(s->o->user, "compare", r->count + i + 1, all);
  }
  r->compared = windows * r->window;
  return TAPER_OK;
}

/* ---- all of it ---- */

static uint64_t at_most(uint64_t positions, uint32_t window, uint64_t windows) {
  uint64_t n = positions / window;
  return n == 0 ? 1 : n < windows ? n : windows;
}

static taper_status measure(scan *s, taper_error *error) {
  scan_result *r = s->r;
  uint64_t windows = (corpus_count(s->o->data, s->o->part) - 1) / r->window;
  uint64_t calibrating = at_most(SCAN_CALIBRATE, r->window, windows);
  s->room = calibrating * r->window;
  s->tokens = ARENA_ARRAY(&r->memory, int32_t, (size_t)s->batch * r->window);
  s->targets = ARENA_ARRAY(&r->memory, int32_t, (size_t)s->batch * r->window);
  TAPER_TRY(find_norms(s, error));
  if (r->count == 0) return TAPER_OK;
  TAPER_TRY(calibrate(s, calibrating, error));
  uint64_t positions = SCAN_COMPARE / (2 * r->count);
  if (positions < SCAN_LEAST) positions = SCAN_LEAST;
  if (positions > SCAN_CALIBRATE) positions = SCAN_CALIBRATE;
  return compare_all(s, at_most(positions, r->window, windows), error);
}

static taper_status prepare(scan *s, train_job *job, diag_sink *sink, taper_error *error) {
  train_settings settings;
  uint64_t count = corpus_count(s->o->data, s->o->part);
  double context = 0;
  if (count < 2) return TAPER_FAIL(error, TAPER_INVALID, "the data has fewer than 2 ids; give more");
  train_settings_init(&settings);
  settings.variant = TRAIN_BASELINE; /* gates stay as they are */
  settings.batch = settings.sequence = 1;
  TAPER_TRY(train_prepare(s->o->place, s->o->model, &settings, sink, job, error));
  ir_module_param(job->model.module, "context", &context);
  s->r->window = context < SCAN_WINDOW ? (uint32_t)context : SCAN_WINDOW;
  if (s->r->window > count - 1) s->r->window = (uint32_t)(count - 1);
  s->batch = SCAN_ROWS / s->r->window;
  job->recipe.batch = s->batch, job->recipe.sequence = s->r->window, job->recipe.accumulate = 1;
  job->scan = true;
  return TAPER_OK;
}

/* Is there a norm to scan? Without one nothing is compiled. */
static bool has_live_norm(const ir_module *m) {
  arena scratch = {0};
  norm_use *norms;
  size_t n = norm_uses(m, &scratch, &norms), live = 0;
  for (size_t i = 0; i < n; i++) {
    double gate = 1;
    ir_value v = norms[i].op;
    if (norms[i].gate) ir_read_const(m, ir_operand(m, v, ir_operand_count(m, v) - 1), &gate);
    live += norms[i].role != 0 && gate == 1;
  }
  arena_free(&scratch);
  return live > 0;
}

taper_status scan_run(const scan_options *options, diag_sink *sink, scan_result *out, taper_error *error) {
  scan s = {.o = options, .r = out};
  train_job job = {0};
  train_private package = {0};
  taper_trainer_options trainer;
  taper_trainer_options_init(&trainer);
  trainer.threads = options->threads;
  taper_status status = prepare(&s, &job, sink, error);
  if (status == TAPER_OK && !has_live_norm(job.model.module)) {
    train_free(&job);
    return TAPER_OK;
  }
  if (status == TAPER_OK) status = train_package_private(&job, options->build, sink, &package, error);
  if (status == TAPER_OK) status = taper_trainer_open(package.file.opened, &trainer, &s.trainer, error);
  if (status == TAPER_OK) status = measure(&s, error);
  for (size_t i = 0; s.sums && i < out->count; i++) free(s.sums[i].r);
  taper_trainer_free(s.trainer);
  train_private_free(&package);
  train_free(&job);
  return status;
}

void scan_free(scan_result *r) {
  arena_free(&r->memory);
  *r = (scan_result){0};
}
