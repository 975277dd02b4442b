/* Weights: folders, shards and their index, gates, conversion, non-finite scan, sniffing. */
#include "compiler/formats/sniff.h"
#include "compiler/formats/weights.h"
#include "runtime/base/text.h"

#include <locale.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[64];

static int setup(void **state) {
  (void)state;
  strcpy(folder, "/tmp/taper-w-XXXXXX");
  return mkdtemp(folder) ? 0 : -1;
}

static int teardown(void **state) {
  (void)state;
  char command[128];
  snprintf(command, sizeof command, "rm -rf %s", folder);
  return system(command);
}

static const char *path_of(const char *name) {
  static char path[8][192];
  static unsigned next;
  char *out = path[next++ % 8];
  snprintf(out, 192, "%s/%s", folder, name);
  return out;
}

static void write_bytes(const char *path, const void *data, size_t n) {
  FILE *f = fopen(path, "w");
  assert_non_null(f);
  assert_int_equal(fwrite(data, 1, n, f), n);
  fclose(f);
}

static void write_text(const char *path, const char *s) { write_bytes(path, s, strlen(s)); }

static const float numbers[6] = {1, -2, 3, -4, 5, -6};

/* A file with tensors "NAME.w" f32[2,3] and, where gates is not NULL, that metadata. */
static void write_shard(const char *path, const char *const *names, size_t n, const char *gates) {
  st_source s[8];
  st_pair meta = {"taper.gates", gates};
  for (size_t i = 0; i < n; i++) s[i] = (st_source){names[i], ST_F32, 2, {2, 3}, numbers};
  taper_error e = {0};
  if (st_write(path, s, n, &meta, gates != NULL, 64, &e) != TAPER_OK) fail_msg("%s", e.message);
}

static void refused(const char *path, const char *expected) {
  weight_set set;
  taper_error e = {0};
  assert_int_not_equal(weights_open(path, &set, &e), TAPER_OK);
  if (!strstr(e.message, expected)) fail_msg("got %s\nexpected %s", e.message, expected);
  assert_null(set.priv);
}

static void test_folder(void **state) {
  (void)state;
  static const char *const both[] = {"b.w", "a.w"}, *const other[] = {"other"};
  weight_set set;
  taper_error e = {0};
  assert_int_equal(mkdir(path_of("m \xc3\xbc"), 0700), 0);
  refused(path_of("m \xc3\xbc"),
          "holds no weights.safetensors, model.safetensors or model.safetensors.index.json; name");
  refused(path_of("none"), "cannot open: No such file or directory");
  refused("", "the name of the weights is empty");
  write_shard(path_of("m \xc3\xbc/model.safetensors"), other, 1, NULL);
  write_shard(path_of("m \xc3\xbc/weights.safetensors"), both, 2, NULL);
  const char *paths[] = {path_of("m \xc3\xbc"), path_of("m \xc3\xbc/"), path_of("m \xc3\xbc/weights.safetensors")};
  for (size_t i = 0; i < 3; i++) {
    assert_int_equal(weights_open(paths[i], &set, &e), TAPER_OK);
    assert_int_equal(set.count, 2); /* without the padding between them */
    assert_string_equal(set.weights[0].tensor->name, "a.w");
    assert_null(weights_find(&set, "other"));
    weight *w = weights_find(&set, "a.w");
    assert_non_null(w);
    assert_false(w->consumed);
    size_t cursor = 0;
    assert_ptr_equal(weights_unconsumed(&set, &cursor), w);
    const float *data;
    assert_int_equal(weights_f32(&set, w, &data, &e), TAPER_OK);
    assert_ptr_equal(data, w->tensor->data); /* not copied */
    assert_memory_equal(data, numbers, sizeof numbers);
    cursor = 0;
    assert_string_equal(weights_unconsumed(&set, &cursor)->tensor->name, "b.w");
    assert_null(weights_unconsumed(&set, &cursor));
    weights_consume(weights_find(&set, "b.w"));
    cursor = 0;
    assert_null(weights_unconsumed(&set, &cursor));
    assert_false(set.has_gates);
    weights_close(&set);
    weights_close(&set);
  }
}

