/* image.h - machine code of a package, loaded and its tables checked. */
#ifndef TAPER_IMAGE_H
#define TAPER_IMAGE_H

#include "runtime/abi/abi.h"
#include "runtime/object.h"
#include "runtime/package.h"

typedef struct image_code {
  object_code object;
  const taper_image *table;
} image_code;

/* Puts the object in memory, loads it and checks the whole table against the package: counts, pointers (they must lie
   in the loaded object), weights against tensors, offsets against sizes, the model's hash. Zero *out first; on failure
   nothing is held. */
taper_status image_load(const package *p, const package_image *which, image_code *out, taper_error *error);
void image_unload(image_code *i);

/* Floats a weight takes after packing; false where that overflows. */
bool image_packed_floats(const taper_weight_desc *w, uint64_t *out);

#endif
