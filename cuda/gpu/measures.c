/* What calibrate.c measures. A measurement that computes something is compared with the host. */
#include "cuda/gpu/calibrate.h"
#include <stdlib.h>
#include <time.h>

enum { READ_THREADS = 256, READ_BLOCKS = 8 /* a multiprocessor */, THREADS = 128, SIMULATED_MOST = 1 << 14 };
#define READ_AT_LEAST (1ull << 31) /* bytes of one measurement */
#define PATTERN 0x9e3779b9u

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static taper_status finish(rig *r, double *out_seconds, taper_error *error) {
  float ms = 0;
  RIG_TRY(r, cuEventRecord, (r->end, r->stream));
  RIG_TRY(r, cuEventSynchronize, (r->end));
  RIG_TRY(r, cuEventElapsedTime, (&ms, r->begin, r->end));
  *out_seconds = (double)ms * 1e-3;
  return TAPER_OK;
}

/* ---- reading ---- */

static taper_status read_again(rig *r, CUdeviceptr data, CUdeviceptr sum, uint64_t bytes, uint32_t times, double *out,
                               taper_error *error) {
  uint64_t count = bytes / 16;
  uint32_t got = 0, want = (uint32_t)(bytes / 4) * PATTERN * times * 2;
  void *parameters[] = {&data, &count, &times, &sum};
  RIG_TRY(r, cuMemsetD32Async, (data, PATTERN, bytes / 4, r->stream));
  RIG_TRY(r, cuMemsetD32Async, (sum, 0, 1, r->stream));
  for (int warm = 1; warm >= 0; warm--) {
    RIG_TRY(r, cuEventRecord, (r->begin, r->stream));
    TAPER_TRY(rig_launch(r, RIG_read_all, r->blocks * READ_BLOCKS, READ_THREADS, parameters, RIG_PLAIN, error));
    TAPER_TRY(finish(r, out, error));
  }
  RIG_TRY(r, cuMemcpyDtoHAsync_v2, (&got, sum, sizeof got, r->stream));
  RIG_TRY(r, cuStreamSynchronize, (r->stream));
  if (got != want) return TAPER_FAIL(error, TAPER_DEVICE, "read_all: sum %08x, not %08x", got, want);
  return TAPER_OK;
}

/* GB/s of reading `argument` bytes again and again, in one launch */
static taper_status measure_read(rig *r, const rig_measure *m, double *out, taper_error *error) {
  const bool simulated = r->driver.simulated;
  uint64_t bytes = simulated ? (m->argument >> 8) + 48 /* a torn tail */ : m->argument;
  if (simulated && bytes > SIMULATED_MOST) return TAPER_FAIL(error, TAPER_UNSUPPORTED, "too large for the simulator");
  uint32_t times = simulated ? 2 : bytes < READ_AT_LEAST ? (uint32_t)(READ_AT_LEAST / bytes) : 1;
  CUdeviceptr data = 0, sum = 0;
  double seconds = 0;
  taper_status status = cuda_driver_check(&r->driver, r->driver.cuMemAlloc_v2(&data, bytes), "cuMemAlloc_v2", error);
  if (status == TAPER_NOMEM) status = TAPER_FAIL(error, TAPER_UNSUPPORTED, "not enough device memory");
  if (status == TAPER_OK)
    status = cuda_driver_check(&r->driver, r->driver.cuMemAlloc_v2(&sum, 16), "cuMemAlloc_v2", error);
  if (status == TAPER_OK) status = read_again(r, data, sum, bytes, times, &seconds, error);
  *out = (double)bytes * times / (seconds > 0 ? seconds : 1) * 1e-9;
  if (sum) (void)r->driver.cuMemFree_v2(sum);
  if (data) (void)r->driver.cuMemFree_v2(data);
  return status;
}

/* ---- launches ---- */

typedef struct graph_made {
  CUgraph graph;
  CUgraphExec exec;
} graph_made;

static void graph_free(rig *r, graph_made *g) {
  if (g->exec) (void)r->driver.cuGraphExecDestroy(g->exec);
  if (g->graph) (void)r->driver.cuGraphDestroy(g->graph);
  *g = (graph_made){0};
}

static taper_status enqueue_empty(rig *r, CUdeviceptr cell, uint32_t n, rig_edge edge, taper_error *error) {
  void *parameters[] = {&cell};
  for (uint32_t i = 0; i < n; i++) TAPER_TRY(rig_launch(r, RIG_empty, 1, 32, parameters, edge, error));
  return TAPER_OK;
}

