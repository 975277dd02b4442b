/* The simulator's streams, events and graphs: when queued work is executed, what the host must leave alone until then, and what
   a capture forbids. */
#include "tests/unit/sim_driver.h"
#include <math.h>
#include <pthread.h>

typedef struct fixture {
  CUmodule module;
  CUfunction scale;
  CUstream stream;
  CUdeviceptr x, y;
  unsigned n;
} fixture;

static fixture fixture_new(void) {
  fixture f = {.n = 33};
  f.module = sim_load("driver.sm_90.ptx");
  f.scale = sim_function(f.module, "scale");
  OK(cu.cuStreamCreate(&f.stream, CU_STREAM_NON_BLOCKING));
  f.x = sim_floats(f.n, 1, 1);
  f.y = sim_floats(f.n, 0, 0);
  return f;
}

static void fixture_free(fixture *f) {
  OK(cu.cuStreamDestroy_v2(f->stream));
  OK(cu.cuMemFree_v2(f->x));
  OK(cu.cuMemFree_v2(f->y));
  OK(cu.cuModuleUnload(f->module));
}

/* y = factor x, by one thread an element */
static CUresult scale(const fixture *f, CUdeviceptr y, CUdeviceptr x, float factor, CUstream stream) {
  unsigned n = f->n;
  return sim_start(f->scale, 2, 32, 0, stream, PARAMETERS(&y, &x, &factor, &n));
}

/* ---- streams ---- */