static void test_shards(void **state) {
  (void)state;
  static const char *const one[] = {"a", "c"}, *const two[] = {"b"}, *const extra[] = {"b", "d"},
                           *const again[] = {"b", "c"};
  assert_int_equal(mkdir(path_of("s"), 0700), 0);
  char index[192];
  strcpy(index, path_of("s/model.safetensors.index.json"));
  write_text(index, "{\"metadata\":{\"total_size\":72,\"x\":[{}]},\"weight_map\":{\"c\":\"1.safetensors\",\"b\":\"2."
                    "safetensors\",\"a\":\"1.safetensors\"}}");
  refused(path_of("s"), "2 of 2 shards missing; put them beside the index: 1.safetensors, 2.safetensors");
  write_shard(path_of("s/1.safetensors"), one, 2, "{\"g\":0}");
  refused(path_of("s"), "1 of 2 shards missing; put them beside the index: 2.safetensors");
  write_shard(path_of("s/2.safetensors"), two, 1, NULL);
  weight_set set;
  taper_error e = {0};
  const char *paths[] = {path_of("s"), index};
  for (size_t i = 0; i < 2; i++) {
    assert_int_equal(weights_open(paths[i], &set, &e), TAPER_OK);
    assert_int_equal(set.count, 3);
    assert_non_null(strstr(weights_find(&set, "b")->file, "/s/2.safetensors"));
    assert_non_null(strstr(weights_find(&set, "c")->file, "/s/1.safetensors"));
    assert_int_equal(set.gate_count, 1);
    weights_close(&set);
  }
  write_shard(path_of("s/2.safetensors"), two, 1, "{\"g\":1}");
  refused(path_of("s"), "metadata key 'taper.gates' differs from that of");
  write_shard(path_of("s/2.safetensors"), extra, 2, NULL);
  refused(path_of("s"), "tensor 'd': the index");
  write_shard(path_of("s/2.safetensors"), again, 2, NULL);
  refused(path_of("s"), "tensor 'c': also stands in");
  write_shard(path_of("s/2.safetensors"), one, 0, NULL);
  refused(path_of("s"), "tensor 'b': is not in 2.safetensors, where the index says it is");
  write_text(path_of("s/2.safetensors"), "version https://git-lfs.github.com/spec/v1\n");
  refused(path_of("s"), "2.safetensors: is a Git LFS pointer");
  static const char *const wrong[][2] = {
      {"{\"weight_map\":{\"a\":\"../1.safetensors\"}}", "shard name '../1.safetensors' is not a plain file name"},
      {"{\"weight_map\":{\"a\":\"/etc/passwd\"}}", "shard name '/etc/passwd' is not a plain file name"},
      {"{\"weight_map\":{\"a\":\"x\\\\y\"}}", "is not a plain file name"},
      {"{\"weight_map\":{\"a\":\"..\"}}", "is not a plain file name"},
      {"{\"weight_map\":{\"a\":\"\"}}", "is not a plain file name"},
      {"{\"weight_map\":{\"a\":\"1.safetensors\",\"a\":\"2.safetensors\"}}", "tensor 'a' stands twice"},
      {"{\"weight_map\":{\"a\":\"1.safetensors\\u0000\"}}", "a name holds a NUL character"},
      {"{\"weight_map\":{\"a\":1}}", "a shard's name must be a string"},
      {"{\"weight_map\":[]}", "weight_map must be an object"},
      {"{\"weight_map\":{}}", "names no tensor"},
      {"{\"other\":{}}", "unknown key"},
      {"{\"weight_map\":{\"a\":\"1.safetensors\"}", "the text ends inside"},
      {"{\"weight_map\":{\"a\":\"1.safetensors\"}}x", "text after the end"},
      {"[]", "the index must be an object"},
      {"", "the text is empty"}};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    write_text(index, wrong[i][0]);
    refused(index, wrong[i][1]);
  }
  size_t n = 100000;
  char *deep = calloc(1, n + 32);
  memset(deep, '[', n);
  memcpy(deep, "{\"metadata\":", 12);
  write_text(index, deep);
  refused(index, "nested deeper than 64 levels");
  free(deep);
}

