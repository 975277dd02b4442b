#include "runtime/image.h"
#include "runtime/base/checked.h"
#include <math.h>
#include <string.h>

enum { MAX_TABLE = 1 << 20 };

#define DAMAGED "; the package is damaged, compile it again"
#define CHECK(condition, ...)                                                                                          \
  do {                                                                                                                 \
    if (!(condition)) return TAPER_FAIL(error, TAPER_INVALID, __VA_ARGS__);                                            \
  } while (0)

static taper_status check_counts(const taper_image *t, const package *p, const object_extent *x, taper_error *error) {
  CHECK(t->magic == TAPER_ABI_MAGIC, "its table begins with 0x%08x, not 0x%08x" DAMAGED, t->magic, TAPER_ABI_MAGIC);
  if (t->abi_version != TAPER_ABI_VERSION)
    return TAPER_FAIL(error, TAPER_UNSUPPORTED,
                      "its ABI version is %u, this library's is %u; compile the model again or update libtaper",
                      t->abi_version, TAPER_ABI_VERSION);
  CHECK(t->size == sizeof(taper_image), "its table has %u bytes, not %zu" DAMAGED, t->size, sizeof(taper_image));
  CHECK(t->vocab == p->vocab, "its vocabulary is %u, the package's %u" DAMAGED, t->vocab, p->vocab);
  CHECK(t->context == p->context, "its context is %u, the package's %u" DAMAGED, t->context, p->context);
  CHECK(t->width >= 1 && t->width <= INT32_MAX, "its width is %u" DAMAGED, t->width);
  CHECK(t->max_batch >= 1 && t->max_batch <= 4096, "its batch limit is %u" DAMAGED, t->max_batch);
  CHECK(t->stage_count >= 1 && t->stage_count <= MAX_TABLE && t->weight_count <= MAX_TABLE &&
            t->state_count <= MAX_TABLE && t->rotary_count <= MAX_TABLE && t->probe_count <= MAX_TABLE,
        "its tables have %u stages, %u weights, %u states, %u rotary tables, %u probes" DAMAGED, t->stage_count,
        t->weight_count, t->state_count, t->rotary_count, t->probe_count);
  CHECK(object_holds(x, t->stages, t->stage_count, sizeof(taper_stage)),
        "its table of stages lies outside of it" DAMAGED);
  CHECK(object_holds(x, t->weights, t->weight_count, sizeof(taper_weight_desc)) || !t->weight_count,
        "its table of weights lies outside of it" DAMAGED);
  CHECK(object_holds(x, t->states, t->state_count, sizeof(taper_state_desc)) || !t->state_count,
        "its table of states lies outside of it" DAMAGED);
  CHECK(object_holds(x, t->rotary, t->rotary_count, sizeof(taper_rotary_desc)) || !t->rotary_count,
        "its rotary table lies outside of it" DAMAGED);
  CHECK(object_holds(x, t->probes, t->probe_count, sizeof(taper_probe_desc)) || !t->probe_count,
        "its table of probes lies outside of it" DAMAGED);
  CHECK(object_holds_string(x, t->model) && strcmp(t->model, p->model) == 0,
        "it was emitted from another model than the package's weights" DAMAGED);
  uint64_t end;
  CHECK(t->row_floats <= INT32_MAX && t->scratch_floats <= INT32_MAX && t->scratch_per_pos <= INT32_MAX &&
            t->scratch_per_row <= INT32_MAX,
        "its memory sizes are beyond every limit" DAMAGED);
  CHECK(checked_add_u64(t->logits_offset, t->vocab, &end) && end <= t->row_floats,
        "its logits lie outside of a row" DAMAGED);
  return TAPER_OK;
}

bool image_packed_floats(const taper_weight_desc *w, uint64_t *out) {
  uint64_t lines = w->pack == TAPER_PACK_TILES ? ((uint64_t)w->rows + TAPER_TILE - 1) / TAPER_TILE : w->rows;
  uint64_t cols = w->pack == TAPER_PACK_TILES ? (uint64_t)w->cols * TAPER_TILE
                                              : ((uint64_t)w->cols + TAPER_TILE - 1) / TAPER_TILE * TAPER_TILE;
  return checked_mul_u64(lines, cols, out);
}

static taper_status check_weight(const taper_weight_desc *w, uint32_t i, const package *p, const object_extent *x,
                                 taper_error *error) {
  CHECK(object_holds_string(x, w->tensor), "weight %u: its name lies outside of the image" DAMAGED, i);
  const st_tensor *t = st_find(&p->file, w->tensor);
  CHECK(t, "weight %u: the package has no tensor '%.80s'" DAMAGED, i, w->tensor);
  CHECK(package_is_weight(w->tensor), "weight %u: '%.80s' is no weight" DAMAGED, i, w->tensor);
  if (t->dtype != ST_F32)
    return TAPER_FAIL(error, TAPER_UNSUPPORTED, "tensor '%.80s' is %s; this library runs F32 weights", w->tensor,
                      st_dtype_name(t->dtype));
  uint64_t cols = t->rank ? t->shape[t->rank - 1] : 1, rows = cols ? t->elements / cols : 0, end, floats, bytes;
  CHECK(w->pack == TAPER_PACK_ROWS || w->pack == TAPER_PACK_TILES, "weight %u '%.80s': unknown packing %u" DAMAGED, i,
        w->tensor, w->pack);
  CHECK(w->rows >= 1 && w->cols >= 1 && w->cols == cols && checked_add_u64(w->row0, w->rows, &end) && end <= rows,
        "weight %u '%.80s': rows %u..%llu of %u columns, the tensor has %llu x %llu" DAMAGED, i, w->tensor, w->row0,
        (unsigned long long)w->row0 + w->rows, w->cols, (unsigned long long)rows, (unsigned long long)cols);
  CHECK(w->read_rows <= w->rows, "weight %u '%.80s': a step reads %u of %u rows" DAMAGED, i, w->tensor, w->read_rows,
        w->rows);
  CHECK(image_packed_floats(w, &floats) && checked_mul_u64(floats, sizeof(float), &bytes) && bytes <= INT64_MAX,
        "weight %u '%.80s': too large" DAMAGED, i, w->tensor);
  return TAPER_OK;
}

