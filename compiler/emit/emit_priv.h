/* emit_priv.h - how source is made from a plan; for compiler/emit only. */
#ifndef TAPERC_EMIT_PRIV_H
#define TAPERC_EMIT_PRIV_H

#include "compiler/emit/emit.h"

/* ---- template.c: the templates carried in the program ---- */
struct embedded_file {
  const char *name, *text;
};
extern const struct embedded_file embedded_files[];

typedef struct emit_value {
  const char *name, *text;
} emit_value; /* a parameter and what stands for it */

/* Text of "templates/cpu/NAME"; NULL: none. */
const char *emit_template(const char *name);
/* A header of the templates without its includes, which the image holds already. */
void emit_header(const char *header, text *out);
/* A template with its parameters replaced, `#if P_X` decided, and what serves it alone left out. false and
 *out_problem: a parameter that params.def or `values` lacks, or an #if that is not closed. */
bool emit_specialise(const char *source, const emit_value *values, size_t n, text *out, const char **out_problem);

/* ---- code.c: bodies of functions ---- */
/* What differs between stages of one function: members of its argument struct. */
typedef enum emit_field_kind {
  FIELD_BUFFER,
  FIELD_WEIGHT,
  FIELD_STATE,
  FIELD_ROTARY,
  FIELD_GATE,
  FIELD_CHUNK, /* of training: values by their ids, all others by index */
  FIELD_PARTIAL,
  FIELD_FIXED,
  FIELD_PARAM,
  FIELD_PACK,
  FIELD_CONST,
  FIELD_DYNAMIC_GATE,
  FIELD_RESULT,
  FIELD_KINDS
} emit_field_kind;

#define EMIT_MAX_FIELDS 256
typedef struct emit_fields {
  uint32_t index[FIELD_KINDS][EMIT_MAX_FIELDS]; /* buffer, weight, state, table; of a gate its value's id */
  uint32_t count[FIELD_KINDS];
  bool full;
} emit_fields;

/* The member for an index: "a->b0". Owned by mem. */
const char *emit_field(arena *mem, emit_fields *f, emit_field_kind kind, uint32_t index);
struct emit_dialect;
void emit_fields_struct(const emit_fields *f, const struct emit_dialect *d, const char *tag, text *out);
void emit_fields_values(const plan *p, const emit_fields *f, text *out);

/* emit_functions' stage of target cpu: functions called f->name and f->name_0, ... */
typedef struct emit_filler emit_filler;
bool emit_stage(emit_filler *f);

/* ---- functions.c: stages that differ by what stands in their argument structs only share a function ---- */
typedef struct emit_function {
  const char *body;  /* with @NAME@ and @COMMENT@ */
  emit_fields shape; /* names of its struct's members */
  const char *name;
  size_t first, count; /* stages */
} emit_function;

typedef struct emit_functions {
  const plan *p;                 /* p, stage, dialect, stem and note are set by the caller, the rest zeroed */
  bool (*stage)(emit_filler *f); /* writes the source of f->s, and collects f->fields; false: *f->problem says why */
  const struct emit_dialect *dialect;
  const char *stem;    /* of the functions' names; NULL: by the kind of stage */
  const char *note[2]; /* around the function's name in the comment in front of it; NULL: no note */
  arena mem;           /* the caller frees it, after a failure too */
  emit_function *list;
  size_t count;
  uint32_t *function_of, *row_of; /* [stage]; row_of: which of the function's stages it is */
  const emit_fields **fields;     /* [stage] */
} emit_functions;
/* false: reported in the sink. */
bool emit_functions_make(emit_functions *f, diag_sink *sink);
/* The function's text. */
void emit_function_put(const emit_functions *s, size_t f, text *out);

/* ---- kernel.c: templates/kernels.def ---- */
typedef enum emit_form { FORM_NONE, FORM_VECTOR, FORM_AXIS, FORM_CODE } emit_form;
emit_form emit_form_of(ir_opcode op);
/* Does its statement begin with the place of the result (`$y[0] = ...`)? */
bool emit_writes_result(ir_opcode op);
typedef struct emit_code {
  const ir_module *m;
  ir_value op;
  arena *mem;
  void *user;
  const char *(*operand)(void *user, size_t i);   /* what stands for $0, $1, ... */
  const char *(*letter)(void *user, char letter); /* for $y, $n, ... */
} emit_code;
/* The code of an op with operands and attributes in it. */
void emit_kernel(const emit_code *c, text *out);

