/* checkpoint.h - what the writer and the reader of checkpoint folders share. docs/package-format.md */
#ifndef TAPER_CHECKPOINT_H
#define TAPER_CHECKPOINT_H

#include "runtime/base/hash.h"
#include "runtime/base/text.h"
#include "runtime/trainer.h"

#define CHECKPOINT_WEIGHTS "weights.safetensors"
#define CHECKPOINT_OPTIMIZER "optimizer.safetensors"
#define CHECKPOINT_MANIFEST "manifest.json"

enum { CHECKPOINT_NORM_NUMBERS = 7 }; /* of a norm: value and bias of three averages, count */

/* A hash over names and shapes of parameters, norms and gates: a checkpoint fits a trainer where they are equal. */
hash128 checkpoint_layout(const taper_trainer *t);
/* Joins folder and name; malloc, NULL: no memory. */
char *checkpoint_path(const char *folder, const char *name);

#endif
