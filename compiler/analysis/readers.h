/* readers.h - who reads a value, seen through probes, and which global values are constants. */
#ifndef TAPERC_ANALYSIS_READERS_H
#define TAPERC_ANALYSIS_READERS_H

#include "compiler/ir/ir.h"

typedef struct analysis_reader {
  ir_value op;
  uint32_t operand; /* the first operand of op that is the value (or a probe of it) */
  bool again;       /* further operands of op are it too */
} analysis_reader;

/* The value behind probes (IDENTITY ops): v itself where it is none. */
ir_value analysis_behind(const ir_module *m, ir_value v);
/* Readers of v, directly or through IDENTITY ops, which are no readers themselves. Owned by scratch. *out_probes (may
 * be NULL): how many IDENTITY ops read it. */
size_t analysis_readers(const ir_module *m, ir_value v, arena *scratch, analysis_reader **out, size_t *out_probes);
/* Does an op of kind `op` read v directly? */
bool analysis_read_by(const ir_module *m, ir_value v, ir_opcode op, arena *scratch);

/* Which global values are made of consts alone (no param, no gate): what a fold may build on. */
typedef struct analysis_constants {
  const ir_module *m;
  arena *scratch;
  uint8_t *known; /* 0: not looked at yet */
  uint32_t limit;
} analysis_constants;
analysis_constants analysis_constants_of(const ir_module *m, arena *scratch);
/* Also for values made after analysis_constants_of. */
bool analysis_is_constant(analysis_constants *t, ir_value v);
/* Is v a const with known values, all equal to `value`? */
bool analysis_is_splat(const ir_module *m, ir_value v, double value);
/* The const that a global expression is made from: along its first operands. */
ir_value analysis_leaf(const ir_module *m, ir_value v);

#endif
