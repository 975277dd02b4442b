/* What a training run is made of: initial values, rewritten sources, recipes, run folders. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "compiler/driver/initial.h"
#include "compiler/driver/run_folder.h"
#include "compiler/driver/train.h"
#include "compiler/front/front.h"
#include "runtime/base/hash.h"
#include "runtime/base/philox.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[] = "/tmp/test-train-job-XXXXXX";

static int make_folder(void **state) {
  (void)state;
  return mkdtemp(folder) ? 0 : -1;
}
static int remove_folder(void **state) {
  (void)state;
  char command[200];
  snprintf(command, sizeof command, "rm -rf %s", folder);
  return system(command);
}

static const char *place_of(const char *name) {
  static char path[300];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  return path;
}

static void write_file(const char *path, const char *data) {
  FILE *f = fopen(path, "w");
  assert_non_null(f);
  fputs(data, f);
  fclose(f);
}

/* ---- initial values ---- */

/* The same with the C library's functions. */
static double reference_normal(uint64_t seed, const char *name, uint64_t i) {
  uint32_t key = 0, words[4];
  char hex[9] = {0};
  memcpy(hex, hash_bytes(name, strlen(name)).hex, 8);
  key = (uint32_t)strtoul(hex, NULL, 16);
  philox4x32(seed, PHILOX_INIT, key, (uint32_t)(i / 4 >> 32), (uint32_t)(i / 4), words);
  size_t pair = i % 4 / 2 * 2;
  double radius = sqrt(-2 * log(philox_uniform(words[pair]))), angle = 2 * acos(-1) * philox_uniform(words[pair + 1]);
  return radius * (i % 2 ? sin(angle) : cos(angle));
}

static void initial_numbers(void **state) {
  (void)state;
  enum { N = 40001 };
  static float x[N], y[N];
  double mean = 0, square = 0;
  assert_true(initial_values("normal(0.02)", 7, "layers.0.attn.q.weight", x, N));
  for (uint64_t i = 0; i < N; i++) {
    assert_true(fabs(x[i] - 0.02 * reference_normal(7, "layers.0.attn.q.weight", i)) <= 4e-9);
    mean += x[i] / (double)N, square += (double)x[i] * x[i] / N;
  }
  assert_true(fabs(mean) < 0.0005 && fabs(sqrt(square) - 0.02) < 0.0003);
  assert_true(initial_values("normal(0.02)", 7, "layers.0.attn.k.weight", y, N) && memcmp(x, y, sizeof x) != 0);
  assert_true(initial_values("normal(0.02)", 8, "layers.0.attn.q.weight", y, N) && memcmp(x, y, sizeof x) != 0);
  assert_true(initial_values("normal(0.02)", 7, "layers.0.attn.q.weight", y, 3) && memcmp(x, y, 3 * sizeof *x) == 0);
  assert_true(initial_values("uniform(0.5)", 7, "a", x, N));
  mean = 0;
  for (size_t i = 0; i < N; i++) {
    assert_true(x[i] > -0.5f && x[i] < 0.5f);
    mean += x[i] / (double)N;
  }
  assert_true(fabs(mean) < 0.01);
  static const struct {
    const char *init;
    float value;
  } plain[] = {{"zeros", 0}, {"ones", 1}, {"0.25", 0.25f}, {"-3", -3}, {"1e-06", 1e-6f}};
  for (size_t i = 0; i < sizeof plain / sizeof *plain; i++) {
    assert_true(initial_values(plain[i].init, 1, "x", x, 5));
    for (int k = 0; k < 5; k++) assert_true(x[k] == plain[i].value);
  }
  static const char *const wrong[] = {"", "one", "normal", "normal()", "normal(a)", "normal(1", "uniform(1))", "1 "};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) assert_false(initial_values(wrong[i], 1, "x", x, 5));
}

/* ---- sources ---- */

static const char live[] =
    "// a comment { with a brace\n"
    "model m(vocab = 257, d = 20, layers = 1 + 1, context = 8, theta = 1e4 /* { */) {\n"
    "  param wte: [vocab, d];\n"
    "  block half(x, which) {\n"
    "    let h = rms_norm(x, name = \"norm\"); // before\n"
    "    let q = rms_norm(split_heads(linear(h, d, name = \"q\"), 5), name = \"q_norm\");\n"
    "    return x + linear(silu(merge_heads(rope(q, theta = theta))), d, name = which);\n"
    "  }\n"
    "  forward(tokens) {\n"
    "    let x = embed(tokens, wte);\n"
    "    repeat layers as \"layers\" { x = half(x, \"a\", name = \"one\"); x = half(x, \"b\", name = \"two\"); }\n"
    "    return linear(layer_norm(x, name = \"norm\",), weight = wte);\n"
    "  }\n"
    "}\n"
    "train { tokenizer bytes; steps 200; batch 3; sequence context; schedule cosine(warmup = 29%); seed 4; }\n";

