/* cublas.h - libcublas, opened at run time; its types declared here, so that no header of the toolkit is needed. */
#ifndef TAPER_CUDA_CUBLAS_H
#define TAPER_CUDA_CUBLAS_H

#include "cuda/driver.h"

typedef int cublas_status;
typedef struct cublasContext *cublas_handle;

enum { /* cublasStatus_t */
       CUBLAS_STATUS_SUCCESS = 0,
       CUBLAS_STATUS_NOT_INITIALIZED = 1,
       CUBLAS_STATUS_ALLOC_FAILED = 3,
       CUBLAS_STATUS_INVALID_VALUE = 7,
       CUBLAS_STATUS_ARCH_MISMATCH = 8,
       CUBLAS_STATUS_MAPPING_ERROR = 11,
       CUBLAS_STATUS_EXECUTION_FAILED = 13,
       CUBLAS_STATUS_INTERNAL_ERROR = 14,
       CUBLAS_STATUS_NOT_SUPPORTED = 15
};
enum { CUBLAS_OP_N = 0, CUBLAS_OP_T = 1 };                          /* cublasOperation_t */
enum { CUDA_R_32F = 0, CUDA_R_16F = 2, CUDA_R_16BF = 14 };          /* cudaDataType */
enum { CUBLAS_COMPUTE_32F = 68, CUBLAS_COMPUTE_32F_PEDANTIC = 69 }; /* cublasComputeType_t: sums in fp32 */
enum { CUBLAS_DEFAULT_MATH = 0, CUBLAS_PEDANTIC_MATH = 2, CUBLAS_NO_REDUCED_PRECISION_SUMS = 16 }; /* cublasMath_t */
enum { CUBLAS_GEMM_DEFAULT = -1 }; /* cublasGemmAlgo_t */

/* The entry points under their names. Matrices are in column order: y[rows x n] = x[rows x k] W[n x k]^T, all in row
   order, is cublasGemmEx(h, CUBLAS_OP_T, CUBLAS_OP_N, n, rows, k, &one, W, type, pitch of W, x, type, pitch of x, &zero,
   y, CUDA_R_32F, pitch of y, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT). cublasSetStream_v2 puts the workspace back to the
   library's own, which a captured stream may not use: cublasSetWorkspace_v2 comes after it. */
typedef struct cublas_library {
  void *library;
  char path[256]; /* what was opened */
#define CUBLAS(name, parameters) cublas_status(*name) parameters;
#include "cuda/cublas.def"
} cublas_library;

/* Opens `path`, or TAPER_LIBCUBLAS, or libcublas.so.13, .so.12, .so.11 (simulated: as cuda_driver_open)
   and looks every symbol up. TAPER_DEVICE names the library, what is missing and the next step. cublas_library_close is
   legal after a failure. */
taper_status cublas_library_open(const char *path, bool simulated, cublas_library *out, taper_error *error);
void cublas_library_close(cublas_library *l);
/* TAPER_OK, or TAPER_NOMEM (allocation failed) or TAPER_DEVICE with "CALL: name of the status" in *error. */
taper_status cublas_library_check(cublas_status result, const char *call, taper_error *error);

#endif
