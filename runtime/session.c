#include "runtime/model.h"
#include <math.h>
#include <string.h>

enum { MAX_BATCH = 8 };

void taper_session_options_init(taper_session_options *o) {
  *o = (taper_session_options){.size = sizeof(*o), .max_batch = 1};
}

void taper_session_free(taper_session *s) {
  if (!s) return;
  taper_allocator a = s->model->allocator;
  device *d = s->model->device;
  d->ops->state_free(d, s->state);
  void *const blocks[] = {s->length, s->history,     s->reached,  s->named,  s->token,
                          s->pos,    s->slot,        s->out_row,  s->logits, s->probe_rows,
                          s->next,   s->room.values, s->room.ids, s->scales, s->scale};
  for (size_t i = 0; i < sizeof(blocks) / sizeof(blocks[0]); i++) memory_free(&a, blocks[i]);
  memory_free(&a, s);
}

/* Everything a session will ever need: no later call allocates. */
static bool allocate(taper_session *s) {
  const taper_allocator *a = &s->model->allocator;
  const device_facts *f = &s->model->device->facts;
  const size_t batch = s->max_batch, cap = f->row_cap, probe_floats = (size_t)f->probes * cap * f->width;
  return (s->length = memory_zalloc(a, batch, sizeof(*s->length))) &&
         (s->history = memory_zalloc(a, batch * s->context, sizeof(*s->history))) &&
         (s->reached = memory_zalloc(a, batch, sizeof(*s->reached))) &&
         (s->named = memory_zalloc(a, batch, sizeof(*s->named))) &&
         (s->token = memory_zalloc(a, cap, sizeof(*s->token))) && (s->pos = memory_zalloc(a, cap, sizeof(*s->pos))) &&
         (s->slot = memory_zalloc(a, cap, sizeof(*s->slot))) &&
         (s->out_row = memory_zalloc(a, cap, sizeof(*s->out_row))) &&
         (s->logits = memory_zalloc(a, cap, sizeof(*s->logits))) &&
         (s->probe_rows = memory_alloc(a, probe_floats * sizeof(float), MEMORY_LINE)) &&
         (f->scale_median <= 0 || ((s->scales = memory_zalloc(a, cap, sizeof(float))) &&
                                   (s->scale = memory_zalloc(a, batch, sizeof(*s->scale))))) &&
         (s->next = memory_zalloc(a, f->vocab, sizeof(float))) &&
         (s->room.values = memory_zalloc(a, f->vocab, sizeof(float))) &&
         (s->room.ids = memory_zalloc(a, f->vocab, sizeof(uint32_t)));
}

static taper_status session_make(taper_model *m, uint32_t max_batch, uint32_t context, taper_session **out,
                                 taper_error *error) {
  taper_session *s = memory_zalloc(&m->allocator, 1, sizeof(*s));
  if (!s) return memory_exhausted(error, "a session", sizeof(*s));
  s->model = m;
  s->max_batch = max_batch, s->context = context;
  taper_status status = m->device->ops->state_new(m->device, max_batch, context, &s->state, error);
  if (status == TAPER_OK && !allocate(s))
    status = memory_exhausted(error, "a session's buffers",
                              (uint64_t)max_batch * context * sizeof(int32_t) + m->device->facts.vocab * 12ull);
  if (status != TAPER_OK) return taper_session_free(s), status;
  *out = s;
  return TAPER_OK;
}

