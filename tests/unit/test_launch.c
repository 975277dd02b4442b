/* The launch table of a CUDA package: read as written, and every single mistake refused with its place. */
#include "cuda/launch.h"
#include "runtime/base/file.h"
#include "tests/device/toy.h"
#include <setjmp.h>
#include <stdarg.h>
// cmocka needs the headers above first
#include <cmocka.h>

static const char correct[] =
    "{\"abi\": 1, \"vocab\": 300, \"context\": 50, \"width\": 22, \"max_batch\": 8, \"dtype\": \"f32\",\n"
    " \"row_floats\": 1000, \"logits\": 100, \"split_floats\": 12, \"key_heads\": 2,\n"
    " \"kernels\": [{\"name\": \"k_embed\", \"threads\": 128, \"shared\": 0}, {\"name\": \"k1\", \"threads\": 256, "
    "\"shared\": 64}],\n"
    " \"stages\": [{\"name\": \"embed\", \"kernel\": 0, \"grid\": [3, \"rows\", \"splits\"],\n"
    "   \"args\": [\"w0\", \"s0\", \"t0\", \"b128\", \"g0.5\", \"g-1e-3\"], \"probes\": false, \"wide\": null},\n"
    "  {\"name\": \"head\", \"kernel\": 1, \"grid\": [\"out_row_groups\", \"row_groups\", \"out_rows\"], \"args\": [], "
    "\"probes\": true,\n"
    "   \"wide\": {\"before\": {\"kernel\": 0, \"grid\": [1, 1, 1], \"args\": [\"b5\"]}, \"products\": [{\"weight\": "
    "1, \"row0\": 10, \"rows\": 20,\n"
    "    \"x\": 30, \"x_width\": 24, \"x_start\": 2, \"x_half\": false, \"y\": 60, \"y_width\": 20}],\n"
    "    \"after\": {\"kernel\": 1, \"grid\": [2, 1, 1], \"args\": []}}}],\n"
    " \"gemm\": {\"kernel\": 1, \"tile_m\": 64, \"tile_n\": 32},\n"
    " \"sample\": {\"kernel\": 1, \"threads\": 512, \"scale\": {\"buffer\": 7, \"width\": 22, \"inv_scale\": 2}},\n"
    " \"weights\": [{\"tensor\": \"emb\", \"row0\": 0, \"rows\": 300, \"cols\": 22, \"pitch\": 24, \"dtype\": \"f32\", "
    "\"read_rows\": 1},\n"
    "  {\"tensor\": \"head\", \"row0\": 100, \"rows\": 200, \"cols\": 22, \"pitch\": 24, \"dtype\": \"f32\", "
    "\"read_rows\": 200},\n"
    "  {\"tensor\": \"scale\", \"row0\": 0, \"rows\": 1, \"cols\": 22, \"pitch\": 24, \"dtype\": \"f32\", "
    "\"read_rows\": 1}],\n"
    " \"states\": [{\"name\": \"keys\", \"heads\": 2, \"dim\": 11}],\n"
    " \"rotary\": [{\"pairs\": 2, \"magnitude\": 1.5, \"inv_freq\": [1, 0.25]}],\n"
    " \"probes\": [{\"name\": \"p0\", \"stage\": null, \"buffer\": 0, \"width\": 22, \"inv_scale\": null},\n"
    "  {\"name\": \"p1\", \"stage\": 1, \"buffer\": 9, \"width\": 22, \"inv_scale\": 2}],\n"
    " \"pdl\": true}";

static taper_allocator libc;
static package toy_package;

static taper_status read_table(const char *json, launch_table *t, taper_error *error) {
  taper_status status = launch_parse(json, strlen(json), &libc, t, error);
  return status == TAPER_OK ? launch_check(t, &toy_package, error) : status;
}

