/*
 * ir.h - the SSA IR: modules, regions, values.
 *
 * A module has one global region (const, param, gate and compile-time expressions over them) and named entries. Every
 * op yields one value (return: none), so an op and its value share one handle. Order within a region is execution
 * order; an entry may use global values, the global region none of an entry's. Handles stay valid until the module is
 * freed, also across erasure.
 *
 * Types: dimensions B (batch) and T (time) are symbolic, all others positive numbers. Parameters and results: tokens
 * i32[B,T], pos i32[B] (tokens already cached), len i32[B] (valid tokens of the T); then cache states.
 */
#ifndef TAPERC_IR_H
#define TAPERC_IR_H

#include "compiler/diag/diag.h"
#include "runtime/base/arena.h"
#include "runtime/base/status.h"
#include "runtime/base/text.h"

typedef struct {
  uint32_t id;
} ir_value; /* {0}: none */
typedef struct {
  uint32_t id;
} ir_region; /* {0}: none; {1}: the global region */

static inline bool ir_same(ir_value a, ir_value b) { return a.id == b.id; }
#define IR_NONE ((ir_value){0})
#define IR_GLOBALS ((ir_region){1})

typedef enum ir_dtype {
#define DTYPE(id, text, bytes) IR_##id,
#include "compiler/ir/dtype.def"
#undef DTYPE
  IR_DTYPE_COUNT
} ir_dtype;

typedef enum ir_opcode {
  IR_OP_NONE, /* an erased op */
#define OP(id, text, operands, attrs, flags, infer, eval, grad) IR_##id,
#include "compiler/ir/op.def"
#undef OP
  IR_OP_COUNT
} ir_opcode;

typedef enum ir_attr_key {
#define ATTR(id, text, kind) IR_ATTR_##id,
#include "compiler/ir/attr.def"
#undef ATTR
  IR_ATTR_COUNT
} ir_attr_key;

typedef enum ir_attr_kind { IR_KIND_INT, IR_KIND_FLOAT, IR_KIND_STRING, IR_KIND_FLOATS } ir_attr_kind;

enum {
  OPF_PURE = 1 << 0,
  OPF_GLOBAL = 1 << 1,
  OPF_INTERNAL = 1 << 2,
  OPF_STATE = 1 << 3,
  OPF_ROWWISE = 1 << 4,
  OPF_ELEMENTWISE = 1 << 5,
  OPF_LINEAR = 1 << 6,
  OPF_MEAN_BLIND = 1 << 7,
  OPF_NORM = 1 << 8,
  OPF_IDENTITY = 1 << 9,
  OPF_COMMUTATIVE = 1 << 10,
  OPF_TRAIN = 1 << 11,
  OPF_EFFECT = 1 << 12
};

#define IR_MAX_RANK 4
#define IR_DIM_B (-1)
#define IR_DIM_T (-2)
#define IR_MAX_INLINE 64 /* elements of an inline constant */

typedef struct ir_type {
  ir_dtype dtype;
  uint32_t rank;
  bool state; /* a linear value: used once */
  int64_t dim[IR_MAX_RANK];
} ir_type;

typedef struct ir_attr {
  ir_attr_key key;
  union {
    int64_t i;
    double f;
    const char *s;
    struct {
      const double *data;
      size_t n;
    } floats;
  } u;
} ir_attr;

typedef struct ir_module ir_module;

/* ---- the op table ---- */
const char *ir_op_name(ir_opcode op);
bool ir_op_has(ir_opcode op, unsigned flags); /* all of them */
ir_opcode ir_op_find(const char *name);       /* IR_OP_NONE: no such op */

typedef struct ir_operand_spec {
  const char *name; /* "weight" */
  bool optional, variadic, is_param, is_gate, is_positions;
  const char *shape; /* is_param: letters d, o, 1 */
  const char *init;  /* is_param: "ones", "zeros", "normal" or a number */
} ir_operand_spec;
size_t ir_op_operands(ir_opcode op, const ir_operand_spec **out); /* parsed from the table once */
bool ir_op_accepts(ir_opcode op, ir_attr_key key, bool *out_required);
ir_attr_kind ir_attr_kind_of(ir_attr_key key);
const char *ir_attr_name(ir_attr_key key);
bool ir_attr_find(const char *name, ir_attr_key *out);
size_t ir_dtype_size(ir_dtype t);
const char *ir_dtype_name(ir_dtype t);
/* The value that a type has for v: to nearest, ties to even, infinite beyond its range. */
double ir_round_to(ir_dtype type, double v);
/* Writes v, rounded so, as element i of data: f32, bf16 or f16. */
void ir_store(ir_dtype type, void *data, size_t i, double v);

