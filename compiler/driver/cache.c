/* The image cache: one file an entry, named by a hash, verified by lengths, hash and content, replaced by rename. Whoever can
   write the folder can run code as the user, so a folder that others may write, or that another user owns, is not used.
 */
#include "compiler/driver/cache.h"
#include "runtime/base/file.h"
#include "runtime/base/hash.h"
#include "runtime/base/text.h"
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define ENTRY_MAGIC "taper-image 2\n"
enum { LONGEST_SIZE = 24, ENTRY_LIMIT = 256 << 20, MOST_ENTRIES = 2000, STALE_SECONDS = 24 * 3600 };

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

/* MAGIC, hash '\n', then what the hash is of: four sizes and '\n', facts, note, source, image. */
enum { FACTS, NOTE, SOURCE, IMAGE, PARTS };
typedef struct part {
  const void *data;
  size_t size;
} part;

static const char *entry_path(const char *folder, const cache_id *id, arena *a) {
  hash128 source = hash_bytes(id->source, id->source_size);
  const char *all = arena_printf(a, "%s\n%s", source.hex, id->facts);
  return arena_printf(a, "%s/%s.image", folder, hash_bytes(all, strlen(all)).hex);
}

/* A line of PARTS numbers with one space between them; the bytes after it, or NULL. */
static const char *read_sizes(const char *p, const char *end, part parts[PARTS]) {
  for (int i = 0; i < PARTS; i++) {
    size_t span = (size_t)(end - p) < LONGEST_SIZE ? (size_t)(end - p) : LONGEST_SIZE;
    const char *stop = memchr(p, i + 1 < PARTS ? ' ' : '\n', span);
    uint64_t size;
    if (!stop || !number_parse_u64(p, (size_t)(stop - p), &size) || size > ENTRY_LIMIT) return NULL;
    parts[i].size = (size_t)size;
    p = stop + 1;
  }
  return p;
}

static bool parse_entry(const char *p, size_t size, part parts[PARTS]) {
  const size_t magic = sizeof ENTRY_MAGIC - 1, hex = sizeof(hash128) - 1;
  const char *end = p + size;
  if (size < magic + hex + 1 || memcmp(p, ENTRY_MAGIC, magic) != 0 || p[magic + hex] != '\n') return false;
  const char *given = p + magic, *hashed = given + hex + 1;
  if (memcmp(given, hash_bytes(hashed, (size_t)(end - hashed)).hex, hex) != 0) return false;
  if (!(p = read_sizes(hashed, end, parts))) return false;
  for (int i = 0; i < PARTS; i++) {
    if (parts[i].size > (size_t)(end - p)) return false;
    parts[i].data = p;
    p += parts[i].size;
  }
  return p == end && parts[IMAGE].size > 0;
}

static bool same(const part *p, const void *data, size_t size) {
  return p->size == size && (size == 0 || memcmp(p->data, data, size) == 0);
}

static bool take(const part parts[PARTS], const cache_id *id, void **out_image, size_t *out_size, char **out_note) {
  if (!same(&parts[FACTS], id->facts, strlen(id->facts)) || !same(&parts[SOURCE], id->source, id->source_size))
    return false;
  char *image = malloc(parts[IMAGE].size), *note = malloc(parts[NOTE].size + 1);
  if (!image || !note) return free(image), free(note), false;
  memcpy(image, parts[IMAGE].data, parts[IMAGE].size);
  if (parts[NOTE].size) memcpy(note, parts[NOTE].data, parts[NOTE].size);
  note[parts[NOTE].size] = 0;
  *out_image = image, *out_size = parts[IMAGE].size, *out_note = note;
  return true;
}

/* ---- without a folder ---- */

typedef struct kept_entry {
  struct kept_entry *next;
  char *data; /* as a file holds it */
  size_t size;
} kept_entry;

static struct {
  pthread_mutex_t lock;
  kept_entry *first;
  size_t bytes;
} kept = {.lock = PTHREAD_MUTEX_INITIALIZER};

