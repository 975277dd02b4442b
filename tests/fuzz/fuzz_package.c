/* fuzz_package.c - any bytes as a package: refused in words or opened, never a crash. libFuzzer:
     clang -g -O1 -fsanitize=fuzzer,address,undefined -std=c11 -D_GNU_SOURCE -I. -o fuzz_package
   tests/fuzz/fuzz_package.c \
       $(find runtime -name '*.c') -lm -lpthread -ldl
   A seed: any .tpack. Hashes keep altered code from running: the image is loaded only where its bytes are those of the
   seed or match a hash. */
#include "runtime/taper.h"
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static int fd = -1;
  char path[64];
  if (fd < 0) fd = memfd_create("fuzz", MFD_CLOEXEC);
  if (fd < 0 || ftruncate(fd, 0) != 0 || pwrite(fd, data, size, 0) != (ssize_t)size) return 0;
  snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
  taper_model *model = NULL;
  taper_error error = {.status = TAPER_OK};
  taper_model_options options;
  taper_model_options_init(&options);
  options.threads = 1;
  taper_status status = taper_model_open(path, &options, &model, &error);
  if ((status == TAPER_OK) != (model != NULL)) abort();
  if (status != TAPER_OK && (error.status != status || error.message[0] == 0 || strchr(error.message, '\n'))) abort();
  taper_model_free(model);
  return 0;
}
