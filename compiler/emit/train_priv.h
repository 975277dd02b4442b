/* train_priv.h - how training source is made from its plan; for compiler/emit only. */
#ifndef TAPERC_EMIT_TRAIN_PRIV_H
#define TAPERC_EMIT_TRAIN_PRIV_H

#include "compiler/emit/emit_priv.h"
#include "compiler/schedule/train_plan.h"

/* What is made for all programs together: the constants that stages read by address. */
typedef struct train_emitter {
  const train_plan *p;
  arena mem;
  ir_value *consts; /* each other value once */
  size_t const_count;
  ir_value without_kernel; /* an op that kernels.def has no line for */
  /* of the list of ops that is being written; [value], 0 for all others */
  uint32_t *run, *at; /* its loop (0: none); its number in the order */
  bool *listed, *in_memory;
} train_emitter;

/* The stage that is being written. */
typedef struct train_list {
  train_emitter *e;
  const train_stage *stage;
  emit_fields *fields;
  const ir_value *ops; /* the part of it that is being written */
  size_t count;
  bool small; /* values of parameters' shape, whole; else row r of the block, its row i */
} train_list;

/* A pointer to the row `r` (row `i` of the block) of the value that owner computes; to all of it where it is no row. */
const char *train_place(const train_list *l, ir_value owner, const char *r, const char *i);
/* The same of an operand: views, parameters, constants too; "0" where there is none. */
const char *train_operand_place(const train_list *l, ir_value x, const char *r, const char *i);
/* Does the value add to what is there (a C expression: "0", "1", "c->accumulate", ...)? */
const char *train_adds(const train_list *l, ir_value v);
/* The statements that compute the ops of the list, one after another. */
void train_steps(const train_list *l, text *out);
void train_put_attention(train_list *l, ir_value v, text *out);
void train_put_attention_back(train_list *l, ir_value v, text *out);
/* Floats from one row of x to the next: those of the buffer that it is a view of. */
uint32_t train_pitch(const train_list *l, ir_value x);
/* The scratch that a program's workers need for attention, as C expressions; "0": it has none. */
const char *train_attention_scratch(train_emitter *e, const train_program *g, bool per_time);
/* ---- train_tables.c ---- */
bool train_put_headers(text *out);
void train_put_packs(const train_emitter *e, text *out); /* the stage pack_all and its table */
void train_put_tables(train_emitter *e, const char *model_hash, text *out);
/* The body of a stage's function. */
void train_stage_body(train_list *l, text *out);
uint32_t train_last(const ir_module *m, ir_value v); /* the last dimension */

#endif
