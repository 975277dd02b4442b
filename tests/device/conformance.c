#include "tests/device/conformance.h"
#include "runtime/taper.h"
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
// cmocka needs the headers above first
#include <cmocka.h>
// and this one cmocka
#include "tests/device/new_session.h"

enum { LONGEST = 70, SHORT = 19, BATCH = 8 }; /* LONGEST: five tiles of positions, the last one torn */

static bool brief; /* few tokens, where each takes long */
static const char *device_name, *package_path;
static taper_model_info info;
static uint32_t length;          /* of the test sequence: LONGEST or the model's context */
static int32_t ids[LONGEST + 8]; /* ids all over the vocabulary */
static float *truth;             /* [length][vocab]: token after token, one worker */

static taper_model *open_model(uint32_t threads, uint32_t chunk_rows) {
  taper_model_options o;
  taper_model *m;
  taper_error error;
  taper_model_options_init(&o);
  o.threads = threads, o.chunk_rows = chunk_rows, o.device = device_name;
  if (taper_model_open(package_path, &o, &m, &error) != TAPER_OK) fail_msg("%s", error.message);
  return m;
}

#define OK(call)                                                                                                       \
  do {                                                                                                                 \
    taper_error error_ = {0};                                                                                          \
    taper_error *e = &error_;                                                                                          \
    if ((call) != TAPER_OK) fail_msg("%s:%d: %s", __FILE__, __LINE__, error_.message);                                 \
  } while (0)

static float *rows(size_t n) {
  float *p = malloc(n * info.vocab * sizeof(float));
  if (!p) fail_msg("no memory");
  return p;
}

/* The tolerance of two evaluations in another order of summation: a part of the largest logit. */
static double tolerance(const float *want) {
  double most = 0;
  for (uint32_t i = 0; i < info.vocab; i++) most = fmax(most, fabs((double)want[i]));
  return 5e-5 * most + 1e-30;
}

static void near_row(const float *got, const float *want, const char *what, size_t position) {
  const double tol = tolerance(want);
  for (uint32_t i = 0; i < info.vocab; i++) {
    if (!(fabs((double)got[i] - (double)want[i]) <= tol))
      fail_msg("%s, position %zu, id %u: %.9g, not %.9g (tolerance %.2g)", what, position, i, (double)got[i],
               (double)want[i], tol);
  }
}

static void same_bits(const float *got, const float *want, size_t n, const char *what) {
  for (size_t i = 0; i < n * info.vocab; i++) {
    if (memcmp(&got[i], &want[i], sizeof(float)) != 0)
      fail_msg("%s: row %zu, id %zu: %.9g, not %.9g to the bit", what, i / info.vocab, i % info.vocab, (double)got[i],
               (double)want[i]);
  }
}

static void tells_what_it_is(void **state) {
  (void)state;
  assert_string_equal(info.device, device_name);
  assert_true(info.vocab > 0 && info.context > 0 && info.width > 0 && info.threads > 0);
  assert_true(info.weight_bytes > 0 && info.bytes_per_token > 0 && info.bytes_per_token <= info.weight_bytes + 64);
}

static void logits_are_numbers(void **state) {
  (void)state;
  bool differ = false;
  for (size_t i = 0; i < (size_t)length * info.vocab; i++) {
    if (!isfinite(truth[i])) fail_msg("row %zu, id %zu is not finite", i / info.vocab, i % info.vocab);
    differ = differ || truth[i] != truth[0];
  }
  assert_true(differ || info.vocab * length == 1);
}

