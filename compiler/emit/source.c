/* source.c - the whole source of an image: preludes, one function per distinct stage, tables. */
#include "compiler/emit/emit_priv.h"

#include <stdlib.h>
#include <string.h>

typedef struct sourcer {
  const plan *p;
  emit_functions f;
  text *out;
} sourcer;

static void put_function(const sourcer *s, size_t f) {
  const emit_function *fn = &s->f.list[f];
  text_puts(s->out, "\n");
  emit_fields_struct(&fn->shape, &emit_cpu, arena_printf((arena *)&s->f.mem, "%s_args", fn->name), s->out);
  emit_function_put(&s->f, f, s->out);
  text_printf(s->out, "static const struct %s_args %s_table[] = {\n", fn->name, fn->name);
  for (size_t i = 0; i < s->p->stage_count; i++) {
    if (s->f.function_of[i] != f) continue;
    text_puts(s->out, "    ");
    emit_fields_values(s->p, s->f.fields[i], s->out);
    text_puts(s->out, ",\n");
  }
  text_puts(s->out, "};\n");
}

/* ---- tables ---- */
static void put_tables(const sourcer *s) {
  const plan *p = s->p;
  text *out = s->out;
  text_puts(out, "\nstatic const taper_stage stages[] = {\n");
  for (size_t i = 0; i < p->stage_count; i++) {
    const char *f = s->f.list[s->f.function_of[i]].name;
    text_printf(out, "    {%s, &%s_table[%u], ", f, f, s->f.row_of[i]);
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
    double *freq = ARENA_ARRAY((arena *)&s->f.mem, double, n + 1);
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
  sourcer s = {.p = p,
               .out = out,
               .f = {.p = p, .stage = emit_stage, .dialect = &emit_cpu, .note = {", row by row of ", "_table"}}};
  bool ok = emit_functions_make(&s.f, sink);
  if (ok) {
    text_puts(out, "/* Kernels of model '");
    emit_in_comment(out, ir_module_name(p->m));
    text_printf(out, "', written by taperc for target %s. */\n", p->target);
    ok = put_preludes(out);
    for (size_t f = 0; f < s.f.count && ok; f++) put_function(&s, f);
    put_tables(&s);
    put_rotary(&s);
    put_image(&s, model_hash);
    if (!ok)
      diag_report(sink, DC_EMIT_TEMPLATE, (diag_loc){0},
                  "a template header is missing from this program; build it anew");
  }
  arena_free(&s.f.mem);
  return ok && !out->failed;
}
