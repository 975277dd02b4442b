/* block.c - the threads of a block: what they begin with, how they take turns, where they wait for each other. */
#include "cuda/sim/exec.h"
#include <stdlib.h>

static size_t register_bytes(const sim_kernel *k) { return (k->register_bytes + 127u) & ~(size_t)63; }

static bool new_warp(block *b, warp *w, uint32_t index) {
  const sim_kernel *k = b->run->kernel;
  const size_t registers = register_bytes(k);
  *w = (warp){.block = b, .index = index};
  w->base[0] = sim_buffer_take(registers);
  w->base[1] = k->module->constants;
  bool ok = w->base[0] != NULL;
  if (k->module->loose) {
    w->written = malloc(registers / INST_REGISTER_BYTES * sizeof(*w->written));
    ok = ok && w->written;
  }
  if (k->local_bytes) {
    w->local = malloc((size_t)SIM_LANES * k->local_bytes);
    w->local_written = malloc((size_t)SIM_LANES * k->local_bytes);
    ok = ok && w->local && w->local_written;
  }
  if (k->call_bytes) {
    w->call_area = calloc(SIM_LANES, k->call_bytes);
    w->frames = calloc((size_t)SIM_LANES * SIM_MAX_DEPTH, sizeof(*w->frames));
    ok = ok && w->call_area && w->frames;
  }
  return ok;
}

/* ---- special registers ---- */

#define BIT(s) (1u << SPECIAL_##s)
#define OF_LANES                                                                                                       \
  (BIT(TID_X) | BIT(TID_Y) | BIT(TID_Z) | BIT(LANEID) | BIT(LANEMASK_EQ) | BIT(LANEMASK_LE) | BIT(LANEMASK_LT) |       \
   BIT(LANEMASK_GE) | BIT(LANEMASK_GT))
#define OF_BLOCKS (BIT(CTAID_X) | BIT(CTAID_Y) | BIT(CTAID_Z) | BIT(SMID) | BIT(FRAME))

static uint32_t read_specials(const warp *w) { return w->block->run->kernel->module->specials | BIT(FRAME); }

/* Those of `which` that instructions read, with one value for all lanes. */
static void fill_specials(warp *w, uint32_t which, const uint32_t values[SPECIAL_COUNT]) {
  for (uint32_t todo = read_specials(w) & which; todo; todo &= todo - 1) {
    const uint32_t s = (uint32_t)__builtin_ctz(todo), value = values[s];
    uint64_t *wide = lanes_of(w, SPECIAL_WIDE(s));
    uint32_t *narrow = lanes_of(w, SPECIAL_NARROW(s));
    for (uint32_t l = 0; l < SIM_LANES; l++) wide[l] = value;
    for (uint32_t l = 0; l < SIM_LANES; l++) narrow[l] = value;
  }
}

static void lane_specials(const block *b, warp *w) {
  const uint32_t *n = b->run->launch.block, t = w->index * SIM_LANES;
  uint32_t x = t % n[0], y = t / n[0] % n[1], z = t / n[0] / n[1];
  for (uint32_t l = 0; l < SIM_LANES; l++) {
    const uint32_t values[SPECIAL_COUNT] = {
        [SPECIAL_TID_X] = x,
        [SPECIAL_TID_Y] = y,
        [SPECIAL_TID_Z] = z,
        [SPECIAL_LANEID] = l,
        [SPECIAL_LANEMASK_EQ] = 1u << l,
        [SPECIAL_LANEMASK_LE] = SIM_ALL_LANES >> (31 - l),
        [SPECIAL_LANEMASK_LT] = (1u << l) - 1,
        [SPECIAL_LANEMASK_GE] = SIM_ALL_LANES << l,
        [SPECIAL_LANEMASK_GT] = l == 31 ? 0 : SIM_ALL_LANES << (l + 1),
    };
    for (uint32_t todo = read_specials(w) & OF_LANES; todo; todo &= todo - 1) {
      const uint32_t s = (uint32_t)__builtin_ctz(todo);
      ((uint64_t *)lanes_of(w, SPECIAL_WIDE(s)))[l] = values[s];
      ((uint32_t *)lanes_of(w, SPECIAL_NARROW(s)))[l] = values[s];
    }
    x = x + 1 == n[0] ? 0 : x + 1;
    y = x ? y : y + 1 == n[1] ? 0 : y + 1;
    z += !x && !y;
  }
}

