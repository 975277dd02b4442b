/* calls.c - `call (results), function, (arguments);` as copies between the areas of caller and callee. */
#include "cuda/sim/parse.h"
#include <stdlib.h>

/* "(a, b)": the places in the caller's area; *out from malloc. */
static taper_status area_list(decoder *d, uint32_t *out, uint32_t *out_count) {
  *out_count = 0;
  TAPER_TRY(parse_expect(d, "("));
  if (parse_accept(d, ")")) return TAPER_OK;
  do {
    const token *t = parse_next(d);
    uint32_t member;
    const name *n = t->kind == TOKEN_WORD ? parse_find(d, t->at, t->length, &member) : NULL;
    if (!n || n->kind != NAME_CALL_AREA || *out_count == SIM_MAX_PARAMETERS)
      return parse_fail(d, t, "'%.*s' is no argument of a call", (int)t->length, t->at);
    out[(*out_count)++] = (uint32_t)n->value;
  } while (parse_accept(d, ","));
  return parse_expect(d, ")");
}

taper_status decode_call(decoder *d, inst *i) {
  sim_module *m = d->module;
  uint32_t in[SIM_MAX_PARAMETERS] = {0}, back[SIM_MAX_PARAMETERS] = {0}, member;
  call_site site = {0};
  if (parse_is(parse_peek(d), "(")) {
    TAPER_TRY(area_list(d, back, &site.back_count));
    TAPER_TRY(parse_expect(d, ","));
  }
  const token *t = parse_next(d);
  const name *n = t->kind == TOKEN_WORD ? parse_find(d, t->at, t->length, &member) : NULL;
  if (!n || n->kind != NAME_FUNCTION)
    return parse_fail(d, t, "'%.*s' is no function (calls through a pointer are not supported)", (int)t->length, t->at);
  site.callee = (uint32_t)n->value;
  if (parse_accept(d, ",")) TAPER_TRY(area_list(d, in, &site.in_count));
  call_site *grown = realloc(m->calls, (m->call_count + 1) * sizeof(*grown));
  if (grown) m->calls = grown;
  site.in = calloc(site.in_count + 1, sizeof(*site.in));
  site.back = calloc(site.back_count + 1, sizeof(*site.back));
  if (!grown || !site.in || !site.back) {
    free(site.in);
    free(site.back);
    return TAPER_FAIL(d->error, TAPER_NOMEM, "%s: no memory for calls", d->file);
  }
  for (uint32_t k = 0; k < site.in_count; k++) site.in[k].from = in[k];
  for (uint32_t k = 0; k < site.back_count; k++) site.back[k].to = back[k];
  i->target = (uint32_t)m->call_count;
  m->calls[m->call_count++] = site;
  return TAPER_OK;
}

/* Once every function is read: the callee's side of the copies. */
static taper_status finish(decoder *d, const inst *i) {
  sim_module *m = d->module;
  call_site *c = &m->calls[i->target];
  const function *f = &m->functions[c->callee];
  const token where = {.line = i->line};
  uint32_t total = 0;
  if (f->end == 0) return parse_fail(d, &where, "the function '%s' has no body here", f->name);
  if (c->back_count != f->results || c->in_count != f->parameter_count - f->results)
    return parse_fail(d, &where, "a call of '%s' with %u arguments and %u results", f->name, c->in_count,
                      c->back_count);
  for (uint32_t k = 0; k < c->back_count; k++) {
    c->back[k].from = f->parameters[k];
    c->back[k].bytes = f->sizes[k];
    total += f->sizes[k];
  }
  for (uint32_t k = 0; k < c->in_count; k++) {
    c->in[k].to = f->parameters[f->results + k];
    c->in[k].bytes = f->sizes[f->results + k];
    total += f->sizes[f->results + k];
  }
  if (total > SIM_CALL_BYTES) return parse_fail(d, &where, "a call with %u bytes of arguments and results", total);
  return TAPER_OK;
}

taper_status decode_finish_calls(decoder *d) {
  for (uint32_t pc = 0; pc < d->module->count; pc++)
    if (d->module->code[pc].kind == INST_CALL) TAPER_TRY(finish(d, &d->module->code[pc]));
  return TAPER_OK;
}
