/* shared.c - which thread of a block last wrote and read each granule of shared memory, and whether a barrier orders that before an access. */
#include "cuda/sim/exec.h"
#include <stdlib.h>

static inline bool ordered_before(const warp *w, uint32_t lane, uint32_t other_thread, uint32_t time) {
  const uint32_t other = other_thread / SIM_LANES;
  if (other != w->index) return time < w->seen[other];
  return other_thread % SIM_LANES == lane || time < w->synced ||
         (w->lane_seen && time < w->lane_seen[lane][other_thread % SIM_LANES]);
}

/* The lanes of the warp that read it, among several readers. */
static bool lanes_before(const warp *w, uint32_t lane, const shared_cell *c) {
  if (c->read_time < w->synced) return true;
  if (!w->lane_seen) return false;
  for (uint32_t todo = c->reader_lanes & ~(1u << lane); todo; todo &= todo - 1)
    if (c->read_time >= w->lane_seen[lane][__builtin_ctz(todo)]) return false;
  return true;
}

static bool readers_before(const warp *w, uint32_t lane, const shared_cell *c) {
  if (c->reader != SHARED_MANY) return ordered_before(w, lane, c->reader - 1u, c->read_time);
  for (uint32_t todo = c->reader_warps; todo; todo &= todo - 1) {
    const uint32_t v = (uint32_t)__builtin_ctz(todo);
    if (v == w->index ? !lanes_before(w, lane, c) : c->read_time >= w->seen[v]) return false;
  }
  return true;
}

/* ---- atomic and volatile accesses ---- */

/* What is known of the granule's plain accesses before atomic or volatile ones; NULL: the host has no memory. */
static shared_plain *plain_of(warp *w, const shared_cell *c) {
  block *b = w->block;
  if (!b->plain) b->plain = calloc((b->shared_bytes >> b->run->kernel->shared_granule) + 1, sizeof(*b->plain));
  if (!b->plain) {
    sim_stop(w, NULL, SIM_LANES, SIM_NO_MEMORY, 0, "for the order of threads");
    return NULL;
  }
  return &b->plain[c - b->cells];
}

/* Is the plain access that others lie over before what the lane does? It may be its own. */
static bool plain_before(const warp *w, uint32_t lane, uint16_t who, uint32_t time) {
  return !who || who == w->index * SIM_LANES + lane + 1 || ordered_before(w, lane, who - 1u, time);
}

/* The plain read that a strong access takes the place of. Several readers are forgotten: all were in order before it. */
static void keep_read(shared_plain *p, const shared_cell *c) {
  if (!c->reader || c->reader == SHARED_MANY || c->flags & SHARED_STRONG_READ) return;
  p->reader = c->reader;
  p->read_time = c->read_time;
}

/* A strong write takes the place of what the cell says. */
static bool keep_plain(warp *w, const shared_cell *c) {
  shared_plain *p = plain_of(w, c);
  if (!p) return false;
  if (!(c->flags & SHARED_STRONG_WRITE)) { /* the read of this write, if any, may be kept already */
    p->writer = c->writer;
    p->write_time = c->write_time;
  }
  keep_read(p, c);
  return true;
}

static inline shared_cell *cells_of(warp *w, const inst *i, uint32_t lane, uint32_t address, uint32_t bytes,
                                    uint32_t *out_count) {
  const block *b = w->block;
  const uint32_t granule = b->run->kernel->shared_granule, offset = address - SIM_SHARED_BASE;
  *out_count = 0;
  if (address < SIM_SHARED_BASE || offset > b->shared_bytes || bytes > b->shared_bytes - offset) {
    sim_stop(w, i, lane, SIM_OUT_OF_BOUNDS, address,
             "shared memory has %u bytes, the access of %u bytes begins at byte %d", b->shared_bytes, bytes,
             (int)offset);
    return NULL;
  }
  if (address & (bytes - 1)) {
    sim_stop(w, i, lane, SIM_MISALIGNED, address, "%u bytes of shared memory at byte %u", bytes, offset);
    return NULL;
  }
  *out_count = bytes >> granule ? bytes >> granule : 1;
  return &b->cells[offset >> granule];
}

static void race(warp *w, const inst *i, uint32_t lane, uint32_t address, const char *what, uint32_t other) {
  char who[40] = "several threads";
  if (other != SHARED_MANY) snprintf(who, sizeof(who), "thread %u", other - 1u);
  sim_stop(w, i, lane, SIM_SHARED_RACE, address, "byte %u: %s %s, and no barrier lies between",
           address - SIM_SHARED_BASE, who, what);
}

