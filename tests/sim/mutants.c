/*
 * mutants PACKAGE TEMPORARY - judges mutants of a CUDA package's PTX on the simulator (mutate.py makes them). Reads frames "BYTES\n" + PTX on stdin
 * and answers each with one line: "refused TEXT" (it cannot be loaded), "fault TEXT", "wrong TEXT" (another result than that of the package as it
 * is) or "same". The first line is "ready" or "error TEXT".
 */
#include "runtime/base/safetensors.h"
#include "runtime/device.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SLOTS = 2, CONTEXT = 40, MOST_ROWS = 16, MADE = 7, DECODES = 8, MOST_TENSORS = 512 };
#define TOLERANCE 2e-5 /* of the largest logit */

/* Batches of the two sequences, one behind the other: every way that kernels take rows. */
static const struct {
  uint32_t rows[SLOTS];
  bool last_only;
} batches[] = {{{1, 1}, false}, {{3, 1}, true}, {{1, 0}, false}, {{1, 7}, false},
               {{3, 2}, true},  {{9, 7}, true}, {{4, 6}, false}};
enum { BATCHES = sizeof batches / sizeof *batches, LENGTH_0 = 22, LENGTH_1 = 24 /* behind them */ };

/* How ids are chosen, from the state behind the batches; `end`: the first id of the first decode ends it. */
static const struct {
  float temperature;
  uint32_t top_k;
  float top_p, min_p, penalty;
  uint32_t most;
  bool end;
} decodes[DECODES] = {
    {0, 0, 1, 0, 1, 4, false},       {0, 0, 1, 0, 1.5f, 3, true},      {0.9f, 20, 0.9f, 0.02f, 1.3f, 4, false},
    {1.2f, 0, 1, 0, 1, 3, false},    {0.7f, 5, 1, 0, 1, 3, false},     {1.5f, 0, 0.6f, 0, 1, 3, false},
    {1.5f, 0, 1, 0.2f, 1, 3, false}, {2, 30, 0.97f, 0, 1, MADE, false}};

typedef struct outcome {
  float *logits; /* [BATCHES][MOST_ROWS][vocab] */
  float *probes; /* [probes][rows of the last batch][width] */
  size_t logit_count, probe_count;
  int32_t ids[DECODES][SLOTS][MADE];
  uint32_t made[DECODES][SLOTS], end[DECODES][SLOTS];
} outcome;

static void outcome_free(outcome *o) {
  free(o->logits);
  free(o->probes);
  *o = (outcome){0};
}

static double farthest(const float *a, const float *b, size_t n) {
  double most = 0, far = 0;
  for (size_t i = 0; i < n; i++) {
    most = fmax(most, fabs((double)b[i]));
    far = isfinite(a[i]) ? fmax(far, fabs((double)a[i] - (double)b[i])) : INFINITY;
  }
  return far / (most > 0 ? most : 1);
}

/* What is wrong with the logits of a batch, the ids of a decode; "" where nothing is. */
static const char *wrong_batch(const device *d, const outcome *got, const outcome *want, uint32_t k) {
  const size_t n = (size_t)MOST_ROWS * d->facts.vocab;
  return want && !(farthest(got->logits + k * n, want->logits + k * n, n) <= TOLERANCE) ? "logits" : "";
}
static const char *wrong_decode(const outcome *got, const outcome *want, uint32_t k) {
  return want && (memcmp(got->ids[k], want->ids[k], sizeof got->ids[k]) != 0 ||
                  memcmp(got->made[k], want->made[k], sizeof got->made[k]) != 0 ||
                  memcmp(got->end[k], want->end[k], sizeof got->end[k]) != 0)
             ? "ids"
             : "";
}

static int32_t id_at(const device *d, uint32_t i) { return (int32_t)((i * 2654435761u >> 7) % d->facts.vocab); }

