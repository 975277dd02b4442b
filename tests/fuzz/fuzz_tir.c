/* Any bytes as .tir text: refused with a message, or a module that verifies, prints as text that reads back to the same
   text, survives cloning, and evaluates (in little memory) without a crash. */
#include "compiler/ir/eval.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition) {
  if (!condition) abort();
}

static void check_round_trip(const ir_module *m, diag_sink *sink) {
  text first = {0}, second = {0};
  ir_print(m, &first);
  ir_module *again = ir_parse(first.data, first.size, "again", sink);
  require(again != NULL && !first.failed);
  ir_module *copy = ir_clone(again);
  ir_print(copy, &second);
  require(first.size == second.size && memcmp(first.data, second.data, first.size) == 0);
  ir_module_free(copy);
  ir_module_free(again);
  text_free(&first);
  text_free(&second);
}

static void evaluate(const ir_module *m, ir_region entry) {
  static const int32_t tokens[6] = {0, 1, 2, 0, 1, 2}, pos[2] = {0, 1}, len[2] = {3, 2};
  taper_error error = {0};
  ir_tensor out = {0};
  ir_eval_args args = {
      .batch = 2, .time = 3, .tokens = tokens, .targets = tokens, .pos = pos, .len = len, .memory_limit = 1 << 17};
  if (ir_eval_entry(m, entry, &args, &out, 1, &error) == TAPER_OK)
    ir_tensor_free(&out);
  else
    require(error.message[0] != 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  diag_sink *sink = diag_sink_new();
  ir_module *m = ir_parse((const char *)data, size, "input", sink);
  require((m != NULL) == (diag_error_count(sink) == 0));
  if (m) {
    text dot = {0};
    check_round_trip(m, sink);
    ir_print_dot(m, &dot);
    text_free(&dot);
    for (size_t i = 0; i < ir_entry_count(m); i++) evaluate(m, ir_entry_at(m, i));
  }
  ir_module_free(m);
  diag_sink_free(sink);
  return 0;
}
