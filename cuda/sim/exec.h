/* exec.h - a launch while it runs: workers, blocks, warps, groups of lanes. */
#ifndef TAPER_SIM_EXEC_H
#define TAPER_SIM_EXEC_H

#include "cuda/sim/inst.h"
#include "cuda/sim/memory.h"
#include <stdio.h>
#include <string.h>

#define SIM_MAX_WARPS 32u
#define SIM_BARRIERS 16u

typedef enum group_state { GROUP_RUNS, GROUP_COLLECTS, GROUP_AT_BARRIER, GROUP_AT_GRID_WAIT } group_state;

/* Lanes of a warp that are at one instruction. */
typedef struct group {
  uint32_t pc, lanes;
  uint16_t depth; /* of calls */
  uint8_t state;
  uint8_t barrier; /* GROUP_AT_BARRIER: which */
  uint32_t turns;  /* times that it let others run */
} group;

typedef struct async_copy {
  uint64_t from;
  uint32_t to;
  uint32_t group; /* commit groups of the lane before it */
  uint8_t bytes, source_bytes, lane;
} async_copy;

typedef struct call_frame {
  uint32_t return_to; /* the instruction of the call */
  uint8_t *saved;     /* registers and call area of a recursive callee, or NULL */
} call_frame;

struct warp {
  uint8_t *base[2]; /* registers; the module's constants */
  uint32_t mask;    /* lanes that execute the instruction */
  uint32_t alive;
  uint32_t carry; /* a bit a lane: add.cc sets it */
  struct block *block;
  uint32_t index;
  uint32_t group_count;
  uint32_t kept_waiting; /* instructions that its first group executed while others could run */
  group groups[SIM_LANES];
  uint32_t *written;              /* a word per INST_REGISTER_BYTES of the register file: lanes that have written it */
  uint8_t *local, *local_written; /* [lane][local_bytes] */
  uint8_t *call_area;             /* [lane][call_bytes] */
  call_frame *frames;             /* [lane][SIM_MAX_DEPTH] */
  uint32_t depth[SIM_LANES];
  /* order of accesses to shared memory */
  uint32_t
      seen[SIM_MAX_WARPS]; /* what warp v did before this time of the block is ordered before what this warp does now */
  uint32_t all_seen;       /* what anybody did before this time is: a barrier of all warps */
  uint32_t synced;         /* what its own lanes did before this time is ordered */
  uint32_t (
      *lane_seen)[SIM_LANES]; /* [lane][other]: the same for a partial bar.warp.sync of both; NULL: none was yet */
  async_copy *copies;
  uint32_t copy_count, copy_capacity;
  uint32_t copy_groups[SIM_LANES];
  uint32_t
      passed_by; /* lanes that were elsewhere when others of the warp came to an aligned barrier, and have not come yet */
  uint32_t strayed;      /* of these: that touched memory since */
  uint32_t barrier_mask; /* lanes that execute a bar.red */
  const inst *barrier_inst;
};
#define SIM_MAX_DEPTH 64u

/* What happened to a granule of shared memory. */
typedef struct shared_cell {
  uint32_t read_time, flags;           /* times are of block.time */
  uint32_t reader_warps, reader_lanes; /* of several readers */
  uint16_t writer, reader;             /* thread + 1; SHARED_MANY */
  uint32_t write_time;
} shared_cell;
/* Plain accesses of a granule that atomic or volatile ones came after: with these it is in order, with those of others not yet. */
typedef struct shared_plain {
  uint16_t writer, reader; /* thread + 1; 0: none */
  uint32_t write_time, read_time;
} shared_plain;
#define SHARED_MANY 0xffffu
#define SHARED_WRITTEN 1u      /* it has a value */
#define SHARED_PENDING 2u      /* an asynchronous copy will write it */
#define SHARED_STRONG_WRITE 4u /* the last write was atomic or volatile */
#define SHARED_STRONG_READ 8u
#define SHARED_SETTLED 16u /* the last write is ordered before all that any thread does from now on */

typedef struct barrier {
  uint32_t threads;  /* that arrived */
  uint32_t expected; /* 0: all that are alive */
  uint32_t pc;
  uint32_t warps;               /* bit a warp that waits */
  uint32_t seen[SIM_MAX_WARPS]; /* what those that only arrived did, and had seen, by then */
  uint32_t yes, votes;          /* bar.red */
  bool used;
} barrier;

