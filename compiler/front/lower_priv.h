/* lower_priv.h - the state of one lowering; for lower*.c. */
#ifndef TAPERC_FRONT_LOWER_PRIV_H
#define TAPERC_FRONT_LOWER_PRIV_H

#include "compiler/front/front_priv.h"

typedef struct lower_gate {
  bool array;
  int64_t count;
  const double *values; /* value_count 1: for every element */
  size_t value_count;
  ir_value *elements; /* IR_NONE: not used yet */
} lower_gate;

typedef struct lower_site { /* how the statement at hand was reached, innermost first */
  const char *text;
  ast_span span;
  struct lower_site *outer;
} lower_site;

typedef struct lower_number {
  double value;
  ir_value v;
} lower_number;

struct lowering {
  const front_ctx *c;
  const front_options *options;
  ir_module *m;
  ir_builder body, globals;
  front_env env; /* of forward */
  front_value *params;
  lower_gate *gates;
  ir_value *tensors;
  bool *tensor_failed;
  name_table weights; /* every weight's name */
  text path;          /* of weights made here: "layers.3." */
  lower_site *site;
  ir_value tokens, pos, len, positions;
  lower_number numbers[32];
  uint32_t number_count;
  uint64_t steps, ops;
  uint32_t probes;
  bool aborted;
  ast_span return_span;
};

/* Counts a statement, call or op against the limits; false: past one, reported once. */
bool lower_tick(lowering *l, bool op, ast_span span);
/* A piece of a weight's name: letters, digits, '_', '-' and '.' between them. */
bool lower_check_name(lowering *l, const char *name, const char *what, ast_span span);
/* Appends "name." or "name.index." (index >= 0) to the path; *out_before is the length to go back to. false: too long,
 * reported. */
bool lower_push(lowering *l, const char *name, int64_t index, ast_span span, size_t *out_before);
void lower_pop(lowering *l, size_t length);
/* path + name, in the arena. */
const char *lower_name(lowering *l, const char *name);

/* ---- lower_globals.c ---- */
bool lower_gates(lowering *l); /* counts and values; false: reported */
ir_value lower_gate_element(lowering *l, front_value gate, ast_span span);
/* A const or param of the module; IR_NONE: reported. */
ir_value lower_weight(lowering *l, const char *name, uint32_t rank, const int64_t *dims, const char *init,
                      ast_span span);
ir_value lower_splat(lowering *l, int64_t n, double value); /* f32[n] */
ir_value lower_positions(lowering *l);
ir_value lower_build(lowering *l, ir_opcode op, const char *name, const ir_value *operands, size_t n,
                     const ir_attr *attrs, size_t attr_count, ast_span span);
front_value lower_op(lowering *l, front_env *e, const ast_expr *x);
/* Reports ir_infer's message at the operand or attribute that it names. `operands` and `attrs` are what stands in the
   source for each, by operand and by key; NULL: nothing. */
void lower_infer_error(lowering *l, const char *message, const char *what, const ast_expr *const *operands, size_t n,
                       const ast_expr *const *attrs, ast_span whole);

#endif
