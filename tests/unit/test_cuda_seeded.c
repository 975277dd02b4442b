/* Kernels with one fault each (tests/sim/seeded.cu), through the stand-in driver as the runtime uses it: each must be caught, by the fault
   it has or by a wrong result, and its right form must pass. NVRTC's PTX where it is there, else the one that is kept beside the source. */
#include "cuda/driver.h"
#include "cuda/nvrtc.h"
#include "cuda/sim/control.h"
#include "runtime/base/file.h"
#include <dlfcn.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
// cmocka needs the headers above first
#include <cmocka.h>

enum { MOST = 1024, LIMIT = 1 << 22 };

/* what y[i] must be */
typedef enum reference { TWICE, SUM, SUM_AND_SQUARES, NEIGHBOUR, PRODUCT, BACKWARDS, ROW_SUM, TOTAL } reference;

typedef struct seeded {
  const char *name, *before;       /* before: launched first, and `name` behind it by a programmatic edge */
  uint32_t grid, threads, n, x, y; /* floats of x and y: exactly what is needed */
  uint32_t launches;
  reference want;
  const char *fault; /* a phrase of the message; NULL: no fault; "": the result is wrong */
} seeded;

#define WRONG ""
static const seeded cases[] = {
    {"tail_good", NULL, 4, 64, 201, 201, 201, 1, TWICE, NULL},
    {"tail_bad", NULL, 4, 64, 201, 201, 201, 1, TWICE, "outside of every allocation"},
    {"bound_bad", NULL, 4, 64, 201, 201, 201, 1, TWICE, "outside of every allocation"},
    {"barrier_good", NULL, 1, 256, 256, 256, 256, 1, SUM, NULL},
    {"barrier_bad", NULL, 1, 256, 256, 256, 256, 1, SUM, "shared memory|before it was written"},
    {"reuse_good", NULL, 1, 256, 256, 256, 256, 1, SUM_AND_SQUARES, NULL},
    {"reuse_bad", NULL, 1, 256, 256, 256, 256, 1, SUM_AND_SQUARES, "race in shared memory"},
    {"warp_good", NULL, 1, 32, 32, 32, 32, 1, NEIGHBOUR, NULL},
    {"warp_bad", NULL, 1, 32, 32, 32, 32, 1, NEIGHBOUR, "race in shared memory"},
    {"consume_good", "produce", 4, 64, 201, 201, 201, 2, PRODUCT, NULL},
    {"consume_bad", "produce", 4, 64, 201, 201, 201, 2, PRODUCT, "before griddepcontrol.wait"},
    {"early_bad", "produce", 4, 64, 201, 201, 201, 2, PRODUCT, "before griddepcontrol.wait"},
    {"clobber_bad", "produce", 4, 64, 201, 201, 201, 2, PRODUCT, "before griddepcontrol.wait"},
    {"copy_good", NULL, 1, 32, 256, 256, 256, 1, BACKWARDS, NULL},
    {"copy_bad", NULL, 1, 32, 256, 256, 256, 1, BACKWARDS, "before the wait"},
    {"stages_bad", NULL, 1, 32, 256, 256, 128, 1, TWICE, "before the wait"},
    {"pitch_good", NULL, 7, 32, 0, 168, 7, 1, ROW_SUM, NULL},
    {"pitch_narrow_bad", NULL, 7, 32, 0, 168, 7, 1, ROW_SUM, WRONG},
    {"pitch_wide_bad", NULL, 7, 32, 0, 168, 7, 1, ROW_SUM, "outside of every allocation"},
    {"merge_good", NULL, 7, 32, 201, 201, 1, 2, TOTAL, NULL},
    {"merge_unfenced_bad", NULL, 7, 32, 201, 201, 1, 2, TOTAL, "race between blocks"},
    {"merge_race_bad", NULL, 7, 32, 201, 201, 1, 2, TOTAL, "race between blocks"},
    {"merge_unreset_bad", NULL, 7, 32, 201, 201, 1, 2, TOTAL, WRONG},
    {"write_race_bad", NULL, 4, 64, 201, 201, 201, 1, TWICE, "race between blocks"},
    {"lost_sum_bad", NULL, 4, 64, 201, 201, 201, 1, TWICE, "race between blocks"},
    {"shared_bad", NULL, 1, 256, 256, 256, 256, 1, TWICE, "before it was written"},
    {"global_bad", NULL, 4, 64, 201, 201, 201, 1, TWICE, "before it was written"},
    {"divergent_bad", NULL, 1, 32, 32, 32, 32, 1, TWICE, "divergent barrier"},
    {"early_exit_bad", NULL, 1, 64, 65, 65, 65, 1, TWICE, "barrier"},
    {"lanes_bad", NULL, 1, 32, 32, 32, 32, 1, TWICE, "lanes"},
    {"aligned_bad", NULL, 1, 32, 65, 65, 65, 1, TWICE, "misaligned"},
    {"constant_bad", NULL, 1, 32, 32, 32, 32, 1, TWICE, "read-only|race"},
    {"spin_bad", NULL, 4, 32, 32, 32, 32, 1, TWICE, "no end in sight"},
    {"together", NULL, 4, 64, 201, 201, 201, 1, TWICE, "no end in sight"},
    {"dynamic_bad", NULL, 1, 32, 32, 32, 32, 1, NEIGHBOUR, "outside of|out of"},
};

