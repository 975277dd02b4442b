#include "compiler/cli/doctor_cuda.h"
#include <string.h>

enum { LEAST_SM = 80, MOST_ADVICE = 2 * CUDA_PROBE_DEVICES + 2 };

void doctor_cuda_look(doctor_cuda *d, arena *a) {
  taper_error e = {0};
  char path[512];
  *d = (doctor_cuda){0};
  if (cuda_probe_driver(false, &d->driver, &e) != TAPER_OK) d->driver_problem = arena_strdup(a, e.message);
  if (cuda_probe_driver(true, &d->sim, &e) != TAPER_OK) d->sim_problem = arena_strdup(a, e.message);
  if (cuda_probe_cublas(&d->cublas, &e) != TAPER_OK) d->cublas_problem = arena_strdup(a, e.message);
  if (nvrtc_find(NULL, &d->nvrtc, &e) != TAPER_OK) d->nvrtc_problem = arena_strdup(a, e.message);
  if (cuda_probe_runtime(path, sizeof path)) d->runtime = arena_strdup(a, path);
}

/* ---- do the versions of GPU, driver and NVRTC go together? ---- */

typedef struct advice {
  const char *lines[MOST_ADVICE];
  size_t count;
} advice;

/* "sm_75,sm_80" -> 75 and 80. */
static void arch_range(const char *archs, int *least, int *most) {
  *least = *most = 0;
  for (const char *p = archs; (p = strstr(p, "sm_")); p += 3) {
    int number = 0;
    for (const char *q = p + 3; *q >= '0' && *q <= '9' && number < 100000; q++) number = 10 * number + (*q - '0');
    if (!*least || number < *least) *least = number;
    if (number > *most) *most = number;
  }
}

static bool has_arch(const char *archs, int sm) {
  char word[32];
  text_format(word, sizeof word, ",sm_%d,", sm);
  char list[sizeof(nvrtc_facts)];
  text_format(list, sizeof list, ",%s,", archs);
  return strstr(list, word) != NULL;
}

static void advise_device(const doctor_cuda *d, int i, advice *out, arena *a) {
  const int sm = 10 * d->driver.device[i].major + d->driver.device[i].minor;
  const nvrtc_facts *n = &d->nvrtc;
  int least, most;
  arch_range(n->archs, &least, &most);
  if (sm < LEAST_SM)
    out->lines[out->count++] =
        arena_printf(a, "GPU %d (sm_%d) is older than what the kernels need (sm_%d); use another GPU, or --device=cpu",
                     i, sm, LEAST_SM);
  else if (d->nvrtc_problem || !*n->archs || has_arch(n->archs, sm))
    return;
  else if (sm > most)
    out->lines[out->count++] = arena_printf(
        a,
        "GPU %d (sm_%d) is newer than NVRTC %d.%d, which compiles up to sm_%d: packages made here bring it PTX, which "
        "the driver compiles when it loads; a newer NVRTC (pip install -U nvidia-cuda-nvrtc, TAPER_LIBNVRTC) makes an "
        "image for it",
        i, sm, n->major, n->minor, most);
  else
    out->lines[out->count++] = arena_printf(
        a,
        "GPU %d (sm_%d) is not among what NVRTC %d.%d compiles for: packages made here bring it the image of a lower "
        "sm of its generation, or PTX; another NVRTC (TAPER_LIBNVRTC) may know it",
        i, sm, n->major, n->minor);
}

static void advise_versions(const doctor_cuda *d, advice *out, arena *a) {
  const nvrtc_facts *n = &d->nvrtc;
  const int major = CUDA_MAJOR(d->driver.version), minor = CUDA_MINOR(d->driver.version);
  if (d->nvrtc_problem || d->driver_problem) return;
  if (n->major < major || (n->major == major && n->minor <= minor)) return;
  out->lines[out->count++] = arena_printf(
      a,
      "NVRTC %d.%d is newer than the driver (CUDA %d.%d), which refuses its PTX%s; install a driver of CUDA %d.%d or "
      "newer, or set TAPER_LIBNVRTC to an NVRTC of %d.%d or older%s",
      n->major, n->minor, major, minor, n->major > major ? " and may refuse its images" : "", n->major, n->minor, major,
      minor, n->major > major ? "" : ", or compile with --arch of this GPU");
}

static advice advise(const doctor_cuda *d, arena *a) {
  advice out = {0};
  for (int i = 0; !d->driver_problem && i < d->driver.described; i++) advise_device(d, i, &out, a);
  advise_versions(d, &out, a);
  return out;
}

/* ---- telling ---- */

static const char *version_text(const cuda_probe_facts *f, int unit, arena *a) {
  return f->version ? arena_printf(a, "%d.%d", f->version / unit, f->version % unit * 100 / unit) : NULL;
}
static const char *driver_version(const cuda_probe_facts *f, arena *a) {
  return arena_printf(a, "%d.%d", CUDA_MAJOR(f->version), CUDA_MINOR(f->version));
}

