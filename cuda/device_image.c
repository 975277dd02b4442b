/* Which image of the package runs on this GPU: its own cubin, one of the same generation, else PTX that the driver compiles. What
   was done is said; why nothing fits is said in words (GPU newer than the images, PTX newer than the driver). */
#include "cuda/device_priv.h"
#include "runtime/base/text.h"
#include <stdio.h>
#include <string.h>

enum { LEAST_CAPABILITY = 80 };

typedef struct candidate {
  const package_image *image;
  bool ptx;
  int number; /* 90 of sm_90, compute_90, sm_90a */
  bool exact; /* letters follow: for this GPU alone */
} candidate;

static bool read_name(const package_image *image, candidate *out) {
  const char *s = image->name;
  uint64_t n;
  *out = (candidate){.image = image, .ptx = strncmp(s, "compute_", 8) == 0};
  if (!out->ptx && strncmp(s, "sm_", 3) != 0) return false;
  s += out->ptx ? 8 : 3;
  const size_t digits = strspn(s, "0123456789"), letters = strspn(s + digits, "af");
  out->exact = letters > 0;
  if (s[digits + letters] || letters > 1 || !number_parse_u64(s, digits, &n) || n < 50 || n > 999) return false;
  out->number = (int)n;
  return true;
}

/* How well an image fits the GPU; 0: not at all. The simulator executes PTX only. */
static int rank_of(const cuda_device *d, const candidate *c) {
  const int capability = d->capability;
  if (!c->ptx && d->driver.simulated) return 0;
  if (c->number > capability || (c->exact && c->number != capability)) return 0;
  if (c->ptx) return 1000 + c->number;
  if (c->number == capability) return 4000 + c->exact;
  return c->number / 10 == capability / 10 ? 3000 + c->number : 0;
}

/* Loads one image: the driver's own words are in the error. */
static taper_status load(cuda_device *d, const candidate *c, taper_error *error) {
  const char *image = c->image->object->data;
  if (c->ptx && image[c->image->object->bytes - 1] != 0)
    return TAPER_FAIL(error, TAPER_INVALID, "image %s: its text has no end; the package is damaged, compile it again",
                      c->image->name);
  taper_status status = cuda_module_load(&d->driver, image, c->image->name, &d->module, error);
  if (status == TAPER_OK) memcpy(d->base.facts.image, c->image->name, sizeof(d->base.facts.image));
  if (status != TAPER_UNSUPPORTED || !c->ptx) return status;
  taper_error said = *error;
  return TAPER_FAIL(error, status, "%s (%.20s made it, the driver is for CUDA %d.%d)", said.message, c->image->features,
                    CUDA_MAJOR(d->driver.version), CUDA_MINOR(d->driver.version));
}

static void say(const taper_model_options *o, taper_log_level level, const char *line) {
  if (o->log) o->log(o->log_user, level, line);
}

/* status: of the last that was tried */
static taper_status nothing_fits(const cuda_device *d, const package *p, taper_status status, const char *tried,
                                 taper_error *error) {
  const char *list = st_metadata(&p->file, "taper.arch");
  if (tried[0])
    return TAPER_FAIL(error, status == TAPER_DEVICE ? TAPER_DEVICE : TAPER_UNSUPPORTED, "%s: no image runs on %s: %s",
                      p->path, d->gpu.name, tried);
  if (d->capability < LEAST_CAPABILITY)
    return TAPER_FAIL(error, TAPER_UNSUPPORTED,
                      "%s: %s is a GPU of sm_%d, kernels need sm_%d or newer; name another GPU (--device=cuda:N), or "
                      "compile the model for the CPU",
                      p->path, d->gpu.name, d->capability, LEAST_CAPABILITY);
  if (d->driver.simulated)
    return TAPER_FAIL(error, TAPER_UNSUPPORTED,
                      "%s: no image for %s, a GPU of sm_%d that executes PTX only: the package has %.200s; compile it "
                      "with --arch compute_%d or lower",
                      p->path, d->gpu.name, d->capability, list ? list : "none", d->capability);
  return TAPER_FAIL(
      error, TAPER_UNSUPPORTED,
      "%s: no image for %s, a GPU of sm_%d: the package has %.200s; compile it with --arch sm_%d, or with "
      "PTX for compute_%d or lower if NVRTC does not know that GPU",
      p->path, d->gpu.name, d->capability, list ? list : "none", d->capability, d->capability);
}

