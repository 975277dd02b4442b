/* logic.c - predicates: comparisons, their combinations, choices by them. */
#include "cuda/sim/half.h"
#include "cuda/sim/lane.h"
#include "cuda/sim/parse.h"

typedef enum compare { EQ = 1, NE, LT, LE, GT, GE, LO, LS, HI, HS, EQU, NEU, LTU, LEU, GTU, GEU, NUM, NANS } compare;
#define COMPARES "eq|ne|lt|le|gt|ge|lo|ls|hi|hs|equ|neu|ltu|leu|gtu|geu|num|nan"
enum { COMBINE_AND = 1, COMBINE_OR, COMBINE_XOR };

static inline uint32_t negated(const warp *w, const inst *i, uint32_t operand) {
  const uint32_t p = predicate_of(w, i->r[operand]);
  return i->not_operand >> operand & 1u ? ~p : p;
}

/* Bits of lanes where the comparison holds. NaN makes the ordered ones false, the others (equ, ...) true. */
#define EACH(expression)                                                                                               \
  for (uint32_t l = 0; l < SIM_LANES; l++) {                                                                           \
    const KIND a = LOAD(pa, l), b = LOAD(pb, l);                                                                       \
    bits |= (uint32_t)(expression) << l;                                                                               \
  }                                                                                                                    \
  break
#define COMPARE_FUNCTION(name, T)                                                                                      \
  static inline __attribute__((always_inline)) uint32_t name(const warp *w, const inst *i, uint8_t how) {              \
    const T *pa = lanes_of(w, i->r[i->destinations]), *pb = lanes_of(w, i->r[i->destinations + 1]);                    \
    uint32_t bits = 0;                                                                                                 \
    switch ((compare)how) {                                                                                            \
    case EQ: EACH(a == b);                                                                                             \
    case NE: EACH((a < b) | (a > b));                                                                                  \
    case LT:                                                                                                           \
    case LO: EACH(a < b);                                                                                              \
    case LE:                                                                                                           \
    case LS: EACH(a <= b);                                                                                             \
    case GT:                                                                                                           \
    case HI: EACH(a > b);                                                                                              \
    case GE:                                                                                                           \
    case HS: EACH(a >= b);                                                                                             \
    case EQU: EACH(!((a < b) | (a > b)));                                                                              \
    case NEU: EACH(!(a == b));                                                                                         \
    case LTU: EACH(!(a >= b));                                                                                         \
    case LEU: EACH(!(a > b));                                                                                          \
    case GTU: EACH(!(a <= b));                                                                                         \
    case GEU: EACH(!(a < b));                                                                                          \
    case NUM: EACH((a == a) & (b == b));                                                                               \
    case NANS: EACH((a != a) | (b != b));                                                                              \
    }                                                                                                                  \
    return bits;                                                                                                       \
  }
#define LOAD(p, l) (p)[l]
#define KIND int16_t
COMPARE_FUNCTION(compare_s16, int16_t)
#undef KIND
#define KIND uint16_t
COMPARE_FUNCTION(compare_u16, uint16_t)
#undef KIND
#define KIND int32_t
COMPARE_FUNCTION(compare_s32, int32_t)
#undef KIND
#define KIND uint32_t
COMPARE_FUNCTION(compare_u32, uint32_t)
#undef KIND
#define KIND int64_t
COMPARE_FUNCTION(compare_s64, int64_t)
#undef KIND
#define KIND uint64_t
COMPARE_FUNCTION(compare_u64, uint64_t)
#undef KIND
#define KIND double
COMPARE_FUNCTION(compare_f64, double)
#undef KIND
#define KIND float
COMPARE_FUNCTION(compare_f32, float)
#undef LOAD
#define LOAD(p, l) flushed((p)[l])
COMPARE_FUNCTION(compare_ftz, float)
#undef LOAD
#define LOAD(p, l) float_of_half((p)[l])
COMPARE_FUNCTION(compare_f16, uint16_t)
#undef LOAD
#define LOAD(p, l) float_of_brain((p)[l])
COMPARE_FUNCTION(compare_bf16, uint16_t)

typedef uint32_t (*compare_fn)(const warp *w, const inst *i, uint8_t how);

