/* Options: one flat table a command, checked in full before argp reads it, so that every usage error has the same form.
 */
#include "compiler/cli/cli.h"
#include "compiler/driver/words.h"
#include <stdlib.h>
#include <string.h>

static const char *option_text(cli *c, const struct argp_option *o) {
  if (!o->name) return arena_printf(&c->memory, "-%c", o->key);
  return arena_printf(&c->memory, "%s%s", strncmp(o->name, "Rpass", 5) == 0 ? "-" : "--", o->name);
}

static bool is_short(const struct argp_option *o) { return o->key > 32 && o->key < 127; }

static const struct argp_option *find_option(const struct argp_option *table, const char *name, size_t n, int key) {
  for (; table->name || table->key || table->doc; table++) {
    if (name && table->name && strlen(table->name) == n && memcmp(table->name, name, n) == 0) return table;
    if (!name && is_short(table) && table->key == key) return table;
  }
  return NULL;
}

static int unknown_option(cli *c, const struct argp_option *table, const char *written) {
  const char *names[128];
  size_t n = 0;
  for (const struct argp_option *o = table; (o->name || o->key || o->doc) && n < 128; o++)
    if (o->name) names[n++] = option_text(c, o);
  const char *nearest = words_nearest(written, names, n);
  if (nearest) return cli_fail(c, CLI_USAGE, "unknown option '%s'; did you mean '%s'?", written, nearest);
  const char *after = written[1] == '-' ? "" : ", or write -- before an argument that begins with '-'";
  return cli_fail(c, CLI_USAGE, "unknown option '%s'; see taperc %s --help%s", written, c->command->name, after);
}

static int missing_value(cli *c, const struct argp_option *o, const char *written) {
  const char *join = o->name && written[1] == '-' ? "=" : o->name && written[1] == 'R' ? "=" : " ";
  return cli_fail(c, CLI_USAGE, "option '%s' needs a value; give %s%s%s", written, written, join, o->arg);
}

static int check_long(cli *c, const struct argp_option *table, const char *arg, const char *next, bool *out_skip) {
  size_t n = strcspn(arg + 2, "=");
  const struct argp_option *o = find_option(table, arg + 2, n, 0);
  const char *name = arena_strndup(&c->memory, arg, n + 2);
  if (o && strncmp(o->name, "Rpass", 5) == 0) name++;
  if (!o) return unknown_option(c, table, name);
  bool has_value = arg[n + 2] == '=';
  if (!o->arg && has_value)
    return cli_fail(c, CLI_USAGE, "option '%s' takes no value; leave out '%s'", name, arg + n + 2);
  if (o->arg && !(o->flags & OPTION_ARG_OPTIONAL) && !has_value) {
    if (!next || name[1] == 'R') return missing_value(c, o, name);
    *out_skip = true;
  }
  return CLI_OK;
}

static int check_short(cli *c, const struct argp_option *table, const char *arg, const char *next, bool *out_skip) {
  for (const char *p = arg + 1; *p; p++) {
    const struct argp_option *o = find_option(table, NULL, 0, *p);
    if (!o) return unknown_option(c, table, p == arg + 1 ? arg : arena_printf(&c->memory, "-%c", *p));
    if (!o->arg) continue;
    if (!p[1] && !next) return missing_value(c, o, arena_printf(&c->memory, "-%c", *p));
    *out_skip = !p[1];
    return CLI_OK;
  }
  return CLI_OK;
}

static int check_options(cli *c, const struct argp_option *table, int argc, char **argv) {
  for (int i = 1; i < argc; i++) {
    if (argv[i][0] != '-' || !argv[i][1]) continue;
    if (strcmp(argv[i], "--") == 0) return CLI_OK;
    const char *next = i + 1 < argc ? argv[i + 1] : NULL;
    bool skip = false;
    int bad =
        argv[i][1] == '-' ? check_long(c, table, argv[i], next, &skip) : check_short(c, table, argv[i], next, &skip);
    if (bad) return bad;
    i += skip;
  }
  return CLI_OK;
}

typedef struct parse_state {
  cli *c;
  bool help;
  int failed;
} parse_state;

enum { KEY_HELP = 'h' };

