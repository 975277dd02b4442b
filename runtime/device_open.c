/* Which device, and where it comes from. */
#include "runtime/base/text.h"
#include "runtime/device.h"
#include <dlfcn.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PLUGIN_FILE "libtaper-cuda.so"

taper_status device_choose(const char *word, device_choice *out, taper_error *error) {
  uint64_t n = 0;
  *out = (device_choice){.simulated = strcmp(word, "sim") == 0};
  if (strcmp(word, "cpu") == 0) return out->ops = &device_cpu, TAPER_OK;
  if (out->simulated || strcmp(word, "cuda") == 0) return TAPER_OK;
  if (strncmp(word, "cuda:", 5) == 0 && number_parse_u64(word + 5, strlen(word + 5), &n) && n < INT32_MAX)
    return out->ordinal = (uint32_t)n, TAPER_OK;
  return TAPER_FAIL(error, TAPER_INVALID, "'%.40s' is not a device; give cpu, cuda, cuda:N or sim", word);
}

/* The folder of a file that is in this process, with "/"; false: none is known. */
static bool folder_of(const char *file, char out[PATH_MAX]) {
  const char *slash = file ? strrchr(file, '/') : NULL;
  if (!slash || slash - file + 2 > PATH_MAX) return false;
  memcpy(out, file, (size_t)(slash - file) + 1);
  out[slash - file + 1] = 0;
  return true;
}

/* In the folder of a file, in ../lib of it, or, where a build keeps its tests, two above. */
static void *open_near(const char *file) {
  static const char *const places[] = {"", "../lib/", "../../"};
  char folder[PATH_MAX], path[PATH_MAX + 32];
  if (!folder_of(file, folder)) return NULL;
  for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
    snprintf(path, sizeof(path), "%s%s" PLUGIN_FILE, folder, places[i]);
    void *library = access(path, F_OK) == 0 ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (library) return library;
  }
  return NULL;
}

/* Beside the library or program that holds this code, and where the system looks. It stays open: its code may be on the
   stack of another thread at any time. */
static void *open_library(void) {
  char program[PATH_MAX];
  Dl_info own;
  void *library = NULL;
  const ssize_t n = readlink("/proc/self/exe", program, sizeof(program) - 1);
  if (dladdr((void *)(uintptr_t)device_open, &own)) library = open_near(own.dli_fname);
  if (!library && n > 0) program[n] = 0, library = open_near(program);
  return library ? library : dlopen(PLUGIN_FILE, RTLD_NOW | RTLD_LOCAL);
}

static taper_status load_plugin(const char *word, const device_plugin **out, taper_error *error) {
  void *library = open_library();
  if (!library) {
    const char *why = dlerror();
    return TAPER_FAIL(error, TAPER_DEVICE,
                      "device '%s': " PLUGIN_FILE " cannot be opened (%s); install it beside libtaper or the program",
                      word, why ? why : "unknown");
  }
  const device_plugin *p = dlsym(library, DEVICE_PLUGIN_SYMBOL);
  if (!p || p->abi != DEVICE_PLUGIN_ABI || p->package_size != sizeof(package) ||
      p->options_size != sizeof(taper_model_options) || p->ops_size != sizeof(device_ops) ||
      strcmp(p->version, taper_version()) != 0)
    return TAPER_FAIL(error, TAPER_DEVICE,
                      "device '%s': " PLUGIN_FILE " is of another version than this libtaper (%s); install both of one",
                      word, taper_version());
  *out = p;
  return TAPER_OK;
}

taper_status device_open(const package *p, const taper_model_options *options, const taper_allocator *allocator,
                         device **out, taper_error *error) {
  device_choice choice;
  taper_model_options o = *options;
  const device_plugin *plugin = NULL;
  *out = NULL;
  if (!o.device || !*o.device) o.device = getenv("TAPER_DEVICE");
  if (!o.device || !*o.device) o.device = "cpu";
  TAPER_TRY(device_choose(o.device, &choice, error));
  if (o.gemm && strcmp(o.gemm, "cublas") != 0 && strcmp(o.gemm, "generated") != 0)
    return TAPER_FAIL(error, TAPER_INVALID, "option 'gemm' is '%.40s'; give cublas or generated", o.gemm);
  if (choice.ops) return choice.ops->open(p, &o, allocator, out, error);
  if (p->target != PACKAGE_CUDA)
    return TAPER_FAIL(error, TAPER_UNSUPPORTED,
                      "%s: compiled for the target '%s', which the device '%.40s' does not run; compile with --target "
                      "cuda, or choose the device cpu",
                      p->path, package_target_name(p->target), o.device);
  TAPER_TRY(load_plugin(o.device, &plugin, error));
  const device_ops *ops = choice.simulated ? plugin->sim : plugin->cuda;
  return ops->open(p, &o, allocator, out, error);
}

float device_scale_of(const float *x, const float *inverse, uint32_t n, bool centred) {
  double mean = 0, square = 0;
  for (uint32_t i = 0; centred && i < n; i++) mean += (double)(inverse ? x[i] * inverse[i] : x[i]);
  mean /= n;
  for (uint32_t i = 0; i < n; i++) {
    const double v = (double)(inverse ? x[i] * inverse[i] : x[i]) - mean;
    square += v * v;
  }
  return (float)sqrt(square / n);
}

bool device_is_finite(const float *v, uint64_t n) {
  uint32_t bad = 0;
  for (uint64_t i = 0; i < n; i++) {
    uint32_t bits;
    memcpy(&bits, v + i, sizeof(bits));
    bad |= (bits & 0x7f800000u) == 0x7f800000u;
  }
  return !bad;
}
