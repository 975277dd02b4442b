/* What the parser refuses though a row of its tables has it: newer than the target, parts that do not go together, registers of other
   types. Each form was compared with what ptxas 13.0 says of it. */
#include "tests/unit/ptx_run.h"

static const char registers[] =
    ".reg .b32 %r<9>;\n.reg .b64 %d<9>;\n.reg .pred %p<4>;\n.reg .b16 %h<5>;\n.reg .f32 %f<9>;\n.reg .f64 %g<9>;\n.reg "
    ".s32 %s<9>;\n.reg .u32 %u<9>;\n.reg .u64 %v<9>;\n.reg .f16x2 %x<4>;\n";

static taper_status load(const char *version, const char *target, const char *code, taper_error *error) {
  char text[2048];
  sim_module *m;
  (void)snprintf(
      text, sizeof(text),
      ".version %s\n.target %s\n.address_size 64\n.visible .entry k(.param .u64 p, .param .align 8 .b8 s[32]) "
      "{\n%s%s\nret;\n}\n",
      version, target, registers, code);
  const taper_status status = sim_module_load(text, strlen(text), "x.ptx", memory, &m, error);
  if (status == TAPER_OK) sim_module_unload(m);
  return status;
}

static void accepted(const char *version, const char *target, const char *code) {
  taper_error error;
  if (load(version, target, code, &error) != TAPER_OK) fail_msg("%s, %s: %s", code, target, error.message);
}

static void refused(const char *version, const char *target, const char *code, const char *message) {
  taper_error error;
  if (load(version, target, code, &error) == TAPER_OK) fail_msg("accepted for %s: %s", target, code);
  assert_int_equal(error.status, TAPER_INVALID);
  if (!strstr(error.message, message)) fail_msg("%s: '%s', not '%s'", code, error.message, message);
}

/* What exists since a target: refused for the one before, with the word and the target that it needs. */
static void since_targets(void **state) {
  (void)state;
  static const struct {
    const char *code, *word, *before, *since, *version;
  } cases[] = {
      {"griddepcontrol.wait;", "griddepcontrol", "sm_80", "sm_90", "7.8"},
      {"griddepcontrol.launch_dependents;", "griddepcontrol", "sm_89", "sm_90", "7.8"},
      {"elect.sync %r1|%p1, -1;", "elect", "sm_89", "sm_90", "8.0"},
      {"add.bf16 %h1, %h2, %h3;", "bf16", "sm_80", "sm_90", "7.8"},
      {"mul.bf16x2 %r1, %r2, %r3;", "bf16x2", "sm_89", "sm_90", "7.8"},
      {"sub.bf16x2 %r1, %r2, %r3;", "bf16x2", "sm_80", "sm_90", "7.8"},
      {"add.u16x2 %r1, %r2, %r3;", "u16x2", "sm_80", "sm_90", "8.0"},
      {"setp.lt.bf16 %p1, %h1, %h2;", "bf16", "sm_80", "sm_90", "7.8"},
      {"tanh.approx.bf16 %h1, %h2;", "bf16", "sm_80", "sm_90", "7.8"},
      {"cvt.rn.tf32.f32 %r1, %f2;", "tf32", "sm_80", "sm_90", "7.8"},
      {"cvt.rn.bf16.s32 %h1, %r2;", "bf16", "sm_80", "sm_90", "7.8"},
      {"cvt.rzi.s32.bf16 %r1, %h2;", "bf16", "sm_80", "sm_90", "7.8"},
      {"cvt.f64.bf16 %g1, %h2;", "bf16", "sm_80", "sm_90", "7.8"},
      {"atom.global.add.noftz.bf16 %h1, [%d1], %h2;", "bf16", "sm_80", "sm_90", "7.8"},
      {"red.global.add.noftz.bf16x2 [%d1], %r2;", "bf16x2", "sm_80", "sm_90", "7.8"},
      {"fence.acq_rel.cluster;", "cluster", "sm_80", "sm_90", "7.8"},
      {"ld.acquire.cluster.global.u32 %r1, [%d1];", "cluster", "sm_89", "sm_90", "7.8"},
      {"ld.global.v8.b32 {%r1,%r2,%r3,%r4,%r5,%r6,%r7,%r8}, [%d5];", "v8", "sm_90", "sm_100", "8.8"},
      {"ld.global.v4.b64 {%d1,%d2,%d3,%d4}, [%d5];", "b64", "sm_90", "sm_100", "8.8"},
      {"fma.rn.bf16x2 %r1, %r2, %r3, %r4;", "bf16x2", "sm_75", "sm_80", "7.0"},
      {"min.f16 %h1, %h2, %h3;", "f16", "sm_75", "sm_80", "7.0"},
      {"min.NaN.f32 %f1, %f2, %f3;", "NaN", "sm_75", "sm_80", "7.0"},
      {"cvt.rn.bf16.f32 %h1, %f2;", "bf16", "sm_75", "sm_80", "7.0"},
      {"cvt.rn.bf16x2.f32 %r1, %f2, %f3;", "bf16x2", "sm_75", "sm_80", "7.0"},
      {"cvt.f32.bf16 %f1, %h2;", "bf16", "sm_75", "sm_80", "7.1"},
      {"cp.async.wait_all;", "async", "sm_75", "sm_80", "7.0"},
      {"redux.sync.add.s32 %r1, %r2, -1;", "redux", "sm_75", "sm_80", "7.0"},
  };
  for (size_t k = 0; k < sizeof(cases) / sizeof(cases[0]); k++) {
    char message[128];
    (void)snprintf(message, sizeof(message), "needs .target %s and .version %s", cases[k].since, cases[k].version);
    refused("9.0", cases[k].before, cases[k].code, message);
    (void)snprintf(message, sizeof(message), "x.ptx:15: error: '%s' in the instruction", cases[k].word);
    refused("9.0", cases[k].before, cases[k].code, message);
    accepted("9.0", cases[k].since, cases[k].code);
    accepted("9.0", "sm_120", cases[k].code);
  }
  refused("7.8", "sm_90", "elect.sync %r1|%p1, -1;", "needs .target sm_90 and .version 8.0, here are sm_90 and 7.8");
  refused("7.3", "sm_80", "ld.global.L1::evict_last.u32 %r1, [%d1];", "'L1::evict_last'");
  refused("7.7", "sm_80", "ld.shared::cta.u32 %r1, [%d1];", "'shared::cta'");
  accepted("8.7", "sm_90", "ld.global.nc.L1::no_allocate.L2::256B.v4.u32 {%r1,%r2,%r3,%r4}, [%d1];");
}

