/* test_train_kernels.c - the kernels of training, for every instruction set that runs here, against loops in fp64 on nasty shapes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "tests/unit/train/harness.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* ---- products ---- */
typedef struct product {
  uint32_t m, n, k, lda, ldb, ldc, form;
  int accumulate;
  const float *bias;
} product;

static double element_a(const product *p, const float *a, uint32_t i, uint32_t k) {
  return (double)(p->form == TAPER_GEMM_TN ? a[k * p->lda + i] : a[i * p->lda + k]);
}
static double element_b(const product *p, const float *b, uint32_t k, uint32_t j) {
  return (double)(p->form == TAPER_GEMM_NT ? b[j * p->ldb + k] : b[k * p->ldb + j]);
}
/* c is what the kernel made of `before`; columns beyond n are as they were. */
static void check_product(const product *p, const float *a, const float *b, const float *before, const float *c) {
  for (uint32_t i = 0; i < p->m; i++) {
    for (uint32_t j = 0; j < p->n; j++) {
      double sum = p->accumulate ? (double)before[i * p->ldc + j] : 0, size = fabs(sum);
      if (p->bias) sum += (double)p->bias[j], size += fabs((double)p->bias[j]);
      for (uint32_t k = 0; k < p->k; k++) {
        double t = element_a(p, a, i, k) * element_b(p, b, k, j);
        sum += t, size += fabs(t);
      }
      double got = (double)c[i * p->ldc + j];
      if (!(fabs(got - sum) <= 1e-6 * size + 1e-30))
        fail_msg("form %u, %u x %u x %u at %u %u: %.9g, want %.9g", p->form, p->m, p->n, p->k, i, j, got, sum);
    }
    if (i + 1 < p->m)
      for (uint32_t j = p->n; j < p->ldc; j++) assert_true(c[i * p->ldc + j] == before[i * p->ldc + j]);
  }
}

static const train_kernels *library;
static float *library_scratch;
static uint32_t library_calls;
static void library_gemm(uint32_t form, uint32_t m, uint32_t n, uint32_t k, const float *a, uint32_t lda,
                         const float *b, uint32_t ldb, float *c, uint32_t ldc, int accumulate) {
  library_calls++;
  library->generic(form, m, n, k, a, lda, b, ldb, c, ldc, accumulate, library_scratch);
}

static void one_rows(const train_kernels *t, uint32_t m, uint32_t n, uint32_t k, int variant) {
  int back = variant & 1;
  product p = {m,
               n,
               k,
               k + (variant & 2 ? 5 : 0),
               back ? n : k,
               n + (variant & 2 ? 3 : 0),
               back ? TAPER_GEMM_NN : TAPER_GEMM_NT,
               variant >> 2 & 1,
               NULL};
  float *x = some_floats((size_t)(m - 1) * p.lda + k), *w = some_floats((size_t)n * k), *bias = some_floats(n),
        *before = some_floats((size_t)(m - 1) * p.ldc + n), *y = copy_of(before, (size_t)(m - 1) * p.ldc + n),
        *packed = scratch_of(t->packed_floats(n, k));
  if (variant & 8) p.bias = bias;
  uint32_t panels = t->panels(n), half = panels / 2;
  t->pack(packed, w, n, k, back, half, panels); /* in parts: every panel for itself */
  t->pack(packed, w, n, k, back, 0, half);
  taper_train_ctx c = {0};
  t->rows(&c, y, p.ldc, x, p.lda, m, n, k, packed, w, back, p.accumulate, p.bias);
  check_product(&p, x, w, before, y);
  if (m > 1) { /* a row alone: the same bits */
    float *alone = copy_of(before + (size_t)(m - 1) * p.ldc, n);
    t->rows(&c, alone, n, x + (size_t)(m - 1) * p.lda, k, 1, n, k, packed, w, back, p.accumulate, p.bias);
    assert_memory_equal(alone, y + (size_t)(m - 1) * p.ldc, n * sizeof(float));
    free(alone);
  }
  c.gemm = library_gemm, library_calls = 0;
  memcpy(y, before, ((size_t)(m - 1) * p.ldc + n) * sizeof *y);
  t->rows(&c, y, p.ldc, x, p.lda, m, n, k, NULL, w, back, p.accumulate, p.bias);
  assert_true(library_calls == 1);
  check_product(&p, x, w, before, y);
  free(x), free(w), free(bias), free(before), free(y), free(packed);
}

