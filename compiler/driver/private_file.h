/* private_file.h - a file that is gone from the file system before it is used: a kill leaves nothing behind. */
#ifndef TAPERC_DRIVER_PRIVATE_FILE_H
#define TAPERC_DRIVER_PRIVATE_FILE_H

#include "runtime/base/arena.h"
#include "runtime/base/status.h"

typedef struct private_file {
  const char *folder, *path; /* path: where to write it */
  const char *opened;        /* once it is taken: what to open, as long as fd is */
  int fd;
  unsigned leftover;
} private_file;

/* Makes a folder of its own below TMPDIR, else /tmp. Strings live in `a`. TAPER_IO. */
taper_status private_file_begin(const char *name, arena *a, private_file *out, taper_error *error);
/* `status`: of writing it, handed on. Opens the file and removes it and its folder. */
taper_status private_file_take(private_file *f, taper_status status, arena *a, taper_error *error);
void private_file_close(private_file *f);

#endif
