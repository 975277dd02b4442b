/* The simulator's libcuda: device, contexts, memory, modules, launches, and what it refuses. */
#include "tests/unit/sim_driver.h"
#include <math.h>
#include <pthread.h>

/* ---- the device ---- */

static void device_is_described(void **state) {
  (void)state;
  int value = 0;
  size_t bytes = 0;
  char name[64];
  CUdevice device = -1;
  OK(cu.cuDriverGetVersion(&value));
  assert_true(value >= 13000);
  OK(cu.cuDeviceGetCount(&value));
  assert_int_equal(value, 1);
  OK(cu.cuDeviceGet(&device, 0));
  assert_int_equal(device, 0);
  REFUSED(CUDA_ERROR_INVALID_DEVICE, "ordinal 1", cu.cuDeviceGet(&device, 1));
  OK(cu.cuDeviceGetName(name, sizeof(name), 0));
  assert_string_equal(name, "taper simulator (compute capability 9.0)");
  OK(cu.cuDeviceGetName(name, 6, 0));
  assert_string_equal(name, "taper");
  OK(cu.cuDeviceTotalMem_v2(&bytes, 0));
  assert_true(bytes == (size_t)8 << 30);
  OK(cu.cuDeviceGetAttribute(&value, CU_ATTRIBUTE_MAJOR, 0));
  assert_int_equal(value, 9);
  OK(cu.cuDeviceGetAttribute(&value, CU_ATTRIBUTE_SHARED_PER_BLOCK_OPTIN, 0));
  assert_int_equal(value, 227 * 1024);
  REFUSED(CUDA_ERROR_INVALID_VALUE, "attribute 12345", cu.cuDeviceGetAttribute(&value, 12345, 0));
  REFUSED(CUDA_ERROR_INVALID_DEVICE, "device 3", cu.cuDeviceGetAttribute(&value, CU_ATTRIBUTE_MAJOR, 3));
}

static void device_is_chosen(void **state) {
  (void)state;
  int value = 0;
  SIM_CHANGE(capability = 80);
  OK(cu.cuDeviceGetAttribute(&value, CU_ATTRIBUTE_MAJOR, 0));
  assert_int_equal(value, 8);
  OK(cu.cuDeviceGetAttribute(&value, CU_ATTRIBUTE_SHARED_PER_BLOCK_OPTIN, 0));
  assert_int_equal(value, 163 * 1024);
  taper_sim_options o;
  sim.taper_sim_options_get(&o);
  o.capability = 90;
  REFUSED(CUDA_ERROR_INVALID_VALUE, "while it has a context", sim.taper_sim_options_set(&o));
  o.capability = 80;
  o.seed = 7;
  OK(sim.taper_sim_options_set(&o));
  o.eager = 2;
  REFUSED(CUDA_ERROR_INVALID_VALUE, "eager is out of range", sim.taper_sim_options_set(&o));
}

static void errors_have_names(void **state) {
  (void)state;
  const char *text = NULL;
  OK(cu.cuGetErrorName(CUDA_ERROR_ILLEGAL_ADDRESS, &text));
  assert_string_equal(text, "CUDA_ERROR_ILLEGAL_ADDRESS");
  OK(cu.cuGetErrorString(CUDA_ERROR_OUT_OF_MEMORY, &text));
  assert_string_equal(text, "out of memory");
  assert_int_equal(cu.cuGetErrorName(12345, &text), CUDA_ERROR_INVALID_VALUE);
  assert_null(text);
}

/* ---- contexts ---- */

static void *calls_without_a_context(void *arg) {
  CUdeviceptr memory = 0;
  (void)arg;
  REFUSED(CUDA_ERROR_INVALID_CONTEXT, "no context is current", cu.cuMemAlloc_v2(&memory, 4));
  return NULL;
}

static void contexts_are_current_to_a_thread(void **state) {
  (void)state;
  pthread_t thread;
  CUcontext popped = NULL;
  assert_int_equal(pthread_create(&thread, NULL, calls_without_a_context, NULL), 0);
  pthread_join(thread, NULL);
  OK(cu.cuCtxPopCurrent_v2(&popped));
  assert_ptr_equal(popped, context);
  REFUSED(CUDA_ERROR_INVALID_CONTEXT, "no context is current", cu.cuCtxSynchronize());
  REFUSED(CUDA_ERROR_INVALID_CONTEXT, "no context is current", cu.cuCtxPopCurrent_v2(NULL));
  REFUSED(CUDA_ERROR_INVALID_CONTEXT, "is no context", cu.cuCtxPushCurrent_v2((CUcontext)&popped));
  OK(cu.cuCtxPushCurrent_v2(context));
  REFUSED(CUDA_ERROR_INVALID_VALUE, "flags 1", cu.cuInit(1));
}

