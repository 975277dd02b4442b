/* source.c - the whole source of an image: preludes, one function per distinct stage, tables. */
#include "compiler/emit/emit_priv.h"

#include <stdlib.h>
#include <string.h>

typedef struct function {
  char *body;        /* with @NAME@ and @COMMENT@ */
  emit_fields shape; /* names of its struct's members */
  const char *name;
  size_t first, count; /* stages */
  text rows;           /* its table */
} function;

typedef struct sourcer {
  const plan *p;
  arena mem;
  function *functions;
  size_t count;
  uint32_t *function_of, *row_of; /* [stage] */
  text *out;
} sourcer;

static const char *const kinds[] = {[PLAN_ROWS] = "rows", [PLAN_LINEAR] = "linear", [PLAN_ATTENTION] = "attention"};

static bool same_shape(const emit_fields *a, const emit_fields *b) {
  return memcmp(a->count, b->count, sizeof a->count) == 0;
}

/* Equal text, but for the name, is one function. */
static bool add_stage(sourcer *s, size_t i, diag_sink *sink) {
  ir_value unknown = emit_without_kernel(s->p, &s->p->stages[i]);
  if (unknown.id) {
    diag_report(sink, DC_EMIT_TEMPLATE, ir_loc_of(s->p->m, unknown),
                "op '%s' has no kernel for target %s; give it a line in templates/kernels.def",
                ir_op_name(ir_opcode_of(s->p->m, unknown)), s->p->target);
    return false;
  }
  text body = {0};
  const char *problem = "";
  emit_fields *fields = ARENA_NEW(&s->mem, emit_fields);
  bool ok = emit_stage(s->p, &s->p->stages[i], "@NAME@", fields, &body, &problem);
  if (!ok || fields->full || body.failed) {
    diag_report(sink, DC_EMIT_TEMPLATE, (diag_loc){0}, "stage '%s' cannot be written: %s%.60s", s->p->stages[i].name,
                fields->full  ? "too many values for one function; use -O1"
                : body.failed ? "memory ran out"
                              : "template: ",
                ok ? "" : problem);
    text_free(&body);
    return false;
  }
  size_t f = 0;
  while (f < s->count && !(strcmp(s->functions[f].body, body.data) == 0 && same_shape(&s->functions[f].shape, fields)))
    f++;
  if (f == s->count) {
    s->functions[s->count++] = (function){.body = arena_strdup(&s->mem, body.data), .shape = *fields, .first = i};
    s->functions[f].name = arena_printf(&s->mem, "%s_%zu", kinds[s->p->stages[i].kind], f);
  }
  text_free(&body);
  s->function_of[i] = (uint32_t)f, s->row_of[i] = (uint32_t)s->functions[f].count++;
  text_puts(&s->functions[f].rows, "    ");
  emit_fields_values(s->p, fields, &s->functions[f].rows);
  text_puts(&s->functions[f].rows, ",\n");
  return true;
}

static void put_stage_numbers(const sourcer *s, size_t f, text *out) {
  size_t shown = 0, n = s->functions[f].count;
  text_printf(out, "Stage%s ", n > 1 ? "s" : "");
  for (size_t i = 0; i < s->p->stage_count; i++) {
    if (s->function_of[i] != f) continue;
    if (shown < 6 || shown == n - 1) text_printf(out, "%s%zu", shown ? ", " : "", i);
    if (shown == 6 && n > 7) text_puts(out, ", ...");
    shown++;
  }
  text_printf(out, " of %zu (%zu, row by row of %s_table): '", s->p->stage_count, n, s->functions[f].name);
  emit_in_comment(out, s->p->stages[s->functions[f].first].name);
  text_puts(out, "'");
}

typedef struct op_list {
  ir_value ops[64];
  size_t count;
} op_list;

static void note_op(op_list *l, ir_value v) {
  for (size_t i = 0; i < l->count; i++)
    if (ir_same(l->ops[i], v)) return;
  if (l->count < 64) l->ops[l->count++] = v;
}

static void put_op(const sourcer *s, ir_value v, text *out) {
  text line = {0};
  ir_print_op(s->p->m, v, &line);
  size_t n = line.size && line.data[line.size - 1] == '\n' ? line.size - 1 : line.size;
  char *copy = n ? strndup(line.data, n < 160 ? n : 160) : NULL;
  text_puts(out, "\n     ");
  if (copy) emit_in_comment(out, copy);
  free(copy);
  text_free(&line);
}

