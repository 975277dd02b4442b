#include "runtime/text/stop.h"
#include <string.h>

/* Knuth, Morris, Pratt, "Fast pattern matching in strings", SIAM J. Comput. 6 (1977): for each string the length of the
   longest of its beginnings that the stream ends with. The longest of those over all strings is withheld. */
typedef struct stop_string {
  const char *text;
  uint32_t *border; /* [size]: longest proper border of text[0..i] */
  size_t size, matched;
} stop_string;

struct stop_matcher {
  taper_allocator allocator;
  stop_string *strings;
  size_t count, longest;
  char *held; /* [longest + 1] */
  size_t held_count;
  bool stopped;
};

static size_t advance(const stop_string *s, size_t matched, char byte) {
  while (matched > 0 && (matched == s->size || s->text[matched] != byte)) matched = s->border[matched - 1];
  return s->text[matched] == byte ? matched + 1 : 0;
}

static void fill_borders(stop_string *s) {
  s->border[0] = 0;
  for (size_t i = 1; i < s->size; i++) s->border[i] = (uint32_t)advance(s, s->border[i - 1], s->text[i]);
}

taper_status stop_new(const char *const *strings, size_t count, const taper_allocator *allocator, stop_matcher **out,
                      taper_error *error) {
  size_t bytes = 0, longest = 0;
  *out = NULL;
  for (size_t i = 0; i < count; i++) {
    if (!strings[i] || !strings[i][0])
      return TAPER_FAIL(error, TAPER_INVALID, "stop string %zu is empty; leave it out", i);
    size_t n = strlen(strings[i]);
    if (n > 1u << 20)
      return TAPER_FAIL(error, TAPER_INVALID, "stop string %zu has %zu bytes; at most %u", i, n, 1u << 20);
    bytes += n;
    longest = n > longest ? n : longest;
  }
  /* one block: matcher, strings, borders, text, held */
  const size_t head = sizeof(stop_matcher) + count * sizeof(stop_string);
  char *block = memory_zalloc(allocator, 1, head + bytes * (sizeof(uint32_t) + 1) + longest + 1);
  if (!block) return memory_exhausted(error, "the stop strings", head + bytes * 5 + longest + 1);
  stop_matcher *m = (stop_matcher *)(void *)block;
  m->allocator = *allocator;
  m->strings = (stop_string *)(void *)(block + sizeof(*m));
  m->count = count, m->longest = longest;
  uint32_t *border = (uint32_t *)(void *)(block + head);
  char *at = block + head + bytes * sizeof(uint32_t);
  m->held = at + bytes;
  for (size_t i = 0; i < count; i++) {
    size_t n = strlen(strings[i]);
    m->strings[i] = (stop_string){.text = memcpy(at, strings[i], n), .border = border, .size = n};
    fill_borders(&m->strings[i]);
    at += n, border += n;
  }
  *out = m;
  return TAPER_OK;
}

void stop_free(stop_matcher *m) {
  if (!m) return;
  taper_allocator a = m->allocator;
  memory_free(&a, m);
}

size_t stop_room(const stop_matcher *m) { return m->longest + 1; }

static size_t release(stop_matcher *m, size_t n, char *out) {
  memcpy(out, m->held, n);
  memmove(m->held, m->held + n, m->held_count - n);
  m->held_count -= n;
  return n;
}

bool stop_feed(stop_matcher *m, char byte, char *out, size_t *out_n) {
  size_t keep = 0, complete = 0;
  *out_n = 0;
  if (m->stopped) return true;
  m->held[m->held_count++] = byte;
  for (size_t i = 0; i < m->count; i++) {
    stop_string *s = &m->strings[i];
    s->matched = advance(s, s->matched, byte);
    if (s->matched == s->size && s->size > complete) complete = s->size;
    if (s->matched > keep) keep = s->matched;
  }
  *out_n = release(m, m->held_count - (complete ? complete : keep), out);
  if (complete) m->stopped = true, m->held_count = 0;
  return complete > 0;
}

size_t stop_flush(stop_matcher *m, char *out) { return release(m, m->held_count, out); }
