/* Sessions over the hand-written model, against its double evaluation: chunks, batches, threads, clone, rewind, limits,
 * failures. */
#include "tests/device/toy_session.h"
#include <pthread.h>

static void close_to(const float *got, const double *want, size_t n) {
  for (size_t i = 0; i < n; i++) {
    if (fabs((double)got[i] - want[i]) > 2e-5) fail_msg("element %zu: %.9g, not %.9g", i, (double)got[i], want[i]);
  }
}

static void every_chunking_gives_the_logits(void **state) {
  (void)state;
  static float logits[TOY_CONTEXT * TOY_V];
  for (uint32_t threads = 1; threads <= 5; threads += 2) {
    for (uint32_t cap = 1; cap <= 70; cap = cap * 2 + 1) {
      taper_model *m = open_toy(threads, cap);
      taper_session *s = new_session(m, 1, 0);
      memset(logits, 0, sizeof(logits));
      assert_int_equal(taper_session_append_all(s, 0, line, TOY_CONTEXT, logits, NULL, NULL, NULL), TAPER_OK);
      close_to(logits, expected, TOY_CONTEXT * TOY_V);
      assert_int_equal(taper_session_rewind(s, 0, 0, NULL), TAPER_OK);
      for (size_t at = 0, step = 1; at < TOY_CONTEXT; at += step, step = step % 7 + 1) {
        if (step > TOY_CONTEXT - at) step = TOY_CONTEXT - at;
        assert_int_equal(taper_session_append(s, 0, line + at, step, logits, NULL), TAPER_OK);
        close_to(logits, expected + (at + step - 1) * TOY_V, TOY_V);
      }
      taper_session_free(s);
      taper_model_free(m);
    }
  }
}

static void logits_do_not_depend_on_threads(void **state) {
  (void)state;
  static float first[TOY_CONTEXT * TOY_V], logits[TOY_CONTEXT * TOY_V];
  const uint32_t threads[] = {1, 2, 3, 5, 16};
  for (int i = 0; i < 5; i++) {
    taper_model *m = open_toy(threads[i], 0);
    taper_session *s = new_session(m, 1, 0);
    assert_int_equal(taper_session_append_all(s, 0, line, TOY_CONTEXT, i ? logits : first, NULL, NULL, NULL), TAPER_OK);
    if (i) assert_memory_equal(first, logits, sizeof(first));
    taper_session_free(s);
    taper_model_free(m);
  }
}

static void ragged_batches_are_each_alone(void **state) {
  (void)state;
  for (uint32_t cap = 1; cap <= 64; cap = cap * 2 + 1) {
    taper_model *m = open_toy(2, cap);
    taper_session *s = new_session(m, 8, 0);
    static float logits[8][TOY_V];
    taper_batch_entry e[8];
    const size_t lengths[8] = {1, 50, 7, 16, 17, 33, 2, 15}, more[8] = {3, 0, 1, 1, 16, 17, 48, 2};
    for (uint32_t i = 0; i < 8; i++) e[i] = (taper_batch_entry){7 - i, line, lengths[i], i == 2 ? NULL : logits[i]};
    assert_int_equal(taper_session_append_batch(s, e, 8, NULL), TAPER_OK);
    for (uint32_t i = 0; i < 8; i++) {
      assert_int_equal(taper_session_length(s, 7 - i), lengths[i]);
      if (i != 2) close_to(logits[i], expected + (lengths[i] - 1) * TOY_V, TOY_V);
    }
    size_t n = 0;
    for (uint32_t i = 0; i < 8; i++) {
      if (more[i]) e[n++] = (taper_batch_entry){7 - i, line + lengths[i], more[i], logits[i]};
    }
    assert_int_equal(taper_session_append_batch(s, e, n, NULL), TAPER_OK);
    for (uint32_t i = 0; i < 8; i++) {
      if (more[i]) close_to(logits[i], expected + (lengths[i] + more[i] - 1) * TOY_V, TOY_V);
    }
    taper_session_free(s);
    taper_model_free(m);
  }
}

