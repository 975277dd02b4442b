#include "runtime/base/checked.h"
#include "runtime/base/safetensors_priv.h"
#include "runtime/base/text.h"

#include <stdlib.h>
#include <string.h>

static bool is_utf8(const char *s) {
  for (size_t n = strlen(s), step; n > 0; s += step, n -= step)
    if ((step = utf8_length(s, n)) == 0) return false;
  return true;
}

static int by_text(const void *a, const void *b) { return strcmp(*(const char *const *)a, *(const char *const *)b); }

/* names[0..n) are UTF-8, different from each other and not ours. */
static taper_status check_words(const char *path, const char *what, const char **names, size_t n, taper_error *error) {
  for (size_t i = 0; i < n; i++) {
    if (!is_utf8(names[i]))
      return TAPER_FAIL(error, TAPER_INVALID, "%s: %s '%s': its name is not UTF-8; rename it", path, what, names[i]);
    if (strncmp(names[i], "__pad.", 6) == 0 || strcmp(names[i], "__metadata__") == 0)
      return TAPER_FAIL(error, TAPER_INVALID, "%s: %s '%s': the name is reserved; rename it", path, what, names[i]);
  }
  if (n > 1) qsort(names, n, sizeof *names, by_text);
  for (size_t i = 1; i < n; i++)
    if (strcmp(names[i - 1], names[i]) == 0)
      return TAPER_FAIL(error, TAPER_INVALID, "%s: %s '%s': it would be written twice; rename one", path, what,
                        names[i]);
  return TAPER_OK;
}

static taper_status check_sources(const char *path, const st_source *tensors, size_t count, const st_pair *metadata,
                                  size_t metadata_count, taper_error *error) {
  size_t most = count > metadata_count ? count : metadata_count;
  const char **names = calloc(most + 1, sizeof *names);
  if (!names) return TAPER_FAIL(error, TAPER_NOMEM, "%s: no memory for %zu names; free some memory", path, most);
  for (size_t i = 0; i < count; i++) names[i] = tensors[i].name;
  taper_status status = check_words(path, "tensor", names, count, error);
  for (size_t i = 0; i < metadata_count; i++) names[i] = metadata[i].key;
  if (status == TAPER_OK) status = check_words(path, "metadata key", names, metadata_count, error);
  for (size_t i = 0; i < metadata_count && status == TAPER_OK; i++)
    if (!is_utf8(metadata[i].value))
      status = TAPER_FAIL(error, TAPER_INVALID, "%s: metadata key '%s': its value is not UTF-8; leave it out", path,
                          metadata[i].key);
  free(names);
  return status;
}

static void put_entry(text *header, const char *name, st_dtype type, const uint64_t *shape, uint32_t rank,
                      uint64_t from, uint64_t to) {
  if (header->size > 1) text_puts(header, ",");
  text_put_quoted(header, name, strlen(name), true);
  text_printf(header, ":{\"dtype\":\"%s\",\"shape\":[", st_dtype_name(type));
  for (uint32_t i = 0; i < rank; i++) text_printf(header, i ? ",%llu" : "%llu", (unsigned long long)shape[i]);
  text_printf(header, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)from, (unsigned long long)to);
}

static uint64_t gap(uint64_t at, uint32_t align) { return (align - at % align) % align; }

static taper_status make_header(const char *path, const st_source *tensors, size_t count, const st_pair *metadata,
                                size_t metadata_count, uint32_t align, text *header, taper_error *error) {
  uint64_t at = 0, pads = 0;
  text_puts(header, "{");
  if (metadata_count) text_puts(header, "\"__metadata__\":{");
  for (size_t i = 0; i < metadata_count; i++) {
    if (i) text_puts(header, ",");
    text_put_quoted(header, metadata[i].key, strlen(metadata[i].key), true);
    text_puts(header, ":");
    text_put_quoted(header, metadata[i].value, strlen(metadata[i].value), true);
  }
  if (metadata_count) text_puts(header, "}");
  for (size_t i = 0; i < count; i++) {
    uint64_t elements, bytes, pad = gap(at, align), end;
    if (tensors[i].rank > ST_MAX_RANK ||
        !st_sizes(tensors[i].dtype, tensors[i].shape, tensors[i].rank, &elements, &bytes) ||
        !checked_add_u64(at + pad, bytes, &end) || end > INT64_MAX / 2)
      return TAPER_FAIL(error, TAPER_INVALID, "%s: tensor '%s': its shape is too large to be written; split it", path,
                        tensors[i].name);
    if (pad > 0) {
      char name[32];
      text_format(name, sizeof name, "__pad.%llu", (unsigned long long)pads++);
      put_entry(header, name, ST_U8, &pad, 1, at, at + pad);
    }
    put_entry(header, tensors[i].name, tensors[i].dtype, tensors[i].shape, tensors[i].rank, at + pad, end);
    at = end;
  }
  text_puts(header, "}");
  while (!header->failed && (8 + header->size) % (align > 8 ? align : 8) != 0) text_puts(header, " ");
  if (header->failed) return TAPER_FAIL(error, TAPER_NOMEM, "%s: no memory for the header; free some memory", path);
  if (header->size > ST_MAX_HEADER)
    return TAPER_FAIL(error, TAPER_INVALID,
                      "%s: the header would have %zu bytes, at most %u are allowed; use fewer tensors", path,
                      header->size, ST_MAX_HEADER);
  return TAPER_OK;
}

static taper_status put_tensors(file_writer *w, const st_source *tensors, size_t count, uint32_t align,
                                taper_error *error) {
  static const uint8_t zeros[64];
  uint64_t at = 0;
  for (size_t i = 0; i < count; i++) {
    uint64_t elements, bytes, pad = gap(at, align);
    st_sizes(tensors[i].dtype, tensors[i].shape, tensors[i].rank, &elements, &bytes);
    TAPER_TRY(file_writer_put(w, zeros, (size_t)pad, error));
    TAPER_TRY(file_writer_put(w, tensors[i].data, (size_t)bytes, error));
    at += pad + bytes;
  }
  return TAPER_OK;
}

taper_status st_write(const char *path, const st_source *tensors, size_t count, const st_pair *metadata,
                      size_t metadata_count, uint32_t align, taper_error *error) {
  if (align == 0 || align > 64)
    return TAPER_FAIL(error, TAPER_INVALID, "%s: an alignment of %u bytes; give 1 to 64", path, align);
  TAPER_TRY(check_sources(path, tensors, count, metadata, metadata_count, error));
  text header = {0};
  file_writer w = {0};
  taper_status status = make_header(path, tensors, count, metadata, metadata_count, align, &header, error);
  if (status == TAPER_OK) status = file_writer_open(path, &w, error);
  uint8_t length[8];
  for (size_t i = 0; i < 8; i++) length[i] = (uint8_t)((uint64_t)header.size >> 8 * i);
  if (status == TAPER_OK) status = file_writer_put(&w, length, sizeof length, error);
  if (status == TAPER_OK) status = file_writer_put(&w, header.data, header.size, error);
  if (status == TAPER_OK) status = put_tensors(&w, tensors, count, align, error);
  if (status == TAPER_OK) status = file_writer_commit(&w, error);
  if (status != TAPER_OK) file_writer_abort(&w);
  text_free(&header);
  return status;
}
