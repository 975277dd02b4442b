/* The best path of pieces by the sum of their scores (Viterbi), as the library's EncodeOptimized finds it: the same
   candidates in the same order, sums in float. The text is done in stretches: where every path must meet, the best one
   so far is final. The sum runs on from stretch to stretch, since its rounding is part of the result, and begins anew
   where that of version 0.2.3 does (up to 0.2.1 it grew until pieces could not be told apart). */
#include "runtime/text/sp_priv.h"

static const float unknown_penalty = 10, largest_sum = 100000;

typedef struct path_end { /* the best path that ends at a place of the window */
  float score;
  int32_t id;    /* of its last piece */
  uint32_t from; /* where that piece begins; NONE: no path yet */
} path_end;
#define NONE UINT32_MAX

typedef struct viterbi {
  sp_encoder *e;
  path_end *ends;
  size_t cap, made; /* ends[0 .. made) are valid */
  size_t furthest;  /* where the longest path ends */
} viterbi;

static bool make_ends(viterbi *v, size_t count) {
  if (v->ends && count <= v->made) return true;
  if (count >= NONE) return false;
  void *ends = v->ends;
  bool ok = sp_grow(v->e->a, &ends, &v->cap, count, sizeof *v->ends);
  v->ends = ends;
  for (; ok && v->made < count; v->made++) v->ends[v->made] = (path_end){.from = NONE};
  return ok;
}

static void offer(viterbi *v, size_t from, size_t to, float score, int32_t id) {
  path_end *end = &v->ends[to];
  if (to > v->furthest) v->furthest = to;
  if (end->from != NONE && !(score > end->score)) return;
  *end = (path_end){score, id, (uint32_t)from};
}

/* A sum that has grown too far is taken off all paths that go on. */
static void begin_anew(viterbi *v, size_t at) {
  const float offset = v->ends[at].score;
  if (!(offset < -largest_sum || offset > largest_sum)) return;
  for (size_t i = at; i <= v->furthest || i == at; i++)
    if (i == at || v->ends[i].from != NONE) v->ends[i].score -= offset;
}

/* A user-defined symbol is always taken, and a long one before two short ones. */
static float score_of(const sp_piece_info *piece) {
  return piece->type == SP_USER ? (float)(0.1 * (double)(piece->size - 1)) : piece->score;
}

/* All pieces that begin at `at`. Returns where the next character begins. */
static size_t extend(viterbi *v, size_t at) {
  const sp_model *m = v->e->m;
  const char *s = v->e->window.data;
  const size_t size = v->e->safe, next = at + sp_char_length(s + at, size - at);
  begin_anew(v, at);
  const float here = v->ends[at].score;
  bool single = false;
  uint32_t node = 0;
  for (size_t i = at; i < size; i++) {
    node = sp_trie_step(&m->words, node, (uint8_t)s[i]);
    if (!node) break;
    int32_t id = m->words.nodes[node].value;
    if (id < 0 || m->pieces[id].type == SP_UNUSED) continue;
    offer(v, at, i + 1, score_of(&m->pieces[id]) + here, id);
    single |= i + 1 == next;
  }
  if (!single) offer(v, at, next, m->least - unknown_penalty + here, m->unknown);
  return next;
}

/* The pieces of the best path to `end`, in order; the chain of `from` is turned round in place first. */
static bool emit_path(viterbi *v, size_t end) {
  uint32_t to = (uint32_t)end, next = NONE;
  while (to != 0) {
    uint32_t from = v->ends[to].from;
    v->ends[to].from = next;
    next = to, to = from;
  }
  for (uint32_t from = 0; next != NONE;) {
    uint32_t after = v->ends[next].from;
    if (!sp_emit(v->e, v->e->window.data + from, next - from, v->ends[next].id)) return false;
    from = next, next = after;
  }
  return true;
}

void sp_encode_unigram(sp_encoder *e) {
  viterbi v = {.e = e};
  const size_t look = e->m->words.longest > 4 ? e->m->words.longest : 4;
  size_t at = 0;
  float score = 0;
  for (;;) {
    if (!sp_fill(e, at + look)) break;
    if (!make_ends(&v, e->safe + 1)) {
      sp_no_memory(e);
      break;
    }
    if (at == 0) v.ends[0] = (path_end){.score = score, .from = 0};
    for (; at < e->safe && (e->last || at + look <= e->safe);) {
      at = extend(&v, at);
      if (at == v.furthest && at >= 16384) break; /* far enough to be worth a move */
    }
    size_t final = at == v.furthest ? at : 0; /* the paths meet here */
    if (at == e->safe && e->last) final = at;
    if (final) {
      if (!emit_path(&v, final)) break;
      score = v.ends[final].score;
      sp_drop(e, final);
      v.made = v.furthest = at = 0;
    }
    if (e->last && at == e->safe) break;
  }
  memory_free(e->a, v.ends);
}
