/* Packages: what is refused and in which words; memory that runs out at every place; nothing allocated after load. */
#include "runtime/package.h"
#include "tests/device/toy.h"
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
// cmocka needs the headers above first
#include <cmocka.h>

static toy *good;

static void refuses(const toy *t, taper_status status, const char *word) {
  const char *path = toy_path("wrong.tpack");
  taper_error error = {0};
  taper_model *m = (taper_model *)1;
  toy_write(t, path);
  assert_int_equal(taper_model_open(path, NULL, &m, &error), status);
  assert_null(m);
  if (!strstr(error.message, word) || !strstr(error.message, path))
    fail_msg("'%s' does not say '%s' and the path", error.message, word);
}

static void metadata_is_checked(void **state) {
  (void)state;
  static const struct {
    const char *key, *value;
    taper_status status;
    const char *word;
  } wrong[] = {
      {"taper.package", NULL, TAPER_INVALID, "no package"},
      {"taper.package", "2", TAPER_UNSUPPORTED, "package version '2', this library reads version 1"},
      {"taper.features", "moe", TAPER_UNSUPPORTED, "needs the feature 'moe'"},
      {"taper.features", NULL, TAPER_INVALID, "'taper.features' is missing"},
      {"taper.name", "", TAPER_INVALID, "'taper.name'"},
      {"taper.name", NULL, TAPER_INVALID, "'taper.name' is missing"},
      {"taper.model", "xyz", TAPER_INVALID, "'taper.model': 'xyz' is not 32 hex digits"},
      {"taper.model", "fedcba98765432100123456789abcdef", TAPER_INVALID, "another model"},
      {"taper.target", "tpu", TAPER_UNSUPPORTED, "target 'tpu'"},
      {"taper.target", "cuda", TAPER_INVALID, "'taper.cuda.plain' is missing"},
      {"taper.arch", "", TAPER_INVALID, "names no image"},
      {"taper.arch", "plain,", TAPER_INVALID, "no list of images"},
      {"taper.arch", ",plain", TAPER_INVALID, "no list of images"},
      {"taper.arch", "plain,plain", TAPER_INVALID, "twice"},
      {"taper.arch", "plain,more", TAPER_INVALID, "'taper.cpu.more' is missing"},
      {"taper.arch", "Pl ain", TAPER_INVALID, "no list of images"},
      {"taper.cpu.plain", "avx,,fma", TAPER_INVALID, "no list of CPU features"},
      {"taper.cpu.plain", "avx9000,sse99", TAPER_UNSUPPORTED, "'plain' needs avx9000, sse99"},
      {"taper.machine", "aarch64-le", TAPER_UNSUPPORTED, "machine 'aarch64-le'"},
      {"taper.gates", "{\"a\": \"x\"}", TAPER_INVALID, "a gate is a finite number"},
      {"taper.gates", "{\"a\": [1, true]}", TAPER_INVALID, "a gate is a finite number"},
      {"taper.gates", "{\"a\": 1", TAPER_INVALID, "'taper.gates': JSON byte"},
      {"taper.gates", "[]", TAPER_INVALID, "one object"},
      {"taper.params", "{}", TAPER_INVALID, "lacks 'vocab' or 'context'"},
      {"taper.params", "{\"vocab\": 300}", TAPER_INVALID, "lacks"},
      {"taper.params", "{\"vocab\": 300.5, \"context\": 50}", TAPER_INVALID, "'vocab' stands there once, an integer"},
      {"taper.params", "{\"vocab\": -1, \"context\": 50}", TAPER_INVALID, "'vocab'"},
      {"taper.params", "{\"vocab\": 99999999999999999999, \"context\": 50}", TAPER_INVALID, "'vocab'"},
      {"taper.params", "{\"vocab\": 300, \"context\": 0}", TAPER_INVALID, "'context'"},
      {"taper.params", "{\"vocab\": 300, \"context\": 50, \"x\": \"y\"}", TAPER_INVALID,
       "a parameter is a finite number"},
      {"taper.params", "{\"vocab\": 300, \"context\": 50} x", TAPER_INVALID, "JSON byte"},
      {"taper.params", "{\"vocab\": 301, \"context\": 50}", TAPER_INVALID, "its vocabulary is 300, the package's 301"},
      {"taper.params", "{\"vocab\": 300, \"context\": 51}", TAPER_INVALID, "its context is 50, the package's 51"},
      {"taper.params", "{\"vocab\": 200, \"context\": 50}", TAPER_INVALID,
       "a byte tokenizer needs a vocabulary of 256"},
      {"taper.tokenizer", "wordpiece", TAPER_UNSUPPORTED, "tokenizer 'wordpiece'"},
      {"taper.tokenizer", NULL, TAPER_INVALID, "'taper.tokenizer' is missing"},
      {"taper.end_token", "300", TAPER_INVALID, "'taper.end_token'"},
      {"taper.end_token", "-1", TAPER_INVALID, "'taper.end_token'"},
      {"taper.scale", "", TAPER_INVALID, "'taper.scale'"},
      {"taper.scale", "rms 1", TAPER_INVALID, "'taper.scale'"},
      {"taper.scale", "rms  2", TAPER_INVALID, "'taper.scale'"},
      {"taper.scale", "max 1 2", TAPER_INVALID, "'taper.scale'"},
      {"taper.scale", "std 2 1", TAPER_INVALID, "'taper.scale'"},
      {"taper.scale", "std 0 1", TAPER_INVALID, "'taper.scale'"},
      {"taper.scale", "rms 1 nan", TAPER_INVALID, "'taper.scale'"},
      {"taper.scale", "rms 1 1e99", TAPER_INVALID, "'taper.scale'"},
      {"taper.scale", "rms 1 2 3", TAPER_INVALID, "'taper.scale'"},
      {"taper.options", NULL, TAPER_INVALID, "'taper.options' is missing"},
      {"taper.versions", NULL, TAPER_INVALID, "'taper.versions' is missing"},
      {"taper.hashes", NULL, TAPER_INVALID, "'taper.hashes' is missing"},
      {"taper.hashes", "{}", TAPER_INVALID, "has none"},
      {"taper.hashes", "{\"emb\": 5}", TAPER_INVALID, "tensor 'emb': the hash is not 32 hex digits"},
      {"taper.hashes", "{\"emb\": \"00\"}", TAPER_INVALID, "not 32 hex digits"},
      {"taper.hashes", "{\"what\": \"0123456789abcdef0123456789abcdef\"}", TAPER_INVALID, "'what' is not in the file"},
  };
  for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
    toy t = *good;
    if (wrong[i].value)
      toy_set(&t, wrong[i].key, wrong[i].value);
    else
      toy_unset(&t, wrong[i].key);
    refuses(&t, wrong[i].status, wrong[i].word);
  }
}

