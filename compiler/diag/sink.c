#include "compiler/diag/diag_priv.h"

#include <stdlib.h>
#include <string.h>

static const struct {
  uint32_t number;
  diag_severity severity;
  const char *title, *remedy;
} codes[] = {
#define DIAG(id, number, severity, title, remedy) {number, severity, title, remedy},
#include "compiler/diag/diag.def"
#undef DIAG
};

uint32_t diag_code_number(diag_code code) { return codes[code].number; }
const char *diag_code_title(diag_code code) { return codes[code].title; }
const char *diag_code_remedy(diag_code code) { return codes[code].remedy; }

enum { DEFAULT_LIMIT = 20 };

diag_sink *diag_sink_new(void) {
  arena memory = {0};
  diag_sink *sink = ARENA_NEW(&memory, diag_sink);
  sink->memory = memory;
  sink->limit = DEFAULT_LIMIT;
  return sink;
}

void diag_sink_free(diag_sink *sink) {
  if (!sink) return;
  arena memory = sink->memory; /* the sink itself lies in it */
  arena_free(&memory);
}

void diag_set_limit(diag_sink *sink, size_t limit) { sink->limit = limit; }

/* Room for one more element in an array of the sink; the old one stays in the arena until the end. */
static void *grown(diag_sink *sink, void *array, size_t count, size_t *cap, size_t size) {
  if (count < *cap) return array;
  size_t bigger = *cap ? *cap * 2 : 8;
  void *out = arena_alloc_array(&sink->memory, size, bigger);
  if (count) memcpy(out, array, count * size);
  *cap = bigger;
  return out;
}

const char *diag_intern(diag_sink *sink, const char *name) {
  if (!name) return NULL;
  for (size_t i = sink->name_count; i > 0; i--)
    if (strcmp(sink->names[i - 1], name) == 0) return sink->names[i - 1];
  sink->names = grown(sink, sink->names, sink->name_count, &sink->name_cap, sizeof *sink->names);
  return sink->names[sink->name_count++] = arena_strdup(&sink->memory, name);
}

void diag_add_source(diag_sink *sink, const char *file, const char *source, size_t size) {
  sink->sources = grown(sink, sink->sources, sink->source_count, &sink->source_cap, sizeof *sink->sources);
  diag_source *s = &sink->sources[sink->source_count++];
  *s = (diag_source){.file = diag_intern(sink, file), .data = arena_strndup(&sink->memory, source, size), .size = size};
  size_t lines = 1;
  for (size_t i = 0; i < size; i++) lines += source[i] == '\n';
  s->line_start = ARENA_ARRAY(&sink->memory, size_t, lines);
  s->lines = 1;
  for (size_t i = 0; i < size; i++)
    if (source[i] == '\n') s->line_start[s->lines++] = i + 1;
}

const diag_source *diag_find_source(const diag_sink *sink, const char *file) {
  for (size_t i = sink->source_count; file && i > 0; i--)
    if (strcmp(sink->sources[i - 1].file, file) == 0) return &sink->sources[i - 1];
  return NULL;
}

/* A place outlives the module or source that named its file. */
static diag_loc kept(diag_sink *sink, diag_loc loc) {
  loc.file = diag_intern(sink, loc.file);
  return loc;
}

static diag *add(diag_sink *sink, diag_code code, diag_severity severity, diag_loc loc, const char *message) {
  sink->items = grown(sink, sink->items, sink->count, &sink->cap, sizeof(void *));
  diag_item *item = ARENA_NEW(&sink->memory, diag_item);
  sink->items[sink->count++] = item;
  item->shown = (diag){.code = code, .severity = severity, .loc = kept(sink, loc), .message = message};
  return &item->shown;
}

void diag_report(diag_sink *sink, diag_code code, diag_loc loc, const char *format, ...) {
  diag_severity severity = codes[code].severity;
  sink->drop_notes = false;
  if (severity == DIAG_ERROR && ++sink->errors > sink->limit && sink->limit > 0) {
    sink->drop_notes = true;
    if (sink->errors == sink->limit + 1)
      add(sink, DC_TOO_MANY, DIAG_ERROR, (diag_loc){loc.file, 0, 0, 0}, "too many errors; mend the ones above first");
    return;
  }
  va_list args;
  va_start(args, format);
  add(sink, code, severity, loc, arena_vprintf(&sink->memory, format, args));
  va_end(args);
}

void diag_note(diag_sink *sink, diag_loc loc, const char *format, ...) {
  if (sink->count == 0 || sink->drop_notes) return;
  diag_item *item = sink->items[sink->count - 1];
  item->notes = grown(sink, item->notes, item->shown.note_count, &item->note_cap, sizeof *item->notes);
  va_list args;
  va_start(args, format);
  item->notes[item->shown.note_count++] = (diag_note_text){kept(sink, loc), arena_vprintf(&sink->memory, format, args)};
  va_end(args);
  item->shown.notes = item->notes;
}

void diag_remark(diag_sink *sink, const char *pass, bool missed, diag_loc loc, const char *format, ...) {
  sink->drop_notes = false;
  va_list args;
  va_start(args, format);
  diag *d = add(sink, DC_REMARK, DIAG_REMARK, loc, arena_vprintf(&sink->memory, format, args));
  va_end(args);
  d->pass = arena_strdup(&sink->memory, pass);
  d->missed = missed;
}

size_t diag_error_count(const diag_sink *sink) { return sink->errors; }
size_t diag_count(const diag_sink *sink) { return sink->count; }
const diag *diag_at(const diag_sink *sink, size_t index) { return &sink->items[index]->shown; }
