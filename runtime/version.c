#include "runtime/taper.h"

#define TEXT_OF(x) #x
#define DOTTED(a, b, c) TEXT_OF(a) "." TEXT_OF(b) "." TEXT_OF(c)

const char *taper_version(void) { return DOTTED(TAPER_VERSION_MAJOR, TAPER_VERSION_MINOR, TAPER_VERSION_PATCH); }

const char *taper_status_name(taper_status status) {
  switch (status) {
  case TAPER_OK: return "ok";
  case TAPER_INVALID: return "invalid";
  case TAPER_IO: return "input or output failed";
  case TAPER_NOMEM: return "out of memory";
  case TAPER_UNSUPPORTED: return "unsupported";
  case TAPER_DEVICE: return "device failed";
  case TAPER_CONTEXT_FULL: return "context full";
  case TAPER_NUMERIC: return "not a finite number";
  case TAPER_STOPPED: return "stopped";
  case TAPER_INTERNAL: return "internal error";
  }
  return "unknown status";
}