/* ---- modules and regions ---- */
ir_module *ir_module_new(const char *name);
void ir_module_free(ir_module *m);
arena *ir_arena(ir_module *m); /* for data that must live as long as the module */
const char *ir_module_name(const ir_module *m);
/* Model parameters (vocab, context, d, ...) in order of declaration; shown in the text, read by the driver. */
void ir_module_set_param(ir_module *m, const char *name, double value);
bool ir_module_param(const ir_module *m, const char *name, double *out);
size_t ir_module_param_count(const ir_module *m);
const char *ir_module_param_at(const ir_module *m, size_t i, double *out_value);

ir_region ir_entry_add(ir_module *m, const char *name);
ir_region ir_entry_find(const ir_module *m, const char *name);
size_t ir_entry_count(const ir_module *m);
ir_region ir_entry_at(const ir_module *m, size_t i);
const char *ir_region_name(const ir_module *m, ir_region r);
/* For loops: for (v = ir_first(m, r); v.id; v = ir_next(m, v)). Erasing v keeps ir_next(m, v) valid until the next
 * insertion. */
ir_value ir_first(const ir_module *m, ir_region r);
ir_value ir_next(const ir_module *m, ir_value v);
ir_value ir_prev(const ir_module *m, ir_value v);
ir_value ir_last(const ir_module *m, ir_region r);

/* ---- ops ---- */
ir_opcode ir_opcode_of(const ir_module *m, ir_value v); /* IR_OP_NONE when erased */
ir_region ir_region_of(const ir_module *m, ir_value v);
ir_type ir_type_of(const ir_module *m, ir_value v);
diag_loc ir_loc_of(const ir_module *m, ir_value v);
size_t ir_operand_count(const ir_module *m, ir_value v);
ir_value ir_operand(const ir_module *m, ir_value v, size_t i); /* IR_NONE beyond the end or left out */
void ir_set_operand(ir_module *m, ir_value v, size_t i, ir_value to);
bool ir_is(const ir_module *m, ir_value v, ir_opcode op);
/* A name for people, e.g. "layers.0.attn_norm": the attribute `name`, else what the front end called the op, else the
   attribute `tensor`; may be NULL. Setting changes the attribute where there is one. */
const char *ir_name_of(const ir_module *m, ir_value v);
void ir_set_name(ir_module *m, ir_value v, const char *name);

bool ir_has_attr(const ir_module *m, ir_value v, ir_attr_key key);
int64_t ir_attr_int(const ir_module *m, ir_value v, ir_attr_key key, int64_t otherwise);
double ir_attr_float(const ir_module *m, ir_value v, ir_attr_key key, double otherwise);
const char *ir_attr_string(const ir_module *m, ir_value v, ir_attr_key key, const char *otherwise);
const double *ir_attr_floats(const ir_module *m, ir_value v, ir_attr_key key, size_t *out_n); /* NULL: absent */
void ir_set_attr(ir_module *m, ir_value v, ir_attr attr);                                     /* copied; replaces */
void ir_remove_attr(ir_module *m, ir_value v, ir_attr_key key);
size_t ir_attr_count(const ir_module *m, ir_value v);
ir_attr ir_attr_at(const ir_module *m, ir_value v, size_t i); /* sorted by key text */

/* ---- building: every create infers the type and checks operands; a mistake of the caller (a pass) is said on stderr
   with the op and aborts, in every build; what comes from the input goes through ir_infer first. ---- */
typedef struct ir_builder {
  ir_module *m;
  ir_region region;
  ir_value before; /* insertion point; IR_NONE: at the end (before `return`, if there) */
  diag_loc loc;
  const char *name;
} ir_builder;

ir_value ir_build(ir_builder *b, ir_opcode op, const ir_value *operands, size_t n, const ir_attr *attrs,
                  size_t attr_count);