static taper_status load_named(cuda_device *d, const package *p, const char *name, candidate *out, taper_error *error) {
  const char *list = st_metadata(&p->file, "taper.arch");
  for (uint32_t i = 0; i < p->image_count; i++) {
    if (p->images[i].use != PACKAGE_DECODE || strcmp(p->images[i].name, name) != 0) continue;
    taper_status status = read_name(&p->images[i], out) ? load(d, out, error)
                                                        : TAPER_FAIL(error, TAPER_INVALID, "it is no image of CUDA");
    return status == TAPER_OK ? status : taper_add_context(error, status, "%s: image '%s'", p->path, name);
  }
  return TAPER_FAIL(error, TAPER_INVALID, "%s: there is no image '%.40s'; the package has %.200s", p->path, name,
                    list ? list : "none");
}

/* The image that fits best of those whose rank is below a bound, and its rank; 0: none. */
static int best_below(const cuda_device *d, const package *p, int bound, candidate *best) {
  candidate c;
  int rank = 0;
  for (uint32_t i = 0; i < p->image_count; i++) {
    if (p->images[i].use != PACKAGE_DECODE || !read_name(&p->images[i], &c)) continue;
    const int r = rank_of(d, &c);
    if (r > rank && r < bound) *best = c, rank = r;
  }
  return rank;
}

/* The best first; what fails is said, and the next one tried. */
static taper_status load_best(cuda_device *d, const package *p, const taper_model_options *o, candidate *out,
                              taper_error *error) {
  char tried[2000] = "", line[2100];
  size_t used = 0;
  taper_error why = {0};
  taper_status status = TAPER_OK;
  for (int bound = INT32_MAX;;) {
    candidate best = {0};
    const int rank = best_below(d, p, bound, &best);
    if (!rank) return nothing_fits(d, p, status, tried, error);
    bound = rank;
    status = load(d, &best, &why);
    if (status == TAPER_NOMEM) return TAPER_FAIL(error, status, "%s: %s", p->path, why.message);
    if (status == TAPER_OK) {
      *out = best;
      if (tried[0]) {
        snprintf(line, sizeof(line), "image '%s' is used, since %s", best.image->name, tried);
        say(o, TAPER_LOG_WARNING, line);
      }
      return TAPER_OK;
    }
    const int n = snprintf(tried + used, sizeof(tried) - used, "%s%s", used ? "; " : "", why.message);
    used = n < 0 || (size_t)n >= sizeof(tried) - used ? sizeof(tried) - 1 : used + (size_t)n;
  }
}

static taper_status find_kernels(cuda_device *d, const package *p, const candidate *c, taper_error *error) {
  const launch_table *t = &d->table;
  d->function = memory_zalloc(&d->allocator, (size_t)t->kernels.count + 1, sizeof(CUfunction));
  if (!d->function) return memory_exhausted(error, "the list of kernels", t->kernels.count * sizeof(CUfunction));
  for (uint32_t i = 0; i < t->kernels.count; i++) {
    const launch_kernel *k = &t->kernels.at[i];
    const CUresult found = d->driver.cuModuleGetFunction(&d->function[i], d->module, k->name);
    if (found == CUDA_ERROR_NOT_FOUND)
      return TAPER_FAIL(error, TAPER_INVALID,
                        "%s: image '%s' has no kernel '%.80s'; the package is damaged, compile it again", p->path,
                        c->image->name, k->name);
    taper_status status = cuda_driver_check(&d->driver, found, "cuModuleGetFunction", error);
    if (status == TAPER_OK && k->shared > 48u << 10)
      status = cuda_driver_check(
          &d->driver, d->driver.cuFuncSetAttribute(d->function[i], CU_FUNC_MAX_DYNAMIC_SHARED, (int)k->shared),
          "cuFuncSetAttribute", error);
    if (status != TAPER_OK)
      return taper_add_context(error, status, "%s: image '%s': kernel '%.80s'", p->path, c->image->name, k->name);
  }
  return TAPER_OK;
}

taper_status cuda_load_image(cuda_device *d, const package *p, const taper_model_options *o, taper_error *error) {
  char line[300];
  candidate c = {0};
  TAPER_TRY(o->image ? load_named(d, p, o->image, &c, error) : load_best(d, p, o, &c, error));
  /* the wait of programmatic launches is in images for sm_90 and newer; as edges of graphs they came with driver 12.3 */
  d->pdl = d->table.pdl && c.number >= 90 && d->driver.cuLaunchKernelEx && d->driver.version >= 12000;
  d->graph_pdl = d->pdl && d->driver.version >= 12030;
  snprintf(line, sizeof(line), "%.127s (sm_%d), driver for CUDA %d.%d: image %s%s%s", d->gpu.name, d->capability,
           CUDA_MAJOR(d->driver.version), CUDA_MINOR(d->driver.version), c.image->name,
           c.ptx ? ", compiled by the driver" : "", d->pdl ? ", programmatic launches" : "");
  say(o, TAPER_LOG_INFO, line);
  return find_kernels(d, p, &c, error);
}
