#include "runtime/train_image.h"
#include "runtime/abi/abi.h"
#include "runtime/base/checked.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MAX_TABLE = 1 << 20, MAX_NAME = 511 };

#define DAMAGED "; the package is damaged, compile it again"
#define CHECK(condition, ...)                                                                                          \
  do {                                                                                                                 \
    if (!(condition)) return TAPER_FAIL(error, TAPER_INVALID, __VA_ARGS__);                                            \
  } while (0)

/* What the checks below look at. */
typedef struct table {
  const taper_train_image *t;
  const package *p;
  const object_extent *x;
} table;

static bool is_name(const table *c, const char *s) {
  return object_holds_string(c->x, s) && *s && strlen(s) <= MAX_NAME;
}

static bool holds_table(const table *c, const void *p, uint64_t count, uint64_t size) {
  return count == 0 || (((uintptr_t)p & (_Alignof(void *) - 1)) == 0 && object_holds(c->x, p, count, size));
}

bool train_image_elements(const taper_train_param *param, uint64_t *out) {
  uint64_t n = 1;
  if (param->rank > 4) return false;
  for (uint32_t i = 0; i < param->rank; i++) {
    if (param->dim[i] == 0 || !checked_mul_u64(n, param->dim[i], &n)) return false;
  }
  *out = n;
  return n <= INT64_MAX / 64;
}

const st_tensor *train_image_initial(const package *p, const taper_train_param *param) {
  char name[MAX_NAME + 16];
  snprintf(name, sizeof(name), "taper.param.%s", param->tensor);
  const st_tensor *t = st_find(&p->file, name);
  return t ? t : st_find(&p->file, param->tensor);
}

uint32_t train_image_result(const taper_train_image *t, uint32_t program, const char *name) {
  for (uint32_t i = 0; i < t->result_count; i++)
    if (t->results[i].program == program && strcmp(t->results[i].name, name) == 0) return i;
  return TAPER_ABI_NONE;
}

static taper_status check_head(const table *c, taper_error *error) {
  const taper_train_image *t = c->t;
  CHECK(object_holds(c->x, t, 1, sizeof(*t)), "its table lies outside of it" DAMAGED);
  CHECK(t->magic == TAPER_TRAIN_ABI_MAGIC, "its table begins with 0x%08x, not 0x%08x" DAMAGED, t->magic,
        TAPER_TRAIN_ABI_MAGIC);
  if (t->abi_version != TAPER_TRAIN_ABI_VERSION)
    return TAPER_FAIL(
        error, TAPER_UNSUPPORTED,
        "its training ABI version is %u, this library's is %u; compile the model again or update libtaper",
        t->abi_version, TAPER_TRAIN_ABI_VERSION);
  CHECK(t->size == sizeof(*t), "its table has %u bytes, not %zu" DAMAGED, t->size, sizeof(*t));
  CHECK(t->vocab == c->p->vocab, "its vocabulary is %u, the package's %u" DAMAGED, t->vocab, c->p->vocab);
  CHECK(t->context == c->p->context, "its context is %u, the package's %u" DAMAGED, t->context, c->p->context);
  CHECK(t->width >= 1 && t->width <= INT32_MAX, "its width is %u" DAMAGED, t->width);
  CHECK(t->param_count >= 1 && t->param_count <= MAX_TABLE && t->pack_count <= MAX_TABLE &&
            t->gate_count <= MAX_TABLE && t->norm_count <= MAX_TABLE && t->result_count <= MAX_TABLE &&
            t->rotary_count <= MAX_TABLE,
        "its tables have %u parameters, %u packings, %u gates, %u norms, %u results, %u rotary tables" DAMAGED,
        t->param_count, t->pack_count, t->gate_count, t->norm_count, t->result_count, t->rotary_count);
  CHECK(holds_table(c, t->params, t->param_count, sizeof(*t->params)) &&
            holds_table(c, t->packs, t->pack_count, sizeof(*t->packs)) &&
            holds_table(c, t->gates, t->gate_count, sizeof(*t->gates)) &&
            holds_table(c, t->norms, t->norm_count, sizeof(*t->norms)) &&
            holds_table(c, t->results, t->result_count, sizeof(*t->results)) &&
            holds_table(c, t->rotary, t->rotary_count, sizeof(*t->rotary)),
        "one of its tables lies outside of it" DAMAGED);
  CHECK(object_holds_address(c->x, (uintptr_t)t->adamw, 1) &&
            object_holds_address(c->x, (uintptr_t)t->sum_squares, 1) &&
            object_holds_address(c->x, (uintptr_t)t->gemm, 1) && t->gemm_scratch <= INT32_MAX,
        "one of its functions lies outside of it" DAMAGED);
  CHECK(object_holds_string(c->x, t->model) && strcmp(t->model, c->p->model) == 0,
        "it was emitted from another model than the package's weights" DAMAGED);
  return TAPER_OK;
}

