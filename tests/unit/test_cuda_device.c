/* The CUDA device over a model written by hand, executed by the simulator (or by what TAPER_TEST_DEVICE names): the conformance suite,
   numbers against a double evaluation, generation, and everything that may fail. */
#include "cuda/library.h"
#include "runtime/abi/cuda_abi.h"
#include "runtime/model.h"
#include "tests/device/conformance.c" /* one source per test program */
#include "tests/device/toy_cuda.h"
#include <dlfcn.h>

static char *ptx;
static size_t ptx_bytes;
static const char *word; /* of the device */
static toy *numbers;

static taper_status try_model(const char *path, const taper_model_options *given, taper_model **out,
                              taper_error *error) {
  taper_model_options o;
  taper_model_options_init(&o);
  if (given) o = *given;
  o.device = word;
  return taper_model_open(path, &o, out, error);
}

static const char *write_package(const char *name, const char *image, size_t bytes, const char *table, bool nan) {
  const char *path = toy_path(name);
  free(numbers);
  numbers = toy_cuda_write(image, bytes, table, nan, path);
  return path;
}

static void hold_layer(void *user, uint32_t layer, size_t position, const float *row) {
  double *kept = user; /* [2][TOY_CONTEXT][TOY_D] */
  for (size_t i = 0; i < TOY_D; i++) kept[(layer * TOY_CONTEXT + position) * TOY_D + i] = (double)row[i];
}

static void near_all(const double *want, const double *got, size_t n, const char *what) {
  double most = 0;
  for (size_t i = 0; i < n; i++) most = fmax(most, fabs(want[i]));
  for (size_t i = 0; i < n; i++)
    if (!(fabs(want[i] - got[i]) <= 2e-6 * most))
      fail_msg("%s: number %zu is %.9g, not %.9g", what, i, got[i], want[i]);
}

static void numbers_are_those_of_a_double_evaluation(void **state) {
  (void)state;
  enum { N = TOY_CONTEXT };
  const char *path = write_package("toy.tpack", ptx, ptx_bytes, TOY_TABLE("null"), true);
  static double want[N * TOY_V], got[N * TOY_V], streams[2][N * TOY_D], kept[2][N * TOY_D];
  static float logits[N * TOY_V];
  int32_t tokens[N];
  for (uint32_t i = 0; i < N; i++) tokens[i] = (int32_t)(i * 97 % (TOY_V - 1));
  toy_reference(numbers, tokens, N, want, streams[0], streams[1]);
  for (uint32_t chunk = 1; chunk <= 64; chunk = chunk * 3 + 1) {
    taper_model_options o;
    taper_model *m;
    taper_session *s;
    taper_model_options_init(&o);
    o.chunk_rows = chunk;
    OK(try_model(path, &o, &m, e));
    OK(taper_session_new(m, NULL, &s, e));
    OK(taper_session_append_all(s, 0, tokens, N, logits, hold_layer, kept, e));
    for (size_t i = 0; i < N * TOY_V; i++) got[i] = (double)logits[i];
    near_all(want, got, N * TOY_V, "logits");
    for (int l = 0; l < 2; l++) near_all(streams[l], kept[l], N * TOY_D, "a layer");
    taper_session_free(s);
    taper_model_free(m);
  }
}

/* Ids below the one whose row is NaN. */
static void bad_numbers_are_told_and_leave_no_trace(void **state) {
  (void)state;
  const char *path = write_package("nan.tpack", ptx, ptx_bytes, TOY_TABLE("null"), true);
  const int32_t bad[] = {3, 4, TOY_NAN, 5}, good[] = {3, 4, 6};
  float a[TOY_V], b[TOY_V];
  taper_model *m;
  taper_session *s;
  taper_error error = {0};
  OK(try_model(path, NULL, &m, e));
  OK(taper_session_new(m, NULL, &s, e));
  OK(taper_session_append(s, 0, good, 3, a, e));
  OK(taper_session_rewind(s, 0, 0, e));
  assert_int_equal(taper_session_append(s, 0, bad, 4, NULL, &error), TAPER_NUMERIC);
  assert_non_null(strstr(error.message, "sequence 0, position 3: the logit of id 0 is not a finite number"));
  assert_int_equal(taper_session_length(s, 0), 0);
  OK(taper_session_append(s, 0, good, 3, b, e));
  assert_memory_equal(a, b, sizeof(a));
  taper_session_free(s);
  taper_model_free(m);
}

