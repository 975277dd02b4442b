/* cuda_stage.c - one stage as a kernel: its kind's template, filled. */
#include "compiler/emit/cuda_priv.h"

#include <string.h>

/* ---- where values lie ---- */
static uint64_t round_up(uint64_t n) { return (n + 15) / 16 * 16; }

/* Of the prologue: what is kept lies first, as the plan has it; the rest behind. */
static uint64_t kept_floats(const plan_stage *s) {
  uint64_t n = 0;
  for (size_t i = 0; i < s->step_count; i++)
    if (s->steps[i].kept) n += round_up(s->steps[i].width);
  return n;
}
static uint64_t prologue_floats(const plan_stage *s) {
  uint64_t n = 0;
  for (size_t i = 0; i < s->step_count; i++) n += round_up(s->steps[i].width);
  return n;
}

static const char *kept_at(const emit_list *l, const plan_step *s) {
  return arena_printf(l->mem, "(kept + %llu * ROWS + i * %llu)", (unsigned long long)s->scratch,
                      (unsigned long long)round_up(s->width));
}

static const char *scratch_at(const emit_list *l, size_t i) {
  const plan_step *s = &l->steps[i];
  uint64_t at = s->scratch + (l->stage->kind == PLAN_LINEAR ? kept_floats(l->stage) : l->p->memory.rows_scratch),
           width = round_up(s->width);
  if (l->stage->kind != PLAN_LINEAR)
    return arena_printf(l->mem, "buffer_row(c, %llu, %llu, r)", (unsigned long long)at, (unsigned long long)width);
  if (!l->segment)
    return arena_printf(l->mem, "(kept + %llu * ROWS + i * %llu)", (unsigned long long)at, (unsigned long long)width);
  cuda_shared *shared = l->user;
  uint32_t columns = shared->columns;
  if (!shared->place[i]) shared->place[i] = shared->used + 1, shared->used += columns;
  return arena_printf(l->mem, "(block + %llu * ROWS + i * %u)", (unsigned long long)(shared->place[i] - 1), columns);
}

const emit_dialect cuda_dialect = {.types = {[FIELD_WEIGHT] = "const void *",
                                             [FIELD_STATE] = "float *",
                                             [FIELD_ROTARY] = "const float *",
                                             [FIELD_GATE] = "double"},
                                   .weight = {"(const float *)", ""},
                                   .half = {"(const half *)", ""},
                                   .state = {"", ""},
                                   .rotary = {"", ""},
                                   .first = "LANE",
                                   .sync = "SYNC();\n",
                                   .number = "by_one",
                                   .exact = true,
                                   .kept = kept_at,
                                   .scratch = scratch_at};

/* ---- linear ---- */
void cuda_set_prologue(emit_filler *f) {
  text prologue = {0};
  emit_list l = fill_list(f, NULL, f->s->steps, f->s->step_count);
  emit_steps(&l, &prologue);
  fill_lines(f, "P_PROLOGUE", &prologue);
  fill_number(f, "P_KEPT", prologue_floats(f->s));
}

static cuda_shape shape_of(const emit_filler *f, const plan_segment *g) {
  return cuda_shape_of(f->p, f->s, g, f->wide != NULL);
}

static uint32_t block_count(const plan *p, const plan_stage *s, const plan_segment *g, bool wide) {
  const uint32_t block = cuda_shape_of(p, s, g, wide).block;
  return (g->columns + block - 1) / block;
}

static const char *element_of(const plan_weight *w) { return w->dtype == IR_F32 ? "float" : "half"; }

/* Where row i of a product's operand lies; *out_packs: on 16 bytes. */
static const char *operand_of(emit_filler *f, const plan_root *r, bool *out_packs) {
  const char *x;
  bool packs = r->x.view.start % 4 == 0;
  if (r->x.place == PLAN_PROLOGUE) {
    x = arena_printf(f->mem, "kept + %llu * ROWS + i * %llu", (unsigned long long)f->s->steps[r->x.index].scratch,
                     (unsigned long long)round_up(f->s->steps[r->x.index].width));
  } else {
    const plan_buffer *b = &f->p->buffers[r->x.index];
    const char *row = f->s->out_rows && !b->out_rows ? "(uint32_t)c->out_row[r0 + i]" : "r0 + i";
    packs &= b->width % 4 == 0;
    x = arena_printf(f->mem, "buffer_row(c, %s, %u, %s)", emit_field(f->mem, f->fields, FIELD_BUFFER, r->x.index),
                     b->width, row);
  }
  *out_packs = packs;
  return r->x.view.start ? arena_printf(f->mem, "%s + %u", x, r->x.view.start) : x;
}

