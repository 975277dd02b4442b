/* inst.h - decoded PTX: what the parser makes and the interpreter runs. */
#ifndef TAPER_SIM_INST_H
#define TAPER_SIM_INST_H

#include "cuda/sim/sim.h"

#define SIM_LANES 32u
#define SIM_ALL_LANES 0xffffffffu
#define SIM_CALL_BYTES 1024u  /* arguments and results of a call, at most */
#define SIM_SHARED_BASE 1024u /* the first byte of shared memory that belongs to a block, as on sm_90 */

/* Generic addresses: windows beside global memory. */
#define SIM_WINDOW_PARAMETER 0x7c0000000000u
#define SIM_WINDOW_LOCAL 0x7d0000000000u
#define SIM_WINDOW_SHARED 0x7e0000000000u
#define SIM_WINDOW_SIZE 0x1000000u

typedef struct warp warp;
typedef struct inst inst;
typedef void (*run_fn)(warp *w, const inst *i);

/* What the loop of a warp does with an instruction. */
typedef enum inst_kind {
  INST_RUN,     /* calls run for the lanes of the group */
  INST_COLLECT, /* waits for the lanes of the member mask (its last operand, or all), then calls run for them */
  INST_BRANCH,
  INST_BRANCH_INDEXED,
  INST_CALL,
  INST_RETURN,
  INST_EXIT,
  INST_BARRIER,
  INST_GRID_WAIT,
  INST_TRAP,
  INST_NANOSLEEP
} inst_kind;

typedef enum space {
  SPACE_GENERIC,
  SPACE_GLOBAL,
  SPACE_SHARED,
  SPACE_LOCAL,
  SPACE_PARAMETER,
  SPACE_CALL,
  SPACE_CONSTANT
} space;

#define LOOSE_GUARD 0x80000000u

/* imm of bar.red */
enum { BARRIER_AND = 1, BARRIER_OR, BARRIER_COUNT };

/* Registers are named by the offset of their 32 lanes in the warp's register file; INST_CONSTANT: in the module's constants. Predicates
   are one word, a bit a lane; 8-bit values live in 16-bit registers. */
#define INST_CONSTANT 0x80000000u
#define INST_REGISTER_BYTES 64u /* offsets are multiples */
#define INST_OPERANDS 20u
#define INST_NONE 0xffffffffu

/* What an instruction does with a register that was never written. A use of it is a fault, unless something is merely computed of it:
   compilers compute ahead of a branch what only one way needs. */
enum {
  WRITTEN_USE,     /* an address, a branch, what leaves the thread */
  WRITTEN_COPY,    /* the destination is as written as the source */
  WRITTEN_CHOICE,  /* as the source that the predicate r[3] chooses, which must be written */
  WRITTEN_COMPUTED /* where all sources are */
};

/* What every execution looks at comes first, in one line of the cache. */
struct inst {
  run_fn run;
  int64_t imm;
  uint32_t guard; /* predicate, or INST_NONE */
  uint32_t
      loose; /* bit k: operand k is a register that may be unwritten somewhere, LOOSE_GUARD: the guard is; looked at while it runs */
  uint32_t target;
  uint8_t kind;
  uint8_t plain; /* INST_RUN with no guard and nothing loose: run is all there is to do */
  uint8_t guard_not;
  uint8_t needs_all; /* INST_COLLECT: of all lanes that are alive, not of a member mask */
  uint8_t destinations, operands;
  uint8_t space, bytes, vector, is_signed, is_read_only, strong, fence; /* accesses */
  uint8_t not_operand;                                                  /* bit k: predicate operand k is negated */
  uint32_t unused;              /* bit k: byte k of what a lane loads is not looked at (used_bytes_mask) */
  uint8_t written_as;           /* WRITTEN_USE, ... */
  uint32_t r[INST_OPERANDS];    /* destinations, then sources */
  uint8_t width[INST_OPERANDS]; /* bytes of a lane in each operand's register, 0: a predicate */
  uint8_t choice[12]; /* which alternative of each part of the pattern, from 1; 0: an optional part is absent */
  uint32_t line;      /* of the PTX */
  uint32_t place;     /* index of the .loc before it, 0 none */
};

