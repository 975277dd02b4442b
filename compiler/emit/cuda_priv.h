/* cuda_priv.h - how CUDA is made from a plan; for compiler/emit only. docs/cuda.md */
#ifndef TAPERC_EMIT_CUDA_PRIV_H
#define TAPERC_EMIT_CUDA_PRIV_H

#include "compiler/emit/emit_priv.h"

#define CUDA_PACKS_AHEAD 12u /* of 16 bytes, that a lane asks for at once: templates/cuda/dot.cuh */
#define CUDA_HALF_PACKS_AHEAD 8u
#define CUDA_SHARED_FLOATS 11264u /* of a block: 44 KiB of the 48 that every GPU gives */

typedef struct cuda_wide cuda_wide;

extern const emit_dialect cuda_dialect;

/* What steps leave for each other in shared memory, laid out while they are written: floats for each row at once. */
typedef struct cuda_shared {
  uint64_t *place;  /* [step] + 1; 0: none yet */
  uint32_t columns; /* of a row */
  uint64_t used;
} cuda_shared;

/* ---- how a kernel is launched: words of the launch table, or numbers ---- */
typedef struct cuda_launch {
  const char *grid[3];
  uint32_t threads;
} cuda_launch;
cuda_launch cuda_launch_of(const plan *p, const plan_stage *s, arena *mem);
cuda_launch cuda_launch_after(const plan *p, const plan_stage *s, arena *mem); /* of the epilogue behind products */

/* ---- cuda_shape.c: how the products of a linear stage are cut ---- */
typedef struct cuda_shape {
  uint32_t lanes, columns; /* of a team, which has `columns` columns of each matrix at once */
  uint32_t block;          /* columns of a block of the grid, whole units */
  bool full;               /* every team has all its columns */
} cuda_shape;
/* wide: the products are made elsewhere. */
cuda_shape cuda_shape_of(const plan *p, const plan_stage *s, const plan_segment *g, bool wide);
/* Of a root whose width may be another than that of the segment's first. */
cuda_shape cuda_shape_of_root(const plan *p, const plan_segment *g, const plan_root *r, cuda_shape shape);
uint32_t cuda_warps_of(const plan *p, const plan_stage *s);

/* cuda_stage.c: emit_functions' stage. */
bool cuda_stage(emit_filler *f);

/* The kernel of a linear stage. */
bool cuda_linear(emit_filler *f);
/* P_PROLOGUE: the steps of the prologue on row i of what is kept; P_KEPT: floats of a row. */
void cuda_set_prologue(emit_filler *f);

/* ---- cuda_wide.c: linear stages of more rows than their kernel takes at once ---- */
typedef struct cuda_product { /* y[r] = W x[r] */
  const plan_root *root;
  uint32_t stage, segment, x_pitch, x_start, y_pitch; /* x in numbers of its type, y in floats */
  uint64_t x, y;                                      /* offsets in the arena, floats a row */
  bool made;                                          /* the kernel in front writes x */
  bool final;                                         /* y is a buffer of the plan, nothing is left to do */
} cuda_product;
struct cuda_wide {
  cuda_product *products; /* owned by mem */
  size_t count;           /* 0: the stage has none */
  bool has_before, has_after;
  uint64_t floats; /* of a row, behind the plan's */
};
cuda_wide cuda_wide_of(const plan *p, const plan_stage *s, arena *mem);
const cuda_product *cuda_product_of(const cuda_wide *w, const plan_root *r);
/* Floats of a row of the arena, with the largest stage's operands and products. */
uint64_t cuda_row_floats(const plan *p);
/* emit_functions' stage: nothing is written where there is no such kernel. */
bool cuda_before(emit_filler *f);
bool cuda_after(emit_filler *f);

/* ---- cuda_attention.c ---- */
bool cuda_attention(emit_filler *f);
cuda_launch cuda_attention_launch(const plan *p, const plan_stage *s, arena *mem);

/* ---- cuda_sample.c: kernels that are no stage ---- */
bool cuda_sample(const plan *p, text *out, const char **out_problem);
bool cuda_gemm(const plan *p, text *out, const char **out_problem);
/* The stream before the head, if it is in memory when the logits are there; else NULL. */
const plan_probe *cuda_scale_of(const plan *p);
#define CUDA_SAMPLE_THREADS 512u
#define CUDA_GEMM_TILE 64u
uint32_t cuda_gemm_threads(const plan *p);

/* ---- cuda_launch.c ---- */
/* Kernels of the stages, and for many rows those in front of the products and behind them; then `gemm`, where a stage has products, and
   `sample`. */
typedef struct cuda_functions {
  emit_functions stages, before, after;
} cuda_functions;
void cuda_put_launch(const plan *p, const cuda_functions *f, text *out);

#endif
