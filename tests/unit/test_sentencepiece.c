/* SentencePiece models made here: what they become by the library's rules, and what damaged ones become. The library
   itself is asked by tests/numerics/tokenizers.py. */
#include "runtime/text/protobuf.h"
#include "runtime/text/tokenizer.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
// cmocka needs the headers above first
#include <cmocka.h>

/* ---- models in the making ---- */

typedef struct bytes {
  uint8_t data[1 << 16];
  size_t n;
} bytes;

static void put(bytes *b, const void *data, size_t n) {
  assert_true(b->n + n <= sizeof b->data);
  memcpy(b->data + b->n, data, n);
  b->n += n;
}
static void put_varint(bytes *b, uint64_t v) {
  for (; v >= 128; v >>= 7) put(b, &(uint8_t){(uint8_t)(v | 128)}, 1);
  put(b, &(uint8_t){(uint8_t)v}, 1);
}
static void put_number(bytes *b, uint32_t field, uint64_t v) { put_varint(b, field << 3), put_varint(b, v); }
static void put_bytes(bytes *b, uint32_t field, const void *data, size_t n) {
  put_varint(b, field << 3 | 2), put_varint(b, n), put(b, data, n);
}
static void put_piece(bytes *b, const char *text, float score, int type) {
  bytes *p = calloc(1, sizeof *p);
  put_bytes(p, 1, text, strlen(text));
  put_varint(p, 2 << 3 | 5), put(p, &score, 4);
  if (type != 1) put_number(p, 3, (uint64_t)type);
  put_bytes(b, 1, p->data, p->n);
  free(p);
}

enum { NORMAL = 1, UNKNOWN, CONTROL, USER, UNUSED, BYTE };
enum { UNIGRAM = 1, BPE, WORD, CHARS };
#define SP "\xe2\x96\x81"

typedef struct piece {
  const char *text;
  float score;
  int type;
} piece;

static bytes *make(int algorithm, bool fallback, int remove_extra, const piece *pieces, size_t n) {
  bytes *b = calloc(1, sizeof *b), *t = calloc(1, sizeof *t);
  put_piece(b, "<unk>", 0, UNKNOWN);
  put_piece(b, "<s>", 0, CONTROL);
  put_piece(b, "</s>", 0, CONTROL);
  for (size_t i = 0; i < n; i++) put_piece(b, pieces[i].text, pieces[i].score, pieces[i].type);
  for (int i = 0; fallback && i < 256; i++) {
    char name[8] = "<0x00>";
    name[3] = "0123456789ABCDEF"[i / 16], name[4] = "0123456789ABCDEF"[i % 16];
    put_piece(b, name, 0, BYTE);
  }
  put_number(t, 3, (uint64_t)algorithm);
  if (fallback) put_number(t, 35, 1);
  put_bytes(b, 2, t->data, t->n);
  t->n = 0;
  if (remove_extra >= 0) put_number(t, 4, (uint64_t)remove_extra);
  put_bytes(b, 3, t->data, t->n);
  free(t);
  return b;
}

static tokenizer open_ok(bytes *b) {
  tokenizer t;
  taper_error e = {0};
  if (tokenizer_open(TOKENIZER_SENTENCEPIECE, b->data, b->n, "test.model", NULL, &t, &e) != TAPER_OK)
    fail_msg("%s", e.message);
  free(b); /* it is copied */
  return t;
}

static void expect_flags(const tokenizer *t, const char *text, size_t n, unsigned flags, const int32_t *ids,
                         size_t count) {
  int32_t got[64];
  size_t k = 0;
  assert_int_equal(tokenizer_encode(t, text, n, flags, got, 64, &k, NULL), TAPER_OK);
  assert_int_equal(k, count);
  for (size_t i = 0; i < count; i++) assert_int_equal(got[i], ids[i]);
}
#define EXPECT(t, text, ...)                                                                                           \
  expect_flags(&t, text, sizeof(text) - 1, 0, (int32_t[]){__VA_ARGS__}, sizeof((int32_t[]){__VA_ARGS__}) / 4)
#define NOTHING(t, text) expect_flags(&t, text, sizeof(text) - 1, 0, NULL, 0)

static void expect_text(const tokenizer *t, const int32_t *ids, size_t n, const char *text) {
  char got[256];
  size_t k = 0;
  assert_int_equal(tokenizer_decode(t, ids, n, got, sizeof got - 1, &k, NULL), TAPER_OK);
  got[k] = 0;
  assert_string_equal(got, text);
}
#define DECODES(t, text, ...) expect_text(&t, (int32_t[]){__VA_ARGS__}, sizeof((int32_t[]){__VA_ARGS__}) / 4, text)

