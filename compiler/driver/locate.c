/* What a MODEL of the command line is, and where its parts lie. */
#include "compiler/driver/model.h"
#include "runtime/base/file.h"
#include "runtime/base/hash.h"
#include "runtime/base/json_scan.h"
#include "runtime/base/text.h"
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MANIFEST_LIMIT = 16 << 20 };

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

/* ---- checkpoints ---- */

static taper_status check_file(const char *folder, const char *name, const char *expected, arena *a,
                               taper_error *error) {
  mapped_file map = {0};
  const char *path = join(a, folder, name);
  if (strchr(name, '/') || !*name)
    return TAPER_FAIL(error, TAPER_INVALID, "manifest.json names the file '%s', which is no plain name", name);
  TAPER_TRY(file_map(path, &map, error));
  hash128 h = hash_bytes(map.data, map.size);
  file_unmap(&map);
  if (strcmp(h.hex, expected) == 0) return TAPER_OK;
  return TAPER_FAIL(error, TAPER_INVALID, "%s: its hash is %s, manifest.json says %s: damaged", path, h.hex, expected);
}

/* The manifest's "files": {name: xxh3-128}. Every file named must be there and whole. */
static taper_status check_files(json_scan *s, const char *folder, arena *a, taper_error *error) {
  if (json_scan_next(s).kind != JS_OBJECT)
    return TAPER_FAIL(error, TAPER_INVALID, "manifest.json: 'files' is not an object");
  for (;;) {
    json_event key = json_scan_next(s);
    if (key.kind != JS_KEY) return TAPER_OK;
    char *name = arena_alloc(a, key.length + 1);
    json_decode(s, key, name, NULL);
    json_event value = json_scan_next(s);
    if (value.kind != JS_STRING)
      return TAPER_FAIL(error, TAPER_INVALID, "manifest.json: the hash of '%s' is not a string", name);
    char *hash = arena_alloc(a, value.length + 1);
    json_decode(s, value, hash, NULL);
    TAPER_TRY(check_file(folder, name, hash, a, error));
  }
}

/* manifest.json is written last: with it, and with every file that it names whole, a checkpoint is complete. */
static taper_status check_checkpoint(const char *folder, arena *a, taper_error *error) {
  char *data = NULL;
  size_t size;
  TAPER_TRY(file_read(join(a, folder, "manifest.json"), MANIFEST_LIMIT, &data, &size, error));
  json_scan s;
  json_scan_init(&s, data, size);
  bool has_step = false, has_files = false;
  taper_status status = json_scan_next(&s).kind == JS_OBJECT
                            ? TAPER_OK
                            : TAPER_FAIL(error, TAPER_INVALID, "manifest.json: not a JSON object");
  while (status == TAPER_OK) {
    json_event key = json_scan_next(&s);
    if (key.kind != JS_KEY) break;
    has_step |= json_is(&s, key, "step");
    if (json_is(&s, key, "files")) {
      has_files = true;
      status = check_files(&s, folder, a, error);
    } else {
      json_scan_skip(&s);
    }
  }
  if (status == TAPER_OK && (s.error || json_scan_next(&s).kind != JS_END))
    status = TAPER_FAIL(error, TAPER_INVALID, "manifest.json: byte %zu: %s", s.at,
                        s.error ? s.error : "text after the object");
  free(data);
  if (status == TAPER_OK && !(has_step && has_files))
    status = TAPER_FAIL(error, TAPER_INVALID, "manifest.json: '%s' is missing", has_step ? "files" : "step");
  if (status == TAPER_OK && !exists(join(a, folder, "model.tmodel")))
    status = TAPER_FAIL(error, TAPER_INVALID, "model.tmodel is missing");
  if (status == TAPER_OK && !exists(join(a, folder, "weights.safetensors")))
    status = TAPER_FAIL(error, TAPER_INVALID, "weights.safetensors is missing");
  return status;
}