taper_status taper_session_new(taper_model *m, const taper_session_options *options, taper_session **out,
                               taper_error *error) {
  if (!out) return TAPER_FAIL(error, TAPER_INVALID, "taper_session_new: out is NULL; give a place for the session");
  *out = NULL;
  if (!m) return TAPER_FAIL(error, TAPER_INVALID, "taper_session_new: model is NULL; open one first");
  taper_session_options o;
  taper_session_options_init(&o);
  if (options) {
    TAPER_TRY(model_check_size(options->size, sizeof(o), "taper_session_options", error));
    o = *options;
  }
  const device_facts *f = &m->device->facts;
  const uint32_t most = f->max_batch < MAX_BATCH ? f->max_batch : MAX_BATCH;
  if (o.max_batch < 1 || o.max_batch > most)
    return TAPER_FAIL(error, TAPER_INVALID, "option 'max_batch' is %u; model '%s' takes 1 to %u sequences", o.max_batch,
                      m->name, most);
  if (o.context > f->context)
    return TAPER_FAIL(error, TAPER_INVALID, "option 'context' is %u; model '%s' was compiled for at most %u", o.context,
                      m->name, f->context);
  return session_make(m, o.max_batch, o.context ? o.context : f->context, out, error);
}

taper_status taper_session_clone(const taper_session *s, taper_session **out, taper_error *error) {
  if (!out) return TAPER_FAIL(error, TAPER_INVALID, "taper_session_clone: out is NULL; give a place for the session");
  *out = NULL;
  if (!s) return TAPER_FAIL(error, TAPER_INVALID, "taper_session_clone: session is NULL; give the one to copy");
  taper_session *c;
  TAPER_TRY(session_make(s->model, s->max_batch, s->context, &c, error));
  device *d = s->model->device;
  for (uint32_t seq = 0; seq < s->max_batch; seq++) {
    taper_status status = d->ops->state_copy(d, c->state, s->state, seq, s->length[seq], error);
    if (status != TAPER_OK) return taper_session_free(c), status;
    c->length[seq] = s->length[seq];
    if (s->scale) c->scale[seq] = s->scale[seq];
    memcpy(c->history + (size_t)seq * s->context, session_history(s, seq), s->length[seq] * sizeof(int32_t));
  }
  *out = c;
  return TAPER_OK;
}

uint32_t taper_session_length(const taper_session *s, uint32_t seq) {
  return s && seq < s->max_batch ? s->length[seq] : 0;
}

uint32_t taper_session_context(const taper_session *s) { return s ? s->context : 0; }

const int32_t *session_history(const taper_session *s, uint32_t seq) { return s->history + (size_t)seq * s->context; }

static taper_status check_seq(const taper_session *s, uint32_t seq, taper_error *error) {
  if (!s) return TAPER_FAIL(error, TAPER_INVALID, "session is NULL; make one with taper_session_new");
  if (seq >= s->max_batch)
    return TAPER_FAIL(error, TAPER_INVALID, "there is no sequence %u; this session has 0 to %u", seq, s->max_batch - 1);
  return TAPER_OK;
}

taper_status taper_session_rewind(taper_session *s, uint32_t seq, uint32_t length, taper_error *error) {
  TAPER_TRY(check_seq(s, seq, error));
  if (length > s->length[seq])
    return TAPER_FAIL(error, TAPER_INVALID, "cannot rewind sequence %u to %u tokens; it holds %u", seq, length,
                      s->length[seq]);
  if (s->scale && length != s->length[seq]) s->scale[seq] = (session_scale){0};
  s->length[seq] = length;
  return TAPER_OK;
}

double taper_session_scale_ratio(const taper_session *s, uint32_t seq) {
  return s && s->scale && seq < s->max_batch ? s->scale[seq].last : 0;
}

double taper_session_scale_peak(const taper_session *s, uint32_t seq, uint32_t *out_position) {
  const bool known = s && s->scale && seq < s->max_batch;
  if (out_position) *out_position = known ? s->scale[seq].peak_at : 0;
  return known ? s->scale[seq].peak : 0;
}

/* ---- append ---- */

typedef struct append_call {
  const taper_batch_entry *entries;
  size_t count;
  bool all; /* logits of every token, not of the last only */
  taper_layer_fn on_layer;
  void *user;
} append_call;