/* ---- steps.c ---- */
typedef struct emit_list emit_list;
/* How a target writes what the steps of all targets have in common. */
typedef struct emit_dialect {
  const char *types[FIELD_KINDS]; /* of the members of argument structs; NULL: the CPU's */
  const char *weight[2], *half[2], *state[2],
      *rotary[2];     /* what stands around a member that means one; half: of 16-bit numbers */
  const char *first;  /* column that a worker's loop begins at */
  const char *sync;   /* between steps: what one worker of a row wrote, the others read */
  const char *number; /* a function around the place of a result that is one number; "": none */
  bool exact;         /* a load or store is of one column */
  const char *(*kept)(const emit_list *l, const plan_step *s); /* where a row's kept value lies */
  const char *(*scratch)(const emit_list *l, size_t i); /* where the value of step i lies, for steps of this list */
} emit_dialect;
extern const emit_dialect emit_cpu;

struct emit_list {
  const plan *p;
  const plan_stage *stage;
  const plan_segment *segment; /* NULL: whole rows */
  const plan_step *steps;
  size_t count;
  emit_fields *fields;
  arena *mem;
  const emit_dialect *dialect;
  uint32_t dots_pitch; /* from one row's products to the next's; 0: the columns of a block */
  void *user;          /* the dialect's */
};
/* The statements that run the steps on row r (or on columns column .. column + n - 1 of it). */
void emit_steps(const emit_list *l, text *out);

/* ---- fill.c: templates of a stage ---- */
/* A template by its name, specialised. false: *out_problem says which parameter or template is missing. */
bool emit_fill(const char *template, const emit_value *values, size_t n, text *out, const char **out_problem);

#define EMIT_MAX_VALUES 32
struct emit_filler {
  const plan *p;
  const plan_stage *s;
  const char *name;
  emit_fields *fields;
  arena *mem;
  text *out;
  const char **problem;
  const emit_dialect *dialect;
  const struct cuda_wide *wide; /* CUDA: the products are made elsewhere, the epilogue is left; else NULL */
  emit_value values[EMIT_MAX_VALUES];
  size_t count;
};
/* Forgets the parameters of the last template and sets those that every template has. */
void fill_begin(emit_filler *f, const char *function);
/* The same, and those that every attention has. */
void fill_begin_attention(emit_filler *f);
void fill_set(emit_filler *f, const char *name, const char *value);
void fill_number(emit_filler *f, const char *name, uint64_t value);
void fill_float(emit_filler *f, const char *name, double value);
void fill_lines(emit_filler *f, const char *name, text *t); /* empties t */
bool fill_template(emit_filler *f, const char *template);   /* as emit_fill */
/* A whole stage of kind rows. */
bool fill_rows(emit_filler *f, const char *template);
emit_list fill_list(const emit_filler *f, const plan_segment *segment, const plan_step *steps, size_t n);
const char *fill_segment_comment(const emit_filler *f, const plan_segment *g);

/* The first op of a stage that kernels.def has no line for; none: IR_NONE. */
ir_value emit_without_kernel(const plan *p, const plan_stage *s);

/* Literals that read back as the same value. */
void emit_float(text *out, double value);       /* "1e-06f" */
void emit_string(text *out, const char *s);     /* "..." as C wants it */
void emit_in_comment(text *out, const char *s); /* never ends the comment */

/* ---- elf.c ---- */
/* Checks that `image` is a shared object for this kind of machine that exports `taper_image` or `taper_train_image` and
 * needs no symbol and no library. */
taper_status emit_check_image(const void *image, size_t size, taper_error *error);

/* ---- process.c ---- */
/* Runs argv[0] (searched in PATH) and waits. Its standard output and error go to files. *out_exit: its exit status, 128
 * + signal when killed. */
taper_status emit_run(const char *const *argv, const char *out_path, const char *err_path, int *out_exit,
                      taper_error *error);

#endif
