/* convert.c - cvt: between widths, between integers and numbers with a fraction, to fewer digits. */
#include "cuda/sim/half.h"
#include "cuda/sim/lane.h"
#include "cuda/sim/parse.h"

/* The types in the order of the patterns below. */
typedef enum number { U8 = 1, U16, U32, U64, S8, S16, S32, S64 } number;
#define INTEGERS "u8|u16|u32|u64|s8|s16|s32|s64"
typedef enum real { F16 = 1, F32, F64, BF16 } real;
#define REALS "f16|f32|f64|bf16"

static uint32_t integer_bytes(uint8_t t) { return 1u << ((t - 1) & 3); }
static bool integer_signed(uint8_t t) { return t >= S8; }
static uint32_t real_bytes(uint8_t t) { return t == F64 ? 8 : t == F32 ? 4 : 2; }

static inline uint64_t extended(uint64_t v, uint32_t bytes, bool is_signed) {
  const uint32_t up = 64 - 8 * bytes;
  return is_signed ? (uint64_t)((int64_t)(v << up) >> up) : v << up >> up;
}

static taper_status two_operands(decoder *d, inst *i, uint32_t to, uint32_t from, bool exact) {
  TAPER_TRY(operand_register(d, i, to < 2 ? 2 : to, exact));
  TAPER_TRY(parse_expect(d, ","));
  return operand_value(d, i, from < 2 ? 2 : from, exact);
}

/* ---- integer to integer: choice: sat, to, from ---- */

LANE_FUNCTION1(widen_signed, , uint64_t, int32_t, (int64_t)a)
LANE_FUNCTION1(widen_unsigned, , uint64_t, uint32_t, a)
LANE_FUNCTION1(narrow, , uint32_t, uint64_t, a)

/* The value limited to what `to` holds. */
static uint64_t limited(uint64_t v, bool from_signed, uint8_t to) {
  const uint32_t bits = 8 * integer_bytes(to);
  const bool negative = from_signed && (int64_t)v < 0;
  if (integer_signed(to)) {
    const int64_t top = (int64_t)(((uint64_t)1 << (bits - 1)) - 1);
    if (negative) return (int64_t)v < -top - 1 ? (uint64_t)(-top - 1) : v;
    return v > (uint64_t)top ? (uint64_t)top : v;
  }
  const uint64_t top = bits == 64 ? UINT64_MAX : ((uint64_t)1 << bits) - 1;
  return negative ? 0 : v > top ? top : v;
}

static void integers(warp *w, const inst *i) {
  const uint8_t to = i->choice[1], from = i->choice[2];
  for (uint32_t todo = w->mask; todo; todo &= todo - 1) {
    const uint32_t l = (uint32_t)__builtin_ctz(todo);
    uint64_t v = extended(lane_value(w, i, 1, l), integer_bytes(from), integer_signed(from));
    if (i->choice[0]) v = limited(v, integer_signed(from), to);
    set_lane(w, i, 0, l, extended(v, integer_bytes(to), integer_signed(to)));
  }
}

static taper_status decode_integers(decoder *d, inst *i) {
  const uint8_t to = i->choice[1], from = i->choice[2];
  TAPER_TRY(two_operands(d, i, integer_bytes(to), integer_bytes(from), false));
  const bool plain = !i->choice[0] && i->width[0] == integer_bytes(to) && i->width[1] == integer_bytes(from);
  if (plain && integer_bytes(from) == 4 && integer_bytes(to) == 8)
    i->run = integer_signed(from) ? decode_choose(widen_signed, widen_signed_fast)
                                  : decode_choose(widen_unsigned, widen_unsigned_fast);
  if (plain && integer_bytes(from) == 8 && integer_bytes(to) == 4) i->run = decode_choose(narrow, narrow_fast);
  return TAPER_OK;
}

/* ---- numbers with a fraction ---- */

static double real_value(const warp *w, const inst *i, uint32_t operand, uint8_t type, uint32_t l) {
  const void *p = lanes_of(w, i->r[operand]);
  switch (type) {
  case F16: return (double)float_of_half(((const uint16_t *)p)[l]);
  case BF16: return (double)float_of_brain(((const uint16_t *)p)[l]);
  case F32: return (double)((const float *)p)[l];
  }
  return ((const double *)p)[l];
}

static uint64_t real_bits(double v, uint8_t type, rounding r) {
  switch (type) {
  case F16: return half_of(v, r);
  case BF16: return brain_of(v, r);
  case F32: {
    const float f = r == ROUND_NEAREST ? (float)v : (float)rounded(v, 24, -126, 0x1.fffffep127, r);
    return bits_of(canonical(f));
  }
  }
  return bits_of_double(v);
}

/* rn, rz, rm, rp and rni, rzi, rmi, rpi, in the patterns' order */
static rounding rounding_of(uint8_t choice) { return choice ? (rounding)(choice - 1) : ROUND_NEAREST; }

