/*
 * Copies and memsets. A queued copy reads or writes the host's memory when it is executed, as the driver may: the host's
 * bytes must not have changed since the call. Where an answer will come, they are poisoned in the meantime.
 */
#include "cuda/sim/driver_priv.h"
#include "runtime/base/hash.h"
#include <errno.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

enum { POISON = 0xff };

/* ---- the host's memory, which may have gone since ---- */

typedef enum host_way { FROM_HOST, TO_HOST } host_way;

__attribute__((nonnull)) static bool host_move(host_way way, void *device, void *host, size_t bytes) {
  unsigned char *at = device;
  while (bytes) {
    struct iovec local = {at, bytes}, remote = {host, bytes};
    ssize_t n = way == FROM_HOST ? process_vm_readv(getpid(), &local, 1, &remote, 1, 0)
                                 : process_vm_writev(getpid(), &local, 1, &remote, 1, 0);
    if (n < 0 && (errno == ENOSYS || errno == EPERM)) { /* a sandbox without these calls */
      memcpy(way == FROM_HOST ? (void *)at : host, way == FROM_HOST ? host : (void *)at, bytes);
      return true;
    }
    if (n <= 0) return false;
    at += n;
    host = (unsigned char *)host + n;
    bytes -= (size_t)n;
  }
  return true;
}

static bool host_readable(void *host, size_t bytes) {
  unsigned char last;
  return host_move(FROM_HOST, &last, host, 1) && host_move(FROM_HOST, &last, (unsigned char *)host + bytes - 1, 1);
}

/* ---- copies ---- */

CUresult drv_queued_copy(drv_op *op) {
  drv_copy *c = &op->as.copy;
  if (!c->host || drv.options.eager) return CUDA_SUCCESS;
  if (!host_readable(c->host, c->bytes))
    return drv_fail(CUDA_ERROR_INVALID_VALUE, "%p + %zu is no memory of the host", c->host, c->bytes);
  if (drv_host_pending(c->host, c->bytes, c->to != 0)) return CUDA_SUCCESS; /* queued work may change it */
  if (c->from) memset(c->host, POISON, c->bytes);
  c->watched = true;
  memcpy(c->hash, hash_bytes(c->host, c->bytes).hex, sizeof c->hash);
  return CUDA_SUCCESS;
}

static CUresult host_changed(const drv_copy *c) {
  return drv_break(CUDA_ERROR_LAUNCH_FAILED,
                   "the host's memory at %p (%zu bytes) was changed or freed while a copy %s it was queued", c->host,
                   c->bytes, c->to ? "of" : "to");
}

/* The bytes in the host's memory of a range on the device; false, with the fault said, if it was freed since. */
static bool device_bytes(CUdeviceptr address, size_t bytes, unsigned char **out) {
  sim_span span = {0};
  bool found = sim_memory_find(drv.memory, address, bytes, &span);
  if (!found)
    (void)drv_break(CUDA_ERROR_ILLEGAL_ADDRESS, "device memory was freed while work on it was queued or in a graph");
  *out = span.data;
  return found && span.data;
}

static CUresult run_from_host(drv_copy *c) {
  unsigned char *to = NULL;
  if (!device_bytes(c->to, c->bytes, &to)) return drv.broken;
  if (!host_move(FROM_HOST, to, c->host, c->bytes)) return host_changed(c);
  if (c->watched && strcmp(c->hash, hash_bytes(to, c->bytes).hex) != 0) return host_changed(c);
  sim_memory_mark(drv.memory, c->to, c->bytes, true);
  return CUDA_SUCCESS;
}

static CUresult run_to_host(drv_copy *c) {
  unsigned char *from = NULL;
  uint64_t first = 0;
  if (!device_bytes(c->from, c->bytes, &from)) return drv.broken;
  if (!sim_memory_written(drv.memory, c->from, c->bytes, &first))
    return drv_break(CUDA_ERROR_LAUNCH_FAILED,
                     "copies device memory that was never written, at 0x%llx (byte %llu of %zu)",
                     (unsigned long long)first, (unsigned long long)(first - c->from), c->bytes);
  if (c->watched && (!host_readable(c->host, c->bytes) || strcmp(c->hash, hash_bytes(c->host, c->bytes).hex) != 0))
    return host_changed(c);
  return host_move(TO_HOST, from, c->host, c->bytes) ? CUDA_SUCCESS : host_changed(c);
}

