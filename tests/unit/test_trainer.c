/* The trainer against the same training in double; its edges, refusals, memory that runs out. */
#include "tests/device/toy_train.h"
#include <setjmp.h>
#include <stdarg.h>
// cmocka needs the headers above first
#include <cmocka.h>

enum { IDS = TT_BATCH * TT_TIME * 4 };

static toy_train *good;
static taper_recipe base;

#define OK(call)                                                                                                       \
  do {                                                                                                                 \
    taper_error error_ = {0};                                                                                          \
    taper_error *e = &error_;                                                                                          \
    if ((call) != TAPER_OK) fail_msg("%s:%d: %s", __FILE__, __LINE__, error_.message);                                 \
  } while (0)

#define FAILS(call, expected, word)                                                                                    \
  do {                                                                                                                 \
    taper_error error_ = {0};                                                                                          \
    taper_error *e = &error_;                                                                                          \
    assert_int_equal((call), (expected));                                                                              \
    if (!strstr(error_.message, (word)))                                                                               \
      fail_msg("%s:%d: '%s' lacks '%s'", __FILE__, __LINE__, error_.message, (word));                                  \
  } while (0)

static taper_trainer *open_with(const taper_recipe *r, uint32_t threads) {
  taper_trainer_options o;
  taper_trainer *t = NULL;
  taper_trainer_options_init(&o);
  o.threads = threads, o.gemm = TAPER_GEMM_GENERATED, o.recipe = r;
  OK(taper_trainer_open(toy_path("good.tpack"), &o, &t, e));
  return t;
}

static void near(double got, double want, double tolerance, const char *what, uint64_t k) {
  if (!(fabs(got - want) <= tolerance * (1 + fabs(want))))
    fail_msg("step %llu, %s: %.9g, expected %.9g", (unsigned long long)k, what, got, want);
}

static void same_parameters(const taper_trainer *t, const tt_twin *twin, uint64_t k) {
  for (int p = 0; p < TT_PARAMS; p++) {
    size_t n = 0;
    const float *got = taper_trainer_parameter(t, tt_names[p], &n);
    assert_non_null(got);
    assert_int_equal(n, tt_sizes[p]);
    for (size_t i = 0; i < n; i++) near((double)got[i], twin->p[p][i], 2e-4, tt_names[p], k);
  }
}

static void train_beside_twin(const taper_recipe *r, uint32_t threads) {
  taper_trainer *t = open_with(r, threads);
  tt_twin *twin = tt_twin_new(good, r);
  int32_t tokens[IDS], targets[IDS];
  if (r->gates[0].start == 0) {
    assert_true(taper_trainer_wants_calibration(t));
    tt_batch(r, 1, tokens, targets);
    FAILS(taper_trainer_step(t, tokens, targets, NULL, e), TAPER_INVALID, "no calibration");
  }
  for (uint64_t k = 0; k < TAPER_CALIBRATION_BATCHES && r->gates[0].start == 0; k++) {
    tt_sums s;
    tt_batch(r, 1000 + k, tokens, targets);
    OK(taper_trainer_calibrate(t, tokens, targets, e));
    tt_batch_sums(twin, (double[]){1, 1}, false, false, tokens, targets, &s);
    for (int n = 0; n < 2; n++)
      if (recipe_gate_start(r->gates, (uint32_t)n) == 0) tt_note(twin, n, &s);
    twin->scale = (1 - r->gates[0].ema) * twin->scale + r->gates[0].ema * twin->mean_scale, twin->scale_count++;
    if (k == TAPER_CALIBRATION_BATCHES - 1) tt_start(twin, 0);
  }
  assert_false(taper_trainer_wants_calibration(t));
  for (uint64_t k = 1; k <= r->steps; k++) {
    taper_step step = {.size = sizeof(step)};
    tt_batch(r, k, tokens, targets);
    OK(taper_trainer_step(t, tokens, targets, &step, e));
    tt_step(twin, k, tokens, targets);
    near(step.ce, twin->ce, 2e-5, "ce", k);
    near(step.aux, twin->aux, 1e-4, "aux", k);
    near(step.grad_norm, twin->grad_norm, 2e-4, "gradient norm", k);
    near(step.logit_norm, twin->logit_norm, 1e-4, "logit norm", k);
    near(step.residual_scale, twin->mean_scale, 1e-4, "residual scale", k);
    near(step.loss, step.ce + step.aux, 0, "loss", k);
    for (int n = 0; n < 2; n++) assert_true(step.gates[n] == (float)tt_gate(twin, n, k));
    const char *program = k <= r->gates[0].start                                 ? "warm"
                          : tt_gate(twin, 0, k) == 0 && tt_gate(twin, 1, k) == 0 ? "zero"
                                                                                 : "taper";
    assert_string_equal(step.program, program);
    same_parameters(t, twin, k);
  }
  tt_batch(r, 1, tokens, targets);
  FAILS(taper_trainer_step(t, tokens, targets, NULL, e), TAPER_INVALID, "steps of the recipe are done");
  free(twin);
  taper_trainer_free(t);
}

