/* launch.h - the launch table of a CUDA package (docs/cuda.md): which kernels run with which parameters, read strictly
   from JSON and checked field by field. */
#ifndef TAPER_CUDA_LAUNCH_H
#define TAPER_CUDA_LAUNCH_H

#include "runtime/package.h"

#define LAUNCH_NONE UINT32_MAX
#define LAUNCH_MAX_ARGS 256u /* slots of 8 bytes of one kernel */

#define LAUNCH_LIST(type)                                                                                              \
  struct {                                                                                                             \
    type *at;                                                                                                          \
    uint32_t count, cap;                                                                                               \
  }

typedef enum launch_extent {
  LAUNCH_NUMBER, /* launch_dim.n blocks */
  LAUNCH_ROWS,
  LAUNCH_OUT_ROWS,
  LAUNCH_ROW_GROUPS,
  LAUNCH_OUT_ROW_GROUPS,
  LAUNCH_SPLITS
} launch_extent;

typedef struct launch_dim {
  launch_extent what;
  uint32_t n;
} launch_dim;

/* One slot of a kernel's arguments. kind 'w', 's', 't': address of weight, state, rotary table `value`; 'b': the number
   `value`, a buffer's offset; 'g': `value` holds the bits of a double. */
typedef struct launch_slot {
  char kind;
  uint64_t value;
} launch_slot;

typedef struct launch_call {
  uint32_t kernel;
  launch_dim grid[3];
  LAUNCH_LIST(launch_slot) args;
} launch_call;

/* y[r][0..rows) = W[row0 .. row0 + rows) x[r], x[r] beginning at x_start of a row of x_width numbers. */
typedef struct launch_product {
  uint32_t weight, row0, rows;
  uint64_t x; /* offsets in the arena, floats a row */
  uint32_t x_width, x_start;
  bool x_half; /* x lies in the table's 16-bit type */
  uint64_t y;
  uint32_t y_width;
} launch_product;

typedef struct launch_wide {
  bool is, has_before, has_after;
  launch_call before, after;
  LAUNCH_LIST(launch_product) products;
} launch_wide;

typedef struct launch_stage {
  const char *name;
  launch_call call;
  bool probes; /* only a call that wants layers runs it */
  launch_wide wide;
} launch_stage;

typedef struct launch_kernel {
  const char *name;
  uint32_t threads, shared;
} launch_kernel;

typedef struct launch_weight {
  const char *tensor;
  uint32_t row0, rows, cols, pitch; /* numbers */
  st_dtype dtype;
  uint32_t read_rows;
} launch_weight;

typedef struct launch_state {
  const char *name;
  uint32_t heads, dim;
} launch_state;

typedef struct launch_rotary {
  uint32_t pairs;
  double magnitude;
  LAUNCH_LIST(double) inv_freq;
} launch_rotary;

typedef struct launch_probe {
  const char *name;
  uint32_t stage; /* LAUNCH_NONE: its value is never in memory */
  uint64_t buffer;
  uint32_t width, inv_scale; /* LAUNCH_NONE: none */
} launch_probe;

typedef struct launch_gemm {
  bool is;
  uint32_t kernel, tile_m, tile_n;
} launch_gemm;

typedef struct launch_sample {
  bool is;
  uint32_t kernel, threads;
  bool has_scale;
  uint64_t buffer;
  uint32_t width, inv_scale;
} launch_sample;

typedef struct launch_table {
  uint32_t abi, vocab, context, width, max_batch;
  st_dtype dtype;
  uint64_t row_floats, logits;
  uint32_t split_floats, key_heads;
  LAUNCH_LIST(launch_kernel) kernels;
  LAUNCH_LIST(launch_stage) stages;
  LAUNCH_LIST(launch_weight) weights;
  LAUNCH_LIST(launch_state) states;
  LAUNCH_LIST(launch_rotary) rotary;
  LAUNCH_LIST(launch_probe) probes;
  launch_gemm gemm;
  launch_sample sample;
  bool pdl;
  taper_allocator allocator;
  void *blocks; /* what all lists and names lie in */
} launch_table;

/* Reads the tensor `taper.launch` of a package whose bytes have been verified. TAPER_INVALID names the key and the byte;
   launch_free is legal after a failure. Names live as long as the table. */
taper_status launch_read(const package *p, const taper_allocator *allocator, launch_table *out, taper_error *error);
/* The same of a text: what launch_read does once it has it; for tests. */
taper_status launch_parse(const char *json, size_t bytes, const taper_allocator *allocator, launch_table *out,
                          taper_error *error);
/* Every index, range and size against the table and the package's tensors. */
taper_status launch_check(const launch_table *t, const package *p, taper_error *error);
void launch_free(launch_table *t);

#endif
