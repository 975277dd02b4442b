/* atomic.c - atom and red on global and shared memory; lanes take turns in their order. */
#include "cuda/sim/half.h"
#include "cuda/sim/lane.h"
#include "cuda/sim/parse.h"

#define OPERATIONS "add|min|max|and|or|xor|exch|inc|dec|cas"
typedef enum operation { ADD = 1, MIN, MAX, AND, OR, XOR, EXCH, INC, DEC, CAS } operation;
#define TYPES "u32|s32|b32|f32|u64|s64|b64|f64|f16x2|bf16x2|f16|bf16|b16"
typedef enum type { U32 = 1, S32, B32, F32, U64, S64, B64, F64, F16X2, BF16X2, F16, BF16, B16 } type;

static uint32_t bytes_of(uint8_t t) { return t >= F16 ? 2 : t >= U64 && t <= F64 ? 8 : 4; }

static uint64_t add_halves(uint64_t a, uint64_t b, bool brain, uint32_t count) {
  uint64_t out = 0;
  for (uint32_t k = 0; k < 16 * count; k += 16) {
    const uint16_t x = (uint16_t)(a >> k), y = (uint16_t)(b >> k);
    const uint16_t r = brain ? brain_of((double)float_of_brain(x) + (double)float_of_brain(y), ROUND_NEAREST)
                             : half_of((double)float_of_half(x) + (double)float_of_half(y), ROUND_NEAREST);
    out |= (uint64_t)r << k;
  }
  return out;
}

static uint64_t added(uint8_t t, uint64_t a, uint64_t b) {
  switch ((type)t) {
  case F32: return bits_of(canonical(flushed(float_of((uint32_t)a)) + flushed(float_of((uint32_t)b))));
  case F64: return bits_of_double(double_of(a) + double_of(b));
  case F16X2: return add_halves(a, b, false, 2);
  case BF16X2: return add_halves(a, b, true, 2);
  case F16: return add_halves(a, b, false, 1);
  case BF16: return add_halves(a, b, true, 1);
  case U32:
  case S32:
  case B32:
  case U64:
  case S64:
  case B64:
  case B16: break;
  }
  return a + b;
}

static bool less(uint8_t t, uint64_t a, uint64_t b) {
  if (t == S32) return (int32_t)a < (int32_t)b;
  if (t == S64) return (int64_t)a < (int64_t)b;
  return a < b;
}

/* What stands in memory after the operation on `old`. */
static uint64_t result(uint8_t op, uint8_t t, uint64_t old, uint64_t b, uint64_t c) {
  switch ((operation)op) {
  case ADD: return added(t, old, b);
  case MIN: return less(t, b, old) ? b : old;
  case MAX: return less(t, old, b) ? b : old;
  case AND: return old & b;
  case OR: return old | b;
  case XOR: return old ^ b;
  case EXCH: return b;
  case INC: return old >= b ? 0 : old + 1;
  case DEC: return old == 0 || old > b ? b : old - 1;
  case CAS: return old == b ? c : old;
  }
  return old;
}

static uint8_t *place_of(warp *w, const inst *i, uint32_t l, uint64_t address) {
  const uint32_t bytes = i->bytes;
  uint8_t *at[SIM_LANES];
  uint64_t all[SIM_LANES];
  if (i->space == SPACE_SHARED ||
      (i->space == SPACE_GENERIC && address >= SIM_WINDOW_SHARED && address - SIM_WINDOW_SHARED < SIM_WINDOW_SIZE)) {
    const uint32_t v = (uint32_t)address;
    const uint32_t offset = i->space == SPACE_SHARED ? v : (uint32_t)(address - SIM_WINDOW_SHARED);
    if (!sim_shared_read(w, i, l, offset, bytes) || !sim_shared_write(w, i, l, offset, bytes, NULL)) return NULL;
    return w->block->shared + (offset - SIM_SHARED_BASE);
  }
  const uint32_t mask = w->mask;
  const block *b = w->block;
  all[l] = address;
  w->mask = 1u << l;
  if (b->order && i->fence & 1u) order_fence(b->run->ordered, b->order, b->number);
  const bool ok = sim_global(w, i, all, bytes, ACCESS_ATOMIC, at);
  w->mask = mask;
  if (!ok) return NULL;
  if (b->order && !order_strong(b->run->ordered, b->order, b->number, address, true, true)) {
    sim_stop(w, i, l, SIM_NO_MEMORY, 0, "for the order of blocks");
    return NULL;
  }
  if (b->order && i->fence & 2u) order_fence(b->run->ordered, b->order, b->number);
  return at[l];
}

