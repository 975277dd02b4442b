/* Random kernels: does the simulator report a race exactly where two accesses are not ordered? Steps that all threads go through
   together, each an access of a word (or two) by the threads that a table names, or a barrier; the reference compares every two accesses. */
#include "tests/unit/ptx_run.h"

#define MOST_STEPS 32u
#define MOST_THREADS 96u
#define NOBODY 0xffffffffu

typedef enum step_kind { READ, WRITE, READ_PAIR, WRITE_PAIR, READ_ONLY, BLOCK_BARRIER, WARP_BARRIER, KINDS } step_kind;
typedef struct program {
  uint32_t blocks, threads, words, steps;
  step_kind kind[MOST_STEPS];
  uint32_t word[MOST_STEPS][MOST_THREADS]; /* by thread of the grid; NOBODY: it does not take part */
} program;

static uint64_t state = 0x2545f4914f6cdd1du;
static uint32_t draw(uint32_t below) {
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return (uint32_t)(state >> 33) % below;
}

/* ---- the kernel ---- */

static const char *const texts[KINDS][2] = {
    /* shared, global */
    [READ] = {"@%%p ld.shared.u32 %%v, [%%s];\n", "@%%p ld.global.u32 %%v, [%%g];\n"},
    [WRITE] = {"@%%p st.shared.u32 [%%s], %%t;\n", "@%%p st.global.u32 [%%g], %%t;\n"},
    [READ_PAIR] = {"@%%p ld.shared.v2.u32 {%%v, %%u}, [%%s];\n", "@%%p ld.global.v2.u32 {%%v, %%u}, [%%g];\n"},
    [WRITE_PAIR] = {"@%%p st.shared.v2.u32 [%%s], {%%t, %%t};\n", "@%%p st.global.v2.u32 [%%g], {%%t, %%t};\n"},
    [READ_ONLY] = {"", "@%%p ld.global.nc.u32 %%v, [%%g];\n"},
    [BLOCK_BARRIER] = {"bar.sync 0;\n", "bar.sync 0;\n"},
    [WARP_BARRIER] = {"bar.warp.sync -1;\n", "bar.warp.sync -1;\n"},
};

static void write_kernel(const program *p, bool global, char *text, size_t size) {
  size_t n = (size_t)snprintf(
      text, size,
      ".version 8.6\n.target sm_90\n.address_size 64\n.shared .align 8 .b8 room[%u];\n.visible .entry k(.param .u64 "
      "table, .param "
      ".u64 data) {\n.reg .b32 %%t, %%a, %%v, %%u, %%s, %%b, %%n;\n.reg .b64 %%r, %%d, %%g;\n.reg .pred %%p;\n"
      "mov.u32 %%t, %%tid.x;\nmov.u32 %%b, %%ctaid.x;\nmov.u32 %%n, %%ntid.x;\nmad.lo.u32 %%t, %%b, %%n, %%t;\n"
      "ld.param.u64 %%r, [table];\nld.param.u64 %%d, [data];\nmad.wide.u32 %%r, %%t, 4, %%r;\nmov.u32 %%b, room;\n",
      4 * p->words);
  for (uint32_t s = 0; s < p->steps; s++) {
    if (p->kind[s] < BLOCK_BARRIER)
      n += (size_t)snprintf(text + n, size - n,
                            "ld.global.nc.u32 %%a, [%%r+%u];\nsetp.ne.u32 %%p, %%a, -1;\nmad.lo.u32 %%s, %%a, 4, %%b;\n"
                            "mad.wide.u32 %%g, %%a, 4, %%d;\n",
                            4 * MOST_THREADS * s);
    n += (size_t)snprintf(text + n, size - n, texts[p->kind[s]][global]);
  }
  snprintf(text + n, size - n, "ret;\n}\n");
}

static bool run_kernel(const program *p, bool global, uint64_t seed, sim_fault *fault) {
  static char text[16384];
  write_kernel(p, global, text, sizeof(text));
  sim_module *m = ptx_from(text, "random.ptx");
  const uint32_t zeros[MOST_THREADS * 4] = {0};
  const struct {
    uint64_t table, data;
  } parameters = {ptx_buffer(p->word, sizeof(p->word)), ptx_buffer(zeros, sizeof(zeros))};
  sim_launch l = ptx_launch(m, "k", p->blocks, p->threads, &parameters);
  l.seed = seed;
  const bool good = sim_launch_run(&l, NULL, fault);
  sim_memory_release(memory, parameters.table);
  sim_memory_release(memory, parameters.data);
  sim_module_unload(m);
  return good;
}

/* ---- the reference ---- */

static bool writes(step_kind k) { return k == WRITE || k == WRITE_PAIR; }
static bool meets(const program *p, uint32_t s, uint32_t t, uint32_t r, uint32_t u) {
  const uint32_t a = p->word[s][t], b = p->word[r][u];
  if (p->kind[s] >= BLOCK_BARRIER || p->kind[r] >= BLOCK_BARRIER || a == NOBODY || b == NOBODY) return false;
  const uint32_t a_size = p->kind[s] == READ_PAIR || p->kind[s] == WRITE_PAIR ? 2 : 1;
  const uint32_t b_size = p->kind[r] == READ_PAIR || p->kind[r] == WRITE_PAIR ? 2 : 1;
  return (writes(p->kind[s]) || writes(p->kind[r])) && a < b + b_size && b < a + a_size;
}