static void chunks_agree_with_steps(void **state) {
  (void)state;
  const uint32_t caps[] = {1, 2, 3, 5, 16, 17, 64, 100};
  float *got = rows(length);
  for (size_t i = 0; i < sizeof(caps) / sizeof(caps[0]); i++) {
    if (brief && i % 3 != 0) continue; /* 1, 5, 64 */
    taper_model *m = open_model(2, caps[i]);
    taper_session *s = new_session(m, 1, 0);
    OK(taper_session_append_all(s, 0, ids, length, got, NULL, NULL, e));
    for (size_t p = 0; p < length; p++)
      near_row(got + p * info.vocab, truth + p * info.vocab, "append_all in chunks", p);
    OK(taper_session_rewind(s, 0, 0, e));
    for (size_t at = 0, n = 1; at < length; at += n, n = n % 19 + 3) {
      if (n > length - at) n = length - at;
      OK(taper_session_append(s, 0, ids + at, n, got, e));
      near_row(got, truth + (at + n - 1) * info.vocab, "append in uneven pieces", at + n - 1);
    }
    taper_session_free(s);
    taper_model_free(m);
  }
  free(got);
}

static void threads_do_not_change_a_bit(void **state) {
  (void)state;
  const uint32_t threads[] = {1, 2, 3, 5};
  float *first = rows(length), *got = rows(length);
  for (size_t i = 0; i < (brief ? 2 : 4); i++) {
    taper_model *m = open_model(threads[i], 0);
    taper_session *s = new_session(m, 1, 0);
    OK(taper_session_append_all(s, 0, ids, length, i ? got : first, NULL, NULL, e));
    same_bits(i ? got : first, first, length, "prefill with another number of threads");
    OK(taper_session_rewind(s, 0, 0, e));
    for (size_t p = 0; p < length; p++) OK(taper_session_append(s, 0, ids + p, 1, got + p * info.vocab, e));
    same_bits(got, truth, length, "decode with another number of threads");
    taper_session_free(s);
    taper_model_free(m);
  }
  free(first);
  free(got);
}

static uint32_t most_sequences(taper_model *m) {
  taper_session_options o;
  taper_session *s;
  taper_session_options_init(&o);
  for (o.max_batch = BATCH; o.max_batch > 1; o.max_batch--) {
    if (taper_session_new(m, &o, &s, NULL) == TAPER_OK) return taper_session_free(s), o.max_batch;
  }
  return 1;
}

static void ragged_batches_agree_with_alone(void **state) {
  (void)state;
  for (uint32_t cap = brief ? 16 : 1; cap <= 64; cap *= brief ? 8 : 4) {
    taper_model *m = open_model(2, cap);
    const uint32_t n = most_sequences(m);
    taper_session *s = new_session(m, n, 0);
    float *got = rows(n);
    taper_batch_entry e8[BATCH];
    size_t held[BATCH];
    for (uint32_t i = 0; i < n; i++) {
      held[i] = 1 + (i * 23u) % length;
      e8[i] = (taper_batch_entry){n - 1 - i, ids, held[i], got + i * info.vocab};
    }
    OK(taper_session_append_batch(s, e8, n, e));
    for (uint32_t i = 0; i < n; i++)
      near_row(got + i * info.vocab, truth + (held[i] - 1) * info.vocab, "ragged prefill", held[i] - 1);
    for (uint32_t step = 0; step < (brief ? 2 : 6); step++) { /* decode those that have room, together */
      size_t k = 0;
      for (uint32_t i = 0; i < n; i++) {
        if (held[i] < length) e8[k++] = (taper_batch_entry){n - 1 - i, ids + held[i], 1, got + i * info.vocab};
      }
      OK(taper_session_append_batch(s, e8, k, e));
      for (uint32_t i = 0; i < n; i++) {
        if (held[i] < length)
          near_row(got + i * info.vocab, truth + held[i] * info.vocab, "ragged decode", held[i]), held[i]++;
      }
    }
    taper_session_free(s);
    taper_model_free(m);
    free(got);
  }
}