/* Parts of an opcode that exist, but not together: refused with the word and the reason; the form beside it is right. */
static void parts_together(void **state) {
  (void)state;
  static const struct {
    const char *code, *message, *right;
  } cases[] = {
      {"ld.volatile.global.nc.f32 %f1, [%d1];", "'nc' in the instruction 'ld.volatile.global.nc.f32' does not go with",
       "ld.global.nc.f32 %f1, [%d1];"},
      {"ld.relaxed.gpu.global.nc.u32 %r1, [%d1];", "'nc' in", "ld.relaxed.gpu.global.u32 %r1, [%d1];"},
      {"ld.weak.global.nc.u32 %r1, [%d1];", "'nc' in", "ld.weak.global.u32 %r1, [%d1];"},
      {"ld.acquire.global.u32 %r1, [%d1];", "'acquire' in the instruction 'ld.acquire.global.u32' needs a scope",
       "ld.acquire.sys.global.u32 %r1, [%d1];"},
      {"st.release.global.u32 [%d1], %r1;", "'release' in the instruction 'st.release.global.u32' needs a scope",
       "st.release.cta.global.u32 [%d1], %r1;"},
      {"ld.gpu.global.u32 %r1, [%d1];", "'gpu' in the instruction 'ld.gpu.global.u32' is a scope without an order",
       "ld.global.u32 %r1, [%d1];"},
      {"ld.volatile.gpu.global.u32 %r1, [%d1];", "'gpu' in", "ld.volatile.global.u32 %r1, [%d1];"},
      {"st.weak.sys.shared.u32 [%r2], %r1;", "'sys' in", "st.weak.shared.u32 [%r2], %r1;"},
      {"ld.relaxed.gpu.local.u32 %r1, [%d1];", "'local' in", "ld.relaxed.gpu.shared.u32 %r1, [%d1];"},
      {"ld.acquire.cta.param.u32 %r1, [s];", "'param' in", "ld.param.u32 %r1, [s];"},
      {"ld.volatile.global.ca.u32 %r1, [%d1];", "'ca' in", "ld.global.ca.u32 %r1, [%d1];"},
      {"ld.shared.L1::evict_last.u32 %r1, [%r2];", "'L1::evict_last' in", "ld.L1::evict_last.u32 %r1, [%d2];"},
      {"ld.shared.L2::128B.u32 %r1, [%r2];", "'L2::128B' in", "ld.global.L2::128B.u32 %r1, [%d2];"},
      {"st.global.L2::128B.u32 [%d1], %r1;", "'L2::128B' in", "st.global.L1::evict_first.u32 [%d1], %r1;"},
      {"ld.global.cs.L1::evict_last.u32 %r1, [%d1];", "'L1::evict_last' in", "ld.global.cs.u32 %r1, [%d1];"},
      {"ld.global.f16 %h1, [%d1];", "'f16' in the instruction 'ld.global.f16' is no type of a load",
       "ld.global.b16 %h1, [%d1];"},
      {"st.global.bf16x2 [%d1], %r1;", "'bf16x2' in", "st.global.b32 [%d1], %r1;"},
      {"st.param.b32 [s], %r1;", "a store to a parameter of the kernel", "ld.param.b32 %r1, [s];"},
      {"atom.global.add.f16 %h1, [%d1], %h2;", "'f16' in the instruction 'atom.global.add.f16' needs .noftz",
       "atom.global.add.noftz.f16 %h1, [%d1], %h2;"},
      {"atom.global.add.noftz.u32 %r1, [%d1], %r2;", "'noftz' in", "atom.global.add.u32 %r1, [%d1], %r2;"},
      {"red.global.cas.b32 [%d1], %r1, %r2;", "'cas' in", "atom.global.cas.b32 %r3, [%d1], %r1, %r2;"},
      {"red.global.exch.b32 [%d1], %r1;", "'exch' in", "atom.global.exch.b32 %r3, [%d1], %r1;"},
      {"red.acquire.gpu.global.add.u32 [%d1], %r1;", "'acquire' in", "red.release.gpu.global.add.u32 [%d1], %r1;"},
      {"red.acq_rel.gpu.global.add.u32 [%d1], %r1;", "'acq_rel' in", "red.relaxed.gpu.global.add.u32 [%d1], %r1;"},
      {"mov.f16 %h1, %h2;", "'f16' in", "mov.b16 %h1, %h2;"},
      {"selp.bf16 %h1, %h2, %h3, %p1;", "'bf16' in", "selp.b16 %h1, %h2, %h3, %p1;"},
      {"setp.lo.f32 %p1, %f1, %f2;", "'lo' in the instruction 'setp.lo.f32' compares unsigned integers",
       "setp.lo.u32 %p1, %r1, %r2;"},
      {"setp.hs.s64 %p1, %d1, %d2;", "'hs' in", "setp.hs.u64 %p1, %d1, %d2;"},
      {"setp.equ.b32 %p1, %r1, %r2;", "'equ' in the instruction 'setp.equ.b32' compares numbers that may be NaN",
       "setp.equ.f32 %p1, %f1, %f2;"},
      {"setp.num.u32 %p1, %r1, %r2;", "'num' in", "setp.num.f64 %p1, %g1, %g2;"},
      {"setp.lt.b32 %p1, %r1, %r2;", "'lt' in the instruction 'setp.lt.b32' is no comparison of bits",
       "setp.ne.b32 %p1, %r1, %r2;"},
      {"set.lo.u32.s16 %r1, %h2, %h3;", "'lo' in", "set.lo.u32.u16 %r1, %h2, %h3;"},
      {"set.lt.f32.f16 %f1, %h1, %h2;", "'f16' in", "set.lt.u32.f16 %r1, %h1, %h2;"},
      {"setp.lt.f16 %p1|%p2, %h1, %h2;", "',' expected before '|'", "setp.lt.f32 %p1|%p2, %f1, %f2;"},
      {"fma.f64 %g1, %g2, %g3, %g4;", "'f64' in the instruction 'fma.f64' needs a rounding",
       "fma.rn.f64 %g1, %g2, %g3, %g4;"},
      {"cvt.rm.f32.f16 %f1, %h1;", "'rm' in the instruction 'cvt.rm.f32.f16' is a rounding where nothing is rounded",
       "cvt.f32.f16 %f1, %h1;"},
      {"cvt.rn.f64.f32 %g1, %f1;", "'rn' in", "cvt.f64.f32 %g1, %f1;"},
      {"cvt.ftz.f64.f16 %g1, %h1;", "'ftz' in", "cvt.ftz.f64.f32 %g1, %f1;"},
      {"cvt.rzi.ftz.s32.f64 %r1, %g1;", "'ftz' in", "cvt.rzi.ftz.s32.f32 %r1, %f1;"},
      {"cvt.sat.f32.bf16 %f1, %h1;", "'sat' in", "cvt.sat.f32.f16 %f1, %h1;"},
      {"cvt.sat.u16.u8 %h1, %h2;", "'sat' in", "cvt.sat.u16.s8 %h1, %h2;"},
      {"cvt.rn.bf16.u8 %h1, %h2;", "'u8' in", "cvt.rn.bf16.u16 %h1, %h2;"},
  };
  for (size_t k = 0; k < sizeof(cases) / sizeof(cases[0]); k++) {
    refused("9.0", "sm_90", cases[k].code, cases[k].message);
    accepted("9.0", "sm_90", cases[k].right);
  }
}