static void put_comment(const sourcer *s, size_t f, text *out) {
  const plan_stage *first = &s->p->stages[s->functions[f].first];
  op_list l = {.count = 0};
  for (size_t i = 0; i < first->step_count; i++) note_op(&l, first->steps[i].op);
  for (size_t g = 0; g < first->segment_count; g++) {
    for (size_t i = 0; i < first->segments[g].root_count; i++) note_op(&l, first->segments[g].roots[i].linear);
    for (size_t i = 0; i < first->segments[g].step_count; i++) note_op(&l, first->segments[g].steps[i].op);
  }
  text_puts(out, "/* ");
  put_stage_numbers(s, f, out);
  for (size_t i = 0; i < l.count; i++) put_op(s, l.ops[i], out);
  text_puts(out, " */\n");
}

static void put_function(const sourcer *s, size_t f) {
  const function *fn = &s->functions[f];
  text_puts(s->out, "\n");
  emit_fields_struct(&fn->shape, arena_printf((arena *)&s->mem, "%s_args", fn->name), s->out);
  for (const char *b = fn->body, *at; *b; b = at) {
    at = strchr(b, '@');
    text_put(s->out, b, at ? (size_t)(at - b) : strlen(b));
    if (!at) break;
    if (strncmp(at, "@NAME@", 6) == 0)
      text_puts(s->out, fn->name), at += 6;
    else if (strncmp(at, "@COMMENT@\n", 10) == 0)
      put_comment(s, f, s->out), at += 10;
    else
      text_put(s->out, at, 1), at += 1;
  }
  text_printf(s->out, "static const struct %s_args %s_table[] = {\n%s};\n", fn->name, fn->name,
              fn->rows.data ? fn->rows.data : "");
}

/* ---- tables ---- */
static void put_tables(const sourcer *s) {
  const plan *p = s->p;
  text *out = s->out;
  text_puts(out, "\nstatic const taper_stage stages[] = {\n");
  for (size_t i = 0; i < p->stage_count; i++) {
    const char *f = s->functions[s->function_of[i]].name;
    text_printf(out, "    {%s, &%s_table[%u], ", f, f, s->row_of[i]);
    emit_string(out, p->stages[i].name);
    text_puts(out, p->stages[i].probes ? ", TAPER_STAGE_PROBES},\n" : ", 0},\n");
  }
  text_puts(out, "};\nstatic const taper_weight_desc weights[] = {\n");
  for (size_t i = 0; i < p->weight_count; i++) {
    const plan_weight *w = &p->weights[i];
    text_puts(out, "    {");
    emit_string(out, p->tensors[w->tensor].name);
    text_printf(out, ", %s, %u, %u, %u, %u},\n", w->tiles ? "TAPER_PACK_TILES" : "TAPER_PACK_ROWS", w->row0, w->rows,
                w->cols, w->read_rows);
  }
  text_puts(out, p->weight_count ? "};\n" : "    {0}};\n");
  text_puts(out, "static const taper_state_desc states[] = {\n");
  for (size_t i = 0; i < p->state_count; i++) {
    text_puts(out, "    {");
    emit_string(out, ir_attr_string(p->m, p->states[i].arg, IR_ATTR_NAME, "state"));
    text_printf(out, ", %u},\n", p->states[i].floats_per_pos);
  }
  text_puts(out, p->state_count ? "};\n" : "    {0}};\n");
}

