#include "compiler/driver/run_folder.h"
#include "runtime/base/file.h"
#include "runtime/base/json_scan.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static const char *inside(run_folder *run, const char *name) {
  size_t n = strlen(run->path);
  return arena_printf(&run->memory, "%s%s%s", run->path, n && run->path[n - 1] == '/' ? "" : "/", name);
}

/* ---- metrics.jsonl of an earlier process ---- */

/* A line belongs to what the checkpoint of `step` knows: it is of an earlier step, or of this one and written before
   the checkpoint. */
static bool line_stays(const char *line, size_t n, uint64_t step) {
  json_scan s;
  json_scan_init(&s, line, n);
  bool has_step = false, later = false;
  uint64_t at = 0;
  if (json_scan_next(&s).kind != JS_OBJECT) return false;
  for (json_event key; (key = json_scan_next(&s)).kind == JS_KEY;) {
    bool is_step = json_is(&s, key, "step"), is_event = json_is(&s, key, "event");
    if (!is_step && !is_event) {
      json_scan_skip(&s);
      continue;
    }
    json_event value = json_scan_next(&s);
    if (is_step) has_step = json_u64(&s, value, &at);
    if (is_event) later = json_is(&s, value, "checkpoint") || json_is(&s, value, "resume") || json_is(&s, value, "end");
  }
  return !s.error && has_step && (at < step || (at == step && !later));
}

/* Bytes of the lines that stay: up to the first that does not. */
static size_t kept_bytes(const char *data, size_t size, uint64_t step) {
  size_t at = 0;
  while (at < size) {
    const char *end = memchr(data + at, '\n', size - at);
    if (!end || !line_stays(data + at, (size_t)(end - data) - at, step)) break;
    at = (size_t)(end - data) + 1;
  }
  return at;
}

static taper_status cut_metrics(run_folder *run, uint64_t step, taper_error *error) {
  const char *path = run->metrics_path;
  mapped_file map = {0};
  if (access(path, F_OK) != 0) return TAPER_OK;
  TAPER_TRY(file_map(path, &map, error));
  size_t keep = step ? kept_bytes((const char *)map.data, map.size, step) : 0;
  bool longer = keep < map.size;
  file_unmap(&map);
  if (longer && truncate(path, (off_t)keep) != 0)
    return TAPER_FAIL(error, TAPER_IO, "%s: cannot be cut: %s; check its permissions", path, file_error_text(errno));
  return TAPER_OK;
}

/* Checkpoints beyond the one that is taken up are damaged; the run will write their steps again. */
static taper_status set_aside(run_folder *run, taper_error *error) {
  checkpoint_steps list;
  TAPER_TRY(checkpoints_list(run->path, &run->memory, &list, error));
  for (size_t i = 0; i < list.count && (!run->found.folder || list.steps[i] > run->found.step); i++) {
    unsigned long long step = (unsigned long long)list.steps[i];
    const char *from = checkpoint_folder(run->path, list.steps[i], &run->memory);
    int failed = -1;
    for (int k = 0; failed && k < 1000; k++)
      failed = rename(from, inside(run, k ? arena_printf(&run->memory, "damaged-checkpoint-%llu.%d", step, k)
                                          : arena_printf(&run->memory, "damaged-checkpoint-%llu", step)));
    if (failed)
      return TAPER_FAIL(error, TAPER_IO, "%s: cannot be renamed: %s; move it away", from, file_error_text(errno));
  }
  return TAPER_OK;
}

/* ---- opening ---- */

static taper_status make_folder(run_folder *run, bool resume, taper_error *error) {
  struct stat s;
  if (mkdir(run->path, 0777) == 0) {
    run->fresh = true;
    return TAPER_OK;
  }
  int e = errno;
  if (e != EEXIST)
    return TAPER_FAIL(error, TAPER_IO, "%s: cannot be created: %s; give another -o", run->path, file_error_text(e));
  if (stat(run->path, &s) != 0 || !S_ISDIR(s.st_mode))
    return TAPER_FAIL(error, TAPER_INVALID, "%s: is there and is no folder; give another -o", run->path);
  if (!resume)
    return TAPER_FAIL(error, TAPER_INVALID, "%s: exists already; give --resume to go on with it, or another -o",
                      run->path);
  return TAPER_OK;
}

