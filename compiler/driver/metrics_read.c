#include "compiler/driver/metrics_read.h"
#include "runtime/base/file.h"
#include "runtime/base/json_scan.h"
#include <math.h>
#include <string.h>

enum { MOST_SERIES = 4096, MOST_EVENTS = 4096, MOST_C = 4096, KEY_BYTES = 256 };

typedef struct reading {
  metrics_run *run;
  size_t series_cap, event_cap, hint; /* hint: where the next key is expected: lines have one order */
  json_scan scan;
  char key[KEY_BYTES];
  double step;
  bool has_step, bad;
  metric_event event;
  bool is_event;
} reading;

double metric_mean(const metric_point *p) { return p->count ? p->sum / (double)p->count : (double)NAN; }

const metric_series *metrics_find(const metrics_run *run, const char *key) {
  for (size_t i = 0; i < run->series_count; i++)
    if (strcmp(run->series[i].key, key) == 0) return &run->series[i];
  return NULL;
}

void metrics_free(metrics_run *run) {
  arena_free(&run->memory);
  *run = (metrics_run){0};
}

/* ---- series ---- */

static metric_series *series_of(reading *r, const char *key) {
  metrics_run *run = r->run;
  for (size_t k = 0; k < run->series_count; k++) {
    size_t i = (r->hint + k) % run->series_count;
    if (strcmp(run->series[i].key, key) != 0) continue;
    r->hint = i + 1;
    return &run->series[i];
  }
  if (run->series_count == MOST_SERIES) return NULL;
  if (run->series_count == r->series_cap) {
    size_t cap = r->series_cap ? 2 * r->series_cap : 32;
    metric_series *grown = ARENA_ARRAY(&run->memory, metric_series, cap);
    if (run->series_count) memcpy(grown, run->series, run->series_count * sizeof *grown);
    run->series = grown, r->series_cap = cap;
  }
  metric_series *s = &run->series[run->series_count++];
  *s = (metric_series){.key = arena_strdup(&run->memory, key), .stride = 1};
  s->at = ARENA_ARRAY(&run->memory, metric_point, 2 * METRIC_POINTS);
  r->hint = run->series_count;
  return s;
}

static void join(metric_point *a, const metric_point *b) {
  a->last = b->last;
  if (!b->count) return;
  a->low = a->count && a->low < b->low ? a->low : b->low;
  a->high = a->count && a->high > b->high ? a->high : b->high;
  a->sum += b->sum;
  a->count += b->count;
}

static void halve(metric_series *s) {
  for (size_t i = 0; i + 1 < s->n; i += 2) {
    metric_point p = s->at[i];
    join(&p, &s->at[i + 1]);
    s->at[i / 2] = p;
  }
  if (s->n % 2) s->at[s->n / 2] = s->at[s->n - 1];
  s->n = (s->n + 1) / 2;
  s->stride *= 2;
}

/* Beyond it a value is a gap, as infinity is: the width of an axis must stay a number, and gnuplot's does not. */
#define METRIC_LARGEST 1e300

static void add_value(reading *r, double step, const char *key, double value) {
  metric_series *s = series_of(r, key);
  if (!s) return;
  metric_point p = {step, step, value, value, value, 1};
  if (!(fabs(value) <= METRIC_LARGEST)) p = (metric_point){.first = step, .last = step};
  s->latest = value;
  if (s->n) {
    metric_point *last = &s->at[s->n - 1];
    if (last->count && p.count && last->count < s->stride) {
      join(last, &p);
      return;
    }
  }
  if (s->n == 2 * METRIC_POINTS) halve(s);
  s->at[s->n++] = p;
}

/* ---- one line ---- */

