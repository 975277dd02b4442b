/* buffers.c - memory that launch after launch needs again, kept in between: asking the system for fresh pages each time costs more
   than executing a small kernel. */
#include "cuda/sim/exec.h"
#include <pthread.h>
#include <stdlib.h>

enum { CLASSES = 48, ALIGN = 64 };
#define MOST_KEPT ((size_t)192 << 20)

typedef struct kept {
  struct kept *next;
} kept;
static kept *lists[CLASSES]; /* of blocks of 2^class bytes */
static size_t kept_bytes;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static uint32_t class_of(size_t bytes) {
  uint32_t c = 6;
  while (((size_t)1 << c) < bytes) c++;
  return c;
}

void *sim_buffer_take(size_t bytes) {
  const uint32_t c = class_of(bytes);
  if (c >= CLASSES) return NULL;
  pthread_mutex_lock(&lock);
  kept *b = lists[c];
  if (b) {
    lists[c] = b->next;
    kept_bytes -= (size_t)1 << c;
  }
  pthread_mutex_unlock(&lock);
  return b ? (void *)b : aligned_alloc(ALIGN, (size_t)1 << c);
}

void sim_buffer_give(void *buffer, size_t bytes) {
  const uint32_t c = class_of(bytes);
  if (!buffer) return;
  pthread_mutex_lock(&lock);
  const bool keep = kept_bytes + ((size_t)1 << c) <= MOST_KEPT;
  if (keep) {
    kept *b = buffer;
    b->next = lists[c];
    lists[c] = b;
    kept_bytes += (size_t)1 << c;
  }
  pthread_mutex_unlock(&lock);
  if (!keep) free(buffer);
}

__attribute__((destructor)) static void forget(void) {
  for (uint32_t c = 0; c < CLASSES; c++)
    while (lists[c]) {
      kept *b = lists[c];
      lists[c] = b->next;
      free(b);
    }
}
