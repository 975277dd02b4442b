/* sp_priv.h - what the parts of sentencepiece.h share. */
#ifndef TAPER_TEXT_SP_PRIV_H
#define TAPER_TEXT_SP_PRIV_H

#include "runtime/base/hash.h"
#include "runtime/text/sentencepiece.h"
#include <string.h>

typedef enum sp_algorithm { SP_UNIGRAM = 1, SP_BPE = 2, SP_WORD = 3, SP_CHAR = 4 } sp_algorithm;
typedef enum sp_type { SP_NORMAL = 1, SP_UNKNOWN = 2, SP_CONTROL = 3, SP_USER = 4, SP_UNUSED = 5, SP_BYTE = 6 } sp_type;

#define SP_SPACE "\xe2\x96\x81" /* U+2581, what a space becomes */
#define SP_SPACE_BYTES 3u

/* ---- growable bytes ---- */
typedef struct sp_bytes {
  char *data;
  size_t size, cap;
} sp_bytes;
/* Room for `more` bytes (a null `data` is legal). False: no memory. */
bool sp_reserve(const taper_allocator *a, sp_bytes *b, size_t more);
/* The same for arrays of elements. */
bool sp_grow(const taper_allocator *a, void **array, size_t *cap, size_t need, size_t element);

/* ---- strings to ids: a hash table ---- */
typedef struct sp_table {
  struct sp_slot *slots;
  uint32_t mask;
} sp_table;

/* ---- strings by prefix: nodes whose children lie side by side, sorted by byte ---- */
typedef struct sp_node {
  uint32_t first; /* child */
  int32_t value;  /* -1: none */
  uint16_t count;
  uint8_t byte; /* that leads here */
} sp_node;
typedef struct sp_trie {
  sp_node *nodes;    /* nodes[0] is the root; NULL: empty */
  uint32_t top[256]; /* child of the root, 0: none */
  uint32_t longest;  /* bytes of the longest string */
} sp_trie;

typedef struct sp_string {
  const char *data;
  uint32_t size;
  int32_t value;
} sp_string;

/* `strings` is sorted in place; equal ones must not occur. Empty list: an empty trie. */
bool sp_trie_build(const taper_allocator *a, sp_string *strings, uint32_t count, sp_trie *out);
void sp_trie_free(const taper_allocator *a, sp_trie *t);
/* The child of `node` along `byte`, 0: none. */
static inline uint32_t sp_trie_step(const sp_trie *t, uint32_t node, uint8_t byte) {
  if (node == 0) return t->top[byte];
  const sp_node *n = &t->nodes[node];
  uint32_t low = n->first, high = n->first + n->count;
  while (high - low > 8) {
    uint32_t middle = low + (high - low) / 2;
    if (t->nodes[middle].byte <= byte)
      low = middle;
    else
      high = middle;
  }
  for (; low < high; low++)
    if (t->nodes[low].byte == byte) return low;
  return 0;
}
/* Bytes of the longest string that s begins with, its value in *out; 0: none. */
size_t sp_trie_longest(const sp_trie *t, const char *s, size_t n, int32_t *out);

/* ---- normalisation ---- */
typedef struct sp_normalizer {
  char *charsmap;       /* owned copy; NULL: none */
  const uint8_t *units; /* double array, little endian u32 */
  uint32_t unit_count;
  const char *replacements; /* zero-terminated strings */
  size_t replacement_bytes;
  bool dummy_prefix, remove_extra, escape, suffix;
  const sp_trie *fixed; /* user-defined symbols pass unchanged; NULL: none */
} sp_normalizer;

/* A text being normalised. Zeroed but for the first four. */
typedef struct sp_normalizing {
  const sp_normalizer *n;
  const taper_allocator *a;
  const char *text;
  size_t size, at;
  bool started, after_space, done;
} sp_normalizing;
/* Appends to `out` until it holds `want` bytes or the text ends (done). *out_safe: the bytes that stay, come what may. */
bool sp_normalize(sp_normalizing *s, sp_bytes *out, size_t want, size_t *out_safe);

/* ---- the model ---- */
typedef struct sp_piece_info {
  uint32_t start, size; /* in `text` */
  float score;
  uint8_t type; /* sp_type */
} sp_piece_info;

struct sp_model {
  taper_allocator allocator;
  hash128 key;
  sp_algorithm algorithm;
  char *text;
  sp_piece_info *pieces;
  uint32_t count;
  bool byte_fallback, has_unused;
  int32_t unknown, bos, eos, byte_id[256];
  char *unknown_surface; /* decoded */
  sp_normalizer normalizer, denormalizer;
  bool denormalizes;
  sp_table normal, reserved; /* pieces that text may become; control, unknown and byte pieces */
  sp_trie words;             /* unigram: the normal ones by prefix */
  sp_trie fixed, control;    /* user-defined symbols; control symbols */
  uint64_t *pairs;           /* bpe: pairs of characters that stand side by side within a piece, a hash set */
  uint32_t pair_mask;
  float least, most; /* scores of normal pieces */
};

static inline const char *sp_piece_text(const sp_model *m, uint32_t id) { return m->text + m->pieces[id].start; }

bool sp_table_make(sp_model *m, sp_table *t, uint32_t capacity);
/* false: the string is there already. */
bool sp_table_put(const sp_model *m, sp_table *t, uint32_t id);
/* The id of a string; -1: none. */
int32_t sp_table_find(const sp_model *m, const sp_table *t, const char *s, size_t n);
/* The library's PieceToId: reserved ones first, the unknown id (-1: the model has none) where there is none. */
static inline int32_t sp_id_of(const sp_model *m, const char *s, size_t n) {
  int32_t id = sp_table_find(m, &m->reserved, s, n);
  if (id < 0) id = sp_table_find(m, &m->normal, s, n);
  return id < 0 ? m->unknown : id;
}

/* Bytes of a character by its first byte (the library's OneCharLen), at most n. */
static inline uint32_t sp_char_length(const char *s, size_t n) {
  static const uint8_t lengths[16] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 3, 4};
  uint32_t k = lengths[(uint8_t)*s >> 4];
  return k < n ? k : (uint32_t)n;
}
bool sp_pairs_make(sp_model *m);
bool sp_pair_known(const sp_model *m, const char *left, uint32_t left_bytes, const char *right, uint32_t right_bytes);

/* ---- encoding: normalised text in a window, ids out ---- */
typedef struct sp_encoder {
  const sp_model *m;
  const taper_allocator *a;
  sp_normalizing source;
  size_t before;   /* bytes of the text before the part that is encoded */
  sp_bytes window; /* normalised text, from the first byte that is not encoded yet */
  size_t safe;     /* bytes of it that stay */
  bool last;       /* the window reaches to the end of the text */
  bool after_unknown;
  int32_t out[1024];
  size_t out_count;
  tokenizer_sink sink;
  void *user;
  taper_status status;
  taper_error *error;
} sp_encoder;

/* Reads on until the window has `want` safe bytes or the text ends; false: failed (e->status). */
bool sp_fill(sp_encoder *e, size_t want);
/* Drops the first n bytes of the window. */
void sp_drop(sp_encoder *e, size_t n);
/* One piece of normalised text and its id: unknown ones become bytes, or one id a run. False: failed. */
bool sp_emit(sp_encoder *e, const char *s, size_t n, int32_t id);
bool sp_no_memory(sp_encoder *e);

void sp_encode_bpe(sp_encoder *e); /* also character models: no merges */
void sp_encode_unigram(sp_encoder *e);

#endif
