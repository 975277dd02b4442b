/* Checkpoints: a resumed run equals an uninterrupted one bit for bit; damage, full disks and kills lose nothing else. */
#include "tests/device/toy_train.h"
#include <dirent.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
// cmocka needs the headers above first
#include <cmocka.h>

enum { IDS = TT_BATCH * TT_TIME * 4 };

static toy_train *good;
static taper_recipe base;

#define OK(call)                                                                                                       \
  do {                                                                                                                 \
    taper_error error_ = {0};                                                                                          \
    taper_error *e = &error_;                                                                                          \
    if ((call) != TAPER_OK) fail_msg("%s:%d: %s", __FILE__, __LINE__, error_.message);                                 \
  } while (0)

#define FAILS(call, expected, word)                                                                                    \
  do {                                                                                                                 \
    taper_error error_ = {0};                                                                                          \
    taper_error *e = &error_;                                                                                          \
    assert_int_equal((call), (expected));                                                                              \
    if (!strstr(error_.message, (word)))                                                                               \
      fail_msg("%s:%d: '%s' lacks '%s'", __FILE__, __LINE__, error_.message, (word));                                  \
  } while (0)

static taper_trainer *open_with(const taper_recipe *r, uint32_t threads) {
  taper_trainer_options o;
  taper_trainer *t = NULL;
  taper_trainer_options_init(&o);
  o.threads = threads, o.gemm = TAPER_GEMM_GENERATED, o.recipe = r;
  OK(taper_trainer_open(toy_path("good.tpack"), &o, &t, e));
  return t;
}

static void step(taper_trainer *t, const taper_recipe *r) {
  taper_trainer_info info;
  int32_t tokens[IDS], targets[IDS];
  taper_trainer_get_info(t, &info);
  if (taper_trainer_wants_calibration(t)) {
    tt_batch(r, 1000, tokens, targets);
    OK(taper_trainer_calibrate(t, tokens, targets, e));
    return;
  }
  tt_batch(r, info.step + 1, tokens, targets);
  OK(taper_trainer_step(t, tokens, targets, NULL, e));
}

static uint64_t step_of(const taper_trainer *t) {
  taper_trainer_info info;
  taper_trainer_get_info(t, &info);
  return info.step;
}

/* The bytes of a checkpoint's file; malloc. */
static char *read_part(const char *run, uint64_t k, const char *name, size_t *size) {
  char path[256], *data = NULL;
  snprintf(path, sizeof(path), "%s/checkpoint-%llu/%s", run, (unsigned long long)k, name);
  OK(file_read(path, 1 << 26, &data, size, e));
  return data;
}

static void same_part(const char *run, const char *other, uint64_t k, const char *name) {
  size_t n = 0, m = 0;
  char *a = read_part(run, k, name, &n), *b = read_part(other, k, name, &m);
  assert_int_equal(n, m);
  assert_memory_equal(a, b, n);
  free(a), free(b);
}

/* Breaks the run off after every step, and once amid the calibration. */
static void resume_everywhere(const taper_recipe *r) {
  char whole[128], parts[128], at[256];
  snprintf(whole, sizeof(whole), "%s", toy_path("whole"));
  snprintf(parts, sizeof(parts), "%s", toy_path("parts"));
  taper_trainer *a = open_with(r, 2), *b = open_with(r, 1);
  for (int k = 0; k < 3 && taper_trainer_wants_calibration(a); k++) step(a, r), step(b, r);
  while (step_of(a) < r->steps) {
    const uint64_t k = step_of(b);
    OK(taper_trainer_save(b, parts, "\"data\": {\"position\": 5}", e));
    taper_trainer_free(b);
    b = open_with(r, (uint32_t)(k % 3 + 1));
    snprintf(at, sizeof(at), "%s/checkpoint-%llu", parts, (unsigned long long)k);
    OK(taper_trainer_resume(b, at, e));
    assert_int_equal(step_of(b), k);
    do { step(a, r), step(b, r); } while (step_of(a) == k);
    OK(taper_trainer_save(a, whole, NULL, e));
  }
  OK(taper_trainer_save(b, parts, NULL, e));
  for (uint64_t k = 1; k <= r->steps; k++) {
    same_part(whole, parts, k, "weights.safetensors");
    same_part(whole, parts, k, "optimizer.safetensors");
    same_part(whole, parts, k, "model.tmodel");
    same_part(whole, parts, k, "tokenizer.model");
  }
  FAILS(taper_trainer_resume(b, parts, e), TAPER_IO, "manifest.json");
  taper_trainer_free(a);
  taper_trainer_free(b);
}

static void resumed_runs_are_the_same(void **state) {
  (void)state;
  taper_gate_schedule g = tt_steps;
  taper_recipe r = base;
  r.gates = &g;
  resume_everywhere(&r);
  g = (taper_gate_schedule){.gate = "list", .kind = TAPER_GATE_RAMP, .start = 3, .end = 9, .ema = 0.1};
  resume_everywhere(&r);
  g.start = 0, g.inv_sigma = 1;
  resume_everywhere(&r);
  g.kind = TAPER_GATE_NEVER;
  resume_everywhere(&r);
}

