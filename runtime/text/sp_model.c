/* A SentencePiece .model: protocol buffers (sentencepiece_model.proto of the library), checked field by field. */
#include "runtime/text/protobuf.h"
#include "runtime/text/sp_priv.h"
#include <float.h>
#include <math.h>

enum { LARGEST_FILE = 1 << 29 };

typedef struct sp_reading {
  sp_model *m;
  const char *name;
  size_t text_used;
  const char *bos_piece, *eos_piece; /* in the file */
  size_t bos_size, eos_size;
  taper_error *error;
} sp_reading;

static taper_status damaged(const sp_reading *r, const pb_reader *p, const pb_reader *whole) {
  return TAPER_FAIL(r->error, TAPER_INVALID, "%s: byte %zu: %s; it is no SentencePiece model, or a damaged one",
                    r->name, (size_t)(p->at - whole->start), p->bad);
}

static taper_status no_memory(const sp_reading *r) {
  return TAPER_FAIL(r->error, TAPER_NOMEM, "%s: no memory for the tokenizer; free some", r->name);
}

/* A reader of the bytes of a field: places are told in the file. */
static pb_reader inner(const pb_reader *whole, const pb_field *f) {
  return (pb_reader){whole->start, f->data, f->data + f->size, NULL};
}

/* ---- pieces ---- */

static taper_status check_type(const sp_reading *r, uint64_t type, uint32_t id) {
  if (type >= SP_NORMAL && type <= SP_BYTE) return TAPER_OK;
  return TAPER_FAIL(r->error, TAPER_UNSUPPORTED, "%s: piece %u has the unknown type %llu; update taperc", r->name, id,
                    (unsigned long long)type);
}

static taper_status read_piece(sp_reading *r, const pb_reader *whole, const pb_field *field) {
  sp_model *m = r->m;
  uint32_t id = m->count;
  pb_reader p = inner(whole, field);
  const uint8_t *text = NULL;
  sp_piece_info piece = {.type = SP_NORMAL};
  for (pb_field f; pb_next(&p, &f);) {
    if (f.number == 1 && f.wire == PB_BYTES) text = f.data, piece.size = (uint32_t)f.size;
    if (f.number == 2 && f.wire == PB_FIXED32) piece.score = pb_float(&f);
    if (f.number != 3 || f.wire != PB_VARINT) continue;
    TAPER_TRY(check_type(r, f.value, id));
    piece.type = (uint8_t)f.value;
  }
  if (p.bad) return damaged(r, &p, whole);
  if (piece.size == 0) return TAPER_FAIL(r->error, TAPER_INVALID, "%s: piece %u is empty", r->name, id);
  if (piece.size > TOKENIZER_MAX_PIECE)
    return TAPER_FAIL(r->error, TAPER_UNSUPPORTED, "%s: piece %u has %u bytes; at most %u are supported", r->name, id,
                      piece.size, TOKENIZER_MAX_PIECE);
  if (memchr(text, 0, piece.size) && piece.size > 1)
    return TAPER_FAIL(r->error, TAPER_UNSUPPORTED, "%s: piece %u holds a zero byte, which is not supported", r->name,
                      id);
  if (!isfinite(piece.score))
    return TAPER_FAIL(r->error, TAPER_INVALID, "%s: the score of piece %u is not finite", r->name, id);
  piece.start = (uint32_t)r->text_used;
  memcpy(m->text + r->text_used, text, piece.size);
  r->text_used += piece.size;
  m->pieces[m->count++] = piece;
  return TAPER_OK;
}

/* ---- specifications ---- */