typedef struct block {
  struct sim_run *run;
  struct worker *worker;
  warp *warps;
  uint32_t warp_count, threads;
  uint32_t id[3], number; /* number: x + y * grid.x + ... */
  uint32_t turn;
  uint8_t *shared;
  uint32_t shared_bytes; /* static and dynamic, from SIM_SHARED_BASE on */
  shared_cell *cells;
  shared_plain *plain; /* as many; NULL: no atomic or volatile access was yet */
  barrier barriers[SIM_BARRIERS];
  uint64_t instructions;
  uint32_t time;      /* grows at each synchronisation of its threads */
  order_clock *order; /* of a kernel with ordered accesses; NULL else */
  bool begun, done, faulted, stop;
  sim_fault fault;
} block;

/* A thread that executes blocks. */
typedef struct worker {
  struct sim_run *run;
  block *
      *blocks; /* those that have begun and wait for the rest of the launch, and [0], which is used again and again */
  uint32_t *places; /* of each in the order of the run */
  uint32_t block_count;
  touch_map touched;
  sim_counters counters;
  sim_fault fault;
  uint32_t fault_place; /* of the block of *fault in the order of the run; INST_NONE: no fault */
  uint64_t clock;
} worker;

struct sim_run {
  sim_launch launch;
  const sim_kernel *kernel;
  sim_memory *memory;
  uint8_t *parameters;
  uint32_t *order; /* block numbers in the order of their start */
  uint32_t blocks;
  worker *workers;
  uint32_t worker_count;
  uint32_t next;        /* place in the order of the next block; atomic */
  uint32_t end;         /* blocks from this place on do not begin now */
  uint32_t first_fault; /* place of the first block that failed so far; atomic */
  bool early;           /* executes only what stands before griddepcontrol.wait */
  touch_set early_touched;
  order_state *ordered;
};

static inline void *lanes_of(const warp *w, uint32_t r) { return w->base[r >> 31] + (r & ~INST_CONSTANT); }
static inline uint32_t lane_count(uint32_t lanes) {
  return lanes == SIM_ALL_LANES ? SIM_LANES : (uint32_t)__builtin_popcount(lanes);
}
static inline uint32_t predicate_of(const warp *w, uint32_t r) {
  uint32_t v;
  memcpy(&v, lanes_of(w, r), 4);
  return v;
}
static inline void set_predicate(warp *w, uint32_t r, uint32_t value) {
  uint32_t *p = lanes_of(w, r);
  *p = (*p & ~w->mask) | (value & w->mask);
}
/* The value of a lane, zero-extended. */
static inline uint64_t lane_value(const warp *w, const inst *i, uint32_t operand, uint32_t lane) {
  const void *p = lanes_of(w, i->r[operand]);
  switch (i->width[operand]) {
  case 2: return ((const uint16_t *)p)[lane];
  case 4: return ((const uint32_t *)p)[lane];
  case 8: return ((const uint64_t *)p)[lane];
  }
  return *(const uint32_t *)p >> lane & 1u;
}
static inline void set_lane(warp *w, const inst *i, uint32_t operand, uint32_t lane, uint64_t value) {
  void *p = lanes_of(w, i->r[operand]);
  switch (i->width[operand]) {
  case 2: ((uint16_t *)p)[lane] = (uint16_t)value; return;
  case 4: ((uint32_t *)p)[lane] = (uint32_t)value; return;
  case 8: ((uint64_t *)p)[lane] = value; return;
  }
  *(uint32_t *)p = (*(uint32_t *)p & ~(1u << lane)) | (uint32_t)(value & 1u) << lane;
}

/* Are accesses of `bytes` at these offsets in shared memory aligned and inside it? */
static inline bool shared_inside(const block *b, const uint32_t offset[SIM_LANES], uint32_t bytes) {
  const uint32_t most = b->shared_bytes - bytes;
  uint32_t negative = most, any = 0;
  for (uint32_t l = 0; l < SIM_LANES; l++) {
    negative |= offset[l] | (most - offset[l]);
    any |= offset[l];
  }
  return !(negative >> 31) && !(any & (bytes - 1));
}

