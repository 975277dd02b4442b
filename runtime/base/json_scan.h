/* json_scan.h - a strict JSON reader (RFC 8259, UTF-8, no recursion, at most JSON_MAX_DEPTH levels) that hands out one
 * event at a time. */
#ifndef TAPER_BASE_JSON_SCAN_H
#define TAPER_BASE_JSON_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define JSON_MAX_DEPTH 64

typedef enum json_kind {
  JS_ERROR, /* scan->error says what, scan->at where; every later event is this one again */
  JS_END,   /* the value is complete and nothing but white space follows */
  JS_OBJECT,
  JS_OBJECT_END,
  JS_ARRAY,
  JS_ARRAY_END,
  JS_KEY, /* events of its value follow */
  JS_STRING,
  JS_NUMBER,
  JS_TRUE,
  JS_FALSE,
  JS_NULL
} json_kind;

typedef struct json_event {
  json_kind kind;
  size_t start, length; /* keys and strings: between the quotes, as written; else the whole token */
} json_event;

typedef struct json_scan {
  const char *s;
  size_t size, at;
  const char *error;
  uint32_t depth;
  int state;
  char stack[JSON_MAX_DEPTH]; /* '{' or '[' */
} json_scan;

void json_scan_init(json_scan *scan, const char *s, size_t size);
json_event json_scan_next(json_scan *scan);
/* After JS_KEY, or where a value stands next: passes over one whole value. False at an error. */
bool json_scan_skip(json_scan *scan);
/* Decodes a key or string to out (at least event.length + 1 bytes, zero-terminated); returns its bytes. It may hold
 * NULs (out_has_nul may be NULL). */
size_t json_decode(const json_scan *scan, json_event event, char *out, bool *out_has_nul);
/* The decoded key or string equals `word`. */
bool json_is(const json_scan *scan, json_event event, const char *word);
/* JS_NUMBER as an integer without fraction or exponent; false: not one, or it does not fit. */
bool json_u64(const json_scan *scan, json_event event, uint64_t *out);
/* JS_NUMBER as the nearest double; false where it overflows. */
bool json_double(const json_scan *scan, json_event event, double *out);

#endif