static void contexts_are_counted(void **state) {
  (void)state;
  CUcontext again = NULL;
  OK(cu.cuDevicePrimaryCtxRetain(&again, 0));
  assert_ptr_equal(again, context);
  OK(cu.cuDevicePrimaryCtxRelease_v2(0));
  OK(cu.cuCtxSynchronize());
  OK(cu.cuDevicePrimaryCtxRelease_v2(0));
  REFUSED(CUDA_ERROR_INVALID_CONTEXT, "was destroyed", cu.cuCtxSynchronize());
  REFUSED(CUDA_ERROR_INVALID_CONTEXT, "more often than", cu.cuDevicePrimaryCtxRelease_v2(0));
  OK(cu.cuDevicePrimaryCtxRetain(&context, 0)); /* a new one: the old is still current, and useless */
  REFUSED(CUDA_ERROR_INVALID_CONTEXT, "was destroyed", cu.cuCtxSynchronize());
  OK(cu.cuCtxPopCurrent_v2(NULL));
  OK(cu.cuCtxPushCurrent_v2(context));
}

static void leaks_are_told(void **state) {
  (void)state;
  CUdeviceptr memory = 0;
  CUstream stream = NULL;
  CUevent event = NULL;
  void *host = NULL;
  OK(cu.cuMemAlloc_v2(&memory, 12));
  OK(cu.cuMemHostAlloc(&host, 8, 0));
  OK(cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  OK(cu.cuEventCreate(&event, 0));
  (void)sim_load("driver.sm_90.ptx");
  REFUSED(CUDA_ERROR_UNKNOWN,
          "never freed: 1 allocations of 12 bytes in all, 1 blocks of host memory, 1 of kind stream, 1 of kind event, "
          "1 of kind module",
          cu.cuDevicePrimaryCtxRelease_v2(0));
  OK(cu.cuCtxPopCurrent_v2(NULL));
  OK(cu.cuDevicePrimaryCtxRetain(&context, 0));
  OK(cu.cuCtxPushCurrent_v2(context));
  REFUSED(CUDA_ERROR_INVALID_HANDLE, "is no stream", cu.cuStreamSynchronize(stream));
}

/* ---- memory ---- */

static void memory_is_bounded(void **state) {
  (void)state;
  CUdeviceptr a = 0, b = 0;
  size_t available = 0, total = 0;
  SIM_CHANGE(memory_bytes = 1 << 20);
  OK(cu.cuMemAlloc_v2(&a, 1 << 19));
  OK(cu.cuMemGetInfo_v2(&available, &total));
  assert_true(total == 1 << 20 && available <= 1 << 19 && available >= (1 << 19) - 4096);
  REFUSED(CUDA_ERROR_OUT_OF_MEMORY, "1048576 bytes", cu.cuMemAlloc_v2(&b, 1 << 20));
  assert_true(b == 0);
  REFUSED(CUDA_ERROR_INVALID_VALUE, "0 bytes", cu.cuMemAlloc_v2(&b, 0));
  OK(cu.cuMemFree_v2(a));
  REFUSED(CUDA_ERROR_INVALID_VALUE, "or it was freed", cu.cuMemFree_v2(a));
  REFUSED(CUDA_ERROR_INVALID_VALUE, "no allocation begins", cu.cuMemFree_v2(a + 16));
  OK(cu.cuMemFree_v2(0));
  OK(cu.cuMemAlloc_v2(&b, 1 << 20)); /* all of it is there again */
  OK(cu.cuMemFree_v2(b));
}

static void copies_are_bounded(void **state) {
  (void)state;
  float values[8] = {0};
  CUdeviceptr a = sim_floats(8, 1, 1), b = sim_floats(4, 0, NAN);
  REFUSED(CUDA_ERROR_INVALID_VALUE, "passes the end", cu.cuMemcpyHtoDAsync_v2(b, values, 20, NULL));
  REFUSED(CUDA_ERROR_INVALID_VALUE, "passes the end", cu.cuMemcpyDtoHAsync_v2(values, a + 4, 32, NULL));
  REFUSED(CUDA_ERROR_INVALID_VALUE, "is in no allocation", cu.cuMemcpyDtoHAsync_v2(values, 64, 4, NULL));
  REFUSED(CUDA_ERROR_INVALID_VALUE, "address is 0", cu.cuMemcpyDtoHAsync_v2(values, 0, 4, NULL));
  REFUSED(CUDA_ERROR_INVALID_VALUE, "NULL", cu.cuMemcpyHtoDAsync_v2(a, NULL, 4, NULL));
  REFUSED(CUDA_ERROR_INVALID_VALUE, "passes the end", cu.cuMemcpyDtoDAsync_v2(b, a, 32, NULL));
  REFUSED(CUDA_ERROR_INVALID_VALUE, "overlap", cu.cuMemcpyDtoDAsync_v2(a, a + 4, 16, NULL));
  REFUSED(CUDA_ERROR_INVALID_VALUE, "passes the end", cu.cuMemsetD8Async(b + 1, 0, 16, NULL));
  REFUSED(CUDA_ERROR_INVALID_VALUE, "passes the end", cu.cuMemsetD32Async(b + 4, 0, 4, NULL));
  REFUSED(CUDA_ERROR_INVALID_VALUE, "multiple of 4", cu.cuMemsetD32Async(b + 2, 0, 1, NULL));
  OK(cu.cuMemcpyDtoDAsync_v2(b, a + 16, 16, NULL));
  OK(cu.cuMemsetD32Async(b + 8, 0x40000000, 1, NULL));
  OK(cu.cuMemsetD8Async(b + 12, 0, 4, NULL));
  sim_get(values, b, 4);
  assert_true(values[0] == 5 && values[1] == 6 && values[2] == 2 && values[3] == 0);
  OK(cu.cuMemFree_v2(a));
  OK(cu.cuMemFree_v2(b));
}

static void unwritten_memory_is_not_copied_out(void **state) {
  (void)state;
  float values[4];
  CUdeviceptr a = sim_floats(4, 0, NAN), b = sim_floats(4, 0, NAN);
  OK(cu.cuMemsetD8Async(a, 0, 12, NULL));
  OK(cu.cuMemcpyDtoDAsync_v2(b, a, 16, NULL)); /* as it is */
  sim_get(values, b, 3);
  OK(cu.cuMemcpyDtoHAsync_v2(values, b, 16, NULL));
  REFUSED(CUDA_ERROR_LAUNCH_FAILED, "never written", cu.cuCtxSynchronize());
}

static void host_memory(void **state) {
  (void)state;
  unsigned char *host = NULL;
  void *none = NULL;
  REFUSED(CUDA_ERROR_INVALID_VALUE, "0 bytes", cu.cuMemHostAlloc(&none, 0, 0));
  OK(cu.cuMemHostAlloc((void **)&host, 100, 0));
  assert_int_equal(host[99], 0xff);
  REFUSED(CUDA_ERROR_INVALID_VALUE, "is no block", cu.cuMemFreeHost(host + 1));
  OK(cu.cuMemFreeHost(host));
  REFUSED(CUDA_ERROR_INVALID_VALUE, "was freed", cu.cuMemFreeHost(host));
}

/* ---- modules ---- */

static CUresult load_with_log(const char *image, CUmodule *m, char log[512]) {
  int options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BYTES};
  void *values[] = {log, (void *)(uintptr_t)512};
  return cu.cuModuleLoadDataEx(m, image, 2, options, values);
}

