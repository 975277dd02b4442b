/* All memory of a trainer: allocated when it opens, sized by the image and the recipe, checked for overflow. */
#include "runtime/abi/abi.h"
#include "runtime/base/checked.h"
#include "runtime/trainer.h"
#include <math.h>
#include <string.h>

static uint64_t round_up(uint64_t n, uint64_t to) { return (n + to - 1) / to * to; }

/* The largest power of two up to rows / 16, between 16 and TRAINER_BLOCK. */
uint32_t trainer_block(uint32_t rows) {
  uint32_t block = 16;
  while (block < TRAINER_BLOCK && block * 2 <= rows / 16) block *= 2;
  return block;
}

/* The most rows a chunk of the program may have. */
static uint64_t chunk_limit(const taper_train_program *g) {
  const uint64_t row_bytes = g->chunk_floats * sizeof(float);
  const uint64_t rows = row_bytes ? TRAINER_CHUNK_BYTES / row_bytes / TRAINER_BLOCK * TRAINER_BLOCK : UINT32_MAX;
  return rows < TRAINER_BLOCK ? TRAINER_BLOCK : rows;
}

uint32_t trainer_chunk_rows(const taper_train_program *g, uint32_t rows) {
  const uint64_t whole = round_up(rows, trainer_block(rows)), most = chunk_limit(g);
  if (whole <= most) return (uint32_t)whole;
  const uint64_t chunks = (whole + most - 1) / most;
  return (uint32_t)round_up((whole + chunks - 1) / chunks, TRAINER_BLOCK);
}

/* A block of `count` zeroed or untouched elements, aligned for huge pages where it is large. */
static taper_status room(taper_trainer *t, void **out, uint64_t count, uint64_t size, bool zeroed, const char *what,
                         taper_error *error) {
  uint64_t bytes;
  if (!checked_mul_u64(count, size, &bytes) || !checked_add_u64(bytes, MEMORY_LINE, &bytes) || bytes > INT64_MAX)
    return memory_exhausted(error, what, UINT64_MAX);
  *out = memory_alloc(&t->allocator, bytes, bytes >= MEMORY_HUGE / 2 ? MEMORY_HUGE : MEMORY_LINE);
  if (!*out) return memory_exhausted(error, what, bytes);
  t->memory_bytes += bytes;
  memory_advise_huge(*out, bytes);
  if (zeroed) memset(*out, 0, bytes);
  return TAPER_OK;
}

#define ROOM(field, count, zeroed, what)                                                                               \
  TAPER_TRY(room(t, (void **)(void *)&t->field, (count), sizeof(*t->field), (zeroed), (what), error))

/* ---- parameters, gradients, moments ---- */

static taper_status lay_out_parameters(taper_trainer *t, const package *p, taper_error *error) {
  const taper_train_image *im = t->t;
  uint64_t all = 0, trained = 0;
  ROOM(param, im->param_count, true, "the table of parameters");
  ROOM(grad, im->param_count, true, "the table of gradients");
  ROOM(first, im->param_count, true, "the table of moments");
  ROOM(second, im->param_count, true, "the table of moments");
  ROOM(shown, im->param_count, true, "the table of parameters");
  ROOM(elements, im->param_count, true, "the sizes of parameters");
  ROOM(cuts, (uint64_t)im->param_count + 1, true, "the cuts of parameters");
  for (uint32_t i = 0; i < im->param_count; i++) {
    (void)train_image_elements(&im->params[i], &t->elements[i]);
    const uint64_t floats = round_up(t->elements[i], TAPER_TILE);
    if (!checked_add_u64(all, floats, &all)) return memory_exhausted(error, "the parameters", UINT64_MAX);
    if (im->params[i].trained) trained += floats;
    t->cuts[i + 1] = t->cuts[i] + (t->elements[i] + TRAINER_CUT - 1) / TRAINER_CUT;
  }
  uint64_t both;
  if (!checked_mul_u64(trained, 2, &both)) return memory_exhausted(error, "the moments", UINT64_MAX);
  ROOM(parameters, all, true, "the parameters");
  ROOM(gradients, trained, true, "the gradients");
  ROOM(moments, both, true, "the moments");
  ROOM(sums, t->cuts[im->param_count], true, "sums of squares");
  float *at = t->parameters, *gradient = t->gradients, *moment = t->moments;
  for (uint32_t i = 0; i < im->param_count; i++) {
    const uint64_t floats = round_up(t->elements[i], TAPER_TILE);
    const st_tensor *initial = train_image_initial(p, &im->params[i]);
    t->param[i] = at, at += floats;
    if (initial) st_read_f32(initial, 0, t->elements[i], t->param[i]);
    if (!im->params[i].trained) continue;
    t->grad[i] = gradient, gradient += floats;
    t->first[i] = moment, t->second[i] = moment + floats, moment += 2 * floats;
  }
  return TAPER_OK;
}

