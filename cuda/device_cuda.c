/* The CUDA devices: opening and closing, turns, faults. */
#include "cuda/device_priv.h"
#include "cuda/sim/control.h"
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

enum { CHUNK_ROWS = 256, SIM_CHUNK_ROWS = 64, MAX_CHUNK = 4096 };

/* ---- turns and faults ---- */

taper_status cuda_enter(cuda_device *d, taper_error *error) {
  pool_lock(d->turns);
  taper_status status = d->broken.status;
  if (status != TAPER_OK)
    status = TAPER_FAIL(error, status, "%s", d->broken.message);
  else
    status = cuda_driver_check(&d->driver, d->driver.cuCtxPushCurrent_v2(d->context), "cuCtxPushCurrent_v2", error);
  if (status != TAPER_OK) pool_unlock(d->turns);
  return status;
}

void cuda_leave(cuda_device *d) {
  CUcontext context;
  (void)d->driver.cuCtxPopCurrent_v2(&context);
  pool_unlock(d->turns);
}

/* A control function of the simulator; NULL: this is a real driver. */
static void *control(const cuda_device *d, const char *name) {
  return d->driver.simulated ? dlsym(d->driver.library, name) : NULL;
}

taper_status cuda_failed(cuda_device *d, taper_status status, taper_error *error) {
  const char *(*fault)(void);
  void *symbol = control(d, "taper_sim_fault");
  memcpy(&fault, &symbol, sizeof(fault));
  const CUresult after = d->driver.cuCtxSynchronize();
  if (status != TAPER_DEVICE) return status;
  if (symbol && fault()[0]) {
    taper_error said = error ? *error : (taper_error){0};
    status = TAPER_FAIL(error, TAPER_DEVICE, "%.300s: %.600s", error ? said.message : "", fault());
  }
  if (after == CUDA_SUCCESS) {
    /* the driver goes on; what the merge of attention counted may be anything */
    if (d->counters) (void)d->driver.cuMemsetD8Async(d->counters, 0, d->counter_bytes, d->stream);
    return status;
  }
  (void)TAPER_FAIL(&d->broken, TAPER_DEVICE,
                   "the device failed before; free the model and open it again, in a new process if that fails: %.700s",
                   error ? error->message : "unknown");
  return status;
}

taper_status cuda_begin_call(cuda_device *d, taper_error *error) {
  CUresult (*forget)(CUdeviceptr, size_t, CUstream);
  void *symbol = control(d, "taper_sim_forget");
  memcpy(&forget, &symbol, sizeof(forget));
  for (uint32_t i = 0; symbol && i < d->passing_count; i++)
    TAPER_TRY(cuda_driver_check(&d->driver, forget(d->passing[i].at, d->passing[i].bytes, d->stream),
                                "taper_sim_forget", error));
  return TAPER_OK;
}

static uint32_t read_traffic(device *base, device_traffic *out, uint32_t most) {
  cuda_device *d = (cuda_device *)base;
  enum { KERNELS = 64 };
  unsigned (*read)(taper_sim_counters *, unsigned);
  void (*constants)(sim_usage *);
  void (*reset)(void);
  void *read_symbol = control(d, "taper_sim_counters_read"), *reset_symbol = control(d, "taper_sim_counters_reset"),
       *constants_symbol = control(d, "taper_sim_constants");
  if (!read_symbol || !reset_symbol || !constants_symbol || most == 0) return 0;
  memcpy(&read, &read_symbol, sizeof(read));
  memcpy(&reset, &reset_symbol, sizeof(reset));
  memcpy(&constants, &constants_symbol, sizeof(constants));
  taper_sim_counters all[KERNELS] = {0};
  sim_usage weights = {0};
  unsigned count = read(all, KERNELS);
  constants(&weights);
  reset();
  if (count > KERNELS) count = KERNELS;
  for (unsigned i = 0; i < count && i < most; i++) {
    const sim_counters *c = &all[i].count;
    out[i] = (device_traffic){.launches = c->launches,
                              .blocks = c->blocks,
                              .instructions = c->warp_instructions,
                              .bytes = c->global.read_bytes,
                              .sectors = c->global.read_sectors};
    snprintf(out[i].kernel, sizeof(out[i].kernel), "%.63s", all[i].kernel);
  }
  out[0].weight_bytes = weights.read_bytes, out[0].weight_sectors = weights.read_sectors;
  return count < most ? count : most;
}

/* ---- open and close ---- */

static void close_driver(cuda_device *d) {
  CUcontext context;
  if (d->has_context && d->driver.cuCtxPushCurrent_v2(d->context) == CUDA_SUCCESS) {
    cuda_close_gemm(d);
    cuda_free_memory(d);
    if (d->module) (void)d->driver.cuModuleUnload(d->module);
    if (d->stream) (void)d->driver.cuStreamDestroy_v2(d->stream);
    (void)d->driver.cuCtxPopCurrent_v2(&context);
  }
  if (d->has_context) (void)d->driver.cuDevicePrimaryCtxRelease_v2(d->gpu.device);
  /* a real driver stays loaded: threads of its own may still be in its code */
  if (d->has_driver && d->driver.simulated) cuda_driver_close(&d->driver);
}

static void cuda_close(device *base) {
  cuda_device *d = (cuda_device *)base;
  if (!d) return;
  taper_allocator a = d->allocator;
  close_driver(d);
  for (uint32_t i = 0; d->inv_scale && i < d->table.probes.count; i++) memory_free(&a, d->inv_scale[i]);
  void *const blocks[] = {d->function, d->blocks, d->weight, d->rotary, d->inv_scale, d->host_row, d->stream_rows};
  for (size_t i = 0; i < sizeof(blocks) / sizeof(blocks[0]); i++) memory_free(&a, blocks[i]);
  launch_free(&d->table);
  pool_free(d->turns);
  memory_free(&a, d);
}

