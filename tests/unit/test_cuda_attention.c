/* The attention kernel of CUDA on the simulator, against softmax in double precision. */
#include "tests/unit/cuda_run.h"

typedef struct shape {
  uint32_t heads, group, key_dim, value_dim, window, context, splits, start;
  float cap;
} shape;

static const char *const headers[] = {"templates/cuda/prelude.cuh", "templates/cuda/team.cuh", NULL};

static const shape shapes[] = {
    {.heads = 1, .group = 1, .key_dim = 1, .value_dim = 1, .context = 1, .splits = 1},
    {.heads = 2, .group = 2, .key_dim = 20, .value_dim = 20, .context = 150, .splits = 3},
    {.heads = 2, .group = 8, .key_dim = 64, .value_dim = 64, .context = 300, .splits = 4, .start = 3},
    {.heads = 1, .group = 6, .key_dim = 10, .value_dim = 6, .context = 70, .splits = 1, .cap = 2},
    {.heads = 3, .group = 1, .key_dim = 7, .value_dim = 33, .context = 40, .splits = 7, .window = 19},
    {.heads = 1, .group = 3, .key_dim = 256, .value_dim = 128, .context = 33, .splits = 2, .window = 40, .cap = 30},
};

static double reference_row(const shape *s, const float *q, const float *keys, const float *values, uint32_t last,
                            double *y) {
  const uint32_t first = s->window && last + 1 > s->window ? last + 1 - s->window : 0;
  double most = -INFINITY, total = 0, *score = malloc(sizeof(double) * (last + 1));
  for (uint32_t p = first; p <= last; p++) {
    double sum = 0;
    for (uint32_t j = 0; j < s->key_dim; j++) sum += (double)q[j] * (double)keys[p * s->key_dim + j];
    sum *= 0.3125;
    score[p] = s->cap > 0 ? (double)s->cap * tanh(sum / (double)s->cap) : sum;
    most = score[p] > most ? score[p] : most;
  }
  for (uint32_t j = 0; j < s->value_dim; j++) y[j] = 0;
  for (uint32_t p = first; p <= last; p++) {
    const double e = exp(score[p] - most);
    total += e;
    for (uint32_t j = 0; j < s->value_dim; j++) y[j] += e * (double)values[p * s->value_dim + j];
  }
  for (uint32_t j = 0; j < s->value_dim; j++) y[j] /= total;
  free(score);
  return total;
}

static float *random_floats(size_t n, float scale) {
  float *x = malloc(sizeof(float) * n);
  for (size_t i = 0; i < n; i++) x[i] = run_uniform() * scale;
  return x;
}

/* Rows: positions of two slots, ragged; position 0 and the last one are among them. */
enum { ROWS = 5, SLOTS = 2, ROW_CAP = 6 };

