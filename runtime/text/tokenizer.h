/* tokenizer.h - text to token ids and back. */
#ifndef TAPER_TEXT_TOKENIZER_H
#define TAPER_TEXT_TOKENIZER_H

#include "runtime/package.h"

#define TOKENIZER_MAX_PIECE 256u /* bytes one token may stand for */

/* "bytes", "none" */
const char *tokenizer_name(package_tokenizer t);
/* Writes at most `cap` ids, returns the number needed. Bytes: id = byte, NUL included. */
size_t tokenizer_encode(package_tokenizer t, const char *bytes, size_t n, int32_t *ids, size_t cap);
/* The bytes of one token, at most TOKENIZER_MAX_PIECE; 0 for an id that stands for none (bytes: 256 and more). */
size_t tokenizer_piece(package_tokenizer t, int32_t id, char *out);

#endif
