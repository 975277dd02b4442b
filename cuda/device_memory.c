/* What lies in the memory of the device: weights, tables, buffers of a batch, states. */
#include "cuda/device_priv.h"
#include "runtime/base/checked.h"
#include <math.h>
#include <string.h>

enum { STAGING_BYTES = 4 << 20, SPLIT_POSITIONS = 64, MAX_SPLITS = 64 };

taper_status cuda_alloc(cuda_device *d, uint64_t bytes, const char *what, CUdeviceptr *out, taper_error *error) {
  size_t available = 0, total = 0;
  *out = 0;
  if (d->block_count == d->block_cap) {
    const uint32_t cap = d->block_cap ? d->block_cap * 2 : 64;
    CUdeviceptr *grown = memory_zalloc(&d->allocator, cap, sizeof(*grown));
    if (!grown) return memory_exhausted(error, "the list of blocks", cap * sizeof(*grown));
    if (d->block_count) memcpy(grown, d->blocks, d->block_count * sizeof(*grown));
    memory_free(&d->allocator, d->blocks);
    d->blocks = grown, d->block_cap = cap;
  }
  const CUresult result =
      bytes > INT64_MAX ? CUDA_ERROR_OUT_OF_MEMORY : d->driver.cuMemAlloc_v2(out, bytes ? bytes : 16);
  if (result == CUDA_SUCCESS) return d->blocks[d->block_count++] = *out, TAPER_OK;
  if (result != CUDA_ERROR_OUT_OF_MEMORY) return cuda_driver_check(&d->driver, result, "cuMemAlloc_v2", error);
  (void)d->driver.cuMemGetInfo_v2(&available, &total);
  return TAPER_FAIL(error, TAPER_NOMEM,
                    "no memory on %s for %s (%llu bytes; %zu of its %zu are free); free some, or give a smaller "
                    "context or batch",
                    d->gpu.name, what, (unsigned long long)bytes, available, total);
}

/* Forgets the last block of cuda_alloc's; the device owns it no more. */
static void disown(cuda_device *d, CUdeviceptr block) {
  for (uint32_t i = d->block_count; i-- > 0;) {
    if (d->blocks[i] != block) continue;
    d->blocks[i] = d->blocks[--d->block_count];
    return;
  }
}

static uint64_t weight_bytes(const launch_weight *w) { return (uint64_t)w->rows * w->pitch * st_dtype_size(w->dtype); }

/* ---- weights ---- */

/* Copies rows of a tensor to the device, each padded with zeros to the pitch, through a pinned buffer. */
static taper_status upload(cuda_device *d, const package *p, const launch_weight *w, CUdeviceptr to, char *staging,
                           taper_error *error) {
  const st_tensor *t = st_find(&p->file, w->tensor);
  const uint64_t size = st_dtype_size(w->dtype), from_bytes = w->cols * size, to_bytes = w->pitch * size;
  const uint64_t chunk = STAGING_BYTES / to_bytes;
  const uint64_t begin = w->row0 * from_bytes;
  const char *from = (const char *)t->data + begin;
  if (chunk == 0)
    return TAPER_FAIL(error, TAPER_UNSUPPORTED, "tensor '%.80s': rows of %llu bytes are longer than %d", w->tensor,
                      (unsigned long long)to_bytes, STAGING_BYTES);
  for (uint64_t row = 0; row < w->rows; row += chunk) {
    const uint64_t n = w->rows - row < chunk ? w->rows - row : chunk;
    for (uint64_t i = 0; i < n; i++) {
      memcpy(staging + i * to_bytes, from + (row + i) * from_bytes, from_bytes);
      memset(staging + i * to_bytes + from_bytes, 0, to_bytes - from_bytes);
    }
    CUDA_TRY(d, error, cuMemcpyHtoDAsync_v2, to + row * to_bytes, staging, n * to_bytes, d->stream);
    CUDA_TRY(d, error, cuStreamSynchronize, d->stream);
    package_release_pages(p, t->offset + begin + row * from_bytes, n * from_bytes);
  }
  return TAPER_OK;
}

static bool is_same(const launch_weight *a, const launch_weight *b) {
  return a->row0 == b->row0 && a->rows == b->rows && a->pitch == b->pitch && strcmp(a->tensor, b->tensor) == 0;
}

