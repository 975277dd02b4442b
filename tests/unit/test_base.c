/* Base: status, arena, text, numbers under every locale, files, hashes, JSON events. */
#include "runtime/base/arena.h"
#include "runtime/base/checked.h"
#include "runtime/base/file.h"
#include "runtime/base/hash.h"
#include "runtime/base/json_scan.h"
#include "runtime/base/philox.h"
#include "runtime/base/text.h"

#include <fcntl.h>
#include <float.h>
#include <locale.h>
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[64];

static int setup(void **state) {
  (void)state;
  strcpy(folder, "/tmp/taper-base-XXXXXX");
  return mkdtemp(folder) ? 0 : -1;
}

static int teardown(void **state) {
  (void)state;
  char command[128];
  snprintf(command, sizeof command, "rm -rf %s", folder);
  return system(command);
}

static const char *in_folder(const char *name) {
  static char path[4][128];
  static unsigned next;
  char *out = path[next++ % 4];
  snprintf(out, 128, "%s/%s", folder, name);
  return out;
}

static size_t entries(void) {
  char command[128], line[16] = "";
  snprintf(command, sizeof command, "ls -A %s | wc -l", folder);
  FILE *p = popen(command, "r");
  assert_non_null(fgets(line, sizeof line, p));
  pclose(p);
  return (size_t)atoi(line);
}

static void test_status(void **state) {
  (void)state;
  taper_error e = {0};
  assert_int_equal(taper_fail(&e, TAPER_INVALID, "a%cb\x1b[2J %s", '\n', "gr\xc3\xbc\xc3\x9f \xff"), TAPER_INVALID);
  assert_int_equal(e.status, TAPER_INVALID);
  assert_string_equal(e.message, "a?b?[2J gr\xc3\xbc\xc3\x9f ?");
  assert_int_equal(taper_add_context(&e, TAPER_IO, "file %d", 3), TAPER_IO);
  assert_string_equal(e.message, "file 3: a?b?[2J gr\xc3\xbc\xc3\x9f ?");
  assert_int_equal(taper_fail(NULL, TAPER_IO, "x"), TAPER_IO);
  for (size_t pad = 0; pad < 4; pad++) { /* the end, where the remedy stands, is kept; no character is cut in two */
    char longer[3001];
    for (size_t i = 0; i < 3000; i += 2) memcpy(longer + i, "\xc3\xbc", 3);
    taper_fail(&e, TAPER_IO, "%.*sfile %s; remedy", (int)pad, "abcd", longer);
    assert_true(strlen(e.message) > sizeof e.message - 5 && strlen(e.message) < sizeof e.message);
    assert_memory_equal(e.message + pad, "file \xc3\xbc", 7);
    assert_string_equal(e.message + strlen(e.message) - 10, "\xc3\xbc; remedy");
    assert_non_null(strstr(e.message, "\xc3\xbc...\xc3\xbc"));
    assert_null(strchr(e.message, '?'));
  }
  for (int i = 0; i < 900; i++) taper_add_context(&e, TAPER_IO, "c");
  assert_true(strlen(e.message) < sizeof e.message);
  assert_memory_equal(e.message, "c: c: ", 6);
  taper_fail(&e, TAPER_IO, "self");
  taper_fail(&e, TAPER_IO, "again: %s", e.message);
  assert_string_equal(e.message, "again: self");
}

static void test_arena(void **state) {
  (void)state;
  arena a = {0};
  unsigned char *blocks[3000];
  for (size_t i = 0; i < 3000; i++) {
    size_t n = i % 7 == 0 ? i * 13 : i % 97;
    blocks[i] = arena_alloc(&a, n);
    assert_true((uintptr_t)blocks[i] % 16 == 0);
    for (size_t k = 0; k < n; k++) assert_int_equal(blocks[i][k], 0);
    memset(blocks[i], (int)(i % 251), n);
  }
  for (size_t i = 0; i < 3000; i++) {
    size_t n = i % 7 == 0 ? i * 13 : i % 97;
    for (size_t k = 0; k < n; k++) assert_int_equal(blocks[i][k], i % 251);
  }
  assert_string_equal(arena_printf(&a, "%d %s", 7, "x"), "7 x");
  assert_string_equal(arena_strndup(&a, "abcdef", 3), "abc");
  char *big = arena_printf(&a, "%70000d", 1);
  assert_int_equal(strlen(big), 70000);
  arena_free(&a);
  assert_null(a.head);
  arena_free(&a);
}

