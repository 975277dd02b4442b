/* sample.cuh - a block chooses from the logits of a row as runtime/sample.c does: the same order of candidates, filters and random numbers.
   A candidate is a key, (value, ~id): what a filter keeps are the keys from a cut on. Cuts are found by counting in bins, then exactly among the
   few of one bin; probabilities are summed as integers, so that no order of sums decides. */
#if !defined(TAPER_CUDA_PRELUDE)
#include "templates/cuda/prelude.cuh"
#endif
#if !defined(TAPER_CUDA_SAMPLE)
#define TAPER_CUDA_SAMPLE

#define ROLLED _Pragma("unroll 1")
#define LARGEST 3.402823466e38f /* finite */
#define CHOOSERS 512u /* threads of the block */
#define BINS 1024u    /* a multiple of 32; of the first counting: 1/32 of a logit below the best each, the last one all below */
#define LISTED 1024u  /* keys that are compared with each other */

typedef struct chooser {
  uint64_t mass[BINS];
  uint32_t count[BINS];
  uint64_t key[LISTED], weight[LISTED];
  uint64_t words[CHOOSERS / 32]; /* of a reduction */
  uint64_t before_mass, cut;     /* sums in front of the bin found */
  uint32_t before_count, bin, listed;
} chooser;

/* The candidates: all of the row's logits, or, once they are few, the list. Those below `lowest` are out. */
typedef struct candidates {
  const float *values;
  uint32_t n;
  bool in_list;
  uint64_t lowest;
  float best;
  double unit; /* what a probability of 1 counts */
} candidates;

INLINE uint64_t ordered_bits(float v) {
  const uint32_t b = __float_as_uint(v + 0.0f); /* -0 is 0 */
  return b & 0x80000000u ? ~b : b | 0x80000000u;
}
INLINE uint64_t key_of(float v, uint32_t id) { return ordered_bits(v) << 32 | (uint32_t)~id; }
INLINE float value_of(uint64_t key) {
  const uint32_t b = (uint32_t)(key >> 32);
  return __uint_as_float(b & 0x80000000u ? b & 0x7fffffffu : ~b);
}
INLINE uint32_t id_of(uint64_t key) { return ~(uint32_t)key; }
INLINE uint64_t key_at(const chooser *s, const candidates *c, uint32_t i) { return c->in_list ? s->key[i] : key_of(c->values[i], i); }

/* Every thread gets the largest of the block. */
INLINE uint64_t largest(chooser *s, uint64_t x) {
  ROLLED for (uint32_t step = 16; step > 0; step /= 2) {
    const uint64_t other = __shfl_xor_sync(ALL_LANES, x, step);
    x = other > x ? other : x;
  }
  __syncthreads();
  if (threadIdx.x % 32 == 0) s->words[threadIdx.x / 32] = x;
  __syncthreads();
  for (uint32_t i = 0; i < CHOOSERS / 32; i++) x = s->words[i] > x ? s->words[i] : x;
  return x;
}
/* The sum over the block in a fixed order. */
INLINE double sum_of_block(chooser *s, double x) {
  for (uint32_t step = 16; step > 0; step /= 2) x += __shfl_xor_sync(ALL_LANES, x, step);
  __syncthreads();
  if (threadIdx.x % 32 == 0) s->words[threadIdx.x / 32] = (uint64_t)__double_as_longlong(x);
  __syncthreads();
  x = 0;
  for (uint32_t i = 0; i < CHOOSERS / 32; i++) x += __longlong_as_double((long long)s->words[i]);
  return x;
}

/* Philox4x32-10 (Salmon et al., SC 2011): the first word of counter (1: sampling, sequence, position, id) under key `seed`. */
INLINE uint32_t philox_of_sample(uint64_t seed, uint32_t sequence, uint32_t position, uint32_t id) {
  uint32_t c0 = 1, c1 = sequence, c2 = position, c3 = id, k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
  ROLLED for (uint32_t round = 0; round < 10; round++) {
    const uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
    c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0, c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
    c1 = (uint32_t)p1, c3 = (uint32_t)p0;
    k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
  }
  return c0;
}

