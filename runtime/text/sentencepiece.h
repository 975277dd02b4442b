/* sentencepiece.h - SentencePiece models (.model), read without the library: BPE, unigram and character models. Ids and
   texts are those of the sentencepiece library (Kudo and Richardson 2018, arXiv 1808.06226); docs/data.md says where
   they are not. */
#ifndef TAPER_TEXT_SENTENCEPIECE_H
#define TAPER_TEXT_SENTENCEPIECE_H

#include "runtime/memory.h"
#include "runtime/text/tokenizer.h"

typedef struct sp_model sp_model;

/* Reads a .model of `size` bytes, which are not needed afterwards; `name` stands for it in messages. Nothing about the
   bytes is trusted. */
taper_status sp_open(const void *data, size_t size, const char *name, const taper_allocator *allocator, sp_model **out,
                     taper_error *error);
void sp_close(sp_model *m);

uint32_t sp_vocab(const sp_model *m);
int32_t sp_bos(const sp_model *m); /* -1: none */
int32_t sp_eos(const sp_model *m);
const char *sp_key(const sp_model *m); /* hash of the file, 32 hex digits */

/* The ids of a text; see tokenizer_stream. Memory is bounded by the longest stretch that pieces may span, not by n. */
taper_status sp_stream(const sp_model *m, const char *text, size_t n, unsigned flags, tokenizer_sink sink, void *user,
                       taper_error *error);
/* The bytes that a piece adds to a text that goes on: U+2581 becomes a space, byte pieces one byte, control pieces
   nothing. */
size_t sp_piece(const sp_model *m, int32_t id, char *out);

/* The library's Decode: the whole text of ids, a leading space of the dummy prefix removed, bytes that are no UTF-8
   replaced by U+FFFD. Gives it to `put` in pieces. Ids must be below sp_vocab. */
taper_status sp_decode(const sp_model *m, const int32_t *ids, size_t n,
                       void (*put)(void *user, const char *bytes, size_t n), void *user, taper_error *error);

#endif
