/* launch.c - a launch: its blocks in their order, on one worker or several, in one step or two. */
#include "cuda/sim/exec.h"
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#define SLICE 4096u /* instructions of a warp before the next one's turn */

static sim_run *refuse(const sim_launch *launch, sim_fault *fault, sim_fault_kind kind, const char *format,
                       unsigned long long a, unsigned long long b) {
  char text[200];
  *fault = (sim_fault){.kind = kind};
  snprintf(fault->kernel, sizeof(fault->kernel), "%s", launch->kernel->code.name);
  snprintf(text, sizeof(text), format, a, b);
  sim_fault_text(fault, "%s", text);
  return NULL;
}

static bool check(const sim_launch *l, sim_fault *fault) {
  const sim_kernel_facts *f = &l->kernel->facts;
  const uint64_t threads = (uint64_t)l->block[0] * l->block[1] * l->block[2];
  const uint64_t blocks = (uint64_t)l->grid[0] * l->grid[1] * l->grid[2];
  const uint64_t shared = (uint64_t)f->shared_bytes + l->dynamic_shared,
                 limit = l->shared_limit ? l->shared_limit : 49152;
  if (!threads || threads > 1024 || threads > f->max_threads || l->block[2] > 64)
    return refuse(l, fault, SIM_BAD_LAUNCH, "%llu threads a block, of %llu at most", threads, f->max_threads) != NULL;
  if (!blocks || blocks > 0x3fffffff || l->grid[1] > 65535 || l->grid[2] > 65535)
    return refuse(l, fault, SIM_BAD_LAUNCH, "a grid of %llu blocks, %llu of them along y", blocks, l->grid[1]) != NULL;
  if (shared > limit)
    return refuse(l, fault, SIM_BAD_LAUNCH, "%llu bytes of shared memory, of %llu at most", shared, limit) != NULL;
  if (l->parameter_bytes != f->parameter_bytes)
    return refuse(l, fault, SIM_BAD_LAUNCH, "%llu bytes of parameters, the kernel has %llu", l->parameter_bytes,
                  f->parameter_bytes) != NULL;
  return true;
}

/* A permutation by the seed. */
static void shuffle(uint32_t *order, uint32_t count, uint64_t seed) {
  uint64_t x = seed * 0x9e3779b97f4a7c15u + 1;
  for (uint32_t k = count; k-- > 1;) {
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    const uint32_t j = (uint32_t)(x % (k + 1)), t = order[k];
    order[k] = order[j];
    order[j] = t;
  }
}

static uint32_t workers_for(const sim_run *r) {
  long n = r->launch.threads ? (long)r->launch.threads : sysconf(_SC_NPROCESSORS_ONLN);
  if (r->kernel->facts.ordered || r->launch.cooperative || n < 1) n = 1;
  if (n > 64) n = 64;
  return (uint32_t)n < r->blocks ? (uint32_t)n : r->blocks;
}

static bool prepare(sim_run *r) {
  const size_t bytes = r->kernel->facts.parameter_bytes;
  r->parameters = malloc(bytes + 16);
  r->order = malloc(r->blocks * sizeof(*r->order));
  r->worker_count = workers_for(r);
  r->workers = calloc(r->worker_count, sizeof(*r->workers));
  if (r->kernel->facts.ordered) r->ordered = order_new(r->blocks);
  if (!r->parameters || !r->order || !r->workers || (r->kernel->facts.ordered && !r->ordered)) return false;
  if (bytes) memcpy(r->parameters, r->launch.parameters, bytes);
  for (uint32_t k = 0; k < r->blocks; k++) r->order[k] = k;
  if (r->launch.seed) shuffle(r->order, r->blocks, r->launch.seed);
  for (uint32_t k = 0; k < r->worker_count; k++) {
    r->workers[k].run = r;
    r->workers[k].fault_place = INST_NONE;
    r->workers[k].touched.granule = r->kernel->global_granule;
  }
  return true;
}

