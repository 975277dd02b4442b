/*
 * mutants PACKAGE TEMPORARY - judges mutants of a CUDA package's PTX on the simulator (mutate.py makes them). Reads frames "BYTES\n" + PTX on stdin
 * and answers each with one line: "refused TEXT" (it cannot be loaded), "fault TEXT", "wrong TEXT" (another result than that of the package as it
 * is) or "same". The first line is "ready" or "error TEXT".
 */
#include "cuda/device_priv.h"
#include "runtime/base/safetensors.h"
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SLOTS = 3, STATES = 2, MOST_ROWS = 16, MADE = 5, MOST_TENSORS = 512, MOST_RANGES = 64 };
#define TOLERANCE 2e-5 /* of the largest number */

/* Contexts of the states: attention in one part, in three. */
static const uint32_t contexts[STATES] = {64, 140};
static const uint32_t slot_of[SLOTS] = {2, 0, 1}; /* of the sequences */

/* Batches of the sequences, one behind the other: every way that kernels take rows. */
static const struct {
  uint32_t state, rows[SLOTS];
  bool last_only, loud; /* loud: the last row of sequence i has token LOUD + i */
} batches[] = {{0, {1, 1, 0}, false, false}, {0, {3, 1, 0}, true, false},  {0, {1, 0, 1}, false, false},
               {0, {1, 7, 0}, false, false}, {0, {3, 2, 0}, true, false},  {0, {9, 7, 0}, true, false},
               {0, {16, 0, 0}, true, false}, {0, {4, 6, 2}, false, false}, {0, {15, 0, 1}, true, false},
               {0, {2, 0, 1}, true, false},  {1, {5, 1, 0}, false, false}, {1, {0, 0, 2}, true, false},
               {1, {9, 4, 1}, false, false}, {1, {6, 1, 1}, true, false},  {1, {1, 2, 1}, false, true},
               {1, {1, 1, 1}, false, false}};
enum { BATCHES = sizeof batches / sizeof *batches, LOUD = 7 };

/* How ids are chosen, from the states behind the batches; `end`: the first id of the first decode ends it. */
static const struct {
  uint32_t state;
  float temperature;
  uint32_t top_k;
  float top_p, min_p, penalty;
  uint32_t most;
  bool end;
} decodes[] = {{0, 0, 0, 1, 0, 1, 4, false},
               {0, 0, 0, 1, 0, 1.5f, 3, true},
               {0, 0.9f, 20, 0.9f, 0.02f, 1.3f, 4, false},
               {0, 1.2f, 0, 1, 0, 1, 2, false},
               {0, 0.7f, 5, 1, 0, 1, 2, false},
               {0, 1.5f, 0, 0.6f, 0, 1, 2, false},
               {0, 1.5f, 0, 1, 0.2f, 1, 2, false},
               {0, 2, 30, 0.97f, 0, 1, MADE, false},
               {1, 0, 0, 1, 0, 1, 2, false},
               {1, 3, 1, 1, 0, 1, 3, false},
               {1, 4, 0, 0, 0, 1, 1, false},
               {1, 2, 1200, 1, 0, 1, 1, false},
               {1, 2, 0, 0.7f, 0, 1.1f, 1, false},
               {1, 5, 1100, 0.9f, 0.5f, 1, 1, false},
               {1, 2, 290, 0.9999f, 0, 1, 2, false}};
enum { DECODES = sizeof decodes / sizeof *decodes };

typedef struct outcome {
  float *logits; /* [BATCHES][MOST_ROWS][vocab] */
  float *probes; /* [probes][rows of the last batch][width] */
  size_t logit_count, probe_count;
  int32_t ids[DECODES][SLOTS][MADE];
  uint32_t made[DECODES][SLOTS], end[DECODES][SLOTS];
  unsigned char *written[BATCHES + DECODES]; /* which bytes of the device's memory hold something */
  float *caches[STATES];                     /* behind the batches */
} outcome;

static void outcome_free(outcome *o) {
  free(o->logits);
  free(o->probes);
  for (uint32_t i = 0; i < BATCHES + DECODES; i++) free(o->written[i]);
  for (uint32_t i = 0; i < STATES; i++) free(o->caches[i]);
  *o = (outcome){0};
}

/* One execution: `want` NULL where there is nothing to compare with yet; `wrong`: in what it differs, "": in nothing. */
typedef struct trial {
  device *d;
  device_state *state[STATES];
  uint32_t length[STATES][SLOTS];
  const outcome *want;
  outcome *got;
  const char *wrong;
} trial;

static double farthest(const float *a, const float *b, size_t n) {
  double most = 0, far = 0;
  for (size_t i = 0; i < n; i++) {
    if (memcmp(a + i, b + i, sizeof *a) == 0 && !isfinite(b[i])) continue; /* memory that was never written */
    most = fmax(most, fabs((double)b[i]));
    far = isfinite(a[i]) ? fmax(far, fabs((double)a[i] - (double)b[i])) : (double)INFINITY;
  }
  return far / (most > 0 ? most : 1);
}

