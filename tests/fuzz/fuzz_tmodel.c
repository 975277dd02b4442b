/* Any text as a .tmodel: refused with a message, or a tree whose canonical form reads back the same, and a module that
 * verifies. */
#include "compiler/front/front.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_print(const front_model *f, diag_sink *sink) {
  text once = {0}, twice = {0};
  front_print_ast(f, &once);
  front_model *again = front_parse(once.data, once.size, "printed", NULL, sink);
  if (!again) abort();
  front_print_ast(again, &twice);
  if (once.size != twice.size || memcmp(once.data, twice.data, once.size) != 0) abort();
  front_free(again);
  text_free(&once);
  text_free(&twice);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  diag_sink *sink = diag_sink_new();
  front_options options = {.train = size % 2 == 1};
  front_model *f = front_parse((const char *)data, size, "input", &options, sink);
  if (!f && diag_error_count(sink) == 0) abort();
  if (f) {
    check_print(f, sink);
    ir_module *m = front_lower(f, &options, sink);
    if (!m && diag_error_count(sink) == 0) abort();
    if (m && !ir_verify(m, sink)) abort();
    ir_module_free(m);
  }
  front_free(f);
  diag_sink_free(sink);
  return 0;
}
