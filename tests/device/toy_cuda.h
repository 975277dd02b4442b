/* toy_cuda.h - packages of the hand-written model of toy_cuda.cu: the runtime's tests of the CUDA device need no compiler of ours, only
   NVRTC. */
#ifndef TAPER_TESTS_DEVICE_TOY_CUDA_H
#define TAPER_TESTS_DEVICE_TOY_CUDA_H

#include "cuda/nvrtc.h"
#include "tests/device/toy.h"

/* `sample`: the member of that name; `shared`: bytes of dynamic shared memory of the kernel greedy; `more`: stages. */
#define TOY_TABLE(sample) TOY_TABLE_OF(sample, "0", "")
#define TOY_TABLE_OF(sample, shared, more)                                                                             \
  "{\"abi\": 1, \"vocab\": 300, \"context\": 50, \"width\": 22, \"max_batch\": 8, \"dtype\": \"f32\",\n"               \
  "\"row_floats\": 322, \"logits\": 22, \"split_floats\": 0, \"key_heads\": 1, \"pdl\": true, \"gemm\": null,\n"       \
  "\"kernels\": [{\"name\": \"embed\", \"threads\": 32, \"shared\": 0}, {\"name\": \"cache\", \"threads\": 32, "       \
  "\"shared\": 0}, {\"name\": \"mix\", \"threads\": 32, \"shared\": 0}, {\"name\": \"squash\", \"threads\": 32, "      \
  "\"shared\": 0}, {\"name\": \"head\", \"threads\": 64, \"shared\": 0}, {\"name\": \"greedy\", \"threads\": 32, "     \
  "\"shared\": " shared "}],\n\"stages\": [\n"                                                                         \
  "{\"name\": \"embed\", \"kernel\": 0, \"grid\": [\"rows\", 1, 1], \"args\": [\"w0\", \"b0\"], \"probes\": false, "   \
  "\"wide\": null},\n"                                                                                                 \
  "{\"name\": \"cache\", \"kernel\": 1, \"grid\": [\"rows\", 1, 1], \"args\": [\"s0\", \"b0\"], \"probes\": false, "   \
  "\"wide\": null},\n"                                                                                                 \
  "{\"name\": \"mix\", \"kernel\": 2, \"grid\": [\"rows\", 1, 1], \"args\": [\"s0\", \"t0\", \"b0\", \"g0.5\"], "      \
  "\"probes\": false, \"wide\": null},\n"                                                                              \
  "{\"name\": \"squash\", \"kernel\": 3, \"grid\": [\"rows\", 1, 1], \"args\": [\"b0\"], \"probes\": false, "          \
  "\"wide\": null},\n"                                                                                                 \
  "{\"name\": \"head\", \"kernel\": 4, \"grid\": [5, \"out_rows\", 1], \"args\": [\"w1\", \"w2\", \"b0\", \"b22\"], "  \
  "\"probes\": false, \"wide\": null}" more "],\n\"sample\": " sample ",\n\"weights\": [\n"                            \
  "{\"tensor\": \"emb\", \"row0\": 0, \"rows\": 300, \"cols\": 22, \"pitch\": 24, \"dtype\": \"f32\", "                \
  "\"read_rows\": 1},\n"                                                                                               \
  "{\"tensor\": \"head\", \"row0\": 0, \"rows\": 160, \"cols\": 22, \"pitch\": 24, \"dtype\": \"f32\", "               \
  "\"read_rows\": 160},\n"                                                                                             \
  "{\"tensor\": \"head\", \"row0\": 160, \"rows\": 140, \"cols\": 22, \"pitch\": 24, \"dtype\": \"f32\", "             \
  "\"read_rows\": 140},\n"                                                                                             \
  "{\"tensor\": \"scale\", \"row0\": 0, \"rows\": 1, \"cols\": 22, \"pitch\": 24, \"dtype\": \"f32\", "                \
  "\"read_rows\": 0}],\n\"states\": [{\"name\": \"k\", \"heads\": 2, \"dim\": 11}],\n"                                 \
  "\"rotary\": [{\"pairs\": 11, \"magnitude\": 1, \"inv_freq\": [1, 0.5, 0.25, 0.125, 0.0625, 0.03125, 0.015625, "     \
  "0.0078125, 0.00390625, 0.001953125, 0.0009765625]}],\n\"probes\": [\n"                                              \
  "{\"name\": \"layers.0\", \"stage\": 0, \"buffer\": 0, \"width\": 22, \"inv_scale\": null},\n"                       \
  "{\"name\": \"layers.1\", \"stage\": 3, \"buffer\": 0, \"width\": 22, \"inv_scale\": 3}]}"
#define TOY_GREEDY "{\"kernel\": 5, \"threads\": 32, \"scale\": null}"

/* PTX of the kernels for compute_90 (malloc); NULL: there is no NVRTC, and why is printed. */
static inline char *toy_ptx(int fault, size_t *out_bytes) {
  static const char *const parts[] = {"runtime/abi/cuda_abi.h", "tests/device/toy_cuda.cu"};
  text source = {0};
  taper_error error = {0};
  nvrtc_result result = {0};
  text_printf(&source, "#define TOY_FAULT %d\n", fault);
  for (size_t i = 0; i < 2; i++) {
    mapped_file file = {0};
    if (file_map(parts[i], &file, &error) != TAPER_OK) abort();
    text_put(&source, file.data, file.size);
    file_unmap(&file);
  }
  const nvrtc_request request = {.source = source.data, .name = "toy_cuda.cu", .arch = "compute_90"};
  const taper_status status = nvrtc_compile(&request, &result, &error);
  text_free(&source);
  if (status == TAPER_OK) {
    char *image = result.image;
    *out_bytes = result.size;
    result.image = NULL;
    nvrtc_free(&result);
    return image;
  }
  printf("%s\n", error.message);
  nvrtc_free(&result);
  if (status != TAPER_DEVICE) abort();
  return NULL;
}

/* A package of PTX and a table; with `nan` the row TOY_NAN of the embedding is NaN. Returns its numbers, for toy_reference: free. */
static inline toy *toy_cuda_write(const char *ptx, size_t ptx_bytes, const char *table, bool nan, const char *path) {
  toy *t = calloc(1, sizeof(*t));
  if (!t) abort();
  toy_draw(t);
  for (size_t i = 0; !nan && i < TOY_D; i++) t->emb[TOY_NAN * TOY_D + i] = 0.25f;
  toy_tensor(t, "emb", ST_F32, TOY_V, TOY_D, t->emb);
  toy_tensor(t, "head", ST_F32, TOY_V, TOY_D, t->head);
  toy_tensor(t, "scale", ST_F32, 0, TOY_D, t->scale);
  toy_tensor(t, "taper.image.compute_90", ST_U8, 0, ptx_bytes, ptx);
  toy_tensor(t, "taper.launch", ST_U8, 0, strlen(table), table);
  toy_describe(t);
  toy_set(t, "taper.target", "cuda");
  toy_set(t, "taper.arch", "compute_90");
  toy_set(t, "taper.cuda.compute_90", "NVRTC");
  toy_hash(t);
  toy_write(t, path);
  return t;
}

#endif
