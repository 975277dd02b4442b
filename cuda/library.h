/* library.h - a foreign library, opened by path or by the first of its names that is there. */
#ifndef TAPER_CUDA_LIBRARY_H
#define TAPER_CUDA_LIBRARY_H

#include "runtime/base/status.h"
#include <stdbool.h>
#include <stddef.h>

typedef struct library_search {
  const char *what;     /* "NVIDIA driver", for messages */
  const char *path;     /* only this one; NULL: see `variable` */
  const char *variable; /* an environment variable that names the only one; unset or empty: see `names` */
  const char *const *names;
  size_t name_count;
  const char *remedy; /* what to do where none is there */
} library_search;

/* Returns what dlopen does and writes the path of the file to out_path[0..cap), cut off if it is too long. NULL:
   TAPER_DEVICE in *error with every name that was tried, the linker's words and the remedy. */
void *library_open(const library_search *search, char *out_path, size_t cap, taper_error *error);

/* Entry points of a table, by name; each is put at its offset in the struct at `out`. */
typedef struct library_symbol {
  const char *name;
  size_t offset;
  bool optional; /* NULL where it is absent */
} library_symbol;
/* NULL: all are there; else the first that is missing. */
const char *library_symbols(void *library, const library_symbol *table, size_t count, void *out);

/* The path of the file NAME beside the program or library that holds this code, or in ../lib or ../.. of there; false:
   not there. */
bool library_beside(const char *name, char *out_path, size_t cap);

#endif
