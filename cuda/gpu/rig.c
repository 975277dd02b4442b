#include "cuda/gpu/calibrate.h"
#include "cuda/nvrtc.h"
#include "runtime/base/file.h"
#include "runtime/base/text.h"
#include <stdlib.h>
#include <string.h>

enum { IMAGE_LIMIT = 1 << 24, PDL_IN_GRAPHS = 12030 };

static taper_status load_file(rig *r, const char *folder, const char *name, taper_error *error) {
  char path[1200], *image = NULL;
  size_t size;
  text_format(path, sizeof path, "%s/%s", folder, name);
  TAPER_TRY(file_read(path, IMAGE_LIMIT, &image, &size, error));
  taper_status status = cuda_module_load(&r->driver, image, name, &r->module, error);
  free(image);
  if (status == TAPER_OK) text_format(r->image, sizeof r->image, "%s", name);
  return status;
}

static taper_status compile_here(rig *r, const char *source_path, taper_error *error) {
  char arch[16], *source = NULL;
  size_t size;
  nvrtc_result result = {0};
  text_format(arch, sizeof arch, "%s_%d%d", r->driver.simulated ? "compute" : "sm", r->major, r->minor);
  TAPER_TRY(file_read(source_path, IMAGE_LIMIT, &source, &size, error));
  taper_status status =
      nvrtc_compile(&(nvrtc_request){.source = source, .name = "calibrate.cu", .arch = arch}, &result, error);
  if (status == TAPER_OK) status = cuda_module_load(&r->driver, result.image, arch, &r->module, error);
  if (status == TAPER_OK) text_format(r->image, sizeof r->image, "%s by NVRTC %d.%d", arch, result.major, result.minor);
  nvrtc_free(&result);
  free(source);
  return status;
}

/* Images that this device can run, best first. */
static taper_status load_best(rig *r, const char *folder, const char *source, taper_error *error) {
  static const int levels[] = {120, 110, 103, 100, 90, 89, 87, 86, 80};
  const int have = r->major * 10 + r->minor;
  taper_error last = {.status = TAPER_DEVICE};
  char name[32];
  for (int ptx = 0; ptx < 2; ptx++) {
    for (size_t i = 0; folder && i < sizeof levels / sizeof *levels; i++) {
      if (levels[i] > have || (!ptx && levels[i] / 10 != r->major)) continue;
      text_format(name, sizeof name, ptx ? "compute_%d.ptx" : "sm_%d.cubin", levels[i]);
      taper_error why = {0};
      if (load_file(r, folder, name, &why) == TAPER_OK) {
        r->pdl = levels[i] >= 90;
        return TAPER_OK;
      }
      if (why.status != TAPER_IO) last = why;
    }
  }
  if (source) {
    r->pdl = have >= 90;
    return compile_here(r, source, error);
  }
  if (last.message[0]) return TAPER_FAIL(error, TAPER_DEVICE, "%s", last.message);
  return TAPER_FAIL(error, TAPER_DEVICE, "%s: no image for sm_%d; give --source", folder ? folder : "--images", have);
}

static void read_facts(rig *r) {
  const struct {
    int attribute, *value;
  } facts[] = {{CU_ATTRIBUTE_MAJOR, &r->major},
               {CU_ATTRIBUTE_MINOR, &r->minor},
               {CU_ATTRIBUTE_MULTIPROCESSORS, &r->multiprocessors},
               {CU_ATTRIBUTE_CLOCK_KHZ, &r->clock_khz},
               {CU_ATTRIBUTE_MEMORY_CLOCK_KHZ, &r->memory_clock_khz},
               {CU_ATTRIBUTE_MEMORY_BUS_BITS, &r->memory_bus_bits},
               {CU_ATTRIBUTE_L2_BYTES, &r->l2_bytes}};
  for (size_t i = 0; i < sizeof facts / sizeof *facts; i++) {
    if (r->driver.cuDeviceGetAttribute(facts[i].value, facts[i].attribute, r->device) != CUDA_SUCCESS)
      *facts[i].value = 0;
  }
  if (r->driver.cuDeviceGetName(r->name, (int)sizeof r->name, r->device) != CUDA_SUCCESS) r->name[0] = '\0';
  if (r->driver.cuDriverGetVersion(&r->driver_version) != CUDA_SUCCESS) r->driver_version = 0;
}

