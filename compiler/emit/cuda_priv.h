/* cuda_priv.h - how CUDA is made from a plan; for compiler/emit only. docs/cuda.md */
#ifndef TAPERC_EMIT_CUDA_PRIV_H
#define TAPERC_EMIT_CUDA_PRIV_H

#include "compiler/emit/emit_priv.h"

#define CUDA_SHARED_FLOATS 11264u /* of a block: 44 KiB of the 48 that every GPU gives */
#define CUDA_MAX_VALUES 32

/* A template on its way to be filled. */
typedef struct cuda_filler {
  const plan *p;
  const plan_stage *s;
  const char *name;
  emit_fields *fields;
  arena *mem;
  text *out;
  const char **problem;
  emit_value values[CUDA_MAX_VALUES];
  size_t count;
} cuda_filler;

extern const emit_dialect cuda_dialect;

/* Forgets the parameters of the last template and sets those that every template has. */
void cuda_begin(cuda_filler *f, const char *function);
void cuda_set(cuda_filler *f, const char *name, const char *value);
void cuda_set_number(cuda_filler *f, const char *name, uint64_t value);
void cuda_set_float(cuda_filler *f, const char *name, double value);
void cuda_set_lines(cuda_filler *f, const char *name, text *t); /* empties t */
/* false: *f->problem says which parameter or template is missing. */
bool cuda_fill(cuda_filler *f, const char *template);

/* What steps leave for each other in shared memory, laid out while they are written: floats for each row at once. */
typedef struct cuda_shared {
  uint64_t *place; /* [step] + 1; 0: none yet */
  uint64_t used;
} cuda_shared;

/* ---- how a kernel is launched: words of the launch table, or numbers ---- */
typedef struct cuda_launch {
  const char *grid[3];
  uint32_t threads;
} cuda_launch;
cuda_launch cuda_launch_of(const plan *p, const plan_stage *s, arena *mem);

/* cuda_stage.c: emit_functions' stage. */
bool cuda_stage(const plan *p, const plan_stage *s, const char *name, emit_fields *fields, text *out,
                const char **out_problem);

/* ---- cuda_attention.c ---- */
bool cuda_attention(cuda_filler *f);
cuda_launch cuda_attention_launch(const plan *p, const plan_stage *s, arena *mem);

/* ---- cuda_launch.c ---- */
void cuda_put_launch(const plan *p, const emit_functions *f, text *out);

#endif
