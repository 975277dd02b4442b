/* One call of the model: rows to the device, the stages in order, logits and probed rows back. */
#include "cuda/device_priv.h"
#include <math.h>
#include <string.h>

/* ---- launches ---- */

static CUresult launch(const cuda_launch *l, CUfunction f, const unsigned grid[3], const launch_kernel *k,
                       unsigned threads, void **parameters) {
  const cuda_device *d = l->d;
  if (!(l->in_graph ? d->graph_pdl : d->pdl) || !l->follows_kernel)
    return d->driver.cuLaunchKernel(f, grid[0], grid[1], grid[2], threads, 1, 1, k->shared, d->stream, parameters,
                                    NULL);
  CUlaunchAttribute attribute = {.id = CU_LAUNCH_PROGRAMMATIC_STREAM_SERIALIZATION,
                                 .value = {.programmatic_stream_serialization_allowed = 1}};
  const CUlaunchConfig config = {.grid_x = grid[0],
                                 .grid_y = grid[1],
                                 .grid_z = grid[2],
                                 .block_x = threads,
                                 .block_y = 1,
                                 .block_z = 1,
                                 .shared = k->shared,
                                 .stream = d->stream,
                                 .attributes = &attribute,
                                 .attribute_count = 1};
  return d->driver.cuLaunchKernelEx(&config, f, parameters, NULL);
}

taper_status cuda_launch_kernel(cuda_launch *l, uint32_t kernel, const unsigned grid[3], unsigned threads,
                                const uint64_t *slots, const char *stage, taper_error *error) {
  cuda_device *d = l->d;
  const launch_kernel *k = &d->table.kernels.at[kernel];
  void *parameters[] = {&l->call, (void *)(uintptr_t)slots};
  if (grid[0] == 0 || grid[1] == 0 || grid[2] == 0) return TAPER_OK;
  const CUresult result = launch(l, d->function[kernel], grid, k, threads, parameters);
  l->follows_kernel = true;
  if (result == CUDA_SUCCESS) return TAPER_OK;
  return taper_add_context(error, cuda_driver_check(&d->driver, result, "cuLaunchKernel", error),
                           "stage '%.80s': kernel '%.80s', grid %u x %u x %u of %u threads", stage, k->name, grid[0],
                           grid[1], grid[2], threads);
}

static unsigned extent(const cuda_launch *l, launch_dim dim) {
  const unsigned groups = TAPER_CUDA_ROWS;
  const unsigned extents[] = {[LAUNCH_NUMBER] = dim.n,
                              [LAUNCH_ROWS] = l->call.rows,
                              [LAUNCH_OUT_ROWS] = l->call.out_rows,
                              [LAUNCH_ROW_GROUPS] = (l->call.rows + groups - 1) / groups,
                              [LAUNCH_OUT_ROW_GROUPS] = (l->call.out_rows + groups - 1) / groups,
                              [LAUNCH_SPLITS] = l->call.splits};
  return extents[dim.what];
}

taper_status cuda_launch_call(cuda_launch *l, const launch_call *c, const char *stage, taper_error *error) {
  uint64_t slots[LAUNCH_MAX_ARGS + 1] = {0};
  unsigned grid[3];
  for (int i = 0; i < 3; i++) grid[i] = extent(l, c->grid[i]);
  for (uint32_t i = 0; i < c->args.count; i++) {
    const launch_slot s = c->args.at[i];
    slots[i] = s.kind == 'w'   ? l->d->weight[s.value]
               : s.kind == 's' ? l->s->state[s.value]
               : s.kind == 't' ? l->d->rotary[s.value]
                               : s.value;
  }
  return cuda_launch_kernel(l, c->kernel, grid, l->d->table.kernels.at[c->kernel].threads, slots, stage, error);
}

taper_status cuda_launch_stage(cuda_launch *l, const launch_stage *s, taper_error *error) {
  return cuda_is_wide(l, s) ? cuda_launch_wide(l, s, error) : cuda_launch_call(l, &s->call, s->name, error);
}

/* ---- rows in and out ---- */

static taper_status send_rows(cuda_launch *l, const device_batch *b, taper_error *error) {
  cuda_device *d = l->d;
  const size_t n = b->rows;
  int32_t *host = d->host_io;
  memcpy(host, b->token, n * sizeof(*host));
  memcpy(host + n, b->pos, n * sizeof(*host));
  memcpy(host + 2 * n, b->slot, n * sizeof(*host));
  if (b->out_rows) memcpy(host + 3 * n, b->out_row, b->out_rows * sizeof(*host));
  CUDA_TRY(d, error, cuMemcpyHtoDAsync_v2, d->io, host, (3 * n + b->out_rows) * sizeof(*host), d->stream);
  const int32_t *at = (const int32_t *)(uintptr_t)d->io;
  l->call = (taper_cuda_call){.token = at,
                              .pos = at + n,
                              .slot = at + 2 * n,
                              .out_row = at + 3 * n,
                              .arena = (float *)(uintptr_t)d->arena,
                              .scratch = (float *)(uintptr_t)d->scratch,
                              .counters = (uint32_t *)(uintptr_t)d->counters,
                              .rows = b->rows,
                              .out_rows = b->out_rows,
                              .row_cap = d->base.facts.row_cap,
                              .context = l->s->context,
                              .splits = l->s->splits};
  return TAPER_OK;
}

