/* warp.c - the loop of a warp. Its lanes stand in groups, each at one instruction; the group that is deepest in calls and then at the
   lowest instruction runs, so that lanes which parted meet again where their ways join. One that keeps others waiting for very long may be
   waiting for them, for a lock or a flag: they get a turn. */
#include "cuda/sim/exec.h"

/* Groups that run come first, in the order above; those that wait follow. */
static bool runs_before(const group *a, const group *b) {
  if ((a->state == GROUP_RUNS) != (b->state == GROUP_RUNS)) return a->state == GROUP_RUNS;
  if (a->turns != b->turns) return a->turns < b->turns;
  if (a->depth != b->depth) return a->depth > b->depth;
  return a->pc < b->pc;
}

static bool may_join(const group *a, const group *b) {
  return a->pc == b->pc && a->depth == b->depth && a->state == b->state && a->barrier == b->barrier;
}

void sim_group_add(warp *w, group g) {
  uint32_t at = 0;
  if (!g.lanes) return;
  if (w->group_count == 0) g.turns = 0;
  for (uint32_t k = 0; k < w->group_count; k++)
    if (may_join(&w->groups[k], &g)) {
      w->groups[k].lanes |= g.lanes;
      return;
    }
  while (at < w->group_count && !runs_before(&g, &w->groups[at])) at++;
  memmove(&w->groups[at + 1], &w->groups[at], (w->group_count - at) * sizeof(group));
  w->groups[at] = g;
  w->group_count++;
}

/* What a group executes before others that could run get a turn. */
#define TURN_INSTRUCTIONS 4096u

static group take_first(warp *w) {
  const group g = w->groups[0];
  w->group_count--;
  memmove(&w->groups[0], &w->groups[1], w->group_count * sizeof(group));
  return g;
}

/* ---- registers that may be unwritten ---- */

static uint32_t *mark_of(const warp *w, uint32_t r) { return &w->written[r / INST_REGISTER_BYTES]; }

/* Lanes that have written an operand; all, where it is written on every way to here. */
static uint32_t written_lanes(const warp *w, const inst *i, uint32_t operand) {
  return i->loose >> operand & 1u ? *mark_of(w, i->r[operand]) : SIM_ALL_LANES;
}

/* Copied and computed values are unwritten where what they come from is; any other use of an unwritten register stops. */
static bool sources_written(warp *w, const inst *i, uint32_t lanes, uint32_t all) {
  if (i->loose & LOOSE_GUARD && all & ~*mark_of(w, i->guard)) {
    sim_stop(w, i, (uint32_t)__builtin_ctz(all & ~*mark_of(w, i->guard)), SIM_UNWRITTEN_REGISTER, 0,
             "the guard of the instruction");
    return false;
  }
  for (uint32_t o = i->destinations; o < i->operands; o++) {
    if (i->written_as != WRITTEN_USE && !(i->written_as == WRITTEN_CHOICE && o == 3)) continue;
    const uint32_t bad = lanes & ~written_lanes(w, i, o);
    if (!bad) continue;
    sim_stop(w, i, (uint32_t)__builtin_ctz(bad), SIM_UNWRITTEN_REGISTER, 0, "operand %u of the instruction", o + 1);
    return false;
  }
  return true;
}

static void mark_destinations(warp *w, const inst *i, uint32_t lanes) {
  uint32_t now = lanes;
  if (i->written_as == WRITTEN_CHOICE) {
    const uint32_t p = predicate_of(w, i->r[3]) ^ (i->not_operand & 8u ? SIM_ALL_LANES : 0);
    now &= (p & written_lanes(w, i, 1)) | (~p & written_lanes(w, i, 2));
  } else if (i->written_as != WRITTEN_USE) {
    for (uint32_t o = i->destinations; o < i->operands; o++) now &= written_lanes(w, i, o);
  }
  for (uint32_t o = 0; o < i->destinations; o++) {
    if (!(i->loose >> o & 1u)) continue;
    uint32_t *mark = mark_of(w, i->r[o]);
    *mark = (*mark & ~lanes) | now;
  }
}

static void run_lanes(warp *w, const inst *i, uint32_t lanes) {
  w->mask = lanes;
  if (!i->loose) {
    i->run(w, i);
    return;
  }
  if (!sources_written(w, i, lanes, lanes)) return;
  i->run(w, i);
  mark_destinations(w, i, lanes);
}

/* ---- instructions that a set of lanes executes together ---- */

/* The lanes that lane `l` waits for; an instruction without a member mask needs all 32. */
static uint32_t members(const warp *w, const inst *i, uint32_t l) {
  return i->needs_all ? SIM_ALL_LANES : (uint32_t)lane_value(w, i, i->operands - 1u, l);
}