/* The type of the products of `roots` matrices like r's. */
static const char *products_of(emit_filler *f, const plan_root *r, size_t roots, const cuda_shape *shape) {
  return arena_printf(f->mem, "products<%s, %u, %zu, %u, %u, %s, %u, %u>", element_of(&f->p->weights[r->weight]),
                      r->cols, roots, shape->lanes, shape->columns, shape->full ? "true" : "false", shape->block,
                      cuda_warps_of(f->p, f->s));
}

/* Where the block's columns of a matrix begin. */
static const char *rows_of(emit_filler *f, const plan_root *r) {
  const char *element = element_of(&f->p->weights[r->weight]);
  return arena_printf(f->mem, "(const %s *)%s + (size_t)column * pitch_of<%s>(%u)", element,
                      emit_field(f->mem, f->fields, FIELD_WEIGHT, r->weight), element, r->cols);
}

/* Products that were begun in `name` go to `to`, a list of places. */
static void put_run(emit_filler *f, const plan_root *r, const char *name, const char *to, text *out) {
  bool packs;
  const char *x = operand_of(f, r, &packs);
  text_printf(out, "float *const %s_to[] = {%s};\n", name, to);
  text_printf(out, "%s.run<ROWS, %s>(%s_to, [&](uint32_t i) { return %s; }, some);\n", name, packs ? "true" : "false",
              name, x);
}

static void put_dot(emit_filler *f, const plan_segment *g, const plan_root *r, uint32_t i, text *out) {
  const cuda_shape segment = shape_of(f, g), shape = cuda_shape_of_root(f->p, g, r, segment);
  const char *name = arena_printf(f->mem, "p%u", i);
  text_printf(out, "%s %s;\n", products_of(f, r, 1, &shape), name);
  text_printf(out, "%s.begin({%s}, n);\n", name, rows_of(f, r));
  put_run(f, r, name, arena_printf(f->mem, "dots%u", i), out);
}

/* Do the products of all segments differ in the matrix alone? Then they are one piece of code, which begins ahead of the wait. */
static bool is_alike(emit_filler *f) {
  const plan_segment *first = &f->s->segments[0];
  bool packs;
  if (f->wide || !first->root_count || first->root_count > 4) return false;
  const uint32_t block = shape_of(f, first).block;
  const char *x = operand_of(f, &first->roots[0], &packs);
  for (size_t i = 0; i < f->s->segment_count; i++) {
    const plan_segment *g = &f->s->segments[i];
    if (g->root_count != first->root_count || shape_of(f, g).block != block) return false;
    for (size_t j = 0; j < g->root_count; j++)
      if (f->p->weights[g->roots[j].weight].dtype != f->p->weights[first->roots[0].weight].dtype ||
          g->roots[j].cols != first->roots[0].cols || strcmp(operand_of(f, &g->roots[j], &packs), x) != 0)
        return false;
  }
  return true;
}

/* The products of many rows lie in the arena already: row r0's, from the block's first column on. */
static void put_product(emit_filler *f, const plan_root *r, uint32_t i, text *out) {
  const cuda_product *q = cuda_product_of(f->wide, r);
  text_printf(out, "float *dots%u = buffer_row(c, %llu, %u, r0) + column;\n", i, (unsigned long long)q->y, q->y_pitch);
}

/* Do products need what the prologue keeps? Else it is computed behind them, when its operands are near. */
static bool is_staged(const plan_stage *s) {
  for (size_t i = 0; i < s->segment_count; i++)
    for (size_t j = 0; j < s->segments[i].root_count; j++)
      if (s->segments[i].roots[j].x.place == PLAN_PROLOGUE) return true;
  return false;
}

