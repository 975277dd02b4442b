#include "runtime/recipe.h"
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define PI 3.14159265358979323846

void taper_recipe_init(taper_recipe *r) {
  *r = (taper_recipe){.size = sizeof(*r),
                      .steps = 1000,
                      .seed = 1,
                      .batch = 8,
                      .sequence = 128,
                      .accumulate = 1,
                      .lr = 3e-4,
                      .beta1 = 0.9,
                      .beta2 = 0.95,
                      .eps = 1e-8,
                      .clip = 1};
}

/* ---- the fields ---- */

typedef enum field_kind { FIELD_U64, FIELD_U32, FIELD_DOUBLE } field_kind;

/* Every number of a recipe: where it lies and between what bounds. An upper bound of 1 - 2^-53 is "below 1". */
#define BELOW_1 0.99999999999999988898
static const struct field {
  const char *name;
  field_kind kind;
  size_t at;
  double least, most;
} fields[] = {
#define FIELD(name, kind, least, most) {#name, FIELD_##kind, offsetof(taper_recipe, name), least, most},
    FIELD(steps, U64, 1, 9007199254740992.0)    //
    FIELD(seed, U64, 0, 18446744073709551615.0) //
    FIELD(batch, U32, 1, 1 << 20)               //
    FIELD(sequence, U32, 1, 1 << 30)            //
    FIELD(accumulate, U32, 1, 1 << 20)          //
    FIELD(lr, DOUBLE, 0, 1e30)                  //
    FIELD(beta1, DOUBLE, 0, BELOW_1)            //
    FIELD(beta2, DOUBLE, 0, BELOW_1)            //
    FIELD(eps, DOUBLE, 1e-30, 1e30)             //
    FIELD(weight_decay, DOUBLE, 0, 1e30)        //
    FIELD(clip, DOUBLE, 0, 1e30)                //
    FIELD(warmup, U64, 0, 9007199254740992.0)   //
    FIELD(floor, DOUBLE, 0, 1)                  //
#undef FIELD
};
enum { FIELDS = sizeof(fields) / sizeof(fields[0]) };

static const char *const schedule_words[] = {
    [TAPER_LR_COSINE] = "cosine", [TAPER_LR_LINEAR] = "linear", [TAPER_LR_CONSTANT] = "constant"};
static const char *const kind_words[] = {
    [TAPER_GATE_NEVER] = "never", [TAPER_GATE_RAMP] = "ramp", [TAPER_GATE_STEP] = "step"};
static const char *const calibration_words[] = {"least_squares", "inv_sigma"};

static uint64_t get_integer(const struct field *f, const taper_recipe *r) {
  const void *at = (const char *)r + f->at;
  return f->kind == FIELD_U32 ? *(const uint32_t *)at : *(const uint64_t *)at;
}

static double get_double(const struct field *f, const taper_recipe *r) {
  const void *at = (const char *)r + f->at;
  return f->kind == FIELD_DOUBLE ? *(const double *)at : (double)get_integer(f, r);
}

/* ---- checks ---- */

static taper_status check_gate(const taper_recipe *r, const taper_gate_schedule *g, taper_error *error) {
  unsigned long long steps = r->steps;
  if (!(g->ema > 0 && g->ema <= 1))
    return TAPER_FAIL(error, TAPER_INVALID, "gate '%.80s': ema must be over 0 and at most 1", g->gate);
  if (g->kind == TAPER_GATE_RAMP && g->start > g->end)
    return TAPER_FAIL(error, TAPER_INVALID, "gate '%.80s': it starts at step %llu, past its end at step %llu", g->gate,
                      (unsigned long long)g->start, (unsigned long long)g->end);
  if (g->kind == TAPER_GATE_RAMP && g->end > r->steps)
    return TAPER_FAIL(error, TAPER_INVALID, "gate '%.80s': it ends at step %llu, training at step %llu", g->gate,
                      (unsigned long long)g->end, steps);
  if (g->kind == TAPER_GATE_STEP && (g->start > r->steps || g->every > r->steps))
    return TAPER_FAIL(error, TAPER_INVALID,
                      "gate '%.80s': it steps after %llu, then every %llu; training has %llu steps", g->gate,
                      (unsigned long long)g->start, (unsigned long long)g->every, steps);
  return TAPER_OK;
}

static bool name_is_sound(const char *name) {
  size_t n = name ? strlen(name) : 0;
  if (n == 0 || n > 255) return false;
  for (size_t i = 0; i < n; i++)
    if ((unsigned char)name[i] <= ' ' || name[i] == 127) return false;
  return true;
}

