/* What the kernels of a package read, counted by the simulator: each weight once a token, and nearly every byte of every
   sector of 32 bytes that it takes; fp32 and 16-bit, one row and eight. */
#include "cuda/device_priv.h"
#include "cuda/sim/control.h"
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
// cmocka needs the headers above first
#include <cmocka.h>

enum { EXIT_NO_DEVICE = 3, CALLS = 2, SLOTS = 8 };

static char *at_build(const char *name) {
  static char path[1024];
  ssize_t n = readlink("/proc/self/exe", path, 512);
  assert_true(n > 0);
  path[n] = 0;
  for (int up = 0; up < 3; up++) *strrchr(path, '/') = 0;
  strcat(strcat(path, "/"), name);
  return path;
}

/* A package for the simulator; skips the test where there is no NVRTC. */
static void compile(const char *model, const char *dtype, char path[64]) {
  snprintf(path, 64, "/tmp/taper-traffic-%d.tpack", (int)getpid());
  const pid_t child = fork();
  if (child == 0) {
    if (!freopen("/dev/null", "w", stderr)) _exit(1);
    execl(at_build("taperc"), "taperc", "compile", model, "--target", "cuda", "--arch", "compute_90", "--dtype", dtype,
          "-o", path, (char *)NULL);
  }
  int how = 0;
  waitpid(child, &how, 0);
  if (WIFEXITED(how) && WEXITSTATUS(how) == EXIT_NO_DEVICE) {
    print_message("%s %s: no NVRTC here\n", model, dtype);
    skip();
  }
  assert_int_equal(how, 0);
}

typedef struct opened {
  package p;
  cuda_device *d;
  device_state *s;
} opened;

static opened open_model(const char *path) {
  opened o = {0};
  taper_error error = {0};
  taper_model_options options;
  device *d = NULL;
  const taper_allocator allocator = memory_allocator((taper_allocator){0});
  taper_model_options_init(&options);
  options.device = "sim";
  options.gemm = "generated";
  options.chunk_rows = SLOTS;
  if (package_open(path, &allocator, NULL, NULL, &o.p, &error) != TAPER_OK) fail_msg("%s", error.message);
  if (device_sim.open(&o.p, &options, &allocator, &d, &error) != TAPER_OK) fail_msg("%s", error.message);
  if (d->ops->state_new(d, SLOTS, 16, &o.s, &error) != TAPER_OK) fail_msg("%s", error.message);
  o.d = (cuda_device *)d;
  return o;
}

static void close_model(opened *o) {
  device_sim.state_free(&o->d->base, o->s);
  device_sim.close(&o->d->base);
  package_close(&o->p);
}

/* One call: a token for each of `rows` slots, at `position`. */
static void run(const opened *o, uint32_t rows, int32_t position) {
  taper_error error = {0};
  int32_t token[SLOTS], pos[SLOTS], slot[SLOTS], out_row[SLOTS];
  float *logits[SLOTS] = {0};
  for (uint32_t r = 0; r < rows; r++) {
    token[r] = (int32_t)(3 * r) + position, pos[r] = position;
    slot[r] = out_row[r] = (int32_t)r;
  }
  device_batch b = {
      .rows = rows, .out_rows = rows, .token = token, .pos = pos, .slot = slot, .out_row = out_row, .logits = logits};
  if (device_sim.run(&o->d->base, o->s, &b, &error) != TAPER_OK) fail_msg("%s", error.message);
}

typedef struct controls {
  CUresult (*usage)(CUdeviceptr memory, int reset, sim_usage *out);
  void (*reset)(void);
} controls;

static controls look_up(const opened *o) {
  controls c;
  *(void **)&c.usage = dlsym(o->d->driver.library, "taper_sim_usage");
  *(void **)&c.reset = dlsym(o->d->driver.library, "taper_sim_counters_reset");
  assert_true(c.usage && c.reset);
  return c;
}

/* Bytes of the allocation of weight i that a call of `rows` rows reads, with the padding of rows or without. A matrix that is a table
   of tokens too may be read a row a token more. */
static uint64_t expected(const cuda_device *d, uint32_t i, uint32_t rows, bool most) {
  uint64_t bytes = 0;
  for (uint32_t k = 0; k < d->table.weights.count; k++) {
    const launch_weight *w = &d->table.weights.at[k];
    const uint64_t looked_up = w->read_rows < w->rows ? rows * w->read_rows : w->rows + (most ? rows : 0);
    if (d->weight[k] == d->weight[i]) bytes += looked_up * (most ? w->pitch : w->cols) * st_dtype_size(w->dtype);
  }
  return bytes;
}

/* Two calls of `rows` rows read every matrix twice, whole, and nothing else of its sectors. */
static void check_rows(const opened *o, const char *model, uint32_t rows) {
  cuda_device *d = o->d;
  const controls c = look_up(o);
  uint64_t matrices = 0;
  taper_error error = {0};
  run(o, rows, 0);
  c.reset();
  for (int32_t p = 1; p <= CALLS; p++) run(o, rows, p);
  assert_int_equal(cuda_enter(d, &error), TAPER_OK);
  for (uint32_t i = 0; i < d->table.weights.count; i++) {
    const launch_weight *w = &d->table.weights.at[i];
    sim_usage u = {0};
    assert_int_equal(c.usage(d->weight[i], 0, &u), CUDA_SUCCESS);
    assert_int_equal(u.store_bytes, 0);
    if (w->rows == 1 || w->read_rows < w->rows) continue; /* vectors are small, and read where they are needed */
    matrices++;
    const uint64_t least = CALLS * expected(d, i, rows, false), most = CALLS * expected(d, i, rows, true);
    if (u.load_bytes < least || u.load_bytes > most)
      fail_msg("%s, %u rows, weight '%s' [%u x %u]: %llu bytes loaded, wanted %llu to %llu", model, rows, w->tensor,
               w->rows, w->cols, (unsigned long long)u.load_bytes, (unsigned long long)least, (unsigned long long)most);
    if ((double)u.read_bytes < 0.95 * 32 * (double)u.read_sectors ||
        (double)u.load_sectors > 1.05 * (double)u.read_sectors)
      fail_msg("%s, %u rows, weight '%s': %llu bytes of %llu sectors, touched %llu times", model, rows, w->tensor,
               (unsigned long long)u.read_bytes, (unsigned long long)u.read_sectors,
               (unsigned long long)u.load_sectors);
  }
  cuda_leave(d);
  assert_true(matrices >= 4);
}

static void check_weights(const char *model, const char *dtype) {
  char path[64];
  compile(model, dtype, path);
  opened o = open_model(path);
  check_rows(&o, model, 1);
  check_rows(&o, model, SLOTS);
  void *library = dlopen(o.d->driver.path, RTLD_NOW);
  assert_non_null(library);
  const char *(*fault)(void);
  *(void **)&fault = dlsym(library, "taper_sim_fault");
  close_model(&o);
  assert_string_equal(fault(), ""); /* nothing was forgotten, either */
  dlclose(library);
  unlink(path);
}

static void weights_are_read_once_f32(void **state) {
  (void)state;
  check_weights("examples/models/kjv-all", "f32");
}
static void weights_are_read_once_bf16(void **state) {
  (void)state;
  check_weights("examples/models/kjv-internal", "bf16");
}
static void weights_are_read_once_f16(void **state) {
  (void)state;
  check_weights("examples/models/kjv-ln", "f16");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(weights_are_read_once_f32),
      cmocka_unit_test(weights_are_read_once_bf16),
      cmocka_unit_test(weights_are_read_once_f16),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