/* Does an epilogue read what the prologue keeps? */
static bool is_read_behind(const plan_stage *s) {
  for (size_t i = 0; i < s->segment_count; i++)
    for (size_t j = 0; j < s->segments[i].step_count; j++)
      for (size_t k = 0; k < s->segments[i].steps[j].operand_count; k++)
        if (s->segments[i].steps[j].operands[k].place == PLAN_PROLOGUE) return true;
  return false;
}

static bool has_prologue(const emit_filler *f) { return f->s->step_count && (!f->wide || is_read_behind(f->s)); }
/* Ahead of the products, or behind them. */
static bool is_ahead(const emit_filler *f) { return !f->wide && is_staged(f->s); }

static const char *prologue_call(emit_filler *f) {
  return has_prologue(f) ? arena_printf(f->mem, "%s_prologue<ROWS>(c, a, kept, r0, some);\n", f->name) : "";
}

static bool fill_segment(emit_filler *f, size_t number, uint64_t *shared_floats) {
  const plan_segment *g = &f->s->segments[number];
  text dots = {0}, epilogue = {0};
  const uint32_t block = shape_of(f, g).block;
  cuda_shared shared = {.place = ARENA_ARRAY(f->mem, uint64_t, g->step_count + 1),
                        .columns = block,
                        .used = f->wide ? 0 : g->root_count * (uint64_t)block};
  emit_list l = fill_list(f, g, g->steps, g->step_count);
  l.user = &shared;
  l.dots_pitch = block;
  if (f->wide && g->root_count) l.dots_pitch = cuda_product_of(f->wide, &g->roots[0])->y_pitch;
  fill_begin(f, arena_printf(f->mem, "%s_%zu", f->name, number));
  fill_number(f, "P_COLUMNS", g->columns);
  fill_number(f, "P_BLOCK", block);
  fill_number(f, "P_WARPS", cuda_warps_of(f->p, f->s));
  const bool alike = is_alike(f);
  for (uint32_t i = 0; i < g->root_count; i++) {
    if (f->wide)
      put_product(f, &g->roots[i], i, &dots);
    else
      text_printf(&dots, "float *dots%u = block + %u * ROWS;\n", i, i * block);
    if (!f->wide && !alike) put_dot(f, g, &g->roots[i], i, &dots);
  }
  if (!alike && !is_ahead(f)) text_puts(&dots, prologue_call(f));
  emit_steps(&l, &epilogue);
  fill_lines(f, "P_DOTS", &dots);
  fill_lines(f, "P_EPILOGUE", &epilogue);
  fill_set(f, "P_COMMENT", fill_segment_comment(f, g));
  if (shared.used > *shared_floats) *shared_floats = shared.used;
  return fill_template(f, "templates/cuda/segment.cu");
}

static bool fill_prologue(emit_filler *f) {
  text prologue = {0};
  if (!has_prologue(f)) return true;
  emit_list l = fill_list(f, NULL, f->s->steps, f->s->step_count);
  fill_begin(f, arena_printf(f->mem, "%s_prologue", f->name));
  emit_steps(&l, &prologue);
  fill_number(f, "P_WARPS", cuda_warps_of(f->p, f->s));
  fill_lines(f, "P_PROLOGUE", &prologue);
  return fill_template(f, "templates/cuda/prologue.cu");
}

/* Each block to its segment: statements, one a segment. */
static void put_choice(emit_filler *f, const char *(*statement)(emit_filler *f, size_t i, uint32_t first), text *out) {
  uint32_t first = 0;
  for (size_t i = 0; i < f->s->segment_count; i++) {
    uint32_t n = block_count(f->p, f->s, &f->s->segments[i], f->wide != NULL);
    bool last = i + 1 == f->s->segment_count;
    if (!last) text_printf(out, "%sif (blockIdx.x < %u)\n  ", i ? "else " : "", first + n);
    if (last && i) text_puts(out, "else\n  ");
    text_puts(out, statement(f, i, first));
    first += n;
  }
}

