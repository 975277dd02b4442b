/* dot.cuh - products of up to 8 rows with columns of a matrix (rows of W as it is stored, padded to packs of 16 bytes). Teams of lanes of a warp have
 * a few columns each, so that a weight is read once and an operand once for all of them. A lane sums every LANES-th pack, then lanes are added
 * in a fixed tree: the bits of an output depend on nothing that is computed beside it. */
#if !defined(TAPER_CUDA_PRELUDE)
#include "templates/cuda/prelude.cuh"
#endif
#if !defined(TAPER_CUDA_DOT)
#define TAPER_CUDA_DOT

/* Numbers [k, k + N) of a row of `width`, 0 beyond; VECTOR: rows lie on 16 bytes. */
template <class T, bool VECTOR, uint32_t N, uint32_t WIDTH> INLINE void load_operand(float *y, const float *x, uint32_t k) {
  if (VECTOR && WIDTH % N == 0) {
    UNROLL for (uint32_t i = 0; i < N; i += 4) {
      const float4 v = *(const float4 *)(x + k + i);
      y[i] = v.x, y[i + 1] = v.y, y[i + 2] = v.z, y[i + 3] = v.w;
    }
  } else {
    UNROLL for (uint32_t i = 0; i < N; i++) y[i] = k + i < WIDTH ? x[k + i] : 0.0f;
  }
  numbers<T>::round(y);
}

/* As many of n steps as are alike and `most` allows: a divisor of n unless it has none above most / 2. */
__device__ constexpr uint32_t steps_at_once(uint32_t n, uint32_t most) {
  if (most < 1) most = 1;
  for (uint32_t d = most; 2 * d >= most && d > 1; d--)
    if (n % d == 0) return d;
  const uint32_t rounds = (n + most - 1) / most;
  return (n + rounds - 1) / rounds;
}

/* Over teams of 2 STEP lanes: the sums of V values, V a power of two. Afterwards a lane has values sum_place<V>(lane) + j in v[j], j < V / (2 STEP); where lanes
 * are more than values, 2 STEP / V of them have the same. */
template <uint32_t V, uint32_t STEP> INLINE void sum_lanes(float *v) {
  if constexpr (STEP > 0) {
    if constexpr (V > 1) {
      const bool upper = threadIdx.x & STEP;
      UNROLL for (uint32_t j = 0; j < V / 2; j++) {
        const float mine = upper ? v[j + V / 2] : v[j], other = upper ? v[j] : v[j + V / 2];
        v[j] = mine + lane_xor<STEP>(other);
      }
      sum_lanes<V / 2, STEP / 2>(v);
    } else {
      v[0] += lane_xor<STEP>(v[0]);
      sum_lanes<1, STEP / 2>(v);
    }
  }
}

/* The products of a block of at most LD columns, by WARPS warps, with ROOTS matrices of K columns each: a team of LANES lanes takes C columns of each at
 * once. FULL: columns come in whole tiles. */
