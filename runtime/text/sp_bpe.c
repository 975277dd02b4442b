/* Byte pair encoding as the library does it: characters, then the pair whose merged piece has the best score, the
   leftmost first, until no pair is a piece. The text is done in stretches: between two characters that stand side by
   side in no piece nothing ever merges, so what lies between such places is done alone, with the same result. */
#include "runtime/text/sp_priv.h"

typedef struct symbol {
  uint32_t start, size;    /* bytes of the stretch; size 0: merged into the one before */
  uint32_t previous, next; /* NONE: none */
  bool fixed;              /* a user-defined symbol: never merged */
} symbol;
#define NONE UINT32_MAX

typedef struct merge {
  float score;
  uint32_t left, right, size; /* bytes of both when it was found: else it is stale */
} merge;

enum { MEMO_SLOTS = 1 << 14, MEMO_BYTES = 26, MEMO_IDS = 10, MEMO_LEAST = 1 << 16, DEEPEST = 100 };

typedef struct memo { /* what a stretch became before */
  uint8_t bytes, ids;
  char text[MEMO_BYTES];
  int32_t id[MEMO_IDS];
} memo;

typedef struct bpe {
  sp_encoder *e;
  const char *text; /* of the stretch */
  symbol *symbols;
  merge *heap;
  size_t count, cap, heap_count, heap_cap;
  uint32_t *split; /* of unused pieces: bytes of their left part when last seen; NULL: the model has none */
  memo *memos;     /* NULL: short texts have none */
} bpe;

/* ---- the heap: best score first, then leftmost ---- */

static bool before(const merge *a, const merge *b) {
  return a->score > b->score || (a->score == b->score && a->left < b->left);
}

static bool heap_push(bpe *b, merge m) {
  void *heap = b->heap;
  bool ok = sp_grow(b->e->a, &heap, &b->heap_cap, b->heap_count + 1, sizeof m);
  b->heap = heap;
  if (!ok) return sp_no_memory(b->e);
  size_t i = b->heap_count++;
  for (; i > 0 && before(&m, &b->heap[(i - 1) / 2]); i = (i - 1) / 2) b->heap[i] = b->heap[(i - 1) / 2];
  b->heap[i] = m;
  return true;
}

static merge heap_pop(bpe *b) {
  const merge top = b->heap[0], moved = b->heap[--b->heap_count];
  size_t i = 0;
  for (size_t child; (child = 2 * i + 1) < b->heap_count; i = child) {
    if (child + 1 < b->heap_count && before(&b->heap[child + 1], &b->heap[child])) child++;
    if (!before(&b->heap[child], &moved)) break;
    b->heap[i] = b->heap[child];
  }
  b->heap[i] = moved;
  return top;
}

/* ---- one stretch ---- */

static bool consider(bpe *b, uint32_t left, uint32_t right) {
  if (left == NONE || right == NONE || b->symbols[left].fixed || b->symbols[right].fixed) return true;
  const sp_model *m = b->e->m;
  const symbol *l = &b->symbols[left];
  const uint32_t size = l->size + b->symbols[right].size;
  if (size > TOKENIZER_MAX_PIECE) return true;
  int32_t id = sp_table_find(m, &m->normal, b->text + l->start, size);
  if (id < 0) return true;
  if (b->split) b->split[id] = l->size;
  return heap_push(b, (merge){m->pieces[id].score, left, right, size});
}

static bool merge_all(bpe *b) {
  for (uint32_t i = 1; i < b->count; i++)
    if (!consider(b, i - 1, i)) return false;
  while (b->heap_count) {
    const merge top = heap_pop(b);
    symbol *left = &b->symbols[top.left], *right = &b->symbols[top.right];
    if (left->size == 0 || right->size == 0 || left->size + right->size != top.size) continue;
    left->size = top.size;
    left->next = right->next;
    if (right->next != NONE) b->symbols[right->next].previous = top.left;
    right->size = 0;
    if (!consider(b, left->previous, top.left) || !consider(b, top.left, left->next)) return false;
  }
  return true;
}

/* The piece that a string is; control, unknown and byte pieces are never made of text. */
static int32_t piece_of(const sp_model *m, const char *s, size_t n) {
  int32_t id = m->algorithm == SP_CHAR ? sp_id_of(m, s, n) : sp_table_find(m, &m->normal, s, n);
  return id < 0 ? m->unknown : id;
}

/* An unused piece goes back to what it was merged of. */
static bool emit_piece(bpe *b, const char *s, uint32_t n, unsigned depth) {
  const sp_model *m = b->e->m;
  int32_t id = piece_of(m, s, n);
  if (depth > DEEPEST || id < 0 || m->pieces[id].type != SP_UNUSED || !b->split) return sp_emit(b->e, s, n, id);
  uint32_t left = b->split[id];
  if (left == 0 || left >= n) return sp_emit(b->e, s, n, m->unknown);
  return emit_piece(b, s, left, depth + 1) && emit_piece(b, s + left, n - left, depth + 1);
}

