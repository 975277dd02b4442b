/* What the parser refuses, by name and line; what is never written to a register; indexed branches; counts; launches in two steps. */
#include "tests/unit/ptx_run.h"

#define HEAD ".version 8.6\n.target sm_90\n.address_size 64\n"
/* A kernel of one parameter, with registers; its first line of code is line 9 of the text. */
#define KERNEL(code)                                                                                                   \
  HEAD ".visible .entry k(.param .u64 p) {\n.reg .b32 %r<9>;\n.reg .b64 %d<9>;\n.reg .pred %p<4>;\n.reg .b16 "         \
       "%h<4>;\n" code "\nret;\n}\n"

typedef struct refusal {
  const char *text, *message;
} refusal;

static const refusal refusals[] = {
    {KERNEL("frobnicate.u32 %r1, %r2;"), "x.ptx:9: error: the instruction 'frobnicate' is not known"},
    {KERNEL("add.s32.wrap %r1, %r2, %r3;"), "x.ptx:9: error: 'wrap' in the instruction 'add.s32.wrap'"},
    {KERNEL("add.cc.f32 %r1, %r2, %r3;"), "'f32' in"},
    {KERNEL("ld.global.L1::no_alloc.u32 %r1, [%d1];"), "'L1::no_alloc' in"},
    {KERNEL("ld.global.nc.L1::no_allocate.v3.u32 {%r1,%r2,%r3}, [%d1];"), "'v3' in"},
    {KERNEL("ld.shared.nc.u32 %r1, [%d1];"), ".nc outside of global memory"},
    {KERNEL("\nmul.lo.s32 %r1, %r2, %d3;"), "x.ptx:10: error: '%d3' has 64 bits, the instruction wants 32"},
    {KERNEL("and.b32 %r1, %r2, 0f3F800000;\nand.b64 %d1, %d2, 0f3F800000;"),
     "x.ptx:10: error: the number 0f3F800000 does not fit an operand of 64 bits"},
    {KERNEL("add.s32 %r1, %r2, 0x100000000;"), "does not fit an operand of 32 bits"},
    {KERNEL("add.s32 %r1, %r2;"), "',' expected before ';'"},
    {KERNEL("add.s32 %r1, %r9, %r2;"), "'%r9' is not known"},
    {KERNEL("add.s32 %r01, %r2, %r3;"), "'%r01' is no register"},
    {KERNEL("bra $nowhere;"), "no label '$nowhere'"},
    {KERNEL("here: here: bra here;"), "the label 'here' stands twice"},
    {KERNEL("mov.u32 %r1, %envreg7;"), "'%envreg7' is not known"},
    {KERNEL("cvt.f16.f32 %h1, %r1;"), "without a rounding"},
    {KERNEL("cvt.rn.f32.f32 %r1, %r2;"), "between equal types"},
    {KERNEL("setp.hi.s32 %p1, %r1, %r2;"), "'hi' in the instruction 'setp.hi.s32' compares unsigned integers"},
    {KERNEL("atom.global.min.f32 %r1, [%d1], %r2;"), "this atomic operation on this type"},
    {KERNEL("shfl.down.b32 %r1, %r2, 1, 31;"), "'down' in"},
    {KERNEL("wgmma.fence.sync.aligned;"), "the instruction 'wgmma' is not known"},
    {KERNEL("cp.async.bulk.commit_group;"), "'bulk' in"},
    {KERNEL("cp.async.cg.shared.global [%r1], [%d1], 8;"), "cp.async of 8 bytes"},
    {KERNEL("mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32 {%r1}, {%r1}, {%r1}, {%r1};"), "'m8n8k4' in"},
    {KERNEL(".reg .b128 %q;"), "'.b128' is not a type of a register"},
    {KERNEL(".frob 3;"), "the directive '.frob' is not known"},
    {KERNEL(".pragma \"nounrol\";"), "x.ptx:9: error: the pragma \"nounrol\" is not known"},
    {KERNEL(".pragma \"used_bytes_mask 0\";\nld.global.u32 %r1, [%d1];"), "a mask of 1 to 32 bytes expected"},
    {KERNEL(".pragma \"used_bytes_mask 15 \";"), "a mask of 1 to 32 bytes expected"},
    {KERNEL(".pragma \"used_bytes_mask 7\";\nadd.s32 %r1, 1, 1;"), "used_bytes_mask before what is no ld"},
    {KERNEL(".pragma nounroll;"), "a text expected"},
    {KERNEL("call helper, ();"), "'helper' is no function"},
    {KERNEL("ld.shared.u32 %r1, [g];"), "an address expected"},
    {HEAD ".global .u32 g;\n.visible .entry k() {\n.reg .b32 %r<2>;\nld.shared.u32 %r1, [g];\nret;\n}\n",
     "'g' lies in another space"},
    {HEAD ".extern .func helper;\n.visible .entry k() {\ncall helper;\nret;\n}\n",
     "the function 'helper' has no body here"},
    {HEAD ".extern .global .u32 g;\n", "a variable of another module"},
    {HEAD ".global .u32 g[2] = {1, 2, 3};\n", "more values than 'g' has room for"},
    {HEAD ".global .u32 g = other;\n", "'other' is no number and no variable"},
    {HEAD ".alias a, b;\n", "'.alias' is not known"},
    {HEAD ".visible .entry k() {\nret;\n", "a function does not end"},
    {HEAD "/* ", "a comment does not end"},
    {".version 8.6\n", "no .version or no .target"},
    {"\177ELF binary", "is not known to the simulator at the outermost level"},
    {"", "no .version or no .target"},
};