static void check_shape(cuda_run *r, const shape *s) {
  char defines[1024];
  const uint32_t q_width = s->heads * s->group * s->key_dim + s->start + 1, width = s->heads * s->group * s->value_dim;
  snprintf(defines, sizeof defines,
           "#define P_NAME tested_kernel\n#define P_ARGS tested_args\nstruct P_ARGS { uint64_t b0, b1; float *s0, *s1; "
           "};\n#define P_GROUP %u\n"
           "#define P_KV_HEADS %u\n#define P_KEY_DIM %u\n#define P_VALUE_DIM %u\n#define P_SCALE 0.3125f\n#define "
           "P_WINDOW %u\n#define P_CAPPED %d\n"
           "#define P_CAP %u.0f\n#define P_Q_WIDTH %u\n#define P_Q_START %u\n",
           s->group, s->heads, s->key_dim, s->value_dim, s->window, s->cap > 0, (unsigned)s->cap, q_width, s->start);
  run_load(r, headers, defines, "templates/cuda/attention.cu", "tested_kernel");
  const size_t key_floats = (size_t)SLOTS * s->heads * s->context * s->key_dim,
               value_floats = (size_t)SLOTS * s->heads * s->context * s->value_dim;
  const size_t arena_floats = (size_t)ROW_CAP * (3 + q_width + width);
  float *keys = random_floats(key_floats, 2), *values = random_floats(value_floats, 1),
        *memory = random_floats(arena_floats, 2);
  const int32_t end = s->context > 1 ? (int32_t)s->context - 2 : 0, pos[ROWS] = {0, end, end / 2, end / 3, end},
                slot[ROWS] = {0, 1, 1, 0, 0};
  const uint32_t zeros[ROWS * 8] = {0};
  if (s->context > 1) { /* nobody sees the last position */
    for (uint32_t h = 0; h < SLOTS * s->heads; h++) {
      for (uint32_t j = 0; j < s->key_dim; j++) keys[((h + 1) * s->context - 1) * s->key_dim + j] = NAN;
      for (uint32_t j = 0; j < s->value_dim; j++) values[((h + 1) * s->context - 1) * s->value_dim + j] = NAN;
    }
  }
  CUdeviceptr d_pos = run_put(r, pos, sizeof pos), d_slot = run_put(r, slot, sizeof slot),
              d_arena = run_put(r, memory, arena_floats * 4), d_keys = run_put(r, keys, key_floats * 4),
              d_values = run_put(r, values, value_floats * 4), d_counters = run_put(r, zeros, sizeof zeros),
              d_scratch = run_put(r, NULL, (size_t)ROWS * s->heads * s->splits * s->group * (s->value_dim + 2) * 4);
  taper_cuda_call call = {.pos = (const int32_t *)(uintptr_t)d_pos,
                          .slot = (const int32_t *)(uintptr_t)d_slot,
                          .arena = run_addressed(d_arena),
                          .scratch = run_addressed(d_scratch),
                          .counters = (uint32_t *)(uintptr_t)d_counters,
                          .rows = ROWS,
                          .row_cap = ROW_CAP,
                          .context = s->context,
                          .splits = s->splits};
  struct {
    uint64_t b0, b1;
    CUdeviceptr s0, s1;
  } args = {3, 3 + q_width, d_keys, d_values};
  for (int twice = 0; twice < 2; twice++) { /* the counters are 0 again */
    const CUdeviceptr y = d_arena + (size_t)(3 + q_width) * ROW_CAP * 4;
    RUN_CHECK(r, r->driver.cuMemsetD8Async(y, 0xff, (size_t)ROW_CAP * width * 4, r->stream));
    run_launch(r, (unsigned[]){s->splits, s->heads, ROWS}, 128, &call, &args);
  }
  float *after = malloc(arena_floats * 4);
  run_get(r, d_arena, after, arena_floats * 4);
  double *y = malloc(sizeof(double) * s->value_dim);
  for (uint32_t row = 0; row < ROWS; row++)
    for (uint32_t h = 0; h < s->heads * s->group; h++) {
      const size_t head = (size_t)slot[row] * s->heads + h / s->group;
      reference_row(s, memory + 3 * ROW_CAP + row * q_width + s->start + h * s->key_dim,
                    keys + head * s->context * s->key_dim, values + head * s->context * s->value_dim,
                    (uint32_t)pos[row], y);
      const float *got = after + (3 + q_width) * ROW_CAP + row * width + h * s->value_dim;
      for (uint32_t j = 0; j < s->value_dim; j++)
        if (!(fabs((double)got[j] - y[j]) < 3e-6))
          fail_msg("dim %u row %u head %u column %u: %g, not %g", s->key_dim, row, h, j, (double)got[j], y[j]);
    }
  const CUdeviceptr all[] = {d_pos, d_slot, d_arena, d_keys, d_values, d_counters, d_scratch};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) run_free(r, all[i]);
  free(keys), free(values), free(memory), free(after), free(y);
}

static void attention_is_softmax(void **state) {
  (void)state;
  if (!run_has_compiler()) return;
  srand(7);
  cuda_run r;
  run_open(&r);
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) check_shape(&r, &shapes[i]);
  run_close(&r);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(attention_is_softmax)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
