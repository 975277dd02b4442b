/* control.h - how a program that has opened libtaper-sim.so sets it up and reads what it counted. Any thread. */
#ifndef TAPER_CUDA_SIM_CONTROL_H
#define TAPER_CUDA_SIM_CONTROL_H

#include "cuda/driver.h"
#include "cuda/sim/sim.h"

/* The defaults stand beside; each has an environment variable (TAPER_SIM_EAGER=1, ...) that cuInit reads. */
typedef struct taper_sim_options {
  uint32_t eager;              /* TAPER_SIM_EAGER 0: queued work runs when something waits for it; 1: at once */
  uint32_t capability;         /* TAPER_SIM_CAPABILITY 90 */
  uint32_t multiprocessors;    /* TAPER_SIM_MULTIPROCESSORS 132 */
  uint32_t driver_version;     /* TAPER_SIM_DRIVER 13090 */
  uint32_t devices;            /* TAPER_SIM_DEVICES 1; 0: cuInit says that there is no device */
  uint32_t threads;            /* TAPER_SIM_THREADS 0: as many as there are processors */
  uint64_t memory_bytes;       /* TAPER_SIM_MEMORY 8 GiB */
  uint64_t seed;               /* TAPER_SIM_SEED 0: blocks in their order; else of a random order of each launch */
  uint64_t instruction_budget; /* TAPER_SIM_BUDGET 0: the interpreter's own; warp instructions that a launch may take */
} taper_sim_options;

/* Sums over the launches since the last reset; copies and cublas are not counted. */
typedef struct taper_sim_counters {
  char kernel[128]; /* "": all kernels */
  sim_counters count;
} taper_sim_counters;

/* taper_sim_options_set: CUDA_ERROR_INVALID_VALUE for numbers out of range, or when a primary context is there (eager,
 * seed, threads and budget alone may change then). taper_sim_counters_read executes what is queued, fills out[0] with the total,
 * then kernels in the order of their first launches, at most `most`, and returns how many there are. taper_sim_usage: what launches did
 * to the allocation that begins at `memory` since it was made or its use was last reset. taper_sim_constants: sums over the allocations
 * that launches read and did not write since the counters were reset, which begins the use of every allocation anew: a model's
 * weights. taper_sim_forget: work of the stream, after which the range is as if it had never been written. taper_sim_look
 * executes what is queued, and copies a range with, for each of its bytes, 1 where it was ever written, else 0; nothing is
 * a fault of the program. taper_sim_fault: what went wrong last, "" if nothing. */
#define SIM_CONTROL(result, name, parameters) result name parameters;
#include "cuda/sim/control.def"

#endif
