/* touch.c - which bytes of global memory the blocks of a launch touched: counts, races between workers, footprints. */
#include "cuda/sim/memory.h"
#include <stdlib.h>
#include <string.h>

page_touch *touch_new_page(touch_map *t, uint64_t page) {
  if (page >= t->page_capacity) {
    const size_t capacity = (size_t)page + 1 + t->page_capacity;
    page_touch **grown = (page_touch **)realloc((void *)t->pages, capacity * sizeof(*grown));
    if (!grown) return NULL;
    memset((void *)(grown + t->page_capacity), 0, (capacity - t->page_capacity) * sizeof(*grown));
    t->pages = grown;
    t->page_capacity = capacity;
  }
  if (t->dirty_count == t->dirty_capacity) {
    const size_t capacity = 2 * t->dirty_capacity + 64;
    uint32_t *grown = realloc(t->dirty, capacity * sizeof(*grown));
    if (!grown) return NULL;
    t->dirty = grown;
    t->dirty_capacity = capacity;
  }
  page_touch *p = calloc(1, sizeof(*p));
  if (!p) return NULL;
  t->dirty[t->dirty_count++] = (uint32_t)page;
  t->pages[page] = p;
  return p;
}

bool touch_cells(const touch_map *t, page_touch *p) {
  if (!p->cells) p->cells = calloc((MEMORY_PAGE >> t->granule) * CELL_WORDS, sizeof(*p->cells));
  return p->cells != NULL;
}

bool touch_plain(const touch_map *t, page_touch *p) {
  if (!p->plain) p->plain = calloc((MEMORY_PAGE >> t->granule) * CELL_WORDS, sizeof(*p->plain));
  return p->plain != NULL;
}

void touch_clear(touch_map *t) {
  for (size_t i = 0; i < t->dirty_count; i++) {
    page_touch *p = t->pages[t->dirty[i]];
    free(p->cells);
    free(p->plain);
    free(p);
    t->pages[t->dirty[i]] = NULL;
  }
  t->dirty_count = 0;
}

void touch_free(touch_map *t) {
  touch_clear(t);
  free((void *)t->pages);
  free(t->dirty);
  *t = (touch_map){0};
}

static page_touch *page_of(const touch_map *t, uint64_t page) {
  return page < t->page_capacity ? t->pages[page] : NULL;
}

void touch_add_usage(sim_usage *to, const sim_usage *u) {
  to->load_bytes += u->load_bytes;
  to->load_sectors += u->load_sectors;
  to->read_sectors += u->read_sectors;
  to->read_bytes += u->read_bytes;
  to->store_bytes += u->store_bytes;
  to->store_sectors += u->store_sectors;
  to->written_sectors += u->written_sectors;
  to->written_bytes += u->written_bytes;
}

static uint32_t bytes_in(uint32_t mask) { return !~mask ? MEMORY_SECTOR : (uint32_t)__builtin_popcount(mask); }

static void count_page(sim_usage *u, page_touch *const *pages, size_t count) {
  for (size_t k = 0; k < count; k++) {
    u->load_bytes += pages[k]->load_bytes;
    u->load_sectors += pages[k]->load_sectors;
    u->store_bytes += pages[k]->store_bytes;
    u->store_sectors += pages[k]->store_sectors;
  }
  for (uint32_t s = 0; s < MEMORY_PAGE_SECTORS; s++) {
    uint32_t read = 0, written = 0;
    for (size_t k = 0; k < count; k++) {
      read |= pages[k]->read[s] | pages[k]->only[s];
      written |= pages[k]->written[s];
    }
    u->read_sectors += read != 0;
    u->read_bytes += bytes_in(read);
    u->written_sectors += written != 0;
    u->written_bytes += bytes_in(written);
  }
}

void touch_count(sim_memory *m, touch_map *const *maps, size_t count, sim_usage *total) {
  enum { MOST = 256 };
  for (size_t k = 0; k < count; k++)
    for (size_t i = 0; i < maps[k]->dirty_count; i++) {
      const uint64_t page = maps[k]->dirty[i];
      page_touch *pages[MOST];
      size_t n = 0;
      bool first = true;
      for (size_t j = 0; j < count && n < MOST; j++) {
        page_touch *p = page_of(maps[j], page);
        if (p && j < k) first = false;
        if (p) pages[n++] = p;
      }
      if (!first) continue;
      sim_usage u = {0};
      count_page(&u, pages, n);
      touch_add_usage(total, &u);
      allocation *a = memory_at(m, MEMORY_BASE + page * MEMORY_PAGE);
      if (a) touch_add_usage(&a->usage, &u);
    }
}

