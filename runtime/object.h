/* object.h - a shared object from a package: put in memory, loaded, its readable memory known. */
#ifndef TAPER_OBJECT_H
#define TAPER_OBJECT_H

#include "runtime/base/status.h"
#include <stdbool.h>

/* The loaded object's readable memory, against which every pointer of its table is checked. */
typedef struct object_extent {
  uintptr_t base;
  uintptr_t first[16], end[16];
  unsigned count;
} object_extent;

typedef struct object_code {
  int fd;       /* the code in memory, open as long as it is loaded: a name of the loader belongs to one descriptor */
  void *handle; /* of dlopen */
  object_extent extent;
} object_code;

/* Puts the ELF file data[0..bytes) in memory, loads it and gives the address of `symbol`. Zero *out first; on failure
   nothing is held. TAPER_INVALID: no object for this machine, or it lacks the symbol; TAPER_IO, TAPER_NOMEM. */
taper_status object_load(const void *data, uint64_t bytes, const char *symbol, object_code *out,
                         const void **out_symbol, taper_error *error);
void object_unload(object_code *o);

/* Whether bytes [at, at + bytes) lie in the object's readable memory; `count` things of `size` bytes at p; a whole
   zero-terminated string at s. */
bool object_holds_address(const object_extent *x, uint64_t at, uint64_t bytes);
bool object_holds(const object_extent *x, const void *p, uint64_t count, uint64_t size);
bool object_holds_string(const object_extent *x, const char *s);

#endif
