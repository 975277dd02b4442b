/* diag_priv.h - what a sink is made of, for sink.c and render.c. */
#ifndef TAPERC_DIAG_PRIV_H
#define TAPERC_DIAG_PRIV_H

#include "compiler/diag/diag.h"
#include "runtime/base/arena.h"

typedef struct diag_source {
  const char *file, *data;
  size_t size, lines;
  size_t *line_start; /* [lines] */
} diag_source;

typedef struct diag_item {
  diag shown;
  diag_note_text *notes;
  size_t note_cap;
} diag_item;

struct diag_sink {
  arena memory;
  diag_item **items;
  const char **names;
  diag_source *sources;
  size_t count, cap, name_count, name_cap, source_count, source_cap;
  size_t limit, errors, rendered;
  bool drop_notes; /* the report they belong to was over the limit */
};

const diag_source *diag_find_source(const diag_sink *sink, const char *file); /* NULL: none */

#endif
