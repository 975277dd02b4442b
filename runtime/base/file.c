#include "runtime/base/file.h"
#include "runtime/base/leftover.h"
#include "runtime/base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BUFFER = 256 << 10, LARGEST_WRITE = 1 << 30 };

const char *file_error_text(int error_number) {
#if defined(__GLIBC__)
  const char *s = strerrordesc_np(error_number);
  return s ? s : "unknown error";
#else
  return strerror(error_number);
#endif
}

static taper_status cannot(taper_error *error, const char *path, const char *what, int number) {
  const char *remedy = number == ENOENT                        ? "check the path"
                       : number == EACCES || number == EPERM   ? "check its permissions"
                       : number == EROFS                       ? "choose a folder that can be written"
                       : number == ENOSPC || number == EDQUOT  ? "free some space or choose another folder"
                       : number == EMFILE || number == ENFILE  ? "raise the limit of open files"
                       : number == ENOTDIR || number == EISDIR ? "name a file"
                       : number == ENOMEM                      ? "free some memory"
                                                               : "check the disk and try again";
  TAPER_FAIL(error, TAPER_IO, "%s: cannot %s: %s; %s", path, what, file_error_text(number), remedy);
  return TAPER_IO;
}

/* Not blocking, so that opening a pipe nobody writes to does not hang before its kind is known. */
static taper_status open_regular(const char *path, int *out_fd, struct stat *out_stat, taper_error *error) {
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return cannot(error, path, "open", errno);
  taper_status status = TAPER_OK;
  if (fstat(fd, out_stat) < 0) {
    status = cannot(error, path, "open", errno);
  } else if (S_ISDIR(out_stat->st_mode)) {
    status = TAPER_FAIL(error, TAPER_IO, "%s: is a directory; name a file", path);
  } else if (!S_ISREG(out_stat->st_mode)) {
    status = TAPER_FAIL(error, TAPER_IO, "%s: is not a regular file; copy its content to one", path);
  }
  if (status != TAPER_OK) {
    close(fd);
    return status;
  }
  *out_fd = fd;
  return TAPER_OK;
}

taper_status file_map(const char *path, mapped_file *out, taper_error *error) {
  int fd = -1;
  struct stat info = {0};
  *out = (mapped_file){0};
  TAPER_TRY(open_regular(path, &fd, &info, error));
  taper_status status = TAPER_OK;
  if (info.st_size > 0) {
    void *data = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (data == MAP_FAILED) {
      status = cannot(error, path, "map", errno);
    } else {
      out->data = data;
      out->size = (size_t)info.st_size;
    }
  }
  close(fd);
  return status;
}

void file_unmap(mapped_file *file) {
  if (file->data) munmap((void *)file->data, file->size);
  *file = (mapped_file){0};
}

static taper_status read_all(int fd, const char *path, size_t limit, text *into, taper_error *error) {
  char chunk[16384];
  for (;;) {
    ssize_t n = read(fd, chunk, sizeof chunk);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return cannot(error, path, "read", errno);
    if (n == 0) return TAPER_OK;
    if ((size_t)n > limit - into->size)
      return TAPER_FAIL(error, TAPER_INVALID, "%s: larger than %zu bytes; give a smaller file", path, limit);
    text_put(into, chunk, (size_t)n);
    if (into->failed)
      return TAPER_FAIL(error, TAPER_NOMEM, "%s: no memory after %zu bytes; free some memory", path, into->size);
  }
}

taper_status file_read(const char *path, size_t limit, char **out_data, size_t *out_size, taper_error *error) {
  text content = {0};
  int fd = STDIN_FILENO;
  bool standard = strcmp(path, "-") == 0;
  struct stat info;
  if (!standard) {
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return cannot(error, path, "open", errno);
  }
  taper_status status = TAPER_OK;
  if (!standard && fstat(fd, &info) == 0 && S_ISDIR(info.st_mode))
    status = TAPER_FAIL(error, TAPER_IO, "%s: is a directory; name a file", path);
  if (status == TAPER_OK) status = read_all(fd, standard ? "standard input" : path, limit, &content, error);
  if (!standard) close(fd);
  text_put(&content, "", 0);
  if (status == TAPER_OK && content.failed)
    status = TAPER_FAIL(error, TAPER_NOMEM, "%s: no memory; free some memory", path);
  if (status != TAPER_OK) {
    text_free(&content);
    return status;
  }
  *out_data = content.data;
  *out_size = content.size;
  return TAPER_OK;
}

