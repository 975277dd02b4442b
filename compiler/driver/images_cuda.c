/* CUDA source -> cubins and PTX: which ones, NVRTC, the cache. */
#include "compiler/driver/build_priv.h"
#include "compiler/driver/cache.h"
#include "cuda/nvrtc.h"
#include "runtime/base/file.h"
#include "runtime/base/leftover.h"
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char *const usual[] = {"sm_120", "sm_100", "sm_90", "sm_89", "sm_80"};
static const char *const always[] = {"compute_90", "compute_80"};
static const char *const nvrtc_options[] = {NVRTC_OPTIONS};

bool build_cuda_arch(const char *word, unsigned *out_number, bool *out_ptx) {
  static const char cubin[] = "sm_", ptx[] = "compute_";
  *out_ptx = strncmp(word, ptx, strlen(ptx)) == 0;
  if (!*out_ptx && strncmp(word, cubin, strlen(cubin)) != 0) return false;
  const char *p = word + strlen(*out_ptx ? ptx : cubin);
  size_t digits = strspn(p, "0123456789");
  *out_number = 0;
  if (digits < 2 || digits > 3) return false;
  for (size_t i = 0; i < digits; i++) *out_number = *out_number * 10 + (unsigned)(p[i] - '0');
  return *out_number >= 80 && !p[digits];
}

/* ---- which images ---- */
static void add_arch(build_options *o, const char *arch) {
  for (size_t i = 0; i < o->arch_count; i++)
    if (strcmp(o->archs[i], arch) == 0) return;
  if (o->arch_count < BUILD_MAX_ARCHS) o->archs[o->arch_count++] = arch;
}

static bool is_known(const char *list, const char *arch) {
  size_t n = strlen(arch);
  for (const char *p = list; *p; p += strspn(p, ",")) {
    size_t word = strcspn(p, ",");
    if (word == n && strncmp(p, arch, n) == 0) return true;
    p += word;
  }
  return !*list;
}

/* Cubins before PTX, new before old. */
static int best_first(const void *a, const void *b) {
  const char *const *x = a, *const *y = b;
  unsigned m = 0, n = 0;
  bool ptx = false, other = false;
  build_cuda_arch(*x, &m, &ptx), build_cuda_arch(*y, &n, &other);
  if (ptx != other) return ptx ? 1 : -1;
  return m != n ? (m < n ? 1 : -1) : strcmp(*y, *x);
}

/* PTX for GPUs that are newer than every cubin: of the oldest arch, and of sm_90 where the cubins reach it. */
static void add_ptx(build_options *o, arena *a) {
  unsigned lowest = 0, highest = 0, n;
  bool ptx;
  for (size_t i = 0; i < o->arch_count; i++) {
    if (!build_cuda_arch(o->archs[i], &n, &ptx)) continue;
    if (ptx) return;
    if (!lowest || n < lowest) lowest = n;
    if (n > highest) highest = n;
  }
  add_arch(o, arena_printf(a, "compute_%u", lowest));
  if (highest >= 90) add_arch(o, "compute_90");
}

taper_status build_cuda_for(unsigned capability, arena *a, const char **out_arch, taper_error *error) {
  nvrtc_facts facts;
  TAPER_TRY(nvrtc_find(NULL, &facts, error));
  *out_arch = arena_printf(a, "sm_%u", capability);
  if (!is_known(facts.archs, *out_arch)) *out_arch = capability >= 90 ? "compute_90" : "compute_80";
  return TAPER_OK;
}

taper_status build_cuda_begin(build_options *o, diag_sink *sink, arena *a, const char **out_compiler,
                              taper_error *error) {
  nvrtc_facts facts;
  TAPER_TRY(nvrtc_find(NULL, &facts, error));
  *out_compiler = arena_printf(a, "NVRTC %d.%d", facts.major, facts.minor);
  if (!o->arch_count) {
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++)
      if (is_known(facts.archs, usual[i])) add_arch(o, usual[i]);
    for (size_t i = 0; i < sizeof always / sizeof *always; i++) add_arch(o, always[i]);
  } else {
    add_ptx(o, a);
  }
  qsort(o->archs, o->arch_count, sizeof *o->archs, best_first);
  const char *all = "";
  for (size_t i = 0; i < o->arch_count; i++) all = arena_printf(a, "%s%s%s", all, i ? "," : "", o->archs[i]);
  diag_remark(sink, "model", false, (diag_loc){.file = diag_intern(sink, facts.path)}, "%s makes %s", *out_compiler,
              all);
  return TAPER_OK;
}

/* ---- one image, in a thread of its own: NVRTC takes most of the time ---- */
typedef struct cuda_job {
  const text *source;
  const char *folder, *facts; /* of the cache */
  build_image *out;
  pthread_t thread;
  taper_status status;
  taper_error error, not_cached;
  bool cache, started;
} cuda_job;

static void *make_image(void *user) {
  cuda_job *job = user;
  build_image *out = job->out;
  arena a = {0};
  char *log = NULL;
  const char *facts = arena_printf(&a, "%s|%s", job->facts, out->arch);
  const cache_id id = {.facts = facts, .source = job->source->data, .source_size = job->source->size};
  out->cached = job->cache && cache_get(job->folder, &id, &out->data, &out->size, &log);
  if (!out->cached) {
    const nvrtc_request request = {.source = job->source->data, .name = "model.cu", .arch = out->arch};
    nvrtc_result r = {0};
    job->status = nvrtc_compile(&request, &r, &job->error);
    if (job->status == TAPER_OK) {
      out->data = r.image, out->size = r.size;
      r.image = NULL;
      if (job->cache) cache_put(job->folder, &id, out->data, out->size, r.log, &job->not_cached);
    }
    nvrtc_free(&r);
  }
  free(log);
  arena_free(&a);
  return NULL;
}

