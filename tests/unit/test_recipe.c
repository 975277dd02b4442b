/* Recipes: their text reads back as the same numbers, wrong texts are told by line, schedules are exact at their edges. */
#include "runtime/recipe.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
// cmocka needs the headers above first
#include <cmocka.h>

static const taper_gate_schedule gates[] = {
    {.gate = "internal", .kind = TAPER_GATE_RAMP, .start = 50, .end = 1000, .ema = 0.01},
    {.gate = "per.layer", .kind = TAPER_GATE_STEP, .start = 0, .every = 7, .ema = 0.1, .inv_sigma = 1},
    {.gate = "final", .kind = TAPER_GATE_NEVER},
};

static taper_recipe sound(void) {
  taper_recipe r;
  taper_recipe_init(&r);
  r.lr = 0.1 + 0.2, r.beta2 = 1.0 / 3, r.eps = 1e-8, r.seed = UINT64_MAX, r.warmup = 50, r.schedule = TAPER_LR_LINEAR;
  r.weight_decay = 5e-324, r.gates = gates, r.gate_count = 3;
  return r;
}

static taper_allocator libc(void) { return memory_allocator((taper_allocator){0}); }

static void texts_read_back(void **state) {
  (void)state;
  taper_recipe r = sound(), back, copy;
  taper_allocator a = libc();
  void *block, *other;
  taper_error error;
  char room[128];
  text s = {0}, again = {0};
  recipe_print(&r, &s);
  assert_int_equal(recipe_parse(s.data, s.size, &a, &back, &block, &error), TAPER_OK);
  assert_null(recipe_difference(&r, &back, room, sizeof(room)));
  recipe_print(&back, &again);
  assert_string_equal(s.data, again.data);
  assert_int_equal(recipe_copy(&back, &a, &copy, &other, &error), TAPER_OK);
  memory_free(&a, block);
  assert_null(recipe_difference(&copy, &r, room, sizeof(room)));
  copy.floor = 0.5;
  assert_string_equal(recipe_difference(&copy, &r, room, sizeof(room)), "floor");
  copy.floor = 0, copy.gate_count = 2;
  assert_string_equal(recipe_difference(&copy, &r, room, sizeof(room)), "gate 'final'");
  memory_free(&a, other);
  text_free(&s), text_free(&again);
}

static void wrong_texts_are_told(void **state) {
  (void)state;
  static const struct {
    const char *from, *to, *word;
  } wrong[] = {
      {"recipe 1", "recipe 2", "line 1: expected 'recipe 1'"},
      {"steps 1000", "steps 0", "'steps' is out of range"},
      {"steps 1000", "steps 1000 7", "line 2: '7' stands behind 'steps'"},
      {"steps 1000", "steps -3", "line 2: 'steps': '-3' is no number"},
      {"steps 1000", "seed 4", "line 3: 'seed' stands twice"},
      {"steps 1000\n", "", "'steps' is missing"},
      {"batch 8", "batch 5000000000", "'batch': '5000000000' is no number that fits"},
      {"batch 8", "brunch 8", "line 4: 'brunch' is no key"},
      {"beta1 0.9", "beta1 1", "'beta1' is out of range"},
      {"beta1 0.9", "beta1 nan", "beta1"},
      {"lr 0.3", "lr inf0.3", "lr"},
      {"clip 1", "clip -1", "'clip' is out of range"},
      {"floor 0", "floor 1.5", "'floor' is out of range"},
      {"warmup 50", "warmup 1001", "the warm-up has 1001 steps"},
      {"schedule linear", "schedule step", "'step' is no schedule"},
      {"ramp", "rump", "'rump' is no kind of gate"},
      {"end=1000", "end=1001", "gate 'internal': it ends at step 1001"},
      {"end=1000", "end=49", "starts at step 50, past its end at step 49"},
      {"end=1000", "stop=1000", "expected 'end='"},
      {"end=1000", "end=", "'' is no number"},
      {"ema=0.01", "ema=0", "ema must be over 0"},
      {"ema=0.01", "ema=1.01", "ema must be over 0"},
      {"every=7", "every=1001", "every 1001"},
      {"inv_sigma", "sigma", "'sigma' is no calibration"},
      {"final never", "internal never", "gate 'internal' has two schedules"},
      {"final never", "final never x", "'x' stands behind the gate"},
      {"final never\n", "final never", "the text is cut off"},
      {"final never", "final", "'' is no kind of gate"},
  };
  taper_recipe r = sound();
  taper_allocator a = libc();
  text s = {0};
  recipe_print(&r, &s);
  for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
    const char *at = strstr(s.data, wrong[i].from);
    assert_non_null(at);
    text t = {0};
    text_put(&t, s.data, (size_t)(at - s.data));
    text_puts(&t, wrong[i].to);
    text_puts(&t, at + strlen(wrong[i].from));
    taper_recipe out;
    void *block = (void *)1;
    taper_error error = {0};
    assert_int_equal(recipe_parse(t.data, t.size, &a, &out, &block, &error), TAPER_INVALID);
    assert_null(block);
    if (!strstr(error.message, wrong[i].word)) fail_msg("'%s' lacks '%s'", error.message, wrong[i].word);
    text_free(&t);
  }
  taper_recipe out;
  void *block;
  assert_int_equal(recipe_parse("recipe 1\nst\0eps 3\n", 18, &a, &out, &block, NULL), TAPER_INVALID);
  assert_int_equal(recipe_parse("", 0, &a, &out, &block, NULL), TAPER_INVALID);
  text_free(&s);
}

