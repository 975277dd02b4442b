/* Module -> plan -> source -> package. docs/package-format.md */
#include "compiler/driver/build.h"
#include "compiler/driver/build_priv.h"
#include "compiler/emit/emit.h"
#include "compiler/ir/eval.h"
#include "runtime/base/checked.h"
#include "runtime/base/hash.h"
#include <math.h>
#include <stdio.h>
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
  *out = plan_make(m->module, options->target ? options->target : "cpu", sink);
  return *out ? TAPER_OK : in_sink(error, false);
}

bool build_is_cuda(const plan *p) { return strcmp(p->target, "cuda") == 0; }

static bool static_bytes(ir_type type, size_t *out) {
  int64_t n = ir_elements(type);
  uint64_t bytes;
  if (n < 0 || !checked_mul_u64((uint64_t)n, ir_dtype_size(type.dtype), &bytes) || bytes > SIZE_MAX) return false;
  *out = (size_t)bytes;
  return true;
}

taper_status build_source(const model_loaded *m, const plan *p, text *out, text *out_launch, char out_hash[33],
                          diag_sink *sink, taper_error *error) {
  text ir = {0};
  const plan_tensor *tensors;
  size_t n = plan_tensors(p, &tensors), bytes;
  ir_print_unplaced(m->module, &ir);
  hash_stream *h = ir.failed ? NULL : hash_begin();
  if (!h) return TAPER_FAIL(error, TAPER_NOMEM, "no memory for the IR text; free some");
  hash_update(h, ir.data, ir.size);
  for (size_t i = 0; i < n; i++)
    if (ir_payload(m->module, tensors[i].value) && static_bytes(ir_type_of(m->module, tensors[i].value), &bytes))
      hash_update(h, ir_payload(m->module, tensors[i].value), bytes);
  memcpy(out_hash, hash_end(h).hex, 33);
  text_free(&ir);
  bool made = build_is_cuda(p) ? emit_cuda(p, out, out_launch, sink) : emit_source(p, out_hash, out, sink);
  return made ? TAPER_OK : in_sink(error, false);
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

void build_decode_free(decode_part *part) {
  text *const texts[] = {&part->source, &part->launch, &part->ir, &part->plan_text, &part->options};
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) text_free(texts[i]);
  build_images_free(part->images, part->image_count);
  plan_free(part->plan);
}

/* A constant without bytes of its own (inline, splat, or an expression that no pass folded): its value, rounded once.
 */
static taper_status make_data(const ir_module *m, const plan_tensor *t, size_t bytes, arena *a, const void **out,
                              taper_error *error) {
  ir_tensor value = {0};
  TAPER_TRY(ir_eval_global(m, t->value, &value, error));
  const ir_dtype type = ir_type_of(m, t->value).dtype;
  void *data = arena_alloc(a, bytes ? bytes : 1);
  for (size_t i = 0; i < bytes / ir_dtype_size(type); i++) ir_store(type, data, i, value.data[i]);
  ir_tensor_free(&value);
  *out = data;
  return TAPER_OK;
}

/* + 1; 0: no type of weights */
static const int dtypes[IR_DTYPE_COUNT] = {[IR_F32] = ST_F32 + 1, [IR_BF16] = ST_BF16 + 1, [IR_F16] = ST_F16 + 1};

static taper_status add_weights(package_parts *k, const ir_module *m, const plan_tensor *tensors, size_t n,
                                taper_error *error) {
  for (size_t i = 0; i < n; i++) {
    ir_type type = ir_type_of(m, tensors[i].value);
    size_t bytes;
    if (!static_bytes(type, &bytes) || !dtypes[type.dtype])
      return TAPER_FAIL(error, TAPER_INTERNAL,
                        "tensor '%s' is no tensor of numbers of a fixed size: a defect of taperc; please report it",
                        tensors[i].name);
    st_source s = {.name = tensors[i].name,
                   .dtype = (st_dtype)(dtypes[type.dtype] - 1),
                   .rank = type.rank,
                   .data = ir_payload(m, tensors[i].value)};
    for (uint32_t d = 0; d < type.rank; d++) s.shape[d] = (uint64_t)type.dim[d];
    if (!s.data) TAPER_TRY(make_data(m, &tensors[i], bytes, &k->memory, &s.data, error));
    parts_add(k, s, bytes);
  }
  return TAPER_OK;
}

