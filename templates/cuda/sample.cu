/* Chooses the next token of each row, a block a row, and moves the row on: see taper_cuda_row. Greedy without a penalty reads the logits once;
   a filter costs two more passes, and more only where over 1024 candidates lie within 1/32 of a logit. Penalised logits are written back. */
#ifndef P_NAME /* alone: one vocabulary, for the compiler and the tests */
#include "templates/cuda/sample.cuh"
#define P_NAME sample_rows
#define P_ARGS sample_rows_args
#define P_VOCAB 257
#define P_WIDTH 20
#define P_COMMENT /* the next token */
#endif
P_COMMENT
struct P_ARGS {
  taper_cuda_row *rows;
  const taper_cuda_sampling *sampling;
  float *logits; /* [rows][vocab] */
  int32_t *token, *pos;
  float *scales;                 /* [rows][context]; 0: not wanted */
  const float *stream, *inverse; /* [rows][width], [width] or 0 */
  uint64_t centred;              /* 1: s(h) is a standard deviation, 0: a root mean square */
};
KERNEL_OF(512) P_NAME(const __grid_constant__ taper_cuda_call c, const __grid_constant__ P_ARGS a) {
  __shared__ chooser s;
  const uint32_t r = blockIdx.x;
  grid_wait();
  grid_release();
  taper_cuda_row *row = &a.rows[r];
  if (row->done != TAPER_CUDA_RUNNING) return;
  const taper_cuda_sampling *o = a.sampling;
  const uint32_t held = (uint32_t)a.pos[r] + 1; /* tokens before the new one */
  float *logits = a.logits + (uint64_t)r * P_VOCAB;
  if (a.scales) {
    const float scale = scale_of_row(&s, a.stream + (uint64_t)r * P_WIDTH, a.inverse, P_WIDTH, a.centred != 0);
    if (threadIdx.x == 0) a.scales[(uint64_t)r * c.context + held - 1] = scale;
  }
  const uint32_t recent = o->repeat_penalty != 1 ? o->repeat_last < held ? o->repeat_last : held : 0;
  uint64_t best;
  ROLLED for (uint32_t pass = 0; pass < (recent ? 2 : 1); pass++) {
    if (pass == 1) penalise(&s, logits, P_VOCAB, row->history + held - recent, recent, o->repeat_penalty);
    const uint32_t bad = look_at_logits(&s, logits, P_VOCAB, &best);
    if (bad == P_VOCAB) continue;
    if (threadIdx.x == 0) row->done = TAPER_CUDA_NUMERIC, row->bad_id = bad;
    return;
  }
  uint32_t id = id_of(best);
  if (o->temperature > 0) {
    candidates all = {logits, P_VOCAB, false, 0, 0, unit_of_mass(P_VOCAB)};
    id = choose(&s, &all, o, best, row->sequence, held);
  }
  if (threadIdx.x == 0) move_on(row, &a.token[r], &a.pos[r], (int32_t)id, held, c.context, o->end_token);
}
