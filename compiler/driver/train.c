/* MODEL -> a module with parameters and their initial data, and the source that says it alone. */
#include "compiler/driver/train.h"
#include "compiler/analysis/taper_gates.h"
#include "compiler/analysis/token_rows.h"
#include "compiler/driver/initial.h"
#include "compiler/driver/model_priv.h"
#include "runtime/base/file.h"
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { SOURCE_LIMIT = 64 << 20 };

typedef struct preparation {
  train_job *job;
  const model_place *place;
  const model_options *options;
  const train_settings *settings;
  diag_sink *sink;
  taper_error *error;
  front_options front;
  const char *weights; /* what the run starts from, or NULL */
  const char *folder;  /* of --init, or NULL */
} preparation;

static taper_status in_sink(taper_error *error) {
  error->message[0] = 0;
  return TAPER_INVALID;
}

/* ---- the weights to start from ---- */

static bool is_weights(const char *path) {
  size_t n = strlen(path);
  static const char *const ends[] = {".safetensors", ".safetensors.index.json"};
  for (size_t i = 0; i < 2; i++) {
    size_t m = strlen(ends[i]);
    if (n > m && strcmp(path + n - m, ends[i]) == 0) return true;
  }
  return false;
}

static bool holds(const char *folder, const char *name, arena *a) {
  struct stat s;
  return stat(arena_printf(a, "%s/%s", folder, name), &s) == 0;
}

/* A folder that holds weights alone. */
static bool is_weights_folder(const char *path, arena *a) {
  return !holds(path, "model.tmodel", a) &&
         (holds(path, "weights.safetensors", a) || holds(path, "model.safetensors", a) ||
          holds(path, "model.safetensors.index.json", a));
}

static taper_status find_weights(preparation *p) {
  const char *init = p->settings->init, *own = p->options->weights ? p->options->weights : p->place->weights;
  train_job *job = p->job;
  arena *a = &job->memory;
  p->weights = own;
  if (init && (is_weights(init) || is_weights_folder(init, a))) {
    p->weights = init;
    if (is_weights_folder(init, a)) p->folder = init;
  } else if (init) {
    model_place at;
    TAPER_TRY(model_locate(init, a, p->sink, &at, p->error));
    if (at.kind == MODEL_PACKAGE)
      return TAPER_FAIL(p->error, TAPER_INVALID,
                        "%s: the weights of a package are folded; give the model that it was made of", init);
    if (!at.weights)
      return TAPER_FAIL(p->error, TAPER_INVALID, "%s: the model has no weights to start from; give one that has", init);
    p->weights = at.weights, p->folder = at.folder;
  }
  if (init && own && strcmp(own, p->weights) != 0)
    diag_report(p->sink, DC_SAID, (diag_loc){.file = diag_intern(p->sink, own)},
                "these weights are not read: the run starts from --init");
  return TAPER_OK;
}

/* ---- live norms that become taper norms ---- */

static bool same_place(diag_loc a, diag_loc b) { return a.line == b.line && a.col == b.col; }

/* One call of the source may stand for norms of several kinds; then none of them can change. */
static taper_status check_call(const preparation *p, const ir_module *m, const norm_use *norms, size_t n, ir_value op,
                               unsigned wanted) {
  diag_loc loc = ir_loc_of(m, op);
  ir_region entry = ir_entry_find(m, "forward");
  for (ir_value v = ir_first(m, entry); v.id; v = ir_next(m, v)) {
    if (!ir_op_has(ir_opcode_of(m, v), OPF_NORM) || !same_place(ir_loc_of(m, v), loc)) continue;
    size_t i = 0;
    while (i < n && !ir_same(norms[i].op, v)) i++;
    if (i < n && (norms[i].role & wanted)) continue;
    loc.file = diag_intern(p->sink, loc.file);
    diag_report(p->sink, DC_MODEL_FILE, loc,
                "this call stands for norms that are to be tapered and for %s; write two calls, one for each",
                i < n ? "one that is not" : "norms that do not read the residual stream");
    return in_sink(p->error);
  }
  return TAPER_OK;
}

