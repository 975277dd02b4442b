#include "compiler/formats/weights_priv.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static int by_name(const void *a, const void *b) {
  return strcmp(((const weight *)a)->tensor->name, ((const weight *)b)->tensor->name);
}

const char *weights_beside(arena *memory, const char *path, const char *name, bool is_folder) {
  if (is_folder) return arena_printf(memory, "%s%s%s", path, path[strlen(path) - 1] == '/' ? "" : "/", name);
  const char *slash = strrchr(path, '/');
  return slash ? arena_printf(memory, "%.*s%s", (int)(slash + 1 - path), path, name) : arena_strdup(memory, name);
}

/* ---- opening ---- */

static bool is_file(const char *path) {
  struct stat info;
  return stat(path, &info) == 0 && !S_ISDIR(info.st_mode);
}

static bool is_folder(const char *path) {
  struct stat info;
  return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

static bool ends_with(const char *s, const char *end) {
  size_t n = strlen(s), m = strlen(end);
  return n >= m && strcmp(s + n - m, end) == 0;
}

/* The weights of a folder; NULL when there are none. */
static const char *find_in_folder(weight_set *set, const char *folder) {
  static const char *const names[] = {"weights.safetensors", "model.safetensors", "model.safetensors.index.json"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    const char *path = weights_beside(&set->priv->memory, folder, names[i], true);
    if (is_file(path)) return path;
  }
  return NULL;
}

static taper_status open_files(weight_set *set, const char *path, const shard_index *index, taper_error *error) {
  size_t n = index->count ? index->shard_count : 1;
  set->files = ARENA_ARRAY(&set->priv->memory, st_file, n);
  for (size_t i = 0; i < n; i++) {
    const char *file = index->count ? weights_beside(&set->priv->memory, path, index->shards[i], false) : path;
    TAPER_TRY(st_open(file, &set->files[i], error));
    set->file_count = i + 1;
    if (st_metadata(&set->files[i], "taper.package"))
      return TAPER_FAIL(error, TAPER_INVALID,
                        "%s: is a package, whose weights are folded; name the weights it was made from", file);
    set->count += set->files[i].count;
  }
  return TAPER_OK;
}

static taper_status collect(weight_set *set, taper_error *error) {
  set->weights = ARENA_ARRAY(&set->priv->memory, weight, set->count + 1);
  set->count = 0;
  for (size_t f = 0; f < set->file_count; f++)
    for (size_t i = 0; i < set->files[f].count; i++) {
      const st_tensor *t = &set->files[f].tensors[i];
      if (strncmp(t->name, "__pad.", 6) != 0)
        set->weights[set->count++] = (weight){.tensor = t, .file = set->files[f].path};
    }
  if (set->file_count > 1) qsort(set->weights, set->count, sizeof *set->weights, by_name);
  for (size_t i = 1; i < set->count; i++)
    if (strcmp(set->weights[i - 1].tensor->name, set->weights[i].tensor->name) == 0)
      return TAPER_FAIL(error, TAPER_INVALID, "%s: tensor '%s': also stands in %s; leave it in one shard",
                        set->weights[i].file, set->weights[i].tensor->name, set->weights[i - 1].file);
  return TAPER_OK;
}

static taper_status not_in_shard(const char *path, const shard_entry *entry, taper_error *error) {
  return TAPER_FAIL(error, TAPER_INVALID,
                    "%s: tensor '%s': is not in %s, where the index says it is; get both from one place", path,
                    entry->tensor, entry->shard);
}

/* Index and shards must tell the same story: both are sorted by name. */
static taper_status compare(const weight_set *set, const char *path, const shard_index *index, taper_error *error) {
  size_t k = 0;
  for (size_t i = 0; i < set->count; i++, k++) {
    const weight *w = &set->weights[i];
    const shard_entry *entry = &index->entries[k];
    int order = k < index->count ? strcmp(w->tensor->name, entry->tensor) : -1;
    if (order < 0)
      return TAPER_FAIL(error, TAPER_INVALID, "%s: tensor '%s': the index %s does not name it; get both from one place",
                        w->file, w->tensor->name, path);
    const char *slash = strrchr(w->file, '/');
    if (order > 0 || strcmp(slash ? slash + 1 : w->file, entry->shard) != 0) return not_in_shard(path, entry, error);
  }
  return k < index->count ? not_in_shard(path, &index->entries[k], error) : TAPER_OK;
}

static taper_status read_gates(weight_set *set, taper_error *error) {
  const char *first = NULL, *file = NULL;
  for (size_t f = 0; f < set->file_count; f++) {
    const char *json = st_metadata(&set->files[f], "taper.gates");
    if (json && first && strcmp(json, first) != 0)
      return TAPER_FAIL(error, TAPER_INVALID, "%s: metadata key 'taper.gates' differs from that of %s; leave one",
                        set->files[f].path, file);
    if (json && !first) first = json, file = set->files[f].path;
  }
  return first ? weight_gates_read(file, first, set, error) : TAPER_OK;
}

static taper_status open_path(weight_set *set, const char *path, taper_error *error) {
  shard_index index = {0};
  const char *file = path;
  if (is_folder(path)) file = find_in_folder(set, path);
  if (!file)
    return TAPER_FAIL(error, TAPER_IO,
                      "%s: holds no weights.safetensors, model.safetensors or model.safetensors.index.json; name the "
                      "weights or their folder",
                      path);
  bool indexed = ends_with(file, ".index.json");
  if (indexed) TAPER_TRY(shard_index_read(file, &set->priv->memory, &index, error));
  TAPER_TRY(open_files(set, file, &index, error));
  TAPER_TRY(collect(set, error));
  if (indexed) TAPER_TRY(compare(set, file, &index, error));
  return read_gates(set, error);
}

taper_status weights_open(const char *path, weight_set *out, taper_error *error) {
  *out = (weight_set){.priv = calloc(1, sizeof *out->priv)};
  if (!out->priv) return TAPER_FAIL(error, TAPER_NOMEM, "%s: no memory; free some memory", path);
  out->path = arena_strdup(&out->priv->memory, path);
  taper_status status = *path ? open_path(out, path, error)
                              : TAPER_FAIL(error, TAPER_IO, "the name of the weights is empty; name a file");
  if (status != TAPER_OK) weights_close(out);
  return status;
}

void weights_close(weight_set *set) {
  for (size_t i = 0; i < set->count && set->weights; i++) free(set->weights[i].converted);
  for (size_t i = 0; i < set->file_count; i++) st_close(&set->files[i]);
  if (set->priv) arena_free(&set->priv->memory);
  free(set->priv);
  *set = (weight_set){0};
}

/* ---- reading ---- */

weight *weights_find(const weight_set *set, const char *name) {
  st_tensor tensor = {.name = name};
  weight key = {.tensor = &tensor};
  return set->count ? bsearch(&key, set->weights, set->count, sizeof key, by_name) : NULL;
}

const char *weights_metadata(const weight_set *set, const char *key) {
  for (size_t f = 0; f < set->file_count; f++) {
    const char *value = st_metadata(&set->files[f], key);
    if (value) return value;
  }
  return NULL;
}

void weights_consume(weight *w) { w->consumed = true; }

const weight *weights_unconsumed(const weight_set *set, size_t *cursor) {
  while (*cursor < set->count) {
    const weight *w = &set->weights[(*cursor)++];
    if (!w->consumed) return w;
  }
  return NULL;
}

enum { CHUNK = 1024 };

/* A finite double beyond f32 becomes infinite on the way: told, not passed on. */
static taper_status check_f64_range(const weight *w, const float *converted, taper_error *error) {
  const st_tensor *t = w->tensor;
  for (uint64_t i = 0; i < t->elements; i++) {
    double stored;
    if (!isinf(converted[i])) continue;
    st_read_f64(t, i, 1, &stored);
    if (isfinite(stored))
      return TAPER_FAIL(error, TAPER_INVALID,
                        "%s: tensor '%s': element %llu is %g, beyond the range of F32; rescale it", w->file, t->name,
                        (unsigned long long)i, stored);
  }
  return TAPER_OK;
}

taper_status weights_f32(weight_set *set, weight *w, const float **out, taper_error *error) {
  (void)set; /* owns what is handed out */
  const st_tensor *t = w->tensor;
  if (!st_dtype_is_float(t->dtype))
    return TAPER_FAIL(error, TAPER_UNSUPPORTED,
                      "%s: tensor '%s': its type %s is no float; convert it to F32, F16 or BF16", w->file, t->name,
                      st_dtype_name(t->dtype));
  w->consumed = true;
  *out = t->data;
  if (t->dtype == ST_F32 && (uintptr_t)t->data % sizeof(float) == 0) return TAPER_OK;
  if (!w->converted) {
    if (t->elements > SIZE_MAX / sizeof(float) - 1 || !(w->converted = malloc((size_t)t->elements * sizeof(float) + 1)))
      return TAPER_FAIL(error, TAPER_NOMEM, "%s: tensor '%s': no memory for %llu elements; free some memory", w->file,
                        t->name, (unsigned long long)t->elements);
    st_read_f32(t, 0, t->elements, w->converted);
  }
  *out = w->converted;
  return t->dtype == ST_F64 ? check_f64_range(w, w->converted, error) : TAPER_OK;
}

weight_scan weights_scan(const weight *w) {
  const st_tensor *t = w->tensor;
  weight_scan found = {0};
  double chunk[CHUNK];
  if (!st_dtype_is_float(t->dtype)) return found;
  for (uint64_t at = 0; at < t->elements; at += CHUNK) {
    uint64_t n = t->elements - at < CHUNK ? t->elements - at : CHUNK;
    double probe = 0; /* stays 0 while all is finite: one pass that a compiler vectorises */
    st_read_f64(t, at, n, chunk);
    for (uint64_t i = 0; i < n; i++) probe += chunk[i] * 0;
    for (uint64_t i = 0; i < n && probe != 0; i++) {
      if (isfinite(chunk[i])) continue;
      if (found.nan + found.inf == 0) found.first = at + i;
      if (isnan(chunk[i])) {
        found.nan += 1;
      } else {
        found.inf += 1;
      }
    }
  }
  return found;
}
