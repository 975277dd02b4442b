/* What a command computes with. */
#include "compiler/driver/build.h"
#include <string.h>

static taper_status make_private(build_opened *b, const build_options *options, diag_sink *sink, taper_error *error) {
  taper_status status = private_file_begin("model.tpack", &b->memory, &b->file, error);
  if (status == TAPER_OK) {
    status = build_package(&b->source, options, b->file.path, sink, &b->built, error);
    status = private_file_take(&b->file, status, &b->memory, error);
  }
  b->writing = status == TAPER_IO;
  b->path = b->file.opened;
  return status;
}

taper_status build_reopen(build_opened *b, const taper_model_options *runtime, taper_error *error) {
  taper_model_free(b->model);
  b->model = NULL;
  return taper_model_open(b->path, runtime, &b->model, error);
}

static const char *metadata(const build_opened *b, const char *key, const char *otherwise) {
  const char *value = st_metadata(&b->package, key);
  return value ? value : otherwise;
}

taper_status build_open(const model_place *place, const model_options *model_opts, const build_options *options,
                        const taper_model_options *runtime, diag_sink *sink, build_opened *out, taper_error *error) {
  out->path = place->source;
  if (place->kind != MODEL_PACKAGE) {
    TAPER_TRY(model_load(place, model_opts, sink, &out->source, error));
    if (!out->source.bound) return TAPER_FAIL(error, TAPER_INVALID, "%s: %s", place->path, out->source.unbound);
    TAPER_TRY(make_private(out, options, sink, error));
  }
  TAPER_TRY(st_open(out->path, &out->package, error));
  strncpy(out->model_hash, metadata(out, "taper.model", ""), sizeof out->model_hash - 1);
  out->gates = metadata(out, "taper.gates", "{}");
  out->options = metadata(out, "taper.options", "");
  TAPER_TRY(taper_model_open(out->path, runtime, &out->model, error));
  tokenizer_kind kind = TOKENIZER_NONE;
  const st_tensor *file = st_find(&out->package, "taper.file." TOKENIZER_FILE);
  tokenizer_find(metadata(out, "taper.tokenizer", "none"), &kind);
  return tokenizer_open(kind, file ? file->data : NULL, file ? file->bytes : 0, out->path, NULL, &out->tokenizer,
                        error);
}

void build_close(build_opened *b) {
  taper_model_free(b->model);
  tokenizer_close(&b->tokenizer);
  st_close(&b->package);
  model_free(&b->source);
  private_file_close(&b->file);
  arena_free(&b->memory);
  *b = (build_opened){0};
}
