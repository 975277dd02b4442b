#include "compiler/cli/tokenizer.h"
#include <stdlib.h>

typedef struct tokenize_own {
  const char *file;
  bool special, parse_special;
} tokenize_own;

enum { KEY_FILE = 3000, KEY_SPECIAL, KEY_PARSE };

static const struct argp_option options[] = {
    {"file", KEY_FILE, "FILE", 0, "the text of a file; - is standard input", 0},
    {"special", KEY_SPECIAL, NULL, 0, "add what the model's tokenizer would add: its bos (bytes: nothing)", 0},
    {"parse-special", KEY_PARSE, NULL, 0, "special tokens in the text are tokens, not text (bytes: there are none)", 0},
    {0}};

static int option(cli *c, int key, const char *value) {
  tokenize_own *o = c->own;
  if (key == KEY_FILE) o->file = value;
  if (key == KEY_SPECIAL) o->special = true;
  if (key == KEY_PARSE) o->parse_special = true;
  return CLI_OK;
}

static int encode(cli *c, const tokenizer *t, unsigned flags, const char *s, size_t n, cli_ids *out) {
  taper_error error = {0};
  taper_status status = tokenizer_encode(t, s, n, flags, NULL, 0, &out->count, &error);
  if (status == TAPER_OK) {
    out->ids = malloc(sizeof *out->ids * (out->count + 1));
    if (!out->ids) return cli_fail(c, CLI_ENVIRONMENT, "no memory for %zu ids; give less text", out->count);
    status = tokenizer_encode(t, s, n, flags, out->ids, out->count, &out->count, &error);
  }
  return status == TAPER_OK ? CLI_OK : cli_fail_status(c, status, &error, false);
}

static void say_idle(cli *c, const tokenize_own *o, const tokenizer *t) {
  if (t->kind == TOKENIZER_BYTES && (o->special || o->parse_special))
    cli_say(c, "the byte tokenizer adds nothing and knows no special tokens");
  else if (o->special && tokenizer_bos(t) < 0)
    cli_say(c, "the tokenizer has no bos to put in front");
}

static int run(cli *c) {
  tokenize_own *o = c->own;
  tokenizer t = {0};
  uint32_t vocab = 0;
  char *s = NULL;
  size_t n = 0;
  cli_ids ids = {0};
  unsigned flags = (o->special ? TOKENIZER_SPECIAL : 0) | (o->parse_special ? TOKENIZER_PARSE_SPECIAL : 0);
  int bad = cli_argument_text(c, "TEXT", o->file, &s, &n);
  if (!bad) bad = cli_find_tokenizer(c, &t, &vocab);
  if (!bad) {
    say_idle(c, o, &t);
    bad = encode(c, &t, flags, s, n, &ids);
  }
  if (!bad) bad = cli_check_ids(c, (cli_where){.option = o->file ? "option '--file'" : "TEXT"}, &ids, vocab);
  if (!bad) {
    text out = {0};
    if (c->json) text_puts(&out, "{\"tokens\": [");
    cli_put_ids(&out, ids.ids, ids.count);
    text_puts(&out, c->json ? "]}\n" : "\n");
    cli_put(out.data, out.size);
    text_free(&out);
  }
  cli_ids_free(&ids);
  tokenizer_close(&t);
  free(s);
  return bad;
}

const cli_command cli_cmd_tokenize = {.name = "tokenize",
                                      .args = "MODEL [TEXT]",
                                      .summary = "text to ids",
                                      .min_args = 1,
                                      .max_args = 2,
                                      .details = "Prints the ids, comma-separated, in one line. Special tokens in the "
                                                 "text are plain text unless --parse-special says otherwise.",
                                      .acts = CLI_ACT_MODEL,
                                      .options = options,
                                      .own_size = sizeof(tokenize_own),
                                      .option = option,
                                      .run = run};
