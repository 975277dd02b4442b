#include "runtime/bench.h"
#include "runtime/device_cpu.h"
#include "runtime/model.h"
#include <string.h>
#include <time.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

typedef struct bench_job {
  const float *data;
  uint64_t floats;
  uint32_t parts;
  float sums[POOL_MAX_THREADS];
} bench_job;

static double seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static float read_plain(const float *v, uint64_t n) {
  float s[16] = {0};
  for (uint64_t i = 0; i + 16 <= n; i += 16) {
    for (int k = 0; k < 16; k++) s[k] += v[i + (uint64_t)k];
  }
  return s[0] + s[7];
}

static float fma_plain(uint64_t rounds) {
  float s[16] = {0};
  for (uint64_t i = 0; i < rounds; i++) {
    for (int k = 0; k < 16; k++) s[k] = s[k] * 0.5f + 1.0f;
  }
  return s[0] + s[15];
}

enum { FMA_ROUNDS = 1 << 16 };

#if defined(__x86_64__)
__attribute__((target("avx512f"))) static float read_avx512(const float *v, uint64_t n) {
  __m512 s[8];
  for (int k = 0; k < 8; k++) s[k] = _mm512_setzero_ps();
  for (uint64_t i = 0; i + 128 <= n; i += 128) {
#pragma GCC unroll 8
    for (int k = 0; k < 8; k++) s[k] = _mm512_add_ps(s[k], _mm512_loadu_ps(v + i + 16 * k));
  }
  return _mm512_reduce_add_ps(_mm512_add_ps(_mm512_add_ps(_mm512_add_ps(s[0], s[1]), _mm512_add_ps(s[2], s[3])),
                                            _mm512_add_ps(_mm512_add_ps(s[4], s[5]), _mm512_add_ps(s[6], s[7]))));
}

__attribute__((target("avx512f"))) static float fma_avx512(uint64_t rounds) {
  __m512 s[12], a = _mm512_set1_ps(0.5f), b = _mm512_set1_ps(1.0f);
#pragma GCC unroll 12
  for (int k = 0; k < 12; k++) s[k] = _mm512_set1_ps((float)k);
  for (uint64_t i = 0; i < rounds; i++) {
#pragma GCC unroll 12
    for (int k = 0; k < 12; k++) s[k] = _mm512_fmadd_ps(s[k], a, b);
  }
  __m512 total = s[0];
#pragma GCC unroll 12
  for (int k = 1; k < 12; k++) total = _mm512_add_ps(total, s[k]);
  return _mm512_reduce_add_ps(total);
}

__attribute__((target("avx2,fma"))) static float read_avx2(const float *v, uint64_t n) {
  __m256 s[8];
  for (int k = 0; k < 8; k++) s[k] = _mm256_setzero_ps();
  for (uint64_t i = 0; i + 64 <= n; i += 64) {
#pragma GCC unroll 8
    for (int k = 0; k < 8; k++) s[k] = _mm256_add_ps(s[k], _mm256_loadu_ps(v + i + 8 * k));
  }
  float out[8];
  for (int k = 1; k < 8; k++) s[0] = _mm256_add_ps(s[0], s[k]);
  _mm256_storeu_ps(out, s[0]);
  return out[0] + out[7];
}

__attribute__((target("avx2,fma"))) static float fma_avx2(uint64_t rounds) {
  __m256 s[12], a = _mm256_set1_ps(0.5f), b = _mm256_set1_ps(1.0f);
#pragma GCC unroll 12
  for (int k = 0; k < 12; k++) s[k] = _mm256_set1_ps((float)k);
  for (uint64_t i = 0; i < rounds; i++) {
#pragma GCC unroll 12
    for (int k = 0; k < 12; k++) s[k] = _mm256_fmadd_ps(s[k], a, b);
  }
  float out[8];
#pragma GCC unroll 12
  for (int k = 1; k < 12; k++) s[0] = _mm256_add_ps(s[0], s[k]);
  _mm256_storeu_ps(out, s[0]);
  return out[0] + out[7];
}
#endif

typedef struct bench_kernels {
  float (*read)(const float *v, uint64_t n);
  float (*fma)(uint64_t rounds);
  double flops_a_round;
} bench_kernels;