/* Later stages add to the stream in place, so a probed value is copied before the next stage begins. */
static taper_status copy_rows(cuda_launch *l, uint64_t buffer, float *to, taper_error *error) {
  cuda_device *d = l->d;
  const CUdeviceptr from = d->arena + buffer * d->base.facts.row_cap * sizeof(float);
  l->follows_kernel = false;
  CUDA_TRY(d, error, cuMemcpyDtoHAsync_v2, to, from, (size_t)l->call.rows * d->table.width * sizeof(float), d->stream);
  return TAPER_OK;
}

static taper_status after_stage(cuda_launch *l, uint32_t stage, const device_batch *b, taper_error *error) {
  const launch_table *t = &l->d->table;
  const size_t floats = (size_t)b->rows * t->width;
  for (uint32_t i = 0; b->probe_rows && i < t->probes.count; i++) {
    if (t->probes.at[i].stage == stage)
      TAPER_TRY(copy_rows(l, t->probes.at[i].buffer, b->probe_rows + i * floats, error));
  }
  if (!b->scales) return TAPER_OK;
  const launch_probe *last = &t->probes.at[t->probes.count - 1];
  return last->stage == stage ? copy_rows(l, last->buffer, l->d->stream_rows, error) : TAPER_OK;
}

static taper_status run_stages(cuda_launch *l, const device_batch *b, taper_error *error) {
  const launch_table *t = &l->d->table;
  for (uint32_t i = 0; i < t->stages.count; i++) {
    if (t->stages.at[i].probes && !b->probe_rows) continue;
    TAPER_TRY(cuda_launch_stage(l, &t->stages.at[i], error));
    TAPER_TRY(after_stage(l, i, b, error));
  }
  return TAPER_OK;
}

/* Rows j, j + 1, ... whose places follow each other are one copy. */
static taper_status take_logits(const cuda_launch *l, const device_batch *b, taper_error *error) {
  cuda_device *d = l->d;
  const size_t vocab = d->table.vocab;
  const CUdeviceptr from = d->arena + d->table.logits * d->base.facts.row_cap * sizeof(float);
  for (uint32_t j = 0, n; j < b->out_rows; j += n) {
    for (n = 1; b->logits[j] && j + n < b->out_rows && b->logits[j + n] == b->logits[j] + n * vocab;) n++;
    if (b->logits[j])
      CUDA_TRY(d, error, cuMemcpyDtoHAsync_v2, b->logits[j], from + j * vocab * sizeof(float),
               n * vocab * sizeof(float), d->stream);
  }
  CUDA_TRY(d, error, cuStreamSynchronize, d->stream);
  return TAPER_OK;
}

/* The first logit that is not finite, in order of rows and ids. Rows that nobody wants are fetched to be checked. */
static taper_status check_logits(const cuda_launch *l, device_batch *b, taper_error *error) {
  cuda_device *d = l->d;
  const uint32_t vocab = d->table.vocab;
  const CUdeviceptr from = d->arena + d->table.logits * d->base.facts.row_cap * sizeof(float);
  for (uint32_t j = 0; j < b->out_rows; j++) {
    const float *row = b->logits[j];
    if (!row) {
      CUDA_TRY(d, error, cuMemcpyDtoHAsync_v2, d->host_row, from + (size_t)j * vocab * sizeof(float),
               vocab * sizeof(float), d->stream);
      CUDA_TRY(d, error, cuStreamSynchronize, d->stream);
      row = d->host_row;
    }
    if (device_is_finite(row, vocab)) continue;
    b->bad_row = j, b->bad_id = 0;
    while (isfinite(row[b->bad_id])) b->bad_id++;
    return TAPER_FAIL(error, TAPER_NUMERIC,
                      "the logit of id %u is not a finite number; check the weights for NaN and for values beyond f32",
                      b->bad_id);
  }
  return TAPER_OK;
}

static void finish_rows(const cuda_device *d, const device_batch *b) {
  const launch_table *t = &d->table;
  const uint64_t rows = b->rows, width = t->width;
  for (uint32_t i = 0; b->probe_rows && i < t->probes.count; i++) {
    const float *inverse = d->inv_scale[i];
    float *at = b->probe_rows + i * rows * width;
    for (uint64_t k = 0; inverse && k < rows * width; k++) at[k] *= inverse[k % width];
  }
  for (uint32_t r = 0; b->scales && r < rows; r++)
    b->scales[r] =
        device_scale_of(d->stream_rows + r * width, d->inv_scale[t->probes.count - 1], t->width, d->scale_std);
}

static taper_status run_batch(cuda_launch *l, device_batch *b, taper_error *error) {
  TAPER_TRY(cuda_begin_call(l->d, error));
  TAPER_TRY(send_rows(l, b, error));
  TAPER_TRY(run_stages(l, b, error));
  TAPER_TRY(take_logits(l, b, error));
  finish_rows(l->d, b);
  return check_logits(l, b, error);
}

taper_status cuda_run(device *base, device_state *s, device_batch *batch, taper_error *error) {
  cuda_device *d = (cuda_device *)base;
  taper_error own = {0};
  cuda_launch l = {.d = d, .s = s};
  TAPER_TRY(cuda_enter(d, error));
  taper_status status = run_batch(&l, batch, &own);
  if (status != TAPER_OK && status != TAPER_NUMERIC) status = cuda_failed(d, status, &own);
  cuda_leave(d);
  return status == TAPER_OK ? TAPER_OK : TAPER_FAIL(error, status, "%s", own.message);
}
