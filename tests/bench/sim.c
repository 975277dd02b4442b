/* How many instructions of a warp the interpreter of PTX executes in a second. Run from the root of the sources: build/release/tests/bench/sim [threads] */
#include "cuda/sim/sim.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static sim_memory *memory;

static uint64_t buffer(size_t count) {
  const uint64_t a = sim_memory_alloc(memory, count * 4);
  sim_span s;
  if (!a || !sim_memory_find(memory, a, count * 4, &s)) exit(1);
  for (size_t i = 0; i < count; i++) {
    const float v = (float)(int)(i * 2654435761u >> 20) * 1e-4f;
    memcpy(s.data + 4 * i, &v, 4);
  }
  sim_memory_mark(memory, a, count * 4, true);
  return a;
}

/* Of the clock on the wall, or of the processors that this program had. */
static double now(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void measure(const char *name, const sim_launch *launch) {
  double best = 0, best_cpu = 0;
  sim_counters c = {0};
  for (int k = 0; k < 5; k++) {
    sim_fault fault;
    c = (sim_counters){0};
    const double begin = now(CLOCK_MONOTONIC), begin_cpu = now(CLOCK_PROCESS_CPUTIME_ID);
    if (!sim_launch_run(launch, &c, &fault)) {
      fprintf(stderr, "%s\n", fault.text);
      exit(1);
    }
    const double rate = (double)c.warp_instructions / (now(CLOCK_MONOTONIC) - begin);
    const double cpu = (double)c.warp_instructions / (now(CLOCK_PROCESS_CPUTIME_ID) - begin_cpu);
    best = rate > best ? rate : best;
    best_cpu = cpu > best_cpu ? cpu : best_cpu;
  }
  printf("%-8s %9llu instructions, %5.1f million a second, %5.1f of processor time; %.1f bytes of each sector read\n",
         name, (unsigned long long)c.warp_instructions, best / 1e6, best_cpu / 1e6,
         c.global.read_sectors ? (double)c.global.read_bytes / (double)c.global.read_sectors : 0);
}

int main(int argc, char **argv) {
  const uint32_t threads = argc > 1 ? (uint32_t)atoi(argv[1]) : 2;
  static char text[1 << 16];
  FILE *f = fopen("tests/sim/gemv.ptx", "rb");
  sim_module *m;
  taper_error error;
  memory = sim_memory_new((uint64_t)1 << 30);
  if (!f || !memory || !fread(text, 1, sizeof(text) - 1, f)) return 1;
  fclose(f);
  if (sim_module_load(text, sizeof(text), "gemv.ptx", memory, &m, &error) != TAPER_OK) {
    fprintf(stderr, "%s\n", error.message);
    return 1;
  }
  const struct {
    uint64_t w, x, y;
    int32_t rows, columns;
  } p = {buffer(1024 * 1024), buffer(8 * 1024), buffer(8 * 1024), 1024, 1024};
  const struct {
    uint64_t a, b, y;
    int32_t n;
  } q = {buffer(128 * 128), buffer(128 * 128), buffer(128 * 128), 128};
  sim_launch l = {.kernel = sim_module_find(m, "gemv"),
                  .grid = {128, 1, 1},
                  .block = {256, 1, 1},
                  .parameters = &p,
                  .parameter_bytes = 32,
                  .memory = memory,
                  .threads = threads};
  measure("gemv", &l);
  l.kernel = sim_module_find(m, "gemm8");
  l.block[0] = 128;
  measure("gemm8", &l);
  l = (sim_launch){.kernel = sim_module_find(m, "tile"),
                   .grid = {8, 8, 1},
                   .block = {256, 1, 1},
                   .parameters = &q,
                   .parameter_bytes = 28,
                   .memory = memory,
                   .threads = threads};
  measure("tile", &l);
  sim_module_unload(m);
  sim_memory_free(memory);
  return 0;
}