/* choice: comparison, combination, ...; sources a, b and the predicate to combine with. */
static void finish_setp(warp *w, const inst *i, uint32_t yes) {
  uint32_t no = ~yes;
  const uint32_t extra = i->destinations + 2u;
  if (i->choice[1]) {
    const uint32_t c = negated(w, i, extra);
    yes = i->choice[1] == COMBINE_AND ? yes & c : i->choice[1] == COMBINE_OR ? yes | c : yes ^ c;
    no = i->choice[1] == COMBINE_AND ? no & c : i->choice[1] == COMBINE_OR ? no | c : no ^ c;
  }
  set_predicate(w, i->r[0], yes);
  if (i->destinations > 1) set_predicate(w, i->r[1], no);
}

#define TYPES(TYPE)                                                                                                    \
  TYPE(s16, "s16", 2, true)                                                                                            \
  TYPE(u16, "u16|b16", 2, true)                                                                                        \
  TYPE(s32, "s32", 4, true)                                                                                            \
  TYPE(u32, "u32|b32", 4, true)                                                                                        \
  TYPE(s64, "s64", 8, true)                                                                                            \
  TYPE(u64, "u64|b64", 8, true)                                                                                        \
  TYPE(f16, "f16", 2, false)                                                                                           \
  TYPE(bf16, "bf16", 2, false)                                                                                         \
  TYPE(f32, "f32", 4, true)                                                                                            \
  TYPE(f64, "f64", 8, true)

/* set.CMP.u32.TYPE: all ones or 0; .f32: 1 or 0. choice: comparison, result type */
static void finish_set(warp *w, const inst *i, uint32_t yes) {
  uint32_t *pd = lanes_of(w, i->r[0]);
  const uint32_t one = i->choice[1] == 3 ? bits_of(1.0f) : 0xffffffffu;
  FOR_LANES(w, pd[l] = yes >> l & 1u ? one : 0;);
}

/* two: the opposite may be asked for as well */
static taper_status decode_setp(decoder *d, inst *i, uint32_t width, bool two) {
  TAPER_TRY(operand_predicate(d, i, true));
  if (two && parse_accept(d, "|")) TAPER_TRY(operand_predicate(d, i, true));
  for (int k = 0; k < 2; k++) {
    TAPER_TRY(parse_expect(d, ","));
    TAPER_TRY(operand_value(d, i, width, true));
  }
  if (!i->choice[1]) return TAPER_OK;
  TAPER_TRY(parse_expect(d, ","));
  return operand_predicate(d, i, false);
}

#define COMPARISON(name, finish, compare)                                                                              \
  static void name(warp *w, const inst *i) { finish(w, i, compare(w, i, i->choice[0])); }                              \
  SIM_FAST static void name##_fast(warp *w, const inst *i) { finish(w, i, compare(w, i, i->choice[0])); }
