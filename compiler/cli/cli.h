/*
 * cli.h - what the subcommands share: one invocation, its options, its messages, its output. The only place that prints
 * and exits.
 *
 * A subcommand is a cli_command in its own file: a table of options and three functions. Shared options stand once, in
 * common.c; a command says which of them act (CLI_ACT_*): those that do not are refused, or, where the contract allows
 * them everywhere, warned of.
 */
#ifndef TAPERC_CLI_H
#define TAPERC_CLI_H

#include "compiler/driver/build.h"
#include "compiler/driver/corpus.h"
#include "compiler/driver/model.h"
#include "runtime/base/arena.h"
#include "runtime/base/text.h"
#include <argp.h>

typedef enum cli_exit {
  CLI_OK = 0,
  CLI_WRONG = 1,
  CLI_USAGE = 2,
  CLI_ENVIRONMENT = 3,
  CLI_NO = 4,
  CLI_BUG = 70
} cli_exit;

/* Which shared options act in a command. */
enum {
  CLI_ACT_MODEL = 1 << 0, /* -D --gate (everywhere), --weights --allow-nonfinite */
  CLI_ACT_BUILD = 1 << 1, /* -O --norms --fold --untie --split-scale --clamp-rows; -Rpass -Rpass-missed (everywhere) */
  CLI_ACT_CC = 1 << 2,    /* --cc */
  CLI_ACT_THREADS = 1 << 3,     /* -t (everywhere) */
  CLI_ACT_DEVICE = 1 << 4,      /* --device (everywhere) */
  CLI_ACT_OUTPUT = 1 << 5,      /* -o */
  CLI_ACT_REMARKS = 1 << 6,     /* -Rpass -Rpass-missed: they act where CLI_ACT_BUILD does */
  CLI_ACT_THREAD_LIST = 1 << 7, /* -t takes a list, which the command reads itself */
  CLI_ACT_WEIGHTS = 1 << 8,     /* --weights --allow-nonfinite */
  CLI_ACT_RUN = 1 << 9,         /* --gemm --no-graph: the model is run */
  CLI_ACT_TRAINS = 1 << 10,     /* a training program runs: no device but the CPU */
  CLI_GROUPS = 11
};

typedef enum cli_device { CLI_CPU, CLI_CUDA, CLI_SIM } cli_device;

typedef struct cli cli;

typedef struct cli_command {
  const char *name, *args, *summary, *details; /* details: more help text, may be NULL */
  unsigned acts;
  size_t min_args, max_args;
  const struct argp_option *options;                 /* its own, ended by {0} */
  size_t own_size;                                   /* of the struct that cli.own points to, zeroed before init */
  void (*init)(void *own);                           /* defaults; may be NULL */
  int (*option)(cli *c, int key, const char *value); /* one of its own options: CLI_OK, or the exit code of cli_fail */
  int (*run)(cli *c);                                /* the exit code */
} cli_command;

struct cli {
  const cli_command *command;
  arena memory;
  diag_sink *sink;
  model_options model;
  build_options build;
  const char *output, *device;
  cli_device device_kind;
  uint32_t device_number; /* N of cuda:N */
  const char *gemm;       /* NULL: not given */
  bool no_graph;
  const char **rpass, **rpass_missed; /* NULL-terminated */
  size_t rpass_count, rpass_missed_count;
  bool json, verbose, norms_given, fold_given;
  uint32_t threads; /* 0: not given */
  const char *threads_text;
  unsigned given;                     /* CLI_ACT_* groups of which an option was given */
  const char *given_name[CLI_GROUPS]; /* by bit: the option as written */
  const char **args;
  size_t arg_count;
  char **argv; /* as given, NULL-terminated: to know file names in messages */
  void *own;
};