/* ---- stretches seen before ---- */

static memo *memo_of(const bpe *b, const char *s, size_t n) {
  if (!b->memos || n > MEMO_BYTES || b->count < 2) return NULL;
  uint64_t h = n * 0x9e3779b97f4a7c15ull;
  for (size_t i = 0; i < n; i++) h = (h ^ (uint8_t)s[i]) * 0x100000001b3ull;
  return &b->memos[(h ^ h >> 29) % MEMO_SLOTS];
}

static void memo_fill(const bpe *b, memo *o, const char *s, size_t n) {
  const sp_model *m = b->e->m;
  o->bytes = 0;
  size_t ids = 0;
  for (uint32_t i = 0; i != NONE; i = b->symbols[i].next, ids++) {
    if (ids == MEMO_IDS) return;
    o->id[ids] = piece_of(m, s + b->symbols[i].start, b->symbols[i].size);
    if (o->id[ids] < 0 || m->pieces[o->id[ids]].type == SP_UNKNOWN) return;
  }
  memcpy(o->text, s, n);
  o->bytes = (uint8_t)n, o->ids = (uint8_t)ids;
}

/* The stretch of n bytes that the symbols are of. */
static bool encode_stretch(bpe *b, const char *s, size_t n) {
  if (b->count == 0) return true;
  b->text = s;
  memo *known = memo_of(b, s, n);
  bool ok = true;
  if (known && known->bytes == n && memcmp(known->text, s, n) == 0) {
    for (size_t i = 0; i < known->ids && ok; i++) ok = sp_emit(b->e, s, 1, known->id[i]);
  } else {
    ok = b->count == 1 || merge_all(b);
    for (uint32_t i = 0; i != NONE && ok; i = b->symbols[i].next)
      ok = emit_piece(b, s + b->symbols[i].start, b->symbols[i].size, 0);
    if (known && ok) memo_fill(b, known, s, n);
  }
  b->count = b->heap_count = 0;
  return ok;
}

/* ---- the text ---- */

static bool add_symbol(bpe *b, size_t start, size_t size, bool fixed) {
  void *symbols = b->symbols;
  bool ok = start + size < NONE && sp_grow(b->e->a, &symbols, &b->cap, b->count + 1, sizeof(symbol));
  b->symbols = symbols;
  if (!ok) return sp_no_memory(b->e);
  const uint32_t i = (uint32_t)b->count++;
  if (i) b->symbols[i - 1].next = i;
  b->symbols[i] = (symbol){(uint32_t)start, (uint32_t)size, i ? i - 1 : NONE, NONE, fixed};
  return true;
}

/* Can nothing ever merge across the place between the last symbol and the next? */
static bool cuts(const bpe *b, const char *stretch, size_t at, size_t size, bool fixed) {
  const sp_model *m = b->e->m;
  if (b->count == 0 || b->split) return false;
  const symbol *last = &b->symbols[b->count - 1];
  if (m->algorithm == SP_CHAR || fixed || last->fixed) return true;
  return !sp_pair_known(m, stretch + last->start, last->size, stretch + at, (uint32_t)size);
}

static bool encode_all(bpe *b) {
  sp_encoder *e = b->e;
  const size_t look = e->m->fixed.longest > 4 ? e->m->fixed.longest : 4;
  size_t begin = 0, at = 0; /* of the stretch; of the next symbol */
  for (;;) {
    sp_drop(e, begin);
    at -= begin, begin = 0;
    if (!sp_fill(e, at + look)) return false;
    const char *s = e->window.data;
    while (at < e->safe && (e->last || at + look <= e->safe)) {
      size_t k = sp_trie_longest(&e->m->fixed, s + at, e->safe - at, NULL);
      const bool fixed = k > 0;
      if (!fixed) k = sp_char_length(s + at, e->safe - at);
      if (cuts(b, s + begin, at - begin, k, fixed)) {
        if (!encode_stretch(b, s + begin, at - begin)) return false;
        begin = at;
      }
      if (!add_symbol(b, at - begin, k, fixed)) return false;
      at += k;
    }
    if (e->last && at == e->safe) return b->count == 0 || encode_stretch(b, s + begin, at - begin);
  }
}

void sp_encode_bpe(sp_encoder *e) {
  bpe b = {.e = e};
  bool ok = true;
  if (e->m->has_unused && e->m->algorithm == SP_BPE) {
    b.split = memory_zalloc(e->a, e->m->count, sizeof *b.split);
    ok = b.split != NULL;
  } else if (e->source.size >= MEMO_LEAST) {
    b.memos = memory_zalloc(e->a, MEMO_SLOTS, sizeof *b.memos); /* does without */
  }
  if (ok)
    (void)encode_all(&b);
  else
    sp_no_memory(e);
  memory_free(e->a, b.symbols), memory_free(e->a, b.heap), memory_free(e->a, b.split), memory_free(e->a, b.memos);
}
