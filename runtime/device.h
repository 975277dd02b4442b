/* device.h - what executes a model. A device opens a package, holds its weights, keeps the states of sequences and runs
   batches of token rows. Sessions know devices by this table only; tests/device runs the same suite on every one. The
   CPU is part of libtaper; the CUDA devices are a plug-in that device_open loads when they are asked for. */
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
  bool decodes; /* ops->decode works with this package */
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

#define DEVICE_DECODE_MOST 16u /* ids that one call makes */

/* Generation on the device itself: row r of the call appends `token` to its slot at `length`, and then every id that is
   chosen, until `most` ids were made, an end, or a fault. */
typedef struct device_decode_row {
  int32_t token;
  uint32_t slot, length;  /* length: tokens that the slot holds, `token` not counted */
  uint32_t sequence;      /* of the random numbers' counter */
  const int32_t *history; /* [length] the tokens held (NULL for none), for the repeat penalty */
  int32_t *out;           /* [most] the ids chosen; each but the last was appended as well */
  float *scales;          /* [most] s(h) before the head of the token appended before out[i], where facts.scale_median
                             > 0; NULL: not wanted. Where an end was chosen, scales[made] is its own */
  uint32_t made;          /* set: ids in `out` */
  uint32_t end;           /* set: TAPER_CUDA_END, ..._NUMERIC, ... of cuda_abi.h */
  uint32_t bad_id; /* set with ..._NUMERIC: the first id whose logit after the last appended token is not finite */
} device_decode_row;

typedef struct device_decode {
  const taper_sampling *sampling;
  device_decode_row *row; /* [rows], different slots */
  uint32_t rows;          /* at most the facts' max_batch, and 8 */
  uint32_t most;          /* at most DEVICE_DECODE_MOST; length + most is at most the context */
  int32_t end_token;      /* -1: none */
} device_decode;

/* What a simulated device has executed since the last reset. */
typedef struct device_traffic {
  char kernel[64]; /* "": all kernels */
  uint64_t launches, blocks;
  uint64_t instructions;                 /* of warps */
  uint64_t bytes, sectors;               /* read: different bytes, and different sectors of 32 bytes, of each launch */
  uint64_t weight_bytes, weight_sectors; /* of these, in memory that no launch wrote: of all kernels only */
} device_traffic;

typedef struct device_ops {
  const char *name; /* "cpu", "cuda", "sim" */
  taper_status (*open)(const package *p, const taper_model_options *options, const taper_allocator *allocator,
                       device **out, taper_error *error);
  void (*close)(device *d);
  /* Empty. `context` is what may be held; a device rounds up for itself. */
  taper_status (*state_new)(device *d, uint32_t slots, uint32_t context, device_state **out, taper_error *error);
  void (*state_free)(device *d, device_state *s);
  /* Copies the first `positions` positions of a slot, between states of the same shape. */
  taper_status (*state_copy)(device *d, device_state *to, const device_state *from, uint32_t slot, uint32_t positions,
                             taper_error *error);
  /* What a failed call left in a slot behind what the session counts harms nobody afterwards: a device that multiplies it by 0
     puts 0 for every number that is not finite. */
  void (*state_scrub)(device *d, device_state *s, uint32_t slot);
  /* Any thread, one batch at a time; callers take turns in the order they come. TAPER_NUMERIC: as said at bad_row. */
  taper_status (*run)(device *d, device_state *s, device_batch *batch, taper_error *error);
  /* NULL: the host samples. A fault of numbers is no failure: the row's `end` says it. */
  taper_status (*decode)(device *d, device_state *s, device_decode *call, taper_error *error);
  /* NULL: nothing is counted. out[0]: all; behind it kernels in the order of their first launches, `most` entries at most. Returns
   * how many there are, and zeroes the counters. */
  uint32_t (*traffic)(device *d, device_traffic *out, uint32_t most);
} device_ops;

struct device {
  const device_ops *ops;
  device_facts facts;
};

extern const device_ops device_cpu;

/* A device's word in parts. TAPER_INVALID: it is none. */
typedef struct device_choice {
  const device_ops *ops; /* NULL: a plug-in's */
  bool simulated;
  uint32_t ordinal; /* of the GPU */
} device_choice;
taper_status device_choose(const char *word, device_choice *out, taper_error *error);
/* Opens the package on the device that the options or TAPER_DEVICE name. TAPER_DEVICE: the plug-in is not there. */
taper_status device_open(const package *p, const taper_model_options *options, const taper_allocator *allocator,
                         device **out, taper_error *error);

/* What libtaper-cuda.so exports as `taper_cuda_device`: the same structs on both sides, or it is refused. */
typedef struct device_plugin {
  uint32_t abi, package_size, options_size, ops_size; /* DEVICE_PLUGIN_ABI and sizeof of package, options and ops */
  const char *version;                                /* of the library it was built with */
  const device_ops *cuda, *sim;
} device_plugin;
#define DEVICE_PLUGIN_ABI 2u
#define DEVICE_PLUGIN_SYMBOL "taper_cuda_device"

/* sqrt(mean((x - mu)^2)) of x[0..n), mu 0 but for the LayerNorm form; `inverse` [n], where not NULL, undoes a scale. */
float device_scale_of(const float *x, const float *inverse, uint32_t n, bool centred);
/* Whether the bits of v[0..n) hold neither NaN nor infinity. */
bool device_is_finite(const float *v, uint64_t n);

#endif