static taper_status lay_out_packs(taper_trainer *t, taper_error *error) {
  const taper_train_image *im = t->t;
  uint64_t all = TAPER_TILE, rotary = 0;
  ROOM(packed, (uint64_t)im->pack_count + 1, true, "the table of packed weights");
  ROOM(rotary, (uint64_t)im->rotary_count + 1, true, "the table of rotations");
  for (uint32_t i = 0; i < im->pack_count; i++)
    if (!checked_add_u64(all, round_up(im->packs[i].floats, TAPER_TILE), &all))
      return memory_exhausted(error, "the packed weights", UINT64_MAX);
  for (uint32_t i = 0; i < im->rotary_count; i++) rotary += (uint64_t)im->context * 2 * im->rotary[i].pairs;
  ROOM(packed_block, all, true, "the packed weights");
  ROOM(rotary_block, rotary + TAPER_TILE, true, "the rotary tables");
  float *at = t->packed_block;
  for (uint32_t i = 0; i < im->pack_count; i++) t->packed[i] = at, at += round_up(im->packs[i].floats, TAPER_TILE);
  at = t->rotary_block;
  for (uint32_t i = 0; i < im->rotary_count; i++) {
    const taper_train_rotary *r = &im->rotary[i];
    t->rotary[i] = at;
    for (uint64_t pos = 0; pos < im->context; pos++, at += 2 * (uint64_t)r->pairs) {
      for (uint32_t k = 0; k < r->pairs; k++) {
        const double angle = (double)pos * r->inv_freq[k];
        at[k] = (float)(cos(angle) * r->magnitude);
        at[r->pairs + k] = (float)(sin(angle) * r->magnitude);
      }
    }
  }
  return TAPER_OK;
}

/* ---- what the programs work in ---- */

typedef struct needs {
  uint64_t arena, chunk, partial, fixed, scratch, entries;
} needs;

static bool raise_to(uint64_t *at, uint64_t n) {
  if (n > *at) *at = n;
  return n <= INT64_MAX / 64;
}

/* Calls have at most `rows` rows; blocks and chunks of smaller ones never need more (trainer_block). */
static bool add_needs(const taper_train_program *g, uint32_t rows, uint32_t time, needs *n) {
  const uint64_t whole = round_up(rows, TRAINER_BLOCK);
  const uint64_t blocks = whole / TRAINER_BLOCK > 32 ? whole / TRAINER_BLOCK : 32;
  uint64_t scratch = g->scratch_per_block * TRAINER_BLOCK + g->scratch_per_time * time; /* each factor is under 2^31 */
  uint64_t partial, widest = chunk_limit(g) < whole ? chunk_limit(g) : whole;
  const uint64_t most_chunks = whole / TRAINER_BLOCK + 1;
  if (!checked_add_u64(scratch, g->scratch_floats, &scratch) || !checked_mul_u64(g->partial_floats, blocks, &partial))
    return false;
  uint64_t entries = 0;
  for (uint32_t i = 0; i < g->stage_count; i++) entries += g->stages[i].flags & TAPER_TRAIN_CHUNKED ? most_chunks : 1;
  return raise_to(&n->arena, g->row_floats * whole) && raise_to(&n->chunk, g->chunk_floats * widest) &&
         raise_to(&n->partial, partial) && raise_to(&n->fixed, g->fixed_floats) && raise_to(&n->scratch, scratch) &&
         raise_to(&n->entries, entries);
}

