/* Ids and texts: from options, files and standard input. */
#include "compiler/cli/cli.h"
#include "compiler/driver/id_list.h"
#include "runtime/base/file.h"
#include <stdlib.h>
#include <string.h>

enum { DATA_LIMIT = 1 << 30 };

void cli_ids_free(cli_ids *ids) {
  free(ids->ids);
  *ids = (cli_ids){0};
}

static int fail_at(cli *c, cli_where where, size_t at, int code, const char *message) {
  if (where.option) return cli_fail(c, code, "%s: %s", where.option, message);
  return cli_fail_file(c, CLI_WRONG, where.file, "byte %zu: %s", at, message);
}

static int no_memory(cli *c, size_t count) {
  return cli_fail(c, CLI_ENVIRONMENT, "no memory for %zu ids; give fewer", count);
}

typedef struct id_room {
  cli_ids *ids;
  size_t cap;
} id_room;

static int push_ids(void *user, const int32_t *ids, size_t n, size_t at) {
  id_room *r = user;
  (void)at;
  if (n > r->cap - r->ids->count) {
    size_t grown = (r->cap + n) * 2;
    int32_t *p = realloc(r->ids->ids, grown * sizeof *p);
    if (!p) return 1;
    r->ids->ids = p, r->cap = grown;
  }
  memcpy(r->ids->ids + r->ids->count, ids, n * sizeof *ids);
  r->ids->count += n;
  return 0;
}

int cli_parse_ids(cli *c, cli_where where, const char *s, size_t n, cli_ids *out) {
  id_list_error e;
  *out = (cli_ids){0};
  id_room room = {out, 0};
  if (id_list_parse(s, n, push_ids, &room, &e)) return CLI_OK;
  if (e.fault == ID_LIST_STOPPED) return no_memory(c, out->count);
  return fail_at(c, where, e.at, e.fault == ID_LIST_RANGE ? CLI_WRONG : CLI_USAGE, e.message);
}

int cli_check_ids(cli *c, cli_where where, const cli_ids *ids, uint32_t vocab) {
  for (size_t i = 0; i < ids->count; i++) {
    if (ids->ids[i] >= 0 && (uint32_t)ids->ids[i] < vocab) continue;
    const char *m =
        arena_printf(&c->memory, "id %d (number %zu of %zu) is outside the vocabulary of %u; give ids from 0 to %u",
                     ids->ids[i], i + 1, ids->count, vocab, vocab - 1);
    return where.option ? cli_fail(c, CLI_WRONG, "%s: %s", where.option, m)
                        : cli_fail_file(c, CLI_WRONG, where.file, "%s", m);
  }
  return CLI_OK;
}

int cli_read_text(cli *c, const char *path, char **out, size_t *out_size) {
  taper_error error = {0};
  taper_status status = file_read(path, DATA_LIMIT, out, out_size, &error);
  return status == TAPER_OK ? CLI_OK : cli_fail_status(c, status, &error, false);
}

int cli_tokenize(cli *c, const taper_model *model, cli_where where, const char *s, size_t n, cli_ids *out) {
  taper_error error = {0};
  size_t count = 0;
  taper_status status = taper_tokenize(model, s, n, NULL, 0, &count, &error);
  if (status == TAPER_OK) {
    out->ids = malloc(sizeof *out->ids * (count ? count : 1));
    if (!out->ids) return no_memory(c, count);
    status = taper_tokenize(model, s, n, out->ids, count, &out->count, &error);
  }
  if (status == TAPER_OK) return CLI_OK;
  return where.option ? cli_fail(c, CLI_WRONG, "%s: %s", where.option, error.message)
                      : cli_fail_file(c, CLI_WRONG, where.file, "%s", error.message);
}

static void on_progress(void *user, const char *file, uint64_t done, uint64_t all) {
  (void)user, (void)file;
  cli_progress("tokenize", done, all);
}

int cli_open_data(cli *c, const build_opened *b, const char *path, uint32_t least, corpus **out) {
  taper_model_info info = {.size = sizeof info};
  taper_model_get_info(b->model, &info);
  const corpus_options options = {.files = &path,
                                  .file_count = 1,
                                  .tokenizer = &b->tokenizer,
                                  .vocab = info.vocab,
                                  .window = least,
                                  .progress = on_progress};
  taper_error error = {0};
  taper_status status = corpus_open(&options, c->sink, out, &error);
  return status == TAPER_OK ? CLI_OK : cli_fail_status(c, status, &error, false);
}

int cli_read_data(cli *c, const build_opened *b, const char *path, cli_ids *out) {
  corpus *data = NULL;
  *out = (cli_ids){0};
  int bad = cli_open_data(c, b, path, 0, &data);
  if (bad) return bad;
  size_t n = (size_t)corpus_count(data, CORPUS_TRAIN);
  out->ids = malloc((n + 1) * sizeof *out->ids);
  out->count = n;
  if (out->ids)
    corpus_read(data, CORPUS_TRAIN, 0, n, out->ids);
  else
    bad = no_memory(c, n);
  if (!bad && n == 0) bad = cli_fail_file(c, CLI_WRONG, path, "its text becomes no id; give more text");
  corpus_close(data);
  return bad;
}

void cli_put_ids(text *out, const int32_t *ids, size_t n) {
  for (size_t i = 0; i < n; i++) text_printf(out, "%s%d", i ? "," : "", ids[i]);
}