static jmp_buf no_memory_jump;
static void no_memory(size_t bytes) {
  (void)bytes;
  longjmp(no_memory_jump, 1);
}

static void test_arena_overflow(void **state) {
  (void)state;
  arena a = {0};
  volatile int caught = 0;
  arena_on_no_memory(no_memory);
  if (setjmp(no_memory_jump) == 0) {
    arena_alloc_array(&a, 16, SIZE_MAX / 8);
  } else {
    caught = 1;
  }
  arena_on_no_memory(NULL);
  assert_true(caught);
  arena_free(&a);
}

static const char *shown(text *t) {
  static char out[200];
  snprintf(out, sizeof out, "%s", t->data ? t->data : "");
  text_free(t);
  return out;
}

static const char *shortest(double value) {
  text t = {0};
  text_put_double(&t, value);
  return shown(&t);
}

static const char *hexed(double value) {
  text t = {0};
  text_put_hex(&t, value);
  return shown(&t);
}

static void test_numbers(void **state) {
  (void)state;
  assert_string_equal(shortest(1e-06), "1e-06");
  assert_string_equal(shortest(0.1), "0.1");
  assert_string_equal(shortest(-0.0), "-0");
  assert_string_equal(shortest(1), "1");
  assert_string_equal(shortest(1e22), "1e+22");
  assert_string_equal(shortest(5e-324), "5e-324");
  assert_string_equal(shortest(DBL_MAX), "1.7976931348623157e+308");
  assert_string_equal(shortest(NAN), "nan");
  assert_string_equal(shortest(-NAN), "nan");
  assert_string_equal(shortest(-INFINITY), "-inf");
  assert_string_equal(hexed(3.0), "0x1.8p+1");
  assert_string_equal(hexed(-0.0), "-0x0p+0");
  assert_string_equal(hexed(INFINITY), "inf");
  text t = {0};
  text_printf(&t, "%.2f", 0.5);
  assert_string_equal(shown(&t), "0.50");
  double d;
  for (uint32_t i = 0; i < 20000; i++) {
    uint32_t r[4];
    philox4x32(1, PHILOX_CHECK, 0, 0, i, r);
    uint64_t bits = (uint64_t)r[0] << 32 | r[1];
    double value;
    memcpy(&value, &bits, sizeof value);
    if (!isfinite(value)) continue;
    const char *s = shortest(value);
    assert_true(number_parse_double(s, strlen(s), &d));
    assert_memory_equal(&d, &value, sizeof d);
    s = hexed(value);
    assert_true(number_parse_double(s, strlen(s), &d));
    assert_memory_equal(&d, &value, sizeof d);
  }
  static const char *const wrong[] = {"",   " 1",       "1 ",     "1,5",  "0x",  "1e999", "-1e999", "1e",
                                      "..", "infinity", "nan(1)", "1.5f", "--1", "+-1",   "e5",     "INF"};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
    assert_false(number_parse_double(wrong[i], strlen(wrong[i]), &d));
  assert_true(number_parse_double("-inf", 4, &d) && isinf(d) && d < 0);
  assert_true(number_parse_double("nan", 3, &d) && isnan(d));
  assert_true(number_parse_double("1.5xyz", 3, &d) && d == 1.5);
  assert_false(number_parse_double("1e-400", 6, &d)); /* too small for a double: it is not 0 */
  assert_true(number_parse_double("0e-400", 6, &d) && d == 0 && number_parse_double("-0x0.0p-9", 9, &d) && d == 0);
  int64_t i64;
  uint64_t u64;
  assert_true(number_parse_i64("-9223372036854775808", 20, &i64) && i64 == INT64_MIN);
  assert_true(number_parse_i64("0x7fffffffffffffff", 18, &i64) && i64 == INT64_MAX);
  assert_true(number_parse_u64("18446744073709551615", 20, &u64) && u64 == UINT64_MAX);
  assert_true(number_parse_i64("010", 3, &i64) && i64 == 10);
  static const char *const wrong_int[] = {
      "", "-", "+", "9223372036854775808", "-9223372036854775809", "1.0", "1e3", "0x", "0xg", "--1", "-+1", "1 ", "a"};
  for (size_t i = 0; i < sizeof wrong_int / sizeof *wrong_int; i++)
    assert_false(number_parse_i64(wrong_int[i], strlen(wrong_int[i]), &i64));
  assert_false(number_parse_u64("18446744073709551616", 20, &u64));
  assert_false(number_parse_u64("-1", 2, &u64));
}

