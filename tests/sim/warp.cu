// Matrix instructions, copies, atomics, addresses of all spaces.
#define KERNEL extern "C" __global__ void
typedef unsigned int u32;
typedef unsigned short u16;
static __device__ u32 shared_address(const void *p) { return (u32)__cvta_generic_to_shared(p); }

// C[16][8] = A[16][k] B[8][k]^T + C, A and B as 16-bit numbers; fragments by the figures of the PTX ISA.
#define MMA(NAME, SHAPE, TYPES, K)                                                                                               \
  KERNEL NAME(const u16 *a, const u16 *b, float *c) {                                                                            \
    int lane = threadIdx.x, group = lane >> 2, t = lane & 3;                                                                     \
    u32 fa[K / 4], fb[K / 8];                                                                                                    \
    for (int i = 0; i < K / 4; i++) {                                                                                            \
      int row = i % 2 == 0 ? group : group + 8, column = t * 2 + (i >= 2 ? 8 : 0);                                               \
      fa[i] = a[row * K + column] | (u32)a[row * K + column + 1] << 16;                                                          \
    }                                                                                                                            \
    for (int i = 0; i < K / 8; i++) {                                                                                            \
      int k = t * 2 + 8 * i;                                                                                                     \
      fb[i] = b[group * K + k] | (u32)b[group * K + k + 1] << 16;                                                                \
    }                                                                                                                            \
    float d[4];                                                                                                                  \
    for (int i = 0; i < 4; i++) d[i] = c[(i < 2 ? group : group + 8) * 8 + t * 2 + (i & 1)];                                     \
    INSTRUCTION_##K(SHAPE, TYPES);                                                                                               \
    for (int i = 0; i < 4; i++) c[(i < 2 ? group : group + 8) * 8 + t * 2 + (i & 1)] = d[i];                                     \
  }
#define INSTRUCTION_16(SHAPE, TYPES)                                                                                             \
  asm volatile("mma.sync.aligned." SHAPE ".row.col.f32." TYPES ".f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"      \
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                                                  \
               : "r"(fa[0]), "r"(fa[1]), "r"(fa[2]), "r"(fa[3]), "r"(fb[0]), "r"(fb[1]))
#define INSTRUCTION_8(SHAPE, TYPES)                                                                                              \
  asm volatile("mma.sync.aligned." SHAPE ".row.col.f32." TYPES ".f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"               \
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                                                  \
               : "r"(fa[0]), "r"(fa[1]), "r"(fb[0]))
MMA(mma_f16_16, "m16n8k16", "f16.f16", 16)
MMA(mma_f16_8, "m16n8k8", "f16.f16", 8)
MMA(mma_bf16_16, "m16n8k16", "bf16.bf16", 16)
MMA(mma_bf16_8, "m16n8k8", "bf16.bf16", 8)

KERNEL mma_tf32_8(const float *a, const float *b, float *c) {
  int lane = threadIdx.x, group = lane >> 2, t = lane & 3;
  u32 fa[4], fb[2];
  for (int i = 0; i < 4; i++) fa[i] = __float_as_uint(a[(group + (i % 2) * 8) * 8 + t + (i / 2) * 4]);
  for (int i = 0; i < 2; i++) fb[i] = __float_as_uint(b[group * 8 + t + 4 * i]);
  float d[4];
  for (int i = 0; i < 4; i++) d[i] = c[(i < 2 ? group : group + 8) * 8 + t * 2 + (i & 1)];
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(fa[0]), "r"(fa[1]), "r"(fa[2]), "r"(fa[3]), "r"(fb[0]), "r"(fb[1]));
  for (int i = 0; i < 4; i++) c[(i < 2 ? group : group + 8) * 8 + t * 2 + (i & 1)] = d[i];
}

