#include "runtime/base/status.h"
#include "runtime/base/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* A cut message must not end inside a UTF-8 character, and nothing in it may drive a terminal. */
static void tidy(char *message, size_t cap) {
  message[cap - 1] = 0;
  for (char *p = message; *p;) {
    size_t n = utf8_length(p, strlen(p) < 4 ? strlen(p) : 4);
    if (n == 0 || (unsigned char)*p < 32 || *p == 127) *p = '?', n = 1;
    p += n;
  }
}

taper_status taper_fail(taper_error *error, taper_status status, const char *format, ...) {
  if (!error) return status;
  char message[sizeof error->message];
  va_list args;
  va_start(args, format);
  text_vformat(message, sizeof message, format, args);
  va_end(args);
  tidy(message, sizeof message);
  error->status = status;
  memcpy(error->message, message, sizeof message);
  return status;
}

taper_status taper_add_context(taper_error *error, taper_status status, const char *format, ...) {
  if (!error) return status;
  char message[sizeof error->message];
  va_list args;
  va_start(args, format);
  text_vformat(message, sizeof message, format, args);
  va_end(args);
  size_t n = strlen(message);
  text_format(message + n, sizeof message - n, ": %s", error->message);
  tidy(message, sizeof message);
  error->status = status;
  memcpy(error->message, message, sizeof message);
  return status;
}