taper_status recipe_check(const taper_recipe *r, taper_error *error) {
  for (size_t i = 0; i < FIELDS; i++) {
    double v = get_double(&fields[i], r);
    if (v >= fields[i].least && v <= fields[i].most) continue;
    return TAPER_FAIL(error, TAPER_INVALID, "'%s' is out of range; at least %.3g, at most %.3g", fields[i].name,
                      fields[i].least, fields[i].most);
  }
  if ((uint32_t)r->schedule > TAPER_LR_CONSTANT)
    return TAPER_FAIL(error, TAPER_INVALID, "'schedule' is %u; 0 to %u", (unsigned)r->schedule, TAPER_LR_CONSTANT);
  if (r->warmup > r->steps)
    return TAPER_FAIL(error, TAPER_INVALID, "the warm-up has %llu steps, training %llu; shorten it",
                      (unsigned long long)r->warmup, (unsigned long long)r->steps);
  if (r->gate_count > 65536 || (r->gate_count && !r->gates))
    return TAPER_FAIL(error, TAPER_INVALID, "%zu gates; at most 65536", r->gate_count);
  for (size_t i = 0; i < r->gate_count; i++) {
    const taper_gate_schedule *g = &r->gates[i];
    if (!name_is_sound(g->gate) || (uint32_t)g->kind > TAPER_GATE_STEP)
      return TAPER_FAIL(error, TAPER_INVALID, "gate %zu: its name is no word of 1 to 255 bytes, or its kind is unknown",
                        i);
    if (recipe_gate(r, g->gate) != g)
      return TAPER_FAIL(error, TAPER_INVALID, "gate '%.80s' has two schedules; leave one", g->gate);
    if (g->kind != TAPER_GATE_NEVER) TAPER_TRY(check_gate(r, g, error));
  }
  return TAPER_OK;
}

/* ---- text ---- */

static void put_gate(const taper_gate_schedule *g, text *out) {
  text_printf(out, "gate %s %s", g->gate, kind_words[g->kind]);
  if (g->kind == TAPER_GATE_NEVER) {
    text_puts(out, "\n");
    return;
  }
  text_printf(out, " start=%llu", (unsigned long long)g->start);
  text_printf(out, g->kind == TAPER_GATE_RAMP ? " end=%llu" : " every=%llu",
              (unsigned long long)(g->kind == TAPER_GATE_RAMP ? g->end : g->every));
  text_puts(out, " ema=");
  text_put_double(out, g->ema);
  text_printf(out, " calibration=%s\n", calibration_words[g->inv_sigma ? 1 : 0]);
}

void recipe_print(const taper_recipe *r, text *out) {
  text_puts(out, "recipe 1\n");
  for (size_t i = 0; i < FIELDS; i++) {
    text_printf(out, "%s ", fields[i].name);
    if (fields[i].kind == FIELD_DOUBLE)
      text_put_double(out, get_double(&fields[i], r));
    else
      text_printf(out, "%llu", (unsigned long long)get_integer(&fields[i], r));
    text_puts(out, "\n");
  }
  text_printf(out, "schedule %s\n", schedule_words[r->schedule]);
  for (size_t i = 0; i < r->gate_count; i++) put_gate(&r->gates[i], out);
}

typedef struct reader {
  unsigned line;
  char *at; /* what is left of the line, zero-terminated */
  taper_recipe *r;
  taper_gate_schedule *gates;
  uint32_t seen; /* bit per field; FIELDS: schedule */
  taper_error *error;
} reader;

static char *next_word(reader *p) {
  char *word = p->at, *end = strchr(word, ' ');
  p->at = end ? end + 1 : word + strlen(word);
  if (end) *end = 0;
  return word;
}

#define WRONG(p, ...) TAPER_FAIL((p)->error, TAPER_INVALID, __VA_ARGS__)

static taper_status find_word(reader *p, const char *what, const char *word, const char *const *words, size_t n,
                              size_t *out) {
  for (*out = 0; *out < n; ++*out)
    if (strcmp(words[*out], word) == 0) return TAPER_OK;
  return WRONG(p, "'%.40s' is no %s", word, what);
}

static taper_status read_attribute(reader *p, taper_gate_schedule *g, const char *key, char *word) {
  size_t n = strlen(key), choice = 0;
  if (strncmp(word, key, n) != 0 || word[n] != '=')
    return WRONG(p, "gate '%.80s': expected '%s=', found '%.40s'", g->gate, key, word);
  const char *value = word + n + 1;
  uint64_t *integer = strcmp(key, "start") == 0 ? &g->start : strcmp(key, "end") == 0 ? &g->end : &g->every;
  if (strcmp(key, "calibration") == 0) {
    TAPER_TRY(find_word(p, "calibration", value, calibration_words, 2, &choice));
    g->inv_sigma = choice == 1;
    return TAPER_OK;
  }
  bool read = strcmp(key, "ema") == 0 ? number_parse_double(value, strlen(value), &g->ema)
                                      : number_parse_u64(value, strlen(value), integer);
  return read ? TAPER_OK : WRONG(p, "gate '%.80s': '%.40s' is no number", g->gate, value);
}

