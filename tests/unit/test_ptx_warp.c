/* What lanes do together, and memory in all its spaces. */
#include "tests/unit/ptx_op.h"
#include <math.h>

/* ---- shuffles, votes, matches: by the text of the PTX ISA ---- */

static void one_warp(const char *text, const char *widths, op_element elements[32]) {
  const op_case c = {text, widths, NULL};
  for (int l = 0; l < 32; l++)
    for (int j = 0; j < 4; j++) elements[l].in[j] = op_random() % (j == 0 ? 1000 : j == 1 ? 32 : 2);
  op_run(&c, elements, 32);
}

static void shuffles(void **state) {
  (void)state;
  static const char *const modes[] = {"up", "down", "bfly", "idx"};
  op_element e[32];
  for (int mode = 0; mode < 4; mode++)
    for (uint32_t width = 1; width <= 32; width *= 2) {
      char text[200];
      const uint32_t clamp = (32 - width) << 8 | (mode == 0 ? 0 : 31);
      snprintf(text, sizeof(text),
               "{ .reg .pred %%q; shfl.sync.%s.b32 %%d|%%q, %%a, %%b, %u, 0xffffffff; @!%%q add.s32 %%d, %%d, 10000; }",
               modes[mode], clamp);
      one_warp(text, "444", e);
      for (int l = 0; l < 32; l++) {
        const int first = l / (int)width * (int)width, last = first + (int)width - 1, step = (int)e[l].in[1];
        const int from = mode == 0 ? l - step : mode == 1 ? l + step : mode == 2 ? l ^ step : first + step % (int)width;
        const bool ok = mode == 0 ? from >= first : from <= last; /* bfly: lanes of a lower segment can be read */
        assert_int_equal((uint32_t)e[l].out, ok ? e[from].in[0] : e[l].in[0] + 10000);
      }
    }
}

static void votes_and_matches(void **state) {
  (void)state;
  op_element e[32];
  one_warp("vote.sync.ballot.b32 %d, !%a, 0xffffffff;", "4p", e);
  uint32_t zero = 0;
  for (int l = 0; l < 32; l++) zero |= (uint32_t)(e[l].in[0] == 0) << l;
  for (int l = 0; l < 32; l++) assert_int_equal((uint32_t)e[l].out, zero);
  one_warp("vote.sync.any.pred %d, %c, 0xffffffff;", "p44p", e);
  for (int l = 0; l < 32; l++) assert_int_equal((uint32_t)e[l].out, 1);
  one_warp("vote.sync.all.pred %d, %c, 0xffffffff;", "p44p", e);
  for (int l = 0; l < 32; l++) assert_int_equal((uint32_t)e[l].out, 0);
  one_warp("match.any.sync.b32 %d, %b, 0xffffffff;", "444", e);
  for (int l = 0; l < 32; l++) {
    uint32_t same = 0;
    for (int k = 0; k < 32; k++) same |= (uint32_t)(e[k].in[1] == e[l].in[1]) << k;
    assert_int_equal((uint32_t)e[l].out, same);
  }
  one_warp("{ .reg .pred %q; match.all.sync.b64 %d|%q, 5, 0xffffffff; selp.b32 %d, %d, 3, %q; }", "44", e);
  for (int l = 0; l < 32; l++) assert_int_equal((uint32_t)e[l].out, 0xffffffff);
  one_warp("{ .reg .pred %q; match.all.sync.b32 %d|%q, %a, 0xffffffff; selp.b32 %d, 7, %d, %q; }", "44", e);
  for (int l = 0; l < 32; l++) assert_int_equal((uint32_t)e[l].out, 0);
  static const char *const reductions[] = {"add.u32", "min.s32", "max.u32", "and.b32", "or.b32", "xor.b32"};
  for (int k = 0; k < 6; k++) {
    char text[100];
    snprintf(text, sizeof(text), "{ sub.s32 %%a, %%a, 500; redux.sync.%s %%d, %%a, 0xffffffff; }", reductions[k]);
    one_warp(text, "44", e);
    uint32_t r = (uint32_t)e[0].in[0] - 500;
    for (int l = 1; l < 32; l++) {
      const uint32_t v = (uint32_t)e[l].in[0] - 500;
      r = k == 0   ? r + v
          : k == 1 ? ((int32_t)v < (int32_t)r ? v : r)
          : k == 2 ? (v > r ? v : r)
          : k == 3 ? r & v
          : k == 4 ? r | v
                   : r ^ v;
    }
    for (int l = 0; l < 32; l++) assert_int_equal((uint32_t)e[l].out, r);
  }
}

