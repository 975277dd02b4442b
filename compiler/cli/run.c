#include "compiler/cli/cli.h"
#include "compiler/cli/json.h"
#include "compiler/driver/words.h"
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

typedef struct run_own {
  const char *prompt, *file, *tokens;
  uint64_t count, context;
  taper_sampling sampling;
  bool seed_given, print_tokens;
  const char *filter; /* a sampling filter that was given */
  const char **stop;
  size_t stop_count;
} run_own;

enum {
  KEY_PROMPT = 3000,
  KEY_FILE,
  KEY_TOKENS,
  KEY_TEMP,
  KEY_TOP_K,
  KEY_TOP_P,
  KEY_MIN_P,
  KEY_PENALTY,
  KEY_SEED,
  KEY_STOP,
  KEY_CHAT,
  KEY_PRINT
};

static const struct argp_option options[] = {
    {"prompt", KEY_PROMPT, "TEXT", 0, "the text to continue", 0},
    {"file", KEY_FILE, "FILE", 0, "a file with the text to continue; - is standard input", 0},
    {"tokens", KEY_TOKENS, "IDS", 0, "the ids to continue, e.g. 1,2,3", 0},
    {NULL, 'n', "N", 0, "at most N tokens (default 128)", 0},
    {NULL, 'c', "CONTEXT", 0, "positions kept (default: the model's)", 0},
    {"temp", KEY_TEMP, "X", 0, "temperature (default 0.8); 0: always the largest logit", 0},
    {"top-k", KEY_TOP_K, "N", 0, "keep the N best (default 40); 0: off", 0},
    {"top-p", KEY_TOP_P, "X", 0, "keep the best up to this probability (default 0.95); 0: the best only, 1: off", 0},
    {"min-p", KEY_MIN_P, "X", 0, "drop what is less likely than X times the best (default 0.05); 0: off", 0},
    {"repeat-penalty", KEY_PENALTY, "X", 0, "divide the logits of the last 64 tokens (default 1: off)", 0},
    {"seed", KEY_SEED, "N", 0, "random numbers (default: drawn, and said)", 0},
    {"stop", KEY_STOP, "TEXT", 0, "end before this text; may be given again", 0},
    {"chat", KEY_CHAT, NULL, 0, "(not built yet)", 0},
    {"print-tokens", KEY_PRINT, NULL, 0, "print the generated ids, not the text", 0},
    {0}};

static void init(void *own) {
  run_own *o = own;
  o->count = 128;
  taper_sampling_init(&o->sampling);
}

static int set_real(cli *c, const char *option, const char *value, double low, double high, float *out) {
  double v = 0;
  int bad = cli_parse_real(c, option, value, low, high, &v);
  if (!bad) *out = (float)v;
  return bad;
}

static int set_stop(cli *c, run_own *o, const char *value) {
  if (!*value) return cli_fail(c, CLI_USAGE, "option '--stop': the text is empty; give at least one byte");
  cli_list_add(c, &o->stop, &o->stop_count, value);
  return CLI_OK;
}

static int option(cli *c, int key, const char *value) {
  run_own *o = c->own;
  taper_sampling *s = &o->sampling;
  uint64_t n = 0;
  int bad = CLI_OK;
  switch (key) {
  case KEY_PROMPT: o->prompt = value; break;
  case KEY_FILE: o->file = value; break;
  case KEY_TOKENS: o->tokens = value; break;
  case 'n': return cli_parse_count(c, "-n", value, 0, INT32_MAX, &o->count);
  case 'c': return cli_parse_count(c, "-c", value, 1, INT32_MAX, &o->context);
  case KEY_TEMP: return set_real(c, "--temp", value, 0, 1000, &s->temperature);
  case KEY_TOP_K:
    o->filter = "--top-k";
    bad = cli_parse_count(c, "--top-k", value, 0, INT32_MAX, &n);
    s->top_k = (uint32_t)n;
    return bad;
  case KEY_TOP_P: o->filter = "--top-p"; return set_real(c, "--top-p", value, 0, 1, &s->top_p);
  case KEY_MIN_P: o->filter = "--min-p"; return set_real(c, "--min-p", value, 0, 1, &s->min_p);
  case KEY_PENALTY: return set_real(c, "--repeat-penalty", value, 0.01, 100, &s->repeat_penalty);
  case KEY_SEED: o->seed_given = true; return cli_parse_count(c, "--seed", value, 0, UINT64_MAX, &s->seed);
  case KEY_STOP: return set_stop(c, o, value);
  case KEY_CHAT: return cli_not_built(c, "option '--chat'");
  case KEY_PRINT: o->print_tokens = true; break;
  default: break;
  }
  return CLI_OK;
}

