/*
 * train_plan.h - the schedule of training: for each program of a module (entries train_warm, train_taper, train_zero,
 * eval, observe, scan) its stages and where values lie. Docs: docs/plan.md
 *
 * A call has rows of token positions, cut into blocks. A stage is run by all workers together; a ROWS stage takes
 * blocks one after another and runs its groups on each: products of the whole block with a matrix, and loops over its
 * rows. Sums over rows are taken within each block, and over the blocks in a SUMS stage.
 */
#ifndef TAPERC_TRAIN_PLAN_H
#define TAPERC_TRAIN_PLAN_H

#include "compiler/ir/ir.h"

#define TRAIN_NOT UINT32_MAX

typedef enum train_kind {
  TRAIN_ROWS,
  TRAIN_ATTENTION,      /* units: a window and a key head */
  TRAIN_ATTENTION_BACK, /* the same */
  TRAIN_WEIGHTS,        /* linear_weight_back: units are tiles of the gradients */
  TRAIN_EMBED,          /* embed_back: a worker owns columns */
  TRAIN_SUMS,           /* sums over the blocks; results that are means */
  TRAIN_SMALL           /* arithmetic on values of parameters' shape: worker 0 */
} train_kind;

typedef enum train_home {
  TRAIN_NOWHERE,  /* in registers, or not a value that lies anywhere */
  TRAIN_ARENA,    /* rows of the call */
  TRAIN_CHUNK,    /* rows of a chunk */
  TRAIN_BLOCK,    /* rows of a block, in the worker's scratch */
  TRAIN_ROW,      /* one row, in the worker's scratch */
  TRAIN_FIXED,    /* a value of a parameter's shape */
  TRAIN_GRADIENT, /* goes into the gradient of a parameter as it is made */
  TRAIN_MEAN      /* goes into results as it is made */
} train_home;

/* Where a value lies. Views (slices, heads) have the slot of their owner. */
typedef struct train_slot {
  train_home home;
  uint32_t width;       /* floats a row; of others: elements */
  uint64_t offset;      /* by home: floats a row, or floats */
  uint64_t partial;     /* sums over rows: floats a block */
  uint32_t first, last; /* stages of its program */
  uint32_t param;       /* GRADIENT: which */
  bool adds;            /* GRADIENT: not the first that goes there */
} train_slot;

/* Columns [start, start + width) of a row of the value that owner computes. */
typedef struct train_view {
  ir_value owner;
  uint32_t start, width;
} train_view;

/* Part of a ROWS stage: one product of the block with a matrix, or ops that run row by row. */
typedef struct train_group {
  bool product;
  ir_value *ops;
  size_t count;
} train_group;

typedef struct train_stage {
  train_kind kind;
  bool chunked;
  const char *name;
  ir_value *ops; /* in order of execution */
  size_t op_count;
  train_group *groups; /* ROWS */
  size_t group_count;
  uint64_t row_scratch, block_scratch; /* ROWS: floats of a worker; floats times block behind them */
} train_stage;

typedef struct train_program {
  uint32_t id; /* taper_train_program_id */
  ir_region entry;
  train_stage *stages;
  size_t stage_count;
  uint64_t row_floats, chunk_floats, partial_floats, fixed_floats;
} train_program;

typedef struct train_pack {
  uint32_t param;
  bool back; /* multiplied with from the right: x W */
} train_pack;

typedef struct train_gate {
  ir_value gate; /* {0}: an element of an array that nothing reads */
  const char *name;
  uint32_t index, count; /* its place in its array, and the array's elements */
  bool scheduled;
} train_gate;

typedef struct train_norm {
  ir_value norm;
  const char *name;
  uint32_t gate, weight, taper_weight, taper_c;
  bool layer_norm;
} train_norm;

typedef struct train_result {
  ir_value op;
  uint32_t program;
  bool rows;
} train_result;

typedef struct train_rotary {
  ir_value op;
  uint32_t pairs;
} train_rotary;

typedef struct train_plan {
  const ir_module *m;
  arena mem;
  uint32_t vocab, context, width;
  train_slot *slots;       /* [ir_value_limit] */
  train_program *programs; /* those that the module has, by id */
  ir_value *params;
  uint32_t *param_programs; /* [param_count] bits: programs that write its gradient */
  const char **param_kinds; /* [param_count] taper_train_param.kind */
  train_pack *packs;
  train_gate *gates;
  train_norm *norms;
  train_result *results;
  train_rotary *rotary;
  size_t program_count, param_count, pack_count, gate_count, norm_count, result_count, rotary_count;
  uint32_t final_norm, anchor_target, table; /* or TRAIN_NOT */
} train_plan;

/* Plans every training entry of a module that went through the passes for training. NULL: reported in the sink. The
 * module outlives the plan. */
train_plan *train_plan_make(const ir_module *m, diag_sink *sink);
void train_plan_free(train_plan *p);
void train_plan_print(const train_plan *p, text *out);

/* ---- for the emitter ---- */
/* Is v a row of a token, f32[B,T,...]? */
bool train_is_row(const ir_module *m, ir_value v);
/* Floats of a row; of other values: elements. */
uint32_t train_width(const ir_module *m, ir_value v);
/* The owner behind aliases and slices of columns. */
train_view train_view_of(const ir_module *m, ir_value v);
/* The index of a param op; TRAIN_NOT: v is none. */
uint32_t train_param_of(const train_plan *p, ir_value v);
uint32_t train_pack_of(const train_plan *p, ir_value weight, bool back);
uint32_t train_gate_of(const train_plan *p, ir_value gate);
uint32_t train_rotary_of(const train_plan *p, ir_value rope);
/* The first result that program `id` makes of `op` (an op `result`). */
uint32_t train_result_of(const train_plan *p, ir_value op);

#endif
