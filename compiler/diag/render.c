#include "compiler/diag/diag_priv.h"
#include "runtime/base/text.h"

#include <string.h>

static const char *const severity_names[] = {"remark", "note", "warning", "error"};
enum { LINE_CELLS = 160, LEAD_CELLS = 60 }; /* longer lines are cut; what stands before the caret then */

/* ---- one source line as cells of a terminal ---- */

static uint32_t code_point(const unsigned char *s, size_t n) {
  if (n == 1) return s[0];
  uint32_t c = s[0] & (0xFFu >> (n + 1));
  for (size_t i = 1; i < n; i++) c = c << 6 | (s[i] & 0x3Fu);
  return c;
}

/* Terminals give most characters one cell, East Asian wide ones and emoji two, combining marks none. */
static size_t cells_of(uint32_t c) {
  static const struct {
    uint32_t first, last;
    size_t cells;
  } ranges[] = {
      {0x300, 0x36F, 0},   {0x200B, 0x200F, 0},   {0x20D0, 0x20FF, 0},   {0xFE00, 0xFE0F, 0}, {0x1100, 0x115F, 2},
      {0x2E80, 0xA4CF, 2}, {0xAC00, 0xD7A3, 2},   {0xF900, 0xFAFF, 2},   {0xFE30, 0xFE6F, 2}, {0xFF00, 0xFF60, 2},
      {0xFFE0, 0xFFE6, 2}, {0x1F300, 0x1FAFF, 2}, {0x20000, 0x3FFFD, 2},
  };
  for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
    if (c >= ranges[i].first && c <= ranges[i].last) return ranges[i].cells;
  return 1;
}

typedef struct glyph {
  size_t bytes, cells;
  bool plain; /* may be printed as it is */
} glyph;

static glyph glyph_at(const char *s, size_t n) {
  size_t bytes = utf8_length(s, n);
  if (bytes == 0) return (glyph){1, 1, false};
  uint32_t c = code_point((const unsigned char *)s, bytes);
  if (c == '\t') return (glyph){1, 1, true}; /* the caret line repeats the tab, so its width does not matter */
  if (c < 32 || (c >= 127 && c < 160)) return (glyph){bytes, 1, false};
  return (glyph){bytes, cells_of(c), true};
}

static void put_glyph(text *out, const char *s, glyph g) {
  if (g.plain) {
    text_put(out, s, g.bytes);
  } else {
    text_puts(out, "?");
  }
}

static void put_clean(text *out, const char *s) {
  for (size_t n = strlen(s); n > 0;) {
    glyph g = glyph_at(s, n);
    g.plain = g.plain && *s != '\t';
    put_glyph(out, s, g);
    s += g.bytes, n -= g.bytes;
  }
}

/* First byte that is shown: 0, or where a long line is cut so that LEAD_CELLS stand before the caret. */
static size_t first_shown(const char *line, size_t n, size_t caret) {
  size_t cells = 0, lead = 0, first = 0, before = 0;
  for (size_t i = 0; i < n && cells <= LINE_CELLS;) {
    glyph g = glyph_at(line + i, n - i);
    cells += g.cells, i += g.bytes;
    if (i <= caret) before = cells;
  }
  if (cells <= LINE_CELLS || (caret < n && before < LINE_CELLS / 2 && caret < LINE_CELLS)) return 0;
  for (first = caret; first > 0 && lead < LEAD_CELLS; lead++) {
    first--;
    while (first > 0 && caret - first < 4 * LEAD_CELLS && ((unsigned char)line[first] & 0xC0) == 0x80) first--;
  }
  return first;
}

/* The line, then carets: one '^' at loc.col and '~' to the end of the range, clipped to the line. */
static void put_snippet(text *out, const diag_source *source, diag_loc loc) {
  if (!source || loc.line == 0 || loc.line > source->lines || loc.col == 0) return;
  size_t start = source->line_start[loc.line - 1];
  size_t end = loc.line < source->lines ? source->line_start[loc.line] - 1 : source->size;
  if (end > start && source->data[end - 1] == '\r') end--;
  const char *line = source->data + start;
  size_t n = end - start, caret = loc.col - 1 < n ? loc.col - 1 : n;
  size_t stop = loc.length > n - caret ? n : caret + loc.length, first = first_shown(line, n, caret), cells = 0;
  text marks = {0};
  if (first > 0) text_puts(out, "..."), text_puts(&marks, "   ");
  size_t i = first;
  while (i < n && cells < LINE_CELLS) {
    glyph g = glyph_at(line + i, n - i);
    put_glyph(out, line + i, g);
    bool here = caret >= i && caret<i + g.bytes, in_range = i> caret && i < stop;
    for (size_t k = 0; k < g.cells; k++) {
      const char *mark = here && k == 0                           ? "^"
                         : (here && stop > caret + 1) || in_range ? "~"
                         : line[i] == '\t'                        ? "\t"
                                                                  : " ";
      text_puts(&marks, mark);
    }
    cells += g.cells, i += g.bytes;
  }
  if (i < n) text_puts(out, "...");
  if (caret == n) text_puts(&marks, "^");
  while (marks.size > 0 && (marks.data[marks.size - 1] == ' ' || marks.data[marks.size - 1] == '\t'))
    marks.data[--marks.size] = 0;
  text_printf(out, "\n%s\n", marks.data ? marks.data : "");
  text_free(&marks);
}

