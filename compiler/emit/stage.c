/* stage.c - one stage as functions: its kind's template, filled. */
#include "compiler/analysis/execution.h"
#include "compiler/emit/emit_priv.h"

#include <string.h>

static const char *kept_row(const emit_list *l, const plan_step *s) {
  return arena_printf(l->mem, "scratch_row(c, %llu, %llu, %u, r)", (unsigned long long)l->stage->scratch,
                      (unsigned long long)s->scratch, s->width);
}
static const char *scratch_of(const emit_list *l, size_t i) {
  return arena_printf(l->mem, "c->scratch + %llu", (unsigned long long)l->steps[i].scratch);
}
const emit_dialect emit_cpu = {.weight = {"c->weight[", "]"},
                               .state = {"c->state[", "]"},
                               .rotary = {"c->rotary[", "]"},
                               .first = "0",
                               .sync = "",
                               .number = "",
                               .kept = kept_row,
                               .scratch = scratch_of};

/* ---- linear ---- */
static const char *row_of_root(emit_filler *f, const plan_root *r, const char *index) {
  if (r->x.place == PLAN_PROLOGUE) {
    const plan_step *s = &f->s->steps[r->x.index];
    return arena_printf(f->mem, "scratch_row(c, %llu, %llu, %u, %s)", (unsigned long long)f->s->scratch,
                        (unsigned long long)s->scratch, s->width, index);
  }
  const plan_buffer *b = &f->p->buffers[r->x.index];
  const char *row = f->s->out_rows && !b->out_rows ? arena_printf(f->mem, "(uint32_t)c->out_row[%s]", index) : index;
  return arena_printf(f->mem, "buffer_row(c, %s, %u, %s)", emit_field(f->mem, f->fields, FIELD_BUFFER, r->x.index),
                      b->width, row);
}

static void put_dots(emit_filler *f, const plan_segment *g, text *out) {
  const char *before = "";
  for (uint32_t i = 0; i < g->root_count; i++) {
    const plan_root *r = &g->roots[i];
    const char *x = row_of_root(f, r, "r0 + i");
    if (r->x.view.start) x = arena_printf(f->mem, "%s + %u", x, r->x.view.start);
    if (strcmp(x, before) != 0) text_printf(out, "for (uint32_t i = 0; i < some; i++) x[i] = %s;\n", x);
    before = x;
    text_printf(out, "float *dots%u = c->scratch + %llu;\n", i, (unsigned long long)r->scratch);
    text_printf(out, "dot(dots%u, %u, x, some, c->weight[%s] + (size_t)column * %u, %u, tiles, TILE, %u * TILE);\n", i,
                plan_block_columns(g), emit_field(f->mem, f->fields, FIELD_WEIGHT, r->weight), r->cols, r->cols,
                r->cols);
  }
}

static bool fill_segment(emit_filler *f, size_t number) {
  const plan_segment *g = &f->s->segments[number];
  text dots = {0}, epilogue = {0};
  uint32_t block = plan_block_columns(g), many = block / 2 / g->unit;
  emit_list l = fill_list(f, g, g->steps, g->step_count);
  fill_begin(f, arena_printf(f->mem, "%s_%zu", f->name, number));
  fill_number(f, "P_COLUMNS", g->columns);
  fill_number(f, "P_UNIT", g->unit);
  fill_number(f, "P_BLOCK", block);
  fill_number(f, "P_UNITS_ONE", block / g->unit);
  fill_number(f, "P_UNITS_MANY", many ? many : 1);
  put_dots(f, g, &dots);
  emit_steps(&l, &epilogue);
  fill_lines(f, "P_DOTS", &dots);
  fill_lines(f, "P_EPILOGUE", &epilogue);
  fill_set(f, "P_COMMENT", fill_segment_comment(f, g));
  return fill_template(f, "templates/cpu/segment.c");
}

