/* ptx_op.h - one instruction of PTX applied to many operands, to compare its results with a reference in C. */
#ifndef TEST_PTX_OP_H
#define TEST_PTX_OP_H

#include "tests/unit/ptx_run.h"

typedef uint64_t (*op_reference)(uint64_t a, uint64_t b, uint64_t c, uint64_t e);
typedef struct op_case {
  const char *text;   /* "add.s32 %d, %a, %b;" */
  const char *widths; /* of d, a, b, c, e: p (predicate), 2, 4, 8 */
  op_reference reference;
} op_case;

/* Inputs: each element is a, b, c, e and room for d. */
typedef struct op_element {
  uint64_t in[4], out;
} op_element;

static inline void op_source(const op_case *k, char *text, size_t size) {
  static const char names[] = "dabce";
  size_t n = (size_t)snprintf(
      text, size,
      ".version 8.6\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 data) {\n.reg .b32 %%t;\n.reg .b64 "
      "%%p, %%o;\nmov.u32 %%t, %%tid.x;\nmad.wide.u32 %%o, %%t, 40, 0;\nld.param.u64 %%p, [data];\nadd.s64 %%p, "
      "%%p, %%o;\n");
  for (size_t i = 0; k->widths[i]; i++) {
    const char w = k->widths[i];
    if (w == 'p') {
      n += (size_t)snprintf(text + n, size - n, ".reg .pred %%%c;\n.reg .b32 %%%cw;\n", names[i], names[i]);
      if (i)
        n += (size_t)snprintf(text + n, size - n, "ld.global.b32 %%%cw, [%%p+%zu];\nsetp.ne.u32 %%%c, %%%cw, 0;\n",
                              names[i], 8 * (i - 1), names[i], names[i]);
    } else {
      n += (size_t)snprintf(text + n, size - n, ".reg .b%d %%%c;\n", 8 * (w - '0'), names[i]);
      if (i)
        n += (size_t)snprintf(text + n, size - n, "ld.global.b%d %%%c, [%%p+%zu];\n", 8 * (w - '0'), names[i],
                              8 * (i - 1));
    }
  }
  n += (size_t)snprintf(text + n, size - n, "%s\n", k->text);
  if (k->widths[0] == 'p')
    n += (size_t)snprintf(text + n, size - n, "selp.u32 %%dw, 1, 0, %%d;\nst.global.b32 [%%p+32], %%dw;\n");
  else
    n += (size_t)snprintf(text + n, size - n, "st.global.b%d [%%p+32], %%d;\n", 8 * (k->widths[0] - '0'));
  snprintf(text + n, size - n, "ret;\n}\n");
}

/* Runs the instruction on `count` elements, a multiple of nothing in particular: the last warp is partial. */
static inline void op_run_once(const op_case *k, op_element *elements, uint32_t count) {
  char text[4096];
  op_source(k, text, sizeof(text));
  sim_module *m = ptx_from(text, k->text);
  for (uint32_t at = 0; at < count;) {
    const uint32_t n = count - at < 1000 ? count - at : 1000;
    const uint64_t p = ptx_buffer(elements + at, n * sizeof(*elements));
    const sim_launch l = ptx_launch(m, "k", 1, n, &p);
    ptx_run(&l, NULL);
    memcpy(elements + at, ptx_data(p), n * sizeof(*elements));
    sim_memory_release(memory, p);
    at += n;
  }
  sim_module_unload(m);
}

/* The same on the loops for this processor and on those for every one: they must agree in every bit. */
static inline void op_run(const op_case *k, op_element *elements, uint32_t count) {
  op_element *other = malloc(count * sizeof(*other));
  memcpy(other, elements, count * sizeof(*other));
  sim_any_processor(true);
  op_run_once(k, other, count);
  sim_any_processor(false);
  op_run_once(k, elements, count);
  for (uint32_t i = 0; i < count; i++)
    if (memcmp(&other[i], &elements[i], sizeof(*other)) != 0)
      fail_msg("%s of %llx %llx %llx %llx: %llx by the loops of any processor, %llx by those of this one", k->text,
               (unsigned long long)other[i].in[0], (unsigned long long)other[i].in[1],
               (unsigned long long)other[i].in[2], (unsigned long long)other[i].in[3], (unsigned long long)other[i].out,
               (unsigned long long)elements[i].out);
  free(other);
}

static inline void op_check(const op_case *k, op_element *elements, uint32_t count) {
  const uint64_t mask = k->widths[0] == 'p'   ? 1
                        : k->widths[0] == '8' ? UINT64_MAX
                                              : ((uint64_t)1 << 8 * (k->widths[0] - '0')) - 1;
  op_run(k, elements, count);
  for (uint32_t i = 0; i < count; i++) {
    const uint64_t *in = elements[i].in, want = k->reference(in[0], in[1], in[2], in[3]) & mask,
                   got = elements[i].out & mask;
    if (want != got)
      fail_msg("%s of %llx %llx %llx %llx: %llx, not %llx", k->text, (unsigned long long)in[0],
               (unsigned long long)in[1], (unsigned long long)in[2], (unsigned long long)in[3], (unsigned long long)got,
               (unsigned long long)want);
  }
}

static uint64_t op_state = 88172645463325252u;
static inline uint64_t op_random(void) {
  op_state ^= op_state << 13;
  op_state ^= op_state >> 7;
  return op_state ^= op_state << 17;
}

#endif
