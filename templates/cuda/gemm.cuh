/* gemm.cuh - copies into shared memory in flight, and products of 16-bit tiles: what the tiled products are made of. */
#if !defined(TAPER_CUDA_PRELUDE)
#include "templates/cuda/prelude.cuh"
#endif
#if !defined(TAPER_CUDA_GEMM)
#define TAPER_CUDA_GEMM

INLINE uint32_t shared_address(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }

/* 16 bytes, there when copies_wait says so. */
INLINE void copy_pack(void *to, const void *from) {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(to)), "l"(from) : "memory");
#else
  *(uint4 *)to = *(const uint4 *)from;
#endif
}
INLINE void copies_commit() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
/* All groups but the latest are there, for this thread. */
INLINE void copies_wait() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group 1;" ::: "memory");
#endif
}

/* Numbers [k, k + 16 bytes) of a row of `depth` into shared memory, 0 beyond and where there is no row. */
template <class T> INLINE void stage_pack(T *to, const T *row, uint64_t k, uint64_t depth, bool there, bool on_packs) {
  constexpr uint32_t N = numbers<T>::per_pack;
  if (!there)
    *(pack *)to = pack{{0, 0, 0, 0}};
  else if (on_packs && k + N <= depth)
    copy_pack(to, row + k);
  else
    UNROLL for (uint32_t i = 0; i < N; i++) to[i] = k + i < depth ? row[k + i] : rounded<T>(0.0f);
}
/* The same of a row of a matrix, which is whole packs, 0 behind its depth. */
template <class T> INLINE void stage_weight(T *to, const T *row, uint64_t k, uint64_t depth, bool there) {
  if (there && k < depth)
    copy_pack(to, row + k);
  else
    *(pack *)to = pack{{0, 0, 0, 0}};
}

/* Four tiles of 8 x 8 from shared memory; lane l gives the address of row l % 8 of tile l / 8. */
INLINE void load_tiles(uint32_t y[4], const void *p) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(y[0]), "=r"(y[1]), "=r"(y[2]), "=r"(y[3])
               : "r"(shared_address(p))
               : "memory");
}
/* c += a b: 16 x 8 += 16 x 16 times 16 x 8, sums in fp32. */
INLINE void multiply_tiles(float c[4], const uint32_t a[4], const uint32_t b[2], bf16) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
INLINE void multiply_tiles(float c[4], const uint32_t a[4], const uint32_t b[2], f16) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

#endif
