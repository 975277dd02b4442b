/* parse_priv.h - the parser's state, shared by parse.c (modules, names) and parse_op.c (ops, attributes, types). */
#ifndef TAPERC_IR_PARSE_PRIV_H
#define TAPERC_IR_PARSE_PRIV_H

#include "compiler/ir/lex.h"

enum {
  TIR_MAX_OPS = 200000,
  TIR_MAX_ALL_OPERANDS = 1000000,
  TIR_MAX_OPERANDS = 4096,
  TIR_MAX_ENTRIES = 64,
  TIR_MAX_PARAMS = 4096,
  TIR_MAX_ERRORS = 20
};
#define TIR_MAX_SOURCE ((size_t)64 << 20)

/* What a name stands for. value {0}: its definition was wrong; uses of it are passed over in silence. */
typedef struct tir_name {
  const char *text;
  size_t size;
  ir_value value;
  uint32_t region, line, col;
} tir_name;

typedef struct tir_parser {
  tir_lexer lexer;
  tir_token token;
  const char *file; /* interned by the sink */
  diag_sink *sink;
  size_t errors;
  ir_module *m;
  ir_region region;
  arena mem;
  tir_name *names; /* open addressing; text NULL: free */
  size_t name_count, name_cap;
  size_t operand_total;
  ir_value *operands; /* [TIR_MAX_OPERANDS] of the op being read */
} tir_parser;

void tir_next(tir_parser *p);
bool tir_is_mark(const tir_parser *p, char mark);
bool tir_is_word(const tir_parser *p, const char *word);
bool tir_accept(tir_parser *p, char mark);
/* False after an error "expected WHAT, found ...". */
bool tir_expect(tir_parser *p, char mark);
bool tir_expected(tir_parser *p, const char *what);
diag_loc tir_loc(const tir_parser *p, const tir_token *t);
bool tir_error(tir_parser *p, diag_code code, const tir_token *t, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
bool tir_string(tir_parser *p, const char **out); /* a string token */
bool tir_integer(tir_parser *p, int64_t *out);
bool tir_double(tir_parser *p, double *out); /* decimal, hex, inf, nan */

const tir_name *tir_find_name(tir_parser *p, const tir_token *t);
void tir_define(tir_parser *p, const tir_token *t, ir_value v);
/* The nearest of `n` words, or NULL when none is near. */
const char *tir_nearest(const char *word, const char *const *words, size_t n);

/* One op, `%x = ...` or `return ...`; false: reported, and the caller recovers. */
bool tir_parse_op(tir_parser *p);

#endif
