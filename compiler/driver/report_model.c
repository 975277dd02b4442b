/* The page of a model: gates, norms and their gains, the token table's rows, tensors. */
#include "compiler/analysis/readers.h"
#include "compiler/analysis/taper_gates.h"
#include "compiler/analysis/token_rows.h"
#include "compiler/driver/report_priv.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CHARTS_SECONDS = 60, MOST_ROWS = 4000 };

typedef struct spread {
  double low, quarter, middle, upper, high, square; /* square: mean of squares */
  size_t n, bad;                                    /* numbers; those that are none */
} spread;

typedef struct model_page {
  const model_loaded *m;
  gnuplot plots;
  arena memory;
  size_t gains, rows; /* charts; SIZE_MAX: none */
} model_page;

static int rising(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static spread spread_of(double *v, size_t n) {
  spread s = {.low = (double)NAN, .middle = (double)NAN, .high = (double)NAN, .square = 0};
  size_t k = 0;
  for (size_t i = 0; i < n; i++)
    if (isfinite(v[i])) v[k++] = v[i];
  s.n = k, s.bad = n - k;
  if (!k) return s;
  qsort(v, k, sizeof *v, rising);
  for (size_t i = 0; i < k; i++) s.square += v[i] * v[i] / (double)k;
  s.low = v[0], s.quarter = v[(k - 1) / 4], s.middle = v[(k - 1) / 2], s.upper = v[(k - 1) * 3 / 4], s.high = v[k - 1];
  return s;
}

/* All elements of a constant, from malloc; NULL where it has no values. */
static double *values_of(const ir_module *m, ir_value v, size_t *out_n) {
  int64_t n = v.id ? ir_elements(ir_type_of(m, v)) : 0;
  double *data = n > 0 ? malloc((size_t)n * sizeof *data) : NULL;
  *out_n = (size_t)n;
  if (data && ir_read_const(m, v, data)) return data;
  free(data);
  return NULL;
}

static spread spread_of_value(const ir_module *m, ir_value v) {
  size_t n;
  double *data = values_of(m, v, &n);
  spread s = spread_of(data, data ? n : 0);
  free(data);
  return s;
}

static void put_cell(text *out, double v) {
  text_puts(out, "<td>");
  report_number(out, v);
  text_puts(out, "</td>");
}

/* ---- norms ---- */

/* The operand that op.def calls `name`, or none. */
static ir_value operand(const ir_module *m, ir_value v, const char *name) {
  const ir_operand_spec *spec;
  size_t n = ir_op_operands(ir_opcode_of(m, v), &spec);
  for (size_t i = 0; i < n && i < ir_operand_count(m, v); i++)
    if (strcmp(spec[i].name, name) == 0) return ir_operand(m, v, i);
  return IR_NONE;
}

static ir_value next_norm(const ir_module *m, ir_value v) {
  while (v.id && !ir_op_has(ir_opcode_of(m, v), OPF_NORM)) v = ir_next(m, v);
  return v;
}

static ir_value first_norm(const ir_module *m) {
  ir_region entry = ir_entry_find(m, "forward");
  return entry.id ? next_norm(m, ir_first(m, entry)) : IR_NONE;
}

static void put_state(model_page *p, ir_value v, text *out) {
  const ir_module *m = p->m->module;
  ir_value gate = operand(m, v, "gate");
  double value;
  text_puts(out, "<td>");
  if (!gate.id)
    text_puts(out, analysis_is_live_norm(m, v) ? "live" : "constant gain");
  else if (!ir_read_const(m, gate, &value))
    report_put(out, analysis_gate_name(m, gate, &p->memory));
  else {
    report_put(out, analysis_gate_name(m, gate, &p->memory));
    text_puts(out, " = ");
    report_number(out, value);
    text_puts(out, value == 0 ? ", removed" : value == 1 ? ", live" : ", both branches");
  }
  text_puts(out, "</td>");
}

static void put_norms(model_page *p, text *out) {
  const ir_module *m = p->m->module;
  if (!first_norm(m).id) {
    text_puts(out, "<h2>Norms</h2>\n<p>The model has none.</p>\n");
    return;
  }
  text_puts(out, "<h2>Norms</h2>\n<div class=\"scroll\"><table>\n<thead><tr><th>norm</th><th>kind</th><th>state</th>"
                 "<th>eps</th><th>c</th><th>gain, min</th><th>median</th><th>max</th><th>tapered gain, min</th>"
                 "<th>median</th><th>max</th></tr></thead>\n<tbody>\n");
  for (ir_value v = first_norm(m); v.id; v = next_norm(m, ir_next(m, v))) {
    const char *label = ir_name_of(m, v);
    double c = (double)NAN;
    ir_value c_value = operand(m, v, "taper_c");
    if (c_value.id) ir_read_const(m, c_value, &c);
    text_puts(out, "<tr><th>");
    report_put(out, label ? label : "norm");
    text_printf(out, "</th><td>%s</td>", ir_op_name(ir_opcode_of(m, v)));
    put_state(p, v, out);
    put_cell(out, ir_eps(m, v));
    put_cell(out, c);
    spread live = spread_of_value(m, operand(m, v, "weight")),
           taper = spread_of_value(m, operand(m, v, "taper_weight"));
    const double cells[] = {live.low, live.middle, live.high, taper.low, taper.middle, taper.high};
    for (size_t i = 0; i < 6; i++) put_cell(out, cells[i]);
    text_puts(out, "</tr>\n");
  }
  text_puts(out, "</tbody></table></div>\n");
}

/* Boxes of the gains: least, quartiles, largest. */
static taper_status plot_gains(model_page *p, taper_error *error) {
  const ir_module *m = p->m->module;
  text rows[2] = {{0}, {0}};
  size_t n = 0, kept[2] = {0};
  static const char *const roles[] = {"weight", "taper_weight"};
  for (ir_value v = first_norm(m); v.id; v = next_norm(m, ir_next(m, v))) {
    n++;
    for (size_t k = 0; k < 2; k++) {
      spread s = spread_of_value(m, operand(m, v, roles[k]));
      if (!s.n) continue;
      text_printf(&rows[k], "%g %.8g %.8g %.8g %.8g %.8g\n", (double)n + (k ? 0.16 : -0.16), s.quarter, s.low, s.high,
                  s.upper, s.middle);
      kept[k]++;
    }
  }
  taper_status status = TAPER_OK;
  if (kept[0] + kept[1]) {
    p->gains = p->plots.charts;
    report_chart_begin(&p->plots, "norm, in the order of the table", "gain", false);
    text_printf(&p->plots.script,
                "set format x \"%%g\"\nset boxwidth 0.22\nset xrange [0.4:%zu.6]\nset style fill transparent solid "
                "0.35 border\n",
                n);
    const char *glue = "plot ";
    for (size_t k = 0; k < 2 && status == TAPER_OK; k++) {
      if (!kept[k]) continue;
      const char *file = gnuplot_data(&p->plots, &rows[k], error);
      if (!file) status = error->status;
      text_printf(&p->plots.script, "%s'%s' using 1:2:3:4:5 with candlesticks lc rgb '%s' whiskerbars 0.5", glue,
                  file ? file : "", report_colours[k]);
      glue = ", ";
    }
    text_puts(&p->plots.script, "\nunset output\n");
  }
  text_free(&rows[0]), text_free(&rows[1]);
  return status;
}

/* ---- rows of the token table ---- */

static ir_value token_table(const ir_module *m) {
  ir_region entry = ir_entry_find(m, "forward");
  for (ir_value v = entry.id ? ir_first(m, entry) : IR_NONE; v.id; v = ir_next(m, v))
    if (analysis_looks_tokens_up(m, v)) return analysis_leaf(m, ir_operand(m, v, 1));
  return IR_NONE;
}

typedef struct row_norm {
  double norm;
  bool used;
} row_norm;

static int longest_first(const void *a, const void *b) {
  double x = ((const row_norm *)a)->norm, y = ((const row_norm *)b)->norm;
  return (x < y) - (x > y);
}

static taper_status plot_rows(model_page *p, taper_error *error) {
  const ir_module *m = p->m->module;
  ir_value table = token_table(m);
  size_t n, used_n;
  double *data = table.id ? values_of(m, table, &n) : NULL;
  if (!data) return TAPER_OK;
  size_t count = (size_t)ir_type_of(m, table).dim[0], width = n / count;
  const unsigned char *used = model_used_rows(p->m, &used_n);
  row_norm *list = ARENA_ARRAY(&p->memory, row_norm, count);
  for (size_t r = 0; r < count; r++) {
    double square = 0;
    for (size_t i = 0; i < width; i++) square += data[r * width + i] * data[r * width + i];
    list[r] = (row_norm){sqrt(square), !used || used_n != count || used[r]};
  }
  free(data);
  qsort(list, count, sizeof *list, longest_first);
  text rows[2] = {{0}, {0}};
  for (size_t r = 0; r < count; r++)
    if (isfinite(list[r].norm) && r % (count / MOST_ROWS + 1) == 0)
      text_printf(&rows[list[r].used ? 0 : 1], "%zu %.8g\n", r + 1, list[r].norm);
  p->rows = p->plots.charts;
  report_chart_begin(&p->plots, "row, longest first", "L2 norm", false);
  taper_status status = TAPER_OK;
  const char *glue = arena_printf(&p->memory, "plot [0:%zu] [0:*] ", count + 1);
  for (size_t k = 0; k < 2 && status == TAPER_OK; k++) {
    const char *file = rows[k].size ? gnuplot_data(&p->plots, &rows[k], error) : NULL;
    if (rows[k].size && !file) status = error->status;
    if (!file) continue;
    text_printf(&p->plots.script, "%s'%s' using 1:2 with points pt 7 ps 0.3 lc rgb '%s'", glue, file,
                report_colours[k]);
    glue = ", ";
  }
  text_puts(&p->plots.script, "\nunset output\n");
  text_free(&rows[0]), text_free(&rows[1]);
  return status;
}

/* ---- the page ---- */

static taper_status put_figure(model_page *p, size_t chart, const char *title, const char *first, const char *second,
                               text *out, taper_error *error) {
  if (chart == SIZE_MAX) return TAPER_OK;
  text_printf(out, "<figure>\n<figcaption><h3>%s</h3></figcaption>\n<ul class=\"key\">", title);
  for (size_t k = 0; k < 2; k++)
    text_printf(out,
                "<li><svg viewBox=\"0 0 26 10\" aria-hidden=\"true\"><path d=\"M0 5h26\" stroke=\"%s\" "
                "stroke-width=\"5\"/></svg>%s</li>",
                report_colours[k], k ? second : first);
  text_puts(out, "</ul>\n");
  TAPER_TRY(gnuplot_svg(&p->plots, chart, out, error));
  text_puts(out, "</figure>\n");
  return TAPER_OK;
}

static void put_facts(const model_page *p, text *out) {
  const model_loaded *m = p->m;
  text_puts(out, "<div class=\"scroll\"><table><tbody>\n");
  const struct {
    const char *name, *value;
  } rows[] = {{"from", m->place.path}, {"parameters", m->params}, {"gates", m->gates}, {"tokenizer", m->tokenizer}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    text_printf(out, "<tr><th>%s</th><td style=\"text-align:left\"><code>", rows[i].name);
    report_put(out, rows[i].value ? rows[i].value : "");
    text_puts(out, "</code></td></tr>\n");
  }
  if (m->scale_median > 0) {
    text_puts(out, "<tr><th>residual scale before the head</th><td style=\"text-align:left\">median ");
    report_number(out, m->scale_median);
    text_puts(out, ", 99.9 % ");
    report_number(out, m->scale_high);
    text_puts(out, "</td></tr>\n");
  }
  text_puts(out, "</tbody></table></div>\n");
}

static void put_tensors(const model_page *p, text *out) {
  const ir_module *m = p->m->module;
  text_puts(out,
            "<h2>Weights</h2>\n<div class=\"scroll\"><table>\n<thead><tr><th>tensor</th><th>shape</th><th>root mean "
            "square</th><th>min</th><th>median</th><th>max</th></tr></thead>\n<tbody>\n");
  for (ir_value v = ir_first(m, IR_GLOBALS); v.id; v = ir_next(m, v)) {
    const char *tensor = ir_attr_string(m, v, IR_ATTR_TENSOR, NULL);
    if (!tensor || ir_use_count(m, v) == 0) continue;
    ir_type t = ir_type_of(m, v);
    spread s = spread_of_value(m, v);
    text_puts(out, "<tr><th>");
    report_put(out, tensor);
    text_puts(out, "</th><td>");
    for (uint32_t i = 0; i < t.rank; i++) text_printf(out, "%s%lld", i ? " \xc3\x97 " : "", (long long)t.dim[i]);
    text_puts(out, "</td>");
    put_cell(out, s.n ? sqrt(s.square) : (double)NAN);
    put_cell(out, s.low), put_cell(out, s.middle), put_cell(out, s.high);
    text_puts(out, "</tr>\n");
  }
  text_puts(out, "</tbody></table></div>\n");
}

static taper_status put_page(model_page *p, text *out, taper_error *error) {
  report_begin(out, arena_printf(&p->memory, "Model %s", p->m->name));
  put_facts(p, out);
  put_norms(p, out);
  text_puts(out, "<h2>Charts</h2>\n<div class=\"charts\">\n");
  TAPER_TRY(put_figure(p, p->gains, "Gains of the norms: least, quartiles, largest", "gain",
                       "gain of the tapered branch", out, error));
  TAPER_TRY(
      put_figure(p, p->rows, "Rows of the token table", "read in training, or not known", "never read", out, error));
  text_puts(out, "</div>\n");
  put_tensors(p, out);
  report_end(out);
  return out->failed ? TAPER_FAIL(error, TAPER_NOMEM, "no memory for the page; free some") : TAPER_OK;
}

taper_status report_model(const model_loaded *m, text *out, taper_error *error) {
  model_page p = {.m = m, .gains = SIZE_MAX, .rows = SIZE_MAX};
  taper_status status = gnuplot_begin(&p.plots, &p.memory, error);
  if (status == TAPER_OK) status = plot_gains(&p, error);
  if (status == TAPER_OK) status = plot_rows(&p, error);
  if (status == TAPER_OK) status = gnuplot_run(&p.plots, CHARTS_SECONDS, error);
  if (status == TAPER_OK) status = put_page(&p, out, error);
  gnuplot_end(&p.plots);
  arena_free(&p.memory);
  return status;
}
