// Seeded bugs, each beside the kernel without it where that shows that the simulator does not cry wolf. x, y: buffers of n floats; c: words, 0 at first.
#define KERNEL extern "C" __global__ void
#define ALL 0xffffffffu
typedef unsigned int u32;
static __device__ u32 shared_address(const void *p) { return (u32)__cvta_generic_to_shared(p); }
static __device__ void copy16(void *to, const void *from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(to)), "l"(from) : "memory");
}
static __device__ void commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
static __device__ void wait_all() { asm volatile("cp.async.wait_all;" ::: "memory"); }
template <int N> static __device__ void wait_but() { asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory"); }

// ---- addresses ----
KERNEL bad_end(const float *x, float *y, u32 *c, int n) { y[blockIdx.x * blockDim.x + threadIdx.x + 1] = x[threadIdx.x]; }
KERNEL bad_begin(const float *x, float *y, u32 *c, int n) { y[threadIdx.x] = x[(int)threadIdx.x - 1]; }
KERNEL bad_null(const float *x, float *y, u32 *c, int n) { y[threadIdx.x] = ((const float *)(unsigned long long)(n - 256))[threadIdx.x]; }
KERNEL bad_aligned(const float *x, float *y, u32 *c, int n) { ((float4 *)(y + 1))[threadIdx.x] = ((const float4 *)x)[threadIdx.x]; }
KERNEL bad_shared_end(const float *x, float *y, u32 *c, int n) {
  extern __shared__ float d[];
  d[threadIdx.x] = x[threadIdx.x];
}
KERNEL bad_shared_begin(const float *x, float *y, u32 *c, int n) {
  __shared__ float d[64];
  d[(int)threadIdx.x - n + 255] = x[threadIdx.x];
  y[threadIdx.x] = d[threadIdx.x & 63];
}
KERNEL bad_shared_aligned(const float *x, float *y, u32 *c, int n) {
  __shared__ float d[300];
  float2 *p = (float2 *)(d + threadIdx.x % 2 + 2 * threadIdx.x % 64);
  asm volatile("st.shared.v2.f32 [%0], {%1, %1};" ::"r"(shared_address(p)), "f"(x[0]) : "memory");
}
KERNEL bad_local(const float *x, float *y, u32 *c, int n) {
  float keep[8];
  for (int k = 0; k < 8; k++) keep[k] = x[k];
  y[threadIdx.x] = keep[(threadIdx.x & 7) + n - 255] + keep[(threadIdx.x + 1) & 7];
}
// ---- what was never written ----
KERNEL bad_unwritten(const float *x, float *y, u32 *c, int n) { y[threadIdx.x] += x[threadIdx.x]; }
KERNEL bad_unwritten_shared(const float *x, float *y, u32 *c, int n) {
  __shared__ float s[512];
  s[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  y[threadIdx.x] = s[threadIdx.x] + s[threadIdx.x + 256];
}
KERNEL bad_unwritten_local(const float *x, float *y, u32 *c, int n) {
  float keep[8];
  for (int k = 0; k < (n & 7); k++) keep[k] = x[k];
  y[threadIdx.x] = keep[(threadIdx.x & 7)];
}
// ---- races in a block ----
KERNEL bad_no_barrier(const float *x, float *y, u32 *c, int n) {
  __shared__ float s[256];
  s[threadIdx.x] = 0;
  __syncthreads();
  s[threadIdx.x] = x[threadIdx.x];
  y[threadIdx.x] = s[(threadIdx.x + 64) & 255];
}
KERNEL bad_barrier_after_loop(const float *x, float *y, u32 *c, int n) {
  __shared__ float s[256];
  float sum = 0;
  for (int k = 0; k < 3; k++) {
    s[threadIdx.x] = x[threadIdx.x] * k; // the readers of the round before may not be done
    __syncthreads();
    sum += s[(threadIdx.x + 64) & 255];
  }
  y[threadIdx.x] = sum;
}
KERNEL fine_barrier_after_loop(const float *x, float *y, u32 *c, int n) {
  __shared__ float s[256];
  float sum = 0;
  for (int k = 0; k < 3; k++) {
    s[threadIdx.x] = x[threadIdx.x] * k;
    __syncthreads();
    sum += s[(threadIdx.x + 64) & 255];
    __syncthreads();
  }
  y[threadIdx.x] = sum;
}
KERNEL bad_two_write(const float *x, float *y, u32 *c, int n) {
  __shared__ float s[8];
  s[threadIdx.x / 32] = x[threadIdx.x];
  __syncthreads();
  y[threadIdx.x] = s[threadIdx.x / 32];
}
KERNEL fine_same_value(const float *x, float *y, u32 *c, int n) {
  __shared__ float s[8];
  s[threadIdx.x / 32] = x[threadIdx.x / 32];
  __syncthreads();
  y[threadIdx.x] = s[threadIdx.x / 32];
}
KERNEL bad_no_syncwarp(const float *x, float *y, u32 *c, int n) {
  __shared__ float s[256];
  s[threadIdx.x] = x[threadIdx.x];
  y[threadIdx.x] = ((volatile float *)s)[threadIdx.x ^ 1];
}
KERNEL fine_syncwarp(const float *x, float *y, u32 *c, int n) {
  __shared__ float s[256];
  s[threadIdx.x] = x[threadIdx.x];
  __syncwarp();
  y[threadIdx.x] = s[threadIdx.x ^ 1];
}
KERNEL fine_part_syncwarp(const float *x, float *y, u32 *c, int n) {
  __shared__ float s[256];
  const u32 mask = threadIdx.x & 16 ? 0xffff0000u : 0xffffu;
  s[threadIdx.x] = x[threadIdx.x];
  if (threadIdx.x & 16) __syncwarp(mask);
  else __syncwarp(mask);
  y[threadIdx.x] = s[threadIdx.x ^ 1];
}
KERNEL bad_part_syncwarp(const float *x, float *y, u32 *c, int n) {
  __shared__ float s[256];
  const u32 mask = threadIdx.x & 16 ? 0xffff0000u : 0xffffu;
  s[threadIdx.x] = x[threadIdx.x];
  __syncwarp(mask);
  y[threadIdx.x] = s[threadIdx.x ^ 16];
}
KERNEL fine_halves(const float *x, float *y, u32 *c, int n) { // 16-bit neighbours in one word
  __shared__ unsigned short s[256];
  s[threadIdx.x] = (unsigned short)threadIdx.x;
  __syncthreads();
  y[threadIdx.x] = s[255 - threadIdx.x];
}
KERNEL fine_shared_atomics(const float *x, float *y, u32 *c, int n) {
  __shared__ u32 s[4];
  if (threadIdx.x < 4) s[threadIdx.x] = 0;
  __syncthreads();
  atomicAdd(&s[threadIdx.x & 3], threadIdx.x);
  __syncthreads();
  y[threadIdx.x] = s[threadIdx.x & 3];
}
KERNEL bad_shared_atomics(const float *x, float *y, u32 *c, int n) {
  __shared__ u32 s[4];
  if (threadIdx.x < 4) s[threadIdx.x] = 0;
  __syncthreads();
  atomicAdd(&s[threadIdx.x & 3], threadIdx.x);
  y[threadIdx.x] = s[threadIdx.x & 3];
}
// Named barriers: four warps make, four take.
template <bool BACK> static __device__ void hand_over(const float *x, float *y) {
  __shared__ float s[128];
  const int warp = threadIdx.x / 32, t = threadIdx.x & 127;
  for (int k = 0; k < 4; k++) {
    if (warp < 4) {
      if (k && BACK) asm volatile("bar.sync 2, 256;" ::: "memory");
      s[t] = x[t] * k;
      asm volatile("bar.arrive 1, 256;" ::: "memory");
    } else {
      asm volatile("bar.sync 1, 256;" ::: "memory");
      y[k * 128 + t] = s[127 - t];
      if (k < 3 && BACK) asm volatile("bar.arrive 2, 256;" ::: "memory");
    }
  }
}
KERNEL fine_named(const float *x, float *y, u32 *c, int n) { hand_over<true>(x, y); }
KERNEL bad_named(const float *x, float *y, u32 *c, int n) { hand_over<false>(x, y); }
// ---- barriers and lanes ----
KERNEL bad_two_barriers(const float *x, float *y, u32 *c, int n) {
  if (threadIdx.x < 40) {
    __syncthreads();
    y[threadIdx.x] = 1;
  } else {
    y[threadIdx.x] = 2;
    __syncthreads();
  }
}
KERNEL bad_part_barrier(const float *x, float *y, u32 *c, int n) {
  if (threadIdx.x & 1) asm volatile("bar.sync 0;" ::: "memory");
  else asm volatile("bar.sync 3;" ::: "memory");
  y[threadIdx.x] = 1;
}
KERNEL bad_shuffle(const float *x, float *y, u32 *c, int n) {
  float v = x[threadIdx.x];
  if (threadIdx.x & 1) v += __shfl_xor_sync(ALL, v, 2);
  y[threadIdx.x] = v;
}
KERNEL bad_shuffle_outside(const float *x, float *y, u32 *c, int n) {
  float v = x[threadIdx.x];
  if (threadIdx.x & 1) v += __shfl_xor_sync(0xaaaaaaaau, v, 1);
  y[threadIdx.x] = v;
}
KERNEL bad_not_member(const float *x, float *y, u32 *c, int n) {
  const u32 mask = n == 256 ? 0x0000ffffu : 0xffffffffu;
  y[threadIdx.x] = __ballot_sync(mask, x[threadIdx.x] > 0);
}
KERNEL bad_ended_lanes(const float *x, float *y, u32 *c, int n) {
  if (threadIdx.x >= 250) return;
  y[threadIdx.x] = __shfl_down_sync(ALL, x[threadIdx.x], 1);
}
KERNEL fine_shuffle(const float *x, float *y, u32 *c, int n) {
  float v = x[threadIdx.x];
  if (threadIdx.x & 1) v += __shfl_xor_sync(0xaaaaaaaau, v, 2);
  else v *= __shfl_xor_sync(0x55555555u, v, 4);
  y[threadIdx.x] = v;
}
// ---- copies ----
KERNEL bad_no_wait(const float *x, float *y, u32 *c, int n) {
  __shared__ __align__(16) float s[256];
  if (threadIdx.x < 64) copy16(s + 4 * threadIdx.x, x + 4 * threadIdx.x);
  commit();
  __syncthreads();
  y[threadIdx.x] = s[threadIdx.x];
}
KERNEL bad_wait_too_few(const float *x, float *y, u32 *c, int n) {
  __shared__ __align__(16) float s[2][256];
  for (int k = 0; k < 2; k++) {
    if (threadIdx.x < 64) copy16(s[k] + 4 * threadIdx.x, x + 4 * threadIdx.x);
    commit();
  }
  wait_but<1>();
  __syncthreads();
  y[threadIdx.x] = s[1][threadIdx.x];
}
KERNEL fine_wait(const float *x, float *y, u32 *c, int n) {
  __shared__ __align__(16) float s[2][256];
  for (int k = 0; k < 2; k++) {
    if (threadIdx.x < 64) copy16(s[k] + 4 * threadIdx.x, x + 4 * threadIdx.x);
    commit();
  }
  wait_but<1>();
  __syncthreads();
  float v = s[0][threadIdx.x];
  wait_all();
  __syncthreads();
  y[threadIdx.x] = v + s[1][threadIdx.x];
}
KERNEL bad_wait_no_barrier(const float *x, float *y, u32 *c, int n) {
  __shared__ __align__(16) float s[256];
  if (threadIdx.x < 64) copy16(s + 4 * threadIdx.x, x + 4 * threadIdx.x);
  wait_all();
  y[threadIdx.x] = s[threadIdx.x];
}
// ---- blocks ----
KERNEL bad_blocks(const float *x, float *y, u32 *c, int n) { y[threadIdx.x] = x[threadIdx.x] + blockIdx.x; }
KERNEL bad_blocks_read(const float *x, float *y, u32 *c, int n) {
  y[blockIdx.x * 64 + threadIdx.x % 64] = ((volatile const float *)y)[(blockIdx.x * 64 + 32 + threadIdx.x % 64) % n] + x[0];
}
KERNEL bad_read_only(const float *x, float *y, u32 *c, int n) {
  float v;
  asm volatile("ld.global.nc.f32 %0, [%1];" : "=f"(v) : "l"(y + threadIdx.x));
  y[threadIdx.x] = v + 1;
}
// Parts by every block; the last one adds them.
template <bool FENCE, bool LATE> static __device__ void last_block(const float *x, float *y, u32 *c) {
  __shared__ bool last;
  y[blockIdx.x * 64 + threadIdx.x % 64] = x[threadIdx.x % 64] * blockIdx.x;
  if (FENCE) __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    last = atomicAdd(c, 1) == gridDim.x - 1;
    if (LATE) __threadfence();
  }
  __syncthreads();
  if (!last || threadIdx.x >= 64) return;
  float sum = 0;
  for (int b = 0; b < (int)gridDim.x; b++) sum += ((volatile float *)y)[b * 64 + threadIdx.x];
  y[threadIdx.x] = sum;
  if (threadIdx.x == 0) *c = 0;
}
KERNEL fine_last_block(const float *x, float *y, u32 *c, int n) { last_block<true, true>(x, y, c); }
KERNEL bad_last_block(const float *x, float *y, u32 *c, int n) { last_block<false, true>(x, y, c); }
KERNEL bad_last_block_late(const float *x, float *y, u32 *c, int n) { last_block<true, false>(x, y, c); }
// A barrier of the whole grid, round after round.
KERNEL fine_grid_barrier(const float *x, float *y, u32 *c, int n) {
  for (int k = 0; k < 3; k++) {
    float *from = y + (k & 1) * 512, *to = y + (~k & 1) * 512;
    const int i = blockIdx.x * 64 + threadIdx.x % 64;
    if (threadIdx.x < 64) to[i] = k ? *(volatile float *)&from[(i + 70) % (64 * gridDim.x)] : x[threadIdx.x];
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
      atomicAdd(c, 1);
      while (*(volatile u32 *)c < (k + 1) * gridDim.x) __nanosleep(20);
      __threadfence();
    }
    __syncthreads();
  }
}
KERNEL bad_spin(const float *x, float *y, u32 *c, int n) {
  if (threadIdx.x == 0) {
    if (blockIdx.x == 0)
      while (*(volatile u32 *)c == 0) __nanosleep(20);
    else atomicAdd(c, 1);
  }
}
KERNEL bad_trap(const float *x, float *y, u32 *c, int n) {
  if (threadIdx.x == 77) asm volatile("trap;");
}
