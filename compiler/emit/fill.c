/* fill.c - filling templates: what the stages of every target have in common. */
#include "compiler/analysis/execution.h"
#include "compiler/emit/emit_priv.h"

bool emit_fill(const char *template, const emit_value *values, size_t n, text *out, const char **out_problem) {
  const char *source = emit_template(template);
  if (!source) *out_problem = template;
  return source && emit_specialise(source, values, n, out, out_problem);
}

bool fill_template(emit_filler *f, const char *template) {
  return emit_fill(template, f->values, f->count, f->out, f->problem);
}

void fill_set(emit_filler *f, const char *name, const char *value) {
  f->values[f->count++] = (emit_value){name, value};
}

void fill_number(emit_filler *f, const char *name, uint64_t value) {
  fill_set(f, name, arena_printf(f->mem, "%llu", (unsigned long long)value));
}

void fill_float(emit_filler *f, const char *name, double value) {
  text t = {0};
  emit_float(&t, value);
  fill_lines(f, name, &t);
}

void fill_lines(emit_filler *f, const char *name, text *t) {
  fill_set(f, name, arena_strdup(f->mem, t->data ? t->data : ""));
  text_free(t);
}

void fill_begin(emit_filler *f, const char *function) {
  f->count = 0;
  fill_set(f, "P_NAME", function);
  fill_set(f, "P_ARGS", arena_printf(f->mem, "%s_args", f->name));
  fill_set(f, "P_OUT_ROWS", f->s->out_rows ? "1" : "0");
}

emit_list fill_list(const emit_filler *f, const plan_segment *segment, const plan_step *steps, size_t n) {
  return (emit_list){.p = f->p,
                     .stage = f->s,
                     .segment = segment,
                     .steps = steps,
                     .count = n,
                     .fields = f->fields,
                     .mem = f->mem,
                     .dialect = f->dialect};
}

bool fill_rows(emit_filler *f, const char *template) {
  text body = {0};
  emit_list l = fill_list(f, NULL, f->s->steps, f->s->step_count);
  fill_begin(f, f->name);
  emit_steps(&l, &body);
  fill_lines(f, "P_BODY", &body);
  fill_set(f, "P_COMMENT", "@COMMENT@");
  return fill_template(f, template);
}

const char *fill_segment_comment(const emit_filler *f, const plan_segment *g) {
  text t = {0};
  text_printf(&t, "/* %u columns:", g->columns);
  for (size_t i = 0; i < g->root_count; i++) text_printf(&t, "%s linear", i ? "," : "");
  for (size_t i = 0; i < g->step_count; i++) text_printf(&t, ", %s", ir_op_name(ir_opcode_of(f->p->m, g->steps[i].op)));
  text_puts(&t, " */");
  const char *comment = arena_strdup(f->mem, t.data ? t.data : "");
  text_free(&t);
  return comment;
}

void fill_begin_attention(emit_filler *f) {
  const ir_module *m = f->p->m;
  const plan_step *s = &f->s->steps[0];
  const uint32_t states[] = {s->operands[1].index - 2, s->operands[2].index - 2}, value_dim = execution_last(m, s->op);
  const plan_state *keys = &f->p->states[states[0]];
  fill_begin(f, f->name);
  emit_field(f->mem, f->fields, FIELD_BUFFER, s->operands[0].index);
  emit_field(f->mem, f->fields, FIELD_BUFFER, s->buffer);
  for (int i = 0; i < 2; i++) emit_field(f->mem, f->fields, FIELD_STATE, states[i]);
  fill_number(f, "P_GROUP", s->width / value_dim / keys->heads);
  fill_number(f, "P_KV_HEADS", keys->heads);
  fill_number(f, "P_KEY_DIM", keys->head_dim);
  fill_number(f, "P_VALUE_DIM", value_dim);
  fill_float(f, "P_SCALE", ir_attention_scale(m, s->op));
  fill_number(f, "P_WINDOW", (uint64_t)ir_attr_int(m, s->op, IR_ATTR_WINDOW, 0));
  fill_set(f, "P_CAPPED", ir_has_attr(m, s->op, IR_ATTR_CAP) ? "1" : "0");
  fill_float(f, "P_CAP", ir_attr_float(m, s->op, IR_ATTR_CAP, 0));
  fill_number(f, "P_Q_WIDTH", f->p->buffers[s->operands[0].index].width);
  fill_number(f, "P_Q_START", s->operands[0].view.start);
  fill_set(f, "P_COMMENT", "@COMMENT@");
}
