/* taper_gates.h - which taper norms are at g = 0, which are not, and why. */
#ifndef TAPERC_ANALYSIS_TAPER_GATES_H
#define TAPERC_ANALYSIS_TAPER_GATES_H

#include "compiler/ir/ir.h"

typedef enum taper_state {
  TAPER_AT_ZERO, /* the gate's stored value is exactly 0.0 (also -0.0): the norm is gone */
  TAPER_AT_ONE,  /* exactly 1.0: a live norm, the tapered branch is unused */
  TAPER_OPEN,    /* between: both branches are needed */
  TAPER_UNKNOWN, /* the gate has no value */
  TAPER_WRONG    /* NaN or outside [0, 1] */
} taper_state;

typedef struct taper_norm {
  ir_value norm, gate;
  double value; /* of the gate */
  taper_state state;
} taper_norm;

/* Every taper_rms_norm and taper_layer_norm of all entries, in execution order. Owned by scratch. */
size_t analysis_taper_norms(const ir_module *m, arena *scratch, taper_norm **out);
/* "internal" or "internal[3]" */
const char *analysis_gate_name(const ir_module *m, ir_value gate, arena *scratch);

#endif