static taper_status end_capture(rig *r, taper_status captured, graph_made *g, taper_error *error) {
  CUresult result = r->driver.cuStreamEndCapture(r->stream, &g->graph);
  if (captured != TAPER_OK) return captured;
  TAPER_TRY(cuda_driver_check(&r->driver, result, "cuStreamEndCapture", error));
  RIG_TRY(r, cuGraphInstantiateWithFlags, (&g->exec, g->graph, 0));
  return TAPER_OK;
}

enum { IN_STREAM, ROUND_TRIP, IN_GRAPH, IN_GRAPH_PDL, GRAPH_ROUND_TRIP };

static taper_status time_launches(rig *r, CUdeviceptr cell, uint64_t how, uint32_t n, graph_made *g, double *out,
                                  taper_error *error) {
  if (how == IN_STREAM) {
    TAPER_TRY(enqueue_empty(r, cell, n, RIG_PLAIN, error));
    RIG_TRY(r, cuEventRecord, (r->begin, r->stream));
    TAPER_TRY(enqueue_empty(r, cell, n, RIG_PLAIN, error));
    return finish(r, out, error);
  }
  if (how == ROUND_TRIP) {
    double start = now();
    for (uint32_t i = 0; i < n; i++) {
      TAPER_TRY(enqueue_empty(r, cell, 1, RIG_PLAIN, error));
      RIG_TRY(r, cuStreamSynchronize, (r->stream));
    }
    *out = now() - start;
    return TAPER_OK;
  }
  uint32_t nodes = how == GRAPH_ROUND_TRIP ? 1 : n, launches = how == GRAPH_ROUND_TRIP ? n : 1;
  RIG_TRY(r, cuStreamBeginCapture_v2, (r->stream, CU_CAPTURE_THREAD_LOCAL));
  taper_status status = enqueue_empty(r, cell, nodes, how == IN_GRAPH_PDL ? RIG_PROGRAMMATIC : RIG_PLAIN, error);
  TAPER_TRY(end_capture(r, status, g, error));
  RIG_TRY(r, cuGraphLaunch, (g->exec, r->stream)); /* warm */
  RIG_TRY(r, cuStreamSynchronize, (r->stream));
  double start = now();
  RIG_TRY(r, cuEventRecord, (r->begin, r->stream));
  for (uint32_t i = 0; i < launches; i++) {
    RIG_TRY(r, cuGraphLaunch, (g->exec, r->stream));
    if (how == GRAPH_ROUND_TRIP) RIG_TRY(r, cuStreamSynchronize, (r->stream));
  }
  TAPER_TRY(finish(r, out, error));
  if (how == GRAPH_ROUND_TRIP) *out = now() - start;
  return TAPER_OK;
}

static taper_status check_count(rig *r, CUdeviceptr cell, uint32_t want, taper_error *error) {
  uint32_t got = 0;
  RIG_TRY(r, cuMemcpyDtoHAsync_v2, (&got, cell, sizeof got, r->stream));
  RIG_TRY(r, cuStreamSynchronize, (r->stream));
  if (got != want) return TAPER_FAIL(error, TAPER_DEVICE, "%u empty kernels ran, not %u", got, want);
  return TAPER_OK;
}

/* microseconds of one launch or node that does nothing */
static taper_status measure_launch(rig *r, const rig_measure *m, double *out, taper_error *error) {
  if (m->argument == IN_GRAPH_PDL && !r->pdl)
    return TAPER_FAIL(error, TAPER_UNSUPPORTED, "no programmatic launch: image %s, driver %d", r->image,
                      r->driver_version);
  uint32_t n = r->driver.simulated ? 4 : 512, made = m->argument == ROUND_TRIP ? n : 2 * n;
  if (m->argument == GRAPH_ROUND_TRIP) made = n + 1;
  CUdeviceptr cell = 0;
  graph_made g = {0};
  RIG_TRY(r, cuMemAlloc_v2, (&cell, 16));
  taper_status status =
      cuda_driver_check(&r->driver, r->driver.cuMemsetD32Async(cell, 0, 4, r->stream), "cuMemsetD32Async", error);
  if (status == TAPER_OK) status = time_launches(r, cell, m->argument, n, &g, out, error);
  if (status == TAPER_OK) status = check_count(r, cell, made, error);
  *out *= 1e6 / n;
  graph_free(r, &g);
  (void)r->driver.cuMemFree_v2(cell);
  return status;
}

