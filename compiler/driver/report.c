/* The page of training runs. */
#include "compiler/driver/report_priv.h"
#include "runtime/base/file.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_LINES = 64, CHARTS_SECONDS = 120, RECIPE_LINES = 14, LOG_LIMIT = 64 << 20, MARKS = 80 };

typedef struct chart_kind {
  const char *title, *y_axis;
  bool log_y, many;
  const char *keys;
} chart_kind;

static const chart_kind kinds[] = {
#define CHART(title, y_axis, log_y, many, keys) {title, y_axis, log_y, many, keys},
#include "compiler/driver/charts.def"
#undef CHART
};

/* One curve. */
typedef struct curve {
  const metrics_run *run;
  const metric_series *series;
  const char *name;
  size_t colour, dash;
  bool primary; /* of the first key: the range is its */
} curve;

typedef struct chart {
  const chart_kind *kind;
  const metrics_run *only; /* a chart of one run; NULL: of all */
  curve curves[MOST_LINES];
  size_t count;
  bool cut; /* some values lie above the range */
  size_t index;
} chart;

typedef struct page {
  const metrics_run *runs;
  size_t count;
  gnuplot plots;
  arena memory;
  chart *charts;
  size_t chart_count;
  double last_step;
} page;

/* ---- which curves a chart has ---- */

/* "full.layers.*.scale" against "full.layers.3.scale": the place and length of what '*' stands for. */
static bool fits(const char *pattern, size_t n, const char *key, const char **out, size_t *out_n) {
  const char *star = memchr(pattern, '*', n);
  size_t length = strlen(key), head = star ? (size_t)(star - pattern) : n, tail = star ? n - head - 1 : 0;
  *out = key + head, *out_n = 0;
  if (!star) return length == n && memcmp(pattern, key, n) == 0;
  if (length < head + tail || memcmp(pattern, key, head) != 0 || memcmp(star + 1, key + length - tail, tail) != 0)
    return false;
  *out_n = length - head - tail;
  return *out_n > 0;
}

static bool has_values(const metric_series *s, bool log_y) {
  for (size_t i = 0; i < s->n; i++)
    if (s->at[i].count && (!log_y || s->at[i].high > 0)) return true;
  return false;
}

static void add_curves(page *p, chart *c, size_t run_index) {
  const metrics_run *run = &p->runs[run_index];
  size_t key = 0;
  for (const char *at = c->kind->keys; at && *at; key++) {
    size_t all = strcspn(at, "|"), n = strcspn(at, ":");
    const char *label = at + n + 1;
    size_t label_n = all > n ? all - n - 1 : 0;
    for (size_t i = 0; i < run->series_count && c->count < MOST_LINES; i++) {
      const char *star;
      size_t star_n;
      const metric_series *s = &run->series[i];
      if (!fits(at, n, s->key, &star, &star_n) || !has_values(s, c->kind->log_y)) continue;
      curve *u = &c->curves[c->count];
      *u = (curve){.run = run, .series = s, .primary = key == 0};
      u->name = arena_printf(&p->memory, "%.*s%.*s", (int)label_n, label, (int)star_n, star);
      bool by_series = c->kind->many || p->count == 1;
      u->colour = (by_series ? c->count : run_index) % REPORT_COLOURS;
      u->dash = c->kind->many ? c->count / REPORT_COLOURS : p->count == 1 ? 0 : key;
      c->count++;
    }
    at += all;
    if (*at == '|') at++;
  }
}

static void find_charts(page *p) {
  size_t n = sizeof kinds / sizeof *kinds;
  p->charts = ARENA_ARRAY(&p->memory, chart, n * (p->count + 1));
  for (size_t k = 0; k < n; k++) {
    bool apart = kinds[k].many && p->count > 1;
    for (size_t r = 0; r < (apart ? p->count : 1); r++) {
      chart *c = &p->charts[p->chart_count];
      *c = (chart){.kind = &kinds[k], .only = apart ? &p->runs[r] : NULL};
      for (size_t i = apart ? r : 0; i < (apart ? r + 1 : p->count); i++) add_curves(p, c, i);
      p->chart_count += c->count > 0;
    }
  }
}

