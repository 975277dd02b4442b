/* forward.h - logits of every position of a window of ids, handed on in chunks so that memory stays small. */
#ifndef TAPERC_CLI_FORWARD_H
#define TAPERC_CLI_FORWARD_H

#include "compiler/cli/cli.h"

typedef struct forward_sink {
  void *user;
  void (*on_logits)(void *user, size_t position, const float *logits); /* [vocab], in order of position; may be NULL */
  taper_layer_fn on_layer;                                             /* may be NULL */
} forward_sink;

/* Forgets what the session holds and runs ids[0..n). `buffer`: [FORWARD_ROWS * vocab]. Exit code. */
enum { FORWARD_ROWS = 64 };
int forward_window(cli *c, taper_session *session, uint32_t vocab, const int32_t *ids, size_t n, float *buffer,
                   const forward_sink *sink);
/* The buffer for forward_window; NULL after the message. From malloc. */
float *forward_buffer(cli *c, uint32_t vocab);

#endif
