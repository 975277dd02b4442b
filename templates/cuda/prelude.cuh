/* prelude.cuh - one warp works on a row: a lane has every 32nd column. Heads every emitted source after cuda_abi.h; no header of the toolkit. */
#if !defined(TAPER_CUDA_ABI_H)
#include "runtime/abi/cuda_abi.h"
#endif
#if !defined(TAPER_CUDA_PRELUDE)
#define TAPER_CUDA_PRELUDE

typedef unsigned short uint16_t;

#define INLINE [[maybe_unused]] static __device__ __forceinline__
#define UNROLL _Pragma("unroll")
/* 128 registers a thread may be used, where their blocks are not larger than 512. */
#define KERNEL_OF(threads) extern "C" __global__ void __launch_bounds__(threads, (threads) <= 512 ? 512 / (threads) : 1)
#define INFINITE __int_as_float(0x7f800000)
#define VL 32u
#define LANE (threadIdx.x % 32u)
#define WARP (threadIdx.x / 32u)
#define ALL_LANES 0xffffffffu
#define SYNC() __syncwarp()

/* Programmatic dependent launch: nothing that a kernel before wrote is touched ahead of the wait, and every kernel executes it. */
INLINE void grid_wait() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
INLINE void grid_release() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

/* A column of a row. The code of the steps is the same for every target: on a CPU these are vectors of columns. */
typedef float vf;
INLINE vf v_splat(float x) { return x; }
INLINE vf v_load(const float *p) { return *p; }
INLINE void v_store(float *p, vf x) { *p = x; }

/* x of the lane whose number differs in the bit STEP. */
template <uint32_t STEP> INLINE float lane_xor(float x) {
  float y;
  asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 0x1f, 0xffffffff;" : "=f"(y) : "f"(x), "n"(STEP));
  return y;
}
/* Sums in a fixed tree; every lane has the result. */
INLINE float warp_sum(float x) {
  x += lane_xor<16>(x), x += lane_xor<8>(x), x += lane_xor<4>(x), x += lane_xor<2>(x);
  return x + lane_xor<1>(x);
}
INLINE float warp_max(float x) {
  UNROLL for (uint32_t step = 16; step > 0; step /= 2) x = fmaxf(x, __shfl_xor_sync(ALL_LANES, x, step));
  return x;
}

/* Where a result that is one number goes: the first lane writes it. */
struct first_lane {
  float *at;
  struct number {
    float *at;
    __device__ __forceinline__ void operator=(float x) {
      if (LANE == 0) *at = x;
    }
  };
  __device__ __forceinline__ number operator[](uint32_t i) { return number{at + i}; }
};
INLINE first_lane by_one(float *p) { return first_lane{p}; }

/* Row r of a buffer. */
INLINE float *buffer_row(const taper_cuda_call *c, uint64_t offset, uint32_t width, uint32_t r) {
  return c->arena + offset * c->row_cap + (uint64_t)r * width;
}
INLINE float *buffer_row(const taper_cuda_call &c, uint64_t offset, uint32_t width, uint32_t r) {
  return buffer_row(&c, offset, width, r);
}

/* ---- numbers of matrices ---- */
struct bf16 {
  uint16_t bits;
};
struct f16 {
  uint16_t bits;
};
struct pack { /* 16 bytes of a row, as they come: bits of numbers */
  float part[4];
};

INLINE float to_float(float x) { return x; }
INLINE float to_float(bf16 x) { return __uint_as_float((uint32_t)x.bits << 16); }
INLINE float to_float(f16 x) {
  float y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
  return y;
}
/* Rounded to nearest even. */
template <class T> INLINE T rounded(float x);
template <> [[maybe_unused]] __device__ __forceinline__ float rounded<float>(float x) { return x; }
template <> [[maybe_unused]] __device__ __forceinline__ bf16 rounded<bf16>(float x) {
  bf16 y;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
  return y;
}
template <> [[maybe_unused]] __device__ __forceinline__ f16 rounded<f16>(float x) {
  f16 y;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
  return y;
}

/* unpack: a pack as floats; round: floats to what numbers of the type hold. */
template <class T> struct numbers;
template <> struct numbers<float> {
  static constexpr uint32_t per_pack = 4;
  static __device__ __forceinline__ void unpack(float *y, const pack &p) {
    UNROLL for (uint32_t i = 0; i < 4; i++) y[i] = p.part[i];
  }
  static __device__ __forceinline__ void round(float *) {}
};
template <> struct numbers<bf16> {
  static constexpr uint32_t per_pack = 8;
  static __device__ __forceinline__ void pair(float *y, uint32_t bits) {
    asm("shl.b32 %0, %1, 16;" : "=f"(y[0]) : "r"(bits));
    asm("and.b32 %0, %1, 0xffff0000;" : "=f"(y[1]) : "r"(bits));
  }
  static __device__ __forceinline__ void unpack(float *y, const pack &p) {
    UNROLL for (uint32_t i = 0; i < 4; i++) pair(y + 2 * i, __float_as_uint(p.part[i]));
  }
  static __device__ __forceinline__ void round(float *y) {
    UNROLL for (uint32_t i = 0; i < 8; i += 2) {
      uint32_t bits;
      asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(y[i + 1]), "f"(y[i]));
      pair(y + i, bits);
    }
  }
};
template <> struct numbers<f16> {
  static constexpr uint32_t per_pack = 8;
  static __device__ __forceinline__ void pair(float *y, uint32_t bits) {
    asm("{ .reg .b16 l, h; mov.b32 {l, h}, %2; cvt.f32.f16 %0, l; cvt.f32.f16 %1, h; }" : "=f"(y[0]), "=f"(y[1]) : "r"(bits));
  }
  static __device__ __forceinline__ void unpack(float *y, const pack &p) {
    UNROLL for (uint32_t i = 0; i < 4; i++) pair(y + 2 * i, __float_as_uint(p.part[i]));
  }
  static __device__ __forceinline__ void round(float *y) {
    UNROLL for (uint32_t i = 0; i < 8; i += 2) {
      uint32_t bits;
      asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(y[i + 1]), "f"(y[i]));
      pair(y + i, bits);
    }
  }
};
/* Numbers from one row of a matrix to the next: whole packs. */
template <class T> INLINE constexpr uint32_t pitch_of(uint32_t columns) {
  return (columns + numbers<T>::per_pack - 1) / numbers<T>::per_pack * numbers<T>::per_pack;
}

/* Read once, by nobody else: past the caches of the multiprocessor. Volatile: else the compiler moves it before the branch that guards it. */
INLINE pack load_weight(const void *p) {
  pack v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(v.part[0]), "=f"(v.part[1]), "=f"(v.part[2]), "=f"(v.part[3])
               : "l"(p));
  return v;
}
INLINE void prefetch_line(const void *p) { asm volatile("prefetch.global.L2 [%0];" ::"l"(p)); }

#endif