/* ---- exchanges: a vector is handed to all multiprocessors, every round ---- */

enum { BY_NODE, BY_PDL, BY_FLIP, BY_COUNT, BY_FLAG };

typedef struct exchange {
  CUdeviceptr a, b, control; /* control: barrier word, stop */
  uint32_t *host;            /* [3][RIG_MOST_WIDTH]: want, next, got */
  uint64_t *words;           /* [RIG_MOST_WIDTH] */
  graph_made graph;
} exchange;

/* the rounds on the host: calibrate.cu's step() */
static void want_rounds(uint32_t *x, uint32_t *next, uint32_t width, uint32_t rounds) {
  for (uint32_t i = 0; i < width; i++) x[i] = i * 2654435761u;
  for (uint32_t round = 1; round <= rounds; round++) {
    for (uint32_t i = 0; i < width; i++)
      next[i] = 3u * x[(i + 1) % width] + 5u * x[(i + width / 2) % width] + (x[i] >> 7) + round;
    for (uint32_t i = 0; i < width; i++) x[i] = next[i];
  }
}

static taper_status reset_exchange(rig *r, exchange *e, uint64_t how, taper_error *error) {
  size_t word = how == BY_FLAG ? 8 : 4;
  uint32_t *first = e->host + RIG_MOST_WIDTH;
  for (uint32_t i = 0; i < r->width; i++) first[i] = i * 2654435761u, e->words[i] = first[i];
  RIG_TRY(r, cuMemcpyHtoDAsync_v2, (e->a, how == BY_FLAG ? (void *)e->words : first, r->width * word, r->stream));
  RIG_TRY(r, cuMemsetD8Async, (e->b, 0, r->width * word, r->stream));
  RIG_TRY(r, cuMemsetD32Async, (e->control, 0, 4, r->stream));
  RIG_TRY(r, cuStreamSynchronize, (r->stream));
  return TAPER_OK;
}

static taper_status capture_rounds(rig *r, exchange *e, rig_edge edge, taper_error *error) {
  RIG_TRY(r, cuStreamBeginCapture_v2, (r->stream, CU_CAPTURE_THREAD_LOCAL));
  taper_status status = TAPER_OK;
  for (uint32_t round = 1; status == TAPER_OK && round <= r->rounds; round++) {
    void *parameters[] = {round & 1 ? &e->a : &e->b, round & 1 ? &e->b : &e->a, &r->width, &round};
    status = rig_launch(r, RIG_round_once, r->blocks, THREADS, parameters, edge, error);
  }
  return end_capture(r, status, &e->graph, error);
}

static taper_status launch_rounds(rig *r, exchange *e, uint64_t how, taper_error *error) {
  static const int kernels[] = {
      [BY_FLIP] = RIG_rounds_flip, [BY_COUNT] = RIG_rounds_count, [BY_FLAG] = RIG_rounds_flag};
  CUdeviceptr stop = e->control + 8;
  if (how == BY_NODE || how == BY_PDL) {
    RIG_TRY(r, cuGraphLaunch, (e->graph.exec, r->stream));
    return TAPER_OK;
  }
  void *by_barrier[] = {&e->a, &e->b, &r->width, &r->rounds, &e->control, &stop};
  void *by_flag[] = {&e->a, &e->b, &r->width, &r->rounds, &stop};
  return rig_launch(r, kernels[how], r->blocks, THREADS, how == BY_FLAG ? by_flag : by_barrier, RIG_COOPERATIVE, error);
}

static taper_status compare_rounds(rig *r, exchange *e, uint64_t how, taper_error *error) {
  uint32_t control[4], *got = e->host + 2 * RIG_MOST_WIDTH;
  size_t word = how == BY_FLAG ? 8 : 4;
  RIG_TRY(r, cuMemcpyDtoHAsync_v2, (control, e->control, sizeof control, r->stream));
  RIG_TRY(r, cuMemcpyDtoHAsync_v2, (how == BY_FLAG ? (void *)e->words : got, e->a, r->width * word, r->stream));
  RIG_TRY(r, cuStreamSynchronize, (r->stream));
  if (control[2]) return TAPER_FAIL(error, TAPER_DEVICE, "a block waited in vain: the blocks did not run at once");
  for (uint32_t i = 0; i < r->width; i++) {
    uint32_t value = how == BY_FLAG ? (uint32_t)e->words[i] : got[i];
    if (value != e->host[i])
      return TAPER_FAIL(error, TAPER_DEVICE, "word %u after %u rounds: %08x, not %08x", i, r->rounds, value,
                        e->host[i]);
  }
  return TAPER_OK;
}

