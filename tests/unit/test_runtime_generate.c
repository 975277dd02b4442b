/* Text and generation over the hand-written model: ends, stops, options, seeds. */
#include "tests/device/toy_session.h"

/* ---- text ---- */

static void tokens_and_text(void **state) {
  (void)state;
  taper_model *m = open_toy(1, 0);
  int32_t ids[8];
  char bytes[8];
  size_t n;
  taper_error error;
  assert_int_equal(taper_tokenize(m, "a\0\xff", 3, NULL, 0, &n, NULL), TAPER_OK);
  assert_int_equal(n, 3);
  assert_int_equal(taper_tokenize(m, "a\0\xff", 3, ids, 8, &n, NULL), TAPER_OK);
  assert_int_equal(ids[2], 255);
  assert_int_equal(taper_detokenize(m, ids, 3, NULL, 0, &n, NULL), TAPER_OK);
  assert_int_equal(n, 3);
  assert_int_equal(taper_detokenize(m, ids, 3, bytes, 2, &n, NULL), TAPER_OK);
  assert_int_equal(n, 3);
  assert_memory_equal(bytes, "a\0", 2);
  ids[1] = 300;
  assert_int_equal(taper_detokenize(m, ids, 3, bytes, 8, &n, &error), TAPER_INVALID);
  assert_non_null(strstr(error.message, "token 1 is 300"));
  ids[1] = 260; /* an id that stands for no byte */
  assert_int_equal(taper_detokenize(m, ids, 3, bytes, 8, &n, NULL), TAPER_OK);
  assert_int_equal(n, 2);
  assert_int_equal(taper_tokenize(m, NULL, 3, ids, 8, &n, NULL), TAPER_INVALID);
  taper_model_free(m);
}

typedef struct heard {
  char text[512];
  size_t bytes;
  int32_t ids[64];
  size_t count, stop_after; /* tokens; 0: never */
} heard;

static int hear_text(void *user, const char *t, size_t n) {
  heard *h = user;
  memcpy(h->text + h->bytes, t, n);
  h->bytes += n;
  return 0;
}

static int hear_token(void *user, int32_t id) {
  heard *h = user;
  h->ids[h->count++] = id;
  return h->stop_after && h->count == h->stop_after;
}

/* Greedy ids by the double evaluation; false where two are too near to tell. */
static bool plain_greedy(const int32_t *prompt, size_t n, size_t count, int32_t *out) {
  int32_t all[TOY_CONTEXT + 1];
  memcpy(all, prompt, n * sizeof(int32_t));
  for (size_t i = 0; i < count; i++) {
    static double logits[TOY_CONTEXT * TOY_V];
    toy_reference(good, all, n + i, logits, NULL, NULL);
    const double *v = logits + (n + i - 1) * TOY_V;
    int best = 0;
    for (int k = 1; k < TOY_V; k++) best = v[k] > v[best] ? k : best;
    for (int k = 0; k < TOY_V; k++) {
      if (k != best && v[best] - v[k] < 1e-4) return false;
    }
    all[n + i] = out[i] = best;
  }
  return true;
}

static taper_generation generation(heard *h) {
  taper_generation g;
  memset(h, 0, sizeof(*h));
  taper_generation_init(&g);
  g.sampling.temperature = 0;
  g.on_text = hear_text, g.on_token = hear_token, g.user = h;
  return g;
}

