/* sim_driver.h - the simulator's driver as the runtime opens it, one context a test, and how a test says what a call must do. */
#ifndef TAPER_TESTS_SIM_DRIVER_H
#define TAPER_TESTS_SIM_DRIVER_H

#include "cuda/cublas.h"
#include "cuda/sim/control.h"
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
// cmocka needs the headers above first
#include <cmocka.h>

static cuda_driver cu;
static CUcontext context;
static struct {
#define SIM_CONTROL(result, name, parameters) result(*name) parameters;
#include "cuda/sim/control.def"
} sim;

/* The call succeeds. */
#define OK(call)                                                                                                       \
  do {                                                                                                                 \
    int ok_result_ = (call);                                                                                           \
    if (ok_result_ != 0) fail_msg("%s: %d, %s", #call, ok_result_, sim.taper_sim_fault());                             \
  } while (0)
/* The call returns `code`, and the fault says `words`. */
#define REFUSED(code, words, call)                                                                                     \
  do {                                                                                                                 \
    int refused_result_ = (call);                                                                                      \
    const char *refused_fault_ = sim.taper_sim_fault();                                                                \
    if (refused_result_ != (code) || !strstr(refused_fault_, (words)))                                                 \
      fail_msg("%s: %d, \"%s\"; wanted %s and \"%s\"", #call, refused_result_, refused_fault_, #code, (words));        \
  } while (0)

static int sim_open(void **state) {
  taper_error error = {0};
  (void)state;
  if (cuda_driver_open(NULL, true, &cu, &error) != TAPER_OK) fail_msg("%s", error.message);
#define SIM_CONTROL(result, name, parameters)                                                                          \
  *(void **)&sim.name = dlsym(cu.library, #name);                                                                      \
  assert_non_null(sim.name);
#include "cuda/sim/control.def"
  return 0;
}

static int sim_close(void **state) {
  (void)state;
  cuda_driver_close(&cu);
  return 0;
}

/* The default options but `eager`, and a context. */
static void sim_begin(uint32_t eager) {
  static taper_sim_options defaults;
  if (!defaults.capability) sim.taper_sim_options_get(&defaults);
  taper_sim_options o = defaults;
  o.eager = eager;
  OK(sim.taper_sim_options_set(&o));
  OK(cu.cuDevicePrimaryCtxRetain(&context, 0));
  OK(cu.cuCtxPushCurrent_v2(context));
  sim.taper_sim_counters_reset();
}

__attribute__((unused)) static int sim_deferred(void **state) {
  (void)state;
  sim_begin(0);
  return 0;
}
__attribute__((unused)) static int sim_eager(void **state) {
  (void)state;
  sim_begin(1);
  return 0;
}

/* Nothing was forgotten, unless the context is broken. */
static int sim_end(void **state) {
  (void)state;
  OK(cu.cuCtxPopCurrent_v2(NULL));
  OK(cu.cuDevicePrimaryCtxRelease_v2(0));
  return 0;
}

/* Another device: `change` is applied to the options between two contexts. */
#define SIM_CHANGE(change)                                                                                             \
  do {                                                                                                                 \
    taper_sim_options o_;                                                                                              \
    sim_end(NULL);                                                                                                     \
    sim.taper_sim_options_get(&o_);                                                                                    \
    o_.change;                                                                                                         \
    OK(sim.taper_sim_options_set(&o_));                                                                                \
    OK(cu.cuDevicePrimaryCtxRetain(&context, 0));                                                                      \
    OK(cu.cuCtxPushCurrent_v2(context));                                                                               \
  } while (0)

/* tests/sim/NAME, of malloc, with its NUL. Tests run in the root of the repository. */
__attribute__((unused)) static char *sim_read(const char *name) {
  char path[256];
  snprintf(path, sizeof(path), "tests/sim/%s", name);
  FILE *f = fopen(path, "rb");
  assert_non_null(f);
  char *text = calloc(1, 1 << 20);
  assert_non_null(text);
  assert_true(fread(text, 1, (1 << 20) - 1, f) > 0);
  fclose(f);
  return text;
}

__attribute__((unused)) static CUmodule sim_load(const char *name) {
  char *ptx = sim_read(name);
  CUmodule m = NULL;
  OK(cu.cuModuleLoadDataEx(&m, ptx, 0, NULL, NULL));
  free(ptx);
  return m;
}

__attribute__((unused)) static CUfunction sim_function(CUmodule m, const char *name) {
  CUfunction f = NULL;
  OK(cu.cuModuleGetFunction(&f, m, name));
  return f;
}

/* `count` floats on the device: from + i * step, or nothing written where `step` is NAN. */
__attribute__((unused)) static CUdeviceptr sim_floats(size_t count, float from, float step) {
  CUdeviceptr memory = 0;
  OK(cu.cuMemAlloc_v2(&memory, count * 4));
  if (step != step) return memory;
  float *host = malloc(count * 4);
  assert_non_null(host);
  for (size_t i = 0; i < count; i++) host[i] = from + (float)i * step;
  OK(cu.cuMemcpyHtoDAsync_v2(memory, host, count * 4, NULL));
  OK(cu.cuStreamSynchronize(NULL));
  free(host);
  return memory;
}

__attribute__((unused)) static void sim_get(float *out, CUdeviceptr from, size_t count) {
  OK(cu.cuMemcpyDtoHAsync_v2(out, from, count * 4, NULL));
  OK(cu.cuCtxSynchronize());
}

__attribute__((unused)) static CUresult sim_start(CUfunction f, unsigned grid, unsigned block, unsigned shared,
                                                  CUstream stream, void **parameters) {
  return cu.cuLaunchKernel(f, grid, 1, 1, block, 1, 1, shared, stream, parameters, NULL);
}
#define PARAMETERS(...) ((void *[]){__VA_ARGS__})

#endif
