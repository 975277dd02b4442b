/* dot.cuh - products of up to 8 rows with columns of a matrix (rows of W as it is stored, padded to packs of 16 bytes). A warp computes a few columns for all rows, so that
 * a weight is read once. A lane sums every 32nd pack in two chains, then the lanes are added in a fixed tree: the bits of an output depend on
 * nothing that is computed beside it. */
#if !defined(TAPER_CUDA_PRELUDE)
#include "templates/cuda/prelude.cuh"
#endif
#if !defined(TAPER_CUDA_DOT)
#define TAPER_CUDA_DOT

/* Numbers [k, k + N) of a row of `width`, 0 beyond; VECTOR: rows lie on 16 bytes, and all of them are there. */
template <class T, bool VECTOR, uint32_t N> INLINE void load_operand(float *y, const float *x, uint32_t k, uint32_t width) {
  if (VECTOR) {
    UNROLL for (uint32_t i = 0; i < N; i += 4) {
      const float4 v = *(const float4 *)(x + k + i);
      y[i] = v.x, y[i + 1] = v.y, y[i + 2] = v.z, y[i + 3] = v.w;
    }
  } else {
    UNROLL for (uint32_t i = 0; i < N; i++) y[i] = k + i < width ? x[k + i] : 0.0f;
  }
  UNROLL for (uint32_t i = 0; i < N; i++) y[i] = to_float(rounded<T>(y[i]));
}

template <bool YES> struct constant {
  static constexpr bool yes = YES;
};

/* d[i * ld + j] = W[j] x(i), j < n, i < some <= ROWS: a warp takes COLUMNS columns at once; w: the first column's row. */
template <uint32_t ROWS, uint32_t COLUMNS, bool VECTOR, class T, class X>
INLINE void dot_rows(float *d, uint32_t ld, X x, uint32_t some, const T *w, const uint32_t k, uint32_t n, uint32_t warps) {
  constexpr uint32_t N = numbers<T>::per_pack, STEP = VL * N;
  const uint32_t pitch = pitch_of<T>(k);
  const float *row[ROWS];
  UNROLL for (uint32_t i = 0; i < ROWS; i++) row[i] = x(i < some ? i : some - 1);
  for (uint32_t j = WARP * COLUMNS; j < n; j += warps * COLUMNS) {
    float sum[ROWS][COLUMNS][2];
    const T *p[COLUMNS];
    UNROLL for (uint32_t q = 0; q < COLUMNS; q++) {
      p[q] = w + (size_t)(j + q < n ? j + q : n - 1) * pitch;
      UNROLL for (uint32_t i = 0; i < ROWS; i++) sum[i][q][0] = sum[i][q][1] = 0.0f;
    }
    auto step = [&](uint32_t at, auto vector) {
      pack part[COLUMNS];
      UNROLL for (uint32_t q = 0; q < COLUMNS; q++) part[q] = load_weight(p[q] + at);
      UNROLL for (uint32_t i = 0; i < ROWS; i++) {
        float v[N], u[N];
        load_operand<T, decltype(vector)::yes, N>(v, row[i], at, k);
        UNROLL for (uint32_t q = 0; q < COLUMNS; q++) {
          numbers<T>::unpack(u, part[q]);
          UNROLL for (uint32_t e = 0; e < N; e++) sum[i][q][e % 2] = fmaf(v[e], u[e], sum[i][q][e % 2]);
        }
      }
    };
    const uint32_t steps = k / STEP;
#pragma unroll (ROWS == 1 ? 8 / COLUMNS : ROWS == 2 ? 2 : 1)
    for (uint32_t s = 0; s < steps; s++) step(s * STEP + LANE * N, constant<VECTOR>{});
    const uint32_t at = steps * STEP + LANE * N;
    if (at + N <= k)
      step(at, constant<VECTOR>{});
    else if (k % N && at < k)
      step(at, constant<false>{});
    UNROLL for (uint32_t i = 0; i < ROWS; i++)
      UNROLL for (uint32_t q = 0; q < COLUMNS; q++) {
        const float total = warp_sum(sum[i][q][0] + sum[i][q][1]);
        if (LANE == 0 && i < some && j + q < n) d[i * ld + j + q] = total;
      }
  }
}

template <uint32_t ROWS, uint32_t COLUMNS, bool VECTOR, class T, class X>
INLINE void dot(float *d, uint32_t ld, X x, uint32_t some, const T *w, const uint32_t k, uint32_t n, uint32_t warps) {
  constexpr uint32_t FEW = COLUMNS < 2 ? COLUMNS : 2; /* registers for many rows' sums */
  if (ROWS == 1 || some == 1)
    dot_rows<1, COLUMNS, VECTOR>(d, ld, x, some, w, k, n, warps);
  else if (ROWS == 2 || some == 2)
    dot_rows<2, COLUMNS, VECTOR>(d, ld, x, some, w, k, n, warps);
  else if (ROWS == 4 || some <= 4)
    dot_rows<4, FEW, VECTOR>(d, ld, x, some, w, k, n, warps);
  else
    dot_rows<8, FEW, VECTOR>(d, ld, x, some, w, k, n, warps);
}

/* Asks for the rows of W that a block will read, [column, column + block) of n, while the kernel before still runs: at most 8 lines of 128
   bytes a thread. */
template <class T> INLINE void prefetch_rows(const T *w, const uint32_t k, uint32_t columns, uint32_t column, uint32_t block) {
#if __CUDA_ARCH__ >= 900
  const uint32_t n = columns - column < block ? columns - column : block;
  const char *from = (const char *)(w + (size_t)column * pitch_of<T>(k));
  const size_t bytes = (size_t)n * pitch_of<T>(k) * sizeof(T);
#pragma unroll 1
  for (uint32_t i = 0; i < 8; i++) {
    const size_t at = ((size_t)i * blockDim.x + threadIdx.x) * 128;
    if (at < bytes) prefetch_line(from + at);
  }
#endif
}

#endif
