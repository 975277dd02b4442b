/* words.h - the nearest word, for "did you mean". */
#ifndef TAPERC_DRIVER_WORDS_H
#define TAPERC_DRIVER_WORDS_H

#include <stddef.h>

/* The one of words[0..n) that is a small edit away from `word` (insertions, deletions, replacements, swaps); NULL: none is near. */
const char *words_nearest(const char *word, const char *const *words, size_t n);

#endif