static taper_status check_entry(const taper_session *s, const taper_batch_entry *e, taper_error *error) {
  TAPER_TRY(check_seq(s, e->seq, error));
  if (e->n == 0 || !e->tokens)
    return TAPER_FAIL(error, TAPER_INVALID, "sequence %u: no tokens to append; give one or more", e->seq);
  const uint32_t vocab = s->model->device->facts.vocab, held = s->length[e->seq];
  if (e->n > s->context - held)
    return TAPER_FAIL(
        error, TAPER_CONTEXT_FULL,
        "sequence %u: %u tokens held and %zu to append do not fit the context of %u; give fewer or rewind", e->seq,
        held, e->n, s->context);
  for (size_t i = 0; i < e->n; i++) {
    if (e->tokens[i] < 0 || (uint32_t)e->tokens[i] >= vocab)
      return TAPER_FAIL(error, TAPER_INVALID, "sequence %u: token %zu is %d; ids are 0 to %u", e->seq, i, e->tokens[i],
                        vocab - 1);
  }
  return TAPER_OK;
}

static taper_status check_call(taper_session *s, const append_call *c, taper_error *error) {
  if (!s || (c->count > 0 && !c->entries))
    return TAPER_FAIL(error, TAPER_INVALID, "append: an argument is NULL; give a session and its entries");
  const device_facts *f = &s->model->device->facts;
  memset(s->named, 0, s->max_batch);
  for (size_t i = 0; i < c->count; i++) {
    TAPER_TRY(check_entry(s, &c->entries[i], error));
    if (s->named[c->entries[i].seq])
      return TAPER_FAIL(error, TAPER_INVALID, "sequence %u has two entries in one call; join their tokens",
                        c->entries[i].seq);
    s->named[c->entries[i].seq] = 1;
  }
  if (c->on_layer && f->probes == 0)
    return TAPER_FAIL(error, TAPER_UNSUPPORTED, "model '%s' was compiled without probes; compile it again",
                      s->model->name);
  if (c->on_layer && f->lost_probe[0])
    return TAPER_FAIL(error, TAPER_UNSUPPORTED,
                      "the layer output '%s' of this package is never in memory; compile it with -O1", f->lost_probe);
  return TAPER_OK;
}

/* Puts the next tokens of one entry into the batch. The last token's logits are always computed: they show whether
 * numbers left their range. */
static void add_rows(taper_session *s, const append_call *c, const taper_batch_entry *e, uint32_t n, device_batch *b) {
  const uint32_t begin = s->length[e->seq], vocab = s->model->device->facts.vocab;
  for (uint32_t i = 0; i < n; i++, b->rows++) {
    const uint32_t at = s->reached[e->seq]++;
    const bool last = at - begin + 1 == e->n;
    s->token[b->rows] = e->tokens[at - begin];
    s->pos[b->rows] = (int32_t)at;
    s->slot[b->rows] = (int32_t)e->seq;
    if (!last && !(c->all && e->logits)) continue;
    s->logits[b->out_rows] = !e->logits ? NULL : c->all ? e->logits + (size_t)(at - begin) * vocab : e->logits;
    s->out_row[b->out_rows++] = (int32_t)b->rows;
  }
}

/* Fills a batch with what is left, the sequences evenly; false: nothing is left. */
static bool next_batch(taper_session *s, const append_call *c, device_batch *b) {
  const uint32_t cap = s->model->device->facts.row_cap;
  uint32_t open = 0;
  *b = (device_batch){.token = s->token, .pos = s->pos, .slot = s->slot, .out_row = s->out_row, .logits = s->logits};
  for (size_t i = 0; i < c->count; i++)
    open += s->reached[c->entries[i].seq] - s->length[c->entries[i].seq] < c->entries[i].n;
  for (size_t i = 0; i < c->count && b->rows < cap; i++) {
    const taper_batch_entry *e = &c->entries[i];
    const size_t left = e->n - (s->reached[e->seq] - s->length[e->seq]),
                 share = (cap - b->rows + open - 1) / (open ? open : 1);
    if (left == 0) continue;
    open--;
    add_rows(s, c, e, (uint32_t)(left < share ? left : share), b);
  }
  if (c->on_layer) b->probe_rows = s->probe_rows;
  b->scales = s->scales;
  return b->rows > 0;
}