static void trains_as_in_double(void **state) {
  (void)state;
  taper_gate_schedule g = tt_steps;
  taper_recipe r = base;
  r.gates = &g;
  train_beside_twin(&r, 2); /* steps one after another */
  g = (taper_gate_schedule){.gate = "list", .kind = TAPER_GATE_RAMP, .start = 3, .end = 9, .ema = 0.1};
  train_beside_twin(&r, 2); /* warm, ramp, zero */
  g.end = 14, g.inv_sigma = 1, r.schedule = TAPER_LR_LINEAR, r.clip = 0, r.accumulate = 1;
  train_beside_twin(&r, 1); /* to the last step */
  g.start = 0, g.end = 5, r.schedule = TAPER_LR_CONSTANT, r.warmup = 0;
  train_beside_twin(&r, 3); /* calibrated before the first step */
  g.start = 6, g.end = 6, g.ema = 1;
  train_beside_twin(&r, 2); /* from 1 to 0 at once */
  g.start = 14, g.end = 14;
  train_beside_twin(&r, 2); /* after the last step */
  r.steps = 1, g.start = 0, g.end = 1;
  train_beside_twin(&r, 2);
  g.start = 1;
  train_beside_twin(&r, 2);
  g = (taper_gate_schedule){.gate = "list", .kind = TAPER_GATE_STEP, .start = 0, .every = 2, .ema = 0.5}, r.steps = 5;
  train_beside_twin(&r, 2);
}

static void threads_do_not_change_a_bit(void **state) {
  (void)state;
  static float truth[TT_PARAMS][TT_V * TT_D];
  int32_t tokens[IDS], targets[IDS];
  for (uint32_t threads = 1; threads <= 5; threads++) {
    taper_trainer *t = open_with(NULL, threads);
    for (uint64_t k = 1; k <= base.steps; k++) {
      tt_batch(&base, k, tokens, targets);
      OK(taper_trainer_step(t, tokens, targets, NULL, e));
    }
    for (int p = 0; p < TT_PARAMS; p++) {
      const float *got = taper_trainer_parameter(t, tt_names[p], NULL);
      if (threads == 1) memcpy(truth[p], got, tt_sizes[p] * sizeof(float));
      assert_memory_equal(truth[p], got, tt_sizes[p] * sizeof(float));
    }
    taper_trainer_free(t);
  }
}

typedef struct told {
  char names[64][64];
  double values[64];
  size_t count, rows;
} told;

static void on_value(void *user, const char *name, double value) {
  told *x = user;
  snprintf(x->names[x->count], sizeof(x->names[0]), "%s", name);
  x->values[x->count++] = value;
}

static void on_rows(void *user, const char *name, const float *rows, size_t n) {
  told *x = user;
  assert_string_equal(name, "n0.scale_rows");
  for (size_t i = 0; i < n; i++) assert_true(rows[i] > 0);
  x->rows = n;
}

static double find(const told *x, const char *name) {
  for (size_t i = 0; i < x->count; i++)
    if (strcmp(x->names[i], name) == 0) return x->values[i];
  return NAN;
}

