/* safetensors_priv.h - what st_open and st_write share. */
#ifndef TAPER_BASE_SAFETENSORS_PRIV_H
#define TAPER_BASE_SAFETENSORS_PRIV_H

#include "runtime/base/safetensors.h"

bool st_dtype_parse(const char *name, st_dtype *out);
/* Elements and bytes of a shape; false on overflow. A zero dimension makes both 0. */
bool st_sizes(st_dtype type, const uint64_t *shape, uint32_t rank, uint64_t *out_elements, uint64_t *out_bytes);

#endif
