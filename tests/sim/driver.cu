/* Kernels of tests/unit/test_sim_driver.c; driver.sm_90.ptx and driver.sm_80.ptx beside it were made of this by
   `nvcc -ptx -arch=sm_90 --generate-line-info driver.cu`. */

#if __CUDA_ARCH__ >= 900
#define WAIT() asm volatile("griddepcontrol.wait;" ::: "memory")
#define LAUNCH_DEPENDENTS() asm volatile("griddepcontrol.launch_dependents;" ::: "memory")
#else
#define WAIT()
#define LAUNCH_DEPENDENTS()
#endif

extern "C" __global__ void scale(float *y, const float *x, float f, unsigned n) {
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = f * x[i];
}

struct triple {
  float a, b, c;
};
extern "C" __global__ void by_value(float *y, const __grid_constant__ triple t) {
  y[threadIdx.x] = t.a + t.b * (float)threadIdx.x + t.c;
}

/* y = x w: the weight is read ahead of the wait, x behind it */
extern "C" __global__ void chain(float *y, const float *x, const float *w, unsigned n) {
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  LAUNCH_DEPENDENTS();
  float f = i < n ? w[i] : 0.0f;
  WAIT();
  if (i < n) y[i] = x[i] * f;
}

/* the seeded faults of programmatic launches */
extern "C" __global__ void chain_reads_early(float *y, const float *x, const float *w, unsigned n) {
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  float f = i < n ? x[i] : 0.0f;
  WAIT();
  if (i < n) y[i] = w[i] * f;
}
extern "C" __global__ void chain_writes_early(float *y, const float *x, const float *w, unsigned n) {
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = w[i];
  WAIT();
  if (i < n) y[i] = w[i] * x[i];
}
extern "C" __global__ void chain_never_waits(float *y, const float *x, const float *w, unsigned n) {
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = w[i] * x[i];
}
extern "C" __global__ void chain_last_reads_early(float *y, const float *x, const float *w, unsigned n) {
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  float f = 0;
  if (blockIdx.x == gridDim.x - 1 && i < n) f = x[i];
  WAIT();
  if (i < n) y[i] = w[i] * (blockIdx.x == gridDim.x - 1 ? f : x[i]);
}
extern "C" __global__ void chain_seldom_waits(float *y, const float *x, const float *w, unsigned n) {
  if (blockIdx.x < n) return;
  WAIT();
  y[0] = x[0] * w[0];
}

/* the other seeded faults */
extern "C" __global__ void beyond(float *y) { y[blockIdx.x * blockDim.x + threadIdx.x] = 1.0f; }
extern "C" __global__ void misaligned(float *y) { *(float4 *)(y + 1) = make_float4(1, 2, 3, 4); }
extern "C" __global__ void forever(volatile unsigned *flag) {
  while (*flag == 0) {}
}
extern "C" __global__ void race(float *y) { y[0] = (float)blockIdx.x; }
extern "C" __global__ void stop(float *y) {
  if (y) asm volatile("trap;");
}

extern "C" __global__ void dynamic_shared(float *y, unsigned n) {
  extern __shared__ float s[];
  for (unsigned i = threadIdx.x; i < n; i += blockDim.x) s[n - 1 - i] = (float)i;
  __syncthreads();
  for (unsigned i = threadIdx.x; i < n; i += blockDim.x) y[i] = s[i];
}

extern "C" __global__ void __launch_bounds__(64) few_threads(unsigned *order) {
  __shared__ unsigned ticket;
  if (threadIdx.x == 0) ticket = atomicAdd(&order[0], 1u);
  __syncthreads();
  if (threadIdx.x == 0) order[1 + ticket] = blockIdx.x;
}
