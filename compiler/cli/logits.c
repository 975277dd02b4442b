#include "compiler/cli/forward.h"
#include "compiler/cli/json.h"
#include <stdlib.h>
#include <string.h>

typedef struct logits_own {
  const char *tokens;
  bool layers;
} logits_own;

enum { KEY_TOKENS = 3000, KEY_LAYERS };

static const struct argp_option options[] = {
    {"tokens", KEY_TOKENS, "IDS", 0, "the ids, e.g. 5,17,99", 0},
    {"layers", KEY_LAYERS, NULL, 0, "also the residual stream before every block and before the final norm", 0},
    {0}};

static int option(cli *c, int key, const char *value) {
  logits_own *o = c->own;
  if (key == KEY_TOKENS) o->tokens = value;
  if (key == KEY_LAYERS) o->layers = true;
  return CLI_OK;
}

typedef struct logits_out {
  taper_model_info info;
  size_t count;
  float *logits, *layers; /* [count, vocab], [probes, count, width] */
  int64_t *tokens;
} logits_out;

static void on_logits(void *user, size_t position, const float *row) {
  logits_out *r = user;
  memcpy(r->logits + position * r->info.vocab, row, r->info.vocab * sizeof *row);
}

static void on_layer(void *user, uint32_t layer, size_t position, const float *row) {
  logits_out *r = user;
  memcpy(r->layers + ((size_t)layer * r->count + position) * r->info.width, row, r->info.width * sizeof *row);
}

static bool make_room(logits_out *r, bool layers, const cli_ids *ids) {
  r->logits = malloc(r->count * r->info.vocab * sizeof(float));
  r->tokens = malloc(r->count * sizeof *r->tokens);
  if (layers) r->layers = calloc((size_t)r->info.probes * r->count * r->info.width, sizeof(float));
  if (!r->logits || !r->tokens || (layers && !r->layers)) return false;
  for (size_t i = 0; i < r->count; i++) r->tokens[i] = ids->ids[i];
  return true;
}

static int write_out(cli *c, const logits_out *r, const build_opened *b) {
  size_t probes = r->layers ? r->info.probes : 0, n = 0;
  st_source *sources = ARENA_ARRAY(&c->memory, st_source, probes + 2);
  sources[n++] = (st_source){.name = "tokens", .dtype = ST_I64, .rank = 1, .shape = {r->count}, .data = r->tokens};
  sources[n++] =
      (st_source){.name = "logits", .dtype = ST_F32, .rank = 2, .shape = {r->count, r->info.vocab}, .data = r->logits};
  for (size_t i = 0; i < probes; i++)
    sources[n++] = (st_source){.name = arena_printf(&c->memory, "layers.%zu", i),
                               .dtype = ST_F32,
                               .rank = 2,
                               .shape = {r->count, r->info.width},
                               .data = r->layers + i * r->count * r->info.width};
  const st_pair metadata[] = {{"taper.model", b->model_hash},
                              {"taper.gates", b->gates},
                              {"taper.options", b->options},
                              {"taper.image", r->info.image},
                              {"taper.version", taper_version()}};
  taper_error error = {0};
  taper_status status = st_write(c->output, sources, n, metadata, sizeof metadata / sizeof *metadata, 1, &error);
  return status == TAPER_OK ? CLI_OK : cli_fail_status(c, status, &error, true);
}

static int compute(cli *c, const logits_own *o, const build_opened *b, taper_session *session, const cli_ids *ids,
                   logits_out *r) {
  if (o->layers && r->info.probes == 0)
    return cli_fail(c, CLI_WRONG, "%s: the model names no blocks, so it has no layer outputs; leave out --layers",
                    c->args[0]);
  r->count = ids->count;
  if (ids->count > taper_session_context(session))
    return cli_fail(c, CLI_WRONG, "option '--tokens': %zu ids do not fit the context of %u; give fewer", ids->count,
                    taper_session_context(session));
  if (!make_room(r, o->layers, ids))
    return cli_fail(c, CLI_ENVIRONMENT, "no memory for the logits of %zu positions; give fewer ids", r->count);
  float *buffer = forward_buffer(c, r->info.vocab);
  if (!buffer) return CLI_ENVIRONMENT;
  forward_sink sink = {r, on_logits, o->layers ? on_layer : NULL};
  int bad = forward_window(c, session, r->info.vocab, ids->ids, ids->count, buffer, &sink);
  free(buffer);
  return bad ? bad : write_out(c, r, b);
}

static void put_json(const cli *c, const logits_out *r) {
  json_out j = {0};
  json_open(&j, NULL, '{');
  json_string(&j, "file", c->output);
  json_whole(&j, "tokens", r->count);
  json_whole(&j, "vocab", r->info.vocab);
  json_whole(&j, "layers", r->layers ? r->info.probes : 0);
  json_close(&j, '}');
  text_puts(&j.t, "\n");
  cli_put(j.t.data, j.t.size);
  text_free(&j.t);
}

static int run(cli *c) {
  logits_own *o = c->own;
  if (!o->tokens) return cli_fail(c, CLI_USAGE, "'logits' needs ids; give --tokens 1,2,3");
  if (!c->output) return cli_fail(c, CLI_USAGE, "'logits' needs a file to write; give -o OUT.safetensors");
  build_opened b = {0};
  taper_session *session = NULL;
  cli_ids ids = {0};
  logits_out r = {.info = {.size = sizeof r.info}};
  cli_where where = {.option = "option '--tokens'"};
  c->model.need_weights = true;
  int bad = cli_parse_ids(c, where, o->tokens, strlen(o->tokens), &ids);
  if (!bad) bad = cli_open(c, 0, &b);
  if (!bad) taper_model_get_info(b.model, &r.info);
  if (!bad) bad = cli_check_ids(c, where, &ids, r.info.vocab);
  if (!bad) bad = cli_session(c, &b, "-c", 0, &session);
  if (!bad) bad = compute(c, o, &b, session, &ids, &r);
  if (!bad && c->json) put_json(c, &r);
  taper_session_free(session);
  cli_ids_free(&ids);
  build_close(&b);
  free(r.logits), free(r.layers), free(r.tokens);
  return bad;
}

const cli_command cli_cmd_logits = {
    .name = "logits",
    .args = "MODEL",
    .summary = "write the logits of a list of ids",
    .min_args = 1,
    .max_args = 1,
    .details = "The file is safetensors: \"tokens\" I64 [T], \"logits\" F32 [T, V], with --layers \"layers.<i>\" F32 "
               "[T, d]: 0 is what enters block 0, L what enters the final norm.",
    .acts = CLI_ACT_MODEL | CLI_ACT_WEIGHTS | CLI_ACT_BUILD | CLI_ACT_CC | CLI_ACT_THREADS | CLI_ACT_DEVICE |
            CLI_ACT_RUN | CLI_ACT_OUTPUT,
    .options = options,
    .own_size = sizeof(logits_own),
    .option = option,
    .run = run};