taper_status rig_open(rig *r, bool simulated, int ordinal, const char *folder, const char *source, taper_error *error) {
  static const char *const names[] = {
#define K(name) #name,
      RIG_KERNELS(K)
#undef K
  };
  *r = (rig){0};
  TAPER_TRY(cuda_driver_open(NULL, simulated, &r->driver, error));
  RIG_TRY(r, cuDeviceGet, (&r->device, ordinal));
  read_facts(r);
  RIG_TRY(r, cuDevicePrimaryCtxRetain, (&r->context, r->device));
  RIG_TRY(r, cuCtxPushCurrent_v2, (r->context));
  RIG_TRY(r, cuStreamCreate, (&r->stream, CU_STREAM_NON_BLOCKING));
  RIG_TRY(r, cuEventCreate, (&r->begin, 0));
  RIG_TRY(r, cuEventCreate, (&r->end, 0));
  TAPER_TRY(load_best(r, folder, source, error));
  for (size_t i = 0; i < RIG_KERNEL_COUNT; i++) RIG_TRY(r, cuModuleGetFunction, (&r->kernels[i], r->module, names[i]));
  r->pdl = r->pdl && r->driver.cuLaunchKernelEx && r->driver_version >= PDL_IN_GRAPHS;
  r->blocks = simulated ? 5 : (uint32_t)r->multiprocessors;
  r->width = simulated ? 97 : 768;
  r->rounds = simulated ? 6 : 1000;
  return TAPER_OK;
}

void rig_close(rig *r) {
  cuda_driver *d = &r->driver;
  if (r->module) (void)d->cuModuleUnload(r->module);
  if (r->begin) (void)d->cuEventDestroy_v2(r->begin);
  if (r->end) (void)d->cuEventDestroy_v2(r->end);
  if (r->stream) (void)d->cuStreamDestroy_v2(r->stream);
  if (r->context) {
    CUcontext popped;
    (void)d->cuCtxPopCurrent_v2(&popped);
    (void)d->cuDevicePrimaryCtxRelease_v2(r->device);
  }
  cuda_driver_close(d);
  *r = (rig){0};
}

taper_status rig_launch(rig *r, int kernel, uint32_t grid, uint32_t threads, void **parameters, rig_edge edge,
                        taper_error *error) {
  if (edge == RIG_PLAIN) {
    RIG_TRY(r, cuLaunchKernel, (r->kernels[kernel], grid, 1, 1, threads, 1, 1, 0, r->stream, parameters, NULL));
    return TAPER_OK;
  }
  if (!r->driver.cuLaunchKernelEx)
    return TAPER_FAIL(error, TAPER_UNSUPPORTED, "the driver has no cuLaunchKernelEx (CUDA 11.8)");
  CUlaunchAttribute attribute = {.id = CU_LAUNCH_COOPERATIVE, .value.cooperative = 1};
  if (edge == RIG_PROGRAMMATIC)
    attribute = (CUlaunchAttribute){.id = CU_LAUNCH_PROGRAMMATIC_STREAM_SERIALIZATION,
                                    .value.programmatic_stream_serialization_allowed = 1};
  CUlaunchConfig config = {.grid_x = grid,
                           .grid_y = 1,
                           .grid_z = 1,
                           .block_x = threads,
                           .block_y = 1,
                           .block_z = 1,
                           .stream = r->stream,
                           .attributes = &attribute,
                           .attribute_count = 1};
  RIG_TRY(r, cuLaunchKernelEx, (&config, r->kernels[kernel], parameters, NULL));
  return TAPER_OK;
}

static taper_status build_one(const char *source, const char *folder, const char *arch, taper_error *error) {
  char path[1200];
  nvrtc_result result = {0};
  file_writer w = {0};
  bool ptx = strncmp(arch, "compute_", 8) == 0;
  taper_status status =
      nvrtc_compile(&(nvrtc_request){.source = source, .name = "calibrate.cu", .arch = arch}, &result, error);
  text_format(path, sizeof path, "%s/%s.%s", folder, arch, ptx ? "ptx" : "cubin");
  if (status == TAPER_OK) status = file_writer_open(path, &w, error);
  if (status == TAPER_OK) status = file_writer_put(&w, result.image, result.size, error);
  if (status == TAPER_OK) status = file_writer_commit(&w, error);
  file_writer_abort(&w);
  nvrtc_free(&result);
  return status;
}

taper_status rig_build(const char *source_path, const char *folder, const char *archs, taper_error *error) {
  char *source = NULL, arch[32];
  size_t size;
  TAPER_TRY(file_read(source_path, IMAGE_LIMIT, &source, &size, error));
  taper_status status = TAPER_OK;
  for (const char *p = archs; status == TAPER_OK && *p;) {
    size_t n = strcspn(p, ",");
    text_format(arch, sizeof arch, "%.*s", (int)n, p);
    status = build_one(source, folder, arch, error);
    p += n + (p[n] == ',');
  }
  free(source);
  return status;
}
