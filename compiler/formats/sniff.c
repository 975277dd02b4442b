#include "compiler/formats/sniff.h"
#include "runtime/base/safetensors.h"
#include "runtime/base/text.h"

#include <dirent.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

const char *format_kind_name(format_kind kind) {
  static const char *const names[] = {
      [FORMAT_UNKNOWN] = "unknown", [FORMAT_FOLDER] = "folder",   [FORMAT_CHECKPOINT] = "checkpoint",
      [FORMAT_PACKAGE] = "package", [FORMAT_TIR] = "tir",         [FORMAT_SAFETENSORS] = "safetensors",
      [FORMAT_GGUF] = "gguf",       [FORMAT_LLAMA2C] = "llama2c", [FORMAT_TMODEL] = "tmodel",
  };
  return names[kind];
}

static bool is_checkpoint_name(const char *name) {
  size_t digits = strncmp(name, "checkpoint-", 11) == 0 ? strspn(name + 11, "0123456789") : 0;
  return digits > 0 && name[11 + digits] == 0;
}

static taper_status sniff_folder(const char *path, format_kind *out, taper_error *error) {
  DIR *folder = opendir(path);
  if (!folder)
    return TAPER_FAIL(error, TAPER_IO, "%s: cannot be listed: %s; check its permissions", path, file_error_text(errno));
  *out = FORMAT_FOLDER;
  for (struct dirent *e; (e = readdir(folder));)
    if (strcmp(e->d_name, "manifest.json") == 0 || is_checkpoint_name(e->d_name)) *out = FORMAT_CHECKPOINT;
  closedir(folder);
  return TAPER_OK;
}

static uint32_t u32_at(const mapped_file *m, size_t at) {
  uint32_t value = 0;
  for (size_t i = 0; i < 4; i++) value |= (uint32_t)m->data[at + i] << 8 * i;
  return value;
}

static bool is_safetensors(const mapped_file *m) {
  return m->size > 8 && u32_at(m, 4) == 0 && u32_at(m, 0) <= ST_MAX_HEADER && m->data[8] == '{';
}

static format_kind safetensors_or_package(const char *path, const mapped_file *m) {
  st_file file;
  if (st_open_memory(m->data, m->size, path, &file, NULL) != TAPER_OK) return FORMAT_SAFETENSORS;
  bool package = st_metadata(&file, "taper.package") != NULL;
  st_close(&file);
  return package ? FORMAT_PACKAGE : FORMAT_SAFETENSORS;
}

/* Version 0 has no mark of its own: seven numbers, and a size that must follow from them. */
static bool is_llama2c(const mapped_file *m) {
  if (m->size >= 256 && u32_at(m, 0) == 0x616b3432u) return true;
  if (m->size < 28) return false;
  int64_t v[7];
  for (size_t i = 0; i < 7; i++) v[i] = (int32_t)u32_at(m, 4 * i);
  int64_t d = v[0], hidden = v[1], layers = v[2], heads = v[3], kv_heads = v[4], vocab = v[5] < 0 ? -v[5] : v[5],
          context = v[6];
  if (d <= 0 || hidden <= 0 || layers <= 0 || heads <= 0 || kv_heads <= 0 || vocab == 0 || context <= 0) return false;
  if (d > 1 << 16 || hidden > 1 << 20 || layers > 4096 || heads > d || kv_heads > heads || vocab > 1 << 24 ||
      context > 1 << 24)
    return false;
  if (d % heads != 0 || heads % kv_heads != 0) return false;
  int64_t head = d / heads, layer = 2 * d + 2 * d * d + 2 * d * kv_heads * head + 3 * d * hidden;
  int64_t floats = vocab * d + layers * layer + d + context * head + (v[5] < 0 ? vocab * d : 0);
  return (uint64_t)m->size == 28 + 4 * (uint64_t)floats;
}

/* The first word after white space and comments; *out_n 0: there is none. */
static const char *first_word(const mapped_file *m, size_t *out_n) {
  const char *s = (const char *)m->data, *end = s + m->size;
  if (m->size >= 3 && memcmp(s, "\xef\xbb\xbf", 3) == 0) s += 3;
  for (bool more = true; more && s < end;) {
    const char *stop = NULL;
    more = false;
    while (s < end && (*s == ' ' || *s == '\t' || *s == '\r' || *s == '\n')) s++;
    if (end - s >= 2 && memcmp(s, "//", 2) == 0) stop = memchr(s, '\n', (size_t)(end - s)), more = true;
    if (end - s >= 2 && memcmp(s, "/*", 2) == 0) stop = memmem(s + 2, (size_t)(end - s - 2), "*/", 2), more = true;
    if (more) s = stop ? stop + (*stop == '*' ? 2 : 1) : end;
  }
  size_t n = 0;
  while (n < (size_t)(end - s) && n < 64 &&
         ((s[n] >= 'a' && s[n] <= 'z') || (s[n] >= 'A' && s[n] <= 'Z') || s[n] == '_'))
    n++;
  *out_n = n;
  return s;
}

static const char *seems(const mapped_file *m) {
  const char *guess = file_guess(m->data, m->size, NULL);
  if (guess) return guess;
  for (size_t i = 0, n = m->size < 4096 ? m->size : 4096, step; i < n; i += step) {
    step = utf8_length(m->data + i, m->size - i);
    if (step == 0 || (m->data[i] < 32 && !strchr("\t\n\r\f", m->data[i])) || m->data[i] == 0) return "binary data";
  }
  return "text of another kind";
}

static bool ends_with(const char *s, const char *end) {
  size_t n = strlen(s), m = strlen(end);
  return n >= m && strcmp(s + n - m, end) == 0;
}

static format_kind sniff_content(const char *path, const mapped_file *m) {
  if (is_safetensors(m)) return safetensors_or_package(path, m);
  if (m->size >= 4 && memcmp(m->data, "GGUF", 4) == 0) return FORMAT_GGUF;
  if (is_llama2c(m)) return FORMAT_LLAMA2C;
  if (file_guess(m->data, m->size, NULL)) return FORMAT_UNKNOWN;
  size_t n;
  const char *word = first_word(m, &n);
  if (n == 3 && memcmp(word, "tir", 3) == 0) return FORMAT_TIR;
  if (n == 5 && memcmp(word, "model", 5) == 0) return FORMAT_TMODEL;
  return ends_with(path, ".tmodel") ? FORMAT_TMODEL : ends_with(path, ".tir") ? FORMAT_TIR : FORMAT_UNKNOWN;
}

taper_status formats_sniff(const char *path, format_kind *out, const char **out_guess, taper_error *error) {
  struct stat info;
  mapped_file map = {0};
  *out = FORMAT_UNKNOWN;
  if (out_guess) *out_guess = NULL;
  if (stat(path, &info) == 0 && S_ISDIR(info.st_mode)) return sniff_folder(path, out, error);
  TAPER_TRY(file_map(path, &map, error));
  *out = sniff_content(path, &map);
  if (*out == FORMAT_UNKNOWN && out_guess) *out_guess = seems(&map);
  file_unmap(&map);
  return TAPER_OK;
}
