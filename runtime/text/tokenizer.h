/* tokenizer.h - text to token ids and back. */
#ifndef TAPER_TEXT_TOKENIZER_H
#define TAPER_TEXT_TOKENIZER_H

#include "runtime/base/status.h"
#include <stdbool.h>

#define TOKENIZER_MAX_PIECE 256u /* bytes one token may stand for */

typedef enum tokenizer_kind { TOKENIZER_NONE, TOKENIZER_BYTES } tokenizer_kind;

/* A zeroed one is valid: it has no ids. */
typedef struct tokenizer {
  tokenizer_kind kind;
} tokenizer;

/* "none", "bytes" */
const char *tokenizer_name(tokenizer_kind kind);
/* The kind of that name; false: there is none. */
bool tokenizer_find(const char *name, tokenizer_kind *out);

/* Ids are below this; 0: no ids. Bytes: 256. */
uint32_t tokenizer_vocab(const tokenizer *t);
/* What makes the ids that a text becomes: goes into the name of whatever keeps them. */
const char *tokenizer_key(const tokenizer *t);

/* Takes ids in order, n at a time; not 0: no more of them. */
typedef int (*tokenizer_sink)(void *user, const int32_t *ids, size_t n);
/* The whole text, in time about linear in n. Bytes: id = byte, NUL included. TAPER_STOPPED where the sink refused. */
taper_status tokenizer_stream(const tokenizer *t, const char *text, size_t n, tokenizer_sink sink, void *user,
                              taper_error *error);
/* The same to memory: writes at most `cap` ids, *out_n is the number needed. */
taper_status tokenizer_encode(const tokenizer *t, const char *text, size_t n, int32_t *ids, size_t cap, size_t *out_n,
                              taper_error *error);
/* The bytes of one token, at most TOKENIZER_MAX_PIECE; 0 for an id that stands for none (bytes: 256 and more). */
size_t tokenizer_piece(const tokenizer *t, int32_t id, char *out);

#endif
