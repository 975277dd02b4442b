/* fault.c - the first thing that is wrong: what, where, whose. */
#include "cuda/sim/exec.h"
#include <stdarg.h>
#include <stdio.h>

const char *sim_fault_name(sim_fault_kind kind) {
  static const char *const names[] = {"no fault",
#define X(kind, words) words,
                                      SIM_FAULTS(X)
#undef X
  };
  return names[kind];
}

void sim_fault_text(sim_fault *fault, const char *format, ...) {
  char more[240], place[300] = "";
  va_list list;
  va_start(list, format);
  vsnprintf(more, sizeof(more), format, list);
  va_end(list);
  if (fault->line) snprintf(place, sizeof(place), "%s:%u:%u: ", fault->source, fault->line, fault->column);
  snprintf(fault->text, sizeof(fault->text), "%.200serror: %s: %s; kernel %.60s", place, sim_fault_name(fault->kind),
           more, fault->kernel);
}

static void say_where(sim_fault *f, const sim_module *m, const inst *i) {
  f->ptx_line = i->line;
  if (!i->place) return;
  const source_place *p = &m->places[i->place - 1];
  f->line = p->line;
  f->column = p->column;
  const char *file = p->file < m->file_count && m->files[p->file] ? m->files[p->file] : m->name;
  snprintf(f->source, sizeof(f->source), "%s", file);
}

static void say_thread(sim_fault *f, const warp *w, uint32_t lane) {
  const uint32_t *size = w->block->run->launch.block, t = w->index * SIM_LANES + lane;
  f->thread[0] = t % size[0];
  f->thread[1] = t / size[0] % size[1];
  f->thread[2] = t / size[0] / size[1];
}

void sim_stop(warp *w, const inst *i, uint32_t lane, sim_fault_kind kind, uint64_t address, const char *format, ...) {
  block *b = w->block;
  if (b->stop) return;
  b->stop = b->faulted = true;
  sim_fault *f = &b->fault;
  *f = (sim_fault){.kind = kind, .address = address};
  const sim_kernel *k = b->run->kernel;
  snprintf(f->kernel, sizeof(f->kernel), "%s", k->code.name);
  memcpy(f->block, b->id, sizeof(b->id));
  if (i) say_where(f, k->module, i);
  say_thread(f, w, lane < SIM_LANES ? lane : w->mask ? (uint32_t)__builtin_ctz(w->mask) : 0);
  char more[200];
  va_list list;
  va_start(list, format);
  vsnprintf(more, sizeof(more), format, list);
  va_end(list);
  sim_fault_text(f, "%s (block %u,%u,%u thread %u,%u,%u, line %u of the PTX)", more, f->block[0], f->block[1],
                 f->block[2], f->thread[0], f->thread[1], f->thread[2], f->ptx_line);
}
