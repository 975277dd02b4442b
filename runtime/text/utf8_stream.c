#include "runtime/text/utf8_stream.h"
#include <string.h>

typedef enum utf8_state { UTF8_WRONG, UTF8_PARTIAL, UTF8_WHOLE } utf8_state;

static utf8_state judge(const uint8_t *b, uint32_t n) {
  if (b[0] < 0x80) return UTF8_WHOLE;
  if (b[0] < 0xc2 || b[0] > 0xf4) return UTF8_WRONG;
  uint32_t length = b[0] < 0xe0 ? 2 : b[0] < 0xf0 ? 3 : 4;
  uint8_t low = b[0] == 0xe0   ? 0xa0
                : b[0] == 0xf0 ? 0x90
                               : 0x80,
          high = b[0] == 0xed   ? 0x9f
                 : b[0] == 0xf4 ? 0x8f
                                : 0xbf;
  for (uint32_t i = 1; i < n; i++, low = 0x80, high = 0xbf) {
    if (b[i] < low || b[i] > high) return UTF8_WRONG;
  }
  return n == length ? UTF8_WHOLE : UTF8_PARTIAL;
}

/* Passes the first n held bytes. */
static size_t pass(utf8_stream *s, uint32_t n, char *out) {
  memcpy(out, s->held, n);
  memmove(s->held, s->held + n, s->count - n);
  s->count -= n;
  return n;
}

size_t utf8_push(utf8_stream *s, const char *bytes, size_t n, char *out) {
  size_t used = 0;
  for (size_t i = 0; i < n; i++) {
    s->held[s->count++] = (uint8_t)bytes[i];
    if (judge(s->held, s->count) == UTF8_WRONG)
      used += pass(s, s->count - 1, out + used); /* the newest may begin a character */
    if (s->count > 0 && judge(s->held, s->count) != UTF8_PARTIAL) used += pass(s, s->count, out + used);
  }
  return used;
}

size_t utf8_flush(utf8_stream *s, char *out) { return pass(s, s->count, out); }
