/*
 * kernels.c - speed of the training kernels as a share of the multiply-add peak measured beside them: kernels [ROUNDS [v2|v3|v4]]. One thread; the
 * rounds of all columns are interleaved, every figure is the best of its rounds (a busy machine only ever slows one down). oneDNN's dnnl_sgemm
 * stands beside where libdnnl is (Debian: libdnnl2; DNNL_MAX_CPU_ISA and the like hold for it).
 */
#include "tests/unit/train/kernels.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))
#define SLICE 5e-4 /* seconds that one measurement should take */

typedef int (*sgemm_fn)(char, char, int64_t, int64_t, int64_t, float, const float *, int64_t, const float *, int64_t,
                        float, float *, int64_t);

static const train_kernels *kernels;
static sgemm_fn sgemm;
static int rounds = 60;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
static float *floats(size_t n) {
  size_t size = (n * sizeof(float) + (2u << 20) - 1) / (2u << 20) * (2u << 20);
  float *p = aligned_alloc(2u << 20, size);
  if (!p) exit(3);
  madvise(p, size, MADV_HUGEPAGE);
  for (size_t i = 0; i < n; i++) p[i] = (float)(i * 2654435761u >> 8 & 1023) / 1024 - 0.5f;
  return p;
}

/* ---- what is measured ---- */
typedef struct job {
  uint32_t m, n, k;
  float *x, *w, *y, *packed, *scratch, *dw;
  train_attention a;
  taper_train_ctx c;
} job;

static void run_peak(job *j) {
  volatile float sink = kernels->multiply_adds(20000);
  (void)sink, (void)j;
}
static double flops_peak(const job *j) {
  (void)j;
  return 2.0 * 20000 * 10 * kernels->vl;
}
static void run_rows(job *j) {
  kernels->rows(&j->c, j->y, j->n, j->x, j->k, j->m, j->n, j->k, j->packed, j->w, 0, 0, NULL);
}
static void run_generic(job *j) {
  kernels->generic(TAPER_GEMM_NT, j->m, j->n, j->k, j->x, j->k, j->w, j->k, j->y, j->n, 0, j->scratch);
}
static void run_weight(job *j) {
  kernels->weight(&j->c, j->dw, j->y, j->n, j->x, j->k, j->m, j->n, j->k, 0, j->scratch, 0, 1);
}
static void run_library(job *j) { sgemm('N', 'T', j->m, j->n, j->k, 1, j->x, j->k, j->w, j->k, 0, j->y, j->n); }
static void run_library_weight(job *j) { sgemm('T', 'N', j->n, j->k, j->m, 1, j->y, j->n, j->x, j->k, 0, j->dw, j->k); }
static double flops_gemm(const job *j) { return 2.0 * j->m * j->n * j->k; }

static void run_attention(job *j) {
  kernels->attention(&j->c, &j->a, j->y, j->n, j->x, j->k, j->x + j->n, j->k, j->x + 2 * j->n, j->k, NULL, 0, NULL, 0);
}
static void run_attention_back(job *j) {
  kernels->attention(&j->c, &j->a, NULL, 0, j->x, j->k, j->x + j->n, j->k, j->x + 2 * j->n, j->k, j->y, j->n, j->dw,
                     j->k);
}
/* Of the lower triangle alone: what has to be computed. */
static double flops_attention(const job *j) {
  double pairs = (double)j->c.batch * j->a.kv_heads * j->a.group * j->c.time * (j->c.time + 1) / 2;
  return pairs * 2 * (j->a.key_dim + j->a.value_dim);
}
static double flops_attention_back(const job *j) { return flops_attention(j) * 2.5; }

typedef struct column {
  const char *name;
  void (*run)(job *j);
  double (*flops)(const job *j);
} column;

/* GFLOP/s of each column. */
static void measure(const column *columns, size_t count, job *j, double *best) {
  uint32_t times[8];
  for (size_t i = 0; i < count; i++) {
    best[i] = 0;
    columns[i].run(j);
    double start = now();
    columns[i].run(j);
    times[i] = (uint32_t)(SLICE / (now() - start)) + 1;
  }
  for (int r = 0; r < rounds; r++)
    for (size_t i = 0; i < count; i++) {
      double start = now();
      for (uint32_t t = 0; t < times[i]; t++) columns[i].run(j);
      double rate = columns[i].flops(j) * times[i] / (now() - start) / 1e9;
      if (rate > best[i]) best[i] = rate;
    }
}
static void print_row(const char *what, const double *best, size_t count) {
  printf("| %s | %.0f |", what, best[0]);
  for (size_t i = 1; i < count; i++) printf(" %.0f %% |", 100 * best[i] / best[0]);
  printf("\n");
  fflush(stdout);
}