static void tell_layers(const taper_session *s, const append_call *c, const device_batch *b) {
  const device_facts *f = &s->model->device->facts;
  for (uint32_t layer = 0; layer < f->probes; layer++) {
    for (uint32_t r = 0; r < b->rows; r++)
      c->on_layer(c->user, layer, (size_t)s->pos[r], s->probe_rows + ((size_t)layer * b->rows + r) * f->width);
  }
}

static void note_scales(taper_session *s, const device_batch *b) {
  const double median = s->model->device->facts.scale_median, limit = model_scale_limit(s->model);
  for (uint32_t r = 0; s->scale && r < b->rows; r++) {
    session_scale *k = &s->scale[s->slot[r]];
    k->last = (double)s->scales[r] / median;
    if (k->last > k->peak && k->peak <= limit) k->peak_at = (uint32_t)s->pos[r];
    if (k->last > k->peak) k->peak = k->last;
  }
}

void session_accept(taper_session *s, uint32_t seq, int32_t token, const float *scale) {
  const uint32_t at = s->length[seq]++;
  s->history[(size_t)seq * s->context + at] = token;
  if (!s->scale) return;
  const double ratio = scale ? (double)*scale / s->model->device->facts.scale_median : 0;
  s->scale[seq] = (session_scale){.last = ratio, .peak = ratio, .peak_at = scale ? at : 0};
}

static taper_status undo(taper_session *s, const append_call *c, const device_batch *b, taper_status status,
                         taper_error *error) {
  device *d = s->model->device;
  for (size_t i = 0; i < c->count; i++) {
    d->ops->state_scrub(d, s->state, c->entries[i].seq);
    if (s->scale) s->scale[c->entries[i].seq] = (session_scale){0};
  }
  if (status != TAPER_NUMERIC) return status;
  const int32_t row = s->out_row[b->bad_row];
  return taper_add_context(error, status, "sequence %d, position %d", s->slot[row], s->pos[row]);
}

static taper_status append(taper_session *s, const append_call *c, taper_error *error) {
  TAPER_TRY(check_call(s, c, error));
  device *d = s->model->device;
  device_batch b;
  for (size_t i = 0; i < c->count; i++) {
    s->reached[c->entries[i].seq] = s->length[c->entries[i].seq];
    if (s->scale) s->scale[c->entries[i].seq] = (session_scale){0};
  }
  while (next_batch(s, c, &b)) {
    taper_status status = d->ops->run(d, s->state, &b, error);
    if (status != TAPER_OK) return undo(s, c, &b, status, error);
    if (c->on_layer) tell_layers(s, c, &b);
    note_scales(s, &b);
  }
  for (size_t i = 0; i < c->count; i++) {
    const taper_batch_entry *e = &c->entries[i];
    memcpy(s->history + (size_t)e->seq * s->context + s->length[e->seq], e->tokens, e->n * sizeof(int32_t));
    s->length[e->seq] = s->reached[e->seq];
  }
  return TAPER_OK;
}

taper_status taper_session_append(taper_session *s, uint32_t seq, const int32_t *tokens, size_t n, float *logits,
                                  taper_error *error) {
  return append(s, &(append_call){.entries = &(taper_batch_entry){seq, tokens, n, logits}, .count = 1}, error);
}

taper_status taper_session_append_batch(taper_session *s, const taper_batch_entry *entries, size_t n,
                                        taper_error *error) {
  return append(s, &(append_call){.entries = entries, .count = n}, error);
}

taper_status taper_session_append_all(taper_session *s, uint32_t seq, const int32_t *tokens, size_t n, float *logits,
                                      taper_layer_fn on_layer, void *user, taper_error *error) {
  return append(s,
                &(append_call){.entries = &(taper_batch_entry){seq, tokens, n, logits},
                               .count = 1,
                               .all = true,
                               .on_layer = on_layer,
                               .user = user},
                error);
}