static bool read_cell(warp *w, const inst *i, uint32_t lane, uint32_t address, shared_cell *c, uint16_t me) {
  if (!(c->flags & SHARED_WRITTEN)) {
    const bool pending = (c->flags & SHARED_PENDING) != 0;
    sim_stop(w, i, lane, pending ? SIM_UNWAITED_COPY : SIM_UNWRITTEN_MEMORY, address, "byte %u of shared memory%s",
             address - SIM_SHARED_BASE, pending ? ": cp.async.wait_group of the copying thread is missing" : "");
    return false;
  }
  if (c->writer != me && !(i->strong && c->flags & SHARED_STRONG_WRITE) &&
      !ordered_before(w, lane, c->writer - 1u, c->write_time)) {
    race(w, i, lane, address, "wrote it", c->writer);
    return false;
  }
  if (i->strong) {
    shared_plain *p = plain_of(w, c);
    if (!p) return false;
    if (c->flags & SHARED_STRONG_WRITE && !plain_before(w, lane, p->writer, p->write_time)) {
      race(w, i, lane, address, "wrote it", p->writer);
      return false;
    }
  }
  const uint32_t now = w->block->time, own = 1u << w->index;
  if (c->read_time == now && c->reader == SHARED_MANY && c->reader_warps & own && !(c->flags & SHARED_STRONG_READ)) {
    c->reader_lanes |= 1u << lane;
    return true;
  }
  const bool anew = c->reader == 0 || c->reader == me || readers_before(w, lane, c);
  if (anew && i->strong) keep_read(plain_of(w, c), c);
  c->reader = anew ? me : SHARED_MANY;
  c->reader_warps = (anew ? 0 : c->reader_warps) | own;
  c->reader_lanes = (anew ? 0 : c->reader_lanes) | 1u << lane;
  c->read_time = now;
  if (anew) c->flags |= SHARED_STRONG_READ;
  if (!i->strong) c->flags &= ~SHARED_STRONG_READ;
  return true;
}

bool sim_shared_read(warp *w, const inst *i, uint32_t lane, uint32_t address, uint32_t bytes) {
  uint32_t count;
  shared_cell *c = cells_of(w, i, lane, address, bytes, &count);
  const uint16_t me = (uint16_t)(w->index * SIM_LANES + lane + 1);
  const uint32_t now = w->block->time, granule = w->block->run->kernel->shared_granule;
  const uint32_t all = (1u << (1u << granule)) - 1;
  if (!c) return false;
  for (uint32_t k = 0; k < count; k++, c++) {
    if (i->unused && (i->unused >> (k << granule) & all) == all) continue;
    /* it looked already, and nobody has written since; or others of the warp read it too, and the write is before a barrier of all */
    if (c->read_time == now && (c->flags & ~SHARED_SETTLED) == SHARED_WRITTEN) {
      if (c->reader == me) continue;
      if (c->reader == SHARED_MANY && c->reader_warps >> w->index & 1u && c->write_time < w->all_seen) {
        c->reader_lanes |= 1u << lane;
        continue;
      }
    }
    if (!read_cell(w, i, lane, address + (k << granule), c, me)) return false;
  }
  return true;
}

/* Atomic and volatile ones are in order with each other, not with plain ones under them. */
static bool after_plain(warp *w, const inst *i, uint32_t lane, uint32_t address, const shared_cell *c) {
  const shared_plain *p = plain_of(w, c);
  if (!p) return false;
  if (c->flags & SHARED_STRONG_WRITE && !plain_before(w, lane, p->writer, p->write_time)) {
    race(w, i, lane, address, "wrote it", p->writer);
    return false;
  }
  if (!plain_before(w, lane, p->reader, p->read_time)) {
    race(w, i, lane, address, "read it", p->reader);
    return false;
  }
  return true;
}

/* May the thread write? Two lanes of one instruction may write the same value. */
static bool may_write(warp *w, const inst *i, uint32_t lane, uint32_t address, uint32_t bytes, const shared_cell *c,
                      const void *value) {
  const uint16_t me = (uint16_t)(w->index * SIM_LANES + lane + 1);
  if (c->flags & SHARED_PENDING) {
    sim_stop(w, i, lane, SIM_UNWAITED_COPY, address,
             "byte %u of shared memory is written while a copy to it is under way", address - SIM_SHARED_BASE);
    return false;
  }
  const bool strong_write = i->strong && c->flags & SHARED_STRONG_WRITE,
             strong_read = i->strong && c->flags & SHARED_STRONG_READ;
  if (c->writer && c->writer != me && !strong_write && !ordered_before(w, lane, c->writer - 1u, c->write_time)) {
    const bool together = (c->writer - 1u) / SIM_LANES == w->index && c->write_time == w->block->time;
    if (!together || !value || memcmp(w->block->shared + (address - SIM_SHARED_BASE), value, bytes) != 0) {
      race(w, i, lane, address, "wrote it", c->writer);
      return false;
    }
  }
  if (c->reader && c->reader != me && !strong_read && !readers_before(w, lane, c)) {
    race(w, i, lane, address, "read it", c->reader);
    return false;
  }
  return !i->strong || after_plain(w, i, lane, address, c);
}

