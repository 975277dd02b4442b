/* share.c - NVRTC names a register anew at each assignment, thousands in a kernel; those of one width whose spans of use have nothing in
   common get the same place, so that the registers of a warp stay in the nearest cache. Registers that are looked at for having been
   written (flow.c), and those of recursive functions, keep places of their own. */
#include "cuda/sim/flow.h"
#include <stdlib.h>
#include <string.h>

#define NOWHERE 0xffffffffu
enum { WIDTHS = 9 }; /* 0, 2, 4, 8 */

typedef struct reg { /* by its first slot */
  uint32_t from, to; /* the first and the last instruction at which it is of use */
  uint32_t place;    /* the first slot from now on */
  uint32_t next;     /* of its list */
  uint8_t width;
  bool used;
} reg;

typedef struct share {
  const flow *w;
  reg *regs;              /* [slots] */
  uint32_t *begun;        /* [instructions]: lists of registers whose span begins there */
  uint32_t *ended;        /* and ends */
  uint32_t *next_free;    /* [slots]: lists of places */
  uint32_t free_[WIDTHS]; /* their heads */
  uint32_t top;
} share;

static void put(uint64_t *set, uint32_t k) { set[k / 64] |= (uint64_t)1 << (k % 64); }
static void drop(uint64_t *set, uint32_t k) { set[k / 64] &= ~((uint64_t)1 << (k % 64)); }
static bool has(const uint64_t *set, uint32_t k) { return set[k / 64] >> (k % 64) & 1u; }

/* ---- what is of use where ---- */

/* Backwards over a block: `set` is of use behind it, then before it. */
static void backwards(const flow *w, uint32_t block, uint64_t *set) {
  uint32_t slot;
  for (uint32_t k = w->first[block + 1]; k-- > w->first[block];) {
    const inst *i = &w->m->code[w->f->begin + k];
    for (uint32_t o = 0; o < i->destinations && i->guard == INST_NONE; o++)
      if (flow_slot(w, i->r[o], &slot)) drop(set, slot);
    for (uint32_t o = i->destinations; o < i->operands; o++)
      if (flow_slot(w, i->r[o], &slot)) put(set, slot);
    if (flow_slot(w, i->guard, &slot)) put(set, slot);
  }
}

/* w->in holds what is of use at the start of each block by now. */
static void join(const flow *w, uint64_t *set, uint32_t to, bool *changed) {
  (void)changed;
  for (uint32_t k = 0; k < w->words; k++) set[k] |= w->in[(size_t)to * w->words + k];
}

static void behind(const flow *w, uint32_t block, uint64_t *set) {
  memset(set, 0, w->words * sizeof(*set));
  flow_successors(w, block, join, set, NULL);
}

static void solve(const flow *w, uint64_t *set) {
  const size_t bytes = w->words * sizeof(*set);
  memset(w->in, 0, w->blocks * bytes);
  for (bool changed = true; changed;) {
    changed = false;
    for (uint32_t b = w->blocks; b-- > 0;) {
      uint64_t *in = w->in + (size_t)b * w->words;
      behind(w, b, set);
      backwards(w, b, set);
      if (memcmp(in, set, bytes) == 0) continue;
      memcpy(in, set, bytes);
      changed = true;
    }
  }
}

/* ---- from where to where ---- */

static void extend(reg *r, uint32_t at) {
  if (!r->used || at < r->from) r->from = at;
  if (!r->used || at > r->to) r->to = at;
  r->used = true;
}

static void extend_set(share *s, const uint64_t *set, uint32_t at) {
  for (uint32_t k = 0; k < s->w->slots; k++)
    if (has(set, k)) extend(&s->regs[k], at);
}