static int keep_id(void *user, int32_t id) {
  int32_t **at = user;
  *(*at)++ = id;
  return 0;
}

/* With and without graphs: the ids of the largest logits, over chunk borders and up to the full context. */
static void greedy_generation_is_the_hosts(void **state) {
  (void)state;
  const char *host = write_package("host.tpack", ptx, ptx_bytes, TOY_TABLE("null"), false);
  const char *own = write_package("own.tpack", ptx, ptx_bytes, TOY_TABLE(TOY_GREEDY), false);
  const int32_t prompt[] = {1, 2, 3};
  int32_t ids_of[3][TOY_CONTEXT + 2];
  size_t count[3];
  for (int i = 0; i < 3; i++) {
    taper_model_options o;
    taper_model *m;
    taper_session *s;
    taper_generation g;
    taper_finish finish;
    int32_t *at = ids_of[i];
    taper_model_options_init(&o);
    taper_generation_init(&g);
    o.no_graph = i == 2;
    g.sampling.temperature = 0, g.max_tokens = 1000, g.on_token = keep_id, g.user = &at;
    OK(try_model(i == 0 ? host : own, &o, &m, e));
    OK(taper_session_new(m, NULL, &s, e));
    for (int again = 0; again < 2; again++) {
      at = ids_of[i];
      OK(taper_session_rewind(s, 0, 0, e));
      OK(taper_generate(s, 0, prompt, 3, &g, &finish, e));
    }
    assert_int_equal(finish, TAPER_FINISH_CONTEXT);
    assert_int_equal(taper_session_length(s, 0), TOY_CONTEXT);
    count[i] = (size_t)(at - ids_of[i]);
    assert_int_equal(count[i], TOY_CONTEXT - 3 + 1);
    assert_memory_equal(ids_of[i], ids_of[0], count[i] * sizeof(int32_t));
    taper_session_free(s);
    taper_model_free(m);
  }
}

/* A kernel that reads where nothing is: the call tells the kernel, the device refuses what follows, a new one works. */
static void a_fault_breaks_the_device_not_the_program(void **state) {
  (void)state;
  size_t bytes = 0;
  char *faulty = toy_ptx(1, &bytes);
  const char *path = write_package("fault.tpack", faulty, bytes, TOY_TABLE("null"), false);
  const int32_t good[] = {3, 4}, bad[] = {7};
  float row[TOY_V];
  for (int round = 0; round < 2; round++) {
    taper_error error = {0};
    taper_model *m;
    taper_session *s, *other;
    OK(try_model(path, NULL, &m, e));
    OK(taper_session_new(m, NULL, &s, e));
    OK(taper_session_append(s, 0, good, 2, row, e));
    assert_int_equal(taper_session_append(s, 0, bad, 1, row, &error), TAPER_DEVICE);
    if (strcmp(word, "sim") == 0 && (!strstr(error.message, "mix") || !strstr(error.message, "toy_cuda.cu")))
      fail_msg("no kernel or line in: %s", error.message);
    assert_int_equal(taper_session_length(s, 0), 2);
    assert_int_equal(taper_session_append(s, 0, good, 2, row, &error), TAPER_DEVICE);
    assert_non_null(strstr(error.message, "the device failed before"));
    assert_int_equal(taper_session_new(m, NULL, &other, &error), TAPER_DEVICE);
    assert_int_equal(taper_session_clone(s, &other, &error), TAPER_DEVICE);
    taper_session_free(s);
    taper_model_free(m);
  }
  free(faulty);
}