static void work_waits_until_somebody_does(void **state) {
  (void)state;
  fixture f = fixture_new();
  float got[33];
  CUstream other = NULL;
  OK(cu.cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
  OK(scale(&f, f.y, f.x, 2, f.stream));
  OK(cu.cuMemcpyDtoHAsync_v2(got, f.y, sizeof(got), other)); /* not ordered after it: the old zeros */
  OK(cu.cuStreamSynchronize(other));
  assert_true(got[32] == 0);
  OK(cu.cuMemcpyDtoHAsync_v2(got, f.y, sizeof(got), f.stream));
  assert_true(isnan(got[32])); /* the answer is not there yet, and nothing of the old */
  OK(cu.cuStreamSynchronize(f.stream));
  assert_true(got[0] == 2 && got[32] == 66);
  OK(cu.cuStreamDestroy_v2(other));
  REFUSED(CUDA_ERROR_INVALID_HANDLE, "is no stream", cu.cuStreamDestroy_v2(other));
  REFUSED(CUDA_ERROR_INVALID_VALUE, "flags 2", cu.cuStreamCreate(&other, 2));
  fixture_free(&f);
}

static void eager_work_is_done_at_once(void **state) {
  (void)state;
  fixture f = fixture_new();
  float got[33];
  OK(scale(&f, f.y, f.x, 2, f.stream));
  OK(cu.cuMemcpyDtoHAsync_v2(got, f.y, sizeof(got), f.stream));
  assert_true(got[0] == 2 && got[32] == 66);
  fixture_free(&f);
}

static void the_default_stream_waits_for_blocking_ones(void **state) {
  (void)state;
  fixture f = fixture_new();
  float got[33];
  CUstream blocking = NULL;
  OK(cu.cuStreamCreate(&blocking, 0));
  OK(scale(&f, f.y, f.x, 2, blocking));
  OK(scale(&f, f.x, f.y, 2, NULL));
  OK(scale(&f, f.y, f.x, 2, blocking));
  OK(cu.cuMemcpyDtoHAsync_v2(got, f.y, sizeof(got), blocking));
  OK(cu.cuStreamSynchronize(blocking));
  assert_true(got[0] == 8 && got[32] == 264);
  OK(cu.cuStreamDestroy_v2(blocking));
  fixture_free(&f);
}

/* ---- the host's memory ---- */

static void sources_stay_until_they_were_copied(void **state) {
  (void)state;
  float host[33] = {1};
  CUdeviceptr y = sim_floats(33, 0, 0);
  OK(cu.cuMemcpyHtoDAsync_v2(y, host, sizeof(host), NULL));
  OK(cu.cuStreamSynchronize(NULL));
  host[0] = 2; /* done with */
  OK(cu.cuMemcpyHtoDAsync_v2(y, host, sizeof(host), NULL));
  host[32] = 5;
  REFUSED(CUDA_ERROR_LAUNCH_FAILED, "changed or freed while a copy of it", cu.cuStreamSynchronize(NULL));
}

static void sources_are_freed_too_early(void **state) {
  (void)state;
  CUdeviceptr y = sim_floats(1024, 0, 0);
  float *host = calloc(1024, 4);
  OK(cu.cuMemcpyHtoDAsync_v2(y, host, 4096, NULL));
  memset(host, 1, 64);
  free(host);
  REFUSED(CUDA_ERROR_LAUNCH_FAILED, "changed or freed", cu.cuStreamSynchronize(NULL));
}

static void pinned_memory_is_freed_too_early(void **state) {
  (void)state;
  CUdeviceptr y = sim_floats(33, 0, 0);
  void *host = NULL;
  OK(cu.cuMemHostAlloc(&host, 132, 0));
  OK(cu.cuMemcpyHtoDAsync_v2(y, host, 132, NULL));
  REFUSED(CUDA_ERROR_INVALID_VALUE, "freed while a copy of it is queued", cu.cuMemFreeHost(host));
  OK(cu.cuMemFree_v2(y));
}

static void targets_stay_until_they_were_written(void **state) {
  (void)state;
  float got[33];
  CUdeviceptr y = sim_floats(33, 0, 1);
  OK(cu.cuMemcpyDtoHAsync_v2(got, y, sizeof(got), NULL));
  got[7] = 3;
  REFUSED(CUDA_ERROR_LAUNCH_FAILED, "while a copy to it was queued", cu.cuStreamSynchronize(NULL));
}

static void one_buffer_serves_queued_copies_in_turn(void **state) {
  (void)state;
  float host[33];
  CUdeviceptr x = sim_floats(33, 0, 1), y = sim_floats(33, 0, 0);
  OK(cu.cuMemcpyDtoHAsync_v2(host, x, sizeof(host), NULL));
  OK(cu.cuMemcpyHtoDAsync_v2(y, host, sizeof(host), NULL)); /* what the copy before it brings */
  OK(cu.cuMemsetD8Async(x, 0, sizeof(host), NULL));
  OK(cu.cuMemcpyDtoHAsync_v2(host, x, sizeof(host), NULL));
  OK(cu.cuStreamSynchronize(NULL));
  assert_true(host[32] == 0);
  sim_get(host, y, 33);
  assert_true(host[32] == 32);
  OK(cu.cuMemFree_v2(x));
  OK(cu.cuMemFree_v2(y));
}

/* In its place in the stream: what was queued before still reads the old bytes. */
static void forgotten_memory_was_never_written(void **state) {
  (void)state;
  float got[33], seen[33];
  unsigned char written[sizeof(seen)];
  CUdeviceptr x = sim_floats(33, 5, 1), y = sim_floats(33, 0, 0);
  OK(cu.cuMemcpyDtoDAsync_v2(y, x, sizeof(got), NULL));
  OK(sim.taper_sim_forget(x + 40, 60, NULL));
  OK(cu.cuMemcpyDtoHAsync_v2(got, y, sizeof(got), NULL));
  OK(cu.cuStreamSynchronize(NULL));
  assert_true(got[10] == 15 && got[32] == 37);
  OK(sim.taper_sim_look(x, sizeof(seen), seen, written));
  for (size_t i = 0; i < sizeof(seen); i++) assert_int_equal(written[i], i < 40 || i >= 100);
  assert_true(seen[9] == 14 && seen[10] != 15 && seen[24] != 29 && seen[25] == 30);
  OK(cu.cuMemcpyDtoHAsync_v2(got, x, 40, NULL));
  OK(cu.cuStreamSynchronize(NULL));
  REFUSED(CUDA_ERROR_INVALID_VALUE, "passes the end", sim.taper_sim_forget(x, 133, NULL));
  REFUSED(CUDA_ERROR_INVALID_VALUE, "passes the end", sim.taper_sim_look(x, 133, seen, written));
  OK(cu.cuMemcpyDtoHAsync_v2(got, x + 96, 8, NULL));
  REFUSED(CUDA_ERROR_LAUNCH_FAILED, "never written", cu.cuStreamSynchronize(NULL));
}

/* ---- events ---- */

static void events_mark_a_place(void **state) {
  (void)state;
  fixture f = fixture_new();
  float got[33], milliseconds = -1;
  CUevent begin = NULL, end = NULL, mark = NULL;
  OK(cu.cuEventCreate(&begin, 0));
  OK(cu.cuEventCreate(&end, 0));
  OK(cu.cuEventCreate(&mark, CU_EVENT_DISABLE_TIMING));
  REFUSED(CUDA_ERROR_INVALID_VALUE, "flags 8", cu.cuEventCreate(&mark, 8));
  REFUSED(CUDA_ERROR_INVALID_HANDLE, "has no time", cu.cuEventElapsedTime(&milliseconds, begin, end));
  OK(cu.cuEventSynchronize(begin)); /* never recorded */
  OK(cu.cuEventRecord(begin, f.stream));
  OK(scale(&f, f.y, f.x, 2, f.stream));
  OK(cu.cuEventRecord(end, f.stream));
  REFUSED(CUDA_ERROR_NOT_READY, "is not done", cu.cuEventElapsedTime(&milliseconds, begin, end));
  OK(cu.cuMemcpyDtoHAsync_v2(got, f.y, sizeof(got), f.stream));
  OK(cu.cuEventSynchronize(end));
  assert_true(isnan(got[0])); /* it stands behind the event */
  OK(cu.cuEventElapsedTime(&milliseconds, begin, end));
  assert_true(milliseconds > 0 && milliseconds < 60000);
  OK(cu.cuStreamSynchronize(f.stream));
  assert_true(got[0] == 2);
  OK(cu.cuEventRecord(mark, f.stream));
  OK(cu.cuEventSynchronize(mark));
  REFUSED(CUDA_ERROR_INVALID_HANDLE, "has no time", cu.cuEventElapsedTime(&milliseconds, begin, mark));
  OK(cu.cuEventRecord(mark, f.stream));
  OK(cu.cuEventDestroy_v2(mark)); /* with its record queued */
  REFUSED(CUDA_ERROR_INVALID_HANDLE, "is no event", cu.cuEventRecord(mark, f.stream));
  OK(cu.cuEventDestroy_v2(begin));
  OK(cu.cuEventDestroy_v2(end));
  fixture_free(&f);
}

/* ---- graphs ---- */

static CUgraph captured(fixture *f, float factor) {
  CUgraph graph = NULL;
  OK(cu.cuStreamBeginCapture_v2(f->stream, CU_CAPTURE_THREAD_LOCAL));
  OK(scale(f, f->y, f->x, factor, f->stream));
  OK(scale(f, f->x, f->y, 1, f->stream));
  factor = 0;
  OK(cu.cuStreamEndCapture(f->stream, &graph));
  return graph;
}

static void graphs_repeat_their_work(void **state) {
  (void)state;
  fixture f = fixture_new();
  float got[33];
  CUgraphExec exec = NULL;
  CUgraphNode nodes[3];
  size_t count = 0;
  CUgraph graph = captured(&f, 2);
  OK(cu.cuGraphGetNodes(graph, NULL, &count));
  assert_int_equal(count, 2);
  count = 3;
  OK(cu.cuGraphGetNodes(graph, nodes, &count));
  assert_true(count == 2 && nodes[0] && nodes[1] && !nodes[2]);
  REFUSED(CUDA_ERROR_INVALID_VALUE, "flags 64", cu.cuGraphInstantiateWithFlags(&exec, graph, 64));
  OK(cu.cuGraphInstantiateWithFlags(&exec, graph, 0));
  OK(cu.cuGraphDestroy(graph));
  REFUSED(CUDA_ERROR_INVALID_HANDLE, "is no graph", cu.cuGraphDestroy(graph));
  sim_get(got, f.x, f.n);
  assert_true(got[0] == 1); /* a capture executes nothing */
  for (int i = 0; i < 3; i++) OK(cu.cuGraphLaunch(exec, f.stream));
  OK(cu.cuMemcpyDtoHAsync_v2(got, f.x, sizeof(got), f.stream));
  OK(cu.cuStreamSynchronize(f.stream));
  for (unsigned i = 0; i < f.n; i++) assert_true(got[i] == 8.0f * (float)(i + 1));
  OK(cu.cuGraphExecDestroy(exec));
  REFUSED(CUDA_ERROR_INVALID_HANDLE, "is no executable graph", cu.cuGraphLaunch(exec, f.stream));
  fixture_free(&f);
}

/* Copies of a graph read the host's memory at each launch. */
static void graphs_copy_from_pinned_memory(void **state) {
  (void)state;
  CUdeviceptr y = sim_floats(1, 0, 0);
  CUstream stream = NULL;
  CUgraph graph = NULL;
  CUgraphExec exec = NULL;
  float *host = NULL, pageable = 0;
  OK(cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  OK(cu.cuMemHostAlloc((void **)&host, 8, 0));
  OK(cu.cuStreamBeginCapture_v2(stream, CU_CAPTURE_THREAD_LOCAL));
  REFUSED(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "cuMemHostAlloc", cu.cuMemcpyHtoDAsync_v2(y, &pageable, 4, stream));
  REFUSED(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "not allowed", cu.cuStreamEndCapture(stream, &graph));
  OK(cu.cuStreamBeginCapture_v2(stream, CU_CAPTURE_THREAD_LOCAL));
  OK(cu.cuMemcpyHtoDAsync_v2(y, &host[0], 4, stream));
  OK(cu.cuMemcpyDtoHAsync_v2(&host[1], y, 4, stream));
  OK(cu.cuStreamEndCapture(stream, &graph));
  OK(cu.cuGraphInstantiateWithFlags(&exec, graph, 0));
  for (int i = 0; i < 3; i++) {
    host[0] = (float)i;
    OK(cu.cuGraphLaunch(exec, stream));
    OK(cu.cuStreamSynchronize(stream));
    assert_true(host[1] == (float)i);
  }
  OK(cu.cuGraphLaunch(exec, stream));
  host[0] = 9;
  REFUSED(CUDA_ERROR_LAUNCH_FAILED, "changed or freed", cu.cuStreamSynchronize(stream));
}

static void graphs_outlive_nothing(void **state) {
  (void)state;
  fixture f = fixture_new();
  CUgraph graph = captured(&f, 2);
  CUgraphExec exec = NULL;
  CUdeviceptr gone = f.x;
  OK(cu.cuGraphInstantiateWithFlags(&exec, graph, 0));
  OK(cu.cuMemFree_v2(f.x));
  OK(cu.cuGraphLaunch(exec, f.stream));
  REFUSED(CUDA_ERROR_ILLEGAL_ADDRESS, "address outside of every allocation", cu.cuStreamSynchronize(f.stream));
  assert_true(gone != 0);
}

static void graphs_need_their_module(void **state) {
  (void)state;
  fixture f = fixture_new();
  CUgraph graph = captured(&f, 2);
  CUgraphExec exec = NULL;
  OK(cu.cuGraphInstantiateWithFlags(&exec, graph, 0));
  OK(cu.cuModuleUnload(f.module));
  f.module = sim_load("driver.sm_90.ptx");
  (void)sim_function(f.module, "scale");
  REFUSED(CUDA_ERROR_INVALID_HANDLE, "is no function", cu.cuGraphLaunch(exec, f.stream));
  OK(cu.cuGraphExecDestroy(exec));
  OK(cu.cuGraphDestroy(graph));
  fixture_free(&f);
}

/* ---- what a capture forbids ---- */

/* Each call returns its error, and the capture is lost. */
#define SPOILS(code, words, call)                                                                                      \
  do {                                                                                                                 \
    CUgraph graph_ = NULL;                                                                                             \
    OK(cu.cuStreamBeginCapture_v2(f.stream, CU_CAPTURE_THREAD_LOCAL));                                                 \
    OK(scale(&f, f.y, f.x, 2, f.stream));                                                                              \
    REFUSED(code, words, call);                                                                                        \
    assert_int_equal(scale(&f, f.y, f.x, 2, f.stream), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);                         \
    assert_int_equal(cu.cuStreamEndCapture(f.stream, &graph_), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);                 \
    assert_null(graph_);                                                                                               \
  } while (0)

static void captures_are_spoilt(void **state) {
  (void)state;
  fixture f = fixture_new();
  CUdeviceptr memory = 0;
  CUevent event = NULL;
  CUmodule m = NULL;
  void *host = NULL;
  CUgraphExec exec = NULL;
  CUgraph graph = captured(&f, 2);
  char *ptx = sim_read("driver.sm_90.ptx");
  OK(cu.cuGraphInstantiateWithFlags(&exec, graph, 0));
  OK(cu.cuEventCreate(&event, 0));
  const CUresult no = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  SPOILS(no, "cuMemAlloc_v2: not allowed", cu.cuMemAlloc_v2(&memory, 4));
  SPOILS(no, "not allowed", cu.cuMemFree_v2(f.x));
  SPOILS(no, "not allowed", cu.cuMemHostAlloc(&host, 4, 0));
  SPOILS(no, "not allowed", cu.cuMemFreeHost(host));
  SPOILS(no, "not allowed", cu.cuCtxSynchronize());
  SPOILS(no, "not allowed", cu.cuModuleLoadDataEx(&m, ptx, 0, NULL, NULL));
  SPOILS(no, "not allowed", cu.cuModuleUnload(f.module));
  SPOILS(no, "not allowed", cu.cuEventSynchronize(event));
  SPOILS(no, "is being captured", cu.cuStreamSynchronize(f.stream));
  SPOILS(no, "is being captured", cu.cuStreamDestroy_v2(f.stream));
  SPOILS(CUDA_ERROR_NOT_SUPPORTED, "graphs inside of graphs", cu.cuGraphLaunch(exec, f.stream));
  OK(cu.cuGraphExecDestroy(exec));
  OK(cu.cuGraphDestroy(graph));
  OK(cu.cuEventDestroy_v2(event));
  fixture_free(&f);
  free(ptx);
}

typedef struct thread_job {
  fixture *f;
  CUgraph graph;
} thread_job;
static void *other_thread(void *arg) {
  thread_job *j = arg;
  CUdeviceptr memory = 0;
  OK(cu.cuCtxPushCurrent_v2(context));
  OK(cu.cuMemAlloc_v2(&memory, 4)); /* the capture is the other thread's */
  OK(cu.cuMemFree_v2(memory));
  REFUSED(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, "another thread", cu.cuStreamEndCapture(j->f->stream, &j->graph));
  OK(cu.cuCtxPopCurrent_v2(NULL));
  return NULL;
}

static void captures_have_rules(void **state) {
  (void)state;
  fixture f = fixture_new();
  CUgraph graph = NULL;
  CUevent event = NULL;
  CUstream blocking = NULL;
  pthread_t thread;
  thread_job job = {.f = &f};
  OK(cu.cuEventCreate(&event, 0));
  OK(cu.cuStreamCreate(&blocking, 0));
  REFUSED(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "default stream", cu.cuStreamBeginCapture_v2(NULL, 0));
  REFUSED(CUDA_ERROR_INVALID_VALUE, "mode 3", cu.cuStreamBeginCapture_v2(f.stream, 3));
  REFUSED(CUDA_ERROR_ILLEGAL_STATE, "not being captured", cu.cuStreamEndCapture(f.stream, &graph));
  OK(cu.cuStreamBeginCapture_v2(f.stream, CU_CAPTURE_THREAD_LOCAL));
  REFUSED(CUDA_ERROR_ILLEGAL_STATE, "is being captured", cu.cuStreamBeginCapture_v2(f.stream, 0));
  OK(cu.cuEventRecord(event, f.stream)); /* a mark: no node */
  assert_int_equal(pthread_create(&thread, NULL, other_thread, &job), 0);
  pthread_join(thread, NULL);
  OK(scale(&f, f.y, f.x, 2, NULL)); /* of no concern to a stream that does not block */
  OK(cu.cuStreamEndCapture(f.stream, &graph));
  REFUSED(CUDA_ERROR_CAPTURED_EVENT, "captured stream", cu.cuEventSynchronize(event));
  size_t count = 9;
  OK(cu.cuGraphGetNodes(graph, NULL, &count));
  assert_int_equal(count, 0);
  OK(cu.cuGraphDestroy(graph));
  OK(cu.cuStreamBeginCapture_v2(blocking, CU_CAPTURE_RELAXED));
  REFUSED(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, "default stream", scale(&f, f.y, f.x, 2, NULL));
  assert_int_equal(cu.cuStreamEndCapture(blocking, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  OK(cu.cuStreamDestroy_v2(blocking));
  OK(cu.cuEventDestroy_v2(event));
  fixture_free(&f);
}

/* ---- random programs ---- */

enum { LANES = 2, BUFFERS = 3, WIDTH = 33, STEPS = 200, GRAPH_STEPS = 5 };
typedef struct lane { /* a stream with buffers of its own, and what they must hold */
  CUstream stream;
  CUdeviceptr memory[BUFFERS];
  float want[BUFFERS][WIDTH];
  float *pinned; /* [WIDTH], in turn the source of copies */
} lane;

static uint32_t draw(uint64_t *seed, uint32_t below) {
  *seed = *seed * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(*seed >> 33) % below;
}

/* One piece of work on the lane's stream; `model`: and on what its buffers must hold. */
static void work(const fixture *f, lane *l, uint64_t *seed, bool model) {
  const uint32_t kind = draw(seed, 4), to = draw(seed, BUFFERS), from = (to + 1 + draw(seed, BUFFERS - 1)) % BUFFERS;
  const float factor = (float)draw(seed, 4) - 1;
  const uint32_t bits = factor == 0 ? 0 : 0x3f800000; /* 1.0f */
  float value;
  memcpy(&value, &bits, 4);
  if (kind == 0) OK(cu.cuMemsetD32Async(l->memory[to], bits, WIDTH, l->stream));
  if (kind == 1) OK(cu.cuMemcpyDtoDAsync_v2(l->memory[to], l->memory[from], WIDTH * 4, l->stream));
  if (kind == 2) OK(scale(f, l->memory[to], l->memory[from], factor, l->stream));
  if (kind == 3) OK(cu.cuMemcpyHtoDAsync_v2(l->memory[to], l->pinned, WIDTH * 4, l->stream));
  for (uint32_t i = 0; model && i < WIDTH; i++) {
    const float results[] = {value, l->want[from][i], factor * l->want[from][i], l->pinned[i]};
    l->want[to][i] = results[kind];
  }
}

static void graph_of_work(const fixture *f, lane *l, uint64_t *seed) {
  CUgraph graph = NULL;
  CUgraphExec exec = NULL;
  const uint64_t start = *seed;
  OK(cu.cuStreamBeginCapture_v2(l->stream, CU_CAPTURE_THREAD_LOCAL));
  for (int i = 0; i < GRAPH_STEPS; i++) work(f, l, seed, false);
  OK(cu.cuStreamEndCapture(l->stream, &graph));
  OK(cu.cuGraphInstantiateWithFlags(&exec, graph, 0));
  for (int times = 0; times < 2; times++) {
    lane scratch = *l; /* the same work for the model: queued on buffers that nobody looks at */
    uint64_t again = start;
    OK(cu.cuStreamCreate(&scratch.stream, CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < BUFFERS; i++) scratch.memory[i] = sim_floats(WIDTH, 0, 0);
    for (int i = 0; i < GRAPH_STEPS; i++) work(f, &scratch, &again, true);
    memcpy(l->want, scratch.want, sizeof(l->want));
    OK(cu.cuGraphLaunch(exec, l->stream));
    OK(cu.cuStreamDestroy_v2(scratch.stream));
    for (int i = 0; i < BUFFERS; i++) OK(cu.cuMemFree_v2(scratch.memory[i]));
  }
  OK(cu.cuGraphExecDestroy(exec));
  OK(cu.cuGraphDestroy(graph));
}

static void compare(lane *l) {
  float got[BUFFERS][WIDTH];
  for (int i = 0; i < BUFFERS; i++) OK(cu.cuMemcpyDtoHAsync_v2(got[i], l->memory[i], sizeof(got[i]), l->stream));
  OK(cu.cuStreamSynchronize(l->stream));
  for (int i = 0; i < BUFFERS; i++)
    for (int k = 0; k < WIDTH; k++)
      if (got[i][k] != l->want[i][k]) fail_msg("%g, wanted %g", (double)got[i][k], (double)l->want[i][k]);
  for (int k = 0; k < WIDTH; k++) l->pinned[k] += 1; /* nothing is queued: it may change */
}

static void random_programs_do_as_written(void **state) {
  (void)state;
  fixture f = fixture_new();
  lane lanes[LANES] = {0};
  uint64_t seed = 11;
  for (int i = 0; i < LANES; i++) {
    OK(cu.cuStreamCreate(&lanes[i].stream, CU_STREAM_NON_BLOCKING));
    OK(cu.cuMemHostAlloc((void **)&lanes[i].pinned, WIDTH * 4, 0));
    for (int k = 0; k < WIDTH; k++) lanes[i].pinned[k] = (float)k;
    for (int b = 0; b < BUFFERS; b++) lanes[i].memory[b] = sim_floats(WIDTH, 0, 0);
  }
  for (int i = 0; i < STEPS; i++) {
    lane *l = &lanes[draw(&seed, LANES)];
    const uint32_t what = draw(&seed, 20);
    if (what == 0) compare(l);
    if (what == 1) graph_of_work(&f, l, &seed);
    if (what > 1) work(&f, l, &seed, true);
  }
  for (int i = 0; i < LANES; i++) {
    compare(&lanes[i]);
    OK(cu.cuStreamDestroy_v2(lanes[i].stream));
    OK(cu.cuMemFreeHost(lanes[i].pinned));
    for (int b = 0; b < BUFFERS; b++) OK(cu.cuMemFree_v2(lanes[i].memory[b]));
  }
  fixture_free(&f);
}

/* ---- threads ---- */

static void *one_of_several(void *arg) {
  fixture f = *(fixture *)arg;
  float got[33];
  OK(cu.cuCtxPushCurrent_v2(context));
  OK(cu.cuStreamCreate(&f.stream, CU_STREAM_NON_BLOCKING));
  f.y = 0;
  OK(cu.cuMemAlloc_v2(&f.y, f.n * 4));
  for (int i = 1; i < 20; i++) {
    OK(scale(&f, f.y, f.x, (float)i, f.stream));
    OK(cu.cuMemcpyDtoHAsync_v2(got, f.y, sizeof(got), f.stream));
    OK(cu.cuStreamSynchronize(f.stream));
    if (got[32] != 33.0f * (float)i) return NULL;
  }
  OK(cu.cuMemFree_v2(f.y));
  OK(cu.cuStreamDestroy_v2(f.stream));
  OK(cu.cuCtxPopCurrent_v2(NULL));
  return arg;
}

static void threads_share_the_device(void **state) {
  (void)state;
  fixture f = fixture_new();
  pthread_t threads[3];
  void *fine = NULL;
  for (int i = 0; i < 3; i++) assert_int_equal(pthread_create(&threads[i], NULL, one_of_several, &f), 0);
  for (int i = 0; i < 3; i++) {
    pthread_join(threads[i], &fine);
    assert_ptr_equal(fine, &f);
  }
  fixture_free(&f);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, sim_deferred, sim_end)
#define EAGER(f) cmocka_unit_test_setup_teardown(f, sim_eager, sim_end)
int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(work_waits_until_somebody_does),
      EAGER(eager_work_is_done_at_once),
      TEST(the_default_stream_waits_for_blocking_ones),
      EAGER(the_default_stream_waits_for_blocking_ones),
      TEST(sources_stay_until_they_were_copied),
      TEST(sources_are_freed_too_early),
      TEST(pinned_memory_is_freed_too_early),
      TEST(targets_stay_until_they_were_written),
      TEST(one_buffer_serves_queued_copies_in_turn),
      TEST(forgotten_memory_was_never_written),
      TEST(events_mark_a_place),
      TEST(graphs_repeat_their_work),
      EAGER(graphs_repeat_their_work),
      TEST(graphs_copy_from_pinned_memory),
      TEST(graphs_outlive_nothing),
      TEST(graphs_need_their_module),
      TEST(captures_are_spoilt),
      TEST(captures_have_rules),
      TEST(random_programs_do_as_written),
      EAGER(random_programs_do_as_written),
      TEST(threads_share_the_device),
  };
  return cmocka_run_group_tests(tests, sim_open, sim_close);
}