/* Ends at the first batch that differs from `want` (NULL: there is none yet): *wrong says in what. */
static taper_status forward(device *d, device_state *s, const outcome *want, outcome *o, const char **wrong,
                            taper_error *error) {
  uint32_t length[SLOTS] = {0};
  for (uint32_t k = 0; k < BATCHES && !**wrong; k++) {
    int32_t token[MOST_ROWS], pos[MOST_ROWS], slot[MOST_ROWS], out_row[MOST_ROWS];
    float *logits[MOST_ROWS];
    device_batch b = {.token = token, .pos = pos, .slot = slot, .out_row = out_row, .logits = logits};
    for (uint32_t i = 0; i < SLOTS; i++) {
      for (uint32_t j = 0; j < batches[k].rows[i]; j++, b.rows++) {
        slot[b.rows] = (int32_t)i, pos[b.rows] = (int32_t)length[i]++, token[b.rows] = id_at(d, k * 31 + b.rows);
        if (batches[k].last_only && j + 1 < batches[k].rows[i]) continue;
        logits[b.out_rows] = o->logits + ((size_t)k * MOST_ROWS + b.out_rows) * d->facts.vocab;
        out_row[b.out_rows++] = (int32_t)b.rows;
      }
    }
    b.probe_rows = k == BATCHES - 1 ? o->probes : NULL;
    TAPER_TRY(d->ops->run(d, s, &b, error));
    *wrong = wrong_batch(d, o, want, k);
  }
  if (want && !**wrong && !(farthest(o->probes, want->probes, o->probe_count) <= TOLERANCE)) *wrong = "streams";
  return TAPER_OK;
}

static taper_status decode(device *d, device_state *s, const outcome *want, outcome *o, const char **wrong,
                           taper_error *error) {
  int32_t history[SLOTS][CONTEXT];
  for (uint32_t i = 0; i < CONTEXT; i++) history[0][i] = id_at(d, i), history[1][i] = id_at(d, 40 + i / 2);
  for (uint32_t k = 0; k < DECODES && !**wrong; k++) {
    taper_sampling sampling;
    device_decode_row rows[SLOTS];
    taper_sampling_init(&sampling);
    sampling.temperature = decodes[k].temperature, sampling.top_k = decodes[k].top_k, sampling.top_p = decodes[k].top_p;
    sampling.min_p = decodes[k].min_p, sampling.repeat_penalty = decodes[k].penalty, sampling.seed = 5 + k;
    sampling.repeat_last = 9;
    for (uint32_t i = 0; i < SLOTS; i++)
      rows[i] = (device_decode_row){.token = id_at(d, 90 + i),
                                    .slot = i,
                                    .length = i ? LENGTH_1 : LENGTH_0,
                                    .sequence = i,
                                    .history = history[i],
                                    .out = o->ids[k][i]};
    device_decode call = {.sampling = &sampling,
                          .row = rows,
                          .rows = SLOTS,
                          .most = decodes[k].most,
                          .end_token = decodes[k].end ? o->ids[0][0][0] : -1};
    TAPER_TRY(d->ops->decode(d, s, &call, error));
    for (uint32_t i = 0; i < SLOTS; i++) o->made[k][i] = rows[i].made, o->end[k][i] = rows[i].end;
    *wrong = wrong_decode(o, want, k);
  }
  return TAPER_OK;
}

/* *opened: the kernels were loaded. */
static taper_status execute(const char *path, const outcome *want, outcome *o, bool *opened, const char **wrong,
                            taper_error *error) {
  taper_allocator a = memory_allocator((taper_allocator){0});
  taper_model_options options;
  package p = {0};
  device *d = NULL;
  device_state *s = NULL;
  taper_model_options_init(&options);
  options.device = "sim", options.gemm = "generated";
  TAPER_TRY(package_open(path, &a, NULL, NULL, &p, error));
  taper_status status = device_open(&p, &options, &a, &d, error);
  package_close(&p);
  if (status != TAPER_OK) return status;
  *opened = true;
  o->logit_count = (size_t)BATCHES * MOST_ROWS * d->facts.vocab;
  o->probe_count = (size_t)d->facts.probes * MOST_ROWS * d->facts.width;
  o->logits = calloc(o->logit_count, sizeof(float));
  o->probes = o->probe_count ? calloc(o->probe_count, sizeof(float)) : NULL;
  status = d->ops->state_new(d, SLOTS, CONTEXT, &s, error);
  if (status == TAPER_OK) status = forward(d, s, want, o, wrong, error);
  if (status == TAPER_OK && d->ops->decode) status = decode(d, s, want, o, wrong, error);
  if (s) d->ops->state_free(d, s);
  d->ops->close(d);
  return status;
}

