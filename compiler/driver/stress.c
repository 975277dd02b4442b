#include "compiler/driver/stress.h"
#include "compiler/analysis/readers.h"
#include "compiler/analysis/token_rows.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_CONTEXTS = 8, MOST_NEXT = 8, MOST_PREFIX = 32, CANDIDATES = 64, BUDGET = 1 << 18, MOST_AGAIN = 1024 };
enum { PIECE = MOST_PREFIX > MOST_NEXT ? MOST_PREFIX : MOST_NEXT };
/* An id that costs the next tokens this much more than a usual id in its place (e^3 = 20 times less likely) is harm. */
#define HARM_NATS 3.0
/* What a clamp may cost on the data itself, as a share of its loss. */
#define MOST_COST 0.01

static const double clamps[] = {2, 1.5, 1.2, 1};

typedef struct stress {
  const stress_options *o;
  diag_sink *sink;
  stress_result *r;
  uint32_t vocab;
  unsigned char *used;
  int32_t *ids; /* [contexts][prefix + 1 + next]; of all candidates until the typical ones are chosen */
  double *base; /* loss of the next tokens behind the true one */
  uint32_t candidates;
  double sample_ce;
  runner_sample sample; /* of the last clamp */
} stress;

static int by_harm(const void *a, const void *b) {
  const stress_token *x = a, *y = b;
  if (x->dloss != y->dloss) return x->dloss < y->dloss ? 1 : -1;
  if (x->scale_ratio != y->scale_ratio) return x->scale_ratio < y->scale_ratio ? 1 : -1;
  return (x->id > y->id) - (x->id < y->id);
}

