/* Streams: queues of work, when it is executed, and what a capture forbids. */
#include "cuda/sim/driver_priv.h"
#include <stdlib.h>
#include <string.h>

void drv_list_add(drv_list *l, drv_op *op) {
  op->next = NULL;
  if (l->tail)
    l->tail->next = op;
  else
    l->head = op;
  l->tail = op;
  l->count++;
}

static drv_op *list_take(drv_list *l) {
  drv_op *op = l->head;
  l->head = op->next;
  if (!l->head) l->tail = NULL;
  l->count--;
  return op;
}

void drv_list_free(drv_list *l) {
  while (l->head) free(list_take(l));
}

drv_op *drv_op_new(drv_op_kind kind, size_t parameter_bytes) {
  size_t bytes = sizeof(drv_op) + parameter_bytes;
  drv_op *op = calloc(1, bytes);
  if (!op) return NULL;
  op->kind = kind;
  op->bytes = bytes;
  return op;
}

typedef struct op_row {
  const char *words;
  CUresult (*queued)(drv_op *op);
  CUresult (*run)(CUstream stream, drv_op *op);
} op_row;
static const op_row ops[] = {
#define DRV_OP(kind, words, member) [kind] = {words, drv_queued_##member, drv_run_##member},
    DRV_OPS
#undef DRV_OP
};

/* ---- executing ---- */

/* A blocking stream and the default stream take turns in the order of their work. */
static CUresult wait_for_others(CUstream stream, uint64_t number) {
  if (!stream->blocking) return CUDA_SUCCESS;
  if (stream != &drv.legacy) return drv_drain(&drv.legacy, number);
  for (drv_object *o = drv.objects; o; o = o->next)
    if (o->kind == DRV_STREAM && ((CUstream)o)->blocking) DRV_TRY(drv_drain((CUstream)o, number));
  return CUDA_SUCCESS;
}

CUresult drv_drain(CUstream stream, uint64_t number) {
  while (stream->queue.head && stream->queue.head->number <= number) {
    drv_op *op = list_take(&stream->queue);
    CUresult result = drv.broken ? drv.broken : wait_for_others(stream, op->number);
    if (result == CUDA_SUCCESS) {
      if (op->boundary) stream->after_kernel = false;
      result = ops[op->kind].run(stream, op);
      stream->after_kernel = op->kind == DRV_OP_KERNEL;
    }
    free(op);
    if (result != CUDA_SUCCESS) return result;
  }
  return drv.broken;
}

CUresult drv_wait(CUstream stream, uint64_t number) {
  CUresult result = drv_drain(stream, number);
  if (!stream->queue.head) stream->after_kernel = false;
  return result;
}

CUresult drv_wait_all(void) {
  DRV_TRY(drv_wait(&drv.legacy, UINT64_MAX));
  for (drv_object *o = drv.objects; o; o = o->next)
    if (o->kind == DRV_STREAM) DRV_TRY(drv_wait((CUstream)o, UINT64_MAX));
  return CUDA_SUCCESS;
}

/* ---- queueing ---- */

CUresult drv_queue(CUstream stream, drv_op *op) {
  CUresult result = ops[op->kind].queued(op);
  if (result != CUDA_SUCCESS) {
    free(op);
    return result;
  }
  op->number = ++drv.numbers;
  op->boundary = op->boundary || stream->after_graph;
  stream->after_graph = false;
  drv_list_add(&stream->queue, op);
  return drv.options.eager ? drv_drain(stream, UINT64_MAX) : CUDA_SUCCESS;
}

static CUresult legacy_check(void) {
  for (drv_object *o = drv.objects; o; o = o->next) {
    CUstream s = (CUstream)o;
    if (o->kind == DRV_STREAM && s->blocking && s->capture != DRV_NOT_CAPTURING)
      return drv_capture_spoil(s, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
                               "the default stream is used while a blocking stream is captured");
  }
  return CUDA_SUCCESS;
}

CUresult drv_push(CUstream stream, drv_op *op) {
  CUresult result = CUDA_SUCCESS;
  if (stream == &drv.legacy) result = legacy_check();
  if (stream->capture == DRV_CAPTURE_BROKEN)
    result = drv_fail(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "%s after the capture was spoilt", ops[op->kind].words);
  if (result != CUDA_SUCCESS) {
    free(op);
    return result;
  }
  if (stream->capture == DRV_NOT_CAPTURING) return drv_queue(stream, op);
  op->boundary = !stream->captured.tail || stream->captured.tail->kind != DRV_OP_KERNEL;
  drv_list_add(&stream->captured, op);
  return CUDA_SUCCESS;
}

/* ---- captures ---- */

CUresult drv_capture_spoil(CUstream stream, CUresult result, const char *why) {
  stream->capture = DRV_CAPTURE_BROKEN;
  return drv_fail(result, "%s", why);
}

