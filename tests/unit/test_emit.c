/* test_emit.c - the kernels that images are made of, against libm and fp64 on nasty shapes; the C compiler's failures.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wconversion" /* the templates are not host code */
#pragma GCC diagnostic ignored "-Wsign-conversion"
#pragma GCC diagnostic ignored "-Wshadow"
#pragma GCC diagnostic ignored "-Wunknown-pragmas"
#include "templates/cpu/axis.h"
#include "templates/cpu/math.h"
#pragma GCC diagnostic pop

#include "compiler/emit/emit.h"
#include "runtime/base/text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- functions of elementwise ops ---- */
static double f_sigmoid(double x) { return 1 / (1 + exp(-x)); }
static double f_silu(double x) { return x / (1 + exp(-x)); }
static double f_gelu(double x) { return 0.5 * x * erfc(-x * sqrt(0.5)); }
static double f_gelu_tanh(double x) { return 0.5 * x * (1 + tanh(sqrt(2 / acos(-1.0)) * (x + 0.044715 * x * x * x))); }

static float at(vf (*f)(vf), float x) { return f(v_splat(x))[0]; }
static vf w_exp(vf x) { return v_exp(x); }
static vf w_falling(vf x) { return v_exp_falling(x); }
static vf w_tanh(vf x) { return v_tanh(x); }
static vf w_sigmoid(vf x) { return v_sigmoid(x); }
static vf w_silu(vf x) { return v_silu(x); }
static vf w_gelu(vf x) { return v_gelu(x); }
static vf w_gelu_tanh(vf x) { return v_gelu_tanh(x); }
static vf w_sqrt(vf x) { return v_sqrt(x); }

/* Relative to |f| where it is above `floor`, else to floor. */
static void sweep(const char *name, vf (*f)(vf), double (*g)(double), double from, double to, double floor,
                  double limit) {
  for (int i = 0; i <= 40000; i++) {
    float x = (float)(from + (to - from) * i / 40000);
    double want = g((double)x), got = (double)at(f, x), scale = fmax(fabs(want), floor);
    if (!(fabs(got - want) <= limit * scale)) fail_msg("%s(%.9g): %.9g, want %.9g", name, (double)x, got, want);
  }
}

static void test_functions(void **state) {
  (void)state;
  sweep("exp", w_exp, exp, -87, 88, 0, 2e-7);
  sweep("exp", w_exp, exp, -104, -87, 1.2e-38, 2e-7);
  sweep("exp_falling", w_falling, exp, -86.9, 0, 0, 2e-7);
  sweep("exp", w_exp, exp, -1e-4, 1e-4, 0, 1.2e-7);
  sweep("tanh", w_tanh, tanh, -12, 12, 0, 3e-7);
  sweep("tanh", w_tanh, tanh, -1e-3, 1e-3, 0, 2e-7);
  sweep("sigmoid", w_sigmoid, f_sigmoid, -80, 80, 0, 4e-7);
  sweep("silu", w_silu, f_silu, -80, 80, 0, 4e-7);
  sweep("gelu", w_gelu, f_gelu, -4, 30, 0, 3e-6);
  sweep("gelu", w_gelu, f_gelu, -13, 4, 1, 3e-7);
  sweep("gelu_tanh", w_gelu_tanh, f_gelu_tanh, -3, 30, 0, 3e-6);
  sweep("gelu_tanh", w_gelu_tanh, f_gelu_tanh, -13, 4, 1, 3e-7);
  sweep("sqrt", w_sqrt, sqrt, 0, 1e9, 0, 1.2e-7);
}

static void test_extremes(void **state) {
  (void)state;
  const float inf = INFINITY;
  assert_true(isinf(at(w_exp, 89)) && isinf(at(w_exp, inf)) && at(w_exp, -inf) == 0 && at(w_exp, -200) == 0 &&
              isnan(at(w_exp, NAN)));
  assert_true(at(w_falling, -inf) == 0 && at(w_falling, -88) == 0 && at(w_falling, 0) == 1 &&
              isnan(at(w_falling, NAN)));
  assert_true(at(w_exp, 88.7f) < inf && at(w_exp, 0) == 1);
  assert_true(at(w_tanh, inf) == 1 && at(w_tanh, -inf) == -1 && at(w_tanh, 1e30f) == 1 && isnan(at(w_tanh, NAN)));
  assert_true(at(w_sigmoid, inf) == 1 && at(w_sigmoid, -inf) == 0 && isnan(at(w_sigmoid, NAN)));
  assert_true(at(w_silu, 1e30f) == 1e30f && at(w_silu, -1e30f) == 0 && isnan(at(w_silu, NAN)));
  assert_true(at(w_gelu, 1e30f) == 1e30f && at(w_gelu, -1e18f) == 0 && isnan(at(w_gelu, NAN)));
  assert_true(at(w_gelu_tanh, 100) == 100 && fabsf(at(w_gelu_tanh, -100)) == 0 && isnan(at(w_gelu_tanh, NAN)));
  assert_true(v_relu(v_splat(-1))[0] == 0 && v_relu(v_splat(2))[0] == 2 && isnan(v_relu(v_splat(NAN))[0]));
}