static void note_image(const build_image *image, build_result *out) {
  size_t n = strlen(out->archs);
  out->cached += image->cached;
  if (n + strlen(image->arch) + 2 < sizeof out->archs)
    snprintf(out->archs + n, sizeof out->archs - n, "%s%s", n ? "," : "", image->arch);
}

static taper_status assemble(package_parts *k, const model_loaded *m, const build_options *options,
                             const char *compiler, diag_sink *sink, decode_part *part, build_result *out,
                             taper_error *error) {
  const plan_tensor *tensors;
  const plan *p = part->plan;
  size_t n = plan_tensors(p, &tensors);
  TAPER_TRY(build_source(m, p, &part->source, &part->launch, out->model_hash, sink, error));
  const bool cuda = build_is_cuda(p);
  TAPER_TRY((cuda ? build_cuda_images : build_images)(&part->source, options, compiler, sink, part->images,
                                                      &part->image_count, error));
  TAPER_TRY(add_weights(k, m->module, tensors, n, error));
  parts_add_images(k, part->images, part->image_count, "taper.image.", cuda ? "taper.cuda." : "taper.cpu.",
                   "taper.arch");
  if (cuda) parts_add_bytes(k, "taper.launch", part->launch.data, part->launch.size);
  k->target = p->target;
  for (size_t i = 0; i < part->image_count; i++) note_image(&part->images[i], out);
  plan_print(p, &part->plan_text);
  ir_print(m->module, &part->ir);
  parts_add_bytes(k, "taper.plan", part->plan_text.data, part->plan_text.size);
  parts_add_bytes(k, "taper.ir", part->ir.data, part->ir.size);
  parts_add_bytes(k, "taper.source", part->source.data, part->source.size);
  pipeline_print_options(&options->pass, &part->options);
  if (part->plan_text.failed || part->ir.failed || part->options.failed)
    return TAPER_FAIL(error, TAPER_NOMEM, "no memory for the texts of the package; free some");
  out->images += part->image_count;
  out->tensors += n;
  return TAPER_OK;
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

/* What a session watches the stream by: only where a norm is gone that held it. */
static void add_scale(package_parts *k, const model_loaded *m) {
  if (!m->norm_removed || m->scale_median <= 0) return;
  text t = {0};
  text_puts(&t, m->layer_form ? "std " : "rms ");
  text_put_double(&t, m->scale_median);
  text_puts(&t, " ");
  text_put_double(&t, m->scale_high);
  if (!t.failed) parts_set(k, "taper.scale", arena_strdup(&k->memory, t.data));
  text_free(&t);
}

taper_status build_decode_part(package_parts *k, model_loaded *m, const build_options *options, const char *compiler,
                               diag_sink *sink, decode_part *part, build_result *out, taper_error *error) {
  if (strcmp(m->tokenizer, tokenizer_name(m->tokens.kind)) != 0)
    diag_report(sink, DC_TOKENIZER, (diag_loc){.file = diag_intern(sink, m->place.source)},
                "the tokenizer '%s' has no file: the package works on ids only; put " TOKENIZER_FILE
                " beside the source",
                m->tokenizer);
  TAPER_TRY(build_lower(m, options, sink, &part->plan, error));
  TAPER_TRY(check_params(m, part->plan, error));
  add_scale(k, m);
  return assemble(k, m, options, compiler, sink, part, out, error);
}

static taper_status make_package(package_parts *k, model_loaded *m, const build_options *options, const char *path,
                                 diag_sink *sink, decode_part *part, build_result *out, taper_error *error) {
  const char *compiler;
  build_options settled = *options;
  if (options->target && strcmp(options->target, "cuda") == 0)
    TAPER_TRY(build_cuda_begin(&settled, sink, &k->memory, &compiler, error));
  else
    TAPER_TRY(build_compiler_version(options->cc ? options->cc : "gcc", &k->memory, &compiler, error));
  TAPER_TRY(build_decode_part(k, m, &settled, compiler, sink, part, out, error));
  return parts_write(k, m, out->model_hash, part->options.data, compiler, path, error);
}

taper_status build_package(model_loaded *m, const build_options *options, const char *path, diag_sink *sink,
                           build_result *out, taper_error *error) {
  package_parts k = {0};
  decode_part part = {0};
  *out = (build_result){0};
  taper_status status = make_package(&k, m, options, path, sink, &part, out, error);
  struct stat s;
  if (status == TAPER_OK && stat(path, &s) == 0) out->bytes = (uint64_t)s.st_size;
  build_decode_free(&part);
  parts_free(&k);
  return status;
}
