#include "runtime/base/leftover.h"
#include "runtime/base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST = 64, LONGEST = 1000 };
enum { FREE, CHANGES, NOTED };

/* Fixed memory: a handler may look at it at any moment. */
static struct {
  atomic_int state;
  char path[LONGEST];
} table[MOST];

unsigned leftover_add(const char *path) {
  const size_t length = strlen(path);
  if (length >= LONGEST) return 0;
  for (unsigned i = 0; i < MOST; i++) {
    int expected = FREE;
    if (!atomic_compare_exchange_strong(&table[i].state, &expected, CHANGES)) continue;
    memcpy(table[i].path, path, length + 1);
    atomic_store(&table[i].state, NOTED);
    return i + 1;
  }
  return 0;
}

void leftover_drop(unsigned *number) {
  if (*number) atomic_store(&table[*number - 1].state, FREE);
  *number = 0;
}

taper_status leftover_folder(arena *mem, const char **out_path, unsigned *out_number, taper_error *error) {
  const char *base = getenv("TMPDIR");
  char *folder = arena_printf(mem, "%s/taperc-XXXXXX", base && *base ? base : "/tmp");
  *out_path = NULL, *out_number = 0;
  if (!mkdtemp(folder))
    return TAPER_FAIL(error, TAPER_DEVICE, "%s: cannot be created: %s; set TMPDIR to a folder that can be written",
                      folder, file_error_text(errno));
  *out_path = folder;
  *out_number = leftover_add(folder);
  return TAPER_OK;
}

/* ---- in a handler: system calls only ---- */

static void empty_folder(int fd) {
  _Alignas(struct dirent64) char entries[4096];
  ssize_t n;
  while ((n = getdents64(fd, entries, sizeof entries)) > 0)
    for (ssize_t at = 0; at < n;) {
      const struct dirent64 *e = (const struct dirent64 *)(const void *)(entries + at);
      if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0) unlinkat(fd, e->d_name, 0);
      at += e->d_reclen;
    }
}

static void remove_path(const char *path) {
  if (unlink(path) == 0) return;
  for (int again = 0; again < 3; again++) { /* a child may still write there */
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) return;
    empty_folder(fd);
    close(fd);
    if (rmdir(path) == 0) return;
  }
}

/* The signal comes again as soon as this returns, and then ends the program. */
static void on_signal(int number) {
  for (unsigned i = 0; i < MOST; i++)
    if (atomic_load(&table[i].state) == NOTED) remove_path(table[i].path);
  raise(number);
}

void leftover_at_signals(void) {
  static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
  for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
    struct sigaction act = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND}, before;
    if (sigaction(signals[i], NULL, &before) != 0 || before.sa_handler == SIG_IGN) continue;
    sigemptyset(&act.sa_mask);
    sigaction(signals[i], &act, NULL);
  }
}