static void clone_and_rewind_replay_bits(void **state) {
  (void)state;
  if (length < 4) skip();
  taper_model *m = open_model(2, 7);
  taper_session *s = new_session(m, 1, 0), *c;
  float *a = rows(1), *b = rows(1);
  const uint32_t half = length / 2;
  OK(taper_session_append(s, 0, ids, half, NULL, e));
  OK(taper_session_clone(s, &c, e));
  OK(taper_session_append(s, 0, ids + half, 1, a, e));
  OK(taper_session_append(c, 0, ids + 1, length - half, NULL, e)); /* something else; s must not see it */
  OK(taper_session_append(s, 0, ids + half + 1, 1, b, e));
  near_row(b, truth + (half + 1) * info.vocab, "after the clone went elsewhere", half + 1);
  OK(taper_session_rewind(c, 0, half, e));
  OK(taper_session_append(c, 0, ids + half, 1, b, e));
  same_bits(b, a, 1, "clone, elsewhere and back");
  OK(taper_session_rewind(s, 0, half, e));
  OK(taper_session_append(s, 0, ids + half, 1, b, e));
  same_bits(b, a, 1, "rewind");
  taper_session_free(s);
  taper_session_free(c);
  taper_model_free(m);
  free(a);
  free(b);
}

static void what_was_forgotten_leaves_no_trace(void **state) {
  (void)state;
  taper_model *m = open_model(2, 0);
  taper_session *s = new_session(m, 1, 0);
  float *got = rows(1);
  for (uint32_t i = 0; i < length; i++) OK(taper_session_append(s, 0, ids + (length - 1 - i), 1, NULL, e));
  OK(taper_session_rewind(s, 0, 0, e));
  for (uint32_t p = 0; p < length; p++) {
    OK(taper_session_append(s, 0, ids + p, 1, got, e));
    same_bits(got, truth + (size_t)p * info.vocab, 1, "a sequence written over an old one");
  }
  taper_session_free(s);
  taper_model_free(m);
  free(got);
}

static void contexts_of_any_size(void **state) {
  (void)state;
  taper_model *m = open_model(2, 0);
  float *got = rows(1);
  const uint32_t sizes[] = {1, 2, 15, 16, 17, 33, length};
  taper_error error;
  for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
    const uint32_t c = sizes[i];
    if (c > length || (brief && i % 2)) continue;
    taper_session *s = new_session(m, 1, c);
    assert_int_equal(taper_session_context(s), c);
    OK(taper_session_append(s, 0, ids, c, got, e));
    near_row(got, truth + (size_t)(c - 1) * info.vocab, "a context exactly full", c - 1);
    assert_int_equal(taper_session_append(s, 0, ids, 1, got, &error), TAPER_CONTEXT_FULL);
    assert_int_equal(taper_session_length(s, 0), c);
    OK(taper_session_rewind(s, 0, c - 1, e));
    OK(taper_session_append(s, 0, ids + c - 1, 1, got, e));
    near_row(got, truth + (size_t)(c - 1) * info.vocab, "the last position again", c - 1);
    taper_session_free(s);
  }
  taper_session_options o;
  taper_session *s;
  taper_session_options_init(&o);
  o.context = info.context + 1;
  assert_int_equal(taper_session_new(m, &o, &s, &error), TAPER_INVALID);
  taper_model_free(m);
  free(got);
}

static void wrong_calls_change_nothing(void **state) {
  (void)state;
  taper_model *m = open_model(2, 0);
  taper_session *s = new_session(m, 1, 0);
  taper_error error;
  float *got = rows(1);
  const int32_t beyond[] = {ids[0], (int32_t)info.vocab}, negative[] = {ids[0], -1};
  const size_t n = info.context < 2 ? 1 : 2;
  assert_int_equal(taper_session_append(s, 0, beyond + 2 - n, n, got, &error), TAPER_INVALID);
  assert_int_equal(taper_session_append(s, 0, negative + 2 - n, n, got, &error), TAPER_INVALID);
  assert_int_equal(taper_session_append(s, 1, ids, 1, got, &error), TAPER_INVALID);
  assert_int_equal(taper_session_append(s, 0, ids, 0, got, &error), TAPER_INVALID);
  assert_int_equal(taper_session_append(s, 0, ids, (size_t)info.context + 1, got, &error), TAPER_CONTEXT_FULL);
  assert_int_equal(taper_session_length(s, 0), 0);
  OK(taper_session_append(s, 0, ids, 1, got, e));
  near_row(got, truth, "after calls that failed", 0);
  taper_session_free(s);
  taper_model_free(m);
  free(got);
}

typedef struct layers {
  float *rows; /* [probes][length][width] */
  size_t calls;
} layers;

