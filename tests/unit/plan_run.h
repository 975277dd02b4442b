/* plan_run.h - runs images without the runtime: a model of a .tmodel text with random weights, compiled, its stages
 * called worker after worker. */
#ifndef TESTS_UNIT_PLAN_RUN_H
#define TESTS_UNIT_PLAN_RUN_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "compiler/emit/emit.h"
#include "compiler/front/front.h"
#include "compiler/ir/eval.h"
#include "compiler/passes/pass.h"
#include "runtime/abi/abi.h"
#include "runtime/base/file.h"
#include "runtime/base/philox.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef struct run_image {
  plan *p;
  void *handle;
  const taper_image *image;
  float **weights, **states, **rotary;
  uint32_t context, row_cap;
  float *arena;
  int fd;
} run_image;

static inline void run_fail_with(diag_sink *sink) {
  diag_render_options o = {0};
  diag_render(sink, stderr, &o);
  fail();
}

/* Vectors about 1, matrices about 1 / sqrt(columns), either sign. */
static inline void run_bind(ir_module *m, uint64_t seed) {
  uint32_t number = 0;
  for (ir_value v = ir_first(m, IR_GLOBALS); v.id; v = ir_next(m, v)) {
    if (!ir_is_symbolic(m, v)) continue;
    ir_type t = ir_type_of(m, v);
    size_t n = (size_t)ir_elements(t);
    float *data = ir_payload_new(m, n * sizeof *data);
    double scale = t.rank == 2 ? 2.0 / sqrt((double)t.dim[1]) : 1;
    for (size_t i = 0; i < n; i++) {
      uint32_t r[4];
      philox4x32(seed, PHILOX_CHECK, number, (uint32_t)i, 0, r);
      double u = philox_uniform(r[0]) * 2 - 1;
      data[i] = (float)(t.rank == 2 ? u * scale : (u < 0 ? u - 0.2 : u + 0.2));
    }
    ir_bind(m, v, data);
    number++;
  }
}

static inline ir_module *run_model(const char *source, const front_define *defines, size_t n, const front_gate *gates,
                                   size_t gate_count, uint64_t seed, diag_sink *sink) {
  front_options o = {.defines = defines, .define_count = n, .gates = gates, .gate_count = gate_count};
  if (strncmp(source, "tir", 3) == 0) {
    ir_module *parsed = ir_parse(source, strlen(source), diag_intern(sink, "test.tir"), sink);
    if (!parsed || !ir_verify(parsed, sink)) run_fail_with(sink);
    run_bind(parsed, seed);
    return parsed;
  }
  front_model *f = front_parse(source, strlen(source), diag_intern(sink, "test.tmodel"), &o, sink);
  ir_module *m = f ? front_lower(f, &o, sink) : NULL;
  if (!m) run_fail_with(sink);
  run_bind(m, seed);
  front_free(f);
  return m; /* the sink holds the file names of its places: it must live as long */
}

static inline ir_module *run_optimise(const ir_module *original, pass_options o, diag_sink *sink) {
  ir_module *m = ir_clone(original);
  const pass_info *list[64];
  size_t n = pass_pipeline(&o, PASS_INFER, list, 64);
  text report = {0};
  pass_run_options run = {.verify_each = true, .report = &report};
  if (!pass_run(m, sink, &o, list, n, &run)) run_fail_with(sink);
  text_free(&report);
  return m;
}

static inline float *run_alloc(uint64_t floats) {
  size_t bytes = ((size_t)floats * sizeof(float) + 127) / 64 * 64;
  float *p = aligned_alloc(64, bytes);
  assert_non_null(p);
  for (size_t i = 0; i < bytes / sizeof(float); i++) p[i] = NAN; /* what is read before it is written shows */
  return p;
}

static inline float *run_pack(const run_image *r, const taper_weight_desc *w) {
  const plan_tensor *tensors;
  size_t n = plan_tensors(r->p, &tensors), i = 0;
  while (i < n && strcmp(tensors[i].name, w->tensor) != 0) i++;
  assert_true(i < n);
  size_t elements = (size_t)ir_elements(ir_type_of(r->p->m, tensors[i].value));
  double *all = malloc(elements * sizeof *all);
  assert_true(ir_read_const(r->p->m, tensors[i].value, all));
  assert_true((uint64_t)(w->row0 + w->rows) * w->cols <= elements);
  uint32_t tiles = (w->rows + 15) / 16, pitch = w->rows > 1 ? (w->cols + 15) / 16 * 16 : w->cols;
  float *out = run_alloc(w->pack == TAPER_PACK_TILES ? (uint64_t)tiles * 16 * w->cols : (uint64_t)w->rows * pitch);
  if (w->pack == TAPER_PACK_TILES) memset(out, 0, (size_t)tiles * 16 * w->cols * sizeof *out);
  for (size_t o = 0; o < w->rows; o++)
    for (size_t j = 0; j < w->cols; j++)
      out[w->pack == TAPER_PACK_TILES ? (o / 16 * w->cols + j) * 16 + o % 16 : o * pitch + j] =
          (float)all[(w->row0 + o) * w->cols + j];
  free(all);
  return out;
}