/* ---- all of them ---- */
static const char *facts_of(const char *compiler, arena *a) {
  nvrtc_facts facts = {0};
  const char *all = arena_printf(a, "%s|%s", compiler, TAPER_VERSION_TEXT);
  if (nvrtc_find(NULL, &facts, NULL) == TAPER_OK)
    all = arena_printf(a, "%s|%s|%llu", all, facts.path, (unsigned long long)facts.bytes);
  for (size_t i = 0; i < sizeof nvrtc_options / sizeof *nvrtc_options; i++)
    all = arena_printf(a, "%s|%s", all, nvrtc_options[i]);
  return all;
}

static taper_status write_file(const char *path, const void *data, size_t size, taper_error *error) {
  file_writer w = {0};
  TAPER_TRY(file_writer_open(path, &w, error));
  taper_status status = file_writer_put(&w, data, size, error);
  if (status == TAPER_OK) return file_writer_commit(&w, error);
  file_writer_abort(&w);
  return status;
}

/* --save-temps: the source and the images. */
static taper_status save(const text *source, const build_options *o, const build_image *images, size_t n, arena *a,
                         taper_error *error) {
  if (!o->save_temps) return TAPER_OK;
  if (mkdir(o->save_temps, 0777) && errno != EEXIST)
    return TAPER_FAIL(error, TAPER_IO, "%s: cannot create the folder: %s", o->save_temps, file_error_text(errno));
  TAPER_TRY(write_file(arena_printf(a, "%s/model.cu", o->save_temps), source->data, source->size, error));
  for (size_t i = 0; i < n; i++) {
    bool ptx = strncmp(images[i].arch, "compute_", 8) == 0;
    if (!images[i].data) continue;
    TAPER_TRY(write_file(arena_printf(a, "%s/model-%s.%s", o->save_temps, images[i].arch, ptx ? "ptx" : "cubin"),
                         images[i].data, images[i].size - ptx, error));
  }
  return TAPER_OK;
}

/* Source of ours that does not compile is a defect; it is kept, so that it can be shown. */
static taper_status keep_refused(const text *source, const build_options *o, arena *a, taper_error *error) {
  const char *folder, *path = o->save_temps ? arena_printf(a, "%s/model.cu", o->save_temps) : "";
  unsigned number;
  if (!o->save_temps && leftover_folder(a, &folder, &number, NULL) == TAPER_OK) {
    leftover_drop(&number); /* it is to stay */
    path = arena_printf(a, "%s/model.cu", folder);
    if (write_file(path, source->data, source->size, NULL) != TAPER_OK) path = "";
  }
  taper_error why = *error;
  return TAPER_FAIL(error, TAPER_INTERNAL, "%s%s%.600s: a defect of taperc; please report it with this source", path,
                    *path ? ": " : "", why.message);
}

taper_status build_cuda_images(const text *source, const build_options *o, const char *compiler, diag_sink *sink,
                               build_image out[BUILD_MAX_ARCHS], size_t *out_count, taper_error *error) {
  arena a = {0};
  cuda_job jobs[BUILD_MAX_ARCHS] = {0};
  const char *folder = NULL;
  const bool cache = build_cache(o, sink, &a, &folder);
  const char *facts = facts_of(compiler, &a);
  taper_status status = TAPER_OK;
  *out_count = o->arch_count;
  for (size_t i = 0; i < o->arch_count; i++) {
    out[i] = (build_image){.arch = o->archs[i], .features = strdup(compiler)};
    jobs[i] = (cuda_job){.source = source, .cache = cache, .folder = folder, .facts = facts, .out = &out[i]};
    jobs[i].started = i + 1 < o->arch_count && pthread_create(&jobs[i].thread, NULL, make_image, &jobs[i]) == 0;
    if (!jobs[i].started) make_image(&jobs[i]);
  }
  for (size_t i = 0; i < o->arch_count; i++) {
    if (jobs[i].started) pthread_join(jobs[i].thread, NULL);
    if (*jobs[i].not_cached.message) build_not_cached(sink, folder, jobs[i].not_cached.message);
    if (status != TAPER_OK || jobs[i].status == TAPER_OK) continue;
    status = jobs[i].status;
    *error = jobs[i].error;
  }
  taper_status saved = save(source, o, out, o->arch_count, &a, status == TAPER_OK ? error : NULL);
  if (status == TAPER_INVALID)
    status = keep_refused(source, o, &a, error);
  else if (status == TAPER_OK)
    status = saved;
  arena_free(&a);
  return status;
}

taper_status build_ptx(const text *source, const build_options *options, diag_sink *sink, char **out, size_t *out_size,
                       taper_error *error) {
  arena a = {0};
  build_options o = *options;
  build_image images[BUILD_MAX_ARCHS] = {0};
  const char *compiler = NULL;
  unsigned number = 90;
  bool ptx;
  size_t n = 0;
  if (o.arch_count) build_cuda_arch(o.archs[0], &number, &ptx);
  o.arch_count = 1, o.archs[0] = arena_printf(&a, "compute_%u", number);
  taper_status status = build_cuda_begin(&o, sink, &a, &compiler, error);
  if (status == TAPER_OK) status = build_cuda_images(source, &o, compiler, sink, images, &n, error);
  if (status == TAPER_OK) {
    *out = images[0].data, *out_size = images[0].size - 1; /* without its NUL */
    images[0].data = NULL;
  }
  build_images_free(images, n);
  arena_free(&a);
  return status;
}