/* A text that still reads well is found by the seal. */
static void damaged_texts_are_found(void **state) {
  (void)state;
  const char *path = toy_path("texts.tpack");
  static const char *const was[] = {"taperc 0.1.0", "\"internal\": 0", "\"d\": 20", "\"-O2\"", "taper.seal"};
  for (size_t i = 0; i < sizeof(was) / sizeof(was[0]); i++) {
    char *data;
    size_t size;
    taper_error error;
    toy_write(good, path);
    assert_int_equal(file_read(path, 1 << 24, &data, &size, &error), TAPER_OK);
    char escaped[64], *at = NULL;
    size_t n = 0;
    for (const char *c = was[i]; *c; c++) {
      if (*c == '"' && i != 3) escaped[n++] = '\\';
      escaped[n++] = *c;
    }
    at = memmem(data, size, escaped, n);
    assert_non_null(at);
    at[i == 3 ? n - 2 : n - 1] ^= 1;
    file_writer w = {0};
    assert_int_equal(file_writer_open(path, &w, &error), TAPER_OK);
    assert_int_equal(file_writer_put(&w, data, size, &error), TAPER_OK);
    assert_int_equal(file_writer_commit(&w, &error), TAPER_OK);
    free(data);
    taper_model *m = NULL;
    assert_int_equal(taper_model_open(path, NULL, &m, &error), TAPER_INVALID);
    assert_non_null(strstr(error.message, "'taper.seal'"));
  }
}

static void tensors_are_checked(void **state) {
  (void)state;
  toy t = *good;
  t.tensors[1].name = "other";
  toy_hash(&t);
  refuses(&t, TAPER_INVALID, "the package has no tensor 'head'");
  t = *good;
  t.tensors[t.tensor_count] = t.tensors[0];
  t.tensors[t.tensor_count++].name = "spare";
  toy_hash(&t);
  refuses(&t, TAPER_INVALID, "tensor 'spare': nothing in it reads this weight; the package is damaged");
  t = *good;
  t.tensors[0].shape[0] = TOY_D, t.tensors[0].shape[1] = TOY_V;
  toy_hash(&t);
  refuses(&t, TAPER_INVALID, "weight 0 'emb': rows 0..300 of 22 columns, the tensor has 22 x 300");
  t = *good;
  t.tensors[1].dtype = ST_I32;
  toy_hash(&t);
  refuses(&t, TAPER_UNSUPPORTED, "tensor 'head' is I32");
  t = *good;
  t.tensors[3].name = "taper.image.flat";
  toy_hash(&t);
  refuses(&t, TAPER_INVALID, "tensor 'taper.image.plain' is missing");
  t = *good;
  t.tensors[3].dtype = ST_I8;
  toy_hash(&t);
  refuses(&t, TAPER_INVALID, "an image is a U8 tensor");
  t = *good;
  t.tensors[3].shape[0] = 100; /* an ELF file cut off */
  toy_hash(&t);
  refuses(&t, TAPER_INVALID, "not a shared object for this machine");
  t = *good;
  t.tensors[3].shape[0] = t.image_bytes / 4;
  toy_hash(&t);
  refuses(&t, TAPER_INVALID, "not a shared object for this machine");
}

