#include "runtime/base/checked.h"
#include "runtime/base/json_scan.h"
#include "runtime/base/safetensors_priv.h"
#include "runtime/base/text.h"

#include <stdlib.h>
#include <string.h>

struct st_private {
  bool owns_map;
  char *pool; /* decoded names, keys and values: no longer than the header */
  size_t pool_at;
};

/* One st_open under way. */
typedef struct reader {
  st_file *file;
  json_scan scan;
  size_t tensor_cap, pair_cap;
  taper_error *error;
} reader;

#define PLACE "%s: byte %zu: "
#define TENSOR "%s: tensor '%s': "
#define REMEDY "; the file is damaged or was written by a faulty program: get it again"

static taper_status no_memory(reader *r, size_t bytes) {
  return TAPER_FAIL(r->error, TAPER_NOMEM, "%s: no memory for %zu bytes; free some memory", r->file->path, bytes);
}

static taper_status wrong_json(reader *r, json_event e, const char *expected) {
  const char *cause = e.kind == JS_ERROR ? r->scan.error : expected;
  return TAPER_FAIL(r->error, TAPER_INVALID, PLACE "header: %s" REMEDY, r->file->path, e.start + 8, cause);
}

/* A decoded copy in the pool. A NUL would cut the name short for every C reader. */
static taper_status keep_string(reader *r, json_event e, const char **out) {
  struct st_private *priv = r->file->priv;
  char *at = priv->pool + priv->pool_at;
  bool nul;
  priv->pool_at += json_decode(&r->scan, e, at, &nul) + 1;
  if (nul) return wrong_json(r, e, "a name holds a NUL character");
  *out = at;
  return TAPER_OK;
}

/* array[count] with room for one more. */
static taper_status grow(reader *r, void **array, size_t count, size_t *cap, size_t size) {
  if (count < *cap) return TAPER_OK;
  size_t bigger = *cap ? *cap + *cap / 2 : 32; /* cannot overflow: an element costs several bytes of a bounded header */
  void *grown = realloc(*array, bigger * size);
  if (!grown) return no_memory(r, bigger * size);
  *array = grown;
  *cap = bigger;
  return TAPER_OK;
}

static taper_status read_metadata(reader *r) {
  st_file *f = r->file;
  json_event e = json_scan_next(&r->scan);
  if (e.kind != JS_OBJECT) return wrong_json(r, e, "__metadata__ must be an object");
  while ((e = json_scan_next(&r->scan)).kind == JS_KEY) {
    void *pairs = f->metadata;
    taper_status status = grow(r, &pairs, f->metadata_count, &r->pair_cap, sizeof *f->metadata);
    f->metadata = pairs;
    TAPER_TRY(status);
    st_pair *pair = &f->metadata[f->metadata_count];
    TAPER_TRY(keep_string(r, e, &pair->key));
    e = json_scan_next(&r->scan);
    if (e.kind != JS_STRING) return wrong_json(r, e, "a value in __metadata__ must be a string");
    TAPER_TRY(keep_string(r, e, &pair->value));
    f->metadata_count += 1;
  }
  return e.kind == JS_OBJECT_END ? TAPER_OK : wrong_json(r, e, "");
}

static taper_status read_numbers(reader *r, const char *tensor, const char *what, uint64_t *out, uint32_t cap,
                                 uint32_t *out_n) {
  json_event e = json_scan_next(&r->scan);
  *out_n = 0;
  if (e.kind == JS_ERROR) return wrong_json(r, e, "");
  if (e.kind != JS_ARRAY)
    return TAPER_FAIL(r->error, TAPER_INVALID, TENSOR "%s must be an array of whole numbers" REMEDY, r->file->path,
                      tensor, what);
  while ((e = json_scan_next(&r->scan)).kind != JS_ARRAY_END) {
    if (e.kind == JS_ERROR) return wrong_json(r, e, "");
    if (*out_n == cap)
      return TAPER_FAIL(r->error, TAPER_INVALID, TENSOR "%s has more than %u entries" REMEDY, r->file->path, tensor,
                        what, cap);
    if (!json_u64(&r->scan, e, &out[(*out_n)++]))
      return TAPER_FAIL(r->error, TAPER_INVALID,
                        TENSOR "%s entry %u is not a whole number of 64 bits, 0 or above" REMEDY, r->file->path, tensor,
                        what, *out_n - 1);
  }
  return TAPER_OK;
}

