#include "runtime/sample.h"
#include "runtime/base/philox.h"
#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

void taper_sampling_init(taper_sampling *s) {
  *s = (taper_sampling){.size = sizeof(*s),
                        .temperature = 0.8f,
                        .top_k = 40,
                        .top_p = 0.95f,
                        .min_p = 0.05f,
                        .repeat_penalty = 1,
                        .repeat_last = 64};
}

static taper_status out_of_range(taper_error *error, const char *option, double value, const char *range) {
  /* no %g: its decimal point depends on the locale */
  long long thousandths = isfinite(value) && fabs(value) < 1e12 ? llround(value * 1000) : 0;
  if (!isfinite(value))
    return TAPER_FAIL(error, TAPER_INVALID, "sampling option '%s' is %s; it must be %s", option,
                      isnan(value) ? "NaN" : "infinite", range);
  return TAPER_FAIL(error, TAPER_INVALID, "sampling option '%s' is %s%lld.%03lld; it must be %s", option,
                    value < 0 ? "-" : "", llabs(thousandths) / 1000, llabs(thousandths) % 1000, range);
}

taper_status sample_check(const taper_sampling *s, taper_error *error) {
  if (s->size != sizeof(*s))
    return TAPER_FAIL(error, TAPER_INVALID, "taper_sampling has size %zu, not %zu; call taper_sampling_init first",
                      s->size, sizeof(*s));
  if (!(s->temperature >= 0) || isinf(s->temperature))
    return out_of_range(error, "temperature", (double)s->temperature, "0 or more, and finite");
  if (!(s->top_p >= 0 && s->top_p <= 1)) return out_of_range(error, "top_p", (double)s->top_p, "from 0 to 1");
  if (!(s->min_p >= 0 && s->min_p <= 1)) return out_of_range(error, "min_p", (double)s->min_p, "from 0 to 1");
  if (!(s->repeat_penalty > 0) || isinf(s->repeat_penalty))
    return out_of_range(error, "repeat_penalty", (double)s->repeat_penalty, "more than 0, and finite");
  return TAPER_OK;
}

/* Order of candidates: larger value first, then lower id. */
static bool better(const float *v, uint32_t a, uint32_t b) { return v[a] > v[b] || (a < b && v[a] == v[b]); }

/* A heap whose root is the best id, or with `worst` the worst one. */
static bool above(const float *v, uint32_t a, uint32_t b, bool worst) {
  return worst ? better(v, b, a) : better(v, a, b);
}

static void sift(const float *v, uint32_t *heap, uint32_t n, uint32_t at, bool worst) {
  uint32_t id = heap[at];
  for (uint64_t child; (child = 2 * (uint64_t)at + 1) < n; at = (uint32_t)child) {
    if (child + 1 < n && above(v, heap[child + 1], heap[child], worst)) child++;
    if (!above(v, heap[child], id, worst)) break;
    heap[at] = heap[child];
  }
  heap[at] = id;
}

static void make_heap(const float *v, uint32_t *heap, uint32_t n, bool worst) {
  for (uint32_t i = n / 2; i-- > 0;) sift(v, heap, n, i, worst);
}

/* Copies the logits and applies the penalty; a value stays finite where its logit was. */
static taper_status penalise(const taper_sampling *s, const float *logits, uint32_t vocab, const int32_t *history,
                             size_t n, float *values, taper_error *error) {
  bool some = false;
  for (uint32_t i = 0; i < vocab; i++) {
    if (isnan(logits[i]) || logits[i] == INFINITY)
      return TAPER_FAIL(error, TAPER_NUMERIC, "position %zu: the logit of id %u is %s; check the weights", n, i,
                        isnan(logits[i]) ? "NaN" : "infinite");
    some = some || logits[i] != -INFINITY;
    values[i] = logits[i];
  }
  if (!some)
    return TAPER_FAIL(error, TAPER_NUMERIC, "position %zu: every logit is minus infinity; leave one id possible", n);
  if (s->repeat_penalty == 1 || s->repeat_last == 0) return TAPER_OK;
  for (size_t i = n > s->repeat_last ? n - s->repeat_last : 0; i < n; i++) {
    if (history[i] < 0 || (uint32_t)history[i] >= vocab)
      return TAPER_FAIL(error, TAPER_INVALID, "history: token %zu is %d; ids are 0 to %u", i, history[i], vocab - 1);
    float logit = logits[history[i]];
    if (logit == -INFINITY) continue;
    float value = logit > 0 ? logit / s->repeat_penalty : logit * s->repeat_penalty;
    values[history[i]] = value > FLT_MAX ? FLT_MAX : value < -FLT_MAX ? -FLT_MAX : value;
  }
  return TAPER_OK;
}

