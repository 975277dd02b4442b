/* check A B: both compute the same ids; what differs, where it begins to differ, and whether that is within the
 * tolerance. */
#include "compiler/cli/forward.h"
#include "compiler/cli/json.h"
#include "compiler/driver/runner.h"
#include "compiler/driver/words.h"
#include "runtime/base/philox.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct check_own {
  const char *tokens, *data;
  double tol;
} check_own;

enum { KEY_TOKENS = 3000, KEY_DATA, KEY_TOL, DEFAULT_IDS = 64 };

static const struct argp_option options[] = {
    {"tokens", KEY_TOKENS, "IDS", 0,
     "the ids to compute (default: min(64, context) drawn ids, or those of the reference file)", 0},
    {"data", KEY_DATA, "FILE", 0, "compute this data, in windows of the context", 0},
    {"tol", KEY_TOL, "X", 0, "largest max|a - b| / max|b| that counts as equal (default 1e-4)", 0},
    {0}};

static void init(void *own) { ((check_own *)own)->tol = 1e-4; }

static int option(cli *c, int key, const char *value) {
  check_own *o = c->own;
  if (key == KEY_TOKENS) o->tokens = value;
  if (key == KEY_DATA) o->data = value;
  if (key == KEY_TOL) return cli_parse_real(c, "--tol", value, 0, HUGE_VAL, &o->tol);
  return CLI_OK;
}

/* One of A and B: a model that computes, or a file of what one computed. */
typedef struct side {
  const char *name;
  model_place place;
  bool is_file;
  build_opened b;
  taper_session *session;
  st_file file;
  const st_tensor *logits, *tokens;
  uint32_t vocab, width, layers; /* layers: streams that can be compared; 0: none */
  size_t context;
  float *rows, *streams; /* of the current window: [count, vocab], [layers, count, width] */
  size_t count;
} side;

typedef struct difference {
  double abs, most; /* max|a - b|, max|b| */
} difference;

typedef struct comparison {
  difference logits, *layers;
  double kl;
  size_t positions, agreed;
  bool nan;
} comparison;

/* ---- sides ---- */

static int open_file(cli *c, side *s) {
  taper_error error = {0};
  taper_status status = st_open(s->name, &s->file, &error);
  if (status != TAPER_OK) return cli_fail_status(c, status, &error, false);
  s->logits = st_find(&s->file, "logits");
  s->tokens = st_find(&s->file, "tokens");
  if (!s->logits || !s->tokens)
    return cli_fail_file(c, CLI_WRONG, s->name, "the file has no tensor '%s'; give a file that taperc logits wrote",
                         s->logits ? "tokens" : "logits");
  const st_tensor *l = s->logits, *t = s->tokens;
  bool shapes = l->rank == 2 && t->rank == 1 && l->shape[0] == t->shape[0] && l->shape[0] > 0 && l->shape[1] > 0 &&
                l->shape[1] <= INT32_MAX;
  if (!shapes || !st_dtype_is_float(l->dtype) || (t->dtype != ST_I64 && t->dtype != ST_I32))
    return cli_fail_file(
        c, CLI_WRONG, s->name,
        "tensor 'logits': is not float [T, V] beside integer tokens [T]; give a file that taperc logits wrote");
  s->vocab = (uint32_t)l->shape[1];
  s->context = l->shape[0];
  for (char name[32]; text_format(name, sizeof name, "layers.%u", s->layers) > 0; s->layers++) {
    const st_tensor *x = st_find(&s->file, name);
    if (!x) break;
    if (x->rank != 2 || x->shape[0] != l->shape[0] || !st_dtype_is_float(x->dtype) || x->shape[1] > INT32_MAX ||
        (s->width && x->shape[1] != s->width))
      return cli_fail_file(c, CLI_WRONG, s->name,
                           "tensor '%s': is not float [T, d]; give a file that taperc logits wrote", name);
    s->width = (uint32_t)x->shape[1];
  }
  return CLI_OK;
}

static bool is_reference(const model_place *place, const char *path, bool located) {
  if (located) return false;
  st_file f = {0};
  bool is = st_open(path, &f, NULL) == TAPER_OK && st_find(&f, "logits") != NULL;
  st_close(&f);
  (void)place;
  return is;
}

static int locate_side(cli *c, size_t at, side *s) {
  taper_error error = {0};
  s->name = c->args[at];
  taper_status status = model_locate(s->name, &c->memory, c->sink, &s->place, &error);
  s->is_file = is_reference(&s->place, s->name, status == TAPER_OK);
  return status == TAPER_OK || s->is_file ? CLI_OK : cli_fail_status(c, status, &error, false);
}