static void clone_and_rewind_replay_the_bits(void **state) {
  (void)state;
  taper_model *m = open_toy(2, 5);
  taper_session *s = new_session(m, 2, 40), *c;
  float a[TOY_V], b[TOY_V];
  const int32_t other[] = {200, 201, 202};
  assert_int_equal(taper_session_append(s, 1, line, 19, NULL, NULL), TAPER_OK);
  assert_int_equal(taper_session_clone(s, &c, NULL), TAPER_OK);
  assert_int_equal(taper_session_length(c, 1), 19);
  assert_int_equal(taper_session_context(c), 40);
  assert_int_equal(taper_session_append(s, 1, line + 19, 1, a, NULL), TAPER_OK);
  assert_int_equal(taper_session_append(c, 1, other, 3, b, NULL), TAPER_OK); /* does not touch s */
  assert_int_equal(taper_session_rewind(c, 1, 19, NULL), TAPER_OK);
  assert_int_equal(taper_session_append(c, 1, line + 19, 1, b, NULL), TAPER_OK);
  assert_memory_equal(a, b, sizeof(a));
  assert_int_equal(taper_session_append(s, 1, other, 3, NULL, NULL), TAPER_OK);
  assert_int_equal(taper_session_rewind(s, 1, 19, NULL), TAPER_OK);
  assert_int_equal(taper_session_append(s, 1, line + 19, 1, b, NULL), TAPER_OK);
  assert_memory_equal(a, b, sizeof(a));
  close_to(a, expected + 19 * TOY_V, TOY_V);
  taper_session_free(s); /* the clone lives on */
  assert_int_equal(taper_session_append(c, 1, line + 20, 20, b, NULL), TAPER_OK);
  close_to(b, expected + 39 * TOY_V, TOY_V);
  taper_session_free(c);
  taper_session_free(NULL);
  taper_model_free(m);
}

typedef struct seen_layers {
  float rows[2][TOY_CONTEXT][TOY_D];
  int calls;
} seen_layers;

static void see_layer(void *user, uint32_t layer, size_t position, const float *row) {
  seen_layers *seen = user;
  memcpy(seen->rows[layer][position], row, sizeof(seen->rows[0][0]));
  seen->calls++;
}

static void layers_are_seen_where_they_stand(void **state) {
  (void)state;
  for (uint32_t threads = 1; threads <= 3; threads++) {
    taper_model *m = open_toy(threads, 7);
    taper_session *s = new_session(m, 1, 0);
    static seen_layers seen;
    memset(&seen, 0, sizeof(seen));
    assert_int_equal(taper_session_append(s, 0, line, 5, NULL, NULL), TAPER_OK);
    assert_int_equal(taper_session_append_all(s, 0, line + 5, 30, NULL, see_layer, &seen, NULL), TAPER_OK);
    assert_int_equal(seen.calls, 60);
    close_to(seen.rows[0][5], stream0 + 5 * TOY_D, 30 * TOY_D);
    close_to(seen.rows[1][5], stream1 + 5 * TOY_D, 30 * TOY_D);
    taper_session_free(s);
    taper_model_free(m);
  }
  taper_model *m;
  taper_session *s;
  taper_error error;
  toy *lost = toy_new(24);
  toy_write(lost, toy_path("lost.tpack"));
  assert_int_equal(taper_model_open(toy_path("lost.tpack"), NULL, &m, &error), TAPER_OK);
  s = new_session(m, 1, 0);
  assert_int_equal(taper_session_append_all(s, 0, line, 3, NULL, see_layer, NULL, &error), TAPER_UNSUPPORTED);
  assert_non_null(strstr(error.message, "'layers.1'"));
  assert_int_equal(taper_session_length(s, 0), 0);
  taper_session_free(s);
  taper_model_free(m);
  toy_free(lost);
}

