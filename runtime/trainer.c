#include "runtime/trainer.h"
#include "runtime/abi/abi.h"
#include "runtime/gemm_library.h"
#include "runtime/model.h"
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void taper_trainer_options_init(taper_trainer_options *o) {
  *o = (taper_trainer_options){.size = sizeof(*o), .spin_us = 50};
}

void trainer_log(const taper_trainer *t, taper_log_level level, const char *format, ...) {
  char line[1024];
  va_list args;
  if (!t->log) return;
  va_start(args, format);
  text_vformat(line, sizeof(line), format, args);
  va_end(args);
  t->log(t->log_user, level, line);
}

/* ---- open and free ---- */

static taper_status copy_file(taper_trainer *t, const st_tensor *from, const char *name, taper_error *error) {
  trainer_file *f = &t->files[t->file_count++];
  const size_t n = strlen(name) + 1;
  if (!*name || strchr(name, '/') || name[0] == '.' || strcmp(name, "weights.safetensors") == 0 ||
      strcmp(name, "optimizer.safetensors") == 0 || strcmp(name, "manifest.json") == 0)
    return TAPER_FAIL(error, TAPER_INVALID, "tensor 'taper.file.%.80s': that is no name of a file beside the weights",
                      name);
  f->size = from->bytes;
  if (!(f->name = memory_zalloc(&t->allocator, n, 1)) || !(f->data = memory_zalloc(&t->allocator, f->size + 1, 1)))
    return memory_exhausted(error, "the files of a checkpoint", f->size + n);
  memcpy(f->name, name, n);
  if (f->size) memcpy(f->data, from->data, f->size);
  return TAPER_OK;
}

static taper_status copy_files(taper_trainer *t, const package *p, taper_error *error) {
  static const char prefix[] = "taper.file.";
  t->files = memory_zalloc(&t->allocator, p->file.count + 1, sizeof(*t->files));
  if (!t->files) return memory_exhausted(error, "the files of a checkpoint", p->file.count * sizeof(*t->files));
  for (size_t i = 0; i < p->file.count; i++) {
    const st_tensor *x = &p->file.tensors[i];
    if (strncmp(x->name, prefix, sizeof(prefix) - 1) == 0 && x->dtype == ST_U8)
      TAPER_TRY(copy_file(t, x, x->name + sizeof(prefix) - 1, error));
  }
  return TAPER_OK;
}

static taper_status take_recipe(taper_trainer *t, const package *p, const taper_recipe *own, taper_error *error) {
  if (!own && !p->recipe)
    return TAPER_FAIL(error, TAPER_INVALID, "%s: the package has no recipe; give one in the options", p->path);
  if (!own) {
    const taper_status status =
        recipe_parse(p->recipe->data, p->recipe->bytes, &t->allocator, &t->recipe, &t->recipe_block, error);
    return status == TAPER_OK ? status : taper_add_context(error, status, "%s", p->path);
  }
  TAPER_TRY(model_check_size(own->size, sizeof(*own), "taper_recipe", error));
  TAPER_TRY(recipe_check(own, error));
  return recipe_copy(own, &t->allocator, &t->recipe, &t->recipe_block, error);
}

static void use_gemm(taper_trainer *t, taper_gemm_fn fn) {
  for (uint32_t i = 0; i < t->threads; i++) t->ctx[i].gemm = fn;
}

/* What is measured: a program with gradients, on few windows. */
typedef struct gemm_sample {
  taper_trainer *t;
  trainer_call call;
} gemm_sample;

static void run_sample(void *arg, taper_gemm_fn fn) {
  gemm_sample *s = arg;
  use_gemm(s->t, fn);
  trainer_run(s->t, &s->call);
}