static void refused(void **state) {
  (void)state;
  const uint64_t used = sim_memory_used(memory);
  for (size_t k = 0; k < sizeof(refusals) / sizeof(refusals[0]); k++) {
    sim_module *m;
    taper_error error;
    const char *text = refusals[k].text;
    if (sim_module_load(text, strlen(text), "x.ptx", memory, &m, &error) == TAPER_OK) fail_msg("accepted: %s", text);
    assert_int_equal(error.status, TAPER_INVALID);
    assert_null(m);
    if (!strstr(error.message, refusals[k].message)) fail_msg("'%s', not '%s'", error.message, refusals[k].message);
  }
  assert_int_equal(sim_memory_used(memory), used); /* globals of refused modules are gone */
}

/* Cut anywhere, a module is refused or read, never worse. */
static void truncated(void **state) {
  (void)state;
  char *text = ptx_text("tests/sim/warp.ptx");
  const size_t size = strlen(text);
  for (size_t n = 0; n < size; n += 97) {
    sim_module *m;
    taper_error error;
    if (sim_module_load(text, n, "x.ptx", memory, &m, &error) == TAPER_OK) sim_module_unload(m);
  }
  free(text);
}

static bool run_text(const char *text, const void *parameters, uint32_t threads, sim_fault *fault) {
  sim_module *m = ptx_from(text, "x.ptx");
  const sim_launch l = ptx_launch(m, "k", 1, threads, parameters);
  const bool ok = sim_launch_run(&l, NULL, fault);
  sim_module_unload(m);
  return ok;
}

/* What is copied or computed of a register that was never written is unwritten too; any use of that, as an address, a number that is stored
   or a condition, is a fault. */
#define STORED(r) "ld.param.u64 %d1, [p];\nst.global.u32 [%d1], " r ";\n"
static void unwritten(const char *text, uint32_t threads, uint32_t thread, uint32_t line) {
  const uint64_t p = ptx_buffer("12345678", 8);
  sim_fault fault;
  if (run_text(text, &p, threads, &fault)) fail_msg("not stopped: %s", text);
  if (fault.kind != SIM_UNWRITTEN_REGISTER) fail_msg("%s: %s", text, fault.text);
  assert_int_equal(fault.thread[0], thread);
  if (line) assert_int_equal(fault.ptx_line, line);
}

static void written(const char *text, uint32_t threads) {
  const uint64_t p = ptx_buffer("12345678", 8);
  sim_fault fault;
  if (!run_text(text, &p, threads, &fault)) fail_msg("%s: %s", text, fault.text);
}