static bool is_bare(const side *s) {
  return !s->is_file && (s->place.kind == MODEL_SOURCE || s->place.kind == MODEL_TIR);
}

static int open_side(cli *c, side *s) {
  if (s->is_file) return open_file(c, s);
  const char *weights = c->model.weights;
  if (!is_bare(s)) c->model.weights = NULL; /* a folder has its own */
  int bad = cli_open_place(c, &s->place, &s->b);
  c->model.weights = weights;
  if (!bad) bad = cli_session(c, &s->b, "-c", 0, &s->session);
  if (bad) return bad;
  taper_model_info info = {.size = sizeof info};
  taper_model_get_info(s->b.model, &info);
  s->vocab = info.vocab, s->width = info.width, s->layers = info.probes, s->context = info.context;
  return CLI_OK;
}

static void close_side(side *s) {
  taper_session_free(s->session);
  build_close(&s->b);
  st_close(&s->file);
  free(s->rows), free(s->streams);
}

/* ---- one window ---- */

static void on_logits(void *user, size_t position, const float *row) {
  side *s = user;
  memcpy(s->rows + position * s->vocab, row, s->vocab * sizeof *row);
}

static void on_layer(void *user, uint32_t layer, size_t position, const float *row) {
  side *s = user;
  memcpy(s->streams + ((size_t)layer * s->count + position) * s->width, row, s->width * sizeof *row);
}

static int compute_side(cli *c, side *s, const int32_t *ids, size_t n, float *buffer) {
  if (s->count != n) {
    free(s->rows), free(s->streams);
    s->rows = calloc(n * s->vocab, sizeof *s->rows);
    s->streams = calloc((size_t)s->layers * n * s->width + 1, sizeof *s->streams);
    s->count = n;
    if (!s->rows || !s->streams)
      return cli_fail(c, CLI_ENVIRONMENT, "no memory for the logits of %zu positions; give fewer ids", n);
  }
  if (!s->is_file) {
    forward_sink sink = {s, on_logits, s->layers ? on_layer : NULL};
    return forward_window(c, s->session, s->vocab, ids, n, buffer, &sink);
  }
  st_read_f32(s->logits, 0, n * s->vocab, s->rows);
  for (uint32_t i = 0; i < s->layers; i++) {
    char name[32];
    text_format(name, sizeof name, "layers.%u", i);
    st_read_f32(st_find(&s->file, name), 0, n * s->width, s->streams + (size_t)i * n * s->width);
  }
  return CLI_OK;
}

static void compare_rows(difference *d, bool *nan, const float *a, const float *b, size_t n) {
  for (size_t i = 0; i < n; i++) {
    double x = a[i], y = b[i];
    if (!isfinite(x) || !isfinite(y)) *nan = true;
    d->abs = fmax(d->abs, fabs(x - y));
    d->most = fmax(d->most, fabs(y));
  }
}

static size_t best_of(const float *row, uint32_t vocab) {
  size_t best = 0;
  for (size_t i = 1; i < vocab; i++)
    if (row[i] > row[best]) best = i;
  return best;
}

/* KL(b || a): what b's reader loses by being given a. */
static double divergence(const float *a, const float *b, uint32_t vocab) {
  double za = runner_log_sum_exp(a, vocab), zb = runner_log_sum_exp(b, vocab), sum = 0;
  for (uint32_t i = 0; i < vocab; i++) {
    double log_b = (double)b[i] - zb;
    sum += exp(log_b) * (log_b - ((double)a[i] - za));
  }
  return sum > 0 ? sum : 0;
}

static void compare_window(const side *a, const side *b, uint32_t layers, comparison *r) {
  for (size_t t = 0; t < a->count; t++) {
    const float *x = a->rows + t * a->vocab, *y = b->rows + t * a->vocab;
    compare_rows(&r->logits, &r->nan, x, y, a->vocab);
    r->kl += divergence(x, y, a->vocab);
    r->agreed += best_of(x, a->vocab) == best_of(y, a->vocab);
  }
  r->positions += a->count;
  for (uint32_t i = 0; i < layers; i++) {
    size_t at = (size_t)i * a->count * a->width;
    compare_rows(&r->layers[i], &r->nan, a->streams + at, b->streams + at, a->count * a->width);
  }
}

static double relative(difference d) { return d.abs > 0 ? d.abs / d.most : 0; } /* infinite where b is all zeros */

/* ---- ids ---- */

static int drawn_ids(cli *c, size_t n, uint32_t vocab, cli_ids *out) {
  out->ids = malloc(n * sizeof *out->ids);
  if (!out->ids) return cli_fail(c, CLI_ENVIRONMENT, "no memory for %zu ids", n);
  for (out->count = 0; out->count < n; out->count++) {
    uint32_t bits[4];
    philox4x32(0, PHILOX_CHECK, 0, (uint32_t)out->count, 0, bits);
    out->ids[out->count] = (int32_t)(philox_uniform(bits[0]) * vocab);
  }
  return CLI_OK;
}

