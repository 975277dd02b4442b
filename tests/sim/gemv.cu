// y = W x for the bench of the interpreter, and sums in shared memory: what most kernels of a decoder are made of.
extern "C" __global__ void __launch_bounds__(256) gemv(const float *__restrict__ w, const float *__restrict__ x, float *y, int rows, int columns) {
  int row = blockIdx.x * 8 + threadIdx.x / 32, lane = threadIdx.x & 31;
  if (row >= rows) return;
  float sum = 0;
  const float *p = w + (size_t)row * columns;
  for (int i = lane * 4; i < columns; i += 128) {
    float4 a;
    asm volatile("ld.global.nc.L1::no_allocate.v4.f32 {%0,%1,%2,%3}, [%4];" : "=f"(a.x), "=f"(a.y), "=f"(a.z), "=f"(a.w) : "l"(p + i));
    const float4 b = *(const float4 *)(x + i);
    sum = fmaf(a.x, b.x, sum);
    sum = fmaf(a.y, b.y, sum);
    sum = fmaf(a.z, b.z, sum);
    sum = fmaf(a.w, b.w, sum);
  }
  for (int d = 16; d; d /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, d);
  if (lane == 0) y[row] = sum;
}
// Four columns of 8 rows at once, as in the linear stages.
extern "C" __global__ void __launch_bounds__(128) gemm8(const float *__restrict__ w, const float *x, float *y, int outs, int depth) {
  int first = (blockIdx.x * 4 + threadIdx.x / 32) * 2, lane = threadIdx.x & 31;
  float sum[2][8] = {};
  for (int i = lane * 4; i < depth; i += 128)
    for (int c = 0; c < 2; c++) {
      float4 a;
      asm volatile("ld.global.nc.L1::no_allocate.v4.f32 {%0,%1,%2,%3}, [%4];" : "=f"(a.x), "=f"(a.y), "=f"(a.z), "=f"(a.w) : "l"(w + (size_t)(first + c) * depth + i));
#pragma unroll
      for (int r = 0; r < 8; r++) {
        const float4 b = *(const float4 *)(x + (size_t)r * depth + i);
        sum[c][r] = fmaf(a.w, b.w, fmaf(a.z, b.z, fmaf(a.y, b.y, fmaf(a.x, b.x, sum[c][r]))));
      }
    }
#pragma unroll
  for (int c = 0; c < 2; c++)
#pragma unroll
    for (int r = 0; r < 8; r++) {
      for (int d = 16; d; d /= 2) sum[c][r] += __shfl_xor_sync(0xffffffffu, sum[c][r], d);
      if (lane == 0) y[(size_t)r * outs + first + c] = sum[c][r];
    }
}
extern "C" __global__ void __launch_bounds__(256) tile(const float *a, const float *b, float *y, int n) {
  __shared__ float left[16][17], right[16][17];
  int r = blockIdx.y * 16 + threadIdx.x / 16, c = blockIdx.x * 16 + threadIdx.x % 16, i = threadIdx.x / 16, j = threadIdx.x % 16;
  float sum = 0;
  for (int k = 0; k < n; k += 16) {
    left[i][j] = a[r * n + k + j];
    right[i][j] = b[(k + i) * n + c];
    __syncthreads();
    for (int d = 0; d < 16; d++) sum = fmaf(left[i][d], right[d][j], sum);
    __syncthreads();
  }
  y[r * n + c] = sum;
}
