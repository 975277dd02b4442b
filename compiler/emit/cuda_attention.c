/* cuda_attention.c - attention over the cache as a kernel. */
#include "compiler/analysis/execution.h"
#include "compiler/emit/cuda_priv.h"

bool cuda_attention(cuda_filler *f) {
  const ir_module *m = f->p->m;
  const plan_step *s = &f->s->steps[0];
  const plan_state *keys = &f->p->states[s->operands[1].index - 2];
  uint32_t value_dim = execution_last(m, s->op), heads = s->width / value_dim;
  cuda_begin(f, f->name);
  emit_field(f->mem, f->fields, FIELD_BUFFER, s->operands[0].index);
  emit_field(f->mem, f->fields, FIELD_BUFFER, s->buffer);
  emit_field(f->mem, f->fields, FIELD_STATE, s->operands[1].index - 2);
  emit_field(f->mem, f->fields, FIELD_STATE, s->operands[2].index - 2);
  cuda_set_number(f, "P_GROUP", heads / keys->heads);
  cuda_set_number(f, "P_KV_HEADS", keys->heads);
  cuda_set_number(f, "P_KEY_DIM", keys->head_dim);
  cuda_set_number(f, "P_VALUE_DIM", value_dim);
  cuda_set_float(f, "P_SCALE", ir_attention_scale(m, s->op));
  cuda_set_number(f, "P_WINDOW", (uint64_t)ir_attr_int(m, s->op, IR_ATTR_WINDOW, 0));
  cuda_set(f, "P_CAPPED", ir_has_attr(m, s->op, IR_ATTR_CAP) ? "1" : "0");
  cuda_set_float(f, "P_CAP", ir_attr_float(m, s->op, IR_ATTR_CAP, 0));
  cuda_set_number(f, "P_Q_WIDTH", f->p->buffers[s->operands[0].index].width);
  cuda_set_number(f, "P_Q_START", s->operands[0].view.start);
  cuda_set(f, "P_COMMENT", "@COMMENT@");
  return cuda_fill(f, "templates/cuda/attention.cu");
}

cuda_launch cuda_attention_launch(const plan *p, const plan_stage *s, arena *mem) {
  const plan_state *keys = &p->states[s->steps[0].operands[1].index - 2];
  return (cuda_launch){{"\"splits\"", arena_printf(mem, "%u", keys->heads), "\"rows\""}, 128};
}
