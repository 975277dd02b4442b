/* global.c - accesses of a warp to global memory: bounds, alignment, bytes never written, sectors, races between blocks. */
#include "cuda/sim/exec.h"

/* A sector that an instruction of a warp touches. */
typedef struct sector {
  uint64_t address;
  allocation *owner;
  uint32_t mask; /* its bytes */
  uint32_t lane; /* the first */
  uint32_t lanes;
} sector;

static void out_of_bounds(warp *w, const inst *i, uint32_t lane, uint64_t address, uint32_t bytes) {
  const allocation *a = memory_at(w->block->run->memory, address);
  if (a)
    sim_stop(w, i, lane, SIM_OUT_OF_BOUNDS, address, "%u bytes at 0x%llx, byte %lld of an allocation of %zu", bytes,
             (unsigned long long)address, (long long)(address - a->base), a->size);
  else
    sim_stop(w, i, lane, SIM_OUT_OF_BOUNDS, address, "%u bytes at 0x%llx", bytes, (unsigned long long)address);
}

/* Joins the bytes to the sector that has that address; lanes mostly come in order: *top is the highest so far. */
static uint32_t add_sector(sector *list, uint32_t count, uint64_t address, uint32_t mask, allocation *owner,
                           uint32_t lane, uint64_t *top) {
  for (uint32_t k = count && address <= *top ? count : 0; k-- > 0;)
    if (list[k].address == address) {
      list[k].mask |= mask;
      list[k].lanes++;
      return count;
    }
  if (address > *top) *top = address;
  list[count] = (sector){.address = address, .owner = owner, .mask = mask, .lane = lane, .lanes = 1};
  return count + 1;
}

static void race(warp *w, const inst *i, const sector *s, uint32_t byte, const char *what, uint32_t other) {
  const uint32_t *grid = w->block->run->launch.grid;
  const uint32_t n = (other & CELL_BLOCK) - 1;
  char who[60] = "several blocks";
  if ((other & CELL_BLOCK) != CELL_MANY)
    snprintf(who, sizeof(who), "block %u,%u,%u", n % grid[0], n / grid[0] % grid[1], n / grid[0] / grid[1]);
  sim_stop(w, i, s->lane, SIM_GLOBAL_RACE, s->address + byte, "%s %s, with no atomic, fence and order between", who,
           what);
}

/* Is what the cell says another block did in order before this access? */
static bool ordered_before(const block *b, uint32_t who, uint32_t tick, bool strong) {
  const uint32_t other = who & CELL_BLOCK;
  if (!other || other == b->number + 1 || (strong && who & CELL_STRONG)) return true;
  return b->order && order_before(b->run->ordered, b->order, b->number, other, tick);
}

/* A strong access takes the place of what the cell says. Several readers are forgotten: all were in order before it. */
static void keep_plain(uint32_t *plain, const uint32_t *cell, access_mode mode) {
  const uint32_t writer = cell[CELL_WRITER], reader = cell[CELL_READER];
  if (mode != ACCESS_READ && writer && !(writer & CELL_STRONG)) {
    plain[CELL_WRITER] = writer;
    plain[CELL_WRITE_TICK] = cell[CELL_WRITE_TICK];
  }
  if (reader && !(reader & CELL_STRONG) && reader != CELL_MANY) {
    plain[CELL_READER] = reader;
    plain[CELL_READ_TICK] = cell[CELL_READ_TICK];
  }
}

