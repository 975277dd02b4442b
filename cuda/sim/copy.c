/* copy.c - cp.async: the bytes arrive as late as the waits allow. */
#include "cuda/sim/lane.h"
#include "cuda/sim/parse.h"
#include <stdlib.h>

static bool add_copy(warp *w, async_copy c) {
  if (w->copy_count == w->copy_capacity) {
    const uint32_t capacity = 2 * w->copy_capacity + 64;
    async_copy *grown = realloc(w->copies, capacity * sizeof(*grown));
    if (!grown) return false;
    w->copies = grown;
    w->copy_capacity = capacity;
  }
  w->copies[w->copy_count++] = c;
  return true;
}

/* operands: shared address, global address [, bytes of the source]; imm: offset of the first; target: of the second; bytes: 4, 8, 16 */
static void copy_async(warp *w, const inst *i) {
  const uint32_t all = w->mask, bytes = i->vector;
  for (uint32_t todo = all; todo; todo &= todo - 1) {
    const uint32_t l = (uint32_t)__builtin_ctz(todo);
    const uint64_t base = lane_value(w, i, 0, l) + (uint64_t)i->imm;
    uint64_t to = i->width[0] == 4 ? (uint32_t)base : base, from[SIM_LANES];
    if (to > UINT32_MAX) to = 0;
    from[l] = lane_value(w, i, 1, l) + (uint64_t)(int64_t)(int32_t)i->target;
    const uint64_t source = i->operands > 2 ? lane_value(w, i, 2, l) : bytes;
    uint8_t *at[SIM_LANES];
    if (source > bytes) {
      sim_stop(w, i, l, SIM_BAD_VALUE, source, "cp.async of %llu bytes into %u", (unsigned long long)source, bytes);
      return;
    }
    w->mask = 1u << l;
    if (from[l] % bytes)
      sim_stop(w, i, l, SIM_MISALIGNED, from[l], "%u bytes at 0x%llx", bytes, (unsigned long long)from[l]);
    for (uint64_t k = 0; k < source && !w->block->stop; k++) { /* any number of bytes */
      uint64_t one[SIM_LANES];
      uint8_t *ignored[SIM_LANES];
      one[l] = from[l] + k;
      if (source == bytes) break;
      (void)sim_global(w, i, one, 1, ACCESS_READ, ignored);
    }
    if (source == bytes && !w->block->stop) (void)sim_global(w, i, from, bytes, ACCESS_READ, at);
    w->mask = all;
    if (w->block->stop || !sim_shared_pending(w, i, l, (uint32_t)to, bytes)) return;
    memset(w->block->shared + ((uint32_t)to - SIM_SHARED_BASE), 0xfb, bytes);
    const async_copy c = {.from = from[l],
                          .to = (uint32_t)to,
                          .group = w->copy_groups[l],
                          .bytes = (uint8_t)bytes,
                          .source_bytes = (uint8_t)source,
                          .lane = (uint8_t)l};
    if (!add_copy(w, c)) {
      sim_stop(w, i, l, SIM_NO_MEMORY, 0, "for copies under way");
      return;
    }
  }
}

static void commit(warp *w, const inst *i) {
  (void)i;
  for (uint32_t todo = w->mask; todo; todo &= todo - 1) w->copy_groups[__builtin_ctz(todo)]++;
}

static void land(warp *w, const async_copy *c) {
  sim_span from;
  uint8_t *to = w->block->shared + (c->to - SIM_SHARED_BASE);
  memset(to, 0, c->bytes);
  if (c->source_bytes && sim_memory_find(w->block->run->memory, c->from, c->source_bytes, &from))
    memcpy(to, from.data, c->source_bytes);
  sim_shared_land(w, c->lane, c->to, c->bytes);
}

/* All but the newest `pending` groups of the lanes have arrived; with `all`, also what is in no group yet. */
static void wait(warp *w, uint64_t pending, bool all) {
  uint32_t kept = 0;
  for (uint32_t k = 0; k < w->copy_count; k++) {
    const async_copy *c = &w->copies[k];
    const bool mine = w->mask >> c->lane & 1u;
    if (mine && (all || c->group + pending < w->copy_groups[c->lane]))
      land(w, c);
    else
      w->copies[kept++] = *c;
  }
  w->copy_count = kept;
}
static void wait_group(warp *w, const inst *i) { wait(w, (uint64_t)i->imm, false); }
static void wait_all(warp *w, const inst *i) {
  (void)i;
  wait(w, 0, true);
}

/* choice: async, ca or cg, ... */
static taper_status decode_copy(decoder *d, inst *i) {
  space shared = SPACE_SHARED, global = SPACE_GLOBAL;
  int64_t bytes;
  TAPER_TRY(operand_address(d, i, &shared));
  const int64_t to_offset = i->imm;
  TAPER_TRY(parse_expect(d, ","));
  TAPER_TRY(operand_address(d, i, &global));
  if (i->imm > INT32_MAX || i->imm < INT32_MIN) return parse_fail(d, parse_peek(d), "an offset beyond 2^31");
  i->target = (uint32_t)(int32_t)i->imm;
  i->imm = to_offset;
  TAPER_TRY(parse_expect(d, ","));
  TAPER_TRY(operand_immediate(d, &bytes));
  if (bytes != 16 && (i->choice[1] == 2 || (bytes != 4 && bytes != 8)))
    return parse_fail(d, parse_peek(d), "cp.async of %lld bytes", (long long)bytes);
  i->vector = (uint8_t)bytes;
  i->bytes = 4;
  i->space = SPACE_SHARED;
  if (!parse_accept(d, ",")) return TAPER_OK;
  return operand_value(d, i, 4, true);
}

static const op_row rows[] = {
    {.pattern = "cp.async.ca|cg.shared|shared::cta.global.?L2::64B|L2::128B|L2::256B",
     .run = copy_async,
     .decode = decode_copy},
    {.pattern = "cp.async.commit_group", .run = commit},
    {.pattern = "cp.async.wait_group", .run = wait_group, .operands = {OPERAND_IMMEDIATE}},
    {.pattern = "cp.async.wait_all", .run = wait_all},
};
OP_TABLE(sim_copy_ops, rows);