static void modules_are_ptx(void **state) {
  (void)state;
  CUmodule m = NULL;
  CUfunction f = NULL;
  char log[512], *ptx = sim_read("driver.sm_90.ptx");
  REFUSED(CUDA_ERROR_NO_BINARY_FOR_GPU, "cubin", load_with_log("\177ELF and more", &m, log));
  assert_non_null(strstr(log, "cubin"));
  REFUSED(CUDA_ERROR_INVALID_PTX, "error", load_with_log("no ptx at all", &m, log));
  assert_non_null(strstr(log, "error"));
  SIM_CHANGE(capability = 80);
  REFUSED(CUDA_ERROR_INVALID_PTX, "higher than that of the device", load_with_log(ptx, &m, log));
  assert_non_null(strstr(log, "sm_90"));
  SIM_CHANGE(driver_version = 12040);
  char *old = sim_read("driver.sm_80.ptx");
  REFUSED(CUDA_ERROR_UNSUPPORTED_PTX_VERSION, "Unsupported .version 9.0", load_with_log(old, &m, log));
  SIM_CHANGE(driver_version = 13000);
  OK(load_with_log(old, &m, log));
  REFUSED(CUDA_ERROR_NOT_FOUND, "'nobody'", cu.cuModuleGetFunction(&f, m, "nobody"));
  OK(cu.cuModuleGetFunction(&f, m, "scale"));
  OK(cu.cuModuleUnload(m));
  REFUSED(CUDA_ERROR_INVALID_HANDLE, "is no module", cu.cuModuleUnload(m));
  REFUSED(CUDA_ERROR_INVALID_HANDLE, "is no function", sim_start(f, 1, 1, 0, NULL, NULL));
  REFUSED(CUDA_ERROR_INVALID_VALUE, "option 77", cu.cuModuleLoadDataEx(&m, ptx, 1, (int[]){77}, (void *[]){NULL}));
  free(ptx);
  free(old);
}