static const char *unit_of(emit_filler *f, uint32_t first) {
  return first ? arena_printf(f->mem, "(blockIdx.x - %u)", first) : "blockIdx.x";
}

static const char *call_of(emit_filler *f, size_t i, uint32_t first) {
  return arena_printf(f->mem, "%s_%zu<ROWS>(c, a, kept, block, %s, r0, some);\n", f->name, i, unit_of(f, first));
}

/* Has every block of every segment all its columns? */
static bool is_whole(const emit_filler *f) {
  bool whole = true;
  for (size_t i = 0; i < f->s->segment_count; i++)
    whole &= f->s->segments[i].columns % shape_of(f, &f->s->segments[i]).block == 0;
  return whole;
}

static const char *matrices_of(emit_filler *f, size_t i, uint32_t first) {
  const plan_segment *g = &f->s->segments[i];
  const char *all = "";
  for (size_t j = 0; j < g->root_count; j++)
    all =
        arena_printf(f->mem, "%sw%zu = %s, ", all, j, emit_field(f->mem, f->fields, FIELD_WEIGHT, g->roots[j].weight));
  const char *columns = is_whole(f) ? "" : arena_printf(f->mem, ", columns = %u", g->columns);
  return arena_printf(f->mem, "%scolumn = %s * %u%s;\n", all, unit_of(f, first), shape_of(f, g).block, columns);
}

/* Does the first round of loads leave anything of the block's rows? */
static bool is_one_round(const emit_filler *f, const plan_root *r, size_t roots, const cuda_shape *shape) {
  const uint32_t size = (uint32_t)ir_dtype_size(f->p->weights[r->weight].dtype), packs = (r->cols * size + 15) / 16,
                 steps = (packs + shape->lanes - 1) / shape->lanes, tile = 32 / shape->lanes * shape->columns;
  return steps * roots * shape->columns <= (size == 4 ? CUDA_PACKS_AHEAD : CUDA_HALF_PACKS_AHEAD) &&
         shape->block <= tile * cuda_warps_of(f->p, f->s);
}

/* Begins the products of the block's segment, whichever it is: its weights are asked for before the wait. */
static void put_ahead(emit_filler *f, text *out) {
  const plan_segment *g = &f->s->segments[0];
  const plan_root *r = &g->roots[0];
  const cuda_shape shape = shape_of(f, g);
  const char *element = element_of(&f->p->weights[r->weight]), *list = "", *names = "";
  bool full = true;
  const bool whole = is_whole(f);
  for (size_t i = 0; i < f->s->segment_count; i++) full &= shape_of(f, &f->s->segments[i]).full;
  for (size_t j = 0; j < g->root_count; j++) {
    names = arena_printf(f->mem, "%s%s*w%zu", names, j ? ", " : "", j);
    list = arena_printf(f->mem, "%s%s(const %s *)w%zu + begin", list, j ? ", " : "", element, j);
  }
  text_printf(out, "const void %s;\nuint32_t column%s;\n", names, whole ? "" : ", columns");
  put_choice(f, matrices_of, out);
  text_printf(out, "const size_t begin = (size_t)column * pitch_of<%s>(%u);\n", element, r->cols);
  if (whole)
    text_printf(out, "const uint32_t n = %u;\n", shape.block);
  else
    text_printf(out, "const uint32_t n = columns - column < %u ? columns - column : %u;\n", shape.block, shape.block);
  const cuda_shape all = {shape.lanes, shape.columns, shape.block, full};
  text_printf(out, "%s p;\np.begin({%s}, n);\n", products_of(f, r, g->root_count, &all), list);
  for (size_t j = 0; j < g->root_count && !is_one_round(f, r, g->root_count, &shape); j++)
    text_printf(out, "prefetch_rows((const %s *)w%zu + begin, %u, n);\n", element, j, r->cols);
}

static void put_products(emit_filler *f, text *out) {
  const plan_segment *g = &f->s->segments[0];
  const char *to = "";
  const uint32_t block = shape_of(f, g).block;
  for (size_t j = 0; j < g->root_count; j++)
    to = arena_printf(f->mem, j ? "%s, block + %zu * ROWS" : "%sblock", to, j * block);
  put_run(f, &g->roots[0], "p", to, out);
  if (!is_ahead(f)) text_puts(out, prologue_call(f));
}

