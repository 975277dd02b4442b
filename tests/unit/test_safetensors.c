/* Safetensors: what must be read, what must be refused and how it is said, the writer, numbers of every type. */
#include "runtime/base/file.h"
#include "runtime/base/safetensors.h"
#include "runtime/base/text.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[64];

static int setup(void **state) {
  (void)state;
  strcpy(folder, "/tmp/taper-st-XXXXXX");
  return mkdtemp(folder) ? 0 : -1;
}

static int teardown(void **state) {
  (void)state;
  char command[128];
  snprintf(command, sizeof command, "rm -rf %s", folder);
  return system(command);
}

/* A file in memory: header text of n bytes and `data` bytes of 0, 1, 2, ... */
static uint8_t *image(const char *header, size_t n, size_t data, size_t *out_size) {
  uint8_t *out = malloc(8 + n + data);
  for (size_t i = 0; i < 8; i++) out[i] = (uint8_t)((uint64_t)n >> 8 * i);
  memcpy(out + 8, header, n);
  for (size_t i = 0; i < data; i++) out[8 + n + i] = (uint8_t)i;
  *out_size = 8 + n + data;
  return out;
}

static taper_status open_header(const char *header, size_t data, st_file *out, taper_error *error,
                                uint8_t **out_image) {
  size_t size;
  *out_image = image(header, strlen(header), data, &size);
  memset(error, 0, sizeof *error);
  return st_open_memory(*out_image, size, "f.safetensors", out, error);
}

static void refused(const char *header, size_t data, const char *expected) {
  st_file f;
  taper_error e;
  uint8_t *bytes;
  assert_int_not_equal(open_header(header, data, &f, &e, &bytes), TAPER_OK);
  if (!strstr(e.message, expected)) fail_msg("for %s\n  got      %s\n  expected %s", header, e.message, expected);
  assert_null(f.tensors);
  assert_non_null(strstr(e.message, "f.safetensors: "));
  assert_non_null(strstr(e.message, "; ")); /* a remedy */
  free(bytes);
}

#define T(shape, from, to) "{\"dtype\":\"U8\",\"shape\":[" shape "],\"data_offsets\":[" #from "," #to "]}"

static void test_legal(void **state) {
  (void)state;
  st_file f;
  taper_error e;
  uint8_t *bytes;
  assert_int_equal(open_header("{}", 0, &f, &e, &bytes), TAPER_OK);
  assert_int_equal(f.count, 0);
  assert_null(st_find(&f, "a"));
  assert_null(st_metadata(&f, "a"));
  st_close(&f);
  free(bytes);
  const char *header =
      "{\"z\":" T("3", 0, 3) ", \"\\u00fc \\\"q\\\"\" : {\"data_offsets\":[3,7],\"shape\":[],\"dtype\":\"F32\"},"
                             "\"__metadata__\":{\"k\":\"v\",\"a\":\"\"},\"empty\":" T("0,5", 3, 3) ",\"late\":" T(
                                 "2,0", 7, 7) ",\"\":" T("1,1,1,1,1,1,1,2", 7, 9) "}   \n\t ";
  assert_int_equal(open_header(header, 9, &f, &e, &bytes), TAPER_OK);
  assert_int_equal(f.count, 5);
  for (size_t i = 1; i < f.count; i++) assert_true(strcmp(f.tensors[i - 1].name, f.tensors[i].name) < 0);
  const st_tensor *t = st_find(&f, "\xc3\xbc \"q\"");
  assert_non_null(t);
  assert_int_equal(t->rank, 0);
  assert_int_equal(t->elements, 1);
  assert_int_equal(t->bytes, 4);
  assert_int_equal(t->offset, 8 + strlen(header) + 3);
  float value, expected; /* unaligned: offset 3 of an odd header */
  st_read_f32(t, 0, 1, &value);
  memcpy(&expected, "\3\4\5\6", 4);
  assert_true(value == expected);
  assert_int_equal(st_find(&f, "empty")->elements, 0);
  assert_int_equal(st_find(&f, "")->rank, 8);
  assert_string_equal(st_metadata(&f, "k"), "v");
  assert_string_equal(st_metadata(&f, "a"), "");
  assert_null(st_metadata(&f, "b"));
  st_close(&f);
  st_close(&f);
  free(bytes);
}