static void unwritten_registers(void **state) {
  (void)state;
  unwritten(KERNEL("add.s32 %r1, %r2, 1;\n" STORED("%r1")), 3, 0, 11);
  unwritten(KERNEL("mov.u32 %r1, %r2;\nmov.u32 %r3, %r1;\nneg.s32 %r4, %r3;\n" STORED("%r4")), 3, 0, 0);
  unwritten(KERNEL("ld.param.u64 %d1, [p];\nadd.s64 %d2, %d1, %d3;\nst.global.u32 [%d2], 1;"), 3, 0, 11);
  unwritten(KERNEL("add.s32 %r1, %r2, 1;\nsetp.eq.s32 %p1, %r1, 4;\n@%p1 bra out;\nout:"), 3, 0, 11);
  unwritten(KERNEL("mov.b64 %d1, {%r1, %r2};\nld.global.u32 %r3, [%d1];"), 3, 0, 10);
  unwritten(KERNEL("cvt.u64.u32 %d2, %r2;\nshfl.sync.bfly.b32 %r3, %r2, 1, 31, -1;"), 32, 0, 10);
  unwritten(KERNEL("selp.b32 %r1, 5, 6, %p1;"), 3, 0, 9);
  unwritten(KERNEL("@%p2 bra out;\nadd.s32 %r3, 1, 1;\nout:"), 3, 0, 9);
  /* a compiler computes ahead of the branch what only one way needs */
  written(KERNEL("add.s32 %r1, %r2, 1;\nmul.lo.s32 %r3, %r1, %r1;\nsetp.eq.s32 %p1, %r3, 4;\nmov.u32 %r3, 2;\n" STORED(
              "%r3")),
          3);
  /* written on one way only: lanes 0 and 1 */
  const char *const partly = KERNEL("mov.u32 %r1, %tid.x;\nsetp.lt.u32 %p1, %r1, 2;\n@%p1 mov.u32 %r2, 7;\n@%p1 "
                                    "add.s32 %r3, %r2, 1;\nadd.s32 %r4, %r2, 1;\n" STORED("%r4"));
  unwritten(partly, 3, 2, 15);
  written(partly, 2);
  written(KERNEL("setp.eq.u32 %p1, 1, 1;\nselp.b32 %r1, 5, %r2, %p1;\nadd.s32 %r3, %r1, 1;\n" STORED("%r3")), 3);
  unwritten(KERNEL("setp.eq.u32 %p1, 1, 1;\nselp.b32 %r1, 5, %r2, !%p1;\nadd.s32 %r3, %r1, 1;\n" STORED("%r3")), 3, 0,
            0);
  /* a guarded write of what is written leaves the rest as it is */
  written(KERNEL("mov.u32 %r1, %tid.x;\nmov.u32 %r2, 5;\nsetp.lt.u32 %p1, %r1, 2;\n@%p1 add.s32 %r2, %r1, 1;\nshr.u32 "
                 "%r2, %r2, 9;\n" STORED("%r2")),
          3);
}

/* A barrier that some lanes of a warp pass by: an early return is none of it; what touches memory and ends is. */
static void barriers_passed_by(void **state) {
  (void)state;
#define PASSED(barrier, behind)                                                                                        \
  KERNEL("mov.u32 %r1, %tid.x;\nsetp.ge.u32 %p1, %r1, 16;\n@%p1 bra over;\n" barrier ";\n" behind)
  const uint64_t p = ptx_buffer("12345678", 8);
  sim_fault fault;
  assert_false(run_text(PASSED("bar.sync 0", "over:\n" STORED("7")), &p, 32, &fault));
  assert_int_equal(fault.kind, SIM_DIVERGENT_BARRIER);
  if (!strstr(fault.text, "lanes 0000ffff of the warp wait at line 12")) fail_msg("%s", fault.text);
  assert_false(run_text(PASSED("bar.red.or.pred %p2, 0, %p1", "over:\n" STORED("7")), &p, 64, &fault));
  assert_false(run_text(PASSED("barrier.sync.aligned 0", "over:\nld.param.u64 %d1, [p];\nld.global.u32 %r3, [%d1];"),
                        &p, 20, &fault));
  written(PASSED("bar.sync 0", "over:\n" STORED("7")), 16);
  written(PASSED("barrier.sync 0", "over:\n" STORED("7")), 32);
  written(PASSED("bar.sync 0", STORED("7") "over:\nadd.s32 %r1, %r1, 1;"), 32);
  written(PASSED("bar.sync 0", STORED("7") "bra out;\nover:\n" STORED("7") "bar.sync 0;\nout:"), 16);
#undef PASSED
}

/* Bytes of a vector that the compiler says nobody looks at may be unwritten, and another thread may write them. */
#define THREE ".pragma \"nounroll\", \"used_bytes_mask 4095\";\n"
#define WRITE(space, at, byte) "st." space ".u32 [" at "+" byte "], 5;\n"
#define WRITES(space, at) WRITE(space, at, "0") WRITE(space, at, "4") WRITE(space, at, "8")
#define BOTH(before, space, at) LOADS(before, "", space, at), LOADS(before, THREE, space, at)
#define LOADS(before, pragma, space, at)                                                                               \
  KERNEL(".shared .align 16 .b8 s[16];\n.local .align 16 .b8 l[16];\nld.param.u64 %d1, [p];\nmov.u32 %r5, %tid.x;\n"   \
         "setp.eq.u32 %p1, %r5, 0;\n" before pragma "ld." space ".v4.u32 {%r1, %r2, %r3, %r4}, [" at                   \
         "];\nadd.s32 %r1, %r1, %r3;")