template <class T, uint32_t K, uint32_t ROOTS, uint32_t LANES, uint32_t C, bool FULL, uint32_t LD, uint32_t WARPS> struct products {
  static constexpr uint32_t N = numbers<T>::per_pack, PITCH = pitch_of<T>(K), PACKS = PITCH / N, STEPS = (PACKS + LANES - 1) / LANES;
  static constexpr uint32_t TILE = VL / LANES * C;
  static constexpr uint32_t STEPS_AT_ONCE = STEPS * ROOTS * C <= (N == 4 ? 12 : 8) ? STEPS : steps_at_once(STEPS, ROOTS * C == 1 ? 4 : 6 / (ROOTS * C)), ROUNDS = (STEPS + STEPS_AT_ONCE - 1) / STEPS_AT_ONCE;
  static constexpr bool EVEN = ROUNDS * STEPS_AT_ONCE * LANES == PACKS; /* no lane is idle in any step */

  const T *from[ROOTS]; /* the block's first column */
  const T *at[ROOTS];   /* the lane's first pack in its first column */
  uint32_t n, first, lane;
  bool fresh;
  pack part[STEPS_AT_ONCE][ROOTS][C];

  /* `n`: columns of the block. Asks for the first packs: nothing that another kernel writes is read. */
  __device__ __forceinline__ void begin(const T *const (&w)[ROOTS], uint32_t columns) {
    n = columns, lane = threadIdx.x % LANES;
    UNROLL for (uint32_t r = 0; r < ROOTS; r++) from[r] = w[r];
    if (WARP * TILE < n) open(WARP * TILE);
    fresh = true;
  }
  __device__ __forceinline__ void open(uint32_t tile) {
    first = tile + LANE / LANES * C;
    UNROLL for (uint32_t r = 0; r < ROOTS; r++) at[r] = from[r] + (size_t)(first * PITCH + lane * N);
    load(0);
  }
  __device__ __forceinline__ bool has(uint32_t step) const { return EVEN || step * LANES + lane < PACKS; }
  __device__ __forceinline__ void load(uint32_t step) {
    UNROLL for (uint32_t u = 0; u < STEPS_AT_ONCE; u++)
      UNROLL for (uint32_t r = 0; r < ROOTS; r++)
        UNROLL for (uint32_t q = 0; q < C; q++) {
          const T *p = at[r] + (q * PITCH + (step + u) * LANES * N);
          if (has(step + u) && (FULL || first + q < n))
            part[u][r][q] = load_weight(p);
          else
            part[u][r][q] = pack{{0, 0, 0, 0}};
        }
  }

  /* Adds the products of the packs that are there with the rows of x. */
  template <uint32_t ROWS, uint32_t CHAINS, bool VECTOR>
  __device__ __forceinline__ void add(float (&sum)[ROOTS][ROWS * C][CHAINS], const float *const (&x)[ROWS], uint32_t rows, uint32_t step) const {
    UNROLL for (uint32_t u = 0; u < STEPS_AT_ONCE; u++)
      UNROLL for (uint32_t i = 0; i < ROWS; i++) {
        if (ROWS > 2) { /* a branch a row: else ptxas reads more of the rows ahead than it has registers for */
          uint32_t there = rows;
          asm volatile("" : "+r"(there));
          if (i >= there) continue;
        }
        float v[N], w[N];
        if (has(step + u))
          load_operand<T, VECTOR, N, K>(v, x[i], ((step + u) * LANES + lane) * N);
        else
          UNROLL for (uint32_t e = 0; e < N; e++) v[e] = 0;
        UNROLL for (uint32_t r = 0; r < ROOTS; r++)
          UNROLL for (uint32_t q = 0; q < C; q++) {
            numbers<T>::unpack(w, part[u][r][q]);
            UNROLL for (uint32_t e = 0; e < N; e++) sum[r][i * C + q][e % CHAINS] = fmaf(v[e], w[e], sum[r][i * C + q][e % CHAINS]);
          }
      }
  }

  /* d[r][i * LD + j] = W_r[j] x(i), i0 <= i < some, at most ROWS, for the tile that is open. */
  template <uint32_t ROWS, bool VECTOR, class X>
  __device__ __forceinline__ void finish(float *const (&d)[ROOTS], X rows, uint32_t i0, uint32_t some) {
    constexpr uint32_t CHAINS = ROOTS * C == 1 ? 2 : 1, V = ROWS * C, EACH = V > LANES ? V / LANES : 1, SAME = V > LANES ? 1 : LANES / V;
    float sum[ROOTS][V][CHAINS];
    const float *x[ROWS];
    UNROLL for (uint32_t i = 0; i < ROWS; i++) x[i] = rows(i0 + i < some ? i0 + i : some - 1);
    UNROLL for (uint32_t r = 0; r < ROOTS; r++)
      UNROLL for (uint32_t i = 0; i < V; i++)
        UNROLL for (uint32_t e = 0; e < CHAINS; e++) sum[r][i][e] = 0;
#pragma unroll (ROUNDS <= 3 && ROWS <= 2 ? ROUNDS : 1)
    for (uint32_t s = 0; s < ROUNDS; s++) {
      add<ROWS, CHAINS, VECTOR>(sum, x, some - i0, s * STEPS_AT_ONCE);
      if (s + 1 < ROUNDS) load((s + 1) * STEPS_AT_ONCE);
    }
    UNROLL for (uint32_t r = 0; r < ROOTS; r++) {
      float v[V];
      UNROLL for (uint32_t i = 0; i < V; i++) v[i] = CHAINS == 2 ? sum[r][i][0] + sum[r][i][CHAINS - 1] : sum[r][i][0];
      sum_lanes<V, LANES / 2>(v);
      if (SAME > 1 && lane % SAME != 0) continue;
      UNROLL for (uint32_t e = 0; e < EACH; e++) {
        const uint32_t place = lane * EACH / SAME + e, i = place / C, q = place % C;
        if ((ROWS == 1 || i0 + i < some) && (FULL || first + q < n)) d[r][(i0 + i) * LD + first + q] = v[e];
      }
    }
  }
  /* The tile that is open, for all rows: few at once where their sums need many registers. */
  template <uint32_t ROWS, bool VECTOR, class X> __device__ __forceinline__ void tile(float *const (&d)[ROOTS], X rows, uint32_t some) {
    constexpr uint32_t FEW = STEPS * ROOTS * C * N > 16 ? 2 : 4;
    if constexpr (ROUNDS == 1 && ROWS > FEW) {
#pragma unroll 1
      for (uint32_t i = 0; i < some; i += FEW) finish<FEW, VECTOR>(d, rows, i, some);
    } else {
      finish<ROWS, VECTOR>(d, rows, 0, some);
    }
  }
  template <uint32_t ROWS, bool VECTOR, class X> __device__ __forceinline__ void tiles(float *const (&d)[ROOTS], X rows, uint32_t some) {
    if constexpr (LD <= WARPS * TILE) { /* one a warp */
      if (WARP * TILE >= n) return;
      if (ROUNDS > 1 && !fresh) load(0);
      tile<ROWS, VECTOR>(d, rows, some);
    } else {
#pragma unroll 1
      for (uint32_t from = WARP * TILE; from < n; from += WARPS * TILE) {
        if (!fresh || from >= WARPS * TILE) open(from);
        tile<ROWS, VECTOR>(d, rows, some);
      }
    }
  }
  /* All tiles of the warp. MOST: rows that there may be. */
  template <uint32_t MOST, bool VECTOR, class X> __device__ __forceinline__ void run(float *const (&d)[ROOTS], X rows, uint32_t some) {
    if (MOST == 1 || some == 1)
      tiles<1, VECTOR>(d, rows, some);
    else if (MOST == 2 || some == 2)
      tiles<2, VECTOR>(d, rows, some);
    else if (MOST == 4 || some <= 4)
      tiles<4, VECTOR>(d, rows, some);
    else
      tiles<8, VECTOR>(d, rows, some);
    if (MOST < TAPER_CUDA_ROWS) fresh = false;
  }
};

/* Asks for n rows of k numbers while the kernel before still runs: at most 8 lines of 128 bytes a thread. */
template <class T> INLINE void prefetch_rows(const T *w, const uint32_t k, uint32_t n) {
#if __CUDA_ARCH__ >= 900
  const uint64_t all = (uint64_t)n * pitch_of<T>(k) * sizeof(T);
  const uint32_t step = 128 * blockDim.x, bytes = all < 8 * step ? (uint32_t)all : 8 * step;
#pragma unroll 1
  for (uint32_t at = threadIdx.x * 128; at < bytes; at += step) prefetch_line((const char *)w + at);
#endif
}

#endif
