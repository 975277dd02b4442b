/* Module -> plan -> source -> package. docs/package-format.md */
#include "compiler/driver/build.h"
#include "compiler/emit/emit.h"
#include "compiler/ir/eval.h"
#include "runtime/base/checked.h"
#include "runtime/base/hash.h"
#include "runtime/base/seal.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static taper_status in_sink(taper_error *error, bool bug) {
  error->message[0] = 0;
  return bug ? TAPER_INTERNAL : TAPER_INVALID;
}

taper_status build_passes(model_loaded *m, const build_options *options, diag_sink *sink, taper_error *error) {
  pass_run_options run = {0};
  bool bug = false;
  return pipeline_run(m->module, NULL, &options->pass, &run, sink, &bug) ? TAPER_OK : in_sink(error, bug);
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

typedef struct package_parts {
  arena memory;
  st_source *sources;
  size_t count, weights;
  text hashes, source, ir, plan, options, versions, archs;
  build_image images[BUILD_MAX_ARCHS];
  size_t image_count;
} package_parts;

static void free_parts(package_parts *k) {
  text *const texts[] = {&k->hashes, &k->source, &k->ir, &k->plan, &k->options, &k->versions, &k->archs};
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) text_free(texts[i]);
  build_images_free(k->images, k->image_count);
  arena_free(&k->memory);
}

static void add(package_parts *k, st_source s, size_t bytes) {
  text_puts(&k->hashes, k->count ? ", " : "{");
  text_put_quoted(&k->hashes, s.name, strlen(s.name), true);
  text_printf(&k->hashes, ": \"%s\"", hash_bytes(s.data, bytes).hex);
  k->sources[k->count++] = s;
}

static void add_bytes(package_parts *k, const char *name, const void *data, size_t bytes) {
  add(k, (st_source){.name = name, .dtype = ST_U8, .rank = 1, .shape = {bytes}, .data = data}, bytes);
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
    add(k, s, bytes);
  }
  k->weights = n;
  return TAPER_OK;
}

static taper_status write_package(package_parts *k, const model_loaded *m, const char *hash, const char *path,
                                  taper_error *error) {
  const char *name = m->name;
  size_t n = 0;
  st_pair metadata[16 + BUILD_MAX_ARCHS];
  const st_pair fixed[] = {{"taper.package", "1"},
                           {"taper.features", ""},
                           {"taper.name", name},
                           {"taper.model", hash},
                           {"taper.target", "cpu"},
                           {"taper.arch", k->archs.data},
                           {"taper.machine", "x86_64-le"},
                           {"taper.gates", m->gates},
                           {"taper.params", m->params},
                           {"taper.tokenizer", strcmp(m->tokenizer, "bytes") == 0 ? "bytes" : "none"},
                           {"taper.options", k->options.data},
                           {"taper.versions", k->versions.data},
                           {"taper.hashes", k->hashes.data}};
  for (; n < sizeof fixed / sizeof *fixed; n++) metadata[n] = fixed[n];
  for (size_t i = 0; i < k->image_count; i++)
    metadata[n++] = (st_pair){arena_printf(&k->memory, "taper.cpu.%s", k->images[i].arch), k->images[i].features};
  hash128 seal = seal_of(metadata, n);
  metadata[n++] = (st_pair){"taper.seal", seal.hex};
  return st_write(path, k->sources, k->count, metadata, n, 64, error);
}

static taper_status assemble(package_parts *k, const model_loaded *m, const plan *p, const build_options *options,
                             const char *path, diag_sink *sink, build_result *out, taper_error *error) {
  const char *compiler;
  const plan_tensor *tensors;
  size_t n = plan_tensors(p, &tensors);
  TAPER_TRY(build_compiler_version(options->cc ? options->cc : "gcc", &k->memory, &compiler, error));
  TAPER_TRY(build_source(m, p, &k->source, out->model_hash, sink, error));
  TAPER_TRY(build_images(&k->source, options, compiler, sink, k->images, &k->image_count, error));
  k->sources = ARENA_ARRAY(&k->memory, st_source, n + BUILD_MAX_ARCHS + 3);
  TAPER_TRY(add_weights(k, m->module, tensors, n, error));
  for (size_t i = 0; i < k->image_count; i++) {
    add_bytes(k, arena_printf(&k->memory, "taper.image.%s", k->images[i].arch), k->images[i].data, k->images[i].size);
    text_printf(&k->archs, "%s%s", i ? "," : "", k->images[i].arch);
    out->cached += k->images[i].cached;
  }
  plan_print(p, &k->plan);
  ir_print(m->module, &k->ir);
  add_bytes(k, "taper.plan", k->plan.data, k->plan.size);
  add_bytes(k, "taper.ir", k->ir.data, k->ir.size);
  add_bytes(k, "taper.source", k->source.data, k->source.size);
  text_puts(&k->hashes, "}");
  pipeline_print_options(&options->pass, &k->options);
  text_printf(&k->versions, "taperc %s; %s", TAPER_VERSION_TEXT, compiler);
  if (k->hashes.failed || k->plan.failed || k->ir.failed || k->options.failed || k->versions.failed || k->archs.failed)
    return TAPER_FAIL(error, TAPER_NOMEM, "no memory for the texts of the package; free some");
  out->images = k->image_count;
  out->tensors = k->weights;
  return write_package(k, m, out->model_hash, path, error);
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
  *out = (build_result){0};
  if (strcmp(m->tokenizer, "bytes") != 0 && strcmp(m->tokenizer, "none") != 0)
    diag_report(sink, DC_TOKENIZER, (diag_loc){.file = diag_intern(sink, m->place.source)},
                "the tokenizer '%s' is not built yet: the package works on ids only", m->tokenizer);
  taper_status status = build_lower(m, options, sink, &p, error);
  if (status == TAPER_OK) status = check_params(m, p, error);
  if (status == TAPER_OK) status = assemble(&k, m, p, options, path, sink, out, error);
  struct stat s;
  if (status == TAPER_OK && stat(path, &s) == 0) out->bytes = (uint64_t)s.st_size;
  plan_free(p);
  free_parts(&k);
  return status;
}