static void functions_have_limits(void **state) {
  (void)state;
  CUmodule m = sim_load("driver.sm_90.ptx");
  CUfunction f = sim_function(m, "dynamic_shared"), few = sim_function(m, "few_threads");
  int value = 0;
  unsigned n = 40000;
  CUdeviceptr y = sim_floats(n, 0, NAN);
  OK(cu.cuFuncGetAttribute(&value, CU_FUNC_MAX_THREADS, few));
  assert_int_equal(value, 64);
  OK(cu.cuFuncGetAttribute(&value, CU_FUNC_SHARED_BYTES, few));
  assert_int_equal(value, 4);
  OK(cu.cuFuncGetAttribute(&value, CU_FUNC_LOCAL_BYTES, few));
  assert_int_equal(value, 0);
  OK(cu.cuFuncGetAttribute(&value, CU_FUNC_PTX_VERSION, few));
  assert_int_equal(value, 90);
  REFUSED(CUDA_ERROR_INVALID_VALUE, "attribute 99", cu.cuFuncGetAttribute(&value, 99, few));
  REFUSED(CUDA_ERROR_INVALID_VALUE, "at most 49152 are allowed", sim_start(f, 1, 64, n * 4, NULL, PARAMETERS(&y, &n)));
  REFUSED(CUDA_ERROR_INVALID_VALUE, "at most 232448", cu.cuFuncSetAttribute(f, CU_FUNC_MAX_DYNAMIC_SHARED, 240000));
  OK(cu.cuFuncSetAttribute(f, CU_FUNC_MAX_DYNAMIC_SHARED, 160000));
  OK(sim_start(f, 1, 64, n * 4, NULL, PARAMETERS(&y, &n)));
  float *got = malloc(n * 4);
  sim_get(got, y, n);
  for (unsigned i = 0; i < n; i++) assert_true(got[i] == (float)(n - 1 - i));
  free(got);
  REFUSED(CUDA_ERROR_INVALID_VALUE, "compiled for 64", sim_start(few, 1, 65, 0, NULL, PARAMETERS(&y)));
  OK(cu.cuOccupancyMaxActiveBlocksPerMultiprocessor(&value, f, 256, 100000));
  assert_int_equal(value, 2);
  OK(cu.cuOccupancyMaxActiveBlocksPerMultiprocessor(&value, few, 64, 0));
  assert_int_equal(value, 16);
  OK(cu.cuMemFree_v2(y));
  OK(cu.cuModuleUnload(m));
}

/* ---- launches ---- */

static void kernels_run(void **state) {
  (void)state;
  CUmodule m = sim_load("driver.sm_90.ptx");
  unsigned n = 1000;
  float f = 3, got[1000];
  CUdeviceptr x = sim_floats(n, 0, 0.5f), y = sim_floats(n, 0, NAN);
  OK(sim_start(sim_function(m, "scale"), 4, 256, 0, NULL, PARAMETERS(&y, &x, &f, &n)));
  f = 9; /* parameters were copied */
  sim_get(got, y, n);
  for (unsigned i = 0; i < n; i++) assert_true(got[i] == 1.5f * (float)i);
  struct {
    float a, b, c;
  } t = {1, 2, 3};
  OK(sim_start(sim_function(m, "by_value"), 1, 32, 0, NULL, PARAMETERS(&y, &t)));
  sim_get(got, y, 32);
  assert_true(got[0] == 4 && got[31] == 66);
  OK(cu.cuMemFree_v2(x));
  OK(cu.cuMemFree_v2(y));
  OK(cu.cuModuleUnload(m));
}

