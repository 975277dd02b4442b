#include "compiler/driver/tir_write.h"
#include "compiler/driver/model_priv.h"
#include "runtime/base/file.h"
#include "runtime/base/hash.h"
#include <stdlib.h>
#include <string.h>

static const st_dtype dtypes[] = {
    [IR_F32] = ST_F32, [IR_BF16] = ST_BF16, [IR_F16] = ST_F16, [IR_I32] = ST_I32, [IR_I8] = ST_I8};

/* The folder of `path` with all links resolved, or NULL. */
static char *real_folder(const char *path, arena *a) {
  const char *slash = strrchr(path, '/');
  char *real = realpath(slash == path ? "/" : slash ? arena_strndup(a, path, (size_t)(slash - path)) : ".", NULL);
  char *copy = real ? arena_strdup(a, real) : NULL;
  free(real);
  return copy;
}

/* `file` as seen from the folder of `path`: "../w/weights.safetensors". */
static const char *relative(const char *file, const char *path, arena *a) {
  char *from = real_folder(path, a), *to = real_folder(file, a);
  const char *slash = strrchr(file, '/'), *base = slash ? slash + 1 : file;
  if (!from || !to) return file;
  size_t common = 0, i = 0;
  for (; from[i] && from[i] == to[i]; i++)
    if (from[i] == '/') common = i;
  if ((!from[i] || from[i] == '/') && (!to[i] || to[i] == '/')) common = i;
  text t = {0};
  for (const char *p = from + common; *p; p++)
    if (*p == '/' && p[1]) text_puts(&t, "../");
  const char *rest = to + common;
  while (*rest == '/') rest++;
  text_printf(&t, "%s%s%s", rest, *rest ? "/" : "", base);
  const char *result = arena_strdup(a, t.data ? t.data : base);
  text_free(&t);
  return result;
}

static void set_string(ir_module *m, ir_value v, ir_attr_key key, const char *s) {
  ir_set_attr(m, v, (ir_attr){.key = key, .u.s = s});
}

/* The weights' own tensor behind a constant, or NULL. */
static const weight *stored(const model_loaded *m, ir_value v) {
  const char *name = ir_attr_string(m->module, v, IR_ATTR_TENSOR, NULL),
             *file = ir_attr_string(m->module, v, IR_ATTR_FILE, NULL);
  if (!name) return NULL;
  if (!file) return m->priv->has_weights ? weights_find(&m->priv->weights, name) : NULL;
  for (extern_file *f = m->priv->externs; f; f = f->next)
    if (f->present && strcmp(f->name, file) == 0) return weights_find(&f->set, name);
  return NULL;
}

static bool used(const st_source *list, size_t n, const char *name) {
  for (size_t i = 0; i < n; i++)
    if (strcmp(list[i].name, name) == 0) return true;
  return false;
}

static void add_new(model_loaded *m, ir_value v, const char *file, st_source *list, size_t *n, arena *a) {
  ir_type type = ir_type_of(m->module, v);
  const char *wanted = ir_name_of(m->module, v), *name = wanted && *wanted ? wanted : "const";
  for (unsigned k = 1; used(list, *n, name); k++) name = arena_printf(a, "%s.%u", wanted ? wanted : "const", k);
  st_source s = {.name = name, .dtype = dtypes[type.dtype], .rank = type.rank, .data = ir_payload(m->module, v)};
  for (uint32_t i = 0; i < type.rank; i++) s.shape[i] = (uint64_t)type.dim[i];
  size_t bytes = (size_t)ir_elements(type) * ir_dtype_size(type.dtype);
  list[(*n)++] = s;
  set_string(m->module, v, IR_ATTR_FILE, file);
  set_string(m->module, v, IR_ATTR_TENSOR, name);
  set_string(m->module, v, IR_ATTR_HASH, hash_bytes(s.data, bytes).hex);
}

static taper_status write_text(const text *t, const char *path, taper_error *error) {
  file_writer w = {0};
  if (t->failed) return TAPER_FAIL(error, TAPER_NOMEM, "no memory for the IR text; free some");
  TAPER_TRY(file_writer_open(path, &w, error));
  taper_status status = file_writer_put(&w, t->data, t->size, error);
  if (status == TAPER_OK)
    status = file_writer_commit(&w, error);
  else
    file_writer_abort(&w);
  return status;
}

taper_status tir_write(model_loaded *m, const char *path, taper_error *error) {
  arena a = {0};
  ir_module *module = m->module;
  const char *slash = strrchr(path, '/');
  const char *tensors = arena_printf(&a, "%s.safetensors", path),
             *beside = arena_printf(&a, "%s.safetensors", slash ? slash + 1 : path);
  st_source *list = ARENA_ARRAY(&a, st_source, ir_value_limit(module) + 1);
  size_t n = 0;
  for (ir_value v = ir_first(module, IR_GLOBALS); v.id; v = ir_next(module, v)) {
    if (!ir_payload(module, v)) continue;
    const weight *w = stored(m, v);
    if (!w) {
      add_new(m, v, beside, list, &n, &a);
      continue;
    }
    set_string(module, v, IR_ATTR_FILE, relative(w->file, path, &a));
    set_string(module, v, IR_ATTR_HASH, hash_bytes(w->tensor->data, (size_t)w->tensor->bytes).hex);
  }
  taper_status status = n ? st_write(tensors, list, n, NULL, 0, 64, error) : TAPER_OK;
  text t = {0};
  if (status == TAPER_OK) ir_print(module, &t);
  if (status == TAPER_OK) status = write_text(&t, path, error);
  text_free(&t);
  arena_free(&a);
  return status;
}
