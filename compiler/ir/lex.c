/* lex.c - tokens of .tir text. */
#include "compiler/ir/lex.h"

#include <string.h>

enum { LONGEST_STRING = 4096 };

static bool is_alpha(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
static bool is_digit(char c) { return c >= '0' && c <= '9'; }
static bool is_word(char c) { return is_alpha(c) || is_digit(c) || c == '.'; }

void tir_lex_start(tir_lexer *lexer, const char *source, size_t size) {
  *lexer = (tir_lexer){source, source + size, source, 1, true};
  if (size >= 3 && memcmp(source, "\xEF\xBB\xBF", 3) == 0) lexer->at = lexer->line_start = source + 3;
}

static void skip_space(tir_lexer *x) {
  while (x->at < x->end) {
    char c = *x->at;
    if (c == '\n') {
      x->line++;
      x->line_start = x->at + 1;
      x->fresh_line = true;
    } else if (c == '/' && x->end - x->at > 1 && x->at[1] == '/') {
      const char *eol = memchr(x->at, '\n', (size_t)(x->end - x->at));
      x->at = eol ? eol : x->end;
      continue;
    } else if (c != ' ' && c != '\t' && c != '\r') {
      return;
    }
    x->at++;
  }
}

/* The end of a number: letters, digits and dots, and a sign behind an exponent letter. */
static const char *number_end(const char *s, const char *end) {
  if (*s == '-') s++;
  bool hex = end - s > 1 && s[0] == '0' && (s[1] == 'x' || s[1] == 'X');
  char exponent = 0;
  while (s < end && (is_word(*s) || (exponent && (*s == '+' || *s == '-')))) {
    char low = (char)(*s | 0x20);
    exponent = is_alpha(*s) && low == (hex ? 'p' : 'e');
    s++;
  }
  return s;
}

static void lex_string(tir_lexer *x, tir_token *t) {
  const char *s = x->at + 1;
  while (s < x->end && *s != '"' && *s != '\n') s += *s == '\\' && x->end - s > 1 && s[1] != '\n' ? 2 : 1;
  t->kind = TIR_STRING;
  if (s >= x->end || *s != '"') {
    t->kind = TIR_BAD;
    t->problem = "the string has no closing quote on its line";
  } else if (++s - x->at > LONGEST_STRING) {
    t->kind = TIR_BAD;
    t->problem = "the string is longer than 4096 bytes";
  }
  x->at = s;
}

tir_token tir_lex(tir_lexer *x) {
  skip_space(x);
  tir_token t = {
      .text = x->at, .line = x->line, .col = (uint32_t)(x->at - x->line_start + 1), .first_on_line = x->fresh_line};
  x->fresh_line = false;
  if (x->at == x->end) return t;
  char c = *x->at;
  if (c == '"') {
    lex_string(x, &t);
  } else if (is_digit(c) || (c == '-' && x->end - x->at > 1 && is_word(x->at[1]))) {
    t.kind = TIR_NUMBER;
    x->at = number_end(x->at, x->end);
  } else if (is_alpha(c) || c == '%') {
    t.kind = c == '%' ? TIR_VALUE : TIR_WORD;
    do x->at++;
    while (x->at < x->end && is_word(*x->at));
    if (c == '%' && x->at - t.text == 1) {
      t.kind = TIR_BAD;
      t.problem = "'%' without the name of a value";
    }
  } else if (strchr("{}()[],:=@+", c) && c) {
    t.kind = TIR_MARK;
    t.mark = c;
    x->at++;
  } else {
    t.kind = TIR_BAD;
    t.problem = "a character that .tir text does not use";
    while (x->at < x->end && (unsigned char)*x->at >= 0x80) x->at++;
    if (x->at == t.text) x->at++;
  }
  t.size = (size_t)(x->at - t.text);
  return t;
}

static int hex_digit(char c) {
  return is_digit(c) ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

char *tir_unquote(arena *mem, const tir_token *token, const char **out_problem) {
  char *out = arena_alloc(mem, token->size), *to = out;
  const char *end = token->text + token->size - 1;
  for (const char *s = token->text + 1; s < end; s++) {
    if (!*s) {
      *out_problem = "a string holds a zero byte";
      return NULL;
    }
    if (*s != '\\') {
      *to++ = *s;
      continue;
    }
    s++;
    int high = end - s > 2 && *s == 'x' ? hex_digit(s[1]) : -1, low = high >= 0 ? hex_digit(s[2]) : -1;
    if (*s == 'n' || *s == 't')
      *to++ = *s == 'n' ? '\n' : '\t';
    else if (*s == '"' || *s == '\\')
      *to++ = *s;
    else if (low >= 0 && high * 16 + low > 0) {
      *to++ = (char)(high * 16 + low);
      s += 2;
    } else {
      *out_problem = "an escape that is none of \\\" \\\\ \\n \\t \\xHH (not \\x00)";
      return NULL;
    }
  }
  *to = 0;
  return out;
}
