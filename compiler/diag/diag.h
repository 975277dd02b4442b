/*
 * diag.h - messages as objects: collected in a sink, rendered by the command line, captured by tests.
 * An error reads   FILE:LINE:COL: error: cause; remedy   with the source line, a caret and a range below it; notes
 * follow. A remark reads   FILE:L:C: remark: PASS: text [-Rpass=PASS]   (or -Rpass-missed=PASS).
 */
#ifndef TAPERC_DIAG_H
#define TAPERC_DIAG_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* A place: `file` outlives the sink (intern it); line and col count from 1, in bytes; line 0: the file as a whole; file
 * NULL: none. */
typedef struct diag_loc {
  const char *file;
  uint32_t line, col, length;
} diag_loc;

typedef enum diag_severity { DIAG_REMARK, DIAG_NOTE, DIAG_WARNING, DIAG_ERROR } diag_severity;

typedef enum diag_code {
#define DIAG(id, number, severity, title, remedy) DC_##id,
#include "compiler/diag/diag.def"
#undef DIAG
  DC_COUNT
} diag_code;

uint32_t diag_code_number(diag_code code);
const char *diag_code_title(diag_code code);
const char *diag_code_remedy(diag_code code); /* what to do where the message does not say it; may be NULL */

typedef struct diag_note_text {
  diag_loc loc;
  const char *message;
} diag_note_text;

typedef struct diag {
  diag_code code;
  diag_severity severity;
  diag_loc loc;
  const char *message;
  const char *pass; /* remarks: the pass; else NULL */
  bool missed;
  const diag_note_text *notes;
  size_t note_count;
} diag;

typedef struct diag_sink diag_sink;

diag_sink *diag_sink_new(void);
void diag_sink_free(diag_sink *sink);
/* After `limit` errors (default 20; 0: no limit) one last "too many errors" is added and the rest are counted only. */
void diag_set_limit(diag_sink *sink, size_t limit);
/* Text for carets; `file` as in diag_loc; the sink keeps a copy. */
void diag_add_source(diag_sink *sink, const char *file, const char *source, size_t size);
/* A copy of `name` that lives as long as the sink. */
const char *diag_intern(diag_sink *sink, const char *name);

void diag_report(diag_sink *sink, diag_code code, diag_loc loc, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* Adds a note to the latest report. */
void diag_note(diag_sink *sink, diag_loc loc, const char *format, ...) __attribute__((format(printf, 3, 4)));
void diag_remark(diag_sink *sink, const char *pass, bool missed, diag_loc loc, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

size_t diag_error_count(const diag_sink *sink);
size_t diag_count(const diag_sink *sink);
const diag *diag_at(const diag_sink *sink, size_t index);

typedef struct diag_render_options {
  bool json;        /* one object a line */
  bool all_remarks; /* -v */
  const char *const *rpass,
      *const *rpass_missed; /* passes whose remarks are shown ("all" shows each), NULL-terminated, may be NULL */
} diag_render_options;
/* Renders everything reported since the last call. Errors, warnings and notes always, remarks as asked. A loc without
   file reads `taperc: error: ...`. Control characters of messages and source lines come out as '?', long lines are cut
   around the caret. */
void diag_render(diag_sink *sink, FILE *to, const diag_render_options *options);

#endif
