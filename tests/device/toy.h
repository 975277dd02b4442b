/* toy.h - packages of the hand-written model of toy_image.c, and its plain double evaluation. For the tests of the
 * runtime. */
#ifndef TAPER_TESTS_DEVICE_TOY_H
#define TAPER_TESTS_DEVICE_TOY_H

#include "runtime/base/file.h"
#include "runtime/base/hash.h"
#include "runtime/base/philox.h"
#include "runtime/base/safetensors.h"
#include "runtime/base/seal.h"
#include "runtime/base/text.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TOY_D = 22, TOY_V = 300, TOY_CONTEXT = 50, TOY_NAN = 299, TOY_MAX_META = 24, TOY_MAX_TENSORS = 20 };

typedef struct toy {
  float emb[TOY_V * TOY_D], head[TOY_V * TOY_D], scale[TOY_D];
  char *image;
  size_t image_bytes;
  char hashes[2048];
  st_pair meta[TOY_MAX_META];
  size_t meta_count;
  st_source tensors[TOY_MAX_TENSORS];
  size_t tensor_count;
} toy;

static char toy_folder[64];

/* A path in a folder of this process's own; the text lives until the third next call. */
static inline const char *toy_path(const char *name) {
  static char paths[3][128];
  static int next;
  if (!toy_folder[0]) {
    snprintf(toy_folder, sizeof(toy_folder), "/tmp/taper-test-XXXXXX");
    if (!mkdtemp(toy_folder)) abort();
  }
  char *path = paths[next++ % 3];
  snprintf(path, sizeof(paths[0]), "%s/%s", toy_folder, name);
  return path;
}

static inline void toy_remove_folder(void) {
  pid_t child = fork();
  if (child == 0) execlp("rm", "rm", "-rf", toy_folder, (char *)NULL);
  if (child > 0) waitpid(child, NULL, 0);
}

/* Compiles a source with one mistake (0: none) to *out_image (malloc); hosted: it needs the C library. Run from the root of
   the source tree. */
static inline void toy_compile(const char *source, bool hosted, int wrong, char **out_image, size_t *out_bytes) {
  char define[32];
  const char *path = toy_path("image.so");
  snprintf(define, sizeof(define), "-DTOY_WRONG=%d", wrong);
  pid_t child = fork();
  if (child == 0) {
    execlp("gcc", "gcc", "-std=c11", "-O1", "-w", "-I.", define, "-shared", "-fPIC", "-fno-stack-protector",
           hosted ? "-fhosted" : "-ffreestanding", "-Wl,-z,defs", "-fvisibility=hidden", source, "-o", path,
           hosted ? "-lm" : "-nostdlib", (char *)NULL);
    _exit(127);
  }
  int state = 1;
  taper_error error;
  if (child < 0 || waitpid(child, &state, 0) < 0 || state != 0 ||
      file_read(path, 1 << 24, out_image, out_bytes, &error) != TAPER_OK)
    abort();
}

static inline void toy_set(toy *t, const char *key, const char *value) {
  size_t i = 0;
  while (i < t->meta_count && strcmp(t->meta[i].key, key) != 0) i++;
  if (i == t->meta_count) t->meta_count++;
  t->meta[i] = (st_pair){key, value};
}

static inline void toy_unset(toy *t, const char *key) {
  for (size_t i = 0; i < t->meta_count; i++) {
    if (strcmp(t->meta[i].key, key) == 0) t->meta[i] = t->meta[--t->meta_count];
  }
}

static inline void toy_tensor(toy *t, const char *name, st_dtype type, uint64_t rows, uint64_t cols, const void *data) {
  t->tensors[t->tensor_count++] =
      (st_source){.name = name, .dtype = type, .rank = rows ? 2 : 1, .shape = {rows ? rows : cols, cols}, .data = data};
}

static inline void toy_hash(toy *t) {
  size_t used = 0;
  for (size_t i = 0; i < t->tensor_count; i++) {
    const st_source *s = &t->tensors[i];
    size_t bytes = st_dtype_size(s->dtype) * s->shape[0] * (s->rank == 2 ? s->shape[1] : 1);
    used += (size_t)snprintf(t->hashes + used, sizeof(t->hashes) - used, "%s\"%s\": \"%s\"", i ? ", " : "{", s->name,
                             hash_bytes(s->data, bytes).hex);
  }
  snprintf(t->hashes + used, sizeof(t->hashes) - used, "}");
  toy_set(t, "taper.hashes", t->hashes);
}

