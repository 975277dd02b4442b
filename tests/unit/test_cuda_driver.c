/* Opening libcuda and libcublas: what is missing, too old, without a device; results in words; images and the driver's log. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "cuda/cublas.h"
#include "cuda/probe.h"
#include "tests/unit/stub_library.h"

#define STUB "tests/unit/stubs/cuda_defaults.c tests/unit/stubs/cuda_stub.c"

static taper_error error;
static cuda_driver driver;

static taper_status open_stub(const char *flags) {
  error = (taper_error){0};
  cuda_driver_close(&driver); /* legal after a failure, and twice */
  return cuda_driver_open(stub_build(STUB, flags), false, &driver, &error);
}

static void has(const char *part) {
  if (!strstr(error.message, part)) fail_msg("'%s' is not in '%s'", part, error.message);
}

static void opened(void **state) {
  (void)state;
  assert_int_equal(open_stub("-DSTUB_VERSION=12080 -DSTUB_DEVICES=2 -DSTUB_SM=121"), TAPER_OK);
  assert_string_equal(driver.path, stub_path);
  assert_int_equal(driver.version, 12080);
  assert_non_null(driver.cuLaunchKernelEx);
  cuda_device_facts f;
  assert_int_equal(cuda_device_describe(&driver, 1, &f, &error), TAPER_OK);
  assert_string_equal(f.name, "Stub GPU 1");
  assert_int_equal(f.major, 12), assert_int_equal(f.minor, 1), assert_int_equal(f.multiprocessors, 132);
  assert_true(f.memory == (uint64_t)80 << 30);
  assert_int_equal(cuda_device_describe(&driver, 2, &f, &error), TAPER_DEVICE);
  has("there is no CUDA device 2: "), has(" has 2");
  assert_int_equal(cuda_device_describe(&driver, -1, &f, &error), TAPER_DEVICE);
  assert_int_equal(open_stub("-DcuLaunchKernelEx=cuLaunchKernelOther"), TAPER_OK);
  assert_null(driver.cuLaunchKernelEx); /* optional */
}

static void not_opened(void **state) {
  (void)state;
  assert_int_equal(cuda_driver_open("/no/such/libcuda.so", false, &driver, &error), TAPER_DEVICE);
  has("cannot open the NVIDIA driver: /no/such/libcuda.so"), has("install the NVIDIA driver"), has("--device=sim");
  assert_null(driver.library);
  assert_int_equal(cuda_driver_open("README.md", false, &driver, &error), TAPER_DEVICE);
  has("README.md: ");
  assert_int_equal(cuda_driver_open("libm.so.6", false, &driver, &error), TAPER_DEVICE);
  has("has no 'cuInit', so it is no libcuda");
  assert_int_equal(open_stub("-DcuGraphInstantiateWithFlags=cuGraphOther -DSTUB_VERSION=11020"), TAPER_DEVICE);
  has("a driver of CUDA 11.2 is too old: it has no 'cuGraphInstantiateWithFlags'; install one of CUDA 11.4 or newer");
  assert_null(driver.library);
  setenv("TAPER_LIBSIM", "/no/such/libtaper-sim.so", 1);
  assert_int_equal(cuda_driver_open(NULL, true, &driver, &error), TAPER_DEVICE);
  has("cannot open the simulator named by TAPER_LIBSIM: /no/such/libtaper-sim.so"), has("TAPER_LIBSIM");
  unsetenv("TAPER_LIBSIM");
}

static void no_device(void **state) {
  (void)state;
  assert_int_equal(open_stub("-DSTUB_INIT='return 100;'"), TAPER_DEVICE);
  has(" (CUDA 13.0) finds no device: cuInit: CUDA_ERROR_NO_DEVICE (100): no CUDA-capable device is detected; see what "
      "nvidia-smi");
  assert_int_equal(open_stub("-DSTUB_DEVICES=0"), TAPER_DEVICE);
  has("CUDA_ERROR_NO_DEVICE");
  assert_int_equal(open_stub("-DSTUB_INIT='return 803;'"), TAPER_DEVICE);
  has("CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (803): system has unsupported display driver");
  assert_int_equal(open_stub("-DSTUB_INIT='return 4711;'"), TAPER_DEVICE);
  has("(4711)");
}

