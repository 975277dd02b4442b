/* Every index and size of a launch table against the table itself and the package's tensors. */
#include "cuda/launch.h"
#include "runtime/abi/cuda_abi.h"
#include "runtime/base/checked.h"
#include <string.h>

#define DAMAGED "; the package is damaged, compile it again"
#define CHECK(condition, ...)                                                                                          \
  do {                                                                                                                 \
    if (!(condition)) return TAPER_FAIL(error, TAPER_INVALID, __VA_ARGS__);                                            \
  } while (0)

static bool in_row(const launch_table *t, uint64_t offset, uint64_t floats) {
  return offset <= t->row_floats && floats <= t->row_floats - offset;
}

static bool is_vector(const launch_table *t, uint32_t weight, uint32_t n) {
  return weight == LAUNCH_NONE || (weight < t->weights.count && t->weights.at[weight].rows == 1 &&
                                   t->weights.at[weight].cols == n && t->weights.at[weight].dtype == ST_F32);
}

static taper_status check_counts(const launch_table *t, const package *p, taper_error *error) {
  if (t->abi != TAPER_CUDA_ABI_VERSION)
    return TAPER_FAIL(error, TAPER_UNSUPPORTED,
                      "its ABI version is %u, this library's is %u; compile the model again or update libtaper", t->abi,
                      TAPER_CUDA_ABI_VERSION);
  CHECK(t->vocab == p->vocab, "its vocabulary is %u, the package's %u" DAMAGED, t->vocab, p->vocab);
  CHECK(t->context == p->context, "its context is %u, the package's %u" DAMAGED, t->context, p->context);
  CHECK(in_row(t, t->logits, t->vocab), "its logits lie outside of a row" DAMAGED);
  CHECK(t->stages.count > 0, "it has no stage" DAMAGED);
  return TAPER_OK;
}

static taper_status check_kernels(const launch_table *t, taper_error *error) {
  static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_0123456789";
  for (uint32_t i = 0; i < t->kernels.count; i++) {
    const char *name = t->kernels.at[i].name;
    CHECK(name[strspn(name, letters)] == 0, "kernel %u: '%.80s' is no name of C" DAMAGED, i, name);
  }
  return TAPER_OK;
}

static taper_status check_slot(const launch_table *t, const char *name, launch_slot slot, taper_error *error) {
  const struct {
    char kind;
    uint64_t limit;
  } limits[] = {{'w', t->weights.count}, {'s', t->states.count}, {'t', t->rotary.count}, {'b', t->row_floats}};
  for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++)
    CHECK(slot.kind != limits[i].kind || slot.value < limits[i].limit,
          "stage '%.80s': argument '%c%llu' of %llu" DAMAGED, name, slot.kind, (unsigned long long)slot.value,
          (unsigned long long)limits[i].limit);
  return TAPER_OK;
}

static taper_status check_call(const launch_table *t, const char *name, const launch_call *c, taper_error *error) {
  CHECK(c->kernel < t->kernels.count, "stage '%.80s': kernel %u of %u" DAMAGED, name, c->kernel, t->kernels.count);
  CHECK(c->args.count <= LAUNCH_MAX_ARGS, "stage '%.80s': %u arguments, at most %u" DAMAGED, name, c->args.count,
        LAUNCH_MAX_ARGS);
  for (uint32_t i = 0; i < c->args.count; i++) TAPER_TRY(check_slot(t, name, c->args.at[i], error));
  return TAPER_OK;
}

static taper_status check_product(const launch_table *t, const char *name, const launch_product *q,
                                  taper_error *error) {
  CHECK(q->weight < t->weights.count, "stage '%.80s': weight %u of %u" DAMAGED, name, q->weight, t->weights.count);
  const launch_weight *w = &t->weights.at[q->weight];
  CHECK(q->row0 <= w->rows && q->rows <= w->rows - q->row0, "stage '%.80s': rows %u to %llu of %u" DAMAGED, name,
        q->row0, (unsigned long long)q->row0 + q->rows, w->rows);
  CHECK(q->x_start <= q->x_width && w->cols <= q->x_width - q->x_start && q->rows <= q->y_width,
        "stage '%.80s': a product of %u numbers from %u of %u" DAMAGED, name, w->cols, q->x_start, q->x_width);
  CHECK(w->dtype == t->dtype, "stage '%.80s': a product of a weight in %s, the table's type is %s" DAMAGED, name,
        st_dtype_name(w->dtype), st_dtype_name(t->dtype));
  CHECK(q->x_half == (w->dtype != ST_F32), "stage '%.80s': operands of two types" DAMAGED, name);
  CHECK(in_row(t, q->x, q->x_half ? (q->x_width + 1u) / 2 : q->x_width) && in_row(t, q->y, q->y_width),
        "stage '%.80s': a product lies outside of a row" DAMAGED, name);
  return TAPER_OK;
}

