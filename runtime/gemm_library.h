/* gemm_library.h - which GEMM a training run uses: the generated one, or oneDNN's opened at run time. */
#ifndef TAPER_GEMM_LIBRARY_H
#define TAPER_GEMM_LIBRARY_H

#include "runtime/abi/train_abi.h"
#include "runtime/memory.h"

typedef struct gemm_chosen {
  taper_gemm_fn fn; /* NULL: the generated one */
  char name[64];    /* "generated", "oneDNN 2.6.3" */
  char why[192];    /* what was measured or missing; may be empty */
} gemm_chosen;

/* TAPER_GEMM_AUTO measures both for about 0.2 s; the library must be at least a tenth faster. The library is looked for
   as libdnnl.so.3, libdnnl.so.2, or only at the path in the environment variable TAPER_LIBDNNL; TAPER_UNSUPPORTED where
   it is asked for and absent. scratch: t->gemm_scratch floats. */
taper_status gemm_choose(const taper_train_image *t, float *scratch, const taper_allocator *allocator,
                         taper_gemm_choice choice, gemm_chosen *out, taper_error *error);

#endif
