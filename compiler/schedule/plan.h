/*
 * plan.h - the schedule of one entry: stages, exchanges, memory; parametric in the number of workers. Docs:
 * docs/plan.md
 *
 * A value's row (one token) is a vector of `width` floats. A stage computes rows of values from buffers and leaves rows
 * in buffers or states; an exchange (all workers see it) follows. Within a stage: rows       a worker owns rows and
 * runs the steps on each: any row-wise graph linear     a prologue, which every worker runs on all rows for itself;
 * then segments, whose units (ranges of output columns) the workers own: dot products of weight tiles with rows, then
 * the steps of the epilogue on those columns attention  units are (row, key head)
 */
#ifndef TAPERC_PLAN_H
#define TAPERC_PLAN_H

#include "compiler/ir/ir.h"

typedef struct plan plan;

/* Plans entry `decode` of a module that went through cache-attention and fuse-epilogue. NULL: reported in the sink. The
 * module outlives the plan. */
plan *plan_make(const ir_module *m, const char *target, diag_sink *sink);
void plan_free(plan *p);
void plan_print(const plan *p, text *out);

/* ---- what a package must hold: every global value that a stage reads, whole, canonical, f32, under this name ---- */
typedef struct plan_tensor {
  const char *name;
  ir_value value; /* CONST or PARAM; another global expression only where weights are symbolic */
} plan_tensor;
size_t plan_tensors(const plan *p, const plan_tensor **out); /* owned by the plan */
/* The type of the matrices that products read: f32 unless one has another. */
ir_dtype plan_dtype(const plan *p);

/* ---- for the emitter ---- */
#define PLAN_NONE UINT32_MAX
typedef enum plan_kind { PLAN_ROWS, PLAN_LINEAR, PLAN_ATTENTION } plan_kind;

typedef struct plan_weight {
  uint32_t tensor;
  bool tiles;                           /* else rows as stored */
  ir_dtype dtype;                       /* of its numbers */
  uint32_t row0, rows, cols, read_rows; /* read_rows: by a call without probes */
} plan_weight;

typedef struct plan_buffer {
  ir_value value;
  uint32_t width, first, last; /* stages between which it lives */
  bool out_rows;               /* compact: row j belongs to out_row[j] */
  uint64_t offset;             /* floats a row */
} plan_buffer;

typedef struct plan_state {
  ir_value arg;
  uint32_t heads, head_dim, floats_per_pos;
  bool keys; /* cpu: [heads][context/16][head_dim][16]; else [heads][context][head_dim to a multiple of the tile] */
} plan_state;

typedef struct plan_rotary {
  ir_value op;
  uint32_t pairs;
} plan_rotary;

typedef struct plan_probe {
  ir_value op;
  uint32_t stage, buffer, inv_scale; /* weight index or PLAN_NONE */
} plan_probe;

/* Columns [start, start + width) of the value that `owner` computes (seen through aliases and slices). */
typedef struct plan_view {
  ir_value owner;
  uint32_t start, width;
} plan_view;

/* Where a value lies, seen from a stage. */
typedef enum plan_place {
  PLAN_OUTSIDE,  /* in a buffer, from an earlier stage */
  PLAN_STEP,     /* computed by a step of the same list */
  PLAN_PROLOGUE, /* computed by the prologue, kept for every row */
  PLAN_DOT,      /* columns of a root of the segment */
  PLAN_GLOBAL,   /* a global value */
  PLAN_INPUT     /* tokens, positions, states */
} plan_place;

typedef struct plan_operand {
  plan_place place;
  plan_view view;
  uint32_t index; /* OUTSIDE: buffer; STEP, PROLOGUE: step; DOT: root; GLOBAL: weight (PLAN_NONE: a gate); INPUT: 0
                     tokens, 1 positions, else 2 + state */
} plan_operand;

typedef struct plan_step {
  ir_value op;
  uint32_t shift,
      width; /* epilogue: column j of the segment is column shift + j of the value; width of all of it in other lists */
  plan_operand *operands;
  size_t operand_count;
  uint32_t buffer;  /* where it is stored, or PLAN_NONE */
  bool kept;        /* prologue: read by roots or the epilogue */
  uint64_t scratch; /* floats: into the worker's scratch (a row or block), or, kept, into the part that is a row's */
  uint32_t rotary, state; /* or PLAN_NONE */
} plan_step;

typedef struct plan_root {
  ir_value linear;
  uint32_t row0, cols, weight, bias; /* bias: weight index or PLAN_NONE */
  plan_operand x;
  uint32_t buffer;  /* PLAN_NONE: not stored as it is */
  uint64_t scratch; /* block of dot products */
} plan_root;

typedef struct plan_segment {
  uint32_t columns, unit; /* unit: columns, a multiple of the target's; the last unit may be cut */
  uint32_t block;         /* columns computed at once, whole units */
  plan_root *roots;
  plan_step *steps;
  size_t root_count, step_count;
} plan_segment;

typedef struct plan_stage {
  plan_kind kind;
  bool out_rows;
  bool probes; /* computes only what probes read: a call that asks for none leaves it out */
  const char *name;
  plan_step *steps; /* rows: all; linear: the prologue; attention: the one step */
  plan_segment *segments;
  size_t step_count, segment_count;
  uint64_t scratch; /* fixed floats of a worker: what is kept for every row lies behind */
} plan_stage;

typedef struct plan_memory {
  uint64_t row_floats, scratch_floats, scratch_per_pos, scratch_per_row;
  uint64_t
      rows_scratch; /* where in the arena a row of a stage of whole rows keeps its steps: targets that limit `kept` */
} plan_memory;

/* Columns a block of rows is computed for at once: the emitter's templates and the plan's scratch agree on it. */
uint32_t plan_block_columns(const plan_segment *s);

struct plan {
  const ir_module *m;
  ir_region entry;
  arena mem;
  const char *target;
  uint32_t vocab, context, width;
  plan_stage *stages;
  plan_tensor *tensors;
  plan_weight *weights;
  plan_buffer *buffers;
  plan_state *states;
  plan_rotary *rotary;
  plan_probe *probes;
  size_t stage_count, tensor_count, weight_count, buffer_count, state_count, rotary_count, probe_count;
  plan_memory memory;
  uint32_t logits; /* buffer */
};

#endif
