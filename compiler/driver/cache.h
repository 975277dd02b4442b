/* cache.h - compiled images by what they were made of, in TAPER_CACHE_DIR, else XDG_CACHE_HOME/taperc, else
   HOME/.cache/taperc. */
#ifndef TAPERC_DRIVER_CACHE_H
#define TAPERC_DRIVER_CACHE_H

#include "runtime/base/arena.h"
#include "runtime/base/status.h"
#include <stdbool.h>

/* Everything that an image depends on. Its XXH3-128 names the entry, the entry repeats it, and a reader compares it
   whole: two of one hash, or an entry that was put in the place of another, are a miss and never a wrong image. */
typedef struct cache_id {
  const char *facts; /* arch, options, versions of the compilers */
  const void *source;
  size_t source_size;
} cache_id;

/* The folder's name, from the arena; NULL where there is none to be had. */
const char *cache_folder(arena *a);
/* Makes the folder where it is missing. false: *out_reason (a constant) says why it cannot be used. */
bool cache_usable(const char *folder, const char **out_reason);
/* Looks `id` up; `folder` NULL: among what this process put without a folder. A damaged entry is deleted and not found.
   Results from malloc; *out_note ends in a NUL. */
bool cache_get(const char *folder, const cache_id *id, void **out_image, size_t *out_size, char **out_note);
/* `note` is what else is to be known of the image: CPU features, the log of the compiler. false: cannot be written (the
   reason in error). Any number of processes may put and get at once. */
bool cache_put(const char *folder, const cache_id *id, const void *image, size_t size, const char *note,
               taper_error *error);

#endif