static void one_weight(const train_kernels *t, uint32_t rows, uint32_t out, uint32_t in, int variant) {
  product p = {
      out, in, rows, out + (variant & 1 ? 3 : 0), in + (variant & 1 ? 7 : 0), in, TAPER_GEMM_TN, variant >> 1 & 1,
      NULL};
  float *dy = some_floats((size_t)(rows - 1) * p.lda + out), *x = some_floats((size_t)(rows - 1) * p.ldb + in),
        *before = some_floats((size_t)out * in), *dw = copy_of(before, (size_t)out * in), *first = NULL,
        *scratch = scratch_of(t->gemm_scratch);
  for (uint32_t lib = 0; lib < 2; lib++)
    for (uint32_t workers = 1; workers <= 3; workers++) {
      taper_train_ctx c = {.gemm = lib ? library_gemm : NULL};
      memcpy(dw, before, (size_t)out * in * sizeof *dw);
      for (uint32_t w = 0; w < workers; w++)
        t->weight(&c, dw, dy, p.lda, x, p.ldb, rows, out, in, p.accumulate, scratch, w, workers);
      check_product(&p, dy, x, before, dw);
      if (!first) first = copy_of(dw, (size_t)out * in);
      assert_memory_equal(first, dw, (size_t)out * in * sizeof *dw); /* whoever shares the work */
    }
  free(dy), free(x), free(before), free(dw), free(first), free(scratch);
}

static void one_generic(const train_kernels *t, uint32_t m, uint32_t n, uint32_t k, uint32_t form, int accumulate) {
  product p = {m,    n,          k,   (form == TAPER_GEMM_TN ? m : k) + 1, (form == TAPER_GEMM_NT ? k : n) + 2, n + 3,
               form, accumulate, NULL};
  float *a = some_floats((size_t)(form == TAPER_GEMM_TN ? k : m) * p.lda),
        *b = some_floats((size_t)(form == TAPER_GEMM_NT ? n : k) * p.ldb), *before = some_floats((size_t)m * p.ldc),
        *c = copy_of(before, (size_t)m * p.ldc), *scratch = scratch_of(t->gemm_scratch);
  t->generic(form, m, n, k, a, p.lda, b, p.ldb, c, p.ldc, accumulate, scratch);
  check_product(&p, a, b, before, c);
  free(a), free(b), free(before), free(c), free(scratch);
}

static void products(const train_kernels *t) {
  static const uint32_t ms[] = {1, 2, 7, 16, 23}, ns[] = {1, 4, 15, 16, 17, 33, 49, 64, 100, 257},
                        ks[] = {1, 3, 20, 176, 193, 400};
  library = t, library_scratch = scratch_of(t->gemm_scratch);
  int variant = 0;
  for (size_t m = 0; m < COUNT(ms); m++)
    for (size_t n = 0; n < COUNT(ns); n++)
      for (size_t k = 0; k < COUNT(ks); k++, variant++) {
        one_rows(t, ms[m], ns[n], ks[k], variant & 15);
        one_rows(t, ms[m], ns[n], ks[k], (variant * 7 + 3) & 15);
        one_weight(t, ks[k], ns[n], ms[m] * 3, variant & 3);
        one_weight(t, ms[m], ns[n], ks[k], (variant * 5 + 1) & 3);
        for (uint32_t form = 0; form < 3; form++) one_generic(t, ms[m], ns[n], ks[k], form, variant & 1);
      }
  one_generic(t, 401, 390, 5, TAPER_GEMM_TN, 1); /* more than one tile of packed rows and columns */
  free(library_scratch);
}
/* ---- rows ---- */
#define FAR 1e30

