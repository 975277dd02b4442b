#include "runtime/abi/cuda_abi.h"
#include "runtime/model.h"
#include "runtime/text/stop.h"
#include "runtime/text/tokenizer.h"
#include "runtime/text/utf8_stream.h"
#include <string.h>

void taper_generation_init(taper_generation *g) {
  *g = (taper_generation){.size = sizeof(*g), .max_tokens = 256};
  taper_sampling_init(&g->sampling);
}

/* The way of a token's bytes: stop strings, whole characters, on_text. */
typedef struct text_out {
  const taper_generation *g;
  stop_matcher *stops;
  utf8_stream characters;
  char *passed; /* bytes that left the matcher */
  char *whole;  /* and the stream of characters */
  bool refused; /* on_text asked to stop */
} text_out;

static void tell_text(text_out *t, size_t n) {
  if (n > 0 && !t->refused && t->g->on_text && t->g->on_text(t->g->user, t->whole, n) != 0) t->refused = true;
}

/* True: a stop string is complete. */
static bool put_bytes(text_out *t, const char *bytes, size_t n) {
  bool stop = false;
  size_t whole = 0;
  for (size_t i = 0; i < n && !stop; i++) {
    size_t passed;
    stop = stop_feed(t->stops, bytes[i], t->passed, &passed);
    whole += utf8_push(&t->characters, t->passed, passed, t->whole + whole);
  }
  tell_text(t, whole);
  return stop;
}

/* The end: nothing is withheld. */
static void put_rest(text_out *t) {
  size_t passed = stop_flush(t->stops, t->passed);
  size_t whole = utf8_push(&t->characters, t->passed, passed, t->whole);
  tell_text(t, whole + utf8_flush(&t->characters, t->whole + whole));
}

static taper_status check_generation(const taper_session *s, uint32_t seq, const int32_t *prompt, size_t n,
                                     const taper_generation *g, taper_error *error) {
  if (!s || !g)
    return TAPER_FAIL(error, TAPER_INVALID, "taper_generate: an argument is NULL; give a session and its options");
  TAPER_TRY(model_check_size(g->size, sizeof(*g), "taper_generation", error));
  TAPER_TRY(sample_check(&g->sampling, error));
  if (g->stop_count > 0 && !g->stop)
    return TAPER_FAIL(error, TAPER_INVALID, "taper_generate: stop is NULL; give stop_count texts");
  if (seq >= s->max_batch)
    return TAPER_FAIL(error, TAPER_INVALID, "there is no sequence %u; this session has 0 to %u", seq, s->max_batch - 1);
  if (n == 0 || !prompt) return TAPER_FAIL(error, TAPER_INVALID, "the prompt is empty; one token at least");
  if ((g->on_text || g->stop_count > 0) && s->model->tokenizer.kind == TOKENIZER_NONE)
    return TAPER_FAIL(error, TAPER_UNSUPPORTED,
                      "model '%s' has no tokenizer: no text and no stop strings; use on_token", s->model->name);
  const uint32_t held = s->length[seq];
  if (n <= s->context - held) return TAPER_OK;
  if (held == 0)
    return TAPER_FAIL(error, TAPER_CONTEXT_FULL, "the prompt has %zu tokens, the context is %u; shorten it", n,
                      s->context);
  return TAPER_FAIL(
      error, TAPER_CONTEXT_FULL,
      "the prompt has %zu tokens, sequence %u holds %u already and the context is %u; shorten or rewind it", n, seq,
      held, s->context);
}

/* One token: what it means for the loop. True: go on. */
static bool put_token(const taper_session *s, text_out *t, int32_t id, taper_finish *finish) {
  const taper_generation *g = t->g;
  char piece[TOKENIZER_MAX_PIECE];
  *finish = TAPER_FINISH_CALLBACK;
  if (g->on_token && g->on_token(g->user, id) != 0) return t->refused = true, false;
  bool stop = put_bytes(t, piece, tokenizer_piece(&s->model->tokenizer, id, piece));
  if (t->refused) return false;
  *finish = TAPER_FINISH_STOP;
  return !stop;
}

/* What the device has chosen ahead of what was told: id[at] follows the last token of the session. */
typedef struct ahead {
  int32_t id[DEVICE_DECODE_MOST];
  float scale[DEVICE_DECODE_MOST]; /* of the token before id[i]; where an end was chosen, one more */
  uint32_t count, at;
  uint32_t end, bad_id; /* what followed the last id */
} ahead;

static bool on_device(const taper_session *s) {
  return s->model->device->ops->decode && s->model->device->facts.decodes;
}

