#include "runtime/text/tokenizer.h"
#include "runtime/text/sentencepiece.h"
#include <string.h>

static const char *const names[] = {
    [TOKENIZER_NONE] = "none", [TOKENIZER_BYTES] = "bytes", [TOKENIZER_SENTENCEPIECE] = "sentencepiece"};

const char *tokenizer_name(tokenizer_kind kind) { return names[kind]; }

bool tokenizer_find(const char *name, tokenizer_kind *out) {
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    if (strcmp(names[i], name) != 0) continue;
    *out = (tokenizer_kind)i;
    return true;
  }
  return false;
}

taper_status tokenizer_open(tokenizer_kind kind, const void *file, size_t bytes, const char *name,
                            const taper_allocator *allocator, tokenizer *out, taper_error *error) {
  const taper_allocator a = memory_allocator(allocator ? *allocator : (taper_allocator){0});
  *out = (tokenizer){0};
  if (kind == TOKENIZER_SENTENCEPIECE) TAPER_TRY(sp_open(file, bytes, name, &a, &out->model, error));
  out->kind = kind;
  return TAPER_OK;
}

void tokenizer_close(tokenizer *t) {
  sp_close(t->model);
  *t = (tokenizer){0};
}

uint32_t tokenizer_vocab(const tokenizer *t) {
  return t->model ? sp_vocab(t->model) : t->kind == TOKENIZER_BYTES ? 256 : 0;
}
int32_t tokenizer_bos(const tokenizer *t) { return t->model ? sp_bos(t->model) : -1; }
int32_t tokenizer_eos(const tokenizer *t) { return t->model ? sp_eos(t->model) : -1; }
const char *tokenizer_key(const tokenizer *t) { return t->model ? sp_key(t->model) : names[t->kind]; }

static taper_status stream_bytes(const char *text, size_t n, tokenizer_sink sink, void *user, taper_error *error) {
  int32_t ids[4096];
  for (size_t at = 0; at < n;) {
    size_t count = 0;
    while (count < sizeof ids / sizeof *ids && at < n) ids[count++] = (uint8_t)text[at++];
    if (sink(user, ids, count, at) != 0) return TAPER_FAIL(error, TAPER_STOPPED, "the receiver of the ids stopped");
  }
  return TAPER_OK;
}

taper_status tokenizer_stream(const tokenizer *t, const char *text, size_t n, unsigned flags, tokenizer_sink sink,
                              void *user, taper_error *error) {
  switch (t->kind) {
  case TOKENIZER_BYTES: return stream_bytes(text, n, sink, user, error);
  case TOKENIZER_SENTENCEPIECE: return sp_stream(t->model, text, n, flags, sink, user, error);
  case TOKENIZER_NONE: break;
  }
  return TAPER_FAIL(error, TAPER_UNSUPPORTED, "there is no tokenizer; give token ids");
}

typedef struct memory_sink {
  int32_t *ids;
  size_t cap, count;
} memory_sink;

static int to_memory(void *user, const int32_t *ids, size_t n, size_t at) {
  memory_sink *m = user;
  (void)at;
  size_t room = m->cap > m->count ? m->cap - m->count : 0;
  if (room) memcpy(m->ids + m->count, ids, (n < room ? n : room) * sizeof *ids);
  m->count += n;
  return 0;
}

taper_status tokenizer_encode(const tokenizer *t, const char *text, size_t n, unsigned flags, int32_t *ids, size_t cap,
                              size_t *out_n, taper_error *error) {
  memory_sink m = {ids, cap, 0};
  taper_status status = tokenizer_stream(t, text, n, flags, to_memory, &m, error);
  *out_n = m.count;
  return status;
}

size_t tokenizer_piece(const tokenizer *t, int32_t id, char *out) {
  if (t->model) return sp_piece(t->model, id, out);
  if (t->kind == TOKENIZER_NONE || id < 0 || id > 255) return 0;
  *out = (char)(uint8_t)id;
  return 1;
}

typedef struct text_sink {
  char *text;
  size_t cap, count;
} text_sink;

static void to_text(void *user, const char *bytes, size_t n) {
  text_sink *s = user;
  size_t room = s->cap > s->count ? s->cap - s->count : 0;
  if (room) memcpy(s->text + s->count, bytes, n < room ? n : room);
  s->count += n;
}

taper_status tokenizer_decode(const tokenizer *t, const int32_t *ids, size_t n, char *text, size_t cap, size_t *out_n,
                              taper_error *error) {
  text_sink s = {text, cap, 0};
  taper_status status = TAPER_OK;
  char piece[TOKENIZER_MAX_PIECE];
  if (t->model) {
    for (size_t i = 0; i < n; i++)
      if (ids[i] < 0 || (uint32_t)ids[i] >= sp_vocab(t->model))
        return TAPER_FAIL(error, TAPER_INVALID, "token %zu is %d; ids are 0 to %u", i, ids[i], sp_vocab(t->model) - 1);
    status = sp_decode(t->model, ids, n, to_text, &s, error);
  } else {
    for (size_t i = 0; i < n; i++) to_text(&s, piece, tokenizer_piece(t, ids[i], piece));
  }
  *out_n = s.count;
  return status;
}
