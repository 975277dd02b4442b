/* front_priv.h - what the files of compiler/front share. */
#ifndef TAPERC_FRONT_PRIV_H
#define TAPERC_FRONT_PRIV_H

#include "compiler/front/front.h"
#include "compiler/front/names.h"
#include "compiler/front/train.h"

#define FRONT_MAX_REPEAT 1024
#define FRONT_MAX_OPS 200000    /* lowered, with their weights */
#define FRONT_MAX_STEPS 2000000 /* statements and calls while lowering */
#define FRONT_MAX_DEPTH 1500    /* of expressions, statements and calls within each other while lowering */
#define FRONT_MAX_DIM ((int64_t)INT32_MAX)
#define FRONT_MAX_ELEMENTS ((int64_t)1 << 40)
#define FRONT_MAX_SLOTS 65536 /* variables of one block */

struct front_model {
  arena memory;
  front_source source;
  ast_model model;
  front_train train;
  int *param_kinds; /* front_kind of each model parameter, by slot */
};

typedef struct front_ctx {
  arena *memory;
  const front_source *source;
  ast_model *model;
  diag_sink *sink;
} front_ctx;

void front_error(const front_ctx *c, diag_code code, ast_span span, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
void front_note(const front_ctx *c, ast_span span, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Suggestions cost time: past the errors that are shown there are none. */
bool front_suggests(const front_ctx *c);

/* ---- resolve.c, signature.c: names ---- */
void front_resolve(const front_ctx *c);
/* Says what each argument of an op or function is for, and what is missing, doubled or unknown. */
void front_signature_op(const front_ctx *c, ast_expr *call);
void front_signature_block(const front_ctx *c, ast_expr *call);
void front_signature_function(const front_ctx *c, ast_expr *call);
/* Functions of constants: min, max, sqrt, ... */
bool front_function_find(const char *name, uint32_t *out);
const char *front_function_name(uint32_t f, uint32_t *out_least, uint32_t *out_most);
uint32_t front_function_count(void);
/* The default of an optional attribute that a call leaves out: eps of norms, theta of rope. */
bool front_attr_default(ir_opcode op, ir_attr_key key, double *out);

/* ---- values ---- */
typedef enum front_kind {
  FV_NONE,
  FV_INT,
  FV_FLOAT,
  FV_BOOL,
  FV_STRING,
  FV_GATE,
  FV_TENSOR
} front_kind; /* FV_NONE: reported */

typedef struct front_value {
  front_kind kind;
  union {
    int64_t i;
    double f;
    bool b;
    const char *s;
    struct {
      ast_symbol *symbol;
      int64_t index;
    } gate; /* index -1: the whole array */
    ir_value tensor;
  } u;
} front_value;

const char *front_kind_text(front_kind kind); /* "a whole number" */
double front_number(front_value v);           /* of FV_INT and FV_FLOAT */
static inline bool front_is_number(front_value v) { return v.kind == FV_INT || v.kind == FV_FLOAT; }

/* const.c: NULL, or why there is no result */
const char *front_const_binary(const front_ctx *c, ast_operator op, front_value a, front_value b, front_value *out,
                               diag_code *out_code);
const char *front_const_unary(ast_operator op, front_value a, front_value *out, diag_code *out_code);
const char *front_const_function(uint32_t f, const front_value *args, uint32_t n, front_value *out,
                                 diag_code *out_code);

typedef struct lowering lowering;

/* What expressions are evaluated in. Without `lower` only constants have a value. */
typedef struct front_env {
  const front_ctx *ctx;
  const front_value *params; /* by slot; FV_NONE: not known yet */
  front_value *frame;
  lowering *lower;
  uint32_t depth;
} front_env;

front_value front_eval(front_env *e, const ast_expr *x);
/* Evaluates what must be a whole number in [least, most]; `what` names it. */
bool front_eval_int(front_env *e, const ast_expr *x, const char *what, int64_t least, int64_t most, int64_t *out);
bool front_eval_number(front_env *e, const ast_expr *x, const char *what, double *out);
/* Values of the model's parameters by slot, with -D; false: reported. */
bool front_params(const front_ctx *c, const front_options *options, bool report_options, front_value *out);

/* ---- lower*.c: called by front_eval where a tensor is meant ---- */
void lower_error(lowering *l, diag_code code, ast_span span, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
front_value lower_tensor(lowering *l, ast_symbol *symbol, ast_span span);
front_value lower_operation(lowering *l, const ast_expr *x, front_value a, front_value b);
front_value lower_call(lowering *l, front_env *e, const ast_expr *x);

/* ---- train.c ---- */
/* Checks and stores the train section. */
void front_check_train(const front_ctx *c, const front_options *options, const front_value *params, front_train *out);

/* "normal(0.02)": checks `x` and writes its canonical form; NULL: reported. */
const char *front_eval_init(front_env *e, const ast_expr *x);

#endif
