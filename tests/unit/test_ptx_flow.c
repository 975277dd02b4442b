/* Control flow of PTX as NVRTC writes it against the same code on the host: divergence, calls, recursion, barriers behind loops. */
#include "tests/sim/flow.h"
#include "tests/unit/ptx_run.h"

typedef struct flow_parameters {
  uint64_t out;
  uint32_t seed;
} flow_parameters;
#define FLOW_BYTES 12 /* of it, without the padding at its end */

static uint32_t *run_flow(sim_module *m, const char *kernel, uint32_t blocks, uint32_t threads, uint32_t seed,
                          uint64_t order) {
  const uint32_t n = blocks * threads;
  uint32_t *zeros = calloc(n, sizeof(*zeros));
  const flow_parameters p = {ptx_buffer(zeros, n * sizeof(*zeros)), seed};
  free(zeros);
  sim_launch l = ptx_launch(m, kernel, blocks, threads, &p);
  assert_int_equal(l.parameter_bytes, FLOW_BYTES);
  l.seed = order;
  ptx_run(&l, NULL);
  return ptx_data(p.out);
}

static void divergence(void **state) {
  (void)state;
  sim_module *m = ptx_load("flow");
  static const uint32_t threads[] = {1, 20, 32, 64, 257, 1024};
  for (uint32_t k = 0; k < 6; k++) {
    const uint32_t seed = 12345 + 77 * k, n = threads[k] * 3;
    const uint32_t *got = run_flow(m, "some", 3, threads[k], seed, k);
    for (uint32_t t = 0; t < n; t++) assert_int_equal(got[t], flow_some(seed, t));
  }
  sim_module_unload(m);
}

static uint32_t calls_of(uint32_t t, uint32_t seed) {
  struct flow_pair p = {t * seed, seed};
  uint32_t r = 0;
  if (t % 3) p = flow_mix(p, (unsigned char)t);
  if (t % 5 != 1) r = flow_fib(t % 11);
  p = flow_mix(p, (unsigned char)(t + seed));
  return r + p.low + (uint32_t)(p.high >> 16) + (uint32_t)flow_frames((int)(t % 6), (int)((t * seed) & 255));
}

static void functions(void **state) {
  (void)state;
  sim_module *m = ptx_load("flow");
  for (uint32_t seed = 3; seed < 300; seed += 98) {
    const uint32_t *got = run_flow(m, "calls", 2, 40, seed, 0);
    for (uint32_t t = 0; t < 80; t++) assert_int_equal(got[t], calls_of(t, seed));
  }
  sim_module_unload(m);
}

static uint32_t leave_of(uint32_t t, uint32_t seed) {
  uint32_t x = seed ^ t * 2246822519u, n = 0;
  for (;;) {
    x = x * 1664525u + 1013904223u;
    if ((x >> 24) < 16) break;
    if (++n > 300) return n;
    for (uint32_t j = x & 3; j; j--) n += (x >> (j + 3)) & 1;
  }
  return n + 1000;
}

static void loops_before_barriers(void **state) {
  (void)state;
  sim_module *m = ptx_load("flow");
  const uint32_t *got = run_flow(m, "leave", 2, 128, 99, 5);
  for (uint32_t t = 0; t < 128; t++) {
    const uint32_t want = leave_of((t * 37 + 5) & 127, 99) + leave_of(t, 99) * 7;
    assert_int_equal(got[t], want);
    assert_int_equal(got[128 + t], want);
  }
  sim_module_unload(m);
}

static uint32_t table_of(uint32_t t, uint32_t seed) {
  uint32_t x = t * 40503u + seed, s = 0;
  for (uint32_t i = 0; i < 20; i++) {
    x = x * 1664525u + 1013904223u;
    switch (x >> 28) {
    case 0: s += 17; break;
    case 1: s ^= x; break;
    case 2: s = s << 3 | s >> 29; break;
    case 3: s *= 31; break;
    case 4: s -= x >> 3; break;
    case 5: s += (uint32_t)__builtin_popcount(x); break;
    case 6: s ^= s >> 7; break;
    case 7: s += i * i; break;
    case 8: s = ~s; break;
    case 9: s += x & 0xff00; break;
    case 10: s ^= x * s; break;
    case 11: s += 3; break;
    default: s++;
    }
  }
  return s;
}

static void switches(void **state) {
  (void)state;
  sim_module *m = ptx_load("flow");
  const uint32_t *got = run_flow(m, "table", 3, 97, 4711, 0);
  for (uint32_t t = 0; t < 3 * 97; t++) assert_int_equal(got[t], table_of(t, 4711));
  sim_module_unload(m);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(divergence), cmocka_unit_test(functions),
                                     cmocka_unit_test(loops_before_barriers), cmocka_unit_test(switches)};
  return cmocka_run_group_tests(tests, ptx_setup, ptx_teardown);
}
