/* recipe.h - a training run's numbers: their text, their checks, and what they say for a step. docs/package-format.md */
#ifndef TAPER_RECIPE_H
#define TAPER_RECIPE_H

#include "runtime/base/text.h"
#include "runtime/memory.h"

/* One `KEY VALUE` a line, gates as `gate NAME KIND key=value...`; numbers read back as the same double. */
void recipe_print(const taper_recipe *r, text *out);
/* Reads what recipe_print writes: every key once, in any order; nothing else. Messages begin with "recipe line N". The
   result, checked by recipe_check, lives in one block of the allocator: *out_block, freed by memory_free. */
taper_status recipe_parse(const char *s, size_t bytes, const taper_allocator *a, taper_recipe *out, void **out_block,
                          taper_error *error);
/* A copy with strings of its own, in one block. */
taper_status recipe_copy(const taper_recipe *r, const taper_allocator *a, taper_recipe *out, void **out_block,
                         taper_error *error);
/* TAPER_INVALID naming the field and its bounds: counts at least 1, numbers finite and in range, warm-up and gates
   within the steps, no gate that starts past its end, no gate twice. */
taper_status recipe_check(const taper_recipe *r, taper_error *error);
/* The first field in which two recipes differ, e.g. "steps" or "gate 'internal'"; NULL: none. */
const char *recipe_difference(const taper_recipe *a, const taper_recipe *b, char *room, size_t cap);

/* Learning rate of step k in 1..steps (as PyTorch's LambdaLR with k - 1): lr k / warmup while k <= warmup; then lr times
   floor + (1 - floor) f(p), p = (k - 1 - warmup) / (steps - warmup), f = (1 + cos(pi p)) / 2, 1 - p or 1. */
double recipe_lr(const taper_recipe *r, uint64_t k);
/* The schedule of a gate array; NULL: none, it stays as it is. */
const taper_gate_schedule *recipe_gate(const taper_recipe *r, const char *gate);
/* Whether an element's value changes. */
bool recipe_gate_moves(const taper_gate_schedule *g);
/* The step after whose update element `index` starts to taper: its statistics end there. */
uint64_t recipe_gate_start(const taper_gate_schedule *g, uint32_t index);
/* Value of element `index` for step k (k from 1; steps + 1: after the last). tapernorm.md 3. */
double recipe_gate_value(const taper_gate_schedule *g, uint32_t index, uint64_t k);

#endif