static taper_status read_dtype(reader *r, st_tensor *t) {
  char name[32];
  json_event e = json_scan_next(&r->scan);
  if (e.kind == JS_ERROR) return wrong_json(r, e, "");
  if (e.kind != JS_STRING)
    return TAPER_FAIL(r->error, TAPER_INVALID, TENSOR "dtype must be a string" REMEDY, r->file->path, t->name);
  if (e.length < sizeof name) json_decode(&r->scan, e, name, NULL);
  if (e.length < sizeof name && st_dtype_parse(name, &t->dtype)) return TAPER_OK;
  return TAPER_FAIL(r->error, TAPER_UNSUPPORTED, TENSOR "type %.*s is not supported; convert it to F32, F16 or BF16",
                    r->file->path, t->name, (int)(e.length < 40 ? e.length : 40), r->scan.s + e.start);
}

enum { HAS_DTYPE = 1, HAS_SHAPE = 2, HAS_OFFSETS = 4 };

/* One "name": {"dtype", "shape", "data_offsets"}; t->bytes and t->offset hold the range as written until check_tensor.
 */
static taper_status read_tensor(reader *r, st_tensor *t) {
  static const struct {
    const char *key;
    unsigned bit;
  } keys[] = {{"dtype", HAS_DTYPE}, {"shape", HAS_SHAPE}, {"data_offsets", HAS_OFFSETS}};
  const char *path = r->file->path;
  uint64_t range[2] = {0, 0};
  uint32_t n = 0;
  unsigned seen = 0;
  json_event e = json_scan_next(&r->scan);
  if (e.kind == JS_ERROR) return wrong_json(r, e, "");
  if (e.kind != JS_OBJECT)
    return TAPER_FAIL(r->error, TAPER_INVALID, TENSOR "its entry must be an object" REMEDY, path, t->name);
  while ((e = json_scan_next(&r->scan)).kind == JS_KEY) {
    unsigned bit = 0;
    for (size_t k = 0; k < 3; k++)
      if (json_is(&r->scan, e, keys[k].key)) bit = keys[k].bit;
    int shown = (int)(e.length < 40 ? e.length : 40);
    const char *key = r->scan.s + e.start;
    if (bit == 0)
      return TAPER_FAIL(r->error, TAPER_INVALID, TENSOR "unknown key '%.*s'" REMEDY, path, t->name, shown, key);
    if (seen & bit)
      return TAPER_FAIL(r->error, TAPER_INVALID, TENSOR "key '%.*s' stands twice" REMEDY, path, t->name, shown, key);
    seen |= bit;
    if (bit == HAS_DTYPE) TAPER_TRY(read_dtype(r, t));
    if (bit == HAS_SHAPE) TAPER_TRY(read_numbers(r, t->name, "shape", t->shape, ST_MAX_RANK, &t->rank));
    if (bit == HAS_OFFSETS) TAPER_TRY(read_numbers(r, t->name, "data_offsets", range, 2, &n));
  }
  if (e.kind != JS_OBJECT_END) return wrong_json(r, e, "");
  for (size_t k = 0; k < 3; k++)
    if (!(seen & keys[k].bit))
      return TAPER_FAIL(r->error, TAPER_INVALID, TENSOR "key '%s' is missing" REMEDY, path, t->name, keys[k].key);
  if (n != 2)
    return TAPER_FAIL(r->error, TAPER_INVALID, TENSOR "data_offsets needs a begin and an end" REMEDY, path, t->name);
  if (range[0] > range[1])
    return TAPER_FAIL(r->error, TAPER_INVALID, TENSOR "data_offsets run backwards, from %llu to %llu" REMEDY, path,
                      t->name, (unsigned long long)range[0], (unsigned long long)range[1]);
  if (!st_sizes(t->dtype, t->shape, t->rank, &t->elements, &t->bytes))
    return TAPER_FAIL(r->error, TAPER_INVALID, TENSOR "its shape has more than 2^64 bytes" REMEDY, path, t->name);
  if (range[1] - range[0] != t->bytes)
    return TAPER_FAIL(r->error, TAPER_INVALID,
                      TENSOR "data_offsets hold %llu bytes, its shape and type need %llu" REMEDY, path, t->name,
                      (unsigned long long)(range[1] - range[0]), (unsigned long long)t->bytes);
  t->offset = range[0];
  return TAPER_OK;
}