static taper_status read_gate(reader *p) {
  taper_gate_schedule *g = &p->gates[p->r->gate_count++];
  size_t kind = 0;
  *g = (taper_gate_schedule){.gate = next_word(p)};
  TAPER_TRY(find_word(p, "kind of gate", next_word(p), kind_words, 3, &kind));
  g->kind = (taper_gate_kind)kind;
  if (g->kind == TAPER_GATE_NEVER) return TAPER_OK;
  const char *const keys[] = {"start", g->kind == TAPER_GATE_RAMP ? "end" : "every", "ema", "calibration"};
  for (size_t i = 0; i < 4; i++) TAPER_TRY(read_attribute(p, g, keys[i], next_word(p)));
  return TAPER_OK;
}

static taper_status read_field(reader *p, const struct field *f) {
  const char *value = next_word(p);
  void *at = (char *)p->r + f->at;
  uint64_t integer = 0;
  double number = 0;
  bool read = f->kind == FIELD_DOUBLE ? number_parse_double(value, strlen(value), &number)
                                      : number_parse_u64(value, strlen(value), &integer);
  if (!read || (f->kind == FIELD_U32 && integer > UINT32_MAX))
    return WRONG(p, "'%s': '%.40s' is no number that fits", f->name, value);
  if (f->kind == FIELD_DOUBLE)
    *(double *)at = number;
  else if (f->kind == FIELD_U32)
    *(uint32_t *)at = (uint32_t)integer;
  else
    *(uint64_t *)at = integer;
  return TAPER_OK;
}

static taper_status read_line(reader *p) {
  const char *key = next_word(p);
  size_t i = 0, choice = 0;
  if (p->line == 1) {
    if (strcmp(key, "recipe") != 0 || strcmp(p->at, "1") != 0) return WRONG(p, "expected 'recipe 1'");
    return TAPER_OK;
  }
  if (strcmp(key, "gate") == 0) {
    TAPER_TRY(read_gate(p));
    return *p->at ? WRONG(p, "'%.40s' stands behind the gate", p->at) : TAPER_OK;
  }
  while (i < FIELDS && strcmp(fields[i].name, key) != 0) i++;
  if (i == FIELDS && strcmp(key, "schedule") != 0) return WRONG(p, "'%.40s' is no key of a recipe", key);
  if (p->seen & 1u << i) return WRONG(p, "'%s' stands twice", key);
  p->seen |= 1u << i;
  if (i < FIELDS) {
    TAPER_TRY(read_field(p, &fields[i]));
  } else {
    TAPER_TRY(find_word(p, "schedule", next_word(p), schedule_words, 3, &choice));
    p->r->schedule = (taper_lr_schedule)choice;
  }
  return *p->at ? WRONG(p, "'%.40s' stands behind '%s'", p->at, key) : TAPER_OK;
}

static taper_status read_lines(reader *p, char *s, size_t bytes) {
  char *end = s + bytes;
  for (char *next; s < end; s = next) {
    char *stop = memchr(s, '\n', (size_t)(end - s));
    p->line++;
    if (!stop) return WRONG(p, "the line does not end; the text is cut off");
    *stop = 0;
    next = stop + 1;
    if (strlen(s) != (size_t)(stop - s)) return WRONG(p, "a NUL byte");
    p->at = s;
    TAPER_TRY(read_line(p));
  }
  p->line++;
  for (size_t i = 0; i <= FIELDS; i++)
    if (!(p->seen & 1u << i)) return WRONG(p, "'%s' is missing", i < FIELDS ? fields[i].name : "schedule");
  return TAPER_OK;
}