static void driver_json(json_out *j, const char *key, const cuda_probe_facts *f, const char *problem, arena *a) {
  json_open(j, key, '{');
  json_string(j, "library", problem ? NULL : f->path);
  json_string(j, "version", problem ? NULL : driver_version(f, a));
  json_open(j, "devices", '[');
  for (int i = 0; !problem && i < f->described; i++) {
    const cuda_device_facts *g = &f->device[i];
    json_open(j, NULL, '{');
    json_string(j, "name", g->name);
    json_string(j, "arch", arena_printf(a, "sm_%d%d", g->major, g->minor));
    json_whole(j, "memory_bytes", g->memory);
    json_whole(j, "multiprocessors", (uint64_t)g->multiprocessors);
    json_close(j, '}');
  }
  json_close(j, ']');
  json_string(j, "problem", problem);
  json_close(j, '}');
}

static void library_json(json_out *j, const char *key, const char *path, const char *version, const char *archs,
                         const char *problem) {
  json_open(j, key, '{');
  json_string(j, "library", problem ? NULL : path);
  json_string(j, "version", problem ? NULL : version);
  if (archs) {
    json_open(j, "archs", '[');
    for (const char *p = archs; !problem && *p; p += strcspn(p, ",") + (p[strcspn(p, ",")] == ','))
      json_bytes(j, NULL, p, strcspn(p, ","));
    json_close(j, ']');
  }
  json_string(j, "problem", problem);
  json_close(j, '}');
}

void doctor_cuda_json(const doctor_cuda *d, json_out *j, arena *a) {
  const advice said = advise(d, a);
  driver_json(j, "cuda", &d->driver, d->driver_problem, a);
  library_json(j, "nvrtc", d->nvrtc.path, arena_printf(a, "%d.%d", d->nvrtc.major, d->nvrtc.minor), d->nvrtc.archs,
               d->nvrtc_problem);
  library_json(j, "cublas", d->cublas.path, version_text(&d->cublas, 10000, a), NULL, d->cublas_problem);
  driver_json(j, "simulator", &d->sim, d->sim_problem, a);
  json_string(j, "cuda_runtime", d->runtime);
  json_open(j, "versions", '[');
  for (size_t i = 0; i < said.count; i++) json_string(j, NULL, said.lines[i]);
  json_close(j, ']');
  json_open(j, "devices", '[');
  json_string(j, NULL, "cpu");
  if (d->runtime && !d->sim_problem) json_string(j, NULL, "sim");
  for (int i = 0; d->runtime && !d->driver_problem && i < d->driver.devices; i++)
    json_string(j, NULL, arena_printf(a, "cuda:%d", i));
  json_close(j, ']');
}

static void row(text *out, const char *name, const char *value) { text_printf(out, "%-16s %s\n", name, value); }

void doctor_cuda_text(const doctor_cuda *d, text *out, arena *a) {
  const advice said = advise(d, a);
  const nvrtc_facts *n = &d->nvrtc;
  const char *version = version_text(&d->cublas, 10000, a), *devices = "cpu";
  row(out, "NVIDIA driver",
      d->driver_problem ? d->driver_problem
                        : arena_printf(a, "%s, CUDA %s", d->driver.path, driver_version(&d->driver, a)));
  for (int i = 0; !d->driver_problem && i < d->driver.described; i++) {
    const cuda_device_facts *g = &d->driver.device[i];
    row(out, arena_printf(a, "GPU %d", i),
        arena_printf(a, "%s, sm_%d%d, %d multiprocessors, %llu MiB", g->name, g->major, g->minor, g->multiprocessors,
                     (unsigned long long)(g->memory >> 20)));
  }
  row(out, "NVRTC",
      d->nvrtc_problem ? d->nvrtc_problem
                       : arena_printf(a, "%s, %d.%d, compiles for %s", n->path, n->major, n->minor,
                                      *n->archs ? n->archs : "what it does not tell"));
  row(out, "cuBLAS",
      d->cublas_problem ? d->cublas_problem
                        : arena_printf(a, "%s%s%s", d->cublas.path, version ? ", " : "", version ? version : ""));
  row(out, "simulator",
      d->sim_problem ? d->sim_problem
                     : arena_printf(a, "%s, as sm_%d%d", d->sim.path, d->sim.device[0].major, d->sim.device[0].minor));
  row(out, "CUDA runtime", d->runtime ? d->runtime : "libtaper-cuda.so is not beside taperc; install it there");
  for (size_t i = 0; i < said.count; i++) row(out, "versions", said.lines[i]);
  if (d->runtime && !d->sim_problem) devices = arena_printf(a, "%s, sim", devices);
  for (int i = 0; d->runtime && !d->driver_problem && i < d->driver.devices; i++)
    devices = arena_printf(a, "%s, cuda:%d", devices, i);
  row(out, "devices", devices);
}