/* What only probes need asks for more shared memory than there is: that call fails, and only that one. */
static void a_launch_that_fails_leaves_the_session(void **state) {
  (void)state;
  static const char more[] =
      ", {\"name\": \"too much\", \"kernel\": 5, \"grid\": [1, 1, 1], \"args\": [], \"probes\": true, "
      "\"wide\": null}";
  static double layers_of[2 * TOY_CONTEXT * TOY_D];
  char table[sizeof(TOY_TABLE_OF("null", "49152", "")) + sizeof(more)];
  snprintf(table, sizeof(table), TOY_TABLE_OF("null", "49152", "%s"), more);
  const char *path = write_package("launch.tpack", ptx, ptx_bytes, table, false);
  const int32_t tokens[] = {3, 4, 5};
  float a[TOY_V], b[TOY_V];
  taper_model *m;
  taper_session *s;
  taper_error error = {0};
  OK(try_model(path, NULL, &m, e));
  OK(taper_session_new(m, NULL, &s, e));
  OK(taper_session_append(s, 0, tokens, 3, a, e));
  OK(taper_session_rewind(s, 0, 2, e));
  assert_int_equal(taper_session_append_all(s, 0, tokens, 1, NULL, hold_layer, layers_of, &error), TAPER_DEVICE);
  if (!strstr(error.message, "stage 'too much': kernel 'greedy', grid 1 x 1 x 1 of 32 threads: cuLaunchKernel: "))
    fail_msg("%s", error.message);
  assert_int_equal(taper_session_length(s, 0), 2);
  OK(taper_session_append(s, 0, tokens + 2, 1, b, e));
  assert_memory_equal(a, b, sizeof(a));
  taper_session_free(s);
  taper_model_free(m);
}

static void what_does_not_fit_names_its_size(void **state) {
  (void)state;
  if (strcmp(word, "sim") != 0) skip(); /* another device's memory cannot be made small */
  const char *path = write_package("toy.tpack", ptx, ptx_bytes, TOY_TABLE("null"), false);
  static const struct {
    const char *bytes, *what;
  } cases[] = {{"1024", "tensor 'emb': no memory on "}, {"65536", "no memory on "}};
  for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
    taper_error error = {0};
    taper_model *m;
    assert_int_equal(setenv("TAPER_SIM_MEMORY", cases[i].bytes, 1), 0);
    const taper_status status = try_model(path, NULL, &m, &error);
    assert_int_equal(unsetenv("TAPER_SIM_MEMORY"), 0);
    if (status != TAPER_NOMEM || !strstr(error.message, cases[i].what) || !strstr(error.message, " bytes; "))
      fail_msg("status %d: %s", status, error.message);
    OK(try_model(path, NULL, &m, e));
    taper_model_free(m);
  }
}

static void keep_log(void *user, taper_log_level level, const char *line) {
  (void)level;
  strncat(user, line, 900);
}

static void images_are_chosen_and_refused_in_words(void **state) {
  (void)state;
  if (strcmp(word, "sim") != 0) skip();
  const char *path = write_package("toy.tpack", ptx, ptx_bytes, TOY_TABLE("null"), false);
  static const struct {
    const char *variable, *value, *image, *message;
  } cases[] = {
      {"TAPER_SIM_CAPABILITY", "80", NULL,
       "a GPU of sm_80 that executes PTX only: the package has compute_90; compile it with --arch compute_80 or lower"},
      {"TAPER_SIM_CAPABILITY", "75", NULL, "a GPU of sm_75, kernels need sm_80 or newer"},
      {"TAPER_SIM_CAPABILITY", "9x", NULL, "TAPER_SIM_CAPABILITY is '9x', no whole number from 75 to 121"},
      {"TAPER_SIM_DEVICES", "0", NULL, "finds no device"},
      {"TAPER_SIM_DRIVER", "11080", NULL, "the driver is for CUDA 11.8"},
      {"TAPER_SIM_CAPABILITY", "90", "sm_90", "there is no image 'sm_90'; the package has compute_90"}};
  for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
    taper_model_options o;
    taper_error error = {0};
    taper_model *m = NULL;
    taper_model_options_init(&o);
    o.image = cases[i].image;
    assert_int_equal(setenv(cases[i].variable, cases[i].value, 1), 0);
    const taper_status status = try_model(path, &o, &m, &error);
    assert_int_equal(unsetenv(cases[i].variable), 0);
    if (status == TAPER_OK || !strstr(error.message, cases[i].message))
      fail_msg("status %d: %s", status, error.message);
  }
  char log[4000] = "";
  taper_model_options o;
  taper_model *m;
  taper_model_options_init(&o);
  o.log = keep_log, o.log_user = log;
  OK(try_model(path, &o, &m, e));
  assert_non_null(strstr(log, "image compute_90, compiled by the driver, programmatic launches"));
  taper_model_free(m);
}