static error_t on_option(int key, char *value, struct argp_state *state) {
  parse_state *p = state->input;
  cli *c = p->c;
  if (key == ARGP_KEY_ARG) {
    size_t n = c->arg_count;
    cli_list_add(c, &c->args, &n, value);
    c->arg_count = n;
    return 0;
  }
  if (key == KEY_HELP) {
    p->help = true;
    return 0;
  }
  if ((key & 0x1000000) || p->failed || p->help) return ARGP_ERR_UNKNOWN; /* argp's own events */
  bool known = false;
  p->failed = cli_common_option(c, key, value, &known);
  if (!known && c->command->option) p->failed = c->command->option(c, key, value);
  return p->failed ? EINVAL : 0;
}

/* The command's own options, then the shared ones that it may be given. */
static struct argp_option *make_table(cli *c) {
  const struct argp_option *own = c->command->options, *common = cli_common_options();
  struct argp_option *table = ARENA_ARRAY(&c->memory, struct argp_option, 160);
  size_t n = 0;
  for (; own && (own->name || own->key || own->doc); own++) table[n] = *own, table[n++].group = 1;
  for (; common->name || common->key || common->doc; common++) {
    unsigned needs = (unsigned)common->group; /* here: the CLI_ACT_* bit it belongs to; 0: everywhere */
    if (needs && !(c->command->acts & needs)) continue;
    table[n] = *common, table[n++].group = 2;
  }
  table[n++] = (struct argp_option){"help", KEY_HELP, NULL, 0, "print this text", -1};
  return table;
}

static const char model_help[] =
    "MODEL is a folder (model.tmodel, weights.safetensors), a run folder (its newest complete checkpoint), a package "
    "M.tpack, or a M.tmodel "
    "with --weights W. -Rpass=NAME and -Rpass-missed=NAME print what the pass NAME did and could not do (all: every "
    "pass).\n\n";
static const char status_help[] =
    "Exit status: 0 done; 1 a file, id or text that was named is wrong; 2 the command line is wrong or not built yet; "
    "3 the environment failed; 4 ran and the answer is no; "
    "70 a defect of the compiler.";

static void print_help(cli *c, const struct argp_option *table) {
  const cli_command *k = c->command;
  const char *doc = arena_printf(&c->memory, "%s.%s%s\v%s%s", k->summary, k->details ? "\n\n" : "",
                                 k->details ? k->details : "", k->max_args ? model_help : "", status_help);
  struct argp argp = {table, NULL, k->args, doc, NULL, NULL, NULL};
  argp_help(&argp, stdout, ARGP_HELP_USAGE | ARGP_HELP_LONG | ARGP_HELP_DOC,
            (char *)(uintptr_t)arena_printf(&c->memory, "taperc %s", k->name));
}

static int parse(cli *c, int argc, char **argv, bool *out_done) {
  char **args = ARENA_ARRAY(&c->memory, char *, argc + 1);
  for (int i = 0; i < argc; i++) /* argp knows no single-dash words */
    args[i] = strncmp(argv[i], "-Rpass", 6) == 0 ? arena_printf(&c->memory, "-%s", argv[i]) : argv[i];
  struct argp_option *table = make_table(c);
  int bad = check_options(c, table, argc, args);
  if (bad) return bad;
  struct argp argp = {table, on_option, c->command->args, NULL, NULL, NULL, NULL};
  parse_state state = {.c = c};
  error_t e = argp_parse(&argp, argc, args, ARGP_NO_EXIT | ARGP_NO_ERRS | ARGP_NO_HELP, NULL, &state);
  if (state.help) {
    print_help(c, table);
    *out_done = true;
    return CLI_OK;
  }
  if (state.failed) return state.failed;
  if (e) return cli_fail(c, CLI_USAGE, "the command line does not parse; see taperc %s --help", c->command->name);
  const cli_command *k = c->command;
  if (c->arg_count < k->min_args)
    return cli_fail(c, CLI_USAGE, "'%s' needs more arguments; give taperc %s %s", k->name, k->name, k->args);
  if (c->arg_count > k->max_args)
    return cli_fail(c, CLI_USAGE, "'%s' has no place for the argument '%s'; give taperc %s %s", k->name,
                    c->args[k->max_args], k->name, k->args);
  return cli_common_finish(c);
}

int cli_parse(cli *c, int argc, char **argv, bool *out_done) {
  int bad = parse(c, argc, argv, out_done);
  for (int i = 1; bad && i < argc; i++) /* a wrong command line is told in the form it asks for, wherever that stands */
    c->json = c->json || strcmp(argv[i], "--json") == 0;
  return bad;
}
