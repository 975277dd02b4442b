/* access.c - ld and st in all spaces. */
#include "cuda/sim/lane.h"
#include "cuda/sim/parse.h"

/* Order between blocks: what the modifiers of a strong access mean. fence: bit 0 releases before, bit 1 acquires after. */
enum { FENCE_BEFORE = 1, FENCE_AFTER = 2 };
static void fence_before(const warp *w, const inst *i) {
  const block *b = w->block;
  if (b->order && i->fence & FENCE_BEFORE) order_fence(b->run->ordered, b->order, b->number);
}
static bool pass_order(warp *w, const inst *i, const uint64_t *address, bool reads, bool writes) {
  const block *b = w->block;
  if (!b->order || !i->strong) return true;
  for (uint32_t todo = w->mask; todo; todo &= todo - 1) {
    const uint32_t l = (uint32_t)__builtin_ctz(todo);
    if (!order_strong(b->run->ordered, b->order, b->number, address[l], reads, writes)) {
      sim_stop(w, i, l, SIM_NO_MEMORY, 0, "for the order of blocks");
      return false;
    }
  }
  if (i->fence & FENCE_AFTER) order_fence(b->run->ordered, b->order, b->number);
  return true;
}

static void addresses(const warp *w, const inst *i, uint32_t operand, uint64_t out[SIM_LANES]) {
  const void *p = lanes_of(w, i->r[operand]);
  if (i->width[operand] == 8) {
    for (uint32_t l = 0; l < SIM_LANES; l++) out[l] = ((const uint64_t *)p)[l] + (uint64_t)i->imm;
  } else {
    for (uint32_t l = 0; l < SIM_LANES; l++) out[l] = (uint32_t)(((const uint32_t *)p)[l] + (uint32_t)i->imm);
  }
}

/* Memory that belongs to the thread (local, arguments of calls) or to the launch (parameters). */
static bool own_memory(warp *w, const inst *i, space where, const uint64_t *address, uint32_t bytes, bool write,
                       uint8_t **at) {
  const sim_kernel *k = w->block->run->kernel;
  const uint32_t size = where == SPACE_LOCAL  ? k->local_bytes
                        : where == SPACE_CALL ? k->call_bytes
                                              : k->facts.parameter_bytes;
  for (uint32_t todo = w->mask; todo; todo &= todo - 1) {
    const uint32_t l = (uint32_t)__builtin_ctz(todo);
    const uint64_t v = address[l];
    if (v >= size || bytes > size - v || (where == SPACE_PARAMETER && write)) {
      sim_stop(w, i, l, SIM_OUT_OF_BOUNDS, v, "%u bytes at byte %llu of %u bytes of %s", bytes, (unsigned long long)v,
               size,
               where == SPACE_LOCAL  ? "local memory"
               : where == SPACE_CALL ? "arguments"
                                     : "parameters");
      return false;
    }
    if (v & (bytes - 1)) {
      sim_stop(w, i, l, SIM_MISALIGNED, v, "%u bytes at byte %llu", bytes, (unsigned long long)v);
      return false;
    }
    at[l] = where == SPACE_PARAMETER ? w->block->run->parameters + v
                                     : (where == SPACE_CALL ? w->call_area : w->local) + (size_t)l * size + v;
    if (where != SPACE_LOCAL) continue;
    uint8_t *written = w->local_written + (size_t)l * size + v;
    w->block->worker->counters.local_bytes += bytes;
    if (write) {
      memset(written, 1, bytes);
      continue;
    }
    for (uint32_t byte = 0; byte < bytes; byte++)
      if (!written[byte] && !(i->unused >> byte & 1u)) {
        sim_stop(w, i, l, SIM_UNWRITTEN_MEMORY, v + byte, "byte %llu of local memory", (unsigned long long)v + byte);
        return false;
      }
  }
  return true;
}

/* The space of a generic address; *address becomes the address in it. */
static space space_of(uint64_t *address) {
  static const struct {
    uint64_t window;
    space where;
  } windows[] = {
      {SIM_WINDOW_SHARED, SPACE_SHARED}, {SIM_WINDOW_LOCAL, SPACE_LOCAL}, {SIM_WINDOW_PARAMETER, SPACE_PARAMETER}};
  for (size_t k = 0; k < 3; k++)
    if (*address >= windows[k].window && *address - windows[k].window < SIM_WINDOW_SIZE) {
      *address -= windows[k].window;
      return windows[k].where;
    }
  return SPACE_GLOBAL;
}

