/* train.c - the train section: each setting is read by a row of a table, each argument by a field. */
#include "compiler/front/front_priv.h"

#include <math.h>
#include <string.h>

typedef enum field_kind {
  FIELD_NUMBER,
  FIELD_SHARE,
  FIELD_STEPS,
  FIELD_INT,
  FIELD_PAIR,
  FIELD_WORD,
  FIELD_TEXT
} field_kind;

typedef struct field { /* one argument of a setting */
  const char *name;
  void *out; /* double, double, front_amount, int64_t, double[2], size_t (index into words), const char * */
  const char *const *words; /* WORD */
  double least, most;       /* NUMBER, SHARE, INT, PAIR; the bounds belong to the range unless `open` */
  field_kind kind;
  bool open_least, open_most;
} field;

typedef struct trainer {
  const front_ctx *c;
  front_env env;
  front_train *out;
  const ast_setting *steps_setting;
  bool any_sequence;       /* also one longer than the context */
  int64_t steps, sequence; /* of the command line, which win; 0: not given */
  double beta[2];
  ast_span *taper_spans; /* of each taper's gate name */
} trainer;

static void bad(trainer *t, ast_span span, const char *message) {
  front_error(t->c, DC_FRONT_SETTING, span, "%s", message);
}

static const char *quoted_list(const front_ctx *c, const char *const *words) {
  const char *all = "";
  for (size_t i = 0; words[i]; i++) all = arena_printf(c->memory, "%s%s%s", all, i ? ", " : "", words[i]);
  return all;
}

/* ---- values ---- */

/* A number or, where a share is meant, a percentage. */
static bool read_number(trainer *t, const ast_expr *x, const char *what, bool share, double *out, bool *out_percent) {
  *out_percent = x->kind == AST_PERCENT;
  if (!*out_percent) return front_eval_number(&t->env, x, what, out);
  *out = x->u.number.f;
  if (!share) bad(t, x->span, arena_printf(t->c->memory, "%s cannot be a percentage", what));
  return share;
}

static bool in_range(const field *f, double v) {
  return (f->open_least ? v > f->least : v >= f->least) && (f->open_most ? v < f->most : v <= f->most);
}

static bool read_in_range(trainer *t, const ast_expr *x, const field *f, double *out) {
  bool percent;
  if (!read_number(t, x, f->name, f->kind == FIELD_SHARE, out, &percent)) return false;
  if (in_range(f, *out)) return true;
  text m = {0};
  text_printf(&m, "%s must be %s ", f->name, f->open_least ? "above" : "at least");
  text_put_double(&m, f->least);
  if (f->most < 1e300) text_puts(&m, f->open_most ? " and below " : " and at most "), text_put_double(&m, f->most);
  bad(t, x->span, m.data ? m.data : "out of range");
  text_free(&m);
  return false;
}

static void read_steps(trainer *t, const ast_expr *x, const field *f) {
  front_amount *a = f->out;
  double v;
  if (!read_number(t, x, f->name, true, &v, &a->percent)) return;
  if (a->percent ? v < 0 || v > 1 : v < 0 || v != floor(v) || v > 0x1p53) {
    bad(t, x->span, arena_printf(t->c->memory, "%s must be a whole number of steps, or 0%% to 100%% of them", f->name));
    return;
  }
  a->given = true;
  a->value = v;
}

static void read_pair(trainer *t, const ast_expr *x, const field *f) {
  double *pair = f->out;
  if (x->kind != AST_TUPLE || x->u.tuple->count != 2) {
    bad(t, x->span, arena_printf(t->c->memory, "%s is a pair: (0.9, 0.95)", f->name));
    return;
  }
  if (read_in_range(t, x->u.tuple->first->value, f, &pair[0])) read_in_range(t, x->u.tuple->last->value, f, &pair[1]);
}

static void read_word(trainer *t, const ast_expr *x, const field *f) {
  const char *word = x->kind == AST_NAME ? x->u.name.id.text : "";
  suggestion s = suggest(word);
  for (size_t i = 0; f->words[i]; i++) {
    suggest_try(&s, f->words[i]);
    if (strcmp(f->words[i], word) == 0) {
      *(size_t *)f->out = i;
      return;
    }
  }
  bad(t, x->span,
      arena_printf(t->c->memory, "%s is one of: %s%s", f->name, quoted_list(t->c, f->words),
                   suggest_text(&s, t->c->memory)));
}