static void find_spans(share *s, uint64_t *set) {
  const flow *w = s->w;
  uint32_t slot;
  for (uint32_t b = 0; b < w->blocks; b++) {
    extend_set(s, w->in + (size_t)b * w->words, w->first[b]);
    behind(w, b, set);
    extend_set(s, set, w->first[b + 1] - 1);
  }
  for (uint32_t k = 0; k < w->f->end - w->f->begin; k++) {
    const inst *i = &w->m->code[w->f->begin + k];
    if (flow_slot(w, i->guard, &slot)) extend(&s->regs[slot], k);
    for (uint32_t o = 0; o < i->operands; o++) {
      if (!flow_slot(w, i->r[o], &slot)) continue;
      extend(&s->regs[slot], k);
      s->regs[slot].width = i->width[o];
    }
  }
  for (uint32_t k = 0; k < w->slots; k++) {
    if (!s->regs[k].used || !has(w->loose, k)) continue;
    s->regs[k].from = 0;
    s->regs[k].to = w->f->end - w->f->begin - 1;
  }
}

/* ---- places ---- */

static void give_place(share *s, uint32_t slot) {
  reg *r = &s->regs[slot];
  uint32_t *list = &s->free_[r->width];
  if (*list != NOWHERE) {
    r->place = *list;
    *list = s->next_free[r->place];
  } else {
    r->place = s->top;
    s->top += r->width > 2 ? SIM_LANES * r->width / INST_REGISTER_BYTES : 1;
  }
  r->next = s->ended[r->to];
  s->ended[r->to] = slot;
}

static void take_back(share *s, uint32_t at) {
  for (uint32_t slot = s->ended[at]; slot != NOWHERE; slot = s->regs[slot].next) {
    const reg *r = &s->regs[slot];
    s->next_free[r->place] = s->free_[r->width];
    s->free_[r->width] = r->place;
  }
}

static void give_places(share *s) {
  const uint32_t count = s->w->f->end - s->w->f->begin;
  for (uint32_t k = s->w->slots; k-- > 0;) {
    reg *r = &s->regs[k];
    if (!r->used) continue;
    r->next = s->begun[r->from];
    s->begun[r->from] = k;
  }
  for (uint32_t at = 0; at < count; at++) {
    for (uint32_t slot = s->begun[at], next; slot != NOWHERE; slot = next) {
      next = s->regs[slot].next;
      give_place(s, slot);
    }
    take_back(s, at);
  }
}

static void move(const share *s, uint32_t *r) {
  uint32_t slot;
  if (flow_slot(s->w, *r, &slot)) *r = s->w->f->first_register + s->regs[slot].place * INST_REGISTER_BYTES;
}

static void move_all(const share *s) {
  for (uint32_t pc = s->w->f->begin; pc < s->w->f->end; pc++) {
    inst *i = &s->w->m->code[pc];
    move(s, &i->guard);
    for (uint32_t o = 0; o < i->operands; o++) move(s, &i->r[o]);
  }
}

bool flow_share(const flow *w, uint32_t *end_register) {
  const uint32_t count = w->f->end - w->f->begin;
  share s = {.w = w};
  if (w->f->recursive || !w->slots) return true;
  s.regs = calloc(w->slots, sizeof(*s.regs));
  s.next_free = malloc(w->slots * sizeof(*s.next_free));
  s.begun = malloc(count * sizeof(*s.begun));
  s.ended = malloc(count * sizeof(*s.ended));
  uint64_t *set = malloc(w->words * sizeof(*set));
  const bool ok = s.regs && s.next_free && s.begun && s.ended && set;
  if (ok) {
    memset(s.begun, 0xff, count * sizeof(*s.begun));
    memset(s.ended, 0xff, count * sizeof(*s.ended));
    memset(s.free_, 0xff, sizeof(s.free_));
    solve(w, set);
    find_spans(&s, set);
    give_places(&s);
    move_all(&s);
    *end_register = w->f->first_register + s.top * INST_REGISTER_BYTES;
  }
  free(s.regs);
  free(s.next_free);
  free(s.begun);
  free(s.ended);
  free(set);
  return ok;
}
