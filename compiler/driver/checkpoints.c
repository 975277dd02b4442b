/* Checkpoints of a run folder: which there are, and whether one is whole. */
#include "compiler/driver/checkpoints.h"
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

static const char *join(arena *a, const char *folder, const char *name) {
  size_t n = strlen(folder);
  return arena_printf(a, "%s%s%s", folder, n && folder[n - 1] == '/' ? "" : "/", name);
}

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
taper_status checkpoint_check(const char *folder, arena *a, taper_error *error) {
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
bool checkpoint_name_step(const char *name, uint64_t *out) {
  static const char prefix[] = "checkpoint-";
  size_t n = sizeof prefix - 1;
  if (strncmp(name, prefix, n) != 0 || !name[n] || (name[n] == '0' && name[n + 1])) return false;
  return strspn(name + n, "0123456789") == strlen(name + n) && number_parse_u64(name + n, strlen(name + n), out);
}

static int newest_first(const void *a, const void *b) {
  uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return (x < y) - (x > y);
}

taper_status checkpoints_list(const char *folder, arena *a, checkpoint_steps *out, taper_error *error) {
  *out = (checkpoint_steps){0};
  size_t cap = 0;
  DIR *d = opendir(folder);
  if (!d)
    return TAPER_FAIL(error, TAPER_IO, "%s: cannot be listed: %s; check its permissions", folder,
                      file_error_text(errno));
  for (struct dirent *e; (e = readdir(d));) {
    uint64_t step;
    if (!checkpoint_name_step(e->d_name, &step)) continue;
    if (out->count == cap) {
      uint64_t *grown = ARENA_ARRAY(a, uint64_t, cap * 2 + 16);
      if (out->count) memcpy(grown, out->steps, out->count * sizeof *grown);
      out->steps = grown, cap = cap * 2 + 16;
    }
    out->steps[out->count++] = step;
  }
  closedir(d);
  if (out->count) qsort(out->steps, out->count, sizeof *out->steps, newest_first);
  return TAPER_OK;
}

const char *checkpoint_folder(const char *run, uint64_t step, arena *a) {
  return join(a, run, arena_printf(a, "checkpoint-%llu", (unsigned long long)step));
}

taper_status checkpoints_newest(const char *run, arena *a, diag_sink *sink, checkpoint_found *out, taper_error *error) {
  checkpoint_steps list;
  *out = (checkpoint_found){0};
  TAPER_TRY(checkpoints_list(run, a, &list, error));
  out->count = list.count;
  for (size_t i = 0; i < list.count && !out->folder; i++) {
    const char *folder = checkpoint_folder(run, list.steps[i], a);
    taper_error why = {0};
    if (checkpoint_check(folder, a, &why) == TAPER_OK)
      out->folder = folder, out->step = list.steps[i];
    else
      diag_report(sink, DC_SKIPPED_CHECKPOINT, (diag_loc){.file = diag_intern(sink, folder)}, "passed over: %s",
                  why.message);
  }
  return TAPER_OK;
}
