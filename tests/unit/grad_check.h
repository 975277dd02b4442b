/* grad_check.h - the gradients of a training program against differences of its own loss, evaluated in fp64. */
#ifndef TESTS_UNIT_GRAD_CHECK_H
#define TESTS_UNIT_GRAD_CHECK_H

#include "tests/unit/pass_graphs.h"

#include <stdio.h>

enum { GRAD_RESULTS = 128 };

typedef struct grad_run {
  const ir_module *m;
  double *gradient[4096]; /* by value; NULL: none was handed out */
  struct {
    char name[64];
    double value; /* rows: the first */
  } results[GRAD_RESULTS];
  size_t result_count;
} grad_run;

static const int32_t grad_tokens[10] = {3, 0, 7, 10, 2, 5, 5, 1, 9, 4},
                     grad_targets[10] = {0, 7, -1, 2, 10, 5, 1, -1, -1, 3};

static inline void grad_on_result(void *user, const char *name, const ir_tensor *value) {
  grad_run *r = user;
  assert_true(r->result_count < GRAD_RESULTS);
  for (size_t i = 0; i < r->result_count; i++) assert_string_not_equal(r->results[i].name, name);
  snprintf(r->results[r->result_count].name, sizeof r->results[0].name, "%s", name);
  r->results[r->result_count++].value = value->data[0];
}

static inline void grad_on_gradient(void *user, ir_value param, const ir_tensor *value) {
  grad_run *r = user;
  size_t n = (size_t)ir_elements(ir_type_of(r->m, param));
  assert_true(param.id < 4096 && !r->gradient[param.id]); /* one gradient a parameter */
  r->gradient[param.id] = malloc(n * sizeof(double));
  memcpy(r->gradient[param.id], value->data, n * sizeof(double));
}

static inline void grad_evaluate(const ir_module *m, const char *entry, int64_t batch, int64_t time, grad_run *r) {
  *r = (grad_run){.m = m};
  ir_eval_args args = {.batch = batch,
                       .time = time,
                       .tokens = grad_tokens,
                       .targets = grad_targets,
                       .on_result = grad_on_result,
                       .on_gradient = grad_on_gradient,
                       .user = r};
  taper_error error = {0};
  if (ir_eval_entry(m, ir_entry_find(m, entry), &args, NULL, 0, &error) != TAPER_OK)
    fail_msg("%s: %s", entry, error.message);
}

static inline void grad_free(grad_run *r) {
  for (size_t i = 0; i < 4096; i++) free(r->gradient[i]);
}

/* -1: there is no such result */
static inline double grad_result(const grad_run *r, const char *name) {
  for (size_t i = 0; i < r->result_count; i++)
    if (strcmp(r->results[i].name, name) == 0) return r->results[i].value;
  return -1;
}

static inline double grad_loss(const ir_module *m, const char *entry, int64_t batch, int64_t time) {
  grad_run r;
  grad_evaluate(m, entry, batch, time, &r);
  double aux = grad_result(&r, "aux"), loss = grad_result(&r, "ce") + (aux < 0 ? 0 : aux);
  grad_free(&r);
  return loss;
}

/* The derivative of the loss along `direction`, by Richardson's extrapolation of central differences. Values and steps are
   multiples of powers of two, so every point is exact in f32. */
static inline double grad_along(const ir_module *m, const char *entry, int64_t batch, int64_t time, float *data,
                                const float *direction, size_t n) {
  double steps[3];
  float *kept = malloc(n * sizeof *kept);
  memcpy(kept, data, n * sizeof *kept);
  for (int k = 0; k < 3; k++) {
    double h = ldexp(1, -11 - k), side[2];
    for (int s = 0; s < 2; s++) {
      for (size_t i = 0; i < n; i++) data[i] = (float)(kept[i] + (s ? -h : h) * direction[i]);
      side[s] = grad_loss(m, entry, batch, time);
    }
    steps[k] = (side[0] - side[1]) / (2 * h);
  }
  memcpy(data, kept, n * sizeof *kept);
  free(kept);
  double first = (4 * steps[1] - steps[0]) / 3, second = (4 * steps[2] - steps[1]) / 3;
  return (16 * second - first) / 15;
}

