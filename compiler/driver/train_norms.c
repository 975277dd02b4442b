/* The norms of a model by what tapering them means: those inside the blocks, and the one before the head. */
#include "compiler/analysis/taper_gates.h"
#include "compiler/analysis/train.h"
#include "compiler/driver/train.h"

static const char *gate_of(const ir_module *m, ir_value norm, const taper_norm *all, size_t n) {
  for (size_t i = 0; i < n; i++)
    if (ir_same(all[i].norm, norm)) return ir_attr_string(m, all[i].gate, IR_ATTR_NAME, "");
  return NULL;
}

size_t norm_uses(const ir_module *m, arena *a, norm_use **out) {
  ir_region entry = ir_entry_find(m, "forward");
  ir_value last = analysis_final_norm(m, entry).norm;
  taper_norm *tapers;
  size_t taper_count = analysis_taper_norms(m, a, &tapers), count = 0, n = 0;
  for (ir_value v = ir_first(m, entry); v.id; v = ir_next(m, v)) count += ir_op_has(ir_opcode_of(m, v), OPF_NORM);
  norm_use *list = ARENA_ARRAY(a, norm_use, count + 1);
  for (ir_value v = ir_first(m, entry); v.id; v = ir_next(m, v)) {
    if (!ir_op_has(ir_opcode_of(m, v), OPF_NORM)) continue;
    const char *gate = gate_of(m, v, tapers, taper_count);
    bool final = ir_same(v, last);
    if (gate || final || analysis_norms_stream(m, v))
      list[n++] = (norm_use){v, final ? TRAIN_ROLE_FINAL : TRAIN_ROLE_INTERNAL, gate};
  }
  *out = list;
  return n;
}
