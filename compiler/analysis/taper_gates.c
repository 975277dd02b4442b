#include "compiler/analysis/taper_gates.h"

enum { RMS_GATE = 4, LAYER_GATE = 5 }; /* operands, as in op.def */

static ir_value gate_of(const ir_module *m, ir_value v) {
  if (ir_is(m, v, IR_TAPER_RMS_NORM)) return ir_operand(m, v, RMS_GATE);
  if (ir_is(m, v, IR_TAPER_LAYER_NORM)) return ir_operand(m, v, LAYER_GATE);
  return IR_NONE;
}

static taper_state state_of(const ir_module *m, ir_value gate, double *out_value) {
  *out_value = 0;
  if (ir_elements(ir_type_of(m, gate)) != 1 || !ir_read_const(m, gate, out_value)) return TAPER_UNKNOWN;
  if (*out_value == 0) return TAPER_AT_ZERO;
  if (*out_value == 1) return TAPER_AT_ONE;
  return *out_value > 0 && *out_value < 1 ? TAPER_OPEN : TAPER_WRONG;
}

size_t analysis_taper_norms(const ir_module *m, arena *scratch, taper_norm **out) {
  size_t count = 0, n = 0;
  for (int fill = 0; fill < 2; fill++) {
    if (fill) *out = ARENA_ARRAY(scratch, taper_norm, count ? count : 1);
    for (size_t e = 0; e < ir_entry_count(m); e++)
      for (ir_value v = ir_first(m, ir_entry_at(m, e)); v.id; v = ir_next(m, v)) {
        ir_value gate = gate_of(m, v);
        if (!gate.id) continue;
        if (!fill)
          count++;
        else {
          taper_norm *t = &(*out)[n++];
          *t = (taper_norm){.norm = v, .gate = gate};
          t->state = state_of(m, gate, &t->value);
        }
      }
  }
  return count;
}

const char *analysis_gate_name(const ir_module *m, ir_value gate, arena *scratch) {
  const char *name = ir_name_of(m, gate);
  if (!name) name = "?";
  if (!ir_has_attr(m, gate, IR_ATTR_INDEX)) return name;
  return arena_printf(scratch, "%s[%lld]", name, (long long)ir_attr_int(m, gate, IR_ATTR_INDEX, 0));
}