/* `plain`: what lies under strong accesses of the cell; NULL: nothing. */
static bool touch_cell(warp *w, const inst *i, const sector *s, uint32_t byte, uint32_t *cell, uint32_t *plain,
                       access_mode mode) {
  const block *b = w->block;
  const bool strong = i->strong != 0;
  uint32_t tick = b->order ? order_tick(b->run->ordered) : 0;
  if (strong && b->order && b->order->fence) tick = b->order->fence - 1; /* passed on with itself */
  if (!ordered_before(b, cell[CELL_WRITER], cell[CELL_WRITE_TICK], strong)) {
    race(w, i, s, byte, "wrote it", cell[CELL_WRITER]);
    return false;
  }
  if (plain && cell[CELL_WRITER] & CELL_STRONG &&
      !ordered_before(b, plain[CELL_WRITER], plain[CELL_WRITE_TICK], false)) {
    race(w, i, s, byte, "wrote it", plain[CELL_WRITER]);
    return false;
  }
  const uint32_t me = (b->number + 1) | (strong ? CELL_STRONG : 0);
  if (mode != ACCESS_READ) {
    if (plain && !ordered_before(b, plain[CELL_READER], plain[CELL_READ_TICK], false)) {
      race(w, i, s, byte, "read it", plain[CELL_READER]);
      return false;
    }
    if (!ordered_before(b, cell[CELL_READER], cell[CELL_READ_TICK], strong)) {
      race(w, i, s, byte, "read it", cell[CELL_READER]);
      return false;
    }
    if (plain && strong) keep_plain(plain, cell, mode);
    if (plain && !strong) memset(plain, 0, CELL_WORDS * sizeof(*plain));
    cell[CELL_WRITER] = me;
    cell[CELL_WRITE_TICK] = tick;
    cell[CELL_READER] = 0;
    return true;
  }
  const uint32_t was = cell[CELL_READER];
  const bool anew = ordered_before(b, was, cell[CELL_READ_TICK], false);
  if (plain && strong && anew) keep_plain(plain, cell, mode);
  cell[CELL_READER] = anew ? me : (was & me & CELL_STRONG) | CELL_MANY;
  cell[CELL_READ_TICK] = tick;
  return true;
}

/* A plain access to a cell that nobody else has written, nor read before a write; false: not that, and nothing done. */
static inline bool quick_cell(uint32_t *cell, uint32_t me, uint32_t tick, access_mode mode, bool ordered) {
  const uint32_t writer = cell[CELL_WRITER] & CELL_BLOCK, reader = cell[CELL_READER] & CELL_BLOCK;
  const bool mine = !reader || reader == me;
  if ((writer && writer != me) || (!mine && (ordered || mode != ACCESS_READ))) return false;
  if (mode == ACCESS_READ) {
    cell[CELL_READER] = mine ? me : CELL_MANY;
    cell[CELL_READ_TICK] = tick;
  } else {
    cell[CELL_WRITER] = me;
    cell[CELL_WRITE_TICK] = tick;
    cell[CELL_READER] = 0;
  }
  return true;
}

/* From now on cells say who touched which bytes of the sector: also what was known of it. */
static bool make_cells(warp *w, const inst *i, const sector *s, page_touch *p, uint32_t at) {
  const touch_map *t = &w->block->worker->touched;
  if (p->celled[at]) return true;
  if (!touch_cells(t, p)) {
    sim_stop(w, i, s->lane, SIM_NO_MEMORY, 0, "for who touched what");
    return false;
  }
  const uint32_t step = 1u << t->granule, bits = (1u << step) - 1;
  uint32_t *cell = p->cells + ((size_t)at * MEMORY_SECTOR >> t->granule) * CELL_WORDS;
  for (uint32_t byte = 0; byte < MEMORY_SECTOR; byte += step, cell += CELL_WORDS)
    if (p->known[at] >> byte & bits) cell[CELL_READER] = p->known_reader[at];
  p->celled[at] = true;
  p->known[at] = 0;
  return true;
}

/* A plain load of a sector that saw nothing else. False: cells must tell who read what. */
static bool plain_read(page_touch *p, uint32_t at, uint32_t mask, uint32_t me) {
  uint32_t *reader = &p->known_reader[at], *known = &p->known[at];
  if (!*known) *reader = me;
  if (*reader == me) {
    *known |= mask;
    return true;
  }
  if (*known == mask) *reader = CELL_MANY;
  return *reader == CELL_MANY && !(mask & ~*known);
}