static int check_options(cli *c, run_own *o) {
  int sources = (o->prompt != NULL) + (o->file != NULL) + (o->tokens != NULL);
  if (sources != 1)
    return cli_fail(c, CLI_USAGE, "%s of --prompt, --file and --tokens was given; give exactly one",
                    sources ? "more than one" : "none");
  if (o->sampling.temperature > 0) {
    if (o->seed_given) return CLI_OK;
    if (getrandom(&o->sampling.seed, sizeof o->sampling.seed, 0) != (ssize_t)sizeof o->sampling.seed)
      o->sampling.seed = (uint64_t)time(NULL);
    o->sampling.seed &= UINT32_MAX; /* short enough to type */
    return CLI_OK;
  }
  if (o->filter) cli_warn(c, "option '%s' acts on nothing at --temp 0, which takes the largest logit", o->filter);
  if (o->seed_given) cli_warn(c, "option '--seed' acts on nothing at --temp 0, which takes the largest logit");
  return CLI_OK;
}

static int read_prompt(cli *c, const run_own *o, const build_opened *b, cli_ids *out) {
  taper_model_info info = {.size = sizeof info};
  taper_model_get_info(b->model, &info);
  if (o->tokens) {
    cli_where where = {.option = "option '--tokens'"};
    int bad = cli_parse_ids(c, where, o->tokens, strlen(o->tokens), out);
    return bad ? bad : cli_check_ids(c, where, out, info.vocab);
  }
  char *data = NULL;
  size_t size = o->prompt ? strlen(o->prompt) : 0;
  int bad = o->file ? cli_read_text(c, o->file, &data, &size) : CLI_OK;
  if (bad) return bad;
  cli_where where = {.option = o->prompt ? "option '--prompt'" : "option '--file'"};
  bad = cli_tokenize(c, b->model, where, o->prompt ? o->prompt : data, size, out);
  free(data);
  if (!bad && out->count == 0)
    return cli_fail(c, CLI_WRONG, "%s: the text is empty; give at least one token", where.option);
  return bad ? bad : cli_check_ids(c, where, out, info.vocab);
}

typedef struct run_out {
  cli *c;
  bool ids_only, warned;
  const build_opened *b;
  const taper_session *session;
  const cli_ids *prompt;
  double limit; /* of the residual scale; 0: not watched */
  int32_t last; /* the id before the one that is told */
  size_t made;
  text text, ids; /* --json */
} run_out;

static int on_text(void *user, const char *s, size_t bytes) {
  run_out *r = user;
  if (!r->c->json) return !cli_put_now(s, bytes);
  text_put(&r->text, s, bytes);
  return 0;
}

/* Once: the token behind which the stream left its range. The session holds everything but the id that is told now. */
static void watch_scale(run_out *r) {
  uint32_t at = 0, held = taper_session_length(r->session, 0);
  double ratio = taper_session_scale_peak(r->session, 0, &at);
  if (r->warned || r->limit <= 0 || !(ratio > r->limit) || at >= held) return;
  int32_t id = at < r->prompt->count ? r->prompt->ids[at] : r->last;
  char piece[64], word[200];
  size_t n = 0, used = 0;
  if (taper_detokenize(r->b->model, &id, 1, piece, sizeof piece, &n, NULL) != TAPER_OK || n > sizeof piece) n = 0;
  for (size_t i = 0; i < n && used + 8 < sizeof word; i++) {
    unsigned char b = (unsigned char)piece[i];
    used += (size_t)text_format(word + used, sizeof word - used, b >= 32 && b < 127 ? "%c" : "\\x%02x", b);
  }
  cli_warn(r->c,
           "token %d%s%.*s%s at position %u drives the residual stream out of range (up to %.1f times its "
           "median, the limit is %.1f); what follows is not to be relied on: taperc scan --stress finds a --clamp-rows "
           "for it",
           id, n ? " ('" : "", (int)used, word, n ? "')" : "", at, ratio, r->limit);
  r->warned = true;
  cli_flush(r->c);
}

static int on_token(void *user, int32_t id) {
  run_out *r = user;
  watch_scale(r);
  r->last = id;
  char word[16];
  int n = text_format(word, sizeof word, "%s%d", r->made++ ? "," : "", id);
  if (r->c->json)
    text_put(&r->ids, word, (size_t)n);
  else if (r->ids_only)
    return !cli_put_now(word, (size_t)n);
  return 0;
}

static const char *finish_word(taper_finish f) {
  static const char *const words[] = {"length", "end", "stop", "context", "callback"};
  return words[f];
}