static void test_gates(void **state) {
  (void)state;
  static const char *const name[] = {"a"};
  const char *path = path_of("g.safetensors");
  weight_set set;
  taper_error e = {0};
  write_shard(path, name, 1, "{\"internal\": [0, 0.25, 1e-3], \"fin\\u0061l\": 1.0, \"z\": -0.0}");
  bool comma = setlocale(LC_ALL, "de_DE.UTF-8") || setlocale(LC_ALL, "de_DE.utf8");
  assert_int_equal(weights_open(path, &set, &e), TAPER_OK);
  if (comma) setlocale(LC_ALL, "C");
  assert_int_equal(set.gate_count, 3);
  assert_string_equal(set.gates[0].name, "internal");
  assert_int_equal(set.gates[0].count, 3);
  assert_true(set.gates[0].values[1] == 0.25 && set.gates[0].values[2] == 1e-3);
  assert_string_equal(set.gates[1].name, "final");
  assert_true(set.gates[1].count == 1 && set.gates[1].values[0] == 1);
  weights_close(&set);
  write_shard(path, name, 1, "{}");
  assert_int_equal(weights_open(path, &set, &e), TAPER_OK);
  assert_true(set.has_gates && set.gate_count == 0);
  weights_close(&set);
  static const char *const wrong[][2] = {
      {"{\"a\":1.5}", "gate 'a': 1.5 is outside [0, 1]; correct it or override it with --gate a=V"},
      {"{\"a\":[0,-1e-9]}", "gate 'a': -1e-9 is outside [0, 1]"},
      {"{\"a\":1e999}", "gate 'a': 1e999 is outside [0, 1]"},
      {"{\"a\":NaN}", "byte 5: not a JSON value"},
      {"{\"a\":null}", "byte 5: a gate must be a number or an array of numbers"},
      {"{\"a\":\"0\"}", "a gate must be a number"},
      {"{\"a\":[[0]]}", "a gate must be a number"},
      {"{\"a\":[]}", "gate 'a': an empty array"},
      {"{\"a\":0,\"b\":0,\"a\":1}", "gate 'a' stands twice"},
      {"{\"\":0}", "a gate's name is empty"},
      {"[0]", "it must be an object"},
      {"{\"a\":0}x", "text after the end"},
      {"{\"a\":0", "the text ends inside"},
      {"", "the text is empty"}};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    write_shard(path, name, 1, wrong[i][0]);
    refused(path, wrong[i][1]);
    refused(path, "g.safetensors: metadata key 'taper.gates': ");
  }
}

