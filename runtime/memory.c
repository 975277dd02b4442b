#include "runtime/memory.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Stands right before an aligned block: what the allocator gave, to be handed back with its size. */
typedef struct block_head {
  void *base;
  size_t size;
} block_head;

static void *resize_libc(void *user, void *block, size_t old_size, size_t new_size) {
  (void)user, (void)old_size;
  if (new_size == 0) {
    free(block);
    return NULL;
  }
  return realloc(block, new_size);
}

taper_allocator memory_allocator(taper_allocator a) {
  if (!a.resize) a = (taper_allocator){.resize = resize_libc};
  return a;
}

void *memory_alloc(const taper_allocator *a, size_t bytes, size_t align) {
  size_t total;
  if (__builtin_add_overflow(bytes, align + sizeof(block_head), &total)) return NULL;
  char *base = a->resize(a->user, NULL, 0, total);
  if (!base) return NULL;
  uintptr_t first = (uintptr_t)base + sizeof(block_head);
  char *block = base + sizeof(block_head) + (-first & (align - 1));
  memcpy(block - sizeof(block_head), &(block_head){base, total}, sizeof(block_head));
  return block;
}

void *memory_zalloc(const taper_allocator *a, size_t count, size_t size) {
  size_t bytes;
  if (__builtin_mul_overflow(count, size, &bytes)) return NULL;
  void *block = memory_alloc(a, bytes, MEMORY_LINE);
  return block ? memset(block, 0, bytes) : NULL;
}

void memory_free(const taper_allocator *a, void *block) {
  if (!block) return;
  block_head head;
  memcpy(&head, (char *)block - sizeof(head), sizeof(head));
  a->resize(a->user, head.base, head.size, 0);
}

void memory_advise_huge(void *block, size_t bytes) {
  const size_t skip = -(uintptr_t)block & (MEMORY_HUGE - 1);
  if (bytes < skip + MEMORY_HUGE) return;
  (void)madvise((char *)block + skip, (bytes - skip) & ~(MEMORY_HUGE - 1), MADV_HUGEPAGE);
}
