/* kernel.c - the kernels of templates/kernels.def, with operands and attributes in them. */
#include "compiler/emit/emit_priv.h"

#include <ctype.h>
#include <string.h>

static const struct {
  emit_form form;
  const char *code;
} kernels[IR_OP_COUNT] = {
#define KERNEL(id, form, code) [IR_##id] = {FORM_##form, code},
#include "templates/kernels.def"
#undef KERNEL
};

emit_form emit_form_of(ir_opcode op) { return kernels[op].form; }
bool emit_writes_result(ir_opcode op) { return kernels[op].code && kernels[op].code[0] == '$'; }

static void put_attr(const emit_code *c, const char *name, size_t n, const char *otherwise, text *out) {
  ir_attr_key key;
  char word[64] = {0};
  if (n >= sizeof word || !ir_attr_find(memcpy(word, name, n), &key)) return;
  if (key == IR_ATTR_EPS)
    emit_float(out, ir_eps(c->m, c->op));
  else if (!ir_has_attr(c->m, c->op, key))
    text_puts(out, otherwise);
  else if (ir_attr_kind_of(key) == IR_KIND_INT)
    text_printf(out, "%lld", (long long)ir_attr_int(c->m, c->op, key, 0));
  else
    emit_float(out, ir_attr_float(c->m, c->op, key, 0));
}

/* @name or @name:DEFAULT; returns its length. */
static size_t put_attr_of(const emit_code *c, const char *code, text *out) {
  size_t n = 1;
  while (islower((unsigned char)code[n]) || code[n] == '_') n++;
  const char *name = code + 1, *otherwise = "0";
  size_t length = n - 1;
  if (code[n] == ':') {
    otherwise = code[n + 1] == '$' ? c->letter(c->user, code[n + 2]) : arena_strndup(c->mem, code + n + 1, 1);
    n += code[n + 1] == '$' ? 3 : 2;
  }
  put_attr(c, name, length, otherwise, out);
  return n;
}

void emit_kernel(const emit_code *c, text *out) {
  const char *code = kernels[ir_opcode_of(c->m, c->op)].code;
  while (*code) {
    if (*code == '$') {
      text_puts(out, isdigit((unsigned char)code[1]) ? c->operand(c->user, (size_t)(code[1] - '0'))
                                                     : c->letter(c->user, code[1]));
      code += 2;
    } else if (*code == '@') {
      code += put_attr_of(c, code, out);
    } else {
      text_put(out, code++, 1);
    }
  }
}
