/*
 * seeded.cu - kernels with one fault each, and beside each its right form: NAME_good computes what test_sim_seeded.c expects, NAME_bad must be
 * caught. All have the same parameters: x [n] read, y written, z scratch (zeroed words before the first launch).
 */
typedef unsigned int u32;
#define ROLLED _Pragma("unroll 1") /* copies of a loop that NVRTC makes, and of which only some run, would be places where a mutant does nothing */
#define KERNEL(name) extern "C" __global__ void name(const float *x, float *y, u32 *z, u32 n)

static __device__ __forceinline__ void grid_wait() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
static __device__ __forceinline__ void grid_launch() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
static __device__ __forceinline__ float block_sum(float v, float *partial, bool sync) {
  ROLLED for (int k = 16; k > 0; k /= 2) v += __shfl_xor_sync(0xffffffffu, v, k);
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = v;
  if (sync) __syncthreads();
  float s = 0;
  ROLLED for (u32 w = 0; w < blockDim.x / 32; w++) s += partial[w];
  return s;
}

/* a tail that is no whole block */
KERNEL(tail_good) {
  u32 i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = 2 * x[i];
}
KERNEL(tail_bad) {
  u32 i = blockIdx.x * blockDim.x + threadIdx.x;
  y[i] = 2 * x[i];
}
/* a bound that is off by one: the last thread reads beyond x */
KERNEL(bound_bad) {
  u32 i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i <= n) y[i % n] = 2 * x[i];
}

/* partial sums of warps without a barrier before they are read */
KERNEL(barrier_good) {
  __shared__ float partial[8];
  float s = block_sum(x[threadIdx.x], partial, true);
  ROLLED for (u32 i = threadIdx.x; i < n; i += blockDim.x) y[i] = s;
}
KERNEL(barrier_bad) {
  __shared__ float partial[8];
  float s = block_sum(x[threadIdx.x], partial, false);
  ROLLED for (u32 i = threadIdx.x; i < n; i += blockDim.x) y[i] = s;
}
/* the second use of the same shared memory overwrites what slow warps still read */
KERNEL(reuse_good) {
  __shared__ float partial[8];
  float s = block_sum(x[threadIdx.x], partial, true);
  __syncthreads();
  float q = block_sum(x[threadIdx.x] * x[threadIdx.x], partial, true);
  ROLLED for (u32 i = threadIdx.x; i < n; i += blockDim.x) y[i] = s + q;
}
KERNEL(reuse_bad) {
  __shared__ float partial[8];
  float s = block_sum(x[threadIdx.x], partial, true);
  float q = block_sum(x[threadIdx.x] * x[threadIdx.x], partial, true);
  ROLLED for (u32 i = threadIdx.x; i < n; i += blockDim.x) y[i] = s + q;
}
/* lanes of one warp exchange through shared memory as if they ran in step */
KERNEL(warp_good) {
  __shared__ float s[32];
  s[threadIdx.x] = x[threadIdx.x];
  __syncwarp();
  y[threadIdx.x] = s[threadIdx.x ^ 1];
}
KERNEL(warp_bad) {
  __shared__ float s[32];
  s[threadIdx.x] = x[threadIdx.x];
  y[threadIdx.x] = s[threadIdx.x ^ 1];
}

/* what the launch before wrote (PDL): z holds it */
KERNEL(produce) {
  grid_launch();
  grid_wait();
  u32 i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) ((float *)z)[i] = x[i] + 1;
}
KERNEL(consume_good) {
  grid_launch();
  u32 i = blockIdx.x * blockDim.x + threadIdx.x;
  float weight = i < n ? x[i] : 0; /* no one writes it: it may be read early */
  grid_wait();
  if (i < n) y[i] = weight * ((float *)z)[i];
}
KERNEL(consume_bad) {
  grid_launch();
  u32 i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] * ((float *)z)[i];
}
/* it waits, but reads before that */
KERNEL(early_bad) {
  grid_launch();
  u32 i = blockIdx.x * blockDim.x + threadIdx.x;
  float early = i < n ? ((volatile float *)z)[i] : 0;
  grid_wait();
  if (i < n) y[i] = x[i] * early;
}
/* it waits, but writes before that what the launch before still writes */
KERNEL(clobber_bad) {
  grid_launch();
  u32 i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) ((volatile u32 *)z)[i] = 0;
  grid_wait();
  if (i < n) y[i] = x[i] * ((float *)z)[i];
}

