/* Taking up a checkpoint folder: everything is checked before anything of the trainer changes. */
#include "runtime/abi/abi.h"
#include "runtime/base/json_scan.h"
#include "runtime/checkpoint.h"
#include "runtime/gemm_library.h"
#include <stdlib.h>
#include <string.h>

enum { MANIFEST_LIMIT = 16 << 20 };

#define DAMAGED "; the checkpoint is damaged, take an earlier one"

typedef struct reader {
  const char *folder;
  taper_trainer *t;
  st_file weights, optimizer;
  taper_error *error;
} reader;

#define WRONG(r, status, ...) TAPER_FAIL((r)->error, (status), __VA_ARGS__)

/* ---- the manifest: every file that it names is there, as it was ---- */

static taper_status check_file(reader *r, const char *name, const char *expected) {
  mapped_file map = {0};
  if (!*name || strchr(name, '/')) return WRONG(r, TAPER_INVALID, "'%.80s' is no name of a file" DAMAGED, name);
  char *path = checkpoint_path(r->folder, name);
  if (!path) return WRONG(r, TAPER_NOMEM, "no memory for a path");
  taper_status status = file_map(path, &map, r->error);
  free(path);
  TAPER_TRY(status);
  const hash128 h = hash_bytes(map.data, map.size);
  file_unmap(&map);
  return strcmp(h.hex, expected) == 0
             ? TAPER_OK
             : WRONG(r, TAPER_INVALID, "file '%.80s': its bytes do not match its hash" DAMAGED, name);
}

static taper_status check_files(reader *r, json_scan *s, unsigned *found) {
  if (json_scan_next(s).kind != JS_OBJECT) return WRONG(r, TAPER_INVALID, "'files' is no object" DAMAGED);
  for (json_event key; (key = json_scan_next(s)).kind == JS_KEY;) {
    char name[256], hash[64];
    json_event value = json_scan_next(s);
    if (value.kind != JS_STRING || key.length >= sizeof(name) || value.length >= sizeof(hash))
      return WRONG(r, TAPER_INVALID, "byte %zu: no name and hash of a file" DAMAGED, key.start);
    json_decode(s, key, name, NULL);
    json_decode(s, value, hash, NULL);
    if (strcmp(name, CHECKPOINT_WEIGHTS) == 0) *found |= 1;
    if (strcmp(name, CHECKPOINT_OPTIMIZER) == 0) *found |= 2;
    TAPER_TRY(check_file(r, name, hash));
  }
  return TAPER_OK;
}

static taper_status scan_manifest(reader *r, const char *data, size_t size) {
  json_scan s;
  unsigned found = 0;
  taper_status status = TAPER_OK;
  json_scan_init(&s, data, size);
  if (json_scan_next(&s).kind != JS_OBJECT) return WRONG(r, TAPER_INVALID, "no JSON object" DAMAGED);
  for (json_event key; status == TAPER_OK && (key = json_scan_next(&s)).kind == JS_KEY;) {
    if (json_is(&s, key, "files"))
      status = check_files(r, &s, &found);
    else
      (void)json_scan_skip(&s);
  }
  TAPER_TRY(status);
  if (s.error || json_scan_next(&s).kind != JS_END)
    return WRONG(r, TAPER_INVALID, "byte %zu: %s" DAMAGED, s.at, s.error ? s.error : "text after the object");
  if (found != 3) return WRONG(r, TAPER_INVALID, "it does not name the weights and the optimizer's state" DAMAGED);
  return TAPER_OK;
}

static taper_status check_manifest(reader *r) {
  char *data = NULL, *path = checkpoint_path(r->folder, CHECKPOINT_MANIFEST);
  size_t size = 0;
  if (!path) return WRONG(r, TAPER_NOMEM, "no memory for a path");
  taper_status status = file_read(path, MANIFEST_LIMIT, &data, &size, r->error);
  free(path);
  TAPER_TRY(status);
  status = scan_manifest(r, data, size);
  free(data);
  return status == TAPER_OK ? status : taper_add_context(r->error, status, CHECKPOINT_MANIFEST);
}

static taper_status open_file(reader *r, const char *name, st_file *out) {
  char *path = checkpoint_path(r->folder, name);
  taper_status status = path ? st_open(path, out, r->error) : WRONG(r, TAPER_NOMEM, "no memory for a path");
  free(path);
  return status;
}

/* ---- what must fit ---- */

