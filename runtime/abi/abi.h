/*
 * abi.h - the contract between emitted code and the runtime, version TAPER_ABI_VERSION. Freestanding: the emitter pastes this
 * text at the head of every emitted source, so that an image and its runtime can be compared field by field.
 *
 * An image is a shared object without undefined symbols; it exports one symbol, `taper_image`, of type taper_image.
 * Everything in it is constant. A call of the model runs stages[0 .. stage_count) in order; in each stage every worker
 * calls fn(ctx, args) once, and a barrier follows. Where no probe is wanted, the stages of TAPER_STAGE_PROBES are left
 * out. Row r of a call is one token: (token[r], slot[r], pos[r]).
 */
#ifndef TAPER_ABI_H
#define TAPER_ABI_H

#include <stddef.h>
#include <stdint.h>

#define TAPER_ABI_MAGIC 0x52505454u /* "TTPR" */
#define TAPER_ABI_VERSION 1u
#define TAPER_ABI_NONE 0xffffffffu
#define TAPER_TILE 16u /* outputs of a weight tile, floats of a state's position block */

/* What a stage sees. One per worker; only `worker` and `scratch` differ between workers. */
typedef struct taper_ctx {
  uint32_t version, size;
  uint32_t workers, worker;
  uint32_t rows;              /* token rows of this call, 1 .. row_cap */
  uint32_t out_rows;          /* rows whose logits are wanted, 0 .. rows */
  uint32_t row_cap;           /* rows the arena was sized for */
  uint32_t context;           /* positions a slot's state holds: a multiple of TAPER_TILE */
  const int32_t *token;       /* [rows] */
  const int32_t *pos;         /* [rows] position in its sequence */
  const int32_t *slot;        /* [rows] which sequence's state */
  const int32_t *out_row;     /* [out_rows] ascending indices into the rows */
  float *arena;               /* buffer b: arena + b.offset * row_cap, row r of it at + r * b.width */
  const float *const *weight; /* [weight_count] packed weights */
  float *const *state;        /* [state_count]: slot s begins at + s * floats_per_pos * context */
  const float *const *rotary; /* [rotary_count]: [context][2][pairs] cos then sin */
  float *scratch; /* this worker's own: scratch_floats + scratch_per_pos * context floats, 64-byte aligned */
} taper_ctx;

typedef void (*taper_stage_fn)(const taper_ctx *ctx, const void *args);

/* The stage computes what only probes read: a call without probes leaves it out. Only other such stages and the probes
 * read what it leaves behind. */
#define TAPER_STAGE_PROBES 1u

typedef struct taper_stage {
  taper_stage_fn fn;
  const void *args; /* a constant struct that the stage's template defines */
  const char *name; /* e.g. "layers.3.qkv", for traces */
  uint32_t flags;   /* TAPER_STAGE_PROBES; other bits are 0 */
} taper_stage;

/* How a weight lies in memory after packing. rows x cols is the canonical [out, in] part of the tensor that is packed. */
typedef enum taper_pack {
  TAPER_PACK_ROWS = 0, /* as stored: row-major, each row padded to a multiple of 16 floats when rows > 1 */
  TAPER_PACK_TILES =
      1 /* [ceil(rows/16)][cols][16]: element (o, i) at ((o/16)*cols + i)*16 + o%16; rows beyond the end are 0 */
} taper_pack;

typedef struct taper_weight_desc {
  const char *tensor; /* name in the package */
  uint32_t pack;      /* taper_pack */
  uint32_t row0;      /* first row of the tensor that is packed */
  uint32_t rows, cols;
  uint32_t read_rows; /* that a decode step reads: `rows`; 1 of a table that is only looked up; 0: only probes do */
} taper_weight_desc;

typedef struct taper_state_desc {
  const char *name;
  uint32_t floats_per_pos; /* kv_heads * head_dim */
} taper_state_desc;

typedef struct taper_rotary_desc {
  uint32_t pairs;         /* rotated dims / 2 */
  const double *inv_freq; /* [pairs] radians a position, any scaling applied */
  double magnitude;       /* factor on cos and sin (1 but for scalings that ask for it) */
} taper_rotary_desc;

/* After stage `stage` (TAPER_ABI_NONE: never materialised, an error) rows of the buffer hold the probed value. */
typedef struct taper_probe_desc {
  const char *name;
  uint32_t stage;
  uint64_t offset; /* of the buffer, in floats a row */
  uint32_t width;
  uint32_t inv_scale; /* weight index of a vector [width] to multiply by, or TAPER_ABI_NONE */
} taper_probe_desc;

typedef struct taper_image {
  uint32_t magic, abi_version, size; /* size = sizeof(taper_image) */
  uint32_t vocab, context, width, max_batch;
  uint32_t stage_count, weight_count, state_count, rotary_count, probe_count;
  const taper_stage *stages;
  const taper_weight_desc *weights;
  const taper_state_desc *states;
  const taper_rotary_desc *rotary;
  const taper_probe_desc *probes;
  uint64_t row_floats;      /* arena floats a row */
  uint64_t scratch_floats;  /* a worker */
  uint64_t scratch_per_pos; /* a worker, times context */
  uint64_t scratch_per_row; /* a worker, times row_cap */
  uint64_t logits_offset;   /* buffer of the logits, width vocab: row j belongs to out_row[j] */
  const char *model;        /* hash of the module it was emitted from: equals the package's */
} taper_image;

#endif
