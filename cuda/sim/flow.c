/* flow.c - which registers a function may read before it wrote them. Registers that are written on every way to each of their uses, as
   nearly all are, need no look while a kernel runs. */
#include "cuda/sim/flow.h"
#include <stdlib.h>
#include <string.h>

static bool in_set(const uint64_t *set, uint32_t k) { return set[k / 64] >> (k % 64) & 1u; }

static bool ends_block(const inst *i) {
  return i->kind == INST_BRANCH || i->kind == INST_BRANCH_INDEXED || i->kind == INST_RETURN || i->kind == INST_EXIT ||
         i->kind == INST_TRAP;
}

static void find_blocks(flow *w) {
  const function *f = w->f;
  const uint32_t n = f->end - f->begin;
  for (uint32_t k = 0; k < n; k++) {
    const inst *i = &w->m->code[f->begin + k];
    if (i->kind == INST_BRANCH && i->target < f->end) w->block_of[i->target - f->begin] = 1;
    if (i->kind == INST_BRANCH_INDEXED)
      for (uint32_t j = 1; j <= w->m->tables[i->target]; j++)
        if (w->m->tables[i->target + j] < f->end) w->block_of[w->m->tables[i->target + j] - f->begin] = 1;
    if (ends_block(i) && k + 1 < n) w->block_of[k + 1] = 1;
  }
  for (uint32_t k = 0; k < n; k++) {
    if (w->block_of[k] || k == 0) w->first[w->blocks++] = k;
    w->block_of[k] = w->blocks - 1;
  }
  w->first[w->blocks] = n;
}

/* Is the destination written for sure, if the sources that it is computed of are? */
static bool sources_sure(const flow *w, const inst *i, const uint64_t *set) {
  uint32_t slot;
  const uint32_t end = i->written_as == WRITTEN_COMPUTED ? i->operands : i->written_as == WRITTEN_CHOICE ? 3 : 2;
  for (uint32_t o = i->destinations; i->written_as != WRITTEN_USE && o < end; o++)
    if (flow_slot(w, i->r[o], &slot) && !in_set(set, slot)) return false;
  return true;
}

/* Applies the instructions of a block to `set`; notes uses that are not sure. */
static void transfer(const flow *w, uint32_t block, uint64_t *set, bool note) {
  uint32_t slot;
  for (uint32_t k = w->first[block]; k < w->first[block + 1]; k++) {
    const inst *i = &w->m->code[w->f->begin + k];
    if (note && flow_slot(w, i->guard, &slot) && !in_set(set, slot)) w->loose[slot / 64] |= (uint64_t)1 << (slot % 64);
    for (uint32_t o = i->destinations; note && o < i->operands; o++)
      if (flow_slot(w, i->r[o], &slot) && !in_set(set, slot)) w->loose[slot / 64] |= (uint64_t)1 << (slot % 64);
    const bool sure = sources_sure(w, i, set);
    for (uint32_t o = 0; o < i->destinations; o++) {
      if (!flow_slot(w, i->r[o], &slot)) continue;
      if (!sure)
        set[slot / 64] &= ~((uint64_t)1 << (slot % 64)); /* may be unwritten again */
      else if (i->guard == INST_NONE)
        set[slot / 64] |= (uint64_t)1 << (slot % 64);
    }
  }
}

/* What is sure behind a block is all that is sure at its successor: *changed where that takes something away. */
static void meet(const flow *w, uint64_t *out, uint32_t block, bool *changed) {
  uint64_t *in = w->in + (size_t)block * w->words;
  for (uint32_t k = 0; k < w->words; k++) {
    if (in[k] & ~out[k]) *changed = true;
    in[k] &= out[k];
  }
}

static void successor(const flow *w, uint32_t target, flow_step *step, uint64_t *set, bool *changed) {
  if (target < w->f->end && target >= w->f->begin) step(w, set, w->block_of[target - w->f->begin], changed);
}

void flow_successors(const flow *w, uint32_t block, flow_step *step, uint64_t *set, bool *changed) {
  const uint32_t last = w->f->begin + w->first[block + 1] - 1;
  const inst *i = &w->m->code[last];
  const bool goes_on = i->guard != INST_NONE || !ends_block(i);
  if (i->kind == INST_BRANCH) successor(w, i->target, step, set, changed);
  if (i->kind == INST_BRANCH_INDEXED)
    for (uint32_t j = 1; j <= w->m->tables[i->target]; j++)
      successor(w, w->m->tables[i->target + j], step, set, changed);
  if (goes_on) successor(w, last + 1, step, set, changed);
}

static void solve(flow *w, uint64_t *set) {
  const size_t bytes = w->words * sizeof(*set);
  memset(w->in, 0xff, (size_t)w->blocks * bytes);
  memset(w->in, 0, bytes);
  for (bool changed = true; changed;) {
    changed = false;
    for (uint32_t b = 0; b < w->blocks; b++) {
      memcpy(set, w->in + (size_t)b * w->words, bytes);
      transfer(w, b, set, false);
      flow_successors(w, b, meet, set, &changed);
    }
  }
  for (uint32_t b = 0; b < w->blocks; b++) {
    memcpy(set, w->in + (size_t)b * w->words, bytes);
    transfer(w, b, set, true);
  }
}

static void mark(flow *w) {
  uint32_t slot;
  for (uint32_t pc = w->f->begin; pc < w->f->end; pc++) {
    inst *i = &w->m->code[pc];
    if (flow_slot(w, i->guard, &slot) && in_set(w->loose, slot)) i->loose |= LOOSE_GUARD;
    for (uint32_t o = 0; o < i->operands; o++)
      if (flow_slot(w, i->r[o], &slot) && in_set(w->loose, slot)) i->loose |= 1u << o;
    w->m->loose = w->m->loose || i->loose;
    i->plain = i->kind == INST_RUN && i->guard == INST_NONE && !i->loose;
  }
}

taper_status sim_flow(sim_module *m, function *f, taper_error *error) {
  const uint32_t n = f->end - f->begin;
  if (n == 0) return TAPER_OK;
  flow w = {.m = m, .f = f, .slots = (f->end_register - f->first_register) / INST_REGISTER_BYTES};
  w.words = w.slots / 64 + 1;
  w.block_of = calloc(n, sizeof(*w.block_of));
  w.first = calloc((size_t)n + 1, sizeof(*w.first));
  w.loose = calloc(w.words, sizeof(*w.loose));
  uint64_t *set = calloc(w.words, sizeof(*set));
  if (w.block_of && w.first && w.loose && set) {
    find_blocks(&w);
    w.in = malloc((size_t)w.blocks * w.words * sizeof(*w.in));
  }
  bool ok = w.in != NULL;
  if (ok) {
    solve(&w, set);
    mark(&w);
    ok = flow_share(&w, &f->end_register);
  }
  free(w.block_of);
  free(w.first);
  free(w.loose);
  free(w.in);
  free(set);
  return ok ? TAPER_OK : TAPER_FAIL(error, TAPER_NOMEM, "%s: no memory for the flow of a function", m->name);
}