static const bench_kernels *kernels(void) {
  static const bench_kernels plain = {read_plain, fma_plain, 32};
#if defined(__x86_64__)
  static const bench_kernels avx512 = {read_avx512, fma_avx512, 12 * 32}, avx2 = {read_avx2, fma_avx2, 12 * 16};
  if (package_cpu_has("avx512f")) return &avx512;
  if (package_cpu_has("avx2") && package_cpu_has("fma")) return &avx2;
#endif
  return &plain;
}

static void read_part(void *arg, uint32_t stage, uint32_t part) {
  (void)stage;
  bench_job *job = arg;
  uint64_t first, end;
  pool_range(job->floats / 128, part, job->parts, &first, &end);
  job->sums[part] = kernels()->read(job->data + first * 128, (end - first) * 128);
}

static void fma_part(void *arg, uint32_t stage, uint32_t part) {
  (void)stage;
  ((bench_job *)arg)->sums[part] = kernels()->fma(FMA_ROUNDS);
}

static void empty_part(void *arg, uint32_t stage, uint32_t part) { (void)arg, (void)stage, (void)part; }

/* Seconds a stage takes, from as many stages as some 50 ms hold. */
static double stage_seconds(taper_model *m, bench_job *job, void (*part)(void *, uint32_t, uint32_t)) {
  pool *workers = device_cpu_pool(m->device);
  job->parts = pool_threads(workers);
  double took = 0;
  uint32_t stages = 1;
  pool_lock(workers);
  pool_run(workers, &(pool_job){.part = part, .arg = job, .stages = 1}); /* warm */
  for (; stages < 1u << 24; stages *= 2) {
    double begin = seconds();
    pool_run(workers, &(pool_job){.part = part, .arg = job, .stages = stages});
    took = seconds() - begin;
    if (took > 0.025) break;
  }
  pool_unlock(workers);
  return took / stages;
}

taper_status bench_read(taper_model *m, uint64_t bytes, double *out_gb_s, taper_error *error) {
  if (bytes == 0) bytes = m->device->facts.weight_bytes;
  if (bytes < 4096) bytes = 4096;
  bench_job job = {.floats = bytes / sizeof(float) / 128 * 128};
  bytes = job.floats * sizeof(float);
  float *data = memory_alloc(&m->allocator, bytes, bytes >= MEMORY_HUGE ? MEMORY_HUGE : MEMORY_LINE);
  if (!data) return memory_exhausted(error, "the buffer that is read", bytes);
  memory_advise_huge(data, bytes);
  for (uint64_t i = 0; i < job.floats; i++) data[i] = 1;
  job.data = data;
  *out_gb_s = (double)bytes / stage_seconds(m, &job, read_part) * 1e-9;
  memory_free(&m->allocator, data);
  return TAPER_OK;
}

double bench_fma(taper_model *m) {
  bench_job job = {0};
  double took = stage_seconds(m, &job, fma_part);
  return kernels()->flops_a_round * FMA_ROUNDS * job.parts / took * 1e-9;
}

double bench_barrier(taper_model *m) {
  bench_job job = {0};
  return stage_seconds(m, &job, empty_part) * 1e6;
}

bool bench_is_cpu(const taper_model *m) { return m->device->ops == &device_cpu; }

uint32_t bench_count(taper_model *m, bench_traffic out[BENCH_KERNELS]) {
  device_traffic t[BENCH_KERNELS] = {0};
  out[0] = (bench_traffic){0};
  if (!m->device->ops->traffic) return 0;
  const uint32_t count = m->device->ops->traffic(m->device, t, BENCH_KERNELS);
  for (uint32_t i = 0; i < count; i++) {
    out[i] = (bench_traffic){.launches = t[i].launches,
                             .blocks = t[i].blocks,
                             .instructions = t[i].instructions,
                             .bytes = t[i].bytes,
                             .sectors = t[i].sectors,
                             .weight_bytes = t[i].weight_bytes,
                             .weight_sectors = t[i].weight_sectors};
    memcpy(out[i].kernel, t[i].kernel, sizeof(out[i].kernel));
  }
  return count;
}