static void test_refused_header(void **state) {
  (void)state;
  refused("", 0, "byte 8: the header must begin with '{'");
  refused(" {}", 0, "byte 8: the header must begin with '{'");
  refused("[]", 0, "byte 8: the header must begin with '{'");
  refused("{", 0, "byte 9: header: the text ends inside a JSON value");
  refused("{}x", 0, "byte 10: header: text after the end");
  refused("{\"a\":" T("1", 0, 1) ",}", 1, "a key in double quotes must stand here");
  refused("{\"a\":1}", 0, "tensor 'a': its entry must be an object");
  refused("{\"a\":" T("1", 0, 1) ",\"a\":" T("1", 1, 2) "}", 2, "tensor 'a': the header names it twice");
  refused("{\"a\":" T("1", 0, 1) ",\"\\u0061\":" T("1", 1, 2) "}", 2, "tensor 'a': the header names it twice");
  refused("{\"a\\u0000b\":" T("1", 0, 1) "}", 1, "a name holds a NUL character");
  refused("{\"a\xff\":" T("1", 0, 1) "}", 1, "byte 11: header: bytes that are not UTF-8");
  refused("{\"__metadata__\":1}", 0, "__metadata__ must be an object");
  refused("{\"__metadata__\":{\"a\":1}}", 0, "a value in __metadata__ must be a string");
  refused("{\"__metadata__\":{\"a\":\"1\",\"b\":\"\",\"a\":\"2\"}}", 0, "metadata key 'a' stands twice");
  refused("{\"__metadata__\":{},\"__metadata__\":{}}", 0, "key '__metadata__' stands twice");
  refused("{\"a\":{\"dtype\":\"F8_E5M2\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1,
          "tensor 'a': type F8_E5M2 is not supported");
  refused("{\"a\":{\"dtype\":3,\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "tensor 'a': dtype must be a string");
  refused("{\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,1]}}", 1, "tensor 'a': key 'shape' is missing");
  refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[1]}}", 1, "tensor 'a': key 'data_offsets' is missing");
  refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1],\"x\":0}}", 1, "tensor 'a': unknown key 'x'");
  refused("{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1,
          "tensor 'a': key 'dtype' stands twice");
  refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0]}}", 1, "data_offsets needs a begin and an end");
  refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1,2]}}", 1,
          "data_offsets has more than 2 entries");
  refused("{\"a\":{\"dtype\":\"U8\",\"shape\":1,\"data_offsets\":[0,1]}}", 1, "shape must be an array");
  refused("{\"a\":" T("-1", 0, 1) "}", 1, "shape entry 0 is not a whole number");
  refused("{\"a\":" T("1,1.0", 0, 1) "}", 1, "shape entry 1 is not a whole number");
  refused("{\"a\":" T("1e0", 0, 1) "}", 1, "shape entry 0 is not a whole number");
  refused("{\"a\":" T("18446744073709551616", 0, 1) "}", 1, "shape entry 0 is not a whole number");
  refused("{\"a\":" T("[1]", 0, 1) "}", 1, "shape entry 0 is not a whole number");
  refused("{\"a\":" T("1,1,1,1,1,1,1,1,1", 0, 1) "}", 1, "shape has more than 8 entries");
  size_t n = 100000;
  char *deep = calloc(1, n + 8);
  memset(deep, '[', n);
  memcpy(deep, "{\"a\":", 5);
  refused(deep, 0, "tensor 'a': its entry must be an object");
  memcpy(deep, "{\"__metadata__\":{\"\":", 20);
  refused(deep, 0, "must be a string");
  free(deep);
}