static taper_status check_program(const table *c, uint32_t i, taper_error *error) {
  const taper_train_program *g = &c->t->programs[i];
  if (g->stage_count == 0) return TAPER_OK;
  CHECK(g->stage_count <= MAX_TABLE && holds_table(c, g->stages, g->stage_count, sizeof(*g->stages)),
        "program %u: its %u stages lie outside of the image" DAMAGED, i, g->stage_count);
  CHECK(g->row_floats <= INT32_MAX && g->chunk_floats <= INT32_MAX && g->partial_floats <= INT64_MAX / (1 << 20) &&
            g->fixed_floats <= INT64_MAX / 64 && g->scratch_floats <= INT64_MAX / (1 << 20) &&
            g->scratch_per_block <= INT32_MAX && g->scratch_per_time <= INT32_MAX,
        "program %u: its memory sizes are beyond every limit" DAMAGED, i);
  for (uint32_t k = 0; k < g->stage_count; k++) {
    const taper_train_stage *s = &g->stages[k];
    CHECK(is_name(c, s->name), "program %u, stage %u: its name lies outside of the image" DAMAGED, i, k);
    CHECK(object_holds_address(c->x, (uintptr_t)s->fn, 1) && (!s->args || object_holds(c->x, s->args, 1, 1)),
          "program %u, stage %u '%.80s' lies outside of the image" DAMAGED, i, k, s->name);
    CHECK(!(s->flags & ~TAPER_TRAIN_CHUNKED), "program %u, stage %u '%.80s': unknown flags %#x" DAMAGED, i, k, s->name,
          s->flags);
  }
  return TAPER_OK;
}

static bool shape_fits(const st_tensor *t, const taper_train_param *d) {
  bool fits = t->rank == d->rank;
  for (uint32_t i = 0; fits && i < d->rank; i++) fits = t->shape[i] == d->dim[i];
  return fits;
}

static taper_status check_param(const table *c, uint32_t i, taper_error *error) {
  const taper_train_param *d = &c->t->params[i];
  uint64_t elements;
  CHECK(is_name(c, d->tensor) && object_holds_string(c->x, d->kind) && strlen(d->kind) <= 32,
        "parameter %u: its name lies outside of the image" DAMAGED, i);
  CHECK(train_image_elements(d, &elements), "parameter %u '%.80s': its shape is none" DAMAGED, i, d->tensor);
  for (uint32_t k = 0; k < i; k++)
    CHECK(strcmp(c->t->params[k].tensor, d->tensor) != 0, "parameter '%.80s' stands twice" DAMAGED, d->tensor);
  const st_tensor *t = train_image_initial(c->p, d);
  if (!t && i == c->t->anchor_target) return TAPER_OK;
  CHECK(t, "parameter %u: the package has no tensor '%.80s'" DAMAGED, i, d->tensor);
  CHECK(t->dtype == ST_F32, "tensor '%.80s' is %s; parameters are F32" DAMAGED, d->tensor, st_dtype_name(t->dtype));
  CHECK(shape_fits(t, d), "tensor '%.80s': its shape is not the image's" DAMAGED, d->tensor);
  return TAPER_OK;
}

static bool is_scalar(const taper_train_image *t, uint32_t param) {
  uint64_t n = 0;
  return param < t->param_count && train_image_elements(&t->params[param], &n) && n == 1;
}

static taper_status check_norm(const table *c, uint32_t i, taper_error *error) {
  const taper_train_image *t = c->t;
  const taper_train_norm *n = &t->norms[i];
  CHECK(is_name(c, n->name), "norm %u: its name lies outside of the image" DAMAGED, i);
  CHECK(n->gate < t->gate_count && n->weight < t->param_count && n->taper_weight < t->param_count &&
            is_scalar(t, n->taper_c),
        "norm %u '%.80s': its gate or parameters are not there" DAMAGED, i, n->name);
  uint64_t a = 0, b = 0;
  CHECK(train_image_elements(&t->params[n->weight], &a) && train_image_elements(&t->params[n->taper_weight], &b) &&
            a == b && (n->weight != n->taper_weight || !t->programs[TAPER_TRAIN_TAPER].stage_count), /* a scan: one */
        "norm %u '%.80s': its two weights do not match" DAMAGED, i, n->name);
  return TAPER_OK;
}