/* choice: rounding, ftz, sat, to, from */
static void real_to_integer(warp *w, const inst *i) {
  const uint8_t to = i->choice[3], from = i->choice[4];
  const uint32_t bits = 8 * integer_bytes(to);
  const double top = ldexp(1, (int)bits - (integer_signed(to) ? 1 : 0)), low = integer_signed(to) ? -top : 0;
  for (uint32_t todo = w->mask; todo; todo &= todo - 1) {
    const uint32_t l = (uint32_t)__builtin_ctz(todo);
    double v = real_value(w, i, 1, from, l);
    if (i->choice[1] && from == F32) v = (double)flushed((float)v);
    const bool nan = v != v;
    v = integral(v, rounding_of(i->choice[0]));
    uint64_t u;
    if (nan)
      u = bits == 64 ? (uint64_t)1 << 63 : 0;
    else if (v >= top)
      u = integer_signed(to) ? ((uint64_t)1 << (bits - 1)) - 1 : bits == 64 ? UINT64_MAX : ((uint64_t)1 << bits) - 1;
    else if (v < low)
      u = integer_signed(to) ? (uint64_t)0 - ((uint64_t)1 << (bits - 1)) : 0;
    else
      u = v < 0 ? (uint64_t)(int64_t)v : (uint64_t)v;
    set_lane(w, i, 0, l, u);
  }
}
static taper_status decode_real_to_integer(decoder *d, inst *i) {
  return two_operands(d, i, integer_bytes(i->choice[3]), real_bytes(i->choice[4]), false);
}

/* The nearest number of 24 or 53 digits to an integer of 64 bits, by the rounding. */
static double from_integer(uint64_t u, bool negative, int digits, rounding r) {
  const uint64_t size = negative ? 0 - u : u;
  const int extra = size ? 64 - __builtin_clzll(size) - digits : 0;
  if (extra <= 0) return negative ? -(double)size : (double)size;
  const uint64_t lost = size & (((uint64_t)1 << extra) - 1), half = (uint64_t)1 << (extra - 1);
  uint64_t kept = size >> extra;
  const bool away = (r == ROUND_UP && !negative) || (r == ROUND_DOWN && negative);
  if (r == ROUND_NEAREST ? lost > half || (lost == half && (kept & 1u)) : away && lost) kept++;
  const double v = ldexp((double)kept, extra);
  return negative ? -v : v;
}

/* choice: rounding, to, from */
static void integer_to_real(warp *w, const inst *i) {
  const uint8_t to = i->choice[1], from = i->choice[2];
  const rounding r = rounding_of(i->choice[0]);
  for (uint32_t todo = w->mask; todo; todo &= todo - 1) {
    const uint32_t l = (uint32_t)__builtin_ctz(todo);
    const uint64_t u = extended(lane_value(w, i, 1, l), integer_bytes(from), integer_signed(from));
    const bool negative = integer_signed(from) && (int64_t)u < 0;
    const int digits = to == F64 ? 53 : to == F32 ? 24 : to == F16 ? 11 : 8;
    set_lane(w, i, 0, l, real_bits(from_integer(u, negative, digits, r), to, r));
  }
}
LANE_FUNCTION1(float_from_s32, , float, int32_t, a)
static taper_status decode_integer_to_real(decoder *d, inst *i) {
  const bool plain = i->choice[0] == 1 && i->choice[1] == F32 && i->choice[2] == S32;
  if (plain) i->run = decode_choose(float_from_s32, float_from_s32_fast);
  return two_operands(d, i, real_bytes(i->choice[1]), integer_bytes(i->choice[2]), plain);
}

LANE_FUNCTION1(float_from_half, , float, uint16_t, float_of_half(a))
LANE_FUNCTION1(float_from_brain, , float, uint16_t, float_of_brain(a))
LANE_FUNCTION1(half_from_float, , uint16_t, float, half_of_float(a))
LANE_FUNCTION1(brain_from_float, , uint16_t, float, brain_of_float(a))

