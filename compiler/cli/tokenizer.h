/* tokenizer.h - the tokenizer of a MODEL without computing anything: no weights are read, no code of a package runs. */
#ifndef TAPERC_CLI_TOKENIZER_H
#define TAPERC_CLI_TOKENIZER_H

#include "compiler/cli/cli.h"
#include "runtime/text/tokenizer.h"

/* Of c->args[0], to be closed; a model without a tokenizer is an error. */
int cli_find_tokenizer(cli *c, tokenizer *out, uint32_t *out_vocab);
/* The text that a command works on: the argument c->args[1], or `file`. Exactly one must be given. `what`: "TEXT" or
 * "IDS". */
int cli_argument_text(cli *c, const char *what, const char *file, char **out, size_t *out_size);

#endif
