#include "compiler/front/source.h"

#include <string.h>

static uint32_t line_of(const front_source *s, uint32_t at) {
  uint32_t low = 0, high = s->line_count;
  while (high - low > 1) {
    uint32_t middle = low + (high - low) / 2;
    if (s->lines[middle] <= at)
      low = middle;
    else
      high = middle;
  }
  return low;
}

diag_loc source_loc(const front_source *s, ast_span span) {
  uint32_t line = line_of(s, span.begin);
  uint32_t stop = line + 1 < s->line_count ? s->lines[line + 1] - 1 : s->size;
  if (stop > span.begin && s->text[stop - 1] == '\r') stop--;
  uint32_t end = span.end < stop ? span.end : stop, start = line == 0 ? s->first : s->lines[line];
  if (start > span.begin) start = span.begin;
  return (diag_loc){s->file, line + 1, span.begin - start + 1, end > span.begin ? end - span.begin : 1};
}

/* Length of the UTF-8 character at p, 0 when it is none (RFC 3629: no overlong form, no surrogate, nothing above
 * U+10FFFF). */
static uint32_t utf8_length(const unsigned char *p, size_t left) {
  if (p[0] < 0x80) return 1;
  uint32_t n = p[0] >= 0xc2 && p[0] < 0xe0 ? 2 : (p[0] & 0xf0) == 0xe0 ? 3 : p[0] >= 0xf0 && p[0] < 0xf5 ? 4 : 0;
  if (n == 0 || left < n) return 0;
  for (uint32_t i = 1; i < n; i++)
    if ((p[i] & 0xc0) != 0x80) return 0;
  bool bad = (p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xed && p[1] > 0x9f) || (p[0] == 0xf0 && p[1] < 0x90) ||
             (p[0] == 0xf4 && p[1] > 0x8f);
  return bad ? 0 : n;
}

static bool report_byte(front_source *s, diag_sink *sink, uint32_t at) {
  unsigned byte = (unsigned char)s->text[at];
  diag_loc loc = source_loc(s, (ast_span){at, at + 1});
  if (byte >= 0x80)
    diag_report(sink, DC_FRONT_UTF8, loc, "byte 0x%02X at offset %u is not UTF-8; save the file as UTF-8", byte, at);
  else if (byte == 0)
    diag_report(sink, DC_FRONT_NUL, loc, "a NUL byte at offset %u; is this a .tmodel text?", at);
  else
    diag_report(sink, DC_FRONT_NUL, loc, "control character 0x%02X at offset %u; remove it", byte, at);
  return false;
}

bool source_init(front_source *out, const char *text, size_t size, const char *file, arena *memory, diag_sink *sink) {
  *out = (front_source){.file = file, .text = text};
  if (size > FRONT_MAX_SOURCE) {
    diag_report(sink, DC_FRONT_SIZE, (diag_loc){.file = file}, "%zu bytes; a .tmodel may have %u at most", size,
                FRONT_MAX_SOURCE);
    return false;
  }
  out->size = (uint32_t)size;
  uint32_t count = 1;
  for (uint32_t i = 0; i < out->size; i++) count += text[i] == '\n';
  out->lines = ARENA_ARRAY(memory, uint32_t, count);
  for (uint32_t i = 0; i < out->size; i++)
    if (text[i] == '\n') out->lines[++out->line_count] = i + 1;
  out->line_count = count;
  if (size >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0) out->first = 3;
  for (uint32_t i = out->first; i < out->size;) {
    unsigned char byte = (unsigned char)text[i];
    uint32_t n = utf8_length((const unsigned char *)text + i, size - i);
    if (n == 0 || (byte < 0x20 && byte != '\t' && byte != '\n' && byte != '\r') || byte == 0x7f)
      return report_byte(out, sink, i);
    i += n;
  }
  return true;
}