static char *ptx;
static bool judging; /* a mutant: refused PTX is no failure of this program */
enum { REFUSED = 3 };
static float x[MOST], y[MOST];

static double expected(const seeded *c, uint32_t i) {
  double s = 0, q = 0;
  for (uint32_t k = 0; k < c->x; k++) s += (double)x[k], q += (double)x[k] * (double)x[k];
  switch (c->want) {
  case TWICE: return 2 * (double)x[i];
  case SUM: return s;
  case SUM_AND_SQUARES: return s + q;
  case NEIGHBOUR: return (double)x[i ^ 1];
  case PRODUCT: return (double)x[i] * ((double)x[i] + 1);
  case BACKWARDS: return (double)x[c->n - 1 - i];
  case ROW_SUM:
    s = 0;
    for (uint32_t k = 0; k < 20; k++) s += (double)x[i * 24 + k];
    return s;
  case TOTAL: return s;
  }
  return 0;
}

static void draw(const seeded *c) {
  for (uint32_t i = 0; i < c->x; i++) x[i] = (float)(int32_t)(i * 2654435761u >> 8 & 0xffff) / 65536.0f - 0.4f;
  for (uint32_t i = 0; c->want == ROW_SUM && i < c->x; i++) x[i] = i % 24 < 20 ? x[i] : 0;
}

typedef struct stand {
  cuda_driver d;
  CUcontext context;
  CUstream stream;
  CUmodule module;
  CUdeviceptr x, y, z;
} stand;

static void stand_options(const stand *s, uint32_t eager, uint64_t seed) {
  void (*read)(taper_sim_options *) = NULL;
  CUresult (*set)(const taper_sim_options *) = NULL;
  taper_sim_options o;
  *(void **)&read = dlsym(s->d.library, "taper_sim_options_get");
  *(void **)&set = dlsym(s->d.library, "taper_sim_options_set");
  assert_non_null(read);
  assert_non_null(set);
  read(&o);
  o.eager = eager, o.seed = seed, o.instruction_budget = 1 << 18;
  assert_int_equal(set(&o), CUDA_SUCCESS);
}

static const char *stand_fault(const stand *s) {
  const char *(*fault)(void) = NULL;
  *(void **)&fault = dlsym(s->d.library, "taper_sim_fault");
  assert_non_null(fault);
  return fault();
}

#define OK(call) assert_int_equal(call, CUDA_SUCCESS)