static void read_c(reading *r) {
  metric_c *list = ARENA_ARRAY(&r->run->memory, metric_c, 16);
  size_t cap = 16;
  char name[KEY_BYTES];
  for (json_event e = json_scan_next(&r->scan); e.kind == JS_KEY; e = json_scan_next(&r->scan)) {
    bool fits = e.length < sizeof name;
    if (fits) json_decode(&r->scan, e, name, NULL);
    json_event v = json_scan_next(&r->scan);
    double c = (double)NAN;
    if (v.kind == JS_NUMBER) json_double(&r->scan, v, &c);
    if (!fits || r->event.c_count == MOST_C) continue;
    if (r->event.c_count == cap) {
      metric_c *grown = ARENA_ARRAY(&r->run->memory, metric_c, 2 * cap);
      memcpy(grown, list, cap * sizeof *grown);
      list = grown, cap *= 2;
    }
    list[r->event.c_count++] = (metric_c){arena_strdup(&r->run->memory, name), c};
  }
  r->event.c = list;
}

static void read_event_word(reading *r, json_event v) {
  static const struct {
    const char *word;
    metric_event_kind kind;
  } kinds[] = {{"taper_start", METRIC_TAPER_START},
               {"checkpoint", METRIC_CHECKPOINT},
               {"resume", METRIC_RESUME},
               {"end", METRIC_END}};
  r->is_event = true;
  r->event.kind = METRIC_OTHER;
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
    if (v.kind == JS_STRING && json_is(&r->scan, v, kinds[i].word)) r->event.kind = kinds[i].kind;
}

/* Numbers of the line, before its step may be known: kept until it is read. */
typedef struct pending {
  double value;
  char key[KEY_BYTES];
} pending;

typedef struct line_values {
  pending *at;
  size_t n, cap;
} line_values;

static void keep(reading *r, line_values *line, size_t length, double value) {
  if (line->n == MOST_SERIES || length == 0 || length >= KEY_BYTES) return;
  if (line->n == line->cap) {
    size_t cap = line->cap ? 2 * line->cap : 64;
    pending *grown = ARENA_ARRAY(&r->run->memory, pending, cap);
    if (line->n) memcpy(grown, line->at, line->n * sizeof *grown);
    line->at = grown, line->cap = cap;
  }
  pending *p = &line->at[line->n++];
  p->value = value;
  memcpy(p->key, r->key, length);
  p->key[length] = 0;
}

/* Appends to r->key[0..at); the new length, or KEY_BYTES where it does not fit. */
static size_t append_key(reading *r, size_t at, json_event e) {
  size_t dot = at ? 1 : 0;
  if (at + dot + e.length + 1 >= KEY_BYTES) return KEY_BYTES;
  if (dot) r->key[at] = '.';
  return at + dot + json_decode(&r->scan, e, r->key + at + dot, NULL);
}

/* Every number of a nested value; the scanner bounds the depth. */
static void read_value(reading *r, line_values *line, json_event v, size_t length) {
  size_t lengths[JSON_MAX_DEPTH + 1] = {0}, index[JSON_MAX_DEPTH + 1] = {0};
  char open[JSON_MAX_DEPTH + 1] = {0};
  size_t depth = 0;
  size_t now = length;
  for (;; v = json_scan_next(&r->scan)) {
    if (v.kind == JS_ERROR || v.kind == JS_END) return;
    if (v.kind == JS_KEY && depth) {
      now = lengths[depth - 1] < KEY_BYTES ? append_key(r, lengths[depth - 1], v) : KEY_BYTES;
      continue;
    }
    if (v.kind == JS_OBJECT_END || v.kind == JS_ARRAY_END) {
      if (depth < 2) return;
      depth--;
      continue;
    }
    if (depth && open[depth - 1] == '[') {
      size_t base = lengths[depth - 1];
      char word[24];
      size_t n = 0, i = index[depth - 1]++;
      do word[n++] = (char)('0' + i % 10);
      while ((i /= 10) > 0);
      now = base + n + 3 < KEY_BYTES ? base + n + 2 : KEY_BYTES;
      if (now < KEY_BYTES) {
        r->key[base] = '[', r->key[base + n + 1] = ']';
        for (size_t k = 0; k < n; k++) r->key[base + 1 + k] = word[n - 1 - k];
      }
    }
    if (v.kind == JS_OBJECT || v.kind == JS_ARRAY) {
      lengths[depth] = now, index[depth] = 0, open[depth] = v.kind == JS_ARRAY ? '[' : '{';
      if (++depth > JSON_MAX_DEPTH) return;
      continue;
    }
    double value = (double)NAN;
    if (v.kind == JS_NUMBER) json_double(&r->scan, v, &value);
    if (v.kind == JS_NUMBER || v.kind == JS_NULL) keep(r, line, now, value);
    if (depth == 0) return;
  }
}

