/* Small kernels that are in order, and the same with one thing missing: plain accesses under atomic ones, bar.arrive, barriers of a part of a
   warp, lanes that wait for each other, shared variables of functions. */
#include "tests/unit/ptx_run.h"

typedef struct order_case {
  const char *name;
  sim_fault_kind kind; /* SIM_NO_FAULT: data[0] is `want` */
  uint32_t blocks, threads, want;
  const char *body;    /* %t, %b: thread and block; %d: data; %s: its word in room; %z: thread 0; %f: block 0 */
  const char *outside; /* ahead of the kernel */
} order_case;

#define GATHER "bar.sync 0;\n@%z ld.shared.u32 %v, [room];\n@%z st.global.u32 [%d], %v;\n"
#define INIT "@%z st.shared.u32 [room], 0;\n"
#define FIRST "and.pred %p, %z, %f;\n"
#define NOT_FIRST "@!%z bra END;\n@%f bra END;\n"
#define RELEASE "membar.gl;\n@%p atom.global.exch.b32 %v, [%d+4], 1;\n"
#define ACQUIRE "WAIT: ld.volatile.global.u32 %v, [%d+4];\nsetp.eq.u32 %p, %v, 0;\n@%p bra WAIT;\nmembar.gl;\n"
#define HALVES(first, between) /* warp 0 arrives, warp 1 waits and reads what `first` and `between` wrote */           \
  "setp.lt.u32 %p, %t, 32;\n@!%p bra OTHER;\n" first "bar.arrive 1, 64;\n" between                                     \
  "bra END;\nOTHER: bar.sync 1, 64;\nld.shared.u32 %v, [%s+-128];\nsetp.eq.u32 %z, %t, 32;\n@%z st.global.u32 [%d], "  \
  "%v;\nEND: "
#define GROUPS(before) /* groups of 8 lanes: all read the first word of theirs, then its owner writes it */            \
  "and.b32 %u, %t, 24;\nmov.u32 %m, 255;\nshl.b32 %m, %m, %u;\nst.shared.u32 [%s], %t;\nbar.warp.sync %m;\n"           \
  "mad.lo.u32 %a, %u, 4, %r;\nld.shared.u32 %v, [%a];\n" before                                                        \
  "and.b32 %x, %t, 7;\nsetp.eq.u32 %p, %x, 0;\n@%p st.shared.u32 [%s], 50;\nbar.warp.sync %m;\nld.shared.u32 %v, "     \
  "[%a];\n@%z st.global.u32 [%d], %v;\n"
#define APART(barrier)                                                                                                 \
  "st.shared.u32 [%s], %t;\nand.b32 %u, %t, 1;\nsetp.eq.u32 %p, %u, 1;\n@%p bra ODD;\n" barrier                        \
  "bra JOIN;\nODD: " barrier "JOIN: @%z ld.shared.u32 %v, [room+252];\n@%z st.global.u32 [%d], %v;\n"
/* fs(v): s[t] = v, a barrier, s[t ^ 1]; room2 lies where the kernel's own must not */
#define FUNCTION                                                                                                       \
  ".func (.param .b32 out) fs(.param .b32 in) {\n.reg .b32 %v, %t, %x, %r;\n.shared .align 4 .b8 s[512];\n"            \
  "ld.param.u32 %v, [in];\nmov.u32 %t, %tid.x;\nmov.u32 %r, s;\nmad.lo.u32 %x, %t, 4, %r;\nst.shared.u32 [%x], %v;\n"  \
  "bar.sync 0;\nxor.b32 %t, %t, 1;\nmad.lo.u32 %x, %t, 4, %r;\nld.shared.u32 %v, [%x];\nbar.sync 0;\n"                 \
  "st.param.b32 [out], %v;\nret;\n}\n"

