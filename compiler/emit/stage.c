/* stage.c - one stage as functions: its kind's template, filled. */
#include "compiler/analysis/execution.h"
#include "compiler/emit/emit_priv.h"

#include <string.h>

#define MAX_VALUES 24

typedef struct filler {
  const plan *p;
  const plan_stage *s;
  const char *name;
  emit_fields *fields;
  arena *mem;
  text *out;
  const char **problem;
  emit_value values[MAX_VALUES];
  size_t count;
} filler;

static void set(filler *f, const char *name, const char *value) { f->values[f->count++] = (emit_value){name, value}; }
static void set_number(filler *f, const char *name, uint64_t value) {
  set(f, name, arena_printf(f->mem, "%llu", (unsigned long long)value));
}

static void set_float(filler *f, const char *name, double value) {
  text t = {0};
  emit_float(&t, value);
  set(f, name, arena_strdup(f->mem, t.data ? t.data : ""));
  text_free(&t);
}

static void set_lines(filler *f, const char *name, text *t) {
  set(f, name, arena_strdup(f->mem, t->data ? t->data : ""));
  text_free(t);
}

static void begin(filler *f, const char *function) {
  f->count = 0;
  set(f, "P_NAME", function);
  set(f, "P_ARGS", arena_printf(f->mem, "%s_args", f->name));
  set(f, "P_OUT_ROWS", f->s->out_rows ? "1" : "0");
}

static bool fill(filler *f, const char *template) {
  const char *source = emit_template(template);
  if (!source) *f->problem = template;
  return source && emit_specialise(source, f->values, f->count, f->out, f->problem);
}

static emit_list list_of(filler *f, const plan_segment *segment, const plan_step *steps, size_t n) {
  return (emit_list){.p = f->p,
                     .stage = f->s,
                     .segment = segment,
                     .steps = steps,
                     .count = n,
                     .fields = f->fields,
                     .mem = f->mem,
                     .dialect = &emit_cpu};
}

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

/* ---- rows ---- */
static bool fill_rows(filler *f) {
  text body = {0};
  emit_list l = list_of(f, NULL, f->s->steps, f->s->step_count);
  begin(f, f->name);
  emit_steps(&l, &body);
  set_lines(f, "P_BODY", &body);
  set(f, "P_COMMENT", "@COMMENT@");
  return fill(f, "templates/cpu/rows.c");
}