static taper_status prepare(const char *source, const train_settings *settings, train_job *job, diag_sink *sink,
                            taper_error *error) {
  arena a = {0};
  model_place place;
  model_options options = {0};
  const char *path = place_of("m.tmodel");
  write_file(path, source);
  taper_status status = model_locate(path, &job->memory, sink, &place, error);
  if (status == TAPER_OK) status = train_prepare(&place, &options, settings, sink, job, error);
  arena_free(&a);
  return status;
}

static size_t count_of(const ir_module *m, ir_opcode op) {
  size_t n = 0;
  for (ir_value v = ir_first(m, ir_entry_find(m, "forward")); v.id; v = ir_next(m, v)) n += ir_is(m, v, op);
  return n;
}

static void variants(void **state) {
  (void)state;
  static const struct {
    train_variant variant;
    size_t rms, layer, taper_rms, taper_layer, gates;
    bool anchor;
  } rows[] = {{TRAIN_AS_WRITTEN, 8, 1, 0, 0, 0, false}, {TRAIN_BASELINE, 8, 1, 0, 0, 0, false},
              {TRAIN_INTERNAL, 4, 1, 4, 0, 1, false},   {TRAIN_INTERNAL_AUX, 4, 1, 4, 0, 1, true},
              {TRAIN_FINAL, 8, 0, 0, 1, 1, false},      {TRAIN_ALL, 4, 0, 4, 1, 2, false},
              {TRAIN_ALL_AUX, 4, 0, 4, 1, 2, true}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    diag_sink *sink = diag_sink_new();
    train_job job = {0};
    taper_error error = {0};
    train_settings s;
    train_settings_init(&s);
    s.variant = rows[i].variant;
    assert_int_equal(prepare(live, &s, &job, sink, &error), TAPER_OK);
    const ir_module *m = job.model.module;
    assert_int_equal(count_of(m, IR_RMS_NORM), rows[i].rms);
    assert_int_equal(count_of(m, IR_LAYER_NORM), rows[i].layer);
    assert_int_equal(count_of(m, IR_TAPER_RMS_NORM), rows[i].taper_rms);
    assert_int_equal(count_of(m, IR_TAPER_LAYER_NORM), rows[i].taper_layer);
    assert_int_equal(job.gate_count, rows[i].gates);
    assert_int_equal(job.anchor, rows[i].anchor);
    for (size_t g = 0; g < job.gate_count; g++) {
      assert_int_equal(job.recipe.gates[g].start, 58); /* 29 % of 200, the end of the warm-up */
      assert_int_equal(job.recipe.gates[g].end, 200);
    }
    assert_true(job.recipe.batch == 3 && job.recipe.sequence == 8 && job.recipe.seed == 4 &&
                job.recipe.accumulate == 1);
    for (ir_value v = ir_first(m, IR_GLOBALS); v.id; v = ir_next(m, v))
      if (ir_is(m, v, IR_PARAM)) assert_false(ir_is_symbolic(m, v));
    train_free(&job);
    diag_sink_free(sink);
  }
}

