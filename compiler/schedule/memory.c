/* memory.c - lifetimes of buffers, their places in the arena, the workers' scratch. */
#include "compiler/schedule/plan_priv.h"

#include "runtime/base/checked.h"

static uint64_t round_up(uint64_t n) { return (n + 15) / 16 * 16; }

static void touch(plan *p, const plan_operand *o, uint32_t stage) {
  if (o->place == PLAN_OUTSIDE) p->buffers[o->index].last = stage;
}

static void write_buffer(plan *p, uint32_t buffer, uint32_t stage) {
  if (buffer == PLAN_NONE) return;
  plan_buffer *b = &p->buffers[buffer];
  if (b->first == PLAN_NONE) b->first = b->last = stage;
  b->out_rows = p->stages[stage].out_rows;
}

static void visit_steps(plan *p, const plan_step *steps, size_t n, uint32_t stage) {
  for (size_t i = 0; i < n; i++) {
    for (size_t j = 0; j < steps[i].operand_count; j++) touch(p, &steps[i].operands[j], stage);
    write_buffer(p, steps[i].buffer, stage);
  }
}

static void find_lifetimes(plan *p) {
  for (uint32_t s = 0; s < p->stage_count; s++) {
    const plan_stage *stage = &p->stages[s];
    visit_steps(p, stage->steps, stage->step_count, s);
    for (size_t i = 0; i < stage->segment_count; i++) {
      const plan_segment *g = &stage->segments[i];
      for (size_t j = 0; j < g->root_count; j++) {
        touch(p, &g->roots[j].x, s);
        write_buffer(p, g->roots[j].buffer, s);
      }
      visit_steps(p, g->steps, g->step_count, s);
    }
  }
  p->buffers[p->logits].last = (uint32_t)p->stage_count;
}

static bool overlap(const plan_buffer *a, uint64_t offset, const plan_buffer *b) {
  return a->first <= b->last && b->first <= a->last && offset < b->offset + b->width && b->offset < offset + a->width;
}

/* May `b` take the place of `x`, which one step of its stage reads for the last time? The step must be the one that
 * makes b, column by column. */
static bool may_replace(const planner *k, const plan_buffer *b, const plan_buffer *x) {
  if (x->last != b->first || x->first == b->first || x->width != b->width || x->out_rows != b->out_rows) return false;
  if (!ir_op_has(ir_opcode_of(k->m, b->value), OPF_ELEMENTWISE) || execution_class_of(k->m, b->value) != EXEC_COLUMN)
    return false;
  bool direct = false;
  for (const plan_use *u = k->uses[x->value.id]; u; u = u->next) {
    if (execution_class_of(k->m, u->user) == EXEC_ALIAS)
      continue; /* a probe: read at the end of the stage that made it */
    if (k->key[u->user.id] != k->key[b->value.id]) continue;
    if (!ir_same(u->user, b->value) || u->view.start || u->view.width != x->width) return false;
    direct = true;
  }
  return direct;
}

static bool is_free(const plan *p, const bool *placed, uint32_t self, uint64_t offset, uint32_t but) {
  for (uint32_t i = 0; i < p->buffer_count; i++)
    if (placed[i] && i != but && overlap(&p->buffers[self], offset, &p->buffers[i])) return false;
  return true;
}

/* The lowest place beside all that live at the same time. */
static bool place(const planner *k, bool *placed, uint32_t self) {
  plan *p = k->p;
  plan_buffer *b = &p->buffers[self];
  for (uint32_t i = 0; i < p->buffer_count; i++) {
    if (!placed[i] || !may_replace(k, b, &p->buffers[i]) || !is_free(p, placed, self, p->buffers[i].offset, i))
      continue;
    b->offset = p->buffers[i].offset;
    return true;
  }
  for (uint64_t offset = 0;;) {
    uint32_t hit = PLAN_NONE;
    for (uint32_t i = 0; i < p->buffer_count && hit == PLAN_NONE; i++)
      if (placed[i] && overlap(b, offset, &p->buffers[i])) hit = i;
    b->offset = offset;
    if (hit == PLAN_NONE) return offset <= UINT32_MAX;
    offset = round_up(p->buffers[hit].offset + p->buffers[hit].width);
  }
}

static bool place_buffers(planner *k) {
  plan *p = k->p;
  bool *placed = ARENA_ARRAY(&k->scratch, bool, p->buffer_count + 1);
  for (uint32_t s = 0; s < p->stage_count; s++)
    for (uint32_t i = 0; i < p->buffer_count; i++) {
      if (placed[i] || p->buffers[i].first != s) continue;
      if (!place(k, placed, i)) return false;
      placed[i] = true;
      uint64_t end = round_up(p->buffers[i].offset + p->buffers[i].width);
      if (end > p->memory.row_floats) p->memory.row_floats = end;
    }
  return true;
}

uint32_t plan_block_columns(const plan_segment *s) { return s->block; }

static uint64_t lay_out_steps(plan_step *steps, size_t n, uint64_t at, uint64_t *per_row) {
  for (size_t i = 0; i < n; i++) {
    uint64_t *where = steps[i].kept ? per_row : &at;
    steps[i].scratch = *where;
    *where = round_up(*where + steps[i].width);
  }
  return at;
}

static uint64_t lay_out_segment(plan_segment *s, uint64_t at) {
  uint64_t block = plan_block_columns(s);
  for (size_t i = 0; i < s->root_count; i++) s->roots[i].scratch = at, at += block * PLAN_ROWS_AT_ONCE;
  for (size_t i = 0; i < s->step_count; i++) s->steps[i].scratch = at, at += block;
  return at;
}

static uint64_t at_most(uint64_t a, uint64_t b) { return a > b ? a : b; }

static void lay_out_attention(const planner *k, const plan_step *s, plan_memory *need) {
  uint32_t kv_heads = k->p->states[s->operands[1].index - 2].heads, value_dim = execution_last(k->m, s->op);
  uint64_t group = execution_width(k->m, s->op) / value_dim / kv_heads;
  need->scratch_floats = at_most(need->scratch_floats, group * (16 + round_up(value_dim)));
  need->scratch_per_pos = at_most(need->scratch_per_pos, group);
}

static void lay_out_scratch(planner *k) {
  plan *p = k->p;
  for (size_t s = 0; s < p->stage_count; s++) {
    plan_stage *stage = &p->stages[s];
    uint64_t per_row = 0, fixed = lay_out_steps(stage->steps, stage->step_count, 0, &per_row), most = fixed;
    for (size_t i = 0; i < stage->segment_count; i++) most = at_most(most, lay_out_segment(&stage->segments[i], fixed));
    stage->scratch = most;
    p->memory.scratch_floats = at_most(p->memory.scratch_floats, most);
    p->memory.scratch_per_row = at_most(p->memory.scratch_per_row, per_row);
    if (stage->kind == PLAN_ATTENTION) lay_out_attention(k, &stage->steps[0], &p->memory);
  }
}

/* Steps on whole rows leave what others read behind the buffers. */
static bool place_rows_scratch(plan *p) {
  uint64_t most = 0;
  p->memory.rows_scratch = p->memory.row_floats;
  for (size_t s = 0; s < p->stage_count; s++)
    if (p->stages[s].kind == PLAN_ROWS) most = at_most(most, p->stages[s].scratch);
  p->memory.row_floats += most;
  return p->memory.row_floats <= UINT32_MAX;
}

bool plan_lay_out(planner *k) {
  find_lifetimes(k->p);
  lay_out_scratch(k);
  return place_buffers(k) && (!k->target->kept || place_rows_scratch(k->p));
}
