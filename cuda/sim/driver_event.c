/* Events: where a stream was, and when. */
#include "cuda/sim/driver_priv.h"
#include <stdlib.h>
#include <time.h>

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

CUresult drv_queued_event(drv_op *op) {
  op->as.event->pending++;
  return CUDA_SUCCESS;
}

CUresult drv_run_event(CUstream stream, drv_op *op) {
  (void)stream;
  op->as.event->pending--;
  op->as.event->seconds = now();
  return CUDA_SUCCESS;
}

static CUresult event_create(CUevent *out, unsigned flags) {
  if (!out || flags > (1u | CU_EVENT_DISABLE_TIMING)) return drv_fail(CUDA_ERROR_INVALID_VALUE, "flags %u", flags);
  CUevent e = drv_object_new(DRV_EVENT, sizeof *e);
  if (!e) return drv_fail(CUDA_ERROR_OUT_OF_MEMORY, "an event");
  e->timed = !(flags & CU_EVENT_DISABLE_TIMING);
  *out = e;
  return CUDA_SUCCESS;
}

static CUresult event_record(CUevent event, CUstream handle) {
  CUstream s = NULL;
  DRV_TRY(drv_object_check(event, DRV_EVENT));
  DRV_TRY(drv_stream_find(handle, &s));
  event->captured = s->capture != DRV_NOT_CAPTURING;
  if (event->captured) return CUDA_SUCCESS; /* a mark in the graph, no node */
  drv_op *op = drv_op_new(DRV_OP_EVENT, 0);
  if (!op) return drv_fail(CUDA_ERROR_OUT_OF_MEMORY, "queued work");
  op->as.event = event;
  event->recorded = true;
  event->stream = s;
  event->number = drv.numbers + 1;
  return drv_push(s, op);
}

static CUresult event_synchronize(CUevent event) {
  DRV_TRY(drv_object_check(event, DRV_EVENT));
  if (event->captured) return drv_fail(CUDA_ERROR_CAPTURED_EVENT, "the event was recorded in a captured stream");
  return event->pending ? drv_wait(event->stream, event->number) : drv.broken;
}

static CUresult event_check_time(CUevent event) {
  DRV_TRY(drv_object_check(event, DRV_EVENT));
  if (event->captured) return drv_fail(CUDA_ERROR_CAPTURED_EVENT, "the event was recorded in a captured stream");
  if (!event->recorded || !event->timed) return drv_fail(CUDA_ERROR_INVALID_HANDLE, "the event has no time");
  return CUDA_SUCCESS;
}

static CUresult event_elapsed(float *milliseconds, CUevent begin, CUevent end) {
  if (!milliseconds) return drv_fail(CUDA_ERROR_INVALID_VALUE, "no place for the time");
  DRV_TRY(event_check_time(begin));
  DRV_TRY(event_check_time(end));
  if (begin->pending || end->pending) return drv_fail(CUDA_ERROR_NOT_READY, "the work before the event is not done");
  *milliseconds = (float)((end->seconds - begin->seconds) * 1e3);
  return CUDA_SUCCESS;
}

static CUresult event_destroy(CUevent event) {
  DRV_TRY(drv_object_check(event, DRV_EVENT));
  drv_object_free(event);
  return CUDA_SUCCESS;
}

CUresult cuEventCreate(CUevent *event, unsigned flags) { DRV_CALL(DRV_CONTEXT, event_create(event, flags)); }
CUresult cuEventRecord(CUevent event, CUstream stream) { DRV_CALL(DRV_CONTEXT, event_record(event, stream)); }
CUresult cuEventSynchronize(CUevent event) { DRV_CALL(DRV_CONTEXT | DRV_UNSAFE, event_synchronize(event)); }
CUresult cuEventElapsedTime(float *milliseconds, CUevent begin, CUevent end) {
  DRV_CALL(DRV_CONTEXT, event_elapsed(milliseconds, begin, end));
}
CUresult cuEventDestroy_v2(CUevent event) { DRV_CALL(DRV_CONTEXT, event_destroy(event)); }