/* Here the stage "squash" is marked so, wrongly: without probes the logits are others. */
static void stages_for_probes_are_left_out(void **state) {
  (void)state;
  toy *t = toy_new(27);
  toy_write(t, toy_path("probes.tpack"));
  for (uint32_t threads = 1; threads <= 3; threads++) {
    taper_model *m;
    static seen_layers seen;
    static float with[5 * TOY_V], without[TOY_V];
    taper_model_options o;
    taper_model_options_init(&o);
    o.threads = threads;
    assert_int_equal(taper_model_open(toy_path("probes.tpack"), &o, &m, NULL), TAPER_OK);
    taper_session *s = new_session(m, 2, 0);
    assert_int_equal(taper_session_append_all(s, 0, line, 5, with, see_layer, &seen, NULL), TAPER_OK);
    assert_int_equal(taper_session_append(s, 1, line, 5, without, NULL), TAPER_OK);
    close_to(with, expected, 5 * TOY_V);
    close_to(seen.rows[1][0], stream1, 5 * TOY_D);
    double worst = 0;
    for (size_t i = 0; i < TOY_V; i++) worst = fmax(worst, fabs(without[i] - with[4 * TOY_V + i]));
    assert_true(worst > 1e-2);
    taper_session_free(s);
    taper_model_free(m);
  }
  toy_free(t);
}

static void all_or_nothing(void **state) {
  (void)state;
  taper_model *m = open_toy(2, 4);
  taper_session *s = new_session(m, 2, 20);
  taper_error error;
  float logits[TOY_V];
  const int32_t wrong[] = {1, 2, 300}, negative[] = {-1};
#define REFUSE(call, status, word)                                                                                     \
  error.message[0] = 0, assert_int_equal(call, status);                                                                \
  if (!strstr(error.message, word)) fail_msg("'%s'", error.message);                                                   \
  assert_int_equal(taper_session_length(s, 0), 6), assert_int_equal(taper_session_length(s, 1), 0)
  assert_int_equal(taper_session_append(s, 0, line, 6, NULL, NULL), TAPER_OK);
  REFUSE(taper_session_append(s, 0, wrong, 3, logits, &error), TAPER_INVALID,
         "sequence 0: token 2 is 300; ids are 0 to 299");
  REFUSE(taper_session_append(s, 0, negative, 1, logits, &error), TAPER_INVALID, "token 0 is -1");
  REFUSE(taper_session_append(s, 2, line, 1, logits, &error), TAPER_INVALID,
         "there is no sequence 2; this session has 0 to 1");
  REFUSE(taper_session_append(s, 0, line, 0, logits, &error), TAPER_INVALID, "no tokens");
  REFUSE(taper_session_append(s, 0, NULL, 1, logits, &error), TAPER_INVALID, "no tokens");
  REFUSE(taper_session_append(s, 0, line, 15, logits, &error), TAPER_CONTEXT_FULL,
         "6 tokens held and 15 to append do not fit the context of 20");
  REFUSE(taper_session_append(s, 0, line, SIZE_MAX, logits, &error), TAPER_CONTEXT_FULL, "do not fit");
  REFUSE(taper_session_append(NULL, 0, line, 1, logits, &error), TAPER_INVALID, "NULL");
  REFUSE(taper_session_rewind(s, 0, 7, &error), TAPER_INVALID, "cannot rewind sequence 0 to 7 tokens; it holds 6");
  REFUSE(taper_session_rewind(s, 2, 0, &error), TAPER_INVALID, "no sequence 2");
  const taper_batch_entry twice[] = {{1, line, 2, NULL}, {0, line, 1, NULL}, {1, line, 2, NULL}},
                          second[] = {{1, line, 2, NULL}, {0, wrong, 3, NULL}};
  REFUSE(taper_session_append_batch(s, twice, 3, &error), TAPER_INVALID, "sequence 1 has two entries");
  REFUSE(taper_session_append_batch(s, second, 2, &error), TAPER_INVALID, "token 2 is 300");
  assert_int_equal(taper_session_append(s, 0, line + 6, 14, logits, NULL), TAPER_OK); /* exactly full */
  close_to(logits, expected + 19 * TOY_V, TOY_V);
  assert_int_equal(taper_session_append(s, 0, line, 1, logits, NULL), TAPER_CONTEXT_FULL);
  taper_session_free(s);
  s = new_session(m, 1, 1);
  assert_int_equal(taper_session_append(s, 0, line, 1, logits, NULL), TAPER_OK);
  close_to(logits, expected, TOY_V);
  assert_int_equal(taper_session_append(s, 0, line, 1, logits, NULL), TAPER_CONTEXT_FULL);
  taper_session_free(s);
  taper_session_options o;
  taper_session_options_init(&o);
  o.context = 51;
  assert_int_equal(taper_session_new(m, &o, &s, &error), TAPER_INVALID);
  assert_non_null(strstr(error.message, "'context' is 51; model 'toy' was compiled for at most 50"));
  o.context = 0, o.max_batch = 9;
  assert_int_equal(taper_session_new(m, &o, &s, &error), TAPER_INVALID);
  assert_non_null(strstr(error.message, "'max_batch' is 9"));
  o.max_batch = 0;
  assert_int_equal(taper_session_new(m, &o, &s, &error), TAPER_INVALID);
  o.size = 0;
  assert_int_equal(taper_session_new(m, &o, &s, &error), TAPER_INVALID);
  taper_model_free(m);
}

