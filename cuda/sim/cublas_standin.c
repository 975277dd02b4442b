/* The part of libcublas that cuda/cublas.def lists: products on the stream's queue, with the library's rules checked. */
#include "cuda/sim/driver_priv.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { VERSION = 130000, WORKSPACE_ALIGN = 256 };

/* ---- numbers ---- */

static float half_to_float(uint16_t h) {
  uint32_t sign = (uint32_t)(h & 0x8000u) << 16, exponent = (h >> 10) & 31u, mantissa = h & 1023u;
  uint32_t bits = sign | (exponent == 31 ? 0x7f800000u : (exponent + 112) << 23) | mantissa << 13;
  float out;
  if (exponent == 0) {
    out = (float)mantissa * 0x1p-24f;
    return sign ? -out : out;
  }
  memcpy(&out, &bits, sizeof out);
  return out;
}

static float brain_to_float(uint16_t h) {
  uint32_t bits = (uint32_t)h << 16;
  float out;
  memcpy(&out, &bits, sizeof out);
  return out;
}

static size_t type_bytes(int type) { return type == CUDA_R_32F ? 4 : 2; }

static float load(const unsigned char *at, int type) {
  float f;
  uint16_t h;
  if (type == CUDA_R_32F) {
    memcpy(&f, at, sizeof f);
    return f;
  }
  memcpy(&h, at, sizeof h);
  return type == CUDA_R_16F ? half_to_float(h) : brain_to_float(h);
}

/* op(matrix) as rows x depth floats, the depth side by side. `across`: elements of one row are `pitch` apart. */
static float *unpack(const unsigned char *data, int type, size_t rows, size_t depth, size_t pitch, bool across) {
  float *out = malloc(rows * depth * sizeof *out);
  size_t bytes = type_bytes(type);
  for (size_t i = 0; out && i < rows; i++)
    for (size_t k = 0; k < depth; k++)
      out[i * depth + k] = load(data + (across ? k * pitch + i : i * pitch + k) * bytes, type);
  return out;
}

/* ---- execution ---- */

static CUresult operand(const char *name, CUdeviceptr address, size_t columns, size_t rows, size_t pitch, int type,
                        bool read, sim_span *out) {
  size_t bytes = ((columns - 1) * pitch + rows) * type_bytes(type);
  uint64_t first = 0;
  if (!sim_memory_find(drv.memory, address, bytes, out))
    return drv_break(CUDA_ERROR_ILLEGAL_ADDRESS, "cublasGemmEx: %s, 0x%llx + %zu bytes, is in no allocation", name,
                     (unsigned long long)address, bytes);
  for (size_t j = 0; read && j < columns; j++)
    if (!sim_memory_written(drv.memory, address + j * pitch * type_bytes(type), rows * type_bytes(type), &first))
      return drv_break(CUDA_ERROR_LAUNCH_FAILED, "cublasGemmEx: %s was never written at 0x%llx, in column %zu", name,
                       (unsigned long long)first, j);
  return CUDA_SUCCESS;
}

static void multiply(const drv_gemm *g, const float *a, const float *b, float *c) {
  for (size_t j = 0; j < g->n; j++)
    for (size_t i = 0; i < g->m; i++) {
      const float *x = a + i * g->k, *y = b + j * g->k;
      float sum = 0, *at = c + j * g->ldc + i;
      for (size_t k = 0; k < g->k; k++) sum += x[k] * y[k];
      *at = g->beta == 0.0f ? g->alpha * sum : g->alpha * sum + g->beta * *at;
    }
}

CUresult drv_queued_gemm(drv_op *op) {
  (void)op;
  return CUDA_SUCCESS;
}

CUresult drv_run_gemm(CUstream stream, drv_op *op) {
  (void)stream;
  const drv_gemm *g = &op->as.gemm;
  sim_span a, b, c;
  size_t a_rows = g->trans_a ? g->k : g->m, b_rows = g->trans_b ? g->n : g->k;
  DRV_TRY(operand("A", g->a, g->trans_a ? g->m : g->k, a_rows, g->lda, g->ab_type, true, &a));
  DRV_TRY(operand("B", g->b, g->trans_b ? g->k : g->n, b_rows, g->ldb, g->ab_type, true, &b));
  DRV_TRY(operand("C", g->c, g->n, g->m, g->ldc, CUDA_R_32F, g->beta != 0.0f, &c));
  float *fa = unpack(a.data, g->ab_type, g->m, g->k, g->lda, !g->trans_a);
  float *fb = unpack(b.data, g->ab_type, g->n, g->k, g->ldb, g->trans_b);
  if (fa && fb) multiply(g, fa, fb, (float *)(void *)c.data);
  bool done = fa && fb;
  free(fa);
  free(fb);
  if (!done) return drv_break(CUDA_ERROR_OUT_OF_MEMORY, "the host has no memory");
  for (size_t j = 0; j < g->n; j++) sim_memory_mark(drv.memory, g->c + j * g->ldc * 4, g->m * 4, true);
  return CUDA_SUCCESS;
}

