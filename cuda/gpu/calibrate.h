/* calibrate.h - the rig that the measurements of calibrate.c share. */
#ifndef TAPER_CUDA_GPU_CALIBRATE_H
#define TAPER_CUDA_GPU_CALIBRATE_H

#include "cuda/driver.h"

/* the kernels of calibrate.cu */
#define RIG_KERNELS(K) K(read_all) K(empty) K(round_once) K(rounds_flip) K(rounds_count) K(rounds_flag)
enum {
#define K(name) RIG_##name,
  RIG_KERNELS(K)
#undef K
      RIG_KERNEL_COUNT
};

enum { RIG_MOST_WIDTH = 2048 }; /* as in calibrate.cu */

typedef struct rig {
  cuda_driver driver;
  CUdevice device;
  CUcontext context;
  CUstream stream;
  CUmodule module;
  CUfunction kernels[RIG_KERNEL_COUNT];
  CUevent begin, end;
  int major, minor, multiprocessors, driver_version, clock_khz, memory_clock_khz, memory_bus_bits, l2_bytes;
  char name[128], image[64]; /* of the device; what was loaded: "sm_90.cubin" */
  bool pdl;                  /* the image has waits, and the driver takes the attribute */
  uint32_t width, rounds;    /* of the exchanges: words of the vector, rounds of one measurement (even) */
  uint32_t blocks;           /* one a multiprocessor */
} rig;

/* Opens the driver (or its stand-in), the first device and the best image of `folder` (sm_90.cubin, compute_80.ptx, ...), else compiles
   `source` with the NVRTC at hand. TAPER_DEVICE with the cause. rig_close is legal after a failure. */
taper_status rig_open(rig *r, bool simulated, int ordinal, const char *folder, const char *source, taper_error *error);
void rig_close(rig *r);
#define RIG_TRY(r, name, arguments) TAPER_TRY(cuda_driver_check(&(r)->driver, (r)->driver.name arguments, #name, error))

typedef enum rig_edge { RIG_PLAIN, RIG_PROGRAMMATIC, RIG_COOPERATIVE } rig_edge;
taper_status rig_launch(rig *r, int kernel, uint32_t grid, uint32_t threads, void **parameters, rig_edge edge,
                        taper_error *error);
/* Compiles `source` for each of a comma-separated list of archs into `folder`. */
taper_status rig_build(const char *source, const char *folder, const char *archs, taper_error *error);

/* A measurement puts one number into *out; TAPER_UNSUPPORTED: not possible here, with the reason. */
typedef struct rig_measure {
  const char *name, *unit, *what;
  taper_status (*run)(rig *r, const struct rig_measure *m, double *out, taper_error *error);
  uint64_t argument;
} rig_measure;
extern const rig_measure rig_measures[];
extern const size_t rig_measure_count;

#endif
