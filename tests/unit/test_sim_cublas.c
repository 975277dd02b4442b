/* The simulator's cublas against a reference in double precision, and the rules that it holds callers to. */
#include "tests/unit/sim_driver.h"
#include <math.h>

static cublas_library blas;
static cublas_handle handle;
static const float one = 1, zero = 0;

static int begin(void **state) {
  taper_error error = {0};
  sim_begin(0);
  (void)state;
  if (cublas_library_open(NULL, true, &blas, &error) != TAPER_OK) fail_msg("%s", error.message);
  OK(blas.cublasCreate_v2(&handle));
  return 0;
}

static int end(void **state) {
  OK(blas.cublasDestroy_v2(handle));
  cublas_library_close(&blas);
  return sim_end(state);
}

static float number(unsigned i) { return (float)((int)(i * 2654435761u >> 24) - 128) / 64.0f; }

/* f32 -> the 16-bit type; the numbers of these tests are exact in both */
static uint16_t narrow(float f, int type) {
  uint32_t bits;
  if (f == 0) return 0;
  memcpy(&bits, &f, 4);
  if (type == CUDA_R_16BF) return (uint16_t)(bits >> 16);
  return (uint16_t)((bits >> 16 & 0x8000u) | (((bits >> 23 & 255u) - 112) << 10) | (bits >> 13 & 1023u));
}

static CUdeviceptr matrix(size_t count, unsigned seed, int type) {
  CUdeviceptr memory = 0;
  size_t bytes = type == CUDA_R_32F ? 4 : 2;
  unsigned char *host = malloc(count * bytes);
  for (size_t i = 0; i < count; i++) {
    float f = number(seed + (unsigned)i);
    uint16_t h = narrow(f, type);
    memcpy(host + i * bytes, type == CUDA_R_32F ? (void *)&f : (void *)&h, bytes);
  }
  OK(cu.cuMemAlloc_v2(&memory, count * bytes));
  OK(cu.cuMemcpyHtoDAsync_v2(memory, host, count * bytes, NULL));
  OK(cu.cuStreamSynchronize(NULL));
  free(host);
  return memory;
}

typedef struct shape {
  int trans_a, trans_b, m, n, k, lda, ldb, ldc;
} shape;

