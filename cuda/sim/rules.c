/* rules.c - what the tables of rows leave open: since which target and version an instruction exists, which of its parts do not go
   together (rules.def), and which registers its types take. */
#include "cuda/sim/parse.h"
#include <string.h>

typedef struct rule {
  const char *when;
  uint32_t target, version;
  const char *why;
} rule;

#define L1_HINTS "L1::evict_normal|L1::evict_unchanged|L1::evict_first|L1::evict_last|L1::no_allocate"
#define L2_FETCH "L2::64B|L2::128B|L2::256B"
#define INTEGERS "b16|u16|s16|b32|u32|s32|b64|u64|s64"
#define NOT_UNSIGNED "b16|s16|b32|s32|b64|s64|f16|bf16|f32|f64"
static const rule rules[] = {
#define RULE(when, target, version, why) {when, target, version, why},
#include "cuda/sim/rules.def"
};

/* Is a part one of "a|b", which ends at a space? */
static bool one_of(const char *words, const char *part, uint32_t length) {
  for (;;) {
    const size_t n = strcspn(words, "| ");
    if (n == length && memcmp(words, part, n) == 0) return true;
    if (words[n] != '|') return false;
    words += n + 1;
  }
}

/* Does the condition hold? *out_part: the part that makes it so. */
static bool condition(const char *when, const parts *p, uint32_t *out_part) {
  const bool none = *when == '!', last = *when == '<', before_last = *when == '>';
  if (last || before_last) {
    const uint32_t k = p->count - (last ? 1u : 2u);
    if (p->count < (last ? 2u : 3u) || !one_of(when + 1, p->at[k], p->length[k])) return false;
    *out_part = k;
    return true;
  }
  for (uint32_t k = 1; k < p->count; k++) {
    if (!one_of(when + none, p->at[k], p->length[k])) continue;
    if (!none) *out_part = k;
    return !none;
  }
  return none;
}

bool rules_hold(const char *when, const parts *p, uint32_t *out_part) {
  *out_part = 0;
  if (*when != '*' && !one_of(when, p->at[0], p->length[0])) return false;
  for (when = strchr(when, ' '); when; when = strchr(when + 1, ' '))
    if (!condition(when + 1, p, out_part)) return false;
  return true;
}

taper_status rules_check(decoder *d, const token *t, const parts *p) {
  const sim_module *m = d->module;
  uint32_t k;
  for (size_t r = 0; r < sizeof(rules) / sizeof(rules[0]); r++) {
    const rule *at = &rules[r];
    if (at->target && m->target >= at->target && m->version >= at->version) continue;
    if (!rules_hold(at->when, p, &k)) continue;
    if (!at->target)
      return parse_fail(d, t, "'%.*s' in the instruction '%.*s' %s", (int)p->length[k], p->at[k], (int)t->length, t->at,
                        at->why);
    return parse_fail(
        d, t, "'%.*s' in the instruction '%.*s' needs .target sm_%u and .version %u.%u, here are sm_%u and %u.%u",
        (int)p->length[k], p->at[k], (int)t->length, t->at, at->target, at->version / 10, at->version % 10, m->target,
        m->version / 10, m->version % 10);
  }
  return TAPER_OK;
}
