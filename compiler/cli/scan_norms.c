/* The results of `scan` on norms, as a table and as JSON. */
#include "compiler/cli/scan.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static int dearest_first(const void *a, const void *b) {
  const scan_norm *x = *(const scan_norm *const *)a, *y = *(const scan_norm *const *)b;
  if (x->dloss_one != y->dloss_one) return !(x->dloss_one >= y->dloss_one) ? 1 : -1;
  return (x > y) - (x < y);
}

static void put_number(text *out, double v, int width) {
  char word[48];
  text_format(word, sizeof word, fabs(v) >= 1e5 || (v != 0 && fabs(v) < 1e-4) ? "%.1e" : "%.4f", v);
  text_printf(out, "%*s", width, isfinite(v) ? word : "-");
}

void scan_put_norms(text *out, const scan_result *r) {
  if (r->count == 0) {
    text_puts(out, "no norm that reads the residual stream is live: there is nothing left to remove\n\n");
    return;
  }
  const scan_norm **list = malloc(r->count * sizeof(const scan_norm *));
  size_t wide = 4;
  for (size_t i = 0; i < r->count; i++) {
    if (list) list[i] = &r->norms[i];
    if (strlen(r->norms[i].name) > wide) wide = strlen(r->norms[i].name);
  }
  if (list) qsort(list, r->count, sizeof(const scan_norm *), dearest_first);
  text_printf(out,
              "%-*s  place      r 5 %%   r 50 %%   r 95 %%         c  alone: KL      loss  up to it: KL      loss\n",
              (int)wide, "norm");
  for (size_t i = 0; list && i < r->count; i++) {
    const scan_norm *n = list[i];
    text_printf(out, "%-*s  %5zu", (int)wide, n->name, (size_t)(n - r->norms) + 1);
    const double values[] = {n->r_p5, n->r_p50, n->r_p95, n->c, n->kl_one, n->dloss_one, n->kl_upto, n->dloss_upto};
    static const int widths[] = {11, 9, 9, 10, 11, 10, 14, 10};
    for (size_t k = 0; k < 8; k++) put_number(out, values[k], widths[k]);
    text_puts(out, "\n");
  }
  const scan_norm *last = &r->norms[r->count - 1];
  text_printf(out, "\nloss as it is %.4f nats a token; all %zu norms linear at once, without training: ", r->ce,
              r->count);
  text_printf(out, isfinite(last->dloss_upto) ? "%+.4f\n" : "not a finite number\n", last->dloss_upto);
  text_printf(out, "(%llu positions to calibrate, %llu for each comparison)\n\n", (unsigned long long)r->calibrated,
              (unsigned long long)r->compared);
  free(list);
}

void scan_put_norms_json(json_out *j, const scan_result *r) {
  json_open(j, "norms", '[');
  for (size_t i = 0; i < r->count; i++) {
    const scan_norm *n = &r->norms[i];
    json_open(j, NULL, '{');
    json_string(j, "name", n->name);
    const struct {
      const char *key;
      double value;
    } members[] = {
        {"r_p5", n->r_p5},     {"r_p50", n->r_p50},         {"r_p95", n->r_p95},     {"c", n->c},
        {"kl_one", n->kl_one}, {"dloss_one", n->dloss_one}, {"kl_upto", n->kl_upto}, {"dloss_upto", n->dloss_upto}};
    for (size_t k = 0; k < sizeof members / sizeof *members; k++) json_number(j, members[k].key, members[k].value);
    json_close(j, '}');
  }
  json_close(j, ']');
  json_number(j, "ce", r->count ? r->ce : (double)NAN);
  json_whole(j, "positions_calibrated", r->calibrated);
  json_whole(j, "positions_compared", r->compared);
}