CUresult drv_run_copy(CUstream stream, drv_op *op) {
  (void)stream;
  drv_copy *c = &op->as.copy;
  unsigned char *to = NULL, *from = NULL;
  if (c->host) return c->to ? run_from_host(c) : run_to_host(c);
  if (!device_bytes(c->to, c->bytes, &to) || !device_bytes(c->from, c->bytes, &from)) return drv.broken;
  sim_memory_copy(drv.memory, c->to, c->from, c->bytes);
  return CUDA_SUCCESS;
}

static CUresult copy(CUdeviceptr to, CUdeviceptr from, void *host, size_t bytes, CUstream handle) {
  CUstream s = NULL;
  DRV_TRY(drv_stream_find(handle, &s));
  if (!bytes) return CUDA_SUCCESS;
  if (to) DRV_TRY(drv_memory_check("target", to, bytes));
  if (from) DRV_TRY(drv_memory_check("source", from, bytes));
  if (to && from && to < from + bytes && from < to + bytes)
    return drv_fail(CUDA_ERROR_INVALID_VALUE, "source and target overlap");
  if (!(to && from) && !host) return drv_fail(CUDA_ERROR_INVALID_VALUE, "the host's or the device's address is NULL");
  if (host && s->capture == DRV_CAPTURING && !drv_host_pinned(host, bytes))
    return drv_capture_spoil(s, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
                             "a captured copy needs host memory of cuMemHostAlloc");
  drv_op *op = drv_op_new(DRV_OP_COPY, 0);
  if (!op) return drv_fail(CUDA_ERROR_OUT_OF_MEMORY, "queued work");
  op->as.copy = (drv_copy){.to = to, .from = from, .host = host, .bytes = bytes};
  return drv_push(s, op);
}

static CUresult copy_check(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  if (bytes && (!to || !from)) return drv_fail(CUDA_ERROR_INVALID_VALUE, "the address is 0");
  return CUDA_SUCCESS;
}

static CUresult copy_to_device(CUdeviceptr to, void *from, size_t bytes, CUstream stream) {
  DRV_TRY(copy_check(to, 1, bytes));
  return copy(to, 0, from, bytes, stream);
}
static CUresult copy_to_host(void *to, CUdeviceptr from, size_t bytes, CUstream stream) {
  DRV_TRY(copy_check(1, from, bytes));
  return copy(0, from, to, bytes, stream);
}
static CUresult copy_on_device(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  DRV_TRY(copy_check(to, from, bytes));
  return copy(to, from, NULL, bytes, stream);
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, CUstream stream) {
  DRV_CALL(DRV_CONTEXT, copy_to_device(to, (void *)(uintptr_t)from, bytes, stream)); /* it is only read */
}
CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream stream) {
  DRV_CALL(DRV_CONTEXT, copy_to_host(to, from, bytes, stream));
}
CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  DRV_CALL(DRV_CONTEXT, copy_on_device(to, from, bytes, stream));
}

/* Whatever is queued comes first: they are work of the default stream that the host waits for. */
static CUresult waited(CUresult result) { return result == CUDA_SUCCESS ? drv_wait(&drv.legacy, UINT64_MAX) : result; }

CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes) {
  DRV_CALL(DRV_CONTEXT | DRV_UNSAFE, waited(copy_to_device(to, (void *)(uintptr_t)from, bytes, NULL)));
}
CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes) {
  DRV_CALL(DRV_CONTEXT | DRV_UNSAFE, waited(copy_to_host(to, from, bytes, NULL)));
}
CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  DRV_CALL(DRV_CONTEXT | DRV_UNSAFE, waited(copy_on_device(to, from, bytes, NULL)));
}

/* ---- memsets ---- */

CUresult drv_queued_set(drv_op *op) {
  (void)op;
  return CUDA_SUCCESS;
}

