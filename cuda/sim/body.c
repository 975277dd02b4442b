/* body.c - statements of a function. */
#include "cuda/sim/parse.h"
#include <stdlib.h>
#include <string.h>

static taper_status registers(decoder *d) {
  bool predicate;
  const token *type = parse_next(d);
  const uint32_t bytes = parse_type_bytes(type, &predicate);
  if (!bytes && !predicate)
    return parse_fail(d, type, "'%.*s' is not a type of a register that is known", (int)type->length, type->at);
  const uint32_t width = predicate ? 0 : bytes < 2 ? 2 : bytes;
  const uint32_t step = width > 2 ? SIM_LANES * width : INST_REGISTER_BYTES;
  do {
    const token *t = parse_next(d);
    uint32_t count = 0;
    if (t->kind != TOKEN_WORD) return parse_fail(d, t, "the name of a register expected");
    if (parse_accept(d, "<")) {
      TAPER_TRY(parse_unsigned(d, &count));
      TAPER_TRY(parse_expect(d, ">"));
    }
    if (count > 1000000 || d->register_top > 0x20000000u) return parse_fail(d, t, "too many registers");
    TAPER_TRY(parse_add_name(d, t,
                             (name){.kind = NAME_REGISTER,
                                    .family = count,
                                    .value = d->register_top,
                                    .width = (uint8_t)width,
                                    .kind_of_register = types_kind(type->at + 1, type->length - 1)}));
    d->register_top += step * (count ? count : 1);
  } while (parse_accept(d, ","));
  return parse_expect(d, ";");
}

/* .loc FILE LINE COLUMN and, on the same line, words about inlining: the place is where the text stands. */
static taper_status location(decoder *d) {
  const uint32_t line = parse_peek(d)->line;
  sim_module *m = d->module;
  source_place p;
  TAPER_TRY(parse_unsigned(d, &p.file));
  TAPER_TRY(parse_unsigned(d, &p.line));
  TAPER_TRY(parse_unsigned(d, &p.column));
  while (parse_peek(d)->line == line && parse_peek(d)->kind != TOKEN_END) d->at++;
  if (p.line == 0) return TAPER_OK; /* made by the compiler: the place before holds on */
  if (m->place_count % 64 == 0) {
    source_place *grown = realloc(m->places, (m->place_count + 64) * sizeof(*grown));
    if (!grown) return TAPER_FAIL(d->error, TAPER_NOMEM, "%s: no memory for lines", d->file);
    m->places = grown;
  }
  m->places[m->place_count++] = p;
  d->place = (uint32_t)m->place_count;
  return TAPER_OK;
}

static taper_status add_use(decoder *d, const token *t, uint32_t user, uint32_t table) {
  TAPER_TRY(parse_room(d, (void **)&d->uses, sizeof(label_use), d->use_count, &d->use_capacity));
  d->uses[d->use_count++] = (label_use){.where = *t, .inst = user, .table = table};
  return TAPER_OK;
}

taper_status decode_label(decoder *d, inst *i) {
  (void)i;
  return add_use(d, parse_next(d), d->module->count, 0);
}

/* LABEL: .branchtargets A, B, C; */
static taper_status branch_targets(decoder *d, const token *list) {
  sim_module *m = d->module;
  const size_t first = m->table_count;
  size_t capacity = first;
  TAPER_TRY(parse_room(d, (void **)&d->lists, sizeof(target_list), d->list_count, &d->list_capacity));
  d->lists[d->list_count++] = (target_list){.name = *list, .table = (uint32_t)first};
  TAPER_TRY(parse_room(d, (void **)&m->tables, sizeof(uint32_t), m->table_count, &capacity));
  m->table_count++;
  do {
    TAPER_TRY(parse_room(d, (void **)&m->tables, sizeof(uint32_t), m->table_count, &capacity));
    TAPER_TRY(add_use(d, parse_next(d), INST_NONE, (uint32_t)m->table_count));
    m->tables[m->table_count++] = 0;
  } while (parse_accept(d, ","));
  m->tables[first] = (uint32_t)(m->table_count - first - 1);
  return parse_expect(d, ";");
}

/* brx.idx index, LIST; the list may stand behind: its label is looked up at the end of the body. */
taper_status decode_indexed(decoder *d, inst *i) {
  TAPER_TRY(operand_value(d, i, 4, true));
  TAPER_TRY(parse_expect(d, ","));
  return add_use(d, parse_next(d), d->module->count, INST_NONE);
}

static taper_status add_label(decoder *d, const token *t) {
  for (size_t k = 0; k < d->label_count; k++)
    if (d->labels[k].length == t->length && memcmp(d->labels[k].text, t->at, t->length) == 0)
      return parse_fail(d, t, "the label '%.*s' stands twice", (int)t->length, t->at);
  TAPER_TRY(parse_room(d, (void **)&d->labels, sizeof(label), d->label_count, &d->label_capacity));
  d->labels[d->label_count++] = (label){.text = t->at, .length = t->length, .at = d->module->count};
  return TAPER_OK;
}