/* Tensor "<prefix><name>" of a parameter; NULL: it is not there or does not fit. */
static const st_tensor *find_parameter(const reader *r, const st_file *file, const char *prefix, uint32_t i) {
  char name[600];
  const taper_train_param *p = &r->t->t->params[i];
  text_format(name, sizeof(name), "%s%s", prefix, p->tensor);
  const st_tensor *x = st_find(file, name);
  return x && x->dtype == ST_F32 && x->rank == p->rank && x->elements == r->t->elements[i] ? x : NULL;
}

static const st_tensor *find_state(const reader *r, const char *name, st_dtype type, uint64_t elements) {
  const st_tensor *x = st_find(&r->optimizer, name);
  return x && x->dtype == type && x->elements == elements ? x : NULL;
}

static bool find_number(const reader *r, const char *key, uint64_t *out) {
  const char *value = st_metadata(&r->optimizer, key);
  return value && number_parse_u64(value, strlen(value), out);
}

static const st_tensor *find_seen(const reader *r) {
  char name[600];
  text_format(name, sizeof(name), "%s.seen", r->t->t->params[r->t->t->table].tensor);
  const st_tensor *x = st_find(&r->weights, name);
  return x && x->dtype == ST_I64 && x->elements == r->t->t->vocab ? x : NULL;
}

/* Numbers of the state are taken up as they were written; a damaged file was found by its hash before. */
static taper_status read_numbers(const reader *r, trainer_state *s) {
  const taper_train_image *im = r->t->t;
  if (!find_number(r, "taper.step", &s->step) || !find_number(r, "taper.tokens", &s->tokens) ||
      !find_number(r, "taper.calibrations", &s->calibrations) || !find_number(r, "taper.ring_count", &s->ring_count) ||
      !st_metadata(&r->optimizer, "taper.gemm"))
    return WRONG(r, TAPER_INVALID, CHECKPOINT_OPTIMIZER ": its metadata lacks a number" DAMAGED);
  const uint64_t ring = s->ring_count < TRAINER_RING ? s->ring_count : TRAINER_RING;
  if (!find_state(r, "updates", ST_U64, im->param_count) ||
      !find_state(r, "norms", ST_F64, (uint64_t)im->norm_count * CHECKPOINT_NORM_NUMBERS) ||
      !find_state(r, "scale", ST_F64, 2) || !find_state(r, "ring", ST_F32, ring) ||
      (im->anchor_target != TAPER_ABI_NONE && !find_state(r, "target", ST_F32, 1)))
    return WRONG(r, TAPER_INVALID, CHECKPOINT_OPTIMIZER ": a tensor of the state is missing" DAMAGED);
  return s->step <= r->t->recipe.steps
             ? TAPER_OK
             : WRONG(r, TAPER_INVALID, "it is of step %llu, the recipe has %llu steps; give a recipe with more",
                     (unsigned long long)s->step, (unsigned long long)r->t->recipe.steps);
}

static taper_status check_tensors(const reader *r) {
  const taper_train_image *im = r->t->t;
  for (uint32_t i = 0; i < im->param_count; i++) {
    if (i != im->anchor_target && i != r->t->clamp && !find_parameter(r, &r->weights, "", i))
      return WRONG(r, TAPER_INVALID, "tensor '%.200s' is missing or of another shape" DAMAGED, im->params[i].tensor);
    if (r->t->first[i] &&
        (!find_parameter(r, &r->optimizer, "first.", i) || !find_parameter(r, &r->optimizer, "second.", i)))
      return WRONG(r, TAPER_INVALID, "the moments of '%.200s' are missing" DAMAGED, im->params[i].tensor);
  }
  if (im->table != TAPER_ABI_NONE && !find_seen(r))
    return WRONG(r, TAPER_INVALID, "the counts of ids are missing" DAMAGED);
  return TAPER_OK;
}

static taper_status check_recipe(const reader *r) {
  const char *layout = st_metadata(&r->optimizer, "taper.layout"), *s = st_metadata(&r->optimizer, "taper.recipe");
  if (!layout || !s) return WRONG(r, TAPER_INVALID, CHECKPOINT_OPTIMIZER ": its metadata lacks the recipe" DAMAGED);
  if (strcmp(layout, checkpoint_layout(r->t).hex) != 0)
    return WRONG(r, TAPER_INVALID,
                 "it is of another model: its parameters, norms or gates are not those of the package '%.80s'",
                 r->t->name);
  taper_recipe recipe;
  void *block;
  char room[128];
  TAPER_TRY(recipe_parse(s, strlen(s), &r->t->allocator, &recipe, &block, r->error));
  const char *differs = recipe_difference(&recipe, &r->t->recipe, room, sizeof(room));
  memory_free(&r->t->allocator, block);
  if (!differs) return TAPER_OK;
  return WRONG(r, TAPER_INVALID,
               "its recipe is another one: %s differs; go on with the settings it was trained with, or start a new run",
               differs);
}