static void test_numbers_comma_locale(void **state) {
  static const char *const commas[] = {"de_DE.UTF-8", "de_DE.utf8", "de_DE", "fr_FR.utf8"};
  bool set = false;
  for (size_t i = 0; i < 4 && !set; i++) set = setlocale(LC_ALL, commas[i]) != NULL;
  if (!set) skip();
  char probe[16];
  snprintf(probe, sizeof probe, "%.1f", 0.5);
  assert_string_equal(probe, "0,5");
  test_numbers(state);
  taper_error e = {0};
  taper_fail(&e, TAPER_INVALID, "%g", 0.25);
  assert_string_equal(e.message, "0.25");
  snprintf(probe, sizeof probe, "%.1f", 0.5); /* and the caller's locale is as it was */
  assert_string_equal(probe, "0,5");
  setlocale(LC_ALL, "C");
}

static void test_text(void **state) {
  (void)state;
  text t = {0};
  text_put_quoted(&t, "a\"\\\n\t\x01\x7f\xc3\xbc\xff\xed\xa0\x80", 13, false);
  assert_string_equal(shown(&t), "\"a\\\"\\\\\\n\\t\\x01\\x7f\xc3\xbc\\xff\\xed\\xa0\\x80\"");
  text_put_quoted(&t, "a\x01\xff\0z", 5, true);
  assert_string_equal(shown(&t), "\"a\\u0001\\ufffd\\u0000z\"");
  for (int i = 0; i < 10000; i++) text_printf(&t, "%d,", i % 10);
  assert_int_equal(t.size, 20000);
  assert_int_equal(strlen(t.data), 20000);
  text_printf(&t, "%300d", 1);
  assert_int_equal(t.size, 20300);
  assert_false(t.failed);
  text_free(&t);
  struct {
    const char *s;
    size_t n;
  } cases[] = {{"a", 1},
               {"\xc3\xbc", 2},
               {"\xe2\x82\xac", 3},
               {"\xf0\x9f\x98\x80", 4},
               {"\xc0\x80", 0},
               {"\xc3", 0},
               {"\xe0\x80\x80", 0},
               {"\xed\xa0\x80", 0},
               {"\xf4\x90\x80\x80", 0},
               {"\x80", 0},
               {"\xf0\x9f\x98", 0},
               {"", 0}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    assert_int_equal(utf8_length(cases[i].s, strlen(cases[i].s)), cases[i].n);
}

static void write_plain(const char *path, const char *content) {
  FILE *f = fopen(path, "w");
  assert_non_null(f);
  fputs(content, f);
  fclose(f);
}

static void assert_content(const char *path, const char *content) {
  char *data;
  size_t n;
  taper_error e;
  assert_int_equal(file_read(path, 1 << 20, &data, &n, &e), TAPER_OK);
  assert_string_equal(data, content);
  assert_int_equal(n, strlen(content));
  free(data);
}

static void test_files(void **state) {
  (void)state;
  taper_error e = {0};
  mapped_file m;
  assert_int_equal(file_map(in_folder("none"), &m, &e), TAPER_IO);
  assert_non_null(strstr(e.message, "No such file or directory; check the path"));
  assert_int_equal(file_map(folder, &m, &e), TAPER_IO);
  assert_non_null(strstr(e.message, "is a directory"));
  assert_int_equal(file_map("/dev/zero", &m, &e), TAPER_IO);
  const char *pipe_path = in_folder("pipe");
  assert_int_equal(mkfifo(pipe_path, 0600), 0);
  assert_int_equal(file_map(pipe_path, &m, &e), TAPER_IO); /* and does not wait for a writer */
  unlink(pipe_path);
  const char *path = in_folder("gr\xc3\xbc\xc3\x9f e");
  write_plain(path, "");
  assert_int_equal(file_map(path, &m, &e), TAPER_OK);
  assert_null(m.data);
  file_unmap(&m);
  write_plain(path, "hello");
  assert_int_equal(file_map(path, &m, &e), TAPER_OK);
  assert_int_equal(m.size, 5);
  assert_memory_equal(m.data, "hello", 5);
  file_unmap(&m);
  file_unmap(&m);
  char *data;
  size_t n;
  assert_int_equal(file_read(path, 4, &data, &n, &e), TAPER_INVALID);
  assert_int_equal(file_read(path, 5, &data, &n, &e), TAPER_OK);
  free(data);
  assert_int_equal(file_read(folder, 4, &data, &n, &e), TAPER_IO);
  unlink(path);
}

static void test_writer(void **state) {
  (void)state;
  taper_error e = {0};
  file_writer w;
  const char *path = in_folder("out");
  write_plain(path, "old");
  assert_int_equal(file_writer_open(path, &w, &e), TAPER_OK);
  assert_int_equal(file_writer_put(&w, "new", 3, &e), TAPER_OK);
  assert_content(path, "old");
  file_writer_abort(&w);
  file_writer_abort(&w);
  assert_content(path, "old");
  assert_int_equal(entries(), 1);
  assert_int_equal(file_writer_open(path, &w, &e), TAPER_OK);
  size_t n = 3000000;
  char *big = malloc(n);
  for (size_t i = 0; i < n; i++) big[i] = (char)(i * 7 >> 3);
  for (size_t at = 0, step = 1; at < n; at += step, step = step * 3 % 400009 + 1) {
    if (step > n - at) step = n - at;
    assert_int_equal(file_writer_put(&w, big + at, step, &e), TAPER_OK);
  }
  assert_int_equal(w.written, n);
  assert_int_equal(file_writer_commit(&w, &e), TAPER_OK);
  file_writer_abort(&w);
  assert_int_equal(file_writer_put(&w, "x", 1, &e), TAPER_IO);
  assert_int_equal(file_writer_commit(&w, &e), TAPER_IO);
  mapped_file m;
  assert_int_equal(file_map(path, &m, &e), TAPER_OK);
  assert_int_equal(m.size, n);
  assert_memory_equal(m.data, big, n);
  file_unmap(&m);
  free(big);
  assert_int_equal(file_writer_open(in_folder("no/such"), &w, &e), TAPER_IO);
  assert_int_equal(file_writer_open(folder, &w, &e), TAPER_IO);
  const char *link = in_folder("link"); /* a link stays a link, a device stays a device */
  assert_int_equal(symlink("out", link), 0);
  assert_int_equal(file_writer_open(link, &w, &e), TAPER_OK);
  assert_int_equal(file_writer_put(&w, "via", 3, &e), TAPER_OK);
  assert_int_equal(file_writer_commit(&w, &e), TAPER_OK);
  struct stat info;
  assert_int_equal(lstat(link, &info), 0);
  assert_true(S_ISLNK(info.st_mode));
  assert_content(path, "via");
  unlink(link);
  assert_int_equal(file_writer_open("/dev/null", &w, &e), TAPER_OK);
  assert_int_equal(file_writer_put(&w, "x", 1, &e), TAPER_OK);
  assert_int_equal(file_writer_commit(&w, &e), TAPER_OK);
  assert_int_equal(stat("/dev/null", &info), 0);
  assert_true(S_ISCHR(info.st_mode));
  assert_int_equal(file_writer_open("/dev/full", &w, &e), TAPER_OK);
  assert_int_equal(file_writer_put(&w, "x", 1, &e), TAPER_OK);
  assert_int_equal(file_writer_commit(&w, &e), TAPER_IO);
  assert_non_null(strstr(e.message, "/dev/full: cannot write: No space left on device; free some space"));
  unlink(path);
}

static void test_writer_disk_full(void **state) {
  (void)state;
  taper_error e = {0};
  file_writer w;
  const char *path = in_folder("kept");
  write_plain(path, "old");
  struct rlimit old, small;
  getrlimit(RLIMIT_FSIZE, &old);
  small = old;
  small.rlim_cur = 300000;
  signal(SIGXFSZ, SIG_IGN);
  char *big = calloc(1, 200000);
  assert_int_equal(file_writer_open(path, &w, &e), TAPER_OK);
  setrlimit(RLIMIT_FSIZE, &small);
  taper_status status = TAPER_OK;
  for (int i = 0; i < 4 && status == TAPER_OK; i++) status = file_writer_put(&w, big, 200000, &e);
  taper_status commit = file_writer_commit(&w, NULL);
  setrlimit(RLIMIT_FSIZE, &old);
  free(big);
  assert_int_equal(status, TAPER_IO);
  assert_int_equal(commit, TAPER_IO);
  assert_non_null(strstr(e.message, "cannot write: File too large"));
  assert_content(path, "old");
  assert_int_equal(entries(), 1);
  unlink(path);
}

static void test_hash(void **state) {
  (void)state;
  assert_string_equal(hash_bytes(NULL, 0).hex, "99aa06d3014798d86001c324468d497f"); /* published test vectors */
  assert_string_equal(hash_bytes("a", 1).hex, "a96faf705af16834e6c632b61e964e1f");
  uint8_t data[5000];
  for (size_t i = 0; i < sizeof data; i++) data[i] = (uint8_t)(i * i);
  hash_stream *h = hash_begin();
  for (size_t at = 0; at < sizeof data; at += 125) hash_update(h, data + at, 125);
  assert_string_equal(hash_end(h).hex, hash_bytes(data, sizeof data).hex);
}

static const char *scan_all(const char *s) {
  static text out;
  static const char marks[] = "!.{}[]ksntfz";
  json_scan scan;
  text_free(&out);
  json_scan_init(&scan, s, strlen(s));
  for (;;) {
    json_event e = json_scan_next(&scan);
    text_printf(&out, "%c", marks[e.kind]);
    if (e.kind == JS_ERROR) text_printf(&out, "%zu %s", e.start, scan.error);
    if (e.kind == JS_ERROR || e.kind == JS_END) return out.data;
  }
}

static void test_json(void **state) {
  (void)state;
  assert_string_equal(scan_all(" {\"a\" : [1, -2.5e+3, true,false , null,{}] , \"b\":\"c\"}\n"), "{k[nntfz{}]ks}.");
  assert_string_equal(scan_all("[]"), "[].");
  assert_string_equal(scan_all("7"), "n.");
  static const char *const wrong[][2] = {{"", "!0 the text is empty"},
                                         {"[1,]", "[n!3 not a JSON value"},
                                         {"[1 2]", "[n!3 a ',' or ']' must stand here"},
                                         {"{\"a\":1,}", "{kn!7 a key in double quotes must stand here"},
                                         {"{\"a\" 1}", "{!5 a ':' must stand here"},
                                         {"{a:1}", "{!1 a key in double quotes must stand here"},
                                         {"[1}", "[n!2 a ',' or ']' must stand here"},
                                         {"1 2", "n!2 text after the end of the JSON value"},
                                         {"01", "!0 a malformed number"},
                                         {"[-]", "[!1 a malformed number"},
                                         {"1.", "!0 a malformed number"},
                                         {"1e", "!0 a malformed number"},
                                         {"NaN", "!0 not a JSON value"},
                                         {"tru", "!0 not a JSON value"},
                                         {"\"abc", "!0 a string that does not end"},
                                         {"\"a\nb\"", "!2 a control character inside a string"},
                                         {"\"\\x\"", "!1 a malformed escape"},
                                         {"\"\\ud800\"", "!1 a malformed escape"},
                                         {"\"\\udc00\"", "!1 a malformed escape"},
                                         {"\"\\ud800\\u0041\"", "!1 a malformed escape"},
                                         {"\"\xff\"", "!1 bytes that are not UTF-8"},
                                         {"\"\xed\xa0\x80\"", "!1 bytes that are not UTF-8"},
                                         {"[", "[!1 the text ends inside a JSON value"},
                                         {"{\"a\":", "{k!5 the text ends inside a JSON value"},
                                         {"\xef\xbb\xbf{}", "!0 not a JSON value"}};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) assert_string_equal(scan_all(wrong[i][0]), wrong[i][1]);
  size_t n = 100000;
  char *deep = calloc(1, n + 1);
  memset(deep, '[', n);
  assert_non_null(strstr(scan_all(deep), "!64 nested deeper than 64 levels"));
  free(deep);
}