/* Two threads at steps s <= r. */
static bool ordered(const program *p, uint32_t s, uint32_t t, uint32_t r, uint32_t u) {
  for (uint32_t k = s + 1; k < r; k++)
    if (p->kind[k] == BLOCK_BARRIER || (p->kind[k] == WARP_BARRIER && t / 32 == u / 32)) return true;
  return false;
}

static bool has_race(const program *p, bool global) {
  const uint32_t threads = p->blocks * p->threads;
  for (uint32_t s = 0; s < p->steps; s++)
    for (uint32_t r = s; r < p->steps; r++)
      for (uint32_t t = 0; t < threads; t++)
        for (uint32_t u = 0; u < threads; u++) {
          if (!meets(p, s, t, r, u)) continue;
          const bool other_block = t / p->threads != u / p->threads;
          const bool read_only = p->kind[s] == READ_ONLY || p->kind[r] == READ_ONLY;
          if (global ? other_block || read_only : t != u && !ordered(p, s, t, r, u)) return true;
        }
  return false;
}

/* ---- programs: mostly in order, with a few places changed ---- */

/* Threads take words in a row, in a row of their block, all the same, in any order; some of them none. */
static void draw_words(program *p, uint32_t s, uint32_t own, uint32_t shared_words) {
  const uint32_t how = draw(5), one = draw(shared_words / 2) * 2, some = draw(3);
  const bool pair = p->kind[s] == READ_PAIR || p->kind[s] == WRITE_PAIR;
  for (uint32_t t = 0; t < p->blocks * p->threads; t++) {
    uint32_t w = shared_words + (t + own) % (p->blocks * p->threads) * 2; /* its own */
    if (!writes(p->kind[s]) && how < 4) w = how == 0 ? one : how == 1 ? t % 32 % shared_words : draw(shared_words);
    if (pair) w &= ~1u;
    p->word[s][t] = some == 0 && draw(3) == 0 ? NOBODY : w;
  }
}

static void draw_program(program *p, bool global) {
  const uint32_t common = 32;
  *p = (program){.blocks = global ? 3 : 1, .threads = global ? 32 : 64 + 32 * draw(2), .steps = 8 + draw(20)};
  p->words = common + 2 * p->blocks * p->threads;
  uint32_t own = global ? draw(8) : 0; /* blocks meet within a sector */
  for (uint32_t s = 0; s < p->steps; s++) {
    const uint32_t k = draw(10);
    p->kind[s] = k < 4   ? READ
                 : k < 6 ? WRITE
                 : k < 7 ? READ_PAIR
                 : k < 8 ? WRITE_PAIR
                 : k < 9 ? BLOCK_BARRIER
                         : WARP_BARRIER;
    if (global && k < 2) p->kind[s] = READ_ONLY;
    if (s < 3 && !global) p->kind[s] = s < 2 ? WRITE_PAIR : BLOCK_BARRIER; /* everything has a value */
    draw_words(p, s, own, common);
    if (p->kind[s] == BLOCK_BARRIER && !global) own = draw(p->threads);
  }
  for (uint32_t t = 0; t < p->threads && !global; t++) {
    p->word[0][t] = common + 2 * t;
    p->word[1][t] = t < common / 2 ? 2 * t : NOBODY;
  }
  for (uint32_t n = draw(4); n > 0; n--) {
    const uint32_t s = global ? draw(p->steps) : 3 + draw(p->steps - 3), t = draw(p->blocks * p->threads);
    if (p->word[s][t] != NOBODY) p->word[s][t] = draw(p->words / 2) * 2;
  }
  if (draw(4) == 0 && p->steps > 4 && !global) p->kind[3 + draw(p->steps - 3)] = WARP_BARRIER;
}

static void check(bool global, uint32_t count) {
  uint32_t races = 0;
  for (uint32_t n = 0; n < count; n++) {
    program p;
    sim_fault fault = {0};
    draw_program(&p, global);
    const bool want = has_race(&p, global), good = run_kernel(&p, global, n % 3, &fault);
    races += want;
    const bool kind =
        global ? fault.kind == SIM_GLOBAL_RACE || fault.kind == SIM_READ_ONLY : fault.kind == SIM_SHARED_RACE;
    if (good == want || (!good && !kind))
      fail_msg("program %u has %s; the simulator says: %s", n, want ? "a race" : "none", good ? "nothing" : fault.text);
  }
  if (races < count / 5 || races > count / 5 * 4)
    fail_msg("%u races in %u programs: too few of one sort", races, count);
}

static void shared_races(void **s) {
  (void)s;
  check(false, 600);
}
static void global_races(void **s) {
  (void)s;
  check(true, 600);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(shared_races), cmocka_unit_test(global_races)};
  return cmocka_run_group_tests(tests, ptx_setup, ptx_teardown);
}
