/* collective.c - what the lanes of a member mask do together: shuffles, votes, matches, reductions. The warp has collected them. */
#include "cuda/sim/lane.h"
#include "cuda/sim/parse.h"

enum { SHUFFLE_UP = 1, SHUFFLE_DOWN, SHUFFLE_BUTTERFLY, SHUFFLE_INDEX };

/* The lanes that each lane reads by PTX's rule: itself where that is none of its segment. Bits of the lanes that read what they asked for. */
#define SOURCES(from_, is_valid)                                                                                       \
  for (uint32_t l = 0; l < SIM_LANES; l++) {                                                                           \
    const uint32_t segment = pc[l] >> 8 & 31u, clamp = pc[l] & 31u, step = pb[l] & 31u;                                \
    const uint32_t bottom = l & segment, top = bottom | (clamp & ~segment), from = from_;                              \
    const uint32_t valid = is_valid;                                                                                   \
    (void)top, (void)bottom;                                                                                           \
    out[l] = valid ? from : l;                                                                                         \
    bits |= valid << l;                                                                                                \
  }                                                                                                                    \
  return bits
static inline __attribute__((always_inline)) uint32_t source_lanes(uint8_t how, const uint32_t *pb, const uint32_t *pc,
                                                                   uint32_t out[SIM_LANES]) {
  uint32_t bits = 0;
  switch (how) {
  case SHUFFLE_UP: SOURCES(l - step, (int32_t)(l - step) >= (int32_t)top);
  case SHUFFLE_DOWN: SOURCES(l + step, l + step <= top);
  case SHUFFLE_BUTTERFLY: SOURCES(l ^ step, (l ^ step) <= top);
  }
  SOURCES(bottom | (step & ~segment), (bottom | (step & ~segment)) <= top);
}

static bool sources_come(warp *w, const inst *i, const uint32_t from[SIM_LANES]) {
  for (uint32_t todo = w->mask == SIM_ALL_LANES ? 0 : w->mask; todo; todo &= todo - 1) {
    const uint32_t l = (uint32_t)__builtin_ctz(todo);
    if (w->mask >> (from[l] & 31u) & 1u) continue;
    sim_stop(w, i, l, SIM_ABSENT_LANES, 0, "lane %u reads lane %u, which is not in the member mask %08x", l, from[l],
             w->mask);
    return false;
  }
  return true;
}

/* operands: d [| p], a, b, c, members */
static inline __attribute__((always_inline)) void shuffle_body(warp *w, const inst *i) {
  const uint32_t at = i->destinations;
  const uint32_t *pa = lanes_of(w, i->r[at]), *pb = lanes_of(w, i->r[at + 1]), *pc = lanes_of(w, i->r[at + 2]);
  uint32_t *pd = lanes_of(w, i->r[0]), from[SIM_LANES], values[SIM_LANES];
  const uint32_t valid = source_lanes(i->choice[1], pb, pc, from);
  if (!sources_come(w, i, from)) return;
  for (uint32_t l = 0; l < SIM_LANES; l++) values[l] = pa[from[l] & 31u];
  FOR_LANES(w, pd[l] = values[l];);
  if (at > 1) set_predicate(w, i->r[1], valid);
}
static void shuffle(warp *w, const inst *i) { shuffle_body(w, i); }
SIM_FAST static void shuffle_fast(warp *w, const inst *i) { shuffle_body(w, i); }
static taper_status decode_shuffle(decoder *d, inst *i) {
  TAPER_TRY(operand_register(d, i, 4, true));
  if (parse_accept(d, "|")) TAPER_TRY(operand_predicate(d, i, true));
  for (int k = 0; k < 4; k++) {
    TAPER_TRY(parse_expect(d, ","));
    TAPER_TRY(operand_value(d, i, 4, true));
  }
  return TAPER_OK;
}

static uint32_t voted(const warp *w, const inst *i) {
  const uint32_t p = predicate_of(w, i->r[1]);
  return (i->not_operand & 2u ? ~p : p) & w->mask;
}
static void vote(warp *w, const inst *i) {
  const uint32_t p = voted(w, i);
  const bool yes = i->choice[1] == 1 ? p == w->mask : i->choice[1] == 2 ? p != 0 : p == 0 || p == w->mask;
  set_predicate(w, i->r[0], yes ? SIM_ALL_LANES : 0);
}
static void ballot(warp *w, const inst *i) {
  uint32_t *pd = lanes_of(w, i->r[0]);
  const uint32_t p = voted(w, i);
  FOR_LANES(w, pd[l] = p;);
}

