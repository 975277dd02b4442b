/* device.h - what executes a model. A device opens a package, holds its weights, keeps the states of sequences and runs
   batches of token rows. Sessions know devices by this table only; tests/device runs the same suite on every one. */
#ifndef TAPER_DEVICE_H
#define TAPER_DEVICE_H

#include "runtime/package.h"

typedef struct device device;
typedef struct device_state device_state; /* `slots` sequences of `context` positions */

typedef struct device_facts {
  char image[64];
  uint32_t vocab, context, width, max_batch;
  uint32_t row_cap; /* rows a batch may have */
  uint32_t probes;
  uint32_t threads;
  uint64_t weight_bytes, bytes_per_token;
  double scale_median, scale_high; /* of s(h) before the head, as the package says; 0: not known, or never in memory */
  char lost_probe[64];             /* the first probe whose value is never in memory; "": all are */
} device_facts;

/* One call of the model: row r is token[r] at pos[r] of the sequence in slot[r]; rows of one slot stand in ascending
 * positions. */
typedef struct device_batch {
  uint32_t rows, out_rows;
  const int32_t *token, *pos, *slot;
  const int32_t *out_row; /* [out_rows] ascending */
  float *const
      *logits; /* [out_rows] where the vocab logits go; an entry may be NULL: they are computed and checked only */
  float *probe_rows; /* [probes][rows][width], inverse scales applied; NULL: not wanted */
  float *scales;     /* [rows] s(h) before the head, where facts.scale_median > 0; NULL: not wanted */
  uint32_t bad_row,
      bad_id; /* set with TAPER_NUMERIC: an out_row index and the first id whose logit is no finite number */
} device_batch;

typedef struct device_ops {
  const char *name; /* "cpu" */
  taper_status (*open)(const package *p, const taper_model_options *options, const taper_allocator *allocator,
                       device **out, taper_error *error);
  void (*close)(device *d);
  /* Zeroed. `context` is what may be held; a device rounds up for itself. */
  taper_status (*state_new)(device *d, uint32_t slots, uint32_t context, device_state **out, taper_error *error);
  void (*state_free)(device *d, device_state *s);
  /* Copies the first `positions` positions of a slot, between states of the same shape. */
  taper_status (*state_copy)(device *d, device_state *to, const device_state *from, uint32_t slot, uint32_t positions,
                             taper_error *error);
  /* Puts 0 for every number of a slot that is not finite: what a failed call left behind. */
  void (*state_scrub)(device *d, device_state *s, uint32_t slot);
  /* Any thread, one batch at a time; callers take turns in the order they come. TAPER_NUMERIC: as said at bad_row. */
  taper_status (*run)(device *d, device_state *s, device_batch *batch, taper_error *error);
} device_ops;

struct device {
  const device_ops *ops;
  device_facts facts;
};

extern const device_ops device_cpu;

#endif
