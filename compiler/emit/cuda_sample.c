/* cuda_sample.c - kernels that are no stage of the plan: the choice of the next token, tiled products. */
#include "compiler/emit/cuda_priv.h"

/* Does a buffer that is written later lie on this one? */
static bool is_overwritten(const plan *p, const plan_buffer *b, uint32_t stage) {
  for (size_t i = 0; i < p->buffer_count; i++) {
    const plan_buffer *o = &p->buffers[i];
    if (o->first > stage && o->offset < b->offset + b->width && b->offset < o->offset + o->width) return true;
  }
  return false;
}

const plan_probe *cuda_scale_of(const plan *p) {
  if (!p->probe_count) return NULL;
  const plan_probe *q = &p->probes[p->probe_count - 1];
  if (q->stage == PLAN_NONE || p->stages[q->stage].probes || p->buffers[q->buffer].out_rows) return NULL;
  return is_overwritten(p, &p->buffers[q->buffer], q->stage) ? NULL : q;
}

bool cuda_sample(const plan *p, text *out, const char **out_problem) {
  arena mem = {0};
  const plan_probe *q = cuda_scale_of(p);
  const emit_value values[] = {{"P_NAME", "sample"},
                               {"P_ARGS", "sample_args"},
                               {"P_VOCAB", arena_printf(&mem, "%u", p->vocab)},
                               {"P_WIDTH", arena_printf(&mem, "%u", q ? p->buffers[q->buffer].width : 1)},
                               {"P_COMMENT", "/* The next token of each row, from its logits. */\n"}};
  bool ok = emit_fill("templates/cuda/sample.cu", values, sizeof values / sizeof *values, out, out_problem);
  arena_free(&mem);
  return ok;
}

uint32_t cuda_gemm_threads(const plan *p) { return plan_dtype(p) == IR_F32 ? 256 : 128; }

bool cuda_gemm(const plan *p, text *out, const char **out_problem) {
  const emit_value values[] = {{"P_NAME", "gemm"},
                               {"P_ARGS", "gemm_args"},
                               {"P_TYPE", "half"},
                               {"P_COMMENT", "/* Products of many rows: y = x W^T. */\n"}};
  return emit_fill(plan_dtype(p) == IR_F32 ? "templates/cuda/gemm.cu" : "templates/cuda/gemm_mma.cu", values,
                   sizeof values / sizeof *values, out, out_problem);
}
