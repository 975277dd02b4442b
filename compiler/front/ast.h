/*
 * ast.h - the syntax tree of a .tmodel file. The grammar builds it through the ast_*() calls below; resolve.c and
 * signature.c fill in what names mean. Nodes live in the arena of the front_model. Internal to compiler/front and
 * grammar.
 */
#ifndef TAPERC_FRONT_AST_H
#define TAPERC_FRONT_AST_H

#include "compiler/front/source.h"
#include "compiler/ir/ir.h"

#define AST_MAX_NESTING 256
#define AST_MAX_NAME 255
#define AST_MAX_TOKENS 1000000

typedef enum ast_operator {
#define OPERATOR(id, text, precedence) AST_OP_##id,
#include "compiler/front/operators.def"
#undef OPERATOR
} ast_operator;

typedef enum ast_kind {
  AST_BAD, /* an error was reported here */
  AST_INT,
  AST_FLOAT,
  AST_BOOL,
  AST_PERCENT,
  AST_STRING,
  AST_TUPLE,
  AST_NAME,
  AST_INDEX,
  AST_CALL,
  AST_UNARY,
  AST_BINARY
} ast_kind;

typedef struct ast_expr ast_expr;
typedef struct ast_stmt ast_stmt;
typedef struct ast_symbol ast_symbol;
typedef struct ast_block ast_block;

typedef struct ast_id { /* a name as it stands in the source */
  const char *text;
  ast_span span;
} ast_id;

/* What an argument of a call is for; set by signature.c. */
typedef enum ast_role {
  ROLE_NONE, /* reported as wrong */
  ROLE_OPERAND,
  ROLE_ATTR,
  ROLE_OUT,
  ROLE_NAME,
  ROLE_INIT,
  ROLE_STYLE,
  ROLE_SCALING,
  ROLE_CAUSAL,
  ROLE_BLOCK_ARG,
  ROLE_VALUE
} ast_role;

typedef struct ast_arg {
  ast_id name; /* text NULL: positional */
  ast_expr *value;
  ast_role role;
  uint32_t index; /* operand, attribute key or argument of the block */
  struct ast_arg *next;
} ast_arg;

typedef struct ast_args {
  ast_arg *first, *last;
  uint32_t count;
} ast_args;

typedef enum ast_target { TARGET_NONE, TARGET_OP, TARGET_BLOCK, TARGET_FUNCTION } ast_target;

struct ast_expr {
  ast_kind kind;
  uint32_t depth;
  ast_span span;
  union {
    struct {
      const char *text;
      int64_t i;
      double f;
      bool b;
    } number;
    const char *string;
    struct {
      ast_id id;
      ast_symbol *symbol;
      ast_expr *index;
    } name; /* AST_NAME, AST_INDEX */
    struct {
      ast_id id;
      ast_args *args;
      ast_target target;
      ast_symbol *block;
      ir_opcode op;
      uint32_t function;
    } call;
    ast_args *tuple;
    struct {
      ast_operator op;
      ast_expr *a, *b;
    } operation; /* b NULL: unary */
  } u;
};

typedef struct ast_body {
  ast_stmt *first, *last;
  uint32_t depth;
  ast_span span; /* with its braces */
} ast_body;

typedef enum ast_stmt_kind { STMT_BAD, STMT_LET, STMT_ASSIGN, STMT_REPEAT, STMT_IF, STMT_RETURN } ast_stmt_kind;

struct ast_stmt {
  ast_stmt_kind kind;
  ast_span span;
  ast_id id;           /* let, assign: the variable; repeat: the index, text NULL without `with` */
  ast_symbol *symbol;  /* what `id` means */
  ast_expr *value;     /* let, assign, return: the value; repeat: the count; if: the condition */
  ast_expr *label;     /* repeat */
  ast_symbol *carried; /* repeat at the top of forward: the variable that is probed */
  ast_body *body, *otherwise;
  ast_stmt *next;
};

typedef enum ast_symbol_kind {
  SYM_MODEL_PARAM,
  SYM_GATE,
  SYM_TENSOR,
  SYM_BLOCK,
  SYM_FORWARD,
  SYM_ARG,
  SYM_LOCAL,
  SYM_INDEX
} ast_symbol_kind;

struct ast_symbol {
  ast_symbol_kind kind;
  ast_id id;
  uint32_t slot; /* parameters, gates, tensors: ordinal in the model; others: place in the frame of their block */
  bool used;
  ast_expr *value;  /* model parameter: its default; gate: its count, or NULL; tensor: its init, or NULL; local: its
                       first value */
  ast_args *dims;   /* tensor */
  ast_block *block; /* block, forward */
  ast_symbol *next; /* in the model, or among the arguments of a block */
};

struct ast_block {
  ast_symbol *args;
  uint32_t arg_count, slot_count;
  ast_body *body;
  struct ast_edge *calls; /* what its body calls */
  uint32_t call_depth;    /* of the calls below it, itself included; 0: not visited yet */
  bool visiting, failed;  /* failed: its errors were reported while lowering; calls of it are passed over */
};