static __device__ __forceinline__ void copy_async(float *to, const float *from) {
  u32 address = (u32)__cvta_generic_to_shared(to);
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address), "l"(from) : "memory");
}
KERNEL(copy_good) {
  __shared__ __align__(16) float s[256];
  ROLLED for (u32 i = threadIdx.x; i < n / 4; i += blockDim.x) copy_async(s + 4 * i, x + 4 * i);
  asm volatile("cp.async.commit_group;" ::: "memory");
  asm volatile("cp.async.wait_group 0;" ::: "memory");
  __syncthreads();
  ROLLED for (u32 i = threadIdx.x; i < n; i += blockDim.x) y[i] = s[n - 1 - i];
}
KERNEL(copy_bad) {
  __shared__ __align__(16) float s[256];
  ROLLED for (u32 i = threadIdx.x; i < n / 4; i += blockDim.x) copy_async(s + 4 * i, x + 4 * i);
  asm volatile("cp.async.commit_group;" ::: "memory");
  __syncthreads();
  ROLLED for (u32 i = threadIdx.x; i < n; i += blockDim.x) y[i] = s[n - 1 - i];
}
/* two stages in flight, the wait lets the one through that is needed */
KERNEL(stages_bad) {
  __shared__ __align__(16) float s[2][128];
  ROLLED for (u32 k = 0; k < 2; k++) {
    ROLLED for (u32 i = threadIdx.x; i < n / 8; i += blockDim.x) copy_async(s[k] + 4 * i, x + k * (n / 2) + 4 * i);
    asm volatile("cp.async.commit_group;" ::: "memory");
  }
  asm volatile("cp.async.wait_group 2;" ::: "memory");
  __syncthreads();
  ROLLED for (u32 i = threadIdx.x; i < n / 2; i += blockDim.x) y[i] = s[0][i];
}

/* x holds 7 rows of 20 in a pitch of 24, the rest of a row is 0; y: the sums of the rows */
template <u32 pitch> static __device__ __forceinline__ void row_sums(const float *x, float *y) {
  float s = 0;
  ROLLED for (u32 i = threadIdx.x; i < 20; i += 32) s += x[blockIdx.x * pitch + i];
  ROLLED for (int k = 16; k > 0; k /= 2) s += __shfl_xor_sync(0xffffffffu, s, k);
  if (threadIdx.x == 0) y[blockIdx.x] = s;
}
KERNEL(pitch_good) { row_sums<24>(x, y); }
KERNEL(pitch_narrow_bad) { row_sums<20>(x, y); }
KERNEL(pitch_wide_bad) { row_sums<32>(x, y); }

