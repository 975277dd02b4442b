#include "cuda/probe.h"
#include "cuda/child.h"
#include "cuda/cublas.h"
#include "cuda/library.h"
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { FACTS = 'V', SECONDS = 60 };
#define SIMULATED "simulated"

/* ---- in the child ---- */

static taper_status ask_driver(const char *kind, cuda_probe_facts *f, taper_error *error) {
  cuda_driver d;
  TAPER_TRY(cuda_driver_open(NULL, strcmp(kind, SIMULATED) == 0, &d, error));
  snprintf(f->path, sizeof f->path, "%s", d.path);
  f->version = d.version;
  TAPER_TRY(cuda_driver_check(&d, d.cuDeviceGetCount(&f->devices), "cuDeviceGetCount", error));
  for (; f->described < f->devices && f->described < CUDA_PROBE_DEVICES; f->described++)
    TAPER_TRY(cuda_device_describe(&d, f->described, &f->device[f->described], error));
  return TAPER_OK;
}

/* cublasGetVersion wants a handle, and that a device. */
static taper_status ask_cublas(const char *kind, cuda_probe_facts *f, taper_error *error) {
  (void)kind;
  cublas_library l;
  int major = 0, minor = 0;
  TAPER_TRY(cublas_library_open(NULL, false, &l, error));
  snprintf(f->path, sizeof f->path, "%s", l.path);
  int (*property)(int, int *) = (int (*)(int, int *))(uintptr_t)dlsym(l.library, "cublasGetProperty");
  if (property && property(0, &major) == 0 && property(1, &minor) == 0) f->version = major * 10000 + minor * 100;
  return TAPER_OK;
}

static void serve(taper_status (*ask)(const char *, cuda_probe_facts *, taper_error *), const char *kind, int out) {
  cuda_probe_facts facts = {0};
  taper_error error = {0};
  if (ask(kind, &facts, &error) == TAPER_OK)
    child_put(out, FACTS, &facts, sizeof facts);
  else
    child_fail(out, &error);
}

static void serve_driver(const char *request, size_t size, int out) {
  (void)size;
  serve(ask_driver, request, out);
}

static void serve_cublas(const char *request, size_t size, int out) {
  (void)size;
  serve(ask_cublas, request, out);
}

static const child_job driver_job = {"cuda-driver", serve_driver}, cublas_job = {"cuda-cublas", serve_cublas};
CHILD_JOB(driver_job)
CHILD_JOB(cublas_job)

/* ---- in the parent ---- */

static taper_status run(const child_job *job, const char *kind, const char *who, const char *remedy,
                        cuda_probe_facts *out, taper_error *error) {
  child_answer answer = {0};
  size_t size = 0;
  memset(out, 0, sizeof *out);
  taper_status status = child_run(job, kind, strlen(kind) + 1, SECONDS, &answer, error);
  if (status == TAPER_OK) status = child_outcome(&answer, who, remedy, error);
  if (status == TAPER_OK) {
    const char *facts = child_find(&answer, FACTS, &size);
    if (facts && size == sizeof *out)
      memcpy(out, facts, sizeof *out);
    else
      status = TAPER_FAIL(error, TAPER_DEVICE, "%s says nothing of itself; %s", who, remedy);
  }
  child_free(&answer);
  return status;
}

taper_status cuda_probe_driver(bool simulated, cuda_probe_facts *out, taper_error *error) {
  if (simulated) return run(&driver_job, SIMULATED, "the simulator", "install it anew", out, error);
  return run(&driver_job, "", "the NVIDIA driver", "install it anew, or use --device=sim or --device=cpu", out, error);
}

taper_status cuda_probe_cublas(cuda_probe_facts *out, taper_error *error) {
  return run(&cublas_job, "", "cuBLAS", "set TAPER_LIBCUBLAS to another one, or give --gemm=generated", out, error);
}

bool cuda_probe_runtime(char *out_path, size_t cap) { return library_beside("libtaper-cuda.so", out_path, cap); }
