/* Data files: kinds, the split, windows, kept tokens, refusals. */
#include "compiler/driver/corpus.h"
#include "compiler/driver/id_list.h"
#include "runtime/base/hash.h"
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
// cmocka needs the headers above first
#include <cmocka.h>

static char folder[] = "/tmp/taper-corpus-XXXXXX";
static diag_sink *sink;
static const tokenizer bytes = {.kind = TOKENIZER_BYTES};

static const char *at(const char *name) {
  static char path[8][600];
  static unsigned turn;
  char *p = path[turn++ % 8];
  snprintf(p, sizeof path[0], "%s/%s", folder, name);
  return p;
}

static const char *put(const char *name, const void *data, size_t n) {
  const char *path = at(name);
  FILE *f = fopen(path, "wb");
  assert_non_null(f);
  assert_int_equal(fwrite(data, 1, n, f), n);
  fclose(f);
  return path;
}

static int open_sink(void **state) {
  (void)state;
  sink = diag_sink_new();
  return mkdtemp(folder) ? 0 : 1;
}

static int close_sink(void **state) {
  (void)state;
  char command[400];
  diag_sink_free(sink);
  snprintf(command, sizeof command, "rm -rf %s", folder);
  return system(command);
}

static corpus *open_ok(const corpus_options *o) {
  corpus *c = NULL;
  taper_error e = {0};
  if (corpus_open(o, sink, &c, &e) != TAPER_OK) fail_msg("%s", e.message);
  return c;
}

static void refuse(const corpus_options *o, const char *word) {
  corpus *c = NULL;
  taper_error e = {0};
  assert_int_not_equal(corpus_open(o, sink, &c, &e), TAPER_OK);
  assert_null(c);
  if (!strstr(e.message, word)) fail_msg("'%s' is not in: %s", word, e.message);
}

static void expect_ids(corpus *c, const int32_t *ids, size_t n) {
  int32_t got[16];
  assert_int_equal(corpus_count(c, CORPUS_TRAIN), n);
  corpus_read(c, CORPUS_TRAIN, 0, n, got);
  for (size_t i = 0; i < n; i++) assert_int_equal(got[i], ids[i]);
  corpus_close(c);
}

static void kinds_go_by_the_name(void **state) {
  (void)state;
  const int32_t ids[] = {1, 200, 255, 0};
  static const uint8_t u16[] = {1, 0, 200, 0, 255, 0, 0, 0},
                       u32[] = {1, 0, 0, 0, 200, 0, 0, 0, 255, 0, 0, 0, 0, 0, 0, 0};
  uint8_t llm[1024 + 8] = {0x88, 0xd8, 0x34, 0x01, 1, 0, 0, 0, 4};
  memcpy(llm + 1024, u16, 8);
  const struct {
    const char *name;
    const void *data;
    size_t n;
  } files[] = {{"a.u16", u16, 8},          {"a.u32", u32, 16},           {"a.ids", "1, 200\n255 ,0\n", 14},
               {"a.bin", llm, sizeof llm}, {"a.txt", "\1\310\377\0", 4}, {"plain", "\1\310\377\0", 4}};
  for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
    const char *path = put(files[i].name, files[i].data, files[i].n);
    corpus_options o = {.files = &path, .file_count = 1, .tokenizer = &bytes, .vocab = 256, .window = 3};
    corpus *c = open_ok(&o);
    assert_int_equal(corpus_text_bytes(c), i < 4 ? 0 : 3);
    assert_int_equal(corpus_count(c, CORPUS_VAL), 0);
    expect_ids(c, ids, 4);
  }
}

static void files_follow_one_another(void **state) {
  (void)state;
  const char *files[] = {put("x.txt", "abc", 3), put("y.u16", "\1\0\2\0", 4), put("z.txt", "d", 1)};
  const char *val = put("v.ids", "9 8 7", 5);
  corpus_options o = {.files = files, .file_count = 3, .val = val, .tokenizer = &bytes, .vocab = 256, .window = 2};
  corpus *c = open_ok(&o);
  int32_t got[6];
  assert_int_equal(corpus_count(c, CORPUS_VAL), 3);
  corpus_read(c, CORPUS_VAL, 1, 2, got);
  assert_int_equal(got[0], 8);
  assert_int_equal(got[1], 7);
  corpus_read(c, CORPUS_TRAIN, 2, 3, got);
  assert_int_equal(got[0], 'c');
  assert_int_equal(got[1], 1);
  assert_int_equal(got[2], 2);
  assert_int_equal(corpus_text_bytes(c), 0); /* one of them holds ids */
  expect_ids(c, (int32_t[]){'a', 'b', 'c', 1, 2, 'd'}, 6);
}

