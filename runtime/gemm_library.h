/* gemm_library.h - which GEMM a training run uses: the generated one, or oneDNN's opened at run time. */
#ifndef TAPER_GEMM_LIBRARY_H
#define TAPER_GEMM_LIBRARY_H

#include "runtime/abi/train_abi.h"
#include "runtime/memory.h"
#include "runtime/taper.h"

typedef struct gemm_chosen {
  taper_gemm_fn fn; /* NULL: the generated one */
  char name[64];    /* "generated", "oneDNN 2.6.3" */
  char why[192];    /* what was measured or missing; may be empty */
} gemm_chosen;

/* Runs a piece of training with `gemm` (NULL: the generated one). */
typedef struct gemm_trial {
  void (*run)(void *arg, taper_gemm_fn gemm);
  void *arg;
} gemm_trial;

/* TAPER_GEMM_AUTO measures both by `trial`, for half a second where one run is short; the library must be at least a
   tenth faster. The library is looked for as libdnnl.so.3, libdnnl.so.2, or only at the path in the environment variable
   TAPER_LIBDNNL; TAPER_UNSUPPORTED where it is asked for and absent. */
taper_status gemm_choose(taper_gemm_choice choice, const gemm_trial *trial, gemm_chosen *out, taper_error *error);

#endif
