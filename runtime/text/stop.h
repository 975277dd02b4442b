/* stop.h - finds stop strings in a stream of bytes, whatever the pieces it comes in. */
#ifndef TAPER_TEXT_STOP_H
#define TAPER_TEXT_STOP_H

#include "runtime/memory.h"
#include <stdbool.h>

typedef struct stop_matcher stop_matcher;

/* Copies the strings. An empty one is TAPER_INVALID. No strings: every byte passes at once. */
taper_status stop_new(const char *const *strings, size_t count, const taper_allocator *allocator, stop_matcher **out,
                      taper_error *error);
void stop_free(stop_matcher *m);
/* The most bytes that one stop_feed or stop_flush writes. */
size_t stop_room(const stop_matcher *m);
/* Takes one byte and writes those that can no longer be part of a stop string; *out_n is their number. True when a stop
   string is complete: the one that ends first, and of several that end there the longest; what precedes it has been
   written, the rest is never. */
bool stop_feed(stop_matcher *m, char byte, char *out, size_t *out_n);
/* The end of the stream: writes what is withheld, returns the number of bytes. */
size_t stop_flush(stop_matcher *m, char *out);

#endif