/* Registers and numbers of a type that the instruction does not take; the same with what it takes. */
static void operand_types(void **state) {
  (void)state;
  static const struct {
    const char *code, *word, *right;
  } cases[] = {
      {"add.s32 %f1, %r2, %r3;", "%f1", "add.s32 %s1, %u2, %r3;"},
      {"add.s32 %r1, %r2, %f3;", "%f3", "add.s32 %r1, %x2, %r3;"},
      {"add.f32 %f1, %s2, %f3;", "%s2", "add.f32 %r1, %f2, %r3;"},
      {"fma.rn.f32 %f1, %f2, %x3, %f4;", "%x3", "fma.rn.f32 %f1, %f2, %r3, %f4;"},
      {"mul.wide.s32 %g1, %s1, %s2;", "%g1", "mul.wide.s32 %v1, %s1, %u2;"},
      {"add.f16x2 %u1, %r2, %r3;", "%u1", "add.f16x2 %x1, %r2, %x3;"},
      {"fma.rn.bf16x2 %x1, %r2, %r3, %r4;", "%x1", "fma.rn.bf16x2 %r1, %r2, %r3, %r4;"},
      {"cvt.rn.bf16x2.f32 %f1, %f2, %f3;", "%f1", "cvt.rn.bf16x2.f32 %r1, %f2, %f3;"},
      {"cvt.rn.f16x2.f32 %x1, %f2, %s3;", "%s3", "cvt.rn.f16x2.f32 %x1, %f2, %r3;"},
      {"cvt.rna.tf32.f32 %f1, %f2;", "%f1", "cvt.rna.tf32.f32 %r1, %f2;"},
      {"cvt.rn.f32.s32 %f1, %f2;", "%f2", "cvt.rn.f32.s32 %f1, %s2;"},
      {"cvt.rzi.s32.f32 %f1, %f2;", "%f1", "cvt.rzi.s32.f32 %s1, %f2;"},
      {"shl.b32 %r1, %r2, %f1;", "%f1", "shl.b32 %f1, %f2, %s1;"},
      {"bfi.b32 %f1, %r2, %r3, %f4, %r5;", "%f4", "bfi.b32 %f1, %r2, %r3, %u4, 5;"},
      {"shf.l.wrap.b32 %r1, %r2, %r3, %f4;", "%f4", "shf.l.wrap.b32 %r1, %f2, %r3, %r4;"},
      {"popc.b32 %f1, %r1;", "%f1", "popc.b32 %r1, %f1;"},
      {"dp4a.s32.s32 %r1, %r2, %r3, %f4;", "%f4", "dp4a.s32.s32 %r1, %r2, %r3, %s4;"},
      {"setp.lt.f32 %p1, %s1, %f2;", "%s1", "setp.lt.f32 %p1, %r1, %f2;"},
      {"setp.lt.s32 %p1, %s1, %f2;", "%f2", "setp.eq.b32 %p1, %s1, %f2;"},
      {"set.lt.u32.f32 %f1, %f2, %f3;", "%f1", "set.lt.f32.s32 %f1, %s2, %s3;"},
      {"selp.f32 %s1, %f1, %f2, %p1;", "%s1", "selp.b32 %s1, %f1, %f2, %p1;"},
      {"slct.f32.s32 %f1, %f2, %f3, %f4;", "%f4", "slct.f32.s32 %f1, %f2, %f3, %s4;"},
      {"mov.u32 %f1, %r1;", "%f1", "mov.b32 %f1, %s1;"},
      {"mov.f32 %f1, %tid.x;", "%tid.x", "mov.u32 %r1, %tid.x;"},
      {"mov.f64 %v1, %g1;", "%v1", "mov.b64 %g1, %v1;"},
      {"ld.global.f32 %s1, [%d1];", "%s1", "ld.global.b32 %s1, [%d1];"},
      {"ld.global.u32 %g1, [%d1];", "%g1", "ld.global.u32 %v1, [%d1];"},
      {"ld.global.f32 %g1, [%d1];", "%g1", "ld.global.f32 %d2, [%d1];"},
      {"ld.global.u8 %f1, [%d1];", "%f1", "ld.global.u8 %r1, [%d1];"},
      {"ld.global.v2.f32 {%f1, %s1}, [%d1];", "%s1", "ld.global.v2.f32 {%f1, %r1}, [%d1];"},
      {"ld.shared.f32 %f1, [%f2];", "%f2", "ld.shared.f32 %f1, [%s2];"},
      {"ld.global.f32 %f1, [%g1+4];", "%g1", "ld.global.f32 %f1, [%v1+4];"},
      {"st.global.f32 [%d1], %u1;", "%u1", "st.global.b32 [%d1], %u1;"},
      {"st.global.f32 [%d1], 1;", "1", "st.global.f32 [%d1], 0f3F800000;"},
      {"st.global.u32 [%d1], 0f3F800000;", "0f3F800000", "st.global.b32 [%d1], 0f3F800000;"},
      {"add.f32 %f1, %f2, 0x3f800000;", "0x3f800000", "add.f32 %f1, %f2, 0f3F800000;"},
      {"add.s32 %r1, %r2, 0f3F800000;", "0f3F800000", "add.s32 %r1, %r2, 0x3f800000;"},
      {"atom.global.add.f32 %f1, [%d1], %s2;", "%s2", "atom.global.add.f32 %r1, [%d1], %f2;"},
      {"atom.global.cas.b32 %r1, [%f1], %r2, %r3;", "%f1", "atom.global.cas.b32 %r1, [%d1], %f2, %r3;"},
      {"red.global.add.u32 [%d1], %f2;", "%f2", "red.global.add.u32 [%d1], %s2;"},
      {"shfl.sync.bfly.b32 %f1, %f2, 1, 31, %f3;", "%f3", "shfl.sync.bfly.b32 %f1|%p1, %f2, 1, 31, -1;"},
      {"match.any.sync.b32 %f1, %r1, -1;", "%f1", "match.any.sync.b32 %r1, %f1, -1;"},
      {"redux.sync.add.s32 %f1, %r1, -1;", "%f1", "redux.sync.add.s32 %s1, %u1, -1;"},
      {"bar.sync %f1;", "%f1", "bar.sync %r1;"},
#define MMA(types, d, a, b, c)                                                                                         \
  "mma.sync.aligned.m16n8k16.row.col." types " {" d "1," d "2," d "3," d "4}, {" a "1," a "2," a "3," a "4}, {" b      \
  "1," b "2}, {" c "1," c "2," c "3," c "4};"
      {MMA("f32.bf16.bf16.f32", "%f", "%f", "%r", "%f"), "%f1", MMA("f32.bf16.bf16.f32", "%f", "%r", "%r", "%r")},
      {MMA("f32.f16.f16.f32", "%f", "%r", "%f", "%f"), "%f1", MMA("f32.f16.f16.f32", "%r", "%r", "%r", "%f")},
      {MMA("f32.f16.f16.f32", "%s", "%r", "%r", "%f"), "%s1", MMA("f32.f16.f16.f32", "%f", "%r", "%r", "%f")},
  };
  for (size_t k = 0; k < sizeof(cases) / sizeof(cases[0]); k++) {
    char message[128];
    (void)snprintf(message, sizeof(message), "x.ptx:15: error: '%s' is ", cases[k].word);
    refused("9.0", "sm_90", cases[k].code, message);
    accepted("9.0", "sm_90", cases[k].right);
  }
}

