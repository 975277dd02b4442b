/* emit.h - plan -> source -> image. */
#ifndef TAPERC_EMIT_H
#define TAPERC_EMIT_H

#include "compiler/schedule/plan.h"
#include "compiler/schedule/train_plan.h"
#include "runtime/base/status.h"

typedef struct emit_options {
  const char *cc;            /* "gcc" by default; may hold a path, never a shell line */
  const char *target_triple; /* NULL: this machine */
  const char *arch;          /* "x86-64-v3", "x86-64-v4", "native" */
  const char *save_temps;    /* folder, or NULL */
} emit_options;

/* The complete C source of the image, readable, one function per distinct stage. */
bool emit_source(const plan *p, const char *model_hash, text *out, diag_sink *sink);
/* The same for target cuda: one kernel per distinct stage, and the launch table that goes with them (docs/cuda.md). */
bool emit_cuda(const plan *p, text *out, text *out_launch, diag_sink *sink);
/* The same of training: it exports `taper_train_image` (runtime/abi/train_abi.h). */
bool emit_train_source(const train_plan *p, const char *model_hash, text *out, diag_sink *sink);
/* Runs the C compiler (a child process, no shell) and checks the result: no undefined symbols. *out_image from malloc.
   *out_features: comma-separated words of runtime/abi/cpu_features.def that the image needs, from malloc. `want_asm`:
   assembler text instead of an image. */
taper_status emit_compile(const char *source, size_t size, const emit_options *options, bool want_asm, void **out_image,
                          size_t *out_size, char **out_features, taper_error *error);

#endif
