/* The sampling kernel of CUDA on the simulator, against runtime/sample.c. */
#include "runtime/device.h"
#include "runtime/taper.h"
#include "tests/unit/cuda_run.h"

static const char *const headers[] = {"templates/cuda/prelude.cuh", "templates/cuda/sample.cuh", NULL};

enum { ROWS = 12, CONTEXT = 100, MOST = 6, WIDTH = 700 };

/* Everything that the kernel reads or changes, on this side. */
typedef struct batch {
  uint32_t vocab;
  float *logits;
  taper_cuda_row row[ROWS];
  taper_cuda_sampling sampling;
  int32_t token[ROWS], pos[ROWS], history[ROWS][CONTEXT], out[ROWS][MOST];
  float stream[ROWS][WIDTH], inverse[WIDTH], scales[ROWS][CONTEXT];
} batch;

typedef struct kernel_args {
  CUdeviceptr rows, sampling, logits, token, pos, scales, stream, inverse;
  uint64_t centred;
} kernel_args;

static float pick(const float *from, size_t n) { return from[(size_t)rand() % n]; }
#define PICK(...) pick((const float[]){__VA_ARGS__}, sizeof((const float[]){__VA_ARGS__}) / sizeof(float))

static void run_batch(cuda_run *r, batch *b, bool inverse, bool centred) {
  const size_t logit_bytes = sizeof(float) * ROWS * b->vocab;
  const CUdeviceptr history = run_put(r, b->history, sizeof b->history), out = run_put(r, b->out, sizeof b->out);
  taper_cuda_row rows[ROWS];
  memcpy(rows, b->row, sizeof rows);
  for (uint32_t i = 0; i < ROWS; i++) {
    rows[i].history = (int32_t *)(uintptr_t)history + i * CONTEXT;
    rows[i].out = (int32_t *)(uintptr_t)out + i * MOST;
  }
  kernel_args a = {.rows = run_put(r, rows, sizeof rows),
                   .sampling = run_put(r, &b->sampling, sizeof b->sampling),
                   .logits = run_put(r, b->logits, logit_bytes),
                   .token = run_put(r, b->token, sizeof b->token),
                   .pos = run_put(r, b->pos, sizeof b->pos),
                   .scales = run_put(r, b->scales, sizeof b->scales),
                   .stream = run_put(r, b->stream, sizeof b->stream),
                   .inverse = run_put(r, b->inverse, sizeof b->inverse),
                   .centred = centred};
  const kernel_args held = a;
  if (!inverse) a.inverse = 0;
  taper_cuda_call call = {.rows = ROWS, .out_rows = ROWS, .row_cap = ROWS, .context = CONTEXT, .splits = 1};
  run_launch(r, (unsigned[]){ROWS, 1, 1}, 512, &call, &a);
  run_get(r, held.rows, b->row, sizeof b->row);
  run_get(r, held.token, b->token, sizeof b->token);
  run_get(r, held.pos, b->pos, sizeof b->pos);
  run_get(r, held.scales, b->scales, sizeof b->scales);
  run_get(r, history, b->history, sizeof b->history);
  run_get(r, out, b->out, sizeof b->out);
  const CUdeviceptr all[] = {history,  out,        held.rows,   held.sampling, held.logits,
                             held.pos, held.token, held.scales, held.stream,   held.inverse};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) run_free(r, all[i]);
}

/* What a row must look like afterwards. */
static void expect_row(const batch *before, batch *want, uint32_t i, const taper_sampling *s) {
  const float *logits = before->logits + (size_t)i * before->vocab;
  taper_cuda_row *row = &want->row[i];
  const uint32_t held = (uint32_t)before->pos[i] + 1;
  if (row->done) return;
  for (uint32_t id = 0; id < before->vocab; id++)
    if (!isfinite(logits[id])) {
      row->done = TAPER_CUDA_NUMERIC, row->bad_id = id;
      return;
    }
  int32_t id = -1;
  assert_int_equal(taper_sample(s, logits, before->vocab, before->history[i], held, row->sequence, &id, NULL),
                   TAPER_OK);
  if (id == before->sampling.end_token) {
    row->done = TAPER_CUDA_END;
    return;
  }
  want->out[i][row->made++] = id;
  if (row->made == row->most)
    row->done = TAPER_CUDA_LENGTH;
  else if (held == CONTEXT)
    row->done = TAPER_CUDA_CONTEXT;
  else
    want->history[i][held] = id, want->token[i] = id, want->pos[i] = (int32_t)held;
}