static void judge(trial *t, bool same, const char *what) {
  if (t->want && !same && !*t->wrong) t->wrong = what;
}

/* ---- what lies in the device's memory ---- */

static uint64_t cache_bytes(const trial *t, uint32_t state, uint32_t i) {
  const launch_state *s = &((const cuda_device *)t->d)->table.states.at[i];
  return (uint64_t)s->heads * s->dim * contexts[state] * SLOTS * sizeof(float);
}

/* The passing memory of calls and the caches of a state; how many ranges there are. */
static uint32_t ranges_of(const trial *t, uint32_t state, cuda_range *out) {
  const cuda_device *d = (const cuda_device *)t->d;
  uint32_t n = 0;
  for (uint32_t i = 0; i < d->passing_count; i++) out[n++] = d->passing[i];
  for (uint32_t i = 0; i < d->table.states.count && n < MOST_RANGES; i++)
    out[n++] = (cuda_range){t->state[state]->state[i], cache_bytes(t, state, i)};
  return n;
}

/* Copies `n` ranges, one behind the other, of malloc, with which of the bytes were written. */
static taper_status look(const trial *t, const cuda_range *range, uint32_t n, unsigned char **out,
                         unsigned char **out_written, taper_error *error) {
  cuda_device *d = (cuda_device *)t->d;
  CUresult (*look_at)(CUdeviceptr, size_t, void *, unsigned char *);
  void *symbol = dlsym(d->driver.library, "taper_sim_look");
  size_t bytes = 0, at = 0;
  memcpy(&look_at, &symbol, sizeof look_at);
  for (uint32_t i = 0; i < n; i++) bytes += range[i].bytes;
  *out = malloc(bytes + 1), *out_written = malloc(bytes + 1);
  if (!symbol || !*out || !*out_written) return TAPER_FAIL(error, TAPER_NOMEM, "no look at the memory");
  TAPER_TRY(cuda_enter(d, error));
  taper_status status = TAPER_OK;
  for (uint32_t i = 0; i < n && status == TAPER_OK; at += range[i++].bytes)
    status = cuda_driver_check(&d->driver, look_at(range[i].at, range[i].bytes, *out + at, *out_written + at), "look",
                               error);
  cuda_leave(d);
  return status;
}

/* The right kernels write these bytes and no other ones. */
static taper_status compare_written(trial *t, uint32_t state, uint32_t k, taper_error *error) {
  cuda_range range[MOST_RANGES];
  unsigned char *bytes = NULL;
  size_t total = 0;
  const uint32_t n = ranges_of(t, state, range);
  for (uint32_t i = 0; i < n; i++) total += range[i].bytes;
  const taper_status status = look(t, range, n, &bytes, &t->got->written[k], error);
  free(bytes);
  if (status == TAPER_OK && t->want) judge(t, memcmp(t->got->written[k], t->want->written[k], total) == 0, "memory");
  return status;
}

static taper_status compare_caches(trial *t, uint32_t state, taper_error *error) {
  cuda_range range[MOST_RANGES];
  unsigned char *bytes = NULL, *written = NULL;
  const uint32_t n = ranges_of(t, state, range), passing = ((const cuda_device *)t->d)->passing_count;
  const taper_status status = look(t, range + passing, n - passing, &bytes, &written, error);
  free(written);
  t->got->caches[state] = (float *)(void *)bytes;
  const float *got = t->got->caches[state], *want = t->want ? t->want->caches[state] : NULL;
  for (uint32_t i = passing; status == TAPER_OK && want && i < n; i++) {
    const size_t floats = range[i].bytes / sizeof(float);
    judge(t, farthest(got, want, floats) <= TOLERANCE, "caches");
    got += floats, want += floats;
  }
  return status;
}

/* ---- batches ---- */

static int32_t id_at(const device *d, uint32_t i) { return (int32_t)((i * 2654435761u >> 7) % d->facts.vocab); }

static taper_status run_batch(trial *t, uint32_t k, taper_error *error) {
  int32_t token[MOST_ROWS], pos[MOST_ROWS], slot[MOST_ROWS], out_row[MOST_ROWS];
  float *logits[MOST_ROWS];
  const uint32_t vocab = t->d->facts.vocab, state = batches[k].state;
  const size_t n = (size_t)MOST_ROWS * vocab;
  device_batch b = {.token = token, .pos = pos, .slot = slot, .out_row = out_row, .logits = logits};
  for (uint32_t i = 0; i < SLOTS; i++) {
    for (uint32_t j = 0; j < batches[k].rows[i]; j++, b.rows++) {
      slot[b.rows] = (int32_t)slot_of[i], pos[b.rows] = (int32_t)t->length[state][i]++;
      token[b.rows] = batches[k].loud && j + 1 == batches[k].rows[i] ? LOUD + (int32_t)i : id_at(t->d, k * 31 + b.rows);
      if (batches[k].last_only && j + 1 < batches[k].rows[i]) continue;
      logits[b.out_rows] = t->got->logits + k * n + (size_t)b.out_rows * vocab;
      out_row[b.out_rows++] = (int32_t)b.rows;
    }
  }
  b.probe_rows = k == BATCHES - 1 ? t->got->probes : NULL;
  TAPER_TRY(t->d->ops->run(t->d, t->state[state], &b, error));
  judge(t, t->want && farthest(t->got->logits + k * n, t->want->logits + k * n, n) <= TOLERANCE, "logits");
  return compare_written(t, state, k, error);
}