/* ---- messages: all to standard error, through the sink ---- */
/* `taperc: error: ...`; returns `code`. */
int cli_fail(cli *c, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* `FILE: error: ...`; returns `code`. */
int cli_fail_file(cli *c, int code, const char *file, const char *format, ...) __attribute__((format(printf, 4, 5)));
/* A status from below: its message is said as an error of the file that it names; a driver call that reported in the
   sink has no message. Returns the exit code that belongs to the status. `writing`: an I/O failure is of the
   environment, not of a file that was named. */
int cli_fail_status(cli *c, taper_status status, const taper_error *error, bool writing);
int cli_not_built(cli *c, const char *what);
void cli_note(cli *c, const char *format, ...) __attribute__((format(printf, 2, 3)));
void cli_warn(cli *c, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* A note, with -v only. */
void cli_say(cli *c, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Prints what is in the sink. Long work calls it before it starts. */
void cli_flush(cli *c);

/* ---- options ---- */
/* Parses argv[1..) (argv[0]: the command's name) into c. CLI_OK, or an exit code after the message; *out_done: --help
 * was answered. */
int cli_parse(cli *c, int argc, char **argv, bool *out_done);
const struct argp_option *cli_common_options(void); /* ended by {0} */
int cli_common_option(cli *c, int key, const char *value, bool *out_known);
/* What can be checked only when every option is known: the device, options without an effect. */
int cli_common_finish(cli *c);
/* --dtype=bf16 or f16 for a CPU. */
int cli_no_halves(cli *c);
/* Numbers of the command line: whole, in range, locale-free; else a usage error that names `option`. */
int cli_parse_count(cli *c, const char *option, const char *value, uint64_t low, uint64_t high, uint64_t *out);
int cli_parse_real(cli *c, const char *option, const char *value, double low, double high, double *out);
/* One of `words`, separated by '|'; *out its place. Words after ";" are known but not built yet. */
int cli_parse_word(cli *c, const char *option, const char *value, const char *words, size_t *out);
/* Appends to a NULL-terminated list in c->memory. */
void cli_list_add(cli *c, const char ***list, size_t *count, const char *item);

/* ---- ids and texts ---- */
typedef struct cli_ids {
  int32_t *ids; /* from malloc: cli_ids_free */
  size_t count;
} cli_ids;
void cli_ids_free(cli_ids *ids);
/* Where ids or a text come from: a word for messages ("option '--tokens'"), or a file. */
typedef struct cli_where {
  const char *option; /* NULL: file */
  const char *file;
} cli_where;
/* "1,2,3", also separated by white space. What is no id is a usage error of an option and a wrong file otherwise. */
int cli_parse_ids(cli *c, cli_where where, const char *s, size_t n, cli_ids *out);
/* An id outside 0..vocab-1 is refused with both numbers. */
int cli_check_ids(cli *c, cli_where where, const cli_ids *ids, uint32_t vocab);
int cli_read_text(cli *c, const char *path, char **out, size_t *out_size); /* "-": standard input; from malloc */
int cli_tokenize(cli *c, const taper_model *model, cli_where where, const char *s, size_t n, cli_ids *out);
/* A data file (compiler/driver/corpus.h), checked against the vocabulary: all of it is CORPUS_TRAIN, more than `least`
 * ids. */
int cli_open_data(cli *c, const build_opened *b, const char *path, uint32_t least, corpus **out);
int cli_read_data(cli *c, const build_opened *b, const char *path, cli_ids *out); /* the same, to memory */
/* {"a": [1, 2]} parts and lists. */
void cli_put_ids(text *out, const int32_t *ids, size_t n);

/* ---- models that compute ---- */
/* Opens c->args[at] with the shared options in force: a package as it is, anything else compiled in passing. */
int cli_open(cli *c, size_t at, build_opened *out);
/* cli_open and cli_open_data together. With --clamp-rows, where the weights do not say which rows training read, those
   that the data reads count as used. */
int cli_open_with_data(cli *c, size_t at, const char *path, build_opened *out, corpus **out_data);
/* A package is compiled already: options that only act on a compilation are a usage error with one. */
int cli_check_package_options(cli *c, const model_place *place);
int cli_open_place(cli *c, const model_place *place, build_opened *out);
/* Threads and log as the options say. */
void cli_runtime_options(cli *c, taper_model_options *out);
/* Opens a session of one sequence; context 0: the model's. `option`: the one that gave the context. */
int cli_session(cli *c, const build_opened *b, const char *option, uint64_t context, taper_session **out);

/* ---- progress of long work, only where standard error is a terminal ---- */
void cli_progress(const char *what, uint64_t done, uint64_t all); /* done == all: wiped away */

/* ---- standard output: written whole or the exit code says so; a closed pipe ends quietly ---- */
bool cli_put(const void *data, size_t bytes);     /* false: the reader is gone or the disk is full; stop working */
bool cli_put_now(const void *data, size_t bytes); /* the same, and flushed: text that streams */
int cli_output_end(cli *c, int code);             /* flushes; `code`, or CLI_ENVIRONMENT after the message */
/* Writes a text result to -o FILE or standard output. */
int cli_emit_text(cli *c, const text *t);

#endif
