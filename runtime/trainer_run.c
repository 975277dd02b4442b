/* Running programs, and the work over all parameters: sums of squares and updates. */
#include "runtime/abi/abi.h"
#include "runtime/device.h"
#include "runtime/trainer.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- programs ---- */

/* The stages in order; a run of chunked ones once for every chunk. Returns how many entries these are. */
static uint32_t list_entries(taper_trainer *t, const taper_train_program *g, uint32_t rows) {
  const uint32_t chunk = trainer_chunk_rows(g, rows ? rows : 1);
  uint32_t n = 0;
  for (uint32_t i = 0, end; i < g->stage_count; i = end) {
    end = i + 1;
    if (!(g->stages[i].flags & TAPER_TRAIN_CHUNKED)) {
      t->entries[n++] = (trainer_entry){&g->stages[i], 0, rows};
      continue;
    }
    while (end < g->stage_count && g->stages[end].flags & TAPER_TRAIN_CHUNKED) end++;
    for (uint32_t row = 0; row < rows; row += chunk) {
      const uint32_t count = rows - row < chunk ? rows - row : chunk;
      for (uint32_t k = i; k < end; k++) t->entries[n++] = (trainer_entry){&g->stages[k], row, count};
    }
  }
  return n;
}

static void run_part(void *arg, uint32_t stage, uint32_t part) {
  taper_trainer *t = arg;
  const trainer_entry *e = &t->entries[stage];
  taper_train_ctx *c = &t->ctx[part];
  c->chunk_row0 = e->chunk_row0, c->chunk_count = e->chunk_count;
  e->stage->fn(c, e->stage->args);
}

static void run_program(taper_trainer *t, const trainer_call *call) {
  const taper_train_program *g = &t->t->programs[call->program];
  const uint32_t rows = call->windows * call->time, block = trainer_block(rows);
  for (uint32_t i = 0; i < t->threads; i++) {
    taper_train_ctx *c = &t->ctx[i];
    c->batch = call->windows, c->time = call->time, c->rows = rows;
    c->block = block, c->row_cap = (rows + block - 1) / block * block;
    c->chunk_rows = trainer_chunk_rows(g, rows ? rows : 1);
    c->accumulate = call->accumulate, c->inv_count = call->inv_count;
    c->token = call->tokens, c->target = call->targets;
    c->param = call->param, c->gate = call->gates;
  }
  const uint32_t n = list_entries(t, g, rows);
  pool_lock(t->workers);
  pool_run(t->workers, &(pool_job){.part = run_part, .arg = t, .stages = n});
  pool_unlock(t->workers);
}

void trainer_run(taper_trainer *t, const trainer_call *call) {
  if (t->dirty && t->t->programs[TAPER_TRAIN_PACK].stage_count) {
    trainer_call pack = {.program = TAPER_TRAIN_PACK, .gates = call->gates, .param = t->param};
    run_program(t, &pack);
  }
  t->dirty = false;
  run_program(t, call);
}

const float *trainer_rows(const taper_trainer *t, uint32_t i) {
  return t->arena + t->t->results[i].offset * t->ctx[0].row_cap;
}

double trainer_result(const taper_trainer *t, uint32_t program, const char *name, double absent) {
  const uint32_t i = train_image_result(t->t, program, name);
  return i == TAPER_ABI_NONE || t->t->results[i].rows ? absent : t->result[i];
}

taper_status trainer_check_ids(const taper_trainer *t, const int32_t *tokens, const int32_t *targets, uint64_t n,
                               uint64_t *out_count, taper_error *error) {
  const int32_t vocab = (int32_t)t->t->vocab;
  uint64_t counted = 0;
  for (uint64_t i = 0; i < n; i++) {
    if (tokens[i] < 0 || tokens[i] >= vocab)
      return TAPER_FAIL(error, TAPER_INVALID, "token %llu is %d; ids are 0 to %d", (unsigned long long)i, tokens[i],
                        vocab - 1);
    if (targets[i] < -1 || targets[i] >= vocab)
      return TAPER_FAIL(error, TAPER_INVALID, "target %llu is %d; ids are 0 to %d, -1 is padding",
                        (unsigned long long)i, targets[i], vocab - 1);
    counted += targets[i] >= 0;
  }
  *out_count = counted;
  return TAPER_OK;
}

/* ---- all parameters ---- */

/* Part `part` of the cuts of all updated parameters: visit(t, param, first, last, cut). */
static void each_cut(taper_trainer *t, uint32_t part,
                     void (*visit)(taper_trainer *t, uint32_t i, uint64_t first, uint64_t last, uint64_t cut)) {
  uint64_t cut, end;
  uint32_t i = 0;
  pool_range(t->cuts[t->t->param_count], part, t->threads, &cut, &end);
  for (; cut < end; cut++) {
    while (t->cuts[i + 1] <= cut) i++;
    if (!t->updated[i]) continue;
    const uint64_t first = (cut - t->cuts[i]) * TRAINER_CUT, last = first + TRAINER_CUT;
    visit(t, i, first, last < t->elements[i] ? last : t->elements[i], cut);
  }
}

static void sum_cut(taper_trainer *t, uint32_t i, uint64_t first, uint64_t last, uint64_t cut) {
  t->sums[cut] = t->t->sum_squares(t->grad[i], first, last);
}

static void update_cut(taper_trainer *t, uint32_t i, uint64_t first, uint64_t last, uint64_t cut) {
  (void)cut;
  t->t->adamw(t->param[i], t->grad[i], t->first[i], t->second[i], first, last, &t->adamw[i]);
}

static void sum_part(void *arg, uint32_t stage, uint32_t part) {
  (void)stage;
  each_cut(arg, part, sum_cut);
}

static void update_part(void *arg, uint32_t stage, uint32_t part) {
  (void)stage;
  each_cut(arg, part, update_cut);
}

static void run_over_parameters(taper_trainer *t, void (*part)(void *arg, uint32_t stage, uint32_t part)) {
  pool_lock(t->workers);
  pool_run(t->workers, &(pool_job){.part = part, .arg = t, .stages = 1});
  pool_unlock(t->workers);
}

double trainer_sum_squares(taper_trainer *t) {
  double all = 0;
  run_over_parameters(t, sum_part);
  for (uint32_t i = 0; i < t->t->param_count; i++) {
    double sum = 0;
    for (uint64_t cut = t->cuts[i]; t->updated[i] && cut < t->cuts[i + 1]; cut++) sum += t->sums[cut];
    t->squares[i] = sum;
    all += sum;
  }
  return all;
}

void trainer_update(taper_trainer *t) {
  run_over_parameters(t, update_part);
  t->dirty = true;
}

uint32_t trainer_first_bad(const taper_trainer *t, int what) {
  for (uint32_t i = 0; i < t->t->param_count; i++) {
    const uint64_t n = t->elements[i];
    bool sound = true;
    if (what == 0) sound = device_is_finite(t->param[i], n);
    if (what == 1) sound = !t->updated[i] || device_is_finite(t->grad[i], n);
    if (what == 2 && t->first[i]) sound = device_is_finite(t->first[i], n) && device_is_finite(t->second[i], n);
    if (!sound) return i;
  }
  return TAPER_ABI_NONE;
}