/* A table whose hash is right and that names what the image has not. */
static void a_kernel_that_is_not_there_is_damage(void **state) {
  (void)state;
  static const char other[] = TOY_TABLE("null"), was[] = "\"squash\", \"threads\"";
  char table[sizeof(other)];
  taper_error error = {0};
  taper_model *m;
  memcpy(table, other, sizeof(table));
  char *at = strstr(table, was);
  assert_non_null(at);
  memcpy(at, "\"squish", 7);
  const char *path = write_package("other.tpack", ptx, ptx_bytes, table, false);
  const taper_status status = try_model(path, NULL, &m, &error);
  if (status != TAPER_INVALID ||
      !strstr(error.message, "image 'compute_90' has no kernel 'squish'; the package is damaged"))
    fail_msg("status %d: %s", status, error.message);
}

static void devices_and_packages_must_agree(void **state) {
  (void)state;
  static const struct {
    const char *device, *message;
  } cases[] = {{"cpu", "compiled for the target 'cuda', which the device 'cpu' does not run"},
               {"gpu", "'gpu' is not a device; give cpu, cuda, cuda:N or sim"},
               {"cuda:", "is not a device"},
               {"cuda:-1", "is not a device"}};
  const char *path = write_package("toy.tpack", ptx, ptx_bytes, TOY_TABLE("null"), false);
  for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
    taper_model_options o;
    taper_error error = {0};
    taper_model *m;
    taper_model_options_init(&o);
    o.device = cases[i].device;
    if (taper_model_open(path, &o, &m, &error) == TAPER_OK || !strstr(error.message, cases[i].message))
      fail_msg("%s: %s", cases[i].device, error.message);
  }
  taper_model_options o;
  taper_error error = {0};
  taper_model *m;
  taper_model_options_init(&o);
  o.device = word, o.gemm = "mkl";
  assert_int_equal(taper_model_open(path, &o, &m, &error), TAPER_INVALID);
  assert_non_null(strstr(error.message, "option 'gemm' is 'mkl'; give cublas or generated"));
}

/* The tokens 1, 2, ... of a slot are there; the next one is what a row begins with. */
static void fill_slot(taper_model *m, device_state *s, uint32_t slot, uint32_t n) {
  int32_t token[TOY_CONTEXT], pos[TOY_CONTEXT], slots[TOY_CONTEXT], out_row = (int32_t)n - 1;
  float *nowhere = NULL;
  for (uint32_t i = 0; i < n; i++)
    token[i] = (int32_t)(1 + i * 5 + slot), pos[i] = (int32_t)i, slots[i] = (int32_t)slot;
  device_batch b = {
      .rows = n, .out_rows = 1, .token = token, .pos = pos, .slot = slots, .out_row = &out_row, .logits = &nowhere};
  OK(m->device->ops->run(m->device, s, &b, e));
}

enum { ROWS = 5 };
static const uint32_t lengths[ROWS] = {1, 9, 3, 17, 33};