static taper_status read_trainer(sp_reading *r, const pb_reader *whole, const pb_field *field) {
  sp_model *m = r->m;
  pb_reader p = inner(whole, field);
  for (pb_field f; pb_next(&p, &f);) {
    if (f.wire == PB_VARINT && f.number == 3) m->algorithm = (sp_algorithm)(f.value < 5 ? f.value : 0);
    if (f.wire == PB_VARINT && f.number == 24) m->normalizer.suffix = f.value != 0;
    if (f.wire == PB_VARINT && f.number == 35) m->byte_fallback = f.value != 0;
    if (f.wire == PB_BYTES && f.number == 46) r->bos_piece = (const char *)f.data, r->bos_size = f.size;
    if (f.wire == PB_BYTES && f.number == 47) r->eos_piece = (const char *)f.data, r->eos_size = f.size;
    if (f.wire != PB_BYTES || f.number != 44) continue;
    memory_free(&m->allocator, m->unknown_surface);
    m->unknown_surface = memory_zalloc(&m->allocator, f.size + 1, 1);
    if (!m->unknown_surface) return no_memory(r);
    memcpy(m->unknown_surface, f.data, f.size);
  }
  return p.bad ? damaged(r, &p, whole) : TAPER_OK;
}

static taper_status read_charsmap(sp_reading *r, const pb_field *f, sp_normalizer *n) {
  const taper_allocator *a = &r->m->allocator;
  memory_free(a, n->charsmap);
  n->charsmap = NULL, n->unit_count = 0;
  if (f->size == 0) return TAPER_OK;
  uint32_t units = 0;
  for (size_t i = 0; i < 4 && i < f->size; i++) units |= (uint32_t)f->data[i] << (8 * i);
  if (f->size <= 4 || units > f->size - 4 || units % 4)
    return TAPER_FAIL(r->error, TAPER_INVALID, "%s: its table of replacements is damaged: %u of %zu bytes", r->name,
                      units, f->size);
  n->charsmap = memory_alloc(a, f->size, MEMORY_LINE);
  if (!n->charsmap) return no_memory(r);
  memcpy(n->charsmap, f->data, f->size);
  n->units = (const uint8_t *)n->charsmap + 4;
  n->unit_count = units / 4;
  n->replacements = n->charsmap + 4 + units;
  n->replacement_bytes = f->size - 4 - units;
  return TAPER_OK;
}

static taper_status read_normalizer(sp_reading *r, const pb_reader *whole, const pb_field *field, sp_normalizer *n) {
  pb_reader p = inner(whole, field);
  for (pb_field f; pb_next(&p, &f);) {
    if (f.wire == PB_BYTES && f.number == 2) TAPER_TRY(read_charsmap(r, &f, n));
    if (f.wire != PB_VARINT) continue;
    if (f.number == 3) n->dummy_prefix = f.value != 0;
    if (f.number == 4) n->remove_extra = f.value != 0;
    if (f.number == 5) n->escape = f.value != 0;
  }
  return p.bad ? damaged(r, &p, whole) : TAPER_OK;
}

/* ---- what belongs together ---- */

static int32_t hex_digit(char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1; }

