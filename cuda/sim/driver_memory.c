/* Allocations on the device and in the host's page-locked memory. */
#include "cuda/sim/driver_priv.h"
#include <stdlib.h>
#include <string.h>

enum { HOST_POISON = 0xff, HOST_ALIGN = 4096 };

/* ---- ranges ---- */

CUresult drv_memory_check(const char *what, CUdeviceptr address, size_t bytes) {
  sim_span span;
  if (address && sim_memory_find(drv.memory, address, bytes, &span)) return CUDA_SUCCESS;
  if (address && sim_memory_find(drv.memory, address, 1, &span))
    return drv_fail(CUDA_ERROR_INVALID_VALUE,
                    "%s 0x%llx + %zu bytes passes the end of its allocation of %zu bytes at 0x%llx", what,
                    (unsigned long long)address, bytes, span.size, (unsigned long long)span.base);
  return drv_fail(CUDA_ERROR_INVALID_VALUE, "%s 0x%llx is in no allocation", what, (unsigned long long)address);
}

static bool overlap(const void *a, size_t a_bytes, const void *b, size_t b_bytes) {
  return (uintptr_t)a < (uintptr_t)b + b_bytes && (uintptr_t)b < (uintptr_t)a + a_bytes;
}

static bool list_touches(const drv_list *l, const void *memory, size_t bytes, bool writes) {
  for (const drv_op *op = l->head; op; op = op->next)
    if (op->kind == DRV_OP_COPY && op->as.copy.host && (op->as.copy.from || !writes) &&
        overlap(op->as.copy.host, op->as.copy.bytes, memory, bytes))
      return true;
  return false;
}

bool drv_host_pending(const void *memory, size_t bytes, bool writes) {
  if (list_touches(&drv.legacy.queue, memory, bytes, writes)) return true;
  for (const drv_object *o = drv.objects; o; o = o->next)
    if (o->kind == DRV_STREAM && list_touches(&((const struct CUstream_st *)o)->queue, memory, bytes, writes))
      return true;
  return false;
}

bool drv_host_pinned(const void *memory, size_t bytes) {
  for (const drv_block *b = drv.blocks; b; b = b->next)
    if (b->host && (uintptr_t)memory >= (uintptr_t)b->host &&
        (uintptr_t)memory + bytes <= (uintptr_t)b->host + b->bytes)
      return true;
  return false;
}

/* ---- allocation ---- */

static CUresult block_add(void *host, CUdeviceptr address, size_t bytes) {
  drv_block *b = malloc(sizeof *b);
  if (!b) return drv_fail(CUDA_ERROR_OUT_OF_MEMORY, "the table of allocations");
  *b = (drv_block){.next = drv.blocks, .host = host, .address = address, .bytes = bytes};
  drv.blocks = b;
  return CUDA_SUCCESS;
}

/* The block that begins there, out of the list; NULL: none does. */
static drv_block *block_take(const void *host, CUdeviceptr address) {
  for (drv_block **at = &drv.blocks; *at; at = &(*at)->next)
    if ((*at)->host == host && (*at)->address == address) {
      drv_block *b = *at;
      *at = b->next;
      return b;
    }
  return NULL;
}

static CUresult memory_alloc(CUdeviceptr *out, size_t bytes) {
  if (!out || !bytes) return drv_fail(CUDA_ERROR_INVALID_VALUE, "%zu bytes", bytes);
  uint64_t address = sim_memory_alloc(drv.memory, bytes);
  if (!address)
    return drv_fail(CUDA_ERROR_OUT_OF_MEMORY, "%zu bytes; %llu of %llu are in use", bytes,
                    (unsigned long long)sim_memory_used(drv.memory),
                    (unsigned long long)sim_memory_capacity(drv.memory));
  CUresult result = block_add(NULL, address, bytes);
  if (result != CUDA_SUCCESS) {
    sim_memory_release(drv.memory, address);
    return result;
  }
  *out = address;
  return CUDA_SUCCESS;
}