CUresult drv_run_set(CUstream stream, drv_op *op) {
  (void)stream;
  const drv_set *s = &op->as.set;
  unsigned char *to = NULL;
  if (!device_bytes(s->memory, s->count * s->width, &to)) return drv.broken;
  if (s->width == 1) memset(to, (int)s->value, s->count);
  if (s->width == 4)
    for (size_t i = 0; i < s->count; i++) memcpy(to + i * 4, &s->value, 4);
  sim_memory_mark(drv.memory, s->memory, s->count * s->width, true);
  return CUDA_SUCCESS;
}

static CUresult set(CUdeviceptr memory, uint32_t value, size_t count, unsigned width, CUstream handle) {
  CUstream s = NULL;
  DRV_TRY(drv_stream_find(handle, &s));
  if (count > SIZE_MAX / width || memory % width)
    return drv_fail(CUDA_ERROR_INVALID_VALUE, "0x%llx is no multiple of %u, or %zu is too large",
                    (unsigned long long)memory, width, count);
  if (!count) return CUDA_SUCCESS;
  DRV_TRY(drv_memory_check("target", memory, count * width));
  drv_op *op = drv_op_new(DRV_OP_SET, 0);
  if (!op) return drv_fail(CUDA_ERROR_OUT_OF_MEMORY, "queued work");
  op->as.set = (drv_set){.memory = memory, .value = value, .count = count, .width = width};
  return drv_push(s, op);
}

CUresult cuMemsetD8Async(CUdeviceptr memory, unsigned char value, size_t bytes, CUstream stream) {
  DRV_CALL(DRV_CONTEXT, set(memory, value, bytes, 1, stream));
}
CUresult cuMemsetD32Async(CUdeviceptr memory, unsigned value, size_t count, CUstream stream) {
  DRV_CALL(DRV_CONTEXT, set(memory, value, count, 4, stream));
}
CUresult cuMemsetD8_v2(CUdeviceptr memory, unsigned char value, size_t bytes) {
  DRV_CALL(DRV_CONTEXT | DRV_UNSAFE, waited(set(memory, value, bytes, 1, NULL)));
}
CUresult cuMemsetD32_v2(CUdeviceptr memory, unsigned value, size_t count) {
  DRV_CALL(DRV_CONTEXT | DRV_UNSAFE, waited(set(memory, value, count, 4, NULL)));
}

/* ---- what no program of the real driver can ask for ---- */

CUresult drv_queued_forget(drv_op *op) {
  (void)op;
  return CUDA_SUCCESS;
}

CUresult drv_run_forget(CUstream stream, drv_op *op) {
  (void)stream;
  const drv_range *r = &op->as.forget;
  unsigned char *at = NULL;
  if (!device_bytes(r->memory, r->bytes, &at)) return drv.broken;
  sim_memory_mark(drv.memory, r->memory, r->bytes, false);
  return CUDA_SUCCESS;
}

static CUresult forget(CUdeviceptr memory, size_t bytes, CUstream handle) {
  CUstream s = NULL;
  DRV_TRY(drv_stream_find(handle, &s));
  if (!bytes) return CUDA_SUCCESS;
  DRV_TRY(drv_memory_check("range", memory, bytes));
  drv_op *op = drv_op_new(DRV_OP_FORGET, 0);
  if (!op) return drv_fail(CUDA_ERROR_OUT_OF_MEMORY, "queued work");
  op->as.forget = (drv_range){.memory = memory, .bytes = bytes};
  return drv_push(s, op);
}

static CUresult look(CUdeviceptr memory, size_t bytes, void *out, unsigned char *out_written) {
  unsigned char *from = NULL;
  uint64_t first = 0;
  DRV_TRY(drv_wait_all());
  DRV_TRY(drv_memory_check("range", memory, bytes));
  if (!device_bytes(memory, bytes, &from)) return drv.broken;
  memcpy(out, from, bytes);
  for (size_t i = 0; i < bytes; i++) out_written[i] = sim_memory_written(drv.memory, memory + i, 1, &first);
  return CUDA_SUCCESS;
}

CUresult taper_sim_forget(CUdeviceptr memory, size_t bytes, CUstream stream) {
  DRV_CALL(DRV_CONTEXT, forget(memory, bytes, stream));
}
CUresult taper_sim_look(CUdeviceptr memory, size_t bytes, void *out, unsigned char *out_written) {
  DRV_CALL(DRV_CONTEXT, look(memory, bytes, out, out_written));
}
