/* hash.h - XXH3-128 as 32 lower-case hex digits: detects damage, not malice. */
#ifndef TAPER_BASE_HASH_H
#define TAPER_BASE_HASH_H

#include <stddef.h>

typedef struct hash128 {
  char hex[33];
} hash128;
hash128 hash_bytes(const void *data, size_t bytes);
typedef struct hash_stream hash_stream;
hash_stream *hash_begin(void); /* NULL when memory ran out */
void hash_update(hash_stream *h, const void *data, size_t bytes);
hash128 hash_end(hash_stream *h); /* frees h */

#endif
