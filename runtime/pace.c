#include "runtime/pace.h"

static uint32_t interval_of(const pace *p) { return p->interval ? p->interval : PACE_FIRST; }

static bool on_trial(const pace *p) { return p->runs >= interval_of(p); }

static uint64_t median(const uint64_t *v, uint32_t n) {
  uint64_t sorted[PACE_KEPT] = {0};
  for (uint32_t i = 0; i < n; i++) {
    uint32_t at = i;
    for (; at > 0 && sorted[at - 1] > v[i]; at--) sorted[at] = sorted[at - 1];
    sorted[at] = v[i];
  }
  return sorted[n / 2];
}

bool pace_alone(const pace *p) { return p->alone != on_trial(p); }

void pace_note(pace *p, uint64_t ns) {
  if (!on_trial(p)) {
    p->kept[p->runs++ % PACE_KEPT] = ns;
    return;
  }
  const uint64_t usual = median(p->kept, PACE_KEPT);
  p->trial[p->trial_runs++] = ns;
  const bool hopeless = p->trial_runs == 2 && p->trial[0] > usual + usual / 4 && ns > usual + usual / 4;
  if (!hopeless && p->trial_runs < PACE_TRIAL) return;
  /* the first run of a trial wakes workers or leaves them spinning: it does not count */
  if (!hopeless && median(p->trial + 1, PACE_TRIAL - 1) < usual - usual / 16) {
    p->alone = !p->alone;
    p->interval = PACE_FIRST;
  } else if (interval_of(p) < PACE_SELDOM) {
    p->interval = interval_of(p) * 2;
  }
  p->runs = p->trial_runs = 0;
}
