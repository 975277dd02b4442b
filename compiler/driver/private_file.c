#include "compiler/driver/private_file.h"
#include "runtime/base/file.h"
#include "runtime/base/leftover.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

taper_status private_file_begin(const char *name, arena *a, private_file *out, taper_error *error) {
  *out = (private_file){.fd = -1};
  TAPER_TRY(leftover_folder(a, &out->folder, &out->leftover, error));
  out->path = arena_printf(a, "%s/%s", out->folder, name);
  return TAPER_OK;
}

taper_status private_file_take(private_file *f, taper_status status, arena *a, taper_error *error) {
  if (status == TAPER_OK) f->fd = open(f->path, O_RDONLY | O_CLOEXEC);
  int e = errno;
  unlink(f->path);
  rmdir(f->folder);
  leftover_drop(&f->leftover);
  if (status != TAPER_OK) return status;
  if (f->fd < 0)
    return TAPER_FAIL(error, TAPER_IO, "%s: cannot be opened: %s; check TMPDIR", f->path, file_error_text(e));
  f->opened = arena_printf(a, "/proc/self/fd/%d", f->fd);
  return TAPER_OK;
}

void private_file_close(private_file *f) {
  if (f->opened && f->fd >= 0) close(f->fd);
  *f = (private_file){.fd = -1};
}
