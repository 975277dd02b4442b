#include "compiler/cli/tokenizer.h"
#include "runtime/base/json_scan.h"
#include "runtime/package.h"
#include <stdlib.h>
#include <string.h>

static uint32_t vocab_of(const char *params) {
  json_scan s;
  json_scan_init(&s, params, strlen(params));
  for (json_event e = json_scan_next(&s); e.kind != JS_END && e.kind != JS_ERROR; e = json_scan_next(&s)) {
    if (e.kind != JS_KEY || !json_is(&s, e, "vocab")) continue;
    double v;
    e = json_scan_next(&s);
    if (e.kind == JS_NUMBER && json_double(&s, e, &v) && v >= 1 && v <= INT32_MAX) return (uint32_t)v;
  }
  return INT32_MAX;
}

static int of_package(cli *c, const char *path, tokenizer *out, uint32_t *out_vocab) {
  package p;
  taper_error error = {0};
  taper_allocator allocator = memory_allocator((taper_allocator){0});
  taper_status status = package_open(path, &allocator, NULL, NULL, &p, &error);
  if (status != TAPER_OK) return cli_fail_status(c, status, &error, false);
  status = package_open_tokenizer(&p, out, &error);
  *out_vocab = p.vocab;
  package_close(&p);
  return status == TAPER_OK ? CLI_OK : cli_fail_status(c, status, &error, false);
}

static int of_source(cli *c, const model_place *place, tokenizer *out, uint32_t *out_vocab) {
  model_loaded m = {0};
  taper_error error = {0};
  model_options options = c->model;
  options.ignore_weights = true;
  taper_status status = model_load(place, &options, c->sink, &m, &error);
  int bad = status == TAPER_OK ? CLI_OK : cli_fail_status(c, status, &error, false);
  if (!bad && strcmp(m.tokenizer, tokenizer_name(m.tokens.kind)) != 0)
    bad = cli_fail_file(c, CLI_WRONG, c->args[0],
                        "the tokenizer '%s' has no file; put " TOKENIZER_FILE " beside the source", m.tokenizer);
  if (!bad) {
    *out_vocab = vocab_of(m.params);
    *out = m.tokens;
    m.tokens = (tokenizer){0};
  }
  model_free(&m);
  return bad;
}

int cli_find_tokenizer(cli *c, tokenizer *out, uint32_t *out_vocab) {
  model_place place;
  taper_error error = {0};
  *out = (tokenizer){0};
  taper_status status = model_locate(c->args[0], &c->memory, c->sink, &place, &error);
  if (status != TAPER_OK) return cli_fail_status(c, status, &error, false);
  int bad = cli_check_package_options(c, &place);
  if (!bad)
    bad = place.kind == MODEL_PACKAGE ? of_package(c, place.source, out, out_vocab)
                                      : of_source(c, &place, out, out_vocab);
  if (bad) return bad;
  cli_say(c, "tokenizer %s", tokenizer_name(out->kind));
  if (out->kind != TOKENIZER_NONE) return CLI_OK;
  return cli_fail_file(c, CLI_WRONG, c->args[0], "the model has no tokenizer; give it one in its train section");
}

int cli_argument_text(cli *c, const char *what, const char *file, char **out, size_t *out_size) {
  bool argument = c->arg_count > 1;
  if (argument == (file != NULL))
    return cli_fail(c, CLI_USAGE, "%s of %s and --file was given; give exactly one",
                    argument ? "more than one" : "none", what);
  if (file) return cli_read_text(c, file, out, out_size);
  *out = strdup(c->args[1]);
  *out_size = strlen(c->args[1]);
  return *out ? CLI_OK : cli_fail(c, CLI_ENVIRONMENT, "no memory for the text; free some");
}
