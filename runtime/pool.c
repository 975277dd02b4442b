#include "runtime/pool.h"
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* `phase` is 2 * (stages finished so far) + (a stage may run now). It only grows; claim[i] is the phase at which part i
   was last begun, so that a worker which slept through any number of stages can never begin one that is over. Job
   fields are read by a worker only while it holds a part of an unfinished stage: the job cannot end meanwhile. */
typedef struct pool_slot {
  _Alignas(128) _Atomic uint64_t claim;
  pthread_t thread;
  pool *owner;
  uint32_t index;
} pool_slot;

struct pool {
  _Alignas(128) _Atomic uint64_t phase;
  _Atomic uint32_t done, sleepers; /* beside phase: who finishes a stage touches all three */
  _Alignas(128) pool_job job;
  uint64_t last; /* phase of the job's last stage */
  uint64_t first;
  _Atomic bool quit;
  uint32_t threads, started, spin_ns;
  pool_slot *slots;
  taper_allocator allocator;
  pthread_mutex_t gate; /* pool_lock: a ticket for each, so that no thread starves */
  pthread_cond_t turn;
  uint64_t next_ticket, serving;
};

enum { SPINS_BEFORE_HELP = 100, SPINS_PER_CLOCK = 16 };

static void cpu_relax(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

static uint64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* The low half of the phase: what the kernel compares. No mutex: in a child after fork() nobody would ever give one
 * back. */
static uint32_t *phase_word(pool *p) {
  return (uint32_t *)(void *)&p->phase + (__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__ ? 1 : 0);
}

static void publish(pool *p, uint64_t phase) {
  atomic_store(&p->phase, phase); /* sequentially consistent with `sleepers`: we see a sleeper or it sees the phase */
  if (atomic_load(&p->sleepers) > 0) syscall(SYS_futex, phase_word(p), FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

static void sleep_until_not(pool *p, uint64_t phase) {
  atomic_fetch_add(&p->sleepers, 1);
  while (atomic_load(&p->phase) == phase)
    syscall(SYS_futex, phase_word(p), FUTEX_WAIT_PRIVATE, (uint32_t)phase, NULL, NULL, 0);
  atomic_fetch_sub(&p->sleepers, 1);
}

/* Runs part `i` of the stage at `phase` unless somebody has begun it. */
static bool try_part(pool *p, uint32_t i, uint64_t phase) {
  _Atomic uint64_t *claim = &p->slots[i].claim;
  uint64_t seen = atomic_load_explicit(claim, memory_order_relaxed);
  if (seen >= phase ||
      !atomic_compare_exchange_strong_explicit(claim, &seen, phase, memory_order_acq_rel, memory_order_relaxed))
    return false;
  uint32_t stage = (uint32_t)((phase - p->first) / 2);
  p->job.part(p->job.arg, stage, i);
  if (atomic_fetch_add_explicit(&p->done, 1, memory_order_acq_rel) + 1 < p->threads) return true;
  if (p->job.after) p->job.after(p->job.arg, stage);
  atomic_store_explicit(&p->done, 0, memory_order_relaxed);
  publish(p, phase == p->last ? phase + 1 : phase + 2);
  return true;
}

/* Waits until the phase is not `phase`; helps with parts that nobody has begun. */
static void await(pool *p, uint32_t self, uint64_t phase) {
  uint64_t deadline = 0;
  for (uint32_t spins = 1; atomic_load_explicit(&p->phase, memory_order_acquire) == phase; spins++) {
    if (spins > SPINS_BEFORE_HELP) cpu_relax();
    if (spins == SPINS_BEFORE_HELP && (phase & 1)) {
      for (uint32_t k = 1; k < p->threads; k++) (void)try_part(p, (self + k) % p->threads, phase);
    }
    if (spins < SPINS_BEFORE_HELP || spins % SPINS_PER_CLOCK != 0) continue;
    uint64_t now = now_ns();
    if (deadline == 0) deadline = now + p->spin_ns;
    if (now >= deadline) {
      sleep_until_not(p, phase);
      return;
    }
  }
}

static void *worker_main(void *arg) {
  pool_slot *slot = arg;
  pool *p = slot->owner;
  for (;;) {
    uint64_t phase =
        atomic_load_explicit(&p->phase, memory_order_acquire); /* before quit: quit is set before the phase moves */
    if (atomic_load_explicit(&p->quit, memory_order_acquire)) break;
    if (phase & 1) (void)try_part(p, slot->index, phase);
    await(p, slot->index, phase);
  }
  return NULL;
}

void pool_run(pool *p, const pool_job *job) {
  if (job->stages == 0) return;
  uint64_t phase = atomic_load_explicit(&p->phase, memory_order_relaxed) + 1;
  p->job = *job;
  p->first = phase;
  p->last = phase + 2 * (uint64_t)(job->stages - 1);
  uint64_t end = p->last + 1;
  publish(p, phase);
  while (phase != end) {
    if (phase & 1) (void)try_part(p, 0, phase);
    await(p, 0, phase);
    phase = atomic_load_explicit(&p->phase, memory_order_acquire);
  }
}

void pool_lock(pool *p) {
  pthread_mutex_lock(&p->gate);
  uint64_t ticket = p->next_ticket++;
  while (p->serving != ticket) pthread_cond_wait(&p->turn, &p->gate);
  pthread_mutex_unlock(&p->gate);
}

void pool_unlock(pool *p) {
  pthread_mutex_lock(&p->gate);
  p->serving++;
  if (p->serving != p->next_ticket) pthread_cond_broadcast(&p->turn);
  pthread_mutex_unlock(&p->gate);
}

uint32_t pool_threads(const pool *p) { return p->threads; }

static uint32_t usable_cpus(void) {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
  int n = CPU_COUNT(&set);
  return n > 0 ? (uint32_t)n : 1;
}

static taper_status start_worker(pool *p, const pool_options *o, uint32_t i, taper_error *error) {
  pool_slot *slot = &p->slots[i];
  int rc = pthread_create(&slot->thread, NULL, worker_main, slot);
  if (rc == EAGAIN)
    return TAPER_FAIL(error, TAPER_NOMEM, "cannot start worker thread %u of %u: %s; ask for fewer threads", i,
                      p->threads, strerror(rc));
  if (rc != 0)
    return TAPER_FAIL(error, TAPER_INTERNAL, "cannot start worker thread %u of %u: %s; ask for fewer threads", i,
                      p->threads, strerror(rc));
  p->started = i;
  char name[16];
  snprintf(name, sizeof(name), "taper-%u", i % 10000);
  (void)pthread_setname_np(slot->thread, name);
  if (!o->cpus || o->cpu_count == 0) return TAPER_OK;
  int32_t cpu = o->cpus[i % o->cpu_count];
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET((size_t)cpu, &set);
  rc = pthread_setaffinity_np(slot->thread, sizeof(set), &set);
  if (rc != 0)
    return TAPER_FAIL(error, TAPER_INVALID,
                      "option 'cpus': cannot pin a worker to CPU %d: %s; name CPUs of the affinity mask", cpu,
                      strerror(rc));
  return TAPER_OK;
}

static taper_status start_workers(pool *p, const pool_options *o, taper_error *error) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  taper_status status = TAPER_OK;
  for (uint32_t i = 1; i < p->threads && status == TAPER_OK; i++) status = start_worker(p, o, i, error);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  return status;
}

taper_status pool_new(const pool_options *o, const taper_allocator *allocator, pool **out, taper_error *error) {
  *out = NULL;
  uint32_t cpus = usable_cpus(), threads = o->threads ? o->threads : cpus;
  if (threads > POOL_MAX_THREADS) {
    if (o->threads)
      return TAPER_FAIL(error, TAPER_INVALID, "option 'threads' is %u; at most %u", threads, POOL_MAX_THREADS);
    threads = POOL_MAX_THREADS;
  }
  for (size_t i = 0; o->cpus && i < o->cpu_count; i++) {
    if (o->cpus[i] < 0 || o->cpus[i] >= CPU_SETSIZE)
      return TAPER_FAIL(error, TAPER_INVALID, "option 'cpus': %d is no CPU number; 0 to %d", o->cpus[i],
                        CPU_SETSIZE - 1);
  }
  pool *p = memory_alloc(allocator, sizeof(pool), 128);
  pool_slot *slots = p ? memory_alloc(allocator, sizeof(pool_slot) * threads, 128) : NULL;
  if (!slots) {
    memory_free(allocator, p);
    return memory_exhausted(error, "the worker pool", sizeof(pool) + sizeof(pool_slot) * threads);
  }
  memset(p, 0, sizeof(*p));
  memset(slots, 0, sizeof(pool_slot) * threads);
  p->allocator = *allocator;
  p->threads = threads;
  p->slots = slots;
  /* where workers share CPUs, a spinning one only keeps the one it waits for from running */
  p->spin_ns = threads > cpus ? 0 : (o->spin_us > 1000000 ? 1000000000u : o->spin_us * 1000u);
  for (uint32_t i = 0; i < threads; i++) slots[i].owner = p, slots[i].index = i;
  pthread_mutex_init(&p->gate, NULL);
  pthread_cond_init(&p->turn, NULL);
  taper_status status = start_workers(p, o, error);
  if (status != TAPER_OK) {
    pool_free(p);
    return status;
  }
  *out = p;
  return TAPER_OK;
}

void pool_free(pool *p) {
  if (!p) return;
  atomic_store(&p->quit, true);
  publish(p, atomic_load(&p->phase) + 2); /* still idle, but other: whoever waits looks again */
  for (uint32_t i = 1; i <= p->started; i++) pthread_join(p->slots[i].thread, NULL);
  pthread_mutex_destroy(&p->gate);
  pthread_cond_destroy(&p->turn);
  taper_allocator a = p->allocator;
  memory_free(&a, p->slots);
  memory_free(&a, p);
}
