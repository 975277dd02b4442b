#include "compiler/front/front_priv.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

void front_error(const front_ctx *c, diag_code code, ast_span span, const char *format, ...) {
  va_list args;
  va_start(args, format);
  diag_report(c->sink, code, source_loc(c->source, span), "%s", arena_vprintf(c->memory, format, args));
  va_end(args);
}

void front_note(const front_ctx *c, ast_span span, const char *format, ...) {
  va_list args;
  va_start(args, format);
  diag_note(c->sink, source_loc(c->source, span), "%s", arena_vprintf(c->memory, format, args));
  va_end(args);
}

bool front_suggests(const front_ctx *c) { return diag_error_count(c->sink) < 32; }

/* Names are looked up only in a tree that is whole: one wrong bracket would make a page of unknown names. */
static void check(front_model *f, const front_options *options, diag_sink *sink) {
  front_ctx c = {&f->memory, &f->source, &f->model, sink};
  front_resolve(&c);
  front_value *params = ARENA_ARRAY(&f->memory, front_value, f->model.param_count + 1);
  front_params(&c, options, true, params);
  f->param_kinds = ARENA_ARRAY(&f->memory, int, f->model.param_count + 1);
  for (uint32_t i = 0; i < f->model.param_count; i++) f->param_kinds[i] = (int)params[i].kind;
  front_check_train(&c, options, params, &f->train);
}

front_model *front_parse(const char *source, size_t size, const char *file, const front_options *options,
                         diag_sink *sink) {
  front_model *f = calloc(1, sizeof *f);
  if (!f) abort(); /* as the arenas */
  size_t errors = diag_error_count(sink);
  file = diag_intern(sink, file);
  char *copy = arena_alloc(&f->memory, size <= FRONT_MAX_SOURCE ? size + 1 : 1);
  if (size <= FRONT_MAX_SOURCE) memcpy(copy, source, size);
  if (size <= FRONT_MAX_SOURCE) diag_add_source(sink, file, copy, size);
  if (source_init(&f->source, copy, size, file, &f->memory, sink)) {
    ast_parser p = {.memory = &f->memory, .source = &f->source, .sink = sink, .model = &f->model, .offset = 0};
    if (tmodel_read(&p)) check(f, options, sink);
  }
  if (diag_error_count(sink) == errors) return f;
  front_free(f);
  return NULL;
}

void front_free(front_model *f) {
  if (!f) return;
  arena_free(&f->memory);
  free(f);
}

const char *front_tokenizer(const front_model *f) { return f->train.tokenizer; }
const front_train *front_train_section(const front_model *f) { return &f->train; }
