#include "compiler/driver/runner.h"
#include <math.h>
#include <stdlib.h>

enum { SAMPLE_POSITIONS = 1 << 15, SAMPLE_WINDOW = 256 };

taper_status runner_open(taper_model *model, bool layer_form, uint32_t rows, runner *out, taper_error *error) {
  taper_model_info info = {.size = sizeof info};
  *out = (runner){0};
  taper_model_get_info(model, &info);
  if (info.probes == 0)
    return TAPER_FAIL(error, TAPER_UNSUPPORTED, "model '%s' keeps no layer outputs in memory; compile it with -O1",
                      info.name);
  *out = (runner){.layer_form = layer_form,
                  .vocab = info.vocab,
                  .context = info.context,
                  .width = info.width,
                  .last_layer = info.probes - 1,
                  .rows = rows};
  out->logits = malloc((size_t)rows * info.vocab * sizeof *out->logits);
  out->scales = malloc(rows * sizeof *out->scales);
  if (!out->logits || !out->scales)
    return TAPER_FAIL(error, TAPER_NOMEM, "no memory for the logits of %u positions; free some", rows);
  return taper_session_new(model, NULL, &out->session, error);
}

void runner_close(runner *r) {
  taper_session_free(r->session);
  free(r->logits), free(r->scales);
  *r = (runner){0};
}

static void on_layer(void *user, uint32_t layer, size_t position, const float *row) {
  runner *r = user;
  if (layer != r->last_layer || position < r->first || position - r->first >= r->rows) return;
  double mean = 0, square = 0;
  for (uint32_t i = 0; r->layer_form && i < r->width; i++) mean += (double)row[i];
  mean /= r->width;
  for (uint32_t i = 0; i < r->width; i++) square += ((double)row[i] - mean) * ((double)row[i] - mean);
  r->scales[position - r->first] = sqrt(square / r->width);
}

double runner_log_sum_exp(const float *logits, uint32_t vocab) {
  float most = logits[0];
  for (uint32_t i = 1; i < vocab; i++)
    if (logits[i] > most) most = logits[i];
  double sum = 0; /* at least 1: the largest is among them */
  for (uint32_t i = 0; i < vocab; i++) sum += exp((double)logits[i] - (double)most);
  return (double)most + (sum > 0 ? log(sum) : 0);
}

taper_status runner_piece(runner *r, uint32_t at, const int32_t *tokens, size_t n, const int32_t *targets,
                          double *out_ce, taper_error *error) {
  taper_error failed = {0};
  TAPER_TRY(taper_session_rewind(r->session, 0, at, error));
  r->first = at;
  taper_status status =
      taper_session_append_all(r->session, 0, tokens, n, out_ce ? r->logits : NULL, on_layer, r, &failed);
  if (status == TAPER_NUMERIC) {
    for (size_t i = 0; i < n; i++) r->scales[i] = (double)INFINITY;
    if (out_ce) *out_ce = (double)INFINITY;
    return TAPER_OK;
  }
  if (status != TAPER_OK) return TAPER_FAIL(error, status, "%s", failed.message);
  if (!out_ce) return TAPER_OK;
  *out_ce = 0;
  for (size_t i = 0; i < n; i++) {
    const float *row = r->logits + i * r->vocab;
    *out_ce += runner_log_sum_exp(row, r->vocab) - (double)row[targets[i]];
  }
  return TAPER_OK;
}

double runner_largest(const runner *r, size_t n) {
  double most = 0;
  for (size_t i = 0; i < n; i++)
    if (!(r->scales[i] <= most)) most = r->scales[i];
  return most;
}

/* ---- a sample of the data ---- */

static int rising(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

typedef struct sampling {
  const corpus *data;
  corpus_part part;
  uint64_t count, windows;
  uint32_t span; /* positions of a window */
  double *scales;
  double sum;
  uint64_t positions;
} sampling;

static taper_status sample_window(runner *r, sampling *s, uint64_t j, int32_t *ids, taper_error *error) {
  uint64_t last = s->count - 1 - s->span, first = s->windows > 1 ? j * last / (s->windows - 1) : 0;
  corpus_read(s->data, s->part, first, s->span + 1, ids);
  for (uint32_t at = 0; at < s->span; at += r->rows) {
    size_t n = s->span - at < r->rows ? s->span - at : r->rows;
    double ce;
    TAPER_TRY(runner_piece(r, at, ids + at, n, ids + at + 1, &ce, error));
    s->sum += ce;
    for (size_t i = 0; i < n; i++) s->scales[s->positions++] = r->scales[i];
    if (!isfinite(ce)) return TAPER_OK; /* nothing was appended: the rest of the window has no past */
  }
  return TAPER_OK;
}

taper_status runner_take_sample(taper_model *model, bool layer_form, const corpus *data, corpus_part part,
                                runner_progress progress, void *user, runner_sample *out, taper_error *error) {
  runner r;
  sampling s = {.data = data, .part = part, .count = corpus_count(data, part)};
  *out = (runner_sample){0};
  if (s.count < 2) return TAPER_FAIL(error, TAPER_INVALID, "the data has fewer than 2 ids; give more");
  taper_status status = runner_open(model, layer_form, 64, &r, error);
  s.span = r.context < SAMPLE_WINDOW ? r.context : SAMPLE_WINDOW;
  if (s.span > s.count - 1) s.span = (uint32_t)(s.count - 1);
  s.windows = status == TAPER_OK ? (s.count - 1) / s.span : 0;
  if (status == TAPER_OK && s.windows > SAMPLE_POSITIONS / s.span) s.windows = SAMPLE_POSITIONS / s.span;
  int32_t *ids = malloc((s.span + 1) * sizeof *ids);
  s.scales = malloc((s.windows * s.span + 1) * sizeof *s.scales);
  if (status == TAPER_OK && (!ids || !s.scales))
    status = TAPER_FAIL(error, TAPER_NOMEM, "no memory for a sample of the data; free some");
  for (uint64_t j = 0; status == TAPER_OK && j < s.windows; j++) {
    status = sample_window(&r, &s, j, ids, error);
    if (progress) progress(user, "sample", j + 1, s.windows);
  }
  if (status == TAPER_OK) {
    qsort(s.scales, s.positions, sizeof *s.scales, rising);
    uint64_t high = (uint64_t)ceil(0.999 * (double)s.positions);
    *out = (runner_sample){.ce = s.sum / (double)s.positions,
                           .median = s.scales[(s.positions - 1) / 2],
                           .high = s.scales[high ? high - 1 : 0],
                           .positions = s.positions};
  }
  free(ids), free(s.scales);
  runner_close(&r);
  return status;
}
