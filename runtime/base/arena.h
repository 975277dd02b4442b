/* arena.h - memory that is freed together. A zeroed arena is valid and empty. */
#ifndef TAPER_BASE_ARENA_H
#define TAPER_BASE_ARENA_H

#include <stdarg.h>
#include <stddef.h>

typedef struct arena {
  struct arena_block *head;
  size_t used;
} arena;

/* Zeroed memory, 16-byte aligned, owned by the arena. Never NULL: prints nothing and calls the out-of-memory handler,
   which by default aborts; compiler only (the runtime allocates through taper_allocator and reports). */
void *arena_alloc(arena *a, size_t bytes);
void *arena_copy(arena *a, const void *data, size_t bytes);
char *arena_strdup(arena *a, const char *s);
char *arena_strndup(arena *a, const char *s, size_t bytes);
char *arena_printf(arena *a, const char *format, ...) __attribute__((format(printf, 2, 3)));
char *arena_vprintf(arena *a, const char *format, va_list args);
void arena_free(arena *a);

/* n elements of `size` bytes; an overflowing product counts as out of memory. */
void *arena_alloc_array(arena *a, size_t size, size_t n);
/* Called with the size that could not be had; must not return (the command line prints and exits 3). NULL: abort. Set
 * before threads start. */
void arena_on_no_memory(void (*handler)(size_t bytes));

#define ARENA_NEW(a, type) ((type *)arena_alloc((a), sizeof(type)))
#define ARENA_ARRAY(a, type, n) ((type *)arena_alloc_array((a), sizeof(type), (size_t)(n)))

#endif