static void unused_bytes(void **state) {
  (void)state;
  static const struct {
    const char *all, *three;
    sim_fault_kind kind;
  } cases[] = {
      {BOTH(WRITES("global", "%d1"), "global", "%d1"), SIM_UNWRITTEN_MEMORY},
      {BOTH(WRITES("shared", "s") "bar.sync 0;\n", "shared", "s"), SIM_UNWRITTEN_MEMORY},
      {BOTH(WRITES("local", "l"), "local", "l"), SIM_UNWRITTEN_MEMORY},
      {BOTH(WRITES("shared", "s") WRITE("shared", "s", "12") "bar.sync 0;\n@%p1 " WRITE("shared", "s", "12"), "shared",
            "s"),
       SIM_SHARED_RACE},
  };
  for (size_t k = 0; k < sizeof(cases) / sizeof(cases[0]); k++) {
    const uint64_t p = ptx_buffer(NULL, 16);
    sim_fault fault;
    if (!run_text(cases[k].three, &p, 2, &fault)) fail_msg("%zu: %s", k, fault.text);
    sim_memory_mark(memory, p, 16, false);
    if (run_text(cases[k].all, &p, 2, &fault)) fail_msg("%zu is not caught", k);
    assert_int_equal(fault.kind, cases[k].kind);
    assert_int_equal(fault.address % 16, 12);
  }
}

#define INDEXED(index)                                                                                                 \
  KERNEL("ld.param.u64 %d1, [p];\nmov.u32 %r1, %tid.x;\nmad.wide.u32 %d2, %r1, 4, %d1;\n" index                        \
         "\nlist: .branchtargets two, one, one, three;\nbrx.idx %r2, list;\n"                                          \
         "one: mov.u32 %r3, 1;\nbra.uni out;\ntwo: mov.u32 %r3, 2;\nbra out;\nthree: mov.u32 %r3, 3;\nout: "           \
         "st.global.u32 [%d2], %r3;")

static void indexed_branches(void **state) {
  (void)state;
  static const uint32_t want[] = {2, 1, 1, 3};
  const uint64_t p = ptx_buffer(NULL, 37 * 4);
  sim_fault fault;
  if (!run_text(INDEXED("and.b32 %r2, %r1, 3;"), &p, 37, &fault)) fail_msg("%s", fault.text);
  for (uint32_t t = 0; t < 37; t++) assert_int_equal(((uint32_t *)ptx_data(p))[t], want[t % 4]);
  assert_false(run_text(INDEXED("mov.u32 %r2, %r1;"), &p, 37, &fault));
  assert_int_equal(fault.kind, SIM_BAD_VALUE);
  assert_int_equal(fault.thread[0], 4);
}

/* Lanes that part at a branch meet where their ways join: instructions of a warp are counted once. */
static void counts(void **state) {
  (void)state;
  sim_module *m = ptx_load("gemv");
  enum { ROWS = 24, COLUMNS = 256 };
  static float w[ROWS * COLUMNS], x[COLUMNS];
  for (int i = 0; i < ROWS * COLUMNS; i++) w[i] = (float)(i % 13) - 6;
  for (int i = 0; i < COLUMNS; i++) x[i] = (float)(i % 5) - 2;
  const struct {
    uint64_t w, x, y;
    int32_t rows, columns;
  } p = {ptx_buffer(w, sizeof(w)), ptx_buffer(x, sizeof(x)), ptx_buffer(NULL, ROWS * 4), ROWS, COLUMNS};
  sim_counters first = {0};
  for (uint32_t threads = 1; threads <= 2; threads++)
    for (uint64_t seed = 0; seed < 3; seed++) {
      sim_counters c = {0};
      sim_usage usage;
      assert_true(sim_memory_usage(memory, p.w, true, &usage));
      sim_launch l = ptx_launch(m, "gemv", 3, 256, &p);
      l.threads = threads;
      l.seed = seed;
      ptx_run(&l, &c);
      for (int r = 0; r < ROWS; r++) {
        float s = 0;
        for (int i = 0; i < COLUMNS; i++) s += w[r * COLUMNS + i] * x[i];
        assert_true(((const float *)ptx_data(p.y))[r] == s);
      }
      assert_true(sim_memory_usage(memory, p.w, false, &usage));
      assert_int_equal(usage.load_bytes, sizeof(w));
      assert_int_equal(usage.load_sectors, sizeof(w) / 32);
      assert_int_equal(usage.read_sectors, sizeof(w) / 32);
      assert_int_equal(usage.read_bytes, sizeof(w));
      assert_true(sim_memory_usage(memory, p.y, true, &usage));
      assert_int_equal(usage.written_bytes, ROWS * 4);
      assert_int_equal(usage.written_sectors, ROWS * 4 / 32);
      assert_int_equal(c.blocks, 3);
      if (threads == 1 && seed == 0) first = c;
      assert_memory_equal(&c, &first, sizeof(c));
    }
  sim_module_unload(m);
}