static void read_text(trainer *t, const ast_expr *x, const field *f) {
  if (x->kind == AST_STRING && x->u.string[0])
    *(const char **)f->out = x->u.string;
  else
    bad(t, x->span, arena_printf(t->c->memory, "%s is a text in quotes that is not empty", f->name));
}

static void read_field(trainer *t, const ast_expr *x, const field *f) {
  switch (f->kind) {
  case FIELD_NUMBER:
  case FIELD_SHARE: read_in_range(t, x, f, f->out); break;
  case FIELD_STEPS: read_steps(t, x, f); break;
  case FIELD_INT: front_eval_int(&t->env, x, f->name, (int64_t)f->least, (int64_t)f->most, f->out); break;
  case FIELD_PAIR: read_pair(t, x, f); break;
  case FIELD_WORD: read_word(t, x, f); break;
  case FIELD_TEXT: read_text(t, x, f); break;
  }
}

static void read_fields(trainer *t, const ast_expr *x, const field *fields, size_t n) {
  const ast_args *args = x->kind == AST_CALL ? x->u.call.args : NULL;
  bool *given = ARENA_ARRAY(t->c->memory, bool, n + 1);
  for (const ast_arg *a = args ? args->first : NULL; a; a = a->next) {
    const field *f = NULL;
    suggestion s = suggest(a->name.text ? a->name.text : "");
    for (size_t i = 0; i < n && a->name.text; i++) {
      suggest_try(&s, fields[i].name);
      if (strcmp(fields[i].name, a->name.text) == 0) f = &fields[i];
    }
    if (!a->name.text)
      bad(t, a->value->span, "arguments of a setting are named: name = value");
    else if (f && given[f - fields])
      front_error(t->c, DC_FRONT_DUPLICATE_ARGUMENT, a->name.span, "argument '%s' of '%s' is given twice", a->name.text,
                  x->u.call.id.text);
    else if (!f)
      front_error(t->c, DC_FRONT_UNKNOWN_ARGUMENT, a->name.span, "'%s' has no argument '%s'%s", x->u.call.id.text,
                  a->name.text, suggest_text(&s, t->c->memory));
    else
      given[f - fields] = true, read_field(t, a->value, f);
  }
}

/* The word of `bytes`, `sentencepiece(...)`, `none`: its place among `words`; -1: reported. */
static int read_choice(trainer *t, const ast_expr *x, const char *what, const char *const *words) {
  const char *word = x->kind == AST_NAME ? x->u.name.id.text : x->kind == AST_CALL ? x->u.call.id.text : "";
  suggestion s = suggest(word);
  for (int i = 0; words[i]; i++) {
    if (strcmp(words[i], word) == 0) return i;
    suggest_try(&s, words[i]);
  }
  if (s.best)
    bad(t, x->span, arena_printf(t->c->memory, "unknown %s '%s'%s", what, word, suggest_text(&s, t->c->memory)));
  else
    bad(t, x->span, arena_printf(t->c->memory, "the %s is one of: %s", what, quoted_list(t->c, words)));
  return -1;
}

/* ---- settings ---- */

static const ast_symbol *find_symbol(const trainer *t, ast_symbol_kind kind, const char *name) {
  for (const ast_symbol *s = t->c->model->symbols; s; s = s->next)
    if (s->kind == kind && strcmp(s->id.text, name) == 0) return s;
  return NULL;
}

static int64_t model_int(const trainer *t, const char *name) {
  const ast_symbol *s = find_symbol(t, SYM_MODEL_PARAM, name);
  return s && t->env.params[s->slot].kind == FV_INT ? t->env.params[s->slot].u.i : 0;
}

