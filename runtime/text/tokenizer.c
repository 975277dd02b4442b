#include "runtime/text/tokenizer.h"
#include <string.h>

static const char *const names[] = {[TOKENIZER_NONE] = "none", [TOKENIZER_BYTES] = "bytes"};

const char *tokenizer_name(tokenizer_kind kind) { return names[kind]; }

bool tokenizer_find(const char *name, tokenizer_kind *out) {
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    if (strcmp(names[i], name) != 0) continue;
    *out = (tokenizer_kind)i;
    return true;
  }
  return false;
}

uint32_t tokenizer_vocab(const tokenizer *t) { return t->kind == TOKENIZER_BYTES ? 256 : 0; }

const char *tokenizer_key(const tokenizer *t) { return names[t->kind]; }

static taper_status stopped(taper_error *error) {
  return TAPER_FAIL(error, TAPER_STOPPED, "the receiver of the ids stopped");
}

static taper_status stream_bytes(const char *text, size_t n, tokenizer_sink sink, void *user, taper_error *error) {
  int32_t ids[4096];
  for (size_t at = 0; at < n;) {
    size_t count = 0;
    while (count < sizeof ids / sizeof *ids && at < n) ids[count++] = (uint8_t)text[at++];
    if (sink(user, ids, count) != 0) return stopped(error);
  }
  return TAPER_OK;
}

taper_status tokenizer_stream(const tokenizer *t, const char *text, size_t n, tokenizer_sink sink, void *user,
                              taper_error *error) {
  if (t->kind == TOKENIZER_BYTES) return stream_bytes(text, n, sink, user, error);
  return TAPER_FAIL(error, TAPER_UNSUPPORTED, "there is no tokenizer; give token ids");
}

typedef struct memory_sink {
  int32_t *ids;
  size_t cap, count;
} memory_sink;

static int to_memory(void *user, const int32_t *ids, size_t n) {
  memory_sink *m = user;
  size_t room = m->cap > m->count ? m->cap - m->count : 0;
  if (room) memcpy(m->ids + m->count, ids, (n < room ? n : room) * sizeof *ids);
  m->count += n;
  return 0;
}

taper_status tokenizer_encode(const tokenizer *t, const char *text, size_t n, int32_t *ids, size_t cap, size_t *out_n,
                              taper_error *error) {
  memory_sink m = {ids, cap, 0};
  taper_status status = tokenizer_stream(t, text, n, to_memory, &m, error);
  *out_n = m.count;
  return status;
}

size_t tokenizer_piece(const tokenizer *t, int32_t id, char *out) {
  if (t->kind == TOKENIZER_NONE || id < 0 || id > 255) return 0;
  *out = (char)(uint8_t)id;
  return 1;
}