/* Those that every block has alike. */
static void fixed_specials(const block *b, warp *w) {
  const sim_launch *launch = &b->run->launch;
  const uint32_t values[SPECIAL_COUNT] = {
      [SPECIAL_NTID_X] = launch->block[0],
      [SPECIAL_NTID_Y] = launch->block[1],
      [SPECIAL_NTID_Z] = launch->block[2],
      [SPECIAL_NCTAID_X] = launch->grid[0],
      [SPECIAL_NCTAID_Y] = launch->grid[1],
      [SPECIAL_NCTAID_Z] = launch->grid[2],
      [SPECIAL_WARPID] = w->index,
      [SPECIAL_NWARPID] = b->warp_count,
      [SPECIAL_NSMID] = launch->sms,
      [SPECIAL_DYNAMIC_SHARED_SIZE] = launch->dynamic_shared,
      [SPECIAL_TOTAL_SHARED_SIZE] = b->shared_bytes,
      [SPECIAL_DYNAMIC_SHARED] = SIM_SHARED_BASE + (b->run->kernel->facts.shared_bytes + 15) / 16 * 16,
  };
  fill_specials(w, ~(OF_LANES | OF_BLOCKS), values);
  lane_specials(b, w);
}

static void block_specials(const block *b, warp *w) {
  const uint32_t values[SPECIAL_COUNT] = {
      [SPECIAL_CTAID_X] = b->id[0],
      [SPECIAL_CTAID_Y] = b->id[1],
      [SPECIAL_CTAID_Z] = b->id[2],
      [SPECIAL_SMID] = b->number % b->run->launch.sms,
  };
  fill_specials(w, OF_BLOCKS, values);
}

/* ---- blocks ---- */

bool sim_block_new(worker *k, block *b) {
  const sim_launch *launch = &k->run->launch;
  const sim_kernel *kernel = k->run->kernel;
  *b = (block){.run = k->run, .worker = k, .done = true};
  b->threads = launch->block[0] * launch->block[1] * launch->block[2];
  b->warp_count = (b->threads + SIM_LANES - 1) / SIM_LANES;
  b->shared_bytes = launch->dynamic_shared ? (kernel->facts.shared_bytes + 15) / 16 * 16 + launch->dynamic_shared
                                           : kernel->facts.shared_bytes;
  b->shared = aligned_alloc(64, (b->shared_bytes + 64u) / 64 * 64);
  b->cells = calloc((b->shared_bytes >> kernel->shared_granule) + 1, sizeof(*b->cells));
  b->warps = calloc(b->warp_count, sizeof(*b->warps));
  if (!b->shared || !b->cells || !b->warps) return false;
  for (uint32_t i = 0; i < b->warp_count; i++) {
    if (!new_warp(b, &b->warps[i], i)) return false;
    fixed_specials(b, &b->warps[i]);
  }
  return true;
}

static void free_frames(warp *w) {
  for (uint32_t l = 0; w->frames && l < SIM_LANES; l++)
    while (w->depth[l] > 0) {
      call_frame *f = &w->frames[(size_t)l * SIM_MAX_DEPTH + --w->depth[l]];
      free(f->saved);
      f->saved = NULL;
    }
}

void sim_block_free(block *b) {
  for (uint32_t i = 0; b->warps && i < b->warp_count; i++) {
    warp *w = &b->warps[i];
    free_frames(w);
    sim_buffer_give(w->base[0], register_bytes(b->run->kernel));
    free(w->written);
    free(w->local);
    free(w->local_written);
    free(w->call_area);
    free(w->frames);
    free(w->copies);
    free(w->lane_seen);
  }
  order_block_free(b->order);
  free(b->shared);
  free(b->cells);
  free(b->plain);
  free(b->warps);
  *b = (block){0};
}

