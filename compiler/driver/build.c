/* Module -> plan -> source -> package. docs/package-format.md */
#include "compiler/driver/build.h"
#include "compiler/driver/parts.h"
#include "compiler/emit/emit.h"
#include "compiler/ir/eval.h"
#include "runtime/base/checked.h"
#include "runtime/base/hash.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static taper_status in_sink(taper_error *error, bool bug) {
  error->message[0] = 0;
  return bug ? TAPER_INTERNAL : TAPER_INVALID;
}

void build_used_rows(const model_loaded *m, pass_options *pass) {
  size_t n;
  const unsigned char *used = pass->clamp_rows > 0 ? model_used_rows(m, &n) : NULL;
  if (used) pass->used_rows = used, pass->used_count = n;
}

taper_status build_passes(model_loaded *m, const build_options *options, diag_sink *sink, taper_error *error) {
  pass_run_options run = {0};
  pass_options pass = options->pass;
  bool bug = false;
  build_used_rows(m, &pass);
  return pipeline_run(m->module, NULL, &pass, &run, sink, &bug) ? TAPER_OK : in_sink(error, bug);
}

taper_status build_lower(model_loaded *m, const build_options *options, diag_sink *sink, plan **out,
                         taper_error *error) {
  TAPER_TRY(build_passes(m, options, sink, error));
  *out = plan_make(m->module, "cpu", sink);
  return *out ? TAPER_OK : in_sink(error, false);
}

static bool static_bytes(ir_type type, size_t *out) {
  int64_t n = ir_elements(type);
  uint64_t bytes;
  if (n < 0 || !checked_mul_u64((uint64_t)n, sizeof(float), &bytes) || bytes > SIZE_MAX) return false;
  *out = (size_t)bytes;
  return true;
}

taper_status build_source(const model_loaded *m, const plan *p, text *out, char out_hash[33], diag_sink *sink,
                          taper_error *error) {
  text ir = {0};
  const plan_tensor *tensors;
  size_t n = plan_tensors(p, &tensors), bytes;
  ir_print(m->module, &ir);
  hash_stream *h = ir.failed ? NULL : hash_begin();
  if (!h) return TAPER_FAIL(error, TAPER_NOMEM, "no memory for the IR text; free some");
  hash_update(h, ir.data, ir.size);
  for (size_t i = 0; i < n; i++)
    if (ir_payload(m->module, tensors[i].value) && static_bytes(ir_type_of(m->module, tensors[i].value), &bytes))
      hash_update(h, ir_payload(m->module, tensors[i].value), bytes);
  memcpy(out_hash, hash_end(h).hex, 33);
  text_free(&ir);
  return emit_source(p, out_hash, out, sink) ? TAPER_OK : in_sink(error, false);
}

taper_status build_asm(const text *source, const build_options *options, char **out, size_t *out_size,
                       taper_error *error) {
  const char *arch = options->arch_count ? options->archs[0] : "native";
  emit_options e = {.cc = options->cc ? options->cc : "gcc",
                    .target_triple = options->target_triple,
                    .arch = arch,
                    .save_temps = options->save_temps};
  void *image = NULL;
  char *features = NULL;
  taper_status status = emit_compile(source->data, source->size, &e, true, &image, out_size, &features, error);
  free(features);
  *out = image;
  return status;
}

/* ---- the package ---- */

typedef struct decode_texts {
  text source, ir, plan, options;
  build_image images[BUILD_MAX_ARCHS];
  size_t image_count;
} decode_texts;

static void free_texts(decode_texts *t) {
  text *const texts[] = {&t->source, &t->ir, &t->plan, &t->options};
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) text_free(texts[i]);
  build_images_free(t->images, t->image_count);
}

/* A constant without bytes of its own (inline, splat, or an expression that no pass folded): its value, rounded once.
 */
static taper_status make_data(const ir_module *m, const plan_tensor *t, size_t bytes, arena *a, const void **out,
                              taper_error *error) {
  ir_tensor value = {0};
  TAPER_TRY(ir_eval_global(m, t->value, &value, error));
  float *data = arena_alloc(a, bytes ? bytes : 1);
  for (size_t i = 0; i < bytes / sizeof *data; i++) data[i] = (float)value.data[i];
  ir_tensor_free(&value);
  *out = data;
  return TAPER_OK;
}

