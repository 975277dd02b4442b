/*
 * gpu-decode --device D --batch B --tokens N --rounds R --seconds S [--no-graph 1] LABEL=PACKAGE...
 * Microseconds of a decoding step of several packages side by side: every round times each of them once, N greedy tokens of B sequences from
 * an empty state. Writes one JSON object. Rounds end early when the seconds are over.
 */
#include "runtime/base/text.h"
#include "runtime/device.h"
#include "runtime/package.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_ROUNDS = 100, MOST_PACKAGES = 16, MOST_BATCH = 8, EXIT_USAGE = 2, EXIT_ENVIRONMENT = 3 };

typedef struct request {
  const char *device;
  uint64_t batch, tokens, rounds, seconds, no_graph;
} request;

typedef struct entry {
  const char *label, *path; /* label ends at '=' */
  device *d;
  device_state *state;
  int32_t *out; /* [batch][tokens] */
  double values[MOST_ROUNDS], load_seconds;
  uint32_t n;
  hash128 ids; /* of the last round's: equal in every round */
  taper_error error;
} entry;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static taper_status open_entry(entry *e, const request *q, taper_error *error) {
  taper_allocator a = memory_allocator((taper_allocator){0});
  taper_model_options o;
  package p = {0};
  taper_model_options_init(&o);
  o.device = q->device, o.no_graph = (int)q->no_graph;
  double start = now();
  TAPER_TRY(package_open(e->path, &a, NULL, NULL, &p, error));
  taper_status status = device_open(&p, &o, &a, &e->d, error);
  package_close(&p);
  if (status != TAPER_OK) return status;
  e->load_seconds = now() - start;
  if (!e->d->ops->decode)
    return TAPER_FAIL(error, TAPER_UNSUPPORTED, "device '%s' does not decode on its own", e->d->ops->name);
  if (q->tokens > e->d->facts.context)
    return TAPER_FAIL(error, TAPER_INVALID, "%s: %llu tokens do not fit the context of %u", e->path,
                      (unsigned long long)q->tokens, e->d->facts.context);
  e->out = calloc(q->batch * q->tokens, sizeof(int32_t));
  if (!e->out) return TAPER_FAIL(error, TAPER_NOMEM, "no memory");
  return e->d->ops->state_new(e->d, (uint32_t)q->batch, e->d->facts.context, &e->state, error);
}

static void close_entry(entry *e) {
  if (e->state) e->d->ops->state_free(e->d, e->state);
  if (e->d) e->d->ops->close(e->d);
  free(e->out);
}

static taper_status decode_once(entry *e, const request *q, double *out_seconds, taper_error *error) {
  taper_sampling greedy;
  device_decode_row rows[MOST_BATCH];
  taper_sampling_init(&greedy);
  greedy.temperature = 0;
  for (uint32_t i = 0; i < q->batch; i++)
    rows[i] = (device_decode_row){
        .token = (int32_t)((1 + i * 7) % e->d->facts.vocab), .slot = i, .sequence = i, .out = e->out + i * q->tokens};
  device_decode call = {
      .sampling = &greedy, .row = rows, .rows = (uint32_t)q->batch, .most = (uint32_t)q->tokens, .end_token = -1};
  double start = now();
  TAPER_TRY(e->d->ops->decode(e->d, e->state, &call, error));
  *out_seconds = now() - start;
  for (uint32_t i = 0; i < q->batch; i++) {
    if (rows[i].made != q->tokens)
      return TAPER_FAIL(error, TAPER_NUMERIC, "row %u made %u tokens of %llu (end %u)", i, rows[i].made,
                        (unsigned long long)q->tokens, rows[i].end);
  }
  return TAPER_OK;
}

/* The first one captures graphs and does not count. */
static taper_status measure(entry *e, const request *q, bool counts, taper_error *error) {
  double seconds = 0;
  TAPER_TRY(decode_once(e, q, &seconds, error));
  hash128 ids = hash_bytes(e->out, q->batch * q->tokens * sizeof(int32_t));
  if (e->ids.hex[0] && memcmp(ids.hex, e->ids.hex, 32) != 0)
    return TAPER_FAIL(error, TAPER_DEVICE, "the ids of this round are not those of the round before");
  e->ids = ids;
  if (counts) e->values[e->n++] = seconds * 1e6 / (double)q->tokens;
  return TAPER_OK;
}

static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static void put_number(text *t, const char *key, double value) {
  text_printf(t, ", \"%s\": ", key);
  text_put_double(t, value);
}

