/* eval_priv.h - what the reference evaluation of one op sees. It is named in the `eval` column of op.def. */
#ifndef TAPERC_IR_EVAL_PRIV_H
#define TAPERC_IR_EVAL_PRIV_H

#include "compiler/ir/eval.h"
#include "compiler/ir/ir_priv.h"

typedef struct eval_ctx {
  const ir_module *m;
  const ir_eval_args *args; /* all zero in ir_eval_global */
  ir_value v;
  const ir_tensor **in; /* [n]; NULL: left out, or a branch that a gate at exactly 0 or 1 switches off */
  size_t n;
  ir_tensor *out;    /* data is there and zero; a state's is the state's own */
  ir_tensor *states; /* of the entry, in order */
  taper_error *error;
} eval_ctx;

typedef taper_status (*eval_fn)(eval_ctx *c);

#define OP(id, text, operands, attrs, flags, infer, eval, grad) taper_status eval(eval_ctx *c);
#include "compiler/ir/op.def"
#undef OP

int64_t eval_elements(const ir_tensor *t);
static inline int64_t eval_last(const ir_tensor *t) { return t->rank ? t->dim[t->rank - 1] : 1; }
static inline int64_t eval_rows(const ir_tensor *t) { return eval_elements(t) / eval_last(t); }
double eval_dot(const double *a, const double *b, int64_t n);
/* Row (b, t) of [batch, time] holds a token: t < len[b]. */
bool eval_row_is_valid(const eval_ctx *c, int64_t b, int64_t t);

#endif
