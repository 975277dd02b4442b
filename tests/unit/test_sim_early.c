/* Launches that may begin before the kernel ahead of them has ended: right ones give what they give in order, and whatever
   touches too early is found, in deferred and in eager mode, on streams and in graphs. */
#include "tests/unit/sim_driver.h"
#include <math.h>

enum { N = 100, BLOCK = 2, KERNELS = 4 };

typedef struct fixture {
  CUmodule module;
  CUstream stream;
  CUdeviceptr w, v[KERNELS + 1]; /* v[i + 1] = v[i] w */
} fixture;

static fixture fixture_new(const char *module) {
  fixture f = {.module = sim_load(module), .w = sim_floats(N, 2, 0)};
  OK(cu.cuStreamCreate(&f.stream, CU_STREAM_NON_BLOCKING));
  f.v[0] = sim_floats(N, 1, 1);
  for (int i = 0; i < KERNELS; i++) f.v[i + 1] = sim_floats(N, 7, 0);
  return f;
}

static void fixture_free(fixture *f) {
  for (int i = 0; i <= KERNELS; i++) OK(cu.cuMemFree_v2(f->v[i]));
  OK(cu.cuMemFree_v2(f->w));
  OK(cu.cuStreamDestroy_v2(f->stream));
  OK(cu.cuModuleUnload(f->module));
}

/* v[to] = v[i] w */
static CUresult launch_to(const fixture *f, const char *kernel, int i, int to, int early) {
  unsigned n = N;
  CUdeviceptr x = f->v[i], y = f->v[to], w = f->w;
  CUlaunchAttribute attribute = {.id = CU_LAUNCH_PROGRAMMATIC_STREAM_SERIALIZATION};
  attribute.value.programmatic_stream_serialization_allowed = early;
  CUlaunchConfig c = {N / BLOCK, 1, 1, BLOCK, 1, 1, 0, f->stream, &attribute, 1};
  return cu.cuLaunchKernelEx(&c, sim_function(f->module, kernel), PARAMETERS(&y, &x, &w, &n), NULL);
}

static CUresult launch_early(const fixture *f, const char *kernel, int i, int early) {
  return launch_to(f, kernel, i, i + 1, early);
}

static void check(const fixture *f) {
  float got[N];
  OK(cu.cuMemcpyDtoHAsync_v2(got, f->v[KERNELS], sizeof(got), f->stream));
  OK(cu.cuStreamSynchronize(f->stream));
  for (int i = 0; i < N; i++) assert_true(got[i] == 16.0f * (float)(i + 1));
}

static void right_chains_are_in_order(void **state) {
  (void)state;
  fixture f = fixture_new("driver.sm_90.ptx");
  for (int i = 0; i < KERNELS; i++) OK(launch_early(&f, "chain", i, 1));
  check(&f);
  for (int i = 0; i < KERNELS; i++) OK(launch_early(&f, "chain", i, i != 2));
  check(&f);
  fixture_free(&f);
}

static void right_chains_are_in_order_in_graphs(void **state) {
  (void)state;
  fixture f = fixture_new("driver.sm_90.ptx");
  CUgraph graph = NULL;
  CUgraphExec exec = NULL;
  OK(cu.cuStreamBeginCapture_v2(f.stream, CU_CAPTURE_THREAD_LOCAL));
  for (int i = 0; i < KERNELS; i++) OK(launch_early(&f, "chain", i, 1));
  OK(cu.cuStreamEndCapture(f.stream, &graph));
  OK(cu.cuGraphInstantiateWithFlags(&exec, graph, 0));
  OK(cu.cuGraphLaunch(exec, f.stream));
  OK(cu.cuGraphLaunch(exec, f.stream));
  check(&f);
  OK(cu.cuGraphExecDestroy(exec));
  OK(cu.cuGraphDestroy(graph));
  fixture_free(&f);
}

/* The third of four kernels is the faulty one; it writes v[to]: v[3], or v[1], which the one ahead of it reads. */
static void touched_too_early(const char *module, const char *kernel, int to, int in_graph) {
  fixture f = fixture_new(module);
  CUgraph graph = NULL;
  CUgraphExec exec = NULL;
  CUresult result = CUDA_SUCCESS;
  if (in_graph) OK(cu.cuStreamBeginCapture_v2(f.stream, CU_CAPTURE_THREAD_LOCAL));
  for (int i = 0; i < KERNELS && result == CUDA_SUCCESS; i++)
    result = launch_to(&f, i == 2 ? kernel : "chain", i, i == 2 ? to : i + 1, i > 0);
  if (in_graph) {
    OK(cu.cuStreamEndCapture(f.stream, &graph));
    OK(cu.cuGraphInstantiateWithFlags(&exec, graph, 0));
    result = cu.cuGraphLaunch(exec, f.stream);
  }
  if (result == CUDA_SUCCESS) result = cu.cuStreamSynchronize(f.stream);
  REFUSED(CUDA_ERROR_LAUNCH_FAILED, "touched before griddepcontrol.wait", result);
  assert_non_null(strstr(sim.taper_sim_fault(), kernel));
}