/* Calls `part` for the lanes of each space that generic addresses of the warp lie in. */
static void by_space(warp *w, const inst *i, uint64_t *address,
                     void (*part)(warp *, const inst *, const uint64_t *, space)) {
  if (i->space != SPACE_GENERIC) {
    part(w, i, address, (space)i->space);
    return;
  }
  const uint32_t all = w->mask;
  uint32_t lanes[SPACE_CONSTANT + 1] = {0};
  for (uint32_t todo = all; todo; todo &= todo - 1) {
    const uint32_t l = (uint32_t)__builtin_ctz(todo);
    lanes[space_of(&address[l])] |= 1u << l;
  }
  for (uint32_t s = 0; s <= SPACE_CONSTANT && !w->block->stop; s++) {
    if (!lanes[s]) continue;
    w->mask = lanes[s];
    part(w, i, address, (space)s);
  }
  w->mask = all;
}

/* ---- loads: destinations, then the address ---- */

static void to_registers(warp *w, const inst *i, uint8_t *const *at) {
  const uint32_t bytes = i->bytes;
  for (uint32_t v = 0; v < i->vector; v++) {
    void *d = lanes_of(w, i->r[v]);
    const uint32_t width = i->width[v];
    if (bytes == 4 && width == 4) {
      FOR_LANES(w, memcpy((uint32_t *)d + l, at[l] + 4 * v, 4););
    } else if (bytes == 8 && width == 8) {
      FOR_LANES(w, memcpy((uint64_t *)d + l, at[l] + 8 * v, 8););
    } else {
      for (uint32_t todo = w->mask; todo; todo &= todo - 1) {
        const uint32_t l = (uint32_t)__builtin_ctz(todo), up = 64 - 8 * bytes;
        uint64_t value = 0;
        memcpy(&value, at[l] + bytes * v, bytes);
        if (i->is_signed) value = (uint64_t)((int64_t)(value << up) >> up);
        set_lane(w, i, v, l, value);
      }
    }
  }
}

/* Words of all lanes, 1, 2 or 4 to a lane. */
static void row_of_words(warp *w, const inst *i, const uint8_t *row) {
  const uint32_t *from = (const uint32_t *)(const void *)row;
  uint32_t *d0 = lanes_of(w, i->r[0]), *d1 = lanes_of(w, i->r[1]), *d2 = lanes_of(w, i->r[2]),
           *d3 = lanes_of(w, i->r[3]);
  if (i->vector == 1) {
    memcpy(d0, from, 4 * SIM_LANES);
  } else if (i->vector == 2) {
    SIM_IVDEP for (uint32_t l = 0; l < SIM_LANES; l++) {
      d0[l] = from[2 * l];
      d1[l] = from[2 * l + 1];
    }
  } else {
    SIM_IVDEP for (uint32_t l = 0; l < SIM_LANES; l++) {
      d0[l] = from[4 * l];
      d1[l] = from[4 * l + 1];
      d2[l] = from[4 * l + 2];
      d3[l] = from[4 * l + 3];
    }
  }
}

/* One lane's bytes for all. */
static void same_to_registers(warp *w, const inst *i, const uint8_t *from) {
  const uint32_t bytes = i->bytes;
  for (uint32_t v = 0; v < i->vector; v++) {
    void *d = lanes_of(w, i->r[v]);
    uint64_t value = 0;
    memcpy(&value, from + bytes * v, bytes);
    if (bytes == 4 && i->width[v] == 4) {
      FOR_LANES(w, ((uint32_t *)d)[l] = (uint32_t)value;);
    } else if (bytes == 8) {
      FOR_LANES(w, ((uint64_t *)d)[l] = value;);
    } else {
      const uint32_t up = 64 - 8 * bytes;
      if (i->is_signed) value = (uint64_t)((int64_t)(value << up) >> up);
      FOR_LANES(w, set_lane(w, i, v, l, value););
    }
  }
}

