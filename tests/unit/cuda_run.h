/* cuda_run.h - one kernel template, compiled by NVRTC and executed by the simulator, for tests that compare it with plain C. */
#ifndef TESTS_UNIT_CUDA_RUN_H
#define TESTS_UNIT_CUDA_RUN_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "compiler/emit/emit_priv.h"
#include "cuda/driver.h"
#include "cuda/nvrtc.h"
#include "runtime/abi/cuda_abi.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct cuda_run {
  cuda_driver driver;
  CUcontext context;
  CUstream stream;
  CUmodule module;
  CUfunction kernel;
} cuda_run;

/* Whether NVRTC is there; says so once where it is not. */
static inline bool run_has_compiler(void) {
  nvrtc_facts facts;
  taper_error error = {0};
  if (nvrtc_find(NULL, &facts, &error) == TAPER_OK) return true;
  static bool told;
  if (!told) printf("skip: no NVRTC here\n");
  told = true;
  return false;
}

static inline void run_check(const cuda_run *r, CUresult result, const char *call) {
  taper_error error = {0};
  if (cuda_driver_check(&r->driver, result, call, &error) != TAPER_OK) fail_msg("%s", error.message);
}
#define RUN_CHECK(r, call) run_check(r, call, #call)

static inline void run_open(cuda_run *r) {
  taper_error error = {0};
  *r = (cuda_run){0};
  if (cuda_driver_open(NULL, true, &r->driver, &error) != TAPER_OK) fail_msg("%s", error.message);
  CUdevice ordinal;
  RUN_CHECK(r, r->driver.cuDeviceGet(&ordinal, 0));
  RUN_CHECK(r, r->driver.cuDevicePrimaryCtxRetain(&r->context, ordinal));
  RUN_CHECK(r, r->driver.cuCtxPushCurrent_v2(r->context));
  RUN_CHECK(r, r->driver.cuStreamCreate(&r->stream, CU_STREAM_NON_BLOCKING));
}

static inline void run_close(cuda_run *r) {
  CUcontext context;
  if (r->module) RUN_CHECK(r, r->driver.cuModuleUnload(r->module));
  RUN_CHECK(r, r->driver.cuStreamDestroy_v2(r->stream));
  RUN_CHECK(r, r->driver.cuCtxPopCurrent_v2(&context));
  RUN_CHECK(r, r->driver.cuDevicePrimaryCtxRelease_v2(0));
  cuda_driver_close(&r->driver);
}

static inline void run_put_header(const char *name, text *out) {
  const char *header = emit_template(name);
  if (!header) fail_msg("%s is not in this program", name);
  emit_header(header, out);
}

/* A template without its includes. */
static inline void run_put_template(const char *from, text *out) {
  while (*from) {
    const char *end = strchr(from, '\n');
    if (strncmp(from, "#include", 8) != 0) text_put(out, from, (size_t)(end - from) + 1);
    from = end + 1;
  }
}

/* Compiles `template` behind the headers that every source has, `headers` (NULL ends them) and `defines` (#define lines with P_NAME
   tested_kernel; "": the template's own shape), and loads it in the place of the kernel before. */
static inline void run_load(cuda_run *r, const char *const *headers, const char *defines, const char *template,
                            const char *name) {
  text source = {0};
  run_put_header("runtime/abi/cuda_abi.h", &source);
  for (; *headers; headers++) run_put_header(*headers, &source);
  text_printf(&source, "%s%s", defines, *defines ? "#define P_COMMENT\n" : "");
  run_put_template(emit_template(template), &source);
  nvrtc_request request = {.source = source.data, .name = template, .arch = "compute_90"};
  nvrtc_result image = {0};
  taper_error error = {0};
  if (nvrtc_compile(&request, &image, &error) != TAPER_OK) fail_msg("%s%s: %s", defines, template, error.message);
  if (r->module) RUN_CHECK(r, r->driver.cuModuleUnload(r->module));
  RUN_CHECK(r, r->driver.cuModuleLoadDataEx(&r->module, image.image, 0, NULL, NULL));
  RUN_CHECK(r, r->driver.cuModuleGetFunction(&r->kernel, r->module, name));
  nvrtc_free(&image);
  text_free(&source);
}

/* Device memory with a copy of `from`, or as it comes where it is NULL. */
static inline CUdeviceptr run_put(cuda_run *r, const void *from, size_t bytes) {
  CUdeviceptr p = 0;
  RUN_CHECK(r, r->driver.cuMemAlloc_v2(&p, bytes ? bytes : 4));
  if (from && bytes) RUN_CHECK(r, r->driver.cuMemcpyHtoDAsync_v2(p, from, bytes, r->stream));
  RUN_CHECK(r, r->driver.cuStreamSynchronize(r->stream));
  return p;
}
static inline void run_get(cuda_run *r, CUdeviceptr p, void *to, size_t bytes) {
  RUN_CHECK(r, r->driver.cuMemcpyDtoHAsync_v2(to, p, bytes, r->stream));
  RUN_CHECK(r, r->driver.cuStreamSynchronize(r->stream));
}
static inline void run_free(cuda_run *r, CUdeviceptr p) { RUN_CHECK(r, r->driver.cuMemFree_v2(p)); }

/* grid: x, y, z. `args`: the second parameter. */
static inline void run_launch(cuda_run *r, const unsigned grid[3], unsigned threads, taper_cuda_call *call,
                              void *args) {
  void *parameters[] = {call, args};
  RUN_CHECK(
      r, r->driver.cuLaunchKernel(r->kernel, grid[0], grid[1], grid[2], threads, 1, 1, 0, r->stream, parameters, NULL));
  RUN_CHECK(r, r->driver.cuStreamSynchronize(r->stream));
}

static inline float *run_addressed(CUdeviceptr p) { return (float *)(uintptr_t)p; }

static inline float run_uniform(void) { return (float)rand() / (float)RAND_MAX * 2 - 1; }

#endif
