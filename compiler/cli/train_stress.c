/* The end of a run that removed a norm: does any id drive the stream out of range? */
#include "compiler/cli/scan.h"
#include "compiler/cli/train.h"
#include <string.h>

/* Is a gate at 0 that the recipe moved? */
static bool norm_removed(const train_run *t) {
  for (uint32_t i = 0; i < t->info.gates; i++) {
    const char *name;
    double value;
    taper_trainer_gate(t->trainer, i, &name, NULL, NULL, &value);
    for (size_t g = 0; g < t->recipe.gate_count; g++)
      if (strcmp(t->recipe.gates[g].gate, name) == 0 && value == 0) return true;
  }
  return false;
}

static void on_progress(void *user, const char *what, uint64_t done, uint64_t all) {
  (void)user;
  cli_progress(what, done, all);
}

static void say(train_run *t, const stress_result *r) {
  text verdict = {0};
  scan_put_verdict(&verdict, r);
  if (verdict.size) verdict.data[--verdict.size] = 0;
  t->stress_known = true, t->clamp_rows = r->clamp_rows, t->worst_ratio = r->tries[0].worst_ratio;
  cli_note(t->c, "stress %s", verdict.data ? verdict.data : "");
  run_folder_log(&t->run, "stress %s", verdict.data ? verdict.data : "");
  text_free(&verdict);
}

void train_stress(train_run *t) {
  cli *c = t->c;
  const char *folder = checkpoint_folder(t->run.path, t->info.step, &c->memory);
  taper_error error = {0};
  taper_model_options runtime;
  model_place place;
  stress_result r = {0};
  if (t->o->no_stress || !norm_removed(t)) return;
  cli_runtime_options(c, &runtime);
  runtime.log = NULL;
  const model_options model = {.need_weights = true};
  build_options build = {.pass = {.level = 2}, .cc = c->build.cc, .no_cache = c->build.no_cache};
  taper_status status = model_locate(folder, &c->memory, c->sink, &place, &error);
  const stress_options o = {.place = &place,
                            .model = &model,
                            .build = &build,
                            .runtime = &runtime,
                            .data = t->data,
                            .part = CORPUS_TRAIN,
                            .progress = on_progress,
                            .user = c};
  diag_sink *quiet = diag_sink_new(); /* what compiling it says was said, or is for taperc compile to say */
  if (status == TAPER_OK) status = stress_run(&o, quiet, &r, &error);
  diag_sink_free(quiet);
  if (status == TAPER_OK)
    say(t, &r);
  else
    cli_note(c, "%s: its tokens were not tried: %s; run taperc scan %s --stress", folder, error.message, folder);
  stress_free(&r);
}
