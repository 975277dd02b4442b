/* Growable arrays, the hash table and the prefix tree of a SentencePiece model. */
#include "runtime/text/sp_priv.h"
#include <stdlib.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

bool sp_grow(const taper_allocator *a, void **array, size_t *cap, size_t need, size_t element) {
  if (need <= *cap) return true;
  size_t grown = *cap * 2 > need ? *cap * 2 : need + 64, bytes;
  if (__builtin_mul_overflow(grown, element, &bytes)) return false;
  void *fresh = memory_alloc(a, bytes, MEMORY_LINE);
  if (!fresh) return false;
  if (*array) memcpy(fresh, *array, *cap * element);
  memory_free(a, *array);
  *array = fresh;
  *cap = grown;
  return true;
}

bool sp_reserve(const taper_allocator *a, sp_bytes *b, size_t more) {
  void *data = b->data;
  bool ok = more <= SIZE_MAX / 4 && sp_grow(a, &data, &b->cap, b->size + more, 1);
  b->data = data;
  return ok;
}

/* ---- the hash table ---- */

struct sp_slot {
  uint32_t hash;
  int32_t id; /* -1: free */
};

bool sp_table_make(sp_model *m, sp_table *t, uint32_t capacity) {
  uint32_t n = 16;
  while (n / 2 < capacity) n *= 2;
  t->slots = memory_zalloc(&m->allocator, n, sizeof *t->slots);
  t->mask = n - 1;
  for (uint32_t i = 0; t->slots && i < n; i++) t->slots[i].id = -1;
  return t->slots != NULL;
}

/* The slot that holds the string, or the free one where it would go. */
static struct sp_slot *slot_of(const sp_model *m, const sp_table *t, const char *s, size_t n, uint32_t hash) {
  for (uint32_t i = hash & t->mask;; i = (i + 1) & t->mask) {
    struct sp_slot *slot = &t->slots[i];
    if (slot->id < 0) return slot;
    const sp_piece_info *p = &m->pieces[slot->id];
    if (slot->hash == hash && p->size == n && memcmp(m->text + p->start, s, n) == 0) return slot;
  }
}

bool sp_table_put(const sp_model *m, sp_table *t, uint32_t id) {
  const char *s = sp_piece_text(m, id);
  uint32_t hash = (uint32_t)XXH3_64bits(s, m->pieces[id].size);
  struct sp_slot *slot = slot_of(m, t, s, m->pieces[id].size, hash);
  if (slot->id >= 0) return false;
  *slot = (struct sp_slot){hash, (int32_t)id};
  return true;
}

int32_t sp_table_find(const sp_model *m, const sp_table *t, const char *s, size_t n) {
  return slot_of(m, t, s, n, (uint32_t)XXH3_64bits(s, n))->id;
}

/* ---- pairs of characters ---- */

static uint64_t pair_of(const char *left, uint32_t left_bytes, const char *right, uint32_t right_bytes) {
  uint64_t key = 1; /* no pair is 0 */
  for (uint32_t i = 0; i < left_bytes; i++) key = key << 8 | (uint8_t)left[i];
  uint64_t other = 1;
  for (uint32_t i = 0; i < right_bytes; i++) other = other << 8 | (uint8_t)right[i];
  return (key * 0x9e3779b97f4a7c15ull ^ other) * 0xd6e8feb86659fd93ull | 1;
}

static uint64_t *pair_slot(const sp_model *m, uint64_t pair) {
  uint32_t i = (uint32_t)(pair >> 32) & m->pair_mask;
  while (m->pairs[i] && m->pairs[i] != pair) i = (i + 1) & m->pair_mask;
  return &m->pairs[i];
}

bool sp_pair_known(const sp_model *m, const char *left, uint32_t left_bytes, const char *right, uint32_t right_bytes) {
  return *pair_slot(m, pair_of(left, left_bytes, right, right_bytes)) != 0;
}