#define IR_BUILD(b, op, ...)                                                                                           \
  ir_build((b), (op), (const ir_value[]){__VA_ARGS__}, sizeof((const ir_value[]){__VA_ARGS__}) / sizeof(ir_value),     \
           NULL, 0)
/* Ops whose type is declared: ARG, CONST, PARAM, GATE. */
ir_value ir_build_typed(ir_builder *b, ir_opcode op, ir_type type, const ir_attr *attrs, size_t attr_count);
ir_value ir_build_const(ir_builder *b, ir_type type, const double *values,
                        size_t n); /* inline (n = elements <= 64) or splat (n = 1) */
/* What ir_build would infer (ops with a declared type: *out is the type to check); false and a message ("operand 1:
 * expected f32[64], got f32[32]") where the operands do not fit. */
bool ir_infer(const ir_module *m, ir_opcode op, const ir_value *operands, size_t n, const ir_attr *attrs,
              size_t attr_count, ir_type *out, text *message);
/* Infers v's type again from its operands and stores it (declared types are only checked); false and a message where
 * they do not fit. */
bool ir_retype(ir_module *m, ir_value v, text *message);

/* ---- attributes with their defaults ---- */
double ir_eps(const ir_module *m, ir_value v); /* norms and row statistics: 1e-6, the LayerNorm family 1e-5 */
double ir_attention_scale(const ir_module *m, ir_value v); /* 1/sqrt(head_dim) */
/* rope: radians a position of each rotated pair, any scaling applied; `pairs` = ir_rope_pairs = dims / 2. Formulas:
 * docs/ir.md. */
size_t ir_rope_pairs(const ir_module *m, ir_value v);
void ir_rope_inv_freq(const ir_module *m, ir_value v, double *out, size_t pairs);

/* ---- changing ---- */
void ir_replace_uses(ir_module *m, ir_value from, ir_value to); /* in all regions */
void ir_replace_uses_except(ir_module *m, ir_value from, ir_value to, ir_value except_user);
void ir_erase(ir_module *m, ir_value v);                        /* must have no use left */
void ir_move_before(ir_module *m, ir_value v, ir_value before); /* same region */
size_t ir_use_count(const ir_module *m, ir_value v);
/* Users of v in order of region, then execution; one entry per user even if it reads v twice. Array owned by scratch.
 */
size_t ir_users(const ir_module *m, ir_value v, arena *scratch, ir_value **out);
uint32_t ir_value_limit(const ir_module *m); /* ids are < this: for side tables */

/* ---- constants' data ---- */
/* Bytes of a const or param: typed as its type, little endian, row-major; not owned (a mapped file, or memory from
 * ir_payload_new). */
void ir_bind(ir_module *m, ir_value v, const void *data);
const void *ir_payload(const ir_module *m, ir_value v); /* NULL: inline, splat or symbolic */
void *ir_payload_new(ir_module *m, size_t bytes);       /* freed with the module; NULL when memory ran out */
bool ir_is_symbolic(const ir_module *m, ir_value v);    /* CONST/PARAM without value and without payload */
bool ir_read_const(const ir_module *m, ir_value v,
                   double *out); /* all elements of a CONST, PARAM or GATE; false when symbolic */

int64_t ir_elements(ir_type t); /* static types only; -1 when symbolic or too large */
bool ir_type_equal(ir_type a, ir_type b);
ir_type ir_type_make(ir_dtype dtype, uint32_t rank, const int64_t *dims);
void ir_print_type(text *out, ir_type t); /* "f32[B,T,64]" */

/* ---- text: the interface (docs/ir.md) ---- */
void ir_print(const ir_module *m, text *out);
void ir_print_unplaced(const ir_module *m, text *out);       /* without loc(...): the same wherever the model lies */
void ir_print_op(const ir_module *m, ir_value v, text *out); /* one line, for messages */
void ir_print_dot(const ir_module *m, text *out);
/* NULL after an error, which is in the sink. `file` is the name in messages. Bounded by docs/limits.md. */
ir_module *ir_parse(const char *source, size_t size, const char *file, diag_sink *sink);
/* Checks every invariant (SSA order, types against the shape rules, linear state, one return); false: reported. */
bool ir_verify(const ir_module *m, diag_sink *sink);
ir_module *ir_clone(const ir_module *m); /* payloads shared: the original must outlive the clone */

#endif