static const order_case cases[] = {
    /* a counter in shared memory, and who begins it */
    {"shared counter", SIM_SHARED_RACE, 1, 32, 0, INIT "red.shared.add.u32 [room], 1;\n" GATHER, NULL},
    {"shared counter, two warps", SIM_SHARED_RACE, 1, 64, 0,
     INIT "bar.warp.sync -1;\nred.shared.add.u32 [room], 1;\n" GATHER, NULL},
    {"shared counter in order", SIM_NO_FAULT, 1, 64, 64, INIT "bar.sync 0;\nred.shared.add.u32 [room], 1;\n" GATHER,
     NULL},
    {"shared counter of a warp", SIM_NO_FAULT, 1, 32, 32,
     INIT "bar.warp.sync -1;\nred.shared.add.u32 [room], 1;\n" GATHER, NULL},
    {"volatile after plain", SIM_SHARED_RACE, 1, 64, 0,
     INIT "@%z st.volatile.shared.u32 [room], 1;\nld.volatile.shared.u32 %v, [room];\n" GATHER, NULL},
    {"read under an atomic", SIM_SHARED_RACE, 1, 64, 0,
     INIT "bar.sync 0;\n@%z ld.shared.u32 %u, [room];\nred.shared.add.u32 [room], 1;\n" GATHER, NULL},
    {"read before atomics", SIM_NO_FAULT, 1, 64, 64,
     INIT "bar.sync 0;\n@%z ld.shared.u32 %u, [room];\nbar.sync 0;\nred.shared.add.u32 [room], 1;\n" GATHER, NULL},
    /* the same between blocks */
    {"sum that a block begins", SIM_GLOBAL_RACE, 3, 32, 0,
     FIRST "@%p st.global.u32 [%d], 0;\nred.global.add.u32 [%d], 1;\n", NULL},
    {"sum after a flag", SIM_NO_FAULT, 3, 32, 3,
     FIRST "@%p st.global.u32 [%d], 1;\n" RELEASE NOT_FIRST ACQUIRE "red.global.add.u32 [%d], 1;\nEND: ", NULL},
    {"flag without a fence", SIM_GLOBAL_RACE, 3, 32, 0,
     FIRST
     "@%p st.global.u32 [%d], 1;\n@%p red.global.add.u32 [%d], 0;\n@%p atom.global.exch.b32 %v, [%d+4], 1;\n" NOT_FIRST
         ACQUIRE "red.global.add.u32 [%d], 1;\nEND: ",
     NULL},
    {"read of a block under its atomic", SIM_GLOBAL_RACE, 3, 32, 0,
     FIRST "@%p ld.global.u32 %v, [%d];\nred.global.add.u32 [%d], 1;\n", NULL},
    {"atomics alone", SIM_NO_FAULT, 3, 32, 96, "ld.volatile.global.u32 %v, [%d];\nred.global.add.u32 [%d], 1;\n", NULL},
    /* what an arrival orders */
    {"arrival", SIM_NO_FAULT, 1, 64, 7, HALVES("st.shared.u32 [%s], 7;\n", ""), NULL},
    {"write after the arrival", SIM_SHARED_RACE, 1, 64, 0, HALVES("", "st.shared.u32 [%s], 7;\n"), NULL},
    {"two writes about the arrival", SIM_SHARED_RACE, 1, 64, 0,
     HALVES("st.shared.u32 [%s], 7;\n", "st.shared.u32 [%s], 8;\n"), NULL},
    /* parts of a warp */
    {"groups", SIM_NO_FAULT, 1, 32, 50, GROUPS("bar.warp.sync %m;\n"), NULL},
    {"groups without a barrier", SIM_SHARED_RACE, 1, 32, 0, GROUPS(""), NULL},
    {"half a warp", SIM_NO_FAULT, 1, 32, 50,
     INIT
     "bar.sync 0;\nsetp.gt.u32 %p, %t, 15;\n@%p bra END;\nld.shared.u32 %v, [room];\nbar.warp.sync 65535;\n@%z "
     "st.shared.u32 [room], 50;\nbar.warp.sync 65535;\nld.shared.u32 %v, [room];\n@%z st.global.u32 [%d], %v;\nEND: ",
     NULL},
    {"a whole warp and half of it", SIM_SHARED_RACE, 1, 32, 0,
     INIT "bar.sync 0;\nld.shared.u32 %v, [room];\nsetp.gt.u32 %p, %t, 15;\n@%p bra END;\nbar.warp.sync 65535;\n@%z "
          "st.shared.u32 [room], 50;\nEND: ",
     NULL},
    {"barrier.sync on two ways", SIM_NO_FAULT, 1, 64, 63, APART("barrier.sync 0;\n"), NULL},
    {"bar.sync on two ways", SIM_DIVERGENT_BARRIER, 1, 64, 0, APART("bar.sync 0;\n"), NULL},
    /* lanes of a warp that wait for each other */
    {"lock of lanes", SIM_NO_FAULT, 2, 64, 128,
     "LOCK: atom.global.cas.b32 %v, [%d+4], 0, 1;\nsetp.ne.u32 %p, %v, 0;\n@%p bra "
     "LOCK;\nmembar.gl;\nld.volatile.global.u32 "
     "%v, [%d];\nadd.u32 %v, %v, 1;\nst.volatile.global.u32 [%d], %v;\nmembar.gl;\natom.global.exch.b32 %v, [%d+4], "
     "0;\n",
     NULL},
    {"flag of a lane", SIM_NO_FAULT, 1, 32, 3,
     INIT
     "bar.warp.sync -1;\n@%z bra SET;\nsetp.ne.u32 %p, %t, 1;\n@%p bra END;\nWAIT: ld.volatile.shared.u32 %v, "
     "[room];\nsetp.eq.u32 %p, %v, 0;\n@%p bra WAIT;\nst.global.u32 [%d], 3;\nbra END;\nSET: st.volatile.shared.u32 "
     "[room], 1;\nEND: ",
     NULL},
    {"flag that nobody sets", SIM_SPIN, 1, 32, 0,
     INIT "bar.warp.sync -1;\n@%z bra END;\nWAIT: ld.volatile.shared.u32 %v, [room];\nsetp.eq.u32 %p, %v, 0;\n@%p bra "
          "WAIT;\nEND: ",
     NULL},
    /* functions */
    {"shared variable of a function", SIM_NO_FAULT, 1, 64, 64,
     "add.u32 %v, %t, 1000;\nst.shared.u32 [%s], %v;\nbar.sync 0;\nadd.u32 %a, %t, 5000;\n{\n.param .b32 x;\n.param "
     ".b32 "
     "y;\nst.param.b32 [x], %a;\ncall.uni (y), fs, (x);\nld.param.b32 %v, [y];\n}\nld.shared.u32 %u, [%s];\nsub.u32 "
     "%x, "
     "%v, %u;\nxor.b32 %m, %t, 1;\nsub.u32 %m, %m, %t;\nadd.u32 %m, %m, 4000;\nsetp.eq.u32 %p, %x, %m;\n@%p "
     "red.global.add.u32 [%d], 1;\n",
     FUNCTION},
};

