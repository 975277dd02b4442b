/* oneDNN's sgemm, opened at run time, beside the generated GEMM: which of the two is faster is measured on the model's
   own shapes, and stays for the whole run. */
#include "runtime/gemm_library.h"
#include "runtime/abi/abi.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* oneDNN's C interface (dnnl.h), matrices row-major. */
typedef int (*sgemm_fn)(char transa, char transb, int64_t m, int64_t n, int64_t k, float alpha, const float *a,
                        int64_t lda, const float *b, int64_t ldb, float beta, float *c, int64_t ldc);
typedef struct dnnl_version {
  int major, minor, patch;
  const char *hash;
} dnnl_version;
typedef const dnnl_version *(*version_fn)(void);

/* One library a process: it brings threads of its own, so it is never closed. */
static struct {
  pthread_mutex_t lock;
  sgemm_fn sgemm;
  int (*get_threads)(void);
  void (*set_threads)(int n);
  char name[64];
} library = {.lock = PTHREAD_MUTEX_INITIALIZER};

static bool open_library(const char *path) {
  void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!handle) return false;
  void *sgemm = dlsym(handle, "dnnl_sgemm"), *version = dlsym(handle, "dnnl_version");
  if (!sgemm) return dlclose(handle), false;
  const dnnl_version *v = version ? ((version_fn)(uintptr_t)version)() : NULL;
  if (v)
    snprintf(library.name, sizeof(library.name), "oneDNN %d.%d.%d", v->major, v->minor, v->patch);
  else
    snprintf(library.name, sizeof(library.name), "oneDNN");
  library.get_threads = (int (*)(void))(uintptr_t)dlsym(handle, "omp_get_max_threads");
  library.set_threads = (void (*)(int))(uintptr_t)dlsym(handle, "omp_set_num_threads");
  library.sgemm = (sgemm_fn)(uintptr_t)sgemm;
  return true;
}

static bool have_library(void) {
  static const char *const names[] = {"libdnnl.so.3", "libdnnl.so.2"};
  const char *own = getenv("TAPER_LIBDNNL");
  pthread_mutex_lock(&library.lock);
  if (own && !library.sgemm) (void)open_library(own);
  for (size_t i = 0; !own && !library.sgemm && i < sizeof(names) / sizeof(names[0]); i++) (void)open_library(names[i]);
  const bool have = library.sgemm != NULL;
  pthread_mutex_unlock(&library.lock);
  return have;
}

/* The workers share the machine among themselves: the library gets one thread, and the thread that calls gets its own
   setting back. */
static void library_gemm(uint32_t form, uint32_t m, uint32_t n, uint32_t k, const float *a, uint32_t lda,
                         const float *b, uint32_t ldb, float *c, uint32_t ldc, int accumulate) {
  const int before = library.get_threads && library.set_threads ? library.get_threads() : 1;
  if (before != 1) library.set_threads(1);
  (void)library.sgemm(form == TAPER_GEMM_TN ? 'T' : 'N', form == TAPER_GEMM_NT ? 'T' : 'N', m, n, k, 1, a, lda, b, ldb,
                      accumulate ? 1.0f : 0.0f, c, ldc);
  if (before != 1) library.set_threads(before);
}

/* ---- measuring ---- */

enum { MOST_SHAPES = 4, ROWS = 128, WEIGHT_ROWS = 512, LONGEST = 1024, BUDGET_NS = 200000000 };

typedef struct shape {
  uint32_t out, in, count;
} shape;

static uint32_t cut_off(uint32_t n) { return n < LONGEST ? n : LONGEST; }

/* The matrices that are multiplied with, equal shapes together, those with the most work first. */
static size_t list_shapes(const taper_train_image *t, shape out[MOST_SHAPES]) {
  size_t n = 0;
  for (uint32_t i = 0; i < t->pack_count; i++) {
    const taper_train_param *p = &t->params[t->packs[i].param];
    size_t k = 0;
    if (p->rank != 2) continue;
    const shape s = {cut_off(p->dim[0]), cut_off(p->dim[1]), 1};
    while (k < n && (out[k].out != s.out || out[k].in != s.in)) k++;
    if (k < n)
      out[k].count++;
    else if (n < MOST_SHAPES)
      out[n++] = s;
  }
  return n;
}

