/* train_image.h - training code of a package, loaded and its tables checked. */
#ifndef TAPER_TRAIN_IMAGE_H
#define TAPER_TRAIN_IMAGE_H

#include "runtime/abi/train_abi.h"
#include "runtime/object.h"
#include "runtime/package.h"

typedef struct train_image {
  object_code object;
  const taper_train_image *table;
} train_image;

/* Loads the object and checks the whole table: counts, pointers (they must lie in the loaded object), sizes that do not
   overflow, parameters against the package's tensors, the package's model hash. Zero *out first; on failure nothing is
   held. */
taper_status train_image_load(const package *p, const package_image *which, train_image *out, taper_error *error);
void train_image_unload(train_image *i);

/* The initial value of parameter `i`: tensor "taper.param.<name>", or "<name>"; NULL: the package has none. */
const st_tensor *train_image_initial(const package *p, const taper_train_param *param);
/* Elements of a parameter; false: no shape of one. */
bool train_image_elements(const taper_train_param *param, uint64_t *out);
/* The result of that name in a program; TAPER_ABI_NONE: it has none. */
uint32_t train_image_result(const taper_train_image *t, uint32_t program, const char *name);

#endif
