/* The tiled products of CUDA on the simulator, against sums in double precision. */
#include "tests/unit/cuda_run.h"

static const char *const headers[] = {"templates/cuda/prelude.cuh", "templates/cuda/gemm.cuh", NULL};

typedef struct number_kind {
  const char *type;
  uint32_t bytes, fraction, exponent; /* bits; F32: 0 */
} number_kind;
static const number_kind kinds[] = {{"float", 4, 0, 0}, {"bf16", 2, 7, 8}, {"f16", 2, 10, 5}};

/* A number that the type holds exactly, and its bits. */
static float put_number(const number_kind *k, float x, void *to) {
  if (k->bytes == 4) return memcpy(to, &x, 4), x;
  x = ldexpf(roundf(ldexpf(x, 6)), -6); /* at most 7 bits, for |x| <= 1 */
  uint16_t bits = 0;
  if (x != 0) {
    int e;
    const float m = frexpf(fabsf(x), &e); /* 1/2 <= m < 1 */
    bits = (uint16_t)(lrintf(ldexpf(m, (int)k->fraction + 1)) - (1l << k->fraction) +
                      ((long)(e - 1 + (1 << (k->exponent - 1)) - 1) << k->fraction));
    if (x < 0) bits |= 0x8000;
  }
  memcpy(to, &bits, 2);
  return x;
}

typedef struct matrix {
  uint32_t rows, columns, pitch;
  uint8_t *stored;
  double *values;
} matrix;

/* Behind the columns: zeros, or what must not be read. */
static matrix random_matrix(const number_kind *k, uint32_t rows, uint32_t columns, uint32_t pitch, uint8_t filler) {
  matrix m = {rows, columns, pitch, malloc((size_t)rows * pitch * k->bytes), malloc(sizeof(double) * rows * columns)};
  memset(m.stored, filler, (size_t)rows * pitch * k->bytes);
  for (uint32_t r = 0; r < rows; r++)
    for (uint32_t c = 0; c < columns; c++)
      m.values[r * columns + c] = (double)put_number(k, run_uniform(), m.stored + ((size_t)r * pitch + c) * k->bytes);
  return m;
}

static void check_product(cuda_run *r, const number_kind *k, uint32_t rows, uint32_t columns, uint32_t depth,
                          uint32_t odd) {
  const uint32_t packed = 16 / k->bytes, pitch = (depth + packed - 1) / packed * packed;
  matrix w = random_matrix(k, columns, depth, pitch, 0),
         x = random_matrix(k, rows, depth, odd ? depth + odd : pitch + packed, 0xff);
  const size_t y_pitch = columns + 3, y_bytes = rows * y_pitch * 4;
  struct {
    CUdeviceptr w, x, y;
    uint64_t rows, columns, depth, w_pitch, x_pitch, y_pitch;
  } args = {run_put(r, w.stored, (size_t)columns * pitch * k->bytes),
            run_put(r, x.stored, (size_t)rows * x.pitch * k->bytes),
            0,
            rows,
            columns,
            depth,
            pitch,
            x.pitch,
            y_pitch};
  float *y = malloc(y_bytes);
  for (size_t i = 0; i < rows * y_pitch; i++) y[i] = -77;
  args.y = run_put(r, y, y_bytes);
  taper_cuda_call call = {.rows = rows};
  run_launch(r, (unsigned[]){(columns + 63) / 64, (rows + 63) / 64, 1}, k->bytes == 4 ? 256 : 128, &call, &args);
  run_get(r, args.y, y, y_bytes);
  for (uint32_t i = 0; i < rows; i++) {
    for (uint32_t j = 0; j < columns; j++) {
      double sum = 0, size = 0;
      for (uint32_t d = 0; d < depth; d++) {
        const double product = w.values[j * depth + d] * x.values[i * depth + d];
        sum += product, size += fabs(product);
      }
      if (!(fabs((double)y[i * y_pitch + j] - sum) <= 1e-6 * size + 1e-12))
        fail_msg("%s %u x %u x %u: y[%u][%u] is %g, not %g", k->type, rows, columns, depth, i, j,
                 (double)y[i * y_pitch + j], sum);
    }
    for (uint32_t j = columns; j < y_pitch; j++) assert_true(y[i * y_pitch + j] == -77.0f);
  }
  run_free(r, args.w), run_free(r, args.x), run_free(r, args.y);
  free(w.stored), free(w.values), free(x.stored), free(x.values), free(y);
}

static void products_are_sums(void **state) {
  (void)state;
  if (!run_has_compiler()) return;
  static const uint32_t sizes[][3] = {{1, 1, 1},      {9, 257, 20}, {64, 64, 64},
                                      {70, 130, 172}, {100, 33, 7}, {17, 100, 288}};
  srand(5);
  cuda_run r;
  run_open(&r);
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    char defines[256];
    snprintf(defines, sizeof defines, "#define P_NAME tested_kernel\n#define P_ARGS tested_args\n#define P_TYPE %s\n",
             kinds[i].type);
    run_load(&r, headers, defines, kinds[i].bytes == 4 ? "templates/cuda/gemm.cu" : "templates/cuda/gemm_mma.cu",
             "tested_kernel");
    for (size_t n = 0; n < sizeof sizes / sizeof *sizes; n++)
      check_product(&r, &kinds[i], sizes[n][0], sizes[n][1], sizes[n][2], kinds[i].bytes == 4 ? (uint32_t)n % 3 : 0);
  }
  run_close(&r);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(products_are_sums)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
