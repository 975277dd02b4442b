/* Workers: every part of every stage once and in order, whatever the number of threads and CPUs. */
#include "runtime/pace.h"
#include "runtime/pool.h"
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
// cmocka needs the headers above first
#include <cmocka.h>

enum { STAGES = 50, MOST = 32 };

typedef struct tally {
  pool *p;
  int runs[STAGES][MOST]; /* plain ints: a data race is a fault */
  int after[STAGES];
  int wrong;
  _Atomic int busy; /* parts of one stage run at once: only a counter may be shared */
  struct timespec nap;
} tally;

static void count_part(void *arg, uint32_t stage, uint32_t part) {
  tally *t = arg;
  if (stage > 0 && t->after[stage - 1] != 1) atomic_fetch_add(&t->busy, 1000000);
  for (uint32_t k = 0; stage > 0 && k < pool_threads(t->p); k++) {
    if (t->runs[stage - 1][k] != 1) atomic_fetch_add(&t->busy, 1000000);
  }
  t->runs[stage][part]++;
  if (t->nap.tv_nsec && part == 1) nanosleep(&t->nap, NULL);
}

static void count_after(void *arg, uint32_t stage) {
  tally *t = arg;
  for (uint32_t k = 0; k < pool_threads(t->p); k++) t->wrong += t->runs[stage][k] != 1;
  t->after[stage]++;
}

static pool *new_pool(uint32_t threads, uint32_t spin_us) {
  pool *p;
  taper_error error;
  taper_allocator a = memory_allocator((taper_allocator){0});
  if (pool_new(&(pool_options){.threads = threads, .spin_us = spin_us}, &a, &p, &error) != TAPER_OK)
    fail_msg("%s", error.message);
  return p;
}

static void run_tally(pool *p, long nap_ns) {
  tally t = {.p = p, .nap.tv_nsec = nap_ns};
  pool_lock(p);
  pool_run(p, &(pool_job){.part = count_part, .after = count_after, .arg = &t, .stages = STAGES});
  pool_unlock(p);
  assert_int_equal(t.wrong, 0);
  assert_int_equal(atomic_load(&t.busy), 0);
  for (int s = 0; s < STAGES; s++) assert_int_equal(t.after[s], 1);
}

static void every_part_once_in_order(void **state) {
  (void)state;
  const uint32_t threads[] = {1, 2, 3, 5, 16, 32}, spins[] = {0, 5, 50};
  for (int i = 0; i < 6; i++) {
    for (int k = 0; k < 3; k++) {
      pool *p = new_pool(threads[i], spins[k]);
      for (int round = 0; round < 40; round++) run_tally(p, 0);
      run_tally(p, 200000); /* a slow part: the others sleep */
      pool_free(p);
    }
  }
}

static void pauses_between_jobs(void **state) {
  (void)state;
  pool *p = new_pool(4, 20);
  for (int i = 0; i < 200; i++) {
    run_tally(p, 0);
    usleep((useconds_t)(rand() % 150));
  }
  pool_free(p);
}

static void start_and_stop_at_once(void **state) {
  (void)state;
  for (int i = 0; i < 300; i++) pool_free(new_pool(4, i % 2 ? 0 : 50));
  pool_free(NULL);
}

static void *take_turns(void *arg) {
  for (int i = 0; i < 200; i++) run_tally(arg, 0);
  return NULL;
}

static void callers_take_turns(void **state) {
  (void)state;
  pool *p = new_pool(3, 50);
  pthread_t t[3];
  for (int i = 0; i < 3; i++) pthread_create(&t[i], NULL, take_turns, p);
  for (int i = 0; i < 3; i++) pthread_join(t[i], NULL);
  pool_free(p);
}

static _Atomic int signals_in_worker;
static pthread_t main_thread;
static void on_signal(int number) {
  (void)number;
  if (!pthread_equal(pthread_self(), main_thread)) atomic_fetch_add(&signals_in_worker, 1);
}

static void workers_block_signals(void **state) {
  (void)state;
  main_thread = pthread_self();
  signal(SIGUSR1, on_signal);
  pool *p = new_pool(4, 50);
  sigset_t set, old;
  sigemptyset(&set);
  sigaddset(&set, SIGUSR1);
  pthread_sigmask(SIG_BLOCK, &set, &old); /* only a worker could take it now */
  kill(getpid(), SIGUSR1);
  for (int i = 0; i < 20; i++) run_tally(p, 0);
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  assert_int_equal(atomic_load(&signals_in_worker), 0);
  pool_free(p);
  signal(SIGUSR1, SIG_DFL);
}

/* The workers are not in the child: the caller does their parts. */
static void a_child_computes_alone(void **state) {
  (void)state;
  pool *p = new_pool(4, 50);
  run_tally(p, 0);
  for (int i = 0; i < 20; i++) { /* workers of the parent spin in some rounds, sleep in others */
    usleep((useconds_t)(i % 4 * 100));
    pid_t child = fork();
    if (child == 0) {
      run_tally(p, 0);
      _exit(7);
    }
    int status = 0;
    waitpid(child, &status, 0);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 7);
    run_tally(p, 0);
  }
  pool_free(p);
}

static void ranges_cover_everything(void **state) {
  (void)state;
  for (uint64_t units = 0; units < 40; units++) {
    for (uint32_t parts = 1; parts < 20; parts++) {
      uint64_t at = 0, first, end;
      for (uint32_t i = 0; i < parts; i++, at = end) {
        pool_range(units, i, parts, &first, &end);
        assert_int_equal(first, at);
        assert_in_range(end - first, units / parts, units / parts + 1);
      }
      assert_int_equal(at, units);
    }
  }
}

/* Runs n batches that take `together` or `alone` ns, now and then disturbed; returns how many of the last 1000 ran
 * alone. */
static uint32_t paced(pace *p, uint32_t n, uint64_t together, uint64_t alone) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < n; i++) {
    const bool way = pace_alone(p);
    if (i + 1000 >= n) count += way;
    pace_note(p, (way ? alone : together) + (uint64_t)(rand() % 300) + (rand() % 50 == 0 ? 4000000 : 0));
  }
  return count;
}

static void the_faster_way_is_found(void **state) {
  (void)state;
  srand(5);
  pace p = {0};
  assert_true(paced(&p, 3000, 60000, 100000) < 30);    /* big: together */
  assert_true(paced(&p, 20000, 300000, 100000) > 960); /* somebody took the CPUs */
  assert_true(paced(&p, 20000, 60000, 100000) < 30);
  p = (pace){0};
  assert_true(paced(&p, 3000, 15000, 5000) > 960); /* tiny: alone */
  p = (pace){0};
  assert_true(paced(&p, 3000, 10000, 10000) < 100); /* no difference: no change */
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_part_once_in_order), cmocka_unit_test(pauses_between_jobs),
      cmocka_unit_test(start_and_stop_at_once),   cmocka_unit_test(callers_take_turns),
      cmocka_unit_test(workers_block_signals),    cmocka_unit_test(a_child_computes_alone),
      cmocka_unit_test(ranges_cover_everything),  cmocka_unit_test(the_faster_way_is_found),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
