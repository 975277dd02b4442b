/* types.c - which registers and numbers the types of an instruction take: bits any of their size, integers signed or not, floating
   point its own. */
#include "cuda/sim/parse.h"
#include <string.h>

static const struct {
  const char *text;
  type_kind kind;
} types[] = {{"b8", TYPE_BITS},      {"b16", TYPE_BITS},    {"b32", TYPE_BITS},     {"b64", TYPE_BITS},
             {"u8", TYPE_INTEGER},   {"u16", TYPE_INTEGER}, {"u32", TYPE_INTEGER},  {"u64", TYPE_INTEGER},
             {"s8", TYPE_INTEGER},   {"s16", TYPE_INTEGER}, {"s32", TYPE_INTEGER},  {"s64", TYPE_INTEGER},
             {"f16", TYPE_HALF},     {"f16x2", TYPE_HALF},  {"f32", TYPE_FLOAT},    {"f64", TYPE_FLOAT},
             {"bf16", TYPE_PACKED},  {"tf32", TYPE_PACKED}, {"u16x2", TYPE_PACKED}, {"s16x2", TYPE_PACKED},
             {"bf16x2", TYPE_PACKED}};

type_kind types_kind(const char *text, uint32_t length) {
  for (size_t k = 0; k < sizeof(types) / sizeof(types[0]); k++)
    if (strlen(types[k].text) == length && memcmp(types[k].text, text, length) == 0) return types[k].kind;
  return TYPE_NONE;
}

/* Of each operand, predicates and addresses apart: which type of the opcode it has ('0' the first), or 'c': a count, a mask or an index,
   which is an integer of 32 bits. The last goes for all that follow. */
static const struct {
  const char *when, *operands;
} forms[] = {
    {"cvt|set", "01"}, {"slct", "0001"},         {"shl|shr", "00c"},
    {"bfe", "00cc"},   {"bfi", "000cc"},         {"shf", "000c"},
    {"shfl", "0000c"}, {"match", "c0c"},         {"vote ballot", "0c"},
    {"dp4a", "c01c"},  {"popc|clz|bfind", "c0"}, {"vote|redux|elect|bmsk|bar|barrier|nanosleep|isspacep|cp", "c"},
    {"*", "0"},
};

static bool takes(type_kind type, bool count, type_kind have, uint32_t width) {
  switch (have) {
  case TYPE_NONE:
  case TYPE_BITS: return true;
  case TYPE_INTEGER: return count || type == TYPE_BITS || type == TYPE_INTEGER;
  case TYPE_HALF: /* two of them are an integer as well */
    return !count && (type == TYPE_BITS || type == TYPE_HALF || (type == TYPE_INTEGER && width == 4));
  case TYPE_FLOAT: return !count && (type == TYPE_BITS || type == TYPE_FLOAT);
  case TYPE_PACKED: return !count && (type == TYPE_BITS || type == TYPE_PACKED);
  case TYPE_NUMBER: return type != TYPE_FLOAT || count;
  }
  return false;
}

/* The types of an mma: of D, A, B, C, which are lists. */
static uint32_t of_matrix(const inst *i, uint32_t operand) {
  const uint32_t sums = i->destinations;
  return operand < sums ? 0 : operand >= i->operands - sums ? 3 : 1;
}

/* Numbers of some operands lie between bounds and are multiples. */
static const struct {
  const char *when;
  uint32_t operand, least, most, multiple;
} limits[] = {
    {"bfe", 2, 0, 255, 1},
    {"bfe", 3, 0, 255, 1},
    {"bfi", 3, 0, 255, 1},
    {"bfi", 4, 0, 255, 1},
    {"bar|barrier !warp|red sync|arrive", 0, 0, 15, 1},
    {"bar|barrier !warp|red sync", 1, 0, 1u << 30, 32},
    {"bar|barrier arrive", 1, 32, 1u << 30, 32},
    {"bar red", 1, 0, 15, 1},
    {"bar red", 2, 0, 1u << 30, 32},
    {"cp async", 2, 0, 0, 1}, /* what it copies */
};

static taper_status numbers_check(decoder *d, const token *t, const parts *p, const inst *i) {
  uint64_t value = 0;
  uint32_t ignored;
  for (size_t k = 0; k < sizeof(limits) / sizeof(limits[0]); k++) {
    const uint32_t operand = limits[k].operand;
    if (operand >= i->operands || d->sources[operand].kind != TYPE_NUMBER || !rules_hold(limits[k].when, p, &ignored))
      continue;
    const token *at = d->sources[operand].at;
    const uint32_t most = limits[k].most ? limits[k].most : i->vector;
    if (!parse_number(at, &value, &ignored)) continue; /* WARP_SZ */
    if (value < limits[k].least || value > most || value % limits[k].multiple)
      return parse_fail(d, at, "%.*s in the instruction '%.*s' is not between %u and %u or no multiple of %u",
                        (int)at->length, at->at, (int)t->length, t->at, limits[k].least, most, limits[k].multiple);
  }
  return TAPER_OK;
}

taper_status types_check(decoder *d, const token *t, const parts *p, const inst *i) {
  type_kind of[4] = {TYPE_NONE, TYPE_NONE, TYPE_NONE, TYPE_NONE};
  uint32_t count = 0, ignored;
  for (uint32_t k = 1; k < p->count && count < 4; k++)
    if ((of[count] = types_kind(p->at[k], p->length[k])) != TYPE_NONE) count++;
  size_t form = 0;
  while (!rules_hold(forms[form].when, p, &ignored)) form++;
  const bool matrix = p->length[0] == 3 && memcmp(p->at[0], "mma", 3) == 0;
  const char *which = forms[form].operands;
  for (uint32_t k = 0; k < i->operands; k++) {
    const operand_source *from = &d->sources[k];
    if (from->is_address || i->width[k] == 0) continue;
    const bool counts = *which == 'c';
    const uint32_t type = matrix ? of_matrix(i, k) : counts ? 0 : (uint32_t)(*which - '0');
    const bool wide = i->bytes && i->width[k] != i->bytes && of[type] == TYPE_FLOAT && from->kind == TYPE_FLOAT;
    if ((counts || type < count) && (wide || !takes(of[type], counts, from->kind, i->width[k])))
      return parse_fail(d, from->at, "'%.*s' is of another type than '%.*s' takes here", (int)from->at->length,
                        from->at->at, (int)t->length, t->at);
    which += which[1] != 0;
  }
  return numbers_check(d, t, p, i);
}