static taper_status open_append(run_folder *run, const char *name, int *out, taper_error *error) {
  const char *path = inside(run, name);
  *out = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
  if (*out < 0)
    return TAPER_FAIL(error, TAPER_IO, "%s: cannot be opened: %s; check the folder's permissions", path,
                      file_error_text(errno));
  return TAPER_OK;
}

static taper_status open_parts(run_folder *run, bool resume, diag_sink *sink, taper_error *error) {
  TAPER_TRY(open_append(run, "log.txt", &run->log, error));
  if (flock(run->log, LOCK_EX | LOCK_NB) != 0)
    return TAPER_FAIL(error, TAPER_IO, "%s: another process trains there; wait for it, or give another -o", run->path);
  if (resume && !run->fresh) {
    TAPER_TRY(checkpoints_newest(run->path, &run->memory, sink, &run->found, error));
    TAPER_TRY(set_aside(run, error));
    TAPER_TRY(cut_metrics(run, run->found.folder ? run->found.step : 0, error));
  }
  return open_append(run, "metrics.jsonl", &run->metrics, error);
}

taper_status run_folder_open(const char *path, bool resume, diag_sink *sink, run_folder *out, taper_error *error) {
  *out = (run_folder){.path = path, .metrics = -1, .log = -1, .open = true};
  out->metrics_path = inside(out, "metrics.jsonl");
  TAPER_TRY(make_folder(out, resume, error));
  return open_parts(out, resume, sink, error);
}

void run_folder_close(run_folder *run) {
  if (!run->open) return;
  if (run->metrics >= 0) close(run->metrics);
  if (run->log >= 0) close(run->log);
  arena_free(&run->memory);
  *run = (run_folder){0};
}

/* ---- writing ---- */

static bool put_all(int fd, const char *data, size_t n) {
  while (n) {
    ssize_t done = write(fd, data, n);
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) return false;
    data += done, n -= (size_t)done;
  }
  return true;
}

taper_status run_folder_metrics(run_folder *run, const text *line, taper_error *error) {
  const char *path = run->metrics_path;
  if (line->failed) return TAPER_FAIL(error, TAPER_NOMEM, "%s: no memory for a line; free some", path);
  off_t before = lseek(run->metrics, 0, SEEK_END);
  if (put_all(run->metrics, line->data, line->size)) return TAPER_OK;
  int e = errno;
  bool whole = before >= 0 && ftruncate(run->metrics, before) == 0;
  return TAPER_FAIL(error, TAPER_IO, "%s: cannot be written: %s; free some space%s", path, file_error_text(e),
                    whole ? "" : " (its last line is cut off)");
}

void run_folder_log(run_folder *run, const char *format, ...) {
  char stamp[40];
  struct tm now;
  time_t t = time(NULL);
  text line = {0};
  va_list args;
  if (run->log < 0 || !gmtime_r(&t, &now) || !strftime(stamp, sizeof stamp, "%Y-%m-%d %H:%M:%S ", &now)) return;
  text_puts(&line, stamp);
  va_start(args, format);
  text_vprintf(&line, format, args);
  va_end(args);
  text_puts(&line, "\n");
  if (!line.failed) (void)put_all(run->log, line.data, line.size);
  text_free(&line);
}

taper_status run_folder_sync(run_folder *run, taper_error *error) {
  if (fsync(run->metrics) == 0 || errno == EINVAL) return TAPER_OK;
  return TAPER_FAIL(error, TAPER_IO, "%s: cannot be written: %s; free some space", run->metrics_path,
                    file_error_text(errno));
}

/* manifest.json first: from then on the checkpoint is incomplete, whatever happens. */
static void delete_checkpoint(const char *folder, arena *a) {
  unlink(arena_printf(a, "%s/manifest.json", folder));
  DIR *d = opendir(folder);
  if (!d) return;
  for (struct dirent *e; (e = readdir(d));)
    if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
      unlink(arena_printf(a, "%s/%s", folder, e->d_name));
  closedir(d);
  rmdir(folder);
}

void run_folder_prune(run_folder *run, uint64_t newest, uint64_t keep) {
  arena a = {0};
  checkpoint_steps list;
  uint64_t kept = 1; /* the newest, which is whole */
  if (keep && checkpoints_list(run->path, &a, &list, NULL) == TAPER_OK)
    for (size_t i = 0; i < list.count; i++) {
      if (list.steps[i] >= newest) continue;
      if (kept < keep)
        kept++;
      else
        delete_checkpoint(checkpoint_folder(run->path, list.steps[i], &a), &a);
    }
  arena_free(&a);
}
