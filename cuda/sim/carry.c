/* carry.c - arithmetic that sets (.cc) or adds (addc, subc, madc) the carry of the lane. */
#include "cuda/sim/lane.h"
#include "cuda/sim/parse.h"

typedef enum carry_op { CARRY_ADD, CARRY_SUB, CARRY_MAD_LO, CARRY_MAD_HI } carry_op;
typedef unsigned __int128 wide;

/* One lane: the result and whether it carried out of `bits` bits; a borrow counts as a carry. */
static uint64_t one(carry_op op, uint32_t bits, bool is_signed, uint64_t a, uint64_t b, uint64_t c, uint32_t carry,
                    bool *out_carry) {
  const uint64_t mask = bits == 64 ? UINT64_MAX : 0xffffffffu;
  wide product = (wide)a * b, sum;
  if (op == CARRY_SUB) {
    *out_carry = (wide)b + carry > a;
    return (a - b - carry) & mask;
  }
  if (is_signed && op == CARRY_MAD_HI) product = (wide)((__int128)(int32_t)a * (int32_t)b);
  if (op == CARRY_ADD)
    sum = (wide)a + b + carry;
  else
    sum = (wide)(uint64_t)((op == CARRY_MAD_HI ? product >> bits : product) & mask) + c + carry;
  *out_carry = (sum >> bits) != 0;
  return (uint64_t)sum & mask;
}

/* choice: the last part is the type (1 u32, 2 s32, 3 u64, 4 s64); the part before it .cc where the row has it. */
static void run(warp *w, const inst *i, carry_op op, bool reads, bool writes) {
  const uint32_t bits = 8u * i->width[0];
  for (uint32_t l = 0; l < SIM_LANES; l++) {
    if (!(w->mask >> l & 1u)) continue;
    const uint64_t c = i->operands > 3 ? lane_value(w, i, 3, l) : 0;
    bool carry;
    const uint64_t v = one(op, bits, i->is_signed, lane_value(w, i, 1, l), lane_value(w, i, 2, l), c,
                           reads ? w->carry >> l & 1u : 0, &carry);
    set_lane(w, i, 0, l, v);
    if (writes) w->carry = (w->carry & ~(1u << l)) | (uint32_t)carry << l;
  }
}

static taper_status decode(decoder *d, inst *i, uint32_t sources, uint8_t type) {
  const uint32_t width = type > 2 ? 8 : 4;
  i->is_signed = type == 2;
  TAPER_TRY(operand_register(d, i, width, true));
  for (uint32_t k = 0; k < sources; k++) {
    TAPER_TRY(parse_expect(d, ","));
    TAPER_TRY(operand_value(d, i, width, true));
  }
  return TAPER_OK;
}
static taper_status decode2(decoder *d, inst *i) { return decode(d, i, 2, i->choice[1]); }
static taper_status decode3(decoder *d, inst *i) { return decode(d, i, 3, i->choice[2]); }

#define CARRY(name, op)                                                                                                \
  static void name##_cc(warp *w, const inst *i) { run(w, i, op, false, true); }                                        \
  static void name##c(warp *w, const inst *i) { run(w, i, op, true, i->choice[i->operands > 3 ? 1 : 0] != 0); }
CARRY(add, CARRY_ADD)
CARRY(sub, CARRY_SUB)
CARRY(mad_lo, CARRY_MAD_LO)
CARRY(mad_hi, CARRY_MAD_HI)

#define TYPES ".u32|s32|u64|s64"
static const op_row rows[] = {
    {.pattern = "add.cc" TYPES, .run = add_cc, .decode = decode2},
    {.pattern = "sub.cc" TYPES, .run = sub_cc, .decode = decode2},
    {.pattern = "addc.?cc" TYPES, .run = addc, .decode = decode2},
    {.pattern = "subc.?cc" TYPES, .run = subc, .decode = decode2},
    {.pattern = "mad.lo.cc" TYPES, .run = mad_lo_cc, .decode = decode3},
    {.pattern = "mad.hi.cc.u32|s32|u64", .run = mad_hi_cc, .decode = decode3},
    {.pattern = "madc.lo.?cc" TYPES, .run = mad_loc, .decode = decode3},
    {.pattern = "madc.hi.?cc.u32|s32|u64", .run = mad_hic, .decode = decode3},
};
OP_TABLE(sim_carry_ops, rows);