static void looks_without_touching(void **state) {
  (void)state;
  taper_trainer *t = open_with(NULL, 2);
  tt_twin *twin = tt_twin_new(good, &base);
  int32_t tokens[IDS], targets[IDS];
  double sum;
  uint64_t count;
  FAILS(taper_trainer_evaluate(t, tokens, targets, 0, 1, TAPER_GATES_CURRENT, &sum, &count, e), TAPER_INVALID,
        "0 windows");
  tt_batch(&base, 99, tokens, targets);
  FAILS(taper_trainer_evaluate(t, tokens, targets, 1, 41, TAPER_GATES_CURRENT, &sum, &count, e), TAPER_INVALID,
        "at most 40");
  FAILS(taper_trainer_evaluate(t, tokens, targets, 6, TT_TIME, TAPER_GATES_ZERO, &sum, &count, e), TAPER_INVALID,
        "no calibration yet");
  for (uint64_t k = 1; k <= base.steps; k++) {
    told before = {0}, x = {0};
    int32_t look[IDS], aim[IDS];
    tt_sums s;
    tt_batch(&base, k, tokens, targets);
    OK(taper_trainer_step(t, tokens, targets, NULL, e));
    tt_step(twin, k, tokens, targets);
    tt_batch(&base, 99, look, aim);
    for (int at = 0; at < 2; at++) { /* current gates; all at 0 */
      tt_twin *copy = malloc(sizeof(*copy));
      memcpy(copy, twin, sizeof(*copy));
      double g[2];
      for (int n = 0; n < 2; n++) {
        g[n] = at ? 0 : tt_gate(twin, n, k + 1);
        if (!at || k >= recipe_gate_start(&tt_steps, (uint32_t)n)) continue;
        copy->p[n ? TT_C1 : TT_C0][0] = tt_c(copy, n);
        memcpy(copy->p[n ? TT_TAPER1 : TT_TAPER0], copy->p[n ? TT_GAMMA1 : TT_GAMMA0], sizeof(copy->p[0]));
      }
      tt_batch_sums(copy, g, false, false, look, aim, &s);
      OK(taper_trainer_evaluate(t, look, aim, 6, TT_TIME, at ? TAPER_GATES_ZERO : TAPER_GATES_CURRENT, &sum, &count,
                                e));
      near(sum / (double)count, copy->ce, 2e-4, "evaluated ce", k);
      free(copy);
    }
    OK(taper_trainer_observe(t, look, aim, on_value, &before, e));
    OK(taper_trainer_measure(t, 0, look, aim, 2, TT_TIME, (float[]){0.5f, 0}, on_value, on_rows, &x, e));
    assert_int_equal(x.rows, 2 * TT_TIME);
    assert_true(find(&before, "ce") > 0 && isnan(find(&before, "n0.error")) && find(&before, "grad_norm.norm") > 0);
    near(hypot(hypot(find(&before, "grad_norm.norm"), find(&before, "grad_norm.embedding")),
               find(&before, "grad_norm.head")),
         twin->grad_norm, 2e-4, "gradient norms together", k);
    const double error = find(&before, "n0.calibration_error");
    assert_true(error > 0 && error < 1);
    for (uint32_t n = 0; n < 2; n++) {
      const char *name;
      uint32_t gate;
      double c;
      taper_trainer_norm(t, n, &name, &gate, &c);
      assert_int_equal(gate, n);
      near(c, k >= recipe_gate_start(&tt_steps, n) ? twin->p[n ? TT_C1 : TT_C0][0] : tt_c(twin, (int)n), 1e-4, name, k);
    }
    same_parameters(t, twin, k);
  }
  FAILS(taper_trainer_measure(t, 1, tokens, targets, 1, 2, NULL, on_value, NULL, NULL, e), TAPER_UNSUPPORTED,
        "no program to compare");
  free(twin);
  taper_trainer_free(t);
}