static void results(void **state) {
  (void)state;
  assert_int_equal(open_stub(""), TAPER_OK);
  assert_int_equal(cuda_driver_check(&driver, CUDA_SUCCESS, "cuX", &error), TAPER_OK);
  assert_string_equal(error.message, "");
  assert_int_equal(cuda_driver_check(&driver, 2, "cuMemAlloc of 7 bytes", &error), TAPER_NOMEM);
  assert_string_equal(error.message, "cuMemAlloc of 7 bytes: CUDA_ERROR_OUT_OF_MEMORY (2): out of memory");
  assert_int_equal(cuda_driver_check(&driver, 719, "cuLaunchKernel", &error), TAPER_DEVICE);
  has("cuLaunchKernel: an error without a name (719)");
  const struct {
    cublas_status result;
    taper_status status;
    const char *name;
  } cublas[] = {{3, TAPER_NOMEM, "cublasX: CUBLAS_STATUS_ALLOC_FAILED (3)"},
                {15, TAPER_DEVICE, "cublasX: CUBLAS_STATUS_NOT_SUPPORTED (15)"},
                {99, TAPER_DEVICE, "cublasX: a status without a name (99)"}};
  assert_int_equal(cublas_library_check(0, "cublasX", &error), TAPER_OK);
  for (size_t i = 0; i < sizeof cublas / sizeof *cublas; i++) {
    assert_int_equal(cublas_library_check(cublas[i].result, "cublasX", &error), cublas[i].status);
    assert_string_equal(error.message, cublas[i].name);
  }
}

static void images(void **state) {
  (void)state;
  CUmodule module;
  assert_int_equal(open_stub(""), TAPER_OK);
  assert_int_equal(cuda_module_load(&driver, "0", "sm_90", &module, &error), TAPER_OK);
  assert_int_equal(cuda_module_load(&driver, "209", "sm_80", &module, &error), TAPER_UNSUPPORTED);
  has("image sm_80: cuModuleLoadDataEx: CUDA_ERROR_NO_BINARY_FOR_GPU (209): no kernel image"), has("compute_NN");
  assert_int_equal(cuda_module_load(&driver, "222", "compute_90", &module, &error), TAPER_UNSUPPORTED);
  has("newer than the driver");
  assert_int_equal(cuda_module_load(&driver, "218 ptxas fatal: line 7", "compute_90", &module, &error),
                   TAPER_UNSUPPORTED);
  has("CUDA_ERROR_INVALID_PTX (218): a PTX JIT compilation failed: ptxas fatal: line 7; ");
  assert_int_equal(cuda_module_load(&driver, "2 ", "sm_90", &module, &error), TAPER_NOMEM);
}

static void cublas(void **state) {
  (void)state;
  cublas_library l;
  assert_int_equal(cublas_library_open("/no/libcublas.so", false, &l, &error), TAPER_DEVICE);
  has("cannot open the cuBLAS library: /no/libcublas.so"), has("--gemm=generated");
  assert_int_equal(cublas_library_open("libm.so.6", false, &l, &error), TAPER_DEVICE);
  has("has no 'cublasCreate_v2', so it is no libcublas");
  cublas_library_close(&l);
}

static void probed(void **state) {
  (void)state;
  cuda_probe_facts f;
  char *before = getenv("TAPER_LIBCUDA");
  if (before) assert_non_null(before = strdup(before));
  setenv("TAPER_LIBCUDA", stub_build(STUB, "-DSTUB_DEVICES=11"), 1);
  assert_int_equal(cuda_probe_driver(false, &f, &error), TAPER_OK);
  assert_string_equal(f.path, stub_path);
  assert_int_equal(f.devices, 11), assert_int_equal(f.described, 8), assert_int_equal(f.version, 13000);
  assert_string_equal(f.device[7].name, "Stub GPU 7");
  stub_build(STUB, "-DSTUB_INIT='raise(SIGKILL);'");
  assert_int_equal(cuda_probe_driver(false, &f, &error), TAPER_DEVICE);
  has("the NVIDIA driver died of signal 9 (SIGKILL) while it was opened; ");
  stub_build(STUB, "-DSTUB_INIT='return 100;'");
  assert_int_equal(cuda_probe_driver(false, &f, &error), TAPER_DEVICE);
  has("CUDA_ERROR_NO_DEVICE");
  unsetenv("TAPER_LIBCUDA");
  if (before) setenv("TAPER_LIBCUDA", before, 1);
  free(before);
}

static int close_driver(void **state) {
  (void)state;
  cuda_driver_close(&driver);
  return 0;
}

int main(void) {
#define CASE(name) cmocka_unit_test_teardown(name, close_driver)
  const struct CMUnitTest tests[] = {CASE(opened), CASE(not_opened), CASE(no_device), CASE(results),
                                     CASE(images), CASE(cublas),     CASE(probed)};
  return cmocka_run_group_tests(tests, NULL, stub_clean);
}
