/* inspect: what a file or folder is and what it holds. No code of a package runs. */
#include "compiler/cli/cli.h"
#include "compiler/cli/json.h"
#include "compiler/formats/sniff.h"
#include "compiler/formats/weights.h"
#include "runtime/package.h"
#include <string.h>

/* The common part of every kind, written as it is found. */
typedef struct report {
  json_out j;
  text t;
  uint64_t bytes, count;
} report;

static void begin(report *r, const char *kind, const char *version) {
  json_open(&r->j, NULL, '{');
  json_string(&r->j, "kind", kind);
  if (version)
    json_raw(&r->j, "version", version);
  else
    json_null(&r->j, "version");
  text_printf(&r->t, "kind      %s%s%s\n", kind, version ? ", version " : "", version ? version : "");
}

static void add_tensor(report *r, const char *name, const char *dtype, const uint64_t *shape, size_t rank,
                       uint64_t bytes) {
  json_open(&r->j, NULL, '{');
  json_string(&r->j, "name", name);
  json_string(&r->j, "dtype", dtype);
  json_open(&r->j, "shape", '[');
  text_printf(&r->t, "  %-40s %-5s [", name, dtype);
  for (size_t i = 0; i < rank; i++) {
    json_whole(&r->j, NULL, shape[i]);
    text_printf(&r->t, "%s%llu", i ? "," : "", (unsigned long long)shape[i]);
  }
  text_printf(&r->t, "] %llu bytes\n", (unsigned long long)bytes);
  json_close(&r->j, ']');
  json_whole(&r->j, "bytes", bytes);
  json_close(&r->j, '}');
  r->bytes += bytes, r->count++;
}

static void add_stored(report *r, const st_tensor *t) {
  add_tensor(r, t->name, st_dtype_name(t->dtype), t->shape, t->rank, t->bytes);
}

static void put_pair(report *r, const char *key, const char *shown, const char *value, bool is_json) {
  if (!value) value = is_json ? "null" : "";
  if (is_json)
    json_raw(&r->j, key, value);
  else
    json_string(&r->j, key, value);
  text_printf(&r->t, "%-9s %s\n", shown, value);
}

/* In the order of `taper.arch`: best first. */
static void put_images(cli *c, const st_file *f, report *r) {
  const char *list = st_metadata(f, "taper.arch");
  json_open(&r->j, "images", '[');
  for (const char *p = list ? list : ""; *p; p += strspn(p, ",")) {
    size_t n = strcspn(p, ",");
    const char *name = arena_strndup(&c->memory, p, n),
               *needs = st_metadata(f, arena_printf(&c->memory, "taper.cpu.%s", name)),
               *maker = st_metadata(f, arena_printf(&c->memory, "taper.cuda.%s", name));
    const st_tensor *image = st_find(f, arena_printf(&c->memory, "taper.image.%s", name));
    uint64_t bytes = image ? image->bytes : 0;
    json_open(&r->j, NULL, '{');
    json_string(&r->j, "name", name);
    json_whole(&r->j, "bytes", bytes);
    json_string(&r->j, "features", needs ? needs : "");
    if (maker) json_string(&r->j, "maker", maker);
    json_close(&r->j, '}');
    text_printf(&r->t, "image     %s: %llu bytes, %s %s\n", name, (unsigned long long)bytes,
                maker ? "made by" : "needs",
                maker   ? maker
                : needs ? needs
                        : "?");
    p += n;
  }
  json_close(&r->j, ']');
}

/* Its fields are checked as a session checks them, its bytes are not hashed. */
static int inspect_package(cli *c, const char *path, report *r) {
  package p;
  taper_error error = {0};
  taper_allocator allocator = memory_allocator((taper_allocator){0});
  taper_status status = package_open(path, &allocator, NULL, NULL, &p, &error);
  if (status != TAPER_OK) return cli_fail_status(c, status, &error, false);
  const st_file f = p.file;
  begin(r, "package", st_metadata(&f, "taper.package"));
  put_pair(r, "name", "name", st_metadata(&f, "taper.name"), false);
  put_pair(r, "target", "target", st_metadata(&f, "taper.target"), false);
  put_pair(r, "arch", "arch", st_metadata(&f, "taper.arch"), false);
  put_images(c, &f, r);
  const struct {
    const char *key, *stored;
    bool is_json;
  } pairs[] = {{"gates", "taper.gates", true},        {"params", "taper.params", true},
               {"features", "taper.features", false}, {"tokenizer", "taper.tokenizer", false},
               {"options", "taper.options", false},   {"versions", "taper.versions", false},
               {"model", "taper.model", false}};
  for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
    put_pair(r, pairs[i].key, pairs[i].key, st_metadata(&f, pairs[i].stored),
             pairs[i].is_json && json_is_valid(st_metadata(&f, pairs[i].stored)));
  json_open(&r->j, "tensors", '[');
  for (size_t i = 0; i < f.count; i++)
    if (strncmp(f.tensors[i].name, "__pad.", 6) != 0) add_stored(r, &f.tensors[i]);
  json_close(&r->j, ']');
  package_close(&p);
  return CLI_OK;
}

static int inspect_weights(cli *c, const char *path, const char *kind, const char *folder, report *r) {
  weight_set set = {0};
  taper_error error = {0};
  taper_status status = weights_open(path, &set, &error);
  if (status != TAPER_OK) return cli_fail_status(c, status, &error, false);
  begin(r, kind, NULL);
  if (folder) put_pair(r, "folder", "folder", folder, false);
  const char *gates = weights_metadata(&set, "taper.gates");
  put_pair(r, "gates", "gates", gates && json_is_valid(gates) ? gates : "null", true);
  json_open(&r->j, "metadata", '{');
  for (size_t k = 0; k < set.file_count; k++)
    for (size_t i = 0; i < set.files[k].metadata_count; i++)
      if (k == 0) json_string(&r->j, set.files[k].metadata[i].key, set.files[k].metadata[i].value);
  json_close(&r->j, '}');
  json_open(&r->j, "tensors", '[');
  for (size_t i = 0; i < set.count; i++) add_stored(r, set.weights[i].tensor);
  json_close(&r->j, ']');
  weights_close(&set);
  return CLI_OK;
}

