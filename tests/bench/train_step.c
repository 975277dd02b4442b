/* train_step.c - times one program of training, stage by stage: train_step MODEL.tir PROGRAM BATCH TIME [WORKERS [CALLS [ARCH]]]. MODEL.tir has
 * training entries; its parameters are random. PROGRAM: taper_train_program_id. */
#include "tests/unit/train_run.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <time.h>

typedef struct bench {
  train_image_run r;
  const taper_train_program *program;
  taper_train_ctx ctx;
  uint32_t calls, workers;
  double *seconds; /* [stage] of worker 0, the barrier behind it included */
  double *cpu;     /* [stage] of worker 0, its own time: what counts on a machine that others use too */
  double *best;    /* [call] */
  atomic_uint arrived, round;
} bench;

static double now(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void barrier(bench *b) {
  unsigned round = atomic_load(&b->round);
  if (atomic_fetch_add(&b->arrived, 1) + 1 == b->workers) {
    atomic_store(&b->arrived, 0);
    atomic_fetch_add(&b->round, 1);
    return;
  }
  while (atomic_load(&b->round) == round) sched_yield();
}

static void stage(bench *b, taper_train_ctx *c, const taper_train_stage *s, uint32_t i) {
  double start = now(CLOCK_MONOTONIC), cpu = now(CLOCK_THREAD_CPUTIME_ID);
  s->fn(c, s->args);
  cpu = now(CLOCK_THREAD_CPUTIME_ID) - cpu;
  barrier(b);
  if (c->worker != 0) return;
  b->seconds[i] += now(CLOCK_MONOTONIC) - start;
  b->cpu[i] += cpu;
}

static void call(bench *b, taper_train_ctx *c) {
  const taper_train_program *p = b->program;
  for (uint32_t s = 0, end; s < p->stage_count; s = end) {
    bool loop = p->stages[s].flags & TAPER_TRAIN_CHUNKED;
    for (end = s + 1; loop && end < p->stage_count && p->stages[end].flags & TAPER_TRAIN_CHUNKED;) end++;
    uint32_t step = loop ? c->chunk_rows : c->rows;
    for (uint32_t at = 0; at < c->rows; at += step) {
      c->chunk_row0 = at, c->chunk_count = c->rows - at < step ? c->rows - at : step;
      for (uint32_t i = s; i < end; i++) stage(b, c, &p->stages[i], i);
    }
  }
}

typedef struct thread {
  bench *b;
  taper_train_ctx ctx;
} thread;

static void *work(void *user) {
  thread *t = user;
  for (uint32_t i = 0; i < t->b->calls + 1; i++) {
    if (i == 1 && t->ctx.worker == 0)
      for (uint32_t s = 0; s < t->b->program->stage_count; s++) t->b->seconds[s] = t->b->cpu[s] = 0;
    barrier(t->b);
    double start = now(CLOCK_MONOTONIC);
    call(t->b, &t->ctx);
    if (t->ctx.worker == 0 && i > 0) t->b->best[i - 1] = now(CLOCK_MONOTONIC) - start;
  }
  return NULL;
}

static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return x < y ? -1 : x > y;
}

/* Multiply-adds of the products with matrices and of attention, all of a call. */
static double flops_of(const bench *b, uint32_t id) {
  const ir_module *m = b->r.plan->m;
  double flops = 0, rows = b->ctx.rows;
  for (size_t k = 0; k < b->r.plan->program_count; k++) {
    if (b->r.plan->programs[k].id != id) continue;
    for (ir_value v = ir_first(m, b->r.plan->programs[k].entry); v.id; v = ir_next(m, v)) {
      ir_type w = {0};
      if (ir_is(m, v, IR_LINEAR) || ir_is(m, v, IR_LINEAR_BACK)) w = ir_type_of(m, ir_operand(m, v, 1));
      if (ir_is(m, v, IR_LINEAR_WEIGHT_BACK)) w = ir_type_of(m, v);
      if (w.rank) flops += 2 * rows * (double)(w.dim[0] * w.dim[1]);
      bool back = ir_is(m, v, IR_ATTENTION_BACK);
      if (back || ir_is(m, v, IR_ATTENTION))
        flops += (back ? 5 : 2) * rows * b->ctx.time * (double)train_width(m, ir_operand(m, v, 0)); /* causal: half */
    }
  }
  return flops;
}

