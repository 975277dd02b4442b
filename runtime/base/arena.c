#include "runtime/base/arena.h"
#include "runtime/base/text.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct arena_block {
  struct arena_block *next;
  size_t size, at; /* of the bytes after this header */
  size_t pad;
} arena_block;

_Static_assert(sizeof(arena_block) % 16 == 0, "blocks keep 16-byte alignment");
enum { FIRST_BLOCK = 16 << 10, LARGEST_BLOCK = 1 << 20 };

static void (*no_memory_handler)(size_t bytes);
void arena_on_no_memory(void (*handler)(size_t bytes)) { no_memory_handler = handler; }

_Noreturn static void no_memory(size_t bytes) {
  if (no_memory_handler) no_memory_handler(bytes);
  abort();
}

void *arena_alloc(arena *a, size_t bytes) {
  if (bytes > SIZE_MAX / 2) no_memory(bytes);
  bytes = bytes == 0 ? 16 : (bytes + 15) & ~(size_t)15;
  arena_block *head = a->head;
  if (!head || head->size - head->at < bytes) {
    size_t size = head ? head->size * 2 : FIRST_BLOCK;
    if (size > LARGEST_BLOCK) size = LARGEST_BLOCK;
    bool large = bytes > size / 4; /* a block of its own, behind the one that is being filled */
    arena_block *block = calloc(1, sizeof *block + (large ? bytes : size));
    if (!block) no_memory(bytes);
    block->size = large ? bytes : size;
    if (large && head) {
      block->next = head->next, head->next = block;
    } else {
      block->next = head, a->head = block;
    }
    head = block;
  }
  void *out = (char *)(head + 1) + head->at;
  head->at += bytes;
  a->used += bytes;
  return out;
}

void *arena_alloc_array(arena *a, size_t size, size_t n) {
  size_t bytes;
  if (__builtin_mul_overflow(size, n, &bytes)) no_memory(SIZE_MAX);
  return arena_alloc(a, bytes);
}

void *arena_copy(arena *a, const void *data, size_t bytes) {
  void *out = arena_alloc(a, bytes);
  if (bytes) memcpy(out, data, bytes);
  return out;
}

char *arena_strndup(arena *a, const char *s, size_t bytes) {
  char *out = arena_alloc(a, bytes + 1);
  if (bytes) memcpy(out, s, bytes);
  return out;
}

char *arena_strdup(arena *a, const char *s) { return arena_strndup(a, s, strlen(s)); }

char *arena_vprintf(arena *a, const char *format, va_list args) {
  va_list again;
  va_copy(again, args);
  int n = text_vformat(NULL, 0, format, again);
  va_end(again);
  if (n < 0) return arena_strdup(a, "");
  char *out = arena_alloc(a, (size_t)n + 1);
  text_vformat(out, (size_t)n + 1, format, args);
  return out;
}

char *arena_printf(arena *a, const char *format, ...) {
  va_list args;
  va_start(args, format);
  char *out = arena_vprintf(a, format, args);
  va_end(args);
  return out;
}

void arena_free(arena *a) {
  for (arena_block *block = a->head, *next; block; block = next) {
    next = block->next;
    free(block);
  }
  *a = (arena){0};
}