static void damaged_bytes_are_found(void **state) {
  (void)state;
  const char *path = toy_path("damaged.tpack");
  toy_write(good, path);
  st_file f = {0};
  taper_error error;
  assert_int_equal(st_open(path, &f, &error), TAPER_OK);
  uint64_t at = st_find(&f, "head")->offset + 12345, image = st_find(&f, "taper.image.plain")->offset + 777;
  st_close(&f);
  const struct {
    uint64_t at;
    const char *word;
  } damage[] = {{at, "tensor 'head': its bytes do not match its hash"}, {image, "'taper.image.plain'"}};
  for (int i = 0; i < 2; i++) {
    toy_write(good, path);
    FILE *file = fopen(path, "r+b");
    assert_int_equal(fseek(file, (long)damage[i].at, SEEK_SET), 0);
    int byte = fgetc(file);
    fseek(file, (long)damage[i].at, SEEK_SET);
    fputc(byte ^ 1, file);
    fclose(file);
    taper_model *m;
    assert_int_equal(taper_model_open(path, NULL, &m, &error), TAPER_INVALID);
    if (!strstr(error.message, damage[i].word)) fail_msg("'%s'", error.message);
  }
  toy_write(good, path);
  assert_int_equal(truncate(path, (off_t)at), 0);
  taper_model *m;
  assert_int_equal(taper_model_open(path, NULL, &m, &error), TAPER_INVALID);
  assert_int_equal(taper_model_open(toy_path("absent"), NULL, &m, &error), TAPER_IO);
  assert_int_equal(taper_model_open("/tmp", NULL, &m, &error), TAPER_IO);
}

static void image_tables_are_checked(void **state) {
  (void)state;
  static const char *const words[] = {NULL,
                                      "unknown packing 7",
                                      "no tensor 'hat'",
                                      "the tensor has 300 x 22",
                                      "of 23 columns",
                                      "a step reads 300 of 140 rows",
                                      "state 0: 0 floats",
                                      "a frequency is not finite",
                                      "rotary table 0: 524288 pairs",
                                      "probe 0: stage 77 of 5",
                                      "probe 1: it lies outside of a row",
                                      "probe 1: width 19",
                                      "probe 1: weight 4 of 4",
                                      "its table begins with 0x00000000",
                                      "ABI version is 99",
                                      "its table has 8 bytes",
                                      "vocabulary is 301",
                                      "its context is 51",
                                      "its width is 0",
                                      "its batch limit is 0",
                                      "its table of stages lies outside",
                                      "its table of stages lies outside",
                                      "its logits lie outside",
                                      "another model",
                                      NULL,
                                      "no table 'taper_image'",
                                      "stage 1 'cache': unknown flags 0x2"};
  for (int wrong = 1; wrong < (int)(sizeof(words) / sizeof(words[0])); wrong++) {
    if (!words[wrong]) continue;
    toy *t = toy_new(wrong);
    refuses(t, wrong == 14 ? TAPER_UNSUPPORTED : TAPER_INVALID, words[wrong]);
    toy_free(t);
  }
}

