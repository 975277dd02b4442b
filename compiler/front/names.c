#include "compiler/front/names.h"

#include <stdlib.h>
#include <string.h>

static uint32_t hash_of(const char *s) { /* FNV-1a */
  uint32_t h = 2166136261u;
  for (; *s; s++) h = (h ^ (unsigned char)*s) * 16777619u;
  return h;
}

static void *grown(void *block, size_t bytes) {
  void *p = realloc(block, bytes);
  if (!p) abort(); /* as the compiler's arenas */
  return p;
}

void names_free(name_table *t) {
  free(t->entries);
  free(t->buckets);
  *t = (name_table){0};
}

void names_push(name_table *t) { t->scope++; }

void names_pop(name_table *t) {
  while (t->count && t->entries[t->count - 1].scope == t->scope) {
    name_entry *e = &t->entries[--t->count];
    t->buckets[e->hash & (t->bucket_count - 1)] = e->chain;
  }
  t->scope--;
}

ast_symbol *names_find(const name_table *t, const char *name, bool *out_here) {
  if (out_here) *out_here = false;
  if (!t->bucket_count) return NULL;
  uint32_t hash = hash_of(name);
  for (uint32_t i = t->buckets[hash & (t->bucket_count - 1)]; i; i = t->entries[i - 1].chain) {
    const name_entry *e = &t->entries[i - 1];
    if (e->hash != hash || strcmp(e->symbol->id.text, name) != 0) continue;
    if (out_here) *out_here = e->scope == t->scope;
    return e->symbol;
  }
  return NULL;
}

static void rehash(name_table *t) {
  t->bucket_count = t->bucket_count ? t->bucket_count * 2 : 64;
  t->buckets = grown(t->buckets, t->bucket_count * sizeof *t->buckets);
  memset(t->buckets, 0, t->bucket_count * sizeof *t->buckets);
  for (uint32_t i = 0; i < t->count; i++) {
    uint32_t *bucket = &t->buckets[t->entries[i].hash & (t->bucket_count - 1)];
    t->entries[i].chain = *bucket;
    *bucket = i + 1;
  }
}

void names_add(name_table *t, ast_symbol *symbol) {
  if (t->count == t->cap) t->entries = grown(t->entries, (t->cap = t->cap ? t->cap * 2 : 64) * sizeof *t->entries);
  if (t->count >= t->bucket_count) rehash(t);
  uint32_t hash = hash_of(symbol->id.text), *bucket = &t->buckets[hash & (t->bucket_count - 1)];
  t->entries[t->count++] = (name_entry){symbol, hash, *bucket, t->scope};
  *bucket = t->count;
}

/* Letters to change, add, drop or swap with their neighbour (optimal string alignment); names beyond 48 bytes are not
 * compared. */
static size_t edit_distance(const char *a, const char *b) {
  enum { MAX = 48 };
  size_t n = strlen(a), m = strlen(b);
  if (n > MAX || m > MAX) return MAX;
  size_t rows[3][MAX + 1], *two = rows[0], *one = rows[1], *now = rows[2];
  for (size_t j = 0; j <= m; j++) two[j] = 0, one[j] = j;
  for (size_t i = 1; i <= n; i++) {
    now[0] = i;
    for (size_t j = 1; j <= m; j++) {
      size_t best = one[j - 1] + (a[i - 1] != b[j - 1]);
      if (one[j] + 1 < best) best = one[j] + 1;
      if (now[j - 1] + 1 < best) best = now[j - 1] + 1;
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && two[j - 2] + 1 < best)
        best = two[j - 2] + 1;
      now[j] = best;
    }
    size_t *free_row = two;
    two = one, one = now, now = free_row;
  }
  return one[m];
}

suggestion suggest(const char *wanted) {
  size_t n = strlen(wanted);
  return (suggestion){wanted, NULL, (n < 4 ? 1 : 1 + n / 3) + 1};
}

void suggest_try(suggestion *s, const char *candidate) {
  size_t distance = edit_distance(s->wanted, candidate);
  if (distance >= s->distance || distance >= strlen(candidate)) return;
  s->distance = distance;
  s->best = candidate;
}

void suggest_names(suggestion *s, const name_table *t, unsigned kinds) {
  for (uint32_t i = t->count; i-- > 0;)
    if (kinds >> t->entries[i].symbol->kind & 1) suggest_try(s, t->entries[i].symbol->id.text);
}

const char *suggest_text(const suggestion *s, arena *memory) {
  return s->best ? arena_printf(memory, "; did you mean '%s'?", s->best) : "";
}
