/* control.h - how a program that has opened libtaper-sim.so sets it up and reads what it counted. Any thread. */
#ifndef TAPER_CUDA_SIM_CONTROL_H
#define TAPER_CUDA_SIM_CONTROL_H

#include "cuda/driver.h"

/* The defaults stand beside; each has an environment variable (TAPER_SIM_EAGER=1, ...) that cuInit reads. */
typedef struct taper_sim_options {
  uint32_t eager;              /* TAPER_SIM_EAGER 0: queued work runs when something waits for it; 1: at once */
  uint32_t capability;         /* TAPER_SIM_CAPABILITY 90 */
  uint32_t multiprocessors;    /* TAPER_SIM_MULTIPROCESSORS 132 */
  uint32_t driver_version;     /* TAPER_SIM_DRIVER 13000 */
  uint32_t devices;            /* TAPER_SIM_DEVICES 1; 0: cuInit says that there is no device */
  uint32_t threads;            /* TAPER_SIM_THREADS 0: as many as there are processors */
  uint64_t memory_bytes;       /* TAPER_SIM_MEMORY 8 GiB */
  uint64_t seed;               /* TAPER_SIM_SEED 0: blocks in their order; else of a random order of each launch */
  uint64_t instruction_budget; /* TAPER_SIM_BUDGET 0: the interpreter's own; warp instructions that a launch may take */
} taper_sim_options;

/* Sums over the launches since the last reset. A sector is 32 bytes of device memory. */
typedef struct taper_sim_counters {
  char kernel[128]; /* "": all kernels; copies and cublas are not counted */
  uint64_t launches;
  uint64_t warp_instructions;
  uint64_t bytes_read, bytes_written;     /* that threads asked for in global memory */
  uint64_t sectors_read, sectors_written; /* that the accesses of a warp touched */
  uint64_t launch_sectors_read;           /* different sectors of each launch */
  uint64_t launch_bytes_read; /* different bytes of each launch: 32 x launch_sectors_read where each is used whole */
} taper_sim_counters;

/* taper_sim_options_set: CUDA_ERROR_INVALID_VALUE for numbers out of range, or when a primary context is there (the mode
 * and the seed alone may change then). taper_sim_counters_read fills out[0] with the total, then kernels by name, at most
 * `most`, and returns how many there are. taper_sim_fault: what went wrong last, "" if nothing. */
#define SIM_CONTROL(result, name, parameters) result name parameters;
#include "cuda/sim/control.def"

#endif
