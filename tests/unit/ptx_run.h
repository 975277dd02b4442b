/* ptx_run.h - loads PTX of tests/sim and runs its kernels on buffers. */
#ifndef TEST_PTX_RUN_H
#define TEST_PTX_RUN_H

#include "cuda/sim/sim.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
// cmocka needs the headers above first
#include <cmocka.h>

static sim_memory *memory;

static int ptx_setup(void **state) {
  (void)state;
  memory = sim_memory_new((uint64_t)1 << 30);
  return memory ? 0 : -1;
}
static int ptx_teardown(void **state) {
  (void)state;
  sim_memory_free(memory);
  return 0;
}

static char *ptx_text(const char *path) {
  FILE *f = fopen(path, "rb");
  if (!f) fail_msg("%s: not there", path);
  fseek(f, 0, SEEK_END);
  const size_t size = (size_t)ftell(f);
  rewind(f);
  char *text = malloc(size + 1);
  if (fread(text, 1, size, f) != size) fail_msg("%s: cannot be read", path);
  text[size] = 0;
  fclose(f);
  return text;
}

static inline sim_module *ptx_from(const char *text, const char *name) {
  sim_module *m;
  taper_error error;
  if (sim_module_load(text, strlen(text) + 1, name, memory, &m, &error) != TAPER_OK) fail_msg("%s", error.message);
  return m;
}

static inline sim_module *ptx_load(const char *name) {
  char path[256];
  const char *folder = getenv("TEST_PTX_DIR"); /* of another NVRTC or arch */
  snprintf(path, sizeof(path), "%.180s/%s.ptx", folder ? folder : "tests/sim", name);
  char *text = ptx_text(path);
  sim_module *m = ptx_from(text, path);
  free(text);
  return m;
}

/* Device memory with these bytes; data NULL: never written. */
static inline uint64_t ptx_buffer(const void *data, size_t bytes) {
  const uint64_t a = sim_memory_alloc(memory, bytes);
  sim_span s;
  assert_true(a != 0 && sim_memory_find(memory, a, bytes, &s));
  if (data) {
    memcpy(s.data, data, bytes);
    sim_memory_mark(memory, a, bytes, true);
  }
  return a;
}
static inline void *ptx_data(uint64_t address) {
  sim_span s;
  assert_true(sim_memory_find(memory, address, 1, &s));
  return s.data;
}

/* A launch of a kernel whose parameters are `parameters`. */
static inline sim_launch ptx_launch(const sim_module *m, const char *kernel, uint32_t blocks, uint32_t threads,
                                    const void *parameters) {
  const sim_kernel *k = sim_module_find(m, kernel);
  if (!k) fail_msg("no kernel %s", kernel);
  return (sim_launch){.kernel = k,
                      .grid = {blocks, 1, 1},
                      .block = {threads, 1, 1},
                      .parameters = parameters,
                      .parameter_bytes = sim_facts(k)->parameter_bytes,
                      .memory = memory,
                      .budget = 4000000,
                      .threads = 2};
}
static inline void ptx_run(const sim_launch *launch, sim_counters *counters) {
  sim_fault fault;
  if (!sim_launch_run(launch, counters, &fault)) fail_msg("%s", fault.text);
}

#endif