// One warp: C[16][8] = A[16][k] B[8][k]^T in bf16, two stages of cp.async, ldmatrix, mma. k: a multiple of 16.
KERNEL pipeline(const u16 *a, const u16 *b, float *c, int k) {
  __shared__ __align__(16) u16 sa[2][16 * 24], sb[2][8 * 24];
  int l = threadIdx.x;
  float d[4] = {};
  auto load = [&](int stage, int from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(&sa[stage][(l >> 1) * 24 + (l & 1) * 8])), "l"(a + (l >> 1) * k + from + (l & 1) * 8) : "memory");
    if (l < 16)
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(&sb[stage][(l >> 1) * 24 + (l & 1) * 8])), "l"(b + (l >> 1) * k + from + (l & 1) * 8) : "memory");
    asm volatile("cp.async.commit_group;" ::: "memory");
  };
  load(0, 0);
  for (int i = 0, s = 0; i < k; i += 16, s ^= 1) {
    if (i + 16 < k) {
      load(s ^ 1, i + 16);
      asm volatile("cp.async.wait_group 1;" ::: "memory");
    } else {
      asm volatile("cp.async.wait_group 0;" ::: "memory");
    }
    __syncwarp();
    u32 fa[4], fb[2];
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(fa[0]), "=r"(fa[1]), "=r"(fa[2]), "=r"(fa[3]) : "r"(shared_address(&sa[s][(l & 15) * 24 + (l >> 4) * 8])) : "memory");
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];" : "=r"(fb[0]), "=r"(fb[1]) : "r"(shared_address(&sb[s][(l & 7) * 24 + ((l >> 3) & 1) * 8])) : "memory");
    INSTRUCTION_16("m16n8k16", "bf16.bf16");
    __syncwarp();
  }
  for (int i = 0; i < 4; i++) c[((l >> 2) + (i < 2 ? 0 : 8)) * 8 + (l & 3) * 2 + (i & 1)] = d[i];
}
KERNEL transposed(const u16 *x, u32 *y) {
  __shared__ __align__(16) u16 s[32 * 8];
  for (int i = 0; i < 8; i++) s[i * 32 + threadIdx.x] = x[i * 32 + threadIdx.x];
  __syncwarp();
  u32 r[4], q;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(shared_address(s + 8 * threadIdx.x)) : "memory");
  asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" : "=r"(q) : "r"(shared_address(s + 8 * threadIdx.x)) : "memory");
  for (int i = 0; i < 4; i++) y[i * 32 + threadIdx.x] = r[i];
  y[128 + threadIdx.x] = q;
}
// cp.async of fewer bytes than the destination has: the rest is 0.
KERNEL padded(const float *x, float *y, int n) {
  __shared__ __align__(16) float s[128];
  int left = n - 4 * (int)threadIdx.x, bytes = left >= 4 ? 16 : left > 0 ? 4 * left : 0;
  asm volatile("cp.async.ca.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(s + 4 * threadIdx.x)), "l"(x + 4 * threadIdx.x), "r"(bytes) : "memory");
  asm volatile("cp.async.wait_all;" ::: "memory");
  __syncwarp();
  for (int i = 0; i < 4; i++) y[i * 32 + threadIdx.x] = s[i * 32 + threadIdx.x];
}

// Results of atomics do not depend on the order here.
KERNEL atomics(u32 *w, unsigned long long *q, float *f, double *g) {
  __shared__ u32 s[8];
  __shared__ float sf;
  u32 t = threadIdx.x;
  if (t < 8) s[t] = t == 1 ? 0xffffffffu : 0;
  if (t == 8) sf = 0;
  __syncthreads();
  atomicAdd(&s[0], t);
  atomicMin(&s[1], t + 5);
  atomicMax(&s[2], t * 3);
  atomicOr(&s[3], 1u << (t & 31));
  atomicAdd(&sf, 0.5f);
  atomicXor(&s[4], t);
  atomicInc(&s[5], 9);
  __syncthreads();
  if (t < 6) w[16 + t] = s[t];
  if (t == 6) f[1] = sf;
  atomicAdd(&w[0], t);
  atomicSub(&w[1], t);
  atomicMin((int *)&w[2], -(int)t);
  atomicMax((int *)&w[3], (int)t - 10);
  atomicAnd(&w[4], ~(1u << (t & 31)));
  atomicDec(&w[5], 100);
  atomicExch(&w[6], 42u);
  atomicAdd(&q[0], (unsigned long long)t << 33);
  atomicMax(&q[1], (unsigned long long)t << 40);
  atomicCAS(&q[2], 7ull, 1ull << 50);
  atomicAdd(&f[0], 1.25f);
  atomicAdd(&g[0], 0.125);
  // a lock-free maximum of floats
  u32 old = w[7], seen;
  float mine = (float)((t * 37) % 256);
  do {
    seen = old;
    if (__uint_as_float(seen) >= mine) break;
    old = atomicCAS(&w[7], seen, __float_as_uint(mine));
  } while (old != seen);
}

static __device__ __noinline__ float through(const float *p, int i) { return p[i] * 2; }
__constant__ float table[5] = {1, 2, 4, 8, 16};
__device__ float variable[3] = {0.5f, 0.25f, 0.125f};
struct options {
  float v[9];
  int n;
};
KERNEL spaces(const float *x, float *y, const __grid_constant__ options o) {
  __shared__ float s[64];
  float local[6];
  s[threadIdx.x] = x[threadIdx.x] + 1;
  for (int i = 0; i < 6; i++) local[i] = x[i] * threadIdx.x;
  __syncthreads();
  const float *p = threadIdx.x % 4 == 0 ? x : threadIdx.x % 4 == 1 ? s : threadIdx.x % 4 == 2 ? local : o.v;
  y[threadIdx.x] = through(p, threadIdx.x % 6) + table[threadIdx.x % 5] + variable[threadIdx.x % 3] + o.v[threadIdx.x % o.n];
  if (threadIdx.x == 0) variable[0] += 1;
}
