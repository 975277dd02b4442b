#include "compiler/cli/forward.h"
#include <stdlib.h>

float *forward_buffer(cli *c, uint32_t vocab) {
  float *buffer = malloc(sizeof *buffer * FORWARD_ROWS * vocab);
  if (!buffer) cli_fail(c, CLI_ENVIRONMENT, "no memory for the logits of %d positions", FORWARD_ROWS);
  return buffer;
}

int forward_window(cli *c, taper_session *session, uint32_t vocab, const int32_t *ids, size_t n, float *buffer,
                   const forward_sink *sink) {
  taper_error error = {0};
  taper_status status = taper_session_rewind(session, 0, 0, &error);
  for (size_t at = 0; status == TAPER_OK && at < n; at += FORWARD_ROWS) {
    size_t rows = n - at < FORWARD_ROWS ? n - at : FORWARD_ROWS;
    status = taper_session_append_all(session, 0, ids + at, rows, buffer, sink->on_layer, sink->user, &error);
    for (size_t r = 0; status == TAPER_OK && sink->on_logits && r < rows; r++)
      sink->on_logits(sink->user, at + r, buffer + r * vocab);
  }
  return status == TAPER_OK ? CLI_OK : cli_fail_status(c, status, &error, false);
}