static void is_read_as_written(void **state) {
  (void)state;
  launch_table t;
  taper_error error = {0};
  if (read_table(correct, &t, &error) != TAPER_OK) fail_msg("%s", error.message);
  assert_int_equal(t.kernels.count, 2);
  assert_string_equal(t.kernels.at[0].name, "k_embed");
  assert_int_equal(t.kernels.at[1].shared, 64);
  assert_int_equal(t.stages.count, 2);
  const launch_stage *s = t.stages.at;
  assert_int_equal(s[0].call.grid[0].what, LAUNCH_NUMBER);
  assert_int_equal(s[0].call.grid[0].n, 3);
  assert_int_equal(s[0].call.grid[1].what, LAUNCH_ROWS);
  assert_int_equal(s[0].call.grid[2].what, LAUNCH_SPLITS);
  assert_int_equal(s[1].call.grid[0].what, LAUNCH_OUT_ROW_GROUPS);
  assert_int_equal(s[1].call.grid[1].what, LAUNCH_ROW_GROUPS);
  assert_int_equal(s[1].call.grid[2].what, LAUNCH_OUT_ROWS);
  const char kinds[] = "wstbgg";
  assert_int_equal(s[0].call.args.count, 6);
  for (int i = 0; i < 6; i++) assert_int_equal(s[0].call.args.at[i].kind, kinds[i]);
  double gate;
  memcpy(&gate, &s[0].call.args.at[5].value, sizeof(gate));
  assert_true(gate == -1e-3);
  assert_int_equal(s[0].call.args.at[3].value, 128);
  assert_false(s[0].wide.is);
  assert_true(s[1].probes && s[1].wide.is && s[1].wide.has_before);
  assert_int_equal(s[1].wide.before.args.at[0].value, 5);
  assert_int_equal(s[1].wide.products.at[0].y_width, 20);
  assert_int_equal(s[1].wide.after.grid[0].n, 2);
  assert_true(t.gemm.is && t.sample.is && t.sample.has_scale && t.pdl);
  assert_int_equal(t.sample.inv_scale, 2);
  assert_int_equal(t.weights.at[1].row0, 100);
  assert_true(t.rotary.at[0].magnitude == 1.5 && t.rotary.at[0].inv_freq.at[1] == 0.25);
  assert_int_equal(t.probes.at[0].stage, LAUNCH_NONE);
  assert_int_equal(t.probes.at[1].inv_scale, 2);
  launch_free(&t);
}

/* `correct` with the first `from` behind `after` (NULL: the start) replaced. */
static char *changed(const char *after, const char *from, const char *to) {
  char *out = malloc(sizeof(correct) + strlen(to));
  const char *begin = after ? strstr(correct, after) : correct, *at = begin ? strstr(begin, from) : NULL;
  if (!out || !at) fail_msg("no '%s' behind '%s'", from, after ? after : "");
  const size_t head = (size_t)(at - correct);
  memcpy(out, correct, head);
  strcpy(out + head, to);
  strcat(out, at + strlen(from));
  return out;
}