bool sim_shared_write(warp *w, const inst *i, uint32_t lane, uint32_t address, uint32_t bytes, const void *value) {
  uint32_t count;
  shared_cell *c = cells_of(w, i, lane, address, bytes, &count);
  for (uint32_t k = 0; c && k < count; k++, c++) {
    if (!may_write(w, i, lane, address, bytes, c, value)) return false;
    if (i->strong && !keep_plain(w, c)) return false;
    if (!i->strong && w->block->plain) *plain_of(w, c) = (shared_plain){0};
    c->writer = (uint16_t)(w->index * SIM_LANES + lane + 1);
    c->write_time = w->block->time;
    c->reader = 0;
    c->reader_warps = 0;
    c->flags = SHARED_WRITTEN | (i->strong ? SHARED_STRONG_WRITE : 0);
  }
  return c != NULL;
}

/* ---- a warp at once: what needs no more than a few comparisons is decided here, all else lane by lane above ---- */

/* Is the cell's last write before what any lane of the warp does now? By a barrier of the block, or it is the warp's own and one of the warp lies
   between. */
static inline bool write_before(const warp *w, const shared_cell *c) {
  return c->flags & SHARED_SETTLED || c->write_time < w->all_seen ||
         (c->write_time < w->synced && (c->writer - 1u) / SIM_LANES == w->index);
}
static inline bool reads_before(const warp *w, const shared_cell *c) {
  return c->reader == 0 || c->read_time < w->all_seen ||
         (c->read_time < w->synced && c->reader_warps == 1u << w->index);
}

/* lane_bit: 0 where no barrier of a part of a warp asks for it. False: not decided, and nothing done. A read at this very time by others is not ordered before this one: then there are several. */
static inline bool quick_read(const warp *w, shared_cell *c, uint16_t me, uint32_t now, uint32_t own,
                              uint32_t lane_bit) {
  if (c->read_time == now && c->flags == (SHARED_WRITTEN | SHARED_SETTLED)) {
    c->reader = c->reader == me ? me : SHARED_MANY;
    c->reader_warps |= own;
    if (lane_bit) c->reader_lanes |= lane_bit;
    return true;
  }
  if ((c->flags & ~SHARED_SETTLED) != SHARED_WRITTEN || !write_before(w, c)) return false;
  const bool same = c->read_time == now;
  if (!same && !reads_before(w, c)) return false;
  c->reader = !same || c->reader == me ? me : SHARED_MANY;
  c->reader_warps = (same ? c->reader_warps : 0) | own;
  if (lane_bit) c->reader_lanes = (same ? c->reader_lanes : 0) | lane_bit;
  c->read_time = now;
  if (c->write_time < w->all_seen) c->flags |= SHARED_SETTLED;
  return true;
}

/* Where in shared memory all lanes' accesses are; false: not all are in bounds, aligned and plain. */
static bool plain_offsets(const warp *w, const inst *i, const uint64_t *address, uint32_t bytes,
                          uint32_t offset[SIM_LANES]) {
  uint64_t high = 0;
  if (i->strong || i->unused || w->mask != SIM_ALL_LANES) return false;
  for (uint32_t l = 0; l < SIM_LANES; l++) {
    offset[l] = (uint32_t)address[l] - SIM_SHARED_BASE;
    high |= address[l];
  }
  return !(high >> 32) && shared_inside(w->block, offset, bytes);
}

/* The lanes one after the other, `count` cells each; those of which nothing is decided here go the long way. */
static inline __attribute__((always_inline)) bool load_lanes(warp *w, const inst *i, const uint32_t offset[SIM_LANES],
                                                             uint32_t bytes, uint32_t count, bool parts) {
  const block *b = w->block;
  const uint32_t now = b->time, first = w->index * SIM_LANES + 1, own = 1u << w->index;
  const uint32_t granule = b->run->kernel->shared_granule;
  shared_cell *last = NULL; /* cells that were decided here for the lane before */
  for (uint32_t l = 0; l < SIM_LANES; l++) {
    shared_cell *c = &b->cells[offset[l] >> granule];
    uint32_t k = 0;
    if (last && c == last) { /* a second reader */
      for (; k < count; k++) {
        c[k].reader = SHARED_MANY;
        if (parts) c[k].reader_lanes |= 1u << l;
      }
      continue;
    }
    while (k < count && quick_read(w, &c[k], (uint16_t)(first + l), now, own, parts ? 1u << l : 0)) k++;
    last = c;
    if (k == count) continue;
    last = NULL;
    if (!sim_shared_read(w, i, l, offset[l] + SIM_SHARED_BASE, bytes)) return false;
  }
  return true;
}

