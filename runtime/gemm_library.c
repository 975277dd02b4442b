/* oneDNN's sgemm, opened at run time, beside the generated GEMM: which of the two is faster is measured on the model's
   own program, and stays for the whole run. */
#include "runtime/gemm_library.h"
#include <dlfcn.h>
#include <math.h>
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

enum { LEAST_ROUNDS = 3, MOST_ROUNDS = 8 };
static const double BUDGET_S = 0.4;

static double now_s(void) {
  struct timespec at;
  clock_gettime(CLOCK_MONOTONIC, &at);
  return (double)at.tv_sec + 1e-9 * (double)at.tv_nsec;
}

/* Least times of both, taken in turns; the first round warms up. */
static void compare(const gemm_trial *trial, double *generated, double *lib) {
  double best[2] = {INFINITY, INFINITY};
  const double begin = now_s();
  for (int round = 0; round < LEAST_ROUNDS || (round < MOST_ROUNDS && now_s() - begin < BUDGET_S); round++) {
    for (int which = 0; which < 2; which++) {
      const double at = now_s();
      trial->run(trial->arg, which ? library_gemm : NULL);
      const double took = now_s() - at;
      if (round > 0 && took < best[which]) best[which] = took;
    }
  }
  *generated = best[0], *lib = best[1];
}

taper_status gemm_choose(taper_gemm_choice choice, const gemm_trial *trial, gemm_chosen *out, taper_error *error) {
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
    compare(trial, &generated, &lib);
    snprintf(out->why, sizeof(out->why), "generated %.3f ms, %s %.3f ms for a small batch of this model",
             1e3 * generated, library.name, 1e3 * lib);
  }
  /* a draw is the generated one's, so that the choice does not change from run to run */
  if (choice == TAPER_GEMM_AUTO && lib >= 0.9 * generated) return TAPER_OK;
  out->fn = library_gemm;
  snprintf(out->name, sizeof(out->name), "%s", library.name);
  return TAPER_OK;
}
