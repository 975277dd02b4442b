/* plan_priv.h - how a plan is made; for compiler/schedule only. */
#ifndef TAPERC_PLAN_PRIV_H
#define TAPERC_PLAN_PRIV_H

#include "compiler/analysis/execution.h"
#include "compiler/schedule/plan.h"

#define PLAN_NO_KEY (-1)
#define PLAN_LAST_KEY INT64_MAX
#define PLAN_ROWS_AT_ONCE 6u /* DOT_ROWS of the templates */
#define PLAN_MAX_GROUP 4096  /* ops that may share a stage */

/* A use of columns of a value by an op (return and probes too). */
typedef struct plan_use {
  ir_value user;
  plan_view view;
  struct plan_use *next;
} plan_use;

typedef struct planner {
  plan *p;
  const ir_module *m;
  diag_sink *sink;
  arena scratch;
  const struct plan_target *target;
  bool *out;        /* [value]: only for wanted rows */
  bool *copied;     /* [value]: a probe of a part of a value, which gets a place of its own */
  bool *probe_only; /* [value]: leads to probes only */
  int64_t *key;     /* [value]: which stage; ascending */
  plan_use **uses;  /* [value] by owner */
  uint32_t *buffer; /* [value] by owner, or PLAN_NONE */
  uint32_t *step;   /* [value]: index in the list that is being built, or PLAN_NONE */
  bool *follows;    /* [value]: needs products of its own stage */
} planner;

/* targets.def: what the schedule must know of a target. */
typedef struct plan_target {
  const char *name;
  uint32_t tile, unit, block, blocks, kept, unit_limit;
  bool halves;
} plan_target;
const plan_target *plan_target_find(const char *name);

/* ---- views.c ---- */
plan_view plan_view_of(const planner *k, ir_value v);
void plan_collect_uses(planner *k, ir_region entry);
/* Is a part of owner's value needed by a stage other than its own? */
bool plan_is_outside(const planner *k, ir_value user,
                     ir_value owner); /* does user read owner's value from another stage? */
bool plan_is_external(const planner *k, ir_value owner);
uint32_t plan_width_of(const planner *k, ir_value owner);
uint32_t plan_buffer_for(planner *k, ir_value owner); /* made when it is first asked for */
uint32_t plan_state_of(const planner *k, ir_value state);
/* Everything but values of the stage that is being built: globals, inputs, buffers. */
plan_operand plan_outer_operand(planner *k, ir_value x);

/* ---- weights.c ---- */
uint32_t plan_tensor_for(planner *k, ir_value global);
uint32_t plan_weight_for(planner *k, ir_value global, bool tiles, uint32_t row0, uint32_t rows);
uint32_t plan_rotary_for(planner *k, ir_value rope);
/* Do two ops `rope` rotate pair i alike (not looking at how many pairs there are)? */
bool plan_same_rotation(const ir_module *m, ir_value a, ir_value b);
/* Which weights a call without probes reads, once all stages and probes are there. */
void plan_settle_reads(planner *k);
void plan_settle_tables(planner *k); /* looked-up tables, once it is known which are in tiles anyway */

/* ---- stages.c, segments.c: build the stage of ops[0..n), which have one key. false: they cannot share a stage
 * (nothing is left behind). ---- */
bool plan_build_stage(planner *k, const ir_value *ops, size_t n, plan_stage *out);
bool plan_build_linear(planner *k, const ir_value *ops, size_t n, plan_stage *out);
bool plan_in_stage(const planner *k, ir_value x, int64_t key); /* is it a row that an op of that stage computes? */
/* A step that works on whole rows, appended to out->steps. */
void plan_add_row_step(planner *k, plan_stage *out, ir_value op);
void plan_init_step(planner *k, plan_step *s, ir_value op);

/* ---- memory.c ---- */
bool plan_lay_out(planner *k);

#endif