static void schedules_are_exact(void **state) {
  (void)state;
  taper_recipe r;
  taper_recipe_init(&r);
  r.steps = 10, r.warmup = 4, r.lr = 1, r.floor = 0.1;
  for (uint64_t k = 1; k <= 4; k++) assert_true(recipe_lr(&r, k) == (double)k / 4);
  assert_true(recipe_lr(&r, 5) == 1);
  for (uint64_t k = 6; k <= 10; k++) {
    const double p = (double)(k - 5) / 6, want = 0.1 + 0.9 * (1 + cos(3.14159265358979323846 * p)) / 2;
    assert_true(fabs(recipe_lr(&r, k) - want) < 1e-15 && recipe_lr(&r, k) > 0.1);
  }
  r.schedule = TAPER_LR_LINEAR;
  assert_true(fabs(recipe_lr(&r, 8) - (0.1 + 0.9 * 0.5)) < 1e-15);
  r.schedule = TAPER_LR_CONSTANT;
  assert_true(recipe_lr(&r, 10) == 1);
  r.steps = 1, r.warmup = 0, r.schedule = TAPER_LR_COSINE;
  assert_true(recipe_lr(&r, 1) == 1);
  r.warmup = 1;
  assert_true(recipe_lr(&r, 1) == 1);
  taper_gate_schedule g = {.kind = TAPER_GATE_RAMP, .start = 3, .end = 7};
  const double ramp[] = {1, 1, 1, 0.85355339059327378, 0.5, 0.14644660940672624, 0, 0};
  for (uint64_t k = 1; k <= 8; k++) assert_true(fabs(recipe_gate_value(&g, 0, k) - ramp[k - 1]) < 1e-15);
  assert_true(recipe_gate_value(&g, 0, 7) == 0);
  g.start = 0, g.end = 0;
  assert_true(recipe_gate_value(&g, 0, 1) == 0);
  g.start = g.end = 5;
  assert_true(recipe_gate_value(&g, 0, 5) == 1 && recipe_gate_value(&g, 0, 6) == 0);
  g.start = 0, g.end = (uint64_t)1 << 50; /* never 0 before its end */
  assert_true(recipe_gate_value(&g, 0, g.end - 1) > 0 && (float)recipe_gate_value(&g, 0, g.end - 1) > 0);
  g = (taper_gate_schedule){.kind = TAPER_GATE_STEP, .start = 2, .every = 3};
  for (uint32_t i = 0; i < 4; i++) {
    assert_int_equal(recipe_gate_start(&g, i), 2 + 3 * i);
    for (uint64_t k = 1; k < 20; k++) assert_true(recipe_gate_value(&g, i, k) == (k <= 2 + 3 * i));
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(texts_read_back),
      cmocka_unit_test(wrong_texts_are_told),
      cmocka_unit_test(schedules_are_exact),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