static void weights_are_a_models(void **state) {
  (void)state;
  char path[256], run[128];
  st_file f = {0};
  snprintf(run, sizeof(run), "%s", toy_path("weights"));
  taper_trainer *t = open_with(NULL, 2);
  uint64_t reads[TT_V] = {0};
  for (uint64_t k = 1; k <= base.steps; k++) {
    int32_t tokens[IDS], targets[IDS];
    tt_batch(&base, k, tokens, targets);
    for (uint32_t w = 0; w < TT_BATCH * 2; w++) {
      int last = TT_TIME - 1;
      while (last >= 0 && targets[w * TT_TIME + (uint32_t)last] < 0) last--;
      for (int i = 0; i <= last; i++) reads[tokens[w * TT_TIME + (uint32_t)i]]++;
    }
    step(t, &base);
    OK(taper_trainer_save(t, run, NULL, e));
    snprintf(path, sizeof(path), "%s/checkpoint-%llu/weights.safetensors", run, (unsigned long long)k);
    OK(st_open(path, &f, e));
    char gates[64];
    snprintf(gates, sizeof(gates), "{\"list\": [%d, %d]}", k < 4, k < 7); /* for the next step */
    assert_string_equal(st_metadata(&f, "taper.gates"), gates);
    assert_null(st_find(&f, "anchor.target"));
    const st_tensor *seen = st_find(&f, "wte.seen"), *scale = st_find(&f, "taper.scale"),
                    *c = st_find(&f, "n0.taper_c");
    assert_true(seen && seen->dtype == ST_I64 && seen->elements == TT_V);
    assert_memory_equal(seen->data, reads, sizeof(reads));
    float s[2];
    assert_true(scale && scale->elements == 2 && c && c->rank == 1);
    st_read_f32(scale, 0, 2, s);
    assert_true(s[0] > 0 && s[1] > s[0]);
    st_close(&f);
  }
  taper_trainer_free(t);
}

static void damage_is_found(void **state) {
  (void)state;
  static const char *const names[] = {"weights.safetensors", "optimizer.safetensors", "model.tmodel",
                                      "tokenizer.model"};
  char run[128], at[200], path[256];
  snprintf(run, sizeof(run), "%s", toy_path("damage"));
  taper_trainer *t = open_with(NULL, 2), *fresh = open_with(NULL, 2);
  for (int k = 0; k < 5; k++) step(t, &base);
  snprintf(at, sizeof(at), "%s/checkpoint-5", run);
  for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
    OK(taper_trainer_save(t, run, NULL, e)); /* takes the place of the damaged one */
    snprintf(path, sizeof(path), "%s/%s", at, names[i]);
    FILE *f = fopen(path, "r+b");
    fseek(f, -1, SEEK_END);
    const int byte = fgetc(f);
    fseek(f, -1, SEEK_END);
    fputc(byte ^ 1, f);
    fclose(f);
    FAILS(taper_trainer_resume(fresh, at, e), TAPER_INVALID, names[i]);
    assert_int_equal(step_of(fresh), 0);
  }
  OK(taper_trainer_save(t, run, NULL, e));
  snprintf(path, sizeof(path), "%s/manifest.json", at);
  assert_int_equal(truncate(path, 100), 0);
  FAILS(taper_trainer_resume(fresh, at, e), TAPER_INVALID, "manifest.json: ");
  assert_int_equal(remove(path), 0);
  FAILS(taper_trainer_resume(fresh, at, e), TAPER_IO, "manifest.json");
  FAILS(taper_trainer_resume(fresh, toy_path("nowhere"), e), TAPER_IO, "nowhere");
  FAILS(taper_trainer_save(t, run, "\"data\": {", e), TAPER_INVALID, "'extra' is no list of JSON members");
  taper_trainer_free(fresh);
  taper_recipe r = base;
  const struct {
    const char *word;
    uint64_t steps;
    double lr;
    uint64_t every;
  } others[] = {
      {"steps differs", 20, base.lr, 3}, {"lr differs", 14, 0.01, 3}, {"gate 'list' differs", 14, base.lr, 2}};
  OK(taper_trainer_save(t, run, NULL, e));
  for (size_t i = 0; i < 3; i++) {
    taper_gate_schedule g = tt_steps;
    g.every = others[i].every;
    r.gates = &g, r.steps = others[i].steps, r.lr = others[i].lr;
    fresh = open_with(&r, 2);
    FAILS(taper_trainer_resume(fresh, at, e), TAPER_INVALID, others[i].word);
    taper_trainer_free(fresh);
  }
  taper_trainer_free(t);
}

static unsigned count_entries(const char *run, const char *part) {
  unsigned n = 0;
  DIR *d = opendir(run);
  for (struct dirent *x; d && (x = readdir(d));) n += x->d_name[0] != '.' && strstr(x->d_name, part) != NULL;
  if (d) closedir(d);
  return n;
}

