/* text.h - growable text, and numbers that never depend on the locale. */
#ifndef TAPER_BASE_TEXT_H
#define TAPER_BASE_TEXT_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A zeroed text is valid and empty; data is NULL or zero-terminated. `failed` is set when memory ran out (and then
 * stays). */
typedef struct text {
  char *data;
  size_t size, cap;
  bool failed;
} text;

void text_free(text *t);
void text_put(text *t, const void *data, size_t bytes);
void text_puts(text *t, const char *s);
void text_printf(text *t, const char *format, ...)
    __attribute__((format(printf, 2, 3))); /* no %f %g %e %a: see below */
void text_vprintf(text *t, const char *format, va_list args);
/* vsnprintf under the C locale, whatever the process set: the one formatter of everything that is written. */
int text_vformat(char *out, size_t cap, const char *format, va_list args);
int text_format(char *out, size_t cap, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Shortest decimal that reads back as the same double, e.g. "1e-06" -> "1e-06", 0.1 -> "0.1". */
void text_put_double(text *t, double value);
/* C hex float, e.g. "0x1.8p+1", "-0x0p+0", "inf", "nan". */
void text_put_hex(text *t, double value);
/* "..." with \" \\ \n \t \xHH escapes: what .tir and JSON readers of this project accept (JSON: \u00HH instead of \xHH,
   and \ufffd for bytes that are not UTF-8). \x takes exactly two digits. */
void text_put_quoted(text *t, const char *s, size_t bytes, bool json);

/* Bytes of the well-formed UTF-8 character at s[0..n) (no surrogates, no overlong forms, at most U+10FFFF); 0: none
 * stands there. */
size_t utf8_length(const void *s, size_t n);

/* The whole of s[0..n) as a number (decimal or hex float / integer); false if it is not one or does not fit: too large, or so
   small that it would become 0 and is not. */
bool number_parse_double(const char *s, size_t n, double *out);
bool number_parse_i64(const char *s, size_t n, int64_t *out);
bool number_parse_u64(const char *s, size_t n, uint64_t *out);

#endif
