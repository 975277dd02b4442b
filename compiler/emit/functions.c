/* functions.c - which stages share a function: equal text, but for the name, is one. */
#include "compiler/emit/emit_priv.h"

#include <stdlib.h>
#include <string.h>

static const char *const kinds[] = {[PLAN_ROWS] = "rows", [PLAN_LINEAR] = "linear", [PLAN_ATTENTION] = "attention"};

static bool same_shape(const emit_fields *a, const emit_fields *b) {
  return memcmp(a->count, b->count, sizeof a->count) == 0;
}

/* Equal text, but for the name, is one function. */
static bool add_stage(emit_functions *s, size_t i, diag_sink *sink) {
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
  arena mem = {0};
  emit_filler filler = {.p = s->p,
                        .s = &s->p->stages[i],
                        .name = "@NAME@",
                        .fields = fields,
                        .mem = &mem,
                        .out = &body,
                        .problem = &problem,
                        .dialect = s->dialect};
  bool ok = s->stage(&filler);
  arena_free(&mem);
  if (!ok || fields->full || body.failed) {
    diag_report(sink, DC_EMIT_TEMPLATE, (diag_loc){0}, "stage '%s' cannot be written: %s%.60s", s->p->stages[i].name,
                fields->full  ? "too many values for one function; use -O1"
                : body.failed ? "memory ran out"
                              : "template: ",
                ok ? "" : problem);
    text_free(&body);
    return false;
  }
  const char *written = body.data ? body.data : "";
  size_t f = 0;
  while (f < s->count && !(strcmp(s->list[f].body, written) == 0 && same_shape(&s->list[f].shape, fields))) f++;
  if (f == s->count) {
    s->list[s->count++] = (emit_function){.body = arena_strdup(&s->mem, written), .shape = *fields, .first = i};
    s->list[f].name = arena_printf(&s->mem, "%s_%zu", s->stem ? s->stem : kinds[s->p->stages[i].kind], f);
  }
  text_free(&body);
  s->function_of[i] = (uint32_t)f, s->row_of[i] = (uint32_t)s->list[f].count++;
  s->fields[i] = fields;
  return true;
}

static void put_stage_numbers(const emit_functions *s, size_t f, text *out) {
  size_t shown = 0, n = s->list[f].count;
  text_printf(out, "Stage%s ", n > 1 ? "s" : "");
  for (size_t i = 0; i < s->p->stage_count; i++) {
    if (s->function_of[i] != f) continue;
    if (shown < 6 || shown == n - 1) text_printf(out, "%s%zu", shown ? ", " : "", i);
    if (shown == 6 && n > 7) text_puts(out, ", ...");
    shown++;
  }
  text_printf(out, " of %zu (%zu%s): '", s->p->stage_count, n,
              s->note[0] ? arena_printf((arena *)&s->mem, "%s%s%s", s->note[0], s->list[f].name, s->note[1]) : "");
  emit_in_comment(out, s->p->stages[s->list[f].first].name);
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

static void put_op(const emit_functions *s, ir_value v, text *out) {
  text line = {0};
  ir_print_op(s->p->m, v, &line);
  size_t n = line.size && line.data[line.size - 1] == '\n' ? line.size - 1 : line.size;
  char *copy = n ? strndup(line.data, n < 160 ? n : 160) : NULL;
  text_puts(out, "\n     ");
  if (copy) emit_in_comment(out, copy);
  free(copy);
  text_free(&line);
}

static void put_comment(const emit_functions *s, size_t f, text *out) {
  const plan_stage *first = &s->p->stages[s->list[f].first];
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

void emit_function_put(const emit_functions *s, size_t f, text *out) {
  const emit_function *fn = &s->list[f];
  for (const char *b = fn->body, *at; *b; b = at) {
    at = strchr(b, '@');
    text_put(out, b, at ? (size_t)(at - b) : strlen(b));
    if (!at) break;
    if (strncmp(at, "@NAME@", 6) == 0)
      text_puts(out, fn->name), at += 6;
    else if (strncmp(at, "@COMMENT@\n", 10) == 0)
      put_comment(s, f, out), at += 10;
    else
      text_put(out, at, 1), at += 1;
  }
}

bool emit_functions_make(emit_functions *s, diag_sink *sink) {
  size_t n = s->p->stage_count + 1;
  s->list = ARENA_ARRAY(&s->mem, emit_function, n), s->fields = ARENA_ARRAY(&s->mem, const emit_fields *, n);
  s->function_of = ARENA_ARRAY(&s->mem, uint32_t, n), s->row_of = ARENA_ARRAY(&s->mem, uint32_t, n);
  bool ok = true;
  for (size_t i = 0; i < s->p->stage_count && ok; i++) ok = add_stage(s, i, sink);
  return ok;
}