static void nothing_changes_at_a_refusal(void **state) {
  (void)state;
  taper_trainer *t = open_with(NULL, 2), *clean = open_with(NULL, 2);
  int32_t tokens[IDS], targets[IDS];
  for (uint64_t k = 1; k <= 6; k++) {
    tt_batch(&base, k, tokens, targets);
    const int32_t id = tokens[40];
    tokens[40] = TT_V;
    FAILS(taper_trainer_step(t, tokens, targets, NULL, e), TAPER_INVALID, "token 40 is 37; ids are 0 to 36");
    tokens[40] = -1;
    FAILS(taper_trainer_step(t, tokens, targets, NULL, e), TAPER_INVALID, "token 40 is -1");
    tokens[40] = id;
    const int32_t target = targets[7];
    targets[7] = -2;
    FAILS(taper_trainer_step(t, tokens, targets, NULL, e), TAPER_INVALID, "target 7 is -2");
    targets[7] = target;
    OK(taper_trainer_step(t, tokens, targets, NULL, e));
    OK(taper_trainer_step(clean, tokens, targets, NULL, e));
  }
  for (int i = 0; i < IDS; i++) targets[i] = -1;
  FAILS(taper_trainer_step(t, tokens, targets, NULL, e), TAPER_INVALID, "every target is padding");
  FAILS(taper_trainer_calibrate(t, tokens, targets, e), TAPER_INVALID, "every target is padding");
  tt_batch(&base, 1, tokens, targets);
  FAILS(taper_trainer_calibrate(t, tokens, targets, e), TAPER_INVALID, "no gate starts to taper at step 0");
  taper_step old = {.size = 3};
  FAILS(taper_trainer_step(t, tokens, targets, &old, e), TAPER_INVALID, "taper_step has size 3");
  FAILS(taper_trainer_step(t, NULL, targets, NULL, e), TAPER_INVALID, "NULL");
  for (int p = 0; p < TT_PARAMS; p++)
    assert_memory_equal(taper_trainer_parameter(t, tt_names[p], NULL),
                        taper_trainer_parameter(clean, tt_names[p], NULL), tt_sizes[p] * sizeof(float));
  taper_trainer_free(t);
  taper_trainer_free(clean);
}

static void numbers_that_are_none_are_told(void **state) {
  (void)state;
  toy_train *bad = tt_new(0, &base);
  taper_trainer *t = NULL;
  int32_t tokens[IDS], targets[IDS];
  bad->data[TT_WTE][36 * TT_D + 4] = NAN;
  toy_hash(&bad->base);
  toy_write(&bad->base, toy_path("bad.tpack"));
  OK(taper_trainer_open(toy_path("bad.tpack"), NULL, &t, e));
  tt_batch(&base, 1, tokens, targets);
  for (int i = 0; i < IDS; i++) tokens[i] %= 36;
  OK(taper_trainer_step(t, tokens, targets, NULL, e));
  tokens[5] = 36, targets[5] = 1;
  FAILS(taper_trainer_step(t, tokens, targets, NULL, e), TAPER_NUMERIC,
        "step 2: the loss is not a finite number; the first tensor that holds one is the parameter 'wte'");
  FAILS(taper_trainer_save(t, toy_path("run-nan"), NULL, e), TAPER_NUMERIC, "the parameter 'wte' holds a number");
  taper_trainer_free(t);
  tt_free(bad);
  taper_recipe r = base;
  r.lr = 1e30, r.warmup = 0;
  t = open_with(&r, 2);
  taper_status status = TAPER_OK;
  taper_error error = {0};
  for (uint64_t k = 1; k <= 4 && status == TAPER_OK; k++) {
    tt_batch(&r, k, tokens, targets);
    status = taper_trainer_step(t, tokens, targets, NULL, &error);
  }
  assert_int_equal(status, TAPER_NUMERIC);
  assert_non_null(strstr(error.message, "'"));
  taper_trainer_free(t);
}

static void refuses(const toy_train *x, taper_status status, const char *word) {
  taper_trainer *t = (taper_trainer *)1;
  toy_write(&x->base, toy_path("wrong.tpack"));
  FAILS(taper_trainer_open(toy_path("wrong.tpack"), NULL, &t, e), status, word);
  assert_null(t);
}

