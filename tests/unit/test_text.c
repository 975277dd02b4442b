/* Byte tokens, whole characters out of any pieces, exact stop strings. */
#include "runtime/text/stop.h"
#include "runtime/text/tokenizer.h"
#include "runtime/text/utf8_stream.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
// cmocka needs the headers above first
#include <cmocka.h>

static void bytes_are_ids(void **state) {
  (void)state;
  char all[256], piece[TOKENIZER_MAX_PIECE];
  int32_t ids[256];
  size_t n = 0;
  const tokenizer bytes = {.kind = TOKENIZER_BYTES}, none = {0};
  for (int i = 0; i < 256; i++) all[i] = (char)i;
  assert_int_equal(tokenizer_encode(&bytes, all, 256, 0, ids, 256, &n, NULL), TAPER_OK);
  assert_int_equal(n, 256);
  for (int i = 0; i < 256; i++) {
    assert_int_equal(ids[i], i);
    assert_int_equal(tokenizer_piece(&bytes, i, piece), 1);
    assert_int_equal((uint8_t)piece[0], i);
  }
  assert_int_equal(tokenizer_piece(&bytes, 256, piece), 0);
  assert_int_equal(tokenizer_piece(&bytes, -1, piece), 0);
  ids[2] = 77;
  assert_int_equal(tokenizer_encode(&bytes, "abcd", 4, 0, ids, 2, &n, NULL), TAPER_OK);
  assert_int_equal(n, 4);
  assert_int_equal(ids[2], 77);
  assert_int_equal(tokenizer_encode(&bytes, "", 0, 0, ids, 2, &n, NULL), TAPER_OK);
  assert_int_equal(n, 0);
  assert_int_equal(tokenizer_encode(&none, "a", 1, 0, ids, 2, &n, NULL), TAPER_UNSUPPORTED);
}

/* Pushes byte by byte; '|' stands after every push that passed something, '$' before what the flush gives. */
static void stream(const char *in, size_t n, const char *expected) {
  utf8_stream s = {0};
  char got[512], out[8];
  size_t used = 0;
  for (size_t i = 0; i < n; i++) {
    size_t k = utf8_push(&s, in + i, 1, out);
    memcpy(got + used, out, k);
    used += k;
    if (k) got[used++] = '|';
  }
  got[used++] = '$';
  used += utf8_flush(&s, got + used);
  got[used] = 0;
  assert_string_equal(got, expected);
}

#define STREAM(in, expected) stream(in, sizeof(in) - 1, expected)

static void characters_stay_whole(void **state) {
  (void)state;
  STREAM("ab", "a|b|$");
  STREAM("\xc3\xa9x", "\xc3\xa9|x|$");
  STREAM("\xe2\x82\xac", "\xe2\x82\xac|$");
  STREAM("\xf0\x9f\x98\x80!", "\xf0\x9f\x98\x80|!|$");
  STREAM("\xf4\x8f\xbf\xbf", "\xf4\x8f\xbf\xbf|$");
  STREAM("\xee\x80\x80\xed\x9f\xbf", "\xee\x80\x80|\xed\x9f\xbf|$");
}

static void wrong_bytes_pass_at_once(void **state) {
  (void)state;
  STREAM("\x80"
         "a",
         "\x80|a|$");                                 /* a lone continuation byte */
  STREAM("\xc0\xaf", "\xc0|\xaf|$");                  /* overlong */
  STREAM("\xe0\x80\x80", "\xe0\x80|\x80|$");          /* overlong: wrong at its second byte */
  STREAM("\xed\xa0\x80", "\xed\xa0|\x80|$");          /* a surrogate */
  STREAM("\xf4\x90\x80\x80", "\xf4\x90|\x80|\x80|$"); /* beyond U+10FFFF */
  STREAM("\xff\xfe", "\xff|\xfe|$");
  STREAM("\xe2\x82"
         "A",
         "\xe2\x82"
         "A|$");                                             /* a torn character, then a letter */
  STREAM("\xe2\x82\xe2\x82\xac", "\xe2\x82|\xe2\x82\xac|$"); /* a torn one, then a whole one */
  STREAM("\xf0\x9f\x98", "$\xf0\x9f\x98");                   /* the end comes first */
}

static void any_cut_gives_the_same_bytes(void **state) {
  (void)state;
  srand(7);
  for (int round = 0; round < 2000; round++) {
    static const uint8_t some[] = {0x41, 0xc3, 0xa9, 0xe2, 0x82, 0xac, 0xf0, 0x9f, 0x98, 0x80, 0xed, 0xa0, 0xff, 0x00};
    char in[40], out[64];
    utf8_stream s = {0};
    size_t n = (size_t)(rand() % 40), used = 0;
    for (size_t i = 0; i < n; i++) in[i] = (char)some[(size_t)rand() % sizeof(some)];
    for (size_t at = 0; at < n;) {
      size_t k = (size_t)(rand() % 5) + 1;
      if (k > n - at) k = n - at;
      used += utf8_push(&s, in + at, k, out + used);
      at += k;
    }
    used += utf8_flush(&s, out + used);
    assert_int_equal(used, n);
    assert_memory_equal(in, out, n);
  }
}