static taper_status list_calls(const preparation *p, const front_model *f, const ir_module *m, unsigned wanted,
                               front_taper_norm **out, size_t *out_n) {
  arena *a = &p->job->memory;
  norm_use *norms;
  size_t n = norm_uses(m, a, &norms), count = 0;
  front_taper_norm *calls = ARENA_ARRAY(a, front_taper_norm, n + 1);
  const char *inner = front_gate_name(f, "internal", a), *outer = front_gate_name(f, "final", a);
  for (size_t i = 0; i < n; i++) {
    if (norms[i].gate || !(norms[i].role & wanted)) continue;
    diag_loc loc = ir_loc_of(m, norms[i].op);
    size_t k = 0;
    while (k < count && !same_place(calls[k].loc, loc)) k++;
    const char *gate = norms[i].role == TRAIN_ROLE_FINAL ? outer : inner;
    p->job->new_norms++;
    if (k < count && strcmp(calls[k].gate, gate) != 0) calls[k].gate = inner; /* one gate for both kinds */
    if (k < count) continue;
    TAPER_TRY(check_call(p, m, norms, n, norms[i].op, wanted));
    calls[count++] = (front_taper_norm){loc, gate};
  }
  *out = calls, *out_n = count;
  return TAPER_OK;
}

/* What the source says is told once, when its final form is read: here into a sink of its own. */
static taper_status rewrite_source(preparation *p, const char *written, size_t size, diag_sink *quiet) {
  unsigned wanted = train_variant_roles(p->settings->variant);
  front_taper_norm *calls = NULL;
  size_t n = 0;
  front_model *f = front_parse(written, size, p->place->source, &p->front, quiet);
  ir_module *m = f && wanted ? front_lower(f, &p->front, quiet) : NULL;
  taper_status status = f && (m || !wanted) ? TAPER_OK : in_sink(p->error);
  if (m) status = list_calls(p, f, m, wanted, &calls, &n);
  if (status == TAPER_OK) {
    text t = {0};
    front_rewrite(f, p->front.defines, p->front.define_count, calls, n, &t);
    if (t.failed) status = TAPER_FAIL(p->error, TAPER_NOMEM, "no memory for the source of the model; free some");
    p->job->source_size = t.size;
    p->job->source = arena_strndup(&p->job->memory, t.data ? t.data : "", t.size);
    text_free(&t);
  }
  ir_module_free(m);
  front_free(f);
  return status;
}

/* The source with the options of -D in it and, where a variant asks for it, taper norms in place of live ones. */
static taper_status make_source(preparation *p, const char *written, size_t size) {
  diag_sink *quiet = diag_sink_new();
  taper_status status = rewrite_source(p, written, size, quiet);
  bool wrong = diag_error_count(quiet) != 0;
  diag_sink_free(quiet);
  if (!wrong) return status;
  front_model *f = front_parse(written, size, p->place->source, &p->front, p->sink);
  ir_module_free(f ? front_lower(f, &p->front, p->sink) : NULL);
  front_free(f);
  return in_sink(p->error);
}

static taper_status read_source(preparation *p) {
  char *written = NULL;
  size_t size = 0;
  TAPER_TRY(file_read(p->place->source, SOURCE_LIMIT, &written, &size, p->error));
  front_define *defines = ARENA_ARRAY(&p->job->memory, front_define, p->options->define_count + 1);
  for (size_t i = 0; i < p->options->define_count; i++)
    defines[i] = (front_define){p->options->defines[i].name, p->options->defines[i].value};
  p->front = (front_options){.defines = defines,
                             .define_count = p->options->define_count,
                             .train = true,
                             .steps = (int64_t)p->settings->steps,
                             .sequence = (int64_t)p->settings->sequence};
  taper_status status = make_source(p, written, size);
  free(written);
  return status;
}