static void test_types(void **state) {
  (void)state;
  uint16_t f16[5] = {0x3c00, 0x7c00, 0xfc01, 0x0001, 0xfc00}, bf16[2] = {0x3f80, 0x7fc0};
  double f64[3] = {0.1, -INFINITY, 1e-46}, wide[2] = {1, 3.5e38};
  int32_t i32[1] = {7};
  st_source s[] = {{"f16", ST_F16, 1, {5}, f16},       {"bf16", ST_BF16, 1, {2}, bf16}, {"f64", ST_F64, 1, {3}, f64},
                   {"wide", ST_F64, 1, {2}, wide},     {"i32", ST_I32, 1, {1}, i32},    {"none", ST_F16, 1, {0}, NULL},
                   {"f32", ST_F32, 2, {2, 3}, numbers}};
  taper_error e = {0};
  const char *path = path_of("t.safetensors");
  assert_int_equal(st_write(path, s, 7, NULL, 0, 1, &e), TAPER_OK);
  weight_set set;
  assert_int_equal(weights_open(path, &set, &e), TAPER_OK);
  const float *v;
  weight *w = weights_find(&set, "f16");
  assert_int_equal(weights_f32(&set, w, &v, &e), TAPER_OK);
  assert_true(v[0] == 1 && isinf(v[1]) && isnan(v[2]) && v[3] == 0x1p-24f && v[4] == -INFINITY);
  const float *second;
  assert_int_equal(weights_f32(&set, w, &second, &e), TAPER_OK);
  assert_ptr_equal(v, second);
  weight_scan scan = weights_scan(w);
  assert_true(scan.nan == 1 && scan.inf == 2 && scan.first == 1);
  assert_int_equal(weights_f32(&set, weights_find(&set, "bf16"), &v, &e), TAPER_OK);
  assert_true(v[0] == 1 && isnan(v[1]));
  assert_int_equal(weights_f32(&set, weights_find(&set, "f64"), &v, &e), TAPER_OK);
  assert_true(v[0] == 0.1f && v[1] == -INFINITY && v[2] == 0);
  assert_int_equal(weights_f32(&set, weights_find(&set, "wide"), &v, &e), TAPER_INVALID);
  assert_non_null(strstr(e.message, "tensor 'wide': element 1 is 3.5e+38, beyond the range of F32; rescale it"));
  assert_int_equal(weights_f32(&set, weights_find(&set, "i32"), &v, &e), TAPER_UNSUPPORTED);
  assert_non_null(strstr(e.message, "tensor 'i32': its type I32 is no float"));
  assert_false(weights_find(&set, "i32")->consumed);
  assert_int_equal(weights_f32(&set, weights_find(&set, "none"), &v, &e), TAPER_OK);
  assert_int_equal(weights_f32(&set, weights_find(&set, "f32"), &v, &e), TAPER_OK); /* at an odd place or not */
  assert_int_equal((uintptr_t)v % sizeof *v, 0);
  assert_memory_equal(v, numbers, sizeof numbers);
  scan = weights_scan(weights_find(&set, "f32"));
  assert_true(scan.nan == 0 && scan.inf == 0);
  weights_close(&set);
}

static void test_scan_large(void **state) {
  (void)state;
  enum { N = 5000 };
  static float data[N];
  for (size_t i = 0; i < N; i++) data[i] = (i % 2 ? 1.0f : -1.0f) * 3e38f; /* finite, though no sum of them is */
  st_tensor t = {
      .name = "x", .dtype = ST_F32, .rank = 1, .shape = {N}, .elements = N, .bytes = sizeof data, .data = data};
  weight w = {.tensor = &t};
  weight_scan scan = weights_scan(&w);
  assert_true(scan.nan == 0 && scan.inf == 0);
  size_t places[] = {0, 1023, 1024, 2047, 4999};
  for (size_t i = 0; i < 5; i++) {
    float old = data[places[i]];
    data[places[i]] = i % 2 ? INFINITY : NAN;
    scan = weights_scan(&w);
    assert_true(scan.nan == !(i % 2) && scan.inf == i % 2 && scan.first == places[i]);
    data[places[i]] = old;
  }
}

static void test_package_refused(void **state) {
  (void)state;
  st_source s = {"a", ST_F32, 2, {2, 3}, numbers};
  st_pair meta = {"taper.package", "1"};
  assert_int_equal(st_write(path_of("p.tpack"), &s, 1, &meta, 1, 64, NULL), TAPER_OK);
  refused(path_of("p.tpack"), "is a package, whose weights are folded; name the weights it was made from");
}

static void sniffed(const char *path, const char *word, const char *guess) {
  format_kind kind;
  const char *said;
  taper_error e = {0};
  assert_int_equal(formats_sniff(path, &kind, &said, &e), TAPER_OK);
  if (strcmp(format_kind_name(kind), word) != 0) fail_msg("%s: %s, expected %s", path, format_kind_name(kind), word);
  if (guess)
    assert_string_equal(said, guess);
  else
    assert_null(said);
}

