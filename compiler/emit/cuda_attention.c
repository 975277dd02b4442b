/* cuda_attention.c - attention over the cache as a kernel. */
#include "compiler/emit/cuda_priv.h"

bool cuda_attention(emit_filler *f) {
  fill_begin_attention(f);
  return fill_template(f, "templates/cuda/attention.cu");
}

cuda_launch cuda_attention_launch(const plan *p, const plan_stage *s, arena *mem) {
  const plan_state *keys = &p->states[s->steps[0].operands[1].index - 2];
  return (cuda_launch){{"\"splits\"", arena_printf(mem, "%u", keys->heads), "\"rows\""}, 128};
}
