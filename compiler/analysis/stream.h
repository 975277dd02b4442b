/* stream.h - residual streams: values of one entry joined by add, sub and probes, with who writes and who reads them.
 */
#ifndef TAPERC_ANALYSIS_STREAM_H
#define TAPERC_ANALYSIS_STREAM_H

#include "compiler/analysis/readers.h"

/* A term of the sum: a value of the entry made by another op than add, sub or a probe (user: none), or a global value
   that `user`, an add or sub of the stream, reads (a number added to every element). */
typedef struct analysis_writer {
  ir_value value, user;
} analysis_writer;

typedef struct analysis_stream {
  ir_region entry;
  analysis_writer *writers;
  size_t writer_count;
  analysis_reader *readers; /* ops other than the stream's own add, sub and probes */
  size_t reader_count;
  ir_value *probes;
  size_t probe_count;
  bool mixed; /* members differ in type (a broadcast of entry values): not one sum */
} analysis_stream;

/* The streams of an entry; every value of the entry is in exactly one. Owned by scratch. */
size_t analysis_streams(const ir_module *m, ir_region entry, arena *scratch, analysis_stream **out);
/* Does op only add streams up, or look at them? */
bool analysis_joins(const ir_module *m, ir_value op);

#endif