/* From bytes that lie one lane's behind the other's (step: those of a lane), or the same for all (0). */
static void row_to_registers(warp *w, const inst *i, const uint8_t *row, uint32_t step) {
  uint8_t *at[SIM_LANES];
  if (i->bytes == 4 && i->width[0] == 4 && step == 4 * i->vector && i->vector <= 4) {
    row_of_words(w, i, row);
  } else if (step == 0) {
    same_to_registers(w, i, row);
  } else {
    for (uint32_t l = 0; l < SIM_LANES; l++) at[l] = (uint8_t *)(uintptr_t)row + (size_t)step * l;
    to_registers(w, i, at);
  }
}

static void load_part(warp *w, const inst *i, const uint64_t *address, space where) {
  uint8_t *at[SIM_LANES];
  const uint32_t bytes = (uint32_t)i->bytes * i->vector;
  bool ok = false;
  uint32_t step;
  const uint8_t *row;
  switch (where) {
  case SPACE_GLOBAL:
    row = sim_global_row(w, i, address, bytes, i->is_read_only, &step);
    if (row) {
      row_to_registers(w, i, row, step);
      return;
    }
    ok = sim_global(w, i, address, bytes, i->is_read_only ? ACCESS_READ_ONLY : ACCESS_READ, at) &&
         pass_order(w, i, address, true, false);
    break;
  case SPACE_CONSTANT: ok = sim_global(w, i, address, bytes, ACCESS_READ_ONLY, at); break;
  case SPACE_SHARED:
    w->block->worker->counters.shared_accesses++;
    ok = sim_shared_load(w, i, address, bytes, at);
    break;
  case SPACE_LOCAL:
  case SPACE_CALL:
  case SPACE_PARAMETER: ok = own_memory(w, i, where, address, bytes, false, at); break;
  case SPACE_GENERIC: break;
  }
  if (ok) to_registers(w, i, at);
}

/* A parameter at one address for all lanes, as nearly all are. */
static bool load_parameter(warp *w, const inst *i) {
  const uint32_t bytes = (uint32_t)i->bytes * i->vector, size = w->block->run->kernel->facts.parameter_bytes;
  const uint64_t *from = lanes_of(w, i->r[i->vector]);
  if (i->space != SPACE_PARAMETER || i->width[i->vector] != 8) return false;
  const uint64_t base = from[__builtin_ctz(w->mask)], v = base + (uint64_t)i->imm;
  for (uint32_t todo = i->r[i->vector] & INST_CONSTANT ? 0 : w->mask; todo; todo &= todo - 1)
    if (from[__builtin_ctz(todo)] != base) return false;
  if (v >= size || bytes > size - v || v & (bytes - 1)) return false;
  same_to_registers(w, i, w->block->run->parameters + v);
  return true;
}

static void load(warp *w, const inst *i) {
  uint64_t address[SIM_LANES];
  if (load_parameter(w, i)) return;
  addresses(w, i, i->vector, address);
  by_space(w, i, address, load_part);
}

/* Where in shared memory the lanes' addresses are; false: not in its window at all. */
static inline __attribute__((always_inline)) bool shared_offsets(const warp *w, const inst *i,
                                                                 uint32_t offset[SIM_LANES]) {
  const void *base = lanes_of(w, i->r[i->vector]);
  const uint64_t more = (uint64_t)i->imm;
  uint64_t high = 0;
  if (i->width[i->vector] == 4) {
    for (uint32_t l = 0; l < SIM_LANES; l++) offset[l] = ((const uint32_t *)base)[l] + (uint32_t)more - SIM_SHARED_BASE;
    return true;
  }
  for (uint32_t l = 0; l < SIM_LANES; l++) high |= ((const uint64_t *)base)[l] + more;
  for (uint32_t l = 0; l < SIM_LANES; l++)
    offset[l] = (uint32_t)((const uint64_t *)base)[l] + (uint32_t)more - SIM_SHARED_BASE;
  return !(high >> 32);
}

