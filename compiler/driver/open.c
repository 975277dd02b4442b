/* What a command computes with. */
#include "compiler/driver/build.h"
#include "runtime/base/file.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Compiles to a file of a private folder, which is gone from the file system before it is used: a kill leaves nothing
 * behind. */
static taper_status make_private(build_opened *b, const build_options *options, diag_sink *sink, taper_error *error) {
  const char *temporary = getenv("TMPDIR");
  char *folder = arena_printf(&b->memory, "%s/taperc-XXXXXX", temporary && *temporary ? temporary : "/tmp");
  if (!mkdtemp(folder)) {
    b->writing = true;
    return TAPER_FAIL(error, TAPER_IO, "%s: cannot be created: %s; set TMPDIR to a folder that can be written", folder,
                      file_error_text(errno));
  }
  const char *path = arena_printf(&b->memory, "%s/model.tpack", folder);
  taper_status status = build_package(&b->source, options, path, sink, &b->built, error);
  b->writing = status == TAPER_IO;
  if (status == TAPER_OK) b->fd = open(path, O_RDONLY | O_CLOEXEC);
  unlink(path);
  rmdir(folder);
  if (status != TAPER_OK) return status;
  if (b->fd < 0)
    return TAPER_FAIL(error, TAPER_IO, "%s: cannot be opened: %s; check TMPDIR", path, file_error_text(errno));
  b->path = arena_printf(&b->memory, "/proc/self/fd/%d", b->fd);
  return TAPER_OK;
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
  out->fd = -1;
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
  tokenizer_find(metadata(out, "taper.tokenizer", "none"), &out->tokenizer.kind);
  return TAPER_OK;
}

void build_close(build_opened *b) {
  taper_model_free(b->model);
  st_close(&b->package);
  model_free(&b->source);
  if (b->path && b->fd >= 0) close(b->fd);
  arena_free(&b->memory);
  *b = (build_opened){.fd = -1};
}
