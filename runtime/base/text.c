#include "runtime/base/text.h"

#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* glibc hands out one static object for the C locale: this neither allocates nor fails there. */
static locale_t c_locale(void) { return newlocale(LC_ALL_MASK, "C", (locale_t)0); }

int text_vformat(char *out, size_t cap, const char *format, va_list args) {
  locale_t c = c_locale(), old = c ? uselocale(c) : (locale_t)0;
  int n = vsnprintf(out, cap, format, args); // NOLINT(clang-analyzer-valist.Uninitialized): va_copy is not seen through
  if (c) uselocale(old);
  return n;
}

int text_format(char *out, size_t cap, const char *format, ...) {
  va_list args;
  va_start(args, format);
  int n = text_vformat(out, cap, format, args);
  va_end(args);
  return n;
}

void text_free(text *t) {
  free(t->data);
  *t = (text){0};
}

static bool reserve(text *t, size_t more) {
  if (t->failed) return false;
  if (more < t->cap && t->size < t->cap - more) return true;
  size_t need, cap;
  if (__builtin_add_overflow(t->size, more, &need) || __builtin_add_overflow(need, (size_t)1, &need)) {
    t->failed = true;
    return false;
  }
  cap = t->cap + t->cap / 2;
  if (cap < 64) cap = 64;
  if (cap < need) cap = need;
  char *data = realloc(t->data, cap);
  if (!data) {
    t->failed = true;
    return false;
  }
  t->data = data, t->cap = cap;
  return true;
}

void text_put(text *t, const void *data, size_t bytes) {
  if (!reserve(t, bytes)) return;
  if (bytes) memcpy(t->data + t->size, data, bytes);
  t->size += bytes;
  t->data[t->size] = 0;
}

void text_puts(text *t, const char *s) { text_put(t, s, strlen(s)); }

void text_vprintf(text *t, const char *format, va_list args) {
  char small[256];
  va_list again;
  va_copy(again, args);
  int n = text_vformat(small, sizeof small, format, again);
  va_end(again);
  if (n < 0) return;
  if ((size_t)n < sizeof small) {
    text_put(t, small, (size_t)n);
  } else if (reserve(t, (size_t)n)) {
    text_vformat(t->data + t->size, (size_t)n + 1, format, args);
    t->size += (size_t)n;
  }
}

void text_printf(text *t, const char *format, ...) {
  va_list args;
  va_start(args, format);
  text_vprintf(t, format, args);
  va_end(args);
}

static bool put_special(text *t, double value) {
  if (isfinite(value)) return false;
  text_puts(t, isnan(value) ? "nan" : value < 0 ? "-inf" : "inf");
  return true;
}

static double read_back(const char *s) {
  locale_t c = c_locale();
  return c ? strtod_l(s, NULL, c) : strtod(s, NULL);
}

void text_put_double(text *t, double value) {
  if (put_special(t, value)) return;
  char best[40], tried[40];
  int low = 1, high = 17; /* more digits never read back worse, so halving finds the fewest */
  text_format(best, sizeof best, "%.17g", value);
  while (low < high) {
    int digits = (low + high) / 2;
    text_format(tried, sizeof tried, "%.*g", digits, value);
    if (read_back(tried) == value) {
      high = digits;
      memcpy(best, tried, sizeof best);
    } else {
      low = digits + 1;
    }
  }
  text_puts(t, best);
}

void text_put_hex(text *t, double value) {
  if (!put_special(t, value)) text_printf(t, "%a", value);
}

size_t utf8_length(const void *data, size_t n) {
  const unsigned char *s = data;
  if (n == 0) return 0;
  unsigned char a = s[0];
  if (a < 0x80) return 1;
  size_t length = a >= 0xC2 && a <= 0xDF ? 2 : a >= 0xE0 && a <= 0xEF ? 3 : a >= 0xF0 && a <= 0xF4 ? 4 : 0;
  if (length == 0 || n < length) return 0;
  unsigned char low = a == 0xE0 ? 0xA0 : a == 0xF0 ? 0x90 : 0x80, high = a == 0xED ? 0x9F : a == 0xF4 ? 0x8F : 0xBF;
  if (s[1] < low || s[1] > high) return 0;
  for (size_t i = 2; i < length; i++)
    if ((s[i] & 0xC0) != 0x80) return 0;
  return length;
}