static void a_nan_leaves_no_trace(void **state) {
  (void)state;
  for (uint32_t cap = 1; cap <= 64; cap *= 8) {
    taper_model *m = open_toy(2, cap);
    taper_session *s = new_session(m, 2, 0);
    taper_error error;
    float logits[TOY_V];
    static float every[30 * TOY_V];
    int32_t poisoned[TOY_CONTEXT];
    memcpy(poisoned, line, sizeof(poisoned));
    poisoned[21] = TOY_NAN;
    const taper_batch_entry both[] = {{1, line, 4, NULL}, {0, poisoned + 5, 30, NULL}};
    assert_int_equal(taper_session_append(s, 0, line, 5, NULL, NULL), TAPER_OK);
    for (int round = 0; round < 2; round++) {
      assert_int_equal(taper_session_append_batch(s, both, 2, &error), TAPER_NUMERIC);
      if (!strstr(error.message, "sequence 0, position 34: the logit of id 0 is not a finite number"))
        fail_msg("%s", error.message);
      assert_int_equal(taper_session_length(s, 0), 5);
      assert_int_equal(taper_session_length(s, 1), 0);
    }
    assert_int_equal(taper_session_append_all(s, 0, poisoned + 5, 30, every, NULL, NULL, &error), TAPER_NUMERIC);
    assert_non_null(strstr(error.message, "position 21"));
    assert_int_equal(taper_session_append(s, 0, line + 5, 30, logits, NULL), TAPER_OK);
    close_to(logits, expected + 34 * TOY_V, TOY_V);
    assert_int_equal(taper_session_append(s, 1, line, 4, logits, NULL), TAPER_OK);
    close_to(logits, expected + 3 * TOY_V, TOY_V);
    taper_session_free(s);
    taper_model_free(m);
  }
}

/* ---- threads ---- */

typedef struct user_thread {
  taper_model *m;
  int wrong;
} user_thread;

static void *use_model(void *arg) {
  user_thread *u = arg;
  float logits[TOY_V];
  for (int round = 0; round < 15; round++) {
    taper_session *s;
    if (taper_session_new(u->m, NULL, &s, NULL) != TAPER_OK) return u->wrong++, NULL;
    for (size_t i = 0; i < TOY_CONTEXT; i++) {
      if (taper_session_append(s, 0, line + i, 1, logits, NULL) != TAPER_OK) u->wrong++;
      for (size_t k = 0; k < TOY_V; k++) u->wrong += fabs((double)logits[k] - expected[i * TOY_V + k]) > 2e-5;
    }
    taper_session_free(s);
  }
  return NULL;
}

static void sessions_of_one_model_in_many_threads(void **state) {
  (void)state;
  taper_model *m = open_toy(3, 0);
  pthread_t threads[4];
  user_thread users[4] = {{m, 0}, {m, 0}, {m, 0}, {m, 0}};
  for (int i = 0; i < 4; i++) assert_int_equal(pthread_create(&threads[i], NULL, use_model, &users[i]), 0);
  for (int i = 0; i < 4; i++) {
    pthread_join(threads[i], NULL);
    assert_int_equal(users[i].wrong, 0);
  }
  taper_model_free(m);
}

