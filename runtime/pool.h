/* pool.h - the persistent workers of a model, and how they run a list of stages.
 *
 * A stage is cut into one part per worker. Worker i takes part i; a worker that has nothing to do for a moment takes a
 * part that its owner has not begun (the owner sleeps, or the machine gave its CPU to someone else). So no part waits
 * for a worker that is not running, more workers than CPUs do no harm, and a child after fork() still computes. Waiting
 * workers spin for a while, then sleep.
 */
#ifndef TAPER_POOL_H
#define TAPER_POOL_H

#include "runtime/memory.h"
#include <stdbool.h>

typedef struct pool pool;

typedef struct pool_options {
  uint32_t threads; /* the calling one included; 0: one per CPU of the affinity mask */
  uint32_t spin_us;
  const int32_t *cpus; /* thread i > 0 is pinned to cpus[i % cpu_count]; NULL: none */
  size_t cpu_count;
} pool_options;

#define POOL_MAX_THREADS 1024u

/* A list of stages. part(arg, stage, i) runs once for every stage and part; after(arg, stage), where not NULL, runs
   once after all parts of a stage, in some worker, before the next stage begins. */
typedef struct pool_job {
  void (*part)(void *arg, uint32_t stage, uint32_t part);
  void (*after)(void *arg, uint32_t stage);
  void *arg;
  uint32_t stages;
} pool_job;

/* Starts the threads. They block every signal. Fails with TAPER_INVALID (counts, a CPU that is not there), TAPER_NOMEM,
 * TAPER_INTERNAL. */
taper_status pool_new(const pool_options *options, const taper_allocator *allocator, pool **out, taper_error *error);
void pool_free(pool *p);
uint32_t pool_threads(const pool *p);

/* The right to run jobs; threads get it in the order they asked. Held across a job and the reading of its results. */
void pool_lock(pool *p);
void pool_unlock(pool *p);
/* Runs a job to its end; the caller, who holds the lock, is worker 0. */
void pool_run(pool *p, const pool_job *job);

/* Which of `units` belong to part `part` of `parts`: [first, end), contiguous, sizes differ by at most one. */
static inline void pool_range(uint64_t units, uint32_t part, uint32_t parts, uint64_t *first, uint64_t *end) {
  uint64_t each = units / parts, more = units % parts;
  *first = part * each + (part < more ? part : more);
  *end = *first + each + (part < more ? 1 : 0);
}

#endif
