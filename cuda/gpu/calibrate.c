/*
 * calibrate - measures what a decoding step on a GPU is made of, and writes JSON.
 *   gpu-calibrate --build SOURCE.cu FOLDER ARCH,ARCH...      compiles the kernels (needs NVRTC, no GPU)
 *   gpu-calibrate [--device cuda[:N]|sim] [--images FOLDER] [--source SOURCE.cu] [--rounds N] [--seconds S] [--only WORD]
 * Rounds are interleaved: every measurement once a round. On the simulator the exchange code is tested and the figures mean nothing.
 */
#include "cuda/gpu/calibrate.h"
#include "runtime/base/text.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_ROUNDS = 100, MOST_MEASURES = 64, EXIT_USAGE = 2, EXIT_ENVIRONMENT = 3 };

typedef struct row {
  double values[MOST_ROUNDS];
  uint32_t n;
  bool stopped;
  taper_error error;
} row;

typedef struct request {
  bool simulated;
  int ordinal;
  const char *images, *source, *only;
  uint64_t rounds, seconds;
} request;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static void put_pair(text *t, const char *key, const char *value) {
  text_printf(t, "\"%s\": ", key);
  text_put_quoted(t, value, strlen(value), true);
}

static void put_row(text *t, const rig_measure *m, row *w) {
  text_puts(t, "  {");
  put_pair(t, "name", m->name);
  text_puts(t, ", ");
  put_pair(t, "unit", m->unit);
  text_puts(t, ", ");
  put_pair(t, "what", m->what);
  text_printf(t, ", \"n\": %u", w->n);
  if (w->n) {
    qsort(w->values, w->n, sizeof(double), by_value);
    const double numbers[] = {(w->values[(w->n - 1) / 2] + w->values[w->n / 2]) / 2, w->values[0], w->values[w->n - 1]};
    static const char *const keys[] = {"median", "min", "max"};
    for (size_t i = 0; i < 3; i++) {
      text_printf(t, ", \"%s\": ", keys[i]);
      text_put_double(t, numbers[i]);
    }
  }
  if (w->error.message[0]) {
    text_puts(t, ", ");
    put_pair(t, w->error.status == TAPER_UNSUPPORTED ? "not_possible" : "error", w->error.message);
  }
  text_puts(t, "}");
}

static void put_json(const rig *r, row *rows, const char *only) {
  text t = {0};
  text_puts(&t, "{");
  put_pair(&t, "device", r->name);
  text_printf(&t, ", \"simulated\": %s, \"capability\": \"%d.%d\", \"multiprocessors\": %d, \"driver\": %d, ",
              r->driver.simulated ? "true" : "false", r->major, r->minor, r->multiprocessors, r->driver_version);
  put_pair(&t, "image", r->image);
  text_printf(&t, ", \"clock_khz\": %d, \"memory_clock_khz\": %d, \"memory_bus_bits\": %d, \"l2_bytes\": %d, ",
              r->clock_khz, r->memory_clock_khz, r->memory_bus_bits, r->l2_bytes);
  text_printf(&t, "\"width\": %u, \"blocks\": %u, \"exchange_rounds\": %u, \"rows\": [\n", r->width, r->blocks,
              r->rounds);
  bool first = true;
  for (size_t i = 0; i < rig_measure_count; i++) {
    if (only && !strstr(rig_measures[i].name, only)) continue;
    if (!first) text_puts(&t, ",\n");
    first = false;
    put_row(&t, &rig_measures[i], &rows[i]);
  }
  text_puts(&t, "\n]}\n");
  if (t.data) fputs(t.data, stdout);
  text_free(&t);
}

static int measure_all(const request *q) {
  static row rows[MOST_MEASURES];
  rig r;
  taper_error error = {0};
  if (rig_open(&r, q->simulated, q->ordinal, q->images, q->source, &error) != TAPER_OK) {
    fprintf(stderr, "gpu-calibrate: error: %s\n", error.message);
    rig_close(&r);
    return EXIT_ENVIRONMENT;
  }
  double end = now() + (double)q->seconds;
  for (uint64_t round = 0; round < q->rounds && (round == 0 || now() < end); round++) {
    for (size_t i = 0; i < rig_measure_count && i < MOST_MEASURES; i++) {
      row *w = &rows[i];
      double value = 0;
      if (w->stopped || (q->only && !strstr(rig_measures[i].name, q->only))) continue;
      taper_status status = rig_measures[i].run(&r, &rig_measures[i], &value, &w->error);
      w->stopped = status != TAPER_OK;
      if (!w->stopped) w->values[w->n++] = value;
    }
  }
  bool bad = false;
  for (size_t i = 0; i < rig_measure_count; i++) {
    if (!rows[i].stopped || rows[i].error.status == TAPER_UNSUPPORTED) continue;
    fprintf(stderr, "gpu-calibrate: error: %s: %s\n", rig_measures[i].name, rows[i].error.message);
    bad = true;
  }
  put_json(&r, rows, q->only);
  rig_close(&r);
  return bad ? 1 : 0;
}

static bool parse_device(const char *word, request *q) {
  uint64_t n = 0;
  q->simulated = strcmp(word, "sim") == 0;
  if (q->simulated || strcmp(word, "cuda") == 0) return true;
  if (strncmp(word, "cuda:", 5) != 0 || !number_parse_u64(word + 5, strlen(word + 5), &n) || n > 1000) return false;
  q->ordinal = (int)n;
  return true;
}

static bool parse_option(const char *key, const char *value, request *q) {
  if (strcmp(key, "--device") == 0) return parse_device(value, q);
  if (strcmp(key, "--images") == 0) return q->images = value, true;
  if (strcmp(key, "--source") == 0) return q->source = value, true;
  if (strcmp(key, "--only") == 0) return q->only = value, true;
  uint64_t *number = strcmp(key, "--rounds") == 0 ? &q->rounds : strcmp(key, "--seconds") == 0 ? &q->seconds : NULL;
  return number && number_parse_u64(value, strlen(value), number) && *number > 0 && *number <= MOST_ROUNDS;
}

int main(int argc, char **argv) {
  request q = {.rounds = 7, .seconds = 60};
  const char *device = getenv("TAPER_DEVICE");
  taper_error error = {0};
  if (argc == 5 && strcmp(argv[1], "--build") == 0) {
    if (rig_build(argv[2], argv[3], argv[4], &error) == TAPER_OK) return 0;
    fprintf(stderr, "gpu-calibrate: error: %s\n", error.message);
    return EXIT_ENVIRONMENT;
  }
  bool good = argc % 2 == 1 && (!device || parse_device(device, &q));
  for (int i = 1; good && i + 1 < argc; i += 2) good = parse_option(argv[i], argv[i + 1], &q);
  if (!good) {
    fprintf(stderr, "usage: gpu-calibrate [--device cuda[:N]|sim] [--images FOLDER] [--source FILE.cu] [--rounds N] "
                    "[--seconds S] [--only WORD]\n       gpu-calibrate --build FILE.cu FOLDER ARCH,ARCH...\n");
    return EXIT_USAGE;
  }
  return measure_all(&q);
}