static void tables_are_checked(void **state) {
  (void)state;
  static const char *const words[] = {NULL,
                                      "its shape is none",
                                      "no tensor 'hat'",
                                      "'head': its shape is not the image's",
                                      "packing 0: no such parameter",
                                      "element 0 of 2 stands out of order",
                                      "its value is outside [0, 1]",
                                      "norm 0 'n0': its gate or parameters",
                                      "norm 1 'n1': its gate or parameters",
                                      "norm 1 'n1': its two weights",
                                      "program 1 has no result 'ce'",
                                      "outside of its program",
                                      "outside of its program",
                                      "unknown flags 0x8",
                                      "its table begins with 0x00000000",
                                      "its training ABI version is 99",
                                      "its table has 8 bytes",
                                      "its vocabulary is 38, the package's 37",
                                      "its context is 41",
                                      "lies outside of it",
                                      "no program that packs",
                                      "no tensor 'anchor.target'",
                                      "its token table is none",
                                      "one of its functions",
                                      "another model"};
  for (int wrong = 1; wrong < (int)(sizeof(words) / sizeof(words[0])); wrong++) {
    toy_train *x = tt_new(wrong, &base);
    refuses(x, wrong == 15 ? TAPER_UNSUPPORTED : TAPER_INVALID, words[wrong]);
    tt_free(x);
  }
}

static void recipes_of_packages_are_checked(void **state) {
  (void)state;
  taper_gate_schedule g = tt_steps;
  taper_recipe r = base;
  r.gates = &g;
  taper_trainer *t;
  taper_trainer_options o;
  taper_trainer_options_init(&o);
  o.recipe = &r;
  g.gate = "what";
  FAILS(taper_trainer_open(toy_path("good.tpack"), &o, &t, e), TAPER_INVALID, "gate 'what': the model has no gate");
  g.gate = "list", g.every = 12;
  FAILS(taper_trainer_open(toy_path("good.tpack"), &o, &t, e), TAPER_INVALID, "element 1 steps after 16");
  g = (taper_gate_schedule){.gate = "list", .kind = TAPER_GATE_RAMP, .start = 5, .end = 4, .ema = 0.1};
  FAILS(taper_trainer_open(toy_path("good.tpack"), &o, &t, e), TAPER_INVALID, "it starts at step 5, past its end");
  g.end = 15;
  FAILS(taper_trainer_open(toy_path("good.tpack"), &o, &t, e), TAPER_INVALID, "it ends at step 15");
  g.end = 14, r.sequence = 41;
  FAILS(taper_trainer_open(toy_path("good.tpack"), &o, &t, e), TAPER_INVALID, "the model's context is 40");
  r.size = 5;
  FAILS(taper_trainer_open(toy_path("good.tpack"), &o, &t, e), TAPER_INVALID, "taper_recipe has size 5");
  toy_train x = *good;
  snprintf(x.recipe, sizeof(x.recipe), "recipe 1\nsteps 5\n");
  for (size_t i = 0; i < x.base.tensor_count; i++)
    if (strcmp(x.base.tensors[i].name, "taper.recipe") == 0)
      x.base.tensors[i].data = x.recipe, x.base.tensors[i].shape[0] = 17;
  toy_hash(&x.base);
  refuses(&x, TAPER_INVALID, "recipe line 3: 'seed' is missing");
}

static void packages_say_what_they_are_for(void **state) {
  (void)state;
  taper_model *m;
  taper_trainer *t;
  FAILS(taper_model_open(toy_path("good.tpack"), NULL, &m, e), TAPER_UNSUPPORTED,
        "not for decoding; compile the model with --for decode or both");
  toy *decode = toy_new(0);
  toy_write(decode, toy_path("decode.tpack"));
  FAILS(taper_trainer_open(toy_path("decode.tpack"), NULL, &t, e), TAPER_UNSUPPORTED,
        "not for training; compile the model with --for train or both");
  toy_free(decode);
  toy_train x = *good;
  toy_set(&x.base, "taper.for", "fun");
  refuses(&x, TAPER_INVALID, "is none of decode, train, both");
  toy_set(&x.base, "taper.for", "train");
  toy_unset(&x.base, "taper.train");
  refuses(&x, TAPER_INVALID, "'taper.train' is missing");
  FAILS(taper_trainer_open(toy_path("absent"), NULL, &t, e), TAPER_IO, "absent");
  FAILS(taper_trainer_open(NULL, NULL, &t, e), TAPER_INVALID, "path is NULL");
}

