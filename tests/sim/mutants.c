/*
 * mutants PACKAGE TEMPORARY - judges mutants of a CUDA package's PTX on the simulator (mutate.py makes them). Reads frames "BYTES\n" + PTX on stdin
 * and answers each with one line: "refused TEXT" (it cannot be loaded), "fault TEXT", "wrong TEXT" (another result than that of the package as it
 * is) or "same". The first line is "ready KERNEL_LAUNCHES_OK" or "error TEXT".
 */
#include "runtime/abi/cuda_abi.h"
#include "runtime/base/safetensors.h"
#include "runtime/device.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SLOTS = 2, LONG = 11, SHORT = 3, ROWS = LONG + SHORT, MADE = 4, DECODES = 2, MOST_TENSORS = 512 };
#define TOLERANCE 2e-5 /* of the largest logit */

typedef struct outcome {
  float *logits; /* [ROWS + SLOTS][vocab] */
  float *probes; /* [probes][ROWS][width] */
  size_t logit_count, probe_count;
  int32_t ids[DECODES][SLOTS][MADE];
  uint32_t made[DECODES][SLOTS], end[DECODES][SLOTS];
} outcome;

static void outcome_free(outcome *o) {
  free(o->logits);
  free(o->probes);
  *o = (outcome){0};
}

static int32_t id_at(const device *d, uint32_t i) { return (int32_t)((i * 2654435761u >> 7) % d->facts.vocab); }

/* Eleven tokens of one sequence and three of another at once, then one more of each. */
static taper_status forward(device *d, device_state *s, uint32_t longer, uint32_t shorter, outcome *o,
                            taper_error *error) {
  int32_t token[ROWS], pos[ROWS], slot[ROWS], out_row[ROWS];
  float *logits[ROWS];
  const uint32_t rows = longer + shorter;
  for (uint32_t i = 0; i < rows; i++) {
    token[i] = id_at(d, i), out_row[i] = (int32_t)i, logits[i] = o->logits + (size_t)i * d->facts.vocab;
    slot[i] = i >= longer, pos[i] = (int32_t)(i < longer ? i : i - longer);
  }
  device_batch b = {.rows = rows,
                    .out_rows = rows,
                    .token = token,
                    .pos = pos,
                    .slot = slot,
                    .out_row = out_row,
                    .logits = logits,
                    .probe_rows = o->probes};
  TAPER_TRY(d->ops->run(d, s, &b, error));
  if (longer + 1 > d->facts.context) return TAPER_OK;
  for (uint32_t i = 0; i < SLOTS; i++) {
    token[i] = id_at(d, rows + i), out_row[i] = (int32_t)i, slot[i] = (int32_t)i;
    pos[i] = (int32_t)(i ? shorter : longer), logits[i] = o->logits + (size_t)(rows + i) * d->facts.vocab;
  }
  b.rows = b.out_rows = SLOTS, b.probe_rows = NULL;
  return d->ops->run(d, s, &b, error);
}

/* Greedy, then sampled with every filter; behind what forward() left, as far as the context goes. */
static taper_status decode(device *d, device_state *s, uint32_t longer, uint32_t shorter, outcome *o,
                           taper_error *error) {
  int32_t history[SLOTS][LONG + 1];
  for (uint32_t i = 0; i <= LONG; i++) history[0][i] = id_at(d, i), history[1][i] = id_at(d, longer + i);
  for (uint32_t k = 0; k < DECODES; k++) {
    taper_sampling sampling;
    device_decode_row rows[SLOTS];
    taper_sampling_init(&sampling);
    sampling.temperature = k ? 0.9f : 0, sampling.repeat_penalty = k ? 1.3f : 1, sampling.seed = 5;
    sampling.top_k = 20, sampling.top_p = 0.9f, sampling.min_p = 0.02f;
    for (uint32_t i = 0; i < SLOTS; i++)
      rows[i] = (device_decode_row){.token = id_at(d, 90 + i),
                                    .slot = i,
                                    .length = i ? shorter : longer,
                                    .sequence = i,
                                    .history = history[i],
                                    .out = o->ids[k][i]};
    device_decode call = {.sampling = &sampling, .row = rows, .rows = SLOTS, .most = MADE, .end_token = -1};
    TAPER_TRY(d->ops->decode(d, s, &call, error));
    for (uint32_t i = 0; i < SLOTS; i++) o->made[k][i] = rows[i].made, o->end[k][i] = rows[i].end;
  }
  return TAPER_OK;
}

/* *opened: the kernels were loaded. */
static taper_status execute(const char *path, outcome *o, bool *opened, taper_error *error) {
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
  uint32_t context = d->facts.context, longer = context > LONG ? LONG : context > 1 ? context - 1 : 1;
  uint32_t shorter = longer < SHORT ? longer : SHORT;
  o->logit_count = (size_t)(longer + shorter + (longer < context ? SLOTS : 0)) * d->facts.vocab;
  o->probe_count = (size_t)d->facts.probes * (longer + shorter) * d->facts.width;
  o->logits = calloc(o->logit_count, sizeof(float));
  o->probes = o->probe_count ? calloc(o->probe_count, sizeof(float)) : NULL;
  status = d->ops->state_new(d, SLOTS, context, &s, error);
  if (status == TAPER_OK) status = forward(d, s, longer, shorter, o, error);
  if (status == TAPER_OK && d->ops->decode) status = decode(d, s, longer, shorter, o, error);
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

static double farthest(const float *a, const float *b, size_t n) {
  double most = 0, far = 0;
  for (size_t i = 0; i < n; i++) {
    most = fmax(most, fabs((double)b[i]));
    far = isfinite(a[i]) ? fmax(far, fabs((double)a[i] - (double)b[i])) : INFINITY;
  }
  return far / (most > 0 ? most : 1);
}

static void judge(const outcome *got, const outcome *want) {
  double logits = farthest(got->logits, want->logits, want->logit_count);
  double probes = farthest(got->probes, want->probes, want->probe_count);
  if (!(logits <= TOLERANCE))
    printf("wrong logits by %.3g\n", logits);
  else if (!(probes <= TOLERANCE))
    printf("wrong streams by %.3g\n", probes);
  else if (memcmp(got->ids, want->ids, sizeof want->ids) != 0 ||
           memcmp(got->made, want->made, sizeof want->made) != 0 || memcmp(got->end, want->end, sizeof want->end) != 0)
    printf("wrong ids\n");
  else
    printf("same\n");
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
  taper_status status = with_image(f, path, ptx, bytes, &error);
  if (status == TAPER_OK) status = execute(path, &got, &opened, &error);
  if (status == TAPER_OK)
    judge(&got, want);
  else
    printf("%s %s\n", opened ? "fault" : "refused", error.message);
  fflush(stdout);
  outcome_free(&got);
}

int main(int argc, char **argv) {
  st_file f = {0};
  taper_error error = {0};
  outcome want = {0};
  bool opened = false;
  char *ptx;
  size_t bytes;
  if (argc != 3) return 2;
  if (st_open(argv[1], &f, &error) != TAPER_OK || execute(argv[1], &want, &opened, &error) != TAPER_OK) {
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
