/* probe.h - what of CUDA is on this machine, asked in a child process: a library that crashes is told of, and crashes
   nothing here. */
#ifndef TAPER_CUDA_PROBE_H
#define TAPER_CUDA_PROBE_H

#include "cuda/driver.h"

enum { CUDA_PROBE_DEVICES = 8 };
typedef struct cuda_probe_facts {
  char path[256]; /* of the library */
  int version;    /* as cuda_driver.version; of cublas: 130000 is 13.0; 0: not told */
  int devices;
  int described; /* device[0..described): at most CUDA_PROBE_DEVICES */
  cuda_device_facts device[CUDA_PROBE_DEVICES];
} cuda_probe_facts;

/* Libraries are looked for as cuda_driver_open and cublas_library_open do. Failures are theirs, or how the library died. */
taper_status cuda_probe_driver(bool simulated, cuda_probe_facts *out, taper_error *error);
taper_status cuda_probe_cublas(cuda_probe_facts *out, taper_error *error);
/* The path of what executes packages of the target cuda, libtaper-cuda.so; false: it is not beside this program. */
bool cuda_probe_runtime(char *out_path, size_t cap);

#endif
