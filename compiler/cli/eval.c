#include "compiler/cli/forward.h"
#include "compiler/cli/json.h"
#include "compiler/driver/runner.h"
#include "compiler/driver/words.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct eval_own {
  const char *data;
  uint64_t context;
} eval_own;

enum { KEY_DATA = 3000 };

static const struct argp_option options[] = {
    {"data", KEY_DATA, "FILE", 0,
     "text, or ids: NAME.ids (numbers), NAME.u16, NAME.u32 (little endian), NAME.bin (llm.c)", 0},
    {NULL, 'c', "CONTEXT", 0, "ids a window (default: the model's context)", 0},
    {0}};

static int option(cli *c, int key, const char *value) {
  eval_own *o = c->own;
  if (key == KEY_DATA) o->data = value;
  if (key == 'c') return cli_parse_count(c, "-c", value, 1, INT32_MAX, &o->context);
  return CLI_OK;
}

typedef struct window {
  const int32_t *targets;
  uint32_t vocab;
  double sum; /* of the window */
} window;

static void on_logits(void *user, size_t position, const float *row) {
  window *w = user;
  w->sum += runner_log_sum_exp(row, w->vocab) - (double)row[w->targets[position]];
}

typedef struct eval_result {
  size_t tokens, windows;
  uint64_t bytes; /* of text predicted; 0: the data is ids */
  double sum, median;
} eval_result;

/* Windows one after another, each alone: inputs ids[jT .. jT+T-1], targets one further; the last may be shorter. */
static int evaluate(cli *c, taper_session *session, uint32_t vocab, const corpus *data, eval_result *out) {
  size_t span = taper_session_context(session), all = (size_t)corpus_count(data, CORPUS_TRAIN) - 1;
  size_t count = (all + span - 1) / span;
  int32_t *ids = malloc((span + 1) * sizeof *ids);
  float *buffer = forward_buffer(c, vocab);
  double *means = malloc(count * sizeof *means);
  int bad = buffer && means && ids ? CLI_OK : CLI_ENVIRONMENT;
  if (!means || !ids) cli_fail(c, CLI_ENVIRONMENT, "no memory for the losses of %zu windows", count);
  for (size_t at = 0; !bad && at < all; at += span) {
    size_t n = all - at < span ? all - at : span;
    corpus_read(data, CORPUS_TRAIN, at, n + 1, ids);
    window w = {ids + 1, vocab, 0};
    forward_sink sink = {&w, on_logits, NULL};
    bad = forward_window(c, session, vocab, ids, n, buffer, &sink);
    if (bad) break;
    means[out->windows++] = w.sum / (double)n;
    out->sum += w.sum;
    out->tokens += n;
    cli_progress("eval", out->tokens, all);
  }
  if (!bad) out->median = lower_median_of(means, out->windows);
  free(buffer), free(means), free(ids);
  return bad;
}

/* Ids of the data that training never read, where the weights say so. */
static void say_unseen(cli *c, const build_opened *b, const corpus *data) {
  const st_tensor *seen = b->source.seen;
  if (!c->verbose || !seen) return;
  unsigned char *used = calloc(seen->elements ? seen->elements : 1, 1);
  text list = {0};
  size_t unseen = 0;
  int32_t ids[1024];
  for (uint64_t at = 0, all = corpus_count(data, CORPUS_TRAIN); used && at < all; at += 1024) {
    size_t n = all - at < 1024 ? (size_t)(all - at) : 1024;
    corpus_read(data, CORPUS_TRAIN, at, n, ids);
    for (size_t i = 0; i < n; i++)
      if ((uint64_t)ids[i] < seen->elements) used[ids[i]] = 1;
  }
  for (uint64_t v = 0; used && v < seen->elements; v++) {
    double times;
    if (!used[v]) continue;
    st_read_f64(seen, v, 1, &times);
    if (times == 0 && unseen++ < 50) text_printf(&list, "%s%llu", list.size ? "," : "", (unsigned long long)v);
  }
  if (unseen)
    cli_say(c, "%zu ids of the data were never trained: %s%s", unseen, list.data ? list.data : "",
            unseen > 50 ? ",..." : "");
  else
    cli_say(c, "every id of the data was read in training");
  text_free(&list);
  free(used);
}

static void put_result(const cli *c, const eval_result *r) {
  double ce = r->sum / (double)r->tokens, bits = r->bytes ? r->sum / log(2) / (double)r->bytes : 0;
  if (c->json) {
    json_out j = {0};
    json_open(&j, NULL, '{');
    json_whole(&j, "tokens", r->tokens);
    json_number(&j, "ce", ce);
    json_number(&j, "ppl", exp(ce));
    if (r->bytes)
      json_whole(&j, "bytes", r->bytes);
    else
      json_null(&j, "bytes");
    json_number(&j, "bits_per_byte", r->bytes ? bits : (double)NAN);
    json_number(&j, "median_window_ce", r->median);
    json_whole(&j, "windows", r->windows);
    json_close(&j, '}');
    text_puts(&j.t, "\n");
    cli_put(j.t.data, j.t.size);
    text_free(&j.t);
    return;
  }
  const struct {
    const char *name;
    double value;
  } rows[] = {{"ce", ce}, {"ppl", exp(ce)}, {"bits_per_byte", bits}, {"median_window_ce", r->median}};
  text t = {0};
  text_printf(&t, "tokens            %zu\n", r->tokens);
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    if (i == 2 && !r->bytes) continue;
    text_printf(&t, "%-17s ", rows[i].name);
    words_put_number(&t, rows[i].value);
    text_puts(&t, "\n");
  }
  cli_put(t.data, t.size);
  text_free(&t);
}

static int run(cli *c) {
  eval_own *o = c->own;
  if (!o->data) return cli_fail(c, CLI_USAGE, "'eval' needs data; give --data FILE");
  build_opened b = {0};
  taper_session *session = NULL;
  corpus *data = NULL;
  eval_result r = {0};
  taper_model_info info = {.size = sizeof info};
  c->model.need_weights = true;
  int bad = cli_open_with_data(c, 0, o->data, &b, &data);
  if (!bad) bad = cli_session(c, &b, "-c", o->context, &session);
  if (!bad) {
    r.bytes = corpus_text_bytes(data);
    taper_model_get_info(b.model, &info);
    say_unseen(c, &b, data);
    cli_say(c, "windows of %u ids, each alone; %llu ids are predicted", taper_session_context(session),
            (unsigned long long)corpus_count(data, CORPUS_TRAIN) - 1);
    cli_flush(c);
    bad = evaluate(c, session, info.vocab, data, &r);
  }
  if (!bad) put_result(c, &r);
  taper_session_free(session);
  corpus_close(data);
  build_close(&b);
  return bad;
}

const cli_command cli_cmd_eval = {.name = "eval",
                                  .args = "MODEL",
                                  .summary = "cross-entropy, perplexity and bits per byte on data",
                                  .min_args = 1,
                                  .max_args = 1,
                                  .details = "Windows of CONTEXT ids stand alone, one after another; every position "
                                             "counts, in the shorter last window too; nothing is put in front.",
                                  .acts = CLI_ACT_MODEL | CLI_ACT_WEIGHTS | CLI_ACT_BUILD | CLI_ACT_CC |
                                          CLI_ACT_THREADS | CLI_ACT_DEVICE | CLI_ACT_RUN,
                                  .options = options,
                                  .own_size = sizeof(eval_own),
                                  .option = option,
                                  .run = run};
