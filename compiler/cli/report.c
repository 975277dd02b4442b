#include "compiler/driver/report.h"
#include "compiler/cli/cli.h"
#include <string.h>
#include <sys/stat.h>

enum { MOST_RUNS = 64 };

static bool is_run(cli *c, const char *path) {
  struct stat s;
  return stat(arena_printf(&c->memory, "%s/metrics.jsonl", path), &s) == 0;
}

static int report_of_runs(cli *c, text *out) {
  metrics_run runs[MOST_RUNS] = {0};
  taper_error error = {0};
  taper_status status = TAPER_OK;
  size_t n = 0;
  for (; status == TAPER_OK && n < c->arg_count; n++) status = metrics_read(c->args[n], &runs[n], &error);
  if (status == TAPER_OK) status = report_runs(runs, n, out, &error);
  int bad = status == TAPER_OK ? CLI_OK : cli_fail_status(c, status, &error, false);
  for (size_t i = 0; !bad && i < n; i++) {
    if (runs[i].bad_lines)
      cli_warn(c, "%s/metrics.jsonl: %llu lines cannot be read, the first is line %llu: left out", runs[i].path,
               (unsigned long long)runs[i].bad_lines, (unsigned long long)runs[i].first_bad);
    if (runs[i].cut) cli_note(c, "%s/metrics.jsonl: the last line is cut off: left out", runs[i].path);
  }
  for (size_t i = 0; i < n; i++) metrics_free(&runs[i]);
  return bad;
}

static int report_of_model(cli *c, text *out) {
  model_loaded m = {0};
  model_place place;
  taper_error error = {0};
  c->model.need_weights = true;
  c->model.allow_nonfinite = true; /* the page says what there is */
  taper_status status = model_locate(c->args[0], &c->memory, c->sink, &place, &error);
  if (status == TAPER_OK && place.kind == MODEL_PACKAGE)
    return cli_fail_file(c, CLI_WRONG, c->args[0],
                         "a package holds folded weights; give the model that it was made of");
  if (status == TAPER_OK) status = model_load(&place, &c->model, c->sink, &m, &error);
  if (status == TAPER_OK) status = report_model(&m, out, &error);
  int bad = status == TAPER_OK ? CLI_OK : cli_fail_status(c, status, &error, false);
  cli_flush(c); /* places in messages live in the model */
  model_free(&m);
  return bad;
}

static int run(cli *c) {
  size_t runs = 0;
  if (c->arg_count > MOST_RUNS)
    return cli_fail(c, CLI_USAGE, "%zu runs are too many for one page; give at most %d", c->arg_count, MOST_RUNS);
  for (size_t i = 0; i < c->arg_count; i++) runs += is_run(c, c->args[i]);
  for (size_t i = 0; i < c->arg_count && runs != c->arg_count && c->arg_count > 1; i++)
    if (!is_run(c, c->args[i]))
      return cli_fail_file(c, CLI_WRONG, c->args[i],
                           "is no run of taperc train: it has no metrics.jsonl; give runs, or one model alone");
  size_t named = c->arg_count ? strlen(c->args[0]) : 0;
  while (named > 1 && c->args[0][named - 1] == '/') named--;
  if (!c->output && runs == 1) c->output = arena_printf(&c->memory, "%.*s/report.html", (int)named, c->args[0]);
  if (!c->output) return cli_fail(c, CLI_USAGE, "'report' needs a place for its page; give -o report.html");
  text page = {0};
  int bad = runs ? report_of_runs(c, &page) : report_of_model(c, &page);
  if (!bad) bad = cli_emit_text(c, &page);
  if (!bad) cli_note(c, "wrote %s: %zu bytes", c->output, page.size);
  text_free(&page);
  return bad;
}

const cli_command cli_cmd_report = {.name = "report",
                                    .args = "RUN... | MODEL",
                                    .summary = "a page of training runs' curves, or of what a model is made of",
                                    .min_args = 1,
                                    .max_args = 1000,
                                    .details = "One self-contained HTML file; several runs are overlaid. Without -o a "
                                               "single run's page is RUN/report.html. gnuplot "
                                               "draws the charts.",
                                    .acts = CLI_ACT_MODEL | CLI_ACT_WEIGHTS | CLI_ACT_OUTPUT,
                                    .run = run};
