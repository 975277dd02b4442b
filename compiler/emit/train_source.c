/* train_source.c - the whole source of a training image: headers, one function per distinct stage, tables. */
#include "compiler/emit/train_priv.h"
#include "runtime/abi/train_abi.h"

#include <string.h>

typedef struct function {
  char *body;
  emit_fields shape;
  const char *name;
  const char *title; /* of its first stage */
  size_t count;
  text rows; /* its table */
} function;

typedef struct sourcer {
  train_emitter e;
  const train_plan *p;
  function *functions;
  size_t count;
  uint32_t *function_of, *row_of; /* [stage, counted through all programs] */
  text *out;
  diag_sink *sink;
} sourcer;

static const char *const kinds[] = {
    [TRAIN_ROWS] = "rows",      [TRAIN_ATTENTION] = "attention", [TRAIN_ATTENTION_BACK] = "attention_back",
    [TRAIN_WEIGHTS] = "weight", [TRAIN_EMBED] = "embed",         [TRAIN_SUMS] = "sums",
    [TRAIN_SMALL] = "small",
};

/* ---- functions ---- */
static uint64_t value_of_field(const train_plan *p, int kind, uint32_t i) {
  if (kind == FIELD_PARTIAL) return p->slots[i].partial;
  return kind == FIELD_BUFFER || kind == FIELD_CHUNK || kind == FIELD_FIXED ? p->slots[i].offset : i;
}

static void put_values(const train_plan *p, const emit_fields *f, text *out) {
  const char *comma = "";
  text_puts(out, "    {");
  for (int k = 0; k < FIELD_KINDS; k++)
    for (uint32_t i = 0; i < f->count[k]; i++, comma = ", ")
      text_printf(out, "%s%llu", comma, (unsigned long long)value_of_field(p, k, f->index[k][i]));
  text_puts(out, *comma ? "},\n" : "0},\n");
}

static bool fail(sourcer *s, const train_stage *st, const char *why) {
  diag_report(s->sink, DC_EMIT_TEMPLATE, (diag_loc){0}, "stage '%s' of training cannot be written: %s", st->name, why);
  return false;
}

static bool add_stage(sourcer *s, size_t number, const train_stage *st) {
  text body = {0};
  emit_fields *fields = ARENA_NEW(&s->e.mem, emit_fields);
  train_list l = {.e = &s->e, .stage = st, .fields = fields};
  train_stage_body(&l, &body);
  ir_value unknown = s->e.without_kernel;
  if (unknown.id) {
    text_free(&body);
    diag_report(s->sink, DC_EMIT_TEMPLATE, ir_loc_of(s->p->m, unknown),
                "op '%s' has no kernel for training; give it a line in templates/kernels.def",
                ir_op_name(ir_opcode_of(s->p->m, unknown)));
    return false;
  }
  if (fields->full || body.failed || !body.data) {
    text_free(&body);
    return fail(s, st, fields->full ? "too many values for one function" : "memory ran out");
  }
  size_t f = 0;
  while (f < s->count && !(strcmp(s->functions[f].body, body.data) == 0 &&
                           memcmp(s->functions[f].shape.count, fields->count, sizeof fields->count) == 0))
    f++;
  if (f == s->count) {
    s->functions[s->count++] =
        (function){.body = arena_strdup(&s->e.mem, body.data), .shape = *fields, .title = st->name};
    s->functions[f].name = arena_printf(&s->e.mem, "%s_%zu", kinds[st->kind], f);
  }
  text_free(&body);
  s->function_of[number] = (uint32_t)f, s->row_of[number] = (uint32_t)s->functions[f].count++;
  put_values(s->p, fields, &s->functions[f].rows);
  return true;
}

static bool add_stages(sourcer *s) {
  size_t total = 0, number = 0;
  for (size_t i = 0; i < s->p->program_count; i++) total += s->p->programs[i].stage_count;
  s->functions = ARENA_ARRAY(&s->e.mem, function, total + 1);
  s->function_of = ARENA_ARRAY(&s->e.mem, uint32_t, total + 1), s->row_of = ARENA_ARRAY(&s->e.mem, uint32_t, total + 1);
  for (size_t i = 0; i < s->p->program_count; i++)
    for (size_t j = 0; j < s->p->programs[i].stage_count; j++)
      if (!add_stage(s, number++, &s->p->programs[i].stages[j])) return false;
  return true;
}

