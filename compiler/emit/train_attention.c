/* train_attention.c - attention and its gradient: units are a window and a key head. */
#include "compiler/analysis/execution.h"
#include "compiler/emit/train_priv.h"

#include <string.h>

static void put_shape(const train_list *l, ir_value v, text *out) {
  const ir_module *m = l->e->p->m;
  ir_type q = ir_type_of(m, ir_operand(m, v, 0)), k = ir_type_of(m, ir_operand(m, v, 1)),
          w = ir_type_of(m, ir_operand(m, v, 2));
  text_printf(out, "&(const attention_shape){%lld, %lld, %lld, %lld, %lld, ", (long long)(q.dim[2] / k.dim[2]),
              (long long)k.dim[2], (long long)k.dim[3], (long long)w.dim[3],
              (long long)ir_attr_int(m, v, IR_ATTR_WINDOW, 0));
  emit_float(out, ir_attention_scale(m, v));
  text_puts(out, ", ");
  emit_float(out, ir_attr_float(m, v, IR_ATTR_CAP, 0));
  text_puts(out, "}");
}

static void put_inputs(const train_list *l, ir_value v, size_t n, text *out) {
  for (size_t i = 0; i < n; i++) {
    ir_value x = ir_operand(l->e->p->m, v, i);
    text_printf(out, ", %s, %u", train_operand_place(l, x, "0", "0"), train_pitch(l, x));
  }
}

void train_put_attention(train_list *l, ir_value v, text *out) {
  text_puts(out, "attention_any(c, ");
  put_shape(l, v, out);
  text_printf(out, ", %s, %u", train_place(l, v, "0", "0"), l->e->p->slots[v.id].width);
  put_inputs(l, v, 3, out);
  text_puts(out, ", 0, 0, 0, 0);\n");
}

void train_put_attention_back(train_list *l, ir_value v, text *out) {
  text_puts(out, "attention_any(c, ");
  put_shape(l, v, out);
  text_puts(out, ", 0, 0");
  put_inputs(l, v, 4, out);
  text_printf(out, ", %s, %u);\n", train_place(l, v, "0", "0"), l->e->p->slots[v.id].width);
}

/* The macros of attention.h, the largest of all stages. */
const char *train_attention_scratch(train_emitter *e, const train_program *g, bool per_time) {
  const ir_module *m = e->p->m;
  const char *most = "0", *part = per_time ? "PER_TIME" : "FIXED";
  for (size_t i = 0; i < g->stage_count; i++) {
    const train_stage *st = &g->stages[i];
    bool back = st->kind == TRAIN_ATTENTION_BACK;
    for (size_t j = 0; j < st->op_count && (back || st->kind == TRAIN_ATTENTION); j++) {
      ir_value v = st->ops[j];
      const char *need = arena_printf(&e->mem, "ATTENTION_%s%s(%u, %u%s)", back ? "BACK_" : "", part,
                                      train_last(m, ir_operand(m, v, 1)), train_last(m, ir_operand(m, v, 2)),
                                      !back                            ? ""
                                      : ir_has_attr(m, v, IR_ATTR_CAP) ? ", 1"
                                                                       : ", 0");
      if (!strstr(most, need)) most = arena_printf(&e->mem, "MORE(%s, %s)", need, most);
    }
  }
  return most;
}
