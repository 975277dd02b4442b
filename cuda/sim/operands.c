/* operands.c - registers, numbers and addresses of an instruction. */
#include "cuda/sim/parse.h"
#include <stdlib.h>
#include <string.h>

static taper_status push(decoder *d, inst *i, uint32_t r, uint32_t width, type_kind kind, bool destination) {
  if (i->operands == INST_OPERANDS) return parse_fail(d, parse_peek(d), "too many operands");
  d->sources[i->operands] = (operand_source){.at = parse_peek(d) - 1, .kind = kind};
  i->width[i->operands] = (uint8_t)width;
  i->r[i->operands++] = r;
  if (destination) i->destinations = i->operands;
  return TAPER_OK;
}

static uint32_t step_of(uint32_t width) { return width > 2 ? SIM_LANES * width : INST_REGISTER_BYTES; }

/* A register that nobody names: for `_` as a destination. */
static uint32_t sink(decoder *d, uint32_t width) {
  const uint32_t r = d->register_top;
  d->register_top += step_of(width);
  return r;
}

taper_status operand_constant(decoder *d, uint64_t value, uint32_t width, uint32_t *out) {
  sim_module *m = d->module;
  uint64_t lanes[SIM_LANES];
  const uint32_t step = step_of(width);
  memset(lanes, 0, sizeof(lanes));
  for (uint32_t l = 0; l < SIM_LANES && width; l++) memcpy((uint8_t *)lanes + (size_t)l * width, &value, width);
  if (!width && (value & 1)) memset(lanes, 0xff, 4);
  for (uint32_t at = 0; at + step <= m->constant_bytes; at += INST_REGISTER_BYTES)
    if (memcmp(m->constants + at, lanes, step) == 0) {
      *out = at | INST_CONSTANT;
      return TAPER_OK;
    }
  if (m->constant_bytes + step > m->constant_capacity) {
    const uint32_t capacity = 2 * m->constant_capacity + 4096;
    uint8_t *grown = aligned_alloc(INST_REGISTER_BYTES, capacity);
    if (!grown) return TAPER_FAIL(d->error, TAPER_NOMEM, "%s: no memory for constants", d->file);
    if (m->constants) memcpy(grown, m->constants, m->constant_bytes);
    free(m->constants);
    m->constants = grown;
    m->constant_capacity = capacity;
  }
  memcpy(m->constants + m->constant_bytes, lanes, step);
  *out = m->constant_bytes | INST_CONSTANT;
  m->constant_bytes += step;
  return TAPER_OK;
}

static bool fits(uint64_t value, uint32_t width) {
  if (width == 8) return true;
  const int64_t s = (int64_t)value, top = (int64_t)1 << (8 * width);
  return s < top && s >= -(top / 2);
}

static taper_status number_operand(decoder *d, inst *i, const token *t, uint32_t width) {
  uint64_t value;
  uint32_t is_float, r;
  if (!parse_number(t, &value, &is_float)) return parse_fail(d, t, "'%.*s' is no number", (int)t->length, t->at);
  if (is_float ? is_float != width : width && !fits(value, width))
    return parse_fail(d, t, "the number %.*s does not fit an operand of %u bits", (int)t->length, t->at, 8 * width);
  TAPER_TRY(operand_constant(d, value, width, &r));
  return push(d, i, r, width, is_float ? TYPE_FLOAT : TYPE_NUMBER, false);
}

static bool special_register(decoder *d, const token *t, uint32_t width, uint32_t *out) {
  static const char *const names[] = {
#define X(name, text) text,
#include "cuda/sim/special.def"
#undef X
  };
  for (uint32_t s = 0; s < SPECIAL_COUNT; s++)
    if (names[s][0] && parse_is(t, names[s])) {
      *out = width == 8 ? SPECIAL_WIDE(s) : SPECIAL_NARROW(s);
      d->module->specials |= 1u << s;
      return width >= 4;
    }
  return false;
}