/* ---- calls ---- */

static cublas_status refuse(cublas_status status, const char *why) {
  (void)drv_fail(CUDA_ERROR_INVALID_VALUE, "%s", why);
  return status;
}

static cublas_status enter(const char *call, const void *handle) {
  CUresult result = drv_enter(call, DRV_CONTEXT);
  if (result != CUDA_SUCCESS) return drv.broken ? CUBLAS_STATUS_EXECUTION_FAILED : CUBLAS_STATUS_NOT_INITIALIZED;
  return handle && drv_object_check(handle, DRV_CUBLAS) != CUDA_SUCCESS ? CUBLAS_STATUS_NOT_INITIALIZED
                                                                        : CUBLAS_STATUS_SUCCESS;
}
#define BLAS_CALL(handle, body)                                                                                        \
  do {                                                                                                                 \
    cublas_status status_ = enter(__func__, (handle));                                                                 \
    if (status_ == CUBLAS_STATUS_SUCCESS) status_ = (body);                                                            \
    (void)drv_leave(CUDA_SUCCESS);                                                                                     \
    return status_;                                                                                                    \
  } while (0)
/* A handle is needed, and NULL is none. */
#define NEEDED(handle) ((handle) ? (const void *)(handle) : (const void *)&drv)

static cublas_status create(cublas_handle *out) {
  if (!out) return refuse(CUBLAS_STATUS_INVALID_VALUE, "no place for the handle");
  if (drv_capture_unsafe() != CUDA_SUCCESS) return CUBLAS_STATUS_ALLOC_FAILED;
  cublas_handle h = drv_object_new(DRV_CUBLAS, sizeof *h);
  if (!h) return CUBLAS_STATUS_ALLOC_FAILED;
  h->stream = &drv.legacy;
  *out = h;
  return CUBLAS_STATUS_SUCCESS;
}

static cublas_status destroy(cublas_handle h) {
  if (drv_capture_unsafe() != CUDA_SUCCESS) return CUBLAS_STATUS_EXECUTION_FAILED;
  CUresult result = drv_wait_all(); /* as the library does */
  drv_object_free(h);
  return result == CUDA_SUCCESS ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

static cublas_status version(int *out) {
  if (!out) return refuse(CUBLAS_STATUS_INVALID_VALUE, "no place for the version");
  *out = VERSION;
  return CUBLAS_STATUS_SUCCESS;
}

static cublas_status set_stream(cublas_handle h, CUstream stream) {
  CUstream s = NULL;
  if (drv_stream_find(stream, &s) != CUDA_SUCCESS) return CUBLAS_STATUS_INVALID_VALUE;
  h->stream = s;
  h->workspace = 0; /* the library goes back to its own */
  h->workspace_bytes = 0;
  return CUBLAS_STATUS_SUCCESS;
}

static cublas_status set_workspace(cublas_handle h, void *workspace, size_t bytes) {
  CUdeviceptr address = (CUdeviceptr)(uintptr_t)workspace;
  if (h->stream->capture != DRV_NOT_CAPTURING)
    return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "the workspace must be set before the stream is captured");
  if (!bytes || address % WORKSPACE_ALIGN)
    return refuse(CUBLAS_STATUS_INVALID_VALUE, "the workspace is empty or no multiple of 256 bytes");
  if (drv_memory_check("workspace", address, bytes) != CUDA_SUCCESS) return CUBLAS_STATUS_INVALID_VALUE;
  h->workspace = address;
  h->workspace_bytes = bytes;
  return CUBLAS_STATUS_SUCCESS;
}

static cublas_status set_math(cublas_handle h, int mode) {
  (void)h;
  if (mode & ~(CUBLAS_PEDANTIC_MATH | CUBLAS_NO_REDUCED_PRECISION_SUMS))
    return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "this math mode is not simulated");
  return CUBLAS_STATUS_SUCCESS;
}

typedef struct gemm_types {
  int a, b, c, compute, algorithm;
} gemm_types;

static const char *gemm_check(const drv_gemm *g, const gemm_types *t) {
  if (g->lda < (g->trans_a ? g->k : g->m)) return "lda is less than the rows of A";
  if (g->ldb < (g->trans_b ? g->n : g->k)) return "ldb is less than the rows of B";
  if (g->ldc < g->m) return "ldc is less than the rows of C";
  if ((g->a | g->b) % type_bytes(t->a) || g->c % 4) return "a matrix is not aligned to its type";
  return NULL;
}

