/* The JSON of a launch table -> structs. What a field may be stands in tables; every key stands there once. */
#include "cuda/launch.h"
#include "runtime/base/json_scan.h"
#include "runtime/base/text.h"
#include <math.h>
#include <string.h>

#define DAMAGED "; the package is damaged, compile it again"
enum { MAX_COUNT = 1 << 20, BLOCK_BYTES = 1 << 16 };

typedef struct block {
  struct block *next;
  size_t used, size;
} block;

typedef struct reader {
  json_scan scan;
  launch_table *t;
  taper_error *error;
} reader;

typedef struct field field;
/* Reads the value that begins with `value` to *out. */
typedef taper_status (*read_fn)(reader *r, json_event value, const field *f, void *out);
struct field {
  const char *key;
  read_fn read;
  size_t offset;            /* of the member in its struct */
  uint64_t low, high;       /* of numbers */
  const struct shape *item; /* of objects, and of the items of a list */
};
typedef struct shape {
  const field *fields; /* of an object; NULL: `read` reads an item */
  size_t count, size;
  read_fn read;
} shape;

typedef struct any_list {
  void *at;
  uint32_t count, cap;
} any_list;

/* ---- memory ---- */

static void *take(reader *r, size_t bytes) {
  block *b = r->t->blocks;
  bytes = (bytes + 15) & ~(size_t)15;
  if (!b || b->size - b->used < bytes) {
    const size_t size = bytes > BLOCK_BYTES ? bytes : BLOCK_BYTES;
    block *fresh = memory_zalloc(&r->t->allocator, 1, sizeof(block) + size);
    if (!fresh) return NULL;
    *fresh = (block){b, 0, size};
    r->t->blocks = b = fresh;
  }
  b->used += bytes;
  return (char *)(b + 1) + b->used - bytes;
}

void launch_free(launch_table *t) {
  for (block *b = t->blocks, *next; b; b = next) {
    next = b->next;
    memory_free(&t->allocator, b);
  }
  memset(t, 0, sizeof(*t));
}

/* ---- values ---- */

static taper_status wrong(const reader *r, const field *f, json_event value, const char *wanted) {
  if (value.kind == JS_ERROR)
    return TAPER_FAIL(r->error, TAPER_INVALID, "JSON byte %zu: %s" DAMAGED, r->scan.at, r->scan.error);
  return TAPER_FAIL(r->error, TAPER_INVALID, "JSON byte %zu: '%s' is %s" DAMAGED, value.start, f->key, wanted);
}

static taper_status no_memory(const reader *r) { return memory_exhausted(r->error, "the launch table", BLOCK_BYTES); }

static taper_status read_u64(reader *r, json_event value, const field *f, void *out) {
  uint64_t v;
  if (!json_u64(&r->scan, value, &v) || v < f->low || v > f->high) {
    if (value.kind == JS_ERROR) return wrong(r, f, value, "");
    return TAPER_FAIL(r->error, TAPER_INVALID, "JSON byte %zu: '%s' is no whole number from %llu to %llu" DAMAGED,
                      value.start, f->key, (unsigned long long)f->low, (unsigned long long)f->high);
  }
  memcpy(out, &v, sizeof(v));
  return TAPER_OK;
}

static taper_status read_u32(reader *r, json_event value, const field *f, void *out) {
  uint64_t v = 0;
  TAPER_TRY(read_u64(r, value, f, &v));
  const uint32_t n = (uint32_t)v;
  memcpy(out, &n, sizeof(n));
  return TAPER_OK;
}

static taper_status read_index(reader *r, json_event value, const field *f, void *out) {
  const uint32_t none = LAUNCH_NONE;
  if (value.kind != JS_NULL) return read_u32(r, value, f, out);
  memcpy(out, &none, sizeof(none));
  return TAPER_OK;
}

static taper_status read_bool(reader *r, json_event value, const field *f, void *out) {
  const bool yes = value.kind == JS_TRUE;
  if (!yes && value.kind != JS_FALSE) return wrong(r, f, value, "neither true nor false");
  memcpy(out, &yes, sizeof(yes));
  return TAPER_OK;
}