static bool touch_cells_of(warp *w, const inst *i, const sector *s, page_touch *p, access_mode mode) {
  const touch_map *t = &w->block->worker->touched;
  const block *b = w->block;
  const uint32_t step = 1u << t->granule, bits = (1u << step) - 1, tick = b->order ? order_tick(b->run->ordered) : 0;
  uint32_t *cell = p->cells + (size_t)((s->address % MEMORY_PAGE) >> t->granule) * CELL_WORDS;
  if (i->strong && !touch_plain(t, p)) {
    sim_stop(w, i, s->lane, SIM_NO_MEMORY, 0, "for who touched what");
    return false;
  }
  for (uint32_t byte = 0; byte < MEMORY_SECTOR; byte += step, cell += CELL_WORDS)
    if (s->mask >> byte & bits && (i->strong || !quick_cell(cell, b->number + 1, tick, mode, b->order != NULL)) &&
        !touch_cell(w, i, s, byte, cell, p->plain ? p->plain + (cell - p->cells) : NULL, mode))
      return false;
  return true;
}

/* Marks bytes as written; other workers may write others of the sector. */
static void mark_written(allocation *a, uint64_t address, uint32_t mask) {
  uint32_t *word = &a->written[(address - a->base) / MEMORY_SECTOR];
  if (mask & ~__atomic_load_n(word, __ATOMIC_RELAXED)) __atomic_fetch_or(word, mask, __ATOMIC_RELAXED);
}

static bool touch_sector(warp *w, const inst *i, const sector *s, uint32_t bytes, access_mode mode) {
  page_touch *p = touch_page(&w->block->worker->touched, s->address);
  const uint32_t at = (uint32_t)(s->address % MEMORY_PAGE) / MEMORY_SECTOR;
  if (!p) {
    sim_stop(w, i, s->lane, SIM_NO_MEMORY, 0, "for who touched what");
    return false;
  }
  if (mode != ACCESS_WRITE) {
    const uint32_t word =
        __atomic_load_n(&s->owner->written[(s->address - s->owner->base) / MEMORY_SECTOR], __ATOMIC_RELAXED);
    const uint32_t bad = s->mask & ~word;
    if (bad) {
      const uint64_t first = s->address + (uint32_t)__builtin_ctz(bad);
      sim_stop(w, i, s->lane, SIM_UNWRITTEN_MEMORY, first, "byte %llu of an allocation of %zu",
               (unsigned long long)(first - s->owner->base), s->owner->size);
      return false;
    }
    p->load_bytes += (uint64_t)s->lanes * bytes;
    p->load_sectors++;
  }
  if (mode == ACCESS_WRITE || mode == ACCESS_ATOMIC) {
    p->store_bytes += (uint64_t)s->lanes * bytes;
    p->store_sectors++;
  }
  if (s->mask & (mode == ACCESS_READ_ONLY ? p->written[at] : mode == ACCESS_READ ? 0 : p->only[at])) {
    sim_stop(w, i, s->lane, SIM_READ_ONLY, s->address, "ld.global.nc and a write in one launch");
    return false;
  }
  if (mode == ACCESS_READ_ONLY) {
    p->only[at] |= s->mask;
    return true;
  }
  if (mode != ACCESS_WRITE) p->read[at] |= s->mask;
  const uint32_t me = w->block->number + 1;
  const bool plain = mode == ACCESS_READ && !w->block->order && !i->strong;
  if (plain && !p->celled[at] && plain_read(p, at, s->mask, me)) return true;
  if (!make_cells(w, i, s, p, at)) return false;
  const bool same = p->known_reader[at] == me;
  if (plain && same && (s->mask & ~p->known[at]) == 0) return true;
  p->known[at] = plain ? s->mask | (same ? p->known[at] : 0) : 0;
  p->known_reader[at] = plain ? me : 0;
  if (mode != ACCESS_READ) {
    p->written[at] |= s->mask;
    mark_written(s->owner, s->address, s->mask);
  }
  return touch_cells_of(w, i, s, p, mode);
}

