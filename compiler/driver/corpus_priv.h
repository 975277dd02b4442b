/* corpus_priv.h - what the parts of corpus.h share. */
#ifndef TAPERC_DRIVER_CORPUS_PRIV_H
#define TAPERC_DRIVER_CORPUS_PRIV_H

#include "compiler/driver/corpus.h"
#include "runtime/base/file.h"
#include "runtime/base/hash.h"

/* Ids of one file, side by side, little endian. */
typedef struct corpus_ids {
  const uint8_t *data; /* in `map` or `memory` */
  uint32_t width;      /* bytes of an id: 1, 2, 4 */
  uint64_t count;
  mapped_file map;
  void *memory; /* from malloc */
} corpus_ids;

static inline uint32_t corpus_id(const corpus_ids *ids, uint64_t i) {
  const uint8_t *p = ids->data + i * ids->width;
  switch (ids->width) {
  case 1: return p[0];
  case 2: return p[0] | (uint32_t)p[1] << 8;
  default: return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
  }
}

typedef struct corpus_file {
  const char *path; /* for messages */
  bool text;        /* by the tokenizer */
  uint64_t bytes;   /* of the text */
  corpus_ids ids;
  hash128 key; /* of the file and of what made ids of it */
} corpus_file;

taper_status corpus_file_open(const char *path, const corpus_options *o, diag_sink *sink, corpus_file *out,
                              taper_error *error);
void corpus_file_close(corpus_file *f);

/* What makes ids of a file's bytes: gives them to `put` in order. */
typedef taper_status (*corpus_make)(void *user, const char *data, size_t size, tokenizer_sink put, void *put_user,
                                    taper_error *error);
/* The ids of data[0..size): those kept beside the file, else made anew and kept there if `keep`. `width`: bytes of an
   id. `path` NULL: not a file, never kept. */
taper_status corpus_tokens(const char *path, hash128 key, uint32_t width, bool keep, const char *data, size_t size,
                           corpus_make make, void *user, diag_sink *sink, corpus_ids *out, taper_error *error);

#endif
