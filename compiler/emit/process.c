/* process.c - runs a program without a shell. */
#include "compiler/emit/emit_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>

extern char **environ;

static int spawn(const char *const *argv, const char *out_path, const char *err_path, pid_t *out_pid) {
  posix_spawn_file_actions_t files;
  int e = posix_spawn_file_actions_init(&files);
  if (e) return e;
  e = posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
  if (!e) e = posix_spawn_file_actions_addopen(&files, 1, out_path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  if (!e) e = posix_spawn_file_actions_addopen(&files, 2, err_path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  char *const *args; /* posix_spawn does not write to them */
  memcpy(&args, &argv, sizeof args);
  if (!e) e = posix_spawnp(out_pid, argv[0], &files, NULL, args, environ);
  posix_spawn_file_actions_destroy(&files);
  return e;
}

taper_status emit_run(const char *const *argv, const char *out_path, const char *err_path, int *out_exit,
                      taper_error *error) {
  pid_t pid;
  int status, e = spawn(argv, out_path, err_path, &pid);
  if (e == ENOENT || e == EACCES || e == ENOTDIR)
    return TAPER_FAIL(error, TAPER_IO, "cannot run the C compiler '%s': %s; install gcc or pass --cc", argv[0],
                      strerror(e));
  if (e)
    return TAPER_FAIL(error, TAPER_IO, "cannot start the C compiler '%s': %s; free some memory, or give --cc", argv[0],
                      strerror(e));
  while (waitpid(pid, &status, 0) < 0)
    if (errno != EINTR)
      return TAPER_FAIL(error, TAPER_IO, "lost the C compiler '%s': %s; try again", argv[0], strerror(errno));
  *out_exit = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return TAPER_OK;
}
