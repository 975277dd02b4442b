/* Sampling against a plain statement of its rules: sort everything, cut, pick. */
#include "runtime/base/philox.h"
#include "runtime/taper.h"
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
// cmocka needs the headers above first
#include <cmocka.h>

typedef struct ranked {
  double value;
  uint32_t id;
} ranked;

static int by_rank(const void *a, const void *b) {
  const ranked *x = a, *y = b;
  if (x->value != y->value) return x->value > y->value ? -1 : 1;
  return x->id < y->id ? -1 : x->id > y->id;
}

/* The rules as product.md states them, with everything sorted. */
static int32_t plain_sample(const taper_sampling *s, const float *logits, uint32_t vocab, const int32_t *history,
                            size_t n, uint32_t sequence) {
  ranked *r = calloc(vocab, sizeof(*r));
  for (uint32_t i = 0; i < vocab; i++) {
    bool seen = false;
    for (size_t k = n > s->repeat_last ? n - s->repeat_last : 0; k < n; k++) seen = seen || (uint32_t)history[k] == i;
    float v = logits[i];
    if (seen) v = v > 0 ? v / s->repeat_penalty : v * s->repeat_penalty;
    r[i] = (ranked){(double)v, i};
  }
  qsort(r, vocab, sizeof(*r), by_rank);
  uint32_t kept = vocab;
  if (s->top_k && s->top_k < kept) kept = s->top_k;
  while (isinf(r[kept - 1].value)) kept--;
  double total = 0, sum = 0;
  for (uint32_t i = 0; i < kept; i++) total += exp(r[i].value - r[0].value);
  for (uint32_t i = 0; i < kept && s->top_p < 1; i++) {
    sum += exp(r[i].value - r[0].value) / total;
    if (sum >= (double)s->top_p) kept = i + 1;
  }
  for (uint32_t i = 1; i < kept; i++) {
    if (exp(r[i].value - r[0].value) < (double)s->min_p) kept = i;
  }
  if (s->temperature == 0) kept = 1;
  double best = -INFINITY;
  int32_t id = (int32_t)r[0].id;
  for (uint32_t i = 0; i < kept && s->temperature > 0; i++) {
    uint32_t bits[4];
    philox4x32(s->seed, PHILOX_SAMPLE, sequence, (uint32_t)n, r[i].id, bits);
    double score = r[i].value / (double)s->temperature - log(-log(philox_uniform(bits[0])));
    if (score > best) best = score, id = (int32_t)r[i].id;
  }
  free(r);
  return id;
}

static float pick(const float *from, size_t n) { return from[(size_t)rand() % n]; }
#define PICK(...) pick((const float[]){__VA_ARGS__}, sizeof((const float[]){__VA_ARGS__}) / sizeof(float))

static void agrees_with_the_plain_rules(void **state) {
  (void)state;
  srand(3);
  for (int round = 0; round < 3000; round++) {
    const uint32_t vocab = (uint32_t[]){1, 2, 17, 257, 1500}[rand() % 5];
    float *logits = malloc(sizeof(float) * vocab);
    int32_t history[100], id, n = rand() % 100;
    for (uint32_t i = 0; i < vocab; i++)
      logits[i] = rand() % 10 == 0 ? -INFINITY : (float)(rand() % 41 - 20) * PICK(0.25f, 0.333f);
    logits[(uint32_t)rand() % vocab] = 1;
    for (int i = 0; i < n; i++) history[i] = rand() % (int)vocab;
    taper_sampling s;
    taper_sampling_init(&s);
    s.temperature = PICK(0, 0.01f, 0.8f, 1, 3), s.top_k = (uint32_t)PICK(0, 1, 2, 40, 5000),
    s.top_p = PICK(0, 0.1f, 0.5f, 0.95f, 1);
    s.min_p = PICK(0, 0.05f, 0.5f, 1), s.repeat_penalty = PICK(1, 1.3f, 0.7f), s.repeat_last = (uint32_t)PICK(0, 3, 64),
    s.seed = (uint64_t)rand();
    assert_int_equal(taper_sample(&s, logits, vocab, history, (size_t)n, (uint32_t)round, &id, NULL), TAPER_OK);
    assert_int_equal(id, plain_sample(&s, logits, vocab, history, (size_t)n, (uint32_t)round));
    free(logits);
  }
}

static int32_t sample(const taper_sampling *s, const float *logits, uint32_t vocab) {
  int32_t id = -1;
  assert_int_equal(taper_sample(s, logits, vocab, NULL, 0, 0, &id, NULL), TAPER_OK);
  return id;
}

static void ties_go_to_the_lowest_id(void **state) {
  (void)state;
  taper_sampling s;
  taper_sampling_init(&s);
  s.temperature = 0;
  assert_int_equal(sample(&s, (const float[]){1, 3, 3, 3}, 4), 1);
  s.temperature = 1, s.top_p = 0, s.top_k = 0, s.min_p = 0;
  for (s.seed = 0; s.seed < 50; s.seed++) assert_int_equal(sample(&s, (const float[]){1, 3, 3, 3}, 4), 1);
  s.top_p = 1, s.top_k = 2; /* of three equal ones two survive: the lowest */
  for (s.seed = 0; s.seed < 200; s.seed++) assert_in_range(sample(&s, (const float[]){1, 3, 3, 3}, 4), 1, 2);
  s.top_k = 0, s.min_p = 1;
  for (s.seed = 0; s.seed < 200; s.seed++) assert_in_range(sample(&s, (const float[]){1, 3, 3, 3}, 4), 1, 3);
}

