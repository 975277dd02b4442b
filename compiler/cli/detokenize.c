#include "compiler/cli/json.h"
#include "compiler/cli/tokenizer.h"
#include <stdlib.h>
#include <string.h>

typedef struct detokenize_own {
  const char *file;
} detokenize_own;

enum { KEY_FILE = 3000 };

static const struct argp_option options[] = {{"file", KEY_FILE, "FILE", 0, "the ids of a file; - is standard input", 0},
                                             {0}};

static int option(cli *c, int key, const char *value) {
  detokenize_own *o = c->own;
  if (key == KEY_FILE) o->file = value;
  return CLI_OK;
}

static int put_text(cli *c, const tokenizer *t, const cli_ids *ids) {
  taper_error error = {0};
  text s = {0};
  size_t n = 0;
  taper_status status = tokenizer_decode(t, ids->ids, ids->count, NULL, 0, &n, &error);
  char *bytes = malloc(n + 1);
  if (!bytes) return cli_fail(c, CLI_ENVIRONMENT, "no memory for a text of %zu bytes; give fewer ids", n);
  if (status == TAPER_OK) status = tokenizer_decode(t, ids->ids, ids->count, bytes, n, &n, &error);
  if (status == TAPER_OK) text_put(&s, bytes, n);
  free(bytes);
  if (status != TAPER_OK) return cli_fail_status(c, status, &error, false);
  if (c->json) {
    json_out j = {0};
    json_open(&j, NULL, '{');
    json_bytes(&j, "text", s.data ? s.data : "", s.size);
    json_close(&j, '}');
    text_free(&s);
    s = j.t;
  }
  text_puts(&s, "\n");
  cli_put(s.data, s.size);
  text_free(&s);
  return CLI_OK;
}

static int run(cli *c) {
  detokenize_own *o = c->own;
  tokenizer t = {0};
  uint32_t vocab = 0;
  char *s = NULL;
  size_t n = 0;
  cli_ids ids = {0};
  cli_where where = o->file ? (cli_where){.file = strcmp(o->file, "-") == 0 ? "standard input" : o->file}
                            : (cli_where){.option = "IDS"};
  int bad = cli_argument_text(c, "IDS", o->file, &s, &n);
  if (!bad) bad = cli_find_tokenizer(c, &t, &vocab);
  if (!bad && strspn(s, " \t\r\n") == n)
    n = 0; /* no ids: an empty text */
  else if (!bad)
    bad = cli_parse_ids(c, where, s, n, &ids);
  if (!bad) bad = cli_check_ids(c, where, &ids, vocab);
  if (!bad) bad = put_text(c, &t, &ids);
  tokenizer_close(&t);
  cli_ids_free(&ids);
  free(s);
  return bad;
}

const cli_command cli_cmd_detokenize = {.name = "detokenize",
                                        .args = "MODEL [IDS]",
                                        .summary = "ids to text",
                                        .min_args = 1,
                                        .max_args = 2,
                                        .details = "Prints the raw bytes and one newline.",
                                        .acts = CLI_ACT_MODEL,
                                        .options = options,
                                        .own_size = sizeof(detokenize_own),
                                        .option = option,
                                        .run = run};