static void the_last_share_is_held_out(void **state) {
  (void)state;
  char data[1000];
  for (size_t i = 0; i < sizeof data; i++) data[i] = (char)(i % 251);
  const char *path = put("s.txt", data, sizeof data);
  corpus_options o = {
      .files = &path, .file_count = 1, .val_fraction = 0.05, .tokenizer = &bytes, .vocab = 256, .window = 8};
  corpus *c = open_ok(&o);
  char key[33];
  assert_int_equal(corpus_count(c, CORPUS_TRAIN), 950);
  assert_int_equal(corpus_count(c, CORPUS_VAL), 50);
  assert_int_equal(corpus_val_windows(c, 8, 0), 7); /* 49 predicted ids: 6 x 8 + 1 */
  int32_t tokens[8], targets[8];
  assert_int_equal(corpus_val_window(c, 8, 0, 7, tokens, targets), 8);
  assert_int_equal(tokens[0], 950 % 251);
  assert_int_equal(targets[7], 958 % 251);
  assert_int_equal(corpus_val_window(c, 8, 6, 7, tokens, targets), 1);
  assert_int_equal(targets[0], 999 % 251);
  assert_int_equal(targets[1], -1);
  assert_int_equal(corpus_val_windows(c, 8, 3), 3);
  assert_int_equal(corpus_val_window(c, 8, 2, 3, tokens, targets), 8);
  assert_int_equal(tokens[0], (950 + 8 * 4) % 251); /* spread evenly: 2 * 7 / 3 */
  strcpy(key, corpus_key(c));
  corpus_close(c);
  o.val_fraction = 0.1;
  c = open_ok(&o);
  assert_string_not_equal(corpus_key(c), key);
  corpus_close(c);
  o.val_fraction = 0;
  c = open_ok(&o);
  assert_int_equal(corpus_val_windows(c, 8, 0), 0);
  corpus_close(c);
}

static void windows_are_drawn_evenly(void **state) {
  (void)state;
  unsigned seen[5] = {0};
  for (uint64_t step = 1; step <= 1000; step++)
    for (uint32_t i = 0; i < 4; i++) {
      uint64_t o = corpus_window(12, 7, 42, step, i % 2, i);
      assert_true(o < 5); /* 5 + 7 ids, 1 more target: offsets 0 .. 4 */
      seen[o]++;
    }
  for (size_t i = 0; i < 5; i++) assert_in_range(seen[i], 700, 900);
  assert_int_equal(corpus_window(8, 7, 1, 1, 0, 0), 0);
  assert_int_equal(corpus_window(1u << 30, 7, 5, 9, 2, 3), corpus_window(1u << 30, 7, 5, 9, 2, 3));
  assert_true(corpus_window(1u << 30, 7, 5, 9, 2, 3) != corpus_window(1u << 30, 7, 6, 9, 2, 3));
  assert_true(corpus_window(1u << 30, 7, 5, 9, 2, 3) != corpus_window(1u << 30, 7, 5, 9, 1, 3));
  assert_true(corpus_window(1u << 30, 7, 5, 9, 2, 3) != corpus_window(1u << 30, 7, 5, 9 + (1ull << 32), 2, 3));
  const char *path = put("w.txt", "abcdefghij", 10);
  corpus_options o = {.files = &path, .file_count = 1, .tokenizer = &bytes, .vocab = 256, .window = 4};
  corpus *c = open_ok(&o);
  int32_t tokens[12], targets[12];
  corpus_batch(c, 3, 1, 0, 3, 4, tokens, targets);
  for (size_t i = 0; i < 12; i++) assert_int_equal(targets[i], tokens[i] + 1);
  for (uint32_t i = 0; i < 3; i++) assert_int_equal(tokens[4 * i], 'a' + (int)corpus_window(10, 4, 3, 1, 0, i));
  corpus_close(c);
}

static size_t kept_count(char *out_name) {
  size_t n = 0;
  DIR *d = opendir(folder);
  for (struct dirent *e; (e = readdir(d));) {
    size_t k = strlen(e->d_name);
    if (k < 8 || strcmp(e->d_name + k - 7, ".tokens") != 0) continue;
    strcpy(out_name, e->d_name);
    n++;
  }
  closedir(d);
  return n;
}