static void put_function(const sourcer *s, const function *f) {
  text *out = s->out;
  text_puts(out, "\n");
  emit_fields_struct(&f->shape, &emit_cpu, arena_printf((arena *)&s->e.mem, "%s_args", f->name), out);
  text_printf(out, "/* %zu stage%s: '", f->count, f->count == 1 ? "" : "s, as ");
  emit_in_comment(out, f->title);
  text_printf(out, "' */\nSTAGE void %s(const taper_train_ctx *c, const void *args) {\n", f->name);
  text_printf(out, "  const struct %s_args *a = args;\n  (void)a;\n", f->name);
  for (const char *b = f->body, *end; *b; b = end + 1) {
    end = strchr(b, '\n');
    text_puts(out, "  ");
    text_put(out, b, (size_t)(end - b) + 1);
  }
  text_printf(out, "}\nstatic const struct %s_args %s_table[] = {\n%s};\n", f->name, f->name, f->rows.data);
}

/* ---- what stages read by address ---- */
static void put_consts(const sourcer *s) {
  const ir_module *m = s->p->m;
  for (size_t i = 0; i < s->e.const_count; i++) {
    size_t n = 0;
    int64_t elements = ir_elements(ir_type_of(m, s->e.consts[i]));
    const double *data = ir_attr_floats(m, s->e.consts[i], IR_ATTR_VALUE, &n);
    text_printf(s->out, "static const float const_%zu[%lld] = {", i, (long long)elements);
    if (n == 1) text_printf(s->out, "[0 ... %lld] = ", (long long)elements - 1);
    for (size_t j = 0; j < n; j++) {
      if (j) text_puts(s->out, ", ");
      emit_float(s->out, data[j]);
    }
    text_puts(s->out, "};\n");
  }
  text_puts(s->out, "static const float *const consts[] = {");
  for (size_t i = 0; i < s->e.const_count; i++) text_printf(s->out, "const_%zu, ", i);
  text_puts(s->out, "0};\n");
}

static void put_programs(const sourcer *s) {
  size_t number = 0;
  text_puts(s->out, "\nstatic const taper_train_stage stages_pack[] = {{pack_all, 0, \"pack\", 0}};\n");
  for (size_t i = 0; i < s->p->program_count; i++) {
    const train_program *g = &s->p->programs[i];
    text_printf(s->out, "static const taper_train_stage stages_%u[] = {\n", g->id);
    for (size_t j = 0; j < g->stage_count; j++, number++) {
      const char *f = s->functions[s->function_of[number]].name;
      text_printf(s->out, "    {%s, &%s_table[%u], ", f, f, s->row_of[number]);
      emit_string(s->out, g->stages[j].name);
      text_puts(s->out, g->stages[j].chunked ? ", TAPER_TRAIN_CHUNKED},\n" : ", 0},\n");
    }
    text_puts(s->out, "};\n");
  }
}

bool emit_train_source(const train_plan *p, const char *model_hash, text *out, diag_sink *sink) {
  uint32_t n = ir_value_limit(p->m);
  sourcer s = {.p = p, .out = out, .sink = sink, .e = {.p = p}};
  arena *mem = &s.e.mem;
  s.e.consts = ARENA_ARRAY(mem, ir_value, n), s.e.run = ARENA_ARRAY(mem, uint32_t, n);
  s.e.at = ARENA_ARRAY(mem, uint32_t, n), s.e.listed = ARENA_ARRAY(mem, bool, n);
  s.e.in_memory = ARENA_ARRAY(mem, bool, n);
  bool ok = add_stages(&s);
  if (ok) {
    text_puts(out, "/* Training of model '");
    emit_in_comment(out, ir_module_name(p->m));
    text_puts(out, "', written by taperc for target cpu. */\n");
    ok = train_put_headers(out);
    put_consts(&s);
    for (size_t f = 0; f < s.count && ok; f++) put_function(&s, &s.functions[f]);
    train_put_packs(&s.e, out);
    put_programs(&s);
    train_put_tables(&s.e, model_hash, out);
    if (!ok)
      diag_report(sink, DC_EMIT_TEMPLATE, (diag_loc){0},
                  "a template header is missing from this program; build it anew");
  }
  for (size_t f = 0; f < s.count; f++) text_free(&s.functions[f].rows);
  arena_free(mem);
  return ok && !out->failed;
}