/* ---- products ---- */
static float value(uint32_t i) { return (float)((i * 2654435761u >> 8) % 2000u) / 1000.0f - 1; }

static void one_product(uint32_t rows, uint32_t out, uint32_t in) {
  uint32_t tiles = (out + 15) / 16;
  float *w = calloc((size_t)tiles * 16 * in, 4), *x = calloc((size_t)rows * in, 4),
        *y = calloc((size_t)rows * tiles * 16, 4), *alone = calloc(tiles * 16, 4);
  for (uint32_t o = 0; o < out; o++)
    for (uint32_t i = 0; i < in; i++) w[((size_t)(o / 16) * in + i) * 16 + o % 16] = value(o * 977 + i);
  for (uint32_t i = 0; i < rows * in; i++) x[i] = value(i + 12345);
  for (uint32_t r0 = 0, some; r0 < rows; r0 += some) {
    const float *p[DOT_ROWS];
    some = dot_rows(rows - r0);
    assert_true(some >= 1 && some <= DOT_ROWS);
    for (uint32_t i = 0; i < some; i++) p[i] = x + (r0 + i) * in;
    dot(y + (size_t)r0 * tiles * 16, tiles * 16, p, some, w, in, tiles, 16, (size_t)in * 16);
  }
  for (uint32_t r = 0; r < rows; r++) {
    const float *p = x + r * in;
    for (uint32_t t = 0; t < tiles; t++) dot(alone + t * 16, 16, &p, 1, w + (size_t)t * in * 16, in, 1, 16, 0);
    assert_memory_equal(alone, y + (size_t)r * tiles * 16,
                        tiles * 16 * sizeof(float)); /* a row alone, a tile alone: the same bits */
    for (uint32_t o = 0; o < out; o++) {
      double sum = 0, size = 0;
      for (uint32_t i = 0; i < in; i++)
        sum += (double)value(o * 977 + i) * (double)p[i], size += fabs((double)value(o * 977 + i) * (double)p[i]);
      assert_true(fabs(sum - (double)y[(size_t)r * tiles * 16 + o]) <= 1e-6 * size + 1e-30);
    }
  }
  free(w), free(x), free(y), free(alone);
}

static void test_products(void **state) {
  (void)state;
  static const uint32_t outs[] = {1, 15, 16, 17, 33, 64, 129, 257}, ins[] = {1, 3, 20, 172};
  for (size_t o = 0; o < sizeof outs / sizeof *outs; o++)
    for (size_t i = 0; i < sizeof ins / sizeof *ins; i++)
      for (uint32_t rows = 1; rows <= 13; rows++) one_product(rows, outs[o], ins[i]);
}

/* ---- vectors along an axis: reads and writes stay inside ---- */
static void test_axis(void **state) {
  (void)state;
  for (uint32_t n = 1; n < 70; n++) {
    float *x = malloc(n * 4), *y = malloc(n * 4), *w = malloc(n * 4),
          *b = malloc(n * 4); /* exact: the sanitizer sees a step outside */
    double sum = 0, square = 0, about = 0;
    for (uint32_t i = 0; i < n; i++)
      x[i] = value(i + 5) + 10, w[i] = value(i + 99), b[i] = value(i + 7), sum += (double)x[i],
      square += (double)x[i] * (double)x[i];
    for (uint32_t i = 0; i < n; i++) about += ((double)x[i] - sum / n) * ((double)x[i] - sum / n);
    double r = 1 / sqrt(square / n + 1e-6), s = 1 / sqrt(about / n + 1e-5);
    rms_norm(y, x, w, n, 1e-6f);
    for (uint32_t i = 0; i < n; i++) assert_true(fabs((double)y[i] - (double)x[i] * r * (double)w[i]) < 2e-6);
    layer_norm(y, x, w, b, n, 1e-5f);
    for (uint32_t i = 0; i < n; i++)
      assert_true(fabs((double)y[i] - (((double)x[i] - sum / n) * s * (double)w[i] + (double)b[i])) < 2e-5);
    center(y, x, n);
    for (uint32_t i = 0; i < n; i++) assert_true(fabs((double)y[i] - ((double)x[i] - sum / n)) < 3e-6);
    copy(y, x, n);
    assert_memory_equal(y, x, n * 4);
    free(x), free(y), free(w), free(b);
  }
  float tiny[3] = {1e-20f, -1e-20f, 1e-20f}, one[3] = {1, 1, 1}, y[3];
  rms_norm(y, tiny, one, 3, 1e-12f);
  assert_true(fabsf(y[0] - 1e-14f) < 1e-19f); /* eps alone */
}

