#include "cuda/sim/driver_priv.h"
#include "runtime/base/text.h"
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_OPTIONS                                                                                                \
  { .capability = 90, .multiprocessors = 132, .driver_version = 13090, .devices = 1, .memory_bytes = (uint64_t)8 << 30 }
drv_state drv = {.lock = PTHREAD_MUTEX_INITIALIZER,
                 .options = DEFAULT_OPTIONS,
                 .legacy = {.object = {.kind = DRV_STREAM}, .blocking = true}};

typedef struct drv_error_row {
  CUresult code;
  const char *name, *text;
} drv_error_row;
static const drv_error_row errors[] = {
#define DRV_ERROR(code, text) {code, #code, text},
#include "cuda/sim/errors.def"
};

static const drv_error_row *error_row(CUresult code) {
  for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
    if (errors[i].code == code) return &errors[i];
  return NULL;
}

const char *drv_error_name(CUresult result) {
  const drv_error_row *row = error_row(result);
  return row ? row->name : "an error";
}

/* ---- what is said of a failure ---- */

static _Thread_local const char *current_call = "";

static void say(const char *format, va_list args) {
  int n = text_format(drv.fault, sizeof drv.fault, "%s: ", current_call);
  if (n > 0 && (size_t)n < sizeof drv.fault) text_vformat(drv.fault + n, sizeof drv.fault - (size_t)n, format, args);
}

CUresult drv_fail(CUresult result, const char *format, ...) {
  va_list args;
  va_start(args, format);
  say(format, args);
  va_end(args);
  return result;
}

CUresult drv_break(CUresult result, const char *format, ...) {
  va_list args;
  va_start(args, format);
  say(format, args);
  va_end(args);
  drv.broken = result;
  return result;
}

DRV_EXPORT const char *taper_sim_fault(void) {
  static _Thread_local char copy[sizeof drv.fault];
  pthread_mutex_lock(&drv.lock);
  memcpy(copy, drv.fault, sizeof copy);
  pthread_mutex_unlock(&drv.lock);
  return copy;
}

/* ---- calls ---- */

static CUresult context_check(void);

CUresult drv_enter(const char *call, unsigned needs) {
  pthread_mutex_lock(&drv.lock);
  current_call = call;
  if (needs && !drv.initialised) return drv_fail(CUDA_ERROR_NOT_INITIALIZED, "before cuInit");
  if (needs & DRV_CONTEXT) DRV_TRY(context_check());
  return needs & DRV_UNSAFE ? drv_capture_unsafe() : CUDA_SUCCESS;
}

CUresult drv_leave(CUresult result) {
  current_call = "";
  pthread_mutex_unlock(&drv.lock);
  return result;
}

/* ---- objects ---- */

static const char *const kind_names[DRV_KIND_COUNT] = {
#define DRV_KIND(name, words) [name] = words,
    DRV_KINDS
#undef DRV_KIND
};

void *drv_object_new(drv_kind kind, size_t bytes) {
  drv_object *o = calloc(1, bytes);
  if (!o) return NULL;
  *o = (drv_object){.next = drv.objects, .kind = kind};
  drv.objects = o;
  return o;
}

void drv_object_free(void *object) {
  for (drv_object **at = &drv.objects; *at; at = &(*at)->next)
    if (*at == object) {
      *at = (*at)->next;
      ((drv_object *)object)->next = drv.dead;
      drv.dead = object;
      return;
    }
}

CUresult drv_object_check(const void *handle, drv_kind kind) {
  for (const drv_object *o = drv.objects; o; o = o->next)
    if (o == handle && o->kind == kind) return CUDA_SUCCESS;
  return drv_fail(CUDA_ERROR_INVALID_HANDLE, "%p is no %s, or one that was destroyed", handle, kind_names[kind]);
}

/* ---- contexts: one device, its primary context ---- */

enum { CONTEXT_DEPTH = 16 };
typedef struct context_stack {
  uint64_t generation[CONTEXT_DEPTH];
  unsigned depth;
} context_stack;
static _Thread_local context_stack stack;

static CUresult context_check(void) {
  if (!stack.depth) return drv_fail(CUDA_ERROR_INVALID_CONTEXT, "no context is current in this thread");
  if (!drv.retained || stack.generation[stack.depth - 1] != drv.context.generation)
    return drv_fail(CUDA_ERROR_INVALID_CONTEXT, "the current context was destroyed");
  if (drv.broken && drv.fault[0] == '\0') return drv_fail(drv.broken, "the context is broken");
  return drv.broken;
}

static CUresult device_check(CUdevice device) {
  if (device == 0 && drv.options.devices) return CUDA_SUCCESS;
  return drv_fail(CUDA_ERROR_INVALID_DEVICE, "device %d; there is one, 0", device);
}

static CUresult context_retain(CUcontext *out, CUdevice device) {
  DRV_TRY(device_check(device));
  if (!out) return drv_fail(CUDA_ERROR_INVALID_VALUE, "no place for the context");
  if (!drv.retained) {
    if (!(drv.memory = sim_memory_new(drv.options.memory_bytes)))
      return drv_fail(CUDA_ERROR_OUT_OF_MEMORY, "the table of memory");
    drv.context.generation++;
    drv.broken = CUDA_SUCCESS;
    drv.fault[0] = '\0';
  }
  drv.retained++;
  *out = &drv.context;
  return CUDA_SUCCESS;
}

/* Launches that a fault left in a stream hold kernels, so modules go last. */
static drv_object *next_to_free(void) {
  for (drv_object *o = drv.objects; o; o = o->next)
    if (o->kind != DRV_MODULE) return o;
  return drv.objects;
}