static void stand_open(stand *s, const seeded *c, uint32_t eager, uint64_t seed) {
  taper_error error = {0};
  *s = (stand){0};
  if (cuda_driver_open(NULL, true, &s->d, &error) != TAPER_OK) fail_msg("%s", error.message);
  stand_options(s, eager, seed);
  OK(s->d.cuDevicePrimaryCtxRetain(&s->context, 0));
  OK(s->d.cuCtxPushCurrent_v2(s->context));
  OK(s->d.cuStreamCreate(&s->stream, CU_STREAM_NON_BLOCKING));
  if (cuda_module_load(&s->d, ptx, "seeded.ptx", &s->module, &error) != TAPER_OK) {
    if (judging) exit(REFUSED);
    fail_msg("%s", error.message);
  }
  OK(s->d.cuMemAlloc_v2(&s->x, c->x * sizeof(float)));
  OK(s->d.cuMemAlloc_v2(&s->y, c->y * sizeof(float)));
  OK(s->d.cuMemAlloc_v2(&s->z, MOST * sizeof(float)));
  OK(s->d.cuMemcpyHtoDAsync_v2(s->x, x, c->x * sizeof(float), s->stream));
  OK(s->d.cuMemsetD8Async(s->z, 0, MOST * sizeof(float), s->stream));
  OK(s->d.cuStreamSynchronize(s->stream));
}

static void stand_close(stand *s) {
  CUcontext popped;
  (void)s->d.cuMemFree_v2(s->x);
  (void)s->d.cuMemFree_v2(s->y);
  (void)s->d.cuMemFree_v2(s->z);
  (void)s->d.cuModuleUnload(s->module);
  (void)s->d.cuStreamDestroy_v2(s->stream);
  OK(s->d.cuCtxPopCurrent_v2(&popped));
  OK(s->d.cuDevicePrimaryCtxRelease_v2(0));
  cuda_driver_close(&s->d);
}

/* `attribute`: 0, or the id of one that is set to 1 (an int in the same place in each) */
static CUresult launch_as(stand *s, const seeded *c, const char *name, uint32_t grid, int id) {
  CUfunction f;
  uint32_t n = c->n;
  void *parameters[] = {&s->x, &s->y, &s->z, &n};
  OK(s->d.cuModuleGetFunction(&f, s->module, name));
  CUlaunchAttribute attribute = {.id = id, .value.cooperative = 1};
  CUlaunchConfig config = {.grid_x = grid,
                           .grid_y = 1,
                           .grid_z = 1,
                           .block_x = c->threads,
                           .block_y = 1,
                           .block_z = 1,
                           .stream = s->stream,
                           .attributes = &attribute,
                           .attribute_count = id != 0};
  return s->d.cuLaunchKernelEx(&config, f, parameters, NULL);
}

static CUresult launch(stand *s, const seeded *c, const char *name, bool programmatic) {
  return launch_as(s, c, name, c->grid, programmatic ? CU_LAUNCH_PROGRAMMATIC_STREAM_SERIALIZATION : 0);
}

/* The first thing that goes wrong; then y. */
static CUresult run(stand *s, const seeded *c) {
  CUresult result = CUDA_SUCCESS;
  for (uint32_t k = 0; result == CUDA_SUCCESS && k < c->launches; k++) {
    if (k > 0 && !c->before) OK(s->d.cuMemsetD8Async(s->y, 0, c->y * sizeof(float), s->stream));
    if (c->before) result = launch(s, c, c->before, k > 0);
    if (result == CUDA_SUCCESS) result = launch(s, c, c->name, c->before != NULL);
  }
  if (result == CUDA_SUCCESS) result = s->d.cuMemcpyDtoHAsync_v2(y, s->y, c->y * sizeof(float), s->stream);
  if (result == CUDA_SUCCESS) result = s->d.cuStreamSynchronize(s->stream);
  return result;
}

static bool is_right(const seeded *c) {
  for (uint32_t i = 0; i < c->y; i++) {
    double want = expected(c, i);
    if (!(fabs((double)y[i] - want) <= 1e-5 * (fabs(want) + 1))) return false;
  }
  return true;
}

/* One of the phrases between '|'. */
static bool says(const char *text, const char *phrases) {
  for (const char *p = phrases; *p;) {
    size_t n = strcspn(p, "|");
    char phrase[100];
    memcpy(phrase, p, n);
    phrase[n] = '\0';
    if (strstr(text, phrase)) return true;
    p += n + (p[n] == '|');
  }
  return false;
}

