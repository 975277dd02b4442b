/* Any bytes as a safetensors file: refused with a message, or every promise of st_open holds. */
#include "runtime/base/safetensors.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition) {
  if (!condition) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  st_file f;
  taper_error error = {0};
  if (st_open_memory(data, size, "input", &f, &error) != TAPER_OK) {
    require(strncmp(error.message, "input: ", 7) == 0 && strstr(error.message, "; ") != NULL);
    return 0;
  }
  uint64_t covered = 8 + f.header_bytes;
  for (size_t i = 0; i < f.count; i++) {
    const st_tensor *t = &f.tensors[i];
    require(t->rank <= ST_MAX_RANK && t->bytes == t->elements * st_dtype_size(t->dtype));
    require(t->offset <= size && t->bytes <= size - t->offset && st_find(&f, t->name) == t);
    for (uint64_t k = 0; k < t->elements; k++) {
      double value;
      st_read_f64(t, k, 1, &value);
    }
    covered += t->bytes;
  }
  require(covered == size);
  for (size_t i = 0; i < f.metadata_count; i++) require(st_metadata(&f, f.metadata[i].key) == f.metadata[i].value);
  st_close(&f);
  return 0;
}
