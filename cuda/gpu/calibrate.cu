/*
 * calibrate.cu - what the time of a decoding step is made of, one kernel for each part; calibrate.c drives it. NVRTC compiles it without
 * any header.
 *
 * The exchange kernels all compute the same rounds: x' = step(x) of a vector of `width` words that every block reads whole and of which
 * every block makes a part, as a stage of a model does. The result is compared to the bit with the host's.
 */
typedef unsigned int u32;
typedef unsigned long long u64;

#define MOST_WIDTH 2048
#define SPINS (1u << 22) /* then the kernel gives up: *stop is set, nobody waits for ever */

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
static __device__ __forceinline__ u32 load_acquire(const u32 *p) {
  u32 v;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
  return v;
}
static __device__ __forceinline__ u64 load_word(const u64 *p) {
  u64 v;
  asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
  return v;
}
static __device__ __forceinline__ void store_word(u64 *p, u64 v) {
  asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
}
/* as weights are read: 16 bytes, not kept in L1 */
static __device__ __forceinline__ uint4 load_once(const uint4 *p) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
  return v;
}

/* element i of the next vector; x in shared memory, whole */
static __device__ __forceinline__ u32 step(const u32 *x, u32 width, u32 i, u32 round) {
  u32 next = i + 1 < width ? i + 1 : 0, far = i + width / 2;
  if (far >= width) far -= width;
  return 3u * x[next] + 5u * x[far] + (x[i] >> 7) + round;
}

/* reads count x 16 bytes, `times` times; *sum += all words. Grids of any size. */
extern "C" __global__ void read_all(const uint4 *data, u64 count, u32 times, u32 *sum) {
  u64 stride = (u64)gridDim.x * blockDim.x;
  u32 s = 0;
  for (u32 t = 0; t < times; t++) {
    u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    for (; i + 7 * stride < count; i += 8 * stride) {
      uint4 v[8];
#pragma unroll
      for (int k = 0; k < 8; k++) v[k] = load_once(data + i + k * stride);
#pragma unroll
      for (int k = 0; k < 8; k++) s += v[k].x + v[k].y + v[k].z + v[k].w;
    }
    for (; i < count; i += stride) {
      uint4 v = load_once(data + i);
      s += v.x + v.y + v.z + v.w;
    }
  }
  for (int k = 16; k > 0; k /= 2) s += __shfl_xor_sync(0xffffffffu, s, k);
  if (threadIdx.x % 32 == 0) atomicAdd(sum, s);
}

/* nothing but the edge to the kernel before */
extern "C" __global__ void empty(u32 *cell) {
  grid_launch();
  grid_wait();
  if (blockIdx.x == 0 && threadIdx.x == 0) *cell += 1;
}

/* one round, one launch: the exchange is the end of the kernel */
extern "C" __global__ void round_once(const u32 *from, u32 *to, u32 width, u32 round) {
  __shared__ u32 x[MOST_WIDTH];
  u32 part = (width + gridDim.x - 1) / gridDim.x, begin = blockIdx.x * part, end = begin + part < width ? begin + part : width;
  grid_launch();
  grid_wait();
  for (u32 i = threadIdx.x; i < width; i += blockDim.x) x[i] = from[i];
  __syncthreads();
  for (u32 i = begin + threadIdx.x; i < end; i += blockDim.x) to[i] = step(x, width, i, round);
}

/* the barrier of cooperative groups: block 0 adds what makes the top bit flip when all others have added 1 */
static __device__ __forceinline__ u32 barrier_flip(u32 *word, u32 *stop) {
  __shared__ u32 gone;
  __syncthreads();
  if (threadIdx.x == 0) {
    u32 spins = 0, add = blockIdx.x == 0 ? 0x80000000u - (gridDim.x - 1) : 1;
    __threadfence();
    u32 old = atomicAdd(word, add);
    while (((old ^ load_acquire(word)) & 0x80000000u) == 0 && ++spins < SPINS) {}
    __threadfence();
    gone = spins >= SPINS;
    if (gone) atomicExch(stop, 1);
  }
  __syncthreads();
  return gone;
}

/* our own: one counter that only grows, arrival by a release, waiting by acquires */
static __device__ __forceinline__ u32 barrier_count(u32 *word, u32 *stop, u32 target) {
  __shared__ u32 gone;
  __syncthreads();
  if (threadIdx.x == 0) {
    u32 spins = 0;
    asm volatile("red.release.gpu.global.add.u32 [%0], %1;" ::"l"(word), "r"(1) : "memory");
    while ((int)(load_acquire(word) - target) < 0 && ++spins < SPINS) {}
    gone = spins >= SPINS;
    if (gone) atomicExch(stop, 1);
  }
  __syncthreads();
  return gone;
}

/* Rounds 1 .. rounds in one launch; a has the vector of round 0, the last one ends in a where rounds is even, else in b. All blocks must be
   resident: a cooperative launch. */
static __device__ __forceinline__ void rounds_by(u32 *a, u32 *b, u32 width, u32 rounds, u32 *word, u32 *stop, bool flip) {
  __shared__ u32 x[MOST_WIDTH];
  u32 part = (width + gridDim.x - 1) / gridDim.x, begin = blockIdx.x * part, end = begin + part < width ? begin + part : width;
  for (u32 round = 1; round <= rounds; round++) {
    u32 *from = round & 1 ? a : b, *to = round & 1 ? b : a;
    for (u32 i = threadIdx.x; i < width; i += blockDim.x) x[i] = __ldcg(from + i);
    __syncthreads();
    for (u32 i = begin + threadIdx.x; i < end; i += blockDim.x) to[i] = step(x, width, i, round);
    if (flip ? barrier_flip(word, stop) : barrier_count(word, stop, gridDim.x * round)) return;
  }
}

extern "C" __global__ void rounds_flip(u32 *a, u32 *b, u32 width, u32 rounds, u32 *word, u32 *stop) {
  rounds_by(a, b, width, rounds, word, stop, true);
}

extern "C" __global__ void rounds_count(u32 *a, u32 *b, u32 width, u32 rounds, u32 *word, u32 *stop) {
  rounds_by(a, b, width, rounds, word, stop, false);
}

/* The flag travels with the number: a word is (round << 32 | value), and a reader waits for the words it needs. Two buffers suffice: who
   writes round r + 1 has read all of round r, and so had everyone who wrote it, of round r - 1. */
extern "C" __global__ void rounds_flag(u64 *a, u64 *b, u32 width, u32 rounds, u32 *stop) {
  __shared__ u32 x[MOST_WIDTH];
  __shared__ u32 gone;
  u32 part = (width + gridDim.x - 1) / gridDim.x, begin = blockIdx.x * part, end = begin + part < width ? begin + part : width;
  if (threadIdx.x == 0) gone = 0;
  __syncthreads();
  for (u32 round = 1; round <= rounds; round++) {
    const u64 *from = round & 1 ? a : b;
    u64 *to = round & 1 ? b : a;
    for (u32 i = threadIdx.x; i < width; i += blockDim.x) {
      u32 spins = 0;
      u64 v = load_word(from + i);
      while ((u32)(v >> 32) != round - 1 && ++spins < SPINS) v = load_word(from + i);
      if (spins >= SPINS) atomicExch(&gone, 1);
      x[i] = (u32)v;
    }
    __syncthreads();
    if (gone) {
      if (threadIdx.x == 0) atomicExch(stop, 1);
      return;
    }
    for (u32 i = begin + threadIdx.x; i < end; i += blockDim.x) store_word(to + i, (u64)round << 32 | step(x, width, i, round));
    __syncthreads();
  }
}