static void fill_batch(batch *b, int round, taper_sampling *s) {
  const float step = PICK(0.25f, 0.333f, 0.01f, 3.0f), spread = PICK(0, 3, 30);
  const bool extreme = rand() % 4 == 0;
  for (uint32_t i = 0; i < ROWS * b->vocab; i++) {
    b->logits[i] = spread == 0 ? 1 : (float)(rand() % 41 - 20) * step + (rand() % 4 ? 0 : run_uniform() * spread);
    if (spread == 0 && step < 0.3f)
      b->logits[i] = PICK(0.0f, -0.0f); /* equal */
    else if (extreme && rand() % 9 == 0)
      b->logits[i] = PICK(0.0f, -0.0f, 3e38f, -3e38f, 5);
  }
  for (uint32_t i = 0; i < ROWS; i++) {
    b->pos[i] = rand() % 8 == 0 ? CONTEXT - 1 : rand() % CONTEXT, b->token[i] = rand() % (int)b->vocab;
    for (uint32_t j = 0; j < CONTEXT; j++) b->history[i][j] = rand() % (int)b->vocab;
    for (uint32_t j = 0; j < MOST; j++) b->out[i][j] = -7;
    b->row[i] = (taper_cuda_row){
        .sequence = (uint32_t)(round * ROWS) + i, .made = (uint32_t)rand() % 3, .most = MOST - (uint32_t)rand() % 4};
    if (rand() % 10 == 0) b->row[i].done = TAPER_CUDA_LENGTH;
    if (rand() % 20 == 0) b->logits[i * b->vocab + (uint32_t)rand() % b->vocab] = PICK(NAN, INFINITY, -INFINITY);
  }
  taper_sampling_init(s);
  s->temperature = PICK(0, 0.01f, 0.8f, 1, 3), s->top_k = (uint32_t)PICK(0, 1, 2, 40, 1200, 5000),
  s->top_p = PICK(0, 0.1f, 0.5f, 0.95f, 1);
  s->min_p = PICK(0, 0.05f, 0.5f, 1), s->repeat_penalty = PICK(1, 1.3f, 0.7f),
  s->repeat_last = (uint32_t)PICK(0, 3, 64, 1000);
  s->seed = (uint64_t)rand() << 33 ^ (uint64_t)rand();
  b->sampling = (taper_cuda_sampling){.seed = s->seed,
                                      .temperature = s->temperature,
                                      .top_p = s->top_p,
                                      .min_p = s->min_p,
                                      .repeat_penalty = s->repeat_penalty,
                                      .top_k = s->top_k,
                                      .repeat_last = s->repeat_last,
                                      .end_token = rand() % 2 ? -1 : (int32_t)(b->vocab / 2)};
}

static void check_batch(cuda_run *r, batch *b, int round) {
  taper_sampling s;
  fill_batch(b, round, &s);
  batch *want = malloc(sizeof *want);
  *want = *b;
  for (uint32_t i = 0; i < ROWS; i++) expect_row(b, want, i, &s);
  float(*scales)[CONTEXT] = want->scales;
  const bool inverse = rand() % 2, centred = rand() % 2;
  for (uint32_t j = 0; j < WIDTH; j++) b->inverse[j] = run_uniform() + 2;
  for (uint32_t i = 0; i < ROWS; i++) {
    for (uint32_t j = 0; j < CONTEXT; j++) b->scales[i][j] = scales[i][j] = -1;
    for (uint32_t j = 0; j < WIDTH; j++) b->stream[i][j] = run_uniform() * 3;
    if (!b->row[i].done)
      scales[i][b->pos[i]] = device_scale_of(b->stream[i], inverse ? b->inverse : NULL, WIDTH, centred);
  }
  run_batch(r, b, inverse, centred);
  for (uint32_t i = 0; i < ROWS; i++) {
    const taper_cuda_row *got = &b->row[i], *row = &want->row[i];
    for (uint32_t j = 0; j < MOST; j++)
      if (b->out[i][j] != want->out[i][j])
        fail_msg("round %d vocab %u row %u: id %d, not %d (temperature %g, top_k %u, top_p %g, min_p %g, penalty %g)",
                 round, b->vocab, i, b->out[i][j], want->out[i][j], (double)s.temperature, s.top_k, (double)s.top_p,
                 (double)s.min_p, (double)s.repeat_penalty);
    assert_int_equal(got->done, row->done);
    assert_int_equal(got->made, row->made);
    assert_int_equal(got->bad_id, row->bad_id);
    assert_int_equal(b->pos[i], want->pos[i]);
    assert_int_equal(b->token[i], want->token[i]);
    assert_memory_equal(b->history[i], want->history[i], sizeof b->history[i]);
    for (uint32_t j = 0; j < CONTEXT; j++) assert_float_equal(b->scales[i][j], scales[i][j], 1e-6);
  }
  free(want);
}

static void ids_are_those_of_the_host(void **state) {
  (void)state;
  if (!run_has_compiler()) return;
  static const struct {
    uint32_t vocab;
    int rounds;
  } vocabularies[] = {{1, 3}, {3, 60}, {257, 40}, {1500, 25}, {33000, 2}};
  srand(11);
  cuda_run r;
  run_open(&r);
  for (size_t i = 0; i < sizeof vocabularies / sizeof *vocabularies; i++) {
    char defines[256];
    snprintf(defines, sizeof defines,
             "#define P_NAME tested_kernel\n#define P_ARGS tested_args\n#define P_VOCAB %u\n#define P_WIDTH %d\n",
             vocabularies[i].vocab, WIDTH);
    run_load(&r, headers, defines, "templates/cuda/sample.cu", "tested_kernel");
    batch *b = calloc(1, sizeof *b);
    b->vocab = vocabularies[i].vocab, b->logits = malloc(sizeof(float) * ROWS * b->vocab);
    for (int round = 0; round < vocabularies[i].rounds; round++) check_batch(&r, b, round);
    free(b->logits), free(b);
  }
  run_close(&r);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(ids_are_those_of_the_host)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
