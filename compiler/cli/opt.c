#include "compiler/cli/cli.h"
#include "compiler/driver/tir_write.h"
#include "compiler/driver/words.h"
#include <stdio.h>
#include <string.h>

typedef struct opt_own {
  const char *passes;
  pass_run_options run;
} opt_own;

enum { KEY_PASSES = 3000, KEY_BEFORE, KEY_AFTER, KEY_VERIFY, KEY_TIME, KEY_FOR };

static const struct argp_option options[] = {
    {"passes", KEY_PASSES, "LIST", 0,
     "passes to run in order, e.g. fold-scale,dce; default stands for the pipeline of -O", 0},
    {"for", KEY_FOR, "WORD", 0,
     "decode (the default) or train: weights become parameters, default is the pipeline of training", 0},
    {"print-before", KEY_BEFORE, "NAME", 0, "print the IR before this pass (all: every pass) to standard error", 0},
    {"print-after", KEY_AFTER, "NAME", 0, "print the IR after this pass (all: every pass) to standard error", 0},
    {"verify-each", KEY_VERIFY, NULL, 0, "check invariants and print(parse(print)) after every pass", 0},
    {"time-passes", KEY_TIME, NULL, 0, "print how long each pass took to standard error", 0},
    {0}};

static int check_name(cli *c, const char *option, const char *value) {
  if (strcmp(value, "all") == 0 || pass_find(value)) return CLI_OK;
  const char *names[128];
  size_t n = 0;
  for (; n < pass_count() && n < 128; n++) names[n] = pass_at(n)->name;
  const char *nearest = words_nearest(value, names, n);
  if (nearest)
    return cli_fail(c, CLI_USAGE, "option '%s': there is no pass '%s'; did you mean '%s'?", option, value, nearest);
  return cli_fail(c, CLI_USAGE, "option '%s': there is no pass '%s'; taperc opt --help lists them", option, value);
}

static int choose_use(cli *c, const char *value) {
  size_t word;
  int bad = cli_parse_word(c, "--for", value, "decode|train", &word);
  if (bad) return bad;
  c->model.train = word == 1;
  c->build.pass.use = word == 1 ? PASS_TRAIN : PASS_INFER;
  return CLI_OK;
}

static int option(cli *c, int key, const char *value) {
  opt_own *o = c->own;
  switch (key) {
  case KEY_PASSES: o->passes = value; break;
  case KEY_BEFORE: o->run.print_before = value; return check_name(c, "--print-before", value);
  case KEY_AFTER: o->run.print_after = value; return check_name(c, "--print-after", value);
  case KEY_VERIFY: o->run.verify_each = true; break;
  case KEY_FOR: return choose_use(c, value);
  case KEY_TIME: o->run.time_passes = true; break;
  default: break;
  }
  return CLI_OK;
}

static bool is_listed(const pass_info *const *list, size_t n, const char *name) {
  if (!name || strcmp(name, "all") == 0) return true;
  for (size_t i = 0; i < n; i++)
    if (strcmp(list[i]->name, name) == 0) return true;
  return false;
}

/* --passes is checked before any file is read. */
static int check_passes(cli *c, const opt_own *o) {
  const pass_info *list[PIPELINE_MAX];
  size_t n;
  bool watched = o->run.print_before || o->run.print_after || o->run.verify_each || o->run.time_passes;
  if (!o->passes && watched)
    return cli_fail(c, CLI_USAGE, "without --passes there is nothing to print, verify or time; give --passes=default");
  if (!o->passes) return CLI_OK;
  if (!pipeline_parse(o->passes, &c->build.pass, c->sink, list, PIPELINE_MAX, &n)) return CLI_USAGE;
  const char *idle = !is_listed(list, n, o->run.print_before)  ? o->run.print_before
                     : !is_listed(list, n, o->run.print_after) ? o->run.print_after
                                                               : NULL;
  if (!idle) return CLI_OK;
  return cli_fail(c, CLI_USAGE,
                  "there is no pass '%s' among those that run, so nothing of it is printed; add it to --passes", idle);
}

static int optimise(cli *c, opt_own *o, model_loaded *m) {
  text report = {0};
  bool bug = false, fine = true;
  o->run.report = &report;
  build_used_rows(m, &c->build.pass);
  if (o->passes) fine = pipeline_run(m->module, o->passes, &c->build.pass, &o->run, c->sink, &bug);
  cli_flush(c);
  if (report.size) fwrite(report.data, 1, report.size, stderr);
  text_free(&report);
  if (!fine) return bug ? CLI_BUG : CLI_WRONG;
  taper_error error = {0};
  if (c->output) {
    taper_status status = tir_write(m, c->output, &error);
    return status == TAPER_OK ? CLI_OK : cli_fail_status(c, status, &error, true);
  }
  text t = {0};
  ir_print(m->module, &t);
  int bad = cli_emit_text(c, &t);
  text_free(&t);
  return bad;
}

static int run(cli *c) {
  opt_own *o = c->own;
  model_loaded m = {0};
  model_place place;
  taper_error error = {0};
  int bad = check_passes(c, o);
  if (bad) return bad;
  taper_status status = model_locate(c->args[0], &c->memory, c->sink, &place, &error);
  if (status != TAPER_OK) return cli_fail_status(c, status, &error, false);
  if (place.kind == MODEL_PACKAGE)
    return cli_fail_file(c, CLI_WRONG, c->args[0], "the package is compiled already; give a .tir or .tmodel");
  status = model_load(&place, &c->model, c->sink, &m, &error);
  bad = status == TAPER_OK ? optimise(c, o, &m) : cli_fail_status(c, status, &error, false);
  cli_flush(c); /* places in messages live in the model */
  model_free(&m);
  return bad;
}

#define PASS(function, name, use, level, title) "  " name ": " title "\n"
static const char details[] = "Reads IR text or a model, with weights or without, and prints the IR; with -o Y.tir new "
                              "tensors go to Y.tir.safetensors beside it.\n\nPasses:\n"
#include "compiler/passes/passes.def"
    ;
#undef PASS

const cli_command cli_cmd_opt = {.name = "opt",
                                 .args = "X.tir|MODEL",
                                 .summary = "run passes over a module and print it",
                                 .min_args = 1,
                                 .max_args = 1,
                                 .details = details,
                                 .acts = CLI_ACT_MODEL | CLI_ACT_WEIGHTS | CLI_ACT_BUILD | CLI_ACT_OUTPUT,
                                 .options = options,
                                 .own_size = sizeof(opt_own),
                                 .option = option,
                                 .run = run};