static void full_disks_lose_nothing(void **state) {
  (void)state;
  char run[128], at[200];
  snprintf(run, sizeof(run), "%s", toy_path("full"));
  snprintf(at, sizeof(at), "%s/checkpoint-1", run);
  taper_trainer *t = open_with(NULL, 1), *fresh = open_with(NULL, 1);
  step(t, &base);
  OK(taper_trainer_save(t, run, NULL, e));
  signal(SIGXFSZ, SIG_IGN);
  struct rlimit before;
  getrlimit(RLIMIT_FSIZE, &before);
  for (rlim_t bytes = 0; bytes < 12000; bytes += 1500) {
    setrlimit(RLIMIT_FSIZE, &(struct rlimit){bytes, before.rlim_max});
    const taper_status first = taper_trainer_save(t, run, NULL, NULL);
    taper_error error = {0};
    if (first == TAPER_OK) fail_msg("%lu bytes were enough", (unsigned long)bytes);
    assert_int_equal(taper_trainer_save(t, run, NULL, &error), TAPER_IO);
    assert_non_null(strstr(error.message, "cannot write"));
    setrlimit(RLIMIT_FSIZE, &before);
    assert_int_equal(count_entries(run, "tmp"), 0);
    OK(taper_trainer_resume(fresh, at, e));
  }
  OK(taper_trainer_save(t, run, NULL, e));
  OK(taper_trainer_resume(fresh, at, e));
  FAILS(taper_trainer_save(t, "/proc/nothing", NULL, e), TAPER_IO, "/proc/nothing: cannot create");
  taper_trainer_free(t);
  taper_trainer_free(fresh);
}

/* Trains and saves for ever, in a process of its own; a byte to `ready` before or after the first save. */
static void save_for_ever(const char *run, int ready, bool before) {
  for (;;) {
    taper_trainer *t = NULL;
    taper_trainer_options o;
    taper_trainer_options_init(&o);
    o.threads = 1, o.gemm = TAPER_GEMM_GENERATED;
    if (taper_trainer_open(toy_path("good.tpack"), &o, &t, NULL) != TAPER_OK) _exit(9);
    for (uint64_t k = 1; k <= base.steps; k++) {
      int32_t tokens[IDS], targets[IDS];
      tt_batch(&base, k, tokens, targets);
      if (taper_trainer_step(t, tokens, targets, NULL, NULL) != TAPER_OK) _exit(8);
      if (before && write(ready, "x", 1) != 1) _exit(6);
      if (taper_trainer_save(t, run, NULL, NULL) != TAPER_OK) _exit(7);
      if (!before && write(ready, "x", 1) != 1) _exit(6);
    }
    taper_trainer_free(t);
  }
}

static void kills_leave_whole_checkpoints(void **state) {
  (void)state;
  const char *many = getenv("TAPERC_KILLS");
  const int kills = many ? atoi(many) : 12;
  char run[128];
  unsigned whole = 0;
  snprintf(run, sizeof(run), "%s", toy_path("kills"));
  taper_trainer *t = open_with(NULL, 1);
  for (int k = 0; k < kills; k++) {
    uint32_t x[4];
    philox4x32(3, PHILOX_CHECK, 0, 0, (uint32_t)k, x);
    int ready[2];
    char byte;
    assert_int_equal(pipe(ready), 0);
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) save_for_ever(run, ready[1], k % 2 == 1);
    close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    nanosleep(&(struct timespec){0, (long)(x[0] % 60000000)}, NULL);
    kill(child, SIGKILL);
    int how;
    waitpid(child, &how, 0);
    close(ready[0]);
    assert_true(WIFSIGNALED(how));
    DIR *d = opendir(run);
    for (struct dirent *x1; d && (x1 = readdir(d));) {
      char path[512];
      if (strncmp(x1->d_name, "checkpoint-", 11) != 0 || strstr(x1->d_name, "tmp")) continue;
      snprintf(path, sizeof(path), "%s/%s", run, x1->d_name);
      OK(taper_trainer_resume(t, path, e));
      whole++;
    }
    if (d) closedir(d);
    assert_true(count_entries(run, "tmp") <= 1); /* of the last kill: earlier ones are gone */
  }
  assert_true(whole > 0 || kills == 0);
  OK(taper_trainer_save(t, run, NULL, e));
  assert_int_equal(count_entries(run, "tmp"), 0);
  taper_trainer_free(t);
}

static int set_up(void **state) {
  (void)state;
  base = tt_recipe(&tt_steps);
  good = tt_new(0, &base);
  toy_write(&good->base, toy_path("good.tpack"));
  return 0;
}

static int tear_down(void **state) {
  (void)state;
  tt_free(good);
  toy_remove_folder();
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(resumed_runs_are_the_same),
      cmocka_unit_test(weights_are_a_models),
      cmocka_unit_test(damage_is_found),
      cmocka_unit_test(full_disks_lose_nothing),
      cmocka_unit_test(kills_leave_whole_checkpoints),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