static inline run_image run_load(const ir_module *m, const char *arch, uint32_t row_cap, uint32_t slots,
                                 diag_sink *sink) {
  run_image r = {.row_cap = row_cap};
  text source = {0};
  r.p = plan_make(m, "cpu", sink);
  if (!r.p || !emit_source(r.p, "0123", &source, sink)) run_fail_with(sink);
  void *image = NULL;
  size_t size = 0;
  char *features = NULL;
  taper_error error = {0};
  emit_options o = {.arch = arch};
  if (emit_compile(source.data, source.size, &o, false, &image, &size, &features, &error) != TAPER_OK)
    fail_msg("%s", error.message);
  r.fd = memfd_create("image", 0);
  assert_int_equal(write(r.fd, image, size), (ssize_t)size);
  char path[64];
  snprintf(path, sizeof path, "/proc/self/fd/%d", r.fd);
  r.handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!r.handle) fail_msg("%s", dlerror());
  r.image = dlsym(r.handle, "taper_image");
  assert_non_null(r.image);
  assert_int_equal(r.image->size, sizeof(taper_image));
  r.context = (r.image->context + 15) / 16 * 16;
  r.weights = calloc(r.image->weight_count + 1, sizeof *r.weights);
  for (uint32_t i = 0; i < r.image->weight_count; i++) r.weights[i] = run_pack(&r, &r.image->weights[i]);
  r.states = calloc(r.image->state_count + 1, sizeof *r.states);
  for (uint32_t i = 0; i < r.image->state_count; i++)
    r.states[i] = run_alloc((uint64_t)slots * r.context * r.image->states[i].floats_per_pos);
  r.rotary = calloc(r.image->rotary_count + 1, sizeof *r.rotary);
  for (uint32_t i = 0; i < r.image->rotary_count; i++) {
    const taper_rotary_desc *d = &r.image->rotary[i];
    r.rotary[i] = run_alloc((uint64_t)r.context * 2 * d->pairs);
    for (uint32_t pos = 0; pos < r.context; pos++)
      for (uint32_t j = 0; j < d->pairs; j++) {
        r.rotary[i][(size_t)pos * 2 * d->pairs + j] = (float)(cos(pos * d->inv_freq[j]) * d->magnitude);
        r.rotary[i][(size_t)pos * 2 * d->pairs + d->pairs + j] = (float)(sin(pos * d->inv_freq[j]) * d->magnitude);
      }
  }
  r.arena = run_alloc(r.image->row_floats * row_cap);
  free(image), free(features), text_free(&source);
  return r;
}

typedef void (*run_probe_fn)(void *user, const taper_probe_desc *p, const float *rows);

/* Row j of logits belongs to out_row[j]. Without on_probe, stages that only probes need are left out; nothing of an
 * earlier call is in the buffers. */
static inline void run_call(run_image *r, uint32_t workers, uint32_t rows, const int32_t *token, const int32_t *slot,
                            const int32_t *pos, uint32_t out_rows, const int32_t *out_row, float *logits,
                            run_probe_fn on_probe, void *user) {
  const taper_image *im = r->image;
  taper_ctx c = {.version = TAPER_ABI_VERSION,
                 .size = sizeof c,
                 .workers = workers,
                 .rows = rows,
                 .out_rows = out_rows,
                 .row_cap = r->row_cap,
                 .context = r->context,
                 .token = token,
                 .pos = pos,
                 .slot = slot,
                 .out_row = out_row,
                 .arena = r->arena,
                 .weight = (const float *const *)r->weights,
                 .state = r->states,
                 .rotary = (const float *const *)r->rotary};
  uint64_t floats = im->scratch_floats + im->scratch_per_pos * r->context + im->scratch_per_row * r->row_cap;
  float **scratch = calloc(workers, sizeof *scratch);
  for (uint32_t w = 0; w < workers; w++) scratch[w] = run_alloc(floats);
  for (uint64_t i = 0; i < im->row_floats * r->row_cap; i++) r->arena[i] = NAN;
  for (uint32_t s = 0; s < im->stage_count; s++) {
    if (!on_probe && im->stages[s].flags & TAPER_STAGE_PROBES) continue;
    for (uint32_t w = workers; w-- > 0;) { /* the order must not matter */
      c.worker = w, c.scratch = scratch[w];
      im->stages[s].fn(&c, im->stages[s].args);
    }
    for (uint32_t i = 0; on_probe && i < im->probe_count; i++)
      if (im->probes[i].stage == s) on_probe(user, &im->probes[i], r->arena + im->probes[i].offset * r->row_cap);
  }
  memcpy(logits, r->arena + im->logits_offset * r->row_cap, (size_t)out_rows * im->vocab * sizeof *logits);
  for (uint32_t w = 0; w < workers; w++) free(scratch[w]);
  free(scratch);
}

static inline void run_unload(run_image *r) {
  for (uint32_t i = 0; i < r->image->weight_count; i++) free(r->weights[i]);
  for (uint32_t i = 0; i < r->image->state_count; i++) free(r->states[i]);
  for (uint32_t i = 0; i < r->image->rotary_count; i++) free(r->rotary[i]);
  free(r->weights), free(r->states), free(r->rotary), free(r->arena);
  dlclose(r->handle);
  close(r->fd);
  plan_free(r->p);
}

#endif