static void set_tokenizer(trainer *t, const ast_setting *s) {
  static const char *const words[] = {"bytes", "sentencepiece", "none", NULL};
  const field fields[] = {{"vocab", &t->out->tokenizer_vocab, NULL, 1, (double)FRONT_MAX_DIM, FIELD_INT, false, false},
                          {"model", &t->out->tokenizer_file, NULL, 0, 0, FIELD_TEXT, false, false}};
  int choice = read_choice(t, s->value, "tokenizer", words);
  if (choice < 0) return;
  t->out->tokenizer = words[choice];
  read_fields(t, s->value, fields, choice == 1 ? 2 : 0);
  int64_t vocab = model_int(t, "vocab");
  const char *wrong = NULL;
  if (choice == 0 && vocab && vocab < 256)
    wrong = arena_printf(t->c->memory, "bytes need a vocab of 256 or more; the model's is %lld", (long long)vocab);
  if (t->out->tokenizer_vocab && vocab && vocab != t->out->tokenizer_vocab)
    wrong = arena_printf(t->c->memory, "the tokenizer has %lld ids, the model %lld; write vocab = vocab",
                         (long long)t->out->tokenizer_vocab, (long long)vocab);
  if (!wrong) return;
  bad(t, s->value->span, wrong);
  front_note(t->c, find_symbol(t, SYM_MODEL_PARAM, "vocab")->id.span, "'vocab' is declared here");
}

static void set_optimizer(trainer *t, const ast_setting *s) {
  static const char *const words[] = {"adamw", NULL};
  const field fields[] = {{"lr", &t->out->lr, NULL, 0, 1e301, FIELD_NUMBER, true, false},
                          {"betas", t->beta, NULL, 0, 1, FIELD_PAIR, false, true},
                          {"eps", &t->out->eps, NULL, 0, 1e301, FIELD_NUMBER, true, false},
                          {"weight_decay", &t->out->weight_decay, NULL, 0, 1e301, FIELD_NUMBER, false, false},
                          {"clip", &t->out->clip, NULL, 0, 1e301, FIELD_NUMBER, false, false}};
  if (read_choice(t, s->value, "optimizer", words) >= 0)
    read_fields(t, s->value, fields, sizeof fields / sizeof fields[0]);
  t->out->beta1 = t->beta[0], t->out->beta2 = t->beta[1];
}

static void set_schedule(trainer *t, const ast_setting *s) {
  static const char *const words[] = {"cosine", "linear", "constant", NULL};
  static const front_schedule kinds[] = {SCHEDULE_COSINE, SCHEDULE_LINEAR, SCHEDULE_CONSTANT};
  const field fields[] = {{"warmup", &t->out->warmup, NULL, 0, 0, FIELD_STEPS, false, false},
                          {"floor", &t->out->floor, NULL, 0, 1, FIELD_SHARE, false, false}};
  int choice = read_choice(t, s->value, "schedule", words);
  if (choice < 0) return;
  t->out->schedule = kinds[choice];
  read_fields(t, s->value, fields, choice == 2 ? 1 : 2);
}

static void unknown_gate(trainer *t, ast_id id) {
  suggestion near = suggest(id.text);
  for (const ast_symbol *s = t->c->model->symbols; s; s = s->next)
    if (s->kind == SYM_GATE && front_suggests(t->c)) suggest_try(&near, s->id.text);
  front_error(t->c, DC_FRONT_UNKNOWN_GATE, id.span, "model '%s' has no gate '%s'%s", t->c->model->id.text, id.text,
              suggest_text(&near, t->c->memory));
  const ast_symbol *best = near.best ? find_symbol(t, SYM_GATE, near.best) : NULL;
  if (best) front_note(t->c, best->id.span, "'%s' is declared here", best->id.text);
}

static front_taper *add_taper(trainer *t, ast_id id) {
  front_train *o = t->out;
  for (size_t i = 0; i < o->taper_count; i++) {
    if (strcmp(o->tapers[i].gate, id.text) != 0) continue;
    front_error(t->c, DC_FRONT_DUPLICATE_SETTING, id.span, "a second taper of gate '%s'", id.text);
    front_note(t->c, t->taper_spans[i], "the first is here");
    return NULL;
  }
  t->taper_spans[o->taper_count] = id.span;
  front_taper *taper = &o->tapers[o->taper_count++];
  *taper = (front_taper){.gate = id.text, .kind = TAPER_RAMP, .ema = 0.01};
  return taper;
}

