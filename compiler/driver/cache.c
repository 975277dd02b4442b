/* The image cache: one file an entry, named by its key, verified by length and hash, replaced by rename. Whoever can
   write the folder can run code as the user, so a folder that others may write, or that another user owns, is not used.
 */
#include "compiler/driver/cache.h"
#include "runtime/base/file.h"
#include "runtime/base/hash.h"
#include "runtime/base/text.h"
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define ENTRY_MAGIC "taper-image 1\n"
enum { FEATURES_LIMIT = 4096, ENTRY_LIMIT = 256 << 20, MOST_ENTRIES = 2000 };

const char *cache_folder(arena *a) {
  const char *given = getenv("TAPER_CACHE_DIR"), *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
  if (given && *given) return arena_strdup(a, given);
  if (xdg && *xdg == '/') return arena_printf(a, "%s/taperc", xdg);
  if (home && *home == '/') return arena_printf(a, "%s/.cache/taperc", home);
  return NULL;
}

static bool make_folders(const char *folder, arena *a) {
  char *path = arena_strdup(a, folder);
  for (char *p = path + 1; *p; p++) {
    if (*p != '/') continue;
    *p = 0;
    if (mkdir(path, 0777) != 0 && errno != EEXIST) return false;
    *p = '/';
  }
  return mkdir(path, 0700) == 0 || errno == EEXIST;
}

static const char *unsafe(const char *folder) {
  struct stat s;
  if (stat(folder, &s) != 0) return file_error_text(errno);
  if (!S_ISDIR(s.st_mode)) return "not a folder";
  if (s.st_uid != geteuid()) return "another user owns it";
  if (s.st_mode & (S_IWGRP | S_IWOTH)) return "other users may write it";
  return NULL;
}

bool cache_usable(const char *folder, const char **out_reason) {
  arena a = {0};
  *out_reason = NULL;
  if (!folder)
    *out_reason = "neither TAPER_CACHE_DIR nor HOME is set";
  else if (!make_folders(folder, &a))
    *out_reason = file_error_text(errno);
  else if (!(*out_reason = unsafe(folder)) && access(folder, W_OK | X_OK) != 0)
    *out_reason = file_error_text(errno);
  arena_free(&a);
  return !*out_reason;
}

/* MAGIC, features '\n', hash '\n', size '\n', then the image. */
static bool read_entry(const mapped_file *map, void **out_image, size_t *out_size, char **out_features) {
  const char *line[3], *p = (const char *)map->data, *end = p + map->size;
  size_t length[3], magic = sizeof ENTRY_MAGIC - 1;
  if (map->size < magic || memcmp(p, ENTRY_MAGIC, magic) != 0) return false;
  p += magic;
  for (int i = 0; i < 3; i++) {
    size_t span = (size_t)(end - p) < FEATURES_LIMIT ? (size_t)(end - p) : FEATURES_LIMIT;
    const char *stop = memchr(p, '\n', span);
    if (!stop) return false;
    line[i] = p, length[i] = (size_t)(stop - p);
    p = stop + 1;
  }
  uint64_t size;
  if (!number_parse_u64(line[2], length[2], &size) || size != (uint64_t)(end - p) || size == 0) return false;
  hash128 h = hash_bytes(p, (size_t)size);
  if (length[1] != strlen(h.hex) || memcmp(h.hex, line[1], length[1]) != 0) return false;
  *out_image = malloc((size_t)size);
  *out_features = strndup(line[0], length[0]);
  if (!*out_image || !*out_features) {
    free(*out_image), free(*out_features);
    return false;
  }
  memcpy(*out_image, p, (size_t)size);
  *out_size = (size_t)size;
  return true;
}

bool cache_get(const char *folder, const char *key, void **out_image, size_t *out_size, char **out_features) {
  arena a = {0};
  const char *path = arena_printf(&a, "%s/%s.image", folder, key);
  mapped_file map = {0};
  bool found = false;
  if (access(path, F_OK) == 0 && file_map(path, &map, NULL) == TAPER_OK) {
    found = map.size < ENTRY_LIMIT && read_entry(&map, out_image, out_size, out_features);
    file_unmap(&map);
    if (!found) unlink(path);
  }
  arena_free(&a);
  return found;
}

/* One entry in four goes, the oldest first, when there are too many. */
typedef struct old_entry {
  const char *name;
  time_t when;
} old_entry;

static int oldest_first(const void *a, const void *b) {
  time_t x = ((const old_entry *)a)->when, y = ((const old_entry *)b)->when;
  return (x > y) - (x < y);
}

static void prune(const char *folder, arena *a) {
  DIR *d = opendir(folder);
  if (!d) return;
  old_entry *list = ARENA_ARRAY(a, old_entry, MOST_ENTRIES + 1);
  size_t n = 0;
  struct stat s;
  for (struct dirent *e; n <= MOST_ENTRIES && (e = readdir(d));) {
    const char *path = arena_printf(a, "%s/%s", folder, e->d_name), *end = strrchr(path, '.');
    if (end && strcmp(end, ".image") == 0 && stat(path, &s) == 0) list[n++] = (old_entry){path, s.st_mtime};
  }
  closedir(d);
  if (n <= MOST_ENTRIES) return;
  qsort(list, n, sizeof *list, oldest_first);
  for (size_t i = 0; i < n / 4; i++) unlink(list[i].name);
}

bool cache_put(const char *folder, const char *key, const void *image, size_t size, const char *features,
               taper_error *error) {
  arena a = {0};
  text head = {0};
  file_writer w = {0};
  text_printf(&head, ENTRY_MAGIC "%s\n%s\n%zu\n", features, hash_bytes(image, size).hex, size);
  taper_status status =
      head.failed ? TAPER_NOMEM : file_writer_open(arena_printf(&a, "%s/%s.image", folder, key), &w, error);
  if (status == TAPER_OK) status = file_writer_put(&w, head.data, head.size, error);
  if (status == TAPER_OK) status = file_writer_put(&w, image, size, error);
  if (status == TAPER_OK) status = file_writer_commit(&w, error);
  if (status != TAPER_OK && !head.failed) file_writer_abort(&w);
  if (status == TAPER_OK) prune(folder, &a);
  text_free(&head);
  arena_free(&a);
  return status == TAPER_OK;
}
