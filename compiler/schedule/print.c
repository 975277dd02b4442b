/* print.c - the plan as text (docs/plan.md). */
#include "compiler/schedule/plan_priv.h"

static const char *name_of(const plan *p, ir_value op) { return ir_op_name(ir_opcode_of(p->m, op)); }

static void print_operand(const plan *p, const plan_operand *o, text *t) {
  switch (o->place) {
  case PLAN_OUTSIDE:
    text_printf(t, "b%u", o->index);
    if (o->view.start || o->view.width != p->buffers[o->index].width)
      text_printf(t, "[%u..%u]", o->view.start, o->view.start + o->view.width - 1);
    break;
  case PLAN_STEP: text_printf(t, "#%u", o->index); break;
  case PLAN_PROLOGUE: text_printf(t, "p%u", o->index); break;
  case PLAN_DOT: text_printf(t, "d%u", o->index); break;
  case PLAN_GLOBAL:
    if (o->index == PLAN_NONE)
      text_puts(t, "g");
    else
      text_printf(t, "w%u", o->index);
    break;
  case PLAN_INPUT:
    if (o->index < 2)
      text_puts(t, o->index ? "positions" : "tokens");
    else
      text_printf(t, "s%u", o->index - 2);
    break;
  }
}

static void print_step(const plan *p, const plan_step *s, size_t i, const char *letter, text *t) {
  text_printf(t, "    %s%zu = %s", letter, i, name_of(p, s->op));
  for (size_t j = 0; j < s->operand_count; j++) {
    ir_value x = ir_operand(p->m, s->op, j);
    if (!x.id || (ir_type_of(p->m, x).dtype == IR_I32 && ir_type_of(p->m, x).rank == 1))
      continue; /* pos and len come with the rows */
    text_puts(t, j ? ", " : " ");
    print_operand(p, &s->operands[j], t);
  }
  if (s->rotary != PLAN_NONE) text_printf(t, ", rotary %u", s->rotary);
  if (s->buffer != PLAN_NONE) text_printf(t, " -> b%u", s->buffer);
  text_puts(t, "\n");
}

static uint64_t bytes_of(const plan *p, uint32_t weight) {
  const plan_weight *w = &p->weights[weight];
  return (uint64_t)w->rows * w->cols * ir_dtype_size(w->dtype);
}

static uint64_t print_segment(const plan *p, const plan_segment *s, size_t i, text *t) {
  uint64_t bytes = 0;
  text_printf(t, "  segment %zu: %u columns, %u units of %u\n", i, s->columns, (s->columns + s->unit - 1) / s->unit,
              s->unit);
  for (size_t j = 0; j < s->root_count; j++) {
    const plan_root *r = &s->roots[j];
    text_printf(t, "    d%zu = w%u x ", j, r->weight);
    print_operand(p, &r->x, t);
    if (r->bias != PLAN_NONE) text_printf(t, " + w%u", r->bias);
    if (r->buffer != PLAN_NONE) text_printf(t, " -> b%u", r->buffer);
    text_puts(t, "\n");
    bytes += bytes_of(p, r->weight);
  }
  for (size_t j = 0; j < s->step_count; j++) print_step(p, &s->steps[j], j, "#", t);
  return bytes;
}

static uint64_t print_stage(const plan *p, size_t i, text *t) {
  static const char *const kinds[] = {"rows", "linear", "attention"};
  const plan_stage *s = &p->stages[i];
  uint64_t bytes = 0;
  text_printf(t, "stage %zu: %s '%s', %s rows%s\n", i, kinds[s->kind], s->name, s->out_rows ? "wanted" : "all",
              s->probes ? ", for probes" : "");
  for (size_t j = 0; j < s->step_count; j++) print_step(p, &s->steps[j], j, s->kind == PLAN_LINEAR ? "p" : "#", t);
  for (size_t j = 0; j < s->segment_count; j++) bytes += print_segment(p, &s->segments[j], j, t);
  text_printf(t, "  weights %llu bytes a token; exchange: %s\n", (unsigned long long)bytes,
              i + 1 < p->stage_count ? "barrier" : "end");
  return bytes;
}

void plan_print(const plan *p, text *t) {
  uint64_t bytes = 0;
  text_printf(t, "plan 1\ntarget %s\nmodel '%s': vocab %u, context %u, width %u\n", p->target, ir_module_name(p->m),
              p->vocab, p->context, p->width);
  text_printf(t, "workers W: worker i of W owns units (rows, where a stage has no units) from n i / W to n (i + 1) / W "
                 "- 1; of attention every W-th\n");
  for (size_t i = 0; i < p->stage_count; i++) bytes += print_stage(p, i, t);
  for (size_t i = 0; i < p->probe_count; i++)
    text_printf(t, "probe '%s': b%u after stage %u\n", ir_attr_string(p->m, p->probes[i].op, IR_ATTR_NAME, ""),
                p->probes[i].buffer, p->probes[i].stage);
  for (size_t i = 0; i < p->weight_count; i++) {
    const plan_weight *w = &p->weights[i];
    text_printf(t, "w%zu: '%s' rows %u..%u of %u, %s%s%s\n", i, p->tensors[w->tensor].name, w->row0,
                w->row0 + w->rows - 1, w->cols, w->tiles ? "tiles" : "as stored", w->dtype == IR_F32 ? "" : ", ",
                w->dtype == IR_F32 ? "" : ir_dtype_name(w->dtype));
  }
  for (size_t i = 0; i < p->buffer_count; i++) {
    const plan_buffer *b = &p->buffers[i];
    text_printf(t, "b%zu: %u floats at %llu, stages %u to %u%s\n", i, b->width, (unsigned long long)b->offset, b->first,
                b->last, b->out_rows ? ", wanted rows" : "");
  }
  for (size_t i = 0; i < p->state_count; i++)
    text_printf(t, "s%zu: %u heads of %u, %s, %u floats a position\n", i, p->states[i].heads, p->states[i].head_dim,
                p->states[i].keys ? "keys" : "values", p->states[i].floats_per_pos);
  text_printf(t, "memory: %llu floats a row; a worker: %llu floats, %llu a position, %llu a row\n",
              (unsigned long long)p->memory.row_floats, (unsigned long long)p->memory.scratch_floats,
              (unsigned long long)p->memory.scratch_per_pos, (unsigned long long)p->memory.scratch_per_row);
  text_printf(t, "stages %zu, weights %llu bytes a token\n", p->stage_count, (unsigned long long)bytes);
}