/* One form of an instruction. pattern: parts of the opcode between dots; "a|b": one of them; "?a|b": one of them or none. operands: codes
   below; each lane function knows its own. */
#define OPERAND_DEST 0x80u
#define OPERAND_PREDICATE 0x40u
#define OPERAND_IMMEDIATE 0x20u
#define OPERAND_SIZE 0x1fu
typedef struct decoder decoder;
typedef struct op_row {
  const char *pattern;
  run_fn run;
  uint8_t operands[6];                         /* 0 ends */
  uint8_t kind, written_as;                    /* WRITTEN_USE: as its table says */
  taper_status (*decode)(decoder *d, inst *i); /* instead of `operands` */
  run_fn fast;                                 /* the same, compiled for the processors of SIM_FAST; NULL: none */
} op_row;
/* Loops over lanes are compiled twice: for every processor, and for those with these; decode_choose takes what this one can
   execute. */
#if defined(__x86_64__)
#define SIM_FAST __attribute__((target("avx2,fma,bmi,bmi2,popcnt")))
#else
#define SIM_FAST
#endif
typedef struct op_table {
  const op_row *rows;
  size_t count;
  uint8_t written_as; /* of rows that say nothing else */
} op_table;

/* Special registers that a warp holds once its block begins. */
typedef enum special {
#define X(name, text) SPECIAL_##name,
#include "cuda/sim/special.def"
#undef X
  SPECIAL_COUNT
} special;
/* each has a register of 64 bits and one of 32 (its low half), at these offsets in every register file */
#define SPECIAL_WIDE(s) ((uint32_t)(s)*384u)
#define SPECIAL_NARROW(s) (SPECIAL_WIDE(s) + 256u)
#define SPECIAL_BYTES ((uint32_t)SPECIAL_COUNT * 384u)

typedef struct source_place { /* a .loc */
  uint32_t file, line, column;
} source_place;

/* A copy of arguments or results between the areas of caller and callee. */
typedef struct call_copy {
  uint32_t to, from, bytes;
} call_copy;
typedef struct call_site {
  uint32_t callee; /* index of a function */
  call_copy *in, *back;
  uint32_t in_count, back_count;
} call_site;

typedef struct function {
  char *name;
  uint32_t begin, end;                   /* instructions */
  uint32_t first_register, end_register; /* bytes of the register file */
  uint32_t first_call, end_call;         /* bytes of the area of arguments and results */
  uint32_t first_local, end_local;
  uint32_t parameters[SIM_MAX_PARAMETERS], sizes[SIM_MAX_PARAMETERS], parameter_count; /* in that area; results first */
  uint32_t results;
  bool recursive;
} function;

struct sim_kernel {
  sim_module *module;
  sim_kernel_facts facts;
  uint32_t offsets[SIM_MAX_PARAMETERS], sizes[SIM_MAX_PARAMETERS];
  function code;
  uint32_t register_bytes, call_bytes, local_bytes;
  bool parts;                              /* bar.warp.sync of a part of a warp */
  uint32_t shared_granule, global_granule; /* log2 of the least bytes that it accesses at once */
  bool recursive;
};

typedef struct global_variable {
  char *name;
  uint64_t address;
  size_t size;
} global_variable;

struct sim_module {
  char *name;
  sim_memory *memory;
  uint32_t target, version;
  bool loose;        /* some instruction's is not 0 */
  uint32_t specials; /* a bit for each special register that an instruction reads */
  inst *code;
  uint32_t count, capacity;
  uint8_t *constants;
  uint32_t constant_bytes, constant_capacity;
  sim_kernel **kernels;
  size_t kernel_count;
  function *functions;
  size_t function_count;
  global_variable *globals;
  size_t global_count;
  call_site *calls;
  size_t call_count;
  uint32_t *tables; /* targets of brx.idx: count, then instructions */
  size_t table_count;
  source_place *places;
  size_t place_count;
  char **files;
  size_t file_count;
};

/* flow.c: marks the instructions of a function that may read unwritten registers. */
taper_status sim_flow(sim_module *m, function *f, taper_error *error);

#endif
