/* Seeded bugs that the interpreter must catch, each with its kind, and correct kernels that it must let pass, whatever the order of
   blocks and the number of workers. */
#include "tests/unit/ptx_run.h"

typedef struct expectation {
  const char *kernel;
  sim_fault_kind kind; /* SIM_NO_FAULT: it must pass */
  const char *words;   /* in the message */
  uint32_t blocks, dynamic_shared;
  bool cooperative, unwritten;
} expectation;

static const expectation expectations[] = {
    {"bad_end", SIM_OUT_OF_BOUNDS, "byte 1024 of an allocation of 1024", .blocks = 1},
    {"bad_begin", SIM_OUT_OF_BOUNDS, "thread 0,0,0", .blocks = 1},
    {"bad_null", SIM_OUT_OF_BOUNDS, "at 0x0", .blocks = 1},
    {"bad_aligned", SIM_MISALIGNED, "16 bytes", .blocks = 1},
    {"bad_shared_end", SIM_OUT_OF_BOUNDS, "thread 250,0,0", .blocks = 1, .dynamic_shared = 1000},
    {"bad_shared_begin", SIM_OUT_OF_BOUNDS, "byte -4", .blocks = 1},
    {"bad_shared_aligned", SIM_MISALIGNED, "8 bytes", .blocks = 1},
    {"bad_local", SIM_OUT_OF_BOUNDS, "local memory", .blocks = 1},
    {"bad_unwritten", SIM_UNWRITTEN_MEMORY, "byte 0 of an allocation", .blocks = 1, .unwritten = true},
    {"bad_unwritten_shared", SIM_UNWRITTEN_MEMORY, "shared memory", .blocks = 1},
    {"bad_unwritten_local", SIM_UNWRITTEN_MEMORY, "local memory", .blocks = 1},
    {"bad_no_barrier", SIM_SHARED_RACE, "faults.cu:", .blocks = 1},
    {"bad_barrier_after_loop", SIM_SHARED_RACE, "faults.cu:", .blocks = 1},
    {"fine_barrier_after_loop", SIM_NO_FAULT, "", .blocks = 1},
    {"bad_two_write", SIM_SHARED_RACE, "thread 0 wrote it", .blocks = 1},
    {"fine_same_value", SIM_NO_FAULT, "", .blocks = 1},
    {"bad_no_syncwarp", SIM_SHARED_RACE, "thread 1 wrote it", .blocks = 1},
    {"fine_syncwarp", SIM_NO_FAULT, "", .blocks = 1},
    {"fine_part_syncwarp", SIM_NO_FAULT, "", .blocks = 1},
    {"bad_part_syncwarp", SIM_SHARED_RACE, "faults.cu:", .blocks = 1},
    {"fine_halves", SIM_NO_FAULT, "", .blocks = 1},
    {"fine_shared_atomics", SIM_NO_FAULT, "", .blocks = 1},
    {"bad_shared_atomics", SIM_SHARED_RACE, "wrote it", .blocks = 1},
    {"fine_named", SIM_NO_FAULT, "", .blocks = 1},
    {"bad_named", SIM_DIVERGENT_BARRIER, "faults.cu:", .blocks = 1},
    {"bad_two_barriers", SIM_DIVERGENT_BARRIER, "others of the block wait", .blocks = 1},
    {"bad_part_barrier", SIM_DIVERGENT_BARRIER, "do not come", .blocks = 1},
    {"bad_shuffle", SIM_ABSENT_LANES, "aaaaaaaa", .blocks = 1},
    {"bad_shuffle_outside", SIM_ABSENT_LANES, "not in the member mask", .blocks = 1},
    {"bad_not_member", SIM_ABSENT_LANES, "member mask 0000ffff", .blocks = 1},
    {"bad_ended_lanes", SIM_ABSENT_LANES, "03ffffff", .blocks = 1},
    {"fine_shuffle", SIM_NO_FAULT, "", .blocks = 1},
    {"bad_no_wait", SIM_UNWAITED_COPY, "cp.async.wait_group", .blocks = 1},
    {"bad_wait_too_few", SIM_UNWAITED_COPY, "cp.async.wait_group", .blocks = 1},
    {"fine_wait", SIM_NO_FAULT, "", .blocks = 1},
    {"bad_wait_no_barrier", SIM_SHARED_RACE, "wrote it", .blocks = 1},
    {"bad_blocks", SIM_GLOBAL_RACE, "block", .blocks = 8},
    {"bad_blocks_read", SIM_GLOBAL_RACE, "block", .blocks = 8},
    {"bad_read_only", SIM_READ_ONLY, "ld.global.nc", .blocks = 1},
    {"fine_last_block", SIM_NO_FAULT, "", .blocks = 8},
    {"bad_last_block", SIM_GLOBAL_RACE, "wrote it", .blocks = 8},
    {"bad_last_block_late", SIM_GLOBAL_RACE, "wrote it", .blocks = 8},
    {"fine_grid_barrier", SIM_NO_FAULT, "", .blocks = 8, .cooperative = true},
    {"bad_spin", SIM_SPIN, "block", .blocks = 8},
    {"bad_trap", SIM_TRAP, "thread 77,0,0", .blocks = 1},
};
#define EXPECTATIONS (sizeof(expectations) / sizeof(expectations[0]))