static taper_status check_stage(const launch_table *t, const launch_stage *s, taper_error *error) {
  TAPER_TRY(check_call(t, s->name, &s->call, error));
  if (!s->wide.is) return TAPER_OK;
  if (s->wide.has_before) TAPER_TRY(check_call(t, s->name, &s->wide.before, error));
  for (uint32_t i = 0; i < s->wide.products.count; i++)
    TAPER_TRY(check_product(t, s->name, &s->wide.products.at[i], error));
  return s->wide.has_after ? check_call(t, s->name, &s->wide.after, error) : TAPER_OK;
}

static taper_status check_weight(const launch_weight *w, uint32_t i, const package *p, taper_error *error) {
  const st_tensor *t = st_find(&p->file, w->tensor);
  CHECK(t && package_is_weight(w->tensor), "weight %u: the package has no weight '%.80s'" DAMAGED, i, w->tensor);
  CHECK(t->dtype == w->dtype, "weight %u '%.80s': it is %s, not %s" DAMAGED, i, w->tensor, st_dtype_name(t->dtype),
        st_dtype_name(w->dtype));
  const uint64_t size = st_dtype_size(w->dtype), cols = t->rank ? t->shape[t->rank - 1] : 1,
                 rows = cols ? t->elements / cols : 0;
  uint64_t bytes;
  CHECK(w->cols == cols && w->row0 <= rows && w->rows <= rows - w->row0,
        "weight %u '%.80s': rows %u..%llu of %u columns, the tensor has %llu x %llu" DAMAGED, i, w->tensor, w->row0,
        (unsigned long long)w->row0 + w->rows, w->cols, (unsigned long long)rows, (unsigned long long)cols);
  CHECK(w->pitch >= w->cols && w->pitch * size % 16 == 0 && (w->pitch - w->cols) * size < 4096,
        "weight %u '%.80s': rows of %u numbers are %u apart" DAMAGED, i, w->tensor, w->cols, w->pitch);
  CHECK(w->read_rows <= w->rows, "weight %u '%.80s': a step reads %u of %u rows" DAMAGED, i, w->tensor, w->read_rows,
        w->rows);
  CHECK(checked_mul_u64((uint64_t)w->rows * size, w->pitch, &bytes) && bytes <= INT64_MAX,
        "weight %u '%.80s': too large" DAMAGED, i, w->tensor);
  return TAPER_OK;
}

static taper_status check_all_read(const launch_table *t, const package *p, taper_error *error) {
  uint8_t *read = memory_zalloc(&p->allocator, p->file.count, 1);
  if (!read) return memory_exhausted(error, "the list of weights", p->file.count);
  for (uint32_t i = 0; i < t->weights.count; i++)
    read[st_find(&p->file, t->weights.at[i].tensor) - p->file.tensors] = 1;
  size_t i = 0;
  while (i < p->file.count && (read[i] || !package_is_weight(p->file.tensors[i].name))) i++;
  memory_free(&p->allocator, read);
  CHECK(i == p->file.count, "tensor '%.80s': nothing in it reads this weight" DAMAGED, p->file.tensors[i].name);
  return TAPER_OK;
}

static taper_status check_sample(const launch_table *t, taper_error *error) {
  const launch_sample *s = &t->sample;
  if (t->gemm.is)
    CHECK(t->gemm.kernel < t->kernels.count, "'gemm': kernel %u of %u" DAMAGED, t->gemm.kernel, t->kernels.count);
  if (!s->is) return TAPER_OK;
  CHECK(s->kernel < t->kernels.count, "'sample': kernel %u of %u" DAMAGED, s->kernel, t->kernels.count);
  if (!s->has_scale) return TAPER_OK;
  CHECK(in_row(t, s->buffer, s->width) && is_vector(t, s->inv_scale, s->width),
        "'sample': its scale lies outside of a row" DAMAGED);
  return TAPER_OK;
}

taper_status launch_check(const launch_table *t, const package *p, taper_error *error) {
  TAPER_TRY(check_counts(t, p, error));
  TAPER_TRY(check_kernels(t, error));
  for (uint32_t i = 0; i < t->stages.count; i++) TAPER_TRY(check_stage(t, &t->stages.at[i], error));
  for (uint32_t i = 0; i < t->weights.count; i++) TAPER_TRY(check_weight(&t->weights.at[i], i, p, error));
  TAPER_TRY(check_all_read(t, p, error));
  TAPER_TRY(check_sample(t, error));
  for (uint32_t i = 0; i < t->rotary.count; i++)
    CHECK(t->rotary.at[i].inv_freq.count == t->rotary.at[i].pairs, "rotary table %u: %u frequencies of %u" DAMAGED, i,
          t->rotary.at[i].inv_freq.count, t->rotary.at[i].pairs);
  for (uint32_t i = 0; i < t->probes.count; i++) {
    const launch_probe *q = &t->probes.at[i];
    CHECK(q->stage == LAUNCH_NONE || q->stage < t->stages.count, "probe %u: stage %u of %u" DAMAGED, i, q->stage,
          t->stages.count);
    CHECK(q->width == t->width && in_row(t, q->buffer, q->width), "probe %u: it lies outside of a row" DAMAGED, i);
    CHECK(is_vector(t, q->inv_scale, q->width), "probe %u: weight %u is no vector of %u" DAMAGED, i, q->inv_scale,
          q->width);
  }
  return TAPER_OK;
}
