/* Ids and texts: from options, files and standard input. */
#include "compiler/cli/cli.h"
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

static bool is_gap(char ch) { return ch == ' ' || ch == '\t' || ch == '\n' || ch == '\r'; }

static bool push_id(cli_ids *ids, size_t *cap, int32_t id) {
  if (ids->count == *cap) {
    size_t grown = *cap ? *cap * 2 : 64;
    int32_t *p = realloc(ids->ids, grown * sizeof *p);
    if (!p) return false;
    ids->ids = p, *cap = grown;
  }
  ids->ids[ids->count++] = id;
  return true;
}

/* One id of s[at..end). An integer that is no id is a wrong id; anything else does not parse. */
static int parse_id(cli *c, cli_where where, const char *s, size_t at, size_t end, int32_t *out) {
  const char *word = arena_strndup(&c->memory, s + at, end - at < 40 ? end - at : 40);
  size_t sign = *word == '-';
  if (!word[sign] || strspn(word + sign, "0123456789") != strlen(word + sign))
    return fail_at(c, where, at, CLI_USAGE,
                   arena_printf(&c->memory, "'%s' is not an id; give whole numbers separated by commas", word));
  int64_t v;
  if (!number_parse_i64(s + at, end - at, &v) || v < 0 || v > INT32_MAX)
    return fail_at(c, where, at, CLI_WRONG,
                   arena_printf(&c->memory, "the id %s is outside every vocabulary; give ids from 0 up", word));
  *out = (int32_t)v;
  return CLI_OK;
}

int cli_parse_ids(cli *c, cli_where where, const char *s, size_t n, cli_ids *out) {
  size_t cap = 0;
  *out = (cli_ids){0};
  bool comma = true; /* an id may, or must, follow */
  for (size_t i = 0; i < n;) {
    if (is_gap(s[i])) {
      i++;
      continue;
    }
    if (s[i] == ',') {
      if (comma) break; /* nothing between two commas */
      comma = true, i++;
      continue;
    }
    size_t end = i;
    while (end < n && !is_gap(s[end]) && s[end] != ',') end++;
    int32_t id = 0;
    int bad = parse_id(c, where, s, i, end, &id);
    if (bad) return bad;
    if (!push_id(out, &cap, id)) return no_memory(c, out->count);
    comma = false, i = end;
  }
  if (out->count == 0) return fail_at(c, where, 0, CLI_USAGE, "there is no id; give whole numbers separated by commas");
  if (comma)
    return fail_at(c, where, n, CLI_USAGE, "an id is missing beside a comma; give whole numbers separated by commas");
  return CLI_OK;
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

static bool has_end(const char *s, const char *end) {
  size_t n = strlen(s), m = strlen(end);
  return n > m && strcmp(s + n - m, end) == 0;
}

static int binary_ids(cli *c, const char *path, const unsigned char *s, size_t n, size_t width, cli_ids *out) {
  if (n % width)
    return cli_fail_file(c, CLI_WRONG, path,
                         "its %zu bytes are no whole number of %zu-byte ids; check how it was written", n, width);
  out->ids = malloc(sizeof *out->ids * (n / width ? n / width : 1));
  if (!out->ids) return no_memory(c, n / width);
  for (size_t i = 0; i < n; i += width) {
    uint32_t v = 0;
    for (size_t k = 0; k < width; k++) v |= (uint32_t)s[i + k] << (8 * k);
    out->ids[out->count++] = v > INT32_MAX ? -1 : (int32_t)v;
  }
  return CLI_OK;
}

int cli_read_data(cli *c, const char *path, const taper_model *model, cli_ids *out, bool *out_is_text) {
  char *data = NULL;
  size_t size = 0;
  *out = (cli_ids){0};
  *out_is_text = false;
  int bad = cli_read_text(c, path, &data, &size);
  if (bad) return bad;
  cli_where where = {.file = strcmp(path, "-") == 0 ? "standard input" : path};
  if (has_end(path, ".u16") || has_end(path, ".u32")) {
    bad = binary_ids(c, path, (unsigned char *)data, size, has_end(path, ".u16") ? 2 : 4, out);
  } else if (has_end(path, ".ids")) {
    bad = cli_parse_ids(c, where, data, size, out);
  } else {
    bad = cli_tokenize(c, model, where, data, size, out);
    *out_is_text = true;
  }
  free(data);
  taper_model_info info = {.size = sizeof info};
  taper_model_get_info(model, &info);
  if (!bad) bad = cli_check_ids(c, where, out, info.vocab);
  if (!bad)
    cli_say(c, "%s: %zu ids, %s", where.file, out->count,
            *out_is_text ? "text by the model's tokenizer" : "ids by the file's extension");
  return bad;
}

void cli_put_ids(text *out, const int32_t *ids, size_t n) {
  for (size_t i = 0; i < n; i++) text_printf(out, "%s%d", i ? "," : "", ids[i]);
}