static void options_are_checked(void **state) {
  (void)state;
  const char *path = toy_path("toy.tpack");
  taper_error error;
  taper_model *m;
  toy_write(good, path);
  taper_model_options o;
  const int32_t cpus[] = {0, -3, 70000, 1023};
#define REFUSE(setting, word)                                                                                          \
  taper_model_options_init(&o), setting, assert_int_equal(taper_model_open(path, &o, &m, &error), TAPER_INVALID);      \
  if (!strstr(error.message, word)) fail_msg("'%s'", error.message)
  REFUSE(o.size = 8, "taper_model_options_init");
  REFUSE(o.threads = 5000, "'threads' is 5000; at most 1024");
  REFUSE(o.chunk_rows = 100000, "'chunk_rows' is 100000");
  REFUSE(o.image = "fancy", "no image 'fancy'; the package has plain");
  REFUSE((o.cpus = cpus + 1, o.cpu_count = 1), "-3 is no CPU number");
  REFUSE((o.cpus = cpus + 2, o.cpu_count = 1), "70000 is no CPU number");
  REFUSE((o.cpus = cpus + 3, o.cpu_count = 1, o.threads = 2), "cannot pin a worker to CPU 1023");
  assert_int_equal(taper_model_open(NULL, NULL, &m, &error), TAPER_INVALID);
  assert_int_equal(taper_model_open(path, NULL, NULL, &error), TAPER_INVALID);
  taper_model_options_init(&o);
  o.cpus = cpus, o.cpu_count = 1, o.threads = 3, o.image = "plain", o.spin_us = 0;
  assert_int_equal(taper_model_open(path, &o, &m, &error), TAPER_OK);
  taper_model_info info;
  taper_model_get_info(m, &info);
  assert_string_equal(info.name, "toy");
  assert_string_equal(info.device, "cpu");
  assert_string_equal(info.image, "plain");
  assert_string_equal(info.tokenizer, "bytes");
  assert_int_equal(info.vocab, 300);
  assert_int_equal(info.context, 50);
  assert_int_equal(info.width, 22);
  assert_int_equal(info.probes, 2);
  assert_int_equal(info.threads, 3);
  assert_int_equal(info.end_token, -1);
  assert_int_equal(info.weight_bytes, 4 * (300 * 32 + 160 * 22 + 144 * 22 + 32));
  assert_int_equal(info.bytes_per_token, 4 * (22 + 300 * 22));
  taper_model_free(m);
  taper_model_free(NULL);
}

static void best_image_that_runs_is_taken(void **state) {
  (void)state;
  toy t = *good;
  taper_model *m;
  taper_error error;
  taper_model_info info;
  toy_tensor(&t, "taper.image.future", ST_U8, 0, t.image_bytes, t.image);
  toy_set(&t, "taper.arch", "future,plain");
  toy_set(&t, "taper.cpu.future", "avx2,avx9000");
  toy_hash(&t);
  const char *path = toy_path("two.tpack");
  toy_write(&t, path);
  assert_int_equal(taper_model_open(path, NULL, &m, &error), TAPER_OK);
  taper_model_get_info(m, &info);
  assert_string_equal(info.image, "plain");
  taper_model_free(m);
  taper_model_options o;
  taper_model_options_init(&o);
  o.image = "future";
  assert_int_equal(taper_model_open(path, &o, &m, &error), TAPER_UNSUPPORTED);
  assert_non_null(strstr(error.message, "'future' needs avx9000"));
}

static int warnings;
static void count_warnings(void *user, taper_log_level level, const char *message) {
  (void)user;
  if (level == TAPER_LOG_WARNING && strstr(message, "'taper.novel' is unknown")) warnings++;
}

static void unknown_keys_are_told(void **state) {
  (void)state;
  toy t = *good;
  taper_model *m;
  toy_set(&t, "taper.novel", "x");
  toy_set(&t, "somebody.else", "x");
  toy_write(&t, toy_path("novel.tpack"));
  taper_model_options o;
  taper_model_options_init(&o);
  o.log = count_warnings;
  assert_int_equal(taper_model_open(toy_path("novel.tpack"), &o, &m, NULL), TAPER_OK);
  assert_int_equal(warnings, 1);
  taper_model_free(m);
}

/* ---- memory ---- */

typedef struct counted {
  size_t calls, fail_at, live, bytes;
} counted;

static void *counted_resize(void *user, void *block, size_t old_size, size_t new_size) {
  counted *c = user;
  if (new_size == 0) {
    c->live--, c->bytes -= old_size;
    free(block);
    return NULL;
  }
  if (++c->calls == c->fail_at) return NULL;
  c->live++, c->bytes += new_size;
  return malloc(new_size);
}

static taper_status whole_life(counted *c, taper_error *error) {
  taper_model_options o;
  taper_model *m = NULL;
  taper_session *s = NULL, *copy = NULL;
  taper_model_options_init(&o);
  o.threads = 2;
  o.allocator = (taper_allocator){counted_resize, c};
  const int32_t prompt[] = {1, 2, 3};
  taper_generation g;
  taper_generation_init(&g);
  g.max_tokens = 5, g.stop = (const char *const[]){"zz"}, g.stop_count = 1;
  taper_status status = taper_model_open(toy_path("toy.tpack"), &o, &m, error);
  if (status == TAPER_OK) status = taper_session_new(m, NULL, &s, error);
  if (status == TAPER_OK) status = taper_session_clone(s, &copy, error);
  if (status == TAPER_OK) status = taper_generate(copy, 0, prompt, 3, &g, NULL, error);
  taper_session_free(copy);
  taper_session_free(s);
  taper_model_free(m);
  return status;
}