/* Words or pairs of words of shared memory for all lanes; false: it is not that, and nothing done. */
static inline __attribute__((always_inline)) bool load_words(warp *w, const inst *i) {
  const block *b = w->block;
  const uint32_t bytes = (uint32_t)i->bytes * i->vector;
  uint32_t offset[SIM_LANES];
  if (w->mask != SIM_ALL_LANES || !shared_offsets(w, i, offset)) return false;
  if (!shared_inside(b, offset, bytes)) return false;
  b->worker->counters.shared_accesses++;
  if (!sim_shared_load_plain(w, i, offset, bytes)) return true;
  for (uint32_t v = 0; v < i->vector; v++) {
    const uint8_t *from = b->shared + (size_t)i->bytes * v;
    uint8_t *d = lanes_of(w, i->r[v]);
    if (i->bytes == 4)
      SIM_IVDEP for (uint32_t l = 0; l < SIM_LANES; l++) memcpy(d + 4 * l, from + offset[l], 4);
    else
      SIM_IVDEP for (uint32_t l = 0; l < SIM_LANES; l++) memcpy(d + 8 * l, from + offset[l], 8);
  }
  return true;
}
static void load_shared(warp *w, const inst *i) {
  if (!load_words(w, i)) load(w, i);
}
SIM_FAST static void load_shared_fast(warp *w, const inst *i) {
  if (!load_words(w, i)) load(w, i);
}
static bool are_words(const inst *i) {
  bool all = i->space == SPACE_SHARED && !i->strong && !i->unused;
  for (uint32_t v = 0; v < i->vector; v++) all = all && i->bytes >= 4 && i->width[v] == i->bytes;
  return all;
}

/* ---- stores: the address, then values ---- */

static void from_registers(const warp *w, const inst *i, uint8_t (*values)[32]) {
  const uint32_t bytes = i->bytes;
  for (uint32_t v = 0; v < i->vector; v++) {
    const uint8_t *p = lanes_of(w, i->r[v + 1]);
    if (bytes == 4 && i->width[v + 1] == 4) {
      FOR_LANES(w, memcpy(values[l] + 4 * v, p + 4 * l, 4););
      continue;
    }
    for (uint32_t todo = w->mask; todo; todo &= todo - 1) {
      const uint32_t l = (uint32_t)__builtin_ctz(todo);
      const uint64_t value = lane_value(w, i, v + 1, l);
      memcpy(values[l] + bytes * v, &value, bytes);
    }
  }
}

static void store_part(warp *w, const inst *i, const uint64_t *address, space where) {
  uint8_t values[SIM_LANES][32];
  uint8_t *at[SIM_LANES];
  const uint32_t bytes = (uint32_t)i->bytes * i->vector;
  from_registers(w, i, values);
  if (where == SPACE_SHARED) {
    w->block->worker->counters.shared_accesses++;
    (void)sim_shared_store(w, i, address, bytes, (const uint8_t(*)[32])values);
    return;
  }
  bool ok = false;
  if (where == SPACE_GLOBAL || where == SPACE_CONSTANT) {
    fence_before(w, i);
    ok = sim_global(w, i, address, bytes, ACCESS_WRITE, at) && pass_order(w, i, address, false, true);
  } else {
    ok = own_memory(w, i, where, address, bytes, true, at);
  }
  for (uint32_t todo = ok ? w->mask : 0; todo; todo &= todo - 1) {
    const uint32_t l = (uint32_t)__builtin_ctz(todo);
    memcpy(at[l], values[l], bytes);
  }
}

static void store(warp *w, const inst *i) {
  uint64_t address[SIM_LANES];
  addresses(w, i, 0, address);
  by_space(w, i, address, store_part);
}

/* ---- decoding ---- */

#define TYPES "b8|u8|s8|b16|u16|s16|f16|bf16|b32|u32|s32|f32|b64|u64|s64|f64|f16x2|bf16x2"
static const uint8_t type_bytes[] = {0, 1, 1, 1, 2, 2, 2, 2, 2, 4, 4, 4, 4, 8, 8, 8, 8, 4, 4};
static const bool type_signed[] = {0, 0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0};
#define SPACES "?global|shared|shared::cta|local|param|param::entry|param::func|const"
static const uint8_t spaces[] = {SPACE_GENERIC,   SPACE_GLOBAL,    SPACE_SHARED, SPACE_SHARED,  SPACE_LOCAL,
                                 SPACE_PARAMETER, SPACE_PARAMETER, SPACE_CALL,   SPACE_CONSTANT};
