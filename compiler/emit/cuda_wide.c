/* cuda_wide.c - linear stages of more rows than a kernel takes at once: a kernel makes the operands, matrix products by the library or the
   tiled kernel, the stage's own epilogue behind them. Operands and products lie in the arena behind everything else, each stage's in the same
   place. docs/cuda.md */
#include "compiler/emit/cuda_priv.h"

#include <string.h>

static uint64_t on_packs(uint64_t floats) { return (floats + 3) / 4 * 4; }

static uint64_t base_of(const plan *p) { return on_packs(p->memory.row_floats); }

static bool same_operand(const plan_operand *a, const plan_operand *b) {
  return a->place == b->place && a->index == b->index && a->view.start == b->view.start &&
         a->view.width == b->view.width;
}

/* Can products read a root's operand where it lies? */
static bool lies_ready(const plan *p, const plan_stage *s, const plan_root *r) {
  if (r->x.place == PLAN_PROLOGUE || p->weights[r->weight].dtype != IR_F32) return false;
  return p->buffers[r->x.index].out_rows == s->out_rows;
}

/* Is a root's product a buffer as it is, from its first column on? */
static bool is_final(const plan_segment *g, const plan_root *r) {
  return g->step_count == 0 && g->root_count == 1 && r->bias == PLAN_NONE && r->buffer != PLAN_NONE && r->row0 == 0;
}

static void add_operand(const plan *p, const plan_stage *s, cuda_wide *w, cuda_product *q) {
  const plan_root *r = q->root;
  q->x_pitch = r->cols;
  if (lies_ready(p, s, r)) {
    q->x = p->buffers[r->x.index].offset, q->x_pitch = p->buffers[r->x.index].width, q->x_start = r->x.view.start;
    return;
  }
  for (size_t i = 0; i < w->count; i++)
    if (w->products[i].made && same_operand(&w->products[i].root->x, &r->x)) {
      q->x = w->products[i].x, q->x_pitch = w->products[i].x_pitch;
      return;
    }
  uint64_t size = ir_dtype_size(p->weights[r->weight].dtype), floats = on_packs((r->cols * size + 3) / 4);
  q->made = w->has_before = true;
  q->x = base_of(p) + w->floats, q->x_pitch = (uint32_t)(floats * 4 / size);
  w->floats += floats;
}

static void add_product(const plan *p, const plan_segment *g, cuda_wide *w, cuda_product *q) {
  q->final = is_final(g, q->root);
  if (q->final) {
    q->y = p->buffers[q->root->buffer].offset, q->y_pitch = p->buffers[q->root->buffer].width;
    return;
  }
  q->y = base_of(p) + w->floats, q->y_pitch = (uint32_t)on_packs(g->columns);
  w->floats += q->y_pitch;
  w->has_after = true;
}

cuda_wide cuda_wide_of(const plan *p, const plan_stage *s, arena *mem) {
  cuda_wide w = {0};
  size_t n = 0;
  if (s->kind != PLAN_LINEAR) return w;
  for (size_t i = 0; i < s->segment_count; i++) n += s->segments[i].root_count;
  w.products = ARENA_ARRAY(mem, cuda_product, n + 1);
  for (size_t i = 0; i < s->segment_count; i++)
    for (size_t j = 0; j < s->segments[i].root_count; j++) {
      const plan_root *r = &s->segments[i].roots[j];
      if (p->weights[r->weight].dtype != plan_dtype(p)) return (cuda_wide){0}; /* the tiled kernel is of one type */
      cuda_product *q = &w.products[w.count];
      *q = (cuda_product){.root = r, .stage = (uint32_t)(s - p->stages), .segment = (uint32_t)i};
      add_operand(p, s, &w, q);
      w.count++;
    }
  for (size_t i = 0; i < w.count; i++) add_product(p, &s->segments[w.products[i].segment], &w, &w.products[i]);
  for (size_t i = 0; i < s->segment_count; i++) w.has_after |= s->segments[i].root_count == 0;
  return w;
}

const cuda_product *cuda_product_of(const cuda_wide *w, const plan_root *r) {
  size_t i = 0;
  while (w->products[i].root != r) i++;
  return &w->products[i];
}

uint64_t cuda_row_floats(const plan *p) {
  arena mem = {0};
  uint64_t most = 0;
  for (size_t i = 0; i < p->stage_count; i++) {
    cuda_wide w = cuda_wide_of(p, &p->stages[i], &mem);
    if (w.count && w.floats > most) most = w.floats;
  }
  arena_free(&mem);
  return most ? base_of(p) + most : p->memory.row_floats;
}

/* ---- the kernel in front: operands ---- */
static const char *source_of(emit_filler *f, const plan_root *r) {
  const char *x;
  if (r->x.place == PLAN_PROLOGUE) {
    x = cuda_dialect.kept(&(emit_list){.p = f->p, .stage = f->s, .mem = f->mem}, &f->s->steps[r->x.index]);
  } else {
    const plan_buffer *b = &f->p->buffers[r->x.index];
    const char *row = f->s->out_rows && !b->out_rows ? "t" : "r";
    x = arena_printf(f->mem, "buffer_row(c, %s, %u, %s)", emit_field(f->mem, f->fields, FIELD_BUFFER, r->x.index),
                     b->width, row);
  }
  return r->x.view.start ? arena_printf(f->mem, "%s + %u", x, r->x.view.start) : x;
}

static void put_operand(emit_filler *f, const cuda_product *q, text *out) {
  ir_dtype type = f->p->weights[q->root->weight].dtype;
  text_printf(out, "put_operand((%s *)buffer_row(c, %llu, %llu, r), %s, %u);\n", type == IR_F32 ? "float" : "half",
              (unsigned long long)q->x, (unsigned long long)q->x_pitch * ir_dtype_size(type) / 4, source_of(f, q->root),
              q->root->cols);
}

static bool is_read(const cuda_wide *w) {
  for (size_t i = 0; i < w->count; i++)
    if (w->products[i].made && w->products[i].root->x.place == PLAN_PROLOGUE) return true;
  return false;
}

bool cuda_before(emit_filler *f) {
  cuda_wide w = cuda_wide_of(f->p, f->s, f->mem);
  text body = {0};
  if (!w.has_before) return true;
  fill_begin(f, f->name);
  if (is_read(&w)) {
    cuda_set_prologue(f);
  } else {
    fill_set(f, "P_PROLOGUE", "");
    fill_set(f, "P_KEPT", "0");
  }
  for (size_t i = 0; i < w.count; i++)
    if (w.products[i].made) put_operand(f, &w.products[i], &body);
  fill_lines(f, "P_BODY", &body);
  fill_set(f, "P_COMMENT", "@COMMENT@");
  return fill_template(f, "templates/cuda/before.cu");
}

/* ---- the kernel behind: the epilogue ---- */
bool cuda_after(emit_filler *f) {
  cuda_wide *w = ARENA_NEW(f->mem, cuda_wide);
  *w = cuda_wide_of(f->p, f->s, f->mem);
  f->wide = w;
  return !w->has_after || cuda_linear(f);
}