static uint64_t now_ns(void) {
  struct timespec at;
  clock_gettime(CLOCK_MONOTONIC, &at);
  return (uint64_t)at.tv_sec * 1000000000u + (uint64_t)at.tv_nsec;
}

typedef struct bench {
  const taper_train_image *t;
  float *a, *b, *c, *scratch;
} bench;

static uint64_t time_once(const bench *x, bool use_library, uint32_t form, const shape *s) {
  const uint32_t m = form == TAPER_GEMM_TN ? s->out : ROWS, n = form == TAPER_GEMM_NT ? s->out : s->in;
  const uint32_t k = form == TAPER_GEMM_NT ? s->in : form == TAPER_GEMM_NN ? s->out : WEIGHT_ROWS;
  const uint32_t lda = form == TAPER_GEMM_TN ? m : k, ldb = form == TAPER_GEMM_NT ? k : n;
  const uint64_t begin = now_ns();
  if (use_library)
    library_gemm(form, m, n, k, x->a, lda, x->b, ldb, x->c, n, 0);
  else
    x->t->gemm(form, m, n, k, x->a, lda, x->b, ldb, x->c, n, 0, x->scratch);
  return now_ns() - begin;
}

/* Least times of both, taken in turns. */
static void compare(const bench *x, uint32_t form, const shape *s, uint64_t budget, double *generated, double *lib) {
  uint64_t best[2] = {UINT64_MAX, UINT64_MAX};
  const uint64_t begin = now_ns();
  for (int round = 0; round < 3 || now_ns() - begin < budget; round++) {
    for (int which = 0; which < 2; which++) {
      const uint64_t ns = time_once(x, which == 1, form, s);
      if (round > 0 && ns < best[which]) best[which] = ns;
    }
  }
  *generated += (double)best[0] * s->count;
  *lib += (double)best[1] * s->count;
}

static taper_status measure(const taper_train_image *t, float *scratch, const taper_allocator *allocator,
                            double *generated, double *lib, taper_error *error) {
  shape shapes[MOST_SHAPES];
  const size_t n = list_shapes(t, shapes), each = (size_t)LONGEST * LONGEST;
  float *block = memory_alloc(allocator, 3 * each * sizeof(float), MEMORY_LINE);
  if (!block) return memory_exhausted(error, "measuring the GEMM", 3 * each * sizeof(float));
  for (size_t i = 0; i < 3 * each; i++) block[i] = (float)(i % 37) * 0.0625f - 1;
  const bench x = {t, block, block + each, block + 2 * each, scratch};
  for (size_t i = 0; i < n; i++)
    for (uint32_t form = TAPER_GEMM_NT; form <= TAPER_GEMM_TN; form++)
      compare(&x, form, &shapes[i], BUDGET_NS / (3 * n), generated, lib);
  memory_free(allocator, block);
  return TAPER_OK;
}

taper_status gemm_choose(const taper_train_image *t, float *scratch, const taper_allocator *allocator,
                         taper_gemm_choice choice, gemm_chosen *out, taper_error *error) {
  *out = (gemm_chosen){.name = "generated"};
  if ((uint32_t)choice > TAPER_GEMM_LIBRARY)
    return TAPER_FAIL(error, TAPER_INVALID, "option 'gemm' is %u; 0 to %u", (unsigned)choice, TAPER_GEMM_LIBRARY);
  if (choice == TAPER_GEMM_GENERATED) return TAPER_OK;
  if (!have_library()) {
    snprintf(out->why, sizeof(out->why), "oneDNN (libdnnl.so.3 or .2) is not there");
    if (choice == TAPER_GEMM_AUTO) return TAPER_OK;
    return TAPER_FAIL(error, TAPER_UNSUPPORTED, "%s; install it (Debian: libdnnl2), or use the generated GEMM",
                      out->why);
  }
  double generated = 0, lib = 0;
  if (choice == TAPER_GEMM_AUTO) {
    TAPER_TRY(measure(t, scratch, allocator, &generated, &lib, error));
    snprintf(out->why, sizeof(out->why), "generated %.3f ms, %s %.3f ms on this model's shapes", generated / 1e6,
             library.name, lib / 1e6);
  }
  /* a draw is the generated one's, so that the choice does not change from run to run */
  if (choice == TAPER_GEMM_AUTO && lib >= 0.9 * generated) return TAPER_OK;
  out->fn = library_gemm;
  snprintf(out->name, sizeof(out->name), "%s", library.name);
  return TAPER_OK;
}
