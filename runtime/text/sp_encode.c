/* What BPE and unigram encoding share: a window of normalised text, the unknown pieces, the ids that go out. */
#include "runtime/text/sp_priv.h"

enum { FILL = 1 << 16 };

bool sp_no_memory(sp_encoder *e) {
  e->status = TAPER_FAIL(e->error, TAPER_NOMEM, "no memory to encode a text; free some or give it in parts");
  return false;
}

bool sp_fill(sp_encoder *e, size_t want) {
  if (e->last || e->safe >= want) return true;
  if (!sp_normalize(&e->source, &e->window, want + FILL, &e->safe)) return sp_no_memory(e);
  e->last = e->source.done;
  return true;
}

void sp_drop(sp_encoder *e, size_t n) {
  if (n == 0) return;
  memmove(e->window.data, e->window.data + n, e->window.size - n);
  e->window.size -= n;
  e->safe -= n;
}

static bool flush(sp_encoder *e) {
  if (e->out_count && e->sink(e->user, e->out, e->out_count, e->before + e->source.at) != 0)
    e->status = TAPER_FAIL(e->error, TAPER_STOPPED, "the receiver of the ids stopped");
  e->out_count = 0;
  return e->status == TAPER_OK;
}

static bool put_id(sp_encoder *e, int32_t id) {
  if (e->out_count == sizeof e->out / sizeof *e->out && !flush(e)) return false;
  e->out[e->out_count++] = id;
  return true;
}

bool sp_emit(sp_encoder *e, const char *s, size_t n, int32_t id) {
  const sp_model *m = e->m;
  bool unknown = id < 0 || m->pieces[id].type == SP_UNKNOWN, repeated = unknown && e->after_unknown;
  e->after_unknown = unknown;
  if (unknown && m->byte_fallback) {
    for (size_t i = 0; i < n; i++)
      if (!put_id(e, m->byte_id[(uint8_t)s[i]])) return false;
    return true;
  }
  return repeated || put_id(e, id);
}

/* One text between special symbols. */
static void encode_part(sp_encoder *e, const char *whole, size_t begin, size_t n) {
  const char *text = n ? whole + begin : whole;
  e->before = begin;
  e->source = (sp_normalizing){.n = &e->m->normalizer, .a = e->a, .text = text, .size = n};
  e->source.done = n == 0;
  e->window.size = e->safe = 0;
  e->last = e->after_unknown = false;
  if (e->m->algorithm == SP_UNIGRAM)
    sp_encode_unigram(e);
  else
    sp_encode_bpe(e);
}

/* Control symbols in the text are themselves, longest first; what lies between them is a text of its own. */
static void encode_with_control(sp_encoder *e, const char *text, size_t n) {
  size_t begin = 0;
  for (size_t i = 0; i < n && e->status == TAPER_OK;) {
    int32_t id = -1;
    size_t k = sp_trie_longest(&e->m->control, text + i, n - i, &id);
    if (k == 0) {
      i++;
      continue;
    }
    if (i > begin) encode_part(e, text, begin, i - begin);
    if (e->status == TAPER_OK) put_id(e, id);
    begin = i += k;
  }
  if (begin < n && e->status == TAPER_OK) encode_part(e, text, begin, n - begin);
}

taper_status sp_stream(const sp_model *m, const char *text, size_t n, unsigned flags, tokenizer_sink sink, void *user,
                       taper_error *error) {
  sp_encoder e = {.m = m, .a = &m->allocator, .sink = sink, .user = user, .error = error};
  if (flags & TOKENIZER_SPECIAL && m->bos >= 0) put_id(&e, m->bos);
  if (flags & TOKENIZER_PARSE_SPECIAL)
    encode_with_control(&e, text, n);
  else
    encode_part(&e, text, 0, n);
  if (e.status == TAPER_OK) flush(&e);
  memory_free(e.a, e.window.data);
  return e.status;
}