/* The numbers of the model; row TOY_NAN of the embedding is NaN. */
static inline void toy_draw(toy *t) {
  uint32_t r[4];
  for (uint32_t i = 0; i < TOY_V * TOY_D; i++) {
    philox4x32(1, PHILOX_CHECK, 0, 0, i, r);
    t->emb[i] = i / TOY_D == TOY_NAN ? NAN : (float)(philox_uniform(r[0]) * 2 - 1);
    t->head[i] = i / TOY_D == TOY_NAN ? 0 : (float)(philox_uniform(r[1]) * 6 - 3); /* never among the best */
    if (i < TOY_D) t->scale[i] = (float)(philox_uniform(r[2]) + 0.5);
  }
}

static inline void toy_describe(toy *t) {
  static const st_pair meta[] = {{"taper.package", "1"},
                                 {"taper.features", ""},
                                 {"taper.name", "toy"},
                                 {"taper.model", "0123456789abcdef0123456789abcdef"},
                                 {"taper.target", "cpu"},
                                 {"taper.arch", "plain"},
                                 {"taper.cpu.plain", ""},
                                 {"taper.machine", "x86_64-le"},
                                 {"taper.gates", "{\"internal\": 0, \"list\": [0, 0.5]}"},
                                 {"taper.params", "{\"vocab\": 300, \"context\": 50, \"d\": 20}"},
                                 {"taper.tokenizer", "bytes"},
                                 {"taper.options", "-O2"},
                                 {"taper.versions", "taperc 0.1.0"}};
  for (size_t i = 0; i < sizeof(meta) / sizeof(meta[0]); i++) toy_set(t, meta[i].key, meta[i].value);
}

/* A correct package's parts; row TOY_NAN of the embedding is NaN. */
static inline toy *toy_new(int wrong) {
  toy *t = calloc(1, sizeof(*t));
  toy_draw(t);
  toy_compile("tests/device/toy_image.c", false, wrong, &t->image, &t->image_bytes);
  toy_tensor(t, "emb", ST_F32, TOY_V, TOY_D, t->emb);
  toy_tensor(t, "head", ST_F32, TOY_V, TOY_D, t->head);
  toy_tensor(t, "scale", ST_F32, 0, TOY_D, t->scale);
  toy_tensor(t, "taper.image.plain", ST_U8, 0, t->image_bytes, t->image);
  toy_describe(t);
  toy_hash(t);
  return t;
}

static inline void toy_free(toy *t) {
  free(t->image);
  free(t);
}

static inline void toy_write(const toy *t, const char *path) {
  taper_error error;
  st_pair meta[sizeof(t->meta) / sizeof(t->meta[0]) + 1];
  memcpy(meta, t->meta, t->meta_count * sizeof(meta[0]));
  hash128 seal = seal_of(t->meta, t->meta_count);
  meta[t->meta_count] = (st_pair){"taper.seal", seal.hex};
  if (st_write(path, t->tensors, t->tensor_count, meta, t->meta_count + 1, 64, &error) != TAPER_OK) abort();
}

/* logits[n][TOY_V] after each of the tokens, and where not NULL the stream before squashing's end: stream0, stream1
 * [n][TOY_D]. */
static inline void toy_reference(const toy *t, const int32_t *tokens, size_t n, double *logits, double *stream0,
                                 double *stream1) {
  for (size_t pos = 0; pos < n; pos++) {
    double x[TOY_D];
    for (size_t i = 0; i < TOY_D; i++) {
      double own = (double)t->emb[(size_t)tokens[pos] * TOY_D + i], sum = 0;
      for (size_t p = 0; p <= pos; p++)
        sum += 0.5 / (double)(1 + pos - p) * (double)t->emb[(size_t)tokens[p] * TOY_D + i];
      double angle = (double)pos * pow(0.5, (double)(i % (TOY_D / 2)));
      x[i] = own + sum * (i < TOY_D / 2 ? cos(angle) : sin(angle));
      x[i] /= 1 + fabs(x[i]);
      if (stream0) stream0[pos * TOY_D + i] = own;
      if (stream1) stream1[pos * TOY_D + i] = x[i] * (double)t->scale[i];
    }
    for (size_t o = 0; o < TOY_V; o++) {
      double sum = 0;
      for (size_t i = 0; i < TOY_D; i++) sum += x[i] * (double)t->head[o * TOY_D + i];
      logits[pos * TOY_V + o] = sum;
    }
  }
}

#endif