static taper_status verify(const package *p, const taper_model_options *o, const taper_allocator *a,
                           taper_error *error) {
  pool *workers;
  pool_options options = {o->threads, o->spin_us, o->cpus, o->cpu_count};
  TAPER_TRY(pool_new(&options, a, &workers, error));
  pool_lock(workers);
  taper_status status = package_verify(p, workers, error);
  pool_unlock(workers);
  pool_free(workers);
  return status;
}

static void set_facts(cuda_device *d, const package *p, uint32_t row_cap) {
  const launch_table *t = &d->table;
  device_facts *f = &d->base.facts;
  const uint64_t most = (uint64_t)t->context * t->max_batch;
  f->vocab = t->vocab, f->context = t->context, f->width = t->width, f->max_batch = t->max_batch;
  f->row_cap = most < row_cap ? (uint32_t)most : row_cap;
  f->probes = t->probes.count;
  f->threads = 1;
  for (uint32_t i = t->probes.count; i-- > 0;)
    if (t->probes.at[i].stage == LAUNCH_NONE)
      snprintf(f->lost_probe, sizeof(f->lost_probe), "%s", t->probes.at[i].name);
  const uint32_t last = t->probes.count ? t->probes.at[t->probes.count - 1].stage : LAUNCH_NONE;
  if (last != LAUNCH_NONE && !t->stages.at[last].probes)
    f->scale_median = p->scale_median, f->scale_high = p->scale_high, d->scale_std = p->scale_std;
  f->decodes = t->sample.is && (t->sample.has_scale || f->scale_median <= 0);
}

/* Everything that needs the context to be current. */
static taper_status set_up(cuda_device *d, const package *p, const taper_model_options *o, taper_error *error) {
  CUDA_TRY(d, error, cuStreamCreate, &d->stream, CU_STREAM_NON_BLOCKING);
  TAPER_TRY(cuda_load_image(d, p, o, error));
  TAPER_TRY(cuda_load_weights(d, p, error));
  TAPER_TRY(cuda_make_room(d, error));
  return cuda_open_gemm(d, o, error);
}

static taper_status start(cuda_device *d, const package *p, const taper_model_options *o, const device_choice *choice,
                          taper_error *error) {
  const pool_options alone = {.threads = 1};
  CUcontext context;
  TAPER_TRY(pool_new(&alone, &d->allocator, &d->turns, error));
  TAPER_TRY(verify(p, o, &d->allocator, error));
  TAPER_TRY(launch_read(p, &d->allocator, &d->table, error));
  const uint32_t otherwise = choice->simulated ? SIM_CHUNK_ROWS : CHUNK_ROWS;
  set_facts(d, p, o->chunk_rows ? o->chunk_rows : otherwise);
  d->has_driver = true; /* closing is legal after a failure */
  TAPER_TRY(cuda_driver_open(NULL, choice->simulated, &d->driver, error));
  CUDA_TRY(d, error, cuDriverGetVersion, &d->driver.version); /* the simulator knows it once it is begun */
  TAPER_TRY(cuda_device_describe(&d->driver, (int)choice->ordinal, &d->gpu, error));
  d->capability = d->gpu.major * 10 + d->gpu.minor;
  CUDA_TRY(d, error, cuDevicePrimaryCtxRetain, &d->context, d->gpu.device);
  d->has_context = true;
  CUDA_TRY(d, error, cuCtxPushCurrent_v2, d->context);
  taper_status status = set_up(d, p, o, error);
  if (status != TAPER_OK) status = cuda_failed(d, status, error);
  (void)d->driver.cuCtxPopCurrent_v2(&context);
  return status;
}

static taper_status cuda_open(const package *p, const taper_model_options *o, const taper_allocator *allocator,
                              device **out, taper_error *error) {
  device_choice choice;
  taper_error own = {0};
  *out = NULL;
  TAPER_TRY(device_choose(o->device, &choice, error));
  if (o->chunk_rows > MAX_CHUNK)
    return TAPER_FAIL(error, TAPER_INVALID, "option 'chunk_rows' is %u; at most %d", o->chunk_rows, MAX_CHUNK);
  cuda_device *d = memory_zalloc(allocator, 1, sizeof(*d));
  if (!d) return memory_exhausted(error, "the device", sizeof(*d));
  d->base.ops = choice.simulated ? &device_sim : &device_cuda;
  d->allocator = *allocator;
  d->graphs = !o->no_graph;
  const taper_status status = start(d, p, o, &choice, &own);
  if (status != TAPER_OK) return cuda_close(&d->base), TAPER_FAIL(error, status, "%s", own.message);
  *out = &d->base;
  return TAPER_OK;
}

#define OPS(word, traffic_of)                                                                                          \
  {                                                                                                                    \
    .name = word, .open = cuda_open, .close = cuda_close, .state_new = cuda_state_new, .state_free = cuda_state_free,  \
    .state_copy = cuda_state_copy, .state_scrub = cuda_state_scrub, .run = cuda_run, .decode = cuda_decode,            \
    .traffic = traffic_of                                                                                              \
  }
const device_ops device_cuda = OPS("cuda", NULL);
const device_ops device_sim = OPS("sim", read_traffic);

extern const device_plugin taper_cuda_device;
TAPER_API const device_plugin taper_cuda_device = {.abi = DEVICE_PLUGIN_ABI,
                                                   .package_size = sizeof(package),
                                                   .options_size = sizeof(taper_model_options),
                                                   .ops_size = sizeof(device_ops),
                                                   .version = TAPER_VERSION_TEXT,
                                                   .cuda = &device_cuda,
                                                   .sim = &device_sim};