static taper_status add_weights(package_parts *k, const ir_module *m, const plan_tensor *tensors, size_t n,
                                taper_error *error) {
  for (size_t i = 0; i < n; i++) {
    ir_type type = ir_type_of(m, tensors[i].value);
    size_t bytes;
    if (!static_bytes(type, &bytes) || type.dtype != IR_F32)
      return TAPER_FAIL(error, TAPER_INTERNAL,
                        "tensor '%s' is no f32 tensor of a fixed size: a defect of taperc; please report it",
                        tensors[i].name);
    st_source s = {
        .name = tensors[i].name, .dtype = ST_F32, .rank = type.rank, .data = ir_payload(m, tensors[i].value)};
    for (uint32_t d = 0; d < type.rank; d++) s.shape[d] = (uint64_t)type.dim[d];
    if (!s.data) TAPER_TRY(make_data(m, &tensors[i], bytes, &k->memory, &s.data, error));
    parts_add(k, s, bytes);
  }
  return TAPER_OK;
}

static taper_status assemble(package_parts *k, decode_texts *t, const model_loaded *m, const plan *p,
                             const build_options *options, const char *path, diag_sink *sink, build_result *out,
                             taper_error *error) {
  const char *compiler;
  const plan_tensor *tensors;
  size_t n = plan_tensors(p, &tensors);
  TAPER_TRY(build_compiler_version(options->cc ? options->cc : "gcc", &k->memory, &compiler, error));
  TAPER_TRY(build_source(m, p, &t->source, out->model_hash, sink, error));
  TAPER_TRY(build_images(&t->source, options, compiler, sink, t->images, &t->image_count, error));
  TAPER_TRY(add_weights(k, m->module, tensors, n, error));
  parts_add_images(k, t->images, t->image_count, "taper.image.", "taper.cpu.", "taper.arch");
  for (size_t i = 0; i < t->image_count; i++) out->cached += t->images[i].cached;
  plan_print(p, &t->plan);
  ir_print(m->module, &t->ir);
  parts_add_bytes(k, "taper.plan", t->plan.data, t->plan.size);
  parts_add_bytes(k, "taper.ir", t->ir.data, t->ir.size);
  parts_add_bytes(k, "taper.source", t->source.data, t->source.size);
  pipeline_print_options(&options->pass, &t->options);
  if (t->plan.failed || t->ir.failed || t->options.failed)
    return TAPER_FAIL(error, TAPER_NOMEM, "no memory for the texts of the package; free some");
  out->images = t->image_count;
  out->tensors = n;
  return parts_write(k, m, out->model_hash, t->options.data, compiler, path, error);
}

/* The parameters become JSON and 'vocab' is what a runtime goes by, but a .tir text may say anything. */
static taper_status check_params(const model_loaded *m, const plan *p, taper_error *error) {
  double value = 0;
  for (size_t i = 0; i < ir_module_param_count(m->module); i++) {
    const char *name = ir_module_param_at(m->module, i, &value);
    if (!isfinite(value))
      return TAPER_FAIL(error, TAPER_INVALID, "%s: the parameter '%s' is no finite number; write one", m->place.source,
                        name);
  }
  if (ir_module_param(m->module, "vocab", &value) && value == p->vocab) return TAPER_OK;
  return TAPER_FAIL(error, TAPER_INVALID,
                    "%s: the parameter 'vocab' is not %u, the width of the logits; write `param vocab = %u`",
                    m->place.source, p->vocab, p->vocab);
}

taper_status build_package(model_loaded *m, const build_options *options, const char *path, diag_sink *sink,
                           build_result *out, taper_error *error) {
  plan *p = NULL;
  package_parts k = {0};
  decode_texts t = {0};
  *out = (build_result){0};
  if (strcmp(m->tokenizer, "bytes") != 0 && strcmp(m->tokenizer, "none") != 0)
    diag_report(sink, DC_TOKENIZER, (diag_loc){.file = diag_intern(sink, m->place.source)},
                "the tokenizer '%s' is not built yet: the package works on ids only", m->tokenizer);
  taper_status status = build_lower(m, options, sink, &p, error);
  if (status == TAPER_OK) status = check_params(m, p, error);
  if (status == TAPER_OK) status = assemble(&k, &t, m, p, options, path, sink, out, error);
  struct stat s;
  if (status == TAPER_OK && stat(path, &s) == 0) out->bytes = (uint64_t)s.st_size;
  plan_free(p);
  free_texts(&t);
  parts_free(&k);
  return status;
}