/* Ends at the first batch that differs. */
static taper_status forward(trial *t, taper_error *error) {
  for (uint32_t k = 0; k < BATCHES && !*t->wrong; k++) TAPER_TRY(run_batch(t, k, error));
  if (t->want) judge(t, farthest(t->got->probes, t->want->probes, t->got->probe_count) <= TOLERANCE, "streams");
  for (uint32_t i = 0; i < STATES && !*t->wrong; i++) TAPER_TRY(compare_caches(t, i, error));
  return TAPER_OK;
}

static taper_status run_decode(trial *t, uint32_t k, taper_error *error) {
  const uint32_t state = decodes[k].state;
  int32_t history[SLOTS][64];
  taper_sampling sampling;
  device_decode_row rows[SLOTS];
  outcome *o = t->got;
  taper_sampling_init(&sampling);
  sampling.temperature = decodes[k].temperature, sampling.top_k = decodes[k].top_k, sampling.top_p = decodes[k].top_p;
  sampling.min_p = decodes[k].min_p, sampling.repeat_penalty = decodes[k].penalty, sampling.seed = 5 + k;
  sampling.repeat_last = k % 2 ? 50 : 9;
  for (uint32_t i = 0; i < SLOTS; i++) {
    for (uint32_t j = 0; j < 64; j++) history[i][j] = id_at(t->d, 40 * i + (i ? j / 2 : j % 37));
    rows[i] = (device_decode_row){.token = id_at(t->d, 90 + i),
                                  .slot = slot_of[i],
                                  .length = t->length[state][i],
                                  .sequence = i,
                                  .history = history[i],
                                  .out = o->ids[k][i]};
  }
  device_decode call = {.sampling = &sampling,
                        .row = rows,
                        .rows = k % 4 == 3 ? SLOTS : SLOTS - 1,
                        .most = decodes[k].most,
                        .end_token = decodes[k].end ? o->ids[0][0][0] : -1};
  TAPER_TRY(t->d->ops->decode(t->d, t->state[state], &call, error));
  for (uint32_t i = 0; i < call.rows; i++) o->made[k][i] = rows[i].made, o->end[k][i] = rows[i].end;
  if (t->want)
    judge(t,
          memcmp(o->ids[k], t->want->ids[k], sizeof o->ids[k]) == 0 &&
              memcmp(o->made[k], t->want->made[k], sizeof o->made[k]) == 0 &&
              memcmp(o->end[k], t->want->end[k], sizeof o->end[k]) == 0,
          "ids");
  return compare_written(t, state, BATCHES + k, error);
}

static taper_status run_all(trial *t, taper_error *error) {
  outcome *o = t->got;
  device *d = t->d;
  o->logit_count = (size_t)BATCHES * MOST_ROWS * d->facts.vocab;
  o->probe_count = (size_t)d->facts.probes * MOST_ROWS * d->facts.width;
  o->logits = calloc(o->logit_count, sizeof(float));
  o->probes = calloc(o->probe_count + 1, sizeof(float));
  if (!o->logits || !o->probes) return TAPER_FAIL(error, TAPER_NOMEM, "logits");
  for (uint32_t i = 0; i < STATES; i++) TAPER_TRY(d->ops->state_new(d, SLOTS, contexts[i], &t->state[i], error));
  TAPER_TRY(forward(t, error));
  for (uint32_t k = 0; k < DECODES && !*t->wrong && d->ops->decode; k++) TAPER_TRY(run_decode(t, k, error));
  return TAPER_OK;
}

/* *opened: the kernels were loaded. */
static taper_status execute(const char *path, const outcome *want, outcome *o, bool *opened, const char **wrong,
                            taper_error *error) {
  taper_allocator a = memory_allocator((taper_allocator){0});
  taper_model_options options;
  package p = {0};
  trial t = {.want = want, .got = o, .wrong = ""};
  taper_model_options_init(&options);
  options.device = "sim", options.gemm = "generated", options.chunk_rows = MOST_ROWS;
  TAPER_TRY(package_open(path, &a, NULL, NULL, &p, error));
  taper_status status = device_open(&p, &options, &a, &t.d, error);
  package_close(&p);
  if (status != TAPER_OK) return status;
  *opened = true;
  status = run_all(&t, error);
  *wrong = t.wrong;
  for (uint32_t i = 0; i < STATES; i++)
    if (t.state[i]) t.d->ops->state_free(t.d, t.state[i]);
  t.d->ops->close(t.d);
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
