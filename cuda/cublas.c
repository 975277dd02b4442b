/* libcublas and what stands in for it. */
#include "cuda/cublas.h"
#include "cuda/library.h"
#include <dlfcn.h>
#include <string.h>

static const library_symbol symbols[] = {
#define CUBLAS(name, parameters) {#name, offsetof(cublas_library, name), false},
#include "cuda/cublas.def"
};

taper_status cublas_library_open(const char *path, bool simulated, cublas_library *out, taper_error *error) {
  static const char *const names[] = {"libcublas.so.13", "libcublas.so.12", "libcublas.so.11"};
  static const char simulator[] = "libtaper-sim.so";
  char beside[sizeof out->path];
  const char *sim = simulator;
  library_search search = {.what = "cuBLAS library",
                           .path = path,
                           .variable = "TAPER_LIBCUBLAS",
                           .names = names,
                           .name_count = sizeof names / sizeof *names,
                           .remedy = "install it (pip install nvidia-cublas, or the CUDA toolkit) and set "
                                     "TAPER_LIBCUBLAS to it, or give --gemm=generated"};
  if (simulated) {
    if (library_beside(simulator, beside, sizeof beside)) sim = beside;
    search.what = "simulator";
    search.variable = "TAPER_LIBSIM";
    search.names = &sim;
    search.name_count = 1;
    search.remedy = "put it beside taperc or libtaper-cuda.so, or set TAPER_LIBSIM";
  }
  memset(out, 0, sizeof *out);
  out->library = library_open(&search, out->path, sizeof out->path, error);
  if (!out->library) return TAPER_DEVICE;
  const char *missing = library_symbols(out->library, symbols, sizeof symbols / sizeof *symbols, out);
  if (!missing) return TAPER_OK;
  taper_fail(error, TAPER_DEVICE,
             "%s: has no '%s', so it is no libcublas of CUDA 11 or newer; set TAPER_LIBCUBLAS to one, or give "
             "--gemm=generated",
             out->path, missing);
  cublas_library_close(out);
  return TAPER_DEVICE;
}

void cublas_library_close(cublas_library *l) {
  if (l->library) dlclose(l->library);
  memset(l, 0, sizeof *l);
}

taper_status cublas_library_check(cublas_status result, const char *call, taper_error *error) {
  static const struct {
    cublas_status result;
    const char *name;
  } names[] = {{CUBLAS_STATUS_NOT_INITIALIZED, "CUBLAS_STATUS_NOT_INITIALIZED"},
               {CUBLAS_STATUS_ALLOC_FAILED, "CUBLAS_STATUS_ALLOC_FAILED"},
               {CUBLAS_STATUS_INVALID_VALUE, "CUBLAS_STATUS_INVALID_VALUE"},
               {CUBLAS_STATUS_ARCH_MISMATCH, "CUBLAS_STATUS_ARCH_MISMATCH"},
               {CUBLAS_STATUS_MAPPING_ERROR, "CUBLAS_STATUS_MAPPING_ERROR"},
               {CUBLAS_STATUS_EXECUTION_FAILED, "CUBLAS_STATUS_EXECUTION_FAILED"},
               {CUBLAS_STATUS_INTERNAL_ERROR, "CUBLAS_STATUS_INTERNAL_ERROR"},
               {CUBLAS_STATUS_NOT_SUPPORTED, "CUBLAS_STATUS_NOT_SUPPORTED"}};
  if (result == CUBLAS_STATUS_SUCCESS) return TAPER_OK;
  const char *name = "a status without a name";
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (names[i].result == result) name = names[i].name;
  return TAPER_FAIL(error, result == CUBLAS_STATUS_ALLOC_FAILED ? TAPER_NOMEM : TAPER_DEVICE, "%s: %s (%d)", call, name,
                    result);
}
