#include "compiler/cli/json.h"
#include "compiler/driver/words.h"
#include "runtime/base/json_scan.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void begin(json_out *j, const char *key) {
  if (j->comma) text_puts(&j->t, ", ");
  if (key) {
    text_put_quoted(&j->t, key, strlen(key), true);
    text_puts(&j->t, ": ");
  }
  j->comma = true;
}

void json_open(json_out *j, const char *key, char bracket) {
  begin(j, key);
  text_put(&j->t, &bracket, 1);
  j->comma = false;
}

void json_close(json_out *j, char bracket) {
  text_put(&j->t, &bracket, 1);
  j->comma = true;
}

void json_bytes(json_out *j, const char *key, const char *value, size_t bytes) {
  begin(j, key);
  text_put_quoted(&j->t, value, bytes, true);
}

void json_string(json_out *j, const char *key, const char *value) {
  if (value)
    json_bytes(j, key, value, strlen(value));
  else
    json_null(j, key);
}

void json_number(json_out *j, const char *key, double value) {
  begin(j, key);
  if (isfinite(value))
    words_put_number(&j->t, value);
  else
    text_puts(&j->t, "null");
}

void json_whole(json_out *j, const char *key, uint64_t value) {
  begin(j, key);
  text_printf(&j->t, "%llu", (unsigned long long)value);
}

void json_bool(json_out *j, const char *key, bool value) { json_raw(j, key, value ? "true" : "false"); }
void json_null(json_out *j, const char *key) { json_raw(j, key, "null"); }

void json_raw(json_out *j, const char *key, const char *value) {
  begin(j, key);
  text_puts(&j->t, value);
}

bool json_is_valid(const char *s) {
  json_scan scan;
  if (!s) return false;
  json_scan_init(&scan, s, strlen(s));
  for (;;) {
    json_kind kind = json_scan_next(&scan).kind;
    if (kind == JS_ERROR || kind == JS_END) return kind == JS_END;
  }
}

static int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

double median_of(double *values, size_t n) {
  if (n == 0) return NAN;
  qsort(values, n, sizeof *values, ascending);
  return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

double lower_median_of(double *values, size_t n) {
  median_of(values, n);
  return n ? values[(n - 1) / 2] : (double)NAN;
}

void json_measured(json_out *j, const char *key, double *values, size_t n) {
  if (n == 0) {
    json_null(j, key);
    return;
  }
  double median = median_of(values, n);
  json_open(j, key, '{');
  json_number(j, "median", median);
  json_number(j, "min", values[0]);
  json_number(j, "max", values[n - 1]);
  json_whole(j, "n", n);
  json_close(j, '}');
}
