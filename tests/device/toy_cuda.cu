/* toy_cuda.cu - the model of toy_image.c by hand for a GPU, against runtime/abi/cuda_abi.h, which is put before it; one thread does what
   several could. TOY_FAULT: 1: a token of 7 reads outside of the state; 2: kernels without a wait. */
#define D 22
#define V 300
#define PITCH 24
#define HEADS 2
#define DIM 11
#define KERNEL(name) extern "C" __global__ void name(const __grid_constant__ taper_cuda_call c, const __grid_constant__ name##_args a)

static __device__ void wait_for_grid() {
#if __CUDA_ARCH__ >= 900 && TOY_FAULT != 2
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}
static __device__ float *buffer(const taper_cuda_call &c, uint64_t offset) { return c.arena + offset * c.row_cap; }
static __device__ float *cell(const taper_cuda_call &c, float *state, int32_t slot, int32_t pos, uint32_t i) {
  return state + (((uint64_t)slot * HEADS + i / DIM) * c.context + pos) * DIM + i % DIM;
}

struct embed_args { const float *emb; uint64_t x; };
KERNEL(embed) {
  wait_for_grid();
  const uint32_t r = blockIdx.x, i = threadIdx.x;
  if (i < D) buffer(c, a.x)[r * D + i] = a.emb[(uint64_t)c.token[r] * PITCH + i];
}

struct cache_args { float *state; uint64_t x; };
KERNEL(cache) {
  wait_for_grid();
  const uint32_t r = blockIdx.x, i = threadIdx.x;
  if (i < D) *cell(c, a.state, c.slot[r], c.pos[r], i) = buffer(c, a.x)[r * D + i];
}

struct mix_args { float *state; const float *rotary; uint64_t x; double factor; };
KERNEL(mix) {
  wait_for_grid();
  const uint32_t r = blockIdx.x, i = threadIdx.x;
  if (i >= D) return;
  const int32_t last = c.pos[r];
  const float *turn = a.rotary + (uint64_t)last * 2 * DIM;
  float sum = 0;
  for (int32_t p = 0; p <= last; p++) sum += (float)a.factor / (float)(1 + last - p) * *cell(c, a.state, c.slot[r], p, i);
#if TOY_FAULT == 1
  if (c.token[r] == 7) sum += *cell(c, a.state, 1 << 20, 0, i);
#endif
  buffer(c, a.x)[r * D + i] += sum * turn[i];
}

struct squash_args { uint64_t x; };
KERNEL(squash) {
  wait_for_grid();
  const uint32_t r = blockIdx.x, i = threadIdx.x;
  if (i >= D) return;
  const float x = buffer(c, a.x)[r * D + i];
  buffer(c, a.x)[r * D + i] = x / (1 + fabsf(x));
}

/* Rows 0..159 of the head are one weight, the others another. */
struct head_args { const float *low, *high; uint64_t x, y; };
KERNEL(head) {
  wait_for_grid();
  const uint32_t j = blockIdx.y, o = blockIdx.x * blockDim.x + threadIdx.x;
  if (o >= V) return;
  const float *w = o < 160 ? a.low + (uint64_t)o * PITCH : a.high + (uint64_t)(o - 160) * PITCH;
  const float *x = buffer(c, a.x) + (uint64_t)c.out_row[j] * D;
  float sum = 0;
  for (uint32_t i = 0; i < D; i++) sum += x[i] * w[i];
  buffer(c, a.y)[(uint64_t)j * V + o] = sum;
}

/* The largest logit, whatever the options say. */
struct greedy_args {
  taper_cuda_row *rows;
  const taper_cuda_sampling *sampling;
  float *logits;
  int32_t *token, *pos;
  float *scales, *stream, *inverse;
  uint64_t centred;
};
KERNEL(greedy) {
  __shared__ uint32_t running; /* a launch that asks for all dynamic shared memory does not fit beside it */
  wait_for_grid();
  const uint32_t r = blockIdx.x;
  taper_cuda_row *row = &a.rows[r];
  if (threadIdx.x == 0) running = !row->done;
  __syncthreads();
  if (threadIdx.x != 0 || !running) return;
  const float *logits = a.logits + (uint64_t)r * V;
  int32_t best = 0;
  for (uint32_t id = 0; id < V; id++) {
    if ((__float_as_uint(logits[id]) & 0x7f800000u) == 0x7f800000u) {
      row->done = TAPER_CUDA_NUMERIC, row->bad_id = id;
      return;
    }
    if (logits[id] > logits[best]) best = (int32_t)id;
  }
  if (best == a.sampling->end_token) {
    row->done = TAPER_CUDA_END;
    return;
  }
  row->out[row->made++] = best;
  const uint32_t next = (uint32_t)a.pos[r] + 1;
  if (row->made == row->most || next == c.context) {
    row->done = row->made == row->most ? TAPER_CUDA_LENGTH : TAPER_CUDA_CONTEXT;
    return;
  }
  row->history[next] = best;
  a.token[r] = best, a.pos[r] = (int32_t)next;
}