static int inspect_folder(cli *c, const char *path, report *r) {
  model_place place;
  taper_error error = {0};
  taper_status status = model_locate(path, &c->memory, c->sink, &place, &error);
  if (status != TAPER_OK) return cli_fail_status(c, status, &error, false);
  const char *kind = place.kind == MODEL_CHECKPOINT ? "checkpoint" : "folder";
  if (place.weights) return inspect_weights(c, place.weights, kind, place.folder, r);
  begin(r, kind, NULL);
  put_pair(r, "folder", "folder", place.folder, false);
  json_open(&r->j, "tensors", '[');
  json_close(&r->j, ']');
  return CLI_OK;
}

static int inspect_source(cli *c, const char *path, bool tir, report *r) {
  model_loaded m = {0};
  model_place place = {.kind = tir ? MODEL_TIR : MODEL_SOURCE, .path = path, .source = path};
  model_options options = {.ignore_weights = true};
  taper_error error = {0};
  taper_status status = model_load(&place, &options, c->sink, &m, &error);
  if (status != TAPER_OK) {
    int bad = cli_fail_status(c, status, &error, false);
    cli_flush(c);
    model_free(&m);
    return bad;
  }
  begin(r, tir ? "tir" : "tmodel", tir ? "1" : NULL);
  put_pair(r, "name", "name", m.name, false);
  put_pair(r, "tokenizer", "tokenizer", m.tokenizer, false);
  put_pair(r, "gates", "gates", m.gates, true);
  put_pair(r, "params", "params", m.params, true);
  json_open(&r->j, "entries", '[');
  for (size_t i = 0; i < ir_entry_count(m.module); i++)
    json_string(&r->j, NULL, ir_region_name(m.module, ir_entry_at(m.module, i)));
  json_close(&r->j, ']');
  json_open(&r->j, "tensors", '[');
  for (ir_value v = ir_first(m.module, IR_GLOBALS); v.id; v = ir_next(m.module, v)) {
    if (!ir_is(m.module, v, IR_CONST) && !ir_is(m.module, v, IR_PARAM)) continue;
    ir_type t = ir_type_of(m.module, v);
    uint64_t shape[IR_MAX_RANK] = {0};
    int64_t n = ir_elements(t);
    for (uint32_t i = 0; i < t.rank; i++) shape[i] = (uint64_t)t.dim[i];
    const char *name = ir_attr_string(m.module, v, IR_ATTR_TENSOR, ir_name_of(m.module, v));
    static const char *const dtypes[] = {
        [IR_F32] = "F32", [IR_BF16] = "BF16", [IR_F16] = "F16", [IR_I32] = "I32", [IR_I8] = "I8"};
    if (n >= 0) add_tensor(r, name ? name : "", dtypes[t.dtype], shape, t.rank, (uint64_t)n * ir_dtype_size(t.dtype));
  }
  json_close(&r->j, ']');
  model_free(&m);
  return CLI_OK;
}

static int inspect(cli *c, const char *path, report *r) {
  format_kind kind;
  const char *guess = NULL;
  taper_error error = {0};
  taper_status status = formats_sniff(path, &kind, &guess, &error);
  if (status != TAPER_OK) return cli_fail_status(c, status, &error, false);
  switch (kind) {
  case FORMAT_FOLDER:
  case FORMAT_CHECKPOINT: return inspect_folder(c, path, r);
  case FORMAT_PACKAGE: return inspect_package(c, path, r);
  case FORMAT_SAFETENSORS: return inspect_weights(c, path, "safetensors", NULL, r);
  case FORMAT_TIR:
  case FORMAT_TMODEL: return inspect_source(c, path, kind == FORMAT_TIR, r);
  case FORMAT_GGUF:
  case FORMAT_LLAMA2C:
    return cli_fail_file(c, CLI_USAGE, path, "the file is of kind %s, whose reader is not built yet; use its own tools",
                         format_kind_name(kind));
  case FORMAT_UNKNOWN: break;
  }
  return cli_fail_file(c, CLI_WRONG, path,
                       "is %s, no file that is known; give a folder, .tpack, .tmodel, .tir or .safetensors",
                       guess ? guess : "something else");
}

static int run(cli *c) {
  report r = {0};
  int bad = inspect(c, c->args[0], &r);
  if (!bad) {
    json_close(&r.j, '}');
    text_puts(&r.j.t, "\n");
    text_printf(&r.t, "%llu tensors, %llu bytes\n", (unsigned long long)r.count, (unsigned long long)r.bytes);
    if (r.j.t.failed || r.t.failed)
      bad = cli_fail(c, CLI_ENVIRONMENT, "no memory for the list of tensors; free some");
    else if (c->json)
      cli_put(r.j.t.data, r.j.t.size);
    else
      cli_put(r.t.data, r.t.size);
  }
  text_free(&r.j.t), text_free(&r.t);
  return bad;
}

const cli_command cli_cmd_inspect = {.name = "inspect",
                                     .args = "FILE",
                                     .summary = "tell what a file or folder is and what it holds",
                                     .min_args = 1,
                                     .max_args = 1,
                                     .acts = 0,
                                     .run = run};