static void test_refused_ranges(void **state) {
  (void)state;
  refused("{\"a\":" T("3", 0, 4) "}", 4, "tensor 'a': data_offsets hold 4 bytes, its shape and type need 3");
  refused("{\"a\":" T("3", 4, 1) "}", 4, "tensor 'a': data_offsets run backwards, from 4 to 1");
  refused("{\"a\":" T("9223372036854775808,4,4", 0, 0) "}", 0, "tensor 'a': its shape has more than 2^64 bytes");
  refused("{\"a\":{\"dtype\":\"F64\",\"shape\":[4611686018427387904],\"data_offsets\":[0,0]}}", 0,
          "its shape has more than 2^64 bytes");
  refused("{\"a\":" T("3", 0, 3) ",\"b\":" T("3", 2, 5) "}", 5, "tensor 'b': its bytes overlap those of tensor 'a'");
  refused("{\"a\":" T("3", 0, 3) ",\"b\":" T("3", 0, 3) "}", 3, "tensor 'b': its bytes overlap those of tensor 'a'");
  refused("{\"a\":" T("3", 0, 3) ",\"b\":" T("0", 1, 1) "}", 3, "tensor 'b': its bytes overlap those of tensor 'a'");
  refused("{\"a\":" T("3", 0, 3) ",\"b\":" T("3", 4, 7) "}", 7, "tensor 'b': 1 bytes before it belong to no tensor");
  refused("{\"a\":" T("3", 1, 4) "}", 4, "tensor 'a': 1 bytes before it belong to no tensor");
  refused("{\"a\":" T("3", 0, 3) "}", 5, "2 bytes after the last tensor belong to no tensor");
  refused("{}", 5, "5 bytes after the last tensor belong to no tensor");
  refused("{\"a\":" T("3", 0, 3) ",\"b\":" T("3", 3, 6) "}", 5, "is cut off: 5 bytes of data found, 6 expected");
  refused("{\"a\":" T("18446744073709551615", 0, 18446744073709551615) "}", 5,
          "is cut off: 5 bytes of data found, 18446744073709551615 expected");
}

static void refused_bytes(const void *data, size_t size, const char *expected) {
  st_file f;
  taper_error e = {0};
  uint8_t *copy = malloc(size + 1);
  memcpy(copy, data, size);
  assert_int_not_equal(st_open_memory(copy, size, "f", &f, &e), TAPER_OK);
  if (!strstr(e.message, expected)) fail_msg("got %s, expected %s", e.message, expected);
  free(copy);
}

static void test_other_files(void **state) {
  (void)state;
  static const char lfs[] = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n";
  refused_bytes(lfs, sizeof lfs - 1,
                "f: is a Git LFS pointer, not a safetensors file; fetch the real file with `git lfs pull`");
  refused_bytes("<!DOCTYPE html><html>", 21, "is an HTML page");
  refused_bytes("GGUF\3\0\0\0\0\0\0\0", 12, "is a GGUF model");
  refused_bytes("PK\3\4aaaaaaaa", 12, "is a ZIP archive");
  refused_bytes("\x80\2\x8a\nl\xfc\x9c\x46\xf9", 9, "is a Python pickle");
  refused_bytes("\x89PNG\r\n\x1a\n0000", 12, "is a PNG picture");
  refused_bytes("\xff\xd8\xff\xe0\0\0JFIF", 10, "is a JPEG picture");
  refused_bytes("{\"model_type\": \"llama\"}", 23, "is JSON text");
  refused_bytes("", 0, "is an empty file");
  refused_bytes("\1\0\0", 3, "is cut off: 3 bytes found, at least 8 expected");
  refused_bytes("\x40\0\0\0\0\0\0\0{\"a\":", 13, "13 bytes found, the header alone needs 72");
  refused_bytes("\x80\xbb\x82\7\0\0\0\0{}", 10, "a header of 126008192 bytes, at most 100000000 are allowed");
  refused_bytes("\xff\xff\xff\xff\xff\xff\xff\xff{}", 10, "a header of 18446744073709551615 bytes");
}

static void test_every_cut(void **state) {
  (void)state;
  const char *header = "{\"__metadata__\":{\"k\":\"\\u00e9\"},\"a\":" T(
      "3", 0, 3) ",\"b\":{\"dtype\":\"F32\",\"shape\":[2,1],\"data_offsets\":[3,11]}} ";
  size_t size;
  uint8_t *whole = image(header, strlen(header), 11, &size);
  for (size_t n = 0; n < size; n++) {
    st_file f;
    uint8_t *cut = malloc(n + 1); /* exact, so that a read beyond it is caught */
    memcpy(cut, whole, n);
    assert_int_not_equal(st_open_memory(cut, n, "f", &f, NULL), TAPER_OK);
    free(cut);
  }
  st_file f;
  assert_int_equal(st_open_memory(whole, size, "f", &f, NULL), TAPER_OK);
  st_close(&f);
  free(whole);
}