/* ---- matrices ---- */

static float brain(uint16_t b) {
  const uint32_t u = (uint32_t)b << 16;
  float f;
  memcpy(&f, &u, 4);
  return f;
}
/* Small whole numbers and halves, exact in every format; as f16 and bf16. */
static float small(uint32_t k) { return (float)((int)(k * 2654435761u >> 27) - 16) * 0.5f; }
static uint16_t as_half(float v) {
  for (uint32_t h = 0; h < 0x10000; h++) {
    const double e = h >> 10 & 31 ? ldexp(1024 + (h & 1023), (int)(h >> 10 & 31) - 25) : ldexp(h & 1023, -24);
    if ((h >> 10 & 31) < 31 && (h & 0x8000 ? -e : e) == (double)v) return (uint16_t)h;
  }
  return 0;
}
static uint16_t as_brain(float v) {
  uint32_t u;
  memcpy(&u, &v, 4);
  return (uint16_t)(u >> 16);
}

static void check_product(const float *c, const float *before, const float *a, const float *b, uint32_t k) {
  for (uint32_t r = 0; r < 16; r++)
    for (uint32_t n = 0; n < 8; n++) {
      float s = before[r * 8 + n];
      for (uint32_t i = 0; i < k; i++) s += a[r * k + i] * b[n * k + i];
      assert_true(c[r * 8 + n] == s);
    }
}

static void products(void **state) {
  (void)state;
  sim_module *m = ptx_load("warp");
  static const struct {
    const char *kernel;
    uint32_t depth, kind;
  } cases[] = {{"mma_f16_16", 16, 0}, {"mma_f16_8", 8, 0},  {"mma_bf16_16", 16, 1},
               {"mma_bf16_8", 8, 1},  {"mma_tf32_8", 8, 2}, {"pipeline", 80, 1}};
  for (size_t n = 0; n < sizeof(cases) / sizeof(cases[0]); n++) {
    const uint32_t k = cases[n].depth;
    float a[16 * 80], b[8 * 80], c[16 * 8];
    uint16_t ha[16 * 80], hb[8 * 80];
    for (uint32_t i = 0; i < 16 * k; i++) ha[i] = cases[n].kind ? as_brain(a[i] = small(i)) : as_half(a[i] = small(i));
    for (uint32_t i = 0; i < 8 * k; i++)
      hb[i] = cases[n].kind ? as_brain(b[i] = small(i + 777)) : as_half(b[i] = small(i + 777));
    for (uint32_t i = 0; i < 128; i++) c[i] = n == 5 ? 0 : small(i + 99);
    assert_true(brain(as_brain(a[3])) == a[3]);
    const struct {
      uint64_t a, b, c;
      uint32_t k, pad;
    } p = {cases[n].kind == 2 ? ptx_buffer(a, 64 * k) : ptx_buffer(ha, 32 * k),
           cases[n].kind == 2 ? ptx_buffer(b, 32 * k) : ptx_buffer(hb, 16 * k), ptx_buffer(c, sizeof(c)), k, 0};
    const sim_launch l = ptx_launch(m, cases[n].kernel, 1, 32, &p);
    ptx_run(&l, NULL);
    check_product(ptx_data(p.c), c, a, b, k);
  }
  sim_module_unload(m);
}

static void tiles(void **state) {
  (void)state;
  sim_module *m = ptx_load("warp");
  uint16_t x[256];
  for (uint32_t i = 0; i < 256; i++) x[i] = (uint16_t)(i * 251);
  const uint64_t p[] = {ptx_buffer(x, sizeof(x)), ptx_buffer(NULL, 5 * 128)};
  const sim_launch l = ptx_launch(m, "transposed", 1, 32, p);
  ptx_run(&l, NULL);
  const uint32_t *y = ptx_data(p[1]);
  for (uint32_t t = 0; t < 32; t++) {
    for (uint32_t i = 0; i < 4; i++) {
      const uint32_t low = x[i * 64 + (t % 4 * 2) * 8 + t / 4], high = x[i * 64 + (t % 4 * 2 + 1) * 8 + t / 4];
      assert_int_equal(y[i * 32 + t], low | high << 16);
    }
    assert_int_equal(y[128 + t], x[t / 4 * 8 + t % 4 * 2] | (uint32_t)x[t / 4 * 8 + t % 4 * 2 + 1] << 16);
  }
  sim_module_unload(m);
}

