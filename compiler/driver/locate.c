/* What a MODEL of the command line is, and where its parts lie. */
#include "compiler/driver/checkpoints.h"
#include "compiler/driver/model.h"
#include "runtime/base/file.h"
#include "runtime/base/text.h"
#include <string.h>
#include <sys/stat.h>

static bool exists(const char *path) {
  struct stat s;
  return stat(path, &s) == 0;
}

static bool is_folder(const char *path) {
  struct stat s;
  return stat(path, &s) == 0 && S_ISDIR(s.st_mode);
}

static bool ends_with(const char *s, const char *end) {
  size_t n = strlen(s), m = strlen(end);
  return n > m && strcmp(s + n - m, end) == 0;
}

static const char *join(arena *a, const char *folder, const char *name) {
  size_t n = strlen(folder);
  return arena_printf(a, "%s%s%s", folder, n && folder[n - 1] == '/' ? "" : "/", name);
}

static const char *last_part(const char *path, arena *a) {
  size_t n = strlen(path);
  while (n > 1 && path[n - 1] == '/') n--;
  size_t start = n;
  while (start > 0 && path[start - 1] != '/') start--;
  return arena_strndup(a, path + start, n - start);
}

static void set_folder(model_place *out, const char *folder, model_kind kind, arena *a) {
  out->kind = kind;
  out->folder = folder;
  out->source = join(a, folder, "model.tmodel");
  static const char *const names[] = {"weights.safetensors", "model.safetensors", "model.safetensors.index.json"};
  for (size_t i = 0; i < sizeof names / sizeof *names && !out->weights; i++)
    if (exists(join(a, folder, names[i]))) out->weights = join(a, folder, names[i]);
}

static taper_status locate_run(const char *path, arena *a, diag_sink *sink, model_place *out, taper_error *error) {
  checkpoint_found found;
  TAPER_TRY(checkpoints_newest(path, a, sink, &found, error));
  if (!found.count)
    return TAPER_FAIL(error, TAPER_INVALID,
                      "%s: the folder holds neither model.tmodel nor a checkpoint-<step>; name a model's folder", path);
  if (!found.folder)
    return TAPER_FAIL(error, TAPER_INVALID, "%s: none of its %zu checkpoints is complete; name another run", path,
                      found.count);
  set_folder(out, found.folder, MODEL_CHECKPOINT, a);
  diag_remark(sink, "model", false, (diag_loc){.file = diag_intern(sink, found.folder)},
              "the newest complete checkpoint of %s", path);
  return TAPER_OK;
}

static taper_status locate_folder(const char *path, arena *a, diag_sink *sink, model_place *out, taper_error *error) {
  uint64_t step;
  bool checkpoint = exists(join(a, path, "manifest.json"));
  if (exists(join(a, path, "model.tmodel"))) {
    if (!checkpoint && checkpoint_name_step(last_part(path, a), &step))
      return TAPER_FAIL(error, TAPER_INVALID,
                        "%s: the checkpoint is incomplete: manifest.json is missing; name another, or its run folder",
                        path);
    if (checkpoint && checkpoint_check(path, a, error) != TAPER_OK)
      return taper_add_context(error, error ? error->status : TAPER_INVALID, "%s: the checkpoint is damaged", path);
    set_folder(out, path, checkpoint ? MODEL_CHECKPOINT : MODEL_FOLDER, a);
    return TAPER_OK;
  }
  return locate_run(path, a, sink, out, error);
}

/* A safetensors file: header length, then '{'. */
static bool looks_like_safetensors(const mapped_file *map) {
  uint64_t header = 0;
  for (size_t i = 0; i < 8 && i < map->size; i++) header |= (uint64_t)map->data[i] << (8 * i);
  return map->size >= 10 && map->data[8] == '{' && header <= map->size - 8;
}

static taper_status locate_safetensors(const char *path, model_place *out, taper_error *error) {
  st_file f = {0};
  TAPER_TRY(st_open(path, &f, error));
  bool package = st_metadata(&f, "taper.package") != NULL;
  st_close(&f);
  out->kind = MODEL_PACKAGE;
  return package
             ? TAPER_OK
             : TAPER_FAIL(error, TAPER_INVALID,
                          "%s: weights alone are no model; name their folder, or M.tmodel --weights %s", path, path);
}

static bool begins(const mapped_file *map, const char *with) {
  return map->size >= strlen(with) && memcmp(map->data, with, strlen(with)) == 0;
}

static taper_status locate_file(const mapped_file *map, const char *path, model_place *out, taper_error *error) {
  out->source = path;
  if (ends_with(path, ".tpack")) {
    out->kind = MODEL_PACKAGE;
    return TAPER_OK;
  }
  if (looks_like_safetensors(map)) return locate_safetensors(path, out, error);
  const char *remedy = NULL, *guess = file_guess(map->data, map->size, &remedy);
  if (guess) return TAPER_FAIL(error, TAPER_INVALID, "%s: is %s, not a model; %s", path, guess, remedy);
  if (ends_with(path, ".tir") || begins(map, "tir "))
    out->kind = MODEL_TIR;
  else if (ends_with(path, ".tmodel"))
    out->kind = MODEL_SOURCE;
  else
    return TAPER_FAIL(error, TAPER_INVALID,
                      "%s: is no model that is known by its content or name; name a folder, M.tpack or M.tmodel", path);
  return TAPER_OK;
}

taper_status model_locate(const char *path, arena *a, diag_sink *sink, model_place *out, taper_error *error) {
  *out = (model_place){.path = path};
  if (is_folder(path)) return locate_folder(path, a, sink, out, error);
  mapped_file map = {0};
  TAPER_TRY(file_map(path, &map, error));
  taper_status status = locate_file(&map, path, out, error);
  file_unmap(&map);
  return status;
}