static void put_entry(text *t, entry *e) {
  text_puts(t, "{\"label\": ");
  text_put_quoted(t, e->label, strcspn(e->label, "="), true);
  text_printf(t, ", \"n\": %u", e->n);
  if (e->n) {
    qsort(e->values, e->n, sizeof(double), by_value);
    put_number(t, "median_us", (e->values[(e->n - 1) / 2] + e->values[e->n / 2]) / 2);
    put_number(t, "min_us", e->values[0]);
    put_number(t, "max_us", e->values[e->n - 1]);
  }
  if (e->d) {
    put_number(t, "load_s", e->load_seconds);
    text_printf(t, ", \"image\": \"%s\", \"weight_bytes\": %llu, \"bytes_per_token\": %llu", e->d->facts.image,
                (unsigned long long)e->d->facts.weight_bytes, (unsigned long long)e->d->facts.bytes_per_token);
  }
  if (e->ids.hex[0]) text_printf(t, ", \"ids\": \"%s\"", e->ids.hex);
  if (e->error.message[0]) {
    text_puts(t, ", \"error\": ");
    text_put_quoted(t, e->error.message, strlen(e->error.message), true);
  }
  text_puts(t, "}");
}

static void put_json(entry *entries, int count, const request *q) {
  text t = {0};
  text_puts(&t, "{\"device\": ");
  text_put_quoted(&t, q->device, strlen(q->device), true);
  text_printf(&t, ", \"batch\": %llu, \"tokens\": %llu, \"graph\": %s, \"rows\": [", (unsigned long long)q->batch,
              (unsigned long long)q->tokens, q->no_graph ? "false" : "true");
  for (int i = 0; i < count; i++) {
    if (i) text_puts(&t, ", ");
    put_entry(&t, &entries[i]);
  }
  text_puts(&t, "]}\n");
  if (t.data) fputs(t.data, stdout);
  text_free(&t);
}

static int compare(entry *entries, int count, const request *q) {
  int bad = 0;
  double end = now() + (double)q->seconds;
  for (int i = 0; i < count; i++) (void)open_entry(&entries[i], q, &entries[i].error);
  for (uint64_t round = 0; round <= q->rounds && (round < 2 || now() < end); round++) {
    for (int i = 0; i < count; i++) {
      if (!entries[i].error.message[0]) (void)measure(&entries[i], q, round > 0, &entries[i].error);
    }
  }
  put_json(entries, count, q);
  for (int i = 0; i < count; i++) {
    if (entries[i].error.message[0]) bad++, fprintf(stderr, "gpu-decode: error: %s\n", entries[i].error.message);
    close_entry(&entries[i]);
  }
  return bad == count ? EXIT_ENVIRONMENT : bad ? 1 : 0;
}

static bool parse_option(const char *key, const char *value, request *q) {
  struct {
    const char *key;
    uint64_t *number, most;
  } numbers[] = {{"--batch", &q->batch, MOST_BATCH},
                 {"--tokens", &q->tokens, 1u << 20},
                 {"--rounds", &q->rounds, MOST_ROUNDS},
                 {"--seconds", &q->seconds, 3600},
                 {"--no-graph", &q->no_graph, 1}};
  if (strcmp(key, "--device") == 0) return q->device = value, true;
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
    if (strcmp(key, numbers[i].key) != 0) continue;
    return number_parse_u64(value, strlen(value), numbers[i].number) && *numbers[i].number > 0 &&
           *numbers[i].number <= numbers[i].most;
  }
  return false;
}

int main(int argc, char **argv) {
  static entry entries[MOST_PACKAGES];
  request q = {.device = "cuda", .batch = 1, .tokens = 128, .rounds = 5, .seconds = 60};
  int count = 0, i = 1;
  bool good = true;
  for (; good && i + 1 < argc && argv[i][0] == '-'; i += 2) good = parse_option(argv[i], argv[i + 1], &q);
  for (; good && i < argc; i++, count++) {
    const char *equals = strchr(argv[i], '=');
    good = equals && count < MOST_PACKAGES;
    if (good) entries[count] = (entry){.label = argv[i], .path = equals + 1};
  }
  if (!good || count == 0) {
    fprintf(stderr, "usage: gpu-decode [--device D] [--batch B] [--tokens N] [--rounds R] [--seconds S] [--no-graph 1] "
                    "LABEL=PACKAGE...\n");
    return EXIT_USAGE;
  }
  return compare(entries, count, &q);
}
