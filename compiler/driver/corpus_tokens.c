/* Ids that were made of a text, kept beside it: FILE.<key>.tokens holds the ids, then one line of TRAILER bytes that
   says what they are of and what their hash is. A file that does not end in exactly that line is made anew. */
#include "compiler/driver/corpus_priv.h"
#include "runtime/base/text.h"
#include <stdlib.h>
#include <string.h>

enum { TRAILER = 160, NAME_DIGITS = 16 };

static void trailer_of(hash128 key, uint32_t width, uint64_t count, hash128 ids, char out[TRAILER + 1]) {
  memset(out, ' ', TRAILER);
  int n = text_format(out, TRAILER, "taper tokens 1, %u bytes an id, %llu ids, of %s, hash %s", width,
                      (unsigned long long)count, key.hex, ids.hex);
  out[n] = ' ';
  out[TRAILER - 1] = '\n';
}

/* A kept file that is whole, or nothing. */
static bool open_kept(const char *path, hash128 key, uint32_t width, corpus_ids *out) {
  mapped_file map = {0};
  char expected[TRAILER + 1];
  if (file_map(path, &map, NULL) != TAPER_OK) return false;
  uint64_t bytes = map.size >= TRAILER ? map.size - TRAILER : 0, count = bytes / width;
  if (map.size >= TRAILER && bytes % width == 0) {
    trailer_of(key, width, count, hash_bytes(map.data, bytes), expected);
    if (memcmp(map.data + bytes, expected, TRAILER) == 0) {
      *out = (corpus_ids){.data = map.data, .width = width, .count = count, .map = map};
      return true;
    }
  }
  file_unmap(&map);
  return false;
}

typedef struct packer { /* to a file, or to memory where `writer` is NULL */
  uint32_t width;
  uint64_t count;
  file_writer *writer;
  hash_stream *hash;
  uint8_t *memory;
  size_t cap;
  taper_error *error;
  taper_status status;
} packer;

static taper_status pack_memory(packer *p, const uint8_t *bytes, size_t n) {
  size_t used = (size_t)p->count * p->width;
  if (n > p->cap - used) {
    size_t cap = p->cap * 2 > used + n ? p->cap * 2 : used + n + (1 << 16);
    uint8_t *grown = realloc(p->memory, cap);
    if (!grown) return TAPER_FAIL(p->error, TAPER_NOMEM, "no memory for %llu ids", (unsigned long long)p->count);
    p->memory = grown, p->cap = cap;
  }
  memcpy(p->memory + used, bytes, n);
  return TAPER_OK;
}

static int pack(void *user, const int32_t *ids, size_t n, size_t at) {
  packer *p = user;
  (void)at;
  uint8_t bytes[4 * 1024];
  while (n && p->status == TAPER_OK) {
    size_t piece = n < 1024 ? n : 1024;
    for (size_t i = 0; i < piece; i++)
      for (uint32_t k = 0; k < p->width; k++) bytes[i * p->width + k] = (uint8_t)((uint32_t)ids[i] >> (8 * k));
    if (p->writer) {
      hash_update(p->hash, bytes, piece * p->width);
      p->status = file_writer_put(p->writer, bytes, piece * p->width, p->error);
    } else {
      p->status = pack_memory(p, bytes, piece * p->width);
    }
    p->count += piece, ids += piece, n -= piece;
  }
  return p->status != TAPER_OK;
}

typedef struct maker {
  corpus_make make;
  void *user;
  const char *data;
  size_t size;
} maker;

/* TAPER_OK, or why the file could not be written (*out_source false) or the ids not be made (true). */
static taper_status write_kept(const char *path, hash128 key, uint32_t width, const maker *m, bool *out_source,
                               taper_error *error) {
  file_writer w = {.fd = -1};
  char trailer[TRAILER + 1];
  *out_source = false;
  TAPER_TRY(file_writer_open(path, &w, error));
  packer p = {.width = width, .writer = &w, .hash = hash_begin(), .error = error};
  taper_status status = p.hash ? m->make(m->user, m->data, m->size, pack, &p, error)
                               : TAPER_FAIL(error, TAPER_NOMEM, "no memory for a hash; free some");
  *out_source = status != TAPER_OK && p.status == TAPER_OK;
  if (p.status != TAPER_OK) status = p.status;
  hash128 ids = p.hash ? hash_end(p.hash) : key;
  if (status == TAPER_OK) {
    trailer_of(key, width, p.count, ids, trailer);
    status = file_writer_put(&w, trailer, TRAILER, error);
    if (status == TAPER_OK) return file_writer_commit(&w, error);
  }
  file_writer_abort(&w);
  return status;
}

static taper_status make_in_memory(const maker *m, uint32_t width, corpus_ids *out, taper_error *error) {
  packer p = {.width = width, .error = error};
  taper_status status = m->make(m->user, m->data, m->size, pack, &p, error);
  if (p.status != TAPER_OK) status = p.status;
  if (status == TAPER_OK)
    *out = (corpus_ids){.data = p.memory, .width = width, .count = p.count, .memory = p.memory};
  else
    free(p.memory);
  return status;
}

taper_status corpus_tokens(const char *path, hash128 key, uint32_t width, bool keep, const char *data, size_t size,
                           corpus_make make, void *user, diag_sink *sink, corpus_ids *out, taper_error *error) {
  const maker m = {make, user, data, size};
  if (!path) return make_in_memory(&m, width, out, error);
  text kept = {0};
  text_printf(&kept, "%s.%.*s.tokens", path, NAME_DIGITS, key.hex);
  if (kept.failed) return TAPER_FAIL(error, TAPER_NOMEM, "no memory for a path; free some");
  taper_status status = TAPER_OK;
  bool source = false, have = open_kept(kept.data, key, width, out);
  diag_loc at = {.file = diag_intern(sink, kept.data)};
  if (have) {
    diag_remark(sink, "model", false, at, "its %llu ids are used", (unsigned long long)out->count);
  } else if (keep) {
    taper_error why = {0};
    status = write_kept(kept.data, key, width, &m, &source, &why);
    have = status == TAPER_OK && open_kept(kept.data, key, width, out);
    if (have) diag_remark(sink, "model", false, at, "%llu ids are kept in it", (unsigned long long)out->count);
    if (!have && !source)
      diag_remark(sink, "model", true, at, "the ids are not kept: %s", status == TAPER_OK ? "it changed" : why.message);
    if (source && error) *error = why;
  }
  text_free(&kept);
  if (have || source) return status;
  return make_in_memory(&m, width, out, error);
}