sim_run *sim_run_begin(const sim_launch *launch, sim_fault *fault) {
  if (!check(launch, fault)) return NULL;
  sim_run *r = calloc(1, sizeof(*r));
  if (!r) return refuse(launch, fault, SIM_NO_MEMORY, "for a launch of %llu blocks", launch->grid[0], 0);
  r->launch = *launch;
  r->kernel = launch->kernel;
  r->memory = launch->memory;
  r->blocks = launch->grid[0] * launch->grid[1] * launch->grid[2];
  r->first_fault = INST_NONE;
  if (!r->launch.budget) r->launch.budget = (uint64_t)1 << 26;
  if (!r->launch.sms) r->launch.sms = 132;
  if (!r->launch.max_early) r->launch.max_early = 16;
  if (prepare(r)) return r;
  sim_run_free(r);
  return refuse(launch, fault, SIM_NO_MEMORY, "for a launch of %llu blocks", launch->grid[0], 0);
}

void sim_run_free(sim_run *r) {
  if (!r) return;
  for (uint32_t k = 0; r->workers && k < r->worker_count; k++) {
    worker *w = &r->workers[k];
    for (uint32_t j = 0; j < w->block_count; j++) {
      sim_block_free(w->blocks[j]);
      free(w->blocks[j]);
    }
    free((void *)w->blocks);
    free(w->places);
    touch_free(&w->touched);
  }
  touch_set_clear(&r->early_touched);
  order_free(r->ordered);
  free(r->workers);
  free(r->order);
  free(r->parameters);
  free(r);
}

