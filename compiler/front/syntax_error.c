/* syntax_error.c - "expected ';' before 'let'": what bison expected, put as a person would. */
#include "compiler/front/ast.h"
#include "runtime/base/text.h"

#include <string.h>

static bool has(const char *const *names, size_t n, const char *name) {
  for (size_t i = 0; i < n; i++)
    if (strcmp(names[i], name) == 0) return true;
  return false;
}

/* Operators that may always follow an expression say nothing. */
static bool is_continuation(const char *name) {
  static const char *const all[] = {
      "||", "&&", "==", "!=", "'<'", "<=", "'>'", ">=", "'+'", "'-'", "'*'", "'/'", "'%'", "'['", "'('"};
  return has(all, sizeof all / sizeof all[0], name);
}

static void put_name(text *t, const char *name) {
  if (strcmp(name, "name") == 0)
    text_puts(t, "a name");
  else if (strcmp(name, "text") == 0)
    text_puts(t, "a text in quotes");
  else if (strcmp(name, "end of file") == 0 || name[0] == '\'')
    text_puts(t, name);
  else
    text_printf(t, "'%s'", name);
}

static void put_expected(text *t, const char *const *names, size_t n) {
  bool expression = has(names, n, "number"), statement = has(names, n, "let"), after = has(names, n, "'*'");
  bool argument = after && has(names, n, "')'"); /* f(x: its name may have been meant as that of an argument */
  const char *rest[8];
  size_t count = 0;
  if (expression) rest[count++] = "an expression";
  if (statement) rest[count++] = "a statement";
  for (size_t i = 0; i < n && count < 8; i++) {
    bool closer = strchr("}])", names[i][1]) && names[i][0] == '\'';
    if (expression || statement ? !closer : after && is_continuation(names[i])) continue;
    if (argument && strcmp(names[i], "'='") == 0) continue;
    rest[count++] = names[i];
  }
  for (size_t i = 0; i < count; i++) {
    if (i) text_puts(t, i + 1 == count ? " or " : ", ");
    if (i < (size_t)(expression + statement))
      text_puts(t, rest[i]);
    else
      put_name(t, rest[i]);
  }
  if (count == 0) text_puts(t, "something else");
}

static void put_found(text *t, const front_source *s, ast_span found) {
  if (found.begin >= s->size) {
    text_puts(t, "the end of the file");
    return;
  }
  uint32_t end = found.end - found.begin > 32 ? found.begin + 32 : found.end;
  while (end > found.begin + 1 && ((unsigned char)s->text[end] & 0xc0) == 0x80) end--;
  text_puts(t, "'");
  text_put(t, s->text + found.begin, end - found.begin);
  text_puts(t, end < found.end ? "...'" : "'");
}

static bool is_keyword(const front_source *s, ast_span span) {
  static const char *const all[] = {"model",  "gate", "param", "init", "block", "forward", "train", "let",
                                    "repeat", "as",   "with",  "if",   "else",  "return",  "true",  "false"};
  for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
    if (strlen(all[i]) == span.end - span.begin && memcmp(all[i], s->text + span.begin, span.end - span.begin) == 0)
      return true;
  return false;
}

void ast_syntax_error(ast_parser *p, ast_span found, const char *const *expected, size_t n) {
  text message = {0};
  bool semicolon = has(expected, n, "';'") && !has(expected, n, "number") && !has(expected, n, "let");
  text_puts(&message, "expected ");
  if (semicolon && has(expected, n, "'*'"))
    text_puts(&message, "';'");
  else
    put_expected(&message, expected, n);
  text_puts(&message, semicolon ? " before " : ", found ");
  put_found(&message, p->source, found);
  if (n == 1 && strcmp(expected[0], "name") == 0 && is_keyword(p->source, found))
    text_puts(&message, ", which is a keyword");
  ast_span place = semicolon ? (ast_span){p->last_token.end, p->last_token.end} : found;
  bool told = !p->stopped;
  ast_error(p, DC_FRONT_SYNTAX, place, "%s", message.data);
  if (told && found.begin >= p->source->size && p->open_count) {
    uint32_t at = p->open[p->open_count - 1];
    diag_note(p->sink, source_loc(p->source, (ast_span){at, at + 1}), "this '%c' is not closed", p->source->text[at]);
  }
  text_free(&message);
}
