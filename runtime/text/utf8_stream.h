/* utf8_stream.h - a stream of bytes cut so that no character of UTF-8 is torn. */
#ifndef TAPER_TEXT_UTF8_STREAM_H
#define TAPER_TEXT_UTF8_STREAM_H

#include <stddef.h>
#include <stdint.h>

/* A zeroed one is valid and empty. It holds the first bytes of a character that is not complete yet. */
typedef struct utf8_stream {
  uint8_t held[4];
  uint32_t count;
} utf8_stream;

/* Takes n bytes, writes the bytes that may pass to out[0 .. n + 3) and returns their number: whole characters (Unicode
   15, table 3-7: no surrogates, no overlong forms, nothing above U+10FFFF), and bytes that can no longer become one, as
   they are, in order. */
size_t utf8_push(utf8_stream *s, const char *bytes, size_t n, char *out);
/* The end of the stream: writes what is held to out[0 .. 3), returns the number of bytes. */
size_t utf8_flush(utf8_stream *s, char *out);

#endif