static cublas_status types_check(const gemm_types *t) {
  if (t->a != t->b || (t->a != CUDA_R_32F && t->a != CUDA_R_16F && t->a != CUDA_R_16BF) || t->c != CUDA_R_32F)
    return refuse(CUBLAS_STATUS_NOT_SUPPORTED,
                  "these types are not simulated: A and B of one of f32, f16, bf16, C f32");
  if (t->compute != CUBLAS_COMPUTE_32F && t->compute != CUBLAS_COMPUTE_32F_PEDANTIC)
    return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "sums other than in fp32 are not simulated");
  if (t->algorithm != CUBLAS_GEMM_DEFAULT) return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "algorithm: the default alone");
  return CUBLAS_STATUS_SUCCESS;
}

static cublas_status gemm(cublas_handle h, const drv_gemm *g, const gemm_types *t) {
  cublas_status status = types_check(t);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  const char *bad = gemm_check(g, t);
  if (bad) return refuse(CUBLAS_STATUS_INVALID_VALUE, bad);
  if (!g->m || !g->n || !g->k) return CUBLAS_STATUS_SUCCESS;
  if (drv_object_check(h->stream, DRV_STREAM) != CUDA_SUCCESS && h->stream != &drv.legacy)
    return CUBLAS_STATUS_EXECUTION_FAILED;
  if (h->stream->capture != DRV_NOT_CAPTURING && !h->workspace) {
    (void)drv_capture_spoil(h->stream, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
                            "a captured product needs a workspace set after cublasSetStream_v2 and before the capture");
    return CUBLAS_STATUS_INTERNAL_ERROR;
  }
  drv_op *op = drv_op_new(DRV_OP_GEMM, 0);
  if (!op) return CUBLAS_STATUS_ALLOC_FAILED;
  op->as.gemm = *g;
  return drv_push(h->stream, op) == CUDA_SUCCESS ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

static cublas_status gemm_ex(cublas_handle h, const int trans[2], const int sizes[6], const float *const scales[2],
                             const void *const matrices[3], const gemm_types *t) {
  for (int i = 0; i < 6; i++)
    if (sizes[i] < 0) return refuse(CUBLAS_STATUS_INVALID_VALUE, "a negative size");
  for (int i = 0; i < 2; i++)
    if (trans[i] != CUBLAS_OP_N && trans[i] != CUBLAS_OP_T)
      return refuse(CUBLAS_STATUS_INVALID_VALUE, "an operation other than N and T");
  if (!scales[0] || !scales[1]) return refuse(CUBLAS_STATUS_INVALID_VALUE, "alpha or beta is NULL");
  drv_gemm g = {.trans_a = trans[0] == CUBLAS_OP_T,
                .trans_b = trans[1] == CUBLAS_OP_T,
                .m = (size_t)sizes[0],
                .n = (size_t)sizes[1],
                .k = (size_t)sizes[2],
                .lda = (size_t)sizes[3],
                .ldb = (size_t)sizes[4],
                .ldc = (size_t)sizes[5],
                .a = (CUdeviceptr)(uintptr_t)matrices[0],
                .b = (CUdeviceptr)(uintptr_t)matrices[1],
                .c = (CUdeviceptr)(uintptr_t)matrices[2],
                .ab_type = t->a,
                .alpha = *scales[0],
                .beta = *scales[1]};
  return gemm(h, &g, t);
}

cublas_status cublasCreate_v2(cublas_handle *handle) { BLAS_CALL(NULL, create(handle)); }
cublas_status cublasDestroy_v2(cublas_handle handle) { BLAS_CALL(NEEDED(handle), destroy(handle)); }
cublas_status cublasGetVersion_v2(cublas_handle handle, int *out) { BLAS_CALL(NEEDED(handle), version(out)); }
cublas_status cublasSetStream_v2(cublas_handle handle, CUstream stream) {
  BLAS_CALL(NEEDED(handle), set_stream(handle, stream));
}
cublas_status cublasSetWorkspace_v2(cublas_handle handle, void *workspace, size_t bytes) {
  BLAS_CALL(NEEDED(handle), set_workspace(handle, workspace, bytes));
}
cublas_status cublasSetMathMode(cublas_handle handle, int mode) { BLAS_CALL(NEEDED(handle), set_math(handle, mode)); }
cublas_status cublasGemmEx(cublas_handle handle, int trans_a, int trans_b, int m, int n, int k, const void *alpha,
                           const void *a, int a_type, int lda, const void *b, int b_type, int ldb, const void *beta,
                           void *c, int c_type, int ldc, int compute, int algorithm) {
  BLAS_CALL(NEEDED(handle), gemm_ex(handle, (const int[]){trans_a, trans_b}, (const int[]){m, n, k, lda, ldb, ldc},
                                    (const float *const[]){alpha, beta}, (const void *const[]){a, b, c},
                                    &(const gemm_types){a_type, b_type, c_type, compute, algorithm}));
}
