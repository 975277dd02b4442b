/* test_plan.c - images against the reference evaluation: every kind of model, at every level, on nasty shapes; the bits
   of a row do not depend on the number of workers, nor on which rows are computed beside it. */
#include "tests/unit/plan_cases.h"

static void check_probe(void *user, const taper_probe_desc *p, const float *rows) {
  const check *c = user;
  size_t i = 0;
  while (i < c->probe_count && strcmp(c->probe_names[i], p->name) != 0) i++;
  if (i == c->probe_count) return;
  assert_int_equal(p->width, c->probes[i].dim[2]);
  double most = 0, worst = 0;
  for (size_t j = 0; j < (size_t)c->probes[i].dim[1] * p->width; j++) {
    most = fmax(most, fabs(c->probes[i].data[j]));
    worst = fmax(worst, fabs(rows[j] - c->probes[i].data[j]));
  }
  if (p->inv_scale == TAPER_ABI_NONE && !(worst <= 1e-4 * most))
    fail_msg("%s: probe '%s' is off by %g of %g", c->k->label, p->name, worst, most);
}

/* All rows in one call; then step by step with three workers; then in chunks beside another sequence. All must agree to
 * the bit. */
static void run_case(check *c, const pass_options *o, const char *arch, const char *what) {
  uint32_t n = c->k->tokens, vocab = (uint32_t)c->reference.dim[2];
  diag_sink *sink = diag_sink_new();
  ir_module *m = run_optimise(c->m, *o, sink);
  run_image r = run_load(m, arch, 2 * n, 3, sink);
  assert_int_equal(r.image->vocab, vocab);
  float *whole = calloc((size_t)n * vocab, sizeof *whole), *other = calloc(2 * (size_t)n * vocab, sizeof *other);
  int32_t *token = calloc(2 * n, 4), *slot = calloc(2 * n, 4), *pos = calloc(2 * n, 4), *out = calloc(2 * n, 4);
  for (uint32_t i = 0; i < n; i++) token[i] = c->tokens[i], pos[i] = (int32_t)i, out[i] = (int32_t)i, slot[i] = 1;
  run_call(&r, 1, n, token, slot, pos, n, out, whole, check_probe, c);
  compare(c, what, whole);
  const int32_t two = 2, zero = 0;
  for (uint32_t i = 0; i < n; i++) {
    const int32_t at = (int32_t)i;
    run_call(&r, 3, 1, &c->tokens[i], &two, &at, 1, &zero, other, NULL, NULL);
    if (memcmp(other, whole + (size_t)i * vocab, vocab * sizeof(float)) != 0)
      fail_msg("%s, %s: step %u differs from the prefill", c->k->label, what, i);
  }
  for (uint32_t i = 0, chunk = 1; i < n;
       i += chunk, chunk = chunk % 9 + 2) { /* ragged: our chunk, and one row of another sequence in front */
    if (chunk > n - i) chunk = n - i;
    token[0] = c->tokens[(i * 3) % n], slot[0] = 0, pos[0] = 0;
    for (uint32_t j = 0; j < chunk; j++)
      token[1 + j] = c->tokens[i + j], slot[1 + j] = 1, pos[1 + j] = (int32_t)(i + j);
    out[0] = (int32_t)chunk;
    run_call(&r, 2, chunk + 1, token, slot, pos, 1, out, other, NULL, NULL);
    if (memcmp(other, whole + (size_t)(i + chunk - 1) * vocab, vocab * sizeof(float)) != 0)
      fail_msg("%s, %s: chunk at %u differs", c->k->label, what, i);
  }
  run_call(&r, 2, 1, token, slot, pos, 0, out, other, NULL, NULL); /* no logits wanted */
  free(whole), free(other), free(token), free(slot), free(pos), free(out);
  run_unload(&r);
  ir_module_free(m);
  diag_sink_free(sink);
}

static void run_all(const pass_options *o, const char *arch, const char *what, size_t first, size_t step) {
  if (getenv("TAPERC_QUICK")) step *= 3; /* each case waits for the C compiler */
  for (size_t i = first; i < sizeof cases / sizeof *cases; i += step) {
    check c;
    open_case(&c, &cases[i], 11 + i);
    run_case(&c, o, arch, what);
    close_case(&c);
  }
}

static void test_o2(void **state) {
  (void)state;
  run_all(&(pass_options){.level = 2}, "native", "-O2 native", 0, 1);
}
static void test_o2_portable(void **state) {
  (void)state;
  run_all(&(pass_options){.level = 2, .norms = NORMS_KERNEL}, "x86-64-v3", "-O2 --norms=kernel v3", 0, 3);
}
static void test_o0(void **state) {
  (void)state;
  run_all(&(pass_options){.level = 0}, "x86-64", "-O0 v1", 1, 2);
}
static void test_explicit(void **state) {
  (void)state;
  run_all(&(pass_options){.level = 2, .fold = FOLD_EXPLICIT}, "native", "--fold=explicit", 1, 3);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_o2), cmocka_unit_test(test_o2_portable),
                                     cmocka_unit_test(test_o0), cmocka_unit_test(test_explicit)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
