/* ir_priv.h - how modules lie in memory; for compiler/ir only. */
#ifndef TAPERC_IR_PRIV_H
#define TAPERC_IR_PRIV_H

#include "compiler/ir/ir.h"

#define IR_MAX_DIM ((int64_t)INT32_MAX)
#define IR_MAX_ELEMENTS ((int64_t)1 << 40) /* of a static type, and of the static part of a symbolic one */
#define IR_ORDER_STEP ((uint64_t)1 << 36)  /* between neighbours, at first */
#define IR_ORDER_INCH ((uint64_t)1 << 16)  /* a row of ops made before one op takes this much each: 2^20 of them fit */

/* One operand slot; a member of the list of its value's uses. */
typedef struct ir_use {
  ir_value value;
  uint32_t user;
  struct ir_use *prev, *next;
} ir_use;

typedef struct ir_node {
  ir_opcode op;
  uint32_t region, prev, next; /* an erased node keeps `next`, so that a loop over the region goes on */
  uint64_t order;              /* ascends within the region */
  ir_type type;
  diag_loc loc;
  bool loc_hidden;  /* the place in the .tir text itself: for messages, not printed */
  const char *name; /* may be NULL */
  uint32_t operand_count, operand_cap, attr_count, use_count;
  ir_use *operands, *uses;
  ir_attr *attrs; /* sorted by key text */
  const void *payload;
} ir_node;

typedef struct ir_region_data {
  const char *name;
  uint32_t first, last;
} ir_region_data;

typedef struct ir_param_data {
  const char *name;
  double value;
} ir_param_data;

typedef struct ir_memory_list {
  void *data;
  struct ir_memory_list *next;
} ir_memory_list;

struct ir_module {
  arena mem;
  const char *name;
  ir_param_data *params;
  size_t param_count, param_cap;
  ir_region_data *regions; /* [0] unused, [1] the global region */
  uint32_t region_count, region_cap;
  ir_node **nodes; /* [0] unused */
  uint32_t node_count, node_cap;
  const char **files; /* open addressing */
  size_t file_count, file_cap;
  ir_memory_list *payloads;
};

static inline ir_node *ir_node_at(const ir_module *m, ir_value v) { return m->nodes[v.id]; }

/* Adds a node that was checked already. Operands, attributes and strings are copied. */
ir_value ir_node_add(ir_module *m, ir_region region, ir_value before, ir_opcode op, ir_type type,
                     const ir_value *operands, size_t n, const ir_attr *attrs, size_t attr_count);
const char *ir_intern_file(ir_module *m, const char *file);
/* A place in the .tir text: ir_loc_of gives it, the printer does not write it. */
void ir_set_hidden_loc(ir_module *m, ir_value v, diag_loc loc);
void ir_set_loc(ir_module *m, ir_value v, diag_loc loc);
void ir_set_type(ir_module *m, ir_value v, ir_type type);
/* The attribute of a list, or NULL. */
const ir_attr *ir_attr_in(const ir_attr *attrs, size_t n, ir_attr_key key);
/* A mistake of the compiler itself: says it on stderr and aborts, in every build. */
void ir_bug(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
/* Numbers that the printer gives: [ir_value_limit], 0 for what has none; owned by `scratch`; numbers count from 1 here.
 */
uint32_t *ir_print_numbers(const ir_module *m, arena *scratch);
/* Rounds to the storage type, and back. */

#endif
