/* device_priv.h - inside of the CUDA devices: the real one and the simulated one differ in the driver they open. */
#ifndef TAPER_CUDA_DEVICE_PRIV_H
#define TAPER_CUDA_DEVICE_PRIV_H

#include "cuda/cublas.h"
#include "cuda/driver.h"
#include "cuda/launch.h"
#include "runtime/abi/cuda_abi.h"
#include "runtime/device.h"

#define CUDA_MAX_BATCH 8u /* rows of a decode graph */
#define CUDA_MAX_BLOCKS 0x7fffffffu

/* What a chunk of decoding works on, in one block, so that one copy brings it there and one back. */
typedef struct decode_block {
  taper_cuda_row row[CUDA_MAX_BATCH];
  taper_cuda_sampling sampling;
  int32_t token[CUDA_MAX_BATCH], pos[CUDA_MAX_BATCH], slot[CUDA_MAX_BATCH], out_row[CUDA_MAX_BATCH];
  int32_t out[CUDA_MAX_BATCH][DEVICE_DECODE_MOST];
} decode_block;

#define CUDA_MAX_PASSING 8u

/* Memory that holds what one call computes. */
typedef struct cuda_range {
  CUdeviceptr at;
  uint64_t bytes;
} cuda_range;

typedef struct cuda_device {
  device base;
  taper_allocator allocator;
  cuda_driver driver;
  bool has_driver, has_context;
  cuda_device_facts gpu;
  CUcontext context;
  CUstream stream;
  CUmodule module;
  int capability;              /* 90 of sm_90 */
  bool pdl, graphs, graph_pdl; /* launch attribute of kernels; of kernels in graphs */
  bool scale_std;              /* s(h) is a standard deviation, else a root mean square */
  launch_table table;
  CUfunction *function; /* [kernels] */
  pool *turns;          /* of one thread: its lock is the queue of the callers */
  taper_error broken;   /* why nothing runs any more; status TAPER_OK: it does */

  CUdeviceptr *blocks; /* every allocation of the device, for its end */
  uint32_t block_count, block_cap;
  CUdeviceptr *weight, *rotary; /* [weights], [rotary] */
  float **inv_scale;            /* [probes] inverse scales on the host; NULL: none */
  CUdeviceptr arena, scratch, counters, io;
  cuda_range passing[CUDA_MAX_PASSING]; /* what the next call may not rely on */
  uint32_t passing_count;
  uint64_t counter_bytes;
  uint32_t splits;                     /* the most that any context has */
  int32_t *host_io;                    /* pinned, [4 row_cap] */
  decode_block *host_decode;           /* pinned */
  int32_t *host_history;               /* pinned, [CUDA_MAX_BATCH][context] */
  float *host_row;                     /* [vocab] logits that are checked only */
  float *stream_rows;                  /* [row_cap][width] the stream before the head */
  CUdeviceptr decode, history, scales; /* decode_block; [CUDA_MAX_BATCH][context] each */

  bool use_cublas, has_cublas;
  cublas_library cublas;
  cublas_handle gemm;
} cuda_device;

struct device_state {
  uint32_t slots, context, splits;
  CUgraphExec graph[CUDA_MAX_BATCH + 1]; /* by rows: DEVICE_DECODE_MOST tokens; NULL: not captured yet */
  CUdeviceptr state[];                   /* [states] */
};

/* One call of the model while it is being launched. */
typedef struct cuda_launch {
  cuda_device *d;
  const device_state *s;
  taper_cuda_call call;
  bool in_graph;
  bool follows_kernel; /* what stands before in the stream is a kernel of ours */
} cuda_launch;

/* Runs `call` of the driver and returns its status with "call: text" in *error. */
#define CUDA_TRY(d, error, name, ...)                                                                                  \
  TAPER_TRY(cuda_driver_check(&(d)->driver, (d)->driver.name(__VA_ARGS__), #name, error))

/* The right to use the device: takes a turn, makes the context current. A broken device refuses. cuda_leave follows a
   success; a status other than TAPER_OK of what was done in between goes through cuda_failed first. */
taper_status cuda_enter(cuda_device *d, taper_error *error);
void cuda_leave(cuda_device *d);
/* After a failure: finds out whether the driver still works and what the simulator saw; returns `status`. */
taper_status cuda_failed(cuda_device *d, taper_status status, taper_error *error);

/* Ahead of a call: what the one before left in its buffers is nothing to this one. The simulator is told, and lets nobody
   read it; a real driver is not. */
taper_status cuda_begin_call(cuda_device *d, taper_error *error);

/* ---- device_image.c ---- */
/* Loads the package's image that this GPU runs best, or the named one, and looks its kernels up. */
taper_status cuda_load_image(cuda_device *d, const package *p, const taper_model_options *o, taper_error *error);

/* ---- device_memory.c: the context is current ---- */
/* `what` is named with its size where memory is exhausted. */
taper_status cuda_alloc(cuda_device *d, uint64_t bytes, const char *what, CUdeviceptr *out, taper_error *error);
taper_status cuda_load_weights(cuda_device *d, const package *p, taper_error *error);
/* Buffers of a batch, of attention's merge, of decoding. */
taper_status cuda_make_room(cuda_device *d, taper_error *error);
/* Everything that cuda_alloc and cuda_make_room gave. */
void cuda_free_memory(cuda_device *d);
taper_status cuda_state_new(device *base, uint32_t slots, uint32_t context, device_state **out, taper_error *error);
void cuda_state_free(device *base, device_state *s);
taper_status cuda_state_copy(device *base, device_state *to, const device_state *from, uint32_t slot,
                             uint32_t positions, taper_error *error);
void cuda_state_scrub(device *base, device_state *s, uint32_t slot);
/* Parts that attention cuts `context` positions into: a function of the shape and the GPU, never of the batch. */
uint32_t cuda_splits(const cuda_device *d, uint32_t context);

/* ---- device_run.c ---- */
/* Launches one kernel of the table with its slots filled in; a grid with no block is no launch. */
taper_status cuda_launch_call(cuda_launch *l, const launch_call *c, const char *stage, taper_error *error);
taper_status cuda_launch_kernel(cuda_launch *l, uint32_t kernel, const unsigned grid[3], unsigned threads,
                                const uint64_t *slots, const char *stage, taper_error *error);
/* Stages of a call without probes. */
taper_status cuda_launch_stage(cuda_launch *l, const launch_stage *s, taper_error *error);
taper_status cuda_run(device *base, device_state *s, device_batch *batch, taper_error *error);

/* ---- device_wide.c: stages of more than TAPER_CUDA_ROWS rows as products ---- */
taper_status cuda_open_gemm(cuda_device *d, const taper_model_options *o, taper_error *error);
void cuda_close_gemm(cuda_device *d);
bool cuda_is_wide(const cuda_launch *l, const launch_stage *s);
taper_status cuda_launch_wide(cuda_launch *l, const launch_stage *s, taper_error *error);

/* ---- device_decode.c ---- */
taper_status cuda_decode(device *base, device_state *s, device_decode *call, taper_error *error);

/* ---- device_cuda.c ---- */
extern const device_ops device_cuda, device_sim;

#endif