static void check(const seeded *c, uint32_t eager, uint64_t seed) {
  stand s;
  draw(c);
  stand_open(&s, c, eager, seed);
  CUresult result = run(&s, c);
  const char *fault = stand_fault(&s);
  bool faulted = result != CUDA_SUCCESS;
  const char *mode = eager ? "eager" : "deferred";
  if (!c->fault && faulted) fail_msg("%s, %s, seed %d: %s", c->name, mode, (int)seed, fault);
  if (!c->fault && !is_right(c)) fail_msg("%s, %s, seed %d: wrong result", c->name, mode, (int)seed);
  if (c->fault && !c->fault[0] && !faulted && is_right(c))
    fail_msg("%s, %s, seed %d: the right result", c->name, mode, (int)seed);
  if (c->fault && c->fault[0]) {
    if (!faulted) fail_msg("%s, %s, seed %d: no fault", c->name, mode, (int)seed);
    if (!says(fault, c->fault))
      fail_msg("%s, %s, seed %d: '%s' says nothing of '%s'", c->name, mode, (int)seed, fault, c->fault);
    if (!strstr(fault, c->name)) fail_msg("%s: '%s' does not name the kernel", c->name, fault);
  }
  stand_close(&s);
}

static void test_each(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    for (uint32_t eager = 0; eager < 2; eager++) {
      for (uint64_t seed = 0; seed < 3; seed++) check(&cases[i], eager, seed);
    }
  }
}

/* All blocks at once: they may wait for each other; more than the device holds are refused. */
static void test_cooperative(void **state) {
  (void)state;
  const seeded c = {"together", NULL, 4, 64, 201, 201, 201, 1, TWICE, NULL};
  for (uint64_t seed = 0; seed < 3; seed++) {
    stand s;
    draw(&c);
    stand_open(&s, &c, 0, seed);
    assert_int_equal(launch_as(&s, &c, c.name, 1u << 20, CU_LAUNCH_COOPERATIVE),
                     CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
    OK(launch_as(&s, &c, c.name, c.grid, CU_LAUNCH_COOPERATIVE));
    OK(s.d.cuMemcpyDtoHAsync_v2(y, s.y, c.y * sizeof(float), s.stream));
    OK(s.d.cuStreamSynchronize(s.stream));
    assert_true(is_right(&c));
    stand_close(&s);
  }
}

static char *read_ptx(void) {
  char *source = NULL, *image = NULL;
  size_t size;
  taper_error error = {0};
  nvrtc_result r = {0};
  if (file_read("tests/sim/seeded.cu", LIMIT, &source, &size, &error) == TAPER_OK &&
      nvrtc_compile(&(nvrtc_request){.source = source, .name = "seeded.cu", .arch = "compute_90"}, &r, &error) ==
          TAPER_OK)
    image = strdup(r.image);
  else if (file_read("tests/sim/seeded.ptx", LIMIT, &image, &size, &error) != TAPER_OK)
    image = NULL;
  nvrtc_free(&r);
  free(source);
  return image;
}

/* The right kernels out of a mutant of the PTX (tests/sim/mutate.py): 0, all compute what they should; 1, caught. */
static int judge(void) {
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    for (uint64_t seed = 0; seed < 2 && !cases[i].fault; seed++) {
      stand s;
      draw(&cases[i]);
      stand_open(&s, &cases[i], 0, seed);
      if (run(&s, &cases[i]) != CUDA_SUCCESS || !is_right(&cases[i])) return 1;
      stand_close(&s);
    }
  }
  return 0;
}

int main(int argc, char **argv) {
  taper_error error = {0};
  size_t size;
  if (argc == 2) {
    judging = true;
    return file_read(argv[1], LIMIT, &ptx, &size, &error) == TAPER_OK ? judge() : 2;
  }
  ptx = read_ptx();
  if (!ptx) return 1;
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_each), cmocka_unit_test(test_cooperative)};
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  free(ptx);
  return failed;
}
