#include "cuda/child.h"
#include "runtime/base/file.h"
#include "runtime/base/text.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ARGV0 "taper-child"
enum { HEAD = 1 + sizeof(uint64_t), REQUEST_LIMIT = 256 << 20, ANSWER_LIMIT = 512 << 20 };

extern char **environ;

/* ---- in the child ---- */

static bool write_all(int fd, const void *data, size_t size) {
  const char *p = data;
  while (size > 0) {
    ssize_t n = write(fd, p, size);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    p += n, size -= (size_t)n;
  }
  return true;
}

void child_put(int out, char letter, const void *data, size_t size) {
  const uint64_t bytes = size;
  char head[HEAD];
  head[0] = letter;
  memcpy(head + 1, &bytes, sizeof bytes);
  if (!write_all(out, head, sizeof head) || !write_all(out, data, size) || !write_all(out, "", 1)) _exit(1);
}

void child_say(int out, char letter, const char *format, ...) {
  text t = {0};
  va_list args;
  va_start(args, format);
  text_vprintf(&t, format, args);
  va_end(args);
  child_put(out, letter, t.data ? t.data : "", t.size);
  text_free(&t);
}

void child_fail(int out, const taper_error *error) { child_put(out, CHILD_FAILURE, error, sizeof *error); }

static char *read_request(size_t *out_size) {
  struct stat s;
  if (fstat(STDIN_FILENO, &s) != 0 || s.st_size < 0 || s.st_size > REQUEST_LIMIT) return NULL;
  char *data = malloc((size_t)s.st_size + 1);
  size_t n = 0;
  while (data && n < (size_t)s.st_size) {
    ssize_t got = pread(STDIN_FILENO, data + n, (size_t)s.st_size - n, (off_t)n);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return free(data), NULL;
    n += (size_t)got;
  }
  if (data) data[n] = 0;
  *out_size = n;
  return data;
}

void child_enter(int argc, char **argv, const child_job *job) {
  if (argc != 2 || !argv || strcmp(argv[0], ARGV0) != 0 || strcmp(argv[1], job->name) != 0) return;
  const struct rlimit no_core = {0, 0};
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  setrlimit(RLIMIT_CORE, &no_core);
  size_t size;
  char *request = read_request(&size);
  int out = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
  if (!request || out < 0 || dup2(STDERR_FILENO, STDOUT_FILENO) < 0) _exit(1);
  job->serve(request, size, out);
  fflush(NULL);
  _exit(0); /* no destructor of a foreign library */
}

/* ---- in the parent ---- */

static double now_s(void) {
  struct timespec at;
  clock_gettime(CLOCK_MONOTONIC, &at);
  return (double)at.tv_sec + 1e-9 * (double)at.tv_nsec;
}

static int start(const child_job *job, int in, int out, int said, pid_t *out_pid) {
  posix_spawn_file_actions_t files;
  int e = posix_spawn_file_actions_init(&files);
  if (e) return e;
  e = posix_spawn_file_actions_adddup2(&files, in, STDIN_FILENO);
  if (!e) e = posix_spawn_file_actions_adddup2(&files, out, STDOUT_FILENO);
  if (!e) e = posix_spawn_file_actions_adddup2(&files, said, STDERR_FILENO);
  char name[] = ARGV0, kind[32];
  snprintf(kind, sizeof kind, "%s", job->name);
  char *argv[] = {name, kind, NULL};
  if (!e) e = posix_spawn(out_pid, "/proc/self/exe", &files, NULL, argv, environ);
  posix_spawn_file_actions_destroy(&files);
  return e;
}

/* Reads until the other end is closed. false: the time or the memory ran out. */
static bool receive(int fd, double end, text *answer) {
  char block[1 << 16];
  for (;;) {
    const double left = end - now_s();
    struct pollfd p = {.fd = fd, .events = POLLIN};
    if (left <= 0 || answer->failed || answer->size > ANSWER_LIMIT) return false;
    int ready = poll(&p, 1, left > 3600 ? 3600000 : (int)(left * 1000) + 1);
    if (ready < 0 && errno != EINTR) return false;
    if (ready <= 0) continue;
    ssize_t n = read(fd, block, sizeof block);
    if (n == 0) return true;
    if (n < 0 && errno != EINTR) return false;
    if (n > 0) text_put(answer, block, (size_t)n);
  }
}

