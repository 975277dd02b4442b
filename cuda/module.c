/* Images into a context; what the driver says of those that it does not take. */
#include "cuda/driver.h"
#include "runtime/base/text.h"
#include <stdint.h>
#include <string.h>

enum { LOG_BYTES = 4096 };

static const char *remedy_of(CUresult result) {
  static const struct {
    CUresult result;
    const char *remedy;
  } remedies[] = {
      {CUDA_ERROR_NO_BINARY_FOR_GPU, "compile for this GPU: taperc compile --target cuda --arch sm_NN,compute_NN"},
      {CUDA_ERROR_UNSUPPORTED_PTX_VERSION, "this PTX is newer than the driver: install a newer driver, or compile the "
                                           "package with an older NVRTC (TAPER_LIBNVRTC)"},
      {CUDA_ERROR_INVALID_PTX, "compile the package anew, with another NVRTC (TAPER_LIBNVRTC)"},
      {CUDA_ERROR_OUT_OF_MEMORY, "free some of the device's memory"},
      {CUDA_ERROR_INVALID_IMAGE, "compile the package anew"}};
  for (size_t i = 0; i < sizeof remedies / sizeof *remedies; i++)
    if (remedies[i].result == result) return remedies[i].remedy;
  return NULL;
}

/* The lines of a log in one. */
static const char *one_line(char *log) {
  size_t n = strlen(log);
  while (n && (log[n - 1] == '\n' || log[n - 1] == ' ')) log[--n] = 0;
  for (char *c = log; *c; c++)
    if (*c == '\n') *c = ' ';
  return log;
}

taper_status cuda_module_load(const cuda_driver *d, const void *image, const char *name, CUmodule *out,
                              taper_error *error) {
  char info[LOG_BYTES] = "", log[LOG_BYTES] = "";
  int options[] = {CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BYTES, CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BYTES};
  void *values[] = {info, (void *)(uintptr_t)sizeof info, log, (void *)(uintptr_t)sizeof log};
  CUresult result = d->cuModuleLoadDataEx(out, image, sizeof options / sizeof *options, options, values);
  if (result == CUDA_SUCCESS) return TAPER_OK;
  info[sizeof info - 1] = log[sizeof log - 1] = 0;
  const char *said = one_line(*log ? log : info), *remedy = remedy_of(result);
  taper_error driver = {0};
  taper_status status = cuda_driver_check(d, result, "cuModuleLoadDataEx", &driver);
  if (remedy && status != TAPER_NOMEM) status = TAPER_UNSUPPORTED;
  return TAPER_FAIL(error, status, "image %s: %s%s%.500s; %s", name, driver.message, *said ? ": " : "", said,
                    remedy ? remedy : "nvidia-smi tells more of the device");
}