static void test_json_values(void **state) {
  (void)state;
  const char *s = "{\"\\u00fc\\ud83d\\ude00\\n\\u0000\":[1,18446744073709551615,18446744073709551616,-1,1.0,1e400],"
                  "\"b\":{\"c\":[1,{}]},\"d\":2}";
  json_scan scan;
  json_scan_init(&scan, s, strlen(s));
  json_scan_next(&scan);
  json_event e = json_scan_next(&scan);
  char out[64];
  bool nul;
  assert_int_equal(json_decode(&scan, e, out, &nul), 8);
  assert_memory_equal(out, "\xc3\xbc\xf0\x9f\x98\x80\n\0", 9);
  assert_true(nul);
  json_scan_next(&scan);
  uint64_t v;
  double d;
  bool good[] = {true, true, false, false, false, false};
  for (size_t i = 0; i < 6; i++) {
    e = json_scan_next(&scan);
    assert_int_equal(json_u64(&scan, e, &v), good[i]);
    assert_int_equal(json_double(&scan, e, &d), i < 5);
  }
  assert_int_equal(json_scan_next(&scan).kind, JS_ARRAY_END);
  e = json_scan_next(&scan);
  assert_true(json_is(&scan, e, "b") && !json_is(&scan, e, "bb") && !json_is(&scan, e, ""));
  assert_true(json_scan_skip(&scan));
  e = json_scan_next(&scan);
  assert_true(json_is(&scan, e, "d"));
  assert_true(json_scan_skip(&scan));
  assert_int_equal(json_scan_next(&scan).kind, JS_OBJECT_END);
  assert_int_equal(json_scan_next(&scan).kind, JS_END);
  assert_int_equal(json_scan_next(&scan).kind, JS_END);
}

