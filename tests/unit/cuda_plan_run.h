/* cuda_plan_run.h - a module as a package for CUDA, executed by the simulator, against the reference evaluation. */
#ifndef TESTS_UNIT_CUDA_PLAN_RUN_H
#define TESTS_UNIT_CUDA_PLAN_RUN_H

#include "tests/unit/plan_cases.h"

#include "compiler/driver/build.h"
#include "cuda/nvrtc.h"
#include "runtime/device.h"

#include <sys/stat.h>

extern const device_plugin taper_cuda_device;

enum { SLOTS = 3, MOST_PROBES = 64 };

typedef struct cuda_run {
  char path[64];
  package p;
  device *d;
  device_state *s;
} cuda_run;

static inline void must(taper_status status, const taper_error *error, const check *c, const char *what) {
  if (status != TAPER_OK) fail_msg("%s, %s: status %d: %s", c->k->label, what, (int)status, error->message);
}

static inline model_loaded loaded(const check *c, ir_module *m, arena *a) {
  double vocab = 0, context = 0;
  ir_module_param(m, "vocab", &vocab), ir_module_param(m, "context", &context);
  return (model_loaded){.place = {.source = c->k->label, .path = c->k->label},
                        .name = "case",
                        .tokenizer = "none",
                        .module = m,
                        .bound = true,
                        .gates = "{}",
                        .params = arena_printf(a, "{\"vocab\": %d, \"context\": %d}", (int)vocab, (int)context)};
}

static inline void open_run(cuda_run *r, const check *c, const pass_options *o, const char *what) {
  arena a = {0};
  taper_error error = {0};
  diag_sink *sink = diag_sink_new();
  model_loaded m = loaded(c, ir_clone(c->m), &a);
  build_options b = {.pass = *o, .target = "cuda", .archs = {"compute_90"}, .arch_count = 1};
  build_result result;
  taper_allocator allocator = memory_allocator((taper_allocator){0});
  taper_model_options options;
  *r = (cuda_run){.path = "/tmp/taperc-plan-XXXXXX"};
  close(mkstemp(r->path));
  taper_status status = build_package(&m, &b, r->path, sink, &result, &error);
  if (status != TAPER_OK && !*error.message) run_fail_with(sink);
  must(status, &error, c, what);
  must(package_open(r->path, &allocator, NULL, NULL, &r->p, &error), &error, c, what);
  taper_model_options_init(&options);
  options.gemm = "generated", options.device = "sim";
  must(taper_cuda_device.sim->open(&r->p, &options, &allocator, &r->d, &error), &error, c, what);
  must(r->d->ops->state_new(r->d, SLOTS, r->p.context, &r->s, &error), &error, c, what);
  ir_module_free(m.module);
  diag_sink_free(sink);
  arena_free(&a);
}

static inline void close_run(cuda_run *r) {
  r->d->ops->state_free(r->d, r->s);
  r->d->ops->close(r->d);
  package_close(&r->p);
  unlink(r->path);
}

/* One call: rows [0, n) of a slot from position `first` on, and logits of all of them. */
static inline void call(const check *c, const char *what, cuda_run *r, uint32_t slot, uint32_t first, uint32_t n,
                        float *logits, float *probes) {
  int32_t token[128], at[128], row[128], slots[128];
  float *place[128];
  taper_error error = {0};
  for (uint32_t i = 0; i < n; i++) {
    token[i] = c->tokens[first + i], at[i] = (int32_t)(first + i), row[i] = (int32_t)i, slots[i] = (int32_t)slot;
    place[i] = logits + (size_t)i * r->p.vocab;
  }
  device_batch batch = {.rows = n,
                        .out_rows = n,
                        .token = token,
                        .pos = at,
                        .slot = slots,
                        .out_row = row,
                        .logits = place,
                        .probe_rows = probes};
  must(r->d->ops->run(r->d, r->s, &batch, &error), &error, c, what);
}

static inline void check_probes(const check *c, const char *what, const cuda_run *r, const float *rows, uint32_t n) {
  for (size_t i = 0; i < c->probe_count && i < r->d->facts.probes; i++) {
    const uint32_t width = r->d->facts.width;
    if ((uint32_t)c->probes[i].dim[2] != width) continue;
    double most = 0, worst = 0;
    for (size_t j = 0; j < (size_t)n * width; j++) {
      most = fmax(most, fabs(c->probes[i].data[j]));
      worst = fmax(worst, fabs((double)rows[i * n * width + j] - c->probes[i].data[j]));
    }
    if (!(worst <= 1e-4 * most)) fail_msg("%s, %s: probe %zu is off by %g of %g", c->k->label, what, i, worst, most);
  }
}