static void every_mistake_is_refused(void **state) {
  (void)state;
  static const struct {
    const char *after, *from, *to;
    taper_status status;
    const char *message;
  } cases[] = {
      {NULL, "\"abi\": 1", "\"abi\": 2", TAPER_UNSUPPORTED, "its ABI version is 2, this library's is 1"},
      {NULL, "\"abi\": 1,", "", TAPER_INVALID, "'abi' is missing"},
      {NULL, "\"vocab\": 300", "\"vocab\": 301", TAPER_INVALID, "its vocabulary is 301, the package's 300"},
      {NULL, "\"context\": 50", "\"context\": 51", TAPER_INVALID, "its context is 51, the package's 50"},
      {NULL, "\"width\": 22", "\"width\": 0", TAPER_INVALID, "'width' is no whole number from 1"},
      {NULL, "\"width\": 22", "\"width\": 2.5", TAPER_INVALID, "'width' is no whole number"},
      {NULL, "\"max_batch\": 8", "\"max_batch\": 1e3", TAPER_INVALID, "'max_batch' is no whole number"},
      {NULL, "\"f32\"", "\"f64\"", TAPER_INVALID, "'dtype' is none of"},
      {NULL, "\"dtype\": \"f32\"", "\"dtype\": \"bf16\"", TAPER_INVALID, "a weight in F32, the table's type is BF16"},
      {NULL, "\"logits\": 100", "\"logits\": 701", TAPER_INVALID, "its logits lie outside"},
      {NULL, "\"pdl\": true", "\"pdl\": 1", TAPER_INVALID, "'pdl' is neither true nor false"},
      {NULL, "\"pdl\": true", "\"pdl\": true, \"pdl\": true", TAPER_INVALID, "'pdl' is there twice"},
      {NULL, "\"pdl\": true", "\"pdl\": true, \"more\": 1", TAPER_UNSUPPORTED, "the key 'more' is unknown"},
      {NULL, "\"pdl\": true}", "\"pdl\": true", TAPER_INVALID, "JSON byte"},
      {NULL, "\"pdl\": true}", "\"pdl\": true} 1", TAPER_INVALID, "JSON byte"},
      {"kernels", "k_embed", "k embed", TAPER_INVALID, "'k embed' is no name of C"},
      {"kernels", "\"k1\"", "\"\"", TAPER_INVALID, "'name' is no name"},
      {"kernels", "128", "1025", TAPER_INVALID, "'threads' is no whole number from 1 to 1024"},
      {"kernels", "\"shared\": 64", "\"shared\": 300000", TAPER_INVALID, "'shared' is no whole number"},
      {"stages", "\"kernel\": 0", "\"kernel\": 2", TAPER_INVALID, "kernel 2 of 2"},
      {"stages", "[3, \"rows\", \"splits\"]", "[3, \"rows\"]", TAPER_INVALID, "not three extents"},
      {"stages", "[3, \"rows\", \"splits\"]", "[3, 1, 1, 1]", TAPER_INVALID, "longer than three"},
      {"stages", "[3, \"rows\"", "[0, \"rows\"", TAPER_INVALID, "'grid' is no whole number from 1"},
      {"stages", "[3, \"rows\", \"splits\"]", "[1, 65536, 1]", TAPER_INVALID, "from 1 to 65535"},
      {"stages", "\"rows\"", "\"columns\"", TAPER_INVALID, "neither a number nor a word"},
      {"args", "w0", "w3", TAPER_INVALID, "argument 'w3' of 3"},
      {"args", "s0", "s1", TAPER_INVALID, "argument 's1' of 1"},
      {"args", "t0", "t1", TAPER_INVALID, "argument 't1' of 1"},
      {"args", "b128", "b1000", TAPER_INVALID, "argument 'b1000' of 1000"},
      {"args", "w0", "x0", TAPER_INVALID, "'args' is no argument"},
      {"args", "w0", "w-1", TAPER_INVALID, "'args' is no argument"},
      {"args", "w0", "w", TAPER_INVALID, "'args' is no argument"},
      {"args", "\"w0\"", "0", TAPER_INVALID, "'args' is no argument"},
      {"args", "g0.5", "gnan", TAPER_INVALID, "'args' is no argument"},
      {"stages", "\"probes\": false", "\"probes\": null", TAPER_INVALID, "'probes' is neither"},
      {"stages", "\"wide\": null", "\"wide\": 1", TAPER_INVALID, "'wide' is no object"},
      {"wide\": {", "\"kernel\": 0", "\"kernel\": 9", TAPER_INVALID, "stage 'head': kernel 9 of 2"},
      {"products", "\"weight\": 1", "\"weight\": 3", TAPER_INVALID, "weight 3 of 3"},
      {"products", "\"row0\": 10", "\"row0\": 181", TAPER_INVALID, "rows 181 to 201 of 200"},
      {"products", "\"x_start\": 2", "\"x_start\": 3", TAPER_INVALID, "a product of 22 numbers from 3 of 24"},
      {"products", "\"y_width\": 20", "\"y_width\": 19", TAPER_INVALID, "a product of 22"},
      {"products", "\"x\": 30", "\"x\": 977", TAPER_INVALID, "a product lies outside"},
      {"products", "\"y\": 60", "\"y\": 981", TAPER_INVALID, "a product lies outside"},
      {"products", "\"x_half\": false", "\"x_half\": true", TAPER_INVALID, "operands of two types"},
      {"after\": {", "\"kernel\": 1", "\"kernel\": 2", TAPER_INVALID, "kernel 2 of 2"},
      {"gemm", "\"kernel\": 1", "\"kernel\": 2", TAPER_INVALID, "'gemm': kernel 2 of 2"},
      {"gemm", "\"tile_n\": 32", "\"tile_n\": 0", TAPER_INVALID, "'tile_n' is no whole number"},
      {"sample", "\"kernel\": 1", "\"kernel\": 2", TAPER_INVALID, "'sample': kernel 2 of 2"},
      {"sample", "\"buffer\": 7", "\"buffer\": 979", TAPER_INVALID, "'sample': its scale"},
      {"sample", "\"inv_scale\": 2", "\"inv_scale\": 1", TAPER_INVALID, "'sample': its scale"},
      {"weights", "\"emb\"", "\"taper.plan\"", TAPER_INVALID, "no weight 'taper.plan'"},
      {"weights", "\"emb\"", "\"head\"", TAPER_INVALID, "'emb': nothing in it reads"},
      {"weights", "\"rows\": 300", "\"rows\": 301", TAPER_INVALID, "the tensor has 300 x 22"},
      {"weights", "\"cols\": 22", "\"cols\": 21", TAPER_INVALID, "of 21 columns"},
      {"weights", "\"pitch\": 24", "\"pitch\": 22", TAPER_INVALID, "rows of 22 numbers are 22 apart"},
      {"weights", "\"pitch\": 24", "\"pitch\": 20", TAPER_INVALID, "are 20 apart"},
      {"weights", "\"dtype\": \"f32\"", "\"dtype\": \"bf16\"", TAPER_INVALID, "it is F32, not BF16"},
      {"weights", "\"read_rows\": 1", "\"read_rows\": 301", TAPER_INVALID, "a step reads 301 of 300"},
      {"states", "\"heads\": 2", "\"heads\": 0", TAPER_INVALID, "'heads' is no whole number"},
      {"rotary", "\"pairs\": 2", "\"pairs\": 3", TAPER_INVALID, "2 frequencies of 3"},
      {"rotary", "1.5", "\"1.5\"", TAPER_INVALID, "'magnitude' is no finite number"},
      {"p0", "\"stage\": null", "\"stage\": 2", TAPER_INVALID, "probe 0: stage 2 of 2"},
      {"p0", "\"width\": 22", "\"width\": 21", TAPER_INVALID, "probe 0: it lies outside"},
      {"p1", "\"inv_scale\": 2", "\"inv_scale\": 0", TAPER_INVALID, "weight 0 is no vector of 22"},
  };
  for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
    launch_table t;
    taper_error error = {0};
    char *json = changed(cases[i].after, cases[i].from, cases[i].to);
    const taper_status status = read_table(json, &t, &error);
    if (status != cases[i].status || !strstr(error.message, cases[i].message))
      fail_msg("%s -> %s: status %d: %s", cases[i].from, cases[i].to, status, error.message);
    launch_free(&t);
    free(json);
  }
}

