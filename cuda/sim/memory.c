/* memory.c - the device's global memory: addresses, bytes and which of them were written. */
#include "cuda/sim/memory.h"
#include <stdlib.h>
#include <string.h>

sim_memory *sim_memory_new(uint64_t capacity) {
  sim_memory *m = calloc(1, sizeof(*m));
  if (m) m->capacity = capacity;
  return m;
}

static void free_allocation(allocation *a) {
  free(a->data);
  free(a->written);
  free(a);
}

void sim_memory_free(sim_memory *m) {
  if (!m) return;
  for (size_t i = m->grain_count; i-- > 0;) { /* an allocation's first grain comes last */
    allocation *a = m->grains[i];
    if (a && a->base == MEMORY_BASE + i * MEMORY_GRAIN) free_allocation(a);
  }
  free((void *)m->grains);
  free(m);
}

static allocation *new_allocation(size_t bytes) {
  allocation *a = calloc(1, sizeof(*a));
  if (!a) return NULL;
  const size_t sectors = (bytes + MEMORY_SECTOR - 1) / MEMORY_SECTOR;
  a->size = bytes;
  a->data = aligned_alloc(512, (bytes + 511) / 512 * 512);
  a->written = calloc(sectors, sizeof(*a->written));
  if (!a->data || !a->written) {
    free_allocation(a);
    return NULL;
  }
  memset(a->data, 0xfb, (bytes + 511) / 512 * 512);
  return a;
}

uint64_t sim_memory_alloc(sim_memory *m, size_t bytes) {
  if (bytes == 0 || bytes > m->capacity || m->used > m->capacity - bytes) return 0;
  const size_t own = (bytes + MEMORY_GRAIN - 1) / MEMORY_GRAIN, need = m->grain_count + own + 1;
  if (need > m->grain_capacity) {
    const size_t capacity = need + m->grain_capacity;
    allocation **grown = (allocation **)realloc((void *)m->grains, capacity * sizeof(*grown));
    if (!grown) return 0;
    m->grains = grown;
    m->grain_capacity = capacity;
  }
  allocation *a = new_allocation(bytes);
  if (!a) return 0;
  a->base = MEMORY_BASE + (uint64_t)m->grain_count * MEMORY_GRAIN;
  size_t left = own; /* bytes is not 0 */
  do m->grains[m->grain_count++] = a;
  while (--left > 0);
  m->grains[m->grain_count++] = NULL;
  m->used += bytes;
  return a->base;
}

bool sim_memory_release(sim_memory *m, uint64_t address) {
  allocation *a = memory_at(m, address);
  if (!a || a->base != address) return false;
  const size_t first = (size_t)((address - MEMORY_BASE) / MEMORY_GRAIN);
  for (size_t i = first; i < m->grain_count && m->grains[i] == a; i++) m->grains[i] = NULL;
  m->used -= a->size;
  free_allocation(a);
  return true;
}

static allocation *holds(const sim_memory *m, uint64_t address, size_t bytes) {
  allocation *a = memory_at(m, address);
  return a && address - a->base <= a->size && bytes <= a->size - (address - a->base) ? a : NULL;
}

bool sim_memory_find(const sim_memory *m, uint64_t address, size_t bytes, sim_span *out) {
  const allocation *a = holds(m, address, bytes);
  if (!a) return false;
  *out = (sim_span){.data = a->data + (address - a->base), .base = a->base, .size = a->size};
  return true;
}

/* Calls for each sector of the range with the mask of its bytes there; stops when the function says false. */
#define FOR_SECTORS(at, left, mask)                                                                                    \
  for (uint32_t mask, step_; left && (step_ = MEMORY_SECTOR - (uint32_t)(at % MEMORY_SECTOR),                          \
                                     step_ = step_ > left ? (uint32_t)left : step_, mask = sector_mask(at, step_), 1); \
       at += step_, left -= step_)

void sim_memory_mark(sim_memory *m, uint64_t address, size_t bytes, bool written) {
  allocation *a = holds(m, address, bytes);
  if (!a) return;
  uint64_t at = address - a->base;
  FOR_SECTORS(at, bytes, mask) {
    uint32_t *word = &a->written[at / MEMORY_SECTOR];
    if (!written && (*word & mask)) memset(a->data + at, 0xfb, (size_t)__builtin_popcount(mask));
    if (written || *word) *word = written ? *word | mask : *word & ~mask;
  }
}

bool sim_memory_written(const sim_memory *m, uint64_t address, size_t bytes, uint64_t *out_first) {
  const allocation *a = holds(m, address, bytes);
  *out_first = address;
  if (!a) return false;
  uint64_t at = address - a->base;
  FOR_SECTORS(at, bytes, mask) {
    const uint32_t bad = mask & ~a->written[at / MEMORY_SECTOR];
    if (!bad) continue;
    *out_first = a->base + at / MEMORY_SECTOR * MEMORY_SECTOR + (uint32_t)__builtin_ctz(bad);
    return false;
  }
  return true;
}

void sim_memory_copy(sim_memory *m, uint64_t to, uint64_t from, size_t bytes) {
  allocation *a = holds(m, to, bytes);
  const allocation *b = holds(m, from, bytes);
  if (!a || !b) return;
  memmove(a->data + (to - a->base), b->data + (from - b->base), bytes);
  const bool up = a != b || to <= from;
  for (size_t k = 0; k < bytes; k++) {
    const size_t i = up ? k : bytes - 1 - k;
    const uint64_t t = to - a->base + i, f = from - b->base + i;
    const uint32_t bit = b->written[f / 32] >> (f % 32) & 1u;
    a->written[t / 32] = (a->written[t / 32] & ~(1u << (t % 32))) | bit << (t % 32);
  }
}

uint64_t sim_memory_used(const sim_memory *m) { return m->used; }
uint64_t sim_memory_capacity(const sim_memory *m) { return m->capacity; }

bool sim_memory_usage(sim_memory *m, uint64_t address, bool reset, sim_usage *out) {
  allocation *a = memory_at(m, address);
  if (!a || a->base != address) return false;
  *out = a->usage;
  if (reset) a->usage = (sim_usage){0};
  return true;
}
