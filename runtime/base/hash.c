#include "runtime/base/hash.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

static hash128 as_hex(XXH128_hash_t value) {
  static const char digits[] = "0123456789abcdef";
  XXH128_canonical_t bytes;
  hash128 out = {{0}};
  XXH128_canonicalFromHash(&bytes, value);
  for (size_t i = 0; i < sizeof bytes.digest; i++) {
    out.hex[2 * i] = digits[bytes.digest[i] >> 4];
    out.hex[2 * i + 1] = digits[bytes.digest[i] & 15];
  }
  return out;
}

hash128 hash_bytes(const void *data, size_t bytes) { return as_hex(XXH3_128bits(bytes ? data : "", bytes)); }

hash_stream *hash_begin(void) {
  XXH3_state_t *state = XXH3_createState();
  if (state) XXH3_128bits_reset(state);
  return (hash_stream *)(void *)state;
}

void hash_update(hash_stream *h, const void *data, size_t bytes) {
  if (bytes) XXH3_128bits_update((XXH3_state_t *)(void *)h, data, bytes);
}

hash128 hash_end(hash_stream *h) {
  hash128 out = as_hex(XXH3_128bits_digest((XXH3_state_t *)(void *)h));
  XXH3_freeState((XXH3_state_t *)(void *)h);
  return out;
}
