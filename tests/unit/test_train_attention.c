/* test_train_attention.c - attention over windows and its gradient, for every instruction set that runs here, against fp64 by the definition. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "tests/unit/train/harness.h"

/* One call: buffers with a few columns more than they need, and what fp64 says of them. */
typedef struct attention_case {
  train_attention a;
  uint32_t batch, time;
  uint32_t q_width, kv_width, y_width, d_width, ldq, ldk, ldv, ldy, ldd;
  float *q, *k, *v, *dy;
  double *y, *d;
} attention_case;

static void begin(attention_case *t) {
  const train_attention *a = &t->a;
  uint32_t rows = t->batch * t->time, heads = a->group * a->kv_heads;
  t->q_width = heads * a->key_dim, t->y_width = heads * a->value_dim;
  t->d_width = t->q_width + a->kv_heads * (a->key_dim + a->value_dim);
  t->ldq = t->q_width + 3, t->ldk = a->kv_heads * a->key_dim + 5, t->ldv = a->kv_heads * a->value_dim + 1;
  t->ldy = t->y_width + 2, t->ldd = t->d_width + 4;
  t->q = some_floats(rows * t->ldq), t->k = some_floats(rows * t->ldk), t->v = some_floats(rows * t->ldv);
  t->dy = some_floats(rows * t->ldy);
  t->y = calloc(rows * t->y_width, sizeof *t->y), t->d = calloc(rows * t->d_width, sizeof *t->d);
}
static void end(attention_case *t) { free(t->q), free(t->k), free(t->v), free(t->dy), free(t->y), free(t->d); }

/* One query head at one position. */
static void exact_row(attention_case *t, uint32_t window_row, uint32_t i, uint32_t head) {
  const train_attention *a = &t->a;
  uint32_t kv = head / a->group, kd = a->key_dim, vd = a->value_dim, row = window_row + i;
  uint32_t first = a->window && i + 1 > a->window ? i + 1 - a->window : 0;
  double *p = malloc((i + 1) * sizeof *p), *slope = malloc((i + 1) * sizeof *slope), top = -1e300, sum = 0, mean = 0;
  const float *q = t->q + row * t->ldq + head * kd, *dy = t->dy + row * t->ldy + head * vd;
  double *dq = t->d + row * t->d_width + head * kd;
  for (uint32_t j = first; j <= i; j++) {
    const float *k = t->k + (window_row + j) * t->ldk + kv * kd;
    p[j] = 0, slope[j] = 1;
    for (uint32_t e = 0; e < kd; e++) p[j] += (double)q[e] * (double)k[e];
    p[j] *= (double)a->scale;
    if (a->cap > 0) {
      double h = tanh(p[j] / (double)a->cap);
      slope[j] = 1 - h * h, p[j] = h * (double)a->cap;
    }
    top = fmax(top, p[j]);
  }
  for (uint32_t j = first; j <= i; j++) sum += p[j] = exp(p[j] - top);
  for (uint32_t j = first; j <= i; j++) {
    const float *v = t->v + (window_row + j) * t->ldv + kv * vd;
    p[j] /= sum;
    for (uint32_t e = 0; e < vd; e++) {
      t->y[row * t->y_width + head * vd + e] += p[j] * (double)v[e];
      t->d[(window_row + j) * t->d_width + t->q_width + a->kv_heads * kd + kv * vd + e] += p[j] * (double)dy[e];
      mean += p[j] * (double)v[e] * (double)dy[e];
    }
  }
  for (uint32_t j = first; j <= i; j++) {
    const float *k = t->k + (window_row + j) * t->ldk + kv * kd, *v = t->v + (window_row + j) * t->ldv + kv * vd;
    double g = -mean;
    for (uint32_t e = 0; e < vd; e++) g += (double)v[e] * (double)dy[e];
    g *= p[j] * slope[j] * (double)a->scale;
    for (uint32_t e = 0; e < kd; e++) {
      dq[e] += g * (double)k[e];
      t->d[(window_row + j) * t->d_width + t->q_width + kv * kd + e] += g * (double)q[e];
    }
  }
  free(p), free(slope);
}

static void compare(const attention_case *t, const char *what, const float *got, uint32_t ld, const double *want,
                    uint32_t width, float mark) {
  double limit = 0;
  for (uint32_t i = 0; i < t->batch * t->time * width; i++) limit = fmax(limit, fabs(want[i]));
  for (uint32_t r = 0; r < t->batch * t->time; r++) {
    for (uint32_t j = 0; j < width; j++)
      if (!(fabs((double)got[r * ld + j] - want[r * width + j]) <= 3e-6 * fmax(limit, 0.1)))
        fail_msg("%s, time %u, group %u, kv %u, dims %u %u, window %u, cap %g: row %u column %u: %.9g, want %.9g", what,
                 t->time, t->a.group, t->a.kv_heads, t->a.key_dim, t->a.value_dim, t->a.window, (double)t->a.cap, r, j,
                 (double)got[r * ld + j], want[r * width + j]);
    for (uint32_t j = width; j < ld; j++) assert_true(got[r * ld + j] == mark); /* what lies beside is not ours */
  }
}