static void products(void) {
  static const column rows_columns[] = {{"peak", run_peak, flops_peak},
                                        {"packed", run_rows, flops_gemm},
                                        {"on the fly", run_generic, flops_gemm},
                                        {"oneDNN", run_library, flops_gemm}};
  static const column weight_columns[] = {{"peak", run_peak, flops_peak},
                                          {"generated", run_weight, flops_gemm},
                                          {"oneDNN", run_library_weight, flops_gemm}};
  static const uint32_t sizes[][2] = {{384, 384}, {1152, 384}, {1536, 384}, {384, 1536}, {4096, 384}, {384, 4096},
                                      {64, 64},   {176, 64},   {64, 176},   {257, 64},   {20, 20}};
  static const uint32_t ms[] = {64, 256, 2048};
  for (int weight = 0; weight < 2; weight++) {
    const size_t count = (weight ? COUNT(weight_columns) : COUNT(rows_columns)) - (sgemm ? 0 : 1);
    printf(weight
               ? "\n| gradient of a weight: rows, out x in | peak, GFLOP/s | generated | oneDNN |\n|---|---|---|---|\n"
               : "| rows, out x in | peak, GFLOP/s | packed | on the fly | oneDNN |\n|---|---|---|---|---|\n");
    for (size_t s = 0; s < COUNT(sizes); s++)
      for (size_t i = weight ? 2 : 0; i < (weight ? 3 : 2); i++) {
        job j = {.m = ms[i], .n = sizes[s][0], .k = sizes[s][1]};
        j.x = floats((size_t)j.m * j.k), j.w = floats((size_t)j.n * j.k), j.y = floats((size_t)j.m * j.n);
        j.packed = floats(kernels->packed_floats(j.n, j.k)), j.scratch = floats(kernels->gemm_scratch);
        j.dw = floats((size_t)j.n * j.k);
        kernels->pack(j.packed, j.w, j.n, j.k, 0, 0, kernels->panels(j.n));
        double best[8];
        char what[64];
        measure(weight ? weight_columns : rows_columns, count, &j, best);
        snprintf(what, sizeof what, "%u, %u x %u", j.m, j.n, j.k);
        print_row(what, best, count);
        free(j.x), free(j.w), free(j.y), free(j.packed), free(j.scratch), free(j.dw);
      }
  }
}

static void attention(void) {
  static const column columns[] = {{"peak", run_peak, flops_peak},
                                   {"forward", run_attention, flops_attention},
                                   {"backward", run_attention_back, flops_attention_back}};
  static const uint32_t shapes[][4] = {/* time, heads, group, dim */ {128, 4, 1, 16},
                                       {256, 6, 1, 64},
                                       {256, 2, 3, 64},
                                       {1024, 6, 1, 64},
                                       {512, 16, 1, 16},
                                       {512, 4, 1, 128}};
  printf("\n| attention: time, key heads x group, head dim (of the triangle alone) | peak, GFLOP/s | forward | "
         "backward |\n|---|---|---|---|\n");
  for (size_t s = 0; s < COUNT(shapes); s++) {
    uint32_t time = shapes[s][0], kv = shapes[s][1], group = shapes[s][2], dim = shapes[s][3];
    job j = {.m = time, .n = kv * group * dim, .k = 3 * kv * group * dim};
    j.a = (train_attention){group, kv, dim, dim, 0, 1 / sqrtf((float)dim), 0};
    j.x = floats((size_t)time * j.k), j.y = floats((size_t)time * j.n), j.dw = floats((size_t)time * j.k);
    j.scratch = floats(kernels->attention_floats(&j.a, time, true));
    j.c = (taper_train_ctx){.workers = 1, .batch = 1, .time = time, .rows = time, .scratch = j.scratch};
    double best[8];
    char what[64];
    measure(columns, COUNT(columns), &j, best);
    snprintf(what, sizeof what, "%u, %u x %u, %u", time, kv, group, dim);
    print_row(what, best, COUNT(columns));
    free(j.x), free(j.y), free(j.dw), free(j.scratch);
  }
}

/* Bytes a second of the update, beside a loop that only moves as much. */
static void updates(void) {
  const size_t n = 12u << 20;
  float *p = floats(n), *g = floats(n), *m = floats(n), *v = floats(n);
  const taper_train_adamw a = {1e-4f, 0.9f, 0.95f, 1e-8f, 0.1f, 1, 0.5f, 0.5f};
  double best[3] = {0};
  volatile double sink;
  for (size_t i = 0; i < n; i++) v[i] = 0.25f;
  for (int r = 0; r < rounds * 2; r++) {
    double start = now(), rate;
    kernels->adamw(p, g, m, v, 0, n, &a);
    if ((rate = 28e-9 * (double)n / (now() - start)) > best[0]) best[0] = rate;
    start = now();
    for (size_t i = 0; i < n; i++) p[i] += g[i], m[i] += g[i], v[i] += g[i];
    if ((rate = 28e-9 * (double)n / (now() - start)) > best[1]) best[1] = rate;
    start = now();
    sink = kernels->sum_squares(g, 0, n);
    if ((rate = 4e-9 * (double)n / (now() - start)) > best[2]) best[2] = rate;
  }
  (void)sink;
  printf("\nAdamW of 12.6M parameters: %.1f GB/s; the same traffic alone: %.1f GB/s; sum of squares: %.1f GB/s\n",
         best[0], best[1], best[2]);
  free(p), free(g), free(m), free(v);
}

int main(int argc, char **argv) {
  static const train_kernels *const builds[] = {&train_kernels_v2, &train_kernels_v3, &train_kernels_v4};
  const char *want = argc > 2                            ? argv[2]
                     : __builtin_cpu_supports("avx512f") ? "v4"
                     : __builtin_cpu_supports("avx2")    ? "v3"
                                                         : "v2";
  if (argc > 1) rounds = atoi(argv[1]);
  for (size_t i = 0; i < COUNT(builds); i++)
    if (strcmp(builds[i]->name, want) == 0) kernels = builds[i];
  if (!kernels || rounds < 1) return fprintf(stderr, "kernels [ROUNDS [v2|v3|v4]]\n"), 2;
  setenv("OMP_NUM_THREADS", "1", 1);
  void *library = dlopen("libdnnl.so.2", RTLD_NOW);
  if (!library) library = dlopen("libdnnl.so.3", RTLD_NOW);
  if (library) *(void **)&sgemm = dlsym(library, "dnnl_sgemm");
  printf("kernels for %s, one thread, best of %d rounds\n\n", kernels->name, rounds);
  products();
  attention();
  updates();
  return 0;
}