static taper_status read_header(reader *r) {
  st_file *f = r->file;
  bool has_metadata = false;
  json_event e = json_scan_next(&r->scan);
  if (e.kind != JS_OBJECT) return wrong_json(r, e, "it must be an object");
  while ((e = json_scan_next(&r->scan)).kind == JS_KEY) {
    if (json_is(&r->scan, e, "__metadata__")) {
      if (has_metadata) return wrong_json(r, e, "key '__metadata__' stands twice");
      has_metadata = true;
      TAPER_TRY(read_metadata(r));
      continue;
    }
    void *tensors = f->tensors;
    taper_status status = grow(r, &tensors, f->count, &r->tensor_cap, sizeof *f->tensors);
    f->tensors = tensors;
    TAPER_TRY(status);
    st_tensor *t = &f->tensors[f->count];
    *t = (st_tensor){0};
    TAPER_TRY(keep_string(r, e, &t->name));
    TAPER_TRY(read_tensor(r, t));
    f->count += 1;
  }
  if (e.kind != JS_OBJECT_END) return wrong_json(r, e, "");
  e = json_scan_next(&r->scan);
  return e.kind == JS_END ? TAPER_OK : wrong_json(r, e, "");
}

static int by_name(const void *a, const void *b) {
  return strcmp(((const st_tensor *)a)->name, ((const st_tensor *)b)->name);
}
static int by_key(const void *a, const void *b) { return strcmp(((const st_pair *)a)->key, ((const st_pair *)b)->key); }

static int by_range(const void *a, const void *b) {
  const st_tensor *x = *(const st_tensor *const *)a, *y = *(const st_tensor *const *)b;
  if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
  if (x->bytes != y->bytes) return x->bytes < y->bytes ? -1 : 1;
  return strcmp(x->name, y->name);
}

static taper_status check_names(reader *r) {
  st_file *f = r->file;
  if (f->count > 1) qsort(f->tensors, f->count, sizeof *f->tensors, by_name);
  if (f->metadata_count > 1) qsort(f->metadata, f->metadata_count, sizeof *f->metadata, by_key);
  for (size_t i = 1; i < f->count; i++)
    if (strcmp(f->tensors[i - 1].name, f->tensors[i].name) == 0)
      return TAPER_FAIL(r->error, TAPER_INVALID, TENSOR "the header names it twice" REMEDY, f->path,
                        f->tensors[i].name);
  for (size_t i = 1; i < f->metadata_count; i++)
    if (strcmp(f->metadata[i - 1].key, f->metadata[i].key) == 0)
      return TAPER_FAIL(r->error, TAPER_INVALID, "%s: header: metadata key '%s' stands twice" REMEDY, f->path,
                        f->metadata[i].key);
  return TAPER_OK;
}

/* In order of their ranges the tensors must cover the data exactly. */
static taper_status check_ranges(reader *r) {
  st_file *f = r->file;
  unsigned long long data = f->map.size - 8 - f->header_bytes, at = 0, last = 0;
  const st_tensor **order = malloc((f->count + 1) * sizeof(void *));
  if (!order) return no_memory(r, f->count * sizeof(void *));
  for (size_t i = 0; i < f->count; i++) {
    order[i] = &f->tensors[i];
    if (order[i]->offset + order[i]->bytes > last) last = order[i]->offset + order[i]->bytes;
  }
  taper_status status = TAPER_OK;
  if (last > data)
    status = TAPER_FAIL(r->error, TAPER_INVALID,
                        "%s: is cut off: %llu bytes of data found, %llu expected; copy or download it again", f->path,
                        data, last);
  if (f->count > 1) qsort(order, f->count, sizeof(void *), by_range);
  for (size_t i = 0; i < f->count && status == TAPER_OK; i++) {
    const st_tensor *t = order[i];
    if (t->offset < at)
      status = TAPER_FAIL(r->error, TAPER_INVALID, TENSOR "its bytes overlap those of tensor '%s'" REMEDY, f->path,
                          t->name, order[i - 1]->name);
    if (t->offset > at)
      status = TAPER_FAIL(r->error, TAPER_INVALID, TENSOR "%llu bytes before it belong to no tensor" REMEDY, f->path,
                          t->name, t->offset - at);
    at = t->offset + t->bytes;
  }
  if (status == TAPER_OK && at < data)
    status = TAPER_FAIL(r->error, TAPER_INVALID,
                        "%s: byte %llu: %llu bytes after the last tensor belong to no tensor" REMEDY, f->path,
                        8 + f->header_bytes + at, data - at);
  free(order);
  return status;
}