static void keep_layer(void *user, uint32_t layer, size_t position, const float *row) {
  layers *l = user;
  l->calls++;
  memcpy(l->rows + ((size_t)layer * length + position) * info.width, row, info.width * sizeof(float));
}

static void layers_agree_in_chunks_and_steps(void **state) {
  (void)state;
  if (info.probes == 0) skip();
  const size_t floats = (size_t)info.probes * length * info.width;
  layers a = {calloc(floats, sizeof(float)), 0}, b = {calloc(floats, sizeof(float)), 0};
  taper_model *m = open_model(3, 9);
  taper_session *s = new_session(m, 1, 0);
  OK(taper_session_append_all(s, 0, ids, length, NULL, keep_layer, &a, e));
  OK(taper_session_rewind(s, 0, 0, e));
  for (size_t p = 0; p < length; p++) OK(taper_session_append_all(s, 0, ids + p, 1, NULL, keep_layer, &b, e));
  assert_int_equal(a.calls, (size_t)info.probes * length);
  assert_int_equal(b.calls, (size_t)info.probes * length);
  for (uint32_t l = 0; l < info.probes; l++) {
    double most = 0, worst = 0;
    for (size_t i = 0, at = (size_t)l * length * info.width; i < (size_t)length * info.width; i++) {
      most = fmax(most, fabs((double)a.rows[at + i]));
      worst = fmax(worst, fabs((double)a.rows[at + i] - (double)b.rows[at + i]));
    }
    if (!(most > 0) || !(worst <= 5e-5 * most))
      fail_msg("layer %u: chunks and steps differ by %.3g of %.3g", l, worst, most);
  }
  taper_session_free(s);
  taper_model_free(m);
  free(a.rows);
  free(b.rows);
}

typedef struct reader {
  taper_model *m;
  int wrong;
} reader;

static void *read_along(void *arg) {
  reader *r = arg;
  taper_session *s;
  float *got = malloc(info.vocab * sizeof(float));
  if (taper_session_new(r->m, NULL, &s, NULL) != TAPER_OK || !got) return r->wrong++, NULL;
  for (size_t p = 0; p < length; p++) {
    if (taper_session_append(s, 0, ids + p, 1, got, NULL) != TAPER_OK)
      r->wrong++;
    else
      r->wrong += memcmp(got, truth + p * info.vocab, info.vocab * sizeof(float)) != 0;
  }
  taper_session_free(s);
  free(got);
  return NULL;
}

static void sessions_in_several_threads(void **state) {
  (void)state;
  taper_model *m = open_model(2, 0);
  const int count = brief ? 2 : 3;
  pthread_t threads[3];
  reader readers[3] = {{m, 0}, {m, 0}, {m, 0}};
  for (int i = 0; i < count; i++) assert_int_equal(pthread_create(&threads[i], NULL, read_along, &readers[i]), 0);
  for (int i = 0; i < count; i++) {
    pthread_join(threads[i], NULL);
    assert_int_equal(readers[i].wrong, 0);
  }
  taper_model_free(m);
}

static int hear(void *user, int32_t id) {
  int32_t **at = user;
  *(*at)++ = id;
  return 0;
}

static void generation_stops_at_the_context(void **state) {
  (void)state;
  const uint32_t context = length, prompt = length / 2 + 1;
  taper_model *m = open_model(2, 0);
  taper_session *s = new_session(m, 1, context);
  int32_t heard[2][LONGEST + 8];
  for (int round = 0; round < 2; round++) {
    int32_t *at = heard[round];
    taper_generation g;
    taper_finish finish;
    taper_generation_init(&g);
    g.sampling.seed = 9, g.max_tokens = 1000, g.on_token = hear, g.user = &at;
    OK(taper_session_rewind(s, 0, 0, e));
    OK(taper_generate(s, 0, ids, prompt, &g, &finish, e));
    if (finish == TAPER_FINISH_END) continue;
    assert_int_equal(finish, TAPER_FINISH_CONTEXT);
    assert_int_equal(at - heard[round], context - prompt + 1);
    assert_int_equal(taper_session_length(s, 0), context);
  }
  assert_memory_equal(heard[0], heard[1], (context - prompt + 1) * sizeof(int32_t));
  taper_session_free(s);
  taper_model_free(m);
}

