#include "compiler/formats/weights_priv.h"
#include "runtime/base/json_scan.h"
#include "runtime/base/text.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { INDEX_LIMIT = 256 << 20 };

typedef struct index_reader {
  const char *path;
  json_scan scan;
  arena *memory;
  shard_index *index;
  size_t cap;
  taper_error *error;
} index_reader;

static taper_status wrong(const index_reader *r, json_event e, const char *cause) {
  return TAPER_FAIL(r->error, TAPER_INVALID, "%s: byte %zu: %s; get the index again", r->path, e.start,
                    e.kind == JS_ERROR ? r->scan.error : cause);
}

static taper_status keep(index_reader *r, json_event e, const char **out) {
  char *s = arena_alloc(r->memory, e.length + 1);
  bool nul;
  json_decode(&r->scan, e, s, &nul);
  *out = s;
  return nul ? wrong(r, e, "a name holds a NUL character") : TAPER_OK;
}

/* A shard lies beside its index: a name that leads elsewhere is refused before it is opened. */
static bool is_plain(const char *name) {
  return *name && !strpbrk(name, "/\\") && strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
}

static taper_status read_map(index_reader *r) {
  json_event e = json_scan_next(&r->scan);
  if (e.kind != JS_OBJECT) return wrong(r, e, "weight_map must be an object");
  while ((e = json_scan_next(&r->scan)).kind == JS_KEY) {
    if (r->index->count == r->cap) {
      size_t cap = r->cap ? r->cap * 2 : 64;
      shard_entry *grown = ARENA_ARRAY(r->memory, shard_entry, cap);
      if (r->cap) memcpy(grown, r->index->entries, r->cap * sizeof *grown);
      r->index->entries = grown, r->cap = cap;
    }
    shard_entry *entry = &r->index->entries[r->index->count++];
    TAPER_TRY(keep(r, e, &entry->tensor));
    e = json_scan_next(&r->scan);
    if (e.kind != JS_STRING) return wrong(r, e, "a shard's name must be a string");
    TAPER_TRY(keep(r, e, &entry->shard));
    if (!is_plain(entry->shard))
      return TAPER_FAIL(r->error, TAPER_INVALID,
                        "%s: tensor '%s': shard name '%s' is not a plain file name; put the shards beside the index",
                        r->path, entry->tensor, entry->shard);
  }
  return e.kind == JS_OBJECT_END ? TAPER_OK : wrong(r, e, "");
}

static taper_status read_top(index_reader *r) {
  bool seen = false;
  json_event e = json_scan_next(&r->scan);
  if (e.kind != JS_OBJECT) return wrong(r, e, "the index must be an object");
  while ((e = json_scan_next(&r->scan)).kind == JS_KEY) {
    if (json_is(&r->scan, e, "weight_map")) {
      if (seen) return wrong(r, e, "key 'weight_map' stands twice");
      seen = true;
      TAPER_TRY(read_map(r));
    } else if (json_is(&r->scan, e, "metadata")) { /* sizes for people; the shards speak for themselves */
      if (!json_scan_skip(&r->scan)) return wrong(r, (json_event){JS_ERROR, r->scan.at, 0}, "");
    } else {
      return wrong(r, e, "unknown key: weight_map and metadata are known");
    }
  }
  if (e.kind != JS_OBJECT_END) return wrong(r, e, "");
  e = json_scan_next(&r->scan);
  if (e.kind != JS_END) return wrong(r, e, "");
  if (r->index->count == 0)
    return TAPER_FAIL(r->error, TAPER_INVALID, "%s: weight_map names no tensor; get the index again", r->path);
  return TAPER_OK;
}

static int by_tensor(const void *a, const void *b) {
  return strcmp(((const shard_entry *)a)->tensor, ((const shard_entry *)b)->tensor);
}
static int by_text(const void *a, const void *b) { return strcmp(*(const char *const *)a, *(const char *const *)b); }

static taper_status check_index(index_reader *r) {
  shard_index *index = r->index;
  qsort(index->entries, index->count, sizeof *index->entries, by_tensor);
  for (size_t i = 1; i < index->count; i++)
    if (strcmp(index->entries[i - 1].tensor, index->entries[i].tensor) == 0)
      return TAPER_FAIL(r->error, TAPER_INVALID, "%s: tensor '%s' stands twice; get the index again", r->path,
                        index->entries[i].tensor);
  const char **names = ARENA_ARRAY(r->memory, const char *, index->count);
  for (size_t i = 0; i < index->count; i++) names[i] = index->entries[i].shard;
  qsort(names, index->count, sizeof *names, by_text);
  text missing = {0};
  size_t absent = 0;
  for (size_t i = 0; i < index->count; i++) {
    if (i > 0 && strcmp(names[i - 1], names[i]) == 0) continue;
    index->shards[index->shard_count++] = names[i];
    if (access(weights_beside(r->memory, r->path, names[i], false), F_OK) == 0) continue;
    text_printf(&missing, absent++ ? ", %s" : "%s", names[i]);
  }
  taper_status status = TAPER_OK;
  if (absent)
    status = TAPER_FAIL(r->error, TAPER_IO, "%s: %zu of %zu shards missing; put them beside the index: %s", r->path,
                        absent, index->shard_count, missing.data ? missing.data : "");
  text_free(&missing);
  return status;
}

taper_status shard_index_read(const char *path, arena *memory, shard_index *out, taper_error *error) {
  char *data;
  size_t size;
  *out = (shard_index){0};
  TAPER_TRY(file_read(path, INDEX_LIMIT, &data, &size, error));
  index_reader r = {.path = path, .memory = memory, .index = out, .error = error};
  json_scan_init(&r.scan, data, size);
  taper_status status = read_top(&r);
  free(data);
  if (status != TAPER_OK) return status;
  out->shards = ARENA_ARRAY(memory, const char *, out->count);
  return check_index(&r);
}