static bool keep(const part pieces[], size_t count) {
  kept_entry *e = calloc(1, sizeof *e);
  for (size_t i = 0; e && i < count; i++) e->size += pieces[i].size;
  if (!e || !(e->data = malloc(e->size + 1))) return free(e), false;
  char *p = e->data;
  for (size_t i = 0; i < count; i++) {
    if (pieces[i].size) memcpy(p, pieces[i].data, pieces[i].size);
    p += pieces[i].size;
  }
  pthread_mutex_lock(&kept.lock);
  bool room = kept.bytes + e->size <= ENTRY_LIMIT;
  if (room) kept.bytes += e->size, e->next = kept.first, kept.first = e;
  pthread_mutex_unlock(&kept.lock);
  if (!room) free(e->data), free(e);
  return room;
}

static bool get_kept(const cache_id *id, void **out_image, size_t *out_size, char **out_note) {
  bool found = false;
  pthread_mutex_lock(&kept.lock);
  for (const kept_entry *e = kept.first; e && !found; e = e->next) {
    part parts[PARTS];
    found = parse_entry(e->data, e->size, parts) && take(parts, id, out_image, out_size, out_note);
  }
  pthread_mutex_unlock(&kept.lock);
  return found;
}

bool cache_get(const char *folder, const cache_id *id, void **out_image, size_t *out_size, char **out_note) {
  if (!folder) return get_kept(id, out_image, out_size, out_note);
  arena a = {0};
  const char *path = entry_path(folder, id, &a);
  char *data = NULL; /* read, not mapped: whoever cuts the file short meanwhile must not be our SIGBUS */
  size_t size;
  part parts[PARTS];
  bool found = false;
  if (access(path, F_OK) == 0 && file_read(path, ENTRY_LIMIT, &data, &size, NULL) == TAPER_OK)
    found = parse_entry(data, size, parts) && take(parts, id, out_image, out_size, out_note);
  if (!found) unlink(path);
  free(data);
  arena_free(&a);
  return found;
}

/* One entry in four goes, the oldest first, when there are too many; so does what a killed writer left. */
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
    if (!end || stat(path, &s) != 0) continue;
    if (strcmp(end, ".image") == 0)
      list[n++] = (old_entry){path, s.st_mtime};
    else if (strncmp(end, ".tmp-", 5) == 0 && s.st_mtime < time(NULL) - STALE_SECONDS)
      unlink(path);
  }
  closedir(d);
  if (n <= MOST_ENTRIES) return;
  qsort(list, n, sizeof *list, oldest_first);
  for (size_t i = 0; i < n / 4; i++) unlink(list[i].name);
}

static bool write_entry(const char *path, const part pieces[], size_t count, taper_error *error) {
  file_writer w = {0};
  taper_status status = file_writer_open(path, &w, error);
  for (size_t i = 0; status == TAPER_OK && i < count; i++)
    status = file_writer_put(&w, pieces[i].data, pieces[i].size, error);
  if (status == TAPER_OK) return file_writer_commit(&w, error) == TAPER_OK;
  file_writer_abort(&w);
  return false;
}

bool cache_put(const char *folder, const cache_id *id, const void *image, size_t size, const char *note,
               taper_error *error) {
  arena a = {0};
  const char *sizes = arena_printf(&a, "%zu %zu %zu %zu\n", strlen(id->facts), strlen(note), id->source_size, size);
  part pieces[] = {{ENTRY_MAGIC, sizeof ENTRY_MAGIC - 1},
                   {NULL, sizeof(hash128) - 1},
                   {"\n", 1},
                   {sizes, strlen(sizes)},
                   {id->facts, strlen(id->facts)},
                   {note, strlen(note)},
                   {id->source, id->source_size},
                   {image, size}};
  enum { PIECES = sizeof pieces / sizeof *pieces };
  hash_stream *h = hash_begin();
  if (!h) {
    taper_fail(error, TAPER_NOMEM, "no memory for the hash of an image; free some memory");
    return arena_free(&a), false;
  }
  for (size_t i = 3; i < PIECES; i++) hash_update(h, pieces[i].data, pieces[i].size);
  hash128 hash = hash_end(h);
  pieces[1].data = hash.hex;
  bool done = folder ? write_entry(entry_path(folder, id, &a), pieces, PIECES, error) : keep(pieces, PIECES);
  if (done && folder) prune(folder, &a);
  arena_free(&a);
  return done;
}
