/* status.h - the failure record of everything below the command line, and the macros that fill it. */
#ifndef TAPER_BASE_STATUS_H
#define TAPER_BASE_STATUS_H

#include "runtime/taper.h"

/* Fills *error (if not NULL) and returns `status`. Of a message that is too long the middle is cut; control characters
   and bytes that are not UTF-8 become '?'. */
taper_status taper_fail(taper_error *error, taper_status status, const char *format, ...) TAPER_PRINTF(3, 4);
/* Puts "CONTEXT: " before the message that is there; returns its status. */
taper_status taper_add_context(taper_error *error, taper_status status, const char *format, ...) TAPER_PRINTF(3, 4);

#if defined(__clang_analyzer__) /* it must see that the value is no TAPER_OK */
#define TAPER_FAIL(error, status, ...) (taper_fail((error), (status), __VA_ARGS__), (status))
#else
#define TAPER_FAIL(error, status, ...) taper_fail((error), (status), __VA_ARGS__)
#endif
#define TAPER_TRY(call)                                                                                                \
  do {                                                                                                                 \
    taper_status taper_try_status_ = (call);                                                                           \
    if (taper_try_status_ != TAPER_OK) return taper_try_status_;                                                       \
  } while (0)

#endif