static void note_fault(worker *k, uint32_t place, const sim_fault *fault) {
  sim_run *r = k->run;
  if (place < k->fault_place) {
    k->fault = *fault;
    k->fault_place = place;
  }
  uint32_t first = __atomic_load_n(&r->first_fault, __ATOMIC_RELAXED);
  while (place < first &&
         !__atomic_compare_exchange_n(&r->first_fault, &first, place, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {}
}

static void no_memory(worker *k, uint32_t place) {
  sim_fault fault;
  refuse(&k->run->launch, &fault, SIM_NO_MEMORY, "for block %llu of %llu", place, k->run->blocks);
  note_fault(k, place, &fault);
}

/* A block structure of the worker that is not in use: the last. */
static block *new_block(worker *k) {
  block **grown = (block **)realloc((void *)k->blocks, (k->block_count + 1) * sizeof(*grown));
  if (grown) k->blocks = grown;
  uint32_t *places = realloc(k->places, (k->block_count + 1) * sizeof(*places));
  if (places) k->places = places;
  block *b = grown && places ? calloc(1, sizeof(*b)) : NULL;
  if (!b) return NULL;
  if (!sim_block_new(k, b)) {
    sim_block_free(b);
    free(b);
    return NULL;
  }
  k->places[k->block_count] = INST_NONE;
  k->blocks[k->block_count++] = b;
  return b;
}

static bool take(sim_run *r, uint32_t *out_place) {
  *out_place = __atomic_fetch_add(&r->next, 1, __ATOMIC_RELAXED);
  return *out_place < r->end && *out_place < __atomic_load_n(&r->first_fault, __ATOMIC_RELAXED);
}

static void resume(block *b) {
  for (uint32_t i = 0; i < b->warp_count; i++) {
    warp *w = &b->warps[i];
    for (uint32_t n = 0; n < w->group_count;) {
      group g = w->groups[n];
      if (g.state != GROUP_AT_GRID_WAIT) {
        n++;
        continue;
      }
      memmove(&w->groups[n], &w->groups[n + 1], (w->group_count - n - 1) * sizeof(group));
      w->group_count--;
      g.state = GROUP_RUNS;
      g.pc++;
      sim_group_add(w, g);
      n = 0;
    }
  }
}

static void finish(worker *k, uint32_t index) {
  const block *b = k->blocks[index];
  k->counters.blocks += b->done;
  if (b->faulted) note_fault(k, k->places[index], &b->fault);
  if (b->done) k->places[index] = INST_NONE;
}

/* Begins blocks, each in a structure of its own, up to the wait. */
static void early_part(worker *k) {
  uint32_t place, spare = INST_NONE;
  while (take(k->run, &place)) {
    if (spare == INST_NONE) {
      if (!new_block(k)) {
        no_memory(k, place);
        return;
      }
      spare = k->block_count - 1;
    }
    const uint32_t index = spare;
    k->places[index] = place;
    sim_block_begin(k->blocks[index], k->run->order[place]);
    while (!sim_block_run(k->blocks[index], SLICE)) {}
    finish(k, index);
    spare = k->blocks[index]->done ? index : INST_NONE;
  }
}

/* All blocks at once, in turns. */
static void together(worker *k) {
  uint32_t place, left = 0;
  while (take(k->run, &place)) {
    if (!new_block(k)) {
      no_memory(k, place);
      return;
    }
    k->places[k->block_count - 1] = place;
    sim_block_begin(k->blocks[k->block_count - 1], k->run->order[place]);
  }
  do {
    left = 0;
    for (uint32_t j = 0; j < k->block_count; j++) {
      if (k->places[j] == INST_NONE) continue;
      if (sim_block_run(k->blocks[j], SLICE)) finish(k, j);
      if (__atomic_load_n(&k->run->first_fault, __ATOMIC_RELAXED) != INST_NONE) return;
      left += k->places[j] != INST_NONE;
    }
  } while (left);
}

static void rest_part(worker *k) {
  uint32_t place;
  for (uint32_t j = 0; j < k->block_count; j++) {
    if (k->places[j] == INST_NONE) continue;
    resume(k->blocks[j]);
    if (k->run->launch.cooperative) continue;
    while (!sim_block_run(k->blocks[j], SLICE)) {}
    finish(k, j);
  }
  if (k->run->launch.cooperative) {
    together(k);
    return;
  }
  while (take(k->run, &place)) {
    if (!k->block_count && !new_block(k)) {
      no_memory(k, place);
      return;
    }
    k->places[0] = place;
    sim_block_begin(k->blocks[0], k->run->order[place]);
    while (!sim_block_run(k->blocks[0], SLICE)) {}
    finish(k, 0);
  }
}

static void *early_main(void *arg) {
  early_part(arg);
  return NULL;
}
static void *rest_main(void *arg) {
  rest_part(arg);
  return NULL;
}

/* On every worker; the caller is the first. A thread that cannot start is done without: the others take its blocks. */
static void on_workers(sim_run *r, void *(*main)(void *)) {
  pthread_t threads[64];
  bool started[64] = {false};
  for (uint32_t k = 1; k < r->worker_count; k++)
    started[k] = pthread_create(&threads[k], NULL, main, &r->workers[k]) == 0;
  main(&r->workers[0]);
  for (uint32_t k = 1; k < r->worker_count; k++) {
    if (started[k])
      pthread_join(threads[k], NULL);
    else
      main(&r->workers[k]);
  }
}

static bool first_fault(const sim_run *r, sim_fault *fault) {
  uint32_t first = INST_NONE;
  for (uint32_t k = 0; k < r->worker_count; k++) {
    if (r->workers[k].fault_place >= first) continue;
    first = r->workers[k].fault_place;
    *fault = r->workers[k].fault;
  }
  return first != INST_NONE;
}

static void say_block(const sim_run *r, uint32_t who, char *text, size_t size) {
  const uint32_t *grid = r->launch.grid, n = who - 1;
  if (who == 0 || who == CELL_MANY)
    snprintf(text, size, "another block");
  else
    snprintf(text, size, "block %u,%u,%u", n % grid[0], n / grid[0] % grid[1], n / grid[0] / grid[1]);
}

/* Races between blocks of different workers. */
static bool workers_disjoint(const sim_run *r, sim_fault *fault) {
  for (uint32_t k = 0; k < r->worker_count; k++)
    for (uint32_t j = k + 1; j < r->worker_count; j++) {
      uint64_t address;
      uint32_t a = 0, b = 0;
      char first[60], second[60];
      if (touch_disjoint(&r->workers[k].touched, &r->workers[j].touched, &address, &a, &b)) continue;
      *fault = (sim_fault){.kind = a && b ? SIM_GLOBAL_RACE : SIM_READ_ONLY, .address = address};
      snprintf(fault->kernel, sizeof(fault->kernel), "%s", r->kernel->code.name);
      say_block(r, a, first, sizeof(first));
      say_block(r, b, second, sizeof(second));
      sim_fault_text(fault, "%s and %s touch 0x%llx, one of them writes", first, second, (unsigned long long)address);
      return false;
    }
  return true;
}

/* Puts `early` blocks from all over the grid in front: others may do other things than the first. */
static bool spread(sim_run *r, uint32_t early) {
  uint32_t *order = malloc(r->blocks * sizeof(*order)), next = 0;
  if (!order) return false;
  for (uint32_t k = 0, rest = early; k < r->blocks; k++) {
    const bool picked = next < early && k == (early > 1 ? (uint64_t)next * (r->blocks - 1) / (early - 1) : 0);
    order[picked ? next++ : rest++] = r->order[k];
  }
  free(r->order);
  r->order = order;
  return true;
}

bool sim_run_early(sim_run *r, sim_fault *fault) {
  r->early = true;
  r->end = r->blocks < r->launch.max_early ? r->blocks : r->launch.max_early;
  if (r->end < r->blocks && !spread(r, r->end)) {
    refuse(&r->launch, fault, SIM_NO_MEMORY, "for the order of %llu blocks", r->blocks, 0);
    return false;
  }
  if (!r->launch.cooperative) on_workers(r, early_main);
  r->early = false;
  r->next = r->launch.cooperative ? 0 : r->end;
  for (uint32_t k = 0; k < r->worker_count; k++)
    if (!touch_set_add(&r->early_touched, &r->workers[k].touched)) {
      refuse(&r->launch, fault, SIM_NO_MEMORY, "for what %llu blocks touched", r->blocks, 0);
      return false;
    }
  return !first_fault(r, fault);
}

static void count(sim_run *r, sim_counters *counters) {
  touch_map *maps[64];
  sim_counters sum = {.launches = 1};
  for (uint32_t k = 0; k < r->worker_count; k++) {
    maps[k] = &r->workers[k].touched;
    sim_counters_add(&sum, &r->workers[k].counters);
  }
  touch_count(r->memory, maps, r->worker_count, &sum.global);
  if (counters) sim_counters_add(counters, &sum);
}

bool sim_run_rest(sim_run *r, sim_counters *counters, sim_fault *fault) {
  r->end = r->blocks;
  on_workers(r, rest_main);
  count(r, counters);
  return !first_fault(r, fault) && workers_disjoint(r, fault);
}

bool sim_launch_run(const sim_launch *launch, sim_counters *counters, sim_fault *fault) {
  sim_run *r = sim_run_begin(launch, fault);
  if (!r) return false;
  const bool ok = sim_run_rest(r, counters, fault);
  sim_run_free(r);
  return ok;
}

void sim_counters_add(sim_counters *to, const sim_counters *from) {
  to->launches += from->launches;
  to->blocks += from->blocks;
  to->warp_instructions += from->warp_instructions;
  to->thread_instructions += from->thread_instructions;
  to->shared_accesses += from->shared_accesses;
  to->local_bytes += from->local_bytes;
  to->atomics += from->atomics;
  to->barriers += from->barriers;
  to->grid_waits += from->grid_waits;
  touch_add_usage(&to->global, &from->global);
}

/* ---- footprints ---- */

struct sim_footprint {
  touch_set set;
};

sim_footprint *sim_footprint_new(void) { return calloc(1, sizeof(sim_footprint)); }
void sim_footprint_clear(sim_footprint *f) { touch_set_clear(&f->set); }
void sim_footprint_free(sim_footprint *f) {
  if (!f) return;
  touch_set_clear(&f->set);
  free(f);
}

bool sim_footprint_add(sim_footprint *f, const sim_run *r) {
  for (uint32_t k = 0; k < r->worker_count; k++)
    if (!touch_set_add(&f->set, &r->workers[k].touched)) return false;
  return true;
}

bool sim_run_conflict(const sim_run *r, const sim_footprint *f, sim_fault *fault) {
  uint64_t address;
  if (touch_set_disjoint(&r->early_touched, &f->set, &address)) return false;
  *fault = (sim_fault){.kind = SIM_EARLY_ACCESS, .address = address};
  snprintf(fault->kernel, sizeof(fault->kernel), "%s", r->kernel->code.name);
  sim_fault_text(fault, "0x%llx%s", (unsigned long long)address,
                 r->kernel->facts.waits ? "" : "; the kernel has no griddepcontrol.wait");
  return true;
}
