/* execution.h - how a target can execute the ops of an inference entry: on rows (one token), on columns of a row, by
 * heads. */
#ifndef TAPERC_ANALYSIS_EXECUTION_H
#define TAPERC_ANALYSIS_EXECUTION_H

#include "compiler/ir/ir.h"

typedef enum execution_class {
  EXEC_NONE,      /* nothing to do: arguments, positions, return */
  EXEC_ALIAS,     /* the same floats under another type: who reads a cast rounds them */
  EXEC_SLICE,     /* a range of columns of its operand */
  EXEC_COLUMN,    /* column j needs columns j of its operands */
  EXEC_HEAD,      /* a head of the result needs that head of its operands */
  EXEC_ROW,       /* needs whole rows */
  EXEC_LINEAR,    /* rows times a matrix */
  EXEC_ATTENTION, /* over a cache */
  EXEC_APPEND,    /* rows into a cache */
  EXEC_REFUSED    /* no inference op */
} execution_class;

execution_class execution_class_of(const ir_module *m, ir_value v);
uint32_t execution_width(const ir_module *m,
                         ir_value v);                    /* floats of one token's row: the product of dimensions 2, 3 */
uint32_t execution_last(const ir_module *m, ir_value v); /* the last dimension; 0 where it is symbolic */
/* Is v the product of a row, i.e. f32[B,T,...], or one that was cast to 16 bits? */
bool execution_is_row(const ir_module *m, ir_value v);
/* Which values of an entry are needed only for rows whose result is wanted: all uses lead to the first operand of
   return, none to a state or a probe. [ir_value_limit], owned by scratch. */
bool *execution_out_rows(const ir_module *m, ir_region entry, arena *scratch);
/* Which values of an entry lead to probes only: a call that asks for no probe needs none of them. As above. */
bool *execution_probe_only(const ir_module *m, ir_region entry, arena *scratch);

#endif