static void test_guess(void **state) {
  (void)state;
  static const char *const cases[][2] = {{"version https://git-lfs.github.com/spec/v1\n", "a Git LFS pointer"},
                                         {"\n <!DOCTYPE HTML>", "an HTML page"},
                                         {"\xef\xbb\xbf<html>", "an HTML page"},
                                         {"GGUF\3", "a GGUF model"},
                                         {"PK\3\4xx", "a ZIP archive (PyTorch saves these)"},
                                         {"\x89PNG\r\n", "a PNG picture"},
                                         {"{\"a\":1}", "JSON text"},
                                         {"", "an empty file"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    assert_string_equal(file_guess(cases[i][0], strlen(cases[i][0]), NULL), cases[i][1]);
  assert_null(file_guess("abc", 3, NULL));
}

static void test_philox(void **state) {
  (void)state;
  uint32_t out[4]; /* kat_vectors of the reference implementation */
  philox4x32(0, 0, 0, 0, 0, out);
  uint32_t zero[4] = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
  assert_memory_equal(out, zero, sizeof out);
  philox4x32(UINT64_MAX, ~0u, ~0u, ~0u, ~0u, out);
  uint32_t ones[4] = {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd};
  assert_memory_equal(out, ones, sizeof out);
  assert_true(philox_uniform(0) > 0 && philox_uniform(~0u) < 1);
  uint64_t u = 5;
  assert_false(checked_mul_u64(UINT64_MAX, 2, &u));
  assert_false(checked_add_u64(UINT64_MAX, 1, &u));
  assert_int_equal(u, 5);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_status),
      cmocka_unit_test(test_arena),
      cmocka_unit_test(test_arena_overflow),
      cmocka_unit_test(test_numbers),
      cmocka_unit_test(test_numbers_comma_locale),
      cmocka_unit_test(test_text),
      cmocka_unit_test(test_files),
      cmocka_unit_test(test_writer),
      cmocka_unit_test(test_writer_disk_full),
      cmocka_unit_test(test_hash),
      cmocka_unit_test(test_json),
      cmocka_unit_test(test_json_values),
      cmocka_unit_test(test_guess),
      cmocka_unit_test(test_philox),
  };
  return cmocka_run_group_tests(tests, setup, teardown);
}