#if defined(__clang__)
/* some lanes call functions: no fault of the loop */
#pragma clang diagnostic ignored "-Wpass-failed"
#define SIM_IVDEP _Pragma("clang loop vectorize(assume_safety)")
#else
#define SIM_IVDEP _Pragma("GCC ivdep")
#endif
/* The statements for each executing lane `l`; without a branch when that is all 32. */
#define FOR_LANES(w, ...)                                                                                              \
  do {                                                                                                                 \
    if ((w)->mask == SIM_ALL_LANES) {                                                                                  \
      SIM_IVDEP for (uint32_t l = 0; l < SIM_LANES; l++) { __VA_ARGS__ }                                               \
    } else {                                                                                                           \
      for (uint32_t todo_ = (w)->mask; todo_; todo_ &= todo_ - 1) {                                                    \
        const uint32_t l = (uint32_t)__builtin_ctz(todo_);                                                             \
        __VA_ARGS__                                                                                                    \
      }                                                                                                                \
    }                                                                                                                  \
  } while (0)

/* fault.c: the first fault of the block; it stops. lane: of the warp, or 32 for none. */
void sim_stop(warp *w, const inst *i, uint32_t lane, sim_fault_kind kind, uint64_t address, const char *format, ...)
    TAPER_PRINTF(6, 7);
void sim_fault_text(sim_fault *fault, const char *format, ...) TAPER_PRINTF(2, 3);

/* warp.c: executes up to `most` instructions; how many it did. */
uint32_t sim_warp_run(warp *w, uint32_t most);
void sim_group_add(warp *w, group g);
/* frames.c */
void sim_call(warp *w, group *g, const inst *i, uint32_t lanes);
bool sim_return(warp *w, uint32_t lane, uint32_t *out_pc);
/* buffers.c: `bytes` of any content (NULL: the host has no memory); given back with the same number. Any thread. */
void *sim_buffer_take(size_t bytes);
void sim_buffer_give(void *buffer, size_t bytes);
/* block.c */
bool sim_block_new(worker *k, block *b);
void sim_block_free(block *b);
void sim_block_begin(block *b, uint32_t number);
/* Executes until all warps end or wait (true), or `most` instructions per warp are done (false). */
bool sim_block_run(block *b, uint32_t most);
void sim_barrier_arrive(warp *w, group *g, const inst *i, uint32_t lanes);
/* shared.c: false: a fault stopped the block. */
bool sim_shared_read(warp *w, const inst *i, uint32_t lane, uint32_t address, uint32_t bytes);
bool sim_shared_write(warp *w, const inst *i, uint32_t lane, uint32_t address, uint32_t bytes, const void *value);
/* The same for the executing lanes, one after the other; `plain`: all 32 at these offsets in the block's, inside, aligned, nothing special. */
bool sim_shared_load_plain(warp *w, const inst *i, const uint32_t offset[SIM_LANES], uint32_t bytes);
bool sim_shared_load(warp *w, const inst *i, const uint64_t *address, uint32_t bytes, uint8_t *at[SIM_LANES]);
bool sim_shared_store(warp *w, const inst *i, const uint64_t *address, uint32_t bytes, const uint8_t (*values)[32]);
bool sim_shared_pending(warp *w, const inst *i, uint32_t lane, uint32_t address, uint32_t bytes);
void sim_shared_land(warp *w, uint32_t lane, uint32_t address, uint32_t bytes);
void sim_warp_synced(warp *w, uint32_t lanes);
/* global.c: where in the host the executing lanes' bytes at `address` lie; false: a fault stopped the block. */
typedef enum access_mode { ACCESS_READ, ACCESS_READ_ONLY, ACCESS_WRITE, ACCESS_ATOMIC } access_mode;
bool sim_global(warp *w, const inst *i, const uint64_t address[SIM_LANES], uint32_t bytes, access_mode mode,
                uint8_t *at[SIM_LANES]);
/* The same for plain loads where little is to be looked at: the lanes' bytes lie one behind the other, or are the same (*out_step 0), and have
   been seen to be in order before. NULL: nothing is done, sim_global must look. */
const uint8_t *sim_global_row(warp *w, const inst *i, const uint64_t address[SIM_LANES], uint32_t bytes, bool read_only,
                              uint32_t *out_step);
/* copy.c */
void sim_copies_finish(warp *w, const inst *i, uint32_t lane, uint32_t groups_left);

#endif
