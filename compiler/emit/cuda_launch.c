/* cuda_launch.c - the launch table: how the runtime runs the kernels (docs/cuda.md). */
#include "compiler/analysis/execution.h"
#include "compiler/emit/cuda_priv.h"

#include <string.h>

typedef struct table {
  const plan *p;
  const cuda_functions *f;
  uint32_t *before, *after; /* [function] its kernel */
  uint32_t gemm, sample;    /* kernels */
  arena mem;
  text *out;
} table;

static void put_string(text *out, const char *s) { text_put_quoted(out, s, strlen(s), true); }

static void put_key(const table *t, const char *key) { text_printf(t->out, "\"%s\": ", key); }

static void put_number(const table *t, const char *key, uint64_t value) {
  put_key(t, key);
  text_printf(t->out, "%llu, ", (unsigned long long)value);
}

/* Begins item i of a list. */
static void put_item(const table *t, size_t i) { text_puts(t->out, i ? ",\n  {" : "\n  {"); }

static void put_head(const table *t) {
  const plan *p = t->p;
  uint64_t floats = 0, heads = 0;
  for (size_t i = 0; i < p->stage_count; i++) {
    if (p->stages[i].kind != PLAN_ATTENTION) continue;
    const plan_step *s = &p->stages[i].steps[0];
    uint64_t kv_heads = p->states[s->operands[1].index - 2].heads, dim = execution_last(p->m, s->op);
    uint64_t need = s->width / dim / kv_heads * (dim + 2);
    if (kv_heads > heads) heads = kv_heads;
    if (need > floats) floats = need;
  }
  text_puts(t->out, "{\"abi\": 1, ");
  put_number(t, "vocab", p->vocab);
  put_number(t, "context", p->context);
  put_number(t, "width", p->width);
  put_number(t, "max_batch", 8);
  text_printf(t->out, "\"dtype\": \"%s\",\n", ir_dtype_name(plan_dtype(p)));
  put_number(t, "row_floats", cuda_row_floats(p));
  put_number(t, "logits", p->buffers[p->logits].offset);
  put_number(t, "split_floats", floats);
  put_number(t, "key_heads", heads);
  text_puts(t->out, "\"pdl\": true,\n");
}

static void put_kernel(const table *t, const char *name, uint32_t threads, uint32_t *count) {
  put_item(t, (*count)++);
  text_printf(t->out, "\"name\": \"%s\", \"threads\": %u, \"shared\": 0}", name, threads);
}

/* Kernels of functions that are written, numbered from *count on. */
static uint32_t *put_functions(table *t, const emit_functions *f, uint32_t threads, uint32_t *count) {
  uint32_t *number = ARENA_ARRAY(&t->mem, uint32_t, f->count + 1);
  for (size_t i = 0; i < f->count; i++) {
    number[i] = *count;
    if (*f->list[i].body)
      put_kernel(t, f->list[i].name,
                 threads ? threads : cuda_launch_of(t->p, &t->p->stages[f->list[i].first], &t->mem).threads, count);
  }
  return number;
}

static void put_kernels(table *t) {
  uint32_t n = 0;
  text_puts(t->out, "\"kernels\": [");
  put_functions(t, &t->f->stages, 0, &n);
  t->before = put_functions(t, &t->f->before, 32, &n);
  t->after = put_functions(t, &t->f->after, 0, &n);
  t->gemm = n;
  put_kernel(t, "gemm", cuda_gemm_threads(t->p), &n);
  t->sample = n;
  put_kernel(t, "sample", CUDA_SAMPLE_THREADS, &n);
  text_puts(t->out, "],\n");
}

/* One slot: what a member of the argument struct is filled with. */
static void put_slot(const table *t, emit_field_kind kind, uint32_t index) {
  static const char letters[FIELD_KINDS] = {
      [FIELD_BUFFER] = 'b', [FIELD_WEIGHT] = 'w', [FIELD_STATE] = 's', [FIELD_ROTARY] = 't', [FIELD_GATE] = 'g'};
  text_printf(t->out, "\"%c", letters[kind]);
  if (kind == FIELD_GATE)
    text_put_double(t->out, ir_attr_floats(t->p->m, (ir_value){index}, IR_ATTR_VALUE, &(size_t){0})[0]);
  else
    text_printf(t->out, "%llu",
                (unsigned long long)(kind == FIELD_BUFFER ? t->p->buffers[index].offset : (uint64_t)index));
  text_puts(t->out, "\"");
}