static void one_case(const train_kernels *kernels, attention_case *t) {
  begin(t);
  for (uint32_t b = 0; b < t->batch; b++)
    for (uint32_t i = 0; i < t->time; i++)
      for (uint32_t h = 0; h < t->a.group * t->a.kv_heads; h++) exact_row(t, b * t->time, i, h);
  const uint32_t rows = t->batch * t->time;
  for (uint32_t workers = 1; workers <= 3; workers += 2) {
    float *y = malloc(rows * t->ldy * sizeof *y), *d = malloc(rows * t->ldd * sizeof *d);
    for (uint32_t i = 0; i < rows * t->ldy; i++) y[i] = 7;
    for (uint32_t i = 0; i < rows * t->ldd; i++) d[i] = 7;
    for (uint32_t back = 0; back < 2; back++) {
      uint64_t floats = kernels->attention_floats(&t->a, t->time, back);
      float *scratch = scratch_of(floats);
      memset(scratch, 0xff, floats * sizeof *scratch); /* NaN */
      for (uint32_t w = 0; w < workers; w++) {
        taper_train_ctx c = {
            .workers = workers, .worker = w, .batch = t->batch, .time = t->time, .rows = rows, .scratch = scratch};
        kernels->attention(&c, &t->a, back ? NULL : y, t->ldy, t->q, t->ldq, t->k, t->ldk, t->v, t->ldv, t->dy, t->ldy,
                           back ? d : NULL, t->ldd);
      }
      free(scratch);
    }
    compare(t, "y", y, t->ldy, t->y, t->y_width, 7);
    compare(t, "gradient", d, t->ldd, t->d, t->d_width, 7);
    free(y), free(d);
  }
  end(t);
}

static void shapes(const train_kernels *kernels) {
  static const uint32_t times[] = {1, 2, 5, 15, 16, 17, 47, 64, 65, 100, 129, 213};
  static const uint32_t heads[][4] = {/* group, key heads, key dim, value dim */ {1, 1, 12, 12},
                                      {2, 1, 20, 8},
                                      {1, 2, 16, 33},
                                      {3, 2, 4, 64},
                                      {1, 1, 80, 80},
                                      {1, 1, 3, 1},
                                      {2, 1, 128, 49}};
  static const uint32_t windows[] = {0, 1, 3, 17, 70, 128};
  uint32_t n = 0;
  for (size_t t = 0; t < COUNT(times); t++)
    for (size_t h = 0; h < COUNT(heads); h++) {
      for (size_t w = 0; w < 2; w++, n++) {
        attention_case one = {.a = {heads[h][0], heads[h][1], heads[h][2], heads[h][3],
                                    w ? windows[1 + n % (COUNT(windows) - 1)] : 0,
                                    (n % 3 ? 1.0f : 3.0f) / sqrtf((float)heads[h][2]), n % 4 == 3 ? 1.5f : 0},
                              .batch = times[t] < 50 ? 2 : 1,
                              .time = times[t]};
        one_case(kernels, &one);
      }
    }
  for (size_t w = 0; w < COUNT(windows); w++) {
    attention_case one = {.a = {2, 1, 20, 24, windows[w], 1, 0}, .batch = 1, .time = 450};
    one_case(kernels, &one);
  }
}

/* Scores of any size, and one that outweighs all others. */
static void extremes(const train_kernels *kernels) {
  for (int power = 0; power < 4; power++) {
    attention_case t = {.a = {1, 1, 16, 16, 0, (float)pow(10, power), power == 3 ? 30.0f : 0}, .batch = 1, .time = 70};
    begin(&t);
    float *y = malloc(t.time * t.ldy * sizeof *y),
          *scratch = scratch_of(kernels->attention_floats(&t.a, t.time, false));
    taper_train_ctx c = {.workers = 1, .batch = 1, .time = t.time, .rows = t.time, .scratch = scratch};
    for (uint32_t i = 0; i < t.time; i++) exact_row(&t, 0, i, 0);
    kernels->attention(&c, &t.a, y, t.ldy, t.q, t.ldq, t.k, t.ldk, t.v, t.ldv, NULL, 0, NULL, 0);
    for (uint32_t i = 0; i < t.time; i++)
      for (uint32_t j = 0; j < t.y_width; j++)
        assert_true(fabs((double)y[i * t.ldy + j] - t.y[i * t.y_width + j]) < 2e-6 * pow(10, power) + 1e-6);
    free(y), free(scratch);
    end(&t);
  }
}

ON_EACH_BUILD(shapes)
ON_EACH_BUILD(extremes)

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_shapes), cmocka_unit_test(test_extremes)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
