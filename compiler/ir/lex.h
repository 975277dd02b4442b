/* lex.h - tokens of .tir text; for compiler/ir only. */
#ifndef TAPERC_IR_LEX_H
#define TAPERC_IR_LEX_H

#include "compiler/ir/ir_priv.h"

typedef enum tir_kind {
  TIR_END,
  TIR_WORD,
  TIR_VALUE /* %name */,
  TIR_NUMBER,
  TIR_STRING,
  TIR_MARK /* one character */,
  TIR_BAD
} tir_kind;

typedef struct tir_token {
  tir_kind kind;
  char mark;
  const char *text; /* in the source; a string with its quotes, a value with its % */
  size_t size;
  uint32_t line, col;
  bool first_on_line;
  const char *problem; /* TIR_BAD: what is wrong */
} tir_token;

typedef struct tir_lexer {
  const char *at, *end, *line_start;
  uint32_t line;
  bool fresh_line;
} tir_lexer;

void tir_lex_start(tir_lexer *lexer, const char *source, size_t size);
tir_token tir_lex(tir_lexer *lexer);
/* The text of a string token, unescaped, zero-terminated; NULL and a problem where an escape is wrong. */
char *tir_unquote(arena *mem, const tir_token *token, const char **out_problem);

#endif
