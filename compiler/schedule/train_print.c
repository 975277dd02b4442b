/* train_print.c - the plan of training as text (docs/plan.md). */
#include "compiler/schedule/train_priv.h"
#include "runtime/abi/train_abi.h"

#include <string.h>

static void print_place(const train_plan *p, ir_value x, text *t) {
  ir_type type = ir_type_of(p->m, x);
  if (!x.id) {
    text_puts(t, "-");
  } else if (type.dtype == IR_I32) {
    text_puts(t, ir_is(p->m, x, IR_POSITIONS) ? "positions" : ir_attr_string(p->m, x, IR_ATTR_NAME, "ids"));
  } else if (train_param_of(p, x) != TRAIN_NOT) {
    text_printf(t, "w%u", train_param_of(p, x));
  } else if (ir_is(p->m, x, IR_GATE)) {
    text_printf(t, "g%u", train_gate_of(p, x));
  } else if (ir_is(p->m, x, IR_CONST)) {
    text_puts(t, "const");
  } else {
    train_view v = train_view_of(p->m, x);
    text_printf(t, "%%%u", v.owner.id);
    if (v.width != p->slots[v.owner.id].width) text_printf(t, "[%u..%u]", v.start, v.start + v.width - 1);
  }
}

static void print_home(const train_plan *p, ir_value v, text *t) {
  const train_slot *s = &p->slots[v.id];
  unsigned long long at = s->offset;
  switch (s->home) {
  case TRAIN_ARENA: text_printf(t, " -> arena %llu, %u floats, to stage %u", at, s->width, s->last); break;
  case TRAIN_CHUNK: text_printf(t, " -> chunk %llu, %u floats", at, s->width); break;
  case TRAIN_BLOCK: text_printf(t, " -> block %llu, %u floats", at, s->width); break;
  case TRAIN_ROW: text_printf(t, " -> row, %u floats", s->width); break;
  case TRAIN_FIXED: text_printf(t, " -> fixed %llu, %u floats", at, s->width); break;
  case TRAIN_GRADIENT: text_printf(t, " -> gradient of w%u%s", s->param, s->adds ? ", added" : ""); break;
  case TRAIN_MEAN: text_puts(t, " -> results"); break;
  case TRAIN_NOWHERE: break;
  }
}

static void print_op(const train_plan *p, ir_value v, const char *indent, text *t) {
  text_printf(t, "%s%%%u = %s", indent, v.id, ir_op_name(ir_opcode_of(p->m, v)));
  for (size_t i = 0; i < ir_operand_count(p->m, v); i++) {
    ir_type type = ir_type_of(p->m, ir_operand(p->m, v, i));
    if (type.dtype == IR_I32 && type.rank == 1) continue; /* the positions of windows start at 0 */
    text_puts(t, i ? ", " : " ");
    print_place(p, ir_operand(p->m, v, i), t);
  }
  print_home(p, v, t);
  text_puts(t, "\n");
}

static void print_stage(const train_plan *p, const train_program *g, size_t i, text *t) {
  static const char *const kinds[] = {
      [TRAIN_ROWS] = "rows",       [TRAIN_ATTENTION] = "attention", [TRAIN_ATTENTION_BACK] = "attention back",
      [TRAIN_WEIGHTS] = "weights", [TRAIN_EMBED] = "embed back",    [TRAIN_SUMS] = "sums over blocks",
      [TRAIN_SMALL] = "small"};
  const train_stage *s = &g->stages[i];
  text_printf(t, "  stage %zu: %s '%s'%s\n", i, kinds[s->kind], s->name, s->chunked ? ", chunk by chunk" : "");
  for (size_t j = 0; j < s->group_count; j++) {
    text_puts(t, s->groups[j].product ? "    block\n" : "    each row\n");
    for (size_t k = 0; k < s->groups[j].count; k++) print_op(p, s->groups[j].ops[k], "      ", t);
  }
  for (size_t j = 0; j < s->op_count && !s->group_count; j++) print_op(p, s->ops[j], "    ", t);
}

static void print_program(const train_plan *p, const train_program *g, text *t) {
  text_printf(t, "program %s: %zu stages\n", ir_region_name(p->m, g->entry), g->stage_count);
  for (size_t i = 0; i < g->stage_count; i++) print_stage(p, g, i, t);
  text_printf(t, "  memory: %llu floats a row, %llu a row of a chunk, %llu a block, %llu fixed\n",
              (unsigned long long)g->row_floats, (unsigned long long)g->chunk_floats,
              (unsigned long long)g->partial_floats, (unsigned long long)g->fixed_floats);
}

void train_plan_print(const train_plan *p, text *t) {
  text_printf(t, "training plan 1\nmodel '%s': vocab %u, context %u, width %u\n", ir_module_name(p->m), p->vocab,
              p->context, p->width);
  for (size_t i = 0; i < p->program_count; i++) print_program(p, &p->programs[i], t);
  for (size_t i = 0; i < p->param_count; i++) {
    text_printf(t, "w%zu: '%s' ", i, ir_attr_string(p->m, p->params[i], IR_ATTR_NAME, ""));
    ir_print_type(t, ir_type_of(p->m, p->params[i]));
    text_printf(t, ", %s%s\n", p->param_kinds[i], p->param_programs[i] ? "" : ", not trained");
  }
  for (size_t i = 0; i < p->pack_count; i++)
    text_printf(t, "packed %zu: w%u%s\n", i, p->packs[i].param, p->packs[i].back ? ", for x W" : "");
  for (size_t i = 0; i < p->gate_count; i++)
    text_printf(t, "g%zu: '%s'%s\n", i, p->gates[i].name, p->gates[i].scheduled ? "" : ", fixed");
}