/* choice: rounding to digits, ftz, sat, to, from */
static void reals(warp *w, const inst *i) {
  const uint8_t to = i->choice[3], from = i->choice[4];
  for (uint32_t todo = w->mask; todo; todo &= todo - 1) {
    const uint32_t l = (uint32_t)__builtin_ctz(todo);
    double v = real_value(w, i, 1, from, l);
    if (i->choice[1] && from == F32) v = (double)flushed((float)v);
    uint64_t u = real_bits(v, to, rounding_of(i->choice[0]));
    if (i->choice[1] && to == F32) u = bits_of(flushed(float_of((uint32_t)u)));
    if (i->choice[2]) u = real_bits(v > 0 ? v < 1 ? v : 1 : 0, to, rounding_of(i->choice[0]));
    set_lane(w, i, 0, l, u);
  }
}
static taper_status decode_reals(decoder *d, inst *i) {
  static const struct {
    uint8_t to, from;
    run_fn run, fast;
  } single[] = {{F32, F16, float_from_half, float_from_half_fast},
                {F32, BF16, float_from_brain, float_from_brain_fast},
                {F16, F32, half_from_float, half_from_float_fast},
                {BF16, F32, brain_from_float, brain_from_float_fast}};
  const uint8_t to = i->choice[3], from = i->choice[4];
  if (to == from && i->choice[0]) return parse_fail(d, parse_peek(d) - 1, "a rounding to digits between equal types");
  const uint32_t digits[] = {0, 11, 24, 53, 8};
  if (digits[to] < digits[from] && !i->choice[0])
    return parse_fail(d, parse_peek(d) - 1, "a conversion to fewer digits without a rounding");
  for (size_t k = 0; k < sizeof(single) / sizeof(single[0]); k++)
    if (to == single[k].to && from == single[k].from && i->choice[0] < 2 && !i->choice[1] && !i->choice[2])
      i->run = decode_choose(single[k].run, single[k].fast);
  return two_operands(d, i, real_bytes(to), real_bytes(from), true);
}

/* choice: rounding to an integer, ftz, sat, type, type */
static void to_integral(warp *w, const inst *i) {
  const uint8_t type = i->choice[3];
  for (uint32_t todo = w->mask; todo; todo &= todo - 1) {
    const uint32_t l = (uint32_t)__builtin_ctz(todo);
    double v = real_value(w, i, 1, type, l);
    if (i->choice[1] && type == F32) v = (double)flushed((float)v);
    const double q = copysign(integral(v, rounding_of(i->choice[0])), v);
    set_lane(w, i, 0, l, real_bits(i->choice[2] ? q > 0 ? q < 1 ? q : 1 : 0 : q, type, ROUND_NEAREST));
  }
}
static taper_status decode_to_integral(decoder *d, inst *i) {
  if (i->choice[3] != i->choice[4])
    return parse_fail(d, parse_peek(d) - 1, "a rounding to an integer between different types");
  return two_operands(d, i, real_bytes(i->choice[3]), real_bytes(i->choice[3]), true);
}

/* cvt.rn.f16x2.f32 d, a, b: a becomes the upper half. */
LANE_FUNCTION2(half_pair, , uint32_t, float, float, (uint32_t)half_of_float(a) << 16 | half_of_float(b))
LANE_FUNCTION2(brain_pair, , uint32_t, float, float, (uint32_t)brain_of_float(a) << 16 | brain_of_float(b))
/* To 11 digits in 32 bits; ties away from zero. */
LANE_FUNCTION1(to_tf32_away, , uint32_t, uint32_t,
               (a & 0x7fffffffu) > 0x7f800000u    ? FLOAT_NAN_BITS
               : (a & 0x7f800000u) == 0x7f800000u ? a
                                                  : (a + 0x1000u) & ~0x1fffu)
LANE_FUNCTION1(to_tf32, , uint32_t, uint32_t,
               (a & 0x7fffffffu) > 0x7f800000u    ? FLOAT_NAN_BITS
               : (a & 0x7f800000u) == 0x7f800000u ? a
                                                  : (a + 0xfffu + (a >> 13 & 1u)) & ~0x1fffu)

static const op_row rows[] = {
    {.pattern = "cvt.?sat." INTEGERS "." INTEGERS, .run = integers, .decode = decode_integers},
    {.pattern = "cvt.rni|rzi|rmi|rpi.?ftz.?sat." INTEGERS "." REALS,
     .run = real_to_integer,
     .decode = decode_real_to_integer},
    {.pattern = "cvt.rn|rz|rm|rp." REALS "." INTEGERS, .run = integer_to_real, .decode = decode_integer_to_real},
    {.pattern = "cvt.rni|rzi|rmi|rpi.?ftz.?sat." REALS "." REALS, .run = to_integral, .decode = decode_to_integral},
    {.pattern = "cvt.?rn|rz|rm|rp.?ftz.?sat." REALS "." REALS, .run = reals, .decode = decode_reals},
    {.pattern = "cvt.rn.f16x2.f32", .run = half_pair, .fast = half_pair_fast, .operands = {OPERAND_DEST | 4, 4, 4}},
    {.pattern = "cvt.rn.bf16x2.f32", .run = brain_pair, .fast = brain_pair_fast, .operands = {OPERAND_DEST | 4, 4, 4}},
    {.pattern = "cvt.rna.tf32.f32", .run = to_tf32_away, .fast = to_tf32_away_fast, .operands = {OPERAND_DEST | 4, 4}},
    {.pattern = "cvt.rn.tf32.f32", .run = to_tf32, .fast = to_tf32_fast, .operands = {OPERAND_DEST | 4, 4}},
};
OP_TABLE_COMPUTED(sim_convert_ops, rows);