static void numbers(void **state) {
  (void)state;
  static const struct {
    const char *code, *message, *right;
  } cases[] = {
      {"bar.sync 16;", "16 in the instruction 'bar.sync' is not between 0 and 15", "bar.sync 15;"},
      {"bar.sync -1;", "-1 in the instruction 'bar.sync' is not", "bar.sync 0;"},
      {"barrier.sync 17;", "17 in", "barrier.sync 1;"},
      {"bar.sync 0, 33;", "33 in the instruction 'bar.sync' is not between 0 and 1073741824 or no multiple of 32",
       "bar.sync 0, 64;"},
      {"bar.arrive 1, 0;", "0 in", "bar.arrive 1, 32;"},
      {"bar.red.and.pred %p1, 16, %p2;", "16 in", "bar.red.and.pred %p1, 1, 64, %p2;"},
      {"bar.red.popc.u32 %r1, 1, 48, %p2;", "48 in", "bar.red.popc.u32 %r1, 1, %p2;"},
      {"bar.warp.sync %f1;", "'%f1' is", "bar.warp.sync 255;"},
      {"bfe.u32 %r1, %r2, 300, 1;", "300 in", "bfe.u32 %r1, %r2, 255, 1;"},
      {"bfi.b32 %r1, %r2, %r3, 1, 256;", "256 in", "bfi.b32 %r1, %r2, %r3, 1, 4;"},
      {"cp.async.ca.shared.global [%r1], [%d1], 4, 8;",
       "8 in the instruction 'cp.async.ca.shared.global' is not between",
       "cp.async.ca.shared.global [%r1], [%d1], 4, 4;"},
      {"ldmatrix.sync.aligned.m8n8.x1.shared.b16 %r1, [%r2];", "'{' expected",
       "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r1}, [%r2];"},
      {"ld.global.f32 _, [%d1];", "a load into nothing", "ld.global.v2.f32 {%f1, _}, [%d1];"},
      {".reg .b32 %q;\n.reg .b32 %q;", "x.ptx:16: error: the name '%q' stands twice",
       ".reg .b32 %q;\n{ .reg .b64 %q; }"},
      {".reg .b32 %r3;", "the name '%r3' stands twice", "{ .reg .b32 %r3; }"},
      {".reg .f32 %r<4>;", "the name '%r' stands twice", ".reg .f32 %r9;"},
      {".shared .b8 big[49153];", "49153 bytes of static shared memory", ".shared .b8 big[49152];"},
  };
  for (size_t k = 0; k < sizeof(cases) / sizeof(cases[0]); k++) {
    refused("9.0", "sm_90", cases[k].code, cases[k].message);
    accepted("9.0", "sm_90", cases[k].right);
  }
}