static void near_rows(const char *what, const float *got, const double *want, uint32_t n, double limit) {
  double size = 0.1; /* what cancelled in it was of order 1 */
  for (uint32_t i = 0; i < n; i++) size = fmax(size, fabs(want[i]));
  for (uint32_t i = 0; i < n; i++)
    if (!(fabs((double)got[i] - want[i]) <= limit * size + 1e-30))
      fail_msg("%s, n = %u, at %u: %.9g, want %.9g (largest %.3g)", what, n, i, (double)got[i], want[i], size);
}

typedef struct norm_case {
  const float *x, *w, *tw, *dy;
  uint32_t n;
  double g, c, eps;
  bool centred;
} norm_case;
/* L(x) = sum of dy T(x; g); its gradient by the definition: central differences in fp64. */
static double norm_loss(const norm_case *t, const double *x) {
  double mu = 0, square = 0, loss = 0;
  for (uint32_t i = 0; t->centred && i < t->n; i++) mu += x[i] / t->n;
  for (uint32_t i = 0; i < t->n; i++) square += (x[i] - mu) * (x[i] - mu) / t->n;
  double r = sqrt(square + t->eps);
  for (uint32_t i = 0; i < t->n; i++)
    loss += (double)t->dy[i] * (x[i] - mu) * (t->g / r * (double)t->w[i] + (1 - t->g) * t->c * (double)t->tw[i]);
  return loss;
}
static void norm_gradient(const norm_case *t, double *d) {
  double *x = malloc(t->n * sizeof *x);
  for (uint32_t i = 0; i < t->n; i++) x[i] = (double)t->x[i];
  for (uint32_t i = 0; i < t->n; i++) {
    double keep = x[i], h = 1e-4, f[4];
    for (int s = 0; s < 4; s++) x[i] = keep + h * (s < 2 ? s - 2 : s - 1), f[s] = norm_loss(t, x);
    d[i] = (f[0] - 8 * f[1] + 8 * f[2] - f[3]) / (12 * h), x[i] = keep;
  }
  free(x);
}
static void norms(const train_kernels *t) {
  static const uint32_t ns[] = {1, 2, 5, 16, 17, 20, 64, 100, 130};
  for (size_t i = 0; i < COUNT(ns); i++)
    for (int layer = 0; layer < 2; layer++)
      for (int g = 0; g < 3; g++) {
        uint32_t n = ns[i];
        float *x = some_floats(n), *w = some_floats(n), *tw = some_floats(n), *dy = some_floats(n),
              *dx = some_floats(n), c = 1.7f;
        double *want = malloc(n * sizeof *want);
        for (uint32_t j = 0; j < n; j++) x[j] = x[j] * 2 + 0.5f;
        norm_case k = {x, w, tw, dy, n, g / 2.0, (double)c, 1e-2, layer};
        norm_gradient(&k, want);
        float eps = 1e-2f, gate = (float)g / 2;
        (layer ? t->taper_layer_norm_back : t->taper_rms_norm_back)(dx, x, w, tw, &c, gate, dy, n, eps);
        near_rows("taper back", dx, want, n, 3e-6);
        if (g == 2) {
          (layer ? t->layer_norm_back : t->rms_norm_back)(dx, x, w, dy, n, eps);
          near_rows("norm back", dx, want, n, 3e-6);
          memcpy(dx, dy, n * sizeof *dx);
          (layer ? t->layer_norm_back : t->rms_norm_back)(dx, x, w, dx, n, eps); /* in place */
          near_rows("norm back in place", dx, want, n, 3e-6);
        }
        free(x), free(w), free(tw), free(dy), free(dx), free(want);
      }
}

