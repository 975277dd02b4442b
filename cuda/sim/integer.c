/* integer.c - integer arithmetic and bit operations (integer.def). Division by zero gives all ones, a remainder by it the dividend. */
#include "cuda/sim/lane.h"
#include "cuda/sim/parse.h"

static inline int32_t saturate_32(int64_t v) {
  return v > INT32_MAX ? INT32_MAX : v < INT32_MIN ? INT32_MIN : (int32_t)v;
}

static inline uint64_t mul_hi(uint64_t a, uint64_t b) { return (uint64_t)(((unsigned __int128)a * b) >> 64); }
static inline int64_t mul_hi_signed(int64_t a, int64_t b) { return (int64_t)(((__int128)a * b) >> 64); }
static inline int32_t signed_24(uint32_t a) { return (int32_t)(a << 8) >> 8; }

/* The bits of a word in the opposite order, in the upper half. */
static inline uint64_t reversed(uint64_t a) {
  a = (a >> 1 & 0x55555555u) | (a & 0x55555555u) << 1;
  a = (a >> 2 & 0x33333333u) | (a & 0x33333333u) << 2;
  a = (a >> 4 & 0x0f0f0f0fu) | (a & 0x0f0f0f0fu) << 4;
  return (uint64_t)__builtin_bswap32((uint32_t)a) << 32;
}

static inline uint32_t highest(uint64_t a) { return a ? 63u - (uint32_t)__builtin_clzll(a) : 0xffffffffu; }

/* PTX bfe, bfi: position and length are the low bytes of their operands. */
static inline uint64_t field_mask(uint32_t length) { return length > 63 ? UINT64_MAX : ((uint64_t)1 << length) - 1; }
static inline uint64_t field(uint64_t a, uint32_t position, uint32_t length) {
  position &= 255;
  return position > 63 ? 0 : a >> position & field_mask(length & 255);
}
/* Bits beyond the last are that bit, and the sign of the field is its last bit in the word. */
static inline uint64_t signed_field(int64_t a, uint32_t position, uint32_t length, uint32_t last) {
  position &= 255;
  length &= 255;
  if (length == 0) return 0;
  const uint32_t sign_at = position + length - 1 > last ? last : position + length - 1;
  const uint64_t sign = (uint64_t)a >> sign_at & 1u ? UINT64_MAX : 0;
  const uint64_t bits = position > last ? sign : (uint64_t)(a >> position);
  return (bits & field_mask(length)) | (sign & ~field_mask(length));
}
static inline uint64_t insert(uint64_t a, uint64_t b, uint32_t position, uint32_t length) {
  position &= 255;
  if (position > 63) return b;
  const uint64_t mask = field_mask(length & 255) << position;
  return (b & ~mask) | (a << position & mask);
}

static inline uint32_t permute(uint32_t a, uint32_t b, uint32_t c) {
  const uint64_t bytes = (uint64_t)b << 32 | a;
  uint32_t out = 0;
  for (uint32_t k = 0; k < 4; k++) {
    const uint32_t select = c >> (4 * k) & 15u, byte = (uint32_t)(bytes >> (8 * (select & 7u))) & 0xffu;
    out |= (select & 8u ? (byte & 0x80u ? 0xffu : 0) : byte) << (8 * k);
  }
  return out;
}

static inline uint32_t dot4(uint32_t a, uint32_t b, bool signed_a, bool signed_b) {
  int32_t sum = 0;
  for (uint32_t k = 0; k < 32; k += 8) {
    const int32_t x = signed_a ? (int8_t)(a >> k) : (uint8_t)(a >> k);
    const int32_t y = signed_b ? (int8_t)(b >> k) : (uint8_t)(b >> k);
    sum += x * y;
  }
  return (uint32_t)sum;
}

#define LANE1 LANE_FUNCTION1
#define LANE2 LANE_FUNCTION2
#define LANE3 LANE_FUNCTION3
#define LANE4 LANE_FUNCTION4
#include "cuda/sim/integer.def"

/* lop3: the third-order truth table in the immediate. */
static inline __attribute__((always_inline)) void lop3_body(warp *w, const inst *i) {
  const uint32_t *pa = lanes_of(w, i->r[1]), *pb = lanes_of(w, i->r[2]), *pc = lanes_of(w, i->r[3]);
  uint32_t *pd = lanes_of(w, i->r[0]), full[8];
  for (uint32_t k = 0; k < 8; k++) full[k] = (uint32_t)i->imm >> k & 1u ? 0xffffffffu : 0;
  FOR_LANES(w, const uint32_t a = pa[l]; const uint32_t b = pb[l]; const uint32_t c = pc[l];
            pd[l] = (full[0] & ~a & ~b & ~c) | (full[1] & ~a & ~b & c) | (full[2] & ~a & b & ~c) |
                    (full[3] & ~a & b & c) | (full[4] & a & ~b & ~c) | (full[5] & a & ~b & c) | (full[6] & a & b & ~c) |
                    (full[7] & a & b & c););
}
static void lop3(warp *w, const inst *i) { lop3_body(w, i); }
SIM_FAST static void lop3_fast(warp *w, const inst *i) { lop3_body(w, i); }

static const op_row rows[] = {
#define LANE1 LANE_ROW1
#define LANE2 LANE_ROW2
#define LANE3 LANE_ROW3
#define LANE4 LANE_ROW4
#include "cuda/sim/integer.def"
    {.pattern = "lop3.b32", .run = lop3, .fast = lop3_fast, .operands = {OPERAND_DEST | 4, 4, 4, 4, OPERAND_IMMEDIATE}},
};
OP_TABLE_COMPUTED(sim_integer_ops, rows);