/* What a unit costs: multiply-adds / 16. */
static uint64_t cost_of(const plan_segment *g) {
  uint64_t cost = 0;
  for (size_t i = 0; i < g->root_count; i++) cost += (uint64_t)g->roots[i].cols * (g->unit / 16);
  return cost;
}

static uint64_t gcd(uint64_t a, uint64_t b) {
  while (b) {
    uint64_t t = a % b;
    a = b, b = t;
  }
  return a;
}

static void put_calls(emit_filler *f, text *out) {
  uint64_t total = 0, common = 0, before = 0;
  for (size_t i = 0; i < f->s->segment_count; i++) common = gcd(cost_of(&f->s->segments[i]), common);
  if (!common) common = 1;
  for (size_t i = 0; i < f->s->segment_count; i++) {
    const plan_segment *g = &f->s->segments[i];
    total += (g->columns + g->unit - 1) / g->unit * (cost_of(g) / common);
  }
  uint64_t shrink = total / (1u << 31) + 1; /* shares are 32-bit numbers */
  for (size_t i = 0; i < f->s->segment_count; i++) {
    const plan_segment *g = &f->s->segments[i];
    uint64_t units = (g->columns + g->unit - 1) / g->unit, cost = cost_of(g) / common / shrink;
    text_printf(out, "%s_%zu(c, a, unit_share(c, @TOTAL@, %llu, %llu, %llu));\n", f->name, i,
                (unsigned long long)before, (unsigned long long)units, (unsigned long long)(cost ? cost : 1));
    before += units * (cost ? cost : 1);
  }
  text t = *out; /* the total is known now */
  *out = (text){0};
  for (const char *s = t.data, *at; s; s = at ? at + strlen("@TOTAL@") : NULL) {
    at = strstr(s, "@TOTAL@");
    text_put(out, s, at ? (size_t)(at - s) : strlen(s));
    if (at) text_printf(out, "%llu", (unsigned long long)before);
  }
  text_free(&t);
}

static bool fill_linear(emit_filler *f) {
  text prologue = {0}, calls = {0};
  for (size_t i = 0; i < f->s->segment_count; i++)
    if (!fill_segment(f, i)) return false;
  emit_list l = fill_list(f, NULL, f->s->steps, f->s->step_count);
  fill_begin(f, f->name);
  emit_steps(&l, &prologue);
  put_calls(f, &calls);
  fill_set(f, "P_HAS_PROLOGUE", prologue.size ? "1" : "0");
  fill_lines(f, "P_PROLOGUE", &prologue);
  fill_lines(f, "P_SEGMENTS", &calls);
  fill_set(f, "P_COMMENT", "@COMMENT@");
  return fill_template(f, "templates/cpu/linear.c");
}

/* ---- attention ---- */
static uint32_t divisor(uint32_t n, uint32_t at_most) {
  uint32_t d = n < at_most ? n : at_most;
  while (n % d) d--;
  return d;
}

static bool fill_attention(emit_filler *f) {
  const plan_step *s = &f->s->steps[0];
  const plan_state *keys = &f->p->states[s->operands[1].index - 2], *values = &f->p->states[s->operands[2].index - 2];
  const uint32_t pitch = values->floats_per_pos / values->heads,
                 group = s->width / execution_last(f->p->m, s->op) / keys->heads, rows = divisor(group, 4);
  fill_begin_attention(f);
  fill_number(f, "P_VALUE_PITCH", pitch);
  fill_number(f, "P_MIX_ROWS", rows);
  fill_number(f, "P_MIX_TILES", divisor(pitch / 16, rows == 1 ? 8 : 4));
  return fill_template(f, "templates/cpu/attention.c");
}

bool emit_stage(emit_filler *f) {
  return f->s->kind == PLAN_ROWS     ? fill_rows(f, "templates/cpu/rows.c")
         : f->s->kind == PLAN_LINEAR ? fill_linear(f)
                                     : fill_attention(f);
}