/* ---- all of it ---- */

static taper_status load(preparation *p) {
  train_job *job = p->job;
  model_options options = *p->options;
  options.weights = p->weights;
  options.need_weights = p->weights != NULL;
  options.defines = NULL, options.define_count = 0; /* they stand in the source now */
  options.train = true;
  options.text = job->source, options.text_size = job->source_size;
  model_place place = *p->place;
  place.weights = NULL;
  return model_load(&place, &options, p->sink, &job->model, p->error);
}

/* At gates 0 no norm may stand before the first op that sees the rows as large as they are. */
static taper_status check_clamp(const preparation *p) {
  const train_job *job = p->job;
  const ir_module *m = job->model.module;
  arena scratch = {0};
  ir_value norm = IR_NONE;
  ir_region entry = ir_entry_find(m, "forward");
  for (ir_value v = ir_first(m, entry); v.id && !norm.id; v = ir_next(m, v))
    if (analysis_looks_tokens_up(m, v)) norm = analysis_first_live_norm(m, v, &scratch);
  taper_norm *tapers;
  size_t n = norm.id ? analysis_taper_norms(m, &scratch, &tapers) : 0;
  bool stays = norm.id != 0;
  for (size_t i = 0; i < n; i++)
    for (size_t g = 0; g < job->gate_count && ir_same(tapers[i].norm, norm); g++)
      if (strcmp(ir_attr_string(m, tapers[i].gate, IR_ATTR_NAME, ""), job->gates[g]) == 0) stays = false;
  const char *name = norm.id ? arena_strdup(&p->job->memory, ir_name_of(m, norm) ? ir_name_of(m, norm) : "?") : "";
  arena_free(&scratch);
  if (!stays) return TAPER_OK;
  return TAPER_FAIL(
      p->error, TAPER_INVALID,
      "%s: --clamp-rows: '%s' is a live norm that stays and reads the embedding first: shorter rows would "
      "only harm it; leave the option out",
      p->place->source, name);
}

/* Weights belong to the tokenizer that they were trained with. */
static taper_status take_tokenizer(preparation *p) {
  model_loaded *m = &p->job->model;
  if (!p->folder || strcmp(m->tokenizer, "sentencepiece") != 0 || !holds(p->folder, TOKENIZER_FILE, &p->job->memory))
    return TAPER_OK;
  return model_set_tokenizer(m, arena_printf(&p->job->memory, "%s/" TOKENIZER_FILE, p->folder), p->error);
}

taper_status train_prepare(const model_place *place, const model_options *options, const train_settings *settings,
                           diag_sink *sink, train_job *out, taper_error *error) {
  preparation p = {.job = out, .place = place, .options = options, .settings = settings, .sink = sink, .error = error};
  if (place->kind == MODEL_PACKAGE || place->kind == MODEL_TIR)
    return TAPER_FAIL(error, TAPER_INVALID, "%s: %s; give the .tmodel, or its folder", place->path,
                      place->kind == MODEL_PACKAGE ? "a package cannot be compiled again"
                                                   : "IR text says nothing of initial values and recipes");
  TAPER_TRY(find_weights(&p));
  TAPER_TRY(read_source(&p));
  TAPER_TRY(load(&p));
  TAPER_TRY(take_tokenizer(&p));
  TAPER_TRY(train_make_recipe(out, settings, sink, error));
  out->clamp = settings->clamp_rows > 0;
  if (out->clamp) TAPER_TRY(check_clamp(&p));
  out->started_from =
      p.weights ? arena_printf(&out->memory, "the weights of %s", p.weights)
                : arena_printf(&out->memory, "random initial values, seed %llu", (unsigned long long)out->recipe.seed);
  return initial_bind(out->model.module, out->recipe.seed, error);
}

void train_free(train_job *job) {
  model_free(&job->model);
  arena_free(&job->memory);
  *job = (train_job){0};
}