/* the last block adds up what the others left in z[1..] */
template <bool fence, bool reset, bool atomic> static __device__ __forceinline__ void merge(const float *x, float *y, u32 *z, u32 n) {
  __shared__ u32 last;
  float *partial = (float *)(z + 1);
  u32 i = blockIdx.x * blockDim.x + threadIdx.x;
  float s = i < n ? x[i] : 0;
  ROLLED for (int k = 16; k > 0; k /= 2) s += __shfl_xor_sync(0xffffffffu, s, k);
  if (threadIdx.x == 0) {
    partial[blockIdx.x] = s;
    if (fence) __threadfence();
    if (atomic)
      last = atomicAdd(z, 1) == gridDim.x - 1;
    else
      last = blockIdx.x == gridDim.x - 1;
    if (fence) __threadfence();
  }
  __syncthreads();
  if (!last) return;
  if (threadIdx.x == 0) {
    float t = 0;
    ROLLED for (u32 b = 0; b < gridDim.x; b++) t += partial[b];
    y[0] = t;
    if (reset) z[0] = 0;
  }
}
KERNEL(merge_good) { merge<true, true, true>(x, y, z, n); }
KERNEL(merge_unfenced_bad) { merge<false, true, true>(x, y, z, n); }
KERNEL(merge_race_bad) { merge<true, false, false>(x, y, z, n); }
KERNEL(merge_unreset_bad) { merge<true, false, true>(x, y, z, n); }
/* two blocks write one word */
KERNEL(write_race_bad) {
  u32 i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i / 2 * 2 % n] = x[i];
  if (threadIdx.x == 0) y[0] = (float)blockIdx.x;
}
/* a sum in memory without an atomic */
KERNEL(lost_sum_bad) {
  if (threadIdx.x == 0) z[0] = z[0] + 1;
  u32 i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = 2 * x[i];
}

/* shared memory that nobody wrote; global memory that nobody wrote */
KERNEL(shared_bad) {
  __shared__ float s[512];
  s[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  ROLLED for (u32 i = threadIdx.x; i < n; i += blockDim.x) y[i] = s[i] + s[i + 256];
}
KERNEL(global_bad) {
  u32 i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] += x[i];
}

/* half of a warp comes to the barrier */
KERNEL(divergent_bad) {
  __shared__ float s[32];
  s[threadIdx.x] = x[threadIdx.x];
  if (threadIdx.x & 1) __syncthreads();
  s[threadIdx.x] *= 2;
  __syncthreads();
  y[threadIdx.x] = s[threadIdx.x];
}
/* a warp leaves, the others wait for it */
KERNEL(early_exit_bad) {
  __shared__ float s[64];
  s[threadIdx.x] = x[threadIdx.x];
  if (threadIdx.x / 32 == n % 2) asm volatile("bar.sync 1, 64;" ::: "memory");
  y[threadIdx.x] = s[threadIdx.x];
}
/* lanes that are elsewhere are named in the mask */
KERNEL(lanes_bad) {
  float v = x[threadIdx.x];
  if (threadIdx.x & 1)
    v += __shfl_xor_sync(0xffffffffu, v, 2);
  else
    v *= 3;
  y[threadIdx.x] = v;
}
/* 16 bytes at an address that is no multiple of 16 */
KERNEL(aligned_bad) {
  if (threadIdx.x < (n - 1) / 4) ((float4 *)(y + 1))[threadIdx.x] = ((const float4 *)x)[threadIdx.x];
}
/* memory that is read as read-only (ld.global.nc) is written by the same launch */
KERNEL(constant_bad) {
  u32 i = threadIdx.x;
  y[i] = x[i];
  __syncthreads();
  float v;
  asm volatile("ld.global.nc.f32 %0, [%1];" : "=f"(v) : "l"(y + (i ^ 1)));
  y[i] = 2 * v;
}
/* it waits for a block that the launch does not have */
KERNEL(spin_bad) {
  if (threadIdx.x == 0) {
    atomicAdd(z, 1);
    while (*(volatile u32 *)z < gridDim.x + 1) {}
  }
  if (threadIdx.x < n) y[threadIdx.x] = x[threadIdx.x];
}
/* right in a cooperative launch; in a plain one nobody promises that the other blocks have begun */
KERNEL(together) {
  u32 i = blockIdx.x * blockDim.x + threadIdx.x;
  if (threadIdx.x == 0) {
    atomicAdd(z, 1);
    while (*(volatile u32 *)z < gridDim.x) {}
  }
  __syncthreads();
  if (i < n) y[i] = 2 * x[i];
}
/* a dynamic shared array that is larger than what the launch gives */
KERNEL(dynamic_bad) {
  extern __shared__ float d[];
  d[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  y[threadIdx.x] = d[threadIdx.x ^ 1];
}