typedef struct magic {
  uint16_t at, length;
  const char *bytes, *what, *remedy;
} magic;

static const magic magics[] = {
    {0, 20, "version https://git-", "a Git LFS pointer", "fetch the real file with `git lfs pull`"},
    {0, 4, "GGUF", "a GGUF model", "convert it with `taperc import`"},
    {0, 4, "PK\3\4", "a ZIP archive (PyTorch saves these)", "save the weights as safetensors"},
    {0, 2, "\x80\2", "a Python pickle (PyTorch saves these)", "save the weights as safetensors"},
    {0, 2, "\x80\3", "a Python pickle", "save the weights as safetensors"},
    {0, 2, "\x80\4", "a Python pickle", "save the weights as safetensors"},
    {0, 2, "\x80\5", "a Python pickle", "save the weights as safetensors"},
    {0, 6, "\x93NUMPY", "a NumPy array", "save the weights as safetensors"},
    {0, 8, "\x89HDF\r\n\x1a\n", "an HDF5 file", "save the weights as safetensors"},
    {0, 4, "\x89PNG", "a PNG picture", "check the path or download again"},
    {0, 3, "\xff\xd8\xff", "a JPEG picture", "check the path or download again"},
    {0, 4, "GIF8", "a GIF picture", "check the path or download again"},
    {0, 4, "%PDF", "a PDF document", "check the path or download again"},
    {0, 2, "\x1f\x8b", "gzip-compressed data", "unpack it with `gunzip`"},
    {0, 4, "\x28\xb5\x2f\xfd", "Zstandard-compressed data", "unpack it with `unzstd`"},
    {0, 6,
     "\xfd"
     "7zXZ\0",
     "xz-compressed data", "unpack it with `unxz`"},
    {0, 3, "BZh", "bzip2-compressed data", "unpack it with `bunzip2`"},
    {0, 4,
     "\x7f"
     "ELF",
     "an ELF program or library", "check the path"},
    {8, 4, "WEBP", "a WebP picture", "check the path or download again"},
    {257, 5, "ustar", "a tar archive", "unpack it with `tar -xf`"},
};