/* ---- a chart's script ---- */

static void put_rows(text *t, const curve *u, bool log_y) {
  for (size_t i = 0; i < u->series->n; i++) {
    const metric_point *q = &u->series->at[i];
    double mean = metric_mean(q);
    if (!q->count || (log_y && !(q->low > 0))) {
      text_puts(t, "\n"); /* a gap */
      continue;
    }
    text_printf(t, "%.10g %.8g %.8g %.8g\n", (q->first + q->last) / 2, mean, q->low, q->high);
  }
}

/* The range of the first key; what lies far above it is cut off, and said. */
static void put_range(chart *c, text *s) {
  double low = INFINITY, high = -INFINITY, all = -INFINITY, least = INFINITY;
  for (size_t i = 0; i < c->count; i++)
    for (size_t k = 0; k < c->curves[i].series->n; k++) {
      const metric_point *q = &c->curves[i].series->at[k];
      if (!q->count) continue;
      if (c->curves[i].primary && q->high > high) high = q->high;
      if (c->curves[i].primary && q->low < low) low = q->low;
      if (q->high > all) all = q->high;
      if (q->low < least) least = q->low;
    }
  if (strcmp(c->kind->title, "Gates") == 0)
    text_puts(s, "set yrange [-0.03:1.03]\n");
  else if (!c->kind->log_y && isfinite(high) && all > high + 0.3 * (high - least) && high > low) {
    c->cut = true;
    text_printf(s, "set yrange [*:%.8g]\n", high + 0.05 * (high - least));
  }
}

static void put_mark(text *s, double step, double height, const char *colour, int dash, double width) {
  text_printf(s, "set arrow from first %.10g,graph 0 to first %.10g,graph %.3g nohead lc rgb '%s' dt %d lw %g back\n",
              step, step, height, colour, dash, width);
}

/* Taper starts over the whole height; of a single run also checkpoints and resumes, at the foot. */
static void put_marks(const page *p, const chart *c, text *s) {
  for (size_t r = 0; r < p->count; r++) {
    const metrics_run *run = &p->runs[r];
    if (c->only && c->only != run) continue;
    bool alone = c->only || p->count == 1;
    size_t checkpoints = 0, shown = 0;
    for (size_t i = 0; i < run->event_count; i++) checkpoints += run->events[i].kind == METRIC_CHECKPOINT;
    for (size_t i = 0; i < run->event_count; i++) {
      const metric_event *e = &run->events[i];
      if (e->kind == METRIC_TAPER_START)
        put_mark(s, e->step, 1, alone ? "#010203" : report_colours[r % REPORT_COLOURS], 2, 1);
      else if (e->kind == METRIC_RESUME && alone)
        put_mark(s, e->step, 0.12, "#d9662b", 1, 1.5);
      else if (e->kind == METRIC_CHECKPOINT && alone && shown++ % (checkpoints / MARKS + 1) == 0)
        put_mark(s, e->step, 0.05, "#010203", 1, 1.2);
    }
  }
}

static taper_status put_chart(page *p, chart *c, taper_error *error) {
  text *s = &p->plots.script, plot = {0};
  taper_status status = TAPER_OK;
  c->index = p->plots.charts;
  report_chart_begin(&p->plots, "step", c->kind->y_axis, c->kind->log_y);
  double first = p->last_step > 1 ? 0 : p->last_step - 1;
  text_printf(s, "set xrange [%.10g:%.10g]\n", first, p->last_step > 1 ? p->last_step : p->last_step + 1);
  put_range(c, s);
  put_marks(p, c, s);
  for (size_t i = 0; status == TAPER_OK && i < c->count; i++) {
    const curve *u = &c->curves[i];
    const char *colour = report_colours[u->colour];
    double width = c->count <= 4 ? 1.6 + 1.1 * (double)(c->count - 1 - i) : 1.6; /* equal curves: both are seen */
    text rows = {0};
    put_rows(&rows, u, c->kind->log_y);
    const char *file = gnuplot_data(&p->plots, &rows, error);
    if (!file) status = error->status;
    if (file && u->series->stride > 1)
      text_printf(&plot, "%s'%s' using 1:3:4 with filledcurves lc rgb '%s'", plot.size ? ", \\\n  " : "", file, colour);
    if (file)
      text_printf(&plot, "%s'%s' using 1:2 with %s lw %.1f dt %zu lc rgb '%s'", plot.size ? ", \\\n  " : "", file,
                  u->series->n <= 60 ? "linespoints pt 7 ps 0.35" : "lines", width, u->dash % 4 + 1, colour);
    text_free(&rows);
  }
  text_printf(s, "plot %s\nunset output\n", plot.data ? plot.data : "0");
  text_free(&plot);
  return status;
}

