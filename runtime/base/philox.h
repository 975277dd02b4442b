/* philox.h - Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011), the one random
   number generator of the project: key = seed, counter = (purpose, sequence, position, index). */
#ifndef TAPER_BASE_PHILOX_H
#define TAPER_BASE_PHILOX_H

#include <stdint.h>

enum {
  PHILOX_SAMPLE = 1,
  PHILOX_CHECK = 2,
  PHILOX_INIT = 3,
  PHILOX_BENCH = 4,
  PHILOX_DATA = 5
}; /* purposes: a number is never used twice */

static inline void philox4x32(uint64_t seed, uint32_t purpose, uint32_t sequence, uint32_t position, uint32_t index,
                              uint32_t out[4]) {
  uint32_t c[4] = {purpose, sequence, position, index}, k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
  for (int round = 0; round < 10; round++) {
    uint64_t p0 = 0xD2511F53ull * c[0], p1 = 0xCD9E8D57ull * c[2];
    uint32_t n0 = (uint32_t)(p1 >> 32) ^ c[1] ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c[3] ^ k1;
    c[1] = (uint32_t)p1, c[3] = (uint32_t)p0, c[0] = n0, c[2] = n2;
    k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
  }
  out[0] = c[0], out[1] = c[1], out[2] = c[2], out[3] = c[3];
}
/* Uniform in (0, 1), 32 bits, never 0 or 1. */
static inline double philox_uniform(uint32_t bits) { return ((double)bits + 0.5) * (1.0 / 4294967296.0); }

#endif
