/* The image cache: what is damaged, cut off, exchanged or of another source is no entry; many processes at once; no folder. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "compiler/driver/cache.h"
#include "runtime/base/file.h"
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char folder[64];
static const cache_id base = {.facts = "sm_90|--std=c++17|NVRTC 13.0", .source = "source", .source_size = 6};

static int setup(void **state) {
  (void)state;
  strcpy(folder, "/tmp/test-cache-XXXXXX");
  return mkdtemp(folder) ? 0 : -1;
}

static size_t entries(char *out_path, size_t cap) {
  DIR *d = opendir(folder);
  size_t n = 0;
  for (struct dirent *e; d && (e = readdir(d));) {
    if (*e->d_name == '.') continue;
    if (out_path) snprintf(out_path, cap, "%s/%s", folder, e->d_name);
    n++;
  }
  if (d) closedir(d);
  return n;
}

static int teardown(void **state) {
  (void)state;
  char path[400];
  chmod(folder, 0700);
  while (entries(path, sizeof path)) unlink(path);
  return rmdir(folder);
}

static bool holds(const char *where, const cache_id *id, const char *image, const char *note) {
  void *data;
  size_t size;
  char *said;
  if (!cache_get(where, id, &data, &size, &said)) return false;
  assert_int_equal(size, strlen(image));
  assert_memory_equal(data, image, size);
  assert_string_equal(said, note);
  free(data), free(said);
  return true;
}

static void put(const char *where, const cache_id *id, const char *image, const char *note) {
  taper_error error = {0};
  if (!cache_put(where, id, image, strlen(image), note, &error)) fail_msg("%s", error.message);
}

static void found_by_all_that_it_depends_on(void **state) {
  (void)state;
  const cache_id others[] = {
      {"sm_80|--std=c++17|NVRTC 13.0", "source", 6}, {"sm_90|--std=c++17|NVRTC 12.9", "source", 6},
      {"sm_90|--std=c++17|NVRTC 13.0", "sourcf", 6}, {"sm_90|--std=c++17|NVRTC 13.0", "source", 5},
      {"sm_90|--std=c++17|NVRTC 13.0", NULL, 0},     {"", "source", 6}};
  assert_false(holds(folder, &base, "", ""));
  put(folder, &base, "image", "two\nlines\n");
  assert_true(holds(folder, &base, "image", "two\nlines\n"));
  for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
    assert_false(holds(folder, &others[i], "", ""));
    put(folder, &others[i], "other", "");
    assert_true(holds(folder, &others[i], "other", ""));
  }
  assert_true(holds(folder, &base, "image", "two\nlines\n"));
  put(folder, &base, "newer", "");
  assert_true(holds(folder, &base, "newer", ""));
  assert_int_equal(entries(NULL, 0), 7);
}

static void write_file(const char *path, const char *data, size_t size) {
  FILE *f = fopen(path, "wb");
  assert_non_null(f);
  assert_int_equal(fwrite(data, 1, size, f), size);
  fclose(f);
}

static void damage_is_seen_everywhere(void **state) {
  (void)state;
  char path[400], *data, *hurt;
  size_t size;
  put(folder, &base, "image", "note");
  assert_int_equal(entries(path, sizeof path), 1);
  assert_int_equal(file_read(path, 1 << 20, &data, &size, NULL), TAPER_OK);
  assert_non_null(hurt = malloc(size + 1));
  for (size_t cut = 0; cut < size; cut++) { /* cut off anywhere */
    write_file(path, data, cut);
    assert_false(holds(folder, &base, "", ""));
    assert_int_not_equal(access(path, F_OK), 0); /* and deleted */
  }
  for (size_t bit = 0; bit < 8 * size; bit++) { /* any bit flipped */
    memcpy(hurt, data, size);
    hurt[bit / 8] = (char)(hurt[bit / 8] ^ (1 << bit % 8));
    write_file(path, hurt, size);
    assert_false(holds(folder, &base, "", ""));
    assert_int_not_equal(access(path, F_OK), 0);
  }
  memcpy(hurt, data, size), hurt[size] = 'x'; /* something behind it */
  write_file(path, hurt, size + 1);
  assert_false(holds(folder, &base, "", ""));
  put(folder, &base, "image", "note"); /* made anew */
  assert_true(holds(folder, &base, "image", "note"));
  free(data), free(hurt);
}

static void exchanged_entry_is_no_entry(void **state) {
  (void)state;
  char path[400], *data;
  size_t size;
  const cache_id other = {"sm_90|--std=c++17|NVRTC 13.0", "stolen", 6};
  put(folder, &other, "wrong", "");
  assert_int_equal(entries(path, sizeof path), 1);
  assert_int_equal(file_read(path, 1 << 20, &data, &size, NULL), TAPER_OK);
  unlink(path);
  put(folder, &base, "image", "");
  assert_int_equal(entries(path, sizeof path), 1);
  write_file(path, data, size); /* sound in itself, and in the place of another */
  assert_false(holds(folder, &base, "", ""));
  assert_int_equal(entries(NULL, 0), 0);
  free(data);
}