/* Has the device append `id` and choose what follows. */
static taper_status decode(taper_session *s, uint32_t seq, const taper_generation *g, int32_t id, size_t left, ahead *a,
                           taper_error *error) {
  device *d = s->model->device;
  const uint32_t held = s->length[seq], room = s->context - held;
  device_decode_row row = {.token = id,
                           .slot = seq,
                           .length = held,
                           .sequence = seq,
                           .history = session_history(s, seq),
                           .out = a->id,
                           .scales = s->scale ? a->scale : NULL};
  uint32_t most = left < DEVICE_DECODE_MOST ? (uint32_t)left : DEVICE_DECODE_MOST;
  if (most > room) most = room;
  device_decode call = {
      .sampling = &g->sampling, .row = &row, .rows = 1, .most = most, .end_token = s->model->end_token};
  a->count = a->at = 0;
  taper_status status = d->ops->decode(d, s->state, &call, error);
  a->count = row.made, a->end = row.end, a->bad_id = row.bad_id;
  if (status != TAPER_OK || a->end == TAPER_CUDA_NUMERIC) d->ops->state_scrub(d, s->state, seq);
  if (status != TAPER_OK && s->scale) s->scale[seq] = (session_scale){0};
  return status;
}

/* Appends the id that was told: the device has done so already, or does it now together with what follows. */
static taper_status append_ahead(taper_session *s, uint32_t seq, const taper_generation *g, int32_t id, size_t left,
                                 ahead *a, taper_error *error) {
  const bool known = a->at < a->count || a->end == TAPER_CUDA_END || a->end == TAPER_CUDA_NUMERIC;
  if (!known) TAPER_TRY(decode(s, seq, g, id, left, a, error));
  if (a->at == a->count && a->end == TAPER_CUDA_NUMERIC) {
    if (s->scale) s->scale[seq] = (session_scale){0};
    return TAPER_FAIL(error, TAPER_NUMERIC,
                      "sequence %u, position %u: the logit of id %u is not a finite number; check the weights for NaN "
                      "and for values beyond f32",
                      seq, s->length[seq], a->bad_id);
  }
  if (a->at == a->count && a->end != TAPER_CUDA_END)
    return TAPER_FAIL(error, TAPER_INTERNAL, "the device chose no token: a defect of the package or of libtaper");
  session_accept(s, seq, id, s->scale ? &a->scale[a->at] : NULL);
  return TAPER_OK;
}

/* The token that follows those of the session. */
static taper_status next_token(taper_session *s, uint32_t seq, const taper_generation *g, ahead *a, int32_t *out,
                               taper_error *error) {
  if (a->at < a->count) return *out = a->id[a->at++], TAPER_OK;
  if (a->end == TAPER_CUDA_END) return *out = s->model->end_token, TAPER_OK;
  return sample_pick(&g->sampling, s->next, s->model->device->facts.vocab, session_history(s, seq), s->length[seq], seq,
                     &s->room, out, error);
}

static taper_status generate(taper_session *s, uint32_t seq, text_out *t, taper_finish *finish, taper_error *error) {
  const taper_generation *g = t->g;
  ahead a = {0};
  *finish = TAPER_FINISH_LENGTH;
  for (size_t made = 0; made < g->max_tokens;) {
    int32_t id;
    const uint32_t held = s->length[seq];
    TAPER_TRY(next_token(s, seq, g, &a, &id, error));
    if (id == s->model->end_token) return *finish = TAPER_FINISH_END, TAPER_OK;
    if (!put_token(s, t, id, finish)) return TAPER_OK;
    *finish = TAPER_FINISH_LENGTH;
    if (++made == g->max_tokens) return TAPER_OK;
    if (held == s->context) return *finish = TAPER_FINISH_CONTEXT, TAPER_OK;
    if (on_device(s))
      TAPER_TRY(append_ahead(s, seq, g, id, g->max_tokens - made, &a, error));
    else
      TAPER_TRY(taper_session_append(s, seq, &id, 1, s->next, error));
  }
  return TAPER_OK;
}

static taper_status prepare(const taper_session *s, const taper_generation *g, text_out *t, taper_error *error) {
  const taper_allocator *a = &s->model->allocator;
  *t = (text_out){.g = g};
  TAPER_TRY(stop_new(g->stop, g->stop_count, a, &t->stops, error));
  const size_t room = stop_room(t->stops), whole = room + TOKENIZER_MAX_PIECE + sizeof(utf8_stream);
  if (!(t->passed = memory_alloc(a, room + whole, MEMORY_LINE)))
    return memory_exhausted(error, "the text of a token", room + whole);
  t->whole = t->passed + room;
  return TAPER_OK;
}

taper_status taper_generate(taper_session *s, uint32_t seq, const int32_t *prompt, size_t n, const taper_generation *g,
                            taper_finish *out_finish, taper_error *error) {
  TAPER_TRY(check_generation(s, seq, prompt, n, g, error));
  text_out t;
  taper_finish finish = TAPER_FINISH_LENGTH;
  taper_status status = prepare(s, g, &t, error);
  if (status == TAPER_OK) status = taper_session_append(s, seq, prompt, n, s->next, error);
  if (status == TAPER_OK) {
    status = generate(s, seq, &t, &finish, error);
    if (!t.refused) put_rest(&t);
    if (t.refused) finish = TAPER_FINISH_CALLBACK;
  }
  if (status == TAPER_OK && out_finish) *out_finish = finish;
  memory_free(&s->model->allocator, t.passed);
  stop_free(t.stops);
  return status;
}
