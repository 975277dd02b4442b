#include "compiler/cli/scan.h"
#include "compiler/cli/json.h"
#include "compiler/driver/scan_copy.h"
#include <stdlib.h>
#include <string.h>

typedef struct scan_own {
  const char *data;
  bool stress;
} scan_own;

enum { KEY_DATA = 3000, KEY_STRESS };

#define FEW_POSITIONS 256 /* one window of the scan */

static const struct argp_option options[] = {
    {"data", KEY_DATA, "FILE", 0, "text, or ids: NAME.ids (text), NAME.u16, NAME.u32 (little endian)", 0},
    {"stress", KEY_STRESS, NULL, 0,
     "also: which ids drive the residual stream out of range, and the clamp that mends it", 0},
    {0}};

static int option(cli *c, int key, const char *value) {
  scan_own *o = c->own;
  if (key == KEY_DATA) o->data = value;
  if (key == KEY_STRESS) o->stress = true;
  return CLI_OK;
}

static void on_progress(void *user, const char *what, uint64_t done, uint64_t all) {
  (void)user;
  cli_progress(what, done, all);
}

static int find_place(cli *c, model_place *out) {
  taper_error error = {0};
  taper_status status = model_locate(c->args[0], &c->memory, c->sink, out, &error);
  if (status != TAPER_OK) return cli_fail_status(c, status, &error, false);
  if (out->kind == MODEL_PACKAGE)
    return cli_fail_file(c, CLI_WRONG, c->args[0],
                         "a package holds folded weights; give the model that it was made of");
  if (out->kind == MODEL_TIR)
    return cli_fail_file(c, CLI_WRONG, c->args[0], "IR text cannot be scanned; give the .tmodel that it was made of");
  if (c->output && c->model.define_count)
    return cli_fail(c, CLI_USAGE, "-o copies the model as it is written, without -D %s; write it into the .tmodel",
                    c->model.defines[0].name);
  return CLI_OK;
}

/* -o DIR/. The scale is that of the mended stream where --stress found a clamp. */
static int write_copy(cli *c, const model_place *place, const build_opened *b, const corpus *data,
                      const stress_result *stress) {
  taper_error error = {0};
  model_loaded m = {0};
  runner_sample sample = stress->calm;
  scan_copy_result r = {0};
  diag_sink *quiet = diag_sink_new();
  taper_status status = TAPER_OK;
  if (!sample.positions)
    status = runner_take_sample(b->model, b->source.layer_form, data, CORPUS_TRAIN, on_progress, c, &sample, &error);
  if (status == TAPER_OK) status = model_load(place, &c->model, quiet, &m, &error);
  bool writing = status == TAPER_OK;
  if (status == TAPER_OK) status = scan_copy(&m, data, &sample, c->output, &r, &error);
  int bad = status == TAPER_OK ? CLI_OK : cli_fail_status(c, status, &error, writing);
  if (!bad && !stress->count && sample.high > 10 * sample.median)
    cli_warn(c,
             "the residual scale's 99.9 %% is %.1f times its median: the data itself may hold ids that drive it out of "
             "range; add --stress",
             sample.high / sample.median);
  if (!bad)
    cli_note(c, "wrote %s: %zu tensors%s, and %zu files beside them", c->output, r.tensors,
             r.seen_kept ? "; the counts of its training stay" : ", with how often the data reads each id",
             r.files + 1);
  model_free(&m);
  diag_sink_free(quiet);
  return bad;
}

static int run_stress(cli *c, const model_place *place, const corpus *data, stress_result *out) {
  taper_error error = {0};
  taper_model_options runtime;
  cli_runtime_options(c, &runtime);
  runtime.log = NULL;
  const stress_options o = {.place = place,
                            .model = &c->model,
                            .build = &c->build,
                            .runtime = &runtime,
                            .data = data,
                            .part = CORPUS_TRAIN,
                            .progress = on_progress,
                            .user = c};
  taper_status status = stress_run(&o, c->sink, out, &error);
  return status == TAPER_OK ? CLI_OK : cli_fail_status(c, status, &error, false);
}

