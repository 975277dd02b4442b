/* Generation on the device: steps of [stages, choice of the next token], DEVICE_DECODE_MOST of them in one graph; ids come back once
   a call. */
#include "cuda/device_priv.h"
#include <string.h>

static CUdeviceptr at(const cuda_device *d, size_t offset) { return d->decode + offset; }

static taper_cuda_call call_of(const cuda_device *d, const device_state *s, uint32_t rows) {
  return (taper_cuda_call){
      .token = (const int32_t *)(uintptr_t)at(d, offsetof(decode_block, token)),
      .pos = (const int32_t *)(uintptr_t)at(d, offsetof(decode_block, pos)),
      .slot = (const int32_t *)(uintptr_t)at(d, offsetof(decode_block, slot)),
      .out_row = (const int32_t *)(uintptr_t)at(d, offsetof(decode_block, out_row)),
      .arena = (float *)(uintptr_t)d->arena,
      .scratch = (float *)(uintptr_t)d->scratch,
      .counters = (uint32_t *)(uintptr_t)d->counters,
      .rows = rows,
      .out_rows = rows,
      .row_cap = d->base.facts.row_cap,
      .context = s->context,
      .splits = s->splits,
  };
}

static taper_status choose_tokens(cuda_launch *l, taper_error *error) {
  const cuda_device *d = l->d;
  const launch_sample *p = &d->table.sample;
  const uint64_t row_bytes = d->base.facts.row_cap * sizeof(float);
  const bool scaled = p->has_scale && d->base.facts.scale_median > 0;
  const unsigned grid[3] = {l->call.rows, 1, 1};
  const uint64_t slots[] = {at(d, offsetof(decode_block, row)),
                            at(d, offsetof(decode_block, sampling)),
                            d->arena + d->table.logits * row_bytes,
                            at(d, offsetof(decode_block, token)),
                            at(d, offsetof(decode_block, pos)),
                            scaled ? d->scales : 0,
                            scaled ? d->arena + p->buffer * row_bytes : 0,
                            scaled && p->inv_scale != LAUNCH_NONE ? d->weight[p->inv_scale] : 0,
                            d->scale_std};
  return cuda_launch_kernel(l, p->kernel, grid, p->threads, slots, "sample", error);
}

static taper_status one_step(cuda_launch *l, taper_error *error) {
  const launch_table *t = &l->d->table;
  for (uint32_t i = 0; i < t->stages.count; i++)
    if (!t->stages.at[i].probes) TAPER_TRY(cuda_launch_stage(l, &t->stages.at[i], error));
  return choose_tokens(l, error);
}

static taper_status steps(cuda_launch *l, uint32_t n, taper_error *error) {
  for (uint32_t i = 0; i < n; i++) TAPER_TRY(one_step(l, error));
  return TAPER_OK;
}

/* Captures the steps once for a number of rows; addresses are the state's and the device's, everything else lies in memory. */
static taper_status capture(cuda_device *d, device_state *s, uint32_t rows, taper_error *error) {
  cuda_launch l = {.d = d, .s = s, .call = call_of(d, s, rows), .in_graph = true};
  CUgraph graph = NULL;
  CUDA_TRY(d, error, cuStreamBeginCapture_v2, d->stream, CU_CAPTURE_THREAD_LOCAL);
  taper_status status = steps(&l, DEVICE_DECODE_MOST, error);
  const CUresult ended = d->driver.cuStreamEndCapture(d->stream, &graph);
  if (status == TAPER_OK) status = cuda_driver_check(&d->driver, ended, "cuStreamEndCapture", error);
  if (status == TAPER_OK)
    status = cuda_driver_check(&d->driver, d->driver.cuGraphInstantiateWithFlags(&s->graph[rows], graph, 0),
                               "cuGraphInstantiateWithFlags", error);
  if (graph) (void)d->driver.cuGraphDestroy(graph);
  return status == TAPER_OK ? status : taper_add_context(error, status, "graph of %u tokens", DEVICE_DECODE_MOST);
}