/* "checkpoint-<step>", no zero padding. */
static bool checkpoint_step(const char *name, uint64_t *out) {
  static const char prefix[] = "checkpoint-";
  size_t n = sizeof prefix - 1;
  if (strncmp(name, prefix, n) != 0 || !name[n] || (name[n] == '0' && name[n + 1])) return false;
  return strspn(name + n, "0123456789") == strlen(name + n) && number_parse_u64(name + n, strlen(name + n), out);
}

typedef struct step_list {
  uint64_t *steps;
  size_t count, cap;
} step_list;

static int newest_first(const void *a, const void *b) {
  uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return (x < y) - (x > y);
}

static taper_status list_checkpoints(const char *folder, arena *a, step_list *out, taper_error *error) {
  DIR *d = opendir(folder);
  if (!d)
    return TAPER_FAIL(error, TAPER_IO, "%s: cannot be listed: %s; check its permissions", folder,
                      file_error_text(errno));
  for (struct dirent *e; (e = readdir(d));) {
    uint64_t step;
    if (!checkpoint_step(e->d_name, &step)) continue;
    if (out->count == out->cap) {
      uint64_t *grown = ARENA_ARRAY(a, uint64_t, out->cap * 2 + 16);
      if (out->count) memcpy(grown, out->steps, out->count * sizeof *grown);
      out->steps = grown, out->cap = out->cap * 2 + 16;
    }
    out->steps[out->count++] = step;
  }
  closedir(d);
  if (out->count) qsort(out->steps, out->count, sizeof *out->steps, newest_first);
  return TAPER_OK;
}

static void set_folder(model_place *out, const char *folder, model_kind kind, arena *a) {
  out->kind = kind;
  out->folder = folder;
  out->source = join(a, folder, "model.tmodel");
  static const char *const names[] = {"weights.safetensors", "model.safetensors", "model.safetensors.index.json"};
  for (size_t i = 0; i < sizeof names / sizeof *names && !out->weights; i++)
    if (exists(join(a, folder, names[i]))) out->weights = join(a, folder, names[i]);
}

static taper_status locate_run(const char *path, const step_list *list, arena *a, diag_sink *sink, model_place *out,
                               taper_error *error) {
  for (size_t i = 0; i < list->count; i++) {
    const char *folder = join(a, path, arena_printf(a, "checkpoint-%llu", (unsigned long long)list->steps[i]));
    taper_error why = {0};
    if (check_checkpoint(folder, a, &why) == TAPER_OK) {
      set_folder(out, folder, MODEL_CHECKPOINT, a);
      diag_remark(sink, "model", false, (diag_loc){.file = diag_intern(sink, folder)},
                  "the newest complete checkpoint of %s", path);
      return TAPER_OK;
    }
    diag_report(sink, DC_SKIPPED_CHECKPOINT, (diag_loc){.file = diag_intern(sink, folder)}, "passed over: %s",
                why.message);
  }
  return TAPER_FAIL(error, TAPER_INVALID, "%s: none of its %zu checkpoints is complete; name another run", path,
                    list->count);
}

static taper_status locate_folder(const char *path, arena *a, diag_sink *sink, model_place *out, taper_error *error) {
  uint64_t step;
  bool checkpoint = exists(join(a, path, "manifest.json"));
  if (exists(join(a, path, "model.tmodel"))) {
    if (!checkpoint && checkpoint_step(last_part(path, a), &step))
      return TAPER_FAIL(error, TAPER_INVALID,
                        "%s: the checkpoint is incomplete: manifest.json is missing; name another, or its run folder",
                        path);
    if (checkpoint && check_checkpoint(path, a, error) != TAPER_OK)
      return taper_add_context(error, error ? error->status : TAPER_INVALID, "%s: the checkpoint is damaged", path);
    set_folder(out, path, checkpoint ? MODEL_CHECKPOINT : MODEL_FOLDER, a);
    return TAPER_OK;
  }
  step_list list = {0};
  TAPER_TRY(list_checkpoints(path, a, &list, error));
  if (list.count) return locate_run(path, &list, a, sink, out, error);
  return TAPER_FAIL(error, TAPER_INVALID,
                    "%s: the folder holds neither model.tmodel nor a checkpoint-<step>; name a model's folder", path);
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