static void padded_copies(void **state) {
  (void)state;
  sim_module *m = ptx_load("warp");
  float x[128];
  for (int i = 0; i < 128; i++) x[i] = (float)(i + 1);
  for (int32_t n = 0; n < 128; n += 13) {
    const struct {
      uint64_t x, y;
      int32_t n;
    } p = {ptx_buffer(x, n ? (size_t)n * 4 : 4), ptx_buffer(NULL, 512), n};
    const sim_launch l = ptx_launch(m, "padded", 1, 32, &p);
    ptx_run(&l, NULL);
    const float *y = ptx_data(p.y);
    for (int i = 0; i < 128; i++) assert_true(y[i] == (i < n ? x[i] : 0));
  }
  sim_module_unload(m);
}

static void atomics(void **state) {
  (void)state;
  sim_module *m = ptx_load("warp");
  const uint32_t w[24] = {1, 2, 3, 4, 0xffffffff, 300, 6};
  const uint64_t q[3] = {5, 0, 7};
  const float f[2] = {0.5f};
  const double g[1] = {2};
  const uint64_t p[] = {ptx_buffer(w, sizeof(w)), ptx_buffer(q, sizeof(q)), ptx_buffer(f, sizeof(f)),
                        ptx_buffer(g, sizeof(g))};
  sim_launch l = ptx_launch(m, "atomics", 1, 256, p);
  sim_counters counters = {0};
  ptx_run(&l, &counters);
  const uint32_t *r = ptx_data(p[0]), sum = 255 * 128;
  const uint32_t want[24] = {1 + sum, 2 - sum, (uint32_t)-255, 245, 0, 100 - 254 % 101 + 0, 42, 0};
  for (int i = 0; i < 5; i++) assert_int_equal(r[i], want[i]);
  uint32_t down = 300, up = 0;
  for (int i = 0; i < 256; i++) {
    down = down == 0 || down > 100 ? 100 : down - 1;
    up = up >= 9 ? 0 : up + 1;
  }
  assert_int_equal(r[5], down);
  assert_int_equal(r[6], 42);
  const float most = 255;
  assert_memory_equal(&r[7], &most, 4);
  const uint32_t shared[] = {sum, 5, 765, 0xffffffff, 0, up};
  for (int i = 0; i < 6; i++) assert_int_equal(r[16 + i], shared[i]);
  const uint64_t *big = ptx_data(p[1]);
  assert_true(big[0] == 5 + ((uint64_t)sum << 33) && big[1] == (uint64_t)255 << 40 && big[2] == (uint64_t)1 << 50);
  const float *single = ptx_data(p[2]);
  assert_true(single[0] == 0.5f + 320 && single[1] == 128 && *(const double *)ptx_data(p[3]) == 34);
  assert_true(counters.atomics >= 18 * 256);
  sim_module_unload(m);
}

static void spaces(void **state) {
  (void)state;
  sim_module *m = ptx_load("warp");
  float x[64];
  for (int i = 0; i < 64; i++) x[i] = (float)(i * i % 17);
  struct {
    uint64_t x, y;
    float v[9];
    int32_t n;
  } p = {ptx_buffer(x, sizeof(x)), ptx_buffer(NULL, sizeof(x)), {9, 8, 7, 6, 5, 4, 3, 2, 1}, 7};
  const float table[] = {1, 2, 4, 8, 16};
  float variable[] = {0.5f, 0.25f, 0.125f};
  const sim_launch l = ptx_launch(m, "spaces", 1, 64, &p);
  uint64_t address;
  size_t bytes;
  assert_true(sim_module_global(m, "variable", &address, &bytes) && bytes == 12);
  assert_false(sim_module_global(m, "absent", &address, &bytes));
  ptx_run(&l, NULL);
  const float *y = ptx_data(p.y);
  for (int t = 0; t < 64; t++) {
    const int i = t % 6;
    const float v = t % 4 == 0 ? x[i] : t % 4 == 1 ? x[i] + 1 : t % 4 == 2 ? x[i] * (float)t : p.v[i];
    assert_true(y[t] == v * 2 + table[t % 5] + variable[t % 3] + p.v[t % 7]);
  }
  assert_true(((const float *)ptx_data(address))[0] == 1.5f);
  sim_module_unload(m);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(shuffles),      cmocka_unit_test(votes_and_matches),
                                     cmocka_unit_test(products),      cmocka_unit_test(tiles),
                                     cmocka_unit_test(padded_copies), cmocka_unit_test(atomics),
                                     cmocka_unit_test(spaces)};
  return cmocka_run_group_tests(tests, ptx_setup, ptx_teardown);
}