static uint32_t who(const touch_map *t, const page_touch *p, uint32_t at, bool wrote) {
  const uint32_t sector = at / MEMORY_SECTOR;
  if (!p->celled[sector]) return p->known[sector] >> (at % MEMORY_SECTOR) & 1u ? p->known_reader[sector] : 0;
  const uint32_t *cell = p->cells + (size_t)(at >> t->granule) * CELL_WORDS;
  return (wrote ? cell[CELL_WRITER] : cell[CELL_READER]) & CELL_BLOCK;
}

/* A byte where both wrote, or one wrote and the other read; MEMORY_PAGE: none. Atomic accesses need one worker, so none are here. */
static uint32_t common_byte(const page_touch *p, const page_touch *q) {
  for (uint32_t s = 0; s < MEMORY_PAGE_SECTORS; s++) {
    const uint32_t bad =
        (p->written[s] & (q->read[s] | q->only[s] | q->written[s])) | (q->written[s] & (p->read[s] | p->only[s]));
    if (bad) return s * MEMORY_SECTOR + (uint32_t)__builtin_ctz(bad);
  }
  return MEMORY_PAGE;
}

bool touch_disjoint(const touch_map *a, const touch_map *b, uint64_t *out_address, uint32_t *out_a, uint32_t *out_b) {
  uint64_t least = UINT64_MAX;
  for (size_t i = 0; i < a->dirty_count; i++) {
    const uint64_t page = a->dirty[i];
    const page_touch *p = a->pages[page], *q = page_of(b, page);
    const uint32_t at = q ? common_byte(p, q) : MEMORY_PAGE;
    if (at == MEMORY_PAGE || MEMORY_BASE + page * MEMORY_PAGE + at >= least) continue;
    least = MEMORY_BASE + page * MEMORY_PAGE + at;
    const uint32_t s = at / MEMORY_SECTOR, bit = 1u << (at % MEMORY_SECTOR);
    *out_a = who(a, p, at, (p->written[s] & bit) != 0);
    *out_b = who(b, q, at, (q->written[s] & bit) != 0);
  }
  *out_address = least;
  return least == UINT64_MAX;
}

static int by_page(const void *a, const void *b) {
  const uint64_t x = ((const struct touch_bytes *)a)->page, y = ((const struct touch_bytes *)b)->page;
  return x < y ? -1 : x > y;
}

static struct touch_bytes *set_page(const touch_set *s, size_t sorted, uint64_t page) {
  const struct touch_bytes key = {.page = page};
  return sorted ? bsearch(&key, s->pages, sorted, sizeof(key), by_page) : NULL;
}

bool touch_set_add(touch_set *s, const touch_map *t) {
  const size_t sorted = s->count;
  if (s->count + t->dirty_count > s->capacity) {
    const size_t capacity = 2 * s->capacity + t->dirty_count;
    struct touch_bytes *grown = realloc(s->pages, capacity * sizeof(*grown));
    if (!grown) return false;
    s->pages = grown;
    s->capacity = capacity;
  }
  for (size_t i = 0; i < t->dirty_count; i++) {
    const page_touch *p = t->pages[t->dirty[i]];
    struct touch_bytes *to = set_page(s, sorted, t->dirty[i]);
    if (!to) {
      to = &s->pages[s->count++];
      *to = (struct touch_bytes){.page = t->dirty[i]};
    }
    for (uint32_t k = 0; k < MEMORY_PAGE_SECTORS; k++) {
      to->read[k] |= p->read[k] | p->only[k];
      to->written[k] |= p->written[k];
    }
  }
  if (s->count > 1) qsort(s->pages, s->count, sizeof(*s->pages), by_page);
  return true;
}

bool touch_set_disjoint(const touch_set *a, const touch_set *b, uint64_t *out_address) {
  for (size_t i = 0; i < a->count; i++) {
    const struct touch_bytes *p = &a->pages[i], *q = set_page(b, b->count, p->page);
    for (uint32_t s = 0; q && s < MEMORY_PAGE_SECTORS; s++) {
      const uint32_t bad = (p->written[s] & (q->read[s] | q->written[s])) | (q->written[s] & p->read[s]);
      if (!bad) continue;
      *out_address = MEMORY_BASE + p->page * MEMORY_PAGE + (uint64_t)s * MEMORY_SECTOR + (uint32_t)__builtin_ctz(bad);
      return false;
    }
  }
  return true;
}

void touch_set_clear(touch_set *s) {
  free(s->pages);
  *s = (touch_set){0};
}