/* Any prefix, and any byte changed, is refused or read without a fault of memory. */
static void damage_does_no_harm(void **state) {
  (void)state;
  launch_table t;
  char damaged[sizeof(correct)];
  for (size_t n = 0; n + 1 < sizeof(correct); n++) {
    assert_int_equal(launch_parse(correct, n, &libc, &t, NULL), TAPER_INVALID);
    launch_free(&t);
  }
  for (size_t n = 0; n + 1 < sizeof(correct); n++) {
    memcpy(damaged, correct, sizeof(damaged));
    damaged[n] = (char)(damaged[n] ^ (char)(1 + n % 7));
    (void)read_table(damaged, &t, NULL);
    launch_free(&t);
  }
}

static void *refuse(void *user, void *block, size_t old_size, size_t new_size) {
  int *left = user;
  (void)old_size;
  if (new_size == 0) return free(block), NULL;
  return (*left)-- > 0 ? realloc(block, new_size) : NULL;
}

static void exhausted_memory_is_told(void **state) {
  (void)state;
  launch_table t;
  taper_error error;
  int left = 0;
  const taper_allocator scarce = {refuse, &left};
  assert_int_equal(launch_parse(correct, sizeof(correct) - 1, &scarce, &t, &error), TAPER_NOMEM);
  launch_free(&t);
}

static int open_toy(void **state) {
  (void)state;
  static toy *t;
  taper_error error = {0};
  libc = memory_allocator((taper_allocator){0});
  t = toy_new(0);
  const char *path = toy_path("toy.tpack");
  toy_write(t, path);
  if (package_open(path, &libc, NULL, NULL, &toy_package, &error) != TAPER_OK) fail_msg("%s", error.message);
  toy_free(t);
  return 0;
}

static int close_toy(void **state) {
  (void)state;
  package_close(&toy_package);
  toy_remove_folder();
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(is_read_as_written), cmocka_unit_test(every_mistake_is_refused),
                                     cmocka_unit_test(damage_does_no_harm), cmocka_unit_test(exhausted_memory_is_told)};
  return cmocka_run_group_tests(tests, open_toy, close_toy);
}