static void write_kernel(const order_case *c, char *text, size_t size) {
  snprintf(text, size,
           ".version 8.6\n.target sm_90\n.address_size 64\n%s.visible .entry k(.param .u64 data) {\n"
           ".shared .align 4 .b8 room[512];\n.reg .b32 %%t, %%b, %%v, %%u, %%m, %%x, %%a, %%r, %%s;\n.reg .b64 %%d;\n"
           ".reg .pred %%p, %%z, %%f;\nmov.u32 %%t, %%tid.x;\nmov.u32 %%b, %%ctaid.x;\nld.param.u64 %%d, [data];\n"
           "mov.u32 %%r, room;\nmad.lo.u32 %%s, %%t, 4, %%r;\nsetp.eq.u32 %%z, %%t, 0;\nsetp.eq.u32 %%f, %%b, "
           "0;\n%sret;\n}\n",
           c->outside ? c->outside : "", c->body);
}

static void run_case(const order_case *c, uint64_t seed) {
  char text[4096];
  write_kernel(c, text, sizeof(text));
  sim_module *m = ptx_from(text, c->name);
  const uint32_t zeros[64] = {0};
  const uint64_t data = ptx_buffer(zeros, sizeof(zeros));
  sim_launch l = ptx_launch(m, "k", c->blocks, c->threads, &data);
  l.seed = seed;
  l.cooperative = true;
  l.budget = 1500000;
  sim_fault fault = {0};
  const bool good = sim_launch_run(&l, NULL, &fault);
  const uint32_t got = *(const uint32_t *)ptx_data(data);
  if (good != (c->kind == SIM_NO_FAULT) || fault.kind != c->kind)
    fail_msg("%s, seed %u: %s", c->name, (unsigned)seed, good ? "not caught" : fault.text);
  if (good && got != c->want) fail_msg("%s, seed %u: %u, not %u", c->name, (unsigned)seed, got, c->want);
  sim_memory_release(memory, data);
  sim_module_unload(m);
}

static void in_order_and_not(void **state) {
  (void)state;
  for (size_t k = 0; k < sizeof(cases) / sizeof(cases[0]); k++)
    for (uint64_t seed = 0; seed < (cases[k].kind == SIM_SPIN ? 1 : 3); seed++) run_case(&cases[k], seed);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(in_order_and_not)};
  return cmocka_run_group_tests(tests, ptx_setup, ptx_teardown);
}