/* ---- memory that runs out ---- */

typedef struct counter {
  long calls, fail_at, live;
} counter;

static void *resize(void *user, void *block, size_t old_size, size_t new_size) {
  counter *c = user;
  (void)old_size;
  if (new_size == 0) {
    c->live--;
    free(block);
    return NULL;
  }
  if (++c->calls == c->fail_at) return NULL;
  c->live += !block;
  return realloc(block, new_size);
}

static void memory_may_run_out_anywhere(void **state) {
  (void)state;
  counter c = {0};
  taper_trainer_options o;
  taper_trainer_options_init(&o);
  o.threads = 2, o.allocator = (taper_allocator){resize, &c};
  taper_trainer *t;
  OK(taper_trainer_open(toy_path("good.tpack"), &o, &t, e));
  const long calls = c.calls;
  int32_t tokens[IDS], targets[IDS];
  tt_batch(&base, 1, tokens, targets);
  OK(taper_trainer_step(t, tokens, targets, NULL, e));
  assert_int_equal(c.calls, calls); /* nothing is allocated after it is open */
  taper_trainer_free(t);
  assert_int_equal(c.live, 0);
  for (long at = 1; at <= calls; at++) {
    c = (counter){.fail_at = at};
    FAILS(taper_trainer_open(toy_path("good.tpack"), &o, &t, e), TAPER_NOMEM, "no memory for");
    assert_null(t);
    assert_int_equal(c.live, 0);
  }
}

static int set_up(void **state) {
  (void)state;
  base = tt_recipe(&tt_steps);
  good = tt_new(0, &base);
  toy_write(&good->base, toy_path("good.tpack"));
  return 0;
}

static int tear_down(void **state) {
  (void)state;
  tt_free(good);
  toy_remove_folder();
  return 0;
}

static void parameters_can_be_replaced(void **state) {
  (void)state;
  taper_trainer *t = open_with(&base, 2);
  size_t n = 0;
  const float *got = taper_trainer_parameter(t, tt_names[0], &n);
  float *values = malloc((n + 1) * sizeof *values);
  for (size_t i = 0; i < n; i++) values[i] = 0.5f * got[i];
  OK(taper_trainer_set_parameter(t, tt_names[0], values, n, e));
  assert_memory_equal(taper_trainer_parameter(t, tt_names[0], NULL), values, n * sizeof *values);
  FAILS(taper_trainer_set_parameter(t, "nothing", values, n, e), TAPER_INVALID, "'nothing'");
  FAILS(taper_trainer_set_parameter(t, tt_names[0], values, n + 1, e), TAPER_INVALID, "elements");
  FAILS(taper_trainer_set_parameter(t, tt_names[0], NULL, n, e), TAPER_INVALID, "NULL");
  values[n - 1] = (float)NAN;
  FAILS(taper_trainer_set_parameter(t, tt_names[0], values, n, e), TAPER_INVALID, "not a finite number");
  free(values);
  taper_trainer_free(t);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(parameters_can_be_replaced),
      cmocka_unit_test(trains_as_in_double),
      cmocka_unit_test(threads_do_not_change_a_bit),
      cmocka_unit_test(looks_without_touching),
      cmocka_unit_test(nothing_changes_at_a_refusal),
      cmocka_unit_test(numbers_that_are_none_are_told),
      cmocka_unit_test(tables_are_checked),
      cmocka_unit_test(recipes_of_packages_are_checked),
      cmocka_unit_test(packages_say_what_they_are_for),
      cmocka_unit_test(memory_may_run_out_anywhere),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
