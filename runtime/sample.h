/* sample.h - choosing the next token without allocating. */
#ifndef TAPER_SAMPLE_H
#define TAPER_SAMPLE_H

#include "runtime/base/status.h"

typedef struct sample_room {
  float *values; /* [vocab] */
  uint32_t *ids; /* [vocab] */
} sample_room;

/* TAPER_INVALID naming the option and its range. */
taper_status sample_check(const taper_sampling *s, taper_error *error);
/* taper_sample with room of the caller's; the options have been checked. */
taper_status sample_pick(const taper_sampling *s, const float *logits, uint32_t vocab, const int32_t *history, size_t n,
                         uint32_t sequence, const sample_room *room, int32_t *out_id, taper_error *error);

#endif