static void which_folders_are_used(void **state) {
  (void)state;
  const char *reason;
  char sub[100], file[100];
  snprintf(sub, sizeof sub, "%s/a/b", folder);
  snprintf(file, sizeof file, "%s/file", folder);
  assert_true(cache_usable(sub, &reason)); /* missing folders are made */
  assert_int_equal(chmod(sub, 0777), 0);
  assert_false(cache_usable(sub, &reason)); /* whoever can write it could run code as us */
  assert_string_equal(reason, "other users may write it");
  rmdir(sub);
  snprintf(sub, sizeof sub, "%s/a", folder);
  rmdir(sub);
  write_file(file, "", 0);
  assert_false(cache_usable(file, &reason));
  snprintf(sub, sizeof sub, "%s/file/x", folder);
  assert_false(cache_usable(sub, &reason));
  assert_false(cache_usable(NULL, &reason));
  unlink(file);
  if (geteuid() == 0) { /* root may write anything but what belongs to another */
    assert_int_equal(chown(folder, 12345, (gid_t)-1), 0);
    assert_false(cache_usable(folder, &reason));
    assert_string_equal(reason, "another user owns it");
    assert_int_equal(chown(folder, 0, (gid_t)-1), 0);
  } else {
    assert_int_equal(chmod(folder, 0500), 0);
    assert_false(cache_usable(folder, &reason));
    taper_error error = {0};
    assert_false(cache_put(folder, &base, "image", 5, "", &error));
    assert_non_null(strstr(error.message, "cannot create"));
  }
}

static void folder_from_the_environment(void **state) {
  (void)state;
  static const char *const names[] = {"TAPER_CACHE_DIR", "XDG_CACHE_HOME", "HOME"};
  char *saved[3];
  arena a = {0};
  for (int i = 0; i < 3; i++) saved[i] = getenv(names[i]) ? strdup(getenv(names[i])) : NULL, unsetenv(names[i]);
  assert_null(cache_folder(&a));
  setenv("HOME", "relative", 1);
  assert_null(cache_folder(&a));
  setenv("HOME", "/h", 1);
  assert_string_equal(cache_folder(&a), "/h/.cache/taperc");
  setenv("XDG_CACHE_HOME", "/x", 1);
  assert_string_equal(cache_folder(&a), "/x/taperc");
  setenv("TAPER_CACHE_DIR", "here", 1);
  assert_string_equal(cache_folder(&a), "here");
  for (int i = 0; i < 3; i++) saved[i] ? (void)setenv(names[i], saved[i], 1) : (void)unsetenv(names[i]), free(saved[i]);
  arena_free(&a);
}

static void without_a_folder_it_stays_in_memory(void **state) {
  (void)state;
  const cache_id other = {"in memory", "x", 1};
  assert_false(holds(NULL, &base, "", ""));
  put(NULL, &base, "image", "note");
  put(NULL, &other, "other", "");
  assert_true(holds(NULL, &base, "image", "note"));
  assert_true(holds(NULL, &other, "other", ""));
  assert_false(holds(folder, &base, "", ""));
  assert_int_equal(entries(NULL, 0), 0);
}

static void full_disk_leaves_nothing(void **state) {
  (void)state;
  static char image[1 << 16];
  struct rlimit before, tight = {4096, RLIM_INFINITY};
  assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
  tight.rlim_max = before.rlim_max;
  void (*old)(int) = signal(SIGXFSZ, SIG_IGN);
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &tight), 0);
  memset(image, 'x', sizeof image);
  taper_error error = {0};
  bool done = cache_put(folder, &base, image, sizeof image, "", &error);
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
  signal(SIGXFSZ, old);
  assert_false(done);
  assert_true(*error.message);
  assert_int_equal(entries(NULL, 0), 0);
}

/* Puts, gets and damages the same few entries; an image that is found is whole and of its source. Returns what went wrong. */
static int racer(unsigned seed) {
  for (int turn = 0; turn < 150; turn++) {
    char source[16], image[4000], path[400];
    unsigned which = (seed = seed * 1103515245u + 12345u) >> 16 & 3;
    snprintf(source, sizeof source, "source %u", which);
    memset(image, 'a' + (int)which, sizeof image);
    const cache_id id = {"facts", source, strlen(source)};
    void *data;
    size_t size;
    char *note;
    if (cache_get(folder, &id, &data, &size, &note)) {
      bool sound = size == sizeof image && memcmp(data, image, size) == 0 && strcmp(note, source) == 0;
      free(data), free(note);
      if (!sound) return 1;
      if (seed >> 20 & 7) continue;
      if (entries(path, sizeof path) && !strstr(path, ".tmp-") && truncate(path, 500) != 0 && access(path, F_OK) == 0)
        return 2;
    } else if (!cache_put(folder, &id, image, sizeof image, source, NULL)) {
      return 3;
    }
  }
  return 0;
}

static void many_processes_at_once(void **state) {
  (void)state;
  pid_t child[12];
  for (unsigned i = 0; i < 12; i++) {
    child[i] = fork();
    if (child[i] == 0) _exit(racer(i * 7919u + 1));
    assert_true(child[i] > 0);
  }
  for (int i = 0; i < 12; i++) {
    int status;
    assert_int_equal(waitpid(child[i], &status, 0), child[i]);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
  }
  assert_true(entries(NULL, 0) <= 4); /* no temporary file is left */
}

int main(void) {
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
  const struct CMUnitTest tests[] = {CASE(found_by_all_that_it_depends_on), CASE(damage_is_seen_everywhere),
                                     CASE(exchanged_entry_is_no_entry),     CASE(which_folders_are_used),
                                     CASE(folder_from_the_environment),     CASE(without_a_folder_it_stays_in_memory),
                                     CASE(full_disk_leaves_nothing),        CASE(many_processes_at_once)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