CUresult drv_capture_unsafe(void) {
  CUresult result = CUDA_SUCCESS;
  for (drv_object *o = drv.objects; o; o = o->next) {
    CUstream s = (CUstream)o;
    if (o->kind != DRV_STREAM || s->capture == DRV_NOT_CAPTURING || s->capture_mode == CU_CAPTURE_RELAXED) continue;
    if (s->capture_mode == CU_CAPTURE_THREAD_LOCAL && !pthread_equal(s->capture_thread, pthread_self())) continue;
    result = drv_capture_spoil(s, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "not allowed while a stream is captured");
  }
  return result;
}

static CUresult begin_capture(CUstream handle, int mode) {
  CUstream s = NULL;
  DRV_TRY(drv_stream_find(handle, &s));
  if (s == &drv.legacy) return drv_fail(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "the default stream cannot be captured");
  if (mode < CU_CAPTURE_GLOBAL || mode > CU_CAPTURE_RELAXED) return drv_fail(CUDA_ERROR_INVALID_VALUE, "mode %d", mode);
  if (s->capture != DRV_NOT_CAPTURING) return drv_fail(CUDA_ERROR_ILLEGAL_STATE, "the stream is being captured");
  s->capture = DRV_CAPTURING;
  s->capture_mode = mode;
  s->capture_thread = pthread_self();
  return CUDA_SUCCESS;
}

static CUresult end_capture(CUstream handle, CUgraph *out) {
  CUstream s = NULL;
  DRV_TRY(drv_stream_find(handle, &s));
  if (out) *out = NULL;
  if (s->capture == DRV_NOT_CAPTURING) return drv_fail(CUDA_ERROR_ILLEGAL_STATE, "the stream is not being captured");
  if (s->capture_mode != CU_CAPTURE_RELAXED && !pthread_equal(s->capture_thread, pthread_self()))
    return drv_fail(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, "the capture was begun by another thread");
  bool spoilt = s->capture == DRV_CAPTURE_BROKEN;
  CUgraph g = spoilt || !out ? NULL : drv_object_new(DRV_GRAPH, sizeof *g);
  if (g)
    g->nodes = s->captured;
  else
    drv_list_free(&s->captured);
  s->captured = (drv_list){0};
  s->capture = DRV_NOT_CAPTURING;
  if (spoilt) return drv_fail(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "a call during the capture was not allowed");
  if (!out) return drv_fail(CUDA_ERROR_INVALID_VALUE, "no place for the graph");
  *out = g;
  return g ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuStreamBeginCapture_v2(CUstream stream, int mode) { DRV_CALL(DRV_CONTEXT, begin_capture(stream, mode)); }
CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph) { DRV_CALL(DRV_CONTEXT, end_capture(stream, graph)); }

/* ---- streams ---- */

CUresult drv_stream_find(CUstream handle, CUstream *out) {
  if (!handle || handle == (CUstream)1) { /* CU_STREAM_LEGACY */
    *out = &drv.legacy;
    return CUDA_SUCCESS;
  }
  DRV_TRY(drv_object_check(handle, DRV_STREAM));
  *out = handle;
  return CUDA_SUCCESS;
}

static CUresult stream_create(CUstream *out, unsigned flags) {
  if (!out || flags > CU_STREAM_NON_BLOCKING) return drv_fail(CUDA_ERROR_INVALID_VALUE, "flags %u", flags);
  CUstream s = drv_object_new(DRV_STREAM, sizeof *s);
  if (!s) return drv_fail(CUDA_ERROR_OUT_OF_MEMORY, "a stream");
  s->blocking = flags != CU_STREAM_NON_BLOCKING;
  *out = s;
  return CUDA_SUCCESS;
}

void drv_stream_free(CUstream s) {
  drv_list_free(&s->queue);
  drv_list_free(&s->captured);
  sim_run_free(s->early);
  sim_footprint_free(s->at_work);
  s->early = NULL;
  s->at_work = NULL;
  if (s != &drv.legacy) drv_object_free(s);
}

static CUresult stream_destroy(CUstream handle) {
  DRV_TRY(drv_object_check(handle, DRV_STREAM));
  if (handle->capture != DRV_NOT_CAPTURING)
    return drv_capture_spoil(handle, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "the stream is being captured");
  CUresult result = drv_drain(handle, UINT64_MAX);
  drv_stream_free(handle);
  return result;
}

static CUresult stream_synchronize(CUstream handle) {
  CUstream s = NULL;
  DRV_TRY(drv_stream_find(handle, &s));
  if (s->capture != DRV_NOT_CAPTURING)
    return drv_capture_spoil(s, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "the stream is being captured");
  if (s == &drv.legacy) DRV_TRY(legacy_check());
  return drv_wait(s, UINT64_MAX);
}

CUresult cuStreamCreate(CUstream *stream, unsigned flags) { DRV_CALL(DRV_CONTEXT, stream_create(stream, flags)); }
CUresult cuStreamDestroy_v2(CUstream stream) { DRV_CALL(DRV_CONTEXT, stream_destroy(stream)); }
CUresult cuStreamSynchronize(CUstream stream) { DRV_CALL(DRV_CONTEXT, stream_synchronize(stream)); }
