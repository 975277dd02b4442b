#include "runtime/pack.h"
#include "runtime/base/checked.h"
#include <math.h>
#include <string.h>

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

typedef struct pack_job {
  const package *p;
  const taper_image *image;
  packed *out;
  uint32_t positions, parts;
} pack_job;

/* Columns [c, end) of up to 16 rows that begin at src, side by side to dst. */
static void pack_columns(const char *src, size_t stride, uint64_t rows, uint32_t c, uint32_t end, float *dst) {
  for (; c < end; c++) {
    for (uint64_t r = 0; r < rows; r++)
      memcpy(dst + (size_t)c * TAPER_TILE + r, src + r * stride + c * sizeof(float), sizeof(float));
  }
}

/* The same for 16 rows by blocks of four; returns how many columns it did. */
static uint32_t pack_fours(const char *src, size_t stride, uint32_t cols, float *dst) {
  uint32_t c = 0;
#if defined(__SSE__)
  for (; c + 4 <= cols; c += 4) {
    for (uint32_t r = 0; r < TAPER_TILE; r += 4) {
      __m128 v[4];
      for (uint32_t i = 0; i < 4; i++) v[i] = _mm_loadu_ps((const void *)(src + (r + i) * stride + c * sizeof(float)));
      _MM_TRANSPOSE4_PS(v[0], v[1], v[2], v[3]);
      for (uint32_t i = 0; i < 4; i++) _mm_store_ps(dst + (size_t)(c + i) * TAPER_TILE + r, v[i]);
    }
  }
#else
  (void)src, (void)stride, (void)cols, (void)dst;
#endif
  return c;
}

/* Tile `t` of a matrix whose first row begins at src: 16 rows side by side; rows beyond the end are 0. */
static void pack_tile(const char *src, uint32_t rows, uint32_t cols, uint64_t t, float *out) {
  const uint64_t row = t * TAPER_TILE, live = rows - row < TAPER_TILE ? rows - row : TAPER_TILE;
  const size_t stride = (size_t)cols * sizeof(float);
  const char *first = src + row * stride;
  float *dst = out + row * cols;
  if (live < TAPER_TILE) memset(dst, 0, (size_t)cols * TAPER_TILE * sizeof(float));
  pack_columns(first, stride, live, live == TAPER_TILE ? pack_fours(first, stride, cols, dst) : 0, cols, dst);
}

static void pack_row(const char *src, uint32_t cols, uint64_t r, float *out) {
  const size_t bytes = (size_t)cols * sizeof(float), padded = (cols + (size_t)TAPER_TILE - 1) / TAPER_TILE * TAPER_TILE;
  memcpy(out + r * padded, src + r * bytes, bytes);
  memset(out + r * padded + cols, 0, (padded - cols) * sizeof(float));
}

static void pack_weight(const pack_job *job, uint32_t w, uint32_t part) {
  enum { ROWS_AT_ONCE = 16 * TAPER_TILE };
  const taper_weight_desc *d = &job->image->weights[w];
  const st_tensor *t = st_find(&job->p->file, d->tensor);
  const uint64_t row_bytes = (uint64_t)d->cols * sizeof(float), begin = d->row0 * row_bytes;
  const char *src = (const char *)t->data + begin;
  float *out = job->out->weights + (job->out->weight[w] - job->out->weights);
  const bool tiles = d->pack == TAPER_PACK_TILES;
  const uint64_t unit_rows = tiles ? TAPER_TILE : 1, units = (d->rows + unit_rows - 1) / unit_rows;
  uint64_t unit, end, released;
  pool_range(units, part, job->parts, &unit, &end);
  for (released = unit; unit < end; unit++) {
    if (tiles)
      pack_tile(src, d->rows, d->cols, unit, out);
    else
      pack_row(src, d->cols, unit, out);
    if ((unit + 1 - released) * unit_rows < ROWS_AT_ONCE && unit + 1 < end) continue;
    uint64_t first = released * unit_rows, last = (unit + 1) * unit_rows < d->rows ? (unit + 1) * unit_rows : d->rows;
    package_release_pages(job->p, t->offset + begin + first * row_bytes, (last - first) * row_bytes);
    released = unit + 1;
  }
}