/* ids[0..result): the k best ids, in no order. */
static uint32_t keep_top_k(const float *v, uint32_t vocab, uint32_t k, uint32_t *ids) {
  uint32_t n = 0;
  const bool all = k == 0 || k >= vocab;
  for (uint32_t id = 0; id < vocab; id++) {
    if (v[id] == -INFINITY) continue;
    if (all || n < k) {
      ids[n++] = id;
      if (!all && n == k) make_heap(v, ids, n, true);
    } else if (better(v, id, ids[0])) {
      ids[0] = id;
      sift(v, ids, n, 0, true);
    }
  }
  return n;
}

/* Top-p and min-p both keep the first of the ids in order of probability, so what min-p drops need not be ordered. Cuts
 * ids[0..n). */
static uint32_t keep_probable(const taper_sampling *s, const float *v, uint32_t best, uint32_t *ids, uint32_t n) {
  double total = 0;
  uint32_t kept = 0;
  for (uint32_t i = 0; i < n; i++) {
    double p = exp((double)v[ids[i]] - (double)v[best]);
    total += p;
    if (p >= (double)s->min_p) ids[kept++] = ids[i];
  }
  if (s->top_p >= 1) return kept;
  make_heap(v, ids, kept, false);
  double sum = 0;
  uint32_t end = kept; /* the best ones move to ids[end..kept) */
  while (end > 0) {
    uint32_t id = ids[0];
    ids[0] = ids[--end];
    sift(v, ids, end, 0, false);
    ids[end] = id;
    sum += exp((double)v[id] - (double)v[best]);
    if (sum >= (double)s->top_p * total) break;
  }
  for (uint32_t i = end; i < kept; i++) ids[i - end] = ids[i];
  return kept - end;
}

taper_status sample_pick(const taper_sampling *s, const float *logits, uint32_t vocab, const int32_t *history, size_t n,
                         uint32_t sequence, const sample_room *room, int32_t *out_id, taper_error *error) {
  float *v = room->values;
  TAPER_TRY(penalise(s, logits, vocab, history, n, v, error));
  uint32_t best = 0;
  for (uint32_t i = 1; i < vocab; i++) best = v[i] > v[best] ? i : best;
  *out_id = (int32_t)best;
  if (s->temperature == 0) return TAPER_OK;
  uint32_t kept = keep_probable(s, v, best, room->ids, keep_top_k(v, vocab, s->top_k, room->ids));
  double highest = -INFINITY;
  for (uint32_t i = 0; i < kept; i++) {
    uint32_t id = room->ids[i], bits[4];
    philox4x32(s->seed, PHILOX_SAMPLE, sequence, (uint32_t)n, id, bits);
    double score = ((double)v[id] - (double)v[best]) / (double)s->temperature - log(-log(philox_uniform(bits[0])));
    if (score < highest || (score == highest && id > (uint32_t)*out_id)) continue;
    highest = score;
    *out_id = (int32_t)id;
  }
  return TAPER_OK;
}

taper_status taper_sample(const taper_sampling *s, const float *logits, uint32_t vocab, const int32_t *history,
                          size_t n, uint32_t sequence, int32_t *out_id, taper_error *error) {
  enum { ON_STACK = 1024 };
  float values[ON_STACK];
  uint32_t ids[ON_STACK];
  if (!s || !logits || !out_id || (n > 0 && !history))
    return TAPER_FAIL(error, TAPER_INVALID,
                      "taper_sample: an argument is NULL; give options, logits, their history and a place for the id");
  if (vocab == 0 || vocab > INT32_MAX)
    return TAPER_FAIL(error, TAPER_INVALID, "taper_sample: a vocabulary of %u ids; give 1 to 2147483647", vocab);
  TAPER_TRY(sample_check(s, error));
  sample_room room = {values, ids};
  if (vocab > ON_STACK) {
    room.values = malloc((sizeof(float) + sizeof(uint32_t)) * (size_t)vocab);
    if (!room.values) return TAPER_FAIL(error, TAPER_NOMEM, "no memory to sample from %u ids; free some", vocab);
    room.ids = (uint32_t *)(void *)(room.values + vocab);
  }
  int32_t id = 0;
  taper_status status = sample_pick(s, logits, vocab, history, n, sequence, &room, &id, error);
  if (room.values != values) free(room.values);
  if (status == TAPER_OK) *out_id = id;
  return status;
}