/* Divides or multiplies the logit of each id of history[0..n) once; a value stays finite. */
INLINE void penalise(chooser *s, float *logits, uint32_t vocab, const int32_t *history, uint32_t n, float penalty) {
  ROLLED for (uint32_t base = 0; base < vocab; base += BINS * 32) {
    ROLLED for (uint32_t i = threadIdx.x; i < BINS; i += CHOOSERS) s->count[i] = 0;
    __syncthreads();
    ROLLED for (uint32_t i = threadIdx.x; i < n; i += CHOOSERS) {
      const uint32_t id = (uint32_t)history[i], at = id - base, bit = 1u << at % 32;
      if (id < base || id >= vocab || at >= BINS * 32 || atomicOr(&s->count[at / 32], bit) & bit) continue;
      const float v = logits[id] > 0 ? logits[id] / penalty : logits[id] * penalty;
      logits[id] = fminf(fmaxf(v, -LARGEST), LARGEST);
    }
    __syncthreads();
  }
}

/* What a probability of 1 counts as an integer: sums over the vocabulary stay below 2^63. */
INLINE double unit_of_mass(uint32_t vocab) {
  uint32_t bits = 52;
  while (bits > 0 && (uint64_t)vocab << bits >> 62) bits--;
  return (double)(1ull << bits);
}
INLINE double probability(const candidates *c, float v) { return exp((double)v - (double)c->best); }
INLINE uint64_t weight_of(const candidates *c, float v) { return __double2ull_rn(probability(c, v) * c->unit); }
INLINE uint32_t bin_of(const candidates *c, float v) {
  const float distance = (c->best - v) * 32;
  return distance < (float)(BINS - 1) ? (uint32_t)distance : BINS - 1;
}

/* What a cut must reach: so many candidates, or a share of all probabilities. */
typedef struct cut_rule {
  bool weighted;
  uint32_t count;
  double share, mass;
} cut_rule;
INLINE bool reached(const cut_rule *q, uint64_t count, uint64_t mass) {
  return q->weighted ? (double)mass >= q->mass : count >= q->count;
}

/* A class of keys: a bin, then digits of 8 bits from the top. */
typedef struct key_class {
  uint32_t bin, shift; /* 64: any key of the bin */
  uint64_t digits;
} key_class;
INLINE bool belongs(const candidates *c, const key_class *k, uint64_t key) {
  return key >= c->lowest && bin_of(c, value_of(key)) == k->bin && (k->shift == 64 || key >> k->shift == k->digits);
}

INLINE void clear_bins(chooser *s) {
  __syncthreads();
  ROLLED for (uint32_t i = threadIdx.x; i < BINS; i += CHOOSERS) s->count[i] = 0, s->mass[i] = 0;
  __syncthreads();
}

/* The first bin where the sums reach the rule, and the sums in front of it: warp 0. `first`: all are counted, and a share becomes a mass. */
INLINE void find_bin(chooser *s, cut_rule *q, bool first) {
  __syncthreads();
  const uint32_t lane = threadIdx.x % 32, each = BINS / 32;
  uint64_t count = 0, mass = 0, counts, masses;
  ROLLED for (uint32_t i = lane * each; i < (lane + 1) * each; i++) count += s->count[i], mass += s->mass[i];
  counts = count, masses = mass;
  for (uint32_t step = 1; step < 32; step *= 2) {
    const uint64_t c = __shfl_up_sync(ALL_LANES, counts, step), m = __shfl_up_sync(ALL_LANES, masses, step);
    if (lane >= step) counts += c, masses += m;
  }
  if (first) q->mass = q->share * (double)__shfl_sync(ALL_LANES, masses, 31);
  if (!first) counts += s->before_count, masses += s->before_mass;
  const uint32_t there = __ballot_sync(ALL_LANES, reached(q, counts, masses));
  __syncthreads();
  if (threadIdx.x < 32 && there && lane == (uint32_t)__ffs((int)there) - 1) {
    uint32_t i = lane * each;
    counts -= count, masses -= mass;
    for (; !reached(q, counts + s->count[i], masses + s->mass[i]); i++) counts += s->count[i], masses += s->mass[i];
    s->bin = i, s->before_count = (uint32_t)counts, s->before_mass = masses;
  }
  __syncthreads();
}

