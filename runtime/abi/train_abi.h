/*
 * train_abi.h - the contract between emitted training code and the trainer, version TAPER_TRAIN_ABI_VERSION. Freestanding,
 * and pasted at the head of every emitted training source, like abi.h (whose TAPER_TILE it shares).
 *
 * A training image exports one symbol, `taper_train_image`. It holds programs: lists of stages that every worker runs
 * together, a barrier after each. A call handles `rows` = batch * time token rows: row b * time + t is position t of
 * window b. Consecutive stages flagged TAPER_TRAIN_CHUNKED form a loop: they run once for every chunk of chunk_rows rows,
 * and values that live only there (logits) have room for one chunk.
 *
 * Work is cut into blocks of `block` rows; a sum over rows is first taken within each block, then over the blocks in
 * order: results depend on shapes alone, never on the number of workers.
 */
#ifndef TAPER_TRAIN_ABI_H
#define TAPER_TRAIN_ABI_H

#include <stddef.h>
#include <stdint.h>

#define TAPER_TRAIN_ABI_MAGIC 0x4e525454u /* "TTRN" */
#define TAPER_TRAIN_ABI_VERSION 1u

/* C[m x n] = A[m x k] B[n x k]^T (nt), A[m x k] B[k x n] (nn) or A[k x m]^T B[k x n] (tn); C += with accumulate. Row-major with leading
   dimensions. Supplied by the trainer where a library is faster than the generated kernel; NULL: use the generated one. */
typedef enum taper_gemm_form { TAPER_GEMM_NT = 0, TAPER_GEMM_NN = 1, TAPER_GEMM_TN = 2 } taper_gemm_form;
typedef void (*taper_gemm_fn)(uint32_t form, uint32_t m, uint32_t n, uint32_t k, const float *a, uint32_t lda,
                              const float *b, uint32_t ldb, float *c, uint32_t ldc, int accumulate);

/* What a stage sees. One per worker; only `worker` and `scratch` differ between workers. */
typedef struct taper_train_ctx {
  uint32_t version, size;
  uint32_t workers, worker;
  uint32_t batch, time, rows;       /* of this call */
  uint32_t row_cap;                 /* rows the arena was sized for, a multiple of `block` */
  uint32_t block;                   /* rows of a block, a multiple of 16 */
  uint32_t chunk_rows;              /* rows of a chunk, a multiple of `block` */
  uint32_t chunk_row0, chunk_count; /* of a chunked stage: its first row, its rows; else 0, rows */
  uint32_t accumulate;              /* gradients and results add to what is there (a later micro-batch) */
  float inv_count;                  /* 1 / counted targets of the whole optimizer step, all micro-batches */
  const int32_t *token, *target;    /* [rows]; a target of -1 is padding: it counts nowhere */
  float *arena;                     /* buffer b: arena + offset * row_cap, row r at + r * width */
  float *chunk;                     /* chunk buffer: chunk + offset * chunk_rows, row r at + (r - chunk_row0) * width */
  float *partial;       /* partial p: partial + offset * blocks, block i at + i * width; blocks = row_cap / block */
  float *fixed;         /* values of parameters' shape: fixed + offset; shared by all workers, of this call alone */
  float *const *param;  /* [param_count] canonical, row-major, no padding */
  float *const *grad;   /* [param_count] same shape; NULL: not trained */
  float *const *packed; /* [pack_count] */
  const float *gate;    /* [gate_count] values of this step */
  double *result;       /* [result_count] sums over counted positions of this call, times inv_count */
  const float *const *rotary; /* [rotary_count]: [context][2][pairs] cos then sin */
  float *scratch;             /* this worker's own, 64-byte aligned */
  taper_gemm_fn gemm;         /* or NULL */
} taper_train_ctx;

typedef void (*taper_train_stage_fn)(const taper_train_ctx *ctx, const void *args);

#define TAPER_TRAIN_CHUNKED 1u

typedef struct taper_train_stage {
  taper_train_stage_fn fn;
  const void *args;
  const char *name; /* "layers.3.attn.o back", for traces */
  uint32_t flags;
} taper_train_stage;

typedef enum taper_train_program_id {
  TAPER_TRAIN_PACK = 0, /* packed weights from the parameters; after every update and load. Uses no rows */
  TAPER_TRAIN_WARM,     /* all scheduled gates 1: losses, gradients, calibration statistics */
  TAPER_TRAIN_TAPER,    /* any gate values; losses, gradients, statistics */
  TAPER_TRAIN_ZERO,     /* all scheduled gates 0: norm-free there */
  TAPER_TRAIN_EVAL,     /* any gate values; losses only */
  TAPER_TRAIN_OBSERVE,  /* any gate values; what --metrics full asks for; no gradients */
  TAPER_TRAIN_SCAN,     /* gates 1 beside any gate values (one gate per norm); KL. Only in packages made for scan */
  TAPER_TRAIN_PROGRAMS
} taper_train_program_id;