static taper_status load_weights(cuda_device *d, const package *p, char *staging, taper_error *error) {
  const launch_table *t = &d->table;
  for (uint32_t i = 0; i < t->weights.count; i++) {
    const launch_weight *w = &t->weights.at[i];
    d->base.facts.bytes_per_token += (uint64_t)w->read_rows * w->cols * st_dtype_size(w->dtype);
    for (uint32_t k = 0; k < i && !d->weight[i]; k++)
      if (is_same(w, &t->weights.at[k])) d->weight[i] = d->weight[k];
    if (d->weight[i]) continue;
    const taper_status status = cuda_alloc(d, weight_bytes(w), "the weights", &d->weight[i], error);
    if (status != TAPER_OK) return taper_add_context(error, status, "tensor '%.80s'", w->tensor);
    d->base.facts.weight_bytes += weight_bytes(w);
    TAPER_TRY(upload(d, p, w, d->weight[i], staging, error));
  }
  return TAPER_OK;
}

/* [context][2][pairs]: cos, then sin, as many positions at a time as the staging buffer holds. */
static taper_status load_rotary(cuda_device *d, const launch_rotary *r, CUdeviceptr *out, float *staging,
                                taper_error *error) {
  const uint64_t row = 2ull * r->pairs, chunk = STAGING_BYTES / (row * sizeof(float));
  const uint32_t context = d->table.context;
  TAPER_TRY(cuda_alloc(d, row * context * sizeof(float), "the rotary tables", out, error));
  for (uint64_t pos = 0; pos < context; pos += chunk) {
    const uint64_t n = context - pos < chunk ? context - pos : chunk;
    for (uint64_t i = 0; i < n * r->pairs; i++) {
      const uint64_t line = i / r->pairs, pair = i % r->pairs;
      const double angle = (double)(pos + line) * r->inv_freq.at[pair];
      float *at = staging + line * row + pair;
      at[0] = (float)(cos(angle) * r->magnitude);
      at[r->pairs] = (float)(sin(angle) * r->magnitude);
    }
    CUDA_TRY(d, error, cuMemcpyHtoDAsync_v2, *out + pos * row * sizeof(float), staging, n * row * sizeof(float),
             d->stream);
    CUDA_TRY(d, error, cuStreamSynchronize, d->stream);
  }
  return TAPER_OK;
}

/* Inverse scales of the probes, kept on the host, where probed rows are multiplied. */
static taper_status keep_inverse_scales(cuda_device *d, const package *p, taper_error *error) {
  const launch_table *t = &d->table;
  d->inv_scale = memory_zalloc(&d->allocator, (size_t)t->probes.count + 1, sizeof(float *));
  if (!d->inv_scale) return memory_exhausted(error, "the inverse scales", t->probes.count * sizeof(float *));
  for (uint32_t i = 0; i < t->probes.count; i++) {
    const uint32_t k = t->probes.at[i].inv_scale;
    if (k == LAUNCH_NONE) continue;
    const launch_weight *w = &t->weights.at[k];
    const st_tensor *from = st_find(&p->file, w->tensor);
    d->inv_scale[i] = memory_alloc(&d->allocator, w->cols * sizeof(float), MEMORY_LINE);
    if (!d->inv_scale[i]) return memory_exhausted(error, "an inverse scale", w->cols * sizeof(float));
    st_read_f32(from, (uint64_t)w->row0 * w->cols, w->cols, d->inv_scale[i]);
  }
  return TAPER_OK;
}

taper_status cuda_load_weights(cuda_device *d, const package *p, taper_error *error) {
  const launch_table *t = &d->table;
  void *staging = NULL;
  d->weight = memory_zalloc(&d->allocator, (size_t)t->weights.count + 1, sizeof(CUdeviceptr));
  d->rotary = memory_zalloc(&d->allocator, (size_t)t->rotary.count + 1, sizeof(CUdeviceptr));
  if (!d->weight || !d->rotary) return memory_exhausted(error, "the weight table", t->weights.count * 8ull);
  TAPER_TRY(keep_inverse_scales(d, p, error));
  CUDA_TRY(d, error, cuMemHostAlloc, &staging, STAGING_BYTES, 0);
  taper_status status = load_weights(d, p, staging, error);
  for (uint32_t i = 0; status == TAPER_OK && i < t->rotary.count; i++)
    status = load_rotary(d, &t->rotary.at[i], &d->rotary[i], staging, error);
  (void)d->driver.cuMemFreeHost(staging);
  return status;
}