/* --steps and --seq win before the section is judged, and the checkpoints' source fits them; what fits as it is stays. */
static void options_before_section(void **state) {
  (void)state;
  static const char model[] = "model m(vocab = 256, d = 8, context = 16) {\n  gate g;\n  param wte: [vocab, d];\n"
                              "  forward(t) { return linear(taper_rms_norm(embed(t, wte), name = \"n\", gate = g), "
                              "weight = wte); }\n}\n";
  static const struct {
    const char *section;
    uint64_t steps, sequence;
    taper_status status;
    const char *said; /* of the source, or of the error */
  } rows[] = {
      {"sequence 32; steps 50;", 0, 16, TAPER_OK, "{ sequence 16; steps 50; }"},
      {"sequence 8; steps 50;", 40, 16, TAPER_OK, "{ sequence 8; steps 50; }"},
      {"sequence 32;", 0, 17, TAPER_INVALID, ""},
      {"sequence 32;", 0, 0, TAPER_INVALID, ""},
      {"steps 10; taper g(start = 20, end = 30);", 40, 0, TAPER_OK, "{ steps 40; taper"},
      {"steps 10; schedule cosine(warmup = 20); taper g(end = 100%);", 40, 0, TAPER_OK, "{ steps 40; schedule"},
      {"steps 10; taper g(start = 50%, end = 4);", 6, 0, TAPER_OK, "{ steps 6; taper"},
      {"steps 40; taper g(start = 20, end = 30);", 10, 0, TAPER_INVALID, "after the last of 10; give more --steps"},
      {"steps 10; taper g(start = 20, end = 30);", 0, 0, TAPER_INVALID, ""},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    diag_sink *sink = diag_sink_new();
    train_job job = {0};
    taper_error error = {0};
    train_settings s;
    train_settings_init(&s);
    s.steps = rows[i].steps, s.sequence = rows[i].sequence;
    char source[600];
    snprintf(source, sizeof source, "%strain { %s }\n", model, rows[i].section);
    assert_int_equal(prepare(source, &s, &job, sink, &error), rows[i].status);
    assert_int_equal(diag_error_count(sink) != 0, rows[i].status != TAPER_OK && !error.message[0]);
    assert_non_null(strstr(rows[i].status == TAPER_OK ? job.source : error.message, rows[i].said));
    if (rows[i].status == TAPER_OK && rows[i].sequence) assert_int_equal(job.recipe.sequence, rows[i].sequence);
    if (rows[i].status == TAPER_OK && rows[i].steps) assert_int_equal(job.recipe.steps, rows[i].steps);
    train_free(&job);
    diag_sink_free(sink);
  }
}

/* Only what must change does; what was written compiles again, with other defaults, to the same module. */
static void rewritten(void **state) {
  (void)state;
  diag_sink *sink = diag_sink_new();
  front_model *f = front_parse(live, sizeof live - 1, "m", NULL, sink);
  assert_non_null(f);
  text same = {0}, other = {0};
  front_rewrite(f, NULL, 0, NULL, 0, &same);
  assert_string_equal(same.data, live);
  static const front_define defines[] = {{"layers", 3}, {"theta", 500}, {"d", 40}, {"layers", 1}};
  static const front_taper_norm norms[] = {{{"m", 5, 13, 1}, "internal"}, {{"m", 12, 19, 1}, "final"}};
  front_rewrite(f, defines, 4, norms, 2, &other);
  front_free(f);
  assert_non_null(strstr(other.data, "(vocab = 257, d = 40, layers = 1, context = 8, theta = 5e+02 /* { */) {\n"
                                     "  gate internal;\n  gate final;\n  param wte"));
  assert_non_null(strstr(other.data, "let h = taper_rms_norm(x, name = \"norm\", gate = internal); // before"));
  assert_non_null(strstr(other.data, "linear(taper_layer_norm(x, name = \"norm\", gate = final,), weight = wte)"));
  assert_non_null(strstr(other.data, "let q = rms_norm(split"));
  f = front_parse(other.data, other.size, "other", NULL, sink);
  assert_non_null(f);
  front_free(f);
  assert_int_equal(diag_error_count(sink), 0);
  text_free(&same), text_free(&other);
  diag_sink_free(sink);
}

static void refused(const char *source, train_variant variant, const char *message) {
  diag_sink *sink = diag_sink_new();
  train_job job = {0};
  taper_error error = {0};
  train_settings s;
  train_settings_init(&s);
  s.variant = variant;
  assert_int_equal(prepare(source, &s, &job, sink, &error), TAPER_INVALID);
  const char *said = *error.message ? error.message : diag_at(sink, diag_count(sink) - 1)->message;
  if (!strstr(said, message)) fail_msg("'%s' is not in '%s'", message, said);
  train_free(&job);
  diag_sink_free(sink);
}

static void refusals(void **state) {
  (void)state;
  refused("model m(vocab = 3, context = 4, d = 4) { param e: [vocab, d];\n forward(t) { return linear(embed(t, e), "
          "weight = e); } }",
          TRAIN_ALL, "no norm");
  refused("model m(vocab = 3, context = 4, d = 4) { gate g; param e: [vocab, d];\n"
          "forward(t) { let x = embed(t, e); let h = taper_rms_norm(x, name = \"a\", gate = g); x = x + linear(h, d, "
          "name = \"w\");\n"
          "return linear(taper_rms_norm(x, name = \"b\", gate = g), weight = e); } }",
          TRAIN_INTERNAL, "a gate of its own");
  refused("model m(vocab = 3, context = 4, d = 4) { param e: [vocab, d];\n"
          "block n(x) { return rms_norm(x, name = \"n\"); }\n"
          "forward(t) { let x = embed(t, e); x = x + linear(n(x, name = \"a\"), d, name = \"w\");\n"
          "return linear(n(x, name = \"b\"), weight = e); } }",
          TRAIN_FINAL, "two calls");
  refused("model m(vocab = 3, context = 4, d = 4) { param e: [vocab, d];\n forward(t) { return embed(t, e) } }",
          TRAIN_ALL, "expected");
}