static void sniffed_text(const char *name, const char *content, const char *word, const char *guess) {
  write_text(path_of(name), content);
  sniffed(path_of(name), word, guess);
}

static void test_sniff(void **state) {
  (void)state;
  static const char *const name[] = {"a"};
  write_shard(path_of("plain"), name, 1, NULL);
  sniffed(path_of("plain"), "safetensors", NULL);
  sniffed(path_of("p.tpack"), "package", NULL);
  sniffed_text("damaged", "x", "unknown", "text of another kind");
  write_bytes(path_of("damaged"), "\5\0\0\0\0\0\0\0{\"a\":", 13);
  sniffed(path_of("damaged"), "safetensors", NULL);
  sniffed_text("t1", "tir 1\nmodule", "tir", NULL);
  sniffed_text("t2", "// RUN: x\n\n/* y\n */ tir 1", "tir", NULL);
  sniffed_text("m1", "\xef\xbb\xbf// c\r\nmodel m(d = 1) {}", "tmodel", NULL);
  sniffed_text("m2.tmodel", "modle x", "tmodel", NULL);
  sniffed_text("m3", "modelling is fun", "unknown", "text of another kind");
  sniffed_text("m4", "/* never closed model", "unknown", "text of another kind");
  sniffed_text("gg", "GGUF\3", "gguf", NULL);
  sniffed_text("lfs.tmodel", "version https://git-lfs.github.com/spec/v1\n", "unknown", "a Git LFS pointer");
  sniffed_text("html", "<html>", "unknown", "an HTML page");
  sniffed_text("png", "\x89PNG\r\n\x1a\n", "unknown", "a PNG picture");
  sniffed_text("empty", "", "unknown", "an empty file");
  write_bytes(path_of("bin"), "ab\0\1\2", 5);
  sniffed(path_of("bin"), "unknown", "binary data");
  int32_t config[7] = {4, 8, 1, 2, 1, 10, 3};
  size_t floats =
      10 * 4 + (2 * 4 + 2 * 16 + 2 * 4 * 2 + 3 * 32) + 4 + 3 * 2; /* run.c, memory_map_weights, shared head */
  uint8_t *llama = calloc(1, 28 + 4 * floats);
  memcpy(llama, config, 28);
  write_bytes(path_of("l.bin"), llama, 28 + 4 * floats);
  sniffed(path_of("l.bin"), "llama2c", NULL);
  write_bytes(path_of("l.bin"), llama, 28 + 4 * floats - 4);
  sniffed(path_of("l.bin"), "unknown", "binary data");
  free(llama);
  assert_int_equal(mkdir(path_of("f"), 0700), 0);
  sniffed(path_of("f"), "folder", NULL);
  assert_int_equal(mkdir(path_of("f/checkpoint-x"), 0700), 0);
  sniffed(path_of("f"), "folder", NULL);
  assert_int_equal(mkdir(path_of("f/checkpoint-10"), 0700), 0);
  sniffed(path_of("f"), "checkpoint", NULL);
  write_text(path_of("f/checkpoint-10/manifest.json"), "{}");
  sniffed(path_of("f/checkpoint-10"), "checkpoint", NULL);
  format_kind kind;
  assert_int_equal(formats_sniff(path_of("no such"), &kind, NULL, NULL), TAPER_IO);
  assert_int_equal(formats_sniff("/dev/zero", &kind, NULL, NULL), TAPER_IO);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_folder), cmocka_unit_test(test_shards),     cmocka_unit_test(test_gates),
      cmocka_unit_test(test_types),  cmocka_unit_test(test_scan_large), cmocka_unit_test(test_package_refused),
      cmocka_unit_test(test_sniff),
  };
  return cmocka_run_group_tests(tests, setup, teardown);
}
