/* Integer instructions and conversions of integers bit by bit against C. */
#include "tests/unit/ptx_op.h"

#define S32(v) ((int32_t)(uint32_t)(v))
#define U32(v) ((uint32_t)(v))
#define S16(v) ((int16_t)(uint16_t)(v))
#define U16(v) ((uint16_t)(v))
#define S64(v) ((int64_t)(v))

#define REFERENCES(R)                                                                                                  \
  R(add32, "add.u32 %d, %a, %b;", "444", a + b)                                                                        \
  R(add_sat, "add.sat.s32 %d, %a, %b;", "444", clamp((int64_t)S32(a) + S32(b), INT32_MIN, INT32_MAX))                  \
  R(sub_sat, "sub.sat.s32 %d, %a, %b;", "444", clamp((int64_t)S32(a) - S32(b), INT32_MIN, INT32_MAX))                  \
  R(sub64, "sub.s64 %d, %a, %b;", "888", a - b)                                                                        \
  R(mul16, "mul.lo.s16 %d, %a, %b;", "222", (uint32_t)U16(a) * U16(b))                                                 \
  R(mul_wide, "mul.wide.s32 %d, %a, %b;", "844", (int64_t)S32(a) * S32(b))                                             \
  R(mul_wide_u, "mul.wide.u32 %d, %a, %b;", "844", (uint64_t)U32(a) * U32(b))                                          \
  R(mul_wide16, "mul.wide.s16 %d, %a, %b;", "422", S16(a) * S16(b))                                                    \
  R(mul_hi, "mul.hi.s32 %d, %a, %b;", "444", (int64_t)S32(a) * S32(b) >> 32)                                           \
  R(mul_hi_u, "mul.hi.u32 %d, %a, %b;", "444", (uint64_t)U32(a) * U32(b) >> 32)                                        \
  R(mul_hi64, "mul.hi.u64 %d, %a, %b;", "888", high_by_parts(a, b))                                                    \
  R(mul_hi_s64, "mul.hi.s64 %d, %a, %b;", "888", high_by_parts(a, b) - (S64(a) < 0 ? b : 0) - (S64(b) < 0 ? a : 0))    \
  R(mad, "mad.lo.s32 %d, %a, %b, %c;", "4444", a *b + c)                                                               \
  R(mad_wide, "mad.wide.s32 %d, %a, %b, %c;", "8448", (uint64_t)((int64_t)S32(a) * S32(b)) + c)                        \
  R(mad_hi, "mad.hi.u32 %d, %a, %b, %c;", "4444", ((uint64_t)U32(a) * U32(b) >> 32) + c)                               \
  R(mul24, "mul24.lo.s32 %d, %a, %b;", "444", (int64_t)(S32(a << 8) / 256) * (S32(b << 8) / 256))                      \
  R(sad, "sad.s32 %d, %a, %b, %c;", "4444", (uint64_t)llabs((int64_t)S32(a) - S32(b)) + c)                             \
  R(div, "div.s32 %d, %a, %b;", "444", S32(b) ? (int64_t)S32(a) / S32(b) : -1)                                         \
  R(div_u64, "div.u64 %d, %a, %b;", "888", b ? a / b : UINT64_MAX)                                                     \
  R(rem, "rem.s32 %d, %a, %b;", "444", S32(b) ? (int64_t)S32(a) % S32(b) : S32(a))                                     \
  R(rem16, "rem.u16 %d, %a, %b;", "222", U16(b) ? U16(a) % U16(b) : U16(a))                                            \
  R(abs32, "abs.s32 %d, %a;", "44", S32(a) < 0 ? 0 - a : a)                                                            \
  R(neg64, "neg.s64 %d, %a;", "88", 0 - a)                                                                             \
  R(min, "min.s32 %d, %a, %b;", "444", S32(a) < S32(b) ? a : b)                                                        \
  R(max_u, "max.u32 %d, %a, %b;", "444", U32(a) > U32(b) ? a : b)                                                      \
  R(max16, "max.s16 %d, %a, %b;", "222", S16(a) > S16(b) ? a : b)                                                      \
  R(cnot, "cnot.b32 %d, %a;", "44", U32(a) == 0)                                                                       \
  R(shl, "shl.b32 %d, %a, %b;", "444", U32(b) > 31 ? 0 : a << U32(b))                                                  \
  R(shl64, "shl.b64 %d, %a, %b;", "884", U32(b) > 63 ? 0 : a << U32(b))                                                \
  R(shr, "shr.s32 %d, %a, %b;", "444", (int64_t)S32(a) >> (U32(b) > 63 ? 63 : U32(b)))                                 \
  R(shr16, "shr.u16 %d, %a, %b;", "224", U32(b) > 15 ? 0 : U16(a) >> U32(b))                                           \
  R(shf_l, "shf.l.wrap.b32 %d, %a, %b, %c;", "4444", c & 31 ? b << (c & 31) | U32(a) >> (32 - (c & 31)) : b)           \
  R(shf_r, "shf.r.clamp.b32 %d, %a, %b, %c;", "4444", shift_right(a, b, U32(c)))                                       \
  R(popc, "popc.b64 %d, %a;", "48", ones(a))                                                                           \
  R(clz, "clz.b32 %d, %a;", "44", 32 - length(U32(a)))                                                                 \
  R(clz64, "clz.b64 %d, %a;", "48", 64 - length(a))                                                                    \
  R(bfind, "bfind.s32 %d, %a;", "44", length(U32(S32(a) < 0 ? ~a : a)) - 1)                                            \
  R(bfind_shift, "bfind.shiftamt.u32 %d, %a;", "44", U32(a) ? 32 - length(U32(a)) : UINT64_MAX)                        \
  R(brev, "brev.b32 %d, %a;", "44", backwards(a, 32))                                                                  \
  R(brev64, "brev.b64 %d, %a;", "88", backwards(a, 64))                                                                \
  R(bfe, "bfe.u32 %d, %a, %b, %c;", "4444", bits(a, b & 255, c & 255, 32, 0))                                          \
  R(bfe_s, "bfe.s32 %d, %a, %b, %c;", "4444", bits(a, b & 255, c & 255, 32, 1))                                        \
  R(bfe_s64, "bfe.s64 %d, %a, %b, %c;", "8844", bits(a, b & 255, c & 255, 64, 1))                                      \
  R(bfi, "bfi.b32 %d, %a, %b, %c, %e;", "44444", replaced(a, b, c & 255, e & 255, 32))                                 \
  R(bfi64, "bfi.b64 %d, %a, %b, %c, %e;", "88844", replaced(a, b, c & 255, e & 255, 64))                               \
  R(prmt, "prmt.b32 %d, %a, %b, %c;", "4444", chosen_bytes(a, b, c))                                                   \
  R(lop3, "lop3.b32 %d, %a, %b, %c, 0xca;", "4444", (a & b) | (~a & c))                                                \
  R(lop3_96, "lop3.b32 %d, %a, %b, %c, 0x96;", "4444", a ^ b ^ c)                                                      \
  R(dp4a, "dp4a.s32.s32 %d, %a, %b, %c;", "4444", c + dot(a, b, 1))                                                    \
  R(dp4a_u, "dp4a.u32.u32 %d, %a, %b, %c;", "4444", c + dot(a, b, 0))                                                  \
  R(add_carry, "{ .reg .b32 %x; add.cc.u32 %x, %a, %b; addc.u32 %d, %c, 0; }", "4444",                                 \
    c + (((uint64_t)U32(a) + U32(b)) >> 32))                                                                           \
  R(sub_borrow, "{ .reg .b32 %x; sub.cc.u32 %x, %a, %b; subc.u32 %d, %c, 0; }", "4444", c - (U32(a) < U32(b)))         \
  R(mad_carry, "{ .reg .b32 %x; mad.lo.cc.u32 %x, %a, %b, %c; madc.hi.u32 %d, %a, %b, 0; }", "4444",                   \
    ((uint64_t)U32(a) * U32(b) + U32(c)) >> 32)                                                                        \
  R(cvt_s8, "cvt.s32.s8 %d, %a;", "44", (int8_t)a)                                                                     \
  R(cvt_u8, "cvt.u16.u8 %d, %a;", "24", (uint8_t)a)                                                                    \
  R(cvt_sat, "cvt.sat.s16.s32 %d, %a;", "24", clamp(S32(a), INT16_MIN, INT16_MAX))                                     \
  R(cvt_sat_u, "cvt.sat.u8.s32 %d, %a;", "44", clamp(S32(a), 0, 255))                                                  \
  R(cvt_sat_64, "cvt.sat.u32.s64 %d, %a;", "48", clamp(S64(a), 0, UINT32_MAX))                                         \
  R(cvt_wide, "cvt.s64.s32 %d, %a;", "84", (int64_t)S32(a))                                                            \
  R(setp_lt, "setp.lt.s32 %d, %a, %b;", "p44", S32(a) < S32(b))                                                        \
  R(setp_hs, "setp.hs.u32 %d, %a, %b;", "p44", U32(a) >= U32(b))                                                       \
  R(setp_and, "setp.ne.and.s64 %d, %a, %b, !%c;", "p88p", a != b && !U32(c))                                           \
  R(setp_both, "{ .reg .pred %q; setp.gt.xor.u16 %q|%d, %a, %b, %c; }", "p22p", !(U16(a) > U16(b)) ^ (U32(c) != 0))    \
  R(set, "set.le.u32.s32 %d, %a, %b;", "444", S32(a) <= S32(b) ? UINT64_MAX : 0)                                       \
  R(selp, "selp.b64 %d, %a, %b, %c;", "888p", U32(c) ? a : b)                                                          \
  R(slct, "slct.u32.s32 %d, %a, %b, %c;", "4444", S32(c) >= 0 ? a : b)                                                 \
  R(pack, "mov.b64 %d, {%a, %b};", "844", U32(a) | b << 32)                                                            \
  R(unpack, "{ .reg .b16 %l; mov.b32 {%l, %d}, %a; }", "24", a >> 16)