static void memory_may_run_out_anywhere(void **state) {
  (void)state;
  taper_error error;
  toy_write(good, toy_path("toy.tpack"));
  counted c = {0};
  assert_int_equal(whole_life(&c, &error), TAPER_OK);
  assert_int_equal(c.live, 0);
  assert_int_equal(c.bytes, 0);
  const size_t calls = c.calls;
  assert_true(calls > 20);
  for (size_t n = 1; n <= calls; n++) {
    c = (counted){.fail_at = n};
    assert_int_equal(whole_life(&c, &error), TAPER_NOMEM);
    assert_non_null(strstr(error.message, "no memory for"));
    assert_int_equal(c.live, 0);
    assert_int_equal(c.bytes, 0);
  }
}

static void nothing_is_allocated_after_load(void **state) {
  (void)state;
  counted c = {0};
  taper_model_options o;
  taper_model *m;
  taper_session *s;
  taper_session_options so;
  taper_model_options_init(&o);
  taper_session_options_init(&so);
  o.allocator = (taper_allocator){counted_resize, &c}, o.chunk_rows = 3, o.threads = 3;
  so.max_batch = 2;
  toy_write(good, toy_path("toy.tpack"));
  assert_int_equal(taper_model_open(toy_path("toy.tpack"), &o, &m, NULL), TAPER_OK);
  assert_int_equal(taper_session_new(m, &so, &s, NULL), TAPER_OK);
  const size_t calls = c.calls;
  float logits[20 * TOY_V];
  int32_t tokens[20] = {1, 2, 3, 4};
  assert_int_equal(taper_session_append(s, 0, tokens, 20, logits, NULL), TAPER_OK);
  assert_int_equal(taper_session_append_all(s, 1, tokens, 20, logits, NULL, NULL, NULL), TAPER_OK);
  const taper_batch_entry both[] = {{0, tokens, 5, logits}, {1, tokens, 1, NULL}};
  assert_int_equal(taper_session_append_batch(s, both, 2, NULL), TAPER_OK);
  assert_int_equal(taper_session_rewind(s, 0, 3, NULL), TAPER_OK);
  assert_int_equal(taper_session_append(s, 0, tokens, 1, logits, NULL), TAPER_OK);
  assert_int_equal(c.calls, calls);
  taper_session_free(s);
  taper_model_free(m);
}

static size_t open_files(void) {
  size_t n = 0;
  DIR *d = opendir("/proc/self/fd");
  while (readdir(d)) n++;
  closedir(d);
  return n;
}

static void loading_again_and_side_by_side(void **state) {
  (void)state;
  const size_t before = open_files();
  taper_model *m[3];
  toy_write(good, toy_path("toy.tpack"));
  for (int round = 0; round < 3; round++) {
    for (int i = 0; i < 3; i++) assert_int_equal(taper_model_open(toy_path("toy.tpack"), NULL, &m[i], NULL), TAPER_OK);
    for (int i = 0; i < 3; i++) taper_model_free(m[i]);
  }
  assert_int_equal(open_files(), before);
}

static void names_are_fixed(void **state) {
  (void)state;
  assert_string_equal(taper_version(), TAPER_VERSION_TEXT);
  assert_string_equal(taper_status_name(TAPER_CONTEXT_FULL), "context full");
  for (int i = 0; i <= TAPER_INTERNAL; i++) assert_non_null(taper_status_name((taper_status)i));
  assert_string_equal(taper_status_name((taper_status)77), "unknown status");
}

static int setup(void **state) {
  (void)state;
  good = toy_new(0);
  return 0;
}

static int teardown(void **state) {
  (void)state;
  toy_free(good);
  toy_remove_folder();
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(metadata_is_checked),
      cmocka_unit_test(tensors_are_checked),
      cmocka_unit_test(damaged_texts_are_found),
      cmocka_unit_test(damaged_bytes_are_found),
      cmocka_unit_test(image_tables_are_checked),
      cmocka_unit_test(options_are_checked),
      cmocka_unit_test(best_image_that_runs_is_taken),
      cmocka_unit_test(unknown_keys_are_told),
      cmocka_unit_test(memory_may_run_out_anywhere),
      cmocka_unit_test(nothing_is_allocated_after_load),
      cmocka_unit_test(loading_again_and_side_by_side),
      cmocka_unit_test(names_are_fixed),
  };
  return cmocka_run_group_tests(tests, setup, teardown);
}
