/* order.c - what atomics, strong accesses and fences order between the blocks of a launch: clocks of ticks, one per block, passed on
   through the addresses of strong accesses. A fence before a strong write releases, a fence after a strong read acquires. */
#include "cuda/sim/memory.h"
#include <stdlib.h>
#include <string.h>

typedef struct order_variable {
  uint64_t address;
  uint32_t *clock; /* [blocks] */
} order_variable;

struct order_state {
  uint32_t blocks, tick;
  order_variable *slots; /* a hash table of 2^bits */
  uint32_t bits, used;
};

order_state *order_new(uint32_t blocks) {
  order_state *s = calloc(1, sizeof(*s));
  if (!s) return NULL;
  s->blocks = blocks;
  s->bits = 6;
  s->slots = calloc((size_t)1 << s->bits, sizeof(*s->slots));
  if (s->slots) return s;
  free(s);
  return NULL;
}

void order_free(order_state *s) {
  if (!s) return;
  for (size_t i = 0; i < (size_t)1 << s->bits; i++) free(s->slots[i].clock);
  free(s->slots);
  free(s);
}

order_clock *order_block(order_state *s) {
  order_clock *c = calloc(1, sizeof(*c));
  if (!c) return NULL;
  c->seen = calloc(s->blocks, sizeof(*c->seen));
  c->pending = calloc(s->blocks, sizeof(*c->pending));
  if (c->seen && c->pending) return c;
  order_block_free(c);
  return NULL;
}

void order_block_reset(const order_state *s, order_clock *c) {
  memset(c->seen, 0, s->blocks * sizeof(*c->seen));
  memset(c->pending, 0, s->blocks * sizeof(*c->pending));
  c->fence = 0;
}

void order_block_free(order_clock *c) {
  if (!c) return;
  free(c->seen);
  free(c->pending);
  free(c);
}

uint32_t order_tick(const order_state *s) { return s->tick; }

static void join(uint32_t *to, const uint32_t *from, uint32_t count) {
  for (uint32_t i = 0; i < count; i++) to[i] = to[i] > from[i] ? to[i] : from[i];
}

void order_fence(order_state *s, order_clock *c, uint32_t block) {
  c->fence = ++s->tick;
  join(c->seen, c->pending, s->blocks);
  c->seen[block] = c->fence;
}

static order_variable *slot_of(order_variable *slots, uint32_t bits, uint64_t address) {
  uint64_t h = (address >> 2) * 0x9e3779b97f4a7c15u >> (64 - bits);
  while (slots[h].clock && slots[h].address != address) h = (h + 1) & (((uint64_t)1 << bits) - 1);
  return &slots[h];
}

static bool grow(order_state *s) {
  order_variable *slots = calloc((size_t)2 << s->bits, sizeof(*slots));
  if (!slots) return false;
  for (size_t i = 0; i < (size_t)1 << s->bits; i++)
    if (s->slots[i].clock) *slot_of(slots, s->bits + 1, s->slots[i].address) = s->slots[i];
  free(s->slots);
  s->slots = slots;
  s->bits++;
  return true;
}

bool order_strong(order_state *s, order_clock *c, uint32_t block, uint64_t address, bool reads, bool writes) {
  if (2 * s->used >= (uint32_t)1 << s->bits && !grow(s)) return false;
  order_variable *v = slot_of(s->slots, s->bits, address);
  if (!v->clock) {
    if (!writes) return true;
    v->clock = calloc(s->blocks, sizeof(*v->clock));
    if (!v->clock) return false;
    v->address = address;
    s->used++;
  }
  if (reads) join(c->pending, v->clock, s->blocks);
  if (writes) {
    c->seen[block] = c->fence;
    join(v->clock, c->seen, s->blocks);
  }
  return true;
}

bool order_before(const order_state *s, const order_clock *c, uint32_t block, uint32_t other, uint32_t tick) {
  if (other != CELL_MANY) return c->seen[other - 1] > tick;
  for (uint32_t b = 0; b < s->blocks; b++)
    if (b != block && c->seen[b] <= tick) return false;
  return true;
}