static void read_taper(trainer *t, const ast_setting *s, const ast_symbol *gate, front_taper *taper) {
  static const char *const calibrations[] = {"least_squares", "inv_sigma", NULL};
  size_t calibration = 0;
  const field fields[] = {{"start", &taper->start, NULL, 0, 0, FIELD_STEPS, false, false},
                          {"end", &taper->end, NULL, 0, 0, FIELD_STEPS, false, false},
                          {"step", &taper->step, NULL, 0, 0, FIELD_STEPS, false, false},
                          {"every", &taper->every, NULL, 0, 0, FIELD_STEPS, false, false},
                          {"ema", &taper->ema, NULL, 0, 1, FIELD_NUMBER, true, false},
                          {"calibration", &calibration, calibrations, 0, 0, FIELD_WORD, false, false}};
  read_fields(t, s->value, fields, sizeof fields / sizeof fields[0]);
  taper->inv_sigma = calibration == 1;
  if (taper->step.given) taper->kind = TAPER_STEP;
  if (taper->step.given && (taper->start.given || taper->end.given))
    bad(t, s->value->span, "a taper has either start and end, or step");
  if (taper->every.given && !taper->step.given) bad(t, s->value->span, "'every' goes with 'step'");
  if (taper->every.given && !gate->value)
    bad(t, s->value->span, arena_printf(t->c->memory, "'every' is for arrays of gates; '%s' is one gate", taper->gate));
}

static void set_taper(trainer *t, const ast_setting *s) {
  const ast_expr *x = s->value;
  if (x->kind != AST_CALL) {
    bad(t, x->span, "write taper GATE(start = 5%, end = 100%), taper GATE(step = N) or taper GATE(never)");
    return;
  }
  const ast_symbol *gate = find_symbol(t, SYM_GATE, x->u.call.id.text);
  if (!gate) {
    unknown_gate(t, x->u.call.id);
    return;
  }
  front_taper *taper = add_taper(t, x->u.call.id);
  if (!taper) return;
  const ast_arg *first = x->u.call.args->first;
  bool never = first && !first->next && !first->name.text && first->value->kind == AST_NAME &&
               strcmp(first->value->u.name.id.text, "never") == 0;
  if (never)
    taper->kind = TAPER_NEVER;
  else
    read_taper(t, s, gate, taper);
}

static void set_anchor(trainer *t, const ast_setting *s) {
  static const char *const words[] = {"fixed_target", "none", NULL};
  const field fields[] = {{"weight", &t->out->anchor_weight, NULL, 0, 1e301, FIELD_NUMBER, false, false}};
  int choice = read_choice(t, s->value, "anchor", words);
  if (choice < 0) return;
  t->out->anchor = choice == 0;
  read_fields(t, s->value, fields, choice == 0);
}

static void set_int(trainer *t, const ast_setting *s, int64_t least, int64_t most, int64_t *out) {
  front_eval_int(&t->env, s->value, s->id.text, least, most, out);
}
static void set_steps(trainer *t, const ast_setting *s) {
  t->steps_setting = s, set_int(t, s, 1, 1000000000000, &t->out->steps);
}
static void set_batch(trainer *t, const ast_setting *s) { set_int(t, s, 1, 1 << 20, &t->out->batch); }
static void set_accumulate(trainer *t, const ast_setting *s) { set_int(t, s, 1, 1 << 20, &t->out->accumulate); }
static void set_seed(trainer *t, const ast_setting *s) { set_int(t, s, 0, INT64_MAX, &t->out->seed); }

static void set_sequence(trainer *t, const ast_setting *s) {
  int64_t context = model_int(t, "context");
  set_int(t, s, 1, FRONT_MAX_DIM, &t->out->sequence);
  if (!context || t->any_sequence || t->out->sequence <= context) return;
  t->out->new_sequence = t->sequence;
  if (t->sequence) return;
  bad(t, s->value->span,
      arena_printf(t->c->memory,
                   "a sequence of %lld is longer than the context of %lld; write a smaller one, or `context`",
                   (long long)t->out->sequence, (long long)context));
  front_note(t->c, find_symbol(t, SYM_MODEL_PARAM, "context")->id.span, "'context' is declared here");
}

static const struct {
  const char *name;
  void (*set)(trainer *, const ast_setting *);
  bool many;
} settings[] = {{"tokenizer", set_tokenizer, false}, {"optimizer", set_optimizer, false},
                {"schedule", set_schedule, false},   {"taper", set_taper, true},
                {"anchor", set_anchor, false},       {"steps", set_steps, false},
                {"batch", set_batch, false},         {"sequence", set_sequence, false},
                {"seed", set_seed, false},           {"accumulate", set_accumulate, false}};
enum { SETTING_COUNT = sizeof settings / sizeof settings[0] };