/* An operand that lies by a last bit of f32 on the other side of a middle rounds the other way, one in about 10^4, and what follows carries
   that on. "odd scale" has one product behind one rounding: there the limit of f32 holds. */
static inline void compare_half(const check *c, const pass_options *o, const char *what, const float *got) {
  const size_t n = (size_t)(c->reference.dim[1] * c->reference.dim[2]);
  const double step = o->dtype == IR_BF16 ? 0x1p-8 : 0x1p-11;
  double most = 0, worst = 0, squares = 0;
  for (size_t i = 0; i < n; i++) {
    const double e = fabs((double)got[i] - c->reference.data[i]);
    if (!isfinite(got[i])) fail_msg("%s, %s: logit %zu is %g", c->k->label, what, i, (double)got[i]);
    most = fmax(most, fabs(c->reference.data[i])), worst = fmax(worst, e), squares += e * e;
  }
  const double mean = sqrt(squares / (double)n);
  if (!(worst <= step * most && mean <= step / 4 * most))
    fail_msg("%s, %s: error %g, in the mean %g, of at most %g", c->k->label, what, worst / most, mean / most, step);
}

static inline void compare_all(const check *c, const pass_options *o, const char *what, const float *got) {
  if (o->dtype == IR_F32 || strcmp(c->k->label, "odd scale") == 0)
    compare(c, what, got);
  else
    compare_half(c, o, what, got);
}

/* Steps, chunks of up to 8 rows, and all rows at once by products. */
static inline void run_case(check *c, const pass_options *o, const char *what) {
  cuda_run r;
  const uint32_t n = c->k->tokens, vocab = (uint32_t)c->reference.dim[2];
  open_run(&r, c, o, what);
  assert_int_equal(r.p.vocab, vocab);
  float *steps = calloc((size_t)n * vocab, sizeof *steps), *other = calloc((size_t)n * vocab, sizeof *other);
  float *probes = calloc((size_t)MOST_PROBES * n * r.d->facts.width, sizeof *probes);
  assert_true(r.d->facts.probes <= MOST_PROBES);
  for (uint32_t i = 0; i < n; i++) call(c, what, &r, 0, i, 1, steps + (size_t)i * vocab, NULL);
  compare_all(c, o, what, steps);
  for (uint32_t i = 0, chunk = 8; i < n; i += chunk, chunk = (chunk + 4) % 9 + 1) {
    if (chunk > 8) chunk = 8;
    if (chunk > n - i) chunk = n - i;
    call(c, what, &r, 1, i, chunk, other, NULL);
    if (memcmp(other, steps + (size_t)i * vocab, (size_t)chunk * vocab * sizeof *other) != 0)
      fail_msg("%s, %s: a chunk of %u at %u differs from steps", c->k->label, what, chunk, i);
  }
  const uint32_t most = n < r.d->facts.row_cap ? n : r.d->facts.row_cap;
  for (uint32_t i = 0; i < n; i += most)
    call(c, what, &r, 2, i, n - i < most ? n - i : most, other + (size_t)i * vocab, most == n ? probes : NULL);
  compare_all(c, o, what, other);
  if (o->dtype == IR_F32 && most == n) check_probes(c, what, &r, probes, n);
  free(steps), free(other), free(probes);
  close_run(&r);
}

static inline bool has_nvrtc(void) {
  nvrtc_facts facts;
  taper_error error = {0};
  if (nvrtc_find(NULL, &facts, &error) == TAPER_OK) return true;
  print_message("skipped: %s\n", error.message);
  return false;
}

/* With a type of 16 bits the reference is the module after the passes: its casts round where the kernels do. */
static inline void reference_of(check *c, const pass_options *o) {
  if (o->dtype == IR_F32) return;
  ir_module *exact = c->m;
  c->m = run_optimise(exact, *o, c->sink);
  ir_tensor_free(&c->reference), ir_tensor_free(&c->rounded);
  evaluate(c, true, &c->rounded);
  for (size_t i = 0; i < c->probe_count; i++) free(c->probes[i].data), free((void *)(uintptr_t)c->probe_names[i]);
  c->probe_count = 0;
  evaluate(c, false, &c->reference);
  ir_module_free(c->m);
  c->m = exact;
}

/* The simulator beside the program that these tests are of. */
static inline void name_simulator(const char *program) {
  char library[512];
  snprintf(library, sizeof library, "%.*s/../../libtaper-sim.so",
           (int)(strrchr(program, '/') ? strrchr(program, '/') - program : 1), strrchr(program, '/') ? program : ".");
  setenv("TAPER_LIBSIM", library, 0);
}

#endif
