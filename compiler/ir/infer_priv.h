/* infer_priv.h - what a shape rule sees. A rule is named in the `infer` column of op.def. */
#ifndef TAPERC_IR_INFER_PRIV_H
#define TAPERC_IR_INFER_PRIV_H

#include "compiler/ir/ir_priv.h"

typedef struct infer_ctx {
  const ir_module *m;
  ir_opcode op;
  const ir_value *operands;
  size_t n;
  const ir_attr *attrs;
  size_t attr_count;
  ir_type *out; /* declared ops: the declared type comes in */
  text *message;
} infer_ctx;

typedef bool (*infer_fn)(infer_ctx *c);

#define OP(id, text, operands, attrs, flags, infer, eval, grad) bool infer(infer_ctx *c);
#include "compiler/ir/op.def"
#undef OP

/* All return false after writing the message. */
bool infer_fail(infer_ctx *c, const char *format, ...) __attribute__((format(printf, 2, 3)));
bool infer_fail_operand(infer_ctx *c, size_t i, const char *expected);
bool infer_expect(infer_ctx *c, size_t i, ir_dtype dtype, uint32_t rank, const int64_t *dims);
bool infer_float(infer_ctx *c, size_t i); /* f32, not a state */
/* Operand 0 is f32, every parameter and gate fits it, operands that are positions are i32[B,T]. */
bool infer_operands(infer_ctx *c);
bool infer_finish(infer_ctx *c, ir_type type); /* sets *out; refuses a type that is too large */

ir_type infer_type(const infer_ctx *c, size_t i);
static inline bool infer_has(const infer_ctx *c, size_t i) { return i < c->n && c->operands[i].id != 0; }
static inline int64_t infer_last(ir_type t) { return t.rank ? t.dim[t.rank - 1] : 0; }
int64_t infer_int(const infer_ctx *c, ir_attr_key key, int64_t otherwise);
const char *infer_string(const infer_ctx *c, ir_attr_key key, const char *otherwise);

#endif