static void put_args(const table *t, const emit_fields *f) {
  const char *comma = "";
  text_puts(t->out, "\"args\": [");
  for (int k = 0; k < FIELD_KINDS; k++)
    for (uint32_t i = 0; i < f->count[k]; i++, comma = ", ") {
      text_puts(t->out, comma);
      put_slot(t, (emit_field_kind)k, f->index[k][i]);
    }
  text_puts(t->out, "]");
}

static void put_call(const table *t, uint32_t kernel, const cuda_launch *l, const emit_fields *f) {
  text_printf(t->out, "\"kernel\": %u, \"grid\": [%s, %s, %s], ", kernel, l->grid[0], l->grid[1], l->grid[2]);
  put_args(t, f);
}

static void put_product(const table *t, const cuda_product *q, size_t i) {
  const plan_root *r = q->root;
  text_printf(t->out, "%s\n    {\"weight\": %u, \"row0\": 0, \"rows\": %u, ", i ? "," : "", r->weight,
              t->p->stages[q->stage].segments[q->segment].columns);
  put_number(t, "x", q->x);
  put_number(t, "x_width", q->x_pitch);
  put_number(t, "x_start", q->x_start);
  text_printf(t->out, "\"x_half\": %s, ", t->p->weights[r->weight].dtype == IR_F32 ? "false" : "true");
  put_number(t, "y", q->y);
  text_printf(t->out, "\"y_width\": %u}", q->y_pitch);
}

static void put_wide(table *t, size_t stage) {
  const plan_stage *s = &t->p->stages[stage];
  cuda_wide w = cuda_wide_of(t->p, s, &t->mem);
  text_puts(t->out, "\"wide\": ");
  if (!w.count) {
    text_puts(t->out, "null}");
    return;
  }
  text_puts(t->out, w.has_before ? "{\"before\": {" : "{\"before\": null");
  const emit_functions *f = &t->f->before;
  cuda_launch rows = {{s->out_rows ? "\"out_rows\"" : "\"rows\"", "1", "1"}, 32},
              blocks = cuda_launch_after(t->p, s, &t->mem);
  if (w.has_before) put_call(t, t->before[f->function_of[stage]], &rows, f->fields[stage]), text_puts(t->out, "}");
  text_puts(t->out, ",\n    \"products\": [");
  for (size_t i = 0; i < w.count; i++) put_product(t, &w.products[i], i);
  text_puts(t->out, w.has_after ? "],\n    \"after\": {" : "], \"after\": null");
  f = &t->f->after;
  if (w.has_after) put_call(t, t->after[f->function_of[stage]], &blocks, f->fields[stage]), text_puts(t->out, "}");
  text_puts(t->out, "}}");
}

static void put_stages(table *t) {
  text_puts(t->out, "\"stages\": [");
  for (size_t i = 0; i < t->p->stage_count; i++) {
    const plan_stage *s = &t->p->stages[i];
    cuda_launch l = cuda_launch_of(t->p, s, &t->mem);
    put_item(t, i);
    put_key(t, "name");
    put_string(t->out, s->name);
    text_puts(t->out, ", ");
    put_call(t, t->f->stages.function_of[i], &l, t->f->stages.fields[i]);
    text_printf(t->out, ", \"probes\": %s, ", s->probes ? "true" : "false");
    put_wide(t, i);
  }
  text_puts(t->out, "],\n");
}