/* Rows of different lengths, 20 tokens in a graph and a piece of one: as each alone; ends and faults stop their row only. */
static void rows_decode_together_as_alone(void **state) {
  (void)state;
  const char *path = write_package("own.tpack", ptx, ptx_bytes, TOY_TABLE(TOY_GREEDY), true);
  taper_sampling greedy;
  taper_model *m;
  device_state *together, *alone;
  int32_t history[TOY_CONTEXT] = {0}, out[2][ROWS][DEVICE_DECODE_MOST];
  device_decode_row row[2][ROWS];
  taper_sampling_init(&greedy);
  OK(try_model(path, NULL, &m, e));
  device *d = m->device;
  OK(d->ops->state_new(d, ROWS, TOY_CONTEXT, &together, e));
  OK(d->ops->state_new(d, ROWS, TOY_CONTEXT, &alone, e));
  for (uint32_t r = 0; r < ROWS; r++) fill_slot(m, together, r, lengths[r]), fill_slot(m, alone, r, lengths[r]);
  for (uint32_t most = DEVICE_DECODE_MOST; most > 0; most /= 4) {
    for (uint32_t r = 0; r < ROWS; r++) {
      for (int k = 0; k < 2; k++)
        row[k][r] = (device_decode_row){.token = r == 2 ? TOY_NAN : 40 + (int32_t)r,
                                        .slot = r,
                                        .length = lengths[r],
                                        .history = history,
                                        .out = out[k][r]};
      device_decode call = {.sampling = &greedy, .row = &row[1][r], .rows = 1, .most = most, .end_token = -1};
      OK(d->ops->decode(d, alone, &call, e));
    }
    const int32_t end = most > 2 ? out[1][3][2] : -1; /* row 3 chooses it, others may */
    device_decode call = {.sampling = &greedy, .row = row[0], .rows = ROWS, .most = most, .end_token = end};
    OK(d->ops->decode(d, together, &call, e));
    for (uint32_t r = 0; r < ROWS; r++) {
      uint32_t made = 0;
      while (made < row[1][r].made && out[1][r][made] != end) made++;
      assert_int_equal(row[0][r].made, made);
      assert_memory_equal(out[0][r], out[1][r], made * sizeof(int32_t));
      const uint32_t why = r == 2 ? TAPER_CUDA_NUMERIC : made < most ? TAPER_CUDA_END : TAPER_CUDA_LENGTH;
      assert_int_equal(row[0][r].end, why);
    }
    assert_int_equal(row[0][2].bad_id, 0);
    d->ops->state_scrub(d, together, 2);
    d->ops->state_scrub(d, alone, 2);
  }
  d->ops->state_free(d, together);
  d->ops->state_free(d, alone);
  taper_model_free(m);
}

/* The simulator, held open so that it remembers what was never freed. */
static const char *(*open_simulator(void **out_library))(void) {
  const char *(*fault)(void) = NULL;
  char path[1000];
  *out_library = library_beside("libtaper-sim.so", path, sizeof(path)) ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
  void *symbol = *out_library ? dlsym(*out_library, "taper_sim_fault") : NULL;
  memcpy(&fault, &symbol, sizeof(fault));
  return fault;
}

typedef struct scarce {
  long left; /* allocations that are granted; < 0: all */
  long blocks;
} scarce;

static void *grant(void *user, void *block, size_t old_size, size_t new_size) {
  scarce *a = user;
  (void)old_size;
  if (new_size == 0) return a->blocks -= block != NULL, free(block), NULL;
  if (a->left == 0) return NULL;
  if (a->left > 0) a->left--;
  a->blocks += block == NULL;
  return realloc(block, new_size);
}