static int file_ids(cli *c, const side *file, cli_ids *out) {
  out->ids = malloc(file->context * sizeof *out->ids);
  if (!out->ids) return cli_fail(c, CLI_ENVIRONMENT, "no memory for %zu ids", file->context);
  for (out->count = 0; out->count < file->context; out->count++) {
    double id;
    st_read_f64(file->tokens, out->count, 1, &id);
    out->ids[out->count] = id >= 0 && id <= INT32_MAX ? (int32_t)id : -1;
  }
  return cli_check_ids(c, (cli_where){.file = file->name}, out, file->vocab);
}

static int find_ids(cli *c, const check_own *o, const side *a, const side *b, cli_ids *out) {
  const side *file = b->is_file ? b : a->is_file ? a : NULL;
  if (file && (o->tokens || o->data))
    return cli_fail(c, CLI_USAGE, "option '%s' acts on nothing: %s has its own ids; leave it out",
                    o->tokens ? "--tokens" : "--data", file->name);
  if (file) return file_ids(c, file, out);
  if (o->data) return cli_read_data(c, &a->b, o->data, out);
  if (!o->tokens) return drawn_ids(c, a->context < DEFAULT_IDS ? a->context : DEFAULT_IDS, a->vocab, out);
  cli_where where = {.option = "option '--tokens'"};
  int bad = cli_parse_ids(c, where, o->tokens, strlen(o->tokens), out);
  return bad ? bad : cli_check_ids(c, where, out, a->vocab);
}

/* ---- the answer ---- */

/* The part that disabled norms have in a difference: the larger of the two sides'. */
static int disabled_error(cli *c, const side *a, const side *b, const int32_t *ids, size_t n, double *out) {
  const side *const sides[] = {a, b};
  *out = NAN;
  for (size_t i = 0; i < 2; i++) {
    const side *s = sides[i];
    if (s->is_file || s->b.source.disabled_norms == 0) continue;
    model_loaded m = {0};
    taper_error error = {0};
    double found = 0;
    diag_sink *quiet = diag_sink_new(); /* all of it was said when the side was opened */
    taper_status status = model_load(&s->place, &c->model, quiet, &m, &error);
    if (status == TAPER_OK) status = model_disabled_error(&m, ids, n, &found, &error);
    model_free(&m);
    diag_sink_free(quiet);
    if (status != TAPER_OK) return cli_fail_status(c, status, &error, false);
    *out = isnan(*out) ? found : fmax(*out, found);
  }
  return CLI_OK;
}

static void put_number(text *t, const char *name, double value) {
  text_printf(t, "%-20s ", name);
  if (isnan(value))
    text_puts(t, "-");
  else
    words_put_number(t, value);
  text_puts(t, "\n");
}

static void put_answer(const cli *c, const check_own *o, const comparison *r, int first, double disabled, bool yes) {
  json_out j = {0};
  double kl = r->kl / (double)r->positions, agree = (double)r->agreed / (double)r->positions,
         rel = r->nan ? (double)NAN : relative(r->logits);
  if (c->json) {
    json_open(&j, NULL, '{');
    json_number(&j, "max_abs", r->nan ? (double)NAN : r->logits.abs);
    json_number(&j, "max_rel", rel);
    json_number(&j, "tol", o->tol);
    json_number(&j, "first_departing_layer", first < 0 ? (double)NAN : first);
    json_number(&j, "kl_mean", kl);
    json_number(&j, "argmax_agreement", agree);
    json_number(&j, "disabled_norm_error", disabled);
    json_whole(&j, "positions", r->positions);
    json_bool(&j, "equal", yes);
    json_close(&j, '}');
    text_puts(&j.t, "\n");
  } else {
    put_number(&j.t, "max_abs", r->nan ? (double)NAN : r->logits.abs);
    put_number(&j.t, "max_rel", rel);
    put_number(&j.t, "kl_mean", kl);
    put_number(&j.t, "argmax_agreement", agree);
    put_number(&j.t, "first_departing_layer", first < 0 ? (double)NAN : first);
    if (!isnan(disabled)) put_number(&j.t, "disabled_norm_error", disabled);
    text_printf(&j.t, "%s: max_rel is %s the tolerance of ", yes ? "yes" : "no", yes ? "within" : "over");
    words_put_number(&j.t, o->tol);
    text_printf(&j.t, " over %zu positions\n", r->positions);
  }
  cli_put(j.t.data, j.t.size);
  text_free(&j.t);
}