static const piece letters[] = {{SP, -9, NORMAL},   {"a", -8, NORMAL},     {"b", -7, NORMAL},  {"ab", -1, NORMAL},
                                {"ba", -2, NORMAL}, {SP "ab", -3, NORMAL}, {"aba", -4, NORMAL}};
enum { ID_SP = 3, ID_A, ID_B, ID_AB, ID_BA, ID_SP_AB, ID_ABA };

static void bpe_merges_the_best_pair_first(void **state) {
  (void)state;
  tokenizer t = open_ok(make(BPE, false, -1, letters, 7));
  assert_int_equal(tokenizer_vocab(&t), 10);
  assert_int_equal(tokenizer_bos(&t), 1);
  assert_int_equal(tokenizer_eos(&t), 2);
  EXPECT(t, "ab", ID_SP_AB);
  EXPECT(t, "aba", ID_SP_AB, ID_A);     /* ab, then SP+ab (-3) before ab+a (-4) */
  EXPECT(t, "bab", ID_SP, ID_B, ID_AB); /* ab (-1) before ba (-2) */
  EXPECT(t, "baba", ID_SP, ID_B, ID_ABA);
  EXPECT(t, "  ab   ab ", ID_SP_AB, ID_SP_AB);
  EXPECT(t, "abc", ID_SP_AB, 0);
  EXPECT(t, "cd\xff", ID_SP, 0); /* a run of unknown ones is one */
  NOTHING(t, "");
  NOTHING(t, "   ");
  DECODES(t, "ab ab", ID_SP_AB, ID_SP_AB);
  DECODES(t, "ab \xe2\x81\x87 ", 1, ID_SP_AB, 0, 2);
  tokenizer_close(&t);
}

static void unigram_takes_the_best_path(void **state) {
  (void)state;
  static const piece p[] = {{SP, -1, NORMAL},     {"a", -2, NORMAL},  {"aa", -3, NORMAL}, {"aaa", -6.5f, NORMAL},
                            {"aaaa", -1, UNUSED}, {"<sep>", 0, USER}, {"<", -3, NORMAL}};
  tokenizer t = open_ok(make(UNIGRAM, false, -1, p, 7));
  EXPECT(t, "a", 3, 4);
  EXPECT(t, "aa", 3, 5);
  EXPECT(t, "aaa", 3, 4, 5); /* -5 and -5: the first that was found stays; aaa is -6.5 */
  EXPECT(t, "aaaa", 3, 5, 5);
  EXPECT(t, "a<sep>a<", 3, 4, 8, 4, 9);
  EXPECT(t, "zz", 3, 0);
  tokenizer_close(&t);
}

static void bytes_stand_for_what_no_piece_has(void **state) {
  (void)state;
  tokenizer t = open_ok(make(BPE, true, 0, letters, 7));
  const int32_t zero = 10;
  EXPECT(t, "\n", ID_SP, zero + 10);
  EXPECT(t, "a\0b", ID_SP, ID_A, zero, ID_B);
  EXPECT(t, "\xc3\xa9", ID_SP, zero + 0xc3, zero + 0xa9);
  EXPECT(t, "\xff", ID_SP, zero + 0xef, zero + 0xbf, zero + 0xbd); /* no UTF-8: U+FFFD */
  EXPECT(t, "  a", ID_SP, ID_SP, ID_SP, ID_A);                     /* spaces stay */
  EXPECT(t, "<0x0A>", ID_SP, zero + '<', zero + '0', zero + 'x', zero + '0', zero + 'A', zero + '>');
  DECODES(t, "\n", ID_SP, zero + 10);
  DECODES(t, "\xc3\xa9", ID_SP, zero + 0xc3, zero + 0xa9);
  DECODES(t,
          "\xef\xbf\xbd"
          "a",
          zero + 0xc3, ID_A);
  char piece_text[TOKENIZER_MAX_PIECE];
  assert_int_equal(tokenizer_piece(&t, zero + 0xc3, piece_text), 1); /* a stream goes on with the byte itself */
  assert_int_equal((uint8_t)*piece_text, 0xc3);
  assert_int_equal(tokenizer_piece(&t, ID_SP_AB, piece_text), 3);
  assert_memory_equal(piece_text, " ab", 3);
  assert_int_equal(tokenizer_piece(&t, 1, piece_text), 0);
  assert_int_equal(tokenizer_piece(&t, 266, piece_text), 0);
  assert_int_equal(tokenizer_piece(&t, -1, piece_text), 0);
  size_t k;
  taper_error e = {0};
  assert_int_equal(tokenizer_decode(&t, &(int32_t){266}, 1, NULL, 0, &k, &e), TAPER_INVALID);
  assert_non_null(strstr(e.message, "token 0 is 266; ids are 0 to 265"));
  tokenizer_close(&t);
}

