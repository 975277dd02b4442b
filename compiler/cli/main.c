/* taperc: finds the subcommand, hands it its options, and turns what happened into an exit code. */
#include "compiler/cli/cli.h"
#include "compiler/driver/words.h"
#include "runtime/base/leftover.h"
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COMMAND(name) extern const cli_command cli_cmd_##name;
#define LATER(name, summary)
#include "compiler/cli/commands.def"
#undef COMMAND
#undef LATER

typedef struct command_entry {
  const char *name, *summary;
  const cli_command *command; /* NULL: not built yet */
} command_entry;

static const command_entry commands[] = {
#define COMMAND(name) {#name, NULL, &cli_cmd_##name},
#define LATER(name, summary) {#name, summary, NULL},
#include "compiler/cli/commands.def"
#undef COMMAND
#undef LATER
};
enum { COMMAND_COUNT = sizeof commands / sizeof *commands };

static void print_usage(FILE *to) {
  fputs("usage: taperc COMMAND [OPTION...] ...\n\ntaperc compiles a transformer language model, described by a .tmodel "
        "file and its weights, to code made for that "
        "one model;\nnormalisation layers that were tapered away are folded into their neighbours.\n\n",
        to);
  for (size_t i = 0; i < COMMAND_COUNT; i++) {
    const command_entry *e = &commands[i];
    fprintf(to, "  %-11s %s%s\n", e->name, e->command ? e->command->summary : e->summary,
            e->command ? "" : " (not built yet)");
  }
  fputs("\ntaperc COMMAND --help tells the options of a command; taperc --version the version. More: man taperc.\n",
        to);
}

static int run_command(cli *c, int argc, char **argv) {
  const cli_command *k = c->command;
  if (k->own_size) c->own = arena_alloc(&c->memory, k->own_size);
  if (k->init) k->init(c->own);
  bool done = false;
  int code = cli_parse(c, argc, argv, &done);
  return code || done ? code : k->run(c);
}

static int dispatch(cli *c, int argc, char **argv) {
  const char *word = argc > 1 ? argv[1] : NULL;
  if (!word) {
    print_usage(stderr);
    return CLI_USAGE;
  }
  bool help = strcmp(word, "help") == 0;
  if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0 || (help && argc == 2)) {
    print_usage(stdout);
    return CLI_OK;
  }
  if (strcmp(word, "--version") == 0) {
    if (argc > 2) return cli_fail(c, CLI_USAGE, "'--version' stands alone; leave out '%s'", argv[2]);
    printf("taperc %s\n", TAPER_VERSION_TEXT);
    return CLI_OK;
  }
  static char help_option[] = "--help";
  char *help_args[] = {argv[0], help_option, NULL};
  if (help) word = argv[2];
  const char *names[COMMAND_COUNT];
  for (size_t i = 0; i < COMMAND_COUNT; i++) {
    names[i] = commands[i].name;
    if (strcmp(word, names[i]) != 0) continue;
    if (!commands[i].command) return cli_not_built(c, arena_printf(&c->memory, "'%s'", word));
    c->command = commands[i].command;
    return help ? run_command(c, 2, help_args) : run_command(c, argc - 1, argv + 1);
  }
  if (*word == '-')
    return cli_fail(c, CLI_USAGE, "unknown option '%s' before the command; give taperc COMMAND %s", word, word);
  const char *nearest = words_nearest(word, names, COMMAND_COUNT);
  if (nearest) return cli_fail(c, CLI_USAGE, "unknown command '%s'; did you mean '%s'?", word, nearest);
  return cli_fail(c, CLI_USAGE, "unknown command '%s'; taperc --help lists them", word);
}

/* A standard stream that was closed must not become the next file that is opened: what is read is empty, and what is
   written fails. */
static void hold_standard_streams(void) {
  for (int fd = 0; fd <= 2; fd++)
    if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDONLY) != fd) return;
}

int main(int argc, char **argv) {
  hold_standard_streams();
  signal(SIGPIPE, SIG_IGN); /* a reader that goes away shows as EPIPE */
  leftover_at_signals();
  signal(SIGXFSZ, SIG_IGN); /* a file that may not grow further shows as EFBIG */
  cli c = {.sink = diag_sink_new(), .argv = argv, .build = {.pass = {.level = 2}}};
  int code = cli_output_end(&c, dispatch(&c, argc, argv));
  cli_flush(&c);
  diag_sink_free(c.sink);
  arena_free(&c.memory);
  return code;
}