/* Of stream1, in double: `std` is the form of a LayerNorm. */
static double scale_at(size_t position, bool std) {
  const double *x = stream1 + position * TOY_D;
  double mean = 0, square = 0;
  for (size_t i = 0; i < TOY_D; i++) mean += std ? x[i] / TOY_D : 0;
  for (size_t i = 0; i < TOY_D; i++) square += (x[i] - mean) * (x[i] - mean) / TOY_D;
  return sqrt(square);
}

static void check_scale(const char *form, uint32_t threads, bool std) {
  toy t = *good;
  taper_model *m;
  taper_session *s, *c;
  taper_model_options o;
  uint32_t at, first;
  toy_set(&t, "taper.scale", form);
  toy_write(&t, toy_path("scale.tpack"));
  taper_model_options_init(&o);
  o.threads = threads, o.chunk_rows = 3;
  assert_int_equal(taper_model_open(toy_path("scale.tpack"), &o, &m, NULL), TAPER_OK);
  taper_model_info info = {.size = sizeof info};
  taper_model_get_info(m, &info);
  assert_true(fabs(info.scale_limit - 3 * 0.75 / 0.5) < 1e-9);
  s = new_session(m, 2, 0);
  assert_true(taper_session_scale_ratio(s, 0) == 0 && taper_session_scale_peak(s, 0, &at) == 0);
  assert_int_equal(taper_session_append(s, 1, line, 11, NULL, NULL), TAPER_OK);
  assert_true(fabs(taper_session_scale_ratio(s, 1) - scale_at(10, std) / 0.5) < 1e-4);
  double largest = 0;
  first = 11;
  uint32_t largest_at = 0;
  for (uint32_t i = 0; i < 11; i++) {
    double ratio = scale_at(i, std) / 0.5;
    if (ratio > largest) largest = ratio, largest_at = i;
    if (ratio > info.scale_limit && first == 11) first = i;
  }
  assert_true(fabs(taper_session_scale_peak(s, 1, &at) - largest) < 1e-4);
  assert_int_equal(at, first < 11 ? first : largest_at);
  assert_true(taper_session_scale_ratio(s, 0) == 0 && taper_session_scale_ratio(s, 2) == 0);
  assert_int_equal(taper_session_append(s, 1, line + 11, 1, NULL, NULL), TAPER_OK);
  assert_true(fabs(taper_session_scale_ratio(s, 1) - scale_at(11, std) / 0.5) < 1e-4);
  assert_int_equal(taper_session_clone(s, &c, NULL), TAPER_OK);
  assert_true(taper_session_scale_ratio(c, 1) == taper_session_scale_ratio(s, 1));
  assert_int_equal(taper_session_rewind(s, 1, 4, NULL), TAPER_OK);
  assert_true(taper_session_scale_ratio(s, 1) == 0 && taper_session_scale_ratio(c, 1) > 0);
  taper_session_free(s), taper_session_free(c);
  taper_model_free(m);
}

static void the_residual_scale_is_watched(void **state) {
  (void)state;
  for (uint32_t threads = 1; threads <= 3; threads++) {
    check_scale("rms 0.5 0.75", threads, false);
    check_scale("std 0.5 0.75", threads, true);
  }
  taper_model *m = open_toy(2, 0); /* a package that says no scale */
  taper_session *s = new_session(m, 1, 0);
  assert_int_equal(taper_session_append(s, 0, line, 5, NULL, NULL), TAPER_OK);
  assert_true(taper_session_scale_ratio(s, 0) == 0 && taper_session_scale_peak(s, 0, NULL) == 0);
  assert_true(taper_session_scale_ratio(NULL, 0) == 0);
  taper_session_free(s);
  taper_model_free(m);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_chunking_gives_the_logits),
      cmocka_unit_test(logits_do_not_depend_on_threads),
      cmocka_unit_test(ragged_batches_are_each_alone),
      cmocka_unit_test(clone_and_rewind_replay_the_bits),
      cmocka_unit_test(layers_are_seen_where_they_stand),
      cmocka_unit_test(stages_for_probes_are_left_out),
      cmocka_unit_test(all_or_nothing),
      cmocka_unit_test(a_nan_leaves_no_trace),
      cmocka_unit_test(sessions_of_one_model_in_many_threads),
      cmocka_unit_test(the_residual_scale_is_watched),
  };
  return cmocka_run_group_tests(tests, setup, teardown);
}
