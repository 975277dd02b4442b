/* pack.h - the weights as the kernels read them, and the tables of rotary positions. */
#ifndef TAPER_PACK_H
#define TAPER_PACK_H

#include "runtime/image.h"
#include "runtime/pool.h"

typedef struct packed {
  float *weights; /* one block; of huge pages where that pays */
  float *rotations;
  const float **weight; /* [weight_count], each 64-byte aligned */
  const float **rotary; /* [rotary_count]: [positions][2][pairs], cos then sin */
  uint64_t weight_bytes, bytes_per_token;
} packed;

/* Packs every weight of the image, the pool's workers side by side (the caller holds its lock), each the tiles that it
   would own; pages of the file are given back as they are read. `positions` rows of the rotary tables are computed in
   double and rounded once. */
taper_status pack_weights(const package *p, const taper_image *image, uint32_t positions, pool *workers,
                          const taper_allocator *allocator, packed *out, taper_error *error);
void pack_free(packed *w, const taper_allocator *allocator);

#endif
