/* parts.h - a package in the making: tensors, texts and metadata, written as one file. docs/package-format.md */
#ifndef TAPERC_DRIVER_PARTS_H
#define TAPERC_DRIVER_PARTS_H

#include "compiler/driver/build.h"
#include "runtime/base/safetensors.h"

#define PARTS_MAX_METADATA 64

/* Zeroed: empty. Data of tensors is not copied: it must live until parts_write. */
typedef struct package_parts {
  arena memory;
  st_source *sources;
  size_t count, cap;
  st_pair metadata[PARTS_MAX_METADATA];
  size_t metadata_count;
  const char *target; /* NULL: "cpu" */
  text hashes;
} package_parts;

void parts_add(package_parts *k, st_source tensor, size_t bytes);
void parts_add_bytes(package_parts *k, const char *name, const void *data, size_t bytes); /* a U8 tensor */
void parts_set(package_parts *k, const char *key, const char *value);
/* Images as tensors `prefix`ARCH (U8), their features as metadata `features_prefix`ARCH, their names as metadata `list`. */
void parts_add_images(package_parts *k, const build_image *images, size_t n, const char *prefix,
                      const char *features_prefix, const char *list);
/* Adds the metadata that every package has (of the model, `compiler`: who made the images) with hashes and seal, and
   writes the file. */
taper_status parts_write(package_parts *k, const model_loaded *m, const char *model_hash, const char *options,
                         const char *compiler, const char *path, taper_error *error);
void parts_free(package_parts *k);

#endif