/* ---- a launch that begins before its predecessor ends ---- */

#define COPIES(before, after)                                                                                          \
  HEAD ".visible .entry k(.param .u64 from, .param .u64 to, .param .u64 weight) {\n.reg .b32 %r<9>;\n.reg .b64 "       \
       "%d<9>;\n"                                                                                                      \
       ".reg .f32 %f<9>;\nld.param.u64 %d1, [from];\nld.param.u64 %d2, [to];\nld.param.u64 %d3, [weight];\n"           \
       "mov.u32 %r1, %ctaid.x;\nmov.u32 %r2, %tid.x;\nmad.lo.s32 %r1, %r1, 32, %r2;\n"                                 \
       "mad.wide.u32 %d1, %r1, 4, %d1;\nmad.wide.u32 %d2, %r1, 4, %d2;\n" before "griddepcontrol.wait;\n" after        \
       "st.global.f32 [%d2], %f1;\ngriddepcontrol.launch_dependents;\nret;\n}\n"
#define WEIGHT "ld.global.nc.f32 %f2, [%d3];\n"
#define READ "ld.global.f32 %f1, [%d1];\n"
#define ADD "add.f32 %f1, %f1, %f2;\n"

typedef struct copies {
  uint64_t from, to, weight;
} copies;

/* Two launches in a row, the second's early part first; is a conflict seen? */
static bool conflict_of(const char *text, float *out_last) {
  enum { BLOCKS = 20, N = 32 * BLOCKS };
  static float ones[N];
  const float weight = 3;
  for (int i = 0; i < N; i++) ones[i] = 1;
  sim_module *m = ptx_from(text, "x.ptx");
  const uint64_t a = ptx_buffer(ones, sizeof(ones)), b = ptx_buffer(ones, sizeof(ones)),
                 c = ptx_buffer(NULL, sizeof(ones)), w = ptx_buffer(&weight, 4);
  const copies first = {a, b, w}, second = {b, c, w};
  sim_launch l1 = ptx_launch(m, "k", BLOCKS, 32, &first), l2 = ptx_launch(m, "k", BLOCKS, 32, &second);
  assert_true(sim_facts(l1.kernel)->waits);
  sim_fault fault;
  sim_run *r1 = sim_run_begin(&l1, &fault), *r2 = sim_run_begin(&l2, &fault);
  sim_footprint *f = sim_footprint_new();
  sim_counters counters = {0};
  assert_true(r1 && r2 && f && sim_run_early(r2, &fault));
  assert_true(sim_run_rest(r1, &counters, &fault) && sim_footprint_add(f, r1));
  const bool conflict = sim_run_conflict(r2, f, &fault);
  if (conflict) assert_int_equal(fault.kind, SIM_EARLY_ACCESS);
  assert_true(sim_run_rest(r2, &counters, &fault));
  assert_int_equal(counters.blocks, 2 * BLOCKS);
  *out_last = ((const float *)ptx_data(c))[N - 1];
  sim_footprint_free(f);
  sim_run_free(r1);
  sim_run_free(r2);
  sim_module_unload(m);
  return conflict;
}

static void early_parts(void **state) {
  (void)state;
  float last;
  assert_false(conflict_of(COPIES(WEIGHT, READ ADD), &last));
  assert_true(last == 7); /* 1 + 3 + 3 */
  assert_true(conflict_of(COPIES(READ WEIGHT, ADD), &last));
  assert_true(
      conflict_of(COPIES(WEIGHT "st.global.f32 [%d1], %f2;\n", READ ADD), &last)); /* writes what the first wrote */
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(refused),
                                     cmocka_unit_test(truncated),
                                     cmocka_unit_test(unwritten_registers),
                                     cmocka_unit_test(barriers_passed_by),
                                     cmocka_unit_test(indexed_branches),
                                     cmocka_unit_test(counts),
                                     cmocka_unit_test(early_parts),
                                     cmocka_unit_test(unused_bytes)};
  return cmocka_run_group_tests(tests, ptx_setup, ptx_teardown);
}