static taper_status check_size(st_file *f, taper_error *error) {
  const uint8_t *d = f->map.data;
  size_t size = f->map.size;
  uint64_t header = 0;
  for (size_t i = 0; i < 8 && size >= 8; i++) header |= (uint64_t)d[i] << 8 * i;
  if (size >= 8 && header <= ST_MAX_HEADER && header <= size - 8) {
    f->header_bytes = header;
    return TAPER_OK;
  }
  const char *remedy, *guess = file_guess(d, size, &remedy);
  if (guess) return TAPER_FAIL(error, TAPER_INVALID, "%s: is %s, not a safetensors file; %s", f->path, guess, remedy);
  if (size < 8)
    return TAPER_FAIL(error, TAPER_INVALID,
                      "%s: is cut off: %zu bytes found, at least 8 expected; copy or download it again", f->path, size);
  if (header > ST_MAX_HEADER)
    return TAPER_FAIL(error, TAPER_INVALID,
                      "%s: byte 0: a header of %llu bytes, at most %u are allowed; not a safetensors file, or too many "
                      "tensors: split it",
                      f->path, (unsigned long long)header, ST_MAX_HEADER);
  return TAPER_FAIL(error, TAPER_INVALID,
                    "%s: is cut off or not a safetensors file: %zu bytes found, the header alone needs %llu; copy or "
                    "download it again",
                    f->path, size, (unsigned long long)(header + 8));
}

static taper_status parse(st_file *f, taper_error *error) {
  TAPER_TRY(check_size(f, error));
  reader r = {.file = f, .error = error};
  const char *header = (const char *)f->map.data + 8;
  if (f->header_bytes == 0 || *header != '{')
    return TAPER_FAIL(error, TAPER_INVALID, PLACE "the header must begin with '{'" REMEDY, f->path, (size_t)8);
  json_scan_init(&r.scan, header, (size_t)f->header_bytes);
  f->priv->pool = malloc((size_t)f->header_bytes + 1);
  if (!f->priv->pool) return no_memory(&r, (size_t)f->header_bytes);
  TAPER_TRY(read_header(&r));
  TAPER_TRY(check_names(&r));
  TAPER_TRY(check_ranges(&r));
  for (size_t i = 0; i < f->count; i++) {
    f->tensors[i].offset += 8 + f->header_bytes;
    f->tensors[i].data = f->map.data + f->tensors[i].offset;
  }
  return TAPER_OK;
}

static taper_status open_with(st_file *out, const char *path, mapped_file map, bool owns_map, taper_error *error) {
  *out = (st_file){.path = strdup(path), .map = map, .priv = calloc(1, sizeof *out->priv)};
  taper_status status = TAPER_OK;
  if (!out->path || !out->priv) {
    status = TAPER_FAIL(error, TAPER_NOMEM, "%s: no memory; free some memory", path);
    if (owns_map) file_unmap(&out->map);
  } else {
    out->priv->owns_map = owns_map;
    status = parse(out, error);
  }
  if (status != TAPER_OK) st_close(out);
  return status;
}

taper_status st_open(const char *path, st_file *out, taper_error *error) {
  mapped_file map = {0};
  *out = (st_file){0};
  TAPER_TRY(file_map(path, &map, error));
  return open_with(out, path, map, true, error);
}

taper_status st_open_memory(const void *data, size_t size, const char *name, st_file *out, taper_error *error) {
  return open_with(out, name, (mapped_file){data, size}, false, error);
}

void st_close(st_file *file) {
  if (!file) return;
  if (file->priv && file->priv->owns_map) file_unmap(&file->map);
  if (file->priv) free(file->priv->pool);
  free(file->priv);
  free(file->path);
  free(file->tensors);
  free(file->metadata);
  *file = (st_file){0};
}

const st_tensor *st_find(const st_file *file, const char *name) {
  st_tensor key = {.name = name};
  return file->count ? bsearch(&key, file->tensors, file->count, sizeof key, by_name) : NULL;
}

const char *st_metadata(const st_file *file, const char *key) {
  st_pair wanted = {key, NULL};
  const st_pair *pair =
      file->metadata_count ? bsearch(&wanted, file->metadata, file->metadata_count, sizeof wanted, by_key) : NULL;
  return pair ? pair->value : NULL;
}
