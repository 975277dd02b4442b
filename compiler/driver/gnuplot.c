#include "compiler/driver/gnuplot.h"
#include "runtime/base/file.h"
#include "runtime/base/leftover.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { SVG_LIMIT = 16 << 20, SAID_LIMIT = 1 << 16 };

extern char **environ;

taper_status gnuplot_begin(gnuplot *g, arena *a, taper_error *error) {
  return leftover_folder(a, &g->folder, &g->leftover, error);
}

static taper_status write_file(const char *path, const text *t, taper_error *error) {
  int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  size_t at = 0;
  if (t->failed) {
    if (fd >= 0) close(fd);
    return TAPER_FAIL(error, TAPER_NOMEM, "no memory for a chart; free some");
  }
  while (fd >= 0 && at < t->size) {
    ssize_t n = write(fd, t->data + at, t->size - at);
    if (n <= 0) break;
    at += (size_t)n;
  }
  int e = errno;
  if (fd >= 0) close(fd);
  if (fd >= 0 && at == t->size) return TAPER_OK;
  return TAPER_FAIL(error, TAPER_DEVICE, "%s: cannot be written: %s; set TMPDIR to a folder with room", path,
                    file_error_text(e));
}

const char *gnuplot_data(gnuplot *g, const text *rows, taper_error *error) {
  static unsigned next;
  const char *name = arena_printf(&g->memory, "data-%u", next++);
  return write_file(arena_printf(&g->memory, "%s/%s", g->folder, name), rows, error) == TAPER_OK ? name : NULL;
}

/* In the folder, default settings (no init files), plain numbers. */
static int start(gnuplot *g, pid_t *out) {
  static char program[] = "gnuplot", defaults[] = "-d", script[] = "script";
  char *const argv[] = {program, defaults, script, NULL};
  posix_spawn_file_actions_t files;
  int e = posix_spawn_file_actions_init(&files);
  if (e) return e;
  const char *said = arena_printf(&g->memory, "%s/said", g->folder);
  e = posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
  if (!e) e = posix_spawn_file_actions_addopen(&files, 1, "/dev/null", O_WRONLY, 0);
  if (!e) e = posix_spawn_file_actions_addopen(&files, 2, said, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  if (!e) e = posix_spawn_file_actions_addchdir_np(&files, g->folder);
  if (!e) e = posix_spawnp(out, program, &files, NULL, argv, environ);
  posix_spawn_file_actions_destroy(&files);
  return e;
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* false: it was killed at the limit. */
static bool wait_for(pid_t child, unsigned seconds, int *out_status) {
  double end = now() + seconds;
  const struct timespec pause = {0, 5000000};
  for (;;) {
    pid_t got = waitpid(child, out_status, WNOHANG);
    if (got == child || (got < 0 && errno != EINTR)) return true;
    if (now() > end) break;
    nanosleep(&pause, NULL);
  }
  kill(child, SIGKILL);
  while (waitpid(child, out_status, 0) < 0 && errno == EINTR) {}
  return false;
}

taper_status gnuplot_run(gnuplot *g, unsigned seconds, taper_error *error) {
  pid_t child;
  int status = 0;
  TAPER_TRY(write_file(arena_printf(&g->memory, "%s/script", g->folder), &g->script, error));
  int e = start(g, &child);
  if (e == ENOENT || e == EACCES || e == ENOTDIR)
    return TAPER_FAIL(error, TAPER_DEVICE,
                      "gnuplot draws the charts and cannot be run: %s; install it (apt install gnuplot-nox)",
                      file_error_text(e));
  if (e) return TAPER_FAIL(error, TAPER_DEVICE, "gnuplot cannot be started: %s; free some memory", file_error_text(e));
  if (!wait_for(child, seconds, &status))
    return TAPER_FAIL(error, TAPER_DEVICE, "gnuplot took longer than %u s and was stopped; name fewer runs", seconds);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return TAPER_OK;
  char *said = NULL;
  size_t n = 0;
  taper_error ignored = {0};
  if (file_read(arena_printf(&g->memory, "%s/said", g->folder), SAID_LIMIT, &said, &n, &ignored) != TAPER_OK)
    said = NULL;
  for (size_t i = 0; said && i < n; i++)
    if ((unsigned char)said[i] < ' ') said[i] = ' ';
  taper_status failed = TAPER_FAIL(error, TAPER_DEVICE, "gnuplot failed: %.300s; another version of it may do",
                                   said ? said : "it said nothing");
  free(said);
  return failed;
}

/* ---- SVG for a page ---- */

static bool starts(const char *at, const char *end, const char *word) {
  size_t n = strlen(word);
  return (size_t)(end - at) >= n && memcmp(at, word, n) == 0;
}

taper_status gnuplot_svg(gnuplot *g, size_t i, text *out, taper_error *error) {
  char *data = NULL, own[32];
  size_t size = 0;
  TAPER_TRY(file_read(arena_printf(&g->memory, "%s/chart-%zu.svg", g->folder, i), SVG_LIMIT, &data, &size, error));
  const char *at = strstr(data, "<svg"), *end = data + size;
  text_format(own, sizeof own, "chart%zu-", i);
  if (!at) {
    free(data);
    return TAPER_FAIL(error, TAPER_DEVICE, "gnuplot wrote no SVG; install gnuplot-nox");
  }
  static const struct {
    const char *from, *to;
    bool own; /* the chart's prefix stands between */
  } changes[] = {{"rgb(1, 2, 3)", "currentColor", false},
                 {"rgb(1,2,3)", "currentColor", false},
                 {"rgb(  1,   2,   3)", "currentColor", false},
                 {" color=\"black\"", "", false}, /* else currentColor would be that */
                 {" color=\"gray\"", "", false},
                 {" color=\"white\"", "", false},
                 {" id=\"gnuplot_canvas\"", "", false},
                 {" font-family=\"sans-serif\"", "", false},
                 {"id='", "id='", true},
                 {"id=\"", "id=\"", true},
                 {"href='#", "href='#", true}};
  const char *title = strstr(at, "<title>"), *after = title ? strstr(title, "</desc>") : NULL;
  while (at < end) {
    if (at == title && after) at = after + strlen("</desc>"); /* says who drew it; the page has a caption */
    size_t k = 0, n = sizeof changes / sizeof *changes;
    while (k < n && !starts(at, end, changes[k].from)) k++;
    if (k == n) {
      text_put(out, at++, 1);
      continue;
    }
    text_puts(out, changes[k].to);
    if (changes[k].own) text_puts(out, own);
    at += strlen(changes[k].from);
  }
  free(data);
  return out->failed ? TAPER_FAIL(error, TAPER_NOMEM, "no memory for a chart; free some") : TAPER_OK;
}

void gnuplot_end(gnuplot *g) {
  DIR *d = g->folder ? opendir(g->folder) : NULL;
  for (struct dirent *e; d && (e = readdir(d));)
    if (e->d_name[0] != '.') unlinkat(dirfd(d), e->d_name, 0);
  if (d) closedir(d);
  if (g->folder) rmdir(g->folder);
  leftover_drop(&g->leftover);
  text_free(&g->script);
  arena_free(&g->memory);
  *g = (gnuplot){0};
}