static void statistics(const train_kernels *t) {
  for (uint32_t n = 1; n < 150; n += n < 70 ? 1 : 39) {
    float *x = some_floats(n), *y = some_floats(n), *d = some_floats(n), *partial = some_floats(n), eps = 1e-3f,
          ds = 0.7f;
    double sum = 0, square = 0, about = 0, inner = 0, *want = malloc(n * sizeof *want);
    for (uint32_t i = 0; i < n; i++) {
      x[i] += 0.5f;
      sum += (double)x[i], square += (double)x[i] * (double)x[i], inner += (double)x[i] * (double)y[i];
    }
    double mu = sum / n;
    for (uint32_t i = 0; i < n; i++) about += ((double)x[i] - mu) * ((double)x[i] - mu);
    double r = sqrt(square / n + (double)eps), sigma = sqrt(about / n + (double)eps);
    assert_true(fabs((double)t->row_rms(x, n, eps) - r) < 1e-6 * r);
    assert_true(fabs((double)t->row_std(x, n, eps) - sigma) < 1e-6);
    assert_true(fabs((double)t->row_l2(x, n) - sqrt(square)) < 1e-6 * sqrt(square));
    assert_true(fabs((double)t->row_dot(x, y, n) - inner) < 1e-6 * n);
    for (uint32_t i = 0; i < n; i++) want[i] = (double)ds * (double)x[i] / (n * r);
    t->row_rms_back(d, x, ds, n, eps);
    near_rows("row_rms_back", d, want, n, 1e-6);
    for (uint32_t i = 0; i < n; i++) want[i] = (double)ds * ((double)x[i] - mu) / (n * sigma);
    t->row_std_back(d, x, ds, n, eps);
    for (uint32_t i = 0; i < n; i++) assert_true(fabs((double)d[i] - want[i]) < 2e-6 / n);
    for (uint32_t i = 0; i < n; i++) want[i] = (double)partial[i] + (double)x[i];
    t->add_row(partial, x, n);
    near_rows("add_row", partial, want, n, 1e-6);
    free(x), free(y), free(d), free(partial), free(want);
  }
}

static void losses(const train_kernels *t) {
  static const uint32_t ns[] = {1, 2, 3, 15, 16, 17, 63, 64, 65, 257, 1000};
  for (double x = 1e-300; x < 1e300; x *= 3.7)
    assert_true(fabs(t->log_positive(x) - log(x)) <= 1e-13 * fmax(1, fabs(log(x))));
  assert_true(isnan(t->log_positive((double)NAN)) && isinf(t->log_positive((double)INFINITY)) &&
              t->log_positive(1) == 0);
  for (size_t i = 0; i < COUNT(ns); i++)
    for (int scale = 1; scale <= 100; scale *= 10) {
      uint32_t n = ns[i];
      int32_t target = (int32_t)(n * 2 / 3);
      float *x = some_floats(n), *y = some_floats(n), *d = some_floats(n);
      double *p = malloc(n * sizeof *p), *q = malloc(n * sizeof *q), *want = malloc(n * sizeof *want), a = 0, b = 0,
             top = -FAR, other = -FAR, divergence = 0;
      for (uint32_t j = 0; j < n; j++) {
        x[j] *= (float)scale, y[j] = x[j] + y[j] * 0.1f;
        top = fmax(top, (double)x[j]), other = fmax(other, (double)y[j]);
      }
      for (uint32_t j = 0; j < n; j++) a += p[j] = exp((double)x[j] - top), b += q[j] = exp((double)y[j] - other);
      for (uint32_t j = 0; j < n; j++) {
        want[j] = 0.3 * (p[j] / a - (j == (uint32_t)target));
        divergence += p[j] / a * ((double)x[j] - top - log(a) - (double)y[j] + other + log(b));
      }
      double loss = log(a) + top - (double)x[target];
      assert_true(fabs((double)t->cross_entropy(x, n, target) - loss) < 1e-6 * fmax(1, loss));
      assert_true(fabs((double)t->cross_entropy_both(d, x, n, target, 0.3f) - loss) < 1e-6 * fmax(1, loss));
      for (uint32_t j = 0; j < n; j++) assert_true(fabs((double)d[j] - want[j]) < 1e-6 * 0.3);
      memcpy(d, x, n * sizeof *d);
      t->cross_entropy_both(d, d, n, target, 0.3f); /* in place */
      for (uint32_t j = 0; j < n; j++) assert_true(fabs((double)d[j] - want[j]) < 1e-6 * 0.3);
      assert_true(t->cross_entropy(x, n, -1) == 0 && t->cross_entropy_both(d, x, n, -1, 0.3f) == 0);
      for (uint32_t j = 0; j < n; j++) assert_true(d[j] == 0);
      if (!(fabs((double)t->kl(x, y, n) - divergence) < 1e-6))
        fail_msg("kl %u %d: %.9g, want %.9g", n, scale, (double)t->kl(x, y, n), divergence);
      double first = -FAR, second = -FAR;
      for (uint32_t j = 0; j < n; j++)
        if ((double)x[j] > first)
          second = first, first = (double)x[j];
        else if ((double)x[j] > second)
          second = (double)x[j];
      assert_true(fabs((double)t->top_gap(x, n) - (n > 1 ? first - second : 0)) < 1e-6 * scale);
      x[n / 2] = NAN; /* never hidden */
      assert_true(isnan(t->cross_entropy(x, n, target)));
      free(x), free(y), free(d), free(p), free(q), free(want);
    }
}