static void control_symbols_are_text_unless_asked(void **state) {
  (void)state;
  tokenizer t = open_ok(make(BPE, false, -1, letters, 7));
  EXPECT(t, "<s>ab", ID_SP, 0, ID_AB);
  const char text[] = "ab</s>ab<s>";
  expect_flags(&t, text, sizeof text - 1, TOKENIZER_SPECIAL, (int32_t[]){1, ID_SP_AB, 0, ID_AB, 0}, 5);
  expect_flags(&t, text, sizeof text - 1, TOKENIZER_PARSE_SPECIAL, (int32_t[]){ID_SP_AB, 2, ID_SP_AB, 1}, 4);
  expect_flags(&t, "", 0, TOKENIZER_SPECIAL | TOKENIZER_PARSE_SPECIAL, (int32_t[]){1}, 1);
  tokenizer_close(&t);
}

static void unused_pieces_come_apart(void **state) {
  (void)state;
  static const piece p[] = {{SP, -9, NORMAL},   {"a", -8, NORMAL},    {"b", -7, NORMAL},
                            {"ab", -1, UNUSED}, {"abab", -2, NORMAL}, {SP "ab", -3, UNUSED}};
  tokenizer t = open_ok(make(BPE, false, -1, p, 6));
  EXPECT(t, "ab", 3, 4, 5);
  EXPECT(t, "abab", 3, 7); /* abab (-2) before SP+ab (-3) */
  tokenizer_close(&t);
}

static void characters_are_never_merged(void **state) {
  (void)state;
  tokenizer t = open_ok(make(CHARS, false, -1, letters, 7));
  EXPECT(t, "abq", ID_SP, ID_A, ID_B, 0);
  tokenizer_close(&t);
}

static int count_ids(void *user, const int32_t *ids, size_t n, size_t at) {
  (void)ids, (void)at;
  *(size_t *)user += n;
  return 0;
}
static int refuse_ids(void *user, const int32_t *ids, size_t n, size_t at) {
  (void)user, (void)ids, (void)n, (void)at;
  return 1;
}

/* Time that is not linear would not come to an end here. */
static void long_texts_are_encoded(void **state) {
  (void)state;
  enum { N = 4 << 20 };
  static const piece p[] = {{SP, -9, NORMAL}, {"a", -8, NORMAL}, {"aa", -1, NORMAL}, {"aaaa", -2, NORMAL}};
  char *text = malloc(N);
  memset(text, 'a', N);
  for (int algorithm = UNIGRAM; algorithm <= BPE; algorithm++) {
    tokenizer t = open_ok(make(algorithm, false, -1, p, 4));
    size_t ids = 0;
    taper_error e = {0};
    assert_int_equal(tokenizer_stream(&t, text, N, 0, count_ids, &ids, NULL), TAPER_OK);
    assert_int_equal(ids, algorithm == BPE ? 1 + N / 4 : 1 + N / 4);
    assert_int_equal(tokenizer_stream(&t, text, N, 0, refuse_ids, NULL, &e), TAPER_STOPPED);
    tokenizer_close(&t);
  }
  free(text);
}

/* ---- models that are none ---- */

static void refuse(bytes *b, const char *word) {
  tokenizer t;
  taper_error e = {0};
  assert_int_not_equal(tokenizer_open(TOKENIZER_SENTENCEPIECE, b->data, b->n, "test.model", NULL, &t, &e), TAPER_OK);
  assert_int_equal(t.kind, TOKENIZER_NONE);
  if (!strstr(e.message, word) || strncmp(e.message, "test.model: ", 12) != 0)
    fail_msg("'%s' is not in: %s", word, e.message);
  free(b);
}

static bytes *with(const char *text, float score, int type) {
  bytes *b = make(BPE, false, -1, letters, 7);
  put_piece(b, text, score, type);
  return b;
}

static void damaged_models_are_refused(void **state) {
  (void)state;
  bytes *b = calloc(1, sizeof *b);
  refuse(b, "holds no pieces");
  refuse(with("", 0, NORMAL), "piece 10 is empty");
  refuse(with("ab", 0, NORMAL), "piece 10, 'ab', stands there twice");
  refuse(with("<s>", 0, NORMAL), "stands there twice");
  refuse(with("x", 0, UNKNOWN), "both the unknown one");
  refuse(with("x", 0, 9), "unknown type 9");
  refuse(with("<0x41>", 0, BYTE), "no byte fallback");
  refuse(with("x", __builtin_nanf(""), NORMAL), "not finite");
  refuse(make(WORD, false, -1, letters, 7), "is a model of words");
  refuse(make(9, false, -1, letters, 7), "an unknown kind");
  refuse(make(UNIGRAM, false, -1, NULL, 0), "no piece that text may become");
  b = calloc(1, sizeof *b);
  put_piece(b, "a", 0, NORMAL);
  refuse(b, "no piece is the unknown one");
  b = make(BPE, false, -1, letters, 7);
  put_number(b, 77, 1);
  b->n--;
  refuse(b, "the data ends inside a number");
  b = make(BPE, false, -1, letters, 7);
  put(b, "\x0a\x7f", 2);
  refuse(b, "a field longer than the data");
  b = make(BPE, false, -1, letters, 7);
  put(b, "\x0b", 1);
  refuse(b, "a field of an unknown kind");
  char long_piece[TOKENIZER_MAX_PIECE + 2];
  memset(long_piece, 'x', sizeof long_piece - 1);
  long_piece[sizeof long_piece - 1] = 0;
  refuse(with(long_piece, 0, NORMAL), "1025 bytes; at most 1024");
  bytes *n = calloc(1, sizeof *n);
  b = make(BPE, false, -1, letters, 7);
  put_bytes(n, 2, "\xff\0\0\0ab", 6);
  put_bytes(b, 3, n->data, n->n);
  free(n);
  refuse(b, "table of replacements is damaged");
}