#define HINTS ".?L1::evict_normal|L1::evict_unchanged|L1::evict_first|L1::evict_last|L1::no_allocate"
#define FETCH ".?L2::64B|L2::128B|L2::256B"

static taper_status common(decoder *d, inst *i, uint8_t strength, uint8_t where, uint8_t vector, uint8_t type) {
  static const uint8_t counts[] = {1, 2, 4, 8};
  i->space = spaces[where];
  if (!d->kernel && i->space == SPACE_PARAMETER) i->space = SPACE_CALL;
  i->vector = counts[vector];
  i->bytes = type_bytes[type];
  i->is_signed = type_signed[type];
  i->strong = strength > 1;
  if ((uint32_t)i->bytes * i->vector > 32 || (i->vector == 8 && d->module->target < 100))
    return parse_fail(d, parse_peek(d), "%u values of %u bytes at once", i->vector, i->bytes);
  return TAPER_OK;
}

/* choice: strength, scope, space, cache, nc, L1, L2, vector, type */
static taper_status decode_load(decoder *d, inst *i) {
  TAPER_TRY(common(d, i, i->choice[0], i->choice[2], i->choice[7], i->choice[8]));
  i->is_read_only = i->choice[4] != 0;
  i->unused = d->unused & (uint32_t)((UINT64_C(1) << i->bytes * i->vector) - 1);
  d->unused = 0;
  if (i->choice[0] == 4) i->fence = FENCE_AFTER;
  if (i->is_read_only && i->space != SPACE_GLOBAL) return parse_fail(d, parse_peek(d), ".nc outside of global memory");
  if (parse_is(parse_peek(d), "_")) return parse_fail(d, parse_peek(d), "a load into nothing");
  TAPER_TRY(operand_list(d, i, i->vector, i->bytes < 2 ? 2 : i->bytes, false, true));
  TAPER_TRY(parse_expect(d, ","));
  space where = (space)i->space;
  TAPER_TRY(operand_address(d, i, &where));
  i->space = (uint8_t)where;
  if (are_words(i)) i->run = decode_choose(load_shared, load_shared_fast);
  return TAPER_OK;
}

/* choice: strength, scope, space, cache, L1, L2, vector, type */
static taper_status decode_store(decoder *d, inst *i) {
  TAPER_TRY(common(d, i, i->choice[0], i->choice[2], i->choice[6], i->choice[7]));
  if (i->choice[0] == 4) i->fence = FENCE_BEFORE;
  if (i->space == SPACE_CONSTANT) return parse_fail(d, parse_peek(d), "a store to constant memory");
  space where = (space)i->space;
  TAPER_TRY(operand_address(d, i, &where));
  if (where == SPACE_PARAMETER) return parse_fail(d, parse_peek(d), "a store to a parameter of the kernel");
  i->space = (uint8_t)where;
  TAPER_TRY(parse_expect(d, ","));
  return operand_list(d, i, i->vector, i->bytes < 2 ? 2 : i->bytes, false, false);
}

static void nothing(warp *w, const inst *i) {
  (void)w;
  (void)i;
}
static taper_status decode_prefetch(decoder *d, inst *i) {
  space where = i->choice[0] ? SPACE_GLOBAL : SPACE_GENERIC;
  return operand_address(d, i, &where);
}

static const op_row rows[] = {
    {.pattern = "ld.?weak|volatile|relaxed|acquire.?cta|cluster|gpu|sys." SPACES ".?ca|cg|cs|lu|cv.?nc" HINTS FETCH
                ".?v2|v4|v8." TYPES,
     .run = load,
     .decode = decode_load},
    {.pattern = "st.?weak|volatile|relaxed|release.?cta|cluster|gpu|sys." SPACES ".?wb|cg|cs|wt" HINTS FETCH
                ".?v2|v4|v8." TYPES,
     .run = store,
     .decode = decode_store},
    {.pattern = "prefetch.?global.L1|L2|L2::evict_last|L2::evict_normal", .run = nothing, .decode = decode_prefetch},
    {.pattern = "prefetchu.L1", .run = nothing, .decode = decode_prefetch},
};
OP_TABLE(sim_access_ops, rows);
