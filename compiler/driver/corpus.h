/* corpus.h - data of training and evaluation: files of text or ids, seen as one run of ids. docs/data.md

   What a file holds goes by its name: NAME.u16 and NAME.u32 are raw little-endian ids, NAME.bin the same behind an
   llm.c header, NAME.ids a list of numbers, anything else is text. A text is encoded whole, as one text; files follow
   one another as if they were one. Ids that come from a text are kept in a file beside it (FILE.<key>.tokens, the key a
   hash of the text and of the tokenizer), so that the next run maps them; where that folder cannot be written, memory
   holds them. */
#ifndef TAPERC_DRIVER_CORPUS_H
#define TAPERC_DRIVER_CORPUS_H

#include "compiler/diag/diag.h"
#include "runtime/base/status.h"
#include "runtime/text/tokenizer.h"

typedef enum corpus_part { CORPUS_TRAIN, CORPUS_VAL } corpus_part;

typedef struct corpus_options {
  const char *const *files; /* "-": standard input */
  size_t file_count;
  const char *val;            /* a file of its own for CORPUS_VAL; NULL: val_fraction */
  double val_fraction;        /* share of the ids, the last ones, that CORPUS_VAL holds; 0 <= f < 1 */
  const tokenizer *tokenizer; /* of texts; needed until corpus_open returns */
  uint32_t vocab;             /* of the model: every id must be below */
  uint32_t window;            /* ids of a window: a part that is there must hold one more; 0: no demand */
  bool keep_tokens;           /* writes FILE.<key>.tokens; one that is there is used in any case */
  void (*progress)(void *user, const char *file, uint64_t done, uint64_t all); /* bytes; may be NULL */
  void *user;
} corpus_options;

typedef struct corpus corpus;

/* Opens, encodes and checks everything: an id outside the vocabulary, an empty file, a part too short for one window
   are told here, with file and place. What was done is remarked in the sink (pass "data"). */
taper_status corpus_open(const corpus_options *options, diag_sink *sink, corpus **out, taper_error *error);
void corpus_close(corpus *c);

uint64_t corpus_count(const corpus *c, corpus_part part);
/* Ids first .. first + n of a part, which must be there. */
void corpus_read(const corpus *c, corpus_part part, uint64_t first, size_t n, int32_t *out);
/* Bytes of the text that all data files together are, the first id's left out, where all of them are texts; else 0. */
uint64_t corpus_text_bytes(const corpus *c);
/* Identifies the ids of both parts (hash of every id file and text with its tokenizer, and the split): a resumed run
   compares it. 32 hex digits. */
const char *corpus_key(const corpus *c);

/* Whether a file of that name holds text. */
bool corpus_is_text(const char *path);

/* The first id of a training window of `length` inputs (and one more, the last target) out of `count` ids: drawn evenly
   from all count - length places, with replacement, by Philox (purpose PHILOX_DATA). A pure function of its arguments:
   a resumed run draws what an uninterrupted one draws. */
uint64_t corpus_window(uint64_t count, uint32_t length, uint64_t seed, uint64_t step, uint32_t micro, uint32_t index);
/* `windows` training windows of micro-batch `micro` of `step`: tokens and targets [windows][length], targets one
   further. */
void corpus_batch(const corpus *c, uint64_t seed, uint64_t step, uint32_t micro, uint32_t windows, uint32_t length,
                  int32_t *tokens, int32_t *targets);

/* Validation windows stand one after another, as those of `taperc eval`: inputs ids[jT .. jT+T-1], targets one further;
   the last may be shorter. Their number; with `limit` > 0 at most that many. */
uint64_t corpus_val_windows(const corpus *c, uint32_t length, uint64_t limit);
/* Window j of the `count` that corpus_val_windows gave (a limited number is spread evenly over all). Writes `length`
   tokens and targets, behind a shorter window tokens 0 and targets -1; returns the positions that count. */
uint32_t corpus_val_window(const corpus *c, uint32_t length, uint64_t j, uint64_t count, int32_t *tokens,
                           int32_t *targets);

#endif
