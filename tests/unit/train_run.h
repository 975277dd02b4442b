/* train_run.h - runs training images without the trainer: a module with training entries and random parameters, planned, compiled, its
 * programs called worker after worker, beside their evaluation in double precision. */
#ifndef TESTS_UNIT_TRAIN_RUN_H
#define TESTS_UNIT_TRAIN_RUN_H

#include "plan_run.h"

#include "runtime/abi/train_abi.h"

typedef struct train_case {
  uint32_t batch, time, block, chunk_rows, workers;
  const int32_t *token, *target; /* [batch * time] */
  bool accumulate;               /* called twice: everything doubles */
} train_case;

typedef struct train_image_run {
  train_plan *plan;
  void *handle;
  const taper_train_image *image;
  int fd;
  float **param, **grad, **packed, **rotary, *gate;
  double *result;
  float *arena; /* of the last call: rows of results lie there */
  uint32_t row_cap;
} train_image_run;

/* The programs of training from @forward; every gate is scheduled. */
static inline void train_passes(ir_module *m, double anchor, diag_sink *sink) {
  pass_train_options train = {.anchor = anchor};
  pass_options p = {.level = 2, .use = PASS_TRAIN, .train = &train};
  const pass_info *list[64];
  size_t passes = pass_pipeline(&p, PASS_TRAIN, list, 64);
  pass_run_options run = {.verify_each = true};
  if (!pass_run(m, sink, &p, list, passes, &run)) run_fail_with(sink);
}

/* Random parameters where there are none, every gate at `gate`. */
static inline void train_bind(ir_module *m, double gate, uint64_t seed) {
  run_bind(m, seed);
  for (ir_value v = ir_first(m, IR_GLOBALS); v.id; v = ir_next(m, v))
    if (ir_is(m, v, IR_GATE)) ir_set_attr(m, v, (ir_attr){.key = IR_ATTR_VALUE, .u.floats = {.data = &gate, .n = 1}});
}

/* A model of a .tmodel text (its train section left out) with its training entries. */
static inline ir_module *train_model(char *source, const front_define *defines, size_t n, double anchor, double gate,
                                     uint64_t seed, diag_sink *sink) {
  char *section = strstr(source, "\ntrain {");
  if (section) *section = 0;
  front_options o = {.defines = defines, .define_count = n, .train = true};
  front_model *f = front_parse(source, strlen(source), diag_intern(sink, "test.tmodel"), &o, sink);
  ir_module *m = f ? front_lower(f, &o, sink) : NULL;
  if (!m) run_fail_with(sink);
  front_free(f);
  train_passes(m, anchor, sink);
  train_bind(m, gate, seed);
  return m;
}

static inline uint64_t train_elements(const taper_train_param *p) {
  uint64_t n = 1;
  for (uint32_t d = 0; d < p->rank; d++) n *= p->dim[d];
  return n;
}

static inline void train_make_rotary(train_image_run *r) {
  const taper_train_image *im = r->image;
  r->rotary = calloc(im->rotary_count + 1, sizeof *r->rotary);
  for (uint32_t i = 0; i < im->rotary_count; i++) {
    const taper_train_rotary *d = &im->rotary[i];
    r->rotary[i] = run_alloc((uint64_t)im->context * 2 * d->pairs);
    for (uint32_t pos = 0; pos < im->context; pos++)
      for (uint32_t j = 0; j < d->pairs; j++) {
        r->rotary[i][(size_t)pos * 2 * d->pairs + j] = (float)(cos(pos * d->inv_freq[j]) * d->magnitude);
        r->rotary[i][(size_t)pos * 2 * d->pairs + d->pairs + j] = (float)(sin(pos * d->inv_freq[j]) * d->magnitude);
      }
  }
}