/* ---- the page's text ---- */

static void put_swatch(text *out, const char *colour, size_t dash) {
  static const char *const dashes[] = {"", " stroke-dasharray=\"6 3\"", " stroke-dasharray=\"2 2\"",
                                       " stroke-dasharray=\"8 3 2 3\""};
  text_printf(out,
              "<svg viewBox=\"0 0 26 10\" aria-hidden=\"true\"><path d=\"M0 5h26\" stroke=\"%s\" "
              "stroke-width=\"2.5\"%s/></svg>",
              colour, dashes[dash % 4]);
}

static void put_key(const page *p, const chart *c, text *out) {
  text_puts(out, "<ul class=\"key\">");
  for (size_t i = 0; i < c->count; i++) {
    const curve *u = &c->curves[i];
    text_puts(out, "<li>");
    put_swatch(out, report_colours[u->colour], u->dash);
    if (!c->kind->many && p->count > 1) {
      report_put(out, u->run->name);
      text_puts(out, ", ");
    }
    report_put(out, u->name);
    text_puts(out, "</li>");
  }
  text_puts(out, "</ul>\n");
}

static taper_status put_figure(page *p, const chart *c, text *out, taper_error *error) {
  text_puts(out, "<figure>\n<figcaption><h3>");
  report_put(out, c->kind->title);
  if (c->only) {
    text_puts(out, " \xc2\xb7 ");
    report_put(out, c->only->name);
  }
  text_puts(out, "</h3></figcaption>\n");
  put_key(p, c, out);
  TAPER_TRY(gnuplot_svg(&p->plots, c->index, out, error));
  if (c->cut) text_puts(out, "<p class=\"soft\">Values far above the first curve are cut off.</p>\n");
  text_puts(out, "</figure>\n");
  return TAPER_OK;
}

static double latest(const metrics_run *run, const char *key) {
  const metric_series *s = metrics_find(run, key);
  return s ? s->latest : (double)NAN;
}

