/* pace.h - whether the next small batch is computed by all workers or by the caller alone, from the times that either
   has taken lately: an exchange costs more than it brings where a model is tiny, or where another process has the CPUs.
   The result is the same to the bit. A zeroed pace is valid. */
#ifndef TAPER_PACE_H
#define TAPER_PACE_H

#include <stdbool.h>
#include <stdint.h>

enum { PACE_KEPT = 9, PACE_TRIAL = 6, PACE_FIRST = 16, PACE_SELDOM = 4096 };

typedef struct pace {
  uint64_t kept[PACE_KEPT]; /* ns of the last runs in the way in use */
  uint64_t trial[PACE_TRIAL];
  uint32_t runs, trial_runs; /* since the last trial; of a trial in progress */
  uint32_t interval;         /* runs between trials of the other way: doubles while they fail; 0: PACE_FIRST */
  bool alone;                /* the way in use */
} pace;

/* The way to run next. */
bool pace_alone(const pace *p);
/* Tells what that run took. */
void pace_note(pace *p, uint64_t ns);

#endif