/* ---- taking it up ---- */

static void take_norms(taper_trainer *t, const st_tensor *x) {
  for (uint32_t i = 0; i < t->t->norm_count; i++) {
    double v[CHECKPOINT_NORM_NUMBERS];
    st_read_f64(x, (uint64_t)i * CHECKPOINT_NORM_NUMBERS, CHECKPOINT_NORM_NUMBERS, v);
    t->state.norms[i] = (trainer_norm){{v[0], v[1]}, {v[2], v[3]}, {v[4], v[5]}, (uint64_t)v[6]};
  }
}

static void take_up(reader *r, const trainer_state *numbers) {
  taper_trainer *t = r->t;
  const taper_train_image *im = t->t;
  trainer_state *s = &t->state;
  s->step = numbers->step, s->tokens = numbers->tokens, s->calibrations = numbers->calibrations;
  s->ring_count = numbers->ring_count;
  for (uint32_t i = 0; i < im->param_count; i++) {
    const uint64_t n = t->elements[i];
    if (i != im->anchor_target && i != t->clamp) st_read_f32(find_parameter(r, &r->weights, "", i), 0, n, t->param[i]);
    if (!t->first[i]) continue;
    st_read_f32(find_parameter(r, &r->optimizer, "first.", i), 0, n, t->first[i]);
    st_read_f32(find_parameter(r, &r->optimizer, "second.", i), 0, n, t->second[i]);
  }
  const st_tensor *x = find_state(r, "updates", ST_U64, im->param_count);
  memcpy(s->updates, x->data, (size_t)x->bytes);
  take_norms(t, find_state(r, "norms", ST_F64, (uint64_t)im->norm_count * CHECKPOINT_NORM_NUMBERS));
  double scale[2];
  st_read_f64(find_state(r, "scale", ST_F64, 2), 0, 2, scale);
  s->scale = (trainer_ema){scale[0], scale[1]};
  const uint64_t ring = s->ring_count < TRAINER_RING ? s->ring_count : TRAINER_RING;
  if (ring) st_read_f32(find_state(r, "ring", ST_F32, ring), 0, ring, s->ring);
  if (im->anchor_target != TAPER_ABI_NONE)
    st_read_f32(find_state(r, "target", ST_F32, 1), 0, 1, t->param[im->anchor_target]);
  if (im->table != TAPER_ABI_NONE) memcpy(s->seen, find_seen(r)->data, im->vocab * sizeof(uint64_t));
  t->dirty = true, t->has_squares = false;
}

/* The run goes on with the GEMM it began with, where that is there and nobody asked for another. */
static void take_gemm(taper_trainer *t, const char *name) {
  if (strcmp(t->gemm, name) == 0) return;
  if (t->gemm_asked == TAPER_GEMM_AUTO)
    (void)trainer_choose_gemm(t, strcmp(name, "generated") == 0 ? TAPER_GEMM_GENERATED : TAPER_GEMM_LIBRARY, NULL);
  if (strcmp(t->gemm, name) != 0)
    trainer_log(t, TAPER_LOG_WARNING,
                "the checkpoint was trained with the GEMM '%.60s', the run goes on with '%s': it will not equal an "
                "uninterrupted one bit for bit",
                name, t->gemm);
}

static taper_status resume(reader *r) {
  trainer_state numbers = {0};
  TAPER_TRY(check_manifest(r));
  TAPER_TRY(open_file(r, CHECKPOINT_WEIGHTS, &r->weights));
  TAPER_TRY(open_file(r, CHECKPOINT_OPTIMIZER, &r->optimizer));
  TAPER_TRY(check_recipe(r));
  TAPER_TRY(read_numbers(r, &numbers));
  TAPER_TRY(check_tensors(r));
  take_up(r, &numbers);
  take_gemm(r->t, st_metadata(&r->optimizer, "taper.gemm"));
  return TAPER_OK;
}

taper_status taper_trainer_resume(taper_trainer *t, const char *checkpoint, taper_error *error) {
  if (!t || !checkpoint)
    return TAPER_FAIL(error, TAPER_INVALID, "taper_trainer_resume: an argument is NULL; give the trainer and a folder");
  taper_error own = {0};
  reader r = {.folder = checkpoint, .t = t, .error = error ? error : &own};
  const taper_status status = resume(&r);
  st_close(&r.weights);
  st_close(&r.optimizer);
  if (status == TAPER_OK || strstr(r.error->message, checkpoint) == r.error->message) return status;
  return taper_add_context(error, status, "%s", checkpoint);
}
