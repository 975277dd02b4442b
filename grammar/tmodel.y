/* tmodel.y - the grammar of .tmodel; docs/language.md is its reference. No op is a keyword. */
%require "3.8"
%define api.pure full
%define api.prefix {tmodel_}
%define api.token.prefix {TMODEL_}
%define api.location.type {ast_span}
%define parse.error custom
%define parse.lac full
%define parse.trace false
%expect 0
%locations
%param {void *scanner}
%parse-param {ast_parser *p}
%initial-action { @$ = (ast_span){0, 0}; }

%code requires {
#include "compiler/front/ast.h"
}
%code {
#define YYMAXDEPTH 20000
#define YYLLOC_DEFAULT(current, rhs, n) \
  ((current).begin = (n) ? YYRHSLOC(rhs, 1).begin : YYRHSLOC(rhs, 0).end, (current).end = YYRHSLOC(rhs, (n)).end)
static const ast_id nameless = {NULL, {0, 0}};
int tmodel_lex(TMODEL_STYPE *value, TMODEL_LTYPE *place, void *scanner);
static void tmodel_error(const ast_span *place, void *scanner, ast_parser *p, const char *message);
}

%union {
  ast_id word;
  ast_expr *expr;
  ast_args *args;
  ast_stmt *stmt;
  ast_body *body;
  ast_symbol *symbol;
}

%token EOF 0 "end of file"
%token <word> ID "name" MODEL "model" GATE "gate" PARAM "param" INIT "init" BLOCK "block" FORWARD "forward" TRAIN "train"
%token <word> LET "let" REPEAT "repeat" AS "as" WITH "with" IF "if" ELSE "else" RETURN "return"
%token TRUE "true" FALSE "false" EQ "==" NE "!=" LE "<=" GE ">=" AND "&&" OR "||"
%token <expr> NUMBER "number" STRING "text"

%nterm <expr> expr primary gate_count init
%nterm <args> args arg_list items2
%nterm <body> body stmts block_end else
%nterm <stmt> stmt if
%nterm <word> arg_name index
%nterm <symbol> names name_list

%left "||"
%left "&&"
%nonassoc "==" "!=" '<' "<=" '>' ">="
%left '+' '-'
%left '*' '/' '%'
%precedence UNARY

%%
file: model train;

model: model_head '(' params ')' '{' items '}'
     | model_head '(' params ')' '{' items error '}';
model_head: MODEL ID { ast_model_begin(p, $ID); };

params: %empty | param_list | param_list ',';
param_list: param | param_list ',' param;
param: ID '=' expr { ast_model_param(p, $ID, $expr); };

items: %empty | items item;
item: GATE ID gate_count ';'                { ast_gate(p, $ID, $gate_count); }
    | PARAM ID ':' '[' args ']' init ';'    { ast_tensor(p, $ID, $args, $init); }
    | BLOCK ID '(' names ')' body           { ast_block_add(p, $ID, $names, $body); }
    | FORWARD '(' names ')' body            { ast_forward(p, $FORWARD, $names, $body); }
    | BLOCK error body                        { yyerrok; }
    | FORWARD error body                      { yyerrok; }
    | error ';'                               { yyerrok; };
gate_count: %empty { $$ = NULL; } | '[' expr ']' { $$ = $expr; };
init: %empty { $$ = NULL; } | INIT expr { $$ = $expr; };
names: %empty { $$ = NULL; } | name_list | name_list ',';
name_list: ID { $$ = ast_block_arg(p, NULL, $ID); } | name_list ',' ID { $$ = ast_block_arg(p, $1, $ID); };

body: '{' stmts block_end { $$ = ast_body_close(ast_body_add(p, $stmts, NULL), @$); };
block_end: '}' { $$ = NULL; } | error '}' { $$ = NULL; };
stmts: %empty { $$ = NULL; } | stmts stmt { $$ = ast_body_add(p, $1, $stmt); };
stmt: LET ID '=' expr ';'                     { $$ = ast_let(p, $ID, $expr, @$); }
    | ID '=' expr ';'                         { $$ = ast_assign(p, $ID, $expr, @$); }
    | REPEAT expr AS STRING index body        { $$ = ast_repeat(p, $expr, $STRING, $index, $body, @$); }
    | if
    | RETURN expr ';'                         { $$ = ast_return(p, $expr, @$); }
    | REPEAT error body                       { yyerrok; $$ = NULL; }
    | error ';'                               { yyerrok; $$ = NULL; };
if: IF expr body else                         { $$ = ast_if(p, $expr, $body, $else, @$); }
  | IF error body else                        { yyerrok; $$ = NULL; };
