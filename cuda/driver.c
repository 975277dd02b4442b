/* libcuda and what stands in for it: opened, looked through, begun; its results in words. */
#include "cuda/driver.h"
#include "cuda/library.h"
#include "runtime/base/text.h"
#include <dlfcn.h>
#include <string.h>

#define SIMULATOR "libtaper-sim.so"
#define NO_GPU "use --device=sim or --device=cpu"
enum { RESULT_TEXT = 300 };

static const library_symbol symbols[] = {
#define CU(name, parameters) {#name, offsetof(cuda_driver, name), false},
#define CU_OPTIONAL(name, parameters) {#name, offsetof(cuda_driver, name), true},
#include "cuda/driver.def"
};

static taper_status open_library(const char *path, bool simulated, cuda_driver *out, taper_error *error) {
  char beside[sizeof out->path] = SIMULATOR;
  const char *name = "libcuda.so.1";
  library_search search = {.what = "NVIDIA driver",
                           .path = path,
                           .variable = "TAPER_LIBCUDA",
                           .names = &name,
                           .name_count = 1,
                           .remedy = "install the NVIDIA driver or set TAPER_LIBCUDA, or " NO_GPU};
  if (simulated) {
    if (!library_beside(SIMULATOR, beside, sizeof beside)) memcpy(beside, SIMULATOR, sizeof SIMULATOR);
    name = beside;
    search.what = "simulator";
    search.variable = "TAPER_LIBSIM";
    search.remedy = "put it beside taperc or libtaper-cuda.so, or set TAPER_LIBSIM";
  }
  out->simulated = simulated;
  out->library = library_open(&search, out->path, sizeof out->path, error);
  return out->library ? TAPER_OK : TAPER_DEVICE;
}

static taper_status look_up(cuda_driver *d, taper_error *error) {
  const char *missing = library_symbols(d->library, symbols, sizeof symbols / sizeof *symbols, d);
  if (d->cuDriverGetVersion && d->cuDriverGetVersion(&d->version) != CUDA_SUCCESS) d->version = 0;
  if (!missing) return TAPER_OK;
  if (!d->cuInit || !d->cuDriverGetVersion)
    return TAPER_FAIL(error, TAPER_DEVICE,
                      "%s: has no '%s', so it is no libcuda; set TAPER_LIBCUDA to the driver's, or " NO_GPU, d->path,
                      missing);
  return TAPER_FAIL(
      error, TAPER_DEVICE,
      "%s: a driver of CUDA %d.%d is too old: it has no '%s'; install one of CUDA %d.%d or newer, or " NO_GPU, d->path,
      CUDA_MAJOR(d->version), CUDA_MINOR(d->version), missing, CUDA_MAJOR(CUDA_LEAST_DRIVER),
      CUDA_MINOR(CUDA_LEAST_DRIVER));
}

/* "CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected" */
static const char *in_words(const cuda_driver *d, CUresult result, char out[RESULT_TEXT]) {
  const char *name = NULL, *string = NULL;
  if (d->cuGetErrorName(result, &name) != CUDA_SUCCESS || !name) name = "an error without a name";
  if (d->cuGetErrorString(result, &string) != CUDA_SUCCESS || !string) string = "the driver says no more";
  text_format(out, RESULT_TEXT, "%s (%d): %s", name, result, string);
  return out;
}

/* ": SENTENCE" of the simulator about its last failure, or "". */
static const char *sim_words(const cuda_driver *d, char out[RESULT_TEXT]) {
  const char *(*fault)(void);
  void *symbol = d->simulated ? dlsym(d->library, "taper_sim_fault") : NULL;
  memcpy(&fault, &symbol, sizeof fault);
  text_format(out, RESULT_TEXT, "%s%s", symbol && fault()[0] ? ": " : "", symbol ? fault() : "");
  return out;
}

static taper_status begin(const cuda_driver *d, taper_error *error) {
  char words[RESULT_TEXT], more[RESULT_TEXT];
  int devices = 0;
  CUresult result = d->cuInit(0);
  if (result == CUDA_SUCCESS) {
    result = d->cuDeviceGetCount(&devices);
    if (result == CUDA_SUCCESS && devices == 0) result = CUDA_ERROR_NO_DEVICE;
  }
  if (result == CUDA_SUCCESS) return TAPER_OK;
  return TAPER_FAIL(error, TAPER_DEVICE, "%s (CUDA %d.%d) finds no device: cuInit: %s%s; %s", d->path,
                    CUDA_MAJOR(d->version), CUDA_MINOR(d->version), in_words(d, result, words), sim_words(d, more),
                    d->simulated                     ? "see docs/sim.md"
                    : result == CUDA_ERROR_NO_DEVICE ? "see what nvidia-smi and CUDA_VISIBLE_DEVICES say, or " NO_GPU
                                                     : "nvidia-smi tells more, or " NO_GPU);
}

taper_status cuda_driver_open(const char *path, bool simulated, cuda_driver *out, taper_error *error) {
  memset(out, 0, sizeof *out);
  TAPER_TRY(open_library(path, simulated, out, error));
  taper_status status = look_up(out, error);
  if (status == TAPER_OK) status = begin(out, error);
  if (status != TAPER_OK) cuda_driver_close(out);
  return status;
}

void cuda_driver_close(cuda_driver *d) {
  if (d->library) dlclose(d->library);
  memset(d, 0, sizeof *d);
}

taper_status cuda_driver_check(const cuda_driver *d, CUresult result, const char *call, taper_error *error) {
  char words[RESULT_TEXT];
  if (result == CUDA_SUCCESS) return TAPER_OK;
  return TAPER_FAIL(error, result == CUDA_ERROR_OUT_OF_MEMORY ? TAPER_NOMEM : TAPER_DEVICE, "%s: %s", call,
                    in_words(d, result, words));
}

taper_status cuda_device_describe(const cuda_driver *d, int ordinal, cuda_device_facts *out, taper_error *error) {
  const struct {
    int attribute, *value;
  } wanted[] = {{CU_ATTRIBUTE_MAJOR, &out->major},
                {CU_ATTRIBUTE_MINOR, &out->minor},
                {CU_ATTRIBUTE_MULTIPROCESSORS, &out->multiprocessors}};
  int devices = 0;
  size_t bytes = 0;
  memset(out, 0, sizeof *out);
  TAPER_TRY(cuda_driver_check(d, d->cuDeviceGetCount(&devices), "cuDeviceGetCount", error));
  if (ordinal < 0 || ordinal >= devices)
    return TAPER_FAIL(error, TAPER_DEVICE, "there is no CUDA device %d: %s has %d; name one from 0", ordinal, d->path,
                      devices);
  TAPER_TRY(cuda_driver_check(d, d->cuDeviceGet(&out->device, ordinal), "cuDeviceGet", error));
  TAPER_TRY(
      cuda_driver_check(d, d->cuDeviceGetName(out->name, sizeof out->name, out->device), "cuDeviceGetName", error));
  out->name[sizeof out->name - 1] = 0;
  for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
    TAPER_TRY(cuda_driver_check(d, d->cuDeviceGetAttribute(wanted[i].value, wanted[i].attribute, out->device),
                                "cuDeviceGetAttribute", error));
  TAPER_TRY(cuda_driver_check(d, d->cuDeviceTotalMem_v2(&bytes, out->device), "cuDeviceTotalMem", error));
  out->memory = bytes;
  return TAPER_OK;
}
