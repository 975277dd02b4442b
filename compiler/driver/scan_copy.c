#include "compiler/driver/scan_copy.h"
#include "compiler/analysis/readers.h"
#include "compiler/analysis/token_rows.h"
#include "compiler/driver/model_priv.h"
#include "runtime/base/file.h"
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static bool exists(const char *path) {
  struct stat s;
  return stat(path, &s) == 0;
}

static bool ends_with(const char *s, const char *end) {
  size_t n = strlen(s), m = strlen(end);
  return n > m && strcmp(s + n - m, end) == 0;
}

static taper_status copy_file(const char *from, const char *to, taper_error *error) {
  mapped_file map = {0};
  file_writer w = {0};
  TAPER_TRY(file_map(from, &map, error));
  taper_status status = file_writer_open(to, &w, error);
  if (status == TAPER_OK) status = file_writer_put(&w, map.data, map.size, error);
  if (status == TAPER_OK)
    status = file_writer_commit(&w, error);
  else
    file_writer_abort(&w);
  file_unmap(&map);
  return status;
}

/* Weights, what belongs to a checkpoint's training, and the source, which is copied by itself, stay behind. */
static bool is_beside(const char *name) {
  return *name != '.' && !ends_with(name, ".safetensors") && !ends_with(name, ".index.json") &&
         strcmp(name, "manifest.json") != 0 && strcmp(name, "model.tmodel") != 0 && !ends_with(name, ".tokens");
}

static taper_status copy_beside(const model_loaded *m, const char *to, scan_copy_result *out, arena *a,
                                taper_error *error) {
  DIR *d = m->place.folder ? opendir(m->place.folder) : NULL;
  taper_status status = TAPER_OK;
  for (struct dirent *e; d && status == TAPER_OK && (e = readdir(d));) {
    const char *from = arena_printf(a, "%s/%s", m->place.folder, e->d_name);
    struct stat s;
    if (!is_beside(e->d_name) || stat(from, &s) != 0 || !S_ISREG(s.st_mode)) continue;
    status = copy_file(from, arena_printf(a, "%s/%s", to, e->d_name), error);
    out->files++;
  }
  if (d) closedir(d);
  return status;
}

/* ---- the weights ---- */

typedef struct tensor_list {
  st_source *at;
  size_t count;
} tensor_list;

static void add_weights(const weight_set *set, tensor_list *out) {
  for (size_t i = 0; i < set->count; i++) {
    const st_tensor *t = set->weights[i].tensor;
    if (strcmp(t->name, "taper.scale") == 0) continue;
    st_source s = {.name = t->name, .dtype = t->dtype, .rank = t->rank, .data = t->data};
    memcpy(s.shape, t->shape, sizeof s.shape);
    out->at[out->count++] = s;
  }
}

static int64_t *count_ids(const corpus *data, size_t rows, arena *a) {
  int64_t *seen = ARENA_ARRAY(a, int64_t, rows);
  int32_t ids[1024];
  uint64_t all = corpus_count(data, CORPUS_TRAIN) - 1; /* the last one is never read as an input */
  for (uint64_t at = 0; at < all; at += 1024) {
    size_t n = all - at < 1024 ? (size_t)(all - at) : 1024;
    corpus_read(data, CORPUS_TRAIN, at, n, ids);
    for (size_t i = 0; i < n; i++)
      if ((size_t)ids[i] < rows) seen[ids[i]]++;
  }
  return seen;
}

/* `<table>.seen` of every table that the token ids look up. */
static void add_seen(const model_loaded *m, const corpus *data, tensor_list *out, scan_copy_result *result, arena *a) {
  const ir_module *module = m->module;
  ir_region entry = ir_entry_find(module, "forward");
  for (ir_value v = entry.id ? ir_first(module, entry) : IR_NONE; v.id; v = ir_next(module, v)) {
    if (!analysis_looks_tokens_up(module, v)) continue;
    ir_value table = analysis_leaf(module, ir_operand(module, v, 1));
    const char *tensor = ir_attr_string(module, table, IR_ATTR_TENSOR, NULL);
    if (!tensor) continue;
    const char *name = arena_printf(a, "%s.seen", tensor);
    bool there = false;
    for (size_t i = 0; i < out->count; i++) there = there || strcmp(out->at[i].name, name) == 0;
    result->seen_kept = result->seen_kept || weights_find(&m->priv->weights, name);
    if (there) continue;
    size_t rows = (size_t)ir_type_of(module, table).dim[0];
    out->at[out->count++] =
        (st_source){.name = name, .dtype = ST_I64, .rank = 1, .shape = {rows}, .data = count_ids(data, rows, a)};
  }
}

static taper_status write_weights(const model_loaded *m, const corpus *data, const runner_sample *sample,
                                  const char *path, scan_copy_result *out, arena *a, taper_error *error) {
  const weight_set *set = &m->priv->weights;
  tensor_list list = {.at = ARENA_ARRAY(a, st_source, set->count + ir_value_limit(m->module) + 1)};
  size_t pairs = 0, cap = 0;
  for (size_t i = 0; i < set->file_count; i++) cap += set->files[i].metadata_count;
  st_pair *metadata = ARENA_ARRAY(a, st_pair, cap + 1);
  for (size_t i = 0; i < set->file_count; i++)
    for (size_t k = 0; k < set->files[i].metadata_count; k++) {
      const st_pair *p = &set->files[i].metadata[k];
      bool first = true;
      for (size_t q = 0; q < pairs; q++) first = first && strcmp(metadata[q].key, p->key) != 0;
      if (first) metadata[pairs++] = *p;
    }
  add_weights(set, &list);
  add_seen(m, data, &list, out, a);
  const float scale[2] = {(float)sample->median, (float)sample->high};
  list.at[list.count++] = (st_source){.name = "taper.scale", .dtype = ST_F32, .rank = 1, .shape = {2}, .data = scale};
  out->tensors = list.count;
  return st_write(path, list.at, list.count, metadata, pairs, 64, error);
}

taper_status scan_copy(const model_loaded *m, const corpus *data, const runner_sample *sample, const char *to,
                       scan_copy_result *out, taper_error *error) {
  arena a = {0};
  *out = (scan_copy_result){0};
  size_t n = strlen(to);
  while (n > 1 && to[n - 1] == '/') n--;
  to = arena_strndup(&a, to, n);
  const char *weights = arena_printf(&a, "%s/weights.safetensors", to),
             *source = arena_printf(&a, "%s/model.tmodel", to);
  taper_status status = TAPER_OK;
  if (!m->priv->has_weights)
    status = TAPER_FAIL(error, TAPER_INVALID, "%s: the model has no weights file to copy; give --weights FILE",
                        m->place.path);
  else if (exists(weights) || exists(source))
    status = TAPER_FAIL(error, TAPER_INVALID, "%s: the folder holds a model already; name another", to);
  else if (mkdir(to, 0777) != 0 && errno != EEXIST)
    status = TAPER_FAIL(error, TAPER_IO, "%s: cannot be created: %s; name a folder that can be written", to,
                        file_error_text(errno));
  if (status == TAPER_OK) status = copy_beside(m, to, out, &a, error);
  if (status == TAPER_OK) status = write_weights(m, data, sample, weights, out, &a, error);
  if (status == TAPER_OK) status = copy_file(m->place.source, source, error); /* last: the folder is a model now */
  arena_free(&a);
  return status;
}
