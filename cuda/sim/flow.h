/* flow.h - the blocks of a function and what flows between them: which registers are written for sure (flow.c), which are of use at once (share.c). */
#ifndef TAPER_SIM_FLOW_H
#define TAPER_SIM_FLOW_H

#include "cuda/sim/inst.h"

typedef struct flow {
  sim_module *m;
  const function *f;
  uint32_t slots; /* registers of the function, by INST_REGISTER_BYTES */
  uint32_t words; /* of a set */
  uint32_t blocks;
  uint32_t *block_of; /* [instructions] */
  uint32_t *first;    /* [blocks + 1] */
  uint64_t *in;       /* [blocks][words]: written for sure */
  uint64_t *loose;    /* [words]: registers with a use that is not sure */
} flow;

/* The first slot of a register of the function; false: it is none. */
static inline bool flow_slot(const flow *w, uint32_t r, uint32_t *out) {
  if (r == INST_NONE || (r & INST_CONSTANT) || r < w->f->first_register || r >= w->f->end_register) return false;
  *out = (r - w->f->first_register) / INST_REGISTER_BYTES;
  return true;
}

/* Calls `step` with each block that may come after `block`. */
typedef void flow_step(const flow *w, uint64_t *set, uint32_t to, bool *changed);
void flow_successors(const flow *w, uint32_t block, flow_step *step, uint64_t *set, bool *changed);

/* Gives registers of one width that are never of use at once the same place. *end_register: past the last one now. False: no memory. */
bool flow_share(const flow *w, uint32_t *end_register);

#endif