/* What a generation must be: logits of one token after another, sampled on the host. Returns the number of ids. */
static uint32_t reference_ids(taper_session *s, const int32_t *prompt, size_t n, const taper_generation *g,
                              int32_t *out) {
  float *logits = rows(1);
  int32_t history[LONGEST + 8];
  uint32_t made = 0, held = (uint32_t)n;
  memcpy(history, prompt, n * sizeof(*history));
  OK(taper_session_rewind(s, 0, 0, e));
  OK(taper_session_append(s, 0, prompt, n, logits, e));
  while (made < g->max_tokens) {
    int32_t id;
    OK(taper_sample(&g->sampling, logits, info.vocab, history, held, 0, &id, e));
    if (id == info.end_token) break;
    out[made++] = id;
    if (made == g->max_tokens || held == taper_session_context(s)) break;
    history[held++] = id;
    OK(taper_session_append(s, 0, &id, 1, logits, e));
  }
  free(logits);
  return made;
}

static const struct {
  float temperature, top_p, min_p, penalty;
  uint32_t top_k, last, most;
} samplings[] = {{0, 1, 0, 1, 0, 0, 40},       {0.8f, 0.95f, 0.05f, 1, 40, 64, 17},
                 {1.5f, 1, 0, 1.3f, 0, 8, 16}, {1, 0.5f, 0, 1, 0, 0, 15},
                 {0, 1, 0, 2, 0, 1000, 33},    {2, 1, 0.2f, 1, 3, 0, 1},
                 {0.7f, 0, 0, 1.1f, 0, 3, 20}, {1, 1, 0, 1, 0, 0, 1000}};

static void set_sampling(taper_generation *g, size_t i) {
  taper_generation_init(g);
  g->sampling.temperature = samplings[i].temperature, g->sampling.top_p = samplings[i].top_p;
  g->sampling.min_p = samplings[i].min_p, g->sampling.repeat_penalty = samplings[i].penalty;
  g->sampling.top_k = samplings[i].top_k, g->sampling.repeat_last = samplings[i].last;
  g->sampling.seed = 77 + i, g->max_tokens = samplings[i].most;
}

/* Wherever the device chooses the ids: they are those of the host, and so is what the session holds afterwards. */
static void generation_equals_sampling_on_the_host(void **state) {
  (void)state;
  taper_model *m = open_model(2, 0);
  taper_session *a = new_session(m, 1, length), *b = new_session(m, 1, length);
  float *x = rows(1), *y = rows(1);
  for (size_t i = 0; i < sizeof(samplings) / sizeof(samplings[0]); i++) {
    if (brief && i > 2) break;
    const uint32_t prompt = 1 + (uint32_t)i * 2 < length ? 1 + (uint32_t)i * 2 : length;
    int32_t want[LONGEST + 8], got[LONGEST + 8], *at = got;
    taper_generation g;
    set_sampling(&g, i);
    const uint32_t n = reference_ids(a, ids, prompt, &g, want);
    g.on_token = hear, g.user = &at;
    OK(taper_session_rewind(b, 0, 0, e));
    OK(taper_generate(b, 0, ids, prompt, &g, NULL, e));
    assert_int_equal(at - got, n);
    for (uint32_t k = 0; k < n; k++)
      if (got[k] != want[k]) fail_msg("sampling %zu: id %u is %d, not %d", i, k, got[k], want[k]);
    assert_int_equal(taper_session_length(a, 0), taper_session_length(b, 0));
    assert_true(fabs(taper_session_scale_ratio(a, 0) - taper_session_scale_ratio(b, 0)) <= 1e-4);
    if (taper_session_length(a, 0) == length) continue;
    OK(taper_session_append(a, 0, ids, 1, x, e));
    OK(taper_session_append(b, 0, ids, 1, y, e));
    same_bits(y, x, 1, "after a generation");
  }
  taper_session_free(a);
  taper_session_free(b);
  taper_model_free(m);
  free(x);
  free(y);
}

