/* cuda_launch.c - the launch table: how the runtime runs the kernels (docs/cuda.md). */
#include "compiler/analysis/execution.h"
#include "compiler/emit/cuda_priv.h"

#include <string.h>

typedef struct table {
  const plan *p;
  const emit_functions *f;
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
  put_number(t, "row_floats", p->memory.row_floats);
  put_number(t, "logits", p->buffers[p->logits].offset);
  put_number(t, "split_floats", floats);
  put_number(t, "key_heads", heads);
  text_puts(t->out, "\"pdl\": true,\n");
}

static void put_kernels(table *t) {
  text_puts(t->out, "\"kernels\": [");
  for (size_t i = 0; i < t->f->count; i++) {
    const emit_function *f = &t->f->list[i];
    put_item(t, i);
    text_printf(t->out, "\"name\": \"%s\", \"threads\": %u, \"shared\": 0}", f->name,
                cuda_launch_of(t->p, &t->p->stages[f->first], &t->mem).threads);
  }
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

static void put_stages(table *t) {
  text_puts(t->out, "\"stages\": [");
  for (size_t i = 0; i < t->p->stage_count; i++) {
    const plan_stage *s = &t->p->stages[i];
    cuda_launch l = cuda_launch_of(t->p, s, &t->mem);
    put_item(t, i);
    put_key(t, "name");
    put_string(t->out, s->name);
    text_printf(t->out, ", \"kernel\": %u, \"grid\": [%s, %s, %s], ", t->f->function_of[i], l.grid[0], l.grid[1],
                l.grid[2]);
    put_args(t, t->f->fields[i]);
    text_printf(t->out, ", \"probes\": %s, \"wide\": null}", s->probes ? "true" : "false");
  }
  text_puts(t->out, "],\n\"gemm\": null,\n\"sample\": null,\n");
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

void cuda_put_launch(const plan *p, const emit_functions *f, text *out) {
  table t = {.p = p, .f = f, .out = out};
  put_head(&t);
  put_kernels(&t);
  put_stages(&t);
  put_weights(&t);
  put_states(&t);
  put_rotary(&t);
  put_probes(&t);
  arena_free(&t.mem);
}
