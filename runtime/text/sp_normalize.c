/* What SentencePiece does to a text before it looks for pieces (src/normalizer.cc of the library): replacements by a
   table, spaces taken together and written U+2581, a space put in front. */
#include "runtime/base/text.h"
#include "runtime/text/sp_priv.h"

/* ---- the table of replacements: a double array (darts-clone) over UTF-8 bytes ---- */

static uint32_t unit_at(const sp_normalizer *n, uint32_t i) {
  const uint8_t *p = n->units + (size_t)i * 4;
  return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static uint32_t unit_offset(uint32_t unit) { return (unit >> 10) << ((unit & (1u << 9)) >> 6); }

/* Bytes of the longest entry that s begins with, and where its replacement begins. */
static size_t table_longest(const sp_normalizer *n, const char *s, size_t size, uint32_t *out) {
  size_t found = 0;
  if (n->unit_count == 0) return 0;
  uint32_t node = unit_offset(unit_at(n, 0));
  for (size_t i = 0; i < size; i++) {
    uint8_t byte = (uint8_t)s[i];
    node ^= byte;
    if (node >= n->unit_count) break;
    uint32_t unit = unit_at(n, node);
    if ((unit & 0x800000ffu) != byte) break;
    node ^= unit_offset(unit);
    if (node >= n->unit_count) break;
    if (!(unit >> 8 & 1)) continue;
    found = i + 1;
    *out = unit_at(n, node) & 0x7fffffffu;
  }
  return found;
}

typedef struct prefix { /* what the first `used` bytes of the text become */
  const char *data;
  size_t size, used;
} prefix;

static prefix next_prefix(const sp_normalizer *n, const char *s, size_t size) {
  size_t fixed = n->fixed ? sp_trie_longest(n->fixed, s, size, NULL) : 0;
  if (fixed) return (prefix){s, fixed, fixed};
  uint32_t at = 0;
  size_t used = table_longest(n, s, size, &at);
  if (used && at < n->replacement_bytes)
    return (prefix){n->replacements + at, strnlen(n->replacements + at, n->replacement_bytes - at), used};
  used = utf8_length(s, size);
  return used ? (prefix){s, used, used} : (prefix){"\xef\xbf\xbd", 3, 1};
}

/* ---- the text ---- */

static void put_space(const sp_normalizer *n, sp_bytes *out) {
  if (!n->escape) {
    out->data[out->size++] = ' ';
    return;
  }
  memcpy(out->data + out->size, SP_SPACE, SP_SPACE_BYTES);
  out->size += SP_SPACE_BYTES;
}

static void put_prefix(const sp_normalizer *n, prefix p, sp_bytes *out) {
  for (size_t i = 0; i < p.size; i++) {
    if (p.data[i] == ' ')
      put_space(n, out);
    else
      out->data[out->size++] = p.data[i];
  }
}

static bool start(sp_normalizing *s, sp_bytes *out) {
  const sp_normalizer *n = s->n;
  s->started = true;
  while (n->remove_extra && s->at < s->size) {
    prefix p = next_prefix(n, s->text + s->at, s->size - s->at);
    if (p.size != 1 || *p.data != ' ') break;
    s->at += p.used;
  }
  s->done = s->at == s->size; /* nothing but spaces: no ids at all */
  if (s->done) return true;
  if (!sp_reserve(s->a, out, SP_SPACE_BYTES)) return false;
  if (n->dummy_prefix && !n->suffix) put_space(n, out);
  s->after_space = n->remove_extra;
  return true;
}

static bool step(sp_normalizing *s, sp_bytes *out) {
  const sp_normalizer *n = s->n;
  prefix p = next_prefix(n, s->text + s->at, s->size - s->at);
  s->at += p.used;
  while (s->after_space && p.size && *p.data == ' ') p.data++, p.size--;
  if (p.size) {
    if (p.size > SIZE_MAX / 8 || !sp_reserve(s->a, out, p.size * SP_SPACE_BYTES)) return false;
    put_prefix(n, p, out);
    s->after_space = n->remove_extra && p.data[p.size - 1] == ' ';
  }
  return true;
}

static size_t without_spaces(const sp_normalizer *n, const sp_bytes *out) {
  const char *space = n->escape ? SP_SPACE : " ";
  size_t bytes = strlen(space), size = out->size;
  while (n->remove_extra && size >= bytes && memcmp(out->data + size - bytes, space, bytes) == 0) size -= bytes;
  return size;
}

bool sp_normalize(sp_normalizing *s, sp_bytes *out, size_t want, size_t *out_safe) {
  if (!s->started && !start(s, out)) return false;
  *out_safe = out->size;
  while (!s->done && (*out_safe = without_spaces(s->n, out)) < want) {
    for (size_t to = out->size + want - *out_safe; s->at < s->size && out->size < to;)
      if (!step(s, out)) return false;
    if (s->at < s->size) continue;
    s->done = true;
    out->size = without_spaces(s->n, out); /* spaces at the end go */
    if (!sp_reserve(s->a, out, SP_SPACE_BYTES)) return false;
    if (s->n->dummy_prefix && s->n->suffix) put_space(s->n, out);
    *out_safe = out->size;
  }
  return true;
}
