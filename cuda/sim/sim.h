/*
 * sim.h - an interpreter of PTX as NVRTC writes it, for machines with no GPU: device memory, modules, launches. It executes
 * a kernel warp by warp and stops at the first thing that a GPU would let pass in silence (faults below). It is the lower
 * half of cuda/sim; the stand-in libcuda is the upper one and the only user besides tests. docs/sim.md says what is checked.
 *
 * One thread at a time may call it for one sim_memory; a launch uses worker threads of its own.
 */
#ifndef TAPER_CUDA_SIM_H
#define TAPER_CUDA_SIM_H

#include "runtime/base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- device memory ----------------------------------------------------------------------------------------------- */

/* The device's global memory. An address names at most one allocation ever: it is not reused after a release, and at
   least 64 KiB that belong to nobody lie after each allocation. Each byte knows whether it was written. */
typedef struct sim_memory sim_memory;

/* What launches did to an allocation since it was made or its usage was last reset. */
typedef struct sim_usage {
  uint64_t load_bytes;   /* that lanes asked for */
  uint64_t load_sectors; /* sectors of 32 bytes, those of one warp instruction counted once */
  uint64_t read_sectors; /* sectors read, counted once a launch: what a perfect cache would fetch */
  uint64_t read_bytes;   /* bytes of those that were used */
  uint64_t store_bytes, store_sectors, written_sectors, written_bytes;
} sim_usage;

typedef struct sim_span {
  uint8_t *data; /* the byte at the address asked for, in host memory */
  uint64_t base; /* the allocation's first address */
  size_t size;   /* its bytes */
} sim_span;

/* NULL when the host has no memory. `capacity`: bytes that allocations may have in all. */
sim_memory *sim_memory_new(uint64_t capacity);
void sim_memory_free(sim_memory *m);
/* An address, a multiple of 512, of `bytes` unwritten bytes; 0: beyond the capacity, or the host has no memory, or 0 bytes. */
uint64_t sim_memory_alloc(sim_memory *m, size_t bytes);
/* False: no allocation begins there. */
bool sim_memory_release(sim_memory *m, uint64_t address);
/* False: [address, address + bytes) does not lie in one allocation. bytes may be 0. */
bool sim_memory_find(const sim_memory *m, uint64_t address, size_t bytes, sim_span *out);
/* After the host wrote through a span: the bytes are initialised (or, false, poisoned and unwritten again). The range must lie in one allocation. */
void sim_memory_mark(sim_memory *m, uint64_t address, size_t bytes, bool written);
/* True: all bytes of the range were written; else *out_first is the address of the first that was not. */
bool sim_memory_written(const sim_memory *m, uint64_t address, size_t bytes, uint64_t *out_first);
/* Copies marks with the data, as a device-to-device copy does. */
void sim_memory_copy(sim_memory *m, uint64_t to, uint64_t from, size_t bytes);
uint64_t sim_memory_used(const sim_memory *m);
uint64_t sim_memory_capacity(const sim_memory *m);
/* The usage of the allocation that begins at `address`; with `reset` it begins anew. False: none begins there. */
bool sim_memory_usage(sim_memory *m, uint64_t address, bool reset, sim_usage *out);

/* ---- modules ----------------------------------------------------------------------------------------------------- */

typedef struct sim_module sim_module;
typedef struct sim_kernel sim_kernel;

#define SIM_MAX_PARAMETERS 64u
typedef struct sim_kernel_facts {
  const char *name;
  uint32_t parameter_count, parameter_bytes;
  const uint32_t *offsets, *sizes; /* of each parameter in the parameter block */
  uint32_t shared_bytes;           /* static */
  uint32_t local_bytes;            /* of a thread */
  uint32_t registers;              /* virtual ones of 32 bits; ptxas needs fewer */
  uint32_t max_threads;            /* .maxntid, or 1024 */
  bool waits;                      /* it has griddepcontrol.wait */
  bool ordered; /* it has atomics, fences or strong accesses to global memory: its blocks run on one thread */
} sim_kernel_facts;

/* Parses and decodes PTX (`size` bytes, a NUL may end it). Globals are allocated in `memory`, which must outlive the
 * module. `name` stands before messages. TAPER_INVALID: "NAME:LINE: error: cause"; every opcode, modifier, directive or
 * operand that is not known is such an error. TAPER_NOMEM. */
taper_status sim_module_load(const char *ptx, size_t size, const char *name, sim_memory *memory, sim_module **out,
                             taper_error *error);
void sim_module_unload(sim_module *m);
/* For tests: modules loaded from now on execute what every processor can, not what is compiled for those with AVX2. */
void sim_any_processor(bool on);
/* 90 for .target sm_90; .version 9.0 is 90. */
uint32_t sim_module_target(const sim_module *m);
uint32_t sim_module_version(const sim_module *m);
/* NULL: no kernel of that name / past the last. Kernels live as long as the module. */
const sim_kernel *sim_module_find(const sim_module *m, const char *name);
const sim_kernel *sim_module_kernel(const sim_module *m, size_t index);
const sim_kernel_facts *sim_facts(const sim_kernel *k);
/* A .global or .const variable by name. */
bool sim_module_global(const sim_module *m, const char *name, uint64_t *address, size_t *bytes);