static inline train_image_run train_load(const ir_module *m, const char *arch, const char *cc, diag_sink *sink) {
  train_image_run r = {0};
  text source = {0};
  r.plan = train_plan_make(m, sink);
  if (!r.plan || !emit_train_source(r.plan, "0123", &source, sink)) run_fail_with(sink);
  void *image = NULL;
  size_t size = 0;
  char *features = NULL;
  taper_error error = {0};
  emit_options o = {.arch = arch, .cc = cc, .save_temps = getenv("TRAIN_SAVE")};
  if (emit_compile(source.data, source.size, &o, false, &image, &size, &features, &error) != TAPER_OK)
    fail_msg("%s", error.message);
  r.fd = memfd_create("image", 0);
  assert_int_equal(write(r.fd, image, size), (ssize_t)size);
  char path[64];
  snprintf(path, sizeof path, "/proc/self/fd/%d", r.fd);
  const char *other = getenv("TRAIN_IMAGE"); /* the same source with its symbols, for a profiler */
  r.handle = dlopen(other ? other : path, RTLD_NOW | RTLD_LOCAL);
  if (!r.handle) fail_msg("%s", dlerror());
  r.image = dlsym(r.handle, "taper_train_image");
  assert_non_null(r.image);
  assert_int_equal(r.image->size, sizeof(taper_train_image));
  const taper_train_image *im = r.image;
  r.param = calloc(im->param_count + 1, sizeof *r.param), r.grad = calloc(im->param_count + 1, sizeof *r.grad);
  for (uint32_t i = 0; i < im->param_count; i++) {
    uint64_t n = train_elements(&im->params[i]);
    double *all = malloc((size_t)n * sizeof *all);
    assert_true(ir_read_const(m, r.plan->params[i], all));
    r.param[i] = run_alloc(n), r.grad[i] = im->params[i].trained ? run_alloc(n) : NULL;
    for (uint64_t j = 0; j < n; j++) r.param[i][j] = (float)all[j];
    free(all);
  }
  r.packed = calloc(im->pack_count + 1, sizeof *r.packed);
  for (uint32_t i = 0; i < im->pack_count; i++) r.packed[i] = run_alloc(im->packs[i].floats);
  r.gate = calloc(im->gate_count + 1, sizeof *r.gate);
  for (uint32_t i = 0; i < im->gate_count; i++) r.gate[i] = im->gates[i].value;
  r.result = calloc(im->result_count + 1, sizeof *r.result);
  train_make_rotary(&r);
  free(image), free(features), text_free(&source);
  return r;
}

static inline void train_unload(train_image_run *r) {
  for (uint32_t i = 0; i < r->image->param_count; i++) free(r->param[i]), free(r->grad[i]);
  for (uint32_t i = 0; i < r->image->pack_count; i++) free(r->packed[i]);
  for (uint32_t i = 0; i < r->image->rotary_count; i++) free(r->rotary[i]);
  free(r->param), free(r->grad), free(r->packed), free(r->rotary), free(r->gate), free(r->result), free(r->arena);
  dlclose(r->handle);
  close(r->fd);
  train_plan_free(r->plan);
}

/* One stage, all workers, the last first: their order must not matter. */
static inline void train_stage_call(const taper_train_stage *s, taper_train_ctx *c, float *const *scratch) {
  for (uint32_t w = c->workers; w-- > 0;) {
    c->worker = w, c->scratch = scratch[w];
    s->fn(c, s->args);
  }
}

static inline void train_stages(const taper_train_program *p, taper_train_ctx *c, float *const *scratch) {
  for (uint32_t s = 0, end; s < p->stage_count; s = end) {
    bool loop = p->stages[s].flags & TAPER_TRAIN_CHUNKED;
    for (end = s + 1; loop && end < p->stage_count && p->stages[end].flags & TAPER_TRAIN_CHUNKED;) end++;
    uint32_t step = loop ? c->chunk_rows : c->rows ? c->rows : 1;
    for (uint32_t at = 0; at < (c->rows ? c->rows : 1); at += step) {
      c->chunk_row0 = at, c->chunk_count = c->rows - at < step ? c->rows - at : step;
      for (uint32_t i = s; i < end; i++) train_stage_call(&p->stages[i], c, scratch);
    }
  }
}

static inline uint32_t train_counted(const train_case *t) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < t->batch * t->time; i++) n += t->target[i] >= 0;
  return n ? n : 1;
}