bool sim_global(warp *w, const inst *i, const uint64_t address[SIM_LANES], uint32_t bytes, access_mode mode,
                uint8_t *at[SIM_LANES]) {
  sector list[SIM_LANES];
  uint32_t count = 0;
  uint64_t top = 0;
  allocation *a = NULL;
  for (uint32_t todo = w->mask; todo; todo &= todo - 1) {
    const uint32_t l = (uint32_t)__builtin_ctz(todo);
    const uint64_t v = address[l];
    if (v & (bytes - 1)) {
      sim_stop(w, i, l, SIM_MISALIGNED, v, "%u bytes at 0x%llx", bytes, (unsigned long long)v);
      return false;
    }
    if (!a || v - a->base >= a->size) a = memory_at(w->block->run->memory, v);
    if (!a || v - a->base > a->size || bytes > a->size - (v - a->base)) {
      out_of_bounds(w, i, l, v, bytes);
      return false;
    }
    at[l] = a->data + (v - a->base);
    count = add_sector(list, count, v & ~(uint64_t)(MEMORY_SECTOR - 1),
                       sector_mask(v, bytes) & ~(i->unused << v % MEMORY_SECTOR), a, l, &top);
  }
  for (uint32_t k = 0; k < count; k++)
    if (!touch_sector(w, i, &list[k], bytes, mode)) return false;
  return true;
}

/* ---- rows ---- */

/* How far the executing lanes' addresses lie apart: `bytes`, 0, or INST_NONE for anything else. */
static uint32_t step_of(const warp *w, const uint64_t *address, uint32_t bytes) {
  const uint64_t first = address[0];
  uint64_t same = 0, row = 0;
  if (w->mask != SIM_ALL_LANES) return INST_NONE;
  for (uint32_t l = 0; l < SIM_LANES; l++) {
    same |= address[l] ^ first;
    row |= address[l] ^ (first + (uint64_t)bytes * l);
  }
  return !row ? bytes : !same ? 0 : INST_NONE;
}

/* Bytes of the sectors of [address, address + size), which lies in one page; how many sectors. */
static uint32_t masks_of(uint64_t address, uint32_t size, uint32_t *masks) {
  const uint32_t before = (uint32_t)(address % MEMORY_SECTOR),
                 count = (before + size + MEMORY_SECTOR - 1) / MEMORY_SECTOR;
  const uint32_t after = count * MEMORY_SECTOR - before - size;
  uint32_t k = 0;
  do masks[k] = 0xffffffffu;
  while (++k < count);
  masks[0] &= 0xffffffffu << before;
  masks[count - 1] &= 0xffffffffu >> after;
  return count;
}

/* Nothing but to note the bytes: each was written, by no block in this launch where they are read as read-only; and where not, it is known
   that this block or several read them. */
static bool known_row(const page_touch *p, const uint32_t *written, uint32_t at, const uint32_t *masks, uint32_t count,
                      bool read_only, uint32_t me) {
  uint32_t bad = 0;
  if (read_only)
    for (uint32_t k = 0; k < count; k++) bad |= masks[k] & (~written[k] | p->written[at + k]);
  else
    for (uint32_t k = 0; k < count; k++) {
      const uint32_t reader = p->known_reader[at + k];
      bad |= (masks[k] & ~(written[k] & p->known[at + k])) | ((reader != me) & (reader != CELL_MANY));
    }
  return !bad;
}

const uint8_t *sim_global_row(warp *w, const inst *i, const uint64_t address[SIM_LANES], uint32_t bytes, bool read_only,
                              uint32_t *out_step) {
  const block *b = w->block;
  const uint64_t first = address[0];
  const allocation *a = memory_at(b->run->memory, first);
  *out_step = step_of(w, address, bytes);
  const uint32_t size = *out_step ? bytes * SIM_LANES : bytes;
  if (i->strong || i->unused || *out_step == INST_NONE || !a || first & (bytes - 1) || first - a->base > a->size ||
      size > a->size - (first - a->base) || (first % MEMORY_PAGE) + size > MEMORY_PAGE || (b->order && !read_only))
    return NULL;
  uint32_t masks[SIM_LANES + 1];
  const uint32_t count = masks_of(first, size, masks), at = (uint32_t)(first % MEMORY_PAGE) / MEMORY_SECTOR;
  page_touch *p = touch_page(&b->worker->touched, first);
  if (!p || !known_row(p, a->written + (first - a->base) / MEMORY_SECTOR, at, masks, count, read_only, b->number + 1))
    return NULL;
  uint32_t *seen = read_only ? p->only : p->read;
  for (uint32_t k = 0; k < count; k++) seen[at + k] |= masks[k];
  p->load_bytes += (uint64_t)bytes * SIM_LANES;
  p->load_sectors += count;
  return a->data + (first - a->base);
}
