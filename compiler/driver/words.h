/* words.h - the nearest word, for "did you mean"; numbers for people. */
#ifndef TAPERC_DRIVER_WORDS_H
#define TAPERC_DRIVER_WORDS_H

#include "runtime/base/text.h"

/* The one of words[0..n) that is a small edit away from `word` (insertions, deletions, replacements, swaps); NULL: none
 * is near. */
const char *words_nearest(const char *word, const char *const *words, size_t n);

/* The shortest decimal that reads back; whole numbers without an exponent ("1000", where text_put_double has "1e+03").
 */
void words_put_number(text *out, double value);
void words_put_float(text *out,
                     float value); /* the shortest that reads back as this float: 0.8, not 0.800000011920929 */

#endif