static bool read_line(reading *r, line_values *line, const char *s, size_t n) {
  json_scan_init(&r->scan, s, n);
  r->has_step = r->is_event = false;
  r->event = (metric_event){.s_tgt = (double)NAN};
  line->n = 0;
  if (json_scan_next(&r->scan).kind != JS_OBJECT) return false;
  json_event e;
  while ((e = json_scan_next(&r->scan)).kind == JS_KEY) {
    bool is_c = json_is(&r->scan, e, "c"), is_step = json_is(&r->scan, e, "step"),
         is_event = json_is(&r->scan, e, "event"), is_target = json_is(&r->scan, e, "s_tgt");
    size_t length = append_key(r, 0, e);
    json_event v = json_scan_next(&r->scan);
    if (is_step && v.kind == JS_NUMBER)
      r->has_step = json_double(&r->scan, v, &r->step);
    else if (is_event)
      read_event_word(r, v);
    else if (is_c && v.kind == JS_OBJECT)
      read_c(r);
    else if (is_target && v.kind == JS_NUMBER)
      json_double(&r->scan, v, &r->event.s_tgt);
    else
      read_value(r, line, v, length);
  }
  return e.kind == JS_OBJECT_END && json_scan_next(&r->scan).kind == JS_END && r->has_step;
}

static void take_event(reading *r) {
  metrics_run *run = r->run;
  if (run->event_count == MOST_EVENTS) return;
  if (run->event_count == r->event_cap) {
    size_t cap = r->event_cap ? 2 * r->event_cap : 32;
    metric_event *grown = ARENA_ARRAY(&run->memory, metric_event, cap);
    if (run->event_count) memcpy(grown, run->events, run->event_count * sizeof *grown);
    run->events = grown, r->event_cap = cap;
  }
  r->event.step = r->step;
  run->events[run->event_count++] = r->event;
}

static void take_line(reading *r, const line_values *line) {
  metrics_run *run = r->run;
  if (r->is_event) {
    take_event(r);
    return;
  }
  if (run->steps && r->step <= run->last_step) run->backwards = true;
  run->steps++;
  run->last_step = r->step;
  r->hint = 0;
  for (size_t i = 0; i < line->n; i++) add_value(r, r->step, line->at[i].key, line->at[i].value);
}

static void read_lines(metrics_run *run, const mapped_file *map) {
  reading r = {.run = run};
  line_values line = {0};
  const char *at = (const char *)map->data, *end = at + map->size;
  for (uint64_t number = 1; at < end; number++) {
    const char *stop = memchr(at, '\n', (size_t)(end - at));
    size_t n = (size_t)((stop ? stop : end) - at);
    bool blank = n == 0 || (n == 1 && *at == '\r');
    if (!blank && read_line(&r, &line, at, n))
      take_line(&r, &line);
    else if (!blank && !stop)
      run->cut = true;
    else if (!blank && run->bad_lines++ == 0)
      run->first_bad = number;
    if (!stop) break;
    at = stop + 1;
  }
}

taper_status metrics_read(const char *path, metrics_run *out, taper_error *error) {
  mapped_file map = {0};
  *out = (metrics_run){0};
  size_t n = strlen(path), first;
  while (n > 1 && path[n - 1] == '/') n--;
  for (first = n; first > 0 && path[first - 1] != '/';) first--;
  out->path = arena_strndup(&out->memory, path, n);
  out->name = arena_strndup(&out->memory, path + first, n - first);
  TAPER_TRY(file_map(arena_printf(&out->memory, "%s/metrics.jsonl", out->path), &map, error));
  read_lines(out, &map);
  file_unmap(&map);
  if (out->steps) return TAPER_OK;
  return TAPER_FAIL(error, TAPER_INVALID,
                    "%s/metrics.jsonl: no line of it is a training step; name a run that has begun", out->path);
}
