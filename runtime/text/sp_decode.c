/* Ids to text, as the library's Decode. */
#include "runtime/base/text.h"
#include "runtime/text/sp_priv.h"

static const char unknown_surface[] = " \xe2\x81\x87 "; /* U+2047 between spaces */

/* The byte that a byte piece stands for. */
static char byte_of(const sp_model *m, int32_t id) {
  const char *s = sp_piece_text(m, (uint32_t)id); /* <0x0A>: checked when the model was read */
  const int high = s[3] <= '9' ? s[3] - '0' : s[3] - 'A' + 10, low = s[4] <= '9' ? s[4] - '0' : s[4] - 'A' + 10;
  return (char)(high * 16 + low);
}

static size_t put_spaced(const char *s, size_t n, char *out) {
  size_t used = 0;
  for (size_t i = 0; i < n;) {
    bool space = n - i >= SP_SPACE_BYTES && memcmp(s + i, SP_SPACE, SP_SPACE_BYTES) == 0;
    out[used++] = space ? ' ' : s[i];
    i += space ? SP_SPACE_BYTES : 1;
  }
  return used;
}

size_t sp_piece(const sp_model *m, int32_t id, char *out) {
  if (id < 0 || (uint32_t)id >= m->count) return 0;
  const char *surface = m->unknown_surface ? m->unknown_surface : unknown_surface;
  size_t n;
  switch ((sp_type)m->pieces[id].type) {
  case SP_CONTROL: return 0;
  case SP_BYTE: *out = byte_of(m, id); return 1;
  case SP_UNKNOWN:
    n = strlen(surface);
    if (n > TOKENIZER_MAX_PIECE) n = TOKENIZER_MAX_PIECE;
    memcpy(out, surface, n);
    return n;
  case SP_NORMAL:
  case SP_USER:
  case SP_UNUSED: break;
  }
  return put_spaced(sp_piece_text(m, (uint32_t)id), m->pieces[id].size, out);
}

typedef struct decoding {
  const sp_model *m;
  const taper_allocator *a;
  sp_bytes text;
} decoding;

static bool put(decoding *d, const char *s, size_t n) {
  if (n == 0) return true;
  if (!sp_reserve(d->a, &d->text, n)) return false;
  memcpy(d->text.data + d->text.size, s, n);
  d->text.size += n;
  return true;
}

/* A run of byte pieces: characters, and U+FFFD for each byte that is in none. */
static bool put_bytes(decoding *d, const int32_t *ids, size_t n) {
  sp_bytes run = {0};
  bool ok = sp_reserve(d->a, &run, n);
  for (size_t i = 0; ok && i < n; i++) run.data[run.size++] = byte_of(d->m, ids[i]);
  for (size_t i = 0; ok && i < n;) {
    size_t k = utf8_length(run.data + i, n - i);
    ok = k ? put(d, run.data + i, k) : put(d, "\xef\xbf\xbd", 3);
    i += k ? k : 1;
  }
  memory_free(d->a, run.data);
  return ok;
}

/* A piece; the first space of the text may be the dummy prefix. *seen: it was, so the next space stays. */
static bool put_piece(decoding *d, int32_t id, bool at_begin, bool *seen) {
  const sp_model *m = d->m;
  const sp_normalizer *n = &m->normalizer;
  const sp_piece_info *p = &m->pieces[id];
  char out[TOKENIZER_MAX_PIECE];
  const char *s = sp_piece_text(m, (uint32_t)id);
  size_t size = p->size;
  *seen = false;
  if (p->type == SP_CONTROL) return true;
  if (p->type == SP_UNKNOWN) {
    s = m->unknown_surface ? m->unknown_surface : unknown_surface;
    return put(d, s, strlen(s));
  }
  if (at_begin && (n->dummy_prefix || n->remove_extra) && size >= SP_SPACE_BYTES &&
      memcmp(s, SP_SPACE, SP_SPACE_BYTES) == 0) {
    s += SP_SPACE_BYTES, size -= SP_SPACE_BYTES;
    *seen = !n->remove_extra;
  }
  return put(d, out, put_spaced(s, size, out));
}

static bool decode(decoding *d, const int32_t *ids, size_t n) {
  size_t bytes_from = 0;
  bool at_begin = true, seen = false, ok = true;
  for (size_t i = 0; ok && i < n; i++) {
    if (d->m->pieces[ids[i]].type == SP_BYTE) continue;
    ok = put_bytes(d, ids + bytes_from, i - bytes_from);
    if (seen || d->text.size) at_begin = false;
    bytes_from = i + 1;
    if (ok) ok = put_piece(d, ids[i], at_begin, &seen);
  }
  return ok && (n == bytes_from || put_bytes(d, ids + bytes_from, n - bytes_from));
}

taper_status sp_decode(const sp_model *m, const int32_t *ids, size_t n,
                       void (*give)(void *user, const char *bytes, size_t n), void *user, taper_error *error) {
  decoding d = {.m = m, .a = &m->allocator};
  sp_bytes normal = {0};
  size_t safe = 0;
  bool ok = decode(&d, ids, n);
  if (ok && m->denormalizes) {
    sp_normalizing s = {.n = &m->denormalizer, .a = d.a, .text = d.text.data, .size = d.text.size};
    s.done = s.size == 0;
    ok = sp_normalize(&s, &normal, SIZE_MAX / 4, &safe);
    if (ok) give(user, normal.data ? normal.data : "", safe);
  } else if (ok) {
    give(user, d.text.data ? d.text.data : "", d.text.size);
  }
  memory_free(d.a, d.text.data), memory_free(d.a, normal.data);
  return ok ? TAPER_OK : TAPER_FAIL(error, TAPER_NOMEM, "no memory for a text of %zu ids; give fewer", n);
}