static void say_options(cli *c, const run_own *o, size_t prompt) {
  text t = {0};
  const taper_sampling *s = &o->sampling;
  text_puts(&t, "temp ");
  words_put_float(&t, s->temperature);
  text_printf(&t, ", top-k %u, top-p ", s->top_k);
  words_put_float(&t, s->top_p);
  text_puts(&t, ", min-p ");
  words_put_float(&t, s->min_p);
  text_puts(&t, ", repeat-penalty ");
  words_put_float(&t, s->repeat_penalty);
  cli_say(c, "%s, seed %llu, prompt of %zu tokens, at most %llu more", t.data ? t.data : "",
          (unsigned long long)s->seed, prompt, (unsigned long long)o->count);
  text_free(&t);
  if (s->temperature > 0 && !o->seed_given) cli_note(c, "seed %llu", (unsigned long long)s->seed);
}

static void put_json(cli *c, const run_own *o, run_out *r, taper_finish finish) {
  json_out j = {0};
  json_open(&j, NULL, '{');
  json_bytes(&j, "text", r->text.data ? r->text.data : "", r->text.size);
  text list = {0};
  text_printf(&list, "[%s]", r->ids.data ? r->ids.data : "");
  json_raw(&j, "tokens", list.data ? list.data : "[]");
  json_string(&j, "finish", finish_word(finish));
  if (o->sampling.temperature > 0) json_whole(&j, "seed", o->sampling.seed);
  json_close(&j, '}');
  text_puts(&j.t, "\n");
  cli_put(j.t.data, j.t.size);
  text_free(&j.t);
  text_free(&list);
  (void)c;
}

static int generate(cli *c, const run_own *o, const build_opened *b, taper_session *session, const cli_ids *prompt) {
  taper_model_info info = {.size = sizeof info};
  taper_model_get_info(b->model, &info);
  bool has_text = strcmp(info.tokenizer, "none") != 0;
  if (!has_text && !o->print_tokens && !c->json)
    return cli_fail(c, CLI_WRONG, "%s: the model has no tokenizer to make text of ids; add --print-tokens", c->args[0]);
  if (!has_text && o->stop_count)
    return cli_fail(c, CLI_WRONG, "%s: the model has no tokenizer, so --stop has no text to look at; leave it out",
                    c->args[0]);
  run_out r = {
      .c = c, .ids_only = o->print_tokens, .b = b, .session = session, .prompt = prompt, .limit = info.scale_limit};
  taper_generation g;
  taper_generation_init(&g);
  g.sampling = o->sampling;
  g.max_tokens = (size_t)o->count;
  g.stop = o->stop, g.stop_count = o->stop_count;
  g.on_text = has_text && (c->json || !o->print_tokens) ? on_text : NULL;
  g.on_token = on_token;
  g.user = &r;
  say_options(c, o, prompt->count);
  cli_flush(c);
  taper_finish finish = TAPER_FINISH_LENGTH;
  taper_error error = {0};
  taper_status status = taper_generate(session, 0, prompt->ids, prompt->count, &g, &finish, &error);
  bool line = o->print_tokens ? r.made || status == TAPER_OK : isatty(STDOUT_FILENO); /* a prompt follows the text */
  if (line && !c->json) cli_put("\n", 1);
  int code = status == TAPER_OK ? CLI_OK : cli_fail_status(c, status, &error, false);
  if (code == CLI_OK && c->json) put_json(c, o, &r, finish);
  if (code == CLI_OK && finish == TAPER_FINISH_CONTEXT)
    cli_note(c, "the context of %u positions is full: stopped after %zu tokens", taper_session_context(session),
             r.made);
  else if (code == CLI_OK)
    cli_say(c, "%zu tokens, ended by: %s", r.made, finish_word(finish));
  text_free(&r.text), text_free(&r.ids);
  return code;
}

static int run(cli *c) {
  run_own *o = c->own;
  build_opened b = {0};
  taper_session *session = NULL;
  cli_ids prompt = {0};
  c->model.need_weights = true;
  int bad = check_options(c, o);
  if (!bad) bad = cli_open(c, 0, &b);
  if (!bad) bad = read_prompt(c, o, &b, &prompt);
  if (!bad) bad = cli_session(c, &b, "-c", o->context, &session);
  if (!bad) bad = generate(c, o, &b, session, &prompt);
  taper_session_free(session);
  cli_ids_free(&prompt);
  build_close(&b);
  return bad;
}

const cli_command cli_cmd_run = {.name = "run",
                                 .args = "MODEL",
                                 .summary = "continue a text, streamed",
                                 .min_args = 1,
                                 .max_args = 1,
                                 .details =
                                     "Filters act in the order penalty, top-k, top-p, min-p, temperature. Standard "
                                     "output gets the generated text only, or with --print-tokens its ids.",
                                 .acts = CLI_ACT_MODEL | CLI_ACT_WEIGHTS | CLI_ACT_BUILD | CLI_ACT_CC |
                                         CLI_ACT_THREADS | CLI_ACT_DEVICE | CLI_ACT_RUN,
                                 .options = options,
                                 .own_size = sizeof(run_own),
                                 .init = init,
                                 .option = option,
                                 .run = run};