const char *file_guess(const void *data, size_t size, const char **out_remedy) {
  const char *s = data, *remedy;
  if (!out_remedy) out_remedy = &remedy;
  if (size == 0) {
    *out_remedy = "copy or download it again";
    return "an empty file";
  }
  for (size_t i = 0; i < sizeof magics / sizeof *magics; i++) {
    const magic *m = &magics[i];
    if (size < (size_t)m->at + m->length || memcmp(s + m->at, m->bytes, m->length) != 0) continue;
    *out_remedy = m->remedy;
    return m->what;
  }
  size_t i = size >= 3 && memcmp(s, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
  while (i < size && (s[i] == ' ' || s[i] == '\n' || s[i] == '\r' || s[i] == '\t')) i++;
  static const char *const html[] = {"<!doctype html", "<html", "<head", "<!--"};
  for (size_t k = 0; k < sizeof html / sizeof *html; k++) {
    if (size - i < strlen(html[k]) || strncasecmp(s + i, html[k], strlen(html[k])) != 0) continue;
    *out_remedy = "the download brought an error or login page: download again";
    return "an HTML page";
  }
  if (size - i >= 5 && memcmp(s + i, "<?xml", 5) == 0) {
    *out_remedy = "the download brought an error page: download again";
    return "an XML document";
  }
  if (i < size && (s[i] == '{' || s[i] == '[')) {
    *out_remedy = "name the weights, not a configuration file";
    return "JSON text";
  }
  return NULL;
}

/* ---- replacing a file ---- */

static void writer_close(file_writer *w, bool keep) {
  if (!w->path) return;
  if (w->fd >= 0) close(w->fd);
  if (w->temporary && !keep) unlink(w->temporary);
  leftover_drop(&w->leftover);
  free(w->path);
  free(w->temporary);
  free(w->buffer);
  *w = (file_writer){.fd = -1};
}

static taper_status writer_fail(file_writer *w, const char *what, int number, taper_error *error) {
  cannot(error, w->path, what, number);
  writer_close(w, false);
  return TAPER_IO;
}

taper_status file_writer_open(const char *path, file_writer *out, taper_error *error) {
  static atomic_uint counter;
  struct stat info;
  bool exists = stat(path, &info) == 0;
  *out = (file_writer){.fd = -1};
  if (exists && S_ISDIR(info.st_mode)) return TAPER_FAIL(error, TAPER_IO, "%s: is a directory; name a file", path);
  bool in_place = exists && !S_ISREG(info.st_mode);
  /* rename replaces a link itself, so the file behind it is what must be named */
  char *real = exists && !in_place ? realpath(path, NULL) : NULL;
  out->path = real ? real : strdup(path);
  out->buffer = malloc(BUFFER);
  text name = {0};
  if (out->path && !in_place)
    text_printf(&name, "%s.tmp-%ld-%u", out->path, (long)getpid(), atomic_fetch_add(&counter, 1u));
  out->temporary = name.failed ? NULL : name.data;
  if (!out->path || !out->buffer || (!in_place && !out->temporary)) {
    if (!out->path) out->path = strdup("");
    writer_close(out, true);
    return TAPER_FAIL(error, TAPER_NOMEM, "%s: no memory for a write buffer; free some memory", path);
  }
  out->fd = in_place ? open(out->path, O_WRONLY | O_CLOEXEC)
                     : open(out->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (out->fd < 0) {
    int number = errno;
    free(out->temporary), out->temporary = NULL; /* not ours if it could not be created */
    return writer_fail(out, "create", number, error);
  }
  if (out->temporary) out->leftover = leftover_add(out->temporary);
  if (exists && !in_place && fchmod(out->fd, info.st_mode & 0777) < 0) return writer_fail(out, "create", errno, error);
  return TAPER_OK;
}

static taper_status write_fully(file_writer *w, const uint8_t *data, size_t bytes, taper_error *error) {
  while (bytes > 0) {
    ssize_t n = write(w->fd, data, bytes < LARGEST_WRITE ? bytes : LARGEST_WRITE);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return writer_fail(w, "write", n < 0 ? errno : EIO, error);
    data += n;
    bytes -= (size_t)n;
  }
  return TAPER_OK;
}

static taper_status writer_closed(taper_error *error) {
  return TAPER_FAIL(error, TAPER_IO, "the file was not written: an earlier write failed; see the first error");
}

static taper_status writer_flush(file_writer *w, taper_error *error) {
  size_t n = w->buffered;
  w->buffered = 0;
  return write_fully(w, w->buffer, n, error);
}

taper_status file_writer_put(file_writer *w, const void *data, size_t bytes, taper_error *error) {
  if (!w->path) return writer_closed(error);
  if (bytes == 0) return TAPER_OK;
  if (bytes >= BUFFER - w->buffered) TAPER_TRY(writer_flush(w, error));
  if (bytes >= BUFFER) {
    TAPER_TRY(write_fully(w, data, bytes, error));
  } else {
    memcpy(w->buffer + w->buffered, data, bytes);
    w->buffered += bytes;
  }
  w->written += bytes;
  return TAPER_OK;
}

/* Some file systems cannot sync a folder; those say EINVAL, and nothing more can be done there. */
static int sync_folder_of(const char *path) {
  const char *slash = strrchr(path, '/');
  char *folder = slash ? strndup(path, slash == path ? 1 : (size_t)(slash - path)) : strdup(".");
  if (!folder) return ENOMEM;
  int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC), number = 0;
  free(folder);
  if (fd < 0) return errno == EACCES ? 0 : errno; /* a folder that may be written but not read */
  if (fsync(fd) < 0 && errno != EINVAL && errno != ENOTSUP) number = errno;
  close(fd);
  return number;
}

taper_status file_writer_commit(file_writer *w, taper_error *error) {
  if (!w->path) return writer_closed(error);
  TAPER_TRY(writer_flush(w, error));
  if (!w->temporary) {
    int failed = close(w->fd);
    w->fd = -1;
    if (failed) return writer_fail(w, "write", errno, error);
    writer_close(w, true);
    return TAPER_OK;
  }
  if (fsync(w->fd) < 0) return writer_fail(w, "write", errno, error);
  int failed = close(w->fd);
  w->fd = -1;
  if (failed) return writer_fail(w, "write", errno, error);
  if (rename(w->temporary, w->path) < 0) return writer_fail(w, "replace", errno, error);
  int number = sync_folder_of(w->path);
  taper_status status = number ? cannot(error, w->path, "sync the folder of", number) : TAPER_OK;
  writer_close(w, true);
  return status;
}

void file_writer_abort(file_writer *w) { writer_close(w, false); }