static void made_ids_are_kept(void **state) {
  (void)state;
  char name[300];
  const int32_t ids[] = {5, 6, 70000};
  const char *path = put("k.ids", "5,6,70000", 9);
  corpus_options o = {.files = &path, .file_count = 1, .vocab = 100000};
  expect_ids(open_ok(&o), ids, 3);
  assert_int_equal(kept_count(name), 0); /* only when asked for */
  o.keep_tokens = true;
  expect_ids(open_ok(&o), ids, 3);
  assert_int_equal(kept_count(name), 1);
  FILE *f = fopen(at(name), "r+b");
  fwrite("\7", 1, 1, f); /* damaged: made anew */
  fclose(f);
  expect_ids(open_ok(&o), ids, 3);
  assert_int_equal(truncate(at(name), 20), 0); /* cut off: made anew */
  expect_ids(open_ok(&o), ids, 3);
  o.keep_tokens = false;
  struct stat s;
  assert_int_equal(stat(at(name), &s), 0);
  assert_int_equal(s.st_size, 12 + 160);
  expect_ids(open_ok(&o), ids, 3);
  assert_int_equal(unlink(at(name)), 0);
  assert_int_equal(mkdir(at(name), 0700), 0); /* cannot be written: memory holds the ids */
  o.keep_tokens = true;
  expect_ids(open_ok(&o), ids, 3);
  assert_int_equal(rmdir(at(name)), 0);
  path = put("k.ids", "5,6", 3); /* other data: another key */
  expect_ids(open_ok(&o), ids, 2);
  path = put("bad.ids", "5 x", 3);
  refuse(&o, "bad.ids: byte 2: 'x' is not an id");
}

static void refusals_name_the_place(void **state) {
  (void)state;
  const char *path = NULL;
  corpus_options o = {
      .files = &path, .file_count = 1, .tokenizer = &bytes, .vocab = 256, .window = 4, .val_fraction = 0.05};
  const struct {
    const char *name, *data;
    size_t n;
    const char *word;
  } bad[] = {{"e.txt", "", 0, "is an empty file"},
             {"s.txt", "abcd", 4, "3 ids to train on are too few for a window of 4, which needs 5"},
             {"s2.txt", "abcdefghij", 10, "1 ids to validate on are too few"},
             {"o.u16", "abc", 3, "3 bytes are no whole number of 2-byte ids"},
             {"r.u16", "\1\0\0\1\2\0", 6, "r.u16: id 256 (number 2 of 3) is outside the vocabulary of 256"},
             {"r.u32", "\1\0\0\0\377\377\377\377", 8, "id 4294967295 (number 2 of 2)"},
             {"n.ids", "1 -2", 4, "the id -2 is outside every vocabulary"},
             {"m.ids", " \n", 2, "there is no id"},
             {"b.bin", "abcd", 4, "has no llm.c header"},
             {"l.txt", "version https://git-lfs.github.com/spec/v1\n", 43, "is a Git LFS pointer; fetch"},
             {"l.u16", "version https://git-lfs.github.com/spec/v1\n", 43, "is a Git LFS pointer; fetch"},
             {"z.txt", "\x1f\x8b\x08", 3, "gzip-compressed data; unpack"},
             {"g.txt", "GGUF\3", 5, "is a GGUF model; give text or ids"}};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    path = put(bad[i].name, bad[i].data, bad[i].n);
    refuse(&o, bad[i].word);
  }
  path = folder;
  refuse(&o, "is a directory");
  path = at("none.txt");
  refuse(&o, "No such file");
  path = put("t.txt", "abcdefgh", 8);
  o.tokenizer = NULL;
  refuse(&o, "is text, and the model has no tokenizer");
  o.tokenizer = &bytes;
  o.file_count = 0;
  refuse(&o, "no data file");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(kinds_go_by_the_name),       cmocka_unit_test(files_follow_one_another),
      cmocka_unit_test(the_last_share_is_held_out), cmocka_unit_test(windows_are_drawn_evenly),
      cmocka_unit_test(made_ids_are_kept),          cmocka_unit_test(refusals_name_the_place),
  };
  return cmocka_run_group_tests(tests, open_sink, close_sink);
}