static void test_types(void **state) {
  (void)state;
  uint16_t half[65536];
  for (uint32_t i = 0; i < 65536; i++) half[i] = (uint16_t)i;
  st_tensor t = {
      .name = "h", .dtype = ST_F16, .rank = 1, .shape = {65536}, .elements = 65536, .bytes = 131072, .data = half};
  static double d[65536];
  static float f[65536];
  st_read_f64(&t, 0, 65536, d);
  st_read_f32(&t, 0, 65536, f);
  for (uint32_t i = 0; i < 65536; i++) {
    uint32_t e = i >> 10 & 31, m = i & 1023; /* the definition */
    double v = e == 31 ? (m ? NAN : INFINITY) : e ? ldexp(1024 + m, (int)e - 25) : ldexp(m, -24);
    if (i >> 15) v = -v;
    assert_true(isnan(v) ? isnan(d[i]) && isnan(f[i]) : d[i] == v && f[i] == v && signbit(d[i]) == signbit(v));
  }
  t.dtype = ST_BF16;
  st_read_f64(&t, 0, 65536, d);
  for (uint32_t i = 0; i < 65536; i++) {
    uint32_t e = i >> 7 & 255, m = i & 127;
    double v = e == 255 ? (m ? NAN : INFINITY) : e ? ldexp(128 + m, (int)e - 134) : ldexp(m, -133);
    if (i >> 15) v = -v;
    assert_true(isnan(v) ? isnan(d[i]) : d[i] == v);
  }
  st_read_f64(&t, 0x3f80, 2, d);
  assert_true(d[0] == 1.0 && d[1] == 1.0078125);
  double wide[2] = {1.0 + 0x1p-24 + 0x1p-50, -0.0};
  t = (st_tensor){.dtype = ST_F64, .data = (char *)wide};
  st_read_f32(&t, 0, 2, f);
  assert_true(f[0] == 1.0f + 0x1p-23f && signbit(f[1])); /* rounded once */
  struct {
    st_dtype type;
    const void *data;
    double value;
  } one[] = {{ST_BOOL, "\1", 1},
             {ST_U8, "\xff", 255},
             {ST_I8, "\xff", -1},
             {ST_I16, "\xfe\xff", -2},
             {ST_U16, "\xfe\xff", 65534},
             {ST_I32, "\xfd\xff\xff\xff", -3},
             {ST_U32, "\xfd\xff\xff\xff", 4294967293.0},
             {ST_I64, "\xfc\xff\xff\xff\xff\xff\xff\xff", -4},
             {ST_U64, "\0\0\0\0\0\0\0\x80", 0x1p63},
             {ST_F32, "\0\0\x80\x3f", 1}};
  for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
    char unaligned[16];
    memcpy(unaligned + 1, one[i].data, st_dtype_size(one[i].type));
    t = (st_tensor){.dtype = one[i].type, .data = unaligned + 1};
    st_read_f64(&t, 0, 1, d);
    st_read_f32(&t, 0, 1, f);
    assert_true(d[0] == one[i].value && f[0] == (float)one[i].value);
  }
}

static const char *path_of(const char *name) {
  static char path[2][128];
  static unsigned next;
  char *out = path[next++ % 2];
  snprintf(out, 128, "%s/%s", folder, name);
  return out;
}