typedef struct ast_edge { /* a call of one block by another */
  ast_symbol *callee;
  ast_span span;
  struct ast_edge *next;
} ast_edge;

typedef struct ast_setting { /* one line of the train section */
  ast_id id;
  ast_expr *value;
  struct ast_setting *next;
} ast_setting;

typedef struct ast_model {
  ast_id id;
  ast_span span;
  ast_symbol *symbols, *last; /* parameters, then the others in the order of the source */
  uint32_t param_count, gate_count, tensor_count;
  ast_symbol *forward;
  bool has_train;
  ast_span train_span;
  ast_setting *settings, *last_setting;
} ast_model;

/* What the scanner, the grammar and the actions share. */
typedef struct ast_parser {
  arena *memory;
  const front_source *source;
  diag_sink *sink;
  ast_model *model;
  uint32_t offset;                                    /* scanner: next byte */
  uint32_t open[AST_MAX_NESTING], open_count, tokens; /* scanner: brackets not closed yet */
  ast_span last_token;                                /* the token before the look-ahead */
  ast_span token;
  ast_span comment; /* scanner: where the open comment began */
  bool stopped;     /* a limit was passed: no further message */
} ast_parser;

/* Scans and parses; false after an error, which is in the sink. Defined in grammar/tmodel.l. */
bool tmodel_read(ast_parser *p);
void ast_error(ast_parser *p, diag_code code, ast_span span, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* Says what was expected at `found` from bison's list of token names. */
void ast_syntax_error(ast_parser *p, ast_span found, const char *const *expected, size_t n);

/* scanner */
bool ast_token(ast_parser *p, size_t length, bool blank, ast_span *out); /* false: past a limit, stop */
/* Whether the '%' that ends *token makes a percentage of it: a value ends behind it. If not, the token gives it back. */
bool ast_percentage(ast_parser *p, ast_span *token);
void ast_end(ast_parser *p, ast_span *out);                   /* the place behind the last byte */
bool ast_bracket(ast_parser *p, char bracket, ast_span span); /* false: nested too deeply, stop */
ast_id ast_identifier(ast_parser *p, const char *text, size_t size, ast_span span);
ast_expr *ast_number(ast_parser *p, const char *text, size_t size, ast_span span); /* with k, M or % behind it */
ast_expr *ast_string(ast_parser *p, const char *text, size_t size, ast_span span); /* with its quotes */

/* expressions */
ast_expr *ast_bool(ast_parser *p, bool value, ast_span span);
ast_expr *ast_name(ast_parser *p, ast_id id);
ast_expr *ast_index(ast_parser *p, ast_id id, ast_expr *index, ast_span span);
ast_expr *ast_call(ast_parser *p, ast_id id, ast_args *args, ast_span span);
ast_expr *ast_tuple(ast_parser *p, ast_args *items, ast_span span);
ast_expr *ast_paren(ast_parser *p, ast_expr *inner, ast_span span);
ast_expr *ast_operation(ast_parser *p, ast_operator op, ast_expr *a, ast_expr *b, ast_span span);
ast_args *ast_args_add(ast_parser *p, ast_args *list, ast_id name, ast_expr *value); /* list NULL: a new one */

/* statements */
ast_body *ast_body_add(ast_parser *p, ast_body *body, ast_stmt *stmt); /* both may be NULL */
ast_body *ast_body_close(ast_body *body, ast_span span);
ast_stmt *ast_let(ast_parser *p, ast_id id, ast_expr *value, ast_span span);
ast_stmt *ast_assign(ast_parser *p, ast_id id, ast_expr *value, ast_span span);
ast_stmt *ast_repeat(ast_parser *p, ast_expr *count, ast_expr *label, ast_id index, ast_body *body, ast_span span);
ast_stmt *ast_if(ast_parser *p, ast_expr *condition, ast_body *then, ast_body *otherwise, ast_span span);
ast_stmt *ast_return(ast_parser *p, ast_expr *value, ast_span span);

/* declarations */
void ast_model_begin(ast_parser *p, ast_id id);
void ast_model_param(ast_parser *p, ast_id id, ast_expr *value);
void ast_gate(ast_parser *p, ast_id id, ast_expr *count);
void ast_tensor(ast_parser *p, ast_id id, ast_args *dims, ast_expr *init);
void ast_block_add(ast_parser *p, ast_id id, ast_symbol *args, ast_body *body);
void ast_forward(ast_parser *p, ast_id keyword, ast_symbol *args, ast_body *body);
ast_symbol *ast_block_arg(ast_parser *p, ast_symbol *list, ast_id id);
void ast_train(ast_parser *p, ast_span span);
void ast_setting_add(ast_parser *p, ast_id id, ast_expr *value);

const char *ast_operator_text(ast_operator op);
int ast_operator_precedence(ast_operator op);

#endif