/* Another copy of the package with `ptx` in the place of its image. */
static taper_status with_image(const st_file *f, const char *path, const void *ptx, size_t bytes, taper_error *error) {
  st_source tensors[MOST_TENSORS];
  st_pair metadata[64];
  size_t count = 0;
  hash128 hash = hash_bytes(ptx, bytes);
  for (size_t i = 0; i < f->metadata_count && i < 64; i++) metadata[i] = f->metadata[i];
  for (size_t i = 0; i < f->count && count < MOST_TENSORS; i++) {
    const st_tensor *t = &f->tensors[i];
    if (strncmp(t->name, "__pad.", 6) == 0) continue;
    bool image = strncmp(t->name, "taper.image.", 12) == 0;
    st_source *to = &tensors[count++];
    *to = (st_source){.name = t->name, .dtype = t->dtype, .rank = t->rank, .data = image ? ptx : t->data};
    memcpy(to->shape, t->shape, sizeof to->shape);
    if (!image) continue;
    to->shape[0] = bytes;
    for (size_t k = 0; k < f->metadata_count; k++) {
      if (strcmp(metadata[k].key, "taper.hashes") != 0) continue;
      char *text = strdup(metadata[k].value), *at = text ? strstr(text, t->name) : NULL;
      if (!at) return free(text), TAPER_FAIL(error, TAPER_INVALID, "no hash of %s", t->name);
      at += strlen(t->name);
      at += strcspn(at, "0123456789abcdef");
      memcpy(at, hash.hex, 32);
      metadata[k].value = text; /* lives as long as this short program */
    }
  }
  return st_write(path, tensors, count, metadata, f->metadata_count, 64, error);
}

static bool next_frame(char **out, size_t *out_bytes) {
  unsigned long bytes = 0;
  if (scanf("%lu", &bytes) != 1 || getchar() != '\n') return false;
  *out = malloc(bytes + 1);
  if (!*out || fread(*out, 1, bytes, stdin) != bytes) return false;
  (*out)[bytes] = '\0';
  *out_bytes = bytes + 1;
  return true;
}

static void try_mutant(const st_file *f, const char *path, const char *ptx, size_t bytes, const outcome *want) {
  taper_error error = {0};
  outcome got = {0};
  bool opened = false;
  const char *wrong = "";
  taper_status status = with_image(f, path, ptx, bytes, &error);
  if (status == TAPER_OK) status = execute(path, want, &got, &opened, &wrong, &error);
  if (status != TAPER_OK)
    printf("%s %s\n", opened ? "fault" : "refused", error.message);
  else
    printf(*wrong ? "wrong %s\n" : "same\n", wrong);
  fflush(stdout);
  outcome_free(&got);
}

int main(int argc, char **argv) {
  st_file f = {0};
  taper_error error = {0};
  outcome want = {0};
  bool opened = false;
  const char *wrong = "";
  char *ptx;
  size_t bytes;
  if (argc != 3) return 2;
  if (st_open(argv[1], &f, &error) != TAPER_OK || execute(argv[1], NULL, &want, &opened, &wrong, &error) != TAPER_OK) {
    printf("error %s\n", error.message);
    return 1;
  }
  printf("ready\n");
  fflush(stdout);
  while (next_frame(&ptx, &bytes)) {
    try_mutant(&f, argv[2], ptx, bytes, &want);
    free(ptx);
  }
  outcome_free(&want);
  st_close(&f);
  return 0;
}