static void amounts(void **state) {
  (void)state;
  assert_int_equal(train_amount((front_amount){true, true, 0.29}, 100), 29);
  assert_int_equal(train_amount((front_amount){true, true, 0.05}, 2000), 100);
  assert_int_equal(train_amount((front_amount){true, true, 0.05}, 1019), 50);
  assert_int_equal(train_amount((front_amount){true, true, 1}, 7), 7);
  assert_int_equal(train_amount((front_amount){true, true, 0.5}, 1), 0);
  assert_int_equal(train_amount((front_amount){true, false, 12}, 7), 12);
  assert_int_equal(train_amount((front_amount){false, false, 12}, 7), 0);
}

/* ---- run folders ---- */

static void make_checkpoint(const char *run, unsigned step, bool whole) {
  char path[400], command[1200];
  snprintf(path, sizeof path, "%s/checkpoint-%u", run, step);
  mkdir(path, 0777);
  snprintf(command, sizeof command, "cd %s && : > model.tmodel && : > weights.safetensors", path);
  assert_int_equal(system(command), 0);
  snprintf(path, sizeof path, "%s/checkpoint-%u/manifest.json", run, step);
  snprintf(command, sizeof command, "{\"step\": %u, \"files\": {\"model.tmodel\": \"%s\"}}", step,
           whole ? hash_bytes("", 0).hex : "0");
  write_file(path, command);
}

static void expect_metrics(const char *run, const char *expected) {
  char path[400], data[4000] = {0};
  snprintf(path, sizeof path, "%s/metrics.jsonl", run);
  FILE *f = fopen(path, "r");
  assert_non_null(f);
  assert_true(fread(data, 1, sizeof data - 1, f) < sizeof data - 1);
  fclose(f);
  assert_string_equal(data, expected);
}

static void run_folders(void **state) {
  (void)state;
  diag_sink *sink = diag_sink_new();
  run_folder r = {0}, second = {0};
  taper_error error = {0};
  char run[300], path[400];
  snprintf(run, sizeof run, "%s/run", folder);
  assert_int_equal(run_folder_open(run, false, sink, &r, &error), TAPER_OK);
  assert_true(r.fresh && !r.found.folder);
  assert_int_equal(run_folder_open(run, true, sink, &second, &error), TAPER_IO); /* locked */
  run_folder_close(&second);
  text line = {0};
  text_puts(&line, "{\"step\": 1}\n{\"step\": 2, \"event\": \"taper_start\"}\n{\"step\": 2}\n{\"step\": 2, \"event\": "
                   "\"checkpoint\"}\n{\"step\": 3}\n{\"step\": 4");
  assert_int_equal(run_folder_metrics(&r, &line, &error), TAPER_OK);
  text_free(&line);
  run_folder_close(&r);
  assert_int_equal(run_folder_open(run, false, sink, &r, &error), TAPER_INVALID);
  run_folder_close(&r);
  for (unsigned step = 1; step <= 4; step++) make_checkpoint(run, step, step <= 2);
  assert_int_equal(run_folder_open(run, true, sink, &r, &error), TAPER_OK);
  assert_true(r.found.step == 2 && r.found.folder && r.found.count == 4);
  expect_metrics(run, "{\"step\": 1}\n{\"step\": 2, \"event\": \"taper_start\"}\n{\"step\": 2}\n");
  snprintf(path, sizeof path, "%s/damaged-checkpoint-4", run);
  assert_int_equal(access(path, F_OK), 0);
  make_checkpoint(run, 10, true), make_checkpoint(run, 9, true);
  run_folder_prune(&r, 10, 2);
  checkpoint_steps list;
  assert_int_equal(checkpoints_list(run, &r.memory, &list, &error), TAPER_OK);
  assert_true(list.count == 2 && list.steps[0] == 10 && list.steps[1] == 9);
  run_folder_prune(&r, 10, 0); /* all are kept */
  assert_int_equal(checkpoints_list(run, &r.memory, &list, &error), TAPER_OK);
  assert_int_equal(list.count, 2);
  run_folder_close(&r);
  diag_sink_free(sink);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(initial_numbers), cmocka_unit_test(variants), cmocka_unit_test(options_before_section),
      cmocka_unit_test(rewritten),       cmocka_unit_test(refusals), cmocka_unit_test(amounts),
      cmocka_unit_test(run_folders)};
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