/* Every parameter along random directions. Returns how many parameters have a gradient that is not zero. */
static inline size_t grad_check(ir_module *m, const char *entry, int64_t batch, int64_t time, uint64_t seed,
                                const char *what) {
  grad_run r;
  graph random = {.state = seed * 31 + 7};
  size_t moved = 0;
  grad_evaluate(m, entry, batch, time, &r);
  double loss = grad_loss(m, entry, batch, time);
  for (ir_value v = ir_first(m, IR_GLOBALS); v.id; v = ir_next(m, v)) {
    if (!ir_is(m, v, IR_PARAM) || ir_attr_int(m, v, IR_ATTR_TRAINED, 1) == 0) {
      assert_null(r.gradient[v.id]);
      continue;
    }
    size_t n = (size_t)ir_elements(ir_type_of(m, v));
    float *direction = malloc(n * sizeof *direction), *data = (float *)(uintptr_t)ir_payload(m, v);
    for (int round = 0; round < 2; round++) {
      double ours = 0, size = 0;
      for (size_t i = 0; i < n; i++) {
        static const float choices[] = {-1, -0.5f, 0.5f, 1};
        direction[i] = choices[graph_random(&random) % 4];
        if (!r.gradient[v.id]) continue;
        ours += direction[i] * r.gradient[v.id][i];
        size += fabs(direction[i] * r.gradient[v.id][i]);
      }
      double differences = grad_along(m, entry, batch, time, data, direction, n);
      if (!(fabs(ours - differences) <= 2e-8 * (size + fabs(differences)) + 1e-10 * (1 + fabs(loss))))
        fail_msg("%s @%s, seed %llu: d/d'%s' along a direction is %.12g, by differences %.12g", what, entry,
                 (unsigned long long)seed, ir_name_of(m, v), ours, differences);
      moved += round == 0 && size > 1e-12;
    }
    free(direction);
  }
  grad_free(&r);
  return moved;
}

/* Gives every parameter without data random multiples of 2^-8: weights of norms above 0, c near 2. */
static inline void grad_fill(ir_module *m, uint64_t seed) {
  graph g = {.state = seed};
  for (ir_value v = ir_first(m, IR_GLOBALS); v.id; v = ir_next(m, v)) {
    if (!ir_is(m, v, IR_PARAM) || ir_payload(m, v)) continue;
    ir_type t = ir_type_of(m, v);
    size_t n = (size_t)ir_elements(t);
    float *data = ir_payload_new(m, n * sizeof *data);
    bool factor = strstr(ir_name_of(m, v), "taper_c") || strstr(ir_name_of(m, v), "target");
    for (size_t i = 0; i < n; i++) {
      double u = graph_uniform(&g), value = factor ? 1 + u : t.rank == 1 ? 0.4 + u : 1.4 * u - 0.7;
      data[i] = (float)(round(value * 256) / 256);
    }
    ir_bind(m, v, data);
  }
}

static inline void grad_set_gates(ir_module *m, double value) {
  for (ir_value v = ir_first(m, IR_GLOBALS); v.id; v = ir_next(m, v))
    if (ir_is(m, v, IR_GATE)) ir_set_attr(m, v, (ir_attr){IR_ATTR_VALUE, {.floats = {&value, 1}}});
}

/* The pipeline of training on a module with @forward, every invariant checked after each pass. */
static inline void grad_programs(ir_module *m, const pass_train_options *train) {
  const pass_info *list[32];
  pass_options options = {.level = 2, .use = PASS_TRAIN, .train = train};
  diag_sink *sink = diag_sink_new();
  bool bug = false;
  pass_run_options run = {.verify_each = true, .out_bug = &bug};
  size_t n = pass_pipeline(&options, PASS_TRAIN, list, 32);
  bool fine = pass_run(m, sink, &options, list, n, &run);
  diag_render(sink, stderr, &(diag_render_options){0});
  diag_sink_free(sink);
  assert_true(fine && !bug);
}

/* All programs, gates at 0, 1 and between. */
static inline void grad_check_programs(ir_module *m, uint64_t seed, const char *what, size_t least_moved) {
  static const double gates[] = {0.3125, 1, 0};
  grad_programs(m, NULL);
  grad_fill(m, seed);
  assert_true(grad_check(m, "train_warm", 2, 5, seed, what) >= least_moved);
  assert_true(grad_check(m, "train_zero", 2, 5, seed, what) >= least_moved);
  for (size_t i = 0; i < 3; i++) {
    grad_set_gates(m, gates[i]);
    assert_true(grad_check(m, "train_taper", 2, 5, seed + i, what) >= least_moved);
  }
  grad_check(m, "train_warm", 1, 1, seed, what); /* one token */
}

#endif