typedef struct fault_parameters {
  uint64_t x, y, c;
  int32_t n;
} fault_parameters;

static void run_one(const sim_module *m, const expectation *e, uint32_t threads, uint64_t seed) {
  float x[1024];
  uint32_t c[16] = {0};
  for (int k = 0; k < 1024; k++) x[k] = (float)k;
  const bool short_end = strcmp(e->kernel, "bad_end") == 0;
  const fault_parameters p = {ptx_buffer(x, sizeof(x)),
                              ptx_buffer(e->unwritten ? NULL : x, short_end ? 1024 : sizeof(x)),
                              ptx_buffer(c, sizeof(c)), strcmp(e->kernel, "bad_blocks_read") == 0 ? 512 : 256};
  sim_launch l = ptx_launch(m, e->kernel, e->blocks, 256, &p);
  l.threads = threads;
  l.seed = seed;
  l.dynamic_shared = e->dynamic_shared;
  l.cooperative = e->cooperative;
  sim_fault fault = {0};
  const bool ok = sim_launch_run(&l, NULL, &fault);
  if (ok != (e->kind == SIM_NO_FAULT))
    fail_msg("%s, seed %u: %s", e->kernel, (unsigned)seed, ok ? "not caught" : fault.text);
  if (ok) return;
  /* with other orders it may be another thread, or the other side of a race, that is caught */
  if (fault.kind != e->kind || (!seed && threads == 1 && !strstr(fault.text, e->words)))
    fail_msg("%s: '%s', not '%s' of kind %s", e->kernel, fault.text, e->words, sim_fault_name(e->kind));
  assert_string_equal(fault.kernel, e->kernel);
  if (!seed && threads == 1) assert_non_null(strstr(fault.text, "faults.cu:"));
}

static void caught_and_let_pass(void **state) {
  (void)state;
  sim_module *m = ptx_load("faults");
  for (size_t k = 0; k < EXPECTATIONS; k++)
    for (uint64_t seed = 0; seed < (expectations[k].kind == SIM_SPIN ? 2 : 4); seed++)
      run_one(m, &expectations[k], 1 + (uint32_t)(seed & 1), seed / 2 * 77);
  for (size_t k = 0; sim_module_kernel(m, k); k++) { /* none is forgotten */
    const char *name = sim_facts(sim_module_kernel(m, k))->name;
    size_t found = 0;
    for (size_t j = 0; j < EXPECTATIONS; j++) found += strcmp(expectations[j].kernel, name) == 0;
    if (!found) fail_msg("%s has no expectation", name);
  }
  sim_module_unload(m);
}

static void results_of_correct_ones(void **state) {
  (void)state;
  sim_module *m = ptx_load("faults");
  float x[1024];
  uint32_t c[16] = {0};
  for (int k = 0; k < 1024; k++) x[k] = (float)(k % 7);
  for (uint64_t seed = 0; seed < 3; seed++) {
    const fault_parameters p = {ptx_buffer(x, sizeof(x)), ptx_buffer(x, sizeof(x)), ptx_buffer(c, sizeof(c)), 256};
    sim_launch l = ptx_launch(m, "fine_last_block", 8, 256, &p);
    l.seed = seed;
    sim_counters counters = {0};
    ptx_run(&l, &counters);
    const float *y = ptx_data(p.y);
    for (int t = 0; t < 64; t++) assert_true(y[t] == 28 * x[t]);
    assert_int_equal(*(uint32_t *)ptx_data(p.c), 0);
    assert_int_equal(counters.atomics, 8);
    l = ptx_launch(m, "fine_wait", 1, 256, &p);
    ptx_run(&l, NULL);
    for (int t = 0; t < 256; t++) assert_true(y[t] == 2 * x[t]);
  }
  sim_module_unload(m);
}

static void refused_launches(void **state) {
  (void)state;
  sim_module *m = ptx_load("faults");
  const fault_parameters p = {0};
  static const struct {
    uint32_t grid, block, dynamic_shared, limit;
    int less;
    const char *words;
  } cases[] = {{1, 0, 0, 0, 0, "0 threads"},      {1, 1025, 0, 0, 0, "1025 threads"},
               {0, 32, 0, 0, 0, "0 blocks"},      {1, 32, 49153, 0, 0, "shared memory"},
               {1, 32, 60000, 50000, 0, "50000"}, {1, 32, 0, 0, 4, "bytes of parameters"}};
  for (size_t k = 0; k < sizeof(cases) / sizeof(cases[0]); k++) {
    sim_launch l = ptx_launch(m, "bad_end", cases[k].grid, cases[k].block, &p);
    l.dynamic_shared = cases[k].dynamic_shared;
    l.shared_limit = cases[k].limit;
    l.parameter_bytes -= (size_t)cases[k].less;
    sim_fault fault;
    assert_false(sim_launch_run(&l, NULL, &fault));
    assert_int_equal(fault.kind, SIM_BAD_LAUNCH);
    if (!strstr(fault.text, cases[k].words)) fail_msg("%s", fault.text);
  }
  sim_module_unload(m);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(caught_and_let_pass), cmocka_unit_test(results_of_correct_ones),
                                     cmocka_unit_test(refused_launches)};
  return cmocka_run_group_tests(tests, ptx_setup, ptx_teardown);
}
