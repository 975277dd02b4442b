/* plan.h - the schedule of one entry: stages, exchanges, memory; parametric in the number of workers. Docs: docs/plan.md */
#ifndef TAPERC_PLAN_H
#define TAPERC_PLAN_H

#include "compiler/ir/ir.h"

typedef struct plan plan;

/* Plans entry `decode` of a module that went through cache-attention and fuse-epilogue. NULL: reported in the sink. The module outlives the plan. */
plan *plan_make(const ir_module *m, const char *target, diag_sink *sink);
void plan_free(plan *p);
void plan_print(const plan *p, text *out);

#endif
