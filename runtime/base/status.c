#include "runtime/base/status.h"
#include "runtime/base/text.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { CAP = sizeof((taper_error *)0)->message, HEAD = CAP * 6 / 10 };

/* Nothing in a message may drive a terminal, and every byte of it belongs to a character. */
static void tidy(char *message) {
  for (size_t n = strlen(message), step; n > 0; message += step, n -= step) {
    step = utf8_length(message, n);
    if (step == 0 || (unsigned char)*message < 32 || *message == 127) *message = '?', step = 1;
  }
}

static bool continues(const char *s) { return ((unsigned char)*s & 0xC0) == 0x80; }

/* Too long a message loses its middle: the file stands at its beginning, the remedy at its end. */
static void shorten(const char *whole, size_t n, char out[CAP]) {
  size_t head = HEAD, tail = n - (CAP - 1 - HEAD - 3);
  while (head > 0 && continues(whole + head)) head--;
  while (tail < n && continues(whole + tail)) tail++;
  memcpy(out, whole, head);
  memcpy(out + head, "...", 3);
  memcpy(out + head + 3, whole + tail, n - tail);
  out[head + 3 + n - tail] = 0;
}

static void format_message(char out[CAP], const char *format, va_list args) {
  va_list again;
  va_copy(again, args);
  int n = text_vformat(out, CAP, format, args);
  char *whole = n >= CAP ? malloc((size_t)n + 1) : NULL; /* without memory the end is lost */
  if (whole) {
    text_vformat(whole, (size_t)n + 1, format, again);
    shorten(whole, (size_t)n, out);
    free(whole);
  }
  va_end(again);
  tidy(out);
}

taper_status taper_fail(taper_error *error, taper_status status, const char *format, ...) {
  if (!error) return status;
  char message[CAP];
  va_list args;
  va_start(args, format);
  format_message(message, format, args);
  va_end(args);
  error->status = status;
  memcpy(error->message, message, CAP);
  return status;
}

taper_status taper_add_context(taper_error *error, taper_status status, const char *format, ...) {
  if (!error) return status;
  char message[CAP];
  va_list args;
  va_start(args, format);
  format_message(message, format, args);
  va_end(args);
  return taper_fail(error, status, "%s: %s", message, error->message);
}