/* Loads, computes, generates; what does not get its memory leaves none behind, on neither side. */
static taper_status whole_life(const char *path, scarce *a, taper_error *error) {
  taper_model_options o;
  taper_model *m;
  taper_session *s = NULL, *c = NULL;
  taper_generation g;
  const int32_t prompt[] = {1, 2};
  taper_model_options_init(&o);
  taper_generation_init(&g);
  g.sampling.temperature = 0, g.max_tokens = 3;
  o.threads = 1, o.allocator = (taper_allocator){grant, a};
  TAPER_TRY(try_model(path, &o, &m, error));
  taper_status status = taper_session_new(m, NULL, &s, error);
  if (status == TAPER_OK) status = taper_generate(s, 0, prompt, 2, &g, NULL, error);
  if (status == TAPER_OK) status = taper_session_clone(s, &c, error);
  taper_session_free(c);
  taper_session_free(s);
  taper_model_free(m);
  return status;
}

static void exhausted_memory_leaves_nothing_behind(void **state) {
  (void)state;
  if (strcmp(word, "sim") != 0) skip();
  void *library;
  const char *(*fault)(void) = open_simulator(&library);
  const char *path = write_package("own.tpack", ptx, ptx_bytes, TOY_TABLE(TOY_GREEDY), false);
  taper_error error = {0};
  taper_status status = TAPER_NOMEM;
  if (!fault) fail_msg("libtaper-sim.so: %s", dlerror());
  for (long n = 0; status != TAPER_OK; n++) {
    scarce a = {.left = n};
    status = whole_life(path, &a, &error);
    if (status != TAPER_OK && status != TAPER_NOMEM)
      fail_msg("allocation %ld: status %d: %s", n, status, error.message);
    assert_int_equal(a.blocks, 0);
    if (strstr(fault(), "never freed")) fail_msg("allocation %ld: %s", n, fault());
    assert_true(n < 500);
  }
  status = TAPER_NOMEM;
  for (long bytes = 4000; status != TAPER_OK; bytes += 4000) {
    scarce a = {.left = -1};
    char text_of[32];
    snprintf(text_of, sizeof(text_of), "%ld", bytes);
    assert_int_equal(setenv("TAPER_SIM_MEMORY", text_of, 1), 0);
    status = whole_life(path, &a, &error);
    if (status != TAPER_OK && status != TAPER_NOMEM) fail_msg("%ld bytes: status %d: %s", bytes, status, error.message);
    assert_int_equal(a.blocks, 0);
    if (strstr(fault(), "never freed")) fail_msg("%ld bytes: %s", bytes, fault());
    assert_true(bytes < 1 << 20);
  }
  assert_int_equal(unsetenv("TAPER_SIM_MEMORY"), 0);
  dlclose(library);
}

static void there_is_no_nvrtc(void **state) {
  (void)state;
  skip();
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(numbers_are_those_of_a_double_evaluation),
                                     cmocka_unit_test(bad_numbers_are_told_and_leave_no_trace),
                                     cmocka_unit_test(greedy_generation_is_the_hosts),
                                     cmocka_unit_test(a_fault_breaks_the_device_not_the_program),
                                     cmocka_unit_test(a_launch_that_fails_leaves_the_session),
                                     cmocka_unit_test(rows_decode_together_as_alone),
                                     cmocka_unit_test(what_does_not_fit_names_its_size),
                                     cmocka_unit_test(exhausted_memory_leaves_nothing_behind),
                                     cmocka_unit_test(images_are_chosen_and_refused_in_words),
                                     cmocka_unit_test(a_kernel_that_is_not_there_is_damage),
                                     cmocka_unit_test(devices_and_packages_must_agree)};
  const struct CMUnitTest none[] = {cmocka_unit_test(there_is_no_nvrtc)};
  word = getenv("TAPER_TEST_DEVICE");
  if (!word) word = "sim";
  ptx = toy_ptx(0, &ptx_bytes);
  if (!ptx) return cmocka_run_group_tests(none, NULL, NULL);
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  failed += conformance_run(word, write_package("toy.tpack", ptx, ptx_bytes, TOY_TABLE("null"), false), false);
  free(numbers);
  free(ptx);
  toy_remove_folder();
  return failed != 0;
}
