/* token_rows.h - embeddings of the token ids, and which norm sees them first. */
#ifndef TAPERC_ANALYSIS_TOKEN_ROWS_H
#define TAPERC_ANALYSIS_TOKEN_ROWS_H

#include "compiler/ir/ir.h"

/* Does v look rows of a table up by the token ids? */
bool analysis_looks_tokens_up(const ir_module *m, ir_value v);
/* Is v a norm that divides by its input's size, or the statistic of a deferred one? Not: a taper norm at g = 0, a norm
   whose eps (from 1e10) makes it a constant gain. */
bool analysis_is_live_norm(const ir_module *m, ir_value v);
/* The live norm among the first readers of what the entry value v writes (through sums, scales and probes), or none:
   then a linear or another op sees the rows as large as they are. */
ir_value analysis_first_live_norm(const ir_module *m, ir_value v, arena *scratch);

#endif