/* operands: [result,] address, b [, c]; aux: operation in choice[4], type in choice[5] */
static void run(warp *w, const inst *i) {
  const uint8_t op = i->choice[3], t = i->choice[4];
  const uint32_t at = i->destinations;
  const uint64_t mask = i->bytes == 8 ? UINT64_MAX : ((uint64_t)1 << (8 * i->bytes)) - 1;
  for (uint32_t todo = w->mask; todo; todo &= todo - 1) {
    const uint32_t l = (uint32_t)__builtin_ctz(todo);
    const uint64_t base = lane_value(w, i, at, l) + (uint64_t)i->imm;
    uint8_t *p = place_of(w, i, l, i->width[at] == 4 ? (uint32_t)base : base);
    if (!p) return;
    uint64_t old = 0;
    memcpy(&old, p, i->bytes);
    const uint64_t b = lane_value(w, i, at + 1, l) & mask, c = op == CAS ? lane_value(w, i, at + 2, l) & mask : 0;
    const uint64_t now = result(op, t, old, b, c);
    memcpy(p, &now, i->bytes);
    if (at) set_lane(w, i, 0, l, old);
    w->block->worker->counters.atomics++;
  }
}

/* What exists: min and max of integers, inc and dec of u32, and so on. */
static bool allowed(uint8_t op, uint8_t t) {
  const bool integer = t == U32 || t == S32 || t == U64 || t == S64, bits = t == B32 || t == B64 || t == B16;
  switch ((operation)op) {
  case ADD: return !bits && t != S64;
  case MIN:
  case MAX: return integer;
  case AND:
  case OR:
  case XOR: return t == B32 || t == B64;
  case EXCH: return t == B32 || t == B64;
  case INC:
  case DEC: return t == U32;
  case CAS: return bits;
  }
  return false;
}

/* choice: order, scope, space, operation, type (.noftz before it) */
static taper_status decode(decoder *d, inst *i, bool returns) {
  static const uint8_t fences[] = {0, 0, 2, 1, 3};
  static const uint8_t spaces[] = {SPACE_GENERIC, SPACE_GLOBAL, SPACE_SHARED, SPACE_SHARED};
  if (i->choice[5]) { /* .noftz stood there */
    i->choice[4] = i->choice[5];
  }
  const uint8_t op = i->choice[3], t = i->choice[4];
  if (!allowed(op, t)) return parse_fail(d, parse_peek(d) - 1, "this atomic operation on this type");
  i->bytes = (uint8_t)bytes_of(t);
  i->vector = 1;
  i->strong = 1;
  i->space = spaces[i->choice[2]];
  i->fence = i->space == SPACE_SHARED ? 0 : fences[i->choice[0]];
  if (returns) {
    TAPER_TRY(operand_register(d, i, i->bytes, true));
    TAPER_TRY(parse_expect(d, ","));
  }
  space where = (space)i->space;
  TAPER_TRY(operand_address(d, i, &where));
  for (int k = 0; k < (op == CAS ? 2 : 1); k++) {
    TAPER_TRY(parse_expect(d, ","));
    TAPER_TRY(operand_value(d, i, i->bytes, true));
  }
  return TAPER_OK;
}
static taper_status decode_atom(decoder *d, inst *i) { return decode(d, i, true); }
static taper_status decode_red(decoder *d, inst *i) { return decode(d, i, false); }

#define WHERE ".?relaxed|acquire|release|acq_rel.?cta|cluster|gpu|sys.?global|shared|shared::cta."
static const op_row rows[] = {
    {.pattern = "atom" WHERE OPERATIONS "." TYPES, .run = run, .decode = decode_atom},
    {.pattern = "red" WHERE OPERATIONS "." TYPES, .run = run, .decode = decode_red},
    {.pattern = "atom" WHERE OPERATIONS ".noftz." TYPES, .run = run, .decode = decode_atom},
    {.pattern = "red" WHERE OPERATIONS ".noftz." TYPES, .run = run, .decode = decode_red},
};
OP_TABLE(sim_atomic_ops, rows);