static void collect(warp *w, const group *arrived, const inst *i, uint32_t lanes) {
  uint32_t here = lanes, done = 0;
  for (uint32_t k = 0; k < w->group_count; k++) {
    const group *g = &w->groups[k];
    if (g->state != GROUP_COLLECTS || g->pc != arrived->pc || g->depth != arrived->depth) continue;
    here |= g->lanes;
    memmove(&w->groups[k], &w->groups[k + 1], (w->group_count - k - 1) * sizeof(group));
    w->group_count--;
    break;
  }
  for (uint32_t todo = here; todo && !w->block->stop;) {
    const uint32_t l = (uint32_t)__builtin_ctz(todo), mask = members(w, i, l);
    uint32_t set = 0;
    for (uint32_t r = todo; r; r &= r - 1) {
      const uint32_t k = (uint32_t)__builtin_ctz(r);
      if (members(w, i, k) == mask) set |= 1u << k;
    }
    todo &= ~set;
    if (set & ~mask)
      sim_stop(w, i, l, SIM_ABSENT_LANES, 0, "lanes %08x execute it with the member mask %08x", set, mask);
    else if (mask & ~w->alive)
      sim_stop(w, i, l, SIM_ABSENT_LANES, 0, "member mask %08x, but of these only lanes %08x have not ended", mask,
               mask & w->alive);
    else if (set == mask) {
      run_lanes(w, i, set);
      done |= set;
    }
  }
  group g = *arrived;
  g.pc++;
  g.lanes = done;
  sim_group_add(w, g);
  g = *arrived;
  g.state = GROUP_COLLECTS;
  g.lanes = here & ~done;
  sim_group_add(w, g);
}

/* ---- control ---- */

static void branch_indexed(warp *w, const group *g, const inst *i, uint32_t lanes) {
  const uint32_t *table = w->block->run->kernel->module->tables + i->target, *index = lanes_of(w, i->r[0]);
  for (uint32_t l = 0; l < SIM_LANES; l++) {
    if (!(lanes >> l & 1u)) continue;
    if (index[l] >= table[0]) {
      sim_stop(w, i, l, SIM_BAD_VALUE, index[l], "index %u of %u targets", index[l], table[0]);
      return;
    }
    group to = *g;
    to.lanes = 1u << l;
    to.pc = table[1 + index[l]];
    sim_group_add(w, to);
  }
}

/* Lanes end. Those of a warp whose others wait at an aligned barrier may not have done anything since but leave. */
static void end_lanes(warp *w, const inst *i, uint32_t lanes) {
  const inst *code = w->block->run->kernel->module->code;
  const uint32_t strayed = lanes & w->strayed;
  for (uint32_t k = 0; strayed && k < w->group_count; k++)
    if (w->groups[k].state == GROUP_AT_BARRIER) {
      sim_stop(w, i, (uint32_t)__builtin_ctz(strayed), SIM_DIVERGENT_BARRIER, w->groups[k].barrier,
               "lanes %08x of the warp wait at line %u of the PTX; lanes %08x went on without them and ended",
               w->groups[k].lanes, code[w->groups[k].pc].line, strayed);
      return;
    }
  w->alive &= ~lanes;
}

static void return_lanes(warp *w, const group *g, const inst *i, uint32_t lanes) {
  uint32_t ended = 0;
  for (uint32_t l = 0; l < SIM_LANES; l++) {
    uint32_t pc;
    if (!(lanes >> l & 1u)) continue;
    if (g->depth == 0 || !sim_return(w, l, &pc)) {
      ended |= 1u << l;
      continue;
    }
    group to = *g;
    to.depth--;
    to.lanes = 1u << l;
    to.pc = pc + 1;
    sim_group_add(w, to);
  }
  if (ended) end_lanes(w, i, ended);
}

/* The group is out of the list; what becomes of its lanes is put back. `lanes`: those whose guard is true. */
static void control(warp *w, group g, const inst *i, uint32_t lanes) {
  group rest = g;
  rest.lanes &= ~lanes;
  rest.pc++;
  sim_group_add(w, rest);
  if (!lanes) return;
  g.lanes = lanes;
  w->mask = lanes;
  switch ((inst_kind)i->kind) {
  case INST_BRANCH:
    g.pc = i->target;
    sim_group_add(w, g);
    return;
  case INST_BRANCH_INDEXED: branch_indexed(w, &g, i, lanes); return;
  case INST_CALL: sim_call(w, &g, i, lanes); return;
  case INST_RETURN: return_lanes(w, &g, i, lanes); return;
  case INST_EXIT: end_lanes(w, i, lanes); return;
  case INST_BARRIER: sim_barrier_arrive(w, &g, i, lanes); return;
  case INST_COLLECT: collect(w, &g, i, lanes); return;
  case INST_GRID_WAIT:
    w->block->worker->counters.grid_waits++;
    if (w->block->run->early)
      g.state = GROUP_AT_GRID_WAIT;
    else
      g.pc++;
    sim_group_add(w, g);
    return;
  case INST_TRAP: sim_stop(w, i, SIM_LANES, SIM_TRAP, 0, "the kernel executed trap"); return;
  case INST_NANOSLEEP:
    g.pc++;
    sim_group_add(w, g);
    return;
  case INST_RUN: return;
  }
}