static void generates_until_each_end(void **state) {
  (void)state;
  taper_model *m = open_toy(2, 0);
  taper_session *s = new_session(m, 1, 20);
  heard h;
  taper_finish finish;
  taper_error error;
  int32_t want[TOY_CONTEXT];
  assert_true(plain_greedy(line, 8, 13, want));
  taper_generation g = generation(&h);
  g.max_tokens = 6;
  assert_int_equal(taper_generate(s, 0, line, 8, &g, &finish, NULL), TAPER_OK);
  assert_int_equal(finish, TAPER_FINISH_LENGTH);
  assert_int_equal(h.count, 6);
  assert_memory_equal(h.ids, want, 6 * sizeof(int32_t));
  assert_int_equal(taper_session_length(s, 0), 13); /* the last one is not appended */
  size_t bytes = 0;
  for (int i = 0; i < 6; i++) bytes += want[i] < 256;
  assert_int_equal(h.bytes, bytes);

  assert_int_equal(taper_session_rewind(s, 0, 0, NULL), TAPER_OK);
  g = generation(&h);
  g.max_tokens = 1000;
  assert_int_equal(taper_generate(s, 0, line, 8, &g, &finish, NULL), TAPER_OK);
  assert_int_equal(finish, TAPER_FINISH_CONTEXT);
  assert_int_equal(h.count, 13); /* 20 - 8 held, and one more told */
  assert_memory_equal(h.ids, want, 13 * sizeof(int32_t));
  assert_int_equal(taper_session_length(s, 0), 20);

  assert_int_equal(taper_session_rewind(s, 0, 0, NULL), TAPER_OK);
  g = generation(&h);
  h.stop_after = 3;
  assert_int_equal(taper_generate(s, 0, line, 8, &g, &finish, NULL), TAPER_OK);
  assert_int_equal(finish, TAPER_FINISH_CALLBACK);
  assert_int_equal(h.count, 3);

  assert_int_equal(taper_session_rewind(s, 0, 0, NULL), TAPER_OK);
  g = generation(&h);
  g.max_tokens = 0;
  assert_int_equal(taper_generate(s, 0, line, 8, &g, &finish, NULL), TAPER_OK);
  assert_int_equal(h.count, 0);
  assert_int_equal(taper_session_length(s, 0), 8);
  g = generation(&h);
  assert_int_equal(taper_generate(s, 0, line, 13, &g, &finish, &error), TAPER_CONTEXT_FULL);
  assert_non_null(strstr(error.message, "the prompt has 13 tokens, sequence 0 holds 8 already and the context is 20"));
  assert_int_equal(taper_session_rewind(s, 0, 0, NULL), TAPER_OK);
  assert_int_equal(taper_generate(s, 0, line, 21, &g, &finish, &error), TAPER_CONTEXT_FULL);
  assert_non_null(strstr(error.message, "the prompt has 21 tokens, the context is 20"));
  assert_int_equal(taper_session_length(s, 0), 0);
  taper_session_free(s);
  taper_model_free(m);
}

static void generation_options_are_checked(void **state) {
  (void)state;
  taper_model *m = open_toy(1, 0);
  taper_session *s = new_session(m, 1, 0);
  heard h;
  taper_error error;
  taper_generation g = generation(&h);
#define REFUSE(setting, status, word)                                                                                  \
  g = generation(&h), setting, assert_int_equal(taper_generate(s, 0, line, 3, &g, NULL, &error), status);              \
  if (!strstr(error.message, word)) fail_msg("'%s'", error.message);                                                   \
  assert_int_equal(taper_session_length(s, 0), 0), assert_int_equal(h.count, 0)
  REFUSE(g.size = 1, TAPER_INVALID, "taper_generation_init");
  REFUSE(g.sampling.top_p = 2, TAPER_INVALID, "'top_p' is 2.000");
  REFUSE((g.stop = (const char *const[]){""}, g.stop_count = 1), TAPER_INVALID, "stop string 0 is empty");
  REFUSE(g.stop_count = 1, TAPER_INVALID, "stop is NULL");
  assert_int_equal(taper_generate(s, 0, line, 0, &g, NULL, &error), TAPER_INVALID);
  assert_int_equal(taper_generate(s, 1, line, 1, &g, NULL, &error), TAPER_INVALID);
  const int32_t poison[] = {1, TOY_NAN};
  g = generation(&h);
  assert_int_equal(taper_generate(s, 0, poison, 2, &g, NULL, &error), TAPER_NUMERIC);
  assert_int_equal(h.count + h.bytes, 0);
  taper_session_free(s);
  taper_model_free(m);
}

/* A model that says a text whatever it is given: byte after byte of it, by a head that only the position's place in the
   text decides, cannot be built from the toy; so the end token and stop strings are tried on what greedy decoding says.
 */
