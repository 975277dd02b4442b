/* decode.c - the opcode of an instruction against the tables, then its operands. */
#include "cuda/sim/parse.h"
#include <stdlib.h>
#include <string.h>

static const op_table *const tables[] = {&sim_integer_ops, &sim_carry_ops,      &sim_float_ops,  &sim_half_ops,
                                         &sim_convert_ops, &sim_move_ops,       &sim_logic_ops,  &sim_access_ops,
                                         &sim_atomic_ops,  &sim_collective_ops, &sim_matrix_ops, &sim_copy_ops,
                                         &sim_control_ops};

static bool split(const token *t, parts *out) {
  out->count = 0;
  const char *p = t->at, *end = t->at + t->length;
  while (p <= end) {
    const char *q = p;
    while (q < end && *q != '.') q++;
    if (out->count == PARSE_PARTS || q == p) return false;
    out->at[out->count] = p;
    out->length[out->count++] = (uint32_t)(q - p);
    p = q + 1;
  }
  return true;
}

/* Which of "a|b|c" (up to '.' or the end) a part is, from 1; 0: none. */
static uint32_t alternative(const char *pattern, const char *part, uint32_t length) {
  for (uint32_t k = 1;; k++) {
    const size_t n = strcspn(pattern, "|.");
    if (n == length && memcmp(pattern, part, n) == 0) return k;
    if (pattern[n] != '|') return 0;
    pattern += n + 1;
  }
}

/* The number of parts that match from the front; all of them and of the pattern: *out_whole. */
static uint32_t match(const char *pattern, const parts *p, uint8_t *choice, bool *out_whole) {
  uint32_t part = 0, column = 0;
  *out_whole = false;
  for (;;) {
    const bool optional = *pattern == '?';
    pattern += optional;
    const uint32_t k = part < p->count ? alternative(pattern, p->at[part], p->length[part]) : 0;
    if (!k && !optional) return part;
    part += k != 0;
    pattern += strcspn(pattern, ".");
    if (column > 0) choice[column - 1] = (uint8_t)k;
    column++;
    if (!*pattern) break;
    pattern++;
  }
  *out_whole = part == p->count;
  return part;
}

static const op_row *find_row(const parts *p, inst *i, uint32_t *out_best) {
  *out_best = 0;
  if (p->count == 0) return NULL;
  for (size_t t = 0; t < sizeof(tables) / sizeof(tables[0]); t++)
    for (size_t k = 0; k < tables[t]->count; k++) {
      const op_row *row = &tables[t]->rows[k];
      bool whole;
      if (row->pattern[0] != p->at[0][0]) continue;
      memset(i->choice, 0, sizeof(i->choice));
      const uint32_t n = match(row->pattern, p, i->choice, &whole);
      i->written_as = row->written_as ? row->written_as : tables[t]->written_as;
      if (whole) return row;
      if (n > *out_best) *out_best = n;
    }
  return NULL;
}

static taper_status operand(decoder *d, inst *i, uint8_t code) {
  const uint32_t width = code & OPERAND_SIZE;
  if (code & OPERAND_IMMEDIATE) return operand_immediate(d, &i->imm);
  if (code & OPERAND_PREDICATE) return operand_predicate(d, i, (code & OPERAND_DEST) != 0);
  return code & OPERAND_DEST ? operand_register(d, i, width, true) : operand_value(d, i, width, true);
}

static taper_status operands(decoder *d, inst *i, const op_row *row) {
  for (size_t k = 0; k < sizeof(row->operands) && row->operands[k]; k++) {
    if (k) TAPER_TRY(parse_expect(d, ","));
    TAPER_TRY(operand(d, i, row->operands[k]));
  }
  return TAPER_OK;
}

static bool any_processor;
void sim_any_processor(bool on) { any_processor = on; }

static bool is_fast(void) {
#if defined(__x86_64__)
  return !any_processor && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("popcnt");
#else
  return !any_processor;
#endif
}

run_fn decode_choose(run_fn run, run_fn fast) { return fast && is_fast() ? fast : run; }

static taper_status guard(decoder *d, inst *i) {
  inst g = {0};
  i->guard = INST_NONE;
  if (!parse_accept(d, "@")) return TAPER_OK;
  TAPER_TRY(operand_predicate(d, &g, false));
  i->guard = g.r[0];
  i->guard_not = g.not_operand & 1u;
  return TAPER_OK;
}

static taper_status append(decoder *d, const inst *i) {
  sim_module *m = d->module;
  size_t capacity = m->capacity;
  if (m->count >= 4000000) return parse_fail(d, parse_peek(d), "too many instructions");
  TAPER_TRY(parse_room(d, (void **)&m->code, sizeof(inst), m->count, &capacity));
  m->capacity = (uint32_t)capacity;
  m->code[m->count++] = *i;
  return TAPER_OK;
}

taper_status parse_instruction(decoder *d) {
  inst i = {0};
  parts p = {0};
  uint32_t best;
  TAPER_TRY(guard(d, &i));
  const token *t = parse_next(d);
  i.line = t->line;
  i.place = d->place;
  if (t->kind != TOKEN_WORD || !split(t, &p))
    return parse_fail(d, t, "an instruction expected, not '%.*s'", (int)t->length, t->at);
  const op_row *row = find_row(&p, &i, &best);
  if (!row && best == 0)
    return parse_fail(d, t, "the instruction '%.*s' is not known to the simulator", (int)p.length[0], t->at);
  if (!row)
    return parse_fail(d, t, "'%.*s' in the instruction '%.*s' is not known to the simulator",
                      best < p.count ? (int)p.length[best] : 3, best < p.count ? p.at[best] : "end", (int)t->length,
                      t->at);
  TAPER_TRY(rules_check(d, t, &p));
  i.run = decode_choose(row->run, row->fast);
  i.kind = row->kind;
  TAPER_TRY(row->decode ? row->decode(d, &i) : operands(d, &i, row));
  TAPER_TRY(types_check(d, t, &p, &i));
  TAPER_TRY(parse_expect(d, ";"));
  if (d->unused) return parse_fail(d, t, "used_bytes_mask before what is no ld");
  return append(d, &i);
}