static void begin_warp(block *b, warp *w) {
  const sim_kernel *k = b->run->kernel;
  const uint32_t first = w->index * SIM_LANES, left = b->threads - first;
  w->alive = left >= SIM_LANES ? SIM_ALL_LANES : (1u << left) - 1;
  w->group_count = 0;
  sim_group_add(w, (group){.pc = k->code.begin, .lanes = w->alive});
  free_frames(w);
  w->synced = w->all_seen = w->copy_count = w->carry = 0;
  memset(w->seen, 0, sizeof(w->seen));
  if (w->lane_seen) memset(w->lane_seen, 0, SIM_LANES * sizeof(*w->lane_seen));
  memset(w->copy_groups, 0, sizeof(w->copy_groups));
  w->passed_by = w->strayed = 0;
  if (w->written) memset(w->written, 0, (k->register_bytes + 63u) / INST_REGISTER_BYTES * sizeof(*w->written));
  if (w->local_written) memset(w->local_written, 0, (size_t)SIM_LANES * k->local_bytes);
  block_specials(b, w);
}

void sim_block_begin(block *b, uint32_t number) {
  const uint32_t *grid = b->run->launch.grid;
  b->number = number;
  b->id[0] = number % grid[0];
  b->id[1] = number / grid[0] % grid[1];
  b->id[2] = number / grid[0] / grid[1];
  b->begun = true;
  b->done = b->faulted = b->stop = false;
  b->instructions = 0;
  b->time = 1;
  b->turn = (uint32_t)(b->run->launch.seed % 31) * number;
  memset(b->barriers, 0, sizeof(b->barriers));
  memset(b->cells, 0, (((size_t)b->shared_bytes >> b->run->kernel->shared_granule) + 1) * sizeof(*b->cells));
  if (b->plain)
    memset(b->plain, 0, (((size_t)b->shared_bytes >> b->run->kernel->shared_granule) + 1) * sizeof(*b->plain));
  memset(b->shared, 0xfb, b->shared_bytes);
  for (uint32_t i = 0; i < b->warp_count; i++) begin_warp(b, &b->warps[i]);
  if (b->order) order_block_reset(b->run->ordered, b->order);
  if (b->run->ordered && !b->order) {
    b->order = order_block(b->run->ordered);
    if (!b->order) sim_stop(&b->warps[0], NULL, 0, SIM_NO_MEMORY, 0, "for the order of blocks");
  }
}

/* ---- barriers ---- */

static uint32_t alive_threads(const block *b) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < b->warp_count; i++) n += (uint32_t)__builtin_popcount(b->warps[i].alive);
  return n;
}

/* What the threads of the barrier did is ordered before what those that wait do next. */
static void join_warps(block *b, const barrier *r) {
  const uint32_t now = ++b->time, warps = r->warps;
  for (uint32_t i = 0; i < b->warp_count; i++) {
    if (!(warps >> i & 1u)) continue;
    warp *w = &b->warps[i];
    for (uint32_t j = 0; j < b->warp_count; j++) {
      if (!(warps >> j & 1u)) continue;
      w->seen[j] = now;
      /* and what those had seen of others */
      for (uint32_t v = 0; v < b->warp_count; v++)
        if (b->warps[j].seen[v] > w->seen[v]) w->seen[v] = b->warps[j].seen[v];
    }
    for (uint32_t v = 0; v < b->warp_count; v++)
      if (r->seen[v] > w->seen[v]) w->seen[v] = r->seen[v];
    w->synced = now;
    if (warps == SIM_ALL_LANES >> (SIM_MAX_WARPS - b->warp_count)) w->all_seen = now;
  }
}

