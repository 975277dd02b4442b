#include "compiler/driver/train_package.h"
#include "compiler/driver/build_priv.h"
#include "compiler/driver/initial.h"
#include "compiler/emit/emit.h"
#include "runtime/base/hash.h"
#include "runtime/recipe.h"
#include <string.h>
#include <sys/stat.h>

static taper_status in_sink(taper_error *error, bool bug) {
  error->message[0] = 0;
  return bug ? TAPER_INTERNAL : TAPER_INVALID;
}

taper_status train_passes(train_job *job, diag_sink *sink, taper_error *error) {
  const pass_train_options train = {.gates = job->gates,
                                    .gate_count = job->gate_count,
                                    .anchor = job->anchor ? job->anchor_weight : 0,
                                    .clamp = job->clamp,
                                    .scan = job->scan};
  const pass_options pass = {.level = 2, .train = &train};
  const pass_info *passes[PIPELINE_MAX];
  bool bug = false;
  const pass_run_options run = {.out_bug = &bug};
  size_t n = pass_pipeline(&pass, PASS_TRAIN, passes, PIPELINE_MAX);
  if (!pass_run(job->model.module, sink, &pass, passes, n, &run)) return in_sink(error, bug);
  return initial_bind(job->model.module, job->recipe.seed, error); /* what the passes made: the anchor's target */
}

taper_status train_lower(train_job *job, diag_sink *sink, train_plan **out, taper_error *error) {
  TAPER_TRY(train_passes(job, sink, error));
  *out = train_plan_make(job->model.module, sink);
  return *out ? TAPER_OK : in_sink(error, false);
}

static size_t bytes_of(const ir_module *m, ir_value v) { return (size_t)ir_elements(ir_type_of(m, v)) * sizeof(float); }

/* Of the module alone: runs that differ in seed or weights share an image. */
static taper_status hash_job(const train_job *job, char out_hash[33], taper_error *error) {
  text ir = {0};
  ir_print_unplaced(job->model.module, &ir);
  if (ir.failed) return TAPER_FAIL(error, TAPER_NOMEM, "no memory for the IR text; free some");
  memcpy(out_hash, hash_bytes(ir.data, ir.size).hex, 33);
  text_free(&ir);
  return TAPER_OK;
}

taper_status train_source(const train_job *job, const train_plan *p, text *out, char out_hash[33], diag_sink *sink,
                          taper_error *error) {
  if (!*out_hash) TAPER_TRY(hash_job(job, out_hash, error));
  return emit_train_source(p, out_hash, out, sink) ? TAPER_OK : in_sink(error, false);
}

/* ---- the package ---- */

typedef struct train_texts {
  text source, ir, plan, recipe;
  build_image images[BUILD_MAX_ARCHS];
  size_t image_count;
} train_texts;

static void free_texts(train_texts *t) {
  text *const texts[] = {&t->source, &t->ir, &t->plan, &t->recipe};
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) text_free(texts[i]);
  build_images_free(t->images, t->image_count);
}

static void add_params(package_parts *k, const ir_module *m, build_result *out) {
  for (ir_value v = ir_first(m, IR_GLOBALS); v.id; v = ir_next(m, v)) {
    if (!ir_is(m, v, IR_PARAM)) continue;
    ir_type type = ir_type_of(m, v);
    st_source s = {.name = arena_printf(&k->memory, "taper.param.%s", ir_name_of(m, v)),
                   .dtype = ST_F32,
                   .rank = type.rank,
                   .data = ir_payload(m, v)};
    for (uint32_t d = 0; d < type.rank; d++) s.shape[d] = (uint64_t)type.dim[d];
    parts_add(k, s, bytes_of(m, v));
    out->tensors++;
  }
}

static taper_status add_texts(package_parts *k, train_texts *t, const train_job *job, const train_plan *p,
                              taper_error *error) {
  train_plan_print(p, &t->plan);
  ir_print(job->model.module, &t->ir);
  recipe_print(&job->recipe, &t->recipe);
  if (t->plan.failed || t->ir.failed || t->recipe.failed)
    return TAPER_FAIL(error, TAPER_NOMEM, "no memory for the texts of the package; free some");
  parts_add_bytes(k, "taper.recipe", t->recipe.data, t->recipe.size);
  parts_add_bytes(k, "taper.train_plan", t->plan.data, t->plan.size);
  parts_add_bytes(k, "taper.train_ir", t->ir.data, t->ir.size);
  parts_add_bytes(k, "taper.train_source", t->source.data, t->source.size);
  parts_add_bytes(k, "taper.file.model.tmodel", job->source, job->source_size);
  return TAPER_OK;
}

static taper_status add_training(package_parts *k, train_texts *t, train_job *job, const train_plan *p,
                                 const build_options *options, const char *compiler, diag_sink *sink, build_result *out,
                                 taper_error *error) {
  TAPER_TRY(train_source(job, p, &t->source, out->model_hash, sink, error));
  TAPER_TRY(build_images(&t->source, options, compiler, sink, t->images, &t->image_count, error));
  add_params(k, job->model.module, out);
  parts_add_images(k, t->images, t->image_count, "taper.train_image.", "taper.cpu.train.", "taper.train");
  out->images += t->image_count;
  for (size_t i = 0; i < t->image_count; i++) out->cached += t->images[i].cached;
  return add_texts(k, t, job, p, error);
}

typedef struct assembly {
  package_parts parts;
  train_texts texts;
  train_plan *plan;
  decode_part decode;
} assembly;

static taper_status assemble(assembly *s, train_job *job, model_loaded *decode, const build_options *options,
                             const char *path, diag_sink *sink, build_result *out, taper_error *error) {
  const char *compiler;
  TAPER_TRY(recipe_check(&job->recipe, error));
  TAPER_TRY(build_compiler_version(options->cc ? options->cc : "gcc", &s->parts.memory, &compiler, error));
  if (decode) TAPER_TRY(build_decode_part(&s->parts, decode, options, compiler, sink, &s->decode, out, error));
  TAPER_TRY(train_lower(job, sink, &s->plan, error));
  TAPER_TRY(add_training(&s->parts, &s->texts, job, s->plan, options, compiler, sink, out, error));
  parts_set(&s->parts, "taper.for", decode ? "both" : "train");
  return parts_write(&s->parts, &job->model, out->model_hash, decode ? s->decode.options.data : "", compiler, path,
                     error);
}

taper_status train_package(train_job *job, model_loaded *decode, const build_options *options, const char *path,
                           diag_sink *sink, build_result *out, taper_error *error) {
  assembly s = {0};
  *out = (build_result){0};
  taper_status status = assemble(&s, job, decode, options, path, sink, out, error);
  struct stat file;
  if (status == TAPER_OK && stat(path, &file) == 0) out->bytes = (uint64_t)file.st_size;
  train_plan_free(s.plan);
  build_decode_free(&s.decode);
  free_texts(&s.texts);
  parts_free(&s.parts);
  return status;
}

taper_status train_package_private(train_job *job, const build_options *options, diag_sink *sink, train_private *out,
                                   taper_error *error) {
  TAPER_TRY(private_file_begin("train.tpack", &out->memory, &out->file, error));
  taper_status status = train_package(job, NULL, options, out->file.path, sink, &out->built, error);
  return private_file_take(&out->file, status, &out->memory, error);
}

void train_private_free(train_private *p) {
  private_file_close(&p->file);
  arena_free(&p->memory);
}