/* ---- launches ---------------------------------------------------------------------------------------------------- */

/* kind, the words that a message begins with */
#define SIM_FAULTS(X)                                                                                                  \
  X(SIM_OUT_OF_BOUNDS, "address outside of every allocation")                                                          \
  X(SIM_MISALIGNED, "misaligned address")                                                                              \
  X(SIM_UNWRITTEN_REGISTER, "register read before it was written")                                                     \
  X(SIM_UNWRITTEN_MEMORY, "memory read before it was written")                                                         \
  X(SIM_SHARED_RACE, "race in shared memory")                                                                          \
  X(SIM_GLOBAL_RACE, "race between blocks in global memory")                                                           \
  X(SIM_READ_ONLY, "write to memory that the launch reads as read-only")                                               \
  X(SIM_DIVERGENT_BARRIER, "divergent barrier")                                                                        \
  X(SIM_ABSENT_LANES, "a .sync instruction names lanes that do not come")                                              \
  X(SIM_UNWAITED_COPY, "destination of cp.async touched before the wait")                                              \
  X(SIM_EARLY_ACCESS, "memory of a predecessor touched before griddepcontrol.wait")                                    \
  X(SIM_SPIN, "no end in sight")                                                                                       \
  X(SIM_TRAP, "trap")                                                                                                  \
  X(SIM_BAD_LAUNCH, "bad launch")                                                                                      \
  X(SIM_BAD_VALUE, "operand out of range")                                                                             \
  X(SIM_NO_MEMORY, "the host has no memory")
typedef enum sim_fault_kind {
  SIM_NO_FAULT = 0,
#define X(kind, words) kind,
  SIM_FAULTS(X)
#undef X
} sim_fault_kind;

typedef struct sim_fault {
  sim_fault_kind kind;
  char kernel[128];
  char source[256]; /* file of .loc, or empty */
  uint32_t line, column;
  uint32_t ptx_line;
  uint32_t block[3], thread[3];
  uint64_t address;
  char text[600]; /* all of it in one line, "model.cu:12:3: error: race in shared memory: ..." */
} sim_fault;

typedef struct sim_counters {
  uint64_t launches, blocks, warp_instructions, thread_instructions;
  sim_usage global; /* over all allocations */
  uint64_t shared_accesses, local_bytes, atomics, barriers;
  uint64_t grid_waits; /* groups of a warp's threads that came to griddepcontrol.wait */
} sim_counters;

typedef struct sim_launch {
  const sim_kernel *kernel;
  uint32_t grid[3], block[3];
  uint32_t dynamic_shared; /* bytes */
  uint32_t shared_limit;   /* static + dynamic bytes that a block may have; 0: 48 KiB */
  const void *parameters;  /* the parameter block: parameter i at facts.offsets[i] */
  size_t parameter_bytes;
  sim_memory *memory;
  uint64_t seed;      /* 0: blocks in order; else the order is drawn with it */
  uint64_t budget;    /* warp instructions that a block may execute; 0: 2^26 */
  uint32_t threads;   /* workers, where the kernel is not `ordered`; 0: one per CPU */
  bool cooperative;   /* all blocks run at once (turns), else one after the other */
  uint32_t max_early; /* blocks, from all over the grid, that sim_run_early starts at most; 0: 16 */
  uint32_t sms;       /* %nsmid; 0: 132 */
} sim_launch;

/* Runs a launch to its end, adds to *counters (if not NULL). False: *fault says why; memory is then as the launch left it. */
bool sim_launch_run(const sim_launch *launch, sim_counters *counters, sim_fault *fault);

/* The same in two steps, for a launch that may begin before the one ahead of it has ended (PDL): sim_run_early executes
 * blocks up to griddepcontrol.wait (or their end), sim_run_rest the others and all to their end. In between the caller
 * runs the predecessors and then asks sim_run_conflict whether the early part touched what they wrote, or wrote what they touched.
 * The launch is copied; its parameters too. NULL: *fault says why. */
typedef struct sim_run sim_run;
sim_run *sim_run_begin(const sim_launch *launch, sim_fault *fault);
bool sim_run_early(sim_run *r, sim_fault *fault);
bool sim_run_rest(sim_run *r, sim_counters *counters, sim_fault *fault);
void sim_run_free(sim_run *r);

/* Which bytes of global memory launches touched. */
typedef struct sim_footprint sim_footprint;
sim_footprint *sim_footprint_new(void);
void sim_footprint_free(sim_footprint *f);
void sim_footprint_clear(sim_footprint *f);
/* Adds what the run touched so far, in all. False: the host has no memory. */
bool sim_footprint_add(sim_footprint *f, const sim_run *r);
/* True: the early part of `r` and the launches of `f` touched a common byte that one of them wrote; *fault (SIM_EARLY_ACCESS) names it. */
bool sim_run_conflict(const sim_run *r, const sim_footprint *f, sim_fault *fault);

/* A constant phrase. */
const char *sim_fault_name(sim_fault_kind kind);
void sim_counters_add(sim_counters *to, const sim_counters *from);

#endif
