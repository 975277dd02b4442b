/* One data file: what it holds, its ids, their check. */
#include "compiler/driver/corpus_priv.h"
#include "compiler/driver/id_list.h"
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { STREAM_LIMIT = 1 << 30, LLM_C_HEADER = 1024 };

typedef enum data_kind { DATA_TEXT, DATA_LIST, DATA_RAW, DATA_LLM_C } data_kind;

static const struct {
  const char *end;
  data_kind kind;
  uint32_t width;
} extensions[] = {{".u16", DATA_RAW, 2}, {".u32", DATA_RAW, 4}, {".ids", DATA_LIST, 4}, {".bin", DATA_LLM_C, 0}};

static data_kind kind_of(const char *path, uint32_t *out_width) {
  size_t n = strlen(path);
  *out_width = 0;
  for (size_t i = 0; i < sizeof extensions / sizeof *extensions; i++) {
    size_t m = strlen(extensions[i].end);
    if (n <= m || strcmp(path + n - m, extensions[i].end) != 0) continue;
    *out_width = extensions[i].width;
    return extensions[i].kind;
  }
  return DATA_TEXT;
}

bool corpus_is_text(const char *path) {
  uint32_t width;
  return kind_of(path, &width) == DATA_TEXT;
}

/* The bytes of a file: mapped, or read where it is a pipe. */
static taper_status get_bytes(corpus_file *f, const char *path, const char **out_data, size_t *out_size,
                              taper_error *error) {
  struct stat s;
  bool stream = strcmp(path, "-") == 0 || (stat(path, &s) == 0 && !S_ISREG(s.st_mode) && !S_ISDIR(s.st_mode));
  char *data = NULL;
  if (stream) {
    TAPER_TRY(file_read(path, STREAM_LIMIT, &data, out_size, error));
    f->ids.memory = data;
    *out_data = data;
  } else {
    TAPER_TRY(file_map(path, &f->ids.map, error));
    *out_data = (const char *)f->ids.map.data;
    *out_size = f->ids.map.size;
  }
  if (*out_size) return TAPER_OK;
  return TAPER_FAIL(error, TAPER_INVALID, "%s: is an empty file; give text or ids", f->path);
}

/* What no text and no ids begin with. */
static taper_status check_guess(const corpus_file *f, data_kind kind, const char *data, size_t size,
                                taper_error *error) {
  const char *remedy, *guess = file_guess(data, size, &remedy);
  bool pointer = guess && strstr(guess, "LFS"), page = guess && strstr(guess, "HTML");
  if (!guess || (page && kind == DATA_TEXT) || (!pointer && kind != DATA_TEXT)) return TAPER_OK;
  bool unpack = strncmp(remedy, "unpack", 6) == 0;
  return TAPER_FAIL(error, TAPER_INVALID, "%s: is %s; %s", f->path, guess,
                    pointer || unpack ? remedy : "give text or ids (docs/data.md)");
}

static taper_status open_raw(corpus_file *f, const char *data, size_t size, uint32_t width, size_t skip,
                             taper_error *error) {
  if ((size - skip) % width)
    return TAPER_FAIL(error, TAPER_INVALID,
                      "%s: its %zu bytes are no whole number of %u-byte ids; check how it was written", f->path,
                      size - skip, width);
  f->ids.data = (const uint8_t *)data + skip;
  f->ids.width = width;
  f->ids.count = (size - skip) / width;
  f->key = hash_bytes(data, size);
  return TAPER_OK;
}

/* llm.c: 256 i32: magic, version, number of ids, then the ids, u16 (20240520) or u32 (20240801). */
static taper_status open_llm_c(corpus_file *f, const char *data, size_t size, taper_error *error) {
  const corpus_ids words = {.data = (const uint8_t *)data, .width = 4};
  uint32_t magic = size >= LLM_C_HEADER ? corpus_id(&words, 0) : 0;
  if (magic != 20240520 && magic != 20240801)
    return TAPER_FAIL(
        error, TAPER_INVALID,
        "%s: has no llm.c header, so nothing says how wide its ids are; name it .u16 or .u32 (.txt: text)", f->path);
  TAPER_TRY(open_raw(f, data, size, magic == 20240520 ? 2 : 4, LLM_C_HEADER, error));
  uint32_t told = corpus_id(&words, 2);
  if (told == f->ids.count) return TAPER_OK;
  return TAPER_FAIL(error, TAPER_INVALID, "%s: its header says %u ids, it holds %llu; copy it again", f->path, told,
                    (unsigned long long)f->ids.count);
}

/* ---- ids that are made ---- */

/* A sink that tells how far it is. */
typedef struct making {
  const corpus_file *f;
  const corpus_options *o;
  size_t size;
  tokenizer_sink put;
  void *put_user;
} making;

static int put_and_tell(void *user, const int32_t *ids, size_t n, size_t at) {
  const making *m = user;
  if (m->o->progress) m->o->progress(m->o->user, m->f->path, at, m->size);
  return m->put(m->put_user, ids, n, at);
}

static making begin(const void *user, size_t size, tokenizer_sink put, void *put_user) {
  making m = *(const making *)user;
  m.size = size, m.put = put, m.put_user = put_user;
  return m;
}

static void told_all(const making *m) {
  if (m->o->progress) m->o->progress(m->o->user, m->f->path, m->size, m->size);
}

