/* Source -> images: which ones, the C compiler, the cache. */
#include "compiler/driver/build_priv.h"
#include "compiler/driver/cache.h"
#include "compiler/emit/emit.h"
#include "runtime/base/file.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

const char *const build_arch_names[BUILD_CPU_ARCHS] = {"native", "x86-64-v4", "x86-64-v3"};

bool build_arch_runs(const char *arch) {
  if (strcmp(arch, "native") == 0) return true;
#if defined(__x86_64__)
  __builtin_cpu_init();
  bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") &&
            __builtin_cpu_supports("bmi2");
  if (strcmp(arch, "x86-64-v3") == 0) return v3;
  return v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
#else
  return false;
#endif
}

static const char *best_arch(void) {
  if (build_arch_runs("x86-64-v4")) return "x86-64-v4";
  return build_arch_runs("x86-64-v3") ? "x86-64-v3" : "native";
}

taper_status build_compiler_version(const char *cc, arena *a, const char **out, taper_error *error) {
  int pipe_fd[2];
  if (pipe2(pipe_fd, O_CLOEXEC) != 0)
    return TAPER_FAIL(error, TAPER_DEVICE, "no pipe to the C compiler: %s; close some files", file_error_text(errno));
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, pipe_fd[1], STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  char *argv[] = {arena_strdup(a, cc), arena_strdup(a, "--version"), NULL};
  pid_t child;
  int failed = posix_spawnp(&child, cc, &actions, NULL, argv, environ);
  posix_spawn_file_actions_destroy(&actions);
  close(pipe_fd[1]);
  char line[512];
  size_t n = 0;
  for (ssize_t got = 1; !failed && got > 0 && n < sizeof line - 1;) {
    got = read(pipe_fd[0], line + n, sizeof line - 1 - n);
    if (got < 0 && errno == EINTR)
      got = 1;
    else if (got > 0)
      n += (size_t)got;
  }
  close(pipe_fd[0]);
  if (failed)
    return TAPER_FAIL(error, TAPER_DEVICE, "the C compiler '%s' cannot be run: %s; install gcc, or give --cc", cc,
                      file_error_text(failed));
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  line[n] = 0;
  line[strcspn(line, "\n")] = 0;
  if (!WIFEXITED(status) || (WEXITSTATUS(status) != 0 && n == 0) || !*line)
    return TAPER_FAIL(error, TAPER_DEVICE,
                      "'%s --version' says nothing, so it is no C compiler that is known; install gcc, or give --cc",
                      cc);
  *out = arena_strdup(a, line);
  return TAPER_OK;
}

/* What "native" means is the machine's. */
static const char *host_features(arena *a) {
  const char *all = "";
#if defined(__x86_64__)
  __builtin_cpu_init();
#define CPUF(word, macro) all = arena_printf(a, "%s%d", all, __builtin_cpu_supports(word) != 0);
#include "runtime/abi/cpu_features.def"
#undef CPUF
#endif
  return all;
}

static cache_id image_id(const text *source, const build_options *o, const char *arch, const char *compiler, arena *a) {
  const char *triple = o->target_triple ? o->target_triple : "", *cc = o->cc ? o->cc : "gcc",
             *features = strcmp(arch, "native") == 0 ? host_features(a) : "";
  const char *facts = arena_printf(a, "%s|%s|%s|%s|%s|%s", arch, triple, cc, compiler, TAPER_VERSION_TEXT, features);
  return (cache_id){.facts = facts, .source = source->data, .source_size = source->size};
}

static void warn_once(diag_sink *sink, const char *folder, const char *what, const char *reason) {
  for (size_t i = 0; i < diag_count(sink); i++)
    if (diag_at(sink, i)->code == DC_NOT_CACHED) return;
  diag_report(sink, DC_NOT_CACHED, (diag_loc){.file = folder ? diag_intern(sink, folder) : "taperc"},
              "%s: %s; set TAPER_CACHE_DIR, or give --no-cache", what, reason);
}

void build_not_cached(diag_sink *sink, const char *folder, const char *reason) {
  warn_once(sink, folder, "an image is not cached", reason);
}

bool build_cache(const build_options *o, diag_sink *sink, arena *a, const char **out_folder) {
  if (o->no_cache || o->save_temps) return false;
  const char *folder = cache_folder(a), *reason;
  bool usable = cache_usable(folder, &reason);
  if (!usable) warn_once(sink, folder, "images are not cached", reason);
  *out_folder = usable ? folder : NULL;
  return true;
}

/* One image, in a thread of its own: the C compiler takes most of the time. */
typedef struct image_job {
  const text *source;
  const build_options *options;
  const char *folder, *compiler; /* folder NULL: cached in memory */
  build_image *out;
  pthread_t thread;
  taper_status status;
  taper_error error, not_cached; /* not_cached: empty, or why the cache could not be written */
  bool cache, started;
} image_job;

static void *make_image(void *user) {
  image_job *job = user;
  const build_options *o = job->options;
  build_image *out = job->out;
  arena a = {0};
  const cache_id id = image_id(job->source, o, out->arch, job->compiler, &a);
  out->cached = job->cache && cache_get(job->folder, &id, &out->data, &out->size, &out->features);
  if (!out->cached) {
    emit_options e = {
        .cc = o->cc ? o->cc : "gcc", .target_triple = o->target_triple, .arch = out->arch, .save_temps = o->save_temps};
    job->status = emit_compile(job->source->data, job->source->size, &e, false, &out->data, &out->size, &out->features,
                               &job->error);
    if (job->status == TAPER_OK && job->cache)
      cache_put(job->folder, &id, out->data, out->size, out->features, &job->not_cached);
  }
  arena_free(&a);
  return NULL;
}

taper_status build_images(const text *source, const build_options *o, const char *compiler, diag_sink *sink,
                          build_image out[BUILD_MAX_ARCHS], size_t *out_count, taper_error *error) {
  arena a = {0};
  image_job jobs[BUILD_MAX_ARCHS] = {0};
  const char *folder = NULL;
  const bool cache = build_cache(o, sink, &a, &folder);
  size_t n = o->arch_count ? o->arch_count : 1;
  taper_status status = TAPER_OK;
  for (size_t i = 0; i < n; i++) {
    out[i] = (build_image){.arch = o->arch_count ? o->archs[i] : best_arch()};
    jobs[i] = (image_job){
        .source = source, .options = o, .cache = cache, .folder = folder, .compiler = compiler, .out = &out[i]};
    jobs[i].started = i + 1 < n && pthread_create(&jobs[i].thread, NULL, make_image, &jobs[i]) == 0;
    if (!jobs[i].started) make_image(&jobs[i]);
  }
  for (size_t i = 0; i < n; i++) {
    image_job *job = &jobs[i];
    if (job->started) pthread_join(job->thread, NULL);
    if (*job->not_cached.message) build_not_cached(sink, folder, job->not_cached.message);
    if (status != TAPER_OK || job->status == TAPER_OK) continue;
    status = job->status;
    *error = job->error;
  }
  *out_count = n;
  arena_free(&a);
  return status;
}

void build_images_free(build_image *images, size_t count) {
  for (size_t i = 0; i < count; i++) free(images[i].data), free(images[i].features);
}