static void give_votes(warp *w, const barrier *r, const inst *i) {
  const uint32_t all = i->imm == BARRIER_AND ? r->yes == r->votes : i->imm == BARRIER_OR ? r->yes > 0 : r->yes;
  w->mask = w->barrier_mask;
  if (i->imm == BARRIER_COUNT) {
    uint32_t *pd = lanes_of(w, i->r[0]);
    FOR_LANES(w, pd[l] = all;);
  } else {
    set_predicate(w, i->r[0], all ? SIM_ALL_LANES : 0);
  }
  w->barrier_mask = 0;
}

static void release(block *b, uint32_t id) {
  barrier *r = &b->barriers[id];
  join_warps(b, r);
  b->worker->counters.barriers++;
  for (uint32_t k = 0; k < b->warp_count; k++) {
    warp *w = &b->warps[k];
    uint32_t lanes = 0;
    group g = {0};
    if (r->warps >> k & 1u) w->passed_by = w->strayed = 0;
    for (uint32_t n = 0; n < w->group_count;) {
      if (w->groups[n].state != GROUP_AT_BARRIER || w->groups[n].barrier != id) {
        n++;
        continue;
      }
      g = w->groups[n];
      lanes = g.lanes;
      memmove(&w->groups[n], &w->groups[n + 1], (w->group_count - n - 1) * sizeof(group));
      w->group_count--;
      const inst *i = &b->run->kernel->module->code[g.pc];
      if (i->destinations && w->barrier_mask) give_votes(w, r, i);
      g.pc++;
      g.state = GROUP_RUNS;
      g.turns = 0;
      g.lanes = lanes;
      g.barrier = 0;
      sim_group_add(w, g);
      n = 0;
    }
  }
  *r = (barrier){0};
}

/* Everybody who is expected is there. */
static void check_barrier(block *b, uint32_t id) {
  const barrier *r = &b->barriers[id];
  if (!r->used) return;
  if (r->expected ? r->threads >= r->expected : r->threads >= alive_threads(b)) release(b, id);
}

/* An aligned barrier is for all lanes of a warp that are alive: those that are elsewhere now must come, or end with nothing else done
   (an early return). */
static void note_absent(warp *w, const inst *i, uint32_t lanes) {
  uint32_t waiting = lanes;
  for (uint32_t k = 0; k < w->group_count; k++)
    if (w->groups[k].state == GROUP_AT_BARRIER) waiting |= w->groups[k].lanes;
  if (!i->vector) w->passed_by |= w->alive;
  w->passed_by &= ~waiting;
  w->strayed &= ~waiting;
}

/* Who waits sees what the warp did, and had seen, until now; the warp itself sees nothing. */
static void note_arrival(barrier *r, const warp *w) {
  for (uint32_t v = 0; v < w->block->warp_count; v++)
    if (w->seen[v] > r->seen[v]) r->seen[v] = w->seen[v];
  r->seen[w->index] = ++w->block->time;
}

/* bar.sync|arrive|red: operands: [result,] barrier, [count,] [predicate]; fence: 1 arrives only; is_signed: has a count. */
void sim_barrier_arrive(warp *w, group *g, const inst *i, uint32_t lanes) {
  block *b = w->block;
  const uint32_t l = (uint32_t)__builtin_ctz(lanes), at = i->destinations;
  const uint64_t id = lane_value(w, i, at, l);
  const uint32_t count = i->is_signed ? (uint32_t)lane_value(w, i, at + 1, l) : 0;
  const bool arrives_only = i->vector == 1;
  if (id >= SIM_BARRIERS || count % SIM_LANES || count > 1024) {
    sim_stop(w, i, l, SIM_BAD_VALUE, id, "barrier %u, %u threads", (unsigned)id, count);
    return;
  }
  barrier *r = &b->barriers[id];
  note_absent(w, i, lanes);
  const inst *code = b->run->kernel->module->code;
  const bool elsewhere =
      r->pc != g->pc && !(i->vector == 2 && code[r->pc].vector == 2); /* those may come from anywhere */
  if (r->used && ((!count && elsewhere) || r->expected != count)) {
    sim_stop(w, i, l, SIM_DIVERGENT_BARRIER, id, "others of the block wait at line %u of the PTX, for %u threads",
             code[r->pc].line, r->expected);
    return;
  }
  r->used = true;
  r->pc = g->pc;
  r->expected = count;
  const bool whole = lanes == w->alive; /* with a count, a warp counts as 32 */
  r->threads += count && whole ? SIM_LANES : (uint32_t)__builtin_popcount(lanes);
  if (arrives_only)
    note_arrival(r, w);
  else
    r->warps |= 1u << w->index;
  if (i->destinations) {
    const uint32_t p =
        predicate_of(w, i->r[i->operands - 1]) ^ (i->not_operand >> (i->operands - 1) & 1u ? SIM_ALL_LANES : 0);
    r->yes += (uint32_t)__builtin_popcount(p & lanes);
    r->votes += (uint32_t)__builtin_popcount(lanes);
    w->barrier_mask |= lanes;
  }
  g->lanes = lanes;
  g->state = arrives_only ? GROUP_RUNS : GROUP_AT_BARRIER;
  g->barrier = arrives_only ? 0 : (uint8_t)id;
  if (arrives_only) g->pc++;
  sim_group_add(w, *g);
  check_barrier(b, (uint32_t)id);
}