/* What the program forgot; freed all the same. Functions go with their modules and say nothing. */
static void count_objects(unsigned counts[DRV_KIND_COUNT]) {
  for (drv_object *o; (o = next_to_free());) {
    counts[o->kind]++;
    switch (o->kind) {
    case DRV_STREAM: drv_stream_free((CUstream)o); break;
    case DRV_MODULE: drv_module_free((CUmodule)o); break;
    case DRV_GRAPH: drv_graph_free((CUgraph)o); break;
    case DRV_EXEC: drv_exec_free((CUgraphExec)o); break;
    case DRV_EVENT:
    case DRV_FUNCTION:
    case DRV_CUBLAS:
    case DRV_KIND_COUNT: drv_object_free(o); break;
    }
  }
  counts[DRV_FUNCTION] = 0;
  while (drv.dead) {
    drv_object *next = drv.dead->next;
    free(drv.dead);
    drv.dead = next;
  }
}

static CUresult context_destroy(void) {
  CUresult result = drv.broken ? CUDA_SUCCESS : drv_wait_all();
  bool broken = drv.broken != CUDA_SUCCESS;
  unsigned counts[DRV_KIND_COUNT] = {0}, host = 0;
  uint64_t bytes = 0;
  drv_stream_free(&drv.legacy);
  drv.legacy = (struct CUstream_st){.object = {.kind = DRV_STREAM}, .blocking = true};
  count_objects(counts);
  unsigned device = drv_memory_clear(&bytes, &host);
  sim_memory_free(drv.memory);
  drv.memory = NULL;
  drv.broken = CUDA_SUCCESS;
  text leak = {0};
  if (device) text_printf(&leak, ", %u allocations of %llu bytes in all", device, (unsigned long long)bytes);
  if (host) text_printf(&leak, ", %u blocks of host memory", host);
  for (unsigned k = 0; k < DRV_KIND_COUNT; k++)
    if (counts[k]) text_printf(&leak, ", %u of kind %s", counts[k], kind_names[k]);
  if (leak.size && !broken) result = drv_fail(CUDA_ERROR_UNKNOWN, "never freed: %s", leak.data + 2);
  text_free(&leak);
  return result;
}

static CUresult context_release(CUdevice device) {
  DRV_TRY(device_check(device));
  if (!drv.retained) return drv_fail(CUDA_ERROR_INVALID_CONTEXT, "released more often than retained");
  return --drv.retained ? CUDA_SUCCESS : context_destroy();
}

static CUresult context_push(CUcontext context) {
  if (context != &drv.context || !drv.retained)
    return drv_fail(CUDA_ERROR_INVALID_CONTEXT, "%p is no context", (void *)context);
  if (stack.depth == CONTEXT_DEPTH) return drv_fail(CUDA_ERROR_INVALID_VALUE, "pushed %d times", CONTEXT_DEPTH);
  stack.generation[stack.depth++] = drv.context.generation;
  return CUDA_SUCCESS;
}

static CUresult context_pop(CUcontext *out) {
  if (!stack.depth) return drv_fail(CUDA_ERROR_INVALID_CONTEXT, "no context is current in this thread");
  stack.depth--;
  if (out) *out = &drv.context;
  return CUDA_SUCCESS;
}

static CUresult context_set(CUcontext context) {
  if (stack.depth) stack.depth--;
  return context ? context_push(context) : CUDA_SUCCESS;
}

static CUresult context_get(CUcontext *out) {
  if (!out) return drv_fail(CUDA_ERROR_INVALID_VALUE, "no place for the context");
  *out = stack.depth ? &drv.context : NULL;
  return CUDA_SUCCESS;
}

static CUresult context_create(CUcontext *out, CUdevice device) {
  DRV_TRY(context_retain(out, device));
  return context_push(*out);
}

static CUresult context_drop(CUcontext context) {
  if (context != &drv.context || !drv.retained)
    return drv_fail(CUDA_ERROR_INVALID_CONTEXT, "%p is no context", (void *)context);
  if (stack.depth) stack.depth--;
  return context_release(0);
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
  DRV_CALL(DRV_INIT, context_retain(context, device));
}
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) { DRV_CALL(DRV_INIT, context_release(device)); }
CUresult cuCtxPushCurrent_v2(CUcontext context) { DRV_CALL(DRV_INIT, context_push(context)); }
CUresult cuCtxPopCurrent_v2(CUcontext *context) { DRV_CALL(DRV_INIT, context_pop(context)); }
CUresult cuCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device) {
  (void)flags; /* how a host's thread waits */
  DRV_CALL(DRV_INIT, context_create(context, device));
}
CUresult cuCtxDestroy_v2(CUcontext context) { DRV_CALL(DRV_INIT, context_drop(context)); }
CUresult cuCtxSetCurrent(CUcontext context) { DRV_CALL(DRV_INIT, context_set(context)); }
CUresult cuCtxGetCurrent(CUcontext *context) { DRV_CALL(DRV_INIT, context_get(context)); }
CUresult cuCtxSynchronize(void) { DRV_CALL(DRV_CONTEXT | DRV_UNSAFE, drv_wait_all()); }

/* ---- errors ---- */

static CUresult error_text(CUresult error, bool name, const char **out) {
  const drv_error_row *row = error_row(error);
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  *out = row ? (name ? row->name : row->text) : NULL;
  return row ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuGetErrorName(CUresult error, const char **out) { return error_text(error, true, out); }
CUresult cuGetErrorString(CUresult error, const char **out) { return error_text(error, false, out); }
