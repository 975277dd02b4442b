/* safetensors.h - a strict reader and a writer of the safetensors format (header length u64 LE, JSON header, data).
   Refused: duplicate names, headers over 100,000,000 bytes or beyond the file, unknown keys or dtypes, byte ranges that
   overlap, leave holes, run backwards or do not match shape x type, anything but an object; each with file, tensor or
   byte, cause. Time is O(n log n). */
#ifndef TAPER_BASE_SAFETENSORS_H
#define TAPER_BASE_SAFETENSORS_H

#include "runtime/base/file.h"

#define ST_MAX_RANK 8
#define ST_MAX_HEADER 100000000u
typedef enum st_dtype {
  ST_BOOL,
  ST_U8,
  ST_I8,
  ST_I16,
  ST_U16,
  ST_F16,
  ST_BF16,
  ST_I32,
  ST_U32,
  ST_F32,
  ST_F64,
  ST_I64,
  ST_U64
} st_dtype;

const char *st_dtype_name(st_dtype type); /* "F32" */
size_t st_dtype_size(st_dtype type);
bool st_dtype_is_float(st_dtype type); /* F16, BF16, F32, F64 */

typedef struct st_tensor {
  const char *name;
  st_dtype dtype;
  uint32_t rank;
  uint64_t shape[ST_MAX_RANK];
  uint64_t elements, bytes, offset; /* offset from the start of the file */
  const void *data;                 /* in the mapping; may be unaligned */
} st_tensor;

typedef struct st_pair {
  const char *key, *value;
} st_pair;

typedef struct st_file {
  char *path;
  mapped_file map;
  st_tensor *tensors; /* sorted by name */
  size_t count;
  st_pair *metadata;
  size_t metadata_count;
  uint64_t header_bytes; /* of the JSON text, padding included; data begins at 8 + header_bytes */
  struct st_private *priv;
} st_file;

/* Zero *out first. On failure everything is released. Tells a Git LFS pointer, an HTML page, a ZIP or PyTorch pickle,
   GGUF, an image, a cut-off file (bytes found and expected) by name. */
taper_status st_open(const char *path, st_file *out, taper_error *error);
/* The same over bytes that the caller keeps until st_close; `name` stands for the path in messages. */
taper_status st_open_memory(const void *data, size_t size, const char *name, st_file *out, taper_error *error);
void st_close(st_file *file);
const st_tensor *st_find(const st_file *file, const char *name); /* NULL: none */
const char *st_metadata(const st_file *file, const char *key);   /* NULL: none */
/* Elements first .. first + n of any type (BOOL: 0 or 1) as double; exact but for 64-bit integers beyond 2^53. */
void st_read_f64(const st_tensor *t, uint64_t first, uint64_t n, double *out);
void st_read_f32(const st_tensor *t, uint64_t first, uint64_t n, float *out); /* rounds F64 once */

/* What is to be written; data is read when st_write runs. */
typedef struct st_source {
  const char *name;
  st_dtype dtype;
  uint32_t rank;
  uint64_t shape[ST_MAX_RANK];
  const void *data;
} st_source;

/* Writes atomically (file_writer), tensors in the given order, each aligned to `align` bytes (1, or 64: `__pad.N` U8
   tensors and header spaces). Refuses what st_open would refuse: names twice, names that are not UTF-8, too large a
   header. */
taper_status st_write(const char *path, const st_source *tensors, size_t count, const st_pair *metadata,
                      size_t metadata_count, uint32_t align, taper_error *error);

#endif
