/* source.h - the text of a .tmodel: what bytes may stand in it, and where a byte is. */
#ifndef TAPERC_FRONT_SOURCE_H
#define TAPERC_FRONT_SOURCE_H

#include "compiler/diag/diag.h"
#include "runtime/base/arena.h"

#define FRONT_MAX_SOURCE (4u << 20)

typedef struct ast_span {
  uint32_t begin, end;
} ast_span; /* bytes of the source, from 0 */

typedef struct front_source {
  const char *file, *text;
  uint32_t size, first; /* first: 3 after a byte order mark */
  uint32_t *lines, line_count;
} front_source;

/* Checks size, UTF-8 (no overlong form, no surrogate) and control characters; each fault is reported with its place.
   `text` must outlive *out. */
bool source_init(front_source *out, const char *text, size_t size, const char *file, arena *memory, diag_sink *sink);
/* Line and column of a span; its length is cut at the end of the line. */
diag_loc source_loc(const front_source *s, ast_span span);

#endif
