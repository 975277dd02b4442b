/* bench.h - the limits of this machine, measured on a model's own workers, and what a simulated device counts; for programs that are linked with the
   library's parts (`taperc bench`), not exported. One call is one measurement of some 50 ms; callers repeat. */
#ifndef TAPER_BENCH_H
#define TAPER_BENCH_H

#include "runtime/base/status.h"
#include <stdbool.h>

/* Whether the model runs on the CPU: the three measurements below are of its workers alone. */
bool bench_is_cpu(const taper_model *m);
/* GB/s (1e9) of all workers reading a buffer of `bytes` (0: the model's packed weights) again and again, each its own
   part, in order. The buffer is of huge pages where the system gives them. TAPER_NOMEM. */
taper_status bench_read(taper_model *m, uint64_t bytes, double *out_gb_s, taper_error *error);
/* GFLOP/s of all workers in fused multiply-adds on registers, in f32, by the widest vectors of this CPU. */
double bench_fma(taper_model *m);
/* Microseconds of one exchange: an empty stage on all workers. */
double bench_barrier(taper_model *m);

/* What a simulated device has done since the last call, which begins the count anew. */
typedef struct bench_traffic {
  char kernel[64]; /* "": all kernels */
  uint64_t launches, blocks;
  uint64_t instructions; /* of warps */
  uint64_t bytes;        /* different bytes of device memory that each launch read */
  uint64_t sectors;      /* of 32 bytes that hold them */
  uint64_t weight_bytes,
      weight_sectors; /* of these, in memory that no launch wrote: weights and tables; 0 for one kernel */
} bench_traffic;
#define BENCH_KERNELS 64
/* out[0]: all, then the kernels in the order of their first launches. Returns how many entries there are; 0: the device counts nothing. */
uint32_t bench_count(taper_model *m, bench_traffic out[BENCH_KERNELS]);

#endif
