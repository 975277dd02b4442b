/* fuzz_launch.c - any bytes as a launch table: read whole or refused in words, never a crash; all its memory is given back. */
#include "cuda/launch.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const taper_allocator libc = memory_allocator((taper_allocator){0});
  launch_table t;
  taper_error error = {.status = TAPER_OK};
  const taper_status status = launch_parse((const char *)data, size, &libc, &t, &error);
  if (status != TAPER_OK && (error.status != status || error.message[0] == 0 || strchr(error.message, '\n'))) abort();
  launch_free(&t);
  return 0;
}
