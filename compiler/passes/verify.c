/* verify.c - the verifier as a pass: input that breaks an invariant is refused here. */
#include "compiler/passes/pass.h"

bool pass_verify(pass_context *c) { return ir_verify(c->m, c->sink); }