static double phi(double x) { return 0.5 * erfc(-x * sqrt(0.5)); }
static double slope(uint32_t which, double x, double cap) {
  double pi = acos(-1.0), s = 1 / (1 + exp(-x)), u = sqrt(2 / pi) * (x + 0.044715 * x * x * x), h = tanh(u);
  const double all[BACK_COUNT] = {
      phi(x) + x * exp(-x * x / 2) / sqrt(2 * pi),
      0.5 * (1 + h) + 0.5 * x * (1 - h * h) * sqrt(2 / pi) * (1 + 3 * 0.044715 * x * x),
      s + x * s * (1 - s),
      x > 0,
      x * (1 - x),
      1 - x * x,
      0.5 / x,
      1 - tanh(x / cap) * tanh(x / cap),
  };
  return all[which];
}
static void slopes(const train_kernels *t) {
  for (uint32_t which = 0; which < BACK_COUNT; which++)
    for (int i = -3000; i <= 3000; i++) {
      float x = (float)i / 150, dy = 1.25f, got;
      if (which == BACK_SQRT && x <= 0) continue;
      t->elementwise(which, &got, &x, &dy, 1, 5);
      double want = 1.25 * slope(which, (double)x, 5);
      if (!(fabs((double)got - want) <= 1e-6 * fmax(1, fabs(want))))
        fail_msg("%u at %g: %.9g, want %.9g", which, (double)x, (double)got, want);
    }
  for (uint32_t which = BACK_GELU; which <= BACK_RELU; which++)
    for (int sign = -1; sign <= 1; sign += 2) {
      float x = (float)sign * 1e18f, dy = 1, got;
      t->elementwise(which, &got, &x, &dy, 1, 5);
      assert_true(got == (sign > 0 ? 1 : 0));
      x = NAN;
      t->elementwise(which, &got, &x, &dy, 1, 5);
      assert_true(isnan(got) || which == BACK_RELU);
    }
}