/* ---- turns ---- */

static void stuck(block *b) {
  const inst *code = b->run->kernel->module->code;
  for (uint32_t k = 0; k < b->warp_count; k++)
    for (uint32_t n = 0; n < b->warps[k].group_count; n++) {
      warp *w = &b->warps[k];
      const group *g = &w->groups[n];
      if (g->state != GROUP_COLLECTS) continue;
      sim_stop(w, &code[g->pc], (uint32_t)__builtin_ctz(g->lanes), SIM_ABSENT_LANES, 0,
               "lanes %08x wait there for others, which are elsewhere or have ended (alive: %08x)", g->lanes, w->alive);
      return;
    }
  for (uint32_t k = 0; k < b->warp_count; k++) {
    warp *w = &b->warps[k];
    if (!w->group_count) continue;
    sim_stop(w, &code[w->groups[0].pc], (uint32_t)__builtin_ctz(w->groups[0].lanes), SIM_DIVERGENT_BARRIER,
             w->groups[0].barrier, "lanes %08x wait there for threads that do not come", w->groups[0].lanes);
    return;
  }
}

static bool at_grid_wait(const block *b) {
  for (uint32_t k = 0; k < b->warp_count; k++)
    for (uint32_t n = 0; n < b->warps[k].group_count; n++)
      if (b->warps[k].groups[n].state == GROUP_AT_GRID_WAIT) return true;
  return false;
}

bool sim_block_run(block *b, uint32_t most) {
  for (;; b->turn += b->run->launch.seed != 0) {
    uint32_t count = 0, alive = 0;
    for (uint32_t k = 0; k < b->warp_count && !b->stop; k++) {
      warp *w = &b->warps[(k + b->turn) % b->warp_count];
      if (!w->alive) continue;
      const uint32_t before = w->alive;
      count += sim_warp_run(w, most);
      if (w->alive != before)
        for (uint32_t id = 0; id < SIM_BARRIERS && !b->stop; id++) check_barrier(b, id);
    }
    for (uint32_t k = 0; k < b->warp_count; k++) alive |= b->warps[k].alive;
    b->instructions += count;
    b->worker->counters.warp_instructions += count;
    b->done = b->stop || !alive;
    if (b->done) return true;
    if (b->instructions > b->run->launch.budget) {
      const warp *w = &b->warps[0];
      sim_stop(&b->warps[0], w->group_count ? &b->run->kernel->module->code[w->groups[0].pc] : NULL, 0, SIM_SPIN, 0,
               "%llu warp instructions of the block; does it wait for a block that has not begun?",
               (unsigned long long)b->instructions);
      b->done = true;
      return true;
    }
    if (count == 0) {
      if (at_grid_wait(b)) return true;
      stuck(b);
      b->done = true;
      return true;
    }
    if (b->run->launch.cooperative) return false;
  }
}
