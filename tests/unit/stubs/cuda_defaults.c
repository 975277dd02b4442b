/* Every entry point of libcuda, doing nothing with success; cuda_stub.c replaces some. */
#include "cuda/driver.h"
#define CU(name, parameters)                                                                                           \
  __attribute__((weak)) CUresult name parameters { return 0; }
#include "cuda/driver.def"
