/* st_tool - lets test_safetensors.py call the reader and the writer: copy IN OUT ALIGN | dump FILE | accept FILE... */
#include "runtime/base/safetensors.h"
#include "runtime/base/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int fail(const taper_error *error) {
  fprintf(stderr, "%s\n", error->message);
  return 1;
}

static int copy(const char *in, const char *out, uint32_t align) {
  st_file f;
  taper_error error = {0};
  if (st_open(in, &f, &error) != TAPER_OK) return fail(&error);
  st_source *sources = calloc(f.count + 1, sizeof *sources);
  for (size_t i = 0; i < f.count; i++) {
    const st_tensor *t = &f.tensors[i];
    sources[i] = (st_source){.name = t->name, .dtype = t->dtype, .rank = t->rank, .data = t->data};
    memcpy(sources[i].shape, t->shape, sizeof t->shape);
  }
  int result =
      st_write(out, sources, f.count, f.metadata, f.metadata_count, align, &error) == TAPER_OK ? 0 : fail(&error);
  free(sources);
  st_close(&f);
  return result;
}

static int dump(const char *path) {
  st_file f;
  taper_error error = {0};
  if (st_open(path, &f, &error) != TAPER_OK) return fail(&error);
  text out = {0};
  for (size_t i = 0; i < f.count; i++) {
    const st_tensor *t = &f.tensors[i];
    text_puts(&out, "{\"name\":");
    text_put_quoted(&out, t->name, strlen(t->name), true);
    text_printf(&out, ",\"dtype\":\"%s\",\"offset\":%llu,\"shape\":[", st_dtype_name(t->dtype),
                (unsigned long long)t->offset);
    for (uint32_t k = 0; k < t->rank; k++) text_printf(&out, k ? ",%llu" : "%llu", (unsigned long long)t->shape[k]);
    text_puts(&out, "],\"values\":[");
    for (uint64_t k = 0; k < t->elements; k++) {
      double value;
      st_read_f64(t, k, 1, &value);
      text_puts(&out, k ? ",\"" : "\"");
      text_put_hex(&out, value);
      text_puts(&out, "\"");
    }
    text_puts(&out, "]}\n");
  }
  fwrite(out.data ? out.data : "", 1, out.size, stdout);
  text_free(&out);
  st_close(&f);
  return 0;
}

static int accept(char **paths, int n) {
  for (int i = 0; i < n; i++) {
    st_file f;
    taper_error error = {0};
    bool good = st_open(paths[i], &f, &error) == TAPER_OK;
    puts(good ? "yes" : error.message);
    if (good) st_close(&f);
  }
  return 0;
}

int main(int argc, char **argv) {
  if (argc == 5 && strcmp(argv[1], "copy") == 0) return copy(argv[2], argv[3], (uint32_t)atoi(argv[4]));
  if (argc == 3 && strcmp(argv[1], "dump") == 0) return dump(argv[2]);
  if (argc > 2 && strcmp(argv[1], "accept") == 0) return accept(argv + 2, argc - 2);
  fprintf(stderr, "usage: st_tool copy IN OUT ALIGN | dump FILE | accept FILE...\n");
  return 2;
}