/* ---- the buffers of a batch ---- */

uint32_t cuda_splits(const cuda_device *d, uint32_t context) {
  const uint32_t heads = d->table.key_heads ? d->table.key_heads : 1;
  const uint32_t fill = 2 * (uint32_t)d->gpu.multiprocessors / heads;
  uint32_t splits = (context + SPLIT_POSITIONS - 1) / SPLIT_POSITIONS;
  if (splits > MAX_SPLITS) splits = MAX_SPLITS;
  if (splits > fill) splits = fill;
  return splits ? splits : 1;
}

static taper_status pinned(cuda_device *d, size_t bytes, void **out, taper_error *error) {
  CUDA_TRY(d, error, cuMemHostAlloc, out, bytes, 0);
  memset(*out, 0, bytes);
  return TAPER_OK;
}

/* Memory of one call at a time. */
static taper_status alloc_passing(cuda_device *d, uint64_t bytes, const char *what, CUdeviceptr *out,
                                  taper_error *error) {
  TAPER_TRY(cuda_alloc(d, bytes, what, out, error));
  if (bytes) d->passing[d->passing_count++] = (cuda_range){*out, bytes}; /* CUDA_MAX_PASSING: as many as are named */
  return TAPER_OK;
}

static taper_status make_decode_room(cuda_device *d, taper_error *error) {
  void *host = NULL;
  const size_t bytes = (size_t)CUDA_MAX_BATCH * d->table.context * sizeof(int32_t);
  TAPER_TRY(cuda_alloc(d, sizeof(decode_block), "the state of decoding", &d->decode, error));
  TAPER_TRY(alloc_passing(d, bytes, "the tokens of decoding", &d->history, error));
  TAPER_TRY(alloc_passing(d, bytes, "the scales of decoding", &d->scales, error));
  TAPER_TRY(pinned(d, sizeof(decode_block), &host, error));
  d->host_decode = host;
  TAPER_TRY(pinned(d, bytes, &host, error));
  d->host_history = host;
  return TAPER_OK;
}

taper_status cuda_make_room(cuda_device *d, taper_error *error) {
  const launch_table *t = &d->table;
  const uint64_t cap = d->base.facts.row_cap, heads = t->key_heads ? t->key_heads : 1; /* each factor under 2^31 */
  uint64_t scratch;
  void *host = NULL;
  d->splits = cuda_splits(d, t->context);
  d->counter_bytes = cap * heads * sizeof(uint32_t);
  if (!checked_mul_u64(cap * heads * d->splits, (uint64_t)t->split_floats * sizeof(float), &scratch))
    scratch = UINT64_MAX;
  TAPER_TRY(alloc_passing(d, t->row_floats * cap * sizeof(float), "the buffers of a batch", &d->arena, error));
  TAPER_TRY(alloc_passing(d, scratch, "the parts of attention", &d->scratch, error));
  TAPER_TRY(cuda_alloc(d, d->counter_bytes, "the counters of attention", &d->counters, error));
  TAPER_TRY(alloc_passing(d, 4 * cap * sizeof(int32_t), "the rows of a batch", &d->io, error));
  CUDA_TRY(d, error, cuMemsetD8Async, d->counters, 0, d->counter_bytes, d->stream);
  TAPER_TRY(pinned(d, 4 * cap * sizeof(int32_t), &host, error));
  d->host_io = host;
  d->host_row = memory_alloc(&d->allocator, t->vocab * sizeof(float), MEMORY_LINE);
  d->stream_rows = memory_alloc(&d->allocator, cap * t->width * sizeof(float), MEMORY_LINE);
  if (!d->host_row || !d->stream_rows)
    return memory_exhausted(error, "rows of the stream", (t->vocab + cap * t->width) * sizeof(float));
  if (d->base.facts.decodes) TAPER_TRY(make_decode_room(d, error));
  CUDA_TRY(d, error, cuStreamSynchronize, d->stream);
  return TAPER_OK;
}

