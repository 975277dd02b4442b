/* nvrtc_tool SOURCE ARCH IMAGE PTX LOG - compiles as taperc does; for tests/emit/cuda_gate.py. Exit 1: the message on standard error. */
#include "cuda/nvrtc.h"
#include "runtime/base/file.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static taper_status write_file(const char *path, const void *data, size_t size, taper_error *error) {
  file_writer w = {0};
  taper_status s = file_writer_open(path, &w, error);
  if (s == TAPER_OK) s = file_writer_put(&w, data, size, error);
  if (s == TAPER_OK) s = file_writer_commit(&w, error);
  return s;
}

int main(int argc, char **argv) {
  char *source = NULL;
  size_t size;
  nvrtc_result r = {0};
  taper_error error = {0};
  if (argc != 6) return fprintf(stderr, "usage: nvrtc_tool SOURCE ARCH IMAGE PTX LOG\n"), 2;
  taper_status s = file_read(argv[1], 64 << 20, &source, &size, &error);
  if (s == TAPER_OK)
    s = nvrtc_compile(&(nvrtc_request){.source = source, .name = "model.cu", .arch = argv[2]}, &r, &error);
  if (r.log) write_file(argv[5], r.log, strlen(r.log), NULL);
  if (s == TAPER_OK) s = write_file(argv[3], r.image, r.size, &error);
  if (s == TAPER_OK) s = write_file(argv[4], r.ptx, r.ptx_size - 1, &error);
  if (s != TAPER_OK) fprintf(stderr, "%s\n", error.message);
  free(source);
  nvrtc_free(&r);
  return s == TAPER_OK ? 0 : 1;
}