/* Feeds text byte by byte; '|' ends each feed that let something pass; '!' a stop; '$' begins the flush. */
static void stops(const char *const *strings, size_t count, const char *in, const char *expected) {
  stop_matcher *m;
  taper_error error;
  taper_allocator a = memory_allocator((taper_allocator){0});
  assert_int_equal(stop_new(strings, count, &a, &m, &error), TAPER_OK);
  char got[512], out[64];
  size_t used = 0, k;
  bool stop = false;
  for (const char *c = in; *c && !stop; c++) {
    stop = stop_feed(m, *c, out, &k);
    assert_true(k <= stop_room(m));
    memcpy(got + used, out, k);
    used += k;
    if (k) got[used++] = '|';
  }
  got[used++] = stop ? '!' : '$';
  used += stop_flush(m, got + used);
  got[used] = 0;
  assert_string_equal(got, expected);
  stop_free(m);
}

#define STOPS(in, expected, ...)                                                                                       \
  stops((const char *const[]){__VA_ARGS__}, sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *), in, expected)

static void stop_strings_cut_exactly(void **state) {
  (void)state;
  STOPS("hello END more", "h|e|l|l|o| |!", "END");
  STOPS("EN", "$EN", "END");   /* nothing is withheld at the end */
  STOPS("EEND", "E|!", "END"); /* the withheld beginning moves on */
  STOPS("ENEND", "EN|!", "END");
  STOPS("aabaaabaaac", "aab|aaab|!",
        "aaac");                     /* a string that overlaps itself: only the longest beginning is withheld */
  STOPS("xabc", "x|!", "abc", "bc"); /* both end here: the longest wins */
  STOPS("xabc", "x|a|!", "abcd", "bc");
  STOPS("a.b", "a|!", ".");
  STOPS("abab", "!", "abab", "ababab");
}

static void no_strings_withhold_nothing(void **state) {
  (void)state;
  stops(NULL, 0, "abc", "a|b|c|$");
}

static void wrong_stop_strings_are_refused(void **state) {
  (void)state;
  stop_matcher *m;
  taper_error error;
  taper_allocator a = memory_allocator((taper_allocator){0});
  assert_int_equal(stop_new((const char *const[]){"a", ""}, 2, &a, &m, &error), TAPER_INVALID);
  assert_non_null(strstr(error.message, "stop string 1 is empty"));
  assert_null(m);
  assert_int_equal(stop_new((const char *const[]){NULL}, 1, &a, &m, &error), TAPER_INVALID);
}

/* Against a search over the whole text that knows nothing of streams. */
static void random_streams_agree_with_a_search(void **state) {
  (void)state;
  srand(11);
  taper_allocator a = memory_allocator((taper_allocator){0});
  for (int round = 0; round < 3000; round++) {
    char text[64] = "", words[2][8] = {"", ""}, got[80], out[16];
    for (int i = 0, n = rand() % 50; i < n; i++) text[i] = (char)('a' + rand() % 2);
    for (int w = 0; w < 2; w++) {
      for (int i = 0, n = 1 + rand() % 6; i < n; i++) words[w][i] = (char)('a' + rand() % 2);
    }
    size_t cut = strlen(text), used = 0, k;
    for (size_t end = 1, found = 0; end <= strlen(text) && !found; end++) {
      for (int w = 0; w < 2; w++) {
        size_t n = strlen(words[w]);
        if (n > end || memcmp(text + end - n, words[w], n) != 0) continue;
        cut = !found || end - n < cut ? end - n : cut;
        found = 1;
      }
    }
    stop_matcher *m;
    assert_int_equal(stop_new((const char *const[]){words[0], words[1]}, 2, &a, &m, NULL), TAPER_OK);
    for (const char *c = text; *c; c++) {
      bool stop = stop_feed(m, *c, out, &k);
      memcpy(got + used, out, k);
      used += k;
      if (stop) break;
    }
    used += stop_flush(m, got + used);
    assert_int_equal(used, cut);
    assert_memory_equal(got, text, cut);
    stop_free(m);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(bytes_are_ids),
      cmocka_unit_test(characters_stay_whole),
      cmocka_unit_test(wrong_bytes_pass_at_once),
      cmocka_unit_test(any_cut_gives_the_same_bytes),
      cmocka_unit_test(stop_strings_cut_exactly),
      cmocka_unit_test(no_strings_withhold_nothing),
      cmocka_unit_test(wrong_stop_strings_are_refused),
      cmocka_unit_test(random_streams_agree_with_a_search),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
