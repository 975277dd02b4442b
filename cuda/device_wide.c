/* Linear stages of many rows: a kernel makes the operand, matrix products by libcublas or by the package's own kernel, a kernel with
   the epilogue. docs/cuda.md */
#include "cuda/device_priv.h"
#include <stdio.h>
#include <string.h>

enum { WORKSPACE_BYTES = 32 << 20, SIM_WORKSPACE_BYTES = 1 << 20 };

static taper_status start_cublas(cuda_device *d, taper_error *error) {
  CUdeviceptr workspace;
  const uint64_t bytes = d->driver.simulated ? SIM_WORKSPACE_BYTES : WORKSPACE_BYTES;
  const bool full = d->table.dtype == ST_F32;
  TAPER_TRY(cuda_alloc(d, bytes, "the workspace of libcublas", &workspace, error));
  const cublas_library *c = &d->cublas;
  TAPER_TRY(cublas_library_check(c->cublasCreate_v2(&d->gemm), "cublasCreate_v2", error));
  TAPER_TRY(cublas_library_check(c->cublasSetStream_v2(d->gemm, d->stream), "cublasSetStream_v2", error));
  TAPER_TRY(cublas_library_check(c->cublasSetWorkspace_v2(d->gemm, (void *)(uintptr_t)workspace, bytes),
                                 "cublasSetWorkspace_v2", error));
  return cublas_library_check(
      c->cublasSetMathMode(d->gemm, full ? CUBLAS_PEDANTIC_MATH : CUBLAS_NO_REDUCED_PRECISION_SUMS),
      "cublasSetMathMode", error);
}

static bool has_products(const cuda_device *d) {
  for (uint32_t i = 0; i < d->table.stages.count; i++)
    if (d->table.stages.at[i].wide.is) return true;
  return false;
}

taper_status cuda_open_gemm(cuda_device *d, const taper_model_options *o, taper_error *error) {
  const bool wanted = o->gemm && strcmp(o->gemm, "cublas") == 0;
  char line[sizeof(error->message) + 64];
  taper_error why = {0};
  if (d->base.facts.row_cap <= TAPER_CUDA_ROWS || !has_products(d)) return TAPER_OK;
  if (o->gemm && !wanted) return TAPER_OK;
  d->has_cublas = true; /* closing is legal after a failure */
  taper_status status = cublas_library_open(NULL, d->driver.simulated, &d->cublas, &why);
  const bool found = status == TAPER_OK;
  if (found) status = start_cublas(d, &why);
  d->use_cublas = status == TAPER_OK;
  if (d->use_cublas) return TAPER_OK;
  if (wanted || !d->table.gemm.is) return TAPER_FAIL(error, status, "option 'gemm': %s", why.message);
  snprintf(line, sizeof(line), "prefills use the generated kernel: %s", why.message);
  if (o->log) o->log(o->log_user, found ? TAPER_LOG_WARNING : TAPER_LOG_INFO, line);
  return TAPER_OK;
}

void cuda_close_gemm(cuda_device *d) {
  if (d->gemm) (void)d->cublas.cublasDestroy_v2(d->gemm);
  if (d->has_cublas && d->driver.simulated) cublas_library_close(&d->cublas); /* a real one stays, as its driver does */
  d->gemm = NULL, d->has_cublas = d->use_cublas = false;
}

/* The rows of a stage: those of the call, or of its logits. */
static uint32_t rows_of(const cuda_launch *l, const launch_stage *s) {
  for (int i = 0; i < 3; i++)
    if (s->call.grid[i].what == LAUNCH_OUT_ROWS || s->call.grid[i].what == LAUNCH_OUT_ROW_GROUPS)
      return l->call.out_rows;
  return l->call.rows;
}

bool cuda_is_wide(const cuda_launch *l, const launch_stage *s) {
  return s->wide.is && (l->d->use_cublas || l->d->table.gemm.is) && rows_of(l, s) > TAPER_CUDA_ROWS;
}

typedef struct operands {
  CUdeviceptr w, x, y;
  uint32_t rows, columns, depth, w_pitch, x_pitch, y_pitch; /* pitches in numbers */
} operands;

static taper_status by_cublas(const cuda_launch *l, const operands *o, taper_error *error) {
  const cuda_device *d = l->d;
  const float one = 1, zero = 0;
  const int type = d->table.dtype == ST_BF16 ? CUDA_R_16BF : d->table.dtype == ST_F16 ? CUDA_R_16F : CUDA_R_32F;
  const int compute = type == CUDA_R_32F ? CUBLAS_COMPUTE_32F_PEDANTIC : CUBLAS_COMPUTE_32F;
  return cublas_library_check(d->cublas.cublasGemmEx(d->gemm, CUBLAS_OP_T, CUBLAS_OP_N, (int)o->columns, (int)o->rows,
                                                     (int)o->depth, &one, (const void *)(uintptr_t)o->w, type,
                                                     (int)o->w_pitch, (const void *)(uintptr_t)o->x, type,
                                                     (int)o->x_pitch, &zero, (void *)(uintptr_t)o->y, CUDA_R_32F,
                                                     (int)o->y_pitch, compute, CUBLAS_GEMM_DEFAULT),
                              "cublasGemmEx", error);
}

static taper_status by_kernel(cuda_launch *l, const operands *o, const char *stage, taper_error *error) {
  const launch_gemm *g = &l->d->table.gemm;
  const uint64_t slots[] = {o->w, o->x, o->y, o->rows, o->columns, o->depth, o->w_pitch, o->x_pitch, o->y_pitch};
  const unsigned grid[3] = {(o->columns + g->tile_n - 1) / g->tile_n, (o->rows + g->tile_m - 1) / g->tile_m, 1};
  return cuda_launch_kernel(l, g->kernel, grid, l->d->table.kernels.at[g->kernel].threads, slots, stage, error);
}

static taper_status product(cuda_launch *l, const launch_product *q, uint32_t rows, const char *stage,
                            taper_error *error) {
  const cuda_device *d = l->d;
  const launch_weight *w = &d->table.weights.at[q->weight];
  const uint64_t cap = d->base.facts.row_cap, size = st_dtype_size(w->dtype);
  const operands o = {.w = d->weight[q->weight] + (uint64_t)q->row0 * w->pitch * size,
                      .x = d->arena + q->x * cap * sizeof(float) + q->x_start * size,
                      .y = d->arena + q->y * cap * sizeof(float),
                      .rows = rows,
                      .columns = q->rows,
                      .depth = w->cols,
                      .w_pitch = w->pitch,
                      .x_pitch = q->x_width,
                      .y_pitch = q->y_width};
  if (!d->use_cublas) return by_kernel(l, &o, stage, error);
  l->follows_kernel = false;
  taper_status status = by_cublas(l, &o, error);
  return status == TAPER_OK ? status : taper_add_context(error, status, "stage '%.80s'", stage);
}

taper_status cuda_launch_wide(cuda_launch *l, const launch_stage *s, taper_error *error) {
  const uint32_t rows = rows_of(l, s);
  if (s->wide.has_before) TAPER_TRY(cuda_launch_call(l, &s->wide.before, s->name, error));
  for (uint32_t i = 0; i < s->wide.products.count; i++)
    TAPER_TRY(product(l, &s->wide.products.at[i], rows, s->name, error));
  return s->wide.has_after ? cuda_launch_call(l, &s->wide.after, s->name, error) : TAPER_OK;
}