static inline void train_call(train_image_run *r, uint32_t id, const train_case *t) {
  const taper_train_image *im = r->image;
  const taper_train_program *p = &im->programs[id];
  uint32_t rows = t->batch * t->time, cap = (rows + t->block - 1) / t->block * t->block;
  taper_train_ctx c = {.version = TAPER_TRAIN_ABI_VERSION,
                       .size = sizeof c,
                       .workers = t->workers,
                       .row_cap = cap,
                       .block = t->block,
                       .chunk_rows = t->chunk_rows,
                       .inv_count = 1.0f / (float)train_counted(t),
                       .token = t->token,
                       .target = t->target,
                       .param = r->param,
                       .grad = r->grad,
                       .packed = r->packed,
                       .gate = r->gate,
                       .result = r->result,
                       .rotary = (const float *const *)r->rotary};
  uint64_t floats = p->scratch_floats + p->scratch_per_block * t->block + p->scratch_per_time * t->time;
  float **scratch = calloc(t->workers, sizeof *scratch);
  for (uint32_t w = 0; w < t->workers; w++) scratch[w] = run_alloc(floats);
  free(r->arena);
  c.arena = r->arena = run_alloc(p->row_floats * cap), r->row_cap = cap;
  c.chunk = run_alloc(p->chunk_floats * t->chunk_rows), c.partial = run_alloc(p->partial_floats * (cap / t->block));
  c.fixed = run_alloc(p->fixed_floats);
  train_stages(&im->programs[TAPER_TRAIN_PACK], &c, scratch);
  c.batch = t->batch, c.time = t->time, c.rows = rows;
  for (uint32_t call = 0; call < (t->accumulate ? 2 : 1); call++) {
    c.accumulate = call > 0;
    train_stages(p, &c, scratch);
  }
  for (uint32_t w = 0; w < t->workers; w++) free(scratch[w]);
  free(scratch), free(c.chunk), free(c.partial), free(c.fixed);
}

/* ---- against the evaluation in double precision ---- */
typedef struct train_wanted {
  const train_image_run *r;
  double **gradient, **result; /* by parameter; by result, [1] or [rows] */
  uint32_t program;
} train_wanted;

static inline double *train_copy(const ir_tensor *t, size_t *out_n) {
  size_t n = 1;
  for (uint32_t d = 0; d < t->rank; d++) n *= (size_t)t->dim[d];
  double *x = malloc(n * sizeof *x);
  memcpy(x, t->data, n * sizeof *x);
  if (out_n) *out_n = n;
  return x;
}

static inline void train_on_gradient(void *user, ir_value param, const ir_tensor *value) {
  train_wanted *w = user;
  uint32_t i = train_param_of(w->r->plan, param);
  size_t n;
  double *x = train_copy(value, &n);
  for (size_t j = 0; w->gradient[i] && j < n; j++) x[j] += w->gradient[i][j];
  free(w->gradient[i]);
  w->gradient[i] = x;
}

static inline void train_on_result(void *user, const char *name, const ir_tensor *value) {
  train_wanted *w = user;
  for (uint32_t i = 0; i < w->r->image->result_count; i++)
    if (w->r->image->results[i].program == w->program && strcmp(w->r->image->results[i].name, name) == 0) {
      free(w->result[i]);
      w->result[i] = train_copy(value, NULL);
    }
}

static inline train_wanted train_evaluate(const train_image_run *r, const ir_module *m, uint32_t id, ir_region entry,
                                          const train_case *t, bool round) {
  train_wanted w = {.r = r, .program = id};
  w.gradient = calloc(r->image->param_count + 1, sizeof *w.gradient);
  w.result = calloc(r->image->result_count + 1, sizeof *w.result);
  ir_eval_args a = {.batch = t->batch,
                    .time = t->time,
                    .tokens = t->token,
                    .targets = t->target,
                    .round_f32 = round,
                    .on_gradient = train_on_gradient,
                    .on_result = train_on_result,
                    .user = &w};
  taper_error error = {0};
  if (ir_eval_entry(m, entry, &a, NULL, 0, &error) != TAPER_OK) fail_msg("%s", error.message);
  return w;
}

static inline void train_wanted_free(train_wanted *w) {
  for (uint32_t i = 0; i < w->r->image->param_count; i++) free(w->gradient[i]);
  for (uint32_t i = 0; i < w->r->image->result_count; i++) free(w->result[i]);
  free(w->gradient), free(w->result);
}

/* max |a - b| <= max |b| * max(2e-5, 4 times the error of the rounded evaluation); `all`: the largest number of all gradients, for those that
 * are nothing but rounding (a bias of keys). */