static void test_states(void **state) {
  (void)state;
  const uint32_t context = 32, heads = 3;
  for (uint32_t dim = 1; dim < 36; dim += 5) {
    uint32_t pitch = (dim + 15) / 16 * 16, n = heads * dim;
    float *keys = calloc((size_t)heads * context * dim, 4), *values = calloc((size_t)heads * context * pitch, 4),
          *x = calloc(n, 4);
    for (uint32_t pos = 0; pos < context; pos++) {
      for (uint32_t i = 0; i < n; i++) x[i] = (float)(pos * 1000 + i);
      uint32_t cut = n / 3; /* in two parts, as two workers write them */
      append_keys(keys, context, pos, x, 0, cut, dim), append_keys(keys, context, pos, x + cut, cut, n - cut, dim);
      append_values(values, context, pos, x, 0, cut, dim),
          append_values(values, context, pos, x + cut, cut, n - cut, dim);
    }
    for (uint32_t pos = 0; pos < context; pos++)
      for (uint32_t i = 0; i < n; i++) {
        uint32_t h = i / dim, j = i % dim;
        assert_true(keys[((h * (context / 16) + pos / 16) * dim + j) * 16 + pos % 16] == (float)(pos * 1000 + i));
        assert_true(values[(h * context + pos) * pitch + j] == (float)(pos * 1000 + i));
      }
    free(keys), free(values), free(x);
  }
}

static void test_shares(void **state) {
  (void)state;
  for (uint32_t workers = 1; workers < 9; workers++)
    for (uint32_t units = 1; units < 20; units++)
      for (uint32_t cost = 1; cost < 6; cost++) {
        uint32_t next[2] = {0, 0}, total = units * cost + 7 * 2;
        for (uint32_t w = 0; w < workers; w++) {
          taper_ctx c = {.workers = workers, .worker = w};
          span a = unit_share(&c, total, 0, units, cost), b = unit_share(&c, total, units * cost, 7, 2);
          assert_true(a.first == next[0] && a.last >= a.first && b.first == next[1] && b.last >= b.first);
          next[0] = a.last, next[1] = b.last;
        }
        assert_true(next[0] == units && next[1] == 7);
      }
}

/* ---- the C compiler ---- */
static taper_status compile(const char *source, const char *cc, const char *temps, taper_error *error) {
  emit_options o = {.cc = cc, .arch = "x86-64-v3", .save_temps = temps};
  void *image = NULL;
  size_t size = 0;
  char *features = NULL;
  taper_status s = emit_compile(source, strlen(source), &o, false, &image, &size, &features, error);
  free(image), free(features);
  return s;
}

static void test_compiler(void **state) {
  (void)state;
  taper_error e = {0};
  char folder[] = "/tmp/taper test \303\244 XXXXXX", path[200];
  assert_non_null(mkdtemp(folder));
  setenv("TMPDIR", folder, 1);
  const char *good =
      "extern const int taper_image; __attribute__((visibility(\"default\"))) const int taper_image = 1;\n";
  assert_int_equal(compile(good, NULL, NULL, &e), TAPER_OK);
  assert_int_equal(rmdir(folder), 0); /* nothing is left behind */
  assert_int_equal(mkdir(folder, 0700), 0);
  assert_int_equal(compile(good, "/nowhere/cc; true", NULL, &e), TAPER_IO);
  assert_non_null(strstr(e.message, "'/nowhere/cc; true'"));
  assert_non_null(strstr(e.message, "install gcc or pass --cc"));
  assert_int_equal(compile("int f(void) { return missing(); }\n#error broken\n", NULL, NULL, &e), TAPER_IO);
  assert_non_null(strstr(e.message, "broken"));
  assert_non_null(strstr(e.message, folder));
  assert_non_null(strstr(e.message, "the source is kept"));
  assert_int_equal(compile("__attribute__((visibility(\"default\"))) int other = 1;\n", NULL, NULL, &e),
                   TAPER_INTERNAL);
  assert_non_null(strstr(e.message, "exports neither 'taper_image' nor"));
  snprintf(path, sizeof path, "%s/temps", folder);
  assert_int_equal(compile(good, NULL, path, &e), TAPER_OK);
  assert_int_equal(access(path, F_OK), 0);
  setenv("TMPDIR", "/nowhere", 1);
  assert_int_equal(compile(good, NULL, NULL, &e), TAPER_DEVICE);
  assert_non_null(strstr(e.message, "set TMPDIR"));
  unsetenv("TMPDIR");
  snprintf(path, sizeof path, "rm -r '%s'", folder);
  assert_int_equal(system(path), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_functions), cmocka_unit_test(test_extremes),
                                     cmocka_unit_test(test_products),  cmocka_unit_test(test_axis),
                                     cmocka_unit_test(test_states),    cmocka_unit_test(test_shares),
                                     cmocka_unit_test(test_compiler)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
