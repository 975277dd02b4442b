/* words.c - how remarks name ops. */
#include "compiler/passes/passes_priv.h"

#include <string.h>

const char *pass_label(pass_context *c, ir_value v) {
  const char *name = ir_name_of(c->m, v);
  return name ? name : ir_op_name(ir_opcode_of(c->m, v));
}

const char *pass_place(pass_context *c, ir_value v) {
  diag_loc loc = ir_loc_of(c->m, v);
  const char *name = ir_name_of(c->m, v), *op = ir_op_name(ir_opcode_of(c->m, v));
  const char *what = name ? arena_printf(&c->scratch, "'%s' (%s)", name, op) : op;
  if (!loc.file || !loc.line) return what;
  return arena_printf(&c->scratch, "%s at %s:%u:%u", what, loc.file, loc.line, loc.col);
}

const char *pass_short_label(pass_context *c, ir_value reader, const char *norm) {
  const char *label = pass_label(c, reader);
  const char *dot = strrchr(norm, '.');
  size_t prefix = dot ? (size_t)(dot - norm) + 1 : 0;
  return strncmp(label, norm, prefix) == 0 && label[prefix] ? label + prefix : label;
}