static int rising(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* ---- what is known of the ids ---- */

static void count_ids(stress *s, const model_loaded *m) {
  stress_result *r = s->r;
  int32_t ids[1024];
  uint64_t all = corpus_count(s->o->data, s->o->part);
  r->seen_given = m->seen && m->seen->elements == s->vocab;
  for (uint32_t v = 0; r->seen_given && v < s->vocab; v++) {
    double times = 0;
    st_read_f64(m->seen, v, 1, &times);
    r->tokens[v].seen = times > 0 ? (uint64_t)times : 0;
  }
  for (uint64_t at = 0; !r->seen_given && at + 1 < all; at += 1024) {
    size_t n = all - 1 - at < 1024 ? (size_t)(all - 1 - at) : 1024;
    corpus_read(s->o->data, s->o->part, at, n, ids);
    for (size_t i = 0; i < n; i++) r->tokens[ids[i]].seen++;
  }
  for (uint32_t v = 0; v < s->vocab; v++) s->used[v] = r->tokens[v].seen > 0;
}

static void measure_rows(stress *s, const ir_module *m, ir_value table) {
  ir_type type = ir_type_of(m, table);
  size_t rows = (size_t)type.dim[0], width = (size_t)type.dim[1], n = 0;
  double *values = malloc(rows * width * sizeof *values), *used = malloc(rows * sizeof *used);
  bool read = values && used && rows == s->vocab && ir_read_const(m, table, values);
  for (size_t v = 0; read && v < rows; v++) {
    double square = 0;
    for (size_t i = 0; i < width; i++) square += values[v * width + i] * values[v * width + i];
    s->r->tokens[v].row_norm_ratio = sqrt(square);
    if (s->used[v]) used[n++] = sqrt(square);
  }
  if (n) {
    qsort(used, n, sizeof *used, rising);
    for (size_t v = 0; v < rows; v++) s->r->tokens[v].row_norm_ratio /= used[(n - 1) / 2];
  }
  free(values), free(used);
}

/* What is loaded again says nothing that was not said at the first time; only its errors are handed on. */
static taper_status hand_on(const diag_sink *quiet, taper_status status, taper_error *error) {
  for (size_t i = 0; status != TAPER_OK && error && !*error->message && i < diag_count(quiet); i++)
    if (diag_at(quiet, i)->severity == DIAG_ERROR) TAPER_FAIL(error, status, "%s", diag_at(quiet, i)->message);
  return status;
}

/* From the model as it is written, before any pass. */
static taper_status know_ids(stress *s, taper_error *error) {
  model_loaded m = {0};
  arena scratch = {0};
  diag_sink *quiet = diag_sink_new();
  taper_status status = hand_on(quiet, model_load(s->o->place, s->o->model, quiet, &m, error), error);
  ir_region entry = status == TAPER_OK ? ir_entry_find(m.module, "forward") : (ir_region){0};
  if (status == TAPER_OK) count_ids(s, &m);
  for (ir_value v = entry.id ? ir_first(m.module, entry) : IR_NONE; v.id; v = ir_next(m.module, v)) {
    if (!analysis_looks_tokens_up(m.module, v)) continue;
    s->r->live_first = analysis_first_live_norm(m.module, v, &scratch).id != 0;
    measure_rows(s, m.module, analysis_leaf(m.module, ir_operand(m.module, v, 1)));
    break;
  }
  model_free(&m);
  diag_sink_free(quiet);
  arena_free(&scratch);
  return status;
}

/* ---- contexts ---- */

/* As many and as long as the budget of tokens, the model and the data allow. */
static taper_status choose_contexts(stress *s, uint32_t context, taper_error *error) {
  stress_result *r = s->r;
  uint64_t count = corpus_count(s->o->data, s->o->part);
  if (count < 2) return TAPER_FAIL(error, TAPER_INVALID, "the data has fewer than 2 ids; give more");
  if (!context || !s->vocab) return TAPER_FAIL(error, TAPER_INVALID, "the model has no context or no vocabulary");
  r->next = context < MOST_NEXT ? context : MOST_NEXT;
  while (r->next > 4 && (uint64_t)r->next * s->vocab > BUDGET) r->next--;
  if (r->next > count - 1) r->next = (uint32_t)(count - 1);
  r->prefix = context - r->next < MOST_PREFIX ? context - r->next : MOST_PREFIX;
  if (r->prefix > count - 1 - r->next) r->prefix = (uint32_t)(count - 1 - r->next);
  uint64_t affordable = BUDGET / ((uint64_t)r->next * s->vocab), length = r->prefix + 1 + r->next;
  r->contexts = affordable > MOST_CONTEXTS ? MOST_CONTEXTS : affordable ? (uint32_t)affordable : 1;
  s->candidates = count / length > CANDIDATES ? CANDIDATES : (uint32_t)(count / length);
  if (s->candidates == 0) s->candidates = 1;
  if (r->contexts > s->candidates) r->contexts = s->candidates;
  s->ids = ARENA_ARRAY(&r->memory, int32_t, s->candidates * length);
  s->base = ARENA_ARRAY(&r->memory, double, s->candidates);
  for (uint32_t j = 0; j < s->candidates; j++) {
    uint64_t last = count - length, first = s->candidates > 1 ? j * last / (s->candidates - 1) : last / 2;
    corpus_read(s->o->data, s->o->part, first, length, s->ids + j * length);
  }
  return TAPER_OK;
}

/* ---- one model ---- */

/* `v` in the place of context j's own token; the prefix is in the session. */
static taper_status put_id(stress *s, runner *run, uint32_t j, int32_t v, double *out_ce, double *out_scale,
                           taper_error *error) {
  const stress_result *r = s->r;
  const int32_t *ids = s->ids + (size_t)j * (r->prefix + 1 + r->next) + r->prefix;
  int32_t piece[MOST_NEXT];
  piece[0] = v;
  for (uint32_t i = 1; i < r->next; i++) piece[i] = ids[i];
  TAPER_TRY(runner_piece(run, r->prefix, piece, r->next, ids + 1, out_ce, error));
  *out_ce /= r->next;
  *out_scale = runner_largest(run, r->next);
  return TAPER_OK;
}

/* Into the session with the first tokens of context j; its loss as it stands in the data. */
static taper_status put_context(stress *s, runner *run, uint32_t j, taper_error *error) {
  const stress_result *r = s->r;
  const int32_t *ids = s->ids + (size_t)j * (r->prefix + 1 + r->next);
  double scale;
  if (r->prefix) TAPER_TRY(runner_piece(run, 0, ids, r->prefix, NULL, NULL, error));
  s->base[j] = (double)INFINITY;
  if (r->prefix && !isfinite(runner_largest(run, r->prefix))) return TAPER_OK;
  return put_id(s, run, j, ids[r->prefix], &s->base[j], &scale, error);
}

/* Typical ones: those whose loss is nearest to the median of the candidates', in the order of the data. */
static taper_status choose_typical(stress *s, taper_model *model, bool layer_form, taper_error *error) {
  stress_result *r = s->r;
  size_t length = r->prefix + 1 + r->next;
  double *sorted = ARENA_ARRAY(&r->memory, double, s->candidates);
  runner run;
  taper_status status = runner_open(model, layer_form, PIECE, &run, error);
  for (uint32_t j = 0; status == TAPER_OK && j < s->candidates; j++) status = put_context(s, &run, j, error);
  runner_close(&run);
  TAPER_TRY(status);
  memcpy(sorted, s->base, s->candidates * sizeof *sorted);
  qsort(sorted, s->candidates, sizeof *sorted, rising);
  double median = sorted[(s->candidates - 1) / 2];
  if (!isfinite(median))
    return TAPER_FAIL(error, TAPER_NUMERIC, "the data itself drives the logits out of range; try --clamp-rows on it");
  for (uint32_t j = 0; j < s->candidates; j++) sorted[j] = fabs(s->base[j] - median);
  qsort(sorted, s->candidates, sizeof *sorted, rising);
  double farthest = sorted[r->contexts - 1];
  uint32_t n = 0;
  for (uint32_t j = 0; j < s->candidates && n < r->contexts; j++) {
    if (!(fabs(s->base[j] - median) <= farthest)) continue;
    memmove(s->ids + n * length, s->ids + j * length, length * sizeof *s->ids);
    n++;
  }
  return TAPER_OK;
}

/* The ids of tokens[0..n) behind every context: scale_ratio and dloss. */
static taper_status measure(stress *s, taper_model *model, bool layer_form, stress_token *tokens, size_t n,
                            const char *what, taper_error *error) {
  const stress_result *r = s->r;
  runner run;
  taper_status status = runner_open(model, layer_form, PIECE, &run, error);
  for (size_t i = 0; i < n; i++) tokens[i].scale_ratio = tokens[i].dloss = 0;
  for (uint32_t j = 0; status == TAPER_OK && j < r->contexts; j++) {
    double ce, scale;
    status = put_context(s, &run, j, error);
    for (size_t i = 0; status == TAPER_OK && i < n; i++) {
      status = put_id(s, &run, j, tokens[i].id, &ce, &scale, error);
      if (!(scale / r->median <= tokens[i].scale_ratio)) tokens[i].scale_ratio = scale / r->median;
      tokens[i].dloss += (ce - s->base[j]) / r->contexts;
      if (s->o->progress && i % 64 == 63) s->o->progress(s->o->user, what, j * n + i, r->contexts * n);
    }
  }
  if (s->o->progress) s->o->progress(s->o->user, what, 1, 1);
  runner_close(&run);
  return status;
}

static stress_try sum_up(const stress *s, const stress_token *tokens, size_t n, double k, double ce) {
  stress_try t = {.k = k, .ce = ce};
  for (size_t i = 0; i < n; i++) {
    if (!(tokens[i].scale_ratio <= t.worst_ratio)) t.worst_ratio = tokens[i].scale_ratio;
    if (!(tokens[i].dloss <= t.worst_dloss)) t.worst_dloss = tokens[i].dloss;
    t.over += !(tokens[i].dloss <= s->r->limit);
  }
  return t;
}

/* What an id costs as a rule: the median over those that training knows. */
static void find_limit(stress *s) {
  stress_result *r = s->r;
  double *known = ARENA_ARRAY(&r->memory, double, s->vocab);
  size_t n = 0;
  for (uint32_t v = 0; v < s->vocab; v++)
    if (s->used[v]) known[n++] = r->tokens[v].dloss;
  qsort(known, n, sizeof *known, rising);
  r->usual = n ? known[(n - 1) / 2] : 0;
  r->limit = (r->usual > 0 ? r->usual : 0) + HARM_NATS;
}

static taper_status measure_plain(stress *s, taper_error *error) {
  build_options build = *s->o->build;
  build_opened b = {0};
  runner_sample sample = {0};
  taper_model_info info = {.size = sizeof info};
  stress_result *r = s->r;
  build.pass.clamp_rows = 0;
  taper_status status = build_open(s->o->place, s->o->model, &build, s->o->runtime, s->sink, &b, error);
  if (status == TAPER_OK) {
    taper_model_get_info(b.model, &info);
    s->vocab = info.vocab;
    r->norm_removed = b.source.norm_removed;
    r->count = s->vocab;
    r->tokens = ARENA_ARRAY(&r->memory, stress_token, s->vocab);
    s->used = ARENA_ARRAY(&r->memory, unsigned char, s->vocab);
    for (uint32_t v = 0; v < s->vocab; v++) r->tokens[v].id = (int32_t)v;
    status = know_ids(s, error);
  }
  if (status == TAPER_OK)
    status = runner_take_sample(b.model, b.source.layer_form, s->o->data, s->o->part, s->o->progress, s->o->user,
                                &sample, error);
  if (status == TAPER_OK) {
    r->scale_given = b.source.scale_median > 0;
    r->median = r->scale_given ? b.source.scale_median : sample.median;
    r->high = b.source.scale_high;
    status = choose_contexts(s, info.context, error);
  }
  if (status == TAPER_OK) status = choose_typical(s, b.model, b.source.layer_form, error);
  if (status == TAPER_OK) status = measure(s, b.model, b.source.layer_form, r->tokens, r->count, "stress", error);
  if (status == TAPER_OK) {
    find_limit(s);
    s->sample_ce = sample.ce;
    r->calm = sample;
    r->tries[r->try_count++] = sum_up(s, r->tokens, r->count, 0, sample.ce);
    qsort(r->tokens, r->count, sizeof *r->tokens, by_harm);
  }
  build_close(&b);
  return status;
}

/* ---- clamps ---- */

/* The ids that did harm, at most MOST_AGAIN of them, spread over the ranks. */
static size_t harmful(const stress *s, stress_token *out) {
  size_t over = s->r->tries[0].over, n = over < MOST_AGAIN ? over : MOST_AGAIN;
  for (size_t i = 0; i < n; i++) out[i] = s->r->tokens[n > 1 ? i * (over - 1) / (n - 1) : 0];
  return n;
}

static taper_status try_clamp(stress *s, double k, stress_token *again, size_t n, taper_error *error) {
  build_options build = *s->o->build;
  build_opened b = {0};
  stress_result *r = s->r;
  char what[32];
  text_format(what, sizeof what, "clamp %g", k);
  build.pass.clamp_rows = k;
  build.pass.used_rows = s->used, build.pass.used_count = s->vocab;
  diag_sink *quiet = diag_sink_new();
  taper_status status = build_open(s->o->place, s->o->model, &build, s->o->runtime, quiet, &b, error);
  status = hand_on(quiet, status, error);
  if (status == TAPER_OK)
    status = runner_take_sample(b.model, b.source.layer_form, s->o->data, s->o->part, s->o->progress, s->o->user,
                                &s->sample, error);
  if (status == TAPER_OK) status = measure(s, b.model, b.source.layer_form, again, n, what, error);
  if (status == TAPER_OK) r->tries[r->try_count++] = sum_up(s, again, n, k, s->sample.ce);
  build_close(&b);
  diag_sink_free(quiet);
  return status;
}

static taper_status find_clamp(stress *s, taper_error *error) {
  stress_result *r = s->r;
  r->mended = r->tries[0].over == 0;
  if (r->mended || r->live_first) return TAPER_OK;
  stress_token *again = ARENA_ARRAY(&r->memory, stress_token, MOST_AGAIN);
  size_t n = harmful(s, again);
  for (size_t i = 0; i < sizeof clamps / sizeof *clamps && !r->mended; i++) {
    TAPER_TRY(try_clamp(s, clamps[i], again, n, error));
    const stress_try *t = &r->tries[r->try_count - 1];
    r->mended = t->over == 0 && !(t->ce > s->sample_ce * (1 + MOST_COST));
    if (r->mended) r->clamp_rows = t->k, r->calm = s->sample;
  }
  return TAPER_OK;
}

taper_status stress_run(const stress_options *options, diag_sink *sink, stress_result *out, taper_error *error) {
  stress s = {.o = options, .sink = sink, .r = out};
  if (options->place->kind == MODEL_PACKAGE)
    return TAPER_FAIL(error, TAPER_INVALID, "%s: a package holds folded weights; give the model that it was made of",
                      options->place->path);
  TAPER_TRY(measure_plain(&s, error));
  double high = out->high;
  TAPER_TRY(find_clamp(&s, error));
  out->high = out->scale_given ? high : out->calm.high;
  return TAPER_OK;
}

void stress_free(stress_result *r) {
  arena_free(&r->memory);
  *r = (stress_result){0};
}
