/* move.c - mov in all its forms, addresses between spaces, clocks. */
#include "cuda/sim/lane.h"
#include "cuda/sim/parse.h"

LANE_FUNCTION1(mov_16, , uint16_t, uint16_t, a)
LANE_FUNCTION1(mov_32, , uint32_t, uint32_t, a)
LANE_FUNCTION1(mov_64, , uint64_t, uint64_t, a)
static void mov_predicate(warp *w, const inst *i) { set_predicate(w, i->r[0], predicate_of(w, i->r[1])); }

/* The address of a variable of a frame: base and offset. */
LANE_FUNCTION1(mov_address_32, , uint32_t, uint32_t, a + (uint32_t)i->imm)
LANE_FUNCTION1(mov_address_64, , uint64_t, uint64_t, a + (uint64_t)i->imm)

static run_fn mov_of(uint32_t width) {
  return width == 2   ? decode_choose(mov_16, mov_16_fast)
         : width == 4 ? decode_choose(mov_32, mov_32_fast)
                      : decode_choose(mov_64, mov_64_fast);
}
static run_fn mov_address_of(uint32_t width) {
  return width == 4 ? decode_choose(mov_address_32, mov_address_32_fast)
                    : decode_choose(mov_address_64, mov_address_64_fast);
}

/* {a, b, ...} = c, and the reverse; the first element is the lowest. */
static void split(warp *w, const inst *i) {
  const uint32_t bits = 8u * i->width[i->operands - 1] / i->destinations;
  for (uint32_t l = 0; l < SIM_LANES; l++) {
    if (!(w->mask >> l & 1u)) continue;
    const uint64_t v = lane_value(w, i, i->operands - 1u, l);
    for (uint32_t k = 0; k < i->destinations; k++) set_lane(w, i, k, l, v >> (bits * k));
  }
}
static void join(warp *w, const inst *i) {
  const uint32_t count = i->operands - 1u, bits = 8u * i->width[0] / count;
  for (uint32_t l = 0; l < SIM_LANES; l++) {
    if (!(w->mask >> l & 1u)) continue;
    uint64_t v = 0;
    for (uint32_t k = 0; k < count; k++) v |= lane_value(w, i, k + 1, l) << (bits * k);
    set_lane(w, i, 0, l, v);
  }
}

/* A clock that counts the instructions of the worker; it never stands still. */
static void clock_now(warp *w, const inst *i) {
  const uint64_t now = w->block->worker->clock += 16;
  FOR_LANES(w, set_lane(w, i, 0, l, i->imm ? now >> 32 : now););
}

static uint32_t list_length(const decoder *d) {
  uint32_t count = 1;
  for (const token *t = parse_peek(d); t->kind != TOKEN_END && !parse_is(t, "}") && !parse_is(t, ";"); t++)
    count += parse_is(t, ",");
  return count;
}

static taper_status decode_list(decoder *d, inst *i, uint32_t width) {
  const bool splits = parse_is(parse_peek(d), "{");
  uint32_t count = 0;
  if (splits) {
    count = list_length(d);
    if (count < 2 || count > 4 || width % count) return parse_fail(d, parse_peek(d), "a list of %u parts", count);
    TAPER_TRY(operand_list(d, i, count, width / count, true, true));
    TAPER_TRY(parse_expect(d, ","));
    i->run = split;
    return operand_value(d, i, width, true);
  }
  TAPER_TRY(operand_register(d, i, width, true));
  TAPER_TRY(parse_expect(d, ","));
  count = list_length(d);
  if (count < 2 || count > 4 || width % count) return parse_fail(d, parse_peek(d), "a list of %u parts", count);
  i->run = join;
  return operand_list(d, i, count, width / count, true, false);
}

static bool accept_clock(decoder *d, inst *i, uint32_t width) {
  if (width == 8 && (parse_accept(d, "%clock64") || parse_accept(d, "%globaltimer"))) return true;
  if (width != 4) return false;
  if (parse_accept(d, "%clock") || parse_accept(d, "%globaltimer_lo")) return true;
  i->imm = parse_accept(d, "%clock_hi") || parse_accept(d, "%globaltimer_hi");
  return i->imm != 0;
}

