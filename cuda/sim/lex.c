/* lex.c - tokens of PTX. */
#include "cuda/sim/parse.h"
#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

taper_status parse_fail(decoder *d, const token *t, const char *format, ...) {
  char text[600];
  va_list list;
  va_start(list, format);
  vsnprintf(text, sizeof(text), format, list);
  va_end(list);
  return TAPER_FAIL(d->error, TAPER_INVALID, "%s:%u: error: %s", d->file, t->line, text);
}

taper_status parse_room(decoder *d, void **block, size_t size, size_t count, size_t *capacity) {
  if (count < *capacity) return TAPER_OK;
  const size_t grown = 2 * *capacity + 32;
  void *p = realloc(*block, grown * size);
  if (!p) return TAPER_FAIL(d->error, TAPER_NOMEM, "%s: no memory for %zu bytes of the module", d->file, grown * size);
  *block = p;
  *capacity = grown;
  return TAPER_OK;
}

bool parse_is(const token *t, const char *text) {
  return strlen(text) == t->length && memcmp(t->at, text, t->length) == 0 && t->kind != TOKEN_STRING;
}

bool parse_accept(decoder *d, const char *text) {
  if (!parse_is(parse_peek(d), text)) return false;
  d->at++;
  return true;
}

taper_status parse_expect(decoder *d, const char *text) {
  const token *t = parse_peek(d);
  if (parse_accept(d, text)) return TAPER_OK;
  return parse_fail(d, t, "'%s' expected before '%.*s'", text, (int)t->length, t->at);
}

static bool word_char(int c) { return isalnum(c) || c == '_' || c == '$' || c == '.' || c == '%'; }

static size_t word_length(const char *p, const char *end) {
  const char *s = p;
  while (p < end) {
    if (word_char((unsigned char)*p))
      p++;
    else if (end - p > 2 && p[0] == ':' && p[1] == ':')
      p += 2;
    else
      break;
  }
  return (size_t)(p - s);
}

/* Past blanks and comments; counts lines. NULL: a comment does not end. */
static const char *skip_blanks(const char *p, const char *end, uint32_t *line) {
  while (p < end) {
    if (*p == '\n') (*line)++;
    if (isspace((unsigned char)*p)) {
      p++;
    } else if (end - p > 1 && p[0] == '/' && p[1] == '/') {
      while (p < end && *p != '\n') p++;
    } else if (end - p > 1 && p[0] == '/' && p[1] == '*') {
      for (p += 2; end - p > 1 && !(p[0] == '*' && p[1] == '/'); p++) *line += *p == '\n';
      if (end - p < 2) return NULL;
      p += 2;
    } else {
      break;
    }
  }
  return p;
}

static token one_token(const char *p, const char *end, uint32_t line) {
  token t = {.at = p, .length = 1, .line = line, .kind = TOKEN_MARK};
  const bool negative = *p == '-' && end - p > 1 && isdigit((unsigned char)p[1]);
  if (isdigit((unsigned char)*p) || negative) {
    t.kind = TOKEN_NUMBER;
    while (t.length < (size_t)(end - p) && isalnum((unsigned char)p[t.length])) t.length++;
  } else if (*p == '"') {
    t.kind = TOKEN_STRING;
    while (t.length < (size_t)(end - p) && p[t.length] != '"' && p[t.length] != '\n') t.length++;
    t.length++;
  } else if (word_char((unsigned char)*p)) {
    t.kind = TOKEN_WORD;
    t.length = (uint32_t)word_length(p, end);
  }
  return t;
}

taper_status parse_tokens(decoder *d, const char *text, size_t size) {
  const char *p = text, *end = text + strnlen(text, size);
  uint32_t line = 1;
  size_t capacity = 0;
  for (;;) {
    TAPER_TRY(parse_room(d, (void **)&d->tokens, sizeof(token), d->token_count, &capacity));
    const char *q = skip_blanks(p, end, &line);
    token *t = &d->tokens[d->token_count];
    *t = (token){.at = "end of text", .length = 11, .line = line, .kind = TOKEN_END};
    if (!q) return parse_fail(d, t, "a comment does not end");
    if (q == end) break;
    *t = one_token(q, end, line);
    if (t->kind == TOKEN_STRING && (t->length < 2 || q + t->length > end || q[t->length - 1] != '"'))
      return parse_fail(d, t, "a string does not end on its line");
    p = q + t->length;
    d->token_count++;
  }
  d->token_count++;
  return TAPER_OK;
}

bool parse_number(const token *t, uint64_t *out, uint32_t *out_float_bytes) {
  char text[32];
  *out_float_bytes = 0;
  if (t->kind != TOKEN_NUMBER || t->length >= sizeof(text)) return false;
  memcpy(text, t->at, t->length);
  text[t->length] = 0;
  const bool single = t->length == 10 && text[0] == '0' && (text[1] == 'f' || text[1] == 'F');
  const bool twice = t->length == 18 && text[0] == '0' && (text[1] == 'd' || text[1] == 'D');
  char *end;
  if (single || twice) {
    *out = strtoull(text + 2, &end, 16);
    *out_float_bytes = single ? 4 : 8;
    return *end == 0;
  }
  *out = text[0] == '-' ? 0 - strtoull(text + 1, &end, 0) : strtoull(text, &end, 0);
  if (*end == 'U' || *end == 'u') end++;
  return *end == 0;
}

taper_status parse_unsigned(decoder *d, uint32_t *out) {
  const token *t = parse_next(d);
  uint64_t v;
  uint32_t is_float;
  if (!parse_number(t, &v, &is_float) || is_float || v > UINT32_MAX)
    return parse_fail(d, t, "a number below 2^32 expected, not '%.*s'", (int)t->length, t->at);
  *out = (uint32_t)v;
  return TAPER_OK;
}
