#include "compiler/driver/id_list.h"
#include "runtime/base/text.h"
#include <string.h>

enum { PIECE = 1024 };

static bool is_gap(char ch) { return ch == ' ' || ch == '\t' || ch == '\n' || ch == '\r'; }

static bool fail(id_list_error *e, id_list_fault fault, size_t at, const char *format, const char *word) {
  e->fault = fault;
  e->at = at;
  text_format(e->message, sizeof e->message, format, word);
  return false;
}

/* One id of s[at..end). */
static bool parse_id(const char *s, size_t at, size_t end, int32_t *out, id_list_error *e) {
  char word[41];
  size_t n = end - at < 40 ? end - at : 40;
  memcpy(word, s + at, n);
  word[n] = 0;
  size_t sign = *word == '-';
  if (!word[sign] || strspn(word + sign, "0123456789") != strlen(word + sign))
    return fail(e, ID_LIST_WORD, at, "'%s' is not an id; give whole numbers separated by commas", word);
  int64_t v;
  if (!number_parse_i64(s + at, end - at, &v) || v < 0 || v > INT32_MAX)
    return fail(e, ID_LIST_RANGE, at, "the id %s is outside every vocabulary; give ids from 0 up", word);
  *out = (int32_t)v;
  return true;
}

bool id_list_parse(const char *s, size_t n, int (*put)(void *, const int32_t *, size_t, size_t), void *user,
                   id_list_error *out_error) {
  int32_t ids[PIECE];
  size_t held = 0, all = 0;
  *out_error = (id_list_error){0};
  bool comma = true; /* an id may, or must, follow */
  for (size_t i = 0; i < n;) {
    if (is_gap(s[i])) {
      i++;
      continue;
    }
    if (s[i] == ',') {
      if (comma) break; /* nothing between two commas */
      comma = true, i++;
      continue;
    }
    size_t end = i;
    while (end < n && !is_gap(s[end]) && s[end] != ',') end++;
    if (!parse_id(s, i, end, &ids[held], out_error)) return false;
    held++, all++;
    if (held == PIECE && put(user, ids, held, end) != 0) return fail(out_error, ID_LIST_STOPPED, i, "stopped", "");
    held %= PIECE;
    comma = false, i = end;
  }
  if (all == 0) return fail(out_error, ID_LIST_EMPTY, 0, "there is no id; give whole numbers separated by commas", "");
  if (comma)
    return fail(out_error, ID_LIST_COMMA, n, "an id is missing beside a comma; give whole numbers separated by commas",
                "");
  if (held && put(user, ids, held, n) != 0) return fail(out_error, ID_LIST_STOPPED, n, "stopped", "");
  return true;
}
