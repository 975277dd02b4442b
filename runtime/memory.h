/* memory.h - aligned blocks from the caller's allocator. */
#ifndef TAPER_MEMORY_H
#define TAPER_MEMORY_H

#include "runtime/base/status.h"

#define MEMORY_LINE 64u               /* of a cache: the least alignment of a block */
#define MEMORY_HUGE ((size_t)2 << 20) /* a huge page */

/* `a` with the C library in place of NULL functions. */
taper_allocator memory_allocator(taper_allocator a);
/* A block aligned to `align` (a power of two, at least MEMORY_LINE) by over-allocation; the content is undefined. NULL:
 * no memory. */
void *memory_alloc(const taper_allocator *a, size_t bytes, size_t align);
/* A zeroed block for count elements, aligned to MEMORY_LINE; NULL also where count * size overflows. */
void *memory_zalloc(const taper_allocator *a, size_t count, size_t size);
/* Frees a block of memory_alloc or memory_zalloc; NULL is legal. */
void memory_free(const taper_allocator *a, void *block);
/* TAPER_NOMEM naming what the memory is for and its size. */
static inline taper_status memory_exhausted(taper_error *error, const char *what, uint64_t bytes) {
  (void)TAPER_FAIL(error, TAPER_NOMEM, "no memory for %s (%llu bytes)", what, (unsigned long long)bytes);
  return TAPER_NOMEM;
}
/* Asks for huge pages behind the whole pages of a block; a kernel that has none is no error. */
void memory_advise_huge(void *block, size_t bytes);

#endif