static void launches_are_checked(void **state) {
  (void)state;
  CUmodule m = sim_load("driver.sm_90.ptx");
  CUfunction f = sim_function(m, "beyond");
  CUdeviceptr y = sim_floats(64, 0, NAN);
  void **p = PARAMETERS(&y);
  REFUSED(CUDA_ERROR_INVALID_VALUE, "grid 0", sim_start(f, 0, 1, 0, NULL, p));
  REFUSED(CUDA_ERROR_INVALID_VALUE, "block 0", sim_start(f, 1, 0, 0, NULL, p));
  REFUSED(CUDA_ERROR_INVALID_VALUE, "block 1025", sim_start(f, 1, 1025, 0, NULL, p));
  REFUSED(CUDA_ERROR_INVALID_VALUE, "block 32 x 64", cu.cuLaunchKernel(f, 1, 1, 1, 32, 64, 1, 0, NULL, p, NULL));
  REFUSED(CUDA_ERROR_INVALID_VALUE, "grid 1 x 65536", cu.cuLaunchKernel(f, 1, 65536, 1, 1, 1, 1, 0, NULL, p, NULL));
  REFUSED(CUDA_ERROR_INVALID_VALUE, "takes 1 parameters", sim_start(f, 1, 1, 0, NULL, NULL));
  REFUSED(CUDA_ERROR_INVALID_VALUE, "parameter 0 is NULL", sim_start(f, 1, 1, 0, NULL, PARAMETERS(NULL)));
  REFUSED(CUDA_ERROR_NOT_SUPPORTED, "one buffer", cu.cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, p, p));
  REFUSED(CUDA_ERROR_INVALID_HANDLE, "is no stream", sim_start(f, 1, 1, 0, (CUstream)m, p));
  CUlaunchAttribute attribute = {.id = 4};
  CUlaunchConfig c = {1, 1, 1, 1, 1, 1, 0, NULL, &attribute, 1};
  REFUSED(CUDA_ERROR_NOT_SUPPORTED, "attribute 4", cu.cuLaunchKernelEx(&c, f, p, NULL));
  OK(sim_start(f, 1, 64, 0, NULL, p));
  OK(cu.cuMemFree_v2(y));
  OK(cu.cuModuleUnload(m));
}

/* A fault breaks the context for good; a new one works. */
static void faults_stay(void **state) {
  (void)state;
  static const struct {
    const char *kernel, *words;
    CUresult code;
    unsigned grid, block;
  } cases[] = {{"beyond", "address outside of every allocation", CUDA_ERROR_ILLEGAL_ADDRESS, 2, 64},
               {"misaligned", "misaligned address", CUDA_ERROR_MISALIGNED_ADDRESS, 1, 1},
               {"forever", "no end in sight", CUDA_ERROR_LAUNCH_TIMEOUT, 1, 1},
               {"race", "race between blocks", CUDA_ERROR_LAUNCH_FAILED, 2, 1},
               {"stop", "trap", CUDA_ERROR_LAUNCH_FAILED, 1, 1}};
  taper_sim_options o;
  sim.taper_sim_options_get(&o);
  o.instruction_budget = 100000;
  OK(sim.taper_sim_options_set(&o));
  for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
    CUmodule m = sim_load("driver.sm_90.ptx");
    CUdeviceptr y = sim_floats(64, 0, 0), other = 0;
    OK(sim_start(sim_function(m, cases[i].kernel), cases[i].grid, cases[i].block, 0, NULL, PARAMETERS(&y)));
    REFUSED(cases[i].code, cases[i].words, cu.cuCtxSynchronize());
    assert_non_null(strstr(sim.taper_sim_fault(), cases[i].kernel));
    assert_int_equal(cu.cuMemAlloc_v2(&other, 4), cases[i].code);
    assert_int_equal(cu.cuMemFree_v2(y), cases[i].code);
    assert_int_equal(cu.cuModuleUnload(m), cases[i].code);
    sim_end(NULL); /* forgets nothing: it could not be freed */
    OK(cu.cuDevicePrimaryCtxRetain(&context, 0));
    OK(cu.cuCtxPushCurrent_v2(context));
    OK(cu.cuCtxSynchronize());
  }
}