static taper_status make_sample(taper_trainer *t, gemm_sample *s, int32_t **out_ids, taper_error *error) {
  const uint32_t time = t->recipe.sequence, most = time < TRAINER_SAMPLE ? TRAINER_SAMPLE / time : 1;
  const uint32_t windows = t->recipe.batch < most ? t->recipe.batch : most;
  int32_t *ids = memory_alloc(&t->allocator, (uint64_t)windows * time * sizeof(*ids), MEMORY_LINE);
  if (!ids) return memory_exhausted(error, "measuring the GEMM", (uint64_t)windows * time * sizeof(*ids));
  for (uint32_t i = 0; i < windows * time; i++) ids[i] = (int32_t)(i % t->t->vocab);
  taper_train_program_id program = TAPER_TRAIN_WARM;
  while (program < TAPER_TRAIN_ZERO && !t->t->programs[program].stage_count) program++;
  trainer_gate_values(t, 1, t->gates);
  s->t = t;
  s->call = (trainer_call){.program = program,
                           .tokens = ids,
                           .targets = ids,
                           .windows = windows,
                           .time = time,
                           .inv_count = 1,
                           .gates = t->gates,
                           .param = t->param};
  *out_ids = ids;
  return TAPER_OK;
}

taper_status trainer_choose_gemm(taper_trainer *t, taper_gemm_choice choice, taper_error *error) {
  gemm_chosen chosen;
  gemm_sample sample = {0};
  int32_t *ids = NULL;
  if (choice == TAPER_GEMM_AUTO) TAPER_TRY(make_sample(t, &sample, &ids, error));
  const taper_status status = gemm_choose(choice, &(gemm_trial){run_sample, &sample}, &chosen, error);
  memory_free(&t->allocator, ids);
  TAPER_TRY(status);
  use_gemm(t, chosen.fn);
  memcpy(t->gemm, chosen.name, sizeof(t->gemm));
  trainer_log(t, TAPER_LOG_INFO, "GEMM: %s%s%s", chosen.name, chosen.why[0] ? "; " : "", chosen.why);
  return TAPER_OK;
}

static taper_status load(taper_trainer *t, const package *p, const package_image *which, taper_error *error) {
  pool_lock(t->workers);
  taper_status status = package_verify(p, t->workers, error);
  pool_unlock(t->workers);
  TAPER_TRY(status);
  TAPER_TRY(train_image_load(p, which, &t->code, error));
  t->t = t->code.table;
  memcpy(t->image, which->name, sizeof(t->image));
  memcpy(t->name, p->name, strlen(p->name) + 1);
  memcpy(t->model, p->model, sizeof(t->model));
  return trainer_make_room(t, p, error);
}

static taper_status open_trainer(const package *p, const taper_trainer_options *o, taper_trainer *t,
                                 taper_error *error) {
  const package_image *which;
  const pool_options workers = {o->threads, o->spin_us, o->cpus, o->cpu_count};
  TAPER_TRY(package_choose_image(p, PACKAGE_TRAIN, o->image, &which, error));
  TAPER_TRY(take_recipe(t, p, o->recipe, error));
  TAPER_TRY(pool_new(&workers, &t->allocator, &t->workers, error));
  t->threads = pool_threads(t->workers);
  TAPER_TRY(load(t, p, which, error));
  TAPER_TRY(copy_files(t, p, error));
  TAPER_TRY(trainer_bind_gates(t, error));
  TAPER_TRY(trainer_bind_clamp(t, o->clamp_rows, error));
  t->gemm_asked = o->gemm;
  return trainer_choose_gemm(t, o->gemm, error);
}

taper_status taper_trainer_open(const char *path, const taper_trainer_options *options, taper_trainer **out,
                                taper_error *error) {
  if (!out) return TAPER_FAIL(error, TAPER_INVALID, "taper_trainer_open: out is NULL; give a place for the trainer");
  *out = NULL;
  if (!path) return TAPER_FAIL(error, TAPER_INVALID, "taper_trainer_open: path is NULL; name a package");
  taper_trainer_options o;
  taper_trainer_options_init(&o);
  if (options) {
    TAPER_TRY(model_check_size(options->size, sizeof(o), "taper_trainer_options", error));
    o = *options;
  }
  taper_allocator a = memory_allocator(o.allocator);
  package p;
  TAPER_TRY(package_open(path, &a, o.log, o.log_user, &p, error));
  taper_trainer *t = memory_zalloc(&a, 1, sizeof(*t));
  taper_status status = t ? TAPER_OK : memory_exhausted(error, "the trainer", sizeof(*t));
  if (t) {
    t->allocator = a, t->log = o.log, t->log_user = o.log_user;
    t->code.object.fd = -1;
    status = open_trainer(&p, &o, t, error);
    if (status != TAPER_OK) taper_trainer_free(t), t = NULL;
  }
  package_close(&p);
  *out = t;
  return status;
}