/* ---- messages ---- */

static void put_place(text *out, diag_loc loc) {
  put_clean(out, loc.file ? loc.file : "taperc");
  if (loc.file && loc.line > 0) text_printf(out, loc.col > 0 ? ":%u:%u" : ":%u", loc.line, loc.col);
  text_puts(out, ": ");
}

/* For an error that tells what to do neither itself nor in a note; else NULL. */
static const char *missing_remedy(const diag *d) {
  if (d->severity != DIAG_ERROR || d->note_count > 0 || strstr(d->message, "; ")) return NULL;
  return diag_code_remedy(d->code);
}

static void put_human(text *out, const diag_sink *sink, const diag *d) {
  put_place(out, d->loc);
  text_printf(out, "%s: ", severity_names[d->severity]);
  if (d->severity == DIAG_REMARK) text_printf(out, "%s: ", d->pass);
  put_clean(out, d->message);
  const char *remedy = missing_remedy(d);
  if (remedy) text_printf(out, "; %s", remedy);
  if (d->severity == DIAG_REMARK) text_printf(out, " [-Rpass%s=%s]", d->missed ? "-missed" : "", d->pass);
  text_puts(out, "\n");
  bool carets = d->severity != DIAG_REMARK; /* a remark is one line: there are hundreds of them */
  if (carets) put_snippet(out, diag_find_source(sink, d->loc.file), d->loc);
  for (size_t i = 0; i < d->note_count; i++) {
    diag_loc loc = d->notes[i].loc;
    put_place(out, loc);
    text_puts(out, "note: ");
    put_clean(out, d->notes[i].message);
    text_puts(out, "\n");
    if (carets) put_snippet(out, diag_find_source(sink, loc.file), loc);
  }
}

static void put_json_string(text *out, const char *key, const char *value) {
  text_printf(out, ",\"%s\":", key);
  if (value) {
    text_put_quoted(out, value, strlen(value), true);
  } else {
    text_puts(out, "null");
  }
}

static void put_json_place(text *out, diag_loc loc, const char *message) {
  put_json_string(out, "file", loc.file);
  text_printf(out, ",\"line\":%u,\"col\":%u,\"length\":%u", loc.line, loc.col, loc.length);
  put_json_string(out, "message", message);
}

static void put_json_message(text *out, const diag *d) {
  const char *remedy = missing_remedy(d);
  text whole = {0};
  text_puts(&whole, d->message);
  if (remedy) text_printf(&whole, "; %s", remedy);
  put_json_place(out, d->loc, whole.data ? whole.data : d->message);
  text_free(&whole);
}

static void put_json(text *out, const diag *d) {
  text_printf(out, "{\"severity\":\"%s\",\"code\":%u", severity_names[d->severity], diag_code_number(d->code));
  put_json_message(out, d);
  if (d->severity == DIAG_REMARK) {
    put_json_string(out, "pass", d->pass);
    text_printf(out, ",\"missed\":%s", d->missed ? "true" : "false");
  }
  text_puts(out, ",\"notes\":[");
  for (size_t i = 0; i < d->note_count; i++) {
    text_puts(out, i ? ",{\"severity\":\"note\"" : "{\"severity\":\"note\"");
    put_json_place(out, d->notes[i].loc, d->notes[i].message);
    text_puts(out, "}");
  }
  text_puts(out, "]}\n");
}

static bool listed(const char *const *list, const char *pass) {
  for (; list && *list; list++)
    if (strcmp(*list, "all") == 0 || strcmp(*list, pass) == 0) return true;
  return false;
}

static bool wanted(const diag *d, const diag_render_options *options) {
  if (d->severity != DIAG_REMARK || options->all_remarks) return true;
  return listed(d->missed ? options->rpass_missed : options->rpass, d->pass);
}

void diag_render(diag_sink *sink, FILE *to, const diag_render_options *options) {
  static const diag_render_options none = {0};
  if (!options) options = &none;
  text out = {0};
  for (; sink->rendered < sink->count; sink->rendered++) {
    const diag *d = diag_at(sink, sink->rendered);
    if (!wanted(d, options)) continue;
    if (options->json) {
      put_json(&out, d);
    } else {
      put_human(&out, sink, d);
    }
  }
  if (out.size) fwrite(out.data, 1, out.size, to);
  text_free(&out);
}