static taper_status send(cuda_device *d, const device_decode *call, taper_error *error) {
  decode_block *b = d->host_decode;
  const taper_sampling *o = call->sampling;
  const size_t context = d->table.context;
  memset(b, 0, sizeof(*b));
  b->sampling = (taper_cuda_sampling){.seed = o->seed,
                                      .temperature = o->temperature,
                                      .top_p = o->top_p,
                                      .min_p = o->min_p,
                                      .repeat_penalty = o->repeat_penalty,
                                      .top_k = o->top_k,
                                      .repeat_last = o->repeat_last,
                                      .end_token = call->end_token};
  for (uint32_t r = 0; r < call->rows; r++) {
    const device_decode_row *from = &call->row[r];
    const uint64_t bytes = ((uint64_t)from->length + 1) * sizeof(int32_t);
    const uint64_t history = d->history + r * context * sizeof(int32_t);
    b->token[r] = from->token, b->pos[r] = (int32_t)from->length, b->slot[r] = (int32_t)from->slot;
    b->out_row[r] = (int32_t)r;
    b->row[r] = (taper_cuda_row){
        .history = (int32_t *)(uintptr_t)history,
        .out = (int32_t *)(uintptr_t)(at(d, offsetof(decode_block, out)) + r * sizeof(b->out[0])),
        .sequence = from->sequence,
        .most = call->most,
    };
    if (from->length) memcpy(d->host_history + r * context, from->history, from->length * sizeof(int32_t));
    d->host_history[r * context + from->length] = from->token;
    CUDA_TRY(d, error, cuMemcpyHtoDAsync_v2, history, d->host_history + r * context, bytes, d->stream);
  }
  CUDA_TRY(d, error, cuMemcpyHtoDAsync_v2, d->decode, b, sizeof(*b), d->stream);
  return TAPER_OK;
}

static taper_status take(cuda_device *d, const device_state *s, device_decode *call, taper_error *error) {
  decode_block *b = d->host_decode;
  const uint64_t context_bytes = s->context * sizeof(float);
  bool scales = false;
  CUDA_TRY(d, error, cuMemcpyDtoHAsync_v2, b, d->decode, sizeof(*b), d->stream);
  CUDA_TRY(d, error, cuStreamSynchronize, d->stream);
  for (uint32_t r = 0; r < call->rows; r++) {
    device_decode_row *to = &call->row[r];
    const taper_cuda_row *from = &b->row[r];
    if (from->made > call->most)
      return TAPER_FAIL(error, TAPER_DEVICE, "kernel 'sample': %u tokens of %u; a defect of the package", from->made,
                        call->most);
    to->made = from->made, to->end = from->done, to->bad_id = from->bad_id;
    for (uint32_t i = 0; i < to->made; i++) to->out[i] = b->out[r][i];
    const uint32_t n = to->made + (to->end == TAPER_CUDA_END);
    if (!to->scales || n == 0) continue;
    scales = true;
    CUDA_TRY(d, error, cuMemcpyDtoHAsync_v2, to->scales, d->scales + r * context_bytes + to->length * sizeof(float),
             n * sizeof(float), d->stream);
  }
  if (scales) CUDA_TRY(d, error, cuStreamSynchronize, d->stream);
  return TAPER_OK;
}

static taper_status decode(cuda_device *d, device_state *s, device_decode *call, taper_error *error) {
  cuda_launch l = {.d = d, .s = s, .call = call_of(d, s, call->rows)};
  TAPER_TRY(cuda_begin_call(d, error));
  TAPER_TRY(send(d, call, error));
  if (!d->graphs || call->most < DEVICE_DECODE_MOST) {
    TAPER_TRY(steps(&l, call->most, error));
    return take(d, s, call, error);
  }
  if (!s->graph[call->rows]) TAPER_TRY(capture(d, s, call->rows, error));
  CUDA_TRY(d, error, cuGraphLaunch, s->graph[call->rows], d->stream);
  return take(d, s, call, error);
}

static taper_status check(const cuda_device *d, const device_state *s, const device_decode *call, taper_error *error) {
  if (!d->base.facts.decodes || call->rows < 1 || call->rows > CUDA_MAX_BATCH || call->rows > d->base.facts.row_cap ||
      call->most < 1 || call->most > DEVICE_DECODE_MOST)
    return TAPER_FAIL(error, TAPER_INTERNAL, "decode of %u rows, %u tokens: a defect of libtaper", call->rows,
                      call->most);
  for (uint32_t r = 0; r < call->rows; r++)
    if (call->row[r].slot >= s->slots || call->row[r].length >= s->context ||
        call->most > s->context - call->row[r].length)
      return TAPER_FAIL(error, TAPER_INTERNAL, "decode beyond the context: a defect of libtaper");
  return TAPER_OK;
}

taper_status cuda_decode(device *base, device_state *s, device_decode *call, taper_error *error) {
  cuda_device *d = (cuda_device *)base;
  taper_error own = {0};
  TAPER_TRY(check(d, s, call, error));
  TAPER_TRY(cuda_enter(d, error));
  taper_status status = decode(d, s, call, &own);
  if (status != TAPER_OK) status = cuda_failed(d, status, &own);
  cuda_leave(d);
  return status == TAPER_OK ? TAPER_OK : TAPER_FAIL(error, status, "%s", own.message);
}