static void set_contexts(taper_trainer *t, uint64_t scratch) {
  for (uint32_t i = 0; i < t->threads; i++)
    t->ctx[i] = (taper_train_ctx){.version = TAPER_TRAIN_ABI_VERSION,
                                  .size = sizeof(taper_train_ctx),
                                  .workers = t->threads,
                                  .worker = i,
                                  .arena = t->arena,
                                  .chunk = t->chunk,
                                  .partial = t->partial,
                                  .fixed = t->fixed,
                                  .grad = t->grad,
                                  .packed = t->packed,
                                  .result = t->result,
                                  .rotary = (const float *const *)t->rotary,
                                  .scratch = t->scratch + i * scratch};
}

static taper_status make_work_room(taper_trainer *t, taper_error *error) {
  const taper_train_image *im = t->t;
  const uint64_t rows = (uint64_t)t->recipe.batch * t->recipe.sequence;
  if (t->recipe.sequence > im->context)
    return TAPER_FAIL(error, TAPER_INVALID, "windows of %u ids, the model's context is %u; shorten 'sequence'",
                      t->recipe.sequence, im->context);
  if (rows > 1u << 30)
    return TAPER_FAIL(error, TAPER_INVALID, "%llu ids in a micro-batch; at most %u", (unsigned long long)rows,
                      1u << 30);
  t->most_rows = (uint32_t)(rows > im->context ? rows : im->context);
  needs n = {.scratch = im->gemm_scratch};
  for (uint32_t i = 0; i < TAPER_TRAIN_PROGRAMS; i++)
    if (!add_needs(&im->programs[i], t->most_rows, im->context, &n))
      return memory_exhausted(error, "the buffers of a batch", UINT64_MAX);
  const uint64_t scratch = round_up(n.scratch, 32) + 32; /* a line between workers */
  ROOM(arena, n.arena, false, "the buffers of a batch");
  ROOM(chunk, n.chunk, false, "the buffers of a chunk");
  ROOM(partial, n.partial, false, "partial sums");
  ROOM(fixed, n.fixed, false, "values of parameters' shape");
  ROOM(scratch, scratch * t->threads, false, "the workers' scratch");
  ROOM(entries, n.entries, true, "the list of stages");
  ROOM(ctx, t->threads, true, "the workers' contexts");
  set_contexts(t, scratch);
  return TAPER_OK;
}

static taper_status make_state_room(taper_trainer *t, taper_error *error) {
  const taper_train_image *im = t->t;
  ROOM(result, im->result_count, true, "the results");
  ROOM(squares, im->param_count, true, "sums of squares");
  ROOM(updated, im->param_count, true, "the list of updated parameters");
  ROOM(adamw, im->param_count, true, "the list of updated parameters");
  ROOM(gates, (uint64_t)im->gate_count * 2, true, "the gates");
  ROOM(schedule, im->gate_count, true, "the gates' schedules");
  ROOM(calibrated, im->norm_count, true, "the norms");
  ROOM(state.norms, im->norm_count, true, "the norms");
  ROOM(state.updates, im->param_count, true, "the counts of updates");
  ROOM(state.seen, im->vocab, true, "the counts of ids");
  ROOM(state.ring, TRAINER_RING, true, "recent scales");
  return TAPER_OK;
}

taper_status trainer_make_room(taper_trainer *t, const package *p, taper_error *error) {
  TAPER_TRY(make_state_room(t, error));
  TAPER_TRY(lay_out_parameters(t, p, error));
  TAPER_TRY(lay_out_packs(t, error));
  TAPER_TRY(make_work_room(t, error));
  t->dirty = true;
  return TAPER_OK;
}

void trainer_free_room(taper_trainer *t) {
  void *const blocks[] = {t->parameters,    t->gradients,  t->moments,   t->param,    t->grad,         t->first,
                          t->second,        t->shown,      t->elements,  t->cuts,     t->packed_block, t->rotary_block,
                          t->packed,        t->rotary,     t->arena,     t->chunk,    t->partial,      t->fixed,
                          t->scratch,       t->ctx,        t->entries,   t->result,   t->sums,         t->squares,
                          t->updated,       t->adamw,      t->gates,     t->schedule, t->calibrated,   t->state.norms,
                          t->state.updates, t->state.seen, t->state.ring};
  for (size_t i = 0; i < sizeof(blocks) / sizeof(blocks[0]); i++) memory_free(&t->allocator, blocks[i]);
}