/* Waits for its end, which follows that of the pipe at once; else ends it. */
static bool finish(pid_t pid, bool received, double end, child_answer *out) {
  const struct timespec pause = {.tv_nsec = 2000000};
  int status = 0;
  pid_t got = 0;
  while (received && (got = waitpid(pid, &status, WNOHANG)) == 0 && now_s() < end) nanosleep(&pause, NULL);
  if (got == 0) {
    kill(pid, SIGKILL);
    out->late = true;
    while ((got = waitpid(pid, &status, 0)) < 0 && errno == EINTR) continue;
  }
  if (got != pid) return false;
  if (WIFSIGNALED(status)) out->signal = WTERMSIG(status);
  if (WIFEXITED(status)) out->exit = WEXITSTATUS(status);
  return true;
}

static void take_said(int fd, child_answer *out) {
  ssize_t n = pread(fd, out->said, sizeof out->said - 1, 0);
  out->said[n > 0 ? n : 0] = 0;
  for (char *p = out->said; *p; p++)
    if (*p == '\n') *p = p[1] ? '|' : 0;
}

taper_status child_run(const child_job *job, const void *request, size_t size, unsigned seconds, child_answer *out,
                       taper_error *error) {
  *out = (child_answer){.seconds = seconds};
  int in = memfd_create(ARGV0, MFD_CLOEXEC), said = memfd_create(ARGV0, MFD_CLOEXEC), ends[2] = {-1, -1};
  pid_t pid = 0;
  text answer = {0};
  int e = in < 0 || said < 0 || pipe2(ends, O_CLOEXEC) != 0 || !write_all(in, request, size) ? errno : 0;
  if (!e) e = start(job, in, ends[1], said, &pid);
  if (ends[1] >= 0) close(ends[1]);
  taper_status status = TAPER_OK;
  if (e) {
    status = TAPER_FAIL(error, TAPER_DEVICE, "cannot start a process for '%s': %s; close some files and programs",
                        job->name, file_error_text(e));
  } else {
    const double end = now_s() + seconds;
    const bool received = receive(ends[0], end, &answer);
    if (!finish(pid, received, end, out))
      status = TAPER_FAIL(error, TAPER_DEVICE, "lost the process for '%s': %s; try again", job->name,
                          file_error_text(errno));
    take_said(said, out);
    out->data = answer.data, out->size = answer.size;
  }
  if (in >= 0) close(in);
  if (said >= 0) close(said);
  if (ends[0] >= 0) close(ends[0]);
  return status;
}

const char *child_find(const child_answer *a, char letter, size_t *out_size) {
  const char *found = NULL;
  for (size_t at = 0; a->size - at > HEAD;) {
    uint64_t bytes;
    memcpy(&bytes, a->data + at + 1, sizeof bytes);
    if (bytes >= a->size - at - HEAD) break; /* cut off */
    if (a->data[at] == letter) {
      found = a->data + at + HEAD;
      if (out_size) *out_size = (size_t)bytes;
    }
    at += HEAD + (size_t)bytes + 1;
  }
  return found;
}

taper_status child_outcome(const child_answer *a, const char *who, const char *remedy, taper_error *error) {
  size_t size = 0;
  const char *failure = child_find(a, CHILD_FAILURE, &size), *stage = child_find(a, CHILD_STAGE, NULL),
             *named = child_find(a, CHILD_WHO, NULL);
  if (failure && size == sizeof(taper_error)) {
    taper_error e;
    memcpy(&e, failure, sizeof e);
    return TAPER_FAIL(error, e.status, "%s", e.message);
  }
  if (!a->signal && !a->exit && !a->late) return TAPER_OK;
  char how[80];
  const char *name = sigabbrev_np(a->signal);
  if (a->late)
    snprintf(how, sizeof how, "was ended after %u s", a->seconds);
  else if (a->signal)
    snprintf(how, sizeof how, "died of signal %d (SIG%s)", a->signal, name ? name : "?");
  else
    snprintf(how, sizeof how, "ended with status %d", a->exit);
  return TAPER_FAIL(error, TAPER_DEVICE, "%s %s while %s%s%s; %s", named ? named : who, how,
                    stage ? stage : "it was opened", *a->said ? ": " : "", a->said, remedy);
}

void child_free(child_answer *a) {
  free(a->data);
  *a = (child_answer){0};
}