void taper_trainer_free(taper_trainer *t) {
  if (!t) return;
  taper_allocator a = t->allocator;
  pool_free(t->workers);
  trainer_free_room(t);
  for (size_t i = 0; t->files && i < t->file_count; i++) {
    memory_free(&a, t->files[i].name);
    memory_free(&a, t->files[i].data);
  }
  memory_free(&a, t->files);
  memory_free(&a, t->recipe_block);
  train_image_unload(&t->code);
  memory_free(&a, t);
}

/* ---- what it is and holds ---- */

void taper_trainer_get_info(const taper_trainer *t, taper_trainer_info *out) {
  uint64_t parameters = 0;
  for (uint32_t i = 0; i < t->t->param_count; i++)
    if (t->t->params[i].trained) parameters += t->elements[i];
  *out = (taper_trainer_info){.size = sizeof(*out),
                              .name = t->name,
                              .image = t->image,
                              .gemm = t->gemm,
                              .vocab = t->t->vocab,
                              .context = t->t->context,
                              .width = t->t->width,
                              .threads = t->threads,
                              .gates = t->t->gate_count,
                              .norms = t->t->norm_count,
                              .parameters = parameters,
                              .memory_bytes = t->memory_bytes,
                              .step = t->state.step,
                              .tokens = t->state.tokens,
                              .recipe = t->recipe};
}

void taper_trainer_gate(const taper_trainer *t, uint32_t i, const char **out_name, uint32_t *out_index,
                        uint32_t *out_count, double *out_value) {
  const taper_train_gate *g = &t->t->gates[i];
  const taper_gate_schedule *s = t->schedule[i];
  if (out_name) *out_name = g->name;
  if (out_index) *out_index = g->index;
  if (out_count) *out_count = g->count;
  if (out_value)
    *out_value = recipe_gate_moves(s) ? recipe_gate_value(s, g->index, t->state.step + 1) : (double)g->value;
}

void taper_trainer_norm(const taper_trainer *t, uint32_t i, const char **out_name, uint32_t *out_gate, double *out_c) {
  bool known;
  if (out_name) *out_name = t->t->norms[i].name;
  if (out_gate) *out_gate = t->t->norms[i].gate;
  if (out_c) *out_c = trainer_c(t, i, &known);
}

taper_status taper_trainer_set_parameter(taper_trainer *t, const char *name, const float *values, size_t n,
                                         taper_error *error) {
  if (!t || !name || !values)
    return TAPER_FAIL(error, TAPER_INVALID,
                      "taper_trainer_set_parameter: an argument is NULL; give the trainer, a name and values");
  uint32_t i = 0;
  while (i < t->t->param_count && strcmp(t->t->params[i].tensor, name) != 0) i++;
  if (i == t->t->param_count || t->elements[i] != n)
    return TAPER_FAIL(error, TAPER_INVALID, "parameter '%.80s': there is none of that name with %zu elements", name, n);
  for (size_t k = 0; k < n; k++)
    if (!isfinite(values[k]))
      return TAPER_FAIL(error, TAPER_INVALID, "parameter '%.80s': value %zu is not a finite number", name, k);
  memcpy(t->param[i], values, n * sizeof(float));
  t->dirty = true;
  return TAPER_OK;
}

const float *taper_trainer_parameter(const taper_trainer *t, const char *name, size_t *out_elements) {
  for (uint32_t i = 0; t && name && i < t->t->param_count; i++) {
    if (strcmp(t->t->params[i].tensor, name) != 0) continue;
    if (out_elements) *out_elements = t->elements[i];
    return t->param[i];
  }
  return NULL;
}
