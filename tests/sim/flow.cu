// Torture of control flow: see flow.h, which stands before this text when it is compiled.
extern "C" __global__ void some(unsigned *out, unsigned seed) {
  unsigned t = blockIdx.x * blockDim.x + threadIdx.x;
  out[t] = flow_some(seed, t);
}
extern "C" __global__ void calls(unsigned *out, unsigned seed) {
  unsigned t = blockIdx.x * blockDim.x + threadIdx.x;
  flow_pair p = {t * seed, seed};
  unsigned r = 0;
  if (t % 3) p = flow_mix(p, (unsigned char)t);
  if (t % 5 != 1) r = flow_fib(t % 11);
  p = flow_mix(p, (unsigned char)(t + seed));
  out[t] = r + p.low + (unsigned)(p.high >> 16) + (unsigned)flow_frames((int)(t % 6), (int)((t * seed) & 255));
}
// Threads leave a loop at different times and meet again at a barrier.
extern "C" __global__ void leave(unsigned *out, unsigned seed) {
  __shared__ unsigned sum[128];
  unsigned t = threadIdx.x, x = seed ^ t * 2246822519u, n = 0;
  while (true) {
    x = x * 1664525u + 1013904223u;
    if ((x >> 24) < 16) break;
    if (++n > 300) goto out;
    for (unsigned j = x & 3; j; j--)
      if ((x >> (j + 3)) & 1) n++;
  }
  n += 1000;
out:
  sum[t] = n;
  __syncthreads();
  out[blockIdx.x * 128 + t] = sum[(t * 37 + 5) & 127] + n * 7;
}
// A dense switch: a table of targets where the compiler makes one.
extern "C" __global__ void table(unsigned *out, unsigned seed) {
  unsigned t = blockIdx.x * blockDim.x + threadIdx.x, x = t * 40503u + seed, s = 0;
  for (int i = 0; i < 20; i++) {
    x = x * 1664525u + 1013904223u;
    switch (x >> 28) {
    case 0: s += out[t] & 0; s += 17; break;
    case 1: s ^= x; break;
    case 2: s = s << 3 | s >> 29; break;
    case 3: s *= 31; break;
    case 4: s -= x >> 3; break;
    case 5: s += __popc(x); break;
    case 6: s ^= s >> 7; break;
    case 7: s += i * i; break;
    case 8: s = ~s; break;
    case 9: s += x & 0xff00; break;
    case 10: s ^= x * s; break;
    case 11: s += 3; break;
    default: s++;
    }
  }
  out[t] = s;
}