static taper_status resolve(decoder *d, const label_use *u) {
  const token *t = &u->where;
  if (u->inst != INST_NONE && u->table == INST_NONE) {
    for (size_t k = 0; k < d->list_count; k++)
      if (d->lists[k].name.length == t->length && memcmp(d->lists[k].name.at, t->at, t->length) == 0) {
        d->module->code[u->inst].target = d->lists[k].table;
        return TAPER_OK;
      }
    return parse_fail(d, t, "no .branchtargets '%.*s'", (int)t->length, t->at);
  }
  for (size_t k = 0; k < d->label_count; k++)
    if (d->labels[k].length == t->length && memcmp(d->labels[k].text, t->at, t->length) == 0) {
      if (u->inst != INST_NONE)
        d->module->code[u->inst].target = d->labels[k].at;
      else
        d->module->tables[u->table] = d->labels[k].at;
      return TAPER_OK;
    }
  return parse_fail(d, t, "no label '%.*s'", (int)t->length, t->at);
}

static taper_status pragma(decoder *d) {
  static const char mask[] = "used_bytes_mask ";
  const size_t length = sizeof(mask) - 1;
  const token *t = parse_next(d);
  if (t->kind != TOKEN_STRING) return parse_fail(d, t, "a text expected, not '%.*s'", (int)t->length, t->at);
  token inner = {.at = t->at + 1, .length = t->length - 2, .line = t->line, .kind = TOKEN_NUMBER};
  if (inner.length == 8 && memcmp(inner.at, "nounroll", 8) == 0) return TAPER_OK;
  if (inner.length > length && memcmp(inner.at, mask, length) == 0) {
    uint64_t used;
    uint32_t is_float;
    inner.at += length, inner.length -= (uint32_t)length;
    if (!parse_number(&inner, &used, &is_float) || is_float || used == 0 || used > UINT32_MAX)
      return parse_fail(d, t, "a mask of 1 to 32 bytes expected, not %.*s", (int)t->length, t->at);
    d->unused = ~(uint32_t)used;
    return TAPER_OK;
  }
  return parse_fail(d, t, "the pragma %.*s is not known", (int)t->length, t->at);
}

static taper_status pragmas(decoder *d) {
  do TAPER_TRY(pragma(d));
  while (parse_accept(d, ","));
  return parse_expect(d, ";");
}

static taper_status directive(decoder *d, const token *t) {
  if (parse_is(t, ".reg")) return registers(d);
  if (parse_is(t, ".loc")) return location(d);
  if (parse_is(t, ".shared")) return parse_variable(d, SPACE_SHARED, false);
  if (parse_is(t, ".local")) return parse_variable(d, SPACE_LOCAL, false);
  if (parse_is(t, ".param")) return parse_variable(d, SPACE_CALL, false);
  if (parse_is(t, ".pragma")) return pragmas(d);
  return parse_fail(d, t, "the directive '%.*s' is not known", (int)t->length, t->at);
}

static taper_status statement(decoder *d) {
  const token *t = parse_peek(d);
  if (t->kind == TOKEN_WORD && parse_is(t + 1, ":")) {
    d->at += 2;
    return parse_accept(d, ".branchtargets") ? branch_targets(d, t) : add_label(d, t);
  }
  if (t->kind == TOKEN_WORD && t->at[0] == '.') {
    d->at++;
    return directive(d, t);
  }
  if (t->kind == TOKEN_WORD || parse_is(t, "@")) return parse_instruction(d);
  if (parse_accept(d, ";")) return TAPER_OK;
  return parse_fail(d, t, "a statement expected, not '%.*s'", (int)t->length, t->at);
}

taper_status parse_body(decoder *d) {
  uint32_t scopes[64], depth = 0;
  d->label_count = d->use_count = d->list_count = 0;
  d->place = 0;
  TAPER_TRY(parse_expect(d, "{"));
  const uint32_t outer = d->scope;
  d->scope = scopes[depth++] = d->name_count;
  while (depth > 0) {
    const token *t = parse_peek(d);
    if (t->kind == TOKEN_END) return parse_fail(d, t, "a function does not end");
    if (parse_accept(d, "}")) {
      parse_pop_names(d, scopes[--depth]);
      d->scope = depth ? scopes[depth - 1] : outer;
    } else if (parse_accept(d, "{")) {
      if (depth == 64) return parse_fail(d, t, "too many scopes in each other");
      d->scope = scopes[depth++] = d->name_count;
    } else {
      TAPER_TRY(statement(d));
    }
  }
  for (size_t k = 0; k < d->use_count; k++) TAPER_TRY(resolve(d, &d->uses[k]));
  return TAPER_OK;
}