/* The key in the list where the sums, in order of keys behind those in front of the list, reach the rule. */
INLINE void cut_list(chooser *s, const candidates *c, const cut_rule *q, uint32_t n, uint64_t before_count, uint64_t before_mass) {
  for (uint32_t e = threadIdx.x; e < n; e += CHOOSERS) {
    const uint64_t key = s->key[e];
    uint64_t count = before_count, mass = before_mass;
    for (uint32_t i = 0; i < n; i++)
      if (s->key[i] > key) count++, mass += s->weight[i];
    if (key >= c->lowest && !reached(q, count, mass) && reached(q, count + 1, mass + s->weight[e])) s->cut = key;
  }
  __syncthreads();
}

INLINE void add_mass(uint64_t *sum, uint64_t x) { atomicAdd((unsigned long long *)sum, (unsigned long long)x); }

INLINE void put_in_list(chooser *s, const candidates *c, uint64_t key, bool weighted) {
  const uint32_t at = atomicAdd(&s->listed, 1);
  s->key[at] = key, s->weight[at] = weighted ? weight_of(c, value_of(key)) : 0;
}

INLINE void cut_in_list(chooser *s, candidates *c, cut_rule *q) {
  uint64_t mine = 0;
  __syncthreads();
  ROLLED for (uint32_t i = threadIdx.x; i < c->n; i += CHOOSERS) {
    s->weight[i] = q->weighted ? weight_of(c, value_of(s->key[i])) : 0;
    if (s->key[i] >= c->lowest) mine += s->weight[i];
  }
  clear_bins(s);
  if (mine) add_mass(&s->mass[0], mine);
  __syncthreads();
  q->mass = q->share * (double)s->mass[0];
  cut_list(s, c, q, c->n, 0, 0);
}

/* Puts c->lowest where the rule is reached; candidates that are few afterwards are listed. */
INLINE void cut(chooser *s, candidates *c, cut_rule *q) {
  if (c->in_list) {
    cut_in_list(s, c, q);
    c->lowest = s->cut;
    return;
  }
  clear_bins(s);
  for (uint32_t i = threadIdx.x; i < c->n; i += CHOOSERS) {
    const uint64_t key = key_of(c->values[i], i);
    if (key < c->lowest) continue;
    const uint32_t bin = bin_of(c, c->values[i]);
    atomicAdd(&s->count[bin], 1);
    if (q->weighted) add_mass(&s->mass[bin], weight_of(c, c->values[i]));
  }
  find_bin(s, q, true);
  key_class k = {s->bin, 64, 0};
  const bool few = s->before_count + s->count[k.bin] <= LISTED; /* all from the best on */
  uint32_t n = s->count[k.bin];
  while (!few && n > LISTED) {
    k.shift -= 8;
    clear_bins(s);
    ROLLED for (uint32_t i = threadIdx.x; i < c->n; i += CHOOSERS) {
      const uint64_t key = key_of(c->values[i], i);
      const key_class above = {k.bin, k.shift + 8, k.digits};
      if (!belongs(c, &above, key)) continue;
      const uint32_t bin = 255 - (uint32_t)(key >> k.shift & 255);
      atomicAdd(&s->count[bin], 1);
      if (q->weighted) add_mass(&s->mass[bin], weight_of(c, c->values[i]));
    }
    find_bin(s, q, false);
    k.digits = k.digits << 8 | (255 - s->bin), n = s->count[s->bin];
  }
  if (threadIdx.x == 0) s->listed = 0;
  __syncthreads();
  for (uint32_t i = threadIdx.x; i < c->n; i += CHOOSERS) {
    const uint64_t key = key_of(c->values[i], i);
    if (few ? key >= c->lowest && bin_of(c, c->values[i]) <= k.bin : belongs(c, &k, key)) put_in_list(s, c, key, q->weighted);
  }
  __syncthreads();
  cut_list(s, c, q, s->listed, few ? 0 : s->before_count, few ? 0 : s->before_mass);
  c->lowest = s->cut;
  if (few) c->in_list = true, c->n = s->listed;
}

