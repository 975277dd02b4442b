/* frames.c - calls: arguments and results are copied between areas that each lane has; a function that may come to call itself has its
   registers and area kept meanwhile. */
#include "cuda/sim/exec.h"
#include <stdlib.h>

static const function *callee_of(const warp *w, const inst *i) {
  const sim_module *m = w->block->run->kernel->module;
  return &m->functions[m->calls[i->target].callee];
}

static call_frame *frame_of(const warp *w, uint32_t lane, uint32_t depth) {
  return &w->frames[(size_t)lane * SIM_MAX_DEPTH + depth];
}

static uint8_t *area_of(const warp *w, uint32_t lane) {
  return w->call_area + (size_t)lane * w->block->run->kernel->call_bytes;
}

typedef struct layout { /* of a register in the file */
  uint32_t at, width;
} layout;

/* Restores one lane of each register of the function from a copy of all lanes. */
static void restore_lane(const warp *w, const function *f, uint32_t lane, const uint8_t *saved) {
  const inst *code = w->block->run->kernel->module->code;
  for (uint32_t pc = f->begin; pc < f->end; pc++) {
    const inst *i = &code[pc];
    for (uint32_t o = 0; o < i->operands; o++) {
      const layout k = {i->r[o], i->width[o]};
      if (k.at & INST_CONSTANT || k.at < f->first_register || k.at >= f->end_register) continue;
      const uint8_t *from = saved + (k.at - f->first_register);
      uint8_t *to = w->base[0] + k.at;
      if (k.width) {
        memcpy(to + (size_t)lane * k.width, from + (size_t)lane * k.width, k.width);
      } else {
        uint32_t was, now;
        memcpy(&was, from, 4);
        memcpy(&now, to, 4);
        now = (now & ~(1u << lane)) | (was & 1u << lane);
        memcpy(to, &now, 4);
      }
    }
  }
}

static size_t saved_bytes(const function *f) {
  return (size_t)(f->end_register - f->first_register) + (f->end_call - f->first_call);
}

/* How far the local variables of an activation lie from those of the one before. */
static uint32_t frame_step(const warp *w) { return w->block->run->kernel->code.end_local; }

/* Keeps what a recursive function has, and moves its local variables on. */
static bool enter(warp *w, const inst *i, const function *f, uint32_t lane, call_frame *frame) {
  if (!f->recursive) return true;
  uint64_t *base = lanes_of(w, SPECIAL_WIDE(SPECIAL_FRAME));
  uint32_t *narrow = lanes_of(w, SPECIAL_NARROW(SPECIAL_FRAME));
  const uint32_t step = frame_step(w);
  if (base[lane] + 2 * (uint64_t)step > w->block->run->kernel->local_bytes) {
    sim_stop(w, i, lane, SIM_OUT_OF_BOUNDS, base[lane], "the stack of a recursive function is full");
    return false;
  }
  frame->saved = malloc(saved_bytes(f) + 1);
  if (!frame->saved) {
    sim_stop(w, i, lane, SIM_NO_MEMORY, 0, "for a call");
    return false;
  }
  memcpy(frame->saved, w->base[0] + f->first_register, f->end_register - f->first_register);
  memcpy(frame->saved + (f->end_register - f->first_register), area_of(w, lane) + f->first_call,
         f->end_call - f->first_call);
  base[lane] += step;
  narrow[lane] = (uint32_t)base[lane];
  return true;
}

void sim_call(warp *w, group *g, const inst *i, uint32_t lanes) {
  const sim_module *m = w->block->run->kernel->module;
  const call_site *c = &m->calls[i->target];
  const function *f = callee_of(w, i);
  for (uint32_t todo = lanes; todo; todo &= todo - 1) {
    const uint32_t l = (uint32_t)__builtin_ctz(todo);
    if (w->depth[l] == SIM_MAX_DEPTH) {
      sim_stop(w, i, l, SIM_OUT_OF_BOUNDS, 0, "%u calls in each other", SIM_MAX_DEPTH);
      return;
    }
    call_frame *frame = frame_of(w, l, w->depth[l]++);
    *frame = (call_frame){.return_to = g->pc};
    uint8_t *area = area_of(w, l), arguments[SIM_CALL_BYTES];
    uint32_t at = 0;
    for (uint32_t k = 0; k < c->in_count; at += c->in[k++].bytes)
      memcpy(arguments + at, area + c->in[k].from, c->in[k].bytes);
    if (!enter(w, i, f, l, frame)) return;
    at = 0;
    for (uint32_t k = 0; k < c->in_count; at += c->in[k++].bytes)
      memcpy(area + c->in[k].to, arguments + at, c->in[k].bytes);
  }
  group to = *g;
  to.lanes = lanes;
  to.depth++;
  to.pc = f->begin;
  sim_group_add(w, to);
}

bool sim_return(warp *w, uint32_t lane, uint32_t *out_pc) {
  if (w->depth[lane] == 0) return false;
  const sim_module *m = w->block->run->kernel->module;
  call_frame *frame = frame_of(w, lane, --w->depth[lane]);
  const inst *i = &m->code[frame->return_to];
  const call_site *c = &m->calls[i->target];
  const function *f = callee_of(w, i);
  uint8_t *area = area_of(w, lane), results[SIM_CALL_BYTES];
  uint32_t at = 0;
  for (uint32_t k = 0; k < c->back_count; at += c->back[k++].bytes)
    memcpy(results + at, area + c->back[k].from, c->back[k].bytes);
  if (frame->saved) {
    restore_lane(w, f, lane, frame->saved);
    memcpy(area + f->first_call, frame->saved + (f->end_register - f->first_register), f->end_call - f->first_call);
    free(frame->saved);
    frame->saved = NULL;
    uint64_t *base = lanes_of(w, SPECIAL_WIDE(SPECIAL_FRAME));
    uint32_t *narrow = lanes_of(w, SPECIAL_NARROW(SPECIAL_FRAME));
    base[lane] -= frame_step(w);
    narrow[lane] = (uint32_t)base[lane];
  }
  at = 0;
  for (uint32_t k = 0; k < c->back_count; at += c->back[k++].bytes)
    memcpy(area + c->back[k].to, results + at, c->back[k].bytes);
  *out_pc = frame->return_to;
  return true;
}