/* match.any: the lanes with the same value; match.all: all of them if all have it, else 0. operands: d [| p], a, members */
static void match(warp *w, const inst *i) {
  const uint32_t at = i->destinations;
  uint32_t masks[SIM_LANES] = {0}, all = 0;
  for (uint32_t todo = w->mask; todo; todo &= todo - 1) {
    const uint32_t l = (uint32_t)__builtin_ctz(todo);
    for (uint32_t r = w->mask; r; r &= r - 1) {
      const uint32_t k = (uint32_t)__builtin_ctz(r);
      if (lane_value(w, i, at, k) == lane_value(w, i, at, l)) masks[l] |= 1u << k;
    }
    if (masks[l] == w->mask) all = w->mask;
  }
  for (uint32_t todo = w->mask; todo; todo &= todo - 1) {
    const uint32_t l = (uint32_t)__builtin_ctz(todo);
    set_lane(w, i, 0, l, i->choice[0] == 1 ? masks[l] : all);
  }
  if (at > 1) set_predicate(w, i->r[1], all ? SIM_ALL_LANES : 0);
}
static taper_status decode_match(decoder *d, inst *i) {
  TAPER_TRY(operand_register(d, i, 4, true));
  if (i->choice[0] == 2 && parse_accept(d, "|")) TAPER_TRY(operand_predicate(d, i, true));
  TAPER_TRY(parse_expect(d, ","));
  TAPER_TRY(operand_value(d, i, i->choice[2] == 1 ? 4 : 8, true));
  TAPER_TRY(parse_expect(d, ","));
  return operand_value(d, i, 4, true);
}

enum { REDUX_ADD = 1, REDUX_MIN, REDUX_MAX, REDUX_AND, REDUX_OR, REDUX_XOR };
static uint32_t reduced(uint8_t op, bool is_signed, uint32_t a, uint32_t b) {
  const bool less = is_signed ? (int32_t)a < (int32_t)b : a < b;
  switch (op) {
  case REDUX_ADD: return a + b;
  case REDUX_MIN: return less ? a : b;
  case REDUX_MAX: return less ? b : a;
  case REDUX_AND: return a & b;
  case REDUX_OR: return a | b;
  }
  return a ^ b;
}
static void redux(warp *w, const inst *i) {
  const uint32_t *pa = lanes_of(w, i->r[1]);
  uint32_t *pd = lanes_of(w, i->r[0]);
  uint32_t v = pa[__builtin_ctz(w->mask)];
  for (uint32_t todo = w->mask & (w->mask - 1); todo; todo &= todo - 1)
    v = reduced(i->choice[1], i->choice[2] == 2, v, pa[__builtin_ctz(todo)]);
  FOR_LANES(w, pd[l] = v;);
}

static void warp_barrier(warp *w, const inst *i) {
  (void)i;
  sim_warp_synced(w, w->mask);
}
/* Is it a bar.warp.sync that may name a part of the lanes? */
bool sim_part_barrier(const sim_module *m, const inst *i) {
  uint32_t mask = 0;
  if (i->run != warp_barrier) return false;
  if (i->r[0] & INST_CONSTANT) memcpy(&mask, m->constants + (i->r[0] & ~INST_CONSTANT), sizeof(mask));
  return mask != SIM_ALL_LANES;
}

static void activemask(warp *w, const inst *i) {
  uint32_t *pd = lanes_of(w, i->r[0]);
  const uint32_t lanes = w->mask;
  FOR_LANES(w, pd[l] = lanes;);
}

static void elect(warp *w, const inst *i) {
  uint32_t *pd = lanes_of(w, i->r[0]);
  const uint32_t leader = (uint32_t)__builtin_ctz(w->mask);
  FOR_LANES(w, pd[l] = leader;);
  set_predicate(w, i->r[1], 1u << leader);
}
static taper_status decode_elect(decoder *d, inst *i) {
  TAPER_TRY(operand_register(d, i, 4, true));
  TAPER_TRY(parse_expect(d, "|"));
  TAPER_TRY(operand_predicate(d, i, true));
  TAPER_TRY(parse_expect(d, ","));
  return operand_value(d, i, 4, true);
}

#define PD (OPERAND_DEST | OPERAND_PREDICATE)
static const op_row rows[] = {
    {.pattern = "shfl.sync.up|down|bfly|idx.b32",
     .kind = INST_COLLECT,
     .run = shuffle,
     .fast = shuffle_fast,
     .decode = decode_shuffle},
    {.pattern = "vote.sync.all|any|uni.pred",
     .kind = INST_COLLECT,
     .run = vote,
     .operands = {PD, OPERAND_PREDICATE, 4}},
    {.pattern = "vote.sync.ballot.b32",
     .kind = INST_COLLECT,
     .run = ballot,
     .operands = {OPERAND_DEST | 4, OPERAND_PREDICATE, 4}},
    {.pattern = "match.any|all.sync.b32|b64", .kind = INST_COLLECT, .run = match, .decode = decode_match},
    {.pattern = "redux.sync.add|min|max.u32|s32",
     .kind = INST_COLLECT,
     .run = redux,
     .operands = {OPERAND_DEST | 4, 4, 4}},
    {.pattern = "redux.sync._|_|_|and|or|xor.b32",
     .kind = INST_COLLECT,
     .run = redux,
     .operands = {OPERAND_DEST | 4, 4, 4}},
    {.pattern = "bar.warp.sync", .kind = INST_COLLECT, .run = warp_barrier, .operands = {4}},
    {.pattern = "elect.sync", .kind = INST_COLLECT, .run = elect, .decode = decode_elect},
    {.pattern = "activemask.b32", .run = activemask, .operands = {OPERAND_DEST | 4}},
};
OP_TABLE(sim_collective_ops, rows);