static void rotations(const train_kernels *t) {
  static const uint32_t dims[] = {2, 6, 12, 16, 34, 64};
  for (size_t i = 0; i < COUNT(dims); i++)
    for (int interleaved = 0; interleaved < 2; interleaved++) {
      uint32_t d = dims[i], n = d + 3 * (uint32_t)(i % 2);
      float *x = some_floats(n), *y = some_floats(n), *dy = some_floats(n), *dx = some_floats(n), *cs = some_floats(d);
      double left = 0, right = 0;
      t->rope(y, x, n, d, interleaved, cs); /* <rope(x), dy> = <x, rope_back(dy)> */
      t->rope_back(dx, dy, n, d, interleaved, cs);
      for (uint32_t j = 0; j < n; j++) left += (double)y[j] * (double)dy[j], right += (double)x[j] * (double)dx[j];
      assert_true(fabs(left - right) < 1e-6 * n);
      free(x), free(y), free(dy), free(dx), free(cs);
    }
}

/* ---- updates ---- */
static void updates(const train_kernels *t) {
  const taper_train_adamw a = {1e-2f, 0.9f, 0.95f, 1e-8f, 0.1f, 0.5f, 0.271f, 0.142625f}; /* of the third step */
  for (uint32_t n = 1; n < 600; n += n < 80 ? 1 : 111) {
    float *p = some_floats(n), *g = some_floats(n), *m = some_floats(n), *v = some_floats(n), *parts[3];
    double *want = malloc(n * sizeof *want), *mean = malloc(n * sizeof *mean), *square = malloc(n * sizeof *square),
           sum = 0;
    for (uint32_t i = 0; i < n; i++) {
      v[i] = fabsf(v[i]);
      double d = (double)a.clip_scale * (double)g[i];
      mean[i] = (double)a.beta1 * (double)m[i] + (1 - (double)a.beta1) * d;
      square[i] = (double)a.beta2 * (double)v[i] + (1 - (double)a.beta2) * d * d;
      want[i] = (double)p[i] - (double)a.lr * (mean[i] / (double)a.correction1 /
                                                   (sqrt(square[i] / (double)a.correction2) + (double)a.eps) +
                                               (double)a.decay * (double)p[i]);
      sum += (double)g[i] * (double)g[i];
    }
    parts[0] = copy_of(p, n), parts[1] = copy_of(m, n), parts[2] = copy_of(v, n);
    t->adamw(p, g, m, v, 0, n, &a);
    near_rows("adamw", p, want, n, 1e-6), near_rows("adamw m", m, mean, n, 1e-6),
        near_rows("adamw v", v, square, n, 1e-6);
    t->adamw(parts[0], g, parts[1], parts[2], n / 3, n, &a); /* in parts: the same bits */
    t->adamw(parts[0], g, parts[1], parts[2], 0, n / 3, &a);
    assert_memory_equal(parts[0], p, n * sizeof *p);
    assert_memory_equal(parts[1], m, n * sizeof *m);
    assert_memory_equal(parts[2], v, n * sizeof *v);
    assert_true(fabs(t->sum_squares(g, 0, n) - sum) <= 1e-13 * n);
    assert_true(fabs(t->sum_squares(g, n / 2, n) + t->sum_squares(g, 0, n / 2) - sum) <= 1e-13 * n);
    g[n / 2] = 1e30f; /* beyond what a float's square holds */
    assert_true(fabs(t->sum_squares(g, 0, n) / ((double)g[n / 2] * (double)g[n / 2]) - 1) < 1e-12);
    free(p), free(g), free(m), free(v), free(want), free(mean), free(square), free(parts[0]), free(parts[1]),
        free(parts[2]);
  }
}

ON_EACH_BUILD(products)
ON_EACH_BUILD(norms)
ON_EACH_BUILD(statistics)
ON_EACH_BUILD(losses)
ON_EACH_BUILD(slopes)
ON_EACH_BUILD(rotations)
ON_EACH_BUILD(updates)

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_products), cmocka_unit_test(test_norms),  cmocka_unit_test(test_statistics),
      cmocka_unit_test(test_losses),   cmocka_unit_test(test_slopes), cmocka_unit_test(test_rotations),
      cmocka_unit_test(test_updates),

  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