static taper_status read_real(reader *r, json_event value, const field *f, void *out) {
  double v;
  if (!json_double(&r->scan, value, &v) || !isfinite(v)) return wrong(r, f, value, "no finite number");
  memcpy(out, &v, sizeof(v));
  return TAPER_OK;
}

static taper_status read_name(reader *r, json_event value, const field *f, void *out) {
  bool nul = false;
  if (value.kind != JS_STRING || value.length == 0 || value.length > 1000) return wrong(r, f, value, "no name");
  char *name = take(r, value.length + 1);
  if (!name) return no_memory(r);
  json_decode(&r->scan, value, name, &nul);
  if (nul) return wrong(r, f, value, "no name");
  memcpy(out, &name, sizeof(name));
  return TAPER_OK;
}

static taper_status read_dtype(reader *r, json_event value, const field *f, void *out) {
  static const struct {
    const char *word;
    st_dtype type;
  } types[] = {{"f32", ST_F32}, {"bf16", ST_BF16}, {"f16", ST_F16}};
  for (size_t i = 0; value.kind == JS_STRING && i < sizeof(types) / sizeof(types[0]); i++) {
    if (json_is(&r->scan, value, types[i].word)) return memcpy(out, &types[i].type, sizeof(st_dtype)), TAPER_OK;
  }
  return wrong(r, f, value, "none of f32, bf16, f16");
}

static taper_status read_dim(reader *r, json_event value, const field *f, void *out) {
  static const char *const words[] = {[LAUNCH_ROWS] = "rows",
                                      [LAUNCH_OUT_ROWS] = "out_rows",
                                      [LAUNCH_ROW_GROUPS] = "row_groups",
                                      [LAUNCH_OUT_ROW_GROUPS] = "out_row_groups",
                                      [LAUNCH_SPLITS] = "splits"};
  launch_dim d = {LAUNCH_NUMBER, 0};
  if (value.kind == JS_NUMBER) {
    TAPER_TRY(read_u32(r, value, f, &d.n));
    return memcpy(out, &d, sizeof(d)), TAPER_OK;
  }
  for (size_t i = LAUNCH_ROWS; value.kind == JS_STRING && i < sizeof(words) / sizeof(words[0]); i++) {
    if (!json_is(&r->scan, value, words[i])) continue;
    d.what = (launch_extent)i;
    return memcpy(out, &d, sizeof(d)), TAPER_OK;
  }
  return wrong(r, f, value, "neither a number nor a word of extents");
}

/* "w3", "s0", "t0", "b128", "g0.5" */
static taper_status read_slot(reader *r, json_event value, const field *f, void *out) {
  char s[64];
  launch_slot slot = {0};
  double gate;
  if (value.kind != JS_STRING || value.length < 2 || value.length >= sizeof(s))
    return wrong(r, f, value, "no argument of a kernel");
  const size_t n = json_decode(&r->scan, value, s, NULL);
  slot.kind = s[0];
  bool fits = strchr("wstb", s[0]) ? number_parse_u64(s + 1, n - 1, &slot.value) && slot.value <= INT32_MAX
                                   : s[0] == 'g' && number_parse_double(s + 1, n - 1, &gate) && isfinite(gate);
  if (!fits) return wrong(r, f, value, "no argument of a kernel");
  if (slot.kind == 'g') memcpy(&slot.value, &gate, sizeof(gate));
  return memcpy(out, &slot, sizeof(slot)), TAPER_OK;
}

/* ---- objects and lists ---- */