static void launches_are_counted(void **state) {
  (void)state;
  CUmodule m = sim_load("driver.sm_90.ptx");
  unsigned n = 1000;
  float f = 2;
  CUdeviceptr x = sim_floats(n, 0, 1), y = sim_floats(n, 0, NAN);
  taper_sim_counters rows[4];
  sim_usage use;
  OK(sim_start(sim_function(m, "scale"), 8, 128, 0, NULL, PARAMETERS(&y, &x, &f, &n)));
  OK(sim_start(sim_function(m, "beyond"), 1, 32, 0, NULL, PARAMETERS(&y)));
  assert_int_equal(sim.taper_sim_counters_read(rows, 4), 3);
  assert_string_equal(rows[0].kernel, "");
  assert_string_equal(rows[1].kernel, "scale");
  assert_string_equal(rows[2].kernel, "beyond");
  assert_int_equal(rows[0].count.launches, 2);
  assert_int_equal(rows[1].count.launches, 1);
  assert_int_equal(rows[1].count.blocks, 8);
  assert_int_equal(rows[1].count.global.load_bytes, 4000);
  assert_int_equal(rows[1].count.global.read_sectors, 125);
  assert_int_equal(rows[1].count.global.read_bytes, 4000);
  assert_int_equal(rows[1].count.global.written_sectors, 125);
  assert_int_equal(rows[2].count.global.store_bytes, 128);
  assert_int_equal(rows[0].count.warp_instructions, rows[1].count.warp_instructions + rows[2].count.warp_instructions);
  OK(sim.taper_sim_usage(x, 1, &use));
  assert_int_equal(use.read_sectors, 125);
  assert_int_equal(use.store_bytes, 0);
  OK(sim.taper_sim_usage(x, 0, &use));
  assert_int_equal(use.read_sectors, 0);
  REFUSED(CUDA_ERROR_INVALID_VALUE, "no allocation begins", sim.taper_sim_usage(x + 4, 0, &use));
  sim.taper_sim_counters_reset();
  assert_int_equal(sim.taper_sim_counters_read(rows, 4), 1);
  assert_int_equal(rows[0].count.launches, 0);
  OK(cu.cuMemFree_v2(x));
  OK(cu.cuMemFree_v2(y));
  OK(cu.cuModuleUnload(m));
}

/* Blocks are executed in their order, or in one that the seed draws. */
static void blocks_have_an_order(void **state) {
  (void)state;
  CUmodule m = sim_load("driver.sm_90.ptx");
  CUfunction f = sim_function(m, "few_threads");
  CUdeviceptr y = 0;
  unsigned seen[3][65];
  OK(cu.cuMemAlloc_v2(&y, sizeof(seen[0])));
  for (uint64_t seed = 0; seed < 3; seed++) {
    taper_sim_options o;
    sim.taper_sim_options_get(&o);
    o.seed = seed;
    OK(sim.taper_sim_options_set(&o));
    OK(cu.cuMemsetD32Async(y, 0, 1, NULL));
    OK(sim_start(f, 64, 32, 0, NULL, PARAMETERS(&y)));
    OK(cu.cuMemcpyDtoHAsync_v2(seen[seed], y, sizeof(seen[0]), NULL));
    OK(cu.cuCtxSynchronize());
    assert_int_equal(seen[seed][0], 64);
  }
  for (unsigned i = 0; i < 64; i++) assert_int_equal(seen[0][1 + i], i);
  assert_memory_not_equal(seen[0], seen[1], sizeof(seen[0]));
  assert_memory_not_equal(seen[1], seen[2], sizeof(seen[0]));
  OK(cu.cuMemFree_v2(y));
  OK(cu.cuModuleUnload(m));
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, sim_deferred, sim_end)
int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(device_is_described),
      TEST(device_is_chosen),
      TEST(errors_have_names),
      TEST(contexts_are_current_to_a_thread),
      TEST(contexts_are_counted),
      TEST(leaks_are_told),
      TEST(memory_is_bounded),
      TEST(copies_are_bounded),
      TEST(unwritten_memory_is_not_copied_out),
      TEST(host_memory),
      TEST(modules_are_ptx),
      TEST(functions_have_limits),
      TEST(kernels_run),
      TEST(launches_are_checked),
      TEST(faults_stay),
      TEST(launches_are_counted),
      TEST(blocks_have_an_order),
  };
  return cmocka_run_group_tests(tests, sim_open, sim_close);
}