static void put_rotary(const sourcer *s) {
  const plan *p = s->p;
  for (size_t i = 0; i < p->rotary_count; i++) {
    uint32_t n = p->rotary[i].pairs;
    double *freq = ARENA_ARRAY((arena *)&s->mem, double, n + 1);
    ir_rope_inv_freq(p->m, p->rotary[i].op, freq, n);
    text_printf(s->out, "static const double inv_freq_%zu[] = {", i);
    for (uint32_t j = 0; j < n; j++) {
      text_puts(s->out, j % 4 ? ", " : j ? ",\n    " : "\n    ");
      text_put_hex(s->out, freq[j]);
    }
    text_puts(s->out, "};\n");
  }
  text_puts(s->out, "static const taper_rotary_desc rotary[] = {\n");
  for (size_t i = 0; i < p->rotary_count; i++)
    text_printf(s->out, "    {%u, inv_freq_%zu, 1.0},\n", p->rotary[i].pairs, i);
  text_puts(s->out, p->rotary_count ? "};\n" : "    {0}};\n");
  text_puts(s->out, "static const taper_probe_desc probes[] = {\n");
  for (size_t i = 0; i < p->probe_count; i++) {
    const plan_probe *q = &p->probes[i];
    const plan_buffer *b = &p->buffers[q->buffer];
    text_puts(s->out, "    {");
    emit_string(s->out, ir_attr_string(p->m, q->op, IR_ATTR_NAME, ""));
    text_printf(s->out, ", %u, %llu, %u, ", q->stage, (unsigned long long)b->offset, b->width);
    if (q->inv_scale == PLAN_NONE)
      text_puts(s->out, "TAPER_ABI_NONE},\n");
    else
      text_printf(s->out, "%u},\n", q->inv_scale);
  }
  text_puts(s->out, p->probe_count ? "};\n" : "    {0}};\n");
}

static void put_image(const sourcer *s, const char *model_hash) {
  const plan *p = s->p;
  const plan_memory *m = &p->memory;
  text_puts(s->out, "extern const taper_image image __asm__(\"taper_image\") "
                    "__attribute__((visibility(\"default\")));\nconst taper_image image = {\n");
  text_puts(s->out, "    TAPER_ABI_MAGIC, TAPER_ABI_VERSION, sizeof(taper_image),\n");
  text_printf(s->out, "    %u, %u, %u, 8, /* vocab, context, width, max_batch */\n", p->vocab, p->context, p->width);
  text_printf(s->out, "    %zu, %zu, %zu, %zu, %zu, /* stages, weights, states, rotary tables, probes */\n",
              p->stage_count, p->weight_count, p->state_count, p->rotary_count, p->probe_count);
  text_puts(s->out, "    stages, weights, states, rotary, probes,\n");
  text_printf(s->out, "    %llu, %llu, %llu, %llu, /* floats: a row; a worker's scratch, a position, a row */\n",
              (unsigned long long)m->row_floats, (unsigned long long)m->scratch_floats,
              (unsigned long long)m->scratch_per_pos, (unsigned long long)m->scratch_per_row);
  text_printf(s->out, "    %llu, /* logits */\n    ", (unsigned long long)p->buffers[p->logits].offset);
  emit_string(s->out, model_hash);
  text_puts(s->out, "};\n");
}

static bool put_preludes(text *out) {
  static const char *const names[] = {"runtime/abi/abi.h", "templates/cpu/prelude.h", "templates/cpu/math.h",
                                      "templates/cpu/dot.h", "templates/cpu/axis.h"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    const char *t = emit_template(names[i]);
    if (!t) return false;
    text_puts(out, "\n");
    emit_header(t, out);
  }
  return true;
}

bool emit_source(const plan *p, const char *model_hash, text *out, diag_sink *sink) {
  sourcer s = {.p = p, .out = out};
  s.functions = ARENA_ARRAY(&s.mem, function, p->stage_count + 1);
  s.function_of = ARENA_ARRAY(&s.mem, uint32_t, p->stage_count + 1),
  s.row_of = ARENA_ARRAY(&s.mem, uint32_t, p->stage_count + 1);
  bool ok = true;
  for (size_t i = 0; i < p->stage_count && ok; i++) ok = add_stage(&s, i, sink);
  if (ok) {
    text_puts(out, "/* Kernels of model '");
    emit_in_comment(out, ir_module_name(p->m));
    text_printf(out, "', written by taperc for target %s. */\n", p->target);
    ok = put_preludes(out);
    for (size_t f = 0; f < s.count && ok; f++) put_function(&s, f);
    put_tables(&s);
    put_rotary(&s);
    put_image(&s, model_hash);
    if (!ok)
      diag_report(sink, DC_EMIT_TEMPLATE, (diag_loc){0},
                  "a template header is missing from this program; build it anew");
  }
  for (size_t f = 0; f < s.count; f++) text_free(&s.functions[f].rows);
  arena_free(&s.mem);
  return ok && !out->failed;
}
