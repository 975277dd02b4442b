/* A libcuda for tests of the loader. Macros: STUB_VERSION, STUB_SM, STUB_DEVICES, STUB_INIT (statements of cuInit). */
#include "cuda/driver.h"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifndef STUB_VERSION
#define STUB_VERSION 13000
#endif
#ifndef STUB_SM
#define STUB_SM 90
#endif
#ifndef STUB_DEVICES
#define STUB_DEVICES 1
#endif
#ifndef STUB_INIT
#define STUB_INIT return 0;
#endif

CUresult cuInit(unsigned flags){STUB_INIT} CUresult cuDriverGetVersion(int *version) {
  return *version = STUB_VERSION, 0;
}
CUresult cuDeviceGetCount(int *count) { return *count = STUB_DEVICES, 0; }
CUresult cuDeviceGet(CUdevice *device, int ordinal) { return *device = ordinal, 0; }
CUresult cuDeviceGetName(char *name, int length, CUdevice device) {
  return snprintf(name, (size_t)length, "Stub GPU %d", device), 0;
}
CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) { return *bytes = (size_t)80 << 30, 0; }
CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device) {
  *value = attribute == CU_ATTRIBUTE_MAJOR ? STUB_SM / 10 : attribute == CU_ATTRIBUTE_MINOR ? STUB_SM % 10 : 132;
  return 0;
}
static const struct {
  int code;
  const char *name, *text;
} errors[] = {
    {2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {100, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {209, "CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available for execution on the device"},
    {218, "CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed"},
    {222, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION", "the provided PTX was compiled with an unsupported toolchain."},
    {803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "system has unsupported display driver / cuda driver combination"}};
static CUresult text_of(CUresult error, const char **text, int name) {
  for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
    if (errors[i].code == error) return *text = name ? errors[i].name : errors[i].text, 0;
  return *text = NULL, 1;
}
CUresult cuGetErrorName(CUresult error, const char **text) { return text_of(error, text, 1); }
CUresult cuGetErrorString(CUresult error, const char **text) { return text_of(error, text, 0); }
/* The image is the result, in decimal, and the log behind a space. */
CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned count, int *options, void **values) {
  const char *log = strchr(image, ' ');
  char *buffer = NULL;
  size_t size = 0;
  for (unsigned i = 0; i < count; i++) {
    if (options[i] == CU_JIT_ERROR_LOG_BUFFER) buffer = values[i];
    if (options[i] == CU_JIT_ERROR_LOG_BYTES) size = (size_t)values[i];
  }
  if (log && buffer) snprintf(buffer, size, "%s", log + 1);
  *module = (CUmodule)1;
  return atoi(image);
}