static taper_status read_members(reader *r, const shape *s, char *out) {
  uint32_t seen = 0;
  json_event e;
  while ((e = json_scan_next(&r->scan)).kind == JS_KEY) {
    size_t i = 0;
    while (i < s->count && !json_is(&r->scan, e, s->fields[i].key)) i++;
    if (i == s->count)
      return TAPER_FAIL(r->error, TAPER_UNSUPPORTED,
                        "JSON byte %zu: the key '%.*s' is unknown to this version; update libtaper", e.start,
                        (int)(e.length < 40 ? e.length : 40), r->scan.s + e.start);
    if (seen & 1u << i) return wrong(r, &s->fields[i], e, "there twice");
    seen |= 1u << i;
    TAPER_TRY(s->fields[i].read(r, json_scan_next(&r->scan), &s->fields[i], out + s->fields[i].offset));
  }
  if (e.kind != JS_OBJECT_END) return wrong(r, &s->fields[0], e, "");
  for (size_t i = 0; i < s->count; i++)
    if (!(seen & 1u << i)) return wrong(r, &s->fields[i], e, "missing");
  return TAPER_OK;
}

static taper_status read_object(reader *r, json_event value, const field *f, void *out) {
  if (value.kind != JS_OBJECT) return wrong(r, f, value, "no object");
  return read_members(r, f->item, out);
}

static taper_status grow(reader *r, any_list *list, size_t size) {
  if (list->count < list->cap) return TAPER_OK;
  if (list->count >= MAX_COUNT)
    return TAPER_FAIL(r->error, TAPER_INVALID, "a list of more than %d items" DAMAGED, MAX_COUNT);
  const uint32_t cap = list->cap ? list->cap * 2 : 4;
  void *at = take(r, size * cap);
  if (!at) return no_memory(r);
  if (list->count) memcpy(at, list->at, size * list->count);
  memset((char *)at + size * list->count, 0, size * (cap - list->count));
  list->at = at, list->cap = cap;
  return TAPER_OK;
}

static taper_status read_list(reader *r, json_event value, const field *f, void *out) {
  any_list list = {0};
  const shape *s = f->item;
  if (value.kind != JS_ARRAY) return wrong(r, f, value, "no list");
  while ((value = json_scan_next(&r->scan)).kind != JS_ARRAY_END) {
    TAPER_TRY(grow(r, &list, s->size));
    char *item = (char *)list.at + s->size * list.count++;
    if (s->fields && value.kind != JS_OBJECT) return wrong(r, f, value, "no list of objects");
    TAPER_TRY(s->fields ? read_members(r, s, item) : s->read(r, value, f, item));
  }
  memcpy(out, &list, sizeof(list));
  return TAPER_OK;
}

static taper_status read_grid(reader *r, json_event value, const field *f, void *out) {
  launch_dim *grid = out;
  size_t n = 0;
  if (value.kind != JS_ARRAY) return wrong(r, f, value, "no list");
  while ((value = json_scan_next(&r->scan)).kind != JS_ARRAY_END) {
    if (n == 3) return wrong(r, f, value, "longer than three");
    const field dim = {f->key, read_dim, 0, 1, n ? 65535 : INT32_MAX, NULL};
    TAPER_TRY(read_dim(r, value, &dim, &grid[n++]));
  }
  return n == 3 ? TAPER_OK : wrong(r, f, value, "not three extents");
}

/* null, or an object; the first member of its struct says which. */
static taper_status read_optional(reader *r, json_event value, const field *f, void *out) {
  const bool is = value.kind == JS_OBJECT;
  memcpy(out, &is, sizeof(is));
  if (value.kind == JS_NULL) return TAPER_OK;
  return read_object(r, value, f, out);
}

/* ---- what the table is made of ---- */