static taper_status decode_mov(decoder *d, inst *i) {
  static const uint8_t widths[] = {0, 2, 2, 2, 2, 4, 4, 4, 4, 8, 8, 8, 8, 2, 4};
  const uint32_t width = widths[i->choice[0]];
  const token *t = parse_peek(d);
  while (!parse_is(t, "{") && !parse_is(t, ";") && t->kind != TOKEN_END) t++;
  if (parse_is(t, "{")) return decode_list(d, i, width);
  TAPER_TRY(operand_register(d, i, width, true));
  TAPER_TRY(parse_expect(d, ","));
  if (accept_clock(d, i, width)) {
    i->run = clock_now;
    return TAPER_OK;
  }
  TAPER_TRY(operand_value(d, i, width, false));
  if (i->width[1] != width)
    return parse_fail(d, parse_peek(d) - 1, "a mov between %u and %u bits", 8u * i->width[1], 8 * width);
  i->run = i->imm && width >= 4 ? mov_address_of(width) : mov_of(width);
  i->written_as = WRITTEN_COPY;
  return TAPER_OK;
}

static const uint64_t windows[] = {0, 0, SIM_WINDOW_SHARED, SIM_WINDOW_SHARED, SIM_WINDOW_LOCAL, SIM_WINDOW_PARAMETER,
                                   0};

/* choice: to, space, type. imm: what is added; a shared address may have 32 bits. */
static taper_status decode_cvta(decoder *d, inst *i) {
  const uint64_t window = windows[i->choice[1]];
  const uint32_t width = i->choice[2] == 1 ? 4 : 8;
  if (width == 4 && window) return parse_fail(d, parse_peek(d), "a generic address of 32 bits");
  TAPER_TRY(operand_register(d, i, width, true));
  TAPER_TRY(parse_expect(d, ","));
  TAPER_TRY(operand_value(d, i, width, false));
  if (i->width[1] != width) return parse_fail(d, parse_peek(d) - 1, "an address of %u bits", 8u * i->width[1]);
  i->imm += i->choice[0] ? (int64_t)(0 - window) : (int64_t)window;
  i->run = mov_address_of(width);
  i->written_as = WRITTEN_COPY;
  return TAPER_OK;
}

static bool in_window(uint64_t address, uint64_t window) {
  return address >= window && address - window < SIM_WINDOW_SIZE;
}

/* choice: space */
static void isspacep(warp *w, const inst *i) {
  const uint64_t window = windows[i->choice[0]];
  uint32_t yes = 0;
  for (uint32_t l = 0; l < SIM_LANES; l++) {
    const uint64_t a = lane_value(w, i, 1, l);
    const bool global =
        !in_window(a, SIM_WINDOW_SHARED) && !in_window(a, SIM_WINDOW_LOCAL) && !in_window(a, SIM_WINDOW_PARAMETER);
    yes |= (uint32_t)(window ? in_window(a, window) : global) << l;
  }
  set_predicate(w, i->r[0], yes);
}

#define SPACES "global|shared|shared::cta|local|param|const"
static const op_row rows[] = {
    {.pattern = "mov.b16|u16|s16|f16|b32|u32|s32|f32|b64|u64|s64|f64|bf16|f16x2", .decode = decode_mov},
    {.pattern = "mov.pred",
     .run = mov_predicate,
     .operands = {OPERAND_DEST | OPERAND_PREDICATE, OPERAND_PREDICATE},
     .written_as = WRITTEN_COPY},
    {.pattern = "cvta.?to." SPACES ".u32|u64", .decode = decode_cvta},
    {.pattern = "isspacep." SPACES, .run = isspacep, .operands = {OPERAND_DEST | OPERAND_PREDICATE, 8}},
};
OP_TABLE_COMPUTED(sim_move_ops, rows);