typedef struct taper_train_program {
  const taper_train_stage *stages; /* stage_count 0: the image has no such program */
  uint32_t stage_count;
  uint64_t row_floats;        /* arena floats a row */
  uint64_t chunk_floats;      /* chunk floats a row of a chunk */
  uint64_t partial_floats;    /* a block */
  uint64_t fixed_floats;      /* whatever the rows */
  uint64_t scratch_floats;    /* a worker */
  uint64_t scratch_per_block; /* a worker, times block */
  uint64_t scratch_per_time;  /* a worker, times time */
} taper_train_program;

typedef struct taper_train_param {
  const char *tensor;    /* name in the package and in checkpoints (in packages also "taper.param.<tensor>") */
  uint32_t rank, dim[4]; /* as stored */
  uint32_t trained;      /* 0: state that the trainer sets (taper_c, anchor.target) */
  uint32_t matrix;       /* weight decay applies (rank 2) */
  uint32_t programs;     /* bit p (taper_train_program_id): program p writes its gradient; without it a step of p leaves
                            the parameter and its moments alone */
  const char *kind;      /* for gradient norms: "qkv" "o" "mlp_in" "mlp_out" "embedding" "head" "norm" "bias" "other" */
} taper_train_param;

typedef struct taper_train_pack {
  uint32_t param; /* which; how it lies is the image's own business */
  uint64_t floats;
} taper_train_pack;

/* A taper norm: its parameters and its gate. Results "<name>.numerator", "<name>.denominator" (means of |h D_gamma|^2 / r and of
   |h D_gamma|^2) and "<name>.sigma" (mean of r, of sigma) of WARM and TAPER are its calibration. */
typedef struct taper_train_norm {
  const char *name;                       /* "layers.0.attn_norm" */
  uint32_t gate;                          /* index */
  uint32_t weight, taper_weight, taper_c; /* parameters */
  uint32_t layer_norm;                    /* 1: the LayerNorm form */
} taper_train_norm;

typedef struct taper_train_gate {
  const char *name;   /* of the array */
  uint32_t index;     /* element */
  uint32_t count;     /* elements of the array; 1: a plain gate */
  float value;        /* as compiled */
  uint32_t scheduled; /* its value changes in training */
} taper_train_gate;

/* A result: a mean over counted positions, or (rows) one number for every row of a call, kept at `offset` of the arena with width 1.
   Names: "ce", "aux" (lambda included), "logit_norm", "scale" (of what enters the final norm), "scale_rows" (rows), "<norm>.numerator" ..., of
   OBSERVE "layers.<i>.scale", "<norm>.calibration_error", "<norm>.scale_rows" (rows), "logit_margin"; of SCAN "ce", "kl". */
typedef struct taper_train_result {
  const char *name;
  uint32_t program; /* taper_train_program_id it belongs to; the same name may stand for several */
  uint32_t rows;    /* 1: per row */
  uint64_t offset;  /* rows: as a buffer's; else 0 */
} taper_train_result;

typedef struct taper_train_rotary {
  uint32_t pairs;
  const double *inv_freq;
  double magnitude;
} taper_train_rotary;

/* One AdamW update of elements [first, last) (Loshchilov and Hutter 2019): with g' = clip_scale * g,
   m = beta1 m + (1 - beta1) g', v = beta2 v + (1 - beta2) g'^2, p -= lr (m / correction1 / (sqrt(v / correction2) + eps) + decay p). */
typedef struct taper_train_adamw {
  float lr, beta1, beta2, eps, decay, clip_scale, correction1, correction2;
} taper_train_adamw;

typedef struct taper_train_image {
  uint32_t magic, abi_version, size;
  uint32_t vocab, context, width;
  uint32_t param_count, pack_count, gate_count, norm_count, result_count, rotary_count;
  taper_train_program programs[TAPER_TRAIN_PROGRAMS];
  const taper_train_param *params;
  const taper_train_pack *packs;
  const taper_train_gate *gates;
  const taper_train_norm *norms;
  const taper_train_result *results;
  const taper_train_rotary *rotary;
  uint32_t final_norm;    /* norm index of the norm before the head, or TAPER_ABI_NONE */
  uint32_t anchor_target; /* parameter [1] that holds s_tgt, or TAPER_ABI_NONE: no anchor */
  uint32_t table;         /* parameter that token ids look up, or TAPER_ABI_NONE: `<tensor>.seen` counts */
  void (*adamw)(float *p, const float *g, float *m, float *v, uint64_t first, uint64_t last,
                const taper_train_adamw *a);
  double (*sum_squares)(const float *x, uint64_t first, uint64_t last); /* in a fixed order */
  /* The generated GEMM, for tools that measure it. scratch: gemm_scratch floats, 64-byte aligned. */
  void (*gemm)(uint32_t form, uint32_t m, uint32_t n, uint32_t k, const float *a, uint32_t lda, const float *b,
               uint32_t ldb, float *c, uint32_t ldc, int accumulate, float *scratch);
  uint64_t gemm_scratch;
  const char *model;
} taper_train_image;

#endif