static void faults_are_found(void **state) {
  static const struct {
    const char *kernel;
    int to;
  } cases[] = {{"chain_reads_early", 3},
               {"chain_last_reads_early", 3},
               {"chain_writes_early", 1},
               {"chain_never_waits", 3},
               {"chain_never_waits", 1}};
  taper_sim_options o;
  (void)state;
  sim.taper_sim_options_get(&o);
  for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
    for (int in_graph = 0; in_graph < 2; in_graph++) {
      touched_too_early("driver.sm_90.ptx", cases[i].kernel, cases[i].to, in_graph);
      sim_end(NULL);
      sim_begin(o.eager);
    }
}

/* PTX for sm_80 has no wait; compiled for a newer GPU it must not be launched so. */
static void images_without_a_wait(void **state) {
  (void)state;
  touched_too_early("driver.sm_80.ptx", "chain", 3, 0);
}

/* One that touches nothing of theirs leaves those behind it without an order. */
static void kernels_without_a_wait(void **state) {
  static const char *const kernels[] = {"chain_never_waits", "chain_seldom_waits"};
  (void)state;
  for (int i = 0; i < 2; i++) {
    fixture f = fixture_new("driver.sm_90.ptx");
    CUresult result = launch_early(&f, "chain", 0, 0);
    if (result == CUDA_SUCCESS) result = launch_to(&f, kernels[i], 4, 3, 1);
    if (result == CUDA_SUCCESS) result = cu.cuStreamSynchronize(f.stream);
    REFUSED(CUDA_ERROR_LAUNCH_FAILED, "came to griddepcontrol.wait", result);
    sim_end(NULL);
    sim_begin(0);
  }
}

/* Without the attribute, or behind a copy, a wait or a graph, nothing is at work any more. */
static void full_dependencies_are_no_fault(void **state) {
  (void)state;
  fixture f = fixture_new("driver.sm_90.ptx");
  OK(launch_early(&f, "chain", 0, 1));
  OK(launch_early(&f, "chain_reads_early", 1, 0));
  OK(cu.cuMemsetD8Async(f.v[4], 0, 4, f.stream));
  OK(launch_early(&f, "chain_writes_early", 2, 1));
  OK(cu.cuStreamSynchronize(f.stream));
  OK(launch_early(&f, "chain_reads_early", 3, 1));
  check(&f);
  fixture_free(&f);
}

static void old_devices_cannot(void **state) {
  (void)state;
  SIM_CHANGE(capability = 80);
  fixture f = fixture_new("driver.sm_80.ptx");
  REFUSED(CUDA_ERROR_NOT_SUPPORTED, "compute capability 9.0", launch_early(&f, "chain", 0, 1));
  OK(launch_early(&f, "chain", 0, 0));
  fixture_free(&f);
}

static void old_drivers_cannot_in_graphs(void **state) {
  (void)state;
  SIM_CHANGE(driver_version = 12020);
  char *ptx = sim_read("driver.sm_90.ptx");
  memcpy(strstr(ptx, ".version 9.0"), ".version 7.8", 12);
  fixture f = {.w = sim_floats(N, 2, 0)};
  OK(cu.cuModuleLoadDataEx(&f.module, ptx, 0, NULL, NULL));
  free(ptx);
  OK(cu.cuStreamCreate(&f.stream, CU_STREAM_NON_BLOCKING));
  for (int i = 0; i <= KERNELS; i++) f.v[i] = sim_floats(N, 1, 1);
  OK(launch_early(&f, "chain", 0, 1));
  CUgraph graph = NULL;
  OK(cu.cuStreamBeginCapture_v2(f.stream, CU_CAPTURE_THREAD_LOCAL));
  REFUSED(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "CUDA 12.3", launch_early(&f, "chain", 0, 1));
  assert_int_equal(cu.cuStreamEndCapture(f.stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  fixture_free(&f);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, sim_deferred, sim_end)
#define EAGER(f) cmocka_unit_test_setup_teardown(f, sim_eager, sim_end)
int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(right_chains_are_in_order),
      EAGER(right_chains_are_in_order),
      TEST(right_chains_are_in_order_in_graphs),
      EAGER(right_chains_are_in_order_in_graphs),
      TEST(faults_are_found),
      EAGER(faults_are_found),
      TEST(images_without_a_wait),
      EAGER(images_without_a_wait),
      TEST(kernels_without_a_wait),
      TEST(full_dependencies_are_no_fault),
      EAGER(full_dependencies_are_no_fault),
      TEST(old_devices_cannot),
      TEST(old_drivers_cannot_in_graphs),
  };
  return cmocka_run_group_tests(tests, sim_open, sim_close);
}