static taper_status make_list(void *user, const char *data, size_t size, tokenizer_sink put, void *put_user,
                              taper_error *error) {
  making m = begin(user, size, put, put_user);
  const corpus_file *f = m.f;
  id_list_error e;
  bool ok = id_list_parse(data, size, put_and_tell, &m, &e);
  told_all(&m);
  if (ok) return TAPER_OK;
  if (e.fault == ID_LIST_STOPPED) return TAPER_FAIL(error, TAPER_STOPPED, "stopped");
  return TAPER_FAIL(error, TAPER_INVALID, "%s: byte %zu: %s", f->path, e.at, e.message);
}

static taper_status make_text(void *user, const char *data, size_t size, tokenizer_sink put, void *put_user,
                              taper_error *error) {
  making m = begin(user, size, put, put_user);
  taper_status status = tokenizer_stream(m.o->tokenizer, data, size, 0, put_and_tell, &m, error);
  told_all(&m);
  return status;
}

static hash128 key_of(const char *data, size_t size, const char *with) {
  const hash128 both[] = {hash_bytes(data, size), hash_bytes(with, strlen(with))};
  return hash_bytes(both, sizeof both);
}

static taper_status open_made(corpus_file *f, const char *path, const corpus_options *o, data_kind kind,
                              const char *data, size_t size, diag_sink *sink, taper_error *error) {
  corpus_ids made = {0};
  bool is_text = kind == DATA_TEXT;
  uint32_t ids = is_text ? tokenizer_vocab(o->tokenizer) : UINT32_MAX, width = ids <= 65536 ? 2 : 4;
  f->key = key_of(data, size, is_text ? tokenizer_key(o->tokenizer) : "list");
  making m = {.f = f, .o = o};
  taper_status status = corpus_tokens(f->ids.memory ? NULL : path, f->key, width, o->keep_tokens, data, size,
                                      is_text ? make_text : make_list, &m, sink, &made, error);
  corpus_file_close(f);
  if (status == TAPER_OK) f->ids = made;
  return status;
}

static taper_status open_text(corpus_file *f, const char *path, const corpus_options *o, const char *data, size_t size,
                              diag_sink *sink, taper_error *error) {
  f->text = true;
  f->bytes = size;
  switch (o->tokenizer ? o->tokenizer->kind : TOKENIZER_NONE) {
  case TOKENIZER_NONE:
    return TAPER_FAIL(error, TAPER_INVALID,
                      "%s: is text, and the model has no tokenizer; give ids (.ids, .u16, .u32), or the model a "
                      "tokenizer in its train section",
                      f->path);
  case TOKENIZER_BYTES:
    f->key = key_of(data, size, tokenizer_key(o->tokenizer));
    f->ids.data = (const uint8_t *)data;
    f->ids.width = 1;
    f->ids.count = size;
    return TAPER_OK;
  case TOKENIZER_SENTENCEPIECE: break;
  }
  return open_made(f, path, o, DATA_TEXT, data, size, sink, error);
}

static taper_status check_ids(const corpus_file *f, uint32_t vocab, taper_error *error) {
  const corpus_ids *ids = &f->ids;
  if (ids->width < 4 && vocab >= 1u << (8 * ids->width)) return TAPER_OK;
  for (uint64_t i = 0; i < ids->count; i++) {
    uint32_t id = corpus_id(ids, i);
    if (id < vocab) continue;
    return TAPER_FAIL(error, TAPER_INVALID,
                      "%s: id %u (number %llu of %llu) is outside the vocabulary of %u; give ids from 0 to %u", f->path,
                      id, (unsigned long long)i + 1, (unsigned long long)ids->count, vocab, vocab - 1);
  }
  return TAPER_OK;
}

taper_status corpus_file_open(const char *path, const corpus_options *o, diag_sink *sink, corpus_file *out,
                              taper_error *error) {
  const char *data = NULL;
  size_t size = 0;
  uint32_t width = 0;
  *out = (corpus_file){.path = strcmp(path, "-") == 0 ? "standard input" : path};
  data_kind kind = kind_of(path, &width);
  taper_status status = get_bytes(out, path, &data, &size, error);
  if (status == TAPER_OK) status = check_guess(out, kind, data, size, error);
  if (status == TAPER_OK) {
    switch (kind) {
    case DATA_TEXT: status = open_text(out, path, o, data, size, sink, error); break;
    case DATA_LIST: status = open_made(out, path, o, kind, data, size, sink, error); break;
    case DATA_RAW: status = open_raw(out, data, size, width, 0, error); break;
    case DATA_LLM_C: status = open_llm_c(out, data, size, error); break;
    }
  }
  if (status == TAPER_OK) status = check_ids(out, o->vocab, error);
  if (status != TAPER_OK) return corpus_file_close(out), status;
  diag_remark(sink, "model", false, (diag_loc){.file = diag_intern(sink, out->path)}, "%llu ids, %s",
              (unsigned long long)out->ids.count,
              out->text ? "text by the model's tokenizer" : "ids by the file's extension");
  return TAPER_OK;
}

void corpus_file_close(corpus_file *f) {
  file_unmap(&f->ids.map);
  free(f->ids.memory);
  f->ids = (corpus_ids){0};
}