/* The id with the largest perturbed score (Gumbel-max) among the candidates; the lowest on ties. A list was made ahead of a barrier. */
INLINE uint32_t draw(chooser *s, const candidates *c, const taper_cuda_sampling *o, uint32_t sequence, uint32_t position) {
  uint64_t most = 0, mine = 0;
  ROLLED for (uint32_t i = threadIdx.x; i < c->n; i += CHOOSERS) {
    const uint64_t key = key_at(s, c, i);
    const float v = value_of(key);
    if (key < c->lowest || (o->min_p > 0 && probability(c, v) < (double)o->min_p)) continue;
    const double u = ((double)philox_of_sample(o->seed, sequence, position, id_of(key)) + 0.5) * (1.0 / 4294967296.0);
    const double score = ((double)v - (double)c->best) / (double)o->temperature - log(-log(u));
    const uint64_t b = (uint64_t)__double_as_longlong(score + 0.0), order = b >> 63 ? ~b : b | 1ull << 63;
    if (order < most || (order == most && (uint32_t)key < mine)) continue;
    most = order, mine = (uint32_t)key;
  }
  const uint64_t all = largest(s, most);
  return id_of(largest(s, most == all ? mine : 0));
}

/* top-k, top-p and min-p each keep the first in order of keys: the strictest of them decides. */
INLINE uint32_t choose(chooser *s, candidates *c, const taper_cuda_sampling *o, uint64_t best, uint32_t sequence, uint32_t position) {
  c->best = value_of(best);
  if (o->top_p == 0) c->lowest = best;
  ROLLED for (uint32_t filter = o->top_p > 0 ? 0 : 2; filter < 2; filter++) {
    cut_rule rule = {filter == 1, o->top_k, (double)o->top_p, 0};
    if (rule.weighted ? o->top_p < 1 : o->top_k > 0 && o->top_k < c->n) cut(s, c, &rule);
  }
  return draw(s, c, o, sequence, position);
}

/* The smallest id whose logit is no finite number, or `vocab`; *best: the largest key. */
INLINE uint32_t look_at_logits(chooser *s, const float *logits, uint32_t vocab, uint64_t *best) {
  uint64_t most = 0, bad = 0;
  for (uint32_t i = threadIdx.x; i < vocab; i += CHOOSERS) {
    const float v = logits[i];
    const uint64_t key = key_of(v, i), wrong = (__float_as_uint(v) & 0x7f800000u) == 0x7f800000u ? (uint32_t)~i : 0;
    most = key > most ? key : most, bad = wrong > bad ? wrong : bad;
  }
  *best = largest(s, most), bad = largest(s, bad);
  return bad ? ~(uint32_t)bad : vocab;
}

/* s(h): sqrt(mean((x - mu)^2)), mu 0 but for the LayerNorm form; the inverse scale, if there is one, undone. */
INLINE float scale_of_row(chooser *s, const float *x, const float *inverse, uint32_t width, bool centred) {
  double mean = 0, square = 0;
  if (centred) {
    ROLLED for (uint32_t i = threadIdx.x; i < width; i += CHOOSERS) mean += (double)(inverse ? x[i] * inverse[i] : x[i]);
    mean = sum_of_block(s, mean) / width;
  }
  ROLLED for (uint32_t i = threadIdx.x; i < width; i += CHOOSERS) {
    const double v = (double)(inverse ? x[i] * inverse[i] : x[i]) - mean;
    square += v * v;
  }
  return (float)sqrt(sum_of_block(s, square) / width);
}

/* Thread 0: what the id means for its row. */
INLINE void move_on(taper_cuda_row *row, int32_t *token, int32_t *pos, int32_t id, uint32_t held, uint32_t context, int32_t end) {
  if (id == end) {
    row->done = TAPER_CUDA_END;
    return;
  }
  row->out[row->made++] = id;
  if (row->made >= row->most) {
    row->done = TAPER_CUDA_LENGTH;
  } else if (held >= context) {
    row->done = TAPER_CUDA_CONTEXT;
  } else {
    row->history[held] = id;
    *token = id, *pos = (int32_t)held;
  }
}

#endif