static void fill_rotary(const pack_job *job, uint32_t k, uint32_t part) {
  const taper_rotary_desc *d = &job->image->rotary[k];
  uint64_t pos, end;
  pool_range(job->positions, part, job->parts, &pos, &end);
  for (; pos < end; pos++) {
    float *row = job->out->rotations + (job->out->rotary[k] - job->out->rotations) + pos * 2 * d->pairs;
    for (uint32_t i = 0; i < d->pairs; i++) {
      double angle = (double)pos * d->inv_freq[i];
      row[i] = (float)(cos(angle) * d->magnitude);
      row[d->pairs + i] = (float)(sin(angle) * d->magnitude);
    }
  }
}

static void pack_part(void *arg, uint32_t stage, uint32_t part) {
  (void)stage;
  const pack_job *job = arg;
  for (uint32_t w = 0; w < job->image->weight_count; w++) pack_weight(job, w, part);
  for (uint32_t k = 0; k < job->image->rotary_count; k++) fill_rotary(job, k, part);
}

static size_t block_align(uint64_t bytes) { return bytes >= MEMORY_HUGE / 2 ? MEMORY_HUGE : MEMORY_LINE; }

/* Sizes the blocks and points every table into them. */
static taper_status lay_out(const taper_image *image, uint32_t positions, const taper_allocator *a, packed *out,
                            taper_error *error) {
  uint64_t floats = TAPER_TILE, rotary_floats = TAPER_TILE; /* one line more: a kernel may load past the last element */
  for (uint32_t i = 0; i < image->weight_count; i++) {
    uint64_t n = 0;
    const taper_weight_desc *d = &image->weights[i];
    if (!image_packed_floats(d, &n) || !checked_add_u64(floats, n, &floats) || floats > INT64_MAX / sizeof(float))
      return memory_exhausted(error, "the packed weights", UINT64_MAX);
    out->bytes_per_token += (uint64_t)d->read_rows * d->cols * sizeof(float);
  }
  for (uint32_t i = 0; i < image->rotary_count; i++)
    rotary_floats += (uint64_t)positions * 2 * image->rotary[i].pairs; /* < 2^20 * 2^53 */
  if (rotary_floats > INT64_MAX / sizeof(float)) return memory_exhausted(error, "the rotary tables", UINT64_MAX);
  const uint64_t bytes = floats * sizeof(float), rotary_bytes = rotary_floats * sizeof(float);
  const size_t pointers = (size_t)image->weight_count + image->rotary_count + 1;
  out->weight_bytes = bytes - TAPER_TILE * sizeof(float);
  if (!(out->weight = memory_zalloc(a, pointers, sizeof(float *))))
    return memory_exhausted(error, "the weight table", pointers * sizeof(float *));
  if (!(out->weights = memory_alloc(a, bytes, block_align(bytes))))
    return memory_exhausted(error, "the packed weights", bytes);
  if (!(out->rotations = memory_alloc(a, rotary_bytes, block_align(rotary_bytes))))
    return memory_exhausted(error, "the rotary tables", rotary_bytes);
  memory_advise_huge(out->weights, bytes);
  memory_advise_huge(out->rotations, rotary_bytes);
  memset(out->weights + floats - TAPER_TILE, 0, TAPER_TILE * sizeof(float));
  memset(out->rotations + rotary_floats - TAPER_TILE, 0, TAPER_TILE * sizeof(float));
  out->rotary = out->weight + image->weight_count;
  const float *at = out->weights;
  for (uint32_t i = 0; i < image->weight_count; i++) {
    uint64_t n = 0;
    (void)image_packed_floats(&image->weights[i], &n);
    out->weight[i] = at;
    at += n;
  }
  at = out->rotations;
  for (uint32_t i = 0; i < image->rotary_count; i++) {
    out->rotary[i] = at;
    at += (uint64_t)positions * 2 * image->rotary[i].pairs;
  }
  return TAPER_OK;
}

taper_status pack_weights(const package *p, const taper_image *image, uint32_t positions, pool *workers,
                          const taper_allocator *allocator, packed *out, taper_error *error) {
  memset(out, 0, sizeof(*out));
  taper_status status = lay_out(image, positions, allocator, out, error);
  if (status != TAPER_OK) return pack_free(out, allocator), status;
  pack_job job = {p, image, out, positions, pool_threads(workers)};
  pool_run(workers, &(pool_job){.part = pack_part, .arg = &job, .stages = 1});
  return TAPER_OK;
}

void pack_free(packed *w, const taper_allocator *allocator) {
  memory_free(allocator, w->weights);
  memory_free(allocator, w->rotations);
  memory_free(allocator, w->weight);
  memset(w, 0, sizeof(*w));
}