static int64_t clamp(int64_t v, int64_t low, int64_t high) { return v < low ? low : v > high ? high : v; }
static uint64_t high_by_parts(uint64_t a, uint64_t b) {
  const uint64_t x = (a >> 32) * U32(b) + ((uint64_t)U32(a) * U32(b) >> 32), y = (uint64_t)U32(a) * (b >> 32) + U32(x);
  return (a >> 32) * (b >> 32) + (x >> 32) + (y >> 32);
}
static uint64_t shift_right(uint64_t a, uint64_t b, uint32_t c) {
  for (uint32_t k = 0; k < (c > 32 ? 32 : c); k++) {
    a = U32(a) >> 1 | (b & 1) << 31;
    b = U32(b) >> 1;
  }
  return a;
}
static uint64_t ones(uint64_t a) {
  uint64_t n = 0;
  for (; a; a >>= 1) n += a & 1;
  return n;
}
static uint64_t length(uint64_t a) {
  uint64_t n = 0;
  for (; a; a >>= 1) n++;
  return n;
}
static uint64_t backwards(uint64_t a, int n) {
  uint64_t r = 0;
  for (int k = 0; k < n; k++) r |= (a >> k & 1) << (n - 1 - k);
  return r;
}
/* PTX ISA, bfe: bit by bit. */
static uint64_t bits(uint64_t a, uint64_t position, uint64_t count, uint64_t width, int is_signed) {
  const uint64_t last = position + count - 1 < width - 1 ? position + count - 1 : width - 1;
  const uint64_t sign = is_signed && count ? a >> last & 1 : 0;
  uint64_t r = 0;
  for (uint64_t k = 0; k < width; k++) r |= (k < count && position + k < width ? a >> (position + k) & 1 : sign) << k;
  return r;
}
static uint64_t replaced(uint64_t a, uint64_t b, uint64_t position, uint64_t count, uint64_t width) {
  for (uint64_t k = 0; k < count && position + k < width; k++)
    b = (b & ~((uint64_t)1 << (position + k))) | (a >> k & 1) << (position + k);
  return b;
}
static uint64_t chosen_bytes(uint64_t a, uint64_t b, uint64_t c) {
  uint64_t r = 0;
  for (int k = 0; k < 4; k++) {
    const uint64_t s = c >> (4 * k) & 15, byte = ((s & 4) ? b : a) >> (8 * (s & 3)) & 255;
    r |= (s & 8 ? (byte >> 7) * 255 : byte) << (8 * k);
  }
  return r;
}
static uint64_t dot(uint64_t a, uint64_t b, int is_signed) {
  int64_t s = 0;
  for (int k = 0; k < 32; k += 8)
    s += is_signed ? (int8_t)(a >> k) * (int8_t)(b >> k) : (int64_t)(uint8_t)(a >> k) * (uint8_t)(b >> k);
  return (uint64_t)s;
}

