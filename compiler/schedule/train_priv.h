/* train_priv.h - how a plan of training is made; for compiler/schedule only. */
#ifndef TAPERC_TRAIN_PRIV_H
#define TAPERC_TRAIN_PRIV_H

#include "compiler/analysis/execution.h"
#include "compiler/schedule/train_plan.h"

typedef enum train_class {
  TRAIN_OP_NONE,    /* nothing to do: arguments, views, effects that others carry out */
  TRAIN_OP_ROW,     /* row by row */
  TRAIN_OP_PRODUCT, /* rows times a matrix */
  TRAIN_OP_SUM,     /* over rows: taken along in a ROWS stage, whole after a SUMS stage */
  TRAIN_OP_ATTENTION,
  TRAIN_OP_ATTENTION_BACK,
  TRAIN_OP_WEIGHT,
  TRAIN_OP_EMBED,
  TRAIN_OP_SMALL
} train_class;

typedef struct train_planner {
  train_plan *p;
  const ir_module *m;
  diag_sink *sink;
  arena scratch;
  uint32_t program;   /* id of the one that is being planned */
  train_class *class; /* [value] */
  bool *chunk;        /* [value]: runs chunk by chunk */
  uint32_t *stage;    /* [value]: index in its program, or TRAIN_NOT */
  uint32_t *group;    /* [value]: index in its stage */
} train_planner;

bool train_refuse(train_planner *k, ir_value v, const char *why);

/* ---- train_classes.c: what kind of work each op of an entry is ---- */
bool train_classify(train_planner *k, ir_region entry);
/* Operand i of v as a value that an op of the entry computes; IR_NONE: global, an argument, positions. */
ir_value train_source_of(const train_planner *k, ir_value v, size_t i);

/* ---- train_stages.c ---- */
bool train_make_stages(train_planner *k, train_program *g);
/* The last stage of the loop over chunks that stage s is in, and the first; s itself where there is none. */
uint32_t train_loop_first(const train_program *g, uint32_t s);
uint32_t train_loop_last(const train_program *g, uint32_t s);

/* ---- train_memory.c ---- */
bool train_lay_out(train_planner *k, train_program *g);

#endif