static uint32_t guarded(const warp *w, const inst *i, uint32_t lanes) {
  if (i->guard == INST_NONE) return lanes;
  const uint32_t p = predicate_of(w, i->guard);
  return lanes & (i->guard_not ? ~p : p);
}

/* All lanes of the warp come to an instruction of all of them together: nobody waits. */
static bool together(const warp *w, const inst *i, uint32_t lanes) {
  if (i->kind != INST_COLLECT || w->group_count != 1 || i->guard != INST_NONE || i->loose) return false;
  if (i->needs_all) return lanes == SIM_ALL_LANES;
  const uint32_t *masks = lanes_of(w, i->r[i->operands - 1u]);
  uint32_t differ = 0;
  for (uint32_t l = 0; l < SIM_LANES; l++) differ |= masks[l] ^ SIM_ALL_LANES;
  return lanes == SIM_ALL_LANES && !differ;
}

/* Straight on until control changes, another group's instruction is reached, or `most` are done. */
static uint32_t straight(warp *w, group *g, uint32_t most) {
  const inst *code = w->block->run->kernel->module->code;
  const bool alone = w->group_count == 1 || w->groups[1].state != GROUP_RUNS || w->groups[1].depth != g->depth;
  const uint32_t limit = alone ? INST_NONE : w->groups[1].pc;
  const uint32_t lanes = g->lanes;
  uint32_t pc = g->pc, count = 0;
  do {
    const inst *i = &code[pc];
    if (i->plain) {
      w->mask = lanes;
      i->run(w, i);
      pc++;
    } else if (together(w, i, lanes)) {
      w->mask = lanes;
      i->run(w, i);
      pc++;
    } else if (i->kind != INST_RUN) {
      const bool whole = i->kind == INST_BRANCH && !i->loose;
      const uint32_t taken = whole ? guarded(w, i, lanes) : 0;
      if (!whole || (taken && taken != lanes)) break;
      if (taken && !alone) break;
      pc = taken ? i->target : pc + 1;
    } else {
      const uint32_t now = guarded(w, i, lanes);
      if (i->loose & LOOSE_GUARD && !sources_written(w, i, now, lanes)) break;
      if (now) run_lanes(w, i, now);
      pc++;
    }
    count++;
  } while (count < most && pc != limit && !w->block->stop);
  g->pc = pc;
  w->block->worker->counters.thread_instructions += (uint64_t)count * lane_count(lanes);
  return count;
}

static bool touches_memory(const inst *i) { return i->bytes && i->space != SPACE_PARAMETER && i->space != SPACE_CALL; }

/* One instruction of lanes that others of the warp wait for at a barrier. */
static uint32_t watched(warp *w, group *g) {
  const inst *i = &w->block->run->kernel->module->code[g->pc];
  const uint32_t lanes = w->passed_by & guarded(w, i, g->lanes);
  const uint32_t n = straight(w, g, 1);
  if (n && touches_memory(i)) w->strayed |= lanes;
  return n;
}

/* The first group has executed `count` instructions: it goes behind the others that can run, when these have waited for long enough. */
static void take_turns(warp *w, uint32_t count) {
  const bool others = w->group_count > 1 && w->groups[1].state == GROUP_RUNS;
  w->kept_waiting = others ? w->kept_waiting + count : 0;
  if (w->kept_waiting < TURN_INSTRUCTIONS) return;
  w->kept_waiting = 0;
  group g = take_first(w);
  g.turns = w->groups[0].turns + 1;
  sim_group_add(w, g);
}

uint32_t sim_warp_run(warp *w, uint32_t most) {
  const inst *code = w->block->run->kernel->module->code;
  uint32_t count = 0;
  while (count < most && w->group_count > 0 && w->groups[0].state == GROUP_RUNS && !w->block->stop) {
    group *first = &w->groups[0];
    const inst *i = &code[first->pc];
    if (i->kind == INST_RUN || i->kind == INST_BRANCH || i->kind == INST_COLLECT) {
      const uint32_t n = w->passed_by & first->lanes ? watched(w, first) : straight(w, first, most - count);
      count += n;
      if (n) {
        sim_group_add(w, take_first(w));
        take_turns(w, n);
        continue;
      }
    }
    if (i->loose && !sources_written(w, i, guarded(w, i, first->lanes), first->lanes)) return count;
    count++;
    w->block->worker->counters.thread_instructions += lane_count(first->lanes);
    const uint32_t lanes = guarded(w, i, first->lanes);
    const bool yields = i->kind == INST_NANOSLEEP;
    control(w, take_first(w), i, lanes);
    take_turns(w, 1);
    if (yields) return count;
  }
  return count;
}
