/* parse.h - PTX text to a module: tokens, names, directives, statements, instructions. */
#ifndef TAPER_SIM_PARSE_H
#define TAPER_SIM_PARSE_H

#include "cuda/sim/inst.h"

typedef enum token_kind { TOKEN_END, TOKEN_WORD, TOKEN_NUMBER, TOKEN_STRING, TOKEN_MARK } token_kind;
typedef struct token {
  const char *at;
  uint32_t length, line;
  token_kind kind;
} token;

typedef enum name_kind {
  NAME_REGISTER,
  NAME_GLOBAL,
  NAME_SHARED,
  NAME_DYNAMIC_SHARED,
  NAME_LOCAL,
  NAME_PARAMETER,
  NAME_CALL_AREA,
  NAME_FUNCTION
} name_kind;
typedef enum type_kind {
  TYPE_NONE, /* a predicate, or of no moment */
  TYPE_BITS,
  TYPE_INTEGER,
  TYPE_HALF,
  TYPE_FLOAT,
  TYPE_PACKED, /* numbers that only registers of bits hold: bf16, tf32, pairs */
  TYPE_NUMBER  /* an integer in the text */
} type_kind;

typedef struct name {
  const char *text;
  uint32_t length;
  name_kind kind;
  uint32_t next;   /* in its chain, index + 1 */
  uint32_t family; /* registers: how many of name0, name1, ...; 0: one of this very name */
  uint64_t value;  /* offset, address or index */
  uint64_t size;
  uint8_t width; /* of a register */
  type_kind kind_of_register;
} name;

typedef struct label {
  const char *text;
  uint32_t length, at;
} label;
typedef struct label_use {
  token where;
  uint32_t inst;  /* whose target it is, or INST_NONE */
  uint32_t table; /* else the word of a table */
} label_use;
/* A list of targets that brx.idx names. */
typedef struct target_list {
  token name;
  uint32_t table;
} target_list;

/* The opcode of an instruction, between its dots. */
#define PARSE_PARTS 16u
typedef struct parts {
  const char *at[PARSE_PARTS];
  uint32_t length[PARSE_PARTS], count;
} parts;

/* Where an operand comes from. */
typedef struct operand_source {
  const token *at;
  type_kind kind;
  bool is_address;
} operand_source;

#define PARSE_BUCKETS 1024u
struct decoder {
  sim_module *module;
  const char *file;
  token *tokens;
  size_t token_count, at;
  name *names;
  uint32_t name_count, name_capacity;
  uint32_t scope; /* names from this on are of the innermost scope of a function, where each stands once */
  uint32_t buckets[PARSE_BUCKETS];
  bool inside;        /* a body */
  sim_kernel *kernel; /* NULL in a .func */
  uint32_t place;
  uint32_t unused; /* by the next load: its inst's */
  /* where the next register, argument, local variable and shared variable lie */
  uint32_t register_top, call_top, local_top, shared_top;
  uint32_t module_shared; /* end of the shared variables outside of kernels, those of functions among them */
  label *labels;
  size_t label_count, label_capacity;
  label_use *uses;
  size_t use_count, use_capacity;
  target_list *lists;
  size_t list_count, list_capacity;
  operand_source sources[INST_OPERANDS]; /* of the instruction that is read */
  taper_error *error;
};

/* lex.c */
taper_status parse_tokens(decoder *d, const char *text, size_t size);

static inline const token *parse_peek(const decoder *d) { return &d->tokens[d->at]; }
static inline const token *parse_next(decoder *d) {
  const token *t = &d->tokens[d->at];
  if (t->kind != TOKEN_END) d->at++;
  return t;
}
bool parse_is(const token *t, const char *text);
bool parse_accept(decoder *d, const char *text);
taper_status parse_expect(decoder *d, const char *text);
/* "FILE:LINE: error: ..."; always a failure. */
taper_status parse_fail(decoder *d, const token *t, const char *format, ...) TAPER_PRINTF(3, 4);
/* The bits of a number; bytes: 4 for 0f, 8 for 0d, 0 for an integer. */
bool parse_number(const token *t, uint64_t *out, uint32_t *out_float_bytes);
taper_status parse_unsigned(decoder *d, uint32_t *out);
/* Makes *block, of `count` elements of `size` bytes and room for *capacity, big enough for one more. */
taper_status parse_room(decoder *d, void **block, size_t size, size_t count, size_t *capacity);

/* names.c */
taper_status parse_add_name(decoder *d, const token *t, name value);
const name *parse_find(const decoder *d, const char *text, uint32_t length, uint32_t *out_member);
void parse_pop_names(decoder *d, uint32_t count);
/* .u32 -> 4; 0: not a type that a variable may have. .pred -> 0 with *out_predicate. */
uint32_t parse_type_bytes(const token *t, bool *out_predicate);

/* variables.c: `.global .align 4 .b8 x[16] = {...};` after its space word */
taper_status parse_variable(decoder *d, space where, bool is_extern);
/* body.c: `{ ... }` of a function */
taper_status parse_body(decoder *d);
/* decode.c: one instruction up to its `;` */
taper_status parse_instruction(decoder *d);
/* rules.c: is the instruction, which a row has, one of the module's target and version, and do its parts go together? */
taper_status rules_check(decoder *d, const token *t, const parts *p);
/* Does a condition of rules.def hold? *out_part: the part that its last word found, 0: the opcode. */
bool rules_hold(const char *when, const parts *p, uint32_t *out_part);
/* types.c: the kind of a type without its dot; TYPE_NONE: it is none. */
type_kind types_kind(const char *text, uint32_t length);
/* Are the operands of the types that the opcode names? */
taper_status types_check(decoder *d, const token *t, const parts *p, const inst *i);
/* What this processor executes: `fast` where it can. */
run_fn decode_choose(run_fn run, run_fn fast);
/* operands.c: for the decoders of single instructions */
taper_status operand_register(decoder *d, inst *i, uint32_t width, bool exact); /* a destination */
taper_status operand_value(decoder *d, inst *i, uint32_t width,
                           bool exact); /* register, number or address of a variable */
taper_status operand_predicate(decoder *d, inst *i, bool destination);
taper_status operand_list(decoder *d, inst *i, uint32_t count, uint32_t width, bool exact,
                          bool destination);                     /* {a, b} */
taper_status operand_address(decoder *d, inst *i, space *where); /* [a + 4] */
taper_status operand_immediate(decoder *d, int64_t *out);
taper_status operand_constant(decoder *d, uint64_t value, uint32_t width, uint32_t *out);
taper_status decode_call(decoder *d, inst *i);
taper_status decode_finish_calls(decoder *d);
taper_status decode_label(decoder *d, inst *i);
taper_status decode_indexed(decoder *d, inst *i);

/* rows of all instructions; the last has no rows */
extern const op_table sim_integer_ops, sim_carry_ops, sim_float_ops, sim_half_ops, sim_convert_ops, sim_move_ops,
    sim_logic_ops, sim_access_ops, sim_atomic_ops, sim_collective_ops, sim_matrix_ops, sim_copy_ops, sim_control_ops;

/* collective.c: is it a bar.warp.sync that may name a part of the lanes? */
bool sim_part_barrier(const sim_module *m, const inst *i);

#endif