static int rising(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double median(page *p, const metric_series *s) {
  size_t n = 0;
  double *v = ARENA_ARRAY(&p->memory, double, (s ? s->n : 0) + 1);
  for (size_t i = 0; s && i < s->n; i++)
    if (s->at[i].count) v[n++] = metric_mean(&s->at[i]);
  qsort(v, n, sizeof *v, rising);
  return n ? v[(n - 1) / 2] : (double)NAN;
}

static void put_gates(const metrics_run *run, text *out) {
  size_t n = 0;
  for (size_t i = 0; i < run->series_count; i++) {
    const metric_series *s = &run->series[i];
    if (strncmp(s->key, "g.", 2) != 0) continue;
    if (n++) text_puts(out, ", ");
    if (n > 4) {
      text_puts(out, "...");
      break;
    }
    report_put(out, s->key + 2);
    text_puts(out, " ");
    report_number(out, s->latest);
  }
  if (!n) text_puts(out, "\xe2\x80\x93");
}

static const metric_event *taper_start(const metrics_run *run) {
  for (size_t i = 0; i < run->event_count; i++)
    if (run->events[i].kind == METRIC_TAPER_START) return &run->events[i];
  return NULL;
}

static void put_cell(text *out, double v) {
  text_puts(out, "<td>");
  report_number(out, v);
  text_puts(out, "</td>");
}

static void put_summary(page *p, text *out) {
  static const char *const keys[] = {"ce", "val_ce", "val_ce_g0", "logit_norm", "residual_scale"};
  double base = latest(&p->runs[0], "val_ce_g0");
  if (!isfinite(base)) base = latest(&p->runs[0], "val_ce");
  text_printf(out, "<h2>What the run%s ended with</h2>", p->count > 1 ? "s" : "");
  text_puts(out, "\n<div class=\"scroll\"><table>\n<thead><tr><th>run</th><th>steps</th>"
                 "<th>tokens</th><th>training loss</th><th>validation</th><th>validation,<br>gates at 0</th>");
  if (p->count > 1) text_puts(out, "<th>against<br>the first</th>");
  text_puts(out, "<th>logit norm</th><th>residual<br>scale</th><th>taper<br>start</th><th>gates</th><th>tokens/s,<br>"
                 "median</th></tr></thead>\n<tbody>\n");
  for (size_t r = 0; r < p->count; r++) {
    const metrics_run *run = &p->runs[r];
    const metric_event *start = taper_start(run);
    text_puts(out, "<tr><th>");
    report_put(out, run->name);
    text_puts(out, "</th>");
    put_cell(out, run->last_step);
    put_cell(out, latest(run, "tokens"));
    for (size_t k = 0; k < 3; k++) put_cell(out, latest(run, keys[k]));
    double own = latest(run, "val_ce_g0");
    if (!isfinite(own)) own = latest(run, "val_ce");
    if (p->count > 1 && r == 0)
      text_puts(out, "<td></td>");
    else if (p->count > 1 && isfinite(own) && base > 0)
      text_printf(out, "<td>%+.2f %%</td>", 100 * (own / base - 1));
    else if (p->count > 1)
      text_puts(out, "<td>\xe2\x80\x93</td>");
    for (size_t k = 3; k < 5; k++) put_cell(out, latest(run, keys[k]));
    put_cell(out, start ? start->step : (double)NAN);
    text_puts(out, "<td>");
    put_gates(run, out);
    text_puts(out, "</td>");
    put_cell(out, median(p, metrics_find(run, "tokens_per_s")));
    text_puts(out, "</tr>\n");
  }
  text_puts(out, "</tbody></table></div>\n<p class=\"soft\">Losses in nats per token, cross-entropy alone.</p>\n");
}

/* c of each norm at its taper start: rows are norms in the order of the first run that has them. */
static double c_of(const metrics_run *run, const char *norm) {
  double c = (double)NAN;
  for (size_t i = 0; i < run->event_count; i++)
    for (size_t k = 0; k < run->events[i].c_count; k++)
      if (strcmp(run->events[i].c[k].norm, norm) == 0) c = run->events[i].c[k].c;
  return c;
}

static void put_calibration(page *p, text *out) {
  const metrics_run *first = NULL;
  for (size_t r = 0; r < p->count && !first; r++)
    if (taper_start(&p->runs[r])) first = &p->runs[r];
  if (!first) return;
  text_puts(out, "<h2>Calibrated c</h2>\n<div class=\"scroll\"><table>\n<thead><tr><th>norm</th>");
  for (size_t r = 0; r < p->count; r++) {
    text_puts(out, "<th>");
    report_put(out, p->count > 1 ? p->runs[r].name : "c");
    text_puts(out, "</th>");
  }
  text_puts(out, "</tr></thead>\n<tbody>\n");
  for (size_t i = 0; i < first->event_count; i++)
    for (size_t k = 0; k < first->events[i].c_count; k++) {
      text_puts(out, "<tr><th>");
      report_put(out, first->events[i].c[k].norm);
      text_puts(out, "</th>");
      for (size_t r = 0; r < p->count; r++) put_cell(out, c_of(&p->runs[r], first->events[i].c[k].norm));
      text_puts(out, "</tr>\n");
    }
  text_puts(out, "<tr><th>scale target s_tgt</th>");
  for (size_t r = 0; r < p->count; r++) {
    const metric_event *e = taper_start(&p->runs[r]);
    put_cell(out, e ? e->s_tgt : (double)NAN);
  }
  text_puts(out, "</tr>\n</tbody></table></div>\n");
}

static void put_warnings(const page *p, text *out) {
  for (size_t r = 0; r < p->count; r++) {
    const metrics_run *run = &p->runs[r];
    if (!run->bad_lines && !run->cut && !run->backwards) continue;
    text_puts(out, "<p class=\"warn\">");
    report_put(out, run->name);
    text_puts(out, ": ");
    if (run->bad_lines)
      text_printf(out, "%llu lines of metrics.jsonl cannot be read (the first is line %llu) and are left out. ",
                  (unsigned long long)run->bad_lines, (unsigned long long)run->first_bad);
    if (run->cut) text_puts(out, "The last line is cut off and left out. ");
    if (run->backwards) text_puts(out, "Steps do not rise everywhere. ");
    text_puts(out, "</p>\n");
  }
}

/* What log.txt says before the first step. */
static void put_recipe(page *p, const metrics_run *run, text *out) {
  char *log = NULL;
  size_t size = 0, lines = 0;
  taper_error ignored = {0};
  if (file_read(arena_printf(&p->memory, "%s/log.txt", run->path), LOG_LIMIT, &log, &size, &ignored) != TAPER_OK)
    return;
  text_puts(out, "<pre>");
  for (char *at = log, *next; at && *at && lines < RECIPE_LINES; at = next) {
    next = strchr(at, '\n');
    if (next) *next++ = 0;
    const char *said = strlen(at) > 20 && at[4] == '-' ? at + 20 : at; /* behind the time */
    if (strncmp(said, "step ", 5) == 0) break;
    report_put(out, said);
    text_puts(out, "\n");
    lines++;
  }
  text_puts(out, "</pre>\n");
  free(log);
}

static void put_recipes(page *p, text *out) {
  text_printf(out, "<h2>How %s run</h2>\n", p->count > 1 ? "they were" : "it was");
  for (size_t r = 0; r < p->count; r++) {
    if (p->count > 1) {
      text_puts(out, "<h3>");
      report_put(out, p->runs[r].name);
      text_puts(out, "</h3>\n");
    }
    put_recipe(p, &p->runs[r], out);
  }
}

static void put_legend_of_marks(const page *p, text *out) {
  text_puts(out, "<h2>Curves</h2>\n<p class=\"soft\">Dashed upright line: taper start.");
  if (p->count == 1) text_puts(out, " Short strokes at the foot: checkpoints; longer orange ones: resumed.");
  bool thinned = false;
  for (size_t r = 0; r < p->count; r++)
    for (size_t i = 0; i < p->runs[r].series_count; i++) thinned = thinned || p->runs[r].series[i].stride > 1;
  if (thinned)
    text_puts(out, " Long runs are thinned: the curve is the mean of neighbouring steps, the band their range.");
  text_puts(out, "</p>\n<div class=\"charts\">\n");
}

static taper_status put_page(page *p, text *out, taper_error *error) {
  const char *title = p->count == 1 ? arena_printf(&p->memory, "Training run %s", p->runs[0].name)
                                    : arena_printf(&p->memory, "%zu training runs", p->count);
  report_begin(out, title);
  put_warnings(p, out);
  put_summary(p, out);
  put_legend_of_marks(p, out);
  for (size_t i = 0; i < p->chart_count; i++) TAPER_TRY(put_figure(p, &p->charts[i], out, error));
  text_puts(out, "</div>\n");
  put_calibration(p, out);
  put_recipes(p, out);
  report_end(out);
  return out->failed ? TAPER_FAIL(error, TAPER_NOMEM, "no memory for the page; free some") : TAPER_OK;
}

taper_status report_runs(const metrics_run *runs, size_t count, text *out, taper_error *error) {
  page p = {.runs = runs, .count = count};
  for (size_t r = 0; r < count; r++)
    if (runs[r].last_step > p.last_step) p.last_step = runs[r].last_step;
  find_charts(&p);
  taper_status status = gnuplot_begin(&p.plots, &p.memory, error);
  for (size_t i = 0; status == TAPER_OK && i < p.chart_count; i++) status = put_chart(&p, &p.charts[i], error);
  if (status == TAPER_OK) status = gnuplot_run(&p.plots, CHARTS_SECONDS, error);
  if (status == TAPER_OK) status = put_page(&p, out, error);
  gnuplot_end(&p.plots);
  arena_free(&p.memory);
  return status;
}
