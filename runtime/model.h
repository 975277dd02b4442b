/* model.h - inside of the handles of taper.h. */
#ifndef TAPER_MODEL_H
#define TAPER_MODEL_H

#include "runtime/device.h"
#include "runtime/sample.h"

struct taper_model {
  taper_allocator allocator;
  device *device;
  char name[256];
  tokenizer tokenizer;
  int32_t end_token;
};

/* Sizes of the residual stream before the head, as ratios to the median. */
typedef struct session_scale {
  double last, peak; /* of the last token, the largest; 0: not known */
  uint32_t peak_at;  /* position of the first above the limit, or of the largest where none is */
} session_scale;

struct taper_session {
  taper_model *model;
  device_state *state;
  uint32_t max_batch, context;
  uint32_t *length;                      /* [max_batch] tokens held */
  int32_t *history;                      /* [max_batch][context] the tokens themselves */
  uint32_t *reached;                     /* [max_batch] while a call runs: where its sequence has got to */
  uint8_t *named;                        /* [max_batch] while a call is checked: the sequence has an entry */
  int32_t *token, *pos, *slot, *out_row; /* [row_cap] the batch being built */
  float **logits;                        /* [row_cap] */
  float *probe_rows;                     /* [probes][row_cap][width] */
  float *scales;                         /* [row_cap] s(h) of the rows of a batch; NULL: the model says no scale */
  session_scale *scale;                  /* [max_batch] of the last append; NULL as above */
  float *next;                           /* [vocab] logits of taper_generate */
  sample_room room;                      /* of taper_generate */
};

/* The tokens that sequence `seq` holds; taper_session_length of them. */
const int32_t *session_history(const taper_session *s, uint32_t seq);

/* Counts a token whose position the device has computed already; *scale: its s(h), NULL: not known. */
void session_accept(taper_session *s, uint32_t seq, int32_t token, const float *scale);

/* The ratio above which the stream is out of range; 0: not known. */
double model_scale_limit(const taper_model *m);

/* Checks the `size` field of a struct the caller filled. */
taper_status model_check_size(size_t given, size_t expected, const char *type, taper_error *error);

#endif