void text_put_quoted(text *t, const char *s, size_t bytes, bool json) {
  text_puts(t, "\"");
  for (size_t i = 0; i < bytes;) {
    size_t run = i, n = 1;
    while (i < bytes && (unsigned char)s[i] >= 32 && s[i] != 127 && s[i] != '"' && s[i] != '\\' &&
           (n = utf8_length(s + i, bytes - i)) > 0)
      i += n;
    text_put(t, s + run, i - run);
    if (i == bytes) break;
    unsigned char c = (unsigned char)s[i++];
    if (c == '"' || c == '\\') {
      text_printf(t, "\\%c", c);
    } else if (c == '\n' || c == '\t') {
      text_puts(t, c == '\n' ? "\\n" : "\\t");
    } else if (!json) {
      text_printf(t, "\\x%02x", c);
    } else if (c >= 0x80) {
      text_puts(t, "\\ufffd");
    } else {
      text_printf(t, "\\u%04x", c);
    }
  }
  text_puts(t, "\"");
}

/* Are all digits before the exponent 0? */
static bool writes_zero(const char *s) {
  s += *s == '-' || *s == '+';
  bool hex = s[0] == '0' && (s[1] == 'x' || s[1] == 'X');
  for (s += hex ? 2 : 0; *s && !strchr(hex ? "pP" : "eE", *s); s++)
    if (*s != '0' && *s != '.') return false;
  return true;
}

bool number_parse_double(const char *s, size_t n, double *out) {
  char buffer[1200]; /* no double needs more digits than 1075 to be written in full */
  if (n == 0 || n >= sizeof buffer) return false;
  size_t sign = s[0] == '-' || s[0] == '+';
  memcpy(buffer, s, n);
  buffer[n] = 0;
  if (strcmp(buffer + sign, "inf") == 0 || strcmp(buffer + sign, "nan") == 0) {
    double value = buffer[sign] == 'i' ? (double)INFINITY : (double)NAN;
    *out = buffer[0] == '-' ? -value : value;
    return true;
  }
  for (size_t i = 0; i < n; i++)
    if (!strchr("0123456789abcdefABCDEFxXpP+-.", buffer[i])) return false;
  locale_t c = c_locale();
  char *end = buffer;
  double value = c ? strtod_l(buffer, &end, c) : strtod(buffer, &end);
  if (end != buffer + n || !isfinite(value)) return false;
  if (value == 0 && !writes_zero(buffer)) return false; /* too small for a double: it is not 0 */
  *out = value;
  return true;
}

bool number_parse_u64(const char *s, size_t n, uint64_t *out) {
  uint64_t value = 0, base = 10;
  size_t i = n > 0 && s[0] == '+';
  if (n - i > 2 && s[i] == '0' && (s[i + 1] == 'x' || s[i + 1] == 'X')) base = 16, i += 2;
  if (i == n) return false;
  for (; i < n; i++) {
    unsigned digit = s[i] >= '0' && s[i] <= '9'   ? (unsigned)(s[i] - '0')
                     : s[i] >= 'a' && s[i] <= 'f' ? (unsigned)(s[i] - 'a' + 10)
                     : s[i] >= 'A' && s[i] <= 'F' ? (unsigned)(s[i] - 'A' + 10)
                                                  : 99;
    if (digit >= base || __builtin_mul_overflow(value, base, &value) ||
        __builtin_add_overflow(value, (uint64_t)digit, &value))
      return false;
  }
  *out = value;
  return true;
}

bool number_parse_i64(const char *s, size_t n, int64_t *out) {
  bool negative = n > 0 && s[0] == '-';
  uint64_t value;
  if (negative && n > 1 && s[1] == '+') return false;
  if (!number_parse_u64(s + negative, n - negative, &value)) return false;
  if (value > (uint64_t)INT64_MAX + negative) return false;
  *out = negative ? (int64_t)(0 - value) : (int64_t)value;
  return true;
}