static int compare(cli *c, const check_own *o, side *a, side *b, const cli_ids *ids) {
  size_t span = a->context < b->context ? a->context : b->context;
  uint32_t layers = a->layers == b->layers && a->width == b->width ? a->layers : 0;
  comparison r = {.layers = ARENA_ARRAY(&c->memory, difference, layers + 1)};
  if ((a->is_file || b->is_file || o->tokens) && ids->count > span)
    return cli_fail(c, CLI_WRONG, "%zu ids do not fit the context of %zu; give fewer", ids->count, span);
  if (!layers && (a->layers || b->layers))
    cli_say(c, "layers are not compared: %u of width %u against %u of width %u", a->layers, a->width, b->layers,
            b->width);
  float *buffer = forward_buffer(c, a->vocab);
  int bad = buffer ? CLI_OK : CLI_ENVIRONMENT;
  for (size_t at = 0; !bad && at < ids->count; at += span) {
    size_t n = ids->count - at < span ? ids->count - at : span;
    bad = compute_side(c, a, ids->ids + at, n, buffer);
    if (!bad) bad = compute_side(c, b, ids->ids + at, n, buffer);
    if (!bad) compare_window(a, b, layers, &r);
    cli_progress("check", at + n, ids->count);
  }
  free(buffer);
  double disabled = NAN;
  if (!bad) bad = disabled_error(c, a, b, ids->ids, ids->count < span ? ids->count : span, &disabled);
  if (bad) return bad;
  int first = -1;
  for (uint32_t i = 0; i < layers && first < 0; i++)
    if (!(relative(r.layers[i]) <= o->tol)) first = (int)i;
  bool yes = !r.nan && relative(r.logits) <= o->tol;
  put_answer(c, o, &r, first, disabled, yes);
  return yes ? CLI_OK : CLI_NO;
}

/* Options of a compilation need something to compile; those of a run something that runs. */
static int check_sides(cli *c, const side *a, const side *b) {
  bool compiles = (!a->is_file && a->place.kind != MODEL_PACKAGE) || (!b->is_file && b->place.kind != MODEL_PACKAGE);
  if (a->is_file && b->is_file) return cli_fail(c, CLI_USAGE, "neither A nor B is a model; give at least one");
  if (c->model.weights && !is_bare(a) && !is_bare(b))
    return cli_fail(c, CLI_USAGE,
                    "option '--weights' acts on nothing: neither A nor B is a bare .tmodel; leave it out");
  for (unsigned i = 0; i < CLI_GROUPS && !compiles; i++)
    if (c->given & (1u << i) & (CLI_ACT_MODEL | CLI_ACT_WEIGHTS | CLI_ACT_BUILD | CLI_ACT_CC | CLI_ACT_REMARKS))
      return cli_fail(c, CLI_USAGE, "option '%s' acts on nothing: neither A nor B is compiled here; leave it out",
                      c->given_name[i]);
  return CLI_OK;
}

static int run(cli *c) {
  check_own *o = c->own;
  side a = {0}, b = {0};
  cli_ids ids = {0};
  c->model.need_weights = true;
  if (o->tokens && o->data) return cli_fail(c, CLI_USAGE, "both --tokens and --data were given; give one");
  int bad = locate_side(c, 0, &a);
  if (!bad) bad = locate_side(c, 1, &b);
  if (!bad) bad = check_sides(c, &a, &b);
  if (!bad) bad = open_side(c, &a);
  if (!bad) bad = open_side(c, &b);
  if (!bad && a.vocab != b.vocab)
    bad = cli_fail(c, CLI_WRONG, "%s has a vocabulary of %u, %s of %u; give models of one vocabulary", a.name, a.vocab,
                   b.name, b.vocab);
  if (!bad) bad = find_ids(c, o, &a, &b, &ids);
  if (!bad) cli_flush(c);
  if (!bad) bad = compare(c, o, &a, &b, &ids);
  cli_flush(c);
  cli_ids_free(&ids);
  close_side(&a), close_side(&b);
  return bad;
}

const cli_command cli_cmd_check = {
    .name = "check",
    .args = "A B",
    .summary = "compare the logits of two models, or of a model and a reference file",
    .min_args = 2,
    .max_args = 2,
    .details = "A and B are MODELs; one may be a file that logits wrote. max_rel is max|a - b| / "
               "max|b|. Exit status 4: over the tolerance.",
    .acts =
        CLI_ACT_MODEL | CLI_ACT_WEIGHTS | CLI_ACT_BUILD | CLI_ACT_CC | CLI_ACT_THREADS | CLI_ACT_DEVICE | CLI_ACT_RUN,
    .options = options,
    .own_size = sizeof(check_own),
    .init = init,
    .option = option,
    .run = run};