static taper_status check_probe(const taper_probe_desc *d, uint32_t i, const taper_image *t, const object_extent *x,
                                taper_error *error) {
  uint64_t end;
  CHECK(object_holds_string(x, d->name), "probe %u: its name lies outside of the image" DAMAGED, i);
  CHECK(d->stage < t->stage_count || d->stage == TAPER_ABI_NONE, "probe %u: stage %u of %u" DAMAGED, i, d->stage,
        t->stage_count);
  CHECK(d->width == t->width, "probe %u: width %u, the model's is %u" DAMAGED, i, d->width, t->width);
  CHECK(checked_add_u64(d->offset, d->width, &end) && end <= t->row_floats,
        "probe %u: it lies outside of a row" DAMAGED, i);
  if (d->inv_scale == TAPER_ABI_NONE) return TAPER_OK;
  CHECK(d->inv_scale < t->weight_count, "probe %u: weight %u of %u" DAMAGED, i, d->inv_scale, t->weight_count);
  const taper_weight_desc *w = &t->weights[d->inv_scale];
  CHECK(w->pack == TAPER_PACK_ROWS && w->rows == 1 && w->cols == d->width,
        "probe %u: weight '%.80s' is no vector of %u" DAMAGED, i, w->tensor, d->width);
  return TAPER_OK;
}

/* A weight that no stage reads is a sign of a package put together from two. */
static taper_status check_all_read(const taper_image *t, const package *p, taper_error *error) {
  uint8_t *read = memory_zalloc(&p->allocator, p->file.count, 1);
  if (!read) return memory_exhausted(error, "the list of weights", p->file.count);
  for (uint32_t i = 0; i < t->weight_count; i++) read[st_find(&p->file, t->weights[i].tensor) - p->file.tensors] = 1;
  size_t i = 0;
  while (i < p->file.count && (read[i] || !package_is_weight(p->file.tensors[i].name))) i++;
  memory_free(&p->allocator, read);
  CHECK(i == p->file.count, "tensor '%.80s': nothing in it reads this weight" DAMAGED, p->file.tensors[i].name);
  return TAPER_OK;
}

static taper_status check_table(const taper_image *t, const package *p, const object_extent *x, taper_error *error) {
  CHECK(object_holds(x, t, 1, sizeof(*t)), "its table lies outside of it" DAMAGED);
  TAPER_TRY(check_counts(t, p, x, error));
  for (uint32_t i = 0; i < t->stage_count; i++) {
    const taper_stage *s = &t->stages[i];
    CHECK(object_holds_string(x, s->name), "stage %u: its name lies outside of the image" DAMAGED, i);
    CHECK(object_holds_address(x, (uintptr_t)s->fn, 1) && (!s->args || object_holds(x, s->args, 1, 1)),
          "stage %u '%.80s' lies outside of the image" DAMAGED, i, s->name);
    CHECK(!(s->flags & ~TAPER_STAGE_PROBES), "stage %u '%.80s': unknown flags %#x" DAMAGED, i, s->name, s->flags);
  }
  for (uint32_t i = 0; i < t->weight_count; i++) TAPER_TRY(check_weight(&t->weights[i], i, p, x, error));
  TAPER_TRY(check_all_read(t, p, error));
  for (uint32_t i = 0; i < t->state_count; i++) {
    CHECK(object_holds_string(x, t->states[i].name), "state %u: its name lies outside of the image" DAMAGED, i);
    CHECK(t->states[i].floats_per_pos >= 1 && t->states[i].floats_per_pos <= INT32_MAX,
          "state %u: %u floats a position" DAMAGED, i, t->states[i].floats_per_pos);
  }
  for (uint32_t i = 0; i < t->rotary_count; i++) {
    const taper_rotary_desc *r = &t->rotary[i];
    CHECK(r->pairs >= 1 && r->pairs <= 1u << 20 && object_holds(x, r->inv_freq, r->pairs, sizeof(double)),
          "rotary table %u: %u pairs" DAMAGED, i, r->pairs);
    bool finite = isfinite(r->magnitude);
    for (uint32_t k = 0; k < r->pairs; k++) finite = finite && isfinite(r->inv_freq[k]);
    CHECK(finite, "rotary table %u: a frequency is not finite" DAMAGED, i);
  }
  for (uint32_t i = 0; i < t->probe_count; i++) TAPER_TRY(check_probe(&t->probes[i], i, t, x, error));
  return TAPER_OK;
}

taper_status image_load(const package *p, const package_image *which, image_code *out, taper_error *error) {
  const void *table = NULL;
  *out = (image_code){.object = {.fd = -1}};
  taper_status status =
      object_load(which->object->data, which->object->bytes, "taper_image", &out->object, &table, error);
  out->table = table;
  if (status == TAPER_OK) status = check_table(out->table, p, &out->object.extent, error);
  if (status == TAPER_OK) return status;
  image_unload(out);
  return taper_add_context(error, status, "%s: image '%s'", p->path, which->name);
}

void image_unload(image_code *i) {
  object_unload(&i->object);
  i->table = NULL;
}