/* Two pairs may share a key (it is 64 bits of a hash): then a text is cut in fewer places than it could be, no more. */
bool sp_pairs_make(sp_model *m) {
  uint64_t bytes = 0;
  uint32_t n = 16;
  for (uint32_t i = 0; i < m->count; i++) bytes += m->pieces[i].size;
  while (n / 2 < bytes) n *= 2;
  m->pairs = memory_zalloc(&m->allocator, n, sizeof *m->pairs);
  m->pair_mask = n - 1;
  for (uint32_t id = 0; m->pairs && id < m->count; id++) {
    const char *s = sp_piece_text(m, id);
    uint32_t size = m->pieces[id].size, at = 0, k = sp_char_length(s, size);
    if (m->pieces[id].type != SP_NORMAL && m->pieces[id].type != SP_UNUSED && m->pieces[id].type != SP_USER) continue;
    for (; at + k < size;) {
      uint32_t next = sp_char_length(s + at + k, size - at - k);
      uint64_t pair = pair_of(s + at, k, s + at + k, next);
      *pair_slot(m, pair) = pair;
      at += k, k = next;
    }
  }
  return m->pairs != NULL;
}

/* ---- the prefix tree ---- */

static int by_bytes(const void *a, const void *b) {
  const sp_string *x = a, *y = b;
  int order = memcmp(x->data, y->data, x->size < y->size ? x->size : y->size);
  return order ? order : (x->size > y->size) - (x->size < y->size);
}

typedef struct trie_range { /* strings that share the bytes that lead to a node */
  uint32_t first, last, depth;
} trie_range;

/* Breadth first: a node's children are made together, so they lie side by side. */
static uint32_t make_children(const sp_string *s, sp_node *nodes, trie_range *ranges, uint32_t node, uint32_t used) {
  trie_range r = ranges[node];
  uint32_t i = r.first;
  if (i < r.last && s[i].size == r.depth) nodes[node].value = s[i++].value;
  nodes[node].first = used;
  while (i < r.last) {
    uint8_t byte = (uint8_t)s[i].data[r.depth];
    uint32_t begin = i;
    while (i < r.last && (uint8_t)s[i].data[r.depth] == byte) i++;
    nodes[used] = (sp_node){.byte = byte, .value = -1};
    ranges[used++] = (trie_range){begin, i, r.depth + 1};
    nodes[node].count++;
  }
  return used;
}

bool sp_trie_build(const taper_allocator *a, sp_string *strings, uint32_t count, sp_trie *out) {
  size_t most = 1;
  memset(out, 0, sizeof *out);
  if (count == 0) return true;
  for (uint32_t i = 0; i < count; i++) {
    most += strings[i].size;
    if (strings[i].size > out->longest) out->longest = strings[i].size;
  }
  qsort(strings, count, sizeof *strings, by_bytes);
  out->nodes = memory_zalloc(a, most, sizeof *out->nodes);
  trie_range *ranges = memory_zalloc(a, most, sizeof *ranges);
  bool ok = out->nodes && ranges;
  if (ok) {
    uint32_t used = 1;
    out->nodes[0].value = -1;
    ranges[0] = (trie_range){0, count, 0};
    for (uint32_t node = 0; node < used; node++) used = make_children(strings, out->nodes, ranges, node, used);
    for (uint32_t i = 0; i < out->nodes[0].count; i++)
      out->top[out->nodes[out->nodes[0].first + i].byte] = out->nodes[0].first + i;
  }
  memory_free(a, ranges);
  return ok;
}

void sp_trie_free(const taper_allocator *a, sp_trie *t) {
  memory_free(a, t->nodes);
  t->nodes = NULL;
}

size_t sp_trie_longest(const sp_trie *t, const char *s, size_t n, int32_t *out) {
  size_t found = 0;
  uint32_t node = 0;
  if (!t->nodes) return 0;
  for (size_t i = 0; i < n; i++) {
    node = sp_trie_step(t, node, (uint8_t)s[i]);
    if (!node) break;
    if (t->nodes[node].value < 0) continue;
    found = i + 1;
    if (out) *out = t->nodes[node].value;
  }
  return found;
}
