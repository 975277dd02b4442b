/* initial.h - initial values of parameters, the same on every machine. */
#ifndef TAPERC_DRIVER_INITIAL_H
#define TAPERC_DRIVER_INITIAL_H

#include "compiler/ir/ir.h"

/* out[0..n) for an `init` attribute: zeros, ones, a number, normal(S) (mean 0, deviation S), uniform(A) (in (-A, A)).
   Elements 4b .. 4b + 3 come from one Philox block, key `seed`, counter (PHILOX_INIT, the first 32 bits of the name's
   XXH3-128, high and low half of b): normals from pairs of its words by Box and Muller (1958), uniforms a word each.
   Computed with + - * / and sqrt of doubles alone, rounded once to f32. false: no such form. */
bool initial_values(const char *init, uint64_t seed, const char *name, float *out, uint64_t n);

/* Gives every param of the module that has no data its initial values. TAPER_NOMEM, TAPER_INVALID (an init of no known
   form, a symbolic shape). */
taper_status initial_bind(ir_module *m, uint64_t seed, taper_error *error);

#endif
