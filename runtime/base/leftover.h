/* leftover.h - files and folders that must not outlive the program: where a signal ends it they go with it. */
#ifndef TAPER_BASE_LEFTOVER_H
#define TAPER_BASE_LEFTOVER_H

#include "runtime/base/arena.h"
#include "runtime/base/status.h"

/* Notes a file or a folder of files (its path is copied). Returns its number for leftover_drop; 0: it is not noted, since the table is
   full or the path too long. Any thread. */
unsigned leftover_add(const char *path);
/* It is gone, or is to stay. *number becomes 0; 0 is legal. */
void leftover_drop(unsigned *number);

/* Makes a private folder in TMPDIR, else in /tmp, and notes it. *out_path lives in mem. TAPER_DEVICE. The caller removes it and then drops
   the number. */
taper_status leftover_folder(arena *mem, const char **out_path, unsigned *out_number, taper_error *error);

/* From now on SIGINT, SIGTERM and SIGHUP, where they are not ignored, remove what is noted before they end the program. For programs: the
   library calls it never. Safe in a signal handler. */
void leftover_at_signals(void);

#endif
