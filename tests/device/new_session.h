/* new_session.h - a session or the end of the test. The includer has cmocka.h. */
#ifndef TAPER_TESTS_NEW_SESSION_H
#define TAPER_TESTS_NEW_SESSION_H

#include "runtime/taper.h"

static taper_session *new_session(taper_model *m, uint32_t batch, uint32_t context) {
  taper_session_options o;
  taper_session *s;
  taper_error error;
  taper_session_options_init(&o);
  o.max_batch = batch, o.context = context;
  if (taper_session_new(m, &o, &s, &error) != TAPER_OK) fail_msg("%s", error.message);
  return s;
}

#endif