#define AT(type, member) offsetof(type, member)
#define SHAPE(name, type)                                                                                              \
  static const shape name = {name##_fields, sizeof(name##_fields) / sizeof(field), sizeof(type), 0}
#define U32(type, member, low, high)                                                                                   \
  { #member, read_u32, AT(type, member), low, high, 0 }
#define U64(type, member, high)                                                                                        \
  { #member, read_u64, AT(type, member), 0, high, 0 }

static const shape slot_item = {.size = sizeof(launch_slot), .read = read_slot};
static const field call_fields[] = {U32(launch_call, kernel, 0, MAX_COUNT),
                                    {"grid", read_grid, AT(launch_call, grid), 0, 0, 0},
                                    {"args", read_list, AT(launch_call, args), 0, 0, &slot_item}};
SHAPE(call, launch_call);

static const field product_fields[] = {U32(launch_product, weight, 0, MAX_COUNT),
                                       U32(launch_product, row0, 0, INT32_MAX),
                                       U32(launch_product, rows, 1, INT32_MAX),
                                       U64(launch_product, x, INT32_MAX),
                                       U32(launch_product, x_width, 1, INT32_MAX),
                                       U32(launch_product, x_start, 0, INT32_MAX),
                                       {"x_half", read_bool, AT(launch_product, x_half), 0, 0, 0},
                                       U64(launch_product, y, INT32_MAX),
                                       U32(launch_product, y_width, 1, INT32_MAX)};
SHAPE(product, launch_product);

static taper_status read_before(reader *r, json_event value, const field *f, void *out) {
  launch_wide *w = out;
  w->has_before = value.kind != JS_NULL;
  return w->has_before ? read_object(r, value, f, &w->before) : TAPER_OK;
}
static taper_status read_after(reader *r, json_event value, const field *f, void *out) {
  launch_wide *w = out;
  w->has_after = value.kind != JS_NULL;
  return w->has_after ? read_object(r, value, f, &w->after) : TAPER_OK;
}
static const field wide_fields[] = {{"before", read_before, 0, 0, 0, &call},
                                    {"products", read_list, AT(launch_wide, products), 0, 0, &product},
                                    {"after", read_after, 0, 0, 0, &call}};
SHAPE(wide, launch_wide);

static const field stage_fields[] = {{"name", read_name, AT(launch_stage, name), 0, 0, 0},
                                     {"kernel", read_u32, AT(launch_stage, call.kernel), 0, MAX_COUNT, 0},
                                     {"grid", read_grid, AT(launch_stage, call.grid), 0, 0, 0},
                                     {"args", read_list, AT(launch_stage, call.args), 0, 0, &slot_item},
                                     {"probes", read_bool, AT(launch_stage, probes), 0, 0, 0},
                                     {"wide", read_optional, AT(launch_stage, wide), 0, 0, &wide}};
SHAPE(stage, launch_stage);

static const field kernel_fields[] = {{"name", read_name, AT(launch_kernel, name), 0, 0, 0},
                                      U32(launch_kernel, threads, 1, 1024),
                                      U32(launch_kernel, shared, 0, 232448)};
SHAPE(kernel, launch_kernel);

static const field weight_fields[] = {{"tensor", read_name, AT(launch_weight, tensor), 0, 0, 0},
                                      U32(launch_weight, row0, 0, INT32_MAX),
                                      U32(launch_weight, rows, 1, INT32_MAX),
                                      U32(launch_weight, cols, 1, INT32_MAX),
                                      U32(launch_weight, pitch, 1, INT32_MAX),
                                      {"dtype", read_dtype, AT(launch_weight, dtype), 0, 0, 0},
                                      U32(launch_weight, read_rows, 0, INT32_MAX)};
SHAPE(weight, launch_weight);

static const field state_fields[] = {{"name", read_name, AT(launch_state, name), 0, 0, 0},
                                     U32(launch_state, heads, 1, MAX_COUNT),
                                     U32(launch_state, dim, 1, MAX_COUNT)};
SHAPE(state, launch_state);

static const shape real_item = {.size = sizeof(double), .read = read_real};
static const field rotary_fields[] = {U32(launch_rotary, pairs, 1, 1 << 18),
                                      {"magnitude", read_real, AT(launch_rotary, magnitude), 0, 0, 0},
                                      {"inv_freq", read_list, AT(launch_rotary, inv_freq), 0, 0, &real_item}};
SHAPE(rotary, launch_rotary);

static const field probe_fields[] = {{"name", read_name, AT(launch_probe, name), 0, 0, 0},
                                     {"stage", read_index, AT(launch_probe, stage), 0, MAX_COUNT, 0},
                                     U64(launch_probe, buffer, INT32_MAX),
                                     U32(launch_probe, width, 1, INT32_MAX),
                                     {"inv_scale", read_index, AT(launch_probe, inv_scale), 0, MAX_COUNT, 0}};
SHAPE(probe, launch_probe);

static const field gemm_fields[] = {U32(launch_gemm, kernel, 0, MAX_COUNT), U32(launch_gemm, tile_m, 1, 4096),
                                    U32(launch_gemm, tile_n, 1, 4096)};
SHAPE(gemm, launch_gemm);

static const field scale_fields[] = {U64(launch_sample, buffer, INT32_MAX),
                                     U32(launch_sample, width, 1, INT32_MAX),
                                     {"inv_scale", read_index, AT(launch_sample, inv_scale), 0, MAX_COUNT, 0}};
SHAPE(scale, launch_sample);

static taper_status read_scale(reader *r, json_event value, const field *f, void *out) {
  launch_sample *s = out;
  s->has_scale = value.kind != JS_NULL;
  return s->has_scale ? read_object(r, value, f, out) : TAPER_OK;
}
static const field sample_fields[] = {U32(launch_sample, kernel, 0, MAX_COUNT),
                                      U32(launch_sample, threads, 1, 1024),
                                      {"scale", read_scale, 0, 0, 0, &scale}};
SHAPE(sample, launch_sample);

static const field table_fields[] = {U32(launch_table, abi, 0, INT32_MAX),
                                     U32(launch_table, vocab, 1, INT32_MAX),
                                     U32(launch_table, context, 1, INT32_MAX),
                                     U32(launch_table, width, 1, INT32_MAX),
                                     U32(launch_table, max_batch, 1, 4096),
                                     {"dtype", read_dtype, AT(launch_table, dtype), 0, 0, 0},
                                     U64(launch_table, row_floats, INT32_MAX),
                                     U64(launch_table, logits, INT32_MAX),
                                     U32(launch_table, split_floats, 0, MAX_COUNT),
                                     U32(launch_table, key_heads, 0, MAX_COUNT),
                                     {"kernels", read_list, AT(launch_table, kernels), 0, 0, &kernel},
                                     {"stages", read_list, AT(launch_table, stages), 0, 0, &stage},
                                     {"gemm", read_optional, AT(launch_table, gemm), 0, 0, &gemm},
                                     {"sample", read_optional, AT(launch_table, sample), 0, 0, &sample},
                                     {"weights", read_list, AT(launch_table, weights), 0, 0, &weight},
                                     {"states", read_list, AT(launch_table, states), 0, 0, &state},
                                     {"rotary", read_list, AT(launch_table, rotary), 0, 0, &rotary},
                                     {"probes", read_list, AT(launch_table, probes), 0, 0, &probe},
                                     {"pdl", read_bool, AT(launch_table, pdl), 0, 0, 0}};
SHAPE(table, launch_table);

taper_status launch_parse(const char *json, size_t bytes, const taper_allocator *allocator, launch_table *out,
                          taper_error *error) {
  static const field whole = {"taper.launch", read_object, 0, 0, 0, &table};
  reader r = {.t = out, .error = error};
  *out = (launch_table){.allocator = *allocator};
  json_scan_init(&r.scan, json, bytes);
  TAPER_TRY(read_object(&r, json_scan_next(&r.scan), &whole, out));
  const json_event e = json_scan_next(&r.scan);
  return e.kind == JS_END ? TAPER_OK : wrong(&r, &whole, e, "followed by more");
}

taper_status launch_read(const package *p, const taper_allocator *allocator, launch_table *out, taper_error *error) {
  const st_tensor *t = st_find(&p->file, "taper.launch");
  *out = (launch_table){.allocator = *allocator};
  if (!t || t->dtype != ST_U8 || t->rank != 1)
    return TAPER_FAIL(error, TAPER_INVALID, "%s: tensor 'taper.launch' is missing or no text" DAMAGED, p->path);
  taper_status status = launch_parse(t->data, t->bytes, allocator, out, error);
  if (status == TAPER_OK) status = launch_check(out, p, error);
  return status == TAPER_OK ? status : taper_add_context(error, status, "%s: tensor 'taper.launch'", p->path);
}