/* Kernels that are no stage. */
static void put_others(const table *t) {
  text_printf(t->out, "\"gemm\": {\"kernel\": %u, \"tile_m\": %u, \"tile_n\": %u},\n", t->gemm, CUDA_GEMM_TILE,
              CUDA_GEMM_TILE);
  const plan_probe *q = cuda_scale_of(t->p);
  text_printf(t->out, "\"sample\": {\"kernel\": %u, \"threads\": %u, \"scale\": %s", t->sample, CUDA_SAMPLE_THREADS,
              q ? "{" : "null},\n");
  if (!q) return;
  put_number(t, "buffer", t->p->buffers[q->buffer].offset);
  put_number(t, "width", t->p->buffers[q->buffer].width);
  if (q->inv_scale == PLAN_NONE)
    text_puts(t->out, "\"inv_scale\": null}},\n");
  else
    text_printf(t->out, "\"inv_scale\": %u}},\n", q->inv_scale);
}

static void put_weights(const table *t) {
  text_puts(t->out, "\"weights\": [");
  for (size_t i = 0; i < t->p->weight_count; i++) {
    const plan_weight *w = &t->p->weights[i];
    uint32_t pack = 16u / (uint32_t)ir_dtype_size(w->dtype);
    put_item(t, i);
    put_key(t, "tensor");
    put_string(t->out, t->p->tensors[w->tensor].name);
    text_puts(t->out, ", ");
    put_number(t, "row0", w->row0);
    put_number(t, "rows", w->rows);
    put_number(t, "cols", w->cols);
    put_number(t, "pitch", ((uint64_t)w->cols + pack - 1) / pack * pack);
    text_printf(t->out, "\"dtype\": \"%s\", \"read_rows\": %u}", ir_dtype_name(w->dtype), w->read_rows);
  }
  text_puts(t->out, "],\n");
}

static void put_states(const table *t) {
  text_puts(t->out, "\"states\": [");
  for (size_t i = 0; i < t->p->state_count; i++) {
    const plan_state *s = &t->p->states[i];
    put_item(t, i);
    put_key(t, "name");
    put_string(t->out, ir_attr_string(t->p->m, s->arg, IR_ATTR_NAME, "state"));
    text_printf(t->out, ", \"heads\": %u, \"dim\": %u}", s->heads, s->head_dim);
  }
  text_puts(t->out, "],\n");
}

static void put_rotary(table *t) {
  text_puts(t->out, "\"rotary\": [");
  for (size_t i = 0; i < t->p->rotary_count; i++) {
    uint32_t n = t->p->rotary[i].pairs;
    double *freq = ARENA_ARRAY(&t->mem, double, n + 1);
    ir_rope_inv_freq(t->p->m, t->p->rotary[i].op, freq, n);
    put_item(t, i);
    put_number(t, "pairs", n);
    text_puts(t->out, "\"magnitude\": 1, \"inv_freq\": [");
    for (uint32_t j = 0; j < n; j++) {
      text_puts(t->out, j ? ", " : "");
      text_put_double(t->out, freq[j]);
    }
    text_puts(t->out, "]}");
  }
  text_puts(t->out, "],\n");
}

static void put_probes(const table *t) {
  text_puts(t->out, "\"probes\": [");
  for (size_t i = 0; i < t->p->probe_count; i++) {
    const plan_probe *q = &t->p->probes[i];
    const plan_buffer *b = &t->p->buffers[q->buffer];
    put_item(t, i);
    put_key(t, "name");
    put_string(t->out, ir_attr_string(t->p->m, q->op, IR_ATTR_NAME, ""));
    text_puts(t->out, ", ");
    put_number(t, "stage", q->stage);
    put_number(t, "buffer", b->offset);
    put_number(t, "width", b->width);
    if (q->inv_scale == PLAN_NONE)
      text_puts(t->out, "\"inv_scale\": null}");
    else
      text_printf(t->out, "\"inv_scale\": %u}", q->inv_scale);
  }
  text_puts(t->out, "]}\n");
}

void cuda_put_launch(const plan *p, const cuda_functions *f, text *out) {
  table t = {.p = p, .f = f, .out = out};
  put_head(&t);
  put_kernels(&t);
  put_stages(&t);
  put_others(&t);
  put_weights(&t);
  put_states(&t);
  put_rotary(&t);
  put_probes(&t);
  arena_free(&t.mem);
}
