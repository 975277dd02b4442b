/* fields.c - argument structs: what differs between the stages that share a function; and literals. */
#include "compiler/emit/emit_priv.h"

#include <string.h>

static const struct {
  const char *type, *letter;
} kinds[FIELD_KINDS] = {
    [FIELD_BUFFER] = {"uint64_t", "b"},  [FIELD_WEIGHT] = {"uint32_t", "w"}, [FIELD_STATE] = {"uint32_t", "s"},
    [FIELD_ROTARY] = {"uint32_t", "t"},  [FIELD_GATE] = {"float", "g"},      [FIELD_CHUNK] = {"uint64_t", "k"},
    [FIELD_PARTIAL] = {"uint64_t", "q"}, [FIELD_FIXED] = {"uint64_t", "f"},  [FIELD_PARAM] = {"uint32_t", "p"},
    [FIELD_PACK] = {"uint32_t", "x"},    [FIELD_CONST] = {"uint32_t", "n"},  [FIELD_DYNAMIC_GATE] = {"uint32_t", "d"},
    [FIELD_RESULT] = {"uint32_t", "r"},
};

const char *emit_field(arena *mem, emit_fields *f, emit_field_kind kind, uint32_t index) {
  uint32_t i = 0;
  while (i < f->count[kind] && f->index[kind][i] != index) i++;
  if (i == EMIT_MAX_FIELDS) {
    f->full = true;
    i--;
  } else if (i == f->count[kind]) {
    f->index[kind][f->count[kind]++] = index;
  }
  return arena_printf(mem, "a->%s%u", kinds[kind].letter, i);
}

void emit_fields_struct(const emit_fields *f, const emit_dialect *d, const char *tag, text *out) {
  bool any = false;
  text_printf(out, "struct %s {\n", tag);
  for (int k = 0; k < FIELD_KINDS; k++) {
    if (!f->count[k]) continue;
    any = true;
    const char *type = d && d->types[k] ? d->types[k] : kinds[k].type;
    const char *star = type[strlen(type) - 1] == '*' ? "*" : "";
    text_printf(out, "  %.*s", (int)(strlen(type) - strlen(star)), type);
    for (uint32_t i = 0; i < f->count[k]; i++)
      text_printf(out, "%s%s%s%u", i ? ", " : *star ? "" : " ", star, kinds[k].letter, i);
    text_puts(out, ";\n");
  }
  text_puts(out, any ? "};\n" : "  char none;\n};\n");
}

void emit_fields_values(const plan *p, const emit_fields *f, text *out) {
  const char *comma = "";
  text_puts(out, "{");
  for (int k = 0; k < FIELD_KINDS; k++)
    for (uint32_t i = 0; i < f->count[k]; i++, comma = ", ") {
      uint32_t x = f->index[k][i];
      text_puts(out, comma);
      if (k == FIELD_BUFFER)
        text_printf(out, "%llu", (unsigned long long)p->buffers[x].offset);
      else if (k == FIELD_GATE)
        emit_float(out, ir_attr_floats(p->m, (ir_value){x}, IR_ATTR_VALUE, &(size_t){0})[0]);
      else
        text_printf(out, "%u", x);
    }
  text_puts(out, *comma ? "}" : "0}");
}

void emit_float(text *out, double value) {
  text t = {0};
  text_put_double(&t, (float)value - (float)value == 0 ? value : (double)(float)value);
  if (!t.data) {
    out->failed = true;
    return;
  }
  if (strcmp(t.data, "inf") == 0)
    text_puts(out, "__builtin_inff()");
  else if (strcmp(t.data, "-inf") == 0)
    text_puts(out, "-__builtin_inff()");
  else if (strchr(t.data, 'n'))
    text_puts(out, "__builtin_nanf(\"\")");
  else
    text_printf(out, "%s%sf", t.data, strpbrk(t.data, ".eE") ? "" : ".0");
  text_free(&t);
}

void emit_string(text *out, const char *s) {
  text_puts(out, "\"");
  for (; *s; s++) {
    unsigned char c = (unsigned char)*s;
    if (c == '"' || c == '\\')
      text_printf(out, "\\%c", c);
    else if (c < 0x20 || c == 0x7f || c == '?')
      text_printf(out, "\\%03o", c);
    else
      text_put(out, s, 1);
  }
  text_puts(out, "\"");
}

void emit_in_comment(text *out, const char *s) {
  for (; *s; s++) {
    text_put(out, *s == '\n' || *s == '\r' || *s == '\\' ? " " : s, 1);
    if ((s[0] == '*' && s[1] == '/') || (s[0] == '/' && s[1] == '*')) text_puts(out, " ");
  }
}
