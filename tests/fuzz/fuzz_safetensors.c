/* Any bytes as a safetensors file: refused with a message, or every promise of st_open holds. First byte odd: the rest
   is the header, and the second byte says how many bytes of data follow it, so that the fuzzer need not find out about
   the length in front. */
#include "runtime/base/safetensors.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition) {
  if (!condition) abort();
}

static int check(const uint8_t *data, size_t size) {
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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size < 2) return check(data, size);
  if (data[0] % 2 == 0) return check(data + 1, size - 1);
  size_t header = size - 2, total = 8 + header + data[1];
  uint8_t *whole = calloc(1, total);
  if (!whole) return 0;
  for (size_t i = 0; i < 8; i++) whole[i] = (uint8_t)((uint64_t)header >> 8 * i);
  memcpy(whole + 8, data + 2, header);
  check(whole, total);
  free(whole);
  return 0;
}