static taper_status run_exchange(rig *r, exchange *e, uint64_t how, double *out, taper_error *error) {
  if (!e->host || !e->words) return TAPER_FAIL(error, TAPER_NOMEM, "the vectors of the host");
  RIG_TRY(r, cuMemAlloc_v2, (&e->a, RIG_MOST_WIDTH * 8));
  RIG_TRY(r, cuMemAlloc_v2, (&e->b, RIG_MOST_WIDTH * 8));
  RIG_TRY(r, cuMemAlloc_v2, (&e->control, 16));
  if (how == BY_NODE || how == BY_PDL)
    TAPER_TRY(capture_rounds(r, e, how == BY_PDL ? RIG_PROGRAMMATIC : RIG_PLAIN, error));
  for (int warm = 1; warm >= 0; warm--) {
    TAPER_TRY(reset_exchange(r, e, how, error));
    RIG_TRY(r, cuEventRecord, (r->begin, r->stream));
    TAPER_TRY(launch_rounds(r, e, how, error));
    TAPER_TRY(finish(r, out, error));
  }
  want_rounds(e->host, e->host + RIG_MOST_WIDTH, r->width, r->rounds);
  return compare_rounds(r, e, how, error);
}

/* microseconds of one round */
static taper_status measure_exchange(rig *r, const rig_measure *m, double *out, taper_error *error) {
  if (m->argument == BY_PDL && !r->pdl)
    return TAPER_FAIL(error, TAPER_UNSUPPORTED, "no programmatic launch: image %s, driver %d", r->image,
                      r->driver_version);
  exchange e = {.host = calloc(3 * (size_t)RIG_MOST_WIDTH, sizeof(uint32_t)), .words = calloc(RIG_MOST_WIDTH, 8)};
  taper_status status = run_exchange(r, &e, m->argument, out, error);
  *out *= 1e6 / r->rounds;
  graph_free(r, &e.graph);
  CUdeviceptr memory[] = {e.a, e.b, e.control};
  for (size_t i = 0; i < 3; i++) {
    if (memory[i]) (void)r->driver.cuMemFree_v2(memory[i]);
  }
  free(e.host);
  free(e.words);
  return status;
}

#define READ(mib)                                                                                                      \
  {                                                                                                                    \
    "read_" #mib "_mib", "GB/s", "reading " #mib " MiB again and again, 16 bytes a thread, past L1", measure_read,     \
        (uint64_t)(mib) << 20                                                                                          \
  }
const rig_measure rig_measures[] = {
    READ(1),
    READ(4),
    READ(16),
    READ(32),
    READ(64),
    READ(256),
    READ(1024),
    READ(4096),
    {"launch", "us", "an empty kernel behind another on a stream", measure_launch, IN_STREAM},
    {"launch_sync", "us", "an empty kernel and a wait for it", measure_launch, ROUND_TRIP},
    {"graph_launch_sync", "us", "a graph of one empty kernel and a wait for it", measure_launch, GRAPH_ROUND_TRIP},
    {"graph_node", "us", "an empty kernel behind another in a graph", measure_launch, IN_GRAPH},
    {"graph_pdl_edge", "us", "the same with programmatic dependent launch", measure_launch, IN_GRAPH_PDL},
    {"exchange_node", "us", "a vector handed to all multiprocessors: a graph node a round", measure_exchange, BY_NODE},
    {"exchange_pdl", "us", "the same by programmatic edges", measure_exchange, BY_PDL},
    {"exchange_grid_barrier", "us", "the same in one cooperative kernel: the barrier of cooperative groups",
     measure_exchange, BY_FLIP},
    {"exchange_counter", "us", "the same: a counter of our own", measure_exchange, BY_COUNT},
    {"exchange_flag", "us", "the same: flags that travel with the numbers", measure_exchange, BY_FLAG},
};
const size_t rig_measure_count = sizeof rig_measures / sizeof *rig_measures;
