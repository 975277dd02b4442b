/* file.h - mapped files, and files that are replaced whole or not at all. */
#ifndef TAPER_BASE_FILE_H
#define TAPER_BASE_FILE_H

#include "runtime/base/status.h"
#include <stdbool.h>

/* A read-only view of a whole regular file. A zeroed one is valid and empty. */
typedef struct mapped_file {
  const uint8_t *data; /* NULL when size is 0 */
  size_t size;
} mapped_file;

/* TAPER_IO with the cause ("no such file", "is a directory", ...). */
taper_status file_map(const char *path, mapped_file *out, taper_error *error);
void file_unmap(mapped_file *file);
/* Reads a file (or a pipe; "-" is standard input) of at most `limit` bytes to memory from malloc, zero-terminated. */
taper_status file_read(const char *path, size_t limit, char **out_data, size_t *out_size, taper_error *error);

/* What a file that begins with data[0..size) plainly is, e.g. "a Git LFS pointer", and what to do about it; NULL:
   nothing known. out_remedy may be NULL. */
const char *file_guess(const void *data, size_t size, const char **out_remedy);
/* strerror without the locale. */
const char *file_error_text(int error_number);

/* Writes to PATH.tmp-<pid>-<n> in the same folder; commit fsyncs, renames over `path` and fsyncs the folder. A kill at
   any moment leaves the old file or the new one. A symbolic link is followed; a device or pipe (/dev/stdout) is written
   in place. The first failure removes the temporary file, and every later call on the writer fails; so does a signal after leftover_at_signals(). A
   zeroed writer is closed. */
typedef struct file_writer {
  int fd;
  char *path, *temporary;
  unsigned leftover; /* the temporary file's number */
  uint64_t written;
  uint8_t *buffer;
  size_t buffered;
} file_writer;

taper_status file_writer_open(const char *path, file_writer *out, taper_error *error);
taper_status file_writer_put(file_writer *w, const void *data, size_t bytes, taper_error *error);
taper_status file_writer_commit(file_writer *w, taper_error *error); /* closes w, whatever happens */
void file_writer_abort(file_writer *w); /* removes the temporary file; legal after commit */

#endif