/* "<0x0A>"; -1: no such piece. */
static int32_t byte_of(const char *s, size_t n) {
  if (n != 6 || memcmp(s, "<0x", 3) != 0 || s[5] != '>') return -1;
  int32_t high = hex_digit(s[3]), low = hex_digit(s[4]);
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

static taper_status note_piece(sp_reading *r, uint32_t id) {
  sp_model *m = r->m;
  sp_piece_info *p = &m->pieces[id];
  if (*sp_piece_text(m, id) == 0) { /* some converters add one beside the byte piece: it is never used */
    p->type = SP_UNUSED;
    return m->byte_fallback ? TAPER_OK
                            : TAPER_FAIL(r->error, TAPER_UNSUPPORTED,
                                         "%s: piece %u is a zero byte, which is not supported", r->name, id);
  }
  bool normal = p->type == SP_NORMAL || p->type == SP_USER || p->type == SP_UNUSED;
  bool twice = !sp_table_put(m, normal ? &m->normal : &m->reserved, id);
  if (twice || (m->algorithm == SP_BPE &&
                sp_table_find(m, normal ? &m->reserved : &m->normal, sp_piece_text(m, id), p->size) >= 0))
    return TAPER_FAIL(r->error, TAPER_INVALID, "%s: piece %u, '%.*s', stands there twice", r->name, id, (int)p->size,
                      sp_piece_text(m, id));
  if (p->type == SP_UNKNOWN) {
    if (m->unknown >= 0)
      return TAPER_FAIL(r->error, TAPER_INVALID, "%s: pieces %d and %u are both the unknown one", r->name, m->unknown,
                        id);
    m->unknown = (int32_t)id;
  }
  m->has_unused |= p->type == SP_UNUSED;
  if (p->type == SP_NORMAL) {
    if (p->score < m->least) m->least = p->score;
    if (p->score > m->most) m->most = p->score;
  }
  if (p->type != SP_BYTE) return TAPER_OK;
  int32_t byte = byte_of(sp_piece_text(m, id), p->size);
  if (byte < 0 || !m->byte_fallback)
    return TAPER_FAIL(r->error, TAPER_INVALID, "%s: piece %u, '%.*s', is a byte piece%s", r->name, id, (int)p->size,
                      sp_piece_text(m, id), byte < 0 ? ", but names no byte" : ", but the model has no byte fallback");
  m->byte_id[byte] = (int32_t)id;
  return TAPER_OK;
}

static taper_status note_pieces(sp_reading *r) {
  sp_model *m = r->m;
  if (!sp_table_make(m, &m->normal, m->count) || !sp_table_make(m, &m->reserved, m->count)) return no_memory(r);
  for (uint32_t id = 0; id < m->count; id++) TAPER_TRY(note_piece(r, id));
  if (m->unknown < 0 && !m->byte_fallback)
    return TAPER_FAIL(r->error, TAPER_INVALID, "%s: no piece is the unknown one", r->name);
  for (size_t b = 0; m->byte_fallback && b < 256; b++)
    if (m->byte_id[b] < 0)
      return TAPER_FAIL(r->error, TAPER_INVALID, "%s: the piece of byte 0x%02zX is missing", r->name, b);
  return TAPER_OK;
}

/* The trie of all pieces whose type is one of the bits of `types`. */
static bool make_trie(sp_model *m, unsigned types, sp_trie *out) {
  sp_string *strings = memory_zalloc(&m->allocator, (size_t)m->count + 1, sizeof *strings);
  uint32_t n = 0;
  for (uint32_t id = 0; strings && id < m->count; id++)
    if (types >> m->pieces[id].type & 1 && *sp_piece_text(m, id))
      strings[n++] = (sp_string){sp_piece_text(m, id), m->pieces[id].size, (int32_t)id};
  bool ok = strings && sp_trie_build(&m->allocator, strings, n, out);
  memory_free(&m->allocator, strings);
  return ok;
}

static int32_t control_id(const sp_model *m, const char *piece, size_t n) {
  int32_t id = sp_id_of(m, piece, n);
  return id >= 0 && m->pieces[id].type == SP_CONTROL ? id : -1;
}

static taper_status finish(sp_reading *r) {
  sp_model *m = r->m;
  if (m->algorithm != SP_UNIGRAM && m->algorithm != SP_BPE && m->algorithm != SP_CHAR)
    return TAPER_FAIL(r->error, TAPER_UNSUPPORTED, "%s: is a model of %s; unigram, bpe and char models are supported",
                      r->name, m->algorithm == SP_WORD ? "words" : "an unknown kind");
  TAPER_TRY(note_pieces(r));
  if (!make_trie(m, 1u << SP_USER, &m->fixed) || !make_trie(m, 1u << SP_CONTROL, &m->control)) return no_memory(r);
  if (m->fixed.nodes) m->normalizer.fixed = &m->fixed;
  if (m->algorithm == SP_UNIGRAM && !make_trie(m, 1u << SP_NORMAL | 1u << SP_USER | 1u << SP_UNUSED, &m->words))
    return no_memory(r);
  if (m->algorithm == SP_UNIGRAM && !m->words.nodes)
    return TAPER_FAIL(r->error, TAPER_INVALID, "%s: has no piece that text may become", r->name);
  if (m->algorithm == SP_BPE && !sp_pairs_make(m)) return no_memory(r);
  m->bos = control_id(m, r->bos_piece, r->bos_size);
  m->eos = control_id(m, r->eos_piece, r->eos_size);
  return TAPER_OK;
}

/* ---- the file ---- */

/* Room for all pieces: their number and bytes. */
static taper_status measure(sp_reading *r, const pb_reader *whole) {
  pb_reader p = *whole;
  size_t pieces = 0, bytes = 0;
  for (pb_field f; pb_next(&p, &f);)
    if (f.number == 1 && f.wire == PB_BYTES) pieces++, bytes += f.size;
  if (p.bad) return damaged(r, &p, whole);
  if (pieces == 0)
    return TAPER_FAIL(r->error, TAPER_INVALID, "%s: holds no pieces; it is no SentencePiece model", r->name);
  r->m->pieces = memory_zalloc(&r->m->allocator, pieces, sizeof *r->m->pieces);
  r->m->text = memory_zalloc(&r->m->allocator, bytes + 1, 1);
  return r->m->pieces && r->m->text ? TAPER_OK : no_memory(r);
}

static taper_status read_model(sp_reading *r, const void *data, size_t size) {
  const pb_reader whole = pb_read(data, size);
  sp_model *m = r->m;
  TAPER_TRY(measure(r, &whole));
  pb_reader p = whole;
  for (pb_field f; pb_next(&p, &f);) {
    if (f.wire != PB_BYTES) continue;
    if (f.number == 1) TAPER_TRY(read_piece(r, &whole, &f));
    if (f.number == 2) TAPER_TRY(read_trainer(r, &whole, &f));
    if (f.number == 3) TAPER_TRY(read_normalizer(r, &whole, &f, &m->normalizer));
    if (f.number == 5) TAPER_TRY(read_normalizer(r, &whole, &f, &m->denormalizer));
  }
  m->denormalizes = m->denormalizer.charsmap != NULL;
  return finish(r);
}

taper_status sp_open(const void *data, size_t size, const char *name, const taper_allocator *allocator, sp_model **out,
                     taper_error *error) {
  static const sp_normalizer standard = {.dummy_prefix = true, .remove_extra = true, .escape = true};
  *out = NULL;
  if (size > LARGEST_FILE)
    return TAPER_FAIL(error, TAPER_INVALID, "%s: %zu bytes are no SentencePiece model; check the path", name, size);
  sp_model *m = memory_zalloc(allocator, 1, sizeof *m);
  if (!m) return memory_exhausted(error, "the tokenizer", sizeof *m);
  m->allocator = *allocator;
  m->key = hash_bytes(data, size);
  m->algorithm = SP_UNIGRAM;
  m->normalizer = m->denormalizer = standard;
  m->unknown = m->bos = m->eos = -1;
  m->least = FLT_MAX, m->most = FLT_MIN;
  for (size_t b = 0; b < 256; b++) m->byte_id[b] = -1;
  sp_reading r = {m, name, 0, "<s>", "</s>", 3, 4, error};
  taper_status status = read_model(&r, data, size);
  if (status != TAPER_OK) return sp_close(m), status;
  *out = m;
  return TAPER_OK;
}

void sp_close(sp_model *m) {
  if (!m) return;
  const taper_allocator a = m->allocator;
  void *const blocks[] = {m->text,        m->pieces,       m->unknown_surface, m->normalizer.charsmap,
                          m->pairs,       m->normal.slots, m->reserved.slots,  m->denormalizer.charsmap,
                          m->words.nodes, m->fixed.nodes,  m->control.nodes,   m};
  for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) memory_free(&a, blocks[i]);
}

uint32_t sp_vocab(const sp_model *m) { return m->count; }
int32_t sp_bos(const sp_model *m) { return m->bos; }
int32_t sp_eos(const sp_model *m) { return m->eos; }
const char *sp_key(const sp_model *m) { return m->key.hex; }