static const char *prefetch_of(emit_filler *f, size_t i, uint32_t first) {
  const plan_segment *g = &f->s->segments[i];
  const uint32_t block = shape_of(f, g).block;
  const char *all = "";
  for (size_t j = 0; j < g->root_count; j++) {
    const plan_root *r = &g->roots[j];
    const char *element = element_of(&f->p->weights[r->weight]), *unit = unit_of(f, first);
    all = arena_printf(f->mem,
                       "%s%sprefetch_rows((const %s *)%s + (size_t)(%s * %u) * pitch_of<%s>(%u), %u, %u - %s * %u < %u "
                       "? %u - %s * %u : %u);",
                       all, j ? " " : "", element, emit_field(f->mem, f->fields, FIELD_WEIGHT, r->weight), unit, block,
                       element, r->cols, r->cols, g->columns, unit, block, block, g->columns, unit, block, block);
  }
  return arena_printf(f->mem, g->root_count > 1 ? "{ %s }\n" : "%s\n", all);
}

bool cuda_linear(emit_filler *f) {
  text calls = {0}, ahead = {0};
  uint64_t shared = 4, kept = has_prologue(f) ? prologue_floats(f->s) : 0;
  uint32_t rows = 8;
  if (!fill_prologue(f)) return false;
  for (size_t i = 0; i < f->s->segment_count; i++)
    if (!fill_segment(f, i, &shared)) return false;
  while (rows > 1 && rows * (kept + shared) > CUDA_SHARED_FLOATS) rows /= 2;
  if (rows * (kept + shared) > CUDA_SHARED_FLOATS) {
    *f->problem = "a row of the stage is larger than shared memory";
    return false;
  }
  fill_begin(f, f->name);
  if (is_alike(f)) {
    put_ahead(f, &ahead);
    put_products(f, &calls);
  } else if (!f->wide) {
    put_choice(f, prefetch_of, &ahead);
  }
  put_choice(f, call_of, &calls);
  fill_number(f, "P_ROWS", rows);
  fill_number(f, "P_WARPS", cuda_warps_of(f->p, f->s));
  fill_number(f, "P_KEPT", rows * kept);
  fill_number(f, "P_SHARED", rows * shared);
  fill_set(f, "P_STAGED", is_ahead(f) ? "1" : "0");
  fill_set(f, "P_PROLOGUE", prologue_call(f));
  fill_lines(f, "P_AHEAD", &ahead);
  fill_lines(f, "P_SEGMENTS", &calls);
  fill_set(f, "P_COMMENT", "@COMMENT@");
  return fill_template(f, "templates/cuda/linear.cu");
}

bool cuda_stage(emit_filler *f) {
  return f->s->kind == PLAN_ROWS     ? fill_rows(f, "templates/cuda/rows.cu")
         : f->s->kind == PLAN_LINEAR ? cuda_linear(f)
                                     : cuda_attention(f);
}

static cuda_launch launch_blocks(const plan *p, const plan_stage *s, bool wide, arena *mem) {
  uint32_t blocks = 0;
  for (size_t i = 0; i < s->segment_count; i++) blocks += block_count(p, s, &s->segments[i], wide);
  const char *rows = s->out_rows ? "\"out_row_groups\"" : "\"row_groups\"";
  return (cuda_launch){{arena_printf(mem, "%u", blocks), rows, "1"}, 32 * cuda_warps_of(p, s)};
}

cuda_launch cuda_launch_of(const plan *p, const plan_stage *s, arena *mem) {
  if (s->kind == PLAN_ATTENTION) return cuda_attention_launch(p, s, mem);
  if (s->kind == PLAN_ROWS) return (cuda_launch){{s->out_rows ? "\"out_rows\"" : "\"rows\"", "1", "1"}, 32};
  return launch_blocks(p, s, false, mem);
}

cuda_launch cuda_launch_after(const plan *p, const plan_stage *s, arena *mem) { return launch_blocks(p, s, true, mem); }