/* Every cut and every altered byte: refused in words or opened; what opens encodes and decodes. */
static void any_damage_is_survived(void **state) {
  (void)state;
  bytes *whole = make(BPE, true, 0, letters, 7), *n = calloc(1, sizeof *n);
  uint8_t table[64] = {16};
  for (size_t i = 4; i < sizeof table; i++) table[i] = (uint8_t)(i * 37);
  put_bytes(n, 2, table, sizeof table);
  put_bytes(whole, 3, n->data, n->n);
  free(n);
  for (size_t i = 0; i < whole->n * 2; i++) {
    size_t size = i < whole->n ? i : whole->n;
    uint8_t *copy = malloc(size + 1); /* its end is watched by the sanitizer */
    memcpy(copy, whole->data, size);
    if (i >= whole->n) copy[i - whole->n] ^= (uint8_t)(1u << i % 8);
    tokenizer t;
    taper_error e = {0};
    if (tokenizer_open(TOKENIZER_SENTENCEPIECE, copy, size, "x", NULL, &t, &e) == TAPER_OK) {
      int32_t ids[64];
      char text[512];
      size_t k = 0, m = 0;
      tokenizer_encode(&t, "<s>ab \xff aba\n", 12, TOKENIZER_PARSE_SPECIAL, ids, 64, &k, &e);
      assert_int_equal(tokenizer_decode(&t, ids, k, text, sizeof text, &m, &e), TAPER_OK);
      tokenizer_close(&t);
    } else {
      assert_true(e.message[0] != 0);
    }
    free(copy);
  }
  free(whole);
}

typedef struct ration {
  long left, held;
} ration;

static void *rationed(void *user, void *block, size_t old_size, size_t new_size) {
  ration *r = user;
  (void)old_size;
  if (new_size == 0) {
    r->held -= block != NULL;
    free(block);
    return NULL;
  }
  if (r->left-- <= 0) return NULL;
  r->held += block == NULL;
  return realloc(block, new_size);
}

static void memory_may_run_out_anywhere(void **state) {
  (void)state;
  static const int algorithms[] = {UNIGRAM, BPE};
  for (size_t k = 0; k < 2; k++) {
    bool done = false;
    for (long limit = 0; !done && limit < 200; limit++) {
      ration r = {limit, 0};
      const taper_allocator allocator = {rationed, &r};
      bytes *b = make(algorithms[k], true, 0, letters, 7);
      tokenizer t;
      int32_t ids[64];
      char text[256];
      size_t n, m;
      taper_error e = {0};
      taper_status status = tokenizer_open(TOKENIZER_SENTENCEPIECE, b->data, b->n, "x", &allocator, &t, &e);
      if (status == TAPER_OK) status = tokenizer_encode(&t, "ab aba\n", 7, 0, ids, 64, &n, &e);
      if (status == TAPER_OK) status = tokenizer_decode(&t, ids, n, text, sizeof text, &m, &e);
      done = status == TAPER_OK;
      if (!done) assert_int_equal(status, TAPER_NOMEM);
      tokenizer_close(&t);
      assert_int_equal(r.held, 0);
      free(b);
    }
    assert_true(done);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(bpe_merges_the_best_pair_first),
      cmocka_unit_test(unigram_takes_the_best_path),
      cmocka_unit_test(bytes_stand_for_what_no_piece_has),
      cmocka_unit_test(control_symbols_are_text_unless_asked),
      cmocka_unit_test(unused_pieces_come_apart),
      cmocka_unit_test(characters_are_never_merged),
      cmocka_unit_test(long_texts_are_encoded),
      cmocka_unit_test(damaged_models_are_refused),
      cmocka_unit_test(any_damage_is_survived),
      cmocka_unit_test(memory_may_run_out_anywhere),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