taper_status recipe_parse(const char *s, size_t bytes, const taper_allocator *a, taper_recipe *out, void **out_block,
                          taper_error *error) {
  *out_block = NULL;
  size_t lines = 1;
  for (size_t i = 0; i < bytes; i++) lines += s[i] == '\n';
  if (bytes > 16u << 20) return TAPER_FAIL(error, TAPER_INVALID, "a recipe of %zu bytes; at most 16 MiB", bytes);
  taper_recipe r = {.size = sizeof(r)};
  char *block = memory_zalloc(a, lines * sizeof(taper_gate_schedule) + bytes + 1, 1);
  if (!block) return memory_exhausted(error, "the recipe", bytes);
  char *copy = block + lines * sizeof(taper_gate_schedule);
  memcpy(copy, s, bytes);
  reader p = {.r = &r, .gates = (void *)block, .error = error};
  r.gates = p.gates;
  taper_status status = read_lines(&p, copy, bytes);
  if (status != TAPER_OK)
    taper_add_context(error, status, "recipe line %u", p.line);
  else if ((status = recipe_check(&r, error)) != TAPER_OK)
    taper_add_context(error, status, "recipe");
  if (status != TAPER_OK) return memory_free(a, block), status;
  *out = r, *out_block = block;
  return TAPER_OK;
}

taper_status recipe_copy(const taper_recipe *r, const taper_allocator *a, taper_recipe *out, void **out_block,
                         taper_error *error) {
  size_t bytes = r->gate_count * sizeof(taper_gate_schedule);
  for (size_t i = 0; i < r->gate_count; i++) bytes += strlen(r->gates[i].gate) + 1;
  char *block = memory_zalloc(a, bytes + 1, 1);
  if (!block) return memory_exhausted(error, "the recipe", bytes);
  taper_gate_schedule *gates = (void *)block;
  char *names = block + r->gate_count * sizeof(*gates);
  for (size_t i = 0; i < r->gate_count; i++) {
    size_t n = strlen(r->gates[i].gate) + 1;
    gates[i] = r->gates[i];
    gates[i].gate = memcpy(names, r->gates[i].gate, n);
    names += n;
  }
  *out = *r;
  out->gates = gates;
  *out_block = block;
  return TAPER_OK;
}

static bool same_gate(const taper_gate_schedule *a, const taper_gate_schedule *b) {
  if (strcmp(a->gate, b->gate) != 0 || a->kind != b->kind) return false;
  if (a->kind == TAPER_GATE_NEVER) return true;
  return a->start == b->start && a->ema == b->ema && !a->inv_sigma == !b->inv_sigma &&
         (a->kind == TAPER_GATE_RAMP ? a->end == b->end : a->every == b->every);
}

const char *recipe_difference(const taper_recipe *a, const taper_recipe *b, char *room, size_t cap) {
  for (size_t i = 0; i < FIELDS; i++) {
    const void *x = (const char *)a + fields[i].at, *y = (const char *)b + fields[i].at;
    if (memcmp(x, y, fields[i].kind == FIELD_U32 ? 4 : 8) != 0) return fields[i].name;
  }
  if (a->schedule != b->schedule) return "schedule";
  for (size_t i = 0; i < a->gate_count || i < b->gate_count; i++) {
    if (i < a->gate_count && i < b->gate_count && same_gate(&a->gates[i], &b->gates[i])) continue;
    text_format(room, cap, "gate '%.80s'", i < a->gate_count ? a->gates[i].gate : b->gates[i].gate);
    return room;
  }
  return NULL;
}

/* ---- what it says for a step ---- */

double recipe_lr(const taper_recipe *r, uint64_t k) {
  if (k <= r->warmup) return r->lr * (double)k / (double)r->warmup;
  double p = r->steps > r->warmup ? (double)(k - 1 - r->warmup) / (double)(r->steps - r->warmup) : 1;
  if (p > 1) p = 1;
  double f = r->schedule == TAPER_LR_COSINE ? (1 + cos(PI * p)) / 2 : r->schedule == TAPER_LR_LINEAR ? 1 - p : 1;
  return r->lr * (r->floor + (1 - r->floor) * f);
}

const taper_gate_schedule *recipe_gate(const taper_recipe *r, const char *gate) {
  for (size_t i = 0; i < r->gate_count; i++)
    if (strcmp(r->gates[i].gate, gate) == 0) return &r->gates[i];
  return NULL;
}

bool recipe_gate_moves(const taper_gate_schedule *g) { return g && g->kind != TAPER_GATE_NEVER; }

uint64_t recipe_gate_start(const taper_gate_schedule *g, uint32_t index) {
  return g->kind == TAPER_GATE_STEP ? g->start + (uint64_t)index * g->every : g->start;
}

double recipe_gate_value(const taper_gate_schedule *g, uint32_t index, uint64_t k) {
  uint64_t start = recipe_gate_start(g, index);
  if (k <= start) return 1;
  if (g->kind == TAPER_GATE_STEP || k >= g->end) return 0;
  double value = (1 + cos(PI * (double)(k - start) / (double)(g->end - start))) / 2;
  return value > 0x1p-126 ? value : 0x1p-126; /* exactly 0 from the end on, not before */
}