static void read_setting(trainer *t, const ast_setting *s, const ast_setting *seen[SETTING_COUNT]) {
  suggestion near = suggest(s->id.text);
  for (size_t i = 0; i < SETTING_COUNT; i++) {
    suggest_try(&near, settings[i].name);
    if (strcmp(settings[i].name, s->id.text) != 0) continue;
    if (seen[i] && !settings[i].many) {
      front_error(t->c, DC_FRONT_DUPLICATE_SETTING, s->id.span, "'%s' is given twice", s->id.text);
      front_note(t->c, seen[i]->id.span, "the first one is here");
      return;
    }
    seen[i] = s;
    settings[i].set(t, s);
    return;
  }
  front_error(
      t->c, DC_FRONT_UNKNOWN_SETTING, s->id.span, "unknown setting '%s'%s", s->id.text,
      near.best
          ? suggest_text(&near, t->c->memory)
          : "; known are tokenizer, optimizer, schedule, taper, anchor, steps, batch, accumulate, sequence, seed");
}

/* ---- what must agree ---- */

/* The times do not fit the section's steps: no error where the command line has others. */
static bool other_steps(trainer *t) {
  t->out->new_steps = t->steps;
  return t->steps != 0;
}

/* In steps where the number of all steps is known or not needed; -1: unknown. */
static double in_steps(const trainer *t, front_amount a, bool *out_share) {
  *out_share = a.percent;
  if (!a.percent) return a.value;
  return t->out->steps ? floor(a.value * (double)t->out->steps) : -1;
}

static void check_within(trainer *t, front_amount a, ast_span span, const char *what) {
  if (!a.given || a.percent || !t->out->steps || a.value <= (double)t->out->steps || other_steps(t)) return;
  bad(t, span,
      arena_printf(t->c->memory, "%s is step %lld, after the last of %lld", what, (long long)a.value,
                   (long long)t->out->steps));
  if (t->steps_setting) front_note(t->c, t->steps_setting->id.span, "steps are set here");
}

static void check_taper(trainer *t, const front_taper *taper, ast_span span) {
  static const front_amount all = {true, true, 1};
  check_within(t, taper->start, span, "start");
  check_within(t, taper->end, span, "end");
  check_within(t, taper->step, span, "step");
  if (taper->kind != TAPER_RAMP) return;
  front_amount start = taper->start.given ? taper->start : t->out->warmup, end = taper->end.given ? taper->end : all;
  bool start_share, end_share;
  double from = in_steps(t, start, &start_share), to = in_steps(t, end, &end_share);
  if (start_share && end_share) from = start.value, to = end.value;
  if (from < 0 || to < 0 || from <= to || (start_share != end_share && other_steps(t))) return;
  bad(t, span, arena_printf(t->c->memory, "the taper of '%s' starts after its end", taper->gate));
}

/* A context set by -D for decoding says nothing about the sequences of a training. */
static bool short_by_option(const front_options *o) {
  bool defined = false;
  for (size_t i = 0; o && i < o->define_count; i++) defined |= strcmp(o->defines[i].name, "context") == 0;
  return defined && !o->train;
}

void front_check_train(const front_ctx *c, const front_options *options, const front_value *params, front_train *out) {
  trainer t = {.c = c,
               .any_sequence = short_by_option(options),
               .steps = options ? options->steps : 0,
               .sequence = options ? options->sequence : 0,
               .env = {.ctx = c, .params = params},
               .out = out,
               .beta = {0.9, 0.95}};
  const ast_setting *seen[SETTING_COUNT] = {0};
  *out = (front_train){.given = c->model->has_train,
                       .tokenizer = "none",
                       .lr = 3e-4,
                       .beta1 = 0.9,
                       .beta2 = 0.95,
                       .eps = 1e-8,
                       .clip = 1,
                       .anchor_weight = 0.1,
                       .accumulate = 1};
  out->tapers = ARENA_ARRAY(c->memory, front_taper, c->model->gate_count + 1);
  t.taper_spans = ARENA_ARRAY(c->memory, ast_span, c->model->gate_count + 1);
  for (const ast_setting *s = c->model->settings; s; s = s->next) read_setting(&t, s, seen);
  for (size_t i = 0; i < out->taper_count; i++) check_taper(&t, &out->tapers[i], t.taper_spans[i]);
  if (seen[2]) check_within(&t, out->warmup, seen[2]->value->span, "the end of the warm-up");
}
