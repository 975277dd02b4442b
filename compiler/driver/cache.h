/* cache.h - compiled images by key, in TAPER_CACHE_DIR, else XDG_CACHE_HOME/taperc, else HOME/.cache/taperc. */
#ifndef TAPERC_DRIVER_CACHE_H
#define TAPERC_DRIVER_CACHE_H

#include "runtime/base/arena.h"
#include "runtime/base/status.h"
#include <stdbool.h>

/* The folder's name, from the arena; NULL where there is none to be had. */
const char *cache_folder(arena *a);
/* Makes the folder where it is missing. false: *out_reason (a constant) says why it cannot be used. */
bool cache_usable(const char *folder, const char **out_reason);
/* Looks up KEY. A damaged entry is deleted and not found. Results from malloc. */
bool cache_get(const char *folder, const char *key, void **out_image, size_t *out_size, char **out_features);
/* false: cannot be written (the reason in error). */
bool cache_put(const char *folder, const char *key, const void *image, size_t size, const char *features,
               taper_error *error);

#endif