static void directives(void **state) {
  (void)state;
  refused("9.0", "sm_33", "", "x.ptx:2: error: there is no target sm_33 in PTX 9.0");
  refused("7.7", "sm_90", "", "there is no target sm_90 in PTX 7.7");
  refused("8.5", "sm_100", "", "there is no target sm_100 in PTX 8.5");
  refused("9.0", "sm_90\n.target sm_90", "", "x.ptx:3: error: a second .target");
  refused("9.0\n.version 9.0", "sm_90", "", "x.ptx:2: error: a second .version");
  refused("9.0", "sm_90", "ret;\n}\n.entry k() {", "a second kernel 'k'");
  refused("9.0", "sm_90", "ret;\n}\n.entry j(.param .u32 a, .param .u32 a) {", "the name 'a' stands twice");
  accepted("9.0", "sm_90", "ret;\n}\n.entry j(.param .u64 p) {");
  accepted("7.8", "sm_90", "");
  accepted("8.6", "sm_100", "");
  accepted("8.8", "sm_121", "");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(since_targets), cmocka_unit_test(parts_together),
                                     cmocka_unit_test(operand_types), cmocka_unit_test(numbers),
                                     cmocka_unit_test(directives)};
  return cmocka_run_group_tests(tests, ptx_setup, ptx_teardown);
}
