/* driver.h - libcuda, opened at run time; its types declared here, so that no header of the toolkit is needed. */
#ifndef TAPER_CUDA_DRIVER_H
#define TAPER_CUDA_DRIVER_H

#include "runtime/base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef int CUresult;
typedef int CUdevice;
typedef uint64_t CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphNode_st *CUgraphNode;
typedef struct CUgraphExec_st *CUgraphExec;

/* Sizes and places of the driver's own ABI (cuda.h of CUDA 11.8 and later). */
typedef union CUlaunchAttributeValue {
  char pad[64];
  int cooperative;
  int programmatic_stream_serialization_allowed;
} CUlaunchAttributeValue;
typedef struct CUlaunchAttribute {
  int id;
  char pad[4];
  CUlaunchAttributeValue value;
} CUlaunchAttribute;
typedef struct CUlaunchConfig {
  unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, shared;
  CUstream stream;
  CUlaunchAttribute *attributes;
  unsigned attribute_count;
} CUlaunchConfig;

enum {
  CUDA_SUCCESS = 0,
  CUDA_ERROR_INVALID_VALUE = 1,
  CUDA_ERROR_OUT_OF_MEMORY = 2,
  CUDA_ERROR_NOT_INITIALIZED = 3,
  CUDA_ERROR_DEINITIALIZED = 4,
  CUDA_ERROR_NO_DEVICE = 100,
  CUDA_ERROR_INVALID_DEVICE = 101,
  CUDA_ERROR_INVALID_IMAGE = 200,
  CUDA_ERROR_INVALID_CONTEXT = 201,
  CUDA_ERROR_NO_BINARY_FOR_GPU = 209,
  CUDA_ERROR_INVALID_PTX = 218,
  CUDA_ERROR_UNSUPPORTED_PTX_VERSION = 222,
  CUDA_ERROR_FILE_NOT_FOUND = 301,
  CUDA_ERROR_INVALID_HANDLE = 400,
  CUDA_ERROR_ILLEGAL_STATE = 401,
  CUDA_ERROR_NOT_FOUND = 500,
  CUDA_ERROR_NOT_READY = 600,
  CUDA_ERROR_ILLEGAL_ADDRESS = 700,
  CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES = 701,
  CUDA_ERROR_LAUNCH_TIMEOUT = 702,
  CUDA_ERROR_MISALIGNED_ADDRESS = 716,
  CUDA_ERROR_LAUNCH_FAILED = 719,
  CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE = 720,
  CUDA_ERROR_NOT_SUPPORTED = 801,
  CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED = 900,
  CUDA_ERROR_STREAM_CAPTURE_INVALIDATED = 901,
  CUDA_ERROR_STREAM_CAPTURE_IMPLICIT = 906,
  CUDA_ERROR_CAPTURED_EVENT = 907,
  CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD = 908,
  CUDA_ERROR_UNKNOWN = 999
};
enum { /* cuDeviceGetAttribute */
       CU_ATTRIBUTE_MULTIPROCESSORS = 16,
       CU_ATTRIBUTE_MAJOR = 75,
       CU_ATTRIBUTE_MINOR = 76,
       CU_ATTRIBUTE_CLOCK_KHZ = 13,
       CU_ATTRIBUTE_MEMORY_CLOCK_KHZ = 36,
       CU_ATTRIBUTE_MEMORY_BUS_BITS = 37,
       CU_ATTRIBUTE_L2_BYTES = 38,
       CU_ATTRIBUTE_SHARED_PER_BLOCK_OPTIN = 97
};
enum { CU_JIT_INFO_LOG_BUFFER = 3, CU_JIT_INFO_LOG_BYTES = 4, CU_JIT_ERROR_LOG_BUFFER = 5, CU_JIT_ERROR_LOG_BYTES = 6 };
enum { CU_LAUNCH_COOPERATIVE = 2, CU_LAUNCH_PROGRAMMATIC_STREAM_SERIALIZATION = 6 }; /* CUlaunchAttribute.id */
enum {
  CU_FUNC_MAX_THREADS = 0,
  CU_FUNC_SHARED_BYTES = 1,
  CU_FUNC_LOCAL_BYTES = 3,
  CU_FUNC_REGISTERS = 4,
  CU_FUNC_PTX_VERSION = 5,
  CU_FUNC_BINARY_VERSION = 6,
  CU_FUNC_MAX_DYNAMIC_SHARED = 8
};
enum { CU_STREAM_NON_BLOCKING = 1, CU_EVENT_DISABLE_TIMING = 2 };
enum { CU_CAPTURE_GLOBAL = 0, CU_CAPTURE_THREAD_LOCAL = 1, CU_CAPTURE_RELAXED = 2 };

/* The entry points under their names: driver->cuInit(0). */
typedef struct cuda_driver {
  void *library;
  char path[256]; /* what was opened */
  bool simulated;
  int version; /* of CUDA, that the driver speaks: 13010 is 13.1 */
#define CU(name, parameters) CUresult(*name) parameters;
#include "cuda/driver.def"
} cuda_driver;

#define CUDA_MAJOR(version) ((version) / 1000)
#define CUDA_MINOR(version) ((version) % 1000 / 10)
enum { CUDA_LEAST_DRIVER = 11040 }; /* the oldest that has every entry point that is not optional */

/* Opens `path`, or TAPER_LIBCUDA, or libcuda.so.1 (simulated: TAPER_LIBSIM, or libtaper-sim.so beside this library or
   program), looks every symbol up, calls cuInit and sees that there is a device. TAPER_DEVICE names the library, what
   is missing and the next step; *out is zeroed then. cuda_driver_close is legal after a failure. */
taper_status cuda_driver_open(const char *path, bool simulated, cuda_driver *out, taper_error *error);
void cuda_driver_close(cuda_driver *d);
/* TAPER_OK, or the status that stands for `result` with "CALL: NAME (number): text" in *error: out of memory ->
   TAPER_NOMEM, else TAPER_DEVICE. */
taper_status cuda_driver_check(const cuda_driver *d, CUresult result, const char *call, taper_error *error);

typedef struct cuda_device_facts {
  CUdevice device;
  char name[128];
  int major, minor; /* compute capability */
  int multiprocessors;
  uint64_t memory; /* bytes in all */
} cuda_device_facts;
/* TAPER_DEVICE: there is no such device, or the driver fails. */
taper_status cuda_device_describe(const cuda_driver *d, int ordinal, cuda_device_facts *out, taper_error *error);

/* Loads a cubin or PTX (with its NUL) into the current context. `name` is for messages ("sm_90", "compute_90"). A
   failure says what the driver and its compiler of PTX say, and what to do: TAPER_UNSUPPORTED where the image is for
   another or newer GPU, or its PTX is newer than the driver. */
taper_status cuda_module_load(const cuda_driver *d, const void *image, const char *name, CUmodule *out,
                              taper_error *error);

#endif