static cublas_status gemm(const shape *s, CUdeviceptr a, CUdeviceptr b, CUdeviceptr c, int type, const float *alpha,
                          const float *beta) {
  return blas.cublasGemmEx(handle, s->trans_a, s->trans_b, s->m, s->n, s->k, alpha, (void *)(uintptr_t)a, type, s->lda,
                           (void *)(uintptr_t)b, type, s->ldb, beta, (void *)(uintptr_t)c, CUDA_R_32F, s->ldc,
                           CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
}

static void check_shape(const shape *s, int type, float alpha, float beta) {
  size_t a_count = (size_t)s->lda * (size_t)(s->trans_a ? s->m : s->k);
  size_t b_count = (size_t)s->ldb * (size_t)(s->trans_b ? s->k : s->n);
  size_t c_count = (size_t)s->ldc * (size_t)s->n;
  CUdeviceptr a = matrix(a_count, 1, type), b = matrix(b_count, 7777, type), c = matrix(c_count, 99, CUDA_R_32F);
  float *got = malloc(c_count * 4);
  OK(gemm(s, a, b, c, type, &alpha, &beta));
  sim_get(got, c, c_count);
  for (int j = 0; j < s->n; j++)
    for (int i = 0; i < s->ldc; i++) {
      double want = 0, before = number(99 + (unsigned)(j * s->ldc + i));
      for (int k = 0; i < s->m && k < s->k; k++)
        want += (double)number(1 + (unsigned)(s->trans_a ? i * s->lda + k : k * s->lda + i)) *
                (double)number(7777 + (unsigned)(s->trans_b ? k * s->ldb + j : j * s->ldb + k));
      want = i < s->m ? (double)alpha * want + (double)beta * before : before; /* between the columns: as it was */
      double error = fabs((double)got[j * s->ldc + i] - want);
      if (!(error <= 1e-4 * (1 + fabs(want))))
        fail_msg("%d %d: %g, wanted %g", i, j, (double)got[j * s->ldc + i], want);
    }
  free(got);
  OK(cu.cuMemFree_v2(a));
  OK(cu.cuMemFree_v2(b));
  OK(cu.cuMemFree_v2(c));
}

static void products_are_right(void **state) {
  (void)state;
  static const shape shapes[] = {{1, 0, 5, 3, 7, 7, 7, 5}, {1, 0, 17, 9, 20, 24, 21, 18},
                                 {0, 0, 5, 3, 7, 6, 7, 5}, {0, 1, 5, 3, 7, 5, 4, 6},
                                 {1, 1, 1, 1, 1, 1, 1, 1}, {1, 0, 257, 9, 64, 64, 64, 257}};
  static const int types[] = {CUDA_R_32F, CUDA_R_16F, CUDA_R_16BF};
  for (size_t i = 0; i < sizeof(shapes) / sizeof(*shapes); i++)
    for (size_t t = 0; t < 3; t++) {
      check_shape(&shapes[i], types[t], 1, 0);
      check_shape(&shapes[i], types[t], 0.5f, 2);
    }
}

static void halves_are_read_right(void **state) {
  (void)state;
  /* 1, -2, 65504, the smallest normal and subnormal, -0, infinity */
  static const uint16_t bits[] = {0x3c00, 0xc000, 0x7bff, 0x0400, 0x0001, 0x8000, 0x7c00};
  static const float want[] = {1, -2, 65504, 0x1p-14f, 0x1p-24f, -0.0f, INFINITY};
  CUdeviceptr a = 0, b = 0, c = 0;
  uint16_t unit = 0x3c00;
  float got[7];
  const shape s = {CUBLAS_OP_T, CUBLAS_OP_N, 7, 1, 1, 1, 1, 7};
  OK(cu.cuMemAlloc_v2(&a, sizeof(bits)));
  OK(cu.cuMemAlloc_v2(&b, 2));
  OK(cu.cuMemAlloc_v2(&c, sizeof(got)));
  OK(cu.cuMemcpyHtoDAsync_v2(a, bits, sizeof(bits), NULL));
  OK(cu.cuMemcpyHtoDAsync_v2(b, &unit, 2, NULL));
  OK(gemm(&s, a, b, c, CUDA_R_16F, &one, &zero));
  sim_get(got, c, 7);
  for (int i = 0; i < 7; i++) assert_true(got[i] == want[i]);
  OK(cu.cuMemFree_v2(a));
  OK(cu.cuMemFree_v2(b));
  OK(cu.cuMemFree_v2(c));
}

static void calls_are_checked(void **state) {
  (void)state;
  CUdeviceptr a = matrix(64, 1, CUDA_R_32F), c = sim_floats(64, 0, NAN);
  void *pa = (void *)(uintptr_t)a, *pc = (void *)(uintptr_t)c;
  int version = 0;
  OK(blas.cublasGetVersion_v2(handle, &version));
  assert_true(version >= 110000);
  REFUSED(CUBLAS_STATUS_NOT_INITIALIZED, "is no cublas handle", blas.cublasGetVersion_v2(NULL, &version));
  REFUSED(CUBLAS_STATUS_NOT_INITIALIZED, "is no cublas handle", blas.cublasSetStream_v2((cublas_handle)&version, NULL));
  const int no = CUBLAS_STATUS_INVALID_VALUE;
  REFUSED(no, "lda", gemm(&(shape){1, 0, 4, 4, 4, 3, 4, 4}, a, a, c, CUDA_R_32F, &one, &zero));
  REFUSED(no, "ldb", gemm(&(shape){1, 0, 4, 4, 4, 4, 3, 4}, a, a, c, CUDA_R_32F, &one, &zero));
  REFUSED(no, "ldc", gemm(&(shape){1, 0, 4, 4, 4, 4, 4, 3}, a, a, c, CUDA_R_32F, &one, &zero));
  REFUSED(no, "lda", gemm(&(shape){0, 0, 4, 4, 2, 3, 4, 4}, a, a, c, CUDA_R_32F, &one, &zero));
  REFUSED(no, "negative", gemm(&(shape){1, 0, -1, 4, 4, 4, 4, 4}, a, a, c, CUDA_R_32F, &one, &zero));
  REFUSED(no, "other than N and T", gemm(&(shape){2, 0, 4, 4, 4, 4, 4, 4}, a, a, c, CUDA_R_32F, &one, &zero));
  REFUSED(no, "aligned", gemm(&(shape){1, 0, 4, 4, 4, 4, 4, 4}, a + 2, a, c, CUDA_R_32F, &one, &zero));
  REFUSED(no, "alpha or beta", gemm(&(shape){1, 0, 4, 4, 4, 4, 4, 4}, a, a, c, CUDA_R_32F, &one, NULL));
  const int unknown = CUBLAS_STATUS_NOT_SUPPORTED;
  REFUSED(unknown, "these types",
          blas.cublasGemmEx(handle, 1, 0, 4, 4, 4, &one, pa, CUDA_R_32F, 4, pa, CUDA_R_16F, 4, &zero, pc, CUDA_R_32F, 4,
                            CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
  REFUSED(unknown, "sums other than",
          blas.cublasGemmEx(handle, 1, 0, 4, 4, 4, &one, pa, CUDA_R_32F, 4, pa, CUDA_R_32F, 4, &zero, pc, CUDA_R_32F, 4,
                            74, CUBLAS_GEMM_DEFAULT));
  REFUSED(unknown, "math mode", blas.cublasSetMathMode(handle, 1));
  OK(blas.cublasSetMathMode(handle, CUBLAS_PEDANTIC_MATH));
  OK(gemm(&(shape){1, 0, 0, 4, 4, 4, 4, 4}, a, a, c, CUDA_R_32F, &one, &zero)); /* nothing to do */
  OK(cu.cuMemFree_v2(a));
  OK(cu.cuMemFree_v2(c));
}

static void matrices_are_bounded(void **state) {
  (void)state;
  CUdeviceptr a = matrix(64, 1, CUDA_R_32F), c = sim_floats(64, 0, NAN);
  OK(gemm(&(shape){1, 0, 8, 9, 8, 8, 8, 8}, a, a, c, CUDA_R_32F, &one, &zero));
  REFUSED(CUDA_ERROR_ILLEGAL_ADDRESS, "B, 0x", cu.cuCtxSynchronize());
  assert_int_equal(gemm(&(shape){1, 0, 8, 8, 8, 8, 8, 8}, a, a, c, CUDA_R_32F, &one, &zero),
                   CUBLAS_STATUS_EXECUTION_FAILED);
  sim_end(NULL);
  sim_begin(0);
  OK(blas.cublasCreate_v2(&handle));
  a = matrix(64, 1, CUDA_R_32F);
  c = sim_floats(64, 0, NAN);
  OK(gemm(&(shape){1, 0, 8, 8, 8, 8, 8, 8}, a, a, c, CUDA_R_32F, &one, &one));
  REFUSED(CUDA_ERROR_LAUNCH_FAILED, "C was never written", cu.cuCtxSynchronize());
  sim_end(NULL);
  sim_begin(0);
  OK(blas.cublasCreate_v2(&handle));
}

/* cublasSetStream takes the workspace away; a capture needs one, set before it. */
static void captures_need_a_workspace(void **state) {
  (void)state;
  CUdeviceptr a = matrix(64, 1, CUDA_R_32F), c = sim_floats(64, 0, NAN), workspace = sim_floats(1024, 0, NAN);
  void *space = (void *)(uintptr_t)workspace;
  const shape s = {1, 0, 8, 8, 8, 8, 8, 8};
  CUstream stream = NULL;
  CUgraph graph = NULL;
  CUgraphExec exec = NULL;
  float got[64], again[64];
  OK(cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  REFUSED(CUBLAS_STATUS_INVALID_VALUE, "passes the end", blas.cublasSetWorkspace_v2(handle, space, 8192));
  REFUSED(CUBLAS_STATUS_INVALID_VALUE, "256", blas.cublasSetWorkspace_v2(handle, (char *)space + 4, 64));
  OK(blas.cublasSetWorkspace_v2(handle, space, 4096));
  OK(blas.cublasSetStream_v2(handle, stream));
  OK(gemm(&s, a, a, c, CUDA_R_32F, &one, &zero));
  OK(cu.cuMemcpyDtoHAsync_v2(got, c, sizeof(got), stream));
  OK(cu.cuMemsetD8Async(c, 0, sizeof(got), stream));
  OK(cu.cuStreamSynchronize(stream));
  OK(cu.cuStreamBeginCapture_v2(stream, CU_CAPTURE_THREAD_LOCAL));
  REFUSED(CUBLAS_STATUS_NOT_SUPPORTED, "before the stream is captured",
          blas.cublasSetWorkspace_v2(handle, space, 4096));
  REFUSED(CUBLAS_STATUS_INTERNAL_ERROR, "needs a workspace", gemm(&s, a, a, c, CUDA_R_32F, &one, &zero));
  assert_int_equal(cu.cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  OK(blas.cublasSetWorkspace_v2(handle, space, 4096));
  OK(cu.cuStreamBeginCapture_v2(stream, CU_CAPTURE_THREAD_LOCAL));
  OK(gemm(&s, a, a, c, CUDA_R_32F, &one, &zero));
  OK(cu.cuStreamEndCapture(stream, &graph));
  OK(cu.cuGraphInstantiateWithFlags(&exec, graph, 0));
  OK(cu.cuGraphLaunch(exec, stream));
  OK(cu.cuMemcpyDtoHAsync_v2(again, c, sizeof(again), stream));
  OK(cu.cuStreamSynchronize(stream));
  assert_memory_equal(got, again, sizeof(got));
  OK(blas.cublasSetStream_v2(handle, NULL));
  OK(cu.cuGraphExecDestroy(exec));
  OK(cu.cuGraphDestroy(graph));
  OK(cu.cuStreamDestroy_v2(stream));
  OK(cu.cuMemFree_v2(a));
  OK(cu.cuMemFree_v2(c));
  OK(cu.cuMemFree_v2(workspace));
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, begin, end)
int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(products_are_right),   TEST(halves_are_read_right),     TEST(calls_are_checked),
      TEST(matrices_are_bounded), TEST(captures_need_a_workspace),
  };
  return cmocka_run_group_tests(tests, sim_open, sim_close);
}