static CUresult memory_free(CUdeviceptr address) {
  if (!address) return CUDA_SUCCESS;
  drv_block *b = block_take(NULL, address);
  if (!b)
    return drv_fail(CUDA_ERROR_INVALID_VALUE, "no allocation begins at 0x%llx, or it was freed",
                    (unsigned long long)address);
  free(b);
  CUresult result = drv_wait_all(); /* the driver does the same */
  sim_memory_release(drv.memory, address);
  return result;
}

static CUresult host_alloc(void **out, size_t bytes, unsigned flags) {
  if (!out || !bytes || flags > 7) return drv_fail(CUDA_ERROR_INVALID_VALUE, "%zu bytes, flags %u", bytes, flags);
  void *memory = NULL;
  if (posix_memalign(&memory, HOST_ALIGN, bytes) != 0)
    return drv_fail(CUDA_ERROR_OUT_OF_MEMORY, "%zu bytes of the host", bytes);
  memset(memory, HOST_POISON, bytes);
  CUresult result = block_add(memory, 0, bytes);
  if (result == CUDA_SUCCESS)
    *out = memory;
  else
    free(memory);
  return result;
}

static CUresult host_free(void *memory) {
  drv_block *b = memory ? block_take(memory, 0) : NULL;
  if (!b) return drv_fail(CUDA_ERROR_INVALID_VALUE, "%p is no block of cuMemHostAlloc, or one that was freed", memory);
  bool pending = drv_host_pending(memory, b->bytes, false);
  CUresult result = drv_wait_all();
  if (pending && result == CUDA_SUCCESS)
    result = drv_fail(CUDA_ERROR_INVALID_VALUE, "%p is freed while a copy of it is queued", memory);
  free(b->host);
  free(b);
  return result;
}

static CUresult memory_info(size_t *available, size_t *total) {
  if (!available || !total) return drv_fail(CUDA_ERROR_INVALID_VALUE, "no place for the answer");
  *total = sim_memory_capacity(drv.memory);
  *available = *total - sim_memory_used(drv.memory);
  return CUDA_SUCCESS;
}

unsigned drv_memory_clear(uint64_t *out_bytes, unsigned *out_host) {
  unsigned device = 0;
  while (drv.blocks) {
    drv_block *b = drv.blocks;
    drv.blocks = b->next;
    if (b->host) {
      ++*out_host;
    } else {
      device++;
      *out_bytes += b->bytes;
    }
    free(b->host);
    free(b);
  }
  return device;
}

CUresult cuMemAlloc_v2(CUdeviceptr *memory, size_t bytes) {
  DRV_CALL(DRV_CONTEXT | DRV_UNSAFE, memory_alloc(memory, bytes));
}
CUresult cuMemFree_v2(CUdeviceptr memory) { DRV_CALL(DRV_CONTEXT | DRV_UNSAFE, memory_free(memory)); }
CUresult cuMemHostAlloc(void **memory, size_t bytes, unsigned flags) {
  DRV_CALL(DRV_CONTEXT | DRV_UNSAFE, host_alloc(memory, bytes, flags));
}
CUresult cuMemFreeHost(void *memory) { DRV_CALL(DRV_CONTEXT | DRV_UNSAFE, host_free(memory)); }
CUresult cuMemGetInfo_v2(size_t *available, size_t *total) { DRV_CALL(DRV_CONTEXT, memory_info(available, total)); }

/* ---- use of device memory ---- */

static CUresult usage(CUdeviceptr memory, int reset, sim_usage *out) {
  DRV_TRY(drv_wait_all());
  if (out && sim_memory_usage(drv.memory, memory, reset != 0, out)) return CUDA_SUCCESS;
  return drv_fail(CUDA_ERROR_INVALID_VALUE, "no allocation begins at 0x%llx", (unsigned long long)memory);
}
CUresult taper_sim_usage(CUdeviceptr memory, int reset, sim_usage *out) {
  DRV_CALL(DRV_CONTEXT, usage(memory, reset, out));
}