static void stop_strings_and_end_token(void **state) {
  (void)state;
  int32_t want[TOY_CONTEXT];
  assert_true(plain_greedy(line, 8, 20, want));
  size_t at = 3;
  while (want[at] >= 256 || want[at] == 0 || want[at + 1] >= 256 || want[at + 1] == 0) at++;
  const char stop[] = {(char)want[at], (char)want[at + 1], 0};
  size_t bytes = 0, first = at;
  for (size_t i = 0; i < at; i++) {
    if (i + 1 < at && want[i] == want[at] && want[i + 1] == want[at + 1]) {
      first = i;
      break;
    }
  }
  for (size_t i = 0; i < first; i++) bytes += want[i] < 256;
  heard h;
  taper_finish finish;
  taper_model *m = open_toy(2, 0);
  taper_session *s = new_session(m, 1, 0);
  taper_generation g = generation(&h);
  g.stop = (const char *const[]){stop}, g.stop_count = 1;
  assert_int_equal(taper_generate(s, 0, line, 8, &g, &finish, NULL), TAPER_OK);
  assert_int_equal(finish, TAPER_FINISH_STOP);
  assert_int_equal(h.count, first + 2);
  assert_int_equal(h.bytes, bytes);
  taper_session_free(s);
  taper_model_free(m);

  char end[16];
  toy t = *good;
  snprintf(end, sizeof(end), "%d", want[4]);
  toy_set(&t, "taper.end_token", end);
  toy_write(&t, toy_path("end.tpack"));
  assert_int_equal(taper_model_open(toy_path("end.tpack"), NULL, &m, NULL), TAPER_OK);
  s = new_session(m, 1, 0);
  g = generation(&h);
  assert_int_equal(taper_generate(s, 0, line, 8, &g, &finish, NULL), TAPER_OK);
  assert_int_equal(finish, TAPER_FINISH_END);
  size_t end_at = 0;
  while (want[end_at] != want[4]) end_at++;
  assert_int_equal(h.count, end_at);
  assert_int_equal(taper_session_length(s, 0), 8 + end_at);
  taper_session_free(s);
  taper_model_free(m);

  t = *good;
  toy_set(&t, "taper.tokenizer", "none");
  toy_write(&t, toy_path("none.tpack"));
  taper_error error;
  size_t n;
  assert_int_equal(taper_model_open(toy_path("none.tpack"), NULL, &m, NULL), TAPER_OK);
  assert_int_equal(taper_tokenize(m, "a", 1, NULL, 0, &n, &error), TAPER_UNSUPPORTED);
  s = new_session(m, 1, 0);
  g = generation(&h);
  assert_int_equal(taper_generate(s, 0, line, 8, &g, &finish, &error), TAPER_UNSUPPORTED);
  g.on_text = NULL;
  assert_int_equal(taper_generate(s, 0, line, 8, &g, &finish, &error), TAPER_OK);
  taper_session_free(s);
  taper_model_free(m);
}

static void a_seed_replays(void **state) {
  (void)state;
  heard h[3];
  for (int i = 0; i < 3; i++) {
    taper_model *m = open_toy(i == 0 ? 1 : 3, i == 0 ? 2 : 0);
    taper_session *s = new_session(m, 1, 0);
    taper_generation g = generation(&h[i]);
    taper_sampling_init(&g.sampling);
    g.sampling.temperature = 2, g.sampling.top_k = 20, g.sampling.top_p = 1, g.sampling.min_p = 0,
    g.sampling.seed = i == 2 ? 6 : 5;
    assert_int_equal(taper_generate(s, 0, line, 8, &g, NULL, NULL), TAPER_OK);
    taper_session_free(s);
    taper_model_free(m);
  }
  assert_int_equal(h[0].count, 43);
  assert_memory_equal(h[0].ids, h[1].ids, sizeof(h[0].ids));
  assert_memory_not_equal(h[0].ids, h[2].ids, sizeof(h[0].ids));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(tokens_and_text),
      cmocka_unit_test(generates_until_each_end),
      cmocka_unit_test(generation_options_are_checked),
      cmocka_unit_test(stop_strings_and_end_token),
      cmocka_unit_test(a_seed_replays),
  };
  return cmocka_run_group_tests(tests, setup, teardown);
}