static inline void train_compare(const char *what, const char *name, const double *want, const double *rounded,
                                 const float *got, const double *got_double, size_t n, double factor, double all) {
  double most = 0, far = 0, off = 0;
  for (size_t i = 0; i < n; i++) {
    double g = got ? (double)got[i] : got_double[i];
    most = fmax(most, fabs(want[i] * factor));
    far = isnan(g) ? INFINITY : fmax(far, fabs(g - want[i] * factor));
    off = fmax(off, fabs((rounded[i] - want[i]) * factor));
  }
  double bound = fmax(2e-5 * most, 4 * off) + 2e-7 * all;
  if (!(far <= bound))
    fail_msg("%s '%s': off by %g where %g is allowed (largest value %g)", what, name, far, bound, most);
}

/* A hash of what a program leaves: gradients and results. */
static inline uint64_t train_bits(const train_image_run *r, uint32_t id, const train_case *t) {
  uint64_t h = 1469598103934665603u;
  const taper_train_image *im = r->image;
  for (uint32_t i = 0; i < im->param_count; i++)
    for (uint64_t j = 0; (im->params[i].programs >> id) & 1 && j < train_elements(&im->params[i]) * 4; j++)
      h = (h ^ ((const unsigned char *)r->grad[i])[j]) * 1099511628211u;
  for (uint32_t i = 0; i < im->result_count; i++) {
    const taper_train_result *q = &im->results[i];
    const unsigned char *p =
        q->rows ? (const unsigned char *)(r->arena + q->offset * r->row_cap) : (const unsigned char *)&r->result[i];
    for (size_t j = 0; q->program == id && j < (q->rows ? (size_t)t->batch * t->time * 4 : 8); j++)
      h = (h ^ p[j]) * 1099511628211u;
  }
  return h;
}

static inline void train_forget(train_image_run *r) {
  for (uint32_t i = 0; i < r->image->param_count; i++)
    for (uint64_t j = 0; r->grad[i] && j < train_elements(&r->image->params[i]); j++) r->grad[i][j] = NAN;
  for (uint32_t i = 0; i < r->image->result_count; i++) r->result[i] = NAN;
}

/* Every program, without looking at what comes out; a hash of that. */
static inline uint64_t train_run_all(train_image_run *r, const train_case *t) {
  uint64_t bits = 0;
  for (size_t k = 0; k < r->plan->program_count; k++) {
    train_forget(r);
    train_call(r, r->plan->programs[k].id, t);
    bits = bits * 31 + train_bits(r, r->plan->programs[k].id, t);
  }
  return bits;
}

/* Every program against its evaluation; a hash of what it left. */
static inline uint64_t train_check(train_image_run *r, const ir_module *m, const train_case *t) {
  uint64_t bits = 0;
  arena names = {0};
  for (size_t k = 0; k < r->plan->program_count; k++) {
    const train_program *g = &r->plan->programs[k];
    train_wanted exact = train_evaluate(r, m, g->id, g->entry, t, false);
    train_wanted rounded = train_evaluate(r, m, g->id, g->entry, t, true);
    double factor = t->accumulate ? 2 : 1;
    train_forget(r);
    train_call(r, g->id, t);
    bits = bits * 31 + train_bits(r, g->id, t);
    double all = 0;
    for (uint32_t i = 0; i < r->image->param_count; i++)
      for (uint64_t j = 0; exact.gradient[i] && j < train_elements(&r->image->params[i]); j++)
        all = fmax(all, fabs(exact.gradient[i][j]));
    for (uint32_t i = 0; i < r->image->param_count; i++) {
      assert_int_equal(exact.gradient[i] != NULL, (r->image->params[i].programs >> g->id) & 1);
      if (exact.gradient[i])
        train_compare(arena_printf(&names, "@%s %ux%u: gradient", ir_region_name(m, g->entry), t->batch, t->time),
                      r->image->params[i].tensor, exact.gradient[i], rounded.gradient[i], r->grad[i], NULL,
                      (size_t)train_elements(&r->image->params[i]), factor, all);
    }
    for (uint32_t i = 0; i < r->image->result_count; i++) {
      const taper_train_result *q = &r->image->results[i];
      if (q->program != g->id) continue;
      assert_non_null(exact.result[i]);
      if (q->rows)
        train_compare("rows of", q->name, exact.result[i], rounded.result[i], r->arena + q->offset * r->row_cap, NULL,
                      (size_t)t->batch * t->time, 1, 0.005);
      else
        train_compare("result", q->name, exact.result[i], rounded.result[i], NULL, &r->result[i], 1, factor, 0.005);
    }
    train_wanted_free(&exact), train_wanted_free(&rounded);
  }
  arena_free(&names);
  return bits;
}

#endif
