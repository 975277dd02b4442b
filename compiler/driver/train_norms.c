/* The norms of a model by what tapering them means: those inside the blocks, and the one before the head. */
#include "compiler/analysis/stream.h"
#include "compiler/analysis/taper_gates.h"
#include "compiler/driver/train.h"

/* What the head multiplies: back from the returned logits through whatever is elementwise, to the last linear. */
static ir_value head_input(const ir_module *m, ir_region entry) {
  ir_value v = ir_last(m, entry);
  if (v.id && ir_opcode_of(m, v) == IR_RETURN) v = ir_operand(m, v, 0);
  while (v.id && !ir_is(m, v, IR_LINEAR) && ir_region_of(m, v).id != IR_GLOBALS.id &&
         (ir_op_has(ir_opcode_of(m, v), OPF_ELEMENTWISE) || analysis_joins(m, v)))
    v = ir_operand(m, v, 0);
  return v.id && ir_is(m, v, IR_LINEAR) ? analysis_behind(m, ir_operand(m, v, 0)) : IR_NONE;
}

static bool is_norm(const ir_module *m, ir_value v) { return ir_op_has(ir_opcode_of(m, v), OPF_NORM); }
static bool is_taper(const ir_module *m, ir_value v) {
  return ir_is(m, v, IR_TAPER_RMS_NORM) || ir_is(m, v, IR_TAPER_LAYER_NORM);
}

/* The stream that ends in `user`, or (norm before the head missing) that holds the head's input. */
static const analysis_stream *find_stream(const analysis_stream *s, size_t n, ir_value user) {
  for (size_t i = 0; i < n; i++)
    for (size_t k = 0; k < s[i].reader_count; k++)
      if (ir_same(s[i].readers[k].op, user)) return &s[i];
  return NULL;
}

static ir_value head_of(const ir_module *m, ir_value input, arena *a) {
  analysis_reader *readers;
  size_t n = analysis_readers(m, input, a, &readers, NULL);
  for (size_t i = n; i-- > 0;)
    if (ir_is(m, readers[i].op, IR_LINEAR)) return readers[i].op;
  return IR_NONE;
}

static const char *gate_of(const ir_module *m, ir_value norm, arena *a) {
  taper_norm *all;
  size_t n = analysis_taper_norms(m, a, &all);
  for (size_t i = 0; i < n; i++)
    if (ir_same(all[i].norm, norm)) return ir_attr_string(m, all[i].gate, IR_ATTR_NAME, "");
  return NULL;
}

static bool reads(const analysis_stream *s, ir_value op) {
  for (size_t i = 0; s && i < s->reader_count; i++)
    if (ir_same(s->readers[i].op, op)) return true;
  return false;
}

size_t train_norms(const ir_module *m, arena *a, train_norm **out) {
  ir_region entry = ir_entry_find(m, "forward");
  analysis_stream *streams;
  size_t stream_count = analysis_streams(m, entry, a, &streams), count = 0, n = 0;
  ir_value input = head_input(m, entry), final = input.id && is_norm(m, input) ? input : IR_NONE;
  const analysis_stream *s = find_stream(streams, stream_count, final.id ? final : head_of(m, input, a));
  for (ir_value v = ir_first(m, entry); v.id; v = ir_next(m, v)) count += is_norm(m, v);
  train_norm *list = ARENA_ARRAY(a, train_norm, count + 1);
  for (ir_value v = ir_first(m, entry); v.id; v = ir_next(m, v)) {
    if (!is_norm(m, v) || (!is_taper(m, v) && !reads(s, v))) continue;
    list[n++] = (train_norm){v, ir_same(v, final) ? TRAIN_ROLE_FINAL : TRAIN_ROLE_INTERNAL,
                             is_taper(m, v) ? gate_of(m, v, a) : NULL};
  }
  *out = list;
  return n;
}
