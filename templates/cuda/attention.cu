/* Attention over the cache, [slot][head][context][dim] floats: a block takes a row, a key head with the query heads that read it, and one
   of c.splits parts of the positions that the row sees. A team of lanes holds a query and walks positions with an online softmax (Milakov and
   Gimelshein, 2018); teams, warps and parts are put together in a fixed order, the parts by the block that comes last. */
#ifndef P_NAME /* alone: one shape, for the compiler and the tests */
#include "templates/cuda/prelude.cuh"
#define P_NAME attention_stage
#define P_ARGS attention_stage_args
#define P_GROUP 2
#define P_KV_HEADS 2
#define P_KEY_DIM 12
#define P_VALUE_DIM 12
#define P_SCALE 0.25f
#define P_WINDOW 0
#define P_CAPPED 0
#define P_CAP 0.0f
#define P_Q_WIDTH 48
#define P_Q_START 0
#define P_COMMENT /* y = softmax(scale q K) V */
struct P_ARGS {
  uint64_t b0, b1;
  float *s0, *s1;
};
#endif
P_COMMENT
KERNEL_OF(128) P_NAME(const __grid_constant__ taper_cuda_call c, const __grid_constant__ P_ARGS a) {
  constexpr uint32_t WARPS = 4, VEC = common_vector(P_KEY_DIM, P_VALUE_DIM);
  constexpr uint32_t KEY_VECS = P_KEY_DIM / VEC, VALUE_VECS = P_VALUE_DIM / VEC;
  constexpr uint32_t LANES = team_lanes(KEY_VECS > VALUE_VECS ? KEY_VECS : VALUE_VECS); /* of a team */
  constexpr uint32_t KEYS = (KEY_VECS + LANES - 1) / LANES, VALUES = (VALUE_VECS + LANES - 1) / LANES; /* vectors of a lane */
  constexpr uint32_t EACH = VEC * (KEYS > VALUES ? KEYS : VALUES), HEADS = largest_divisor(P_GROUP, 32 / EACH); /* numbers of a lane; heads at once */
  constexpr uint32_t AHEAD = HEADS == 1 || 2 * EACH * (HEADS + 2) < 96 ? 2 : 1; /* positions in flight: as registers allow */
  constexpr uint32_t TEAMS = 32 / LANES, WARP_KEYS = TEAMS * AHEAD, PART = P_VALUE_DIM + 2; /* TEAMS: of a warp */
  __shared__ float parts[WARPS][HEADS][PART]; /* sums, then the maximum, then the sum of exponentials */
  __shared__ uint32_t is_last;
  const uint32_t split = blockIdx.x, h = blockIdx.y, r = blockIdx.z;
  const uint32_t lane = threadIdx.x % LANES, team = LANE / LANES, warp = threadIdx.x / 32;
  grid_release();
  grid_wait();
  const uint32_t last = (uint32_t)c.pos[r], first = P_WINDOW && last + 1 > P_WINDOW ? last + 1 - P_WINDOW : 0;
  const uint32_t share = (last - first + c.splits) / c.splits; /* (positions + splits - 1) / splits */
  const uint32_t begin = first + share * split, end = begin + share < last + 1 ? begin + share : last + 1;
  const uint32_t busy = begin < end ? (end - begin + WARP_KEYS - 1) / WARP_KEYS : 0, warps = busy < WARPS ? busy < 1 ? 1 : busy : WARPS;
  const uint64_t head = (uint64_t)(uint32_t)c.slot[r] * P_KV_HEADS + h;
  const float *keys = a.s0 + head * c.context * P_KEY_DIM, *values = a.s1 + head * c.context * P_VALUE_DIM;
  const float *queries = buffer_row(c, a.b0, P_Q_WIDTH, r) + P_Q_START + h * P_GROUP * P_KEY_DIM;
  float *y = buffer_row(c, a.b1, P_KV_HEADS * P_GROUP * P_VALUE_DIM, r) + h * P_GROUP * P_VALUE_DIM;
  float *left = c.scratch + (uint64_t)(r * P_KV_HEADS + h) * c.splits * P_GROUP * PART;
  for (uint32_t g0 = 0; g0 < P_GROUP; g0 += HEADS) {
    if (warp < warps) {
      float q[HEADS][KEYS * VEC], sums[HEADS][VALUES * VEC], most[HEADS], total[HEADS];
      UNROLL for (uint32_t g = 0; g < HEADS; g++) {
        UNROLL for (uint32_t i = 0; i < KEYS * VEC; i++) {
          const uint32_t j = (lane + i / VEC * LANES) * VEC + i % VEC;
          q[g][i] = j < P_KEY_DIM ? queries[(g0 + g) * P_KEY_DIM + j] : 0;
        }
        UNROLL for (uint32_t i = 0; i < VALUES * VEC; i++) sums[g][i] = 0;
        most[g] = -INFINITE, total[g] = 0;
      }
      for (uint32_t base = begin + warp * WARP_KEYS; base < end; base += WARPS * WARP_KEYS) {
        float k[AHEAD][KEYS * VEC], v[AHEAD][VALUES * VEC];
        UNROLL for (uint32_t u = 0; u < AHEAD; u++) {
          const uint32_t p = base + team + u * TEAMS, at = p < end ? p : end - 1;
          UNROLL for (uint32_t i = 0; i < KEYS; i++)
            load_vector<VEC>(k[u] + i * VEC, keys + (uint64_t)at * P_KEY_DIM + (lane + i * LANES) * VEC, lane + i * LANES < KEY_VECS);
          UNROLL for (uint32_t i = 0; i < VALUES; i++)
            load_vector<VEC>(v[u] + i * VEC, values + (uint64_t)at * P_VALUE_DIM + (lane + i * LANES) * VEC, lane + i * LANES < VALUE_VECS);
        }
        UNROLL for (uint32_t g = 0; g < HEADS; g++) {
          float s[AHEAD], top = most[g];
          UNROLL for (uint32_t u = 0; u < AHEAD; u++) {
            s[u] = 0;
            UNROLL for (uint32_t i = 0; i < KEYS * VEC; i++) s[u] += q[g][i] * k[u][i];
            s[u] = sum_of_team<LANES>(s[u]) * P_SCALE;
#if P_CAPPED
            s[u] = P_CAP * tanhf(s[u] / P_CAP);
#endif
            if (base + team + u * TEAMS >= end) s[u] = -INFINITE;
            top = fmaxf(top, s[u]);
          }
          top = max_of_teams<LANES>(top); /* one for the warp: its sums are plain ones */
          const float shift = top == -INFINITE ? 0 : top, shrink = expf(most[g] - shift);
          total[g] *= shrink;
          UNROLL for (uint32_t i = 0; i < VALUES * VEC; i++) sums[g][i] *= shrink;
          UNROLL for (uint32_t u = 0; u < AHEAD; u++) {
            const float e = expf(s[u] - shift);
            total[g] += e;
            UNROLL for (uint32_t i = 0; i < VALUES * VEC; i++) sums[g][i] += e * v[u][i];
          }
          most[g] = top;
        }
      }
      UNROLL for (uint32_t g = 0; g < HEADS; g++) {
        total[g] = sum_of_teams<LANES>(total[g]);
        UNROLL for (uint32_t i = 0; i < VALUES * VEC; i++) sums[g][i] = sum_of_teams<LANES>(sums[g][i]);
        if (threadIdx.x % 32 < LANES) {
          UNROLL for (uint32_t i = 0; i < VALUES * VEC; i++) {
            const uint32_t j = (lane + i / VEC * LANES) * VEC + i % VEC;
            if (j < P_VALUE_DIM) parts[warp][g][j] = sums[g][i];
          }
          if (lane == 0) parts[warp][g][P_VALUE_DIM] = most[g], parts[warp][g][P_VALUE_DIM + 1] = total[g];
        }
      }
    }
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < HEADS * P_VALUE_DIM; i += WARPS * 32) {
      const uint32_t g = i / P_VALUE_DIM, j = i % P_VALUE_DIM;
      const merged m = merge_parts(parts[0][g], warps, HEADS * PART, j, P_VALUE_DIM);
      if (c.splits == 1) {
        y[(g0 + g) * P_VALUE_DIM + j] = m.sum / m.total;
        continue;
      }
      float *part = left + (split * P_GROUP + g0 + g) * PART;
      part[j] = m.sum;
      if (j == 0) part[P_VALUE_DIM] = m.most, part[P_VALUE_DIM + 1] = m.total;
    }
    __syncthreads();
  }
  if (c.splits == 1) return;
  if (threadIdx.x == 0) {
    uint32_t *counter = c.counters + r * P_KV_HEADS + h;
    __threadfence();
    is_last = atomicAdd(counter, 1) == c.splits - 1;
    __threadfence();
    if (is_last) *counter = 0;
  }
  __syncthreads();
  if (!is_last) return;
  for (uint32_t i = threadIdx.x; i < P_GROUP * P_VALUE_DIM; i += WARPS * 32) {
    const merged m = merge_parts(left + i / P_VALUE_DIM * PART, c.splits, P_GROUP * PART, i % P_VALUE_DIM, P_VALUE_DIM);
    y[i] = m.sum / m.total;
  }
}
