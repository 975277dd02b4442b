/* nvrtc.h - CUDA source -> cubin or PTX by libnvrtc, opened at run time in a child process: its crash is an error with
   its version and log, not ours. */
#ifndef TAPER_CUDA_NVRTC_H
#define TAPER_CUDA_NVRTC_H

#include "runtime/base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Every source is compiled with these, --gpu-architecture and, where it is known, --no-cache: a cache key names
   them. */
#define NVRTC_OPTIONS "--std=c++17", "--generate-line-info", "-default-device", "--ptxas-options=-v"

typedef struct nvrtc_request {
  const char *source;  /* NUL-terminated; includes nothing */
  const char *name;    /* of the source in messages and line information, e.g. "model.cu" */
  const char *arch;    /* "sm_90": a cubin; "compute_90": PTX */
  const char *library; /* NULL: TAPER_LIBNVRTC, else libnvrtc.so, .so.13, .so.12, .so.11.2, the toolkit's */
} nvrtc_request;

typedef struct nvrtc_result {
  void *image; /* from malloc; PTX ends in a NUL that counts */
  size_t size;
  char *ptx; /* from malloc: the PTX that a cubin was made from; the same as the image of a virtual arch */
  size_t ptx_size;
  /* From malloc; not NULL after success, and what there is after a failure. Of a cubin ptxas -v tells the registers,
     spills and shared memory of each kernel. */
  char *log;
  int major, minor; /* of the library */
} nvrtc_result;

/* Any thread. TAPER_DEVICE: no library, or it died (signal, version, log), or took more than TAPER_NVRTC_SECONDS (600);
   TAPER_UNSUPPORTED: it does not know the arch (which it knows is said); TAPER_INVALID: the source does not compile
   (log in the message). nvrtc_free is legal after a failure. */
taper_status nvrtc_compile(const nvrtc_request *request, nvrtc_result *out, taper_error *error);
void nvrtc_free(nvrtc_result *r);

/* What is there: path and version of the library and the archs it compiles for ("sm_75,sm_80,..."; empty: it does not
   tell). For doctor, the choice of archs and cache keys. */
typedef struct nvrtc_facts {
  char path[256], archs[256];
  int major, minor;
  uint64_t bytes; /* of the library's file: tells builds of one version apart, for cache keys */
} nvrtc_facts;
taper_status nvrtc_find(const char *library, nvrtc_facts *out, taper_error *error);

#endif