#define R(name, text, widths, expression)                                                                              \
  static uint64_t ref_##name(uint64_t a, uint64_t b, uint64_t c, uint64_t e) {                                         \
    (void)a, (void)b, (void)c, (void)e;                                                                                \
    return (uint64_t)(expression);                                                                                     \
  }
REFERENCES(R)
#undef R

static uint64_t odd_value(uint64_t k) {
  static const uint64_t values[] = {0,
                                    1,
                                    2,
                                    31,
                                    32,
                                    33,
                                    63,
                                    64,
                                    255,
                                    256,
                                    0x7f,
                                    0x80,
                                    0x7fff,
                                    0x8000,
                                    0xffff,
                                    0x7fffffff,
                                    0x80000000,
                                    0xffffffff,
                                    0x80000001,
                                    100000,
                                    UINT64_MAX,
                                    (uint64_t)1 << 63,
                                    ((uint64_t)1 << 63) - 1,
                                    0xfffffffe,
                                    (uint64_t)1 << 32};
  const size_t n = sizeof(values) / sizeof(values[0]);
  if (k % 3 == 0) return values[op_random() % n];
  if (k % 3 == 1) return op_random() % 70;
  return op_random();
}

static void integers(void **state) {
  (void)state;
  static const op_case cases[] = {
#define R(name, text, widths, expression) {text, widths, ref_##name},
      REFERENCES(R)
#undef R
  };
  enum { COUNT = 1213 };
  static op_element elements[COUNT];
  for (size_t k = 0; k < sizeof(cases) / sizeof(cases[0]); k++) {
    for (int i = 0; i < COUNT; i++)
      for (int j = 0; j < 4; j++) elements[i].in[j] = odd_value(op_random());
    op_check(&cases[k], elements, COUNT);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(integers)};
  return cmocka_run_group_tests(tests, ptx_setup, ptx_teardown);
}