/* ---- linear ---- */
static const char *row_of_root(filler *f, const plan_root *r, const char *index) {
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

static void put_dots(filler *f, const plan_segment *g, text *out) {
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

static const char *comment_of_segment(filler *f, const plan_segment *g) {
  text t = {0};
  text_printf(&t, "/* %u columns:", g->columns);
  for (size_t i = 0; i < g->root_count; i++) text_printf(&t, "%s linear", i ? "," : "");
  for (size_t i = 0; i < g->step_count; i++) text_printf(&t, ", %s", ir_op_name(ir_opcode_of(f->p->m, g->steps[i].op)));
  text_puts(&t, " */");
  const char *comment = arena_strdup(f->mem, t.data ? t.data : "");
  text_free(&t);
  return comment;
}

static bool fill_segment(filler *f, size_t number) {
  const plan_segment *g = &f->s->segments[number];
  text dots = {0}, epilogue = {0};
  uint32_t block = plan_block_columns(g), many = block / 2 / g->unit;
  emit_list l = list_of(f, g, g->steps, g->step_count);
  begin(f, arena_printf(f->mem, "%s_%zu", f->name, number));
  set_number(f, "P_COLUMNS", g->columns);
  set_number(f, "P_UNIT", g->unit);
  set_number(f, "P_BLOCK", block);
  set_number(f, "P_UNITS_ONE", block / g->unit);
  set_number(f, "P_UNITS_MANY", many ? many : 1);
  put_dots(f, g, &dots);
  emit_steps(&l, &epilogue);
  set_lines(f, "P_DOTS", &dots);
  set_lines(f, "P_EPILOGUE", &epilogue);
  set(f, "P_COMMENT", comment_of_segment(f, g));
  return fill(f, "templates/cpu/segment.c");
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

static void put_calls(filler *f, text *out) {
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

static bool fill_linear(filler *f) {
  text prologue = {0}, calls = {0};
  for (size_t i = 0; i < f->s->segment_count; i++)
    if (!fill_segment(f, i)) return false;
  emit_list l = list_of(f, NULL, f->s->steps, f->s->step_count);
  begin(f, f->name);
  emit_steps(&l, &prologue);
  put_calls(f, &calls);
  set(f, "P_HAS_PROLOGUE", prologue.size ? "1" : "0");
  set_lines(f, "P_PROLOGUE", &prologue);
  set_lines(f, "P_SEGMENTS", &calls);
  set(f, "P_COMMENT", "@COMMENT@");
  return fill(f, "templates/cpu/linear.c");
}

/* ---- attention ---- */
static uint32_t divisor(uint32_t n, uint32_t at_most) {
  uint32_t d = n < at_most ? n : at_most;
  while (n % d) d--;
  return d;
}

static bool fill_attention(filler *f) {
  const ir_module *m = f->p->m;
  const plan_step *s = &f->s->steps[0];
  const plan_state *keys = &f->p->states[s->operands[1].index - 2], *values = &f->p->states[s->operands[2].index - 2];
  uint32_t value_dim = execution_last(m, s->op), heads = s->width / value_dim;
  bool capped = ir_has_attr(m, s->op, IR_ATTR_CAP);
  begin(f, f->name);
  emit_field(f->mem, f->fields, FIELD_BUFFER, s->operands[0].index);
  emit_field(f->mem, f->fields, FIELD_BUFFER, s->buffer);
  emit_field(f->mem, f->fields, FIELD_STATE, s->operands[1].index - 2);
  emit_field(f->mem, f->fields, FIELD_STATE, s->operands[2].index - 2);
  set_number(f, "P_GROUP", heads / keys->heads);
  set_number(f, "P_KV_HEADS", keys->heads);
  set_number(f, "P_KEY_DIM", keys->head_dim);
  set_number(f, "P_VALUE_DIM", value_dim);
  set_number(f, "P_VALUE_PITCH", values->floats_per_pos / values->heads);
  uint32_t rows = divisor(heads / keys->heads, 4), tiles = values->floats_per_pos / values->heads / 16;
  set_number(f, "P_MIX_ROWS", rows);
  set_number(f, "P_MIX_TILES", divisor(tiles, rows == 1 ? 8 : 4));
  set_float(f, "P_SCALE", ir_attention_scale(m, s->op));
  set_number(f, "P_WINDOW", (uint64_t)ir_attr_int(m, s->op, IR_ATTR_WINDOW, 0));
  set(f, "P_CAPPED", capped ? "1" : "0");
  set_float(f, "P_CAP", ir_attr_float(m, s->op, IR_ATTR_CAP, 0));
  set_number(f, "P_Q_WIDTH", f->p->buffers[s->operands[0].index].width);
  set_number(f, "P_Q_START", s->operands[0].view.start);
  set(f, "P_COMMENT", "@COMMENT@");
  return fill(f, "templates/cpu/attention.c");
}

bool emit_stage(const plan *p, const plan_stage *s, const char *name, emit_fields *fields, text *out,
                const char **out_problem) {
  arena mem = {0};
  filler f = {.p = p, .s = s, .name = name, .fields = fields, .mem = &mem, .out = out, .problem = out_problem};
  bool ok = s->kind == PLAN_ROWS ? fill_rows(&f) : s->kind == PLAN_LINEAR ? fill_linear(&f) : fill_attention(&f);
  arena_free(&mem);
  return ok;
}
