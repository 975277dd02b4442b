/* variables.c - declarations of variables: where they lie and what they begin with. */
#include "cuda/sim/parse.h"
#include <stdlib.h>
#include <string.h>

typedef struct declaration {
  const token *name;
  uint32_t align, element;
  uint64_t size; /* bytes; 0: x[] */
} declaration;

static taper_status dimensions(decoder *d, declaration *v) {
  v->size = v->element;
  while (parse_accept(d, "[")) {
    uint32_t count = 0;
    if (parse_accept(d, "]")) {
      v->size = 0;
      return TAPER_OK;
    }
    TAPER_TRY(parse_unsigned(d, &count));
    TAPER_TRY(parse_expect(d, "]"));
    v->size *= count;
    if (count == 0 || v->size > 0x40000000u) return parse_fail(d, v->name, "a variable of 0 bytes or more than 1 GiB");
  }
  return TAPER_OK;
}

static taper_status declaration_head(decoder *d, declaration *v) {
  bool predicate;
  *v = (declaration){0};
  if (parse_accept(d, ".align")) TAPER_TRY(parse_unsigned(d, &v->align));
  const token *type = parse_next(d);
  v->element = parse_type_bytes(type, &predicate);
  if (!v->element)
    return parse_fail(d, type, "'%.*s' is not a type of a variable that is known", (int)type->length, type->at);
  if (!v->align) v->align = v->element;
  if (v->align > 512 || (v->align & (v->align - 1))) return parse_fail(d, type, "an alignment of %u", v->align);
  v->name = parse_next(d);
  if (v->name->kind != TOKEN_WORD) return parse_fail(d, v->name, "a name expected");
  return dimensions(d, v);
}

/* A number, or the address of a variable: x, x+4, generic(x). */
static taper_status initial_value(decoder *d, uint64_t *out) {
  const token *t = parse_next(d);
  uint32_t is_float, member;
  if (t->kind == TOKEN_NUMBER)
    return parse_number(t, out, &is_float) ? TAPER_OK : parse_fail(d, t, "'%.*s' is no number", (int)t->length, t->at);
  const bool generic = parse_is(t, "generic");
  if (generic) {
    TAPER_TRY(parse_expect(d, "("));
    t = parse_next(d);
  }
  const name *n = t->kind == TOKEN_WORD ? parse_find(d, t->at, t->length, &member) : NULL;
  if (!n || n->kind != NAME_GLOBAL)
    return parse_fail(d, t, "'%.*s' is no number and no variable", (int)t->length, t->at);
  *out = n->value;
  if (generic) TAPER_TRY(parse_expect(d, ")"));
  if (parse_accept(d, "+")) {
    uint32_t offset;
    TAPER_TRY(parse_unsigned(d, &offset));
    *out += offset;
  }
  return TAPER_OK;
}

static taper_status initial(decoder *d, const declaration *v, uint8_t *data) {
  const bool braces = parse_accept(d, "{");
  uint64_t at = 0;
  do {
    const token *t = parse_peek(d);
    uint64_t value;
    TAPER_TRY(initial_value(d, &value));
    if (at + v->element > v->size)
      return parse_fail(d, t, "more values than '%.*s' has room for", (int)v->name->length, v->name->at);
    memcpy(data + at, &value, v->element);
    at += v->element;
  } while (braces && parse_accept(d, ","));
  return braces ? parse_expect(d, "}") : TAPER_OK;
}

static taper_status global(decoder *d, const declaration *v) {
  sim_module *m = d->module;
  const uint64_t address = sim_memory_alloc(m->memory, v->size);
  sim_span span;
  if (!address || !sim_memory_find(m->memory, address, v->size, &span))
    return TAPER_FAIL(d->error, TAPER_NOMEM, "%s:%u: error: no device memory for the %llu bytes of '%.*s'", d->file,
                      v->name->line, (unsigned long long)v->size, (int)v->name->length, v->name->at);
  global_variable *grown = realloc(m->globals, (m->global_count + 1) * sizeof(*grown));
  char *text = strndup(v->name->at, v->name->length);
  if (grown) m->globals = grown;
  if (!grown || !text) {
    free(text);
    sim_memory_release(m->memory, address);
    return TAPER_FAIL(d->error, TAPER_NOMEM, "%s: no memory for a variable", d->file);
  }
  m->globals[m->global_count++] = (global_variable){.name = text, .address = address, .size = v->size};
  memset(span.data, 0, v->size);
  sim_memory_mark(m->memory, address, v->size, true);
  TAPER_TRY(parse_add_name(d, v->name, (name){.kind = NAME_GLOBAL, .value = address, .size = v->size}));
  return parse_accept(d, "=") ? initial(d, v, span.data) : TAPER_OK;
}

/* Where the variable lies; *top is what comes behind it. */
static uint32_t take(uint32_t *top, const declaration *v) {
  const uint32_t at = (*top + v->align - 1) / v->align * v->align;
  *top = at + (uint32_t)v->size;
  return at;
}

taper_status parse_variable(decoder *d, space where, bool is_extern) {
  declaration v;
  TAPER_TRY(declaration_head(d, &v));
  name n = {.size = v.size};
  if (is_extern && where != SPACE_SHARED) return parse_fail(d, v.name, "a variable of another module");
  if (v.size == 0 && !is_extern) return parse_fail(d, v.name, "a variable without a size");
  if (where != SPACE_GLOBAL && where != SPACE_CONSTANT &&
      (v.size > 0x1000000u || d->shared_top + d->module_shared + d->local_top + d->call_top > 0x4000000u))
    return parse_fail(d, v.name, "variables of a thread or a block beyond 16 MiB");
  switch (where) {
  case SPACE_GLOBAL:
  case SPACE_CONSTANT: TAPER_TRY(global(d, &v)); return parse_expect(d, ";");
  case SPACE_SHARED:
    n.kind = is_extern ? NAME_DYNAMIC_SHARED : NAME_SHARED;
    if (!is_extern)
      n.value = take(d->kernel ? &d->shared_top : &d->module_shared, &v); /* a function's lie beside the module's */
    break;
  case SPACE_LOCAL:
    n.kind = NAME_LOCAL;
    n.value = take(&d->local_top, &v);
    break;
  case SPACE_CALL:
    n.kind = NAME_CALL_AREA;
    n.value = take(&d->call_top, &v);
    break;
  case SPACE_GENERIC:
  case SPACE_PARAMETER: return parse_fail(d, v.name, "a variable in this space");
  }
  TAPER_TRY(parse_add_name(d, v.name, n));
  return parse_expect(d, ";");
}