#define TYPE(type, words, width, two)                                                                                  \
  COMPARISON(setp_##type, finish_setp, compare_##type)                                                                 \
  COMPARISON(set_##type, finish_set, compare_##type)                                                                   \
  static taper_status decode_setp_##type(decoder *d, inst *i) { return decode_setp(d, i, width, two); }
TYPES(TYPE)
#undef TYPE
COMPARISON(setp_ftz, finish_setp, compare_ftz)

/* testp.finite|infinite|number|notanumber|normal|subnormal */
static void testp_f32(warp *w, const inst *i) {
  const uint32_t *pa = lanes_of(w, i->r[1]);
  uint32_t yes = 0;
  for (uint32_t l = 0; l < SIM_LANES; l++) {
    const uint32_t rest = pa[l] & 0x7fffffffu;
    const bool finite = rest<0x7f800000u, nan = rest> 0x7f800000u, normal = finite && rest >= 0x800000u;
    const bool results[] = {false, finite, rest == 0x7f800000u, !nan, nan, normal, finite && rest && !normal};
    yes |= (uint32_t)results[i->choice[0]] << l;
  }
  set_predicate(w, i->r[0], yes);
}

#define SELP(name, T)                                                                                                  \
  static void name(warp *w, const inst *i){SELP_BODY(T)} SIM_FAST static void name##_fast(warp *w, const inst *i) {    \
    SELP_BODY(T)                                                                                                       \
  }
#define SELP_BODY(T)                                                                                                   \
  const T *pa = lanes_of(w, i->r[1]), *pb = lanes_of(w, i->r[2]);                                                      \
  T *pd = lanes_of(w, i->r[0]);                                                                                        \
  const uint32_t p = negated(w, i, 3);                                                                                 \
  FOR_LANES(w, pd[l] = p >> l & 1u ? pa[l] : pb[l];);
SELP(selp_16, uint16_t)
SELP(selp_32, uint32_t)
SELP(selp_64, uint64_t)
LANE_FUNCTION3(slct_s32, , uint32_t, uint32_t, uint32_t, int32_t, c >= 0 ? a : b)
LANE_FUNCTION3(slct_f32, , uint32_t, uint32_t, uint32_t, float, c >= 0 ? a : b)

static void and_predicates(warp *w, const inst *i) { set_predicate(w, i->r[0], negated(w, i, 1) & negated(w, i, 2)); }
static void or_predicates(warp *w, const inst *i) { set_predicate(w, i->r[0], negated(w, i, 1) | negated(w, i, 2)); }
static void xor_predicates(warp *w, const inst *i) { set_predicate(w, i->r[0], negated(w, i, 1) ^ negated(w, i, 2)); }
static void not_predicate(warp *w, const inst *i) { set_predicate(w, i->r[0], ~negated(w, i, 1)); }

#define PD (OPERAND_DEST | OPERAND_PREDICATE)
#define P OPERAND_PREDICATE
static const op_row rows[] = {
#define TYPE(type, words, width, two)                                                                                  \
  {.pattern = "setp." COMPARES ".?and|or|xor." words,                                                                  \
   .run = setp_##type,                                                                                                 \
   .fast = setp_##type##_fast,                                                                                         \
   .decode = decode_setp_##type},                                                                                      \
      {.pattern = "set." COMPARES ".u32|s32|f32." words,                                                               \
       .run = set_##type,                                                                                              \
       .fast = set_##type##_fast,                                                                                      \
       .operands = {OPERAND_DEST | 4, width, width}},
    TYPES(TYPE)
#undef TYPE
        {.pattern = "setp." COMPARES ".?and|or|xor.ftz.f32",
         .run = setp_ftz,
         .fast = setp_ftz_fast,
         .decode = decode_setp_f32},
    {.pattern = "testp.finite|infinite|number|notanumber|normal|subnormal.f32", .run = testp_f32, .operands = {PD, 4}},
    {.pattern = "selp.b16|u16|s16|f16|bf16",
     .run = selp_16,
     .fast = selp_16_fast,
     .operands = {OPERAND_DEST | 2, 2, 2, P},
     .written_as = WRITTEN_CHOICE},
    {.pattern = "selp.b32|u32|s32|f32",
     .run = selp_32,
     .fast = selp_32_fast,
     .operands = {OPERAND_DEST | 4, 4, 4, P},
     .written_as = WRITTEN_CHOICE},
    {.pattern = "selp.b64|u64|s64|f64",
     .run = selp_64,
     .fast = selp_64_fast,
     .operands = {OPERAND_DEST | 8, 8, 8, P},
     .written_as = WRITTEN_CHOICE},
    {.pattern = "slct.b32|u32|s32|f32.s32",
     .run = slct_s32,
     .fast = slct_s32_fast,
     .operands = {OPERAND_DEST | 4, 4, 4, 4}},
    {.pattern = "slct.b32|u32|s32|f32.f32",
     .run = slct_f32,
     .fast = slct_f32_fast,
     .operands = {OPERAND_DEST | 4, 4, 4, 4}},
    {.pattern = "and.pred", .run = and_predicates, .operands = {PD, P, P}},
    {.pattern = "or.pred", .run = or_predicates, .operands = {PD, P, P}},
    {.pattern = "xor.pred", .run = xor_predicates, .operands = {PD, P, P}},
    {.pattern = "not.pred", .run = not_predicate, .operands = {PD, P}},
};
OP_TABLE_COMPUTED(sim_logic_ops, rows);
