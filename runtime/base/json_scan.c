#include "runtime/base/json_scan.h"
#include "runtime/base/text.h"

#include <string.h>

enum { WANT_VALUE, WANT_VALUE_OR_CLOSE, WANT_KEY, WANT_KEY_OR_CLOSE, AFTER_VALUE, FAILED };

void json_scan_init(json_scan *scan, const char *s, size_t size) {
  *scan = (json_scan){.s = s, .size = size, .state = WANT_VALUE};
}

static json_event fail(json_scan *scan, size_t at, const char *message) {
  if (scan->state != FAILED) scan->error = message, scan->at = at, scan->state = FAILED;
  return (json_event){JS_ERROR, scan->at, 0};
}

static int hex4(const char *s) {
  int value = 0;
  for (int i = 0; i < 4; i++) {
    int c = (unsigned char)s[i];
    int digit = c >= '0' && c <= '9'   ? c - '0'
                : c >= 'a' && c <= 'f' ? c - 'a' + 10
                : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                       : -1;
    if (digit < 0) return -1;
    value = value * 16 + digit;
  }
  return value;
}

/* The escape at s[at] == '\\': its length in the source, and the code point; 0: malformed. */
static size_t escape(const char *s, size_t at, size_t size, uint32_t *out) {
  static const char letters[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
  if (size - at < 2) return 0;
  const char *letter = s[at + 1] ? strchr(letters, s[at + 1]) : NULL;
  if (letter) {
    *out = (unsigned char)meanings[letter - letters];
    return 2;
  }
  if (s[at + 1] != 'u' || size - at < 6) return 0;
  int high = hex4(s + at + 2);
  if (high < 0 || (high >= 0xDC00 && high <= 0xDFFF)) return 0;
  *out = (uint32_t)high;
  if (high < 0xD800 || high > 0xDBFF) return 6;
  if (size - at < 12 || s[at + 6] != '\\' || s[at + 7] != 'u') return 0;
  int low = hex4(s + at + 8);
  if (low < 0xDC00 || low > 0xDFFF) return 0;
  *out = 0x10000u + (((uint32_t)high - 0xD800u) << 10) + ((uint32_t)low - 0xDC00u);
  return 12;
}

static json_event scan_string(json_scan *scan, json_kind kind) {
  size_t i = scan->at + 1, start = i;
  while (i < scan->size && scan->s[i] != '"') {
    unsigned char c = (unsigned char)scan->s[i];
    uint32_t ignored;
    size_t n = c == '\\' ? escape(scan->s, i, scan->size, &ignored) : utf8_length(scan->s + i, scan->size - i);
    if (c < 32) return fail(scan, i, "a control character inside a string");
    if (n == 0) return fail(scan, i, c == '\\' ? "a malformed escape" : "bytes that are not UTF-8");
    i += n;
  }
  if (i >= scan->size) return fail(scan, start - 1, "a string that does not end");
  scan->at = i + 1;
  return (json_event){kind, start, i - start};
}

static size_t digits(const json_scan *scan, size_t i) {
  while (i < scan->size && scan->s[i] >= '0' && scan->s[i] <= '9') i++;
  return i;
}

static json_event scan_number(json_scan *scan) {
  size_t start = scan->at, i = start + (scan->s[start] == '-'), end = digits(scan, i);
  if (end == i || (end - i > 1 && scan->s[i] == '0')) return fail(scan, start, "a malformed number");
  i = end;
  if (i < scan->size && scan->s[i] == '.') {
    end = digits(scan, i + 1);
    if (end == i + 1) return fail(scan, start, "a malformed number");
    i = end;
  }
  if (i < scan->size && (scan->s[i] == 'e' || scan->s[i] == 'E')) {
    i += 1;
    if (i < scan->size && (scan->s[i] == '+' || scan->s[i] == '-')) i += 1;
    end = digits(scan, i);
    if (end == i) return fail(scan, start, "a malformed number");
    i = end;
  }
  scan->at = i;
  return (json_event){JS_NUMBER, start, i - start};
}

static json_event scan_word(json_scan *scan) {
  static const struct {
    const char *word;
    json_kind kind;
  } words[] = {{"true", JS_TRUE}, {"false", JS_FALSE}, {"null", JS_NULL}};
  for (size_t k = 0; k < 3; k++) {
    size_t n = strlen(words[k].word);
    if (scan->size - scan->at < n || memcmp(scan->s + scan->at, words[k].word, n) != 0) continue;
    scan->at += n;
    return (json_event){words[k].kind, scan->at - n, n};
  }
  return fail(scan, scan->at, "not a JSON value");
}

static json_event open_level(json_scan *scan, char bracket) {
  if (scan->depth == JSON_MAX_DEPTH) return fail(scan, scan->at, "nested deeper than 64 levels");
  scan->stack[scan->depth++] = bracket;
  scan->state = bracket == '{' ? WANT_KEY_OR_CLOSE : WANT_VALUE_OR_CLOSE;
  scan->at += 1;
  return (json_event){bracket == '{' ? JS_OBJECT : JS_ARRAY, scan->at - 1, 1};
}

static json_event close_level(json_scan *scan) {
  char bracket = scan->stack[--scan->depth];
  scan->state = AFTER_VALUE;
  scan->at += 1;
  return (json_event){bracket == '{' ? JS_OBJECT_END : JS_ARRAY_END, scan->at - 1, 1};
}

static void skip_space(json_scan *scan) {
  while (scan->at < scan->size && (scan->s[scan->at] == ' ' || scan->s[scan->at] == '\n' || scan->s[scan->at] == '\r' ||
                                   scan->s[scan->at] == '\t'))
    scan->at++;
}

static json_event scan_key(json_scan *scan) {
  if (scan->s[scan->at] != '"') return fail(scan, scan->at, "a key in double quotes must stand here");
  json_event key = scan_string(scan, JS_KEY);
  if (key.kind == JS_ERROR) return key;
  skip_space(scan);
  if (scan->at == scan->size || scan->s[scan->at] != ':') return fail(scan, scan->at, "a ':' must stand here");
  scan->at += 1;
  scan->state = WANT_VALUE;
  return key;
}

json_event json_scan_next(json_scan *scan) {
  if (scan->state == FAILED) return (json_event){JS_ERROR, scan->at, 0};
  skip_space(scan);
  if (scan->state == AFTER_VALUE) {
    if (scan->depth == 0) {
      if (scan->at < scan->size) return fail(scan, scan->at, "text after the end of the JSON value");
      return (json_event){JS_END, scan->at, 0};
    }
    if (scan->at == scan->size) return fail(scan, scan->at, "the text ends inside a JSON value");
    bool object = scan->stack[scan->depth - 1] == '{';
    if (scan->s[scan->at] == (object ? '}' : ']')) return close_level(scan);
    if (scan->s[scan->at] != ',')
      return fail(scan, scan->at, object ? "a ',' or '}' must stand here" : "a ',' or ']' must stand here");
    scan->at += 1;
    scan->state = object ? WANT_KEY : WANT_VALUE;
    skip_space(scan);
  }
  if (scan->at == scan->size)
    return fail(scan, scan->at, scan->size == 0 ? "the text is empty" : "the text ends inside a JSON value");
  char c = scan->s[scan->at];
  if (scan->state == WANT_KEY_OR_CLOSE && c == '}') return close_level(scan);
  if (scan->state == WANT_VALUE_OR_CLOSE && c == ']') return close_level(scan);
  if (scan->state == WANT_KEY || scan->state == WANT_KEY_OR_CLOSE) return scan_key(scan);
  if (c == '{' || c == '[') return open_level(scan, c);
  scan->state = AFTER_VALUE;
  if (c == '"') return scan_string(scan, JS_STRING);
  if (c == '-' || (c >= '0' && c <= '9')) return scan_number(scan);
  return scan_word(scan);
}

bool json_scan_skip(json_scan *scan) {
  uint32_t depth = scan->depth;
  do {
    json_event e = json_scan_next(scan);
    if (e.kind == JS_ERROR || e.kind == JS_END) return false;
  } while (scan->depth > depth || scan->state == WANT_VALUE);
  return true;
}

static size_t put_utf8(uint32_t c, char *out) {
  size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
  for (size_t i = n - 1; i > 0; i--, c >>= 6) out[i] = (char)(0x80u | (c & 0x3Fu));
  out[0] = (char)(n == 1 ? c : (0xF00u >> n & 0xF0u) | c);
  return n;
}

size_t json_decode(const json_scan *scan, json_event event, char *out, bool *out_has_nul) {
  size_t n = 0, end = event.start + event.length;
  bool nul = false;
  for (size_t i = event.start; i < end;) {
    if (scan->s[i] != '\\') {
      out[n++] = scan->s[i++];
      continue;
    }
    uint32_t c = 0;
    i += escape(scan->s, i, end, &c);
    nul |= c == 0;
    n += put_utf8(c, out + n);
  }
  out[n] = 0;
  if (out_has_nul) *out_has_nul = nul;
  return n;
}

bool json_is(const json_scan *scan, json_event event, const char *word) {
  size_t end = event.start + event.length, at = 0, n = strlen(word);
  for (size_t i = event.start; i < end;) {
    char bytes[4];
    uint32_t c = 0;
    size_t length = 1;
    bytes[0] = scan->s[i];
    if (scan->s[i] == '\\') {
      i += escape(scan->s, i, end, &c);
      length = put_utf8(c, bytes);
    } else {
      i += 1;
    }
    if (n - at < length || memcmp(word + at, bytes, length) != 0) return false;
    at += length;
  }
  return at == n;
}

bool json_u64(const json_scan *scan, json_event event, uint64_t *out) {
  const char *s = scan->s + event.start;
  return event.kind == JS_NUMBER && s[0] != '-' && number_parse_u64(s, event.length, out);
}

bool json_double(const json_scan *scan, json_event event, double *out) {
  return event.kind == JS_NUMBER && number_parse_double(scan->s + event.start, event.length, out);
}
