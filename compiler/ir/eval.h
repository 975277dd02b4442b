/* eval.h - the oracle: evaluates any entry or global expression in fp64 with no cleverness. */
#ifndef TAPERC_IR_EVAL_H
#define TAPERC_IR_EVAL_H

#include "compiler/ir/ir.h"

/* A dense fp64 tensor of concrete shape. */
typedef struct ir_tensor {
  uint32_t rank;
  int64_t dim[IR_MAX_RANK];
  double *data; /* [elements] */
} ir_tensor;

typedef struct ir_eval_args {
  int64_t batch, time;   /* what B and T are */
  const int32_t *tokens; /* [batch, time] */
  const int32_t *pos,
      *len;          /* [batch]; NULL: all 0, all `time`. Rows t >= len[b] hold no token: any id is legal there. */
  ir_tensor *states; /* the entry's state arguments in order; updated in place; data NULL: starts as zeros (malloc, then
                        the caller's), context from the type. NULL: states of this call alone */
  size_t state_count;
  const int32_t *targets; /* [batch, time], training entries only; below 0: padding, which counts nowhere */
  bool round_f32;         /* every op's result is rounded to f32 (a model of a plain f32 program), for tolerances */
  void (*on_probe)(void *user, const char *name, const ir_tensor *value); /* inverse scale applied */
  void (*on_result)(void *user, const char *name, const ir_tensor *value);
  void (*on_gradient)(void *user, ir_value param, const ir_tensor *value);
  void *user;
  size_t memory_limit; /* bytes; 0: 8 GiB. Intermediates are freed after their last use. */
} ir_eval_args;

/* Evaluates an entry; out[i] are the return's first out_count operands, data from malloc (ir_tensor_free). A taper norm
   whose gate is exactly 0 or 1 does not need the constants of its other branch. Fails on symbolic constants (named),
   ids out of range, memory over the limit. */
taper_status ir_eval_entry(const ir_module *m, ir_region entry, const ir_eval_args *args, ir_tensor *out,
                           size_t out_count, taper_error *error);
/* Evaluates a value of the global region in fp64, unrounded. */
taper_status ir_eval_global(const ir_module *m, ir_value v, ir_tensor *out, taper_error *error);
void ir_tensor_free(ir_tensor *t);

#endif
