/* template.c - templates: real sources whose parameters are replaced, so that what is emitted can be read. */
#include "compiler/emit/emit_priv.h"

#include <ctype.h>
#include <string.h>

static const char *const params[] = {
#define PARAM(name, type, meaning) #name,
#include "templates/params.def"
#undef PARAM
};

const char *emit_template(const char *name) {
  for (const struct embedded_file *f = embedded_files; f->name; f++)
    if (strcmp(f->name, name) == 0) return f->text;
  return NULL;
}

static size_t line_length(const char *s) {
  const char *end = strchr(s, '\n');
  return end ? (size_t)(end - s) + 1 : strlen(s);
}

static bool starts(const char *s, const char *word) { return strncmp(s, word, strlen(word)) == 0; }

void emit_header(const char *s, text *out) {
  for (size_t n; *s; s += n) {
    n = line_length(s);
    const char *next = s + n;
    if (starts(s, "#if !defined(TAPER_") && starts(next, "#include \""))
      n += line_length(next), n += line_length(s + n);
    else
      text_put(out, s, n);
  }
}

static const char *value_of(const emit_value *values, size_t n, const char *name, size_t length) {
  for (size_t i = 0; i < n; i++)
    if (strlen(values[i].name) == length && strncmp(values[i].name, name, length) == 0) return values[i].text;
  return NULL;
}

static bool is_param(const char *name, size_t length) {
  for (size_t i = 0; i < sizeof params / sizeof *params; i++)
    if (strlen(params[i]) == length && strncmp(params[i], name, length) == 0) return true;
  return false;
}

static size_t word_length(const char *s) {
  size_t n = 0;
  while (isalnum((unsigned char)s[n]) || s[n] == '_') n++;
  return n;
}

/* Lines of a CODE parameter, each behind the indentation of the place where it stands. */
static void put_lines(const char *value, size_t indent, text *out) {
  for (size_t n; *value; value += n) {
    n = line_length(value);
    if (*value != '\n') text_printf(out, "%*s", (int)indent, "");
    text_put(out, value, n);
  }
  if (out->size && out->data[out->size - 1] != '\n') text_puts(out, "\n");
}

static bool put_line(const char *s, size_t n, const emit_value *values, size_t count, text *out,
                     const char **out_problem) {
  size_t indent = strspn(s, " "), word = word_length(s + indent);
  bool alone = starts(s + indent, "P_") && s[indent + word] == '\n';
  for (size_t i = 0; i < n;) {
    size_t w = word_length(s + i);
    if (!w || !starts(s + i, "P_")) {
      text_put(out, s + i, w ? w : 1);
      i += w ? w : 1;
      continue;
    }
    const char *value = value_of(values, count, s + i, w);
    if (!value || !is_param(s + i, w)) {
      *out_problem = s + i;
      return false;
    }
    if (!alone) {
      text_puts(out, value);
      i += w;
      continue;
    }
    if (out->size) out->size -= indent, out->data[out->size] = 0;
    put_lines(value, indent, out);
    break;
  }
  return true;
}

typedef struct conditions {
  bool active[16], taken[16];
  size_t depth;
} conditions;

/* #if P_X, #else, #endif. 1: was one; 0: an ordinary line; -1: wrong. */
static int step_condition(conditions *c, const char *s, const emit_value *values, size_t n) {
  if (starts(s, "#if P_")) {
    const char *value = value_of(values, n, s + 4, word_length(s + 4));
    if (!value || c->depth + 1 >= 16) return -1;
    bool on = strcmp(value, "0") != 0;
    c->depth++;
    c->active[c->depth] = c->active[c->depth - 1] && on, c->taken[c->depth] = on;
    return 1;
  }
  if (!starts(s, "#else") && !starts(s, "#endif")) return 0;
  if (!c->depth) return -1;
  if (starts(s, "#endif"))
    c->depth--;
  else
    c->active[c->depth] = c->active[c->depth - 1] && !c->taken[c->depth];
  return 1;
}

bool emit_specialise(const char *s, const emit_value *values, size_t n, text *out, const char **out_problem) {
  conditions c = {.active = {true}};
  if (starts(s, "/*")) { /* what the file is */
    const char *end = strstr(s, "*/");
    s = end ? end + line_length(end) : s + strlen(s);
  }
  if (starts(s, "#ifndef P_NAME")) { /* what serves the template alone */
    while (*s && !starts(s, "#endif")) s += line_length(s);
    s += line_length(s);
  }
  for (size_t length; *s; s += length) {
    length = line_length(s);
    *out_problem = s;
    int r = step_condition(&c, s, values, n);
    if (r < 0) return false;
    if (r == 0 && c.active[c.depth] && !put_line(s, length, values, n, out, out_problem)) return false;
  }
  return c.depth == 0;
}