void cuda_free_memory(cuda_device *d) {
  void *const host[] = {d->host_io, d->host_decode, d->host_history};
  for (size_t i = 0; i < sizeof(host) / sizeof(host[0]); i++)
    if (host[i]) (void)d->driver.cuMemFreeHost(host[i]);
  for (uint32_t i = 0; i < d->block_count; i++) (void)d->driver.cuMemFree_v2(d->blocks[i]);
  d->block_count = 0;
}

/* ---- states ---- */

static uint64_t slot_bytes(const launch_state *s, uint32_t context) {
  return (uint64_t)s->heads * s->dim * context * sizeof(float); /* under 2^20 * 2^20 * 2^31 * 4: checked below */
}

static void free_state(cuda_device *d, device_state *s) {
  for (uint32_t i = 0; i <= CUDA_MAX_BATCH; i++)
    if (s->graph[i]) (void)d->driver.cuGraphExecDestroy(s->graph[i]);
  for (uint32_t i = 0; i < d->table.states.count; i++)
    if (s->state[i]) (void)d->driver.cuMemFree_v2(s->state[i]);
}

static taper_status make_state(cuda_device *d, device_state *s, taper_error *error) {
  for (uint32_t i = 0; i < d->table.states.count; i++) {
    const launch_state *k = &d->table.states.at[i];
    uint64_t per_slot, bytes;
    if (!checked_mul_u64((uint64_t)k->heads * k->dim * sizeof(float), s->context, &per_slot) ||
        !checked_mul_u64(per_slot, s->slots, &bytes))
      bytes = UINT64_MAX;
    TAPER_TRY(cuda_alloc(d, bytes, "the key and value cache", &s->state[i], error));
    disown(d, s->state[i]);
  }
  return TAPER_OK;
}

taper_status cuda_state_new(device *base, uint32_t slots, uint32_t context, device_state **out, taper_error *error) {
  cuda_device *d = (cuda_device *)base;
  *out = NULL;
  device_state *s = memory_zalloc(&d->allocator, 1, sizeof(*s) + d->table.states.count * sizeof(CUdeviceptr));
  if (!s) return memory_exhausted(error, "a session", sizeof(*s));
  s->slots = slots, s->context = context, s->splits = cuda_splits(d, context);
  taper_status status = cuda_enter(d, error);
  if (status != TAPER_OK) return memory_free(&d->allocator, s), status;
  status = make_state(d, s, error);
  if (status != TAPER_OK) {
    free_state(d, s);
    status = cuda_failed(d, status, error);
  }
  cuda_leave(d);
  if (status != TAPER_OK) return memory_free(&d->allocator, s), status;
  *out = s;
  return TAPER_OK;
}

void cuda_state_free(device *base, device_state *s) {
  cuda_device *d = (cuda_device *)base;
  if (!s) return;
  if (cuda_enter(d, NULL) == TAPER_OK) { /* a broken device has nothing left */
    free_state(d, s);
    cuda_leave(d);
  }
  memory_free(&d->allocator, s);
}

taper_status cuda_state_copy(device *base, device_state *to, const device_state *from, uint32_t slot,
                             uint32_t positions, taper_error *error) {
  cuda_device *d = (cuda_device *)base;
  taper_status status = TAPER_OK;
  if (positions == 0) return TAPER_OK;
  TAPER_TRY(cuda_enter(d, error));
  for (uint32_t i = 0; i < d->table.states.count && status == TAPER_OK; i++) {
    const uint64_t bytes = slot_bytes(&d->table.states.at[i], from->context);
    status = cuda_driver_check(
        &d->driver,
        d->driver.cuMemcpyDtoDAsync_v2(to->state[i] + slot * bytes, from->state[i] + slot * bytes, bytes, d->stream),
        "cuMemcpyDtoDAsync_v2", error);
  }
  if (status == TAPER_OK)
    status = cuda_driver_check(&d->driver, d->driver.cuStreamSynchronize(d->stream), "cuStreamSynchronize", error);
  if (status != TAPER_OK) status = cuda_failed(d, status, error);
  cuda_leave(d);
  return status;
}

/* Kernels read no position that the sequence has not written since: what a failed call left behind is nobody's. */
void cuda_state_scrub(device *base, device_state *s, uint32_t slot) {
  (void)base;
  (void)s;
  (void)slot;
}