static taper_status check_lists(const table *c, taper_error *error) {
  const taper_train_image *t = c->t;
  for (uint32_t i = 0; i < t->pack_count; i++)
    CHECK(t->packs[i].param < t->param_count && t->packs[i].floats <= INT64_MAX / 64,
          "packing %u: no such parameter" DAMAGED, i);
  for (uint32_t i = 0; i < t->gate_count; i++) {
    const taper_train_gate *g = &t->gates[i];
    CHECK(is_name(c, g->name), "gate %u: its name lies outside of the image" DAMAGED, i);
    CHECK(g->count >= 1 && g->index < g->count && i >= g->index && g->count - g->index <= t->gate_count - i &&
              strcmp(g->name, t->gates[i - g->index].name) == 0 && t->gates[i - g->index].count == g->count &&
              t->gates[i - g->index].index == 0,
          "gate '%.80s': element %u of %u stands out of order" DAMAGED, g->name, g->index, g->count);
    CHECK(g->value >= 0 && g->value <= 1, "gate '%.80s': its value is outside [0, 1]" DAMAGED, g->name);
  }
  for (uint32_t i = 0; i < t->result_count; i++) {
    const taper_train_result *r = &t->results[i];
    uint64_t end = 0;
    CHECK(is_name(c, r->name), "result %u: its name lies outside of the image" DAMAGED, i);
    CHECK(r->program < TAPER_TRAIN_PROGRAMS && t->programs[r->program].stage_count > 0 &&
              (!r->rows || (checked_add_u64(r->offset, 1, &end) && end <= t->programs[r->program].row_floats)),
          "result %u '%.80s': it lies outside of its program" DAMAGED, i, r->name);
  }
  for (uint32_t i = 0; i < t->rotary_count; i++) {
    const taper_train_rotary *r = &t->rotary[i];
    CHECK(r->pairs >= 1 && r->pairs <= 1u << 20 && object_holds(c->x, r->inv_freq, r->pairs, sizeof(double)),
          "rotary table %u: %u pairs" DAMAGED, i, r->pairs);
    bool finite = isfinite(r->magnitude);
    for (uint32_t k = 0; k < r->pairs; k++) finite = finite && isfinite(r->inv_freq[k]);
    CHECK(finite, "rotary table %u: a frequency is not finite" DAMAGED, i);
  }
  return TAPER_OK;
}

/* What every step reads. */
static taper_status check_needs(const taper_train_image *t, taper_error *error) {
  CHECK(t->programs[TAPER_TRAIN_PACK].stage_count > 0 || t->pack_count == 0, "it has no program that packs" DAMAGED);
  for (uint32_t i = TAPER_TRAIN_WARM; i <= TAPER_TRAIN_EVAL; i++)
    CHECK(t->programs[i].stage_count == 0 || train_image_result(t, i, "ce") != TAPER_ABI_NONE,
          "program %u has no result 'ce'" DAMAGED, i);
  CHECK(t->anchor_target == TAPER_ABI_NONE || is_scalar(t, t->anchor_target), "its anchor is no scalar" DAMAGED);
  CHECK(t->table == TAPER_ABI_NONE ||
            (t->table < t->param_count && t->params[t->table].rank == 2 && t->params[t->table].dim[0] == t->vocab),
        "its token table is none" DAMAGED);
  CHECK(t->final_norm == TAPER_ABI_NONE || t->final_norm < t->norm_count, "its final norm is not there" DAMAGED);
  return TAPER_OK;
}

static taper_status check_table(const table *c, taper_error *error) {
  TAPER_TRY(check_head(c, error));
  for (uint32_t i = 0; i < TAPER_TRAIN_PROGRAMS; i++) TAPER_TRY(check_program(c, i, error));
  for (uint32_t i = 0; i < c->t->param_count; i++) TAPER_TRY(check_param(c, i, error));
  TAPER_TRY(check_lists(c, error));
  for (uint32_t i = 0; i < c->t->norm_count; i++) TAPER_TRY(check_norm(c, i, error));
  return check_needs(c->t, error);
}

taper_status train_image_load(const package *p, const package_image *which, train_image *out, taper_error *error) {
  const void *symbol = NULL;
  *out = (train_image){.object = {.fd = -1}};
  taper_status status =
      object_load(which->object->data, which->object->bytes, "taper_train_image", &out->object, &symbol, error);
  out->table = symbol;
  if (status == TAPER_OK) status = check_table(&(table){out->table, p, &out->object.extent}, error);
  if (status == TAPER_OK) return status;
  train_image_unload(out);
  return taper_add_context(error, status, "%s: training image '%s'", p->path, which->name);
}

void train_image_unload(train_image *i) {
  object_unload(&i->object);
  i->table = NULL;
}
