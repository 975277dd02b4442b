/* memory.h - allocations of the simulated device, and what the blocks of a launch touched in them. */
#ifndef TAPER_SIM_MEMORY_H
#define TAPER_SIM_MEMORY_H

#include "cuda/sim/sim.h"

#define MEMORY_BASE 0x200000000u /* an address cut to 32 bits belongs to nobody */
#define MEMORY_GRAIN 65536u      /* allocations begin at multiples and a grain at least lies between them */
#define MEMORY_SECTOR 32u
#define MEMORY_PAGE 4096u
#define MEMORY_PAGE_SECTORS (MEMORY_PAGE / MEMORY_SECTOR)

typedef struct allocation {
  uint64_t base;
  size_t size;
  uint8_t *data;
  uint32_t *written; /* a bit a byte, a word a sector */
  sim_usage usage;
} allocation;

struct sim_memory {
  allocation **grains; /* by (address - MEMORY_BASE) / MEMORY_GRAIN; NULL: nobody's */
  size_t grain_count;  /* given out so far */
  size_t grain_capacity;
  uint64_t used, capacity;
};

/* The allocation whose grains hold `address`, or NULL; the address may lie past its end. */
static inline allocation *memory_at(const sim_memory *m, uint64_t address) {
  const uint64_t grain = (address - MEMORY_BASE) / MEMORY_GRAIN;
  return address >= MEMORY_BASE && grain < m->grain_count ? m->grains[grain] : NULL;
}
/* The mask of `bytes` bytes from `address` in its sector; they do not leave it. */
static inline uint32_t sector_mask(uint64_t address, uint32_t bytes) {
  return (bytes >= 32 ? 0xffffffffu : (1u << bytes) - 1u) << (address % MEMORY_SECTOR);
}

/* What a worker's blocks did to a page in a launch. */
typedef struct page_touch {
  uint32_t read[MEMORY_PAGE_SECTORS], only[MEMORY_PAGE_SECTORS],
      written[MEMORY_PAGE_SECTORS]; /* a bit a byte; only: .nc */
  /* Plain loads, of which most sectors see nothing else: who read the bytes `known` (block + 1; CELL_MANY: several). Not in `celled` sectors: the
     cells do not know of them. In celled ones: the cells know. */
  uint32_t known_reader[MEMORY_PAGE_SECTORS], known[MEMORY_PAGE_SECTORS];
  bool celled[MEMORY_PAGE_SECTORS];
  uint32_t *cells; /* [page >> granule][4]: writer, its tick, reader, its tick; NULL: no sector is celled */
  /* As many cells: plain accesses that atomic or strong ones came after; with these they are in order, with those of other blocks not yet. NULL:
     no strong one was yet. */
  uint32_t *plain;
  uint64_t load_bytes, load_sectors, store_bytes, store_sectors;
} page_touch;
enum { CELL_WRITER, CELL_WRITE_TICK, CELL_READER, CELL_READ_TICK, CELL_WORDS };
#define CELL_STRONG 0x80000000u
#define CELL_BLOCK 0x7fffffffu /* block number + 1 */
#define CELL_MANY 0x7fffffffu

typedef struct touch_map {
  page_touch **pages; /* by (address - MEMORY_BASE) / MEMORY_PAGE */
  size_t page_capacity;
  uint32_t *dirty;
  size_t dirty_count, dirty_capacity;
  uint32_t granule; /* log2 of the bytes that a cell stands for */
} touch_map;
page_touch *touch_new_page(touch_map *t, uint64_t page);
/* NULL: the host has no memory. */
static inline page_touch *touch_page(touch_map *t, uint64_t address) {
  const uint64_t page = (address - MEMORY_BASE) / MEMORY_PAGE;
  return page < t->page_capacity && t->pages[page] ? t->pages[page] : touch_new_page(t, page);
}
bool touch_cells(const touch_map *t, page_touch *p);
bool touch_plain(const touch_map *t, page_touch *p);
void touch_clear(touch_map *t);
void touch_free(touch_map *t);
void touch_add_usage(sim_usage *to, const sim_usage *from);
/* Adds the counts of the maps to the allocations and to *total. */
void touch_count(sim_memory *m, touch_map *const *maps, size_t count, sim_usage *total);
/* False: a byte is touched in both and written in one; who: block number + 1 in a and in b (CELL_MANY: several; 0: read-only loads). */
bool touch_disjoint(const touch_map *a, const touch_map *b, uint64_t *out_address, uint32_t *out_a, uint32_t *out_b);

/* Bytes touched, without who. */
typedef struct touch_set {
  struct touch_bytes {
    uint64_t page;
    uint32_t read[MEMORY_PAGE_SECTORS], written[MEMORY_PAGE_SECTORS];
  } * pages; /* sorted by page */
  size_t count, capacity;
} touch_set;
bool touch_set_add(touch_set *s, const touch_map *t);
bool touch_set_disjoint(const touch_set *a, const touch_set *b, uint64_t *out_address);
void touch_set_clear(touch_set *s);

/* Order between the blocks of a launch that its atomics, strong accesses and fences make. */
typedef struct order_clock {
  uint32_t *seen, *pending; /* [blocks]: accesses of a block before that tick are ordered before this block's */
  uint32_t fence;           /* tick of its last fence: accesses before are released by its next strong write */
} order_clock;
typedef struct order_state order_state;
order_state *order_new(uint32_t blocks);
void order_free(order_state *s);
order_clock *order_block(order_state *s);
void order_block_reset(const order_state *s, order_clock *c);
void order_block_free(order_clock *c);
uint32_t order_tick(const order_state *s);
void order_fence(order_state *s, order_clock *c, uint32_t block);
bool order_strong(order_state *s, order_clock *c, uint32_t block, uint64_t address, bool reads, bool writes);
/* Is what `other` (block number + 1, or CELL_MANY) did at `tick` ordered before what the block does now? */
bool order_before(const order_state *s, const order_clock *c, uint32_t block, uint32_t other, uint32_t tick);

#endif