static taper_status check_width(decoder *d, const token *t, uint32_t have, uint32_t want, bool exact) {
  if (have == want || (!exact && have > want && want)) return TAPER_OK;
  return parse_fail(d, t, "'%.*s' has %u bits, the instruction wants %u", (int)t->length, t->at, have ? 8 * have : 1,
                    want ? 8 * want : 1);
}

static uint32_t register_of(const name *n, uint32_t member) { return (uint32_t)n->value + member * step_of(n->width); }

/* The base and offset of a variable in its space. */
static taper_status variable_base(decoder *d, const token *t, const name *n, uint32_t width, uint32_t *out_base,
                                  int64_t *out_offset) {
  *out_offset = 0;
  switch (n->kind) {
  case NAME_DYNAMIC_SHARED:
    d->module->specials |= 1u << SPECIAL_DYNAMIC_SHARED;
    *out_base = width == 8 ? SPECIAL_WIDE(SPECIAL_DYNAMIC_SHARED) : SPECIAL_NARROW(SPECIAL_DYNAMIC_SHARED);
    return TAPER_OK;
  case NAME_LOCAL:
    *out_base = width == 8 ? SPECIAL_WIDE(SPECIAL_FRAME) : SPECIAL_NARROW(SPECIAL_FRAME);
    *out_offset = (int64_t)n->value;
    return TAPER_OK;
  case NAME_SHARED: return operand_constant(d, n->value, width, out_base);
  case NAME_GLOBAL:
    if (width != 8) return parse_fail(d, t, "the address of '%.*s' has 64 bits", (int)t->length, t->at);
    return operand_constant(d, n->value, width, out_base);
  case NAME_PARAMETER:
  case NAME_CALL_AREA: return operand_constant(d, n->value, width, out_base);
  case NAME_REGISTER:
  case NAME_FUNCTION: break;
  }
  return parse_fail(d, t, "'%.*s' is no variable", (int)t->length, t->at);
}

taper_status operand_value(decoder *d, inst *i, uint32_t width, bool exact) {
  const token *t = parse_next(d);
  uint32_t member, r;
  int64_t offset;
  if (t->kind == TOKEN_NUMBER) return number_operand(d, i, t, width);
  if (t->kind != TOKEN_WORD) return parse_fail(d, t, "an operand expected, not '%.*s'", (int)t->length, t->at);
  if (special_register(d, t, width, &r)) return push(d, i, r, width, TYPE_INTEGER, false);
  if (parse_is(t, "WARP_SZ")) {
    TAPER_TRY(operand_constant(d, SIM_LANES, width, &r));
    return push(d, i, r, width, TYPE_NUMBER, false);
  }
  const name *n = parse_find(d, t->at, t->length, &member);
  if (!n) return parse_fail(d, t, "the name '%.*s' is not known", (int)t->length, t->at);
  if (n->kind == NAME_REGISTER) {
    TAPER_TRY(check_width(d, t, n->width, width, exact));
    return push(d, i, register_of(n, member), n->width, n->kind_of_register, false);
  }
  TAPER_TRY(variable_base(d, t, n, width, &r, &offset));
  i->imm = offset; /* of use to mov alone */
  if (offset && exact) return parse_fail(d, t, "the address of '%.*s' is not allowed here", (int)t->length, t->at);
  return push(d, i, r, width, TYPE_INTEGER, false);
}

taper_status operand_register(decoder *d, inst *i, uint32_t width, bool exact) {
  const token *t = parse_next(d);
  uint32_t member;
  if (parse_is(t, "_")) return push(d, i, sink(d, width), width, TYPE_NONE, true);
  const name *n = t->kind == TOKEN_WORD ? parse_find(d, t->at, t->length, &member) : NULL;
  if (!n || n->kind != NAME_REGISTER) return parse_fail(d, t, "'%.*s' is no register", (int)t->length, t->at);
  TAPER_TRY(check_width(d, t, n->width, width, exact));
  return push(d, i, register_of(n, member), n->width, n->kind_of_register, true);
}