static void report(bench *b, uint32_t id) {
  const taper_train_program *p = b->program;
  qsort(b->best, b->calls, sizeof *b->best, by_value);
  double flops = flops_of(b, id);
  printf("%u rows, %u workers: best %.1f ms, median %.1f ms, %.1f GFLOP/s (%.1f GFLOP), arena %.0f MB\n", b->ctx.rows,
         b->workers, 1e3 * b->best[0], 1e3 * b->best[b->calls / 2], 1e-9 * flops / b->best[0], 1e-9 * flops,
         4e-6 * (double)(p->row_floats * b->ctx.row_cap));
  double cpu = 0;
  for (uint32_t i = 0; i < p->stage_count; i++) cpu += b->cpu[i] / b->calls;
  printf("own time of worker 0: %.1f ms a call, %.1f GFLOP/s of one worker\n", 1e3 * cpu,
         1e-9 * flops / b->workers / cpu);
  for (uint32_t i = 0; i < p->stage_count; i++)
    printf("%3u %8.2f ms, own %8.2f ms  %s%s\n", i, 1e3 * b->seconds[i] / b->calls, 1e3 * b->cpu[i] / b->calls,
           p->stages[i].name, p->stages[i].flags & TAPER_TRAIN_CHUNKED ? " (chunks)" : "");
}

static void *big(uint64_t floats) { /* huge pages, touched */
  size_t bytes = ((size_t)floats * 4 + (1 << 21)) >> 21 << 21;
  void *p = aligned_alloc(1 << 21, bytes);
  madvise(p, bytes, MADV_HUGEPAGE);
  memset(p, 0, bytes);
  return p;
}

int main(int argc, char **argv) {
  if (argc < 5) return 2;
  char *source = NULL;
  size_t size = 0;
  if (file_read(argv[1], 1 << 26, &source, &size, NULL) != TAPER_OK) return 3;
  uint32_t id = (uint32_t)atoi(argv[2]), batch = (uint32_t)atoi(argv[3]), time = (uint32_t)atoi(argv[4]);
  diag_sink *sink = diag_sink_new();
  ir_module *m = run_model(source, NULL, 0, NULL, 0, 5, sink);
  bench b = {.workers = argc > 5 ? (uint32_t)atoi(argv[5]) : 2, .calls = argc > 6 ? (uint32_t)atoi(argv[6]) : 5};
  b.r = train_load(m, argc > 7 ? argv[7] : "native", NULL, sink);
  b.program = &b.r.image->programs[id];
  uint32_t rows = batch * time, block = rows / 16 / 16 * 16;
  block = block < 16 ? 16 : block > 128 ? 128 : block;
  if (getenv("BLOCK")) block = (uint32_t)atoi(getenv("BLOCK"));
  uint32_t cap = (rows + block - 1) / block * block;
  int32_t *token = malloc(rows * sizeof *token), *target = malloc(rows * sizeof *target);
  for (uint32_t i = 0; i < rows; i++) {
    uint32_t x[4];
    philox4x32(1, PHILOX_CHECK, 1, i, 0, x);
    token[i] = (int32_t)(x[0] % b.r.image->vocab), target[i] = (int32_t)(x[1] % b.r.image->vocab);
  }
  uint32_t chunk = getenv("CHUNK") ? (uint32_t)atoi(getenv("CHUNK")) : 512;
  b.ctx = (taper_train_ctx){.version = TAPER_TRAIN_ABI_VERSION, .size = sizeof b.ctx, .workers = b.workers};
  b.ctx.batch = batch, b.ctx.time = time, b.ctx.rows = rows, b.ctx.row_cap = cap, b.ctx.block = block;
  b.ctx.chunk_rows = chunk / block * block, b.ctx.inv_count = 1.0f / (float)rows;
  b.ctx.token = token, b.ctx.target = target;
  b.ctx.param = b.r.param, b.ctx.grad = b.r.grad, b.ctx.packed = b.r.packed, b.ctx.gate = b.r.gate;
  b.ctx.result = b.r.result, b.ctx.rotary = (const float *const *)b.r.rotary;
  b.ctx.arena = big(b.program->row_floats * cap), b.ctx.chunk = big(b.program->chunk_floats * b.ctx.chunk_rows);
  b.ctx.partial = big(b.program->partial_floats * (cap / block)), b.ctx.fixed = big(b.program->fixed_floats);
  b.seconds = calloc(b.program->stage_count, sizeof *b.seconds);
  b.cpu = calloc(b.program->stage_count, sizeof *b.cpu), b.best = calloc(b.calls, sizeof *b.best);
  uint64_t floats =
      b.program->scratch_floats + b.program->scratch_per_block * block + b.program->scratch_per_time * time;
  thread *threads = calloc(b.workers, sizeof *threads);
  pthread_t *handles = calloc(b.workers, sizeof *handles);
  for (uint32_t w = 0; w < b.workers; w++) {
    threads[w] = (thread){&b, b.ctx};
    threads[w].ctx.worker = w, threads[w].ctx.scratch = big(floats);
  }
  for (uint32_t w = 0; w < 1; w++) {
    taper_train_ctx one = b.ctx;
    float *scratch[1] = {threads[0].ctx.scratch};
    one.workers = 1;
    train_stages(&b.r.image->programs[TAPER_TRAIN_PACK], &one, scratch);
  }
  for (uint32_t w = 1; w < b.workers; w++) pthread_create(&handles[w], NULL, work, &threads[w]);
  work(&threads[0]);
  for (uint32_t w = 1; w < b.workers; w++) pthread_join(handles[w], NULL);
  report(&b, id);
  return 0;
}