static int run_norms(cli *c, const model_place *place, const corpus *data, scan_result *out) {
  taper_error error = {0};
  const scan_options o = {.place = place,
                          .model = &c->model,
                          .build = &c->build,
                          .threads = c->threads,
                          .data = data,
                          .part = CORPUS_TRAIN,
                          .progress = on_progress,
                          .user = c};
  diag_sink *quiet = diag_sink_new(); /* what is to be said of the model was said when it was opened */
  taper_status status = scan_run(&o, quiet, out, &error);
  if (status != TAPER_OK && !*error.message)
    for (size_t i = 0; i < diag_count(quiet); i++)
      if (diag_at(quiet, i)->severity == DIAG_ERROR) cli_fail(c, CLI_WRONG, "%s", diag_at(quiet, i)->message);
  int bad = status == TAPER_OK ? CLI_OK : cli_fail_status(c, status, &error, false);
  diag_sink_free(quiet);
  return bad;
}

static int scan(cli *c, const scan_own *o, const model_place *place, build_opened *b, const corpus *data) {
  stress_result stress = {0};
  scan_result norms = {0};
  text t = {0};
  json_out j = {0};
  int bad = run_norms(c, place, data, &norms);
  if (!bad && norms.calibrated < FEW_POSITIONS)
    cli_warn(c, "calibrated on %llu position%s: too few to judge by; give more text",
             (unsigned long long)norms.calibrated, norms.calibrated == 1 ? "" : "s");
  if (!bad && o->stress) bad = run_stress(c, place, data, &stress);
  if (!bad && c->output) bad = write_copy(c, place, b, data, &stress);
  if (!bad && c->json) {
    json_open(&j, NULL, '{');
    scan_put_norms_json(&j, &norms);
    if (o->stress) scan_put_stress_json(&j, b->model, &stress);
    json_close(&j, '}');
    text_puts(&j.t, "\n");
    cli_put(j.t.data, j.t.size);
  } else if (!bad) {
    scan_put_norms(&t, &norms);
    if (o->stress) scan_put_stress(&t, b->model, &stress);
    cli_put(t.data, t.size);
  }
  text_free(&j.t), text_free(&t);
  scan_free(&norms);
  stress_free(&stress);
  return bad;
}

static int run(cli *c) {
  scan_own *o = c->own;
  build_opened b = {0};
  corpus *data = NULL;
  model_place place;
  if (!o->data) return cli_fail(c, CLI_USAGE, "'scan' needs data; give --data FILE");
  if (c->build.pass.clamp_rows > 0)
    return cli_fail(c, CLI_USAGE, "option '--clamp-rows': 'scan --stress' looks for the clamp itself; leave it out");
  c->model.need_weights = true;
  int bad = find_place(c, &place);
  if (!bad) bad = cli_open_place(c, &place, &b);
  if (!bad) bad = cli_open_data(c, &b, o->data, 1, &data);
  cli_flush(c);
  if (!bad) bad = scan(c, o, &place, &b, data);
  cli_flush(c); /* places in messages live in the model */
  corpus_close(data);
  build_close(&b);
  return bad;
}

const cli_command cli_cmd_scan = {
    .name = "scan",
    .args = "MODEL",
    .summary = "what the removal of each norm would cost, and which tokens drive a norm-free stream out of range",
    .min_args = 1,
    .max_args = 1,
    .details = "Nothing is trained. -o DIR/ writes a copy of the model whose weights also say how often the data reads "
               "each id and how large the residual stream is; --clamp-rows and the guard of 'run' go by that.",
    .acts = CLI_ACT_MODEL | CLI_ACT_WEIGHTS | CLI_ACT_BUILD | CLI_ACT_CC | CLI_ACT_THREADS | CLI_ACT_DEVICE |
            CLI_ACT_TRAINS | CLI_ACT_OUTPUT,
    .options = options,
    .own_size = sizeof(scan_own),
    .option = option,
    .run = run};
