/* facts.c - numbers that follow from an op's attributes and their defaults. */
#include "compiler/ir/ir_priv.h"

#include <math.h>
#include <string.h>

double ir_eps(const ir_module *m, ir_value v) {
  /* what sees no mean subtracts it: the LayerNorm family */
  bool centred = ir_op_has(ir_opcode_of(m, v), OPF_MEAN_BLIND);
  return ir_attr_float(m, v, IR_ATTR_EPS, centred ? 1e-5 : 1e-6);
}

double ir_attention_scale(const ir_module *m, ir_value v) {
  ir_type q = ir_type_of(m, ir_operand(m, v, 0));
  return ir_attr_float(m, v, IR_ATTR_SCALE, 1 / sqrt((double)q.dim[q.rank - 1]));
}

size_t ir_rope_pairs(const ir_module *m, ir_value v) {
  ir_type t = ir_type_of(m, v);
  return (size_t)ir_attr_int(m, v, IR_ATTR_DIMS, t.dim[t.rank - 1]) / 2;
}

/* Llama 3.1 (Meta, models/llama3/reference_impl, apply_scaling): long waves are slowed down by the factor, short ones
   stay, those between are blended. */
static double llama3(const ir_module *m, ir_value v, double freq) {
  double factor = ir_attr_float(m, v, IR_ATTR_SCALING_FACTOR, 1), low = ir_attr_float(m, v, IR_ATTR_SCALING_LOW, 1);
  double high = ir_attr_float(m, v, IR_ATTR_SCALING_HIGH, 4),
         original = (double)ir_attr_int(m, v, IR_ATTR_SCALING_ORIGINAL, 8192);
  double waves = original * freq / (2 * 3.14159265358979323846); /* in the original context */
  if (waves > high) return freq;
  if (waves < low) return freq / factor;
  double smooth = (waves - low) / (high - low);
  return (1 - smooth) * freq / factor + smooth * freq;
}

void ir_rope_inv_freq(const ir_module *m, ir_value v, double *out, size_t pairs) {
  double theta = ir_attr_float(m, v, IR_ATTR_THETA, 10000), dims = 2 * (double)ir_rope_pairs(m, v);
  const char *scaling = ir_attr_string(m, v, IR_ATTR_SCALING, "");
  for (size_t i = 0; i < pairs; i++) {
    out[i] = pow(theta, -2 * (double)i / dims);
    if (strcmp(scaling, "linear") == 0) out[i] /= ir_attr_float(m, v, IR_ATTR_SCALING_FACTOR, 1);
    if (strcmp(scaling, "llama3") == 0) out[i] = llama3(m, v, out[i]);
  }
}