taper_status operand_predicate(decoder *d, inst *i, bool destination) {
  const uint32_t at = i->operands;
  if (destination) return operand_register(d, i, 0, true);
  if (parse_accept(d, "!")) {
    if (at > 7) return parse_fail(d, parse_peek(d), "a negated operand here");
    i->not_operand |= (uint8_t)(1u << at);
  }
  return operand_value(d, i, 0, true);
}

taper_status operand_list(decoder *d, inst *i, uint32_t count, uint32_t width, bool exact, bool destination) {
  if (count > 1 || parse_is(parse_peek(d), "{")) TAPER_TRY(parse_expect(d, "{"));
  const bool braces = parse_is(parse_peek(d) - 1, "{");
  for (uint32_t k = 0; k < count; k++) {
    if (k) TAPER_TRY(parse_expect(d, ","));
    TAPER_TRY(destination ? operand_register(d, i, width, exact) : operand_value(d, i, width, exact));
  }
  return braces ? parse_expect(d, "}") : TAPER_OK;
}

taper_status operand_immediate(decoder *d, int64_t *out) {
  const token *t = parse_next(d);
  uint64_t value;
  uint32_t is_float;
  if (!parse_number(t, &value, &is_float) || is_float)
    return parse_fail(d, t, "a number expected, not '%.*s'", (int)t->length, t->at);
  *out = (int64_t)value;
  return TAPER_OK;
}

/* The space of a variable must be that of the instruction. */
static taper_status check_space(decoder *d, const token *t, const name *n, space *where) {
  static const space spaces[] = {
      [NAME_GLOBAL] = SPACE_GLOBAL,   [NAME_SHARED] = SPACE_SHARED,       [NAME_DYNAMIC_SHARED] = SPACE_SHARED,
      [NAME_LOCAL] = SPACE_LOCAL,     [NAME_PARAMETER] = SPACE_PARAMETER, [NAME_CALL_AREA] = SPACE_CALL,
      [NAME_FUNCTION] = SPACE_GENERIC};
  const space s = spaces[n->kind];
  if (s == SPACE_CALL && *where == SPACE_PARAMETER) *where = SPACE_CALL;
  const bool ok = s == *where || (s == SPACE_GLOBAL && (*where == SPACE_CONSTANT || *where == SPACE_GENERIC));
  return ok && n->kind != NAME_FUNCTION
             ? TAPER_OK
             : parse_fail(d, t, "'%.*s' lies in another space than the instruction's", (int)t->length, t->at);
}

static taper_status address_base(decoder *d, inst *i, space *where) {
  const token *t = parse_next(d);
  uint32_t member, r = 0;
  uint64_t value;
  uint32_t is_float;
  if (parse_number(t, &value, &is_float) && !is_float) {
    TAPER_TRY(operand_constant(d, value, 8, &r));
    return push(d, i, r, 8, TYPE_NONE, false);
  }
  const name *n = t->kind == TOKEN_WORD ? parse_find(d, t->at, t->length, &member) : NULL;
  if (!n) return parse_fail(d, t, "an address expected, not '%.*s'", (int)t->length, t->at);
  if (n->kind == NAME_REGISTER) {
    if (n->width < 4) return parse_fail(d, t, "an address in a register of %u bits", 8u * n->width);
    if (n->kind_of_register != TYPE_BITS && n->kind_of_register != TYPE_INTEGER)
      return parse_fail(d, t, "'%.*s' is no register of an address", (int)t->length, t->at);
    return push(d, i, register_of(n, member), n->width, n->kind_of_register, false);
  }
  TAPER_TRY(check_space(d, t, n, where));
  int64_t offset;
  TAPER_TRY(variable_base(d, t, n, 8, &r, &offset));
  i->imm += offset;
  return push(d, i, r, 8, TYPE_NONE, false);
}

taper_status operand_address(decoder *d, inst *i, space *where) {
  i->imm = 0;
  TAPER_TRY(parse_expect(d, "["));
  TAPER_TRY(address_base(d, i, where));
  d->sources[i->operands - 1].is_address = true;
  if (parse_accept(d, "+")) {
    int64_t more = 0;
    TAPER_TRY(operand_immediate(d, &more));
    i->imm += more;
  }
  return parse_expect(d, "]");
}