typedef struct stopper {
  int32_t *at;
  int left;
} stopper;

static int hear_some(void *user, int32_t id) {
  stopper *s = user;
  *s->at++ = id;
  return --s->left == 0;
}

/* A generation that is stopped holds what was told before the last token, wherever the device had got to. */
static void a_stopped_generation_goes_on_elsewhere(void **state) {
  (void)state;
  taper_model *m = open_model(2, 0);
  taper_session *a = new_session(m, 1, length), *b = new_session(m, 1, length);
  const int stops[] = {1, 2, 5, 16, 17, 18, 30};
  float *x = rows(1), *y = rows(1);
  for (size_t i = 0; i < sizeof(stops) / sizeof(stops[0]); i++) {
    if (brief && i % 3 != 1) continue; /* 2, 17 */
    int32_t want[LONGEST + 8], got[LONGEST + 8];
    stopper stop = {got, stops[i]};
    taper_generation g;
    taper_finish finish;
    set_sampling(&g, 1);
    g.max_tokens = (size_t)stops[i];
    const uint32_t n = reference_ids(a, ids, 1, &g, want);
    g.max_tokens = 50, g.on_token = hear_some, g.user = &stop;
    OK(taper_session_rewind(b, 0, 0, e));
    OK(taper_generate(b, 0, ids, 1, &g, &finish, e));
    if (n < (uint32_t)stops[i] || n >= length) continue; /* the context or the model's end came first */
    assert_int_equal(finish, TAPER_FINISH_CALLBACK);
    assert_memory_equal(got, want, n * sizeof(int32_t));
    assert_int_equal(taper_session_length(b, 0), n);
    assert_int_equal(taper_session_length(a, 0), n);
    OK(taper_session_append(a, 0, ids + 3, 1, x, e));
    OK(taper_session_append(b, 0, ids + 3, 1, y, e));
    same_bits(y, x, 1, "after a generation that was stopped");
  }
  taper_session_free(a);
  taper_session_free(b);
  taper_model_free(m);
  free(x);
  free(y);
}

static int set_up(void **state) {
  (void)state;
  taper_model *m = open_model(1, 0);
  taper_model_get_info(m, &info);
  length = brief ? SHORT : LONGEST;
  if (length > info.context) length = info.context;
  for (uint32_t i = 0; i < sizeof(ids) / sizeof(ids[0]); i++) ids[i] = (int32_t)((i * 2654435761u >> 7) % info.vocab);
  truth = rows(length);
  taper_session *s = new_session(m, 1, 0);
  for (size_t p = 0; p < length; p++) OK(taper_session_append(s, 0, ids + p, 1, truth + p * info.vocab, e));
  taper_session_free(s);
  taper_model_free(m);
  info.device =
      strcmp(info.device, device_name) == 0 ? device_name : "another device"; /* the model's strings are gone */
  return 0;
}

static int tear_down(void **state) {
  (void)state;
  free(truth);
  return 0;
}

int conformance_run(const char *word, const char *path, bool in_brief) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(tells_what_it_is),
      cmocka_unit_test(logits_are_numbers),
      cmocka_unit_test(chunks_agree_with_steps),
      cmocka_unit_test(threads_do_not_change_a_bit),
      cmocka_unit_test(ragged_batches_agree_with_alone),
      cmocka_unit_test(clone_and_rewind_replay_bits),
      cmocka_unit_test(what_was_forgotten_leaves_no_trace),
      cmocka_unit_test(contexts_of_any_size),
      cmocka_unit_test(wrong_calls_change_nothing),
      cmocka_unit_test(layers_agree_in_chunks_and_steps),
      cmocka_unit_test(sessions_in_several_threads),
      cmocka_unit_test(generation_stops_at_the_context),
      cmocka_unit_test(generation_equals_sampling_on_the_host),
      cmocka_unit_test(a_stopped_generation_goes_on_elsewhere),
  };
  device_name = word, package_path = path, brief = in_brief;
  print_message("package %s\n", path);
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