bool sim_shared_load_plain(warp *w, const inst *i, const uint32_t offset[SIM_LANES], uint32_t bytes) {
  const sim_kernel *k = w->block->run->kernel;
  const uint32_t count = bytes >> k->shared_granule;
  if (k->parts) return load_lanes(w, i, offset, bytes, count, true);
  return count > 1 ? load_lanes(w, i, offset, bytes, count, false) : load_lanes(w, i, offset, bytes, 1, false);
}

bool sim_shared_load(warp *w, const inst *i, const uint64_t *address, uint32_t bytes, uint8_t *at[SIM_LANES]) {
  uint32_t offset[SIM_LANES];
  if (plain_offsets(w, i, address, bytes, offset)) {
    for (uint32_t l = 0; l < SIM_LANES; l++) at[l] = w->block->shared + offset[l];
    return sim_shared_load_plain(w, i, offset, bytes);
  }
  for (uint32_t todo = w->mask; todo; todo &= todo - 1) {
    const uint32_t l = (uint32_t)__builtin_ctz(todo);
    if (!sim_shared_read(w, i, l, address[l] > UINT32_MAX ? 0 : (uint32_t)address[l], bytes)) return false;
    at[l] = w->block->shared + (address[l] - SIM_SHARED_BASE);
  }
  return true;
}

static inline bool quick_write(const warp *w, shared_cell *c, uint16_t me, uint32_t now) {
  if (c->flags & SHARED_PENDING || (c->writer && !write_before(w, c)) || !reads_before(w, c)) return false;
  c->writer = me;
  c->write_time = now;
  c->reader = 0;
  c->reader_warps = 0;
  c->flags = SHARED_WRITTEN;
  return true;
}

bool sim_shared_store(warp *w, const inst *i, const uint64_t *address, uint32_t bytes, const uint8_t (*values)[32]) {
  const block *b = w->block;
  const uint32_t granule = b->run->kernel->shared_granule, count = bytes >> granule ? bytes >> granule : 1;
  const uint32_t now = b->time, first = w->index * SIM_LANES + 1;
  uint32_t offset[SIM_LANES];
  const bool plain = plain_offsets(w, i, address, bytes, offset);
  for (uint32_t todo = w->mask; todo; todo &= todo - 1) {
    const uint32_t l = (uint32_t)__builtin_ctz(todo), v = address[l] > UINT32_MAX ? 0 : (uint32_t)address[l];
    shared_cell *c = plain ? &b->cells[offset[l] >> granule] : NULL;
    uint32_t k = 0;
    while (c && k < count && quick_write(w, &c[k], (uint16_t)(first + l), now)) k++;
    if (k != count && !sim_shared_write(w, i, l, v, bytes, values[l])) return false;
    memcpy(b->shared + (v - SIM_SHARED_BASE), values[l], bytes);
  }
  return true;
}

bool sim_shared_pending(warp *w, const inst *i, uint32_t lane, uint32_t address, uint32_t bytes) {
  uint32_t count;
  shared_cell *c = cells_of(w, i, lane, address, bytes, &count);
  for (uint32_t k = 0; c && k < count; k++, c++) {
    if (!may_write(w, i, lane, address, bytes, c, NULL)) return false;
    c->writer = (uint16_t)(w->index * SIM_LANES + lane + 1);
    c->write_time = w->block->time;
    c->flags = SHARED_PENDING;
  }
  return c != NULL;
}

/* A copy of the lane lands: it is the thread's write now. */
void sim_shared_land(warp *w, uint32_t lane, uint32_t address, uint32_t bytes) {
  const block *b = w->block;
  const uint32_t granule = b->run->kernel->shared_granule, count = bytes >> granule ? bytes >> granule : 1;
  shared_cell *c = &b->cells[(address - SIM_SHARED_BASE) >> granule];
  for (uint32_t k = 0; k < count; k++, c++) {
    c->writer = (uint16_t)(w->index * SIM_LANES + lane + 1);
    c->write_time = b->time;
    c->reader = 0;
    c->reader_warps = 0;
    c->flags = SHARED_WRITTEN;
  }
}

/* bar.warp.sync of these lanes. */
void sim_warp_synced(warp *w, uint32_t lanes) {
  const uint32_t now = ++w->block->time;
  if (lanes == w->alive) {
    w->synced = now;
    return;
  }
  if (!w->lane_seen) w->lane_seen = calloc(SIM_LANES, sizeof(*w->lane_seen));
  if (!w->lane_seen) {
    sim_stop(w, NULL, SIM_LANES, SIM_NO_MEMORY, 0, "for the order of lanes");
    return;
  }
  for (uint32_t a = lanes; a; a &= a - 1)
    for (uint32_t b = lanes; b; b &= b - 1) w->lane_seen[__builtin_ctz(a)][__builtin_ctz(b)] = now;
}
