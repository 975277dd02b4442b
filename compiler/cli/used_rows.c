/* Data and the model that it is run through; with --clamp-rows the data may say which rows of the token table count. */
#include "compiler/cli/cli.h"

static void mark_ids(cli *c, const corpus *data, uint32_t vocab) {
  unsigned char *used = ARENA_ARRAY(&c->memory, unsigned char, vocab);
  int32_t ids[1024];
  size_t n = 0;
  uint64_t all = corpus_count(data, CORPUS_TRAIN) - 1; /* the last one is never looked up */
  for (uint64_t at = 0; at < all; at += 1024) {
    size_t span = all - at < 1024 ? (size_t)(all - at) : 1024;
    corpus_read(data, CORPUS_TRAIN, at, span, ids);
    for (size_t i = 0; i < span; i++) used[ids[i]] = 1;
  }
  for (uint32_t v = 0; v < vocab; v++) n += used[v];
  c->build.pass.used_rows = used, c->build.pass.used_count = vocab;
  cli_say(c, "the weights do not say which ids training read: the %zu of the data count as used", n);
}

int cli_open_with_data(cli *c, size_t at, const char *path, build_opened *out, corpus **out_data) {
  double k = c->build.pass.clamp_rows;
  taper_model_info info = {.size = sizeof info};
  c->build.pass.clamp_rows = 0; /* the tokenizer is a model's: one without the clamp is asked */
  int bad = cli_open(c, at, out);
  c->build.pass.clamp_rows = k;
  if (!bad) bad = cli_open_data(c, out, path, 1, out_data);
  if (bad || k <= 0) return bad;
  taper_model_get_info(out->model, &info);
  if (!out->source.seen) mark_ids(c, *out_data, info.vocab);
  cli_flush(c); /* places in messages live in the model */
  build_close(out);
  return cli_open(c, at, out);
}