/* Chi-square of 20,000 draws against softmax(logits / T) over the survivors. */
static void draws_follow_the_distribution(void **state) {
  (void)state;
  const float logits[6] = {0.5f, -1, 2, 1.5f, 0, -INFINITY};
  taper_sampling s;
  taper_sampling_init(&s);
  s.temperature = 1.7f, s.top_k = 4, s.top_p = 1, s.min_p = 0, s.seed = 42;
  enum { DRAWS = 20000 };
  int count[6] = {0};
  for (size_t n = 0; n < DRAWS; n++) {
    int32_t id, history[1] = {0};
    s.repeat_last = 0;
    assert_int_equal(taper_sample(&s, logits, 6, n ? history : NULL, n ? 1 : 0, (uint32_t)n, &id, NULL), TAPER_OK);
    count[id]++;
  }
  const int kept[4] = {0, 2, 3, 4};
  double total = 0, chi = 0;
  for (int i = 0; i < 4; i++) total += exp((double)logits[kept[i]] / 1.7);
  for (int i = 0; i < 4; i++) {
    double expected = DRAWS * exp((double)logits[kept[i]] / 1.7) / total;
    chi += (count[kept[i]] - expected) * (count[kept[i]] - expected) / expected;
  }
  assert_int_equal(count[1] + count[5], 0);
  assert_true(chi < 16.3); /* three degrees of freedom, p = 0.001; the seed is fixed */
}

static void refuses(const char *word, taper_status status, const taper_sampling *s, const float *logits) {
  taper_error error = {0};
  int32_t id = 77;
  assert_int_equal(taper_sample(s, logits, 3, NULL, 0, 0, &id, &error), status);
  assert_int_equal(error.status, status);
  if (!strstr(error.message, word)) fail_msg("'%s' does not say '%s'", error.message, word);
  assert_int_equal(id, 77);
}

static void wrong_options_are_refused_by_name(void **state) {
  (void)state;
  const float logits[3] = {1, 2, 3};
  taper_sampling s;
#define REFUSE(field, value, word) taper_sampling_init(&s), s.field = (value), refuses(word, TAPER_INVALID, &s, logits)
  REFUSE(temperature, -0.5f, "'temperature' is -0.500; it must be 0 or more");
  REFUSE(temperature, NAN, "'temperature' is NaN");
  REFUSE(temperature, INFINITY, "'temperature' is infinite");
  REFUSE(top_p, 1.5f, "'top_p' is 1.500; it must be from 0 to 1");
  REFUSE(top_p, NAN, "top_p");
  REFUSE(min_p, -1, "min_p");
  REFUSE(min_p, NAN, "min_p");
  REFUSE(repeat_penalty, 0, "repeat_penalty");
  REFUSE(repeat_penalty, NAN, "repeat_penalty");
  REFUSE(size, 3, "taper_sampling_init");
  taper_sampling_init(&s);
  s.repeat_penalty = 2;
  int32_t id;
  taper_error error;
  assert_int_equal(taper_sample(&s, logits, 3, (const int32_t[]){3}, 1, 0, &id, &error), TAPER_INVALID);
  assert_non_null(strstr(error.message, "ids are 0 to 2"));
  assert_int_equal(taper_sample(&s, logits, 0, NULL, 0, 0, &id, NULL), TAPER_INVALID);
  assert_int_equal(taper_sample(&s, NULL, 3, NULL, 0, 0, &id, NULL), TAPER_INVALID);
}

static void wrong_logits_are_refused(void **state) {
  (void)state;
  taper_sampling s;
  taper_sampling_init(&s);
  refuses("the logit of id 1 is NaN", TAPER_NUMERIC, &s, (const float[]){1, NAN, 2});
  refuses("infinite", TAPER_NUMERIC, &s, (const float[]){1, INFINITY, 2});
  refuses("every logit is minus infinity", TAPER_NUMERIC, &s, (const float[]){-INFINITY, -INFINITY, -INFINITY});
  assert_int_equal(sample(&s, (const float[]){-INFINITY, 5, -INFINITY}, 3), 1);
}

static void extremes_leave_something(void **state) {
  (void)state;
  taper_sampling s;
  taper_sampling_init(&s);
  s.temperature = FLT_MIN, s.top_k = 0, s.top_p = 1, s.min_p = 0;
  assert_int_equal(sample(&s, (const float[]){-FLT_MAX, FLT_MAX, 0}, 3), 1);
  s.temperature = FLT_MAX;
  (void)sample(&s, (const float[]){-FLT_MAX, FLT_MAX, 0}, 3);
  s.repeat_penalty = 1e-38f, s.temperature = 0;
  int32_t id;
  assert_int_equal(
      taper_sample(&s, (const float[]){FLT_MAX, FLT_MAX, -FLT_MAX}, 3, (const int32_t[]){0, 1}, 2, 0, &id, NULL),
      TAPER_OK);
  assert_int_equal(id, 0);
  s.repeat_penalty = 1e38f;
  assert_int_equal(taper_sample(&s, (const float[]){-FLT_MAX, -FLT_MAX}, 2, (const int32_t[]){0, 1}, 2, 0, &id, NULL),
                   TAPER_OK);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(agrees_with_the_plain_rules),   cmocka_unit_test(ties_go_to_the_lowest_id),
      cmocka_unit_test(draws_follow_the_distribution), cmocka_unit_test(wrong_options_are_refused_by_name),
      cmocka_unit_test(wrong_logits_are_refused),      cmocka_unit_test(extremes_leave_something),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
