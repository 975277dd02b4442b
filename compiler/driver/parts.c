#include "compiler/driver/parts.h"
#include "runtime/base/hash.h"
#include "runtime/base/seal.h"
#include <string.h>

void parts_free(package_parts *k) {
  text_free(&k->hashes);
  arena_free(&k->memory);
}

void parts_add(package_parts *k, st_source tensor, size_t bytes) {
  if (k->count == k->cap) {
    st_source *grown = ARENA_ARRAY(&k->memory, st_source, k->cap * 2 + 64);
    if (k->count) memcpy(grown, k->sources, k->count * sizeof *grown);
    k->sources = grown, k->cap = k->cap * 2 + 64;
  }
  text_puts(&k->hashes, k->count ? ", " : "{");
  text_put_quoted(&k->hashes, tensor.name, strlen(tensor.name), true);
  text_printf(&k->hashes, ": \"%s\"", hash_bytes(tensor.data, bytes).hex);
  k->sources[k->count++] = tensor;
}

void parts_add_bytes(package_parts *k, const char *name, const void *data, size_t bytes) {
  parts_add(k, (st_source){.name = name, .dtype = ST_U8, .rank = 1, .shape = {bytes}, .data = data}, bytes);
}

void parts_set(package_parts *k, const char *key, const char *value) {
  if (k->metadata_count < PARTS_MAX_METADATA) k->metadata[k->metadata_count++] = (st_pair){key, value};
}

void parts_add_images(package_parts *k, const build_image *images, size_t n, const char *prefix,
                      const char *features_prefix, const char *list) {
  const char *archs = "";
  for (size_t i = 0; i < n; i++) {
    parts_add_bytes(k, arena_printf(&k->memory, "%s%s", prefix, images[i].arch), images[i].data, images[i].size);
    parts_set(k, arena_printf(&k->memory, "%s%s", features_prefix, images[i].arch), images[i].features);
    archs = arena_printf(&k->memory, "%s%s%s", archs, i ? "," : "", images[i].arch);
  }
  parts_set(k, list, archs);
}

taper_status parts_write(package_parts *k, const model_loaded *m, const char *model_hash, const char *options,
                         const char *compiler, const char *path, taper_error *error) {
  const bool sentencepiece = m->tokens.kind == TOKENIZER_SENTENCEPIECE;
  if (sentencepiece) parts_add_bytes(k, "taper.file." TOKENIZER_FILE, m->tokenizer_file.data, m->tokenizer_file.size);
  if (tokenizer_eos(&m->tokens) >= 0)
    parts_set(k, "taper.end_token", arena_printf(&k->memory, "%d", tokenizer_eos(&m->tokens)));
  text_puts(&k->hashes, k->count ? "}" : "{}");
  if (k->hashes.failed) return TAPER_FAIL(error, TAPER_NOMEM, "no memory for the texts of the package; free some");
  const char *versions = arena_printf(&k->memory, "taperc %s; %s", TAPER_VERSION_TEXT, compiler);
  const st_pair fixed[] = {{"taper.package", "1"},
                           {"taper.features", ""},
                           {"taper.name", m->name},
                           {"taper.model", model_hash},
                           {"taper.target", k->target ? k->target : "cpu"},
                           {"taper.machine", "x86_64-le"},
                           {"taper.gates", m->gates},
                           {"taper.params", m->params},
                           {"taper.tokenizer", tokenizer_name(m->tokens.kind)},
                           {"taper.options", options},
                           {"taper.versions", versions},
                           {"taper.hashes", k->hashes.data}};
  for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++) parts_set(k, fixed[i].key, fixed[i].value);
  hash128 seal = seal_of(k->metadata, k->metadata_count);
  parts_set(k, "taper.seal", seal.hex);
  return st_write(path, k->sources, k->count, k->metadata, k->metadata_count, 64, error);
}
