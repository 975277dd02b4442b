/*
 * cuda_abi.h - the contract between emitted CUDA, a package and the runtime, version TAPER_CUDA_ABI_VERSION. The emitter
 * pastes it at the head of every emitted CUDA source; NVRTC compiles it without any header. docs/cuda.md has the launch
 * table that goes with it.
 *
 * Every kernel is `extern "C" __global__ void NAME(const __grid_constant__ taper_cuda_call c, const __grid_constant__
 * struct NAME_args a)`; the args are slots of 8 bytes in the order of the launch table. A call of the model launches the
 * stages in order on one stream. Row r of a call is one token: (token[r], slot[r], pos[r]).
 */
#ifndef TAPER_CUDA_ABI_H
#define TAPER_CUDA_ABI_H

#ifdef __CUDACC_RTC__
typedef int int32_t;
typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;
#else
#include <stdint.h>
#endif

#define TAPER_CUDA_ABI_VERSION 1u
#define TAPER_CUDA_ROWS 8u /* rows that a kernel of a linear stage takes at once: more stand in grid.y */

/* First parameter of every kernel, by value; pointers are device memory. */
typedef struct taper_cuda_call {
  const int32_t *token;   /* [rows] */
  const int32_t *pos;     /* [rows] position in its sequence */
  const int32_t *slot;    /* [rows] which sequence's state */
  const int32_t *out_row; /* [out_rows] ascending indices into the rows */
  float *arena;           /* buffer b: arena + b.offset * row_cap, row r of it at + r * b.width */
  float *scratch;         /* [rows][key heads][splits]: what attention leaves for the merge */
  uint32_t *counters;     /* [rows][key heads]: 0 before and after every launch */
  uint32_t rows, out_rows, row_cap;
  uint32_t context; /* positions that a slot's state holds */
  uint32_t splits;  /* parts that attention cuts the keys into */
  uint32_t pad;
} taper_cuda_call;

/* How the next token is chosen: taper_sampling's fields, in device memory so that one graph serves all options. */
typedef struct taper_cuda_sampling {
  uint64_t seed;
  float temperature, top_p, min_p, repeat_penalty;
  uint32_t top_k, repeat_last;
  int32_t end_token; /* -1: none */
  uint32_t pad;
} taper_cuda_sampling;

/* Why a row of a decode graph makes no more tokens. */
#define TAPER_CUDA_RUNNING 0u
#define TAPER_CUDA_END 1u     /* the end token was chosen; it is not in `out` */
#define TAPER_CUDA_LENGTH 2u  /* `most` tokens were made */
#define TAPER_CUDA_CONTEXT 3u /* the state is full */
#define TAPER_CUDA_NUMERIC 4u /* the logit of bad_id at this position is no finite number */

/* What a row of a decode graph is at; in device memory, changed by the sampling kernel alone. A row that is done computes its last
   position again and again, and changes nothing. */
typedef struct taper_cuda_row {
  int32_t *history;  /* [context] token at each position of the sequence */
  int32_t *out;      /* [most] */
  uint32_t sequence; /* of the random numbers' counter */
  uint32_t made, most;
  uint32_t done; /* TAPER_CUDA_RUNNING, ... */
  uint32_t bad_id;
  uint32_t pad;
} taper_cuda_row;

#endif