static void test_writer(void **state) {
  (void)state;
  float a[6] = {1, 2, 3, 4, 5, 6};
  uint8_t b[5] = {1, 2, 3, 4, 5};
  double c = 0.1;
  st_source s[] = {{"z\xc3\xbc\"", ST_F32, 2, {2, 3}, a},
                   {"bytes", ST_U8, 1, {5}, b},
                   {"empty", ST_F32, 2, {0, 4}, NULL},
                   {"scalar", ST_F64, 0, {0}, &c}};
  st_pair meta[] = {{"taper.gates", "{\"g\": 0.5}"}, {"k\n", "line\nline"}};
  uint32_t aligns[] = {1, 8, 64};
  for (size_t i = 0; i < 3; i++) {
    st_file f;
    taper_error e = {0};
    const char *path = path_of("w.safetensors");
    assert_int_equal(st_write(path, s, 4, meta, 2, aligns[i], &e), TAPER_OK);
    assert_int_equal(st_open(path, &f, &e), TAPER_OK);
    for (size_t k = 0; k < 4; k++) {
      const st_tensor *t = st_find(&f, s[k].name);
      assert_non_null(t);
      assert_int_equal(t->dtype, s[k].dtype);
      assert_int_equal(t->rank, s[k].rank);
      assert_memory_equal(t->shape, s[k].shape, t->rank * sizeof *t->shape);
      assert_int_equal(t->offset % aligns[i], 0);
      if (aligns[i] > 1) assert_int_equal((uintptr_t)t->data % aligns[i], 0);
      if (t->bytes) assert_memory_equal(t->data, s[k].data, t->bytes);
    }
    assert_int_equal((8 + f.header_bytes) % 8, 0);
    assert_int_equal(f.count == 4, aligns[i] == 1);
    assert_string_equal(st_metadata(&f, "taper.gates"), "{\"g\": 0.5}");
    assert_string_equal(st_metadata(&f, "k\n"), "line\nline");
    st_close(&f);
  }
  taper_error e = {0};
  st_source twice[] = {{"a", ST_U8, 1, {1}, b}, {"a", ST_U8, 1, {1}, b}};
  assert_int_equal(st_write(path_of("x"), twice, 2, NULL, 0, 64, &e), TAPER_INVALID);
  assert_non_null(strstr(e.message, "tensor 'a': it would be written twice"));
  twice[1].name = "\xff";
  assert_int_equal(st_write(path_of("x"), twice, 2, NULL, 0, 64, &e), TAPER_INVALID);
  twice[1].name = "__pad.0";
  assert_int_equal(st_write(path_of("x"), twice, 2, NULL, 0, 64, &e), TAPER_INVALID);
  twice[1] = (st_source){"big", ST_F64, 2, {1ull << 40, 1ull << 40}, b};
  assert_int_equal(st_write(path_of("x"), twice, 2, NULL, 0, 64, &e), TAPER_INVALID);
  st_pair bad_meta[] = {{"a", "\xff"}};
  assert_int_equal(st_write(path_of("x"), s, 4, bad_meta, 1, 64, &e), TAPER_INVALID);
  assert_int_not_equal(access(path_of("x"), F_OK), 0);
  assert_int_equal(st_write("/dev/full", s, 4, NULL, 0, 64, &e), TAPER_IO);
  assert_int_equal(st_write(path_of("no/such/x"), s, 4, NULL, 0, 64, &e), TAPER_IO);
}

static void test_many(void **state) {
  (void)state;
  enum { N = 1300000 };
  text header = {0};
  text_puts(&header, "{");
  for (uint32_t i = 0; i < N; i++) { /* names and offsets in different, scattered orders */
    uint32_t k = (uint32_t)((uint64_t)i * 700001 % N);
    text_printf(&header, "%s\"%x\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[%u,%u]}", i ? "," : "",
                (uint32_t)(k * 2654435761u), k, k + 1);
  }
  text_puts(&header, "}");
  size_t size;
  uint8_t *bytes = image(header.data, header.size, N, &size);
  text_free(&header);
  st_file f;
  taper_error e = {0};
  clock_t start = clock();
  assert_int_equal(st_open_memory(bytes, size, "f", &f, &e), TAPER_OK);
  assert_true((double)(clock() - start) / CLOCKS_PER_SEC < 20);
  assert_int_equal(f.count, N);
  st_close(&f);
  free(bytes);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_legal),       cmocka_unit_test(test_refused_header), cmocka_unit_test(test_refused_ranges),
      cmocka_unit_test(test_other_files), cmocka_unit_test(test_every_cut),      cmocka_unit_test(test_types),
      cmocka_unit_test(test_writer),      cmocka_unit_test(test_many),
  };
  return cmocka_run_group_tests(tests, setup, teardown);
}
