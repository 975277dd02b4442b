/* names.h - nested scopes of names, and the nearest name to a wrong one. */
#ifndef TAPERC_FRONT_NAMES_H
#define TAPERC_FRONT_NAMES_H

#include "compiler/front/ast.h"

typedef struct name_entry {
  ast_symbol *symbol;
  uint32_t hash, chain, scope; /* chain: index + 1 of the next entry of the bucket */
} name_entry;

/* Zeroed: one empty scope. */
typedef struct name_table {
  name_entry *entries;
  uint32_t *buckets; /* index + 1 of the newest entry */
  uint32_t count, cap, bucket_count, scope;
} name_table;

void names_free(name_table *t);
void names_push(name_table *t);
void names_pop(name_table *t);
ast_symbol *names_find(const name_table *t, const char *name,
                       bool *out_here); /* innermost; NULL: none; *out_here: in this very scope */
void names_add(name_table *t, ast_symbol *symbol);

/* The candidate nearest to a wrong name: at most a third of its letters may differ (one in a short name). */
typedef struct suggestion {
  const char *wanted, *best;
  size_t distance;
} suggestion;

suggestion suggest(const char *wanted);
void suggest_try(suggestion *s, const char *candidate);
void suggest_names(suggestion *s, const name_table *t, unsigned kinds); /* kinds: bits 1 << ast_symbol_kind */
/* "; did you mean 'x'?", or "" */
const char *suggest_text(const suggestion *s, arena *memory);

#endif
