/* tokenizer.h - text to token ids and back. */
#ifndef TAPER_TEXT_TOKENIZER_H
#define TAPER_TEXT_TOKENIZER_H

#include "runtime/base/status.h"
#include <stdbool.h>

#define TOKENIZER_MAX_PIECE 1024u        /* bytes one token may stand for */
#define TOKENIZER_FILE "tokenizer.model" /* of a SentencePiece tokenizer: in model folders; taper.file.* in packages */

typedef enum tokenizer_kind { TOKENIZER_NONE, TOKENIZER_BYTES, TOKENIZER_SENTENCEPIECE } tokenizer_kind;

/* A zeroed one is valid: it has no ids. */
typedef struct tokenizer {
  tokenizer_kind kind;
  struct sp_model *model; /* SentencePiece */
} tokenizer;

/* "none", "bytes", "sentencepiece" */
const char *tokenizer_name(tokenizer_kind kind);
/* The kind of that name; false: there is none. */
bool tokenizer_find(const char *name, tokenizer_kind *out);

/* SentencePiece: `file` is the .model, which is copied; `name` stands for it in messages. The other kinds have no file.
   `allocator` NULL: the C library. On failure *out is zeroed. */
taper_status tokenizer_open(tokenizer_kind kind, const void *file, size_t bytes, const char *name,
                            const taper_allocator *allocator, tokenizer *out, taper_error *error);
void tokenizer_close(tokenizer *t);

/* Ids are below this; 0: no ids. Bytes: 256. */
uint32_t tokenizer_vocab(const tokenizer *t);
int32_t tokenizer_bos(const tokenizer *t); /* -1: none */
int32_t tokenizer_eos(const tokenizer *t);
/* What makes the ids that a text becomes: goes into the name of whatever keeps them. */
const char *tokenizer_key(const tokenizer *t);

enum {
  TOKENIZER_SPECIAL = 1,      /* put in front what the tokenizer puts in front: its bos, where it has one */
  TOKENIZER_PARSE_SPECIAL = 2 /* control symbols in the text are tokens, not text */
};

/* Takes ids in order, n at a time; not 0: no more of them. `at`: bytes of the text that were read so far. */
typedef int (*tokenizer_sink)(void *user, const int32_t *ids, size_t n, size_t at);
/* The whole text, in time about linear in n. Bytes: id = byte, NUL included. TAPER_STOPPED where the sink refused. */
taper_status tokenizer_stream(const tokenizer *t, const char *text, size_t n, unsigned flags, tokenizer_sink sink,
                              void *user, taper_error *error);
/* The same to memory: writes at most `cap` ids, *out_n is the number needed. */
taper_status tokenizer_encode(const tokenizer *t, const char *text, size_t n, unsigned flags, int32_t *ids, size_t cap,
                              size_t *out_n, taper_error *error);

/* The bytes one token adds to a text that goes on, at most TOKENIZER_MAX_PIECE; 0 for an id that stands for none
   (bytes: 256 and more; SentencePiece: control symbols). */
size_t tokenizer_piece(const tokenizer *t, int32_t id, char *out);
/* The text of ids that are a whole: writes at most `cap` bytes, *out_n is the number needed. SentencePiece: the leading
   space of the first piece is not there, bytes that are no UTF-8 become U+FFFD. Ids that stand for nothing add nothing. */
taper_status tokenizer_decode(const tokenizer *t, const int32_t *ids, size_t n, char *text, size_t cap, size_t *out_n,
                              taper_error *error);

#endif
