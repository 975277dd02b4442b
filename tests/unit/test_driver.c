/* The driver's small parts: words and numbers, pass lists, the image cache. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "compiler/driver/pipeline.h"
#include "compiler/driver/words.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void nearest_word(void **state) {
  (void)state;
  static const char *const words[] = {"compile", "opt", "run", "tokenize", "detokenize"};
  assert_string_equal(words_nearest("complie", words, 5), "compile"); /* a swap is one edit */
  assert_string_equal(words_nearest("tokenise", words, 5), "tokenize");
  assert_string_equal(words_nearest("rn", words, 5), "run");
  assert_null(words_nearest("xyzzy", words, 5));
  assert_null(words_nearest("", words, 5));
  char longest[200];
  memset(longest, 'a', sizeof longest - 1);
  longest[sizeof longest - 1] = 0;
  assert_null(words_nearest(longest, words, 5));
}

static void expect_number(double value, const char *expected) {
  text t = {0};
  words_put_number(&t, value);
  assert_string_equal(t.data, expected);
  text_free(&t);
}

static void expect_float(float value, const char *expected) {
  text t = {0};
  words_put_float(&t, value);
  assert_string_equal(t.data, expected);
  text_free(&t);
}

static void numbers(void **state) {
  (void)state;
  expect_number(1000, "1000");
  expect_number(-3, "-3");
  expect_number(0.1, "0.1");
  expect_number(1e15, "1000000000000000");
  expect_number(1e300, "1e+300");
  expect_number(-0.0, "-0");
  expect_float(0.8f, "0.8");
  expect_float(0.05f, "0.05");
  expect_float(1, "1");
  expect_float(1.0f / 3, "0.33333334");
}

static size_t parse(const char *list, int level, size_t *out_errors) {
  const pass_info *passes[PIPELINE_MAX];
  pass_options options = {.level = level};
  diag_sink *sink = diag_sink_new();
  size_t n = 0;
  if (!pipeline_parse(list, &options, sink, passes, PIPELINE_MAX, &n)) n = SIZE_MAX;
  *out_errors = diag_error_count(sink);
  diag_sink_free(sink);
  return n;
}

static void pass_lists(void **state) {
  (void)state;
  size_t errors, all = parse("default", 2, &errors);
  assert_true(all > 5 && all < PIPELINE_MAX && errors == 0);
  assert_true(parse("default", 0, &errors) < all);
  assert_int_equal(parse("dce,default,cse", 2, &errors), all + 2);
  assert_int_equal(parse("", 2, &errors), 0);
  static const char *const wrong[] = {"dec", "dce,", ",dce", "dce,,cse", "dce cse"};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    assert_int_equal(parse(wrong[i], 2, &errors), SIZE_MAX);
    assert_int_equal(errors, 1);
  }
  text longest = {0};
  for (int i = 0; i < 2000; i++) text_puts(&longest, i ? ",dce" : "dce");
  assert_int_equal(parse(longest.data, 2, &errors), SIZE_MAX); /* bounded */
  text_free(&longest);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(nearest_word), cmocka_unit_test(numbers),
                                     cmocka_unit_test(pass_lists)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
