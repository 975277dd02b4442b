/* Divergent control flow and integer arithmetic, for the host and the device alike. */
#ifdef __CUDACC_RTC__
#define ON_DEVICE static __device__
#else
#define ON_DEVICE static
#endif

ON_DEVICE unsigned flow_some(unsigned seed, unsigned thread) {
  unsigned x = seed * 2654435761u ^ thread * 40503u, sum = 0;
  int depth = 0;
  for (unsigned i = 0; i < (x & 15) + 3; i++) {
    x = x * 1664525u + 1013904223u;
    switch ((x >> 13) % 9) {
    case 0: sum += x >> 5; break;
    case 1: sum ^= x << 3; break;
    case 2:
      if (x & 0x100) continue;
      sum -= i;
      break;
    case 3: {
      unsigned j = x & 7;
      while (j--) {
        sum = sum * 31 + j;
        if (sum & 0x40) break;
        for (unsigned k = 0; k < (sum & 3); k++) sum += k * x;
      }
      break;
    }
    case 4: sum = (sum << 7) | (sum >> 25); break;
    case 5: sum += (unsigned)((int)x / ((int)(sum & 1023) - 512 ? (int)(sum & 1023) - 512 : 7)); break;
    case 6: sum ^= (unsigned)(((unsigned long long)x * sum) >> 17); break;
    case 7:
      if (depth++ > 2) return sum ^ 0x55aa;
      sum += x % ((sum | 1) & 0xffff);
      break;
    default: sum += (unsigned)(((long long)(int)x * (int)sum) % 1000003ll);
    }
  }
  return sum;
}

/* Calls that a compiler must make, one of them of itself. */
#ifdef __CUDACC_RTC__
#define NEVER_INLINE __device__ __noinline__
#else
#define NEVER_INLINE __attribute__((noinline)) static
#endif
struct flow_pair {
  unsigned low;
  unsigned long long high;
};
NEVER_INLINE unsigned flow_fib(unsigned n) { return n < 2 ? n : flow_fib(n - 1) + flow_fib(n - 2); }
NEVER_INLINE struct flow_pair flow_mix(struct flow_pair p, unsigned char c) {
  struct flow_pair r;
  r.low = p.low * 3 + c;
  r.high = p.high ^ ((unsigned long long)p.low << 20);
  return r;
}
/* Ackermann-like: arrays of the frame live across the calls of itself. */
NEVER_INLINE int flow_frames(int depth, int seed) {
  int keep[5];
  for (int i = 0; i < 5; i++) keep[i] = seed * (i + 1) + depth;
  unsigned sum = 0;
  if (depth > 0) {
    sum = (unsigned)flow_frames(depth - 1, keep[seed % 5 < 0 ? 0 : seed % 5] & 1023);
    if (seed & 1) sum += (unsigned)flow_frames(depth - 2 < 0 ? 0 : depth - 2, seed >> 1);
  }
  for (int i = 0; i < 5; i++) sum = sum * 7 + (unsigned)keep[((unsigned)i + (sum & 1)) % 5];
  return (int)sum;
}