else: %empty { $$ = NULL; } | ELSE body { $$ = $body; } | ELSE if { $$ = ast_body_close(ast_body_add(p, NULL, $if), @if); };
index: %empty { $$ = nameless; } | WITH ID { $$ = $ID; };

expr: primary
    | expr "||" expr { $$ = ast_operation(p, AST_OP_OR, $1, $3, @$); }
    | expr "&&" expr { $$ = ast_operation(p, AST_OP_AND, $1, $3, @$); }
    | expr "==" expr { $$ = ast_operation(p, AST_OP_EQ, $1, $3, @$); }
    | expr "!=" expr { $$ = ast_operation(p, AST_OP_NE, $1, $3, @$); }
    | expr '<' expr  { $$ = ast_operation(p, AST_OP_LT, $1, $3, @$); }
    | expr "<=" expr { $$ = ast_operation(p, AST_OP_LE, $1, $3, @$); }
    | expr '>' expr  { $$ = ast_operation(p, AST_OP_GT, $1, $3, @$); }
    | expr ">=" expr { $$ = ast_operation(p, AST_OP_GE, $1, $3, @$); }
    | expr '+' expr  { $$ = ast_operation(p, AST_OP_ADD, $1, $3, @$); }
    | expr '-' expr  { $$ = ast_operation(p, AST_OP_SUB, $1, $3, @$); }
    | expr '*' expr  { $$ = ast_operation(p, AST_OP_MUL, $1, $3, @$); }
    | expr '/' expr  { $$ = ast_operation(p, AST_OP_DIV, $1, $3, @$); }
    | expr '%' expr  { $$ = ast_operation(p, AST_OP_MOD, $1, $3, @$); }
    | '-' expr %prec UNARY { $$ = ast_operation(p, AST_OP_NEG, $2, NULL, @$); }
    | '!' expr %prec UNARY { $$ = ast_operation(p, AST_OP_NOT, $2, NULL, @$); };
primary: NUMBER | STRING
    | TRUE                { $$ = ast_bool(p, true, @$); }
    | FALSE               { $$ = ast_bool(p, false, @$); }
    | ID                  { $$ = ast_name(p, $ID); }
    | ID '[' expr ']'     { $$ = ast_index(p, $ID, $expr, @$); }
    | ID '(' args ')'     { $$ = ast_call(p, $ID, $args, @$); }
    | '(' expr ')'        { $$ = ast_paren(p, $2, @$); }
    | '(' items2 ')'      { $$ = ast_tuple(p, $2, @$); };
items2: expr ',' expr     { $$ = ast_args_add(p, ast_args_add(p, NULL, nameless, $1), nameless, $3); }
    | items2 ',' expr     { $$ = ast_args_add(p, $1, nameless, $3); };
args: %empty { $$ = NULL; } | arg_list | arg_list ',';
arg_list: expr                            { $$ = ast_args_add(p, NULL, nameless, $expr); }
    | arg_name '=' expr                   { $$ = ast_args_add(p, NULL, $arg_name, $expr); }
    | arg_list ',' expr                   { $$ = ast_args_add(p, $1, nameless, $expr); }
    | arg_list ',' arg_name '=' expr      { $$ = ast_args_add(p, $1, $arg_name, $expr); };
arg_name: ID | GATE | INIT | MODEL;

train: %empty
    | TRAIN '{' settings '}'              { ast_train(p, @$); }
    | TRAIN '{' settings error '}'
    | TRAIN error '{' settings '}';
settings: %empty | settings setting;
setting: ID expr ';'                      { ast_setting_add(p, $ID, $expr); }
    | error ';'                               { yyerrok; };
%%
static int yyreport_syntax_error(const yypcontext_t *context, void *scanner, ast_parser *p) {
  (void)scanner;
  yysymbol_kind_t kinds[YYNTOKENS];
  const char *names[YYNTOKENS];
  int n = yypcontext_expected_tokens(context, kinds, YYNTOKENS);
  for (int i = 0; i < n; i++) names[i] = yysymbol_name(kinds[i]);
  if (yypcontext_token(context) != YYSYMBOL_YYerror) ast_syntax_error(p, *yypcontext_location(context), names, n > 0 ? (size_t)n : 0);
  return 0;
}

/* Only for what the parser itself runs out of. */
static void tmodel_error(const ast_span *place, void *scanner, ast_parser *p, const char *message) {
  (void)scanner, (void)message;
  ast_error(p, DC_FRONT_NESTING, *place, "nested too deeply here; at most 256 levels are possible");
}
